//! Structural tags: what an engine behind the renderer needs to hold a model to its tools. xgrammar's format, spelled
//! as the reference spells it.
//!
//! A format says how a call of one tool begins and ends; where such calls may stand depends on `tool_choice`.

mod glm;
mod parts;

use serde::Deserialize;

use self::glm::glm_values;
use self::parts::{any_text, constant, either, json_schema, message, object, sequence, strings, tag};
use super::request::{ParseRequest, Tool};
use crate::json::{Json, python_dumps};
use crate::protocol::tools::ToolChoice;

/// What stands for the tool's name in a form.
const NAME: &str = "NAME";

/// How a format's calls are written down for a grammar.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TagTemplate {
    #[serde(default)]
    pub kind: TagKind,
    /// What begins a call, or the block around all calls, in free text.
    #[serde(default)]
    pub trigger: String,
    /// Each way to write a call; `NAME` stands for the tool's name.
    #[serde(default)]
    pub forms: Vec<Form>,
    /// xgrammar's name of the arguments' syntax.
    #[serde(default)]
    pub style: Option<String>,
    /// Between a call's beginning and its arguments stand a number and this.
    #[serde(default)]
    pub numbered: Option<String>,
    /// Around all calls.
    #[serde(default)]
    pub block: Option<Block>,
    /// Before the block where a call is forced.
    #[serde(default)]
    pub lead: String,
    /// What free text must not hold.
    #[serde(default)]
    pub excludes: Vec<String>,
    /// Calls are held to the tag even where neither the request nor a tool asks for it.
    #[serde(default)]
    pub always: bool,
    #[serde(default)]
    pub required: Layout,
    #[serde(default)]
    pub forced: Layout,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TagKind {
    #[default]
    Calls,
    /// Tools that are not strict have their keys and the types of their values pinned.
    Glm,
    /// Messages with a recipient.
    Harmony,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    pub begin: String,
    pub end: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Block {
    pub begin: String,
    pub end: String,
    #[serde(default)]
    pub separator: String,
}

/// How calls stand where at least one must be made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One after the other, and nothing else.
    #[default]
    List,
    /// In free text.
    Triggered,
    /// Just one.
    Tag,
    /// Just one, the block's markers part of its own.
    FlatTag,
    /// The block, with calls one after the other in it.
    BlockTag,
    /// The same, the block's markers as constants.
    SequenceOfList,
    SequenceOfTag,
}

/// How far calls are held to their tags whatever the request says (`--tool-strict-level`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StrictLevel {
    /// As `tool_choice` and each tool's `strict` ask for.
    #[default]
    Auto,
    /// Calls must be well-formed.
    Function,
    /// Arguments must fit their schemas too.
    Parameter,
}

/// A constraint that the request itself puts on the answer.
#[derive(Debug, Clone, Copy)]
pub enum Requested<'a> {
    JsonObject,
    Json(&'a Json<'a>),
    Regex(&'a str),
    Choice(&'a [Json<'a>]),
    Grammar(&'a str),
    /// One that cannot stand beside calls.
    Other,
}

/// The constraint that the tools of a request put on its answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Constraint {
    /// `structured_outputs.structural_tag`.
    StructuralTag(String),
    /// `structured_outputs.json`.
    Json(Json<'static>),
}

impl TagTemplate {
    /// The tag for a request; none where its calls are not held to one.
    pub(crate) fn tag(
        &self,
        request: &ParseRequest<'_>,
        level: Option<StrictLevel>,
        requested: Option<Requested<'_>>,
    ) -> Option<String> {
        let auto = request.tool_choice == ToolChoice::Auto;
        let single = request.parallel_tool_calls == Some(false);
        let floor = if self.always { StrictLevel::Function } else { StrictLevel::Auto };
        let mut level = level.unwrap_or(floor);
        // To count calls the grammar must know them; beside a constraint of the request it does not make them possible.
        if single && !(auto && requested.is_some()) {
            level = level.max(StrictLevel::Function);
        }
        let tools: Vec<Tool<'_>> = match &request.tool_choice {
            ToolChoice::None | ToolChoice::Null => return None,
            ToolChoice::Named(name) => request.tools.iter().filter(|tool| tool.name == name).copied().collect(),
            ToolChoice::Auto | ToolChoice::Required => request.tools.clone(),
        };
        let any_strict = tools.iter().any(|tool| tool.strict == Some(true));
        if tools.is_empty() || (auto && level == StrictLevel::Auto && !any_strict) {
            return None;
        }
        let output = match requested.filter(|_| auto) {
            Some(requested) => Some(requested.format()?),
            None => None,
        };
        let writer = Writer {
            template: self,
            all_strict: tools.iter().all(|tool| strict(tool, level)),
            level,
            choice: match &request.tool_choice {
                ToolChoice::Named(_) => Choice::Forced,
                ToolChoice::Auto if output.is_none() => Choice::Auto,
                _ => Choice::Required,
            },
            single,
        };
        let mut format = match self.kind {
            TagKind::Harmony => writer.harmony(&tools),
            TagKind::Calls | TagKind::Glm => writer.calls(&tools),
        };
        if let Some(output) = output {
            format = either(vec![format, output]);
        }
        Some(python_dumps(&object([("type", "structural_tag".into()), ("format", format)])))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Auto,
    Required,
    Forced,
}

struct Writer<'a> {
    template: &'a TagTemplate,
    level: StrictLevel,
    all_strict: bool,
    choice: Choice,
    single: bool,
}

fn strict(tool: &Tool<'_>, level: StrictLevel) -> bool {
    level >= StrictLevel::Parameter || tool.strict == Some(true)
}

impl Writer<'_> {
    fn calls(&self, tools: &[Tool<'_>]) -> Json<'static> {
        let template = self.template;
        let tags: Vec<Json<'static>> =
            tools.iter().flat_map(|tool| template.forms.iter().map(|form| self.call(tool, form))).collect();
        let shallow = template.kind == TagKind::Glm && !self.all_strict;
        let layout = match self.choice {
            Choice::Auto => Layout::Triggered,
            _ if shallow => Layout::List,
            Choice::Required => template.required,
            Choice::Forced => template.forced,
        };
        let block = template.block.as_ref();
        let around = |content| match block {
            Some(block) => tag(&block.begin, content, &block.end),
            None => content,
        };
        let sequence = |content| {
            let (begin, end) = block.map_or(("", ""), |block| (&block.begin, &block.end));
            sequence(vec![constant(&format!("{}{begin}", template.lead)), content, constant(end)])
        };
        match layout {
            Layout::List => self.list(tags),
            Layout::Triggered => {
                let tags = if block.is_some() { vec![around(self.list(tags))] } else { tags };
                object([
                    ("type", "triggered_tags".into()),
                    ("triggers", strings(std::slice::from_ref(&template.trigger))),
                    ("tags", Json::Array(tags)),
                    ("at_least_one", (self.choice != Choice::Auto).into()),
                    ("stop_after_first", self.single.into()),
                    ("excludes", strings(&template.excludes)),
                ])
            }
            Layout::Tag => tags.into_iter().next().unwrap_or(Json::Null),
            Layout::FlatTag => {
                let (begin, end) = block.map_or(("", ""), |block| (&block.begin, &block.end));
                let form = &template.forms[0];
                let flat = Form { begin: format!("{begin}{}", form.begin), end: format!("{}{end}", form.end) };
                tools.first().map_or(Json::Null, |tool| self.call(tool, &flat))
            }
            Layout::BlockTag => around(self.list(tags)),
            Layout::SequenceOfList => sequence(self.list(tags)),
            Layout::SequenceOfTag => sequence(tags.into_iter().next().unwrap_or(Json::Null)),
        }
    }

    /// Calls one after the other.
    fn list(&self, tags: Vec<Json<'static>>) -> Json<'static> {
        let block = self.template.block.as_ref();
        let stop = self.single || self.choice == Choice::Forced;
        object([
            ("type", "tags_with_separator".into()),
            ("tags", Json::Array(tags)),
            ("separator", block.map_or(String::new(), |block| block.separator.clone()).into()),
            ("at_least_one", true.into()),
            ("stop_after_first", stop.into()),
        ])
    }

    fn call(&self, tool: &Tool<'_>, form: &Form) -> Json<'static> {
        let begin = form.begin.replacen(NAME, tool.name, 1);
        if self.template.kind == TagKind::Glm && !strict(tool, self.level) {
            return tag(&begin, glm_values(tool), &form.end);
        }
        let schema = json_schema(self.parameters(tool), self.template.style.as_deref().unwrap_or("json"));
        let content = match &self.template.numbered {
            Some(marker) => {
                sequence(vec![object([("type", "regex".into()), ("pattern", "\\d+".into())]), constant(marker), schema])
            }
            None => schema,
        };
        tag(&begin, content, &form.end)
    }

    /// The schema that a tool's arguments are held to; any value for a tool that is not strict.
    fn parameters(&self, tool: &Tool<'_>) -> Json<'static> {
        let schema = tool.parameters.filter(|_| strict(tool, self.level));
        schema.map_or(true.into(), |schema| schema.clone().into_owned())
    }

    fn harmony(&self, tools: &[Tool<'_>]) -> Json<'static> {
        const CONSTRAINTS: [&str; 2] = [" json", " <|constrain|>json"];
        const CHANNELS: [&str; 3] = ["<|channel|>commentary", "<|channel|>analysis", "<|channel|>final"];
        let mut tags = Vec::new();
        for tool in tools {
            for channel_last in [true, false] {
                for constraint in CONSTRAINTS {
                    for channel in CHANNELS {
                        let name = tool.name;
                        let begin = if channel_last {
                            format!(" to=functions.{name}{channel}{constraint}<|message|>")
                        } else {
                            format!("{channel} to=functions.{name}{constraint}<|message|>")
                        };
                        tags.push(message(&begin, json_schema(self.parameters(tool), "json")));
                    }
                }
            }
        }
        if self.choice == Choice::Auto {
            for constraint in CONSTRAINTS.into_iter().chain([""]) {
                tags.push(message(&format!("<|channel|>final{constraint}<|message|>"), any_text(&[])));
            }
        }
        let optional = |channel: &str| {
            let before = tag(&format!("<|channel|>{channel}<|message|>"), any_text(&[]), "<|end|>");
            let content = sequence(vec![before, constant("<|start|>assistant")]);
            object([("type", "optional".into()), ("content", content)])
        };
        sequence(vec![optional("analysis"), optional("commentary"), either(tags)])
    }
}

impl Requested<'_> {
    /// The same as a part of a tag.
    fn format(self) -> Option<Json<'static>> {
        Some(match self {
            Requested::JsonObject => json_schema(object([("type", "object".into())]), "json"),
            Requested::Json(Json::Str(text)) => json_schema(Json::parse(text).ok()?.into_owned(), "json"),
            Requested::Json(schema) => json_schema(schema.clone().into_owned(), "json"),
            Requested::Regex(pattern) => object([("type", "regex".into()), ("pattern", pattern.to_owned().into())]),
            Requested::Choice(texts) => either(texts.iter().filter_map(Json::as_str).map(constant).collect()),
            Requested::Grammar(grammar) => object([("type", "grammar".into()), ("grammar", grammar.to_owned().into())]),
            Requested::Other => return None,
        })
    }
}
