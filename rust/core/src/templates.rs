//! The chat templates of a server: which one serves a request, and with which variables.
//!
//! Source: vLLM's `renderers/hf.py` (`resolve_chat_template`) and `ChatCompletionRequest.build_chat_params`.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::json::{Json, Map};
use crate::protocol::chat::TemplateFields;
use crate::spec::{ContentFormat, ModelSpec, RenderSettings};
use crate::template::{ChatTemplate, Limits, RenderInput, Timestamp};

/// Parameters of transformers' `apply_chat_template` that are options, not variables.
const OPTIONS: [&str; 9] = [
    "chat_template",
    "tokenize",
    "padding",
    "truncation",
    "max_length",
    "return_tensors",
    "return_dict",
    "return_assistant_tokens_mask",
    "tokenizer_kwargs",
];

/// A template of a request may make this many times the bytes that it may print.
const REQUEST_MADE: usize = 6;

/// The same for a template of the model's or the operator's, which harms nobody on purpose.
const OWN_MADE: usize = 64;

/// Such a template has this many times the fuel of a request's.
const OWN_FUEL: u64 = 3;

/// Compiled templates of a model and its server.
pub struct TemplateSet {
    /// `--chat-template`.
    configured: Option<ChatTemplate>,
    processor: Option<ChatTemplate>,
    named: Vec<(String, ChatTemplate)>,
    special_tokens: Map<'static>,
    default_kwargs: Map<'static>,
    effort_map: Map<'static>,
    content_format: ContentFormat,
    now: Option<Timestamp>,
    /// For templates that come with a request.
    limits: Limits,
}

/// A template of the set, or one that a request brought.
pub enum Resolved<'t> {
    Known(&'t ChatTemplate),
    Own(Box<ChatTemplate>),
}

impl std::ops::Deref for Resolved<'_> {
    type Target = ChatTemplate;

    fn deref(&self) -> &ChatTemplate {
        match self {
            Resolved::Known(template) => template,
            Resolved::Own(template) => template,
        }
    }
}

/// The variables of one request.
#[derive(Debug, Clone)]
pub struct TemplateVariables<'a> {
    /// All but the tools, as `parse_context` tells them.
    pub effective: Map<'a>,
    now: Option<Timestamp>,
}

impl TemplateSet {
    pub fn new(model: &ModelSpec, settings: &RenderSettings) -> Result<Self> {
        let special_tokens: Map<'static> = owned(&model.special_tokens);
        let limits = Limits {
            fuel: settings.template_fuel,
            output_bytes: settings.template_output_bytes,
            made_bytes: settings.template_output_bytes.saturating_mul(REQUEST_MADE),
        };
        let own_limits = Limits {
            fuel: settings.template_fuel.saturating_mul(OWN_FUEL),
            made_bytes: settings.template_output_bytes.saturating_mul(OWN_MADE),
            ..limits
        };
        let compile = |what: &str, source: &str| {
            ChatTemplate::new(source, &special_tokens, own_limits)
                .map_err(|error| Error::setup(format!("the chat template {what} cannot be used: {error}")))
        };
        let mut named = Vec::with_capacity(model.chat_templates.len());
        for (name, source) in &model.chat_templates {
            let source =
                source.as_str().ok_or_else(|| Error::setup(format!("the chat template `{name}` is no string")))?;
            named.push((name.clone(), compile(&format!("`{name}` of the model"), source)?));
        }
        // `--chat-template` may name one of the model's templates.
        let configured = settings.chat_template.as_deref();
        let source = configured
            .map(|given| model.chat_templates.get(given).and_then(serde_json::Value::as_str).unwrap_or(given));
        // vLLM adds `cohere_format` for every model, where the operator has not set it.
        let mut default_kwargs: Map<'static> = owned(&settings.default_chat_template_kwargs);
        if !default_kwargs.contains_key("cohere_format") {
            default_kwargs.push("cohere_format", settings.cohere_format.clone().into());
        }
        Ok(Self {
            configured: source.map(|source| compile("of --chat-template", source)).transpose()?,
            processor: model
                .processor_chat_template
                .as_deref()
                .map(|source| compile("of the processor", source))
                .transpose()?,
            named,
            special_tokens,
            default_kwargs,
            effort_map: owned(&settings.reasoning_effort_map),
            content_format: settings.chat_template_content_format,
            now: settings.strftime_now,
            limits,
        })
    }

    /// The template of a request: its own (or the one it names), the configured one, the processor's when there are no
    /// tools, the tokenizer's `tool_use` when there are, its `default`.
    pub fn resolve(&self, requested: Option<&str>, has_tools: bool) -> Result<Resolved<'_>> {
        let by_name = |name: &str| self.named.iter().find(|(known, _)| known == name).map(|(_, template)| template);
        if let Some(source) = requested {
            return match by_name(source) {
                Some(template) => Ok(Resolved::Known(template)),
                None => ChatTemplate::new(source, &self.special_tokens, self.limits).map(Box::new).map(Resolved::Own),
            };
        }
        let tool_use = || if has_tools { by_name("tool_use") } else { None };
        self.configured
            .as_ref()
            .or(if has_tools { None } else { self.processor.as_ref() })
            .or_else(tool_use)
            .or_else(|| by_name("default"))
            .map(Resolved::Known)
            .ok_or_else(|| {
                Error::bad_request(
                    "this model has no chat template: start the server with --chat-template, or use /v1/completions",
                )
            })
    }

    pub fn content_format(&self, template: &ChatTemplate) -> ContentFormat {
        match self.content_format {
            ContentFormat::Auto => template.content_format(),
            format => format,
        }
    }

    /// Server defaults, then the request's `chat_template_kwargs`, then its top-level fields. Later ones win, but null
    /// and `"auto"` never replace a value.
    pub fn variables<'a>(
        &self,
        fields: &TemplateFields<'a>,
        documents: Option<&'a Json<'a>>,
        reasoning_effort: Option<&'a str>,
    ) -> TemplateVariables<'a> {
        let none = Map::new();
        let own = fields.chat_template_kwargs.unwrap_or(&none);
        let mut merged = own.clone();
        merged.insert("add_generation_prompt", fields.add_generation_prompt.into());
        merged.insert("continue_final_message", fields.continue_final_message.into());
        if let Some(documents) = documents {
            merged.insert("documents", documents.clone());
        }
        if let Some(effort) = reasoning_effort {
            let effort: Cow<'a, str> = match self.effort_map.get(effort) {
                Some(Json::Str(mapped)) => mapped.clone(),
                _ => Cow::Borrowed(effort),
            };
            let thinks = effort != "none";
            if effort != "auto" {
                merged.insert("reasoning_effort", Json::Str(effort));
            }
            if !own.contains_key("enable_thinking") {
                merged.insert("enable_thinking", thinks.into());
            }
        }
        let mut effective: Map<'a> = self.default_kwargs.clone();
        for (key, value) in merged {
            if !value.is_null() && value.as_str() != Some("auto") {
                effective.insert(key, value);
            }
        }
        TemplateVariables { effective, now: self.now }
    }
}

impl TemplateVariables<'_> {
    /// A client can have the template step tokenize; then no place in the text is known.
    pub fn tokenizes(&self) -> bool {
        self.effective.get("tokenize").is_some_and(Json::truthy)
    }

    /// Render `messages`. `tools` of `chat_template_kwargs` go before the request's.
    pub fn render<'a>(
        &self,
        template: &ChatTemplate,
        messages: &[Json<'a>],
        tools: Option<&[Json<'a>]>,
    ) -> Result<String> {
        for reserved in ["conversation", "messages"] {
            if self.effective.contains_key(reserved) {
                return Err(Error::bad_request(format!("`chat_template_kwargs` must not hold `{reserved}`")));
            }
        }
        let flag = |key| self.effective.get(key).is_some_and(Json::truthy);
        let own_tools = tools.map(|tools| Json::Array(tools.to_vec()));
        let special = ["tools", "documents", "add_generation_prompt", "continue_final_message"];
        let kwargs: Map<'_> = self
            .effective
            .iter()
            .filter(|(key, _)| !special.contains(key) && !OPTIONS.contains(key))
            .map(|(key, value)| (Cow::Borrowed(key), value.clone()))
            .collect();
        template.render(&RenderInput {
            messages,
            tools: self.effective.present("tools").or(own_tools.as_ref()),
            documents: self.effective.present("documents"),
            add_generation_prompt: flag("add_generation_prompt"),
            continue_final_message: flag("continue_final_message"),
            kwargs: &kwargs,
            now: self.now,
        })
    }
}

fn owned(map: &serde_json::Map<String, serde_json::Value>) -> Map<'static> {
    map.iter().map(|(key, value)| (Cow::Owned(key.clone()), Json::from(value.clone()))).collect()
}
