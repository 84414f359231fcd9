//! Chat templates: compile once, render a conversation to text, as transformers does with Jinja2.
//!
//! The engine is minijinja. What it has of its own (operators, methods, printing, filters) is replaced by Python's:
//! [`compile`] and [`rewrite`] say how. Nothing here reads files or the network; the clock is read only for `strftime_now`.

mod arguments;
mod budget;
mod calls;
mod compile;
mod continuation;
mod detect;
mod dumps;
mod environment;
mod filters;
mod functions;
mod layout;
mod methods;
mod objects;
mod operators;
mod percent;
mod predicates;
mod printable;
mod rewrite;
mod source;
mod str_format;
mod strftime;
mod text;
mod value;
mod variables;
mod walk;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object};
use minijinja::{AutoEscape, Environment, ErrorKind, Value, machinery};

use self::compile::{Compiled, Facts, Program};
use self::continuation::Continuation;
pub use self::variables::is_apply_parameter;
use crate::error::{Error, Result};
use crate::json::{Json, Map};
use crate::spec::ContentFormat;

/// Local time as `strftime_now` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timestamp {
    pub year: i32,
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
    pub microsecond: u32,
}

/// Bounds on what one rendering may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Steps of the engine; 0 = no bound.
    pub fuel: u64,
    pub output_bytes: usize,
    /// Bytes of texts and containers that may be made on the way, whether they are kept or not.
    pub made_bytes: usize,
}

/// What a template is rendered with.
#[derive(Debug, Clone)]
pub struct RenderInput<'a> {
    pub messages: &'a [Json<'a>],
    pub tools: Option<&'a Json<'a>>,
    pub documents: Option<&'a Json<'a>>,
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
    /// Further variables; those named as a special token replace it.
    pub kwargs: &'a Map<'a>,
    /// Fixed time; the clock's when absent.
    pub now: Option<Timestamp>,
}

/// Variables that [`RenderInput`] has fields for: the same names among its `kwargs` are passed over.
const OWN_VARIABLES: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// A compiled chat template.
///
/// ```
/// use fastrender_core::json::{Json, Map};
/// use fastrender_core::template::{ChatTemplate, Limits, RenderInput};
///
/// let limits = Limits { fuel: 0, output_bytes: 1 << 20, made_bytes: 1 << 24 };
/// let source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
/// let template = ChatTemplate::new(source, &Map::new(), limits)?;
/// let messages = Json::parse(r#"[{"role": "user", "content": "hi"}]"#).expect("it is JSON");
/// let input = RenderInput {
///     messages: messages.as_array().expect("it is an array"),
///     tools: None,
///     documents: None,
///     add_generation_prompt: false,
///     continue_final_message: false,
///     kwargs: &Map::new(),
///     now: None,
/// };
/// assert_eq!(template.render(&input)?, "<user>hi");
/// # Ok::<(), fastrender_core::Error>(())
/// ```
pub struct ChatTemplate {
    compiled: Compiled,
    environment: Environment<'static>,
    special_tokens: Vec<(String, Value)>,
    facts: Facts,
    limits: Limits,
    mentions_developer: bool,
    mentions_content: bool,
    mentions_tojson: bool,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Compile; a construct that is not supported is an error that names the line and the construct.
    pub fn new(source: &str, special_tokens: &Map<'_>, limits: Limits) -> Result<Self> {
        let (compiled, facts) = compile::compile(source)?;
        Ok(Self {
            compiled,
            environment: environment::with_fuel(limits.fuel),
            special_tokens: special_tokens
                .iter()
                .map(|(name, token)| (name.to_owned(), value::from_json(token)))
                .collect(),
            facts,
            limits,
            mentions_developer: source.contains("\"developer\"") || source.contains("'developer'"),
            mentions_content: source.contains("content"),
            mentions_tojson: source.contains("tojson"),
        })
    }

    /// How this template wants message content (vLLM's `auto` detection); never `Auto`.
    pub fn content_format(&self) -> ContentFormat {
        self.facts.content_format
    }

    /// Whether vLLM lets this name through from `chat_template_kwargs`: the template does not set it by itself, or it
    /// is a parameter of `apply_chat_template`.
    pub fn accepts(&self, name: &str) -> bool {
        is_apply_parameter(name) || (self.is_undeclared(name) && !matches!(name, "chat_template" | "tokenize"))
    }

    /// Whether the template takes this variable from outside (`jinja2.meta.find_undeclared_variables`).
    pub fn is_undeclared(&self, name: &str) -> bool {
        self.facts.undeclared.contains(name)
    }

    /// The variables that the template takes from outside, in alphabetical order.
    pub fn undeclared_variables(&self) -> impl Iterator<Item = &str> {
        self.facts.undeclared.iter().map(String::as_str)
    }

    /// Whether the source holds `"developer"` or `'developer'`.
    pub fn mentions_developer(&self) -> bool {
        self.mentions_developer
    }

    /// Render; every failure is [`Error::Template`] or [`Error::BadRequest`].
    pub fn render(&self, input: &RenderInput<'_>) -> Result<String> {
        let Some((last, earlier)) = input.messages.split_last() else {
            return Err(Error::bad_param("messages", "a conversation wants at least one message"));
        };
        check_objects("tools", input.tools)?;
        check_objects("documents", input.documents)?;
        let mut messages: Vec<Value> = Vec::with_capacity(input.messages.len());
        messages.extend(earlier.iter().map(value::from_json));
        let continuation = if input.continue_final_message {
            if input.add_generation_prompt {
                return Err(Error::bad_request(
                    "`continue_final_message` and `add_generation_prompt` exclude each other",
                ));
            }
            let (message, continuation) = Continuation::begin(last, self.mentions_content)?;
            messages.push(message);
            Some(continuation)
        } else {
            messages.push(value::from_json(last));
            None
        };
        let text = self.run(input, messages)?;
        match continuation {
            Some(continuation) => continuation.finish(text),
            None => Ok(text),
        }
    }

    fn run(&self, input: &RenderInput<'_>, messages: Vec<Value>) -> Result<String> {
        let mut variables: Vec<(Cow<'static, str>, Value)> =
            Vec::with_capacity(OWN_VARIABLES.len() + self.special_tokens.len() + input.kwargs.len());
        let optional = |value: Option<&Json<'_>>| value.map_or_else(|| Value::from(()), value::from_json);
        let messages = value::list(messages).map_err(|error| template_error(&error))?;
        variables.push(("messages".into(), messages));
        variables.push(("add_generation_prompt".into(), Value::from(input.add_generation_prompt)));
        let tools = match input.tools.and_then(Json::as_array) {
            Some(tools) if self.mentions_tojson => value::printed_from_json(tools),
            _ => optional(input.tools),
        };
        variables.push(("tools".into(), tools));
        variables.push(("documents".into(), optional(input.documents)));
        for (name, given) in input.kwargs.iter().filter(|(name, _)| !OWN_VARIABLES.contains(name)) {
            variables.push((name.to_owned().into(), value::from_json(given)));
        }
        for (name, token) in &self.special_tokens {
            if !input.kwargs.contains_key(name) {
                variables.push((name.clone().into(), token.clone()));
            }
        }
        let _rendering = budget::Rendering::begin(self.limits, input.now);
        let root = Value::from_object(Root::new(variables));
        let mut text = String::with_capacity(1024);
        let program = self.compiled.borrow_dependent();
        evaluate(&self.environment, program, root, &mut text).map_err(|error| template_error(&error))?;
        budget::check_size(text.len()).and_then(|()| budget::check_work()).map_err(|error| template_error(&error))?;
        Ok(text)
    }
}

fn evaluate<'a>(
    environment: &'a Environment<'a>,
    program: &'a Program<'a>,
    root: Value,
    text: &mut String,
) -> std::result::Result<(), minijinja::Error> {
    let mut output = machinery::make_string_output(text);
    machinery::eval(environment, &program.instructions, root, &program.blocks, &mut output, AutoEscape::None)?;
    Ok(())
}

/// transformers takes a list of objects only.
fn check_objects(name: &str, values: Option<&Json<'_>>) -> Result<()> {
    let Some(values) = values else { return Ok(()) };
    let items = values.as_array().ok_or_else(|| Error::bad_param(name, format!("`{name}` must be a list")))?;
    if items.iter().any(|item| item.as_object().is_none()) {
        return Err(Error::bad_param(name, format!("every one of `{name}` must be an object")));
    }
    Ok(())
}

fn template_error(error: &minijinja::Error) -> Error {
    let raised = std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<functions::Raised>);
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    if raised {
        return Error::template(detail);
    }
    let line = error.line().unwrap_or(1);
    match error.kind() {
        ErrorKind::OutOfFuel => Error::template(format!("line {line}: the template takes too many steps")),
        _ => Error::template(format!("line {line}: {detail}")),
    }
}

/// The variables of one rendering.
#[derive(Debug)]
struct Root {
    variables: Vec<(Cow<'static, str>, Value)>,
    /// Places of the variables by name, when there are many.
    index: HashMap<Cow<'static, str>, usize>,
}

impl Root {
    /// More variables than this are found through an index.
    const LINEAR: usize = 24;

    fn new(variables: Vec<(Cow<'static, str>, Value)>) -> Self {
        let mut index = HashMap::new();
        if variables.len() > Self::LINEAR {
            for (place, (name, _)) in variables.iter().enumerate() {
                index.entry(name.clone()).or_insert(place);
            }
        }
        Self { variables, index }
    }
}

impl Object for Root {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        if self.index.is_empty() {
            return self.variables.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone());
        }
        self.index.get(key).map(|&place| self.variables[place].1.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.variables.iter().map(|(name, _)| Value::from(name.as_ref())).collect())
    }
}
