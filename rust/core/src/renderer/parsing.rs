//! What the parser of answers has to do with requests: what it changes in them, and what they tell it.

use std::borrow::Cow;

use super::Renderer;
use super::chat::Chat;
use crate::conversation;
use crate::error::{Error, Result};
use crate::json::Json;
use crate::parser::{Constraint, ParseRequest, Parser, ParserOptions, Requested, StrictLevel};
use crate::protocol::constraints::StructuredOutputs;
use crate::protocol::sampling::SamplingRequest;
use crate::spec::{ModelSpec, RenderSettings};
use crate::tokenizer::Tokenizer;

/// The parser that the settings name; none where they name none.
pub(super) fn parser(model: &ModelSpec, settings: &RenderSettings, tokenizer: &Tokenizer) -> Result<Option<Parser>> {
    let strict_level = match settings.tool_strict_level.as_deref() {
        None => None,
        Some("auto") => Some(StrictLevel::Auto),
        Some("function") => Some(StrictLevel::Function),
        Some("parameter") => Some(StrictLevel::Parameter),
        Some(other) => {
            return Err(Error::setup(format!("unknown strict level `{other}`; known: auto, function, parameter")));
        }
    };
    let options = ParserOptions {
        tool_parser: settings.tool_call_parser.as_deref().filter(|_| settings.enable_auto_tool_choice),
        reasoning_parser: settings.reasoning_parser.as_deref(),
        tool_formats: &settings.tool_formats,
        model_type: Some(&model.model_type),
        value_limit: settings.tool_value_bytes,
        strict_level,
        ..ParserOptions::default()
    };
    if options.tool_parser.is_none() && options.reasoning_parser.is_none() {
        return Ok(None);
    }
    Parser::new(&options, &|text| tokenizer.added_id(text)).map(Some)
}

/// What a parser makes of a request.
pub(super) struct Adjusted<'r, 'a> {
    pub(super) sampling: Cow<'r, SamplingRequest<'a>>,
    pub(super) reasoning_ended: Option<bool>,
}

impl Renderer {
    /// The request as the engine is to have it, whose prompt is `prompt_ids`.
    pub(super) fn adjusted<'r, 'a>(&self, chat: &'r Chat<'a>, prompt_ids: &[u32]) -> Result<Adjusted<'r, 'a>> {
        let Chat { request, messages, variables } = chat;
        let mut sampling = Cow::Borrowed(&request.sampling);
        // A client that wants no reasoning has said that there is none.
        let told = (!request.include_reasoning).then_some(true);
        let Some(parser) = self.parser.as_deref() else { return Ok(Adjusted { sampling, reasoning_ended: told }) };
        let parse_request = ParseRequest {
            tools: request.tools.as_deref().map(ParseRequest::tools_of).unwrap_or_default(),
            tool_choice: request.tool_choice.clone(),
            parallel_tool_calls: request.parallel_tool_calls,
            include_reasoning: request.include_reasoning,
            chat_template_kwargs: Some(&variables.effective),
            history_tool_calls: u32::try_from(conversation::count_tool_calls(messages)).unwrap_or(u32::MAX),
            prompt_ids: Some(prompt_ids),
            ..ParseRequest::default()
        };
        let adjustment =
            parser.adjust(&parse_request, request.sampling.structured_outputs.as_ref().and_then(requested))?;
        if adjustment.keeps_special_tokens {
            sampling.to_mut().skip_special_tokens = Some(false);
        }
        if let Some(constraint) = adjustment.constraint {
            let (kind, value) = match constraint {
                Constraint::StructuralTag(tag) => ("structural_tag", tag.into()),
                Constraint::Json(schema) => ("json", schema),
            };
            sampling.to_mut().structured_outputs = Some(StructuredOutputs::of(kind, value));
        }
        Ok(Adjusted { sampling, reasoning_ended: told.or_else(|| parser.reasoning_ended(&parse_request)) })
    }
}

fn requested<'r>(outputs: &'r StructuredOutputs<'_>) -> Option<Requested<'r>> {
    let (kind, value) = outputs.constraint()?;
    Some(match (kind, value) {
        ("json_object", _) => Requested::JsonObject,
        ("json", schema) => Requested::Json(schema),
        ("regex", Json::Str(pattern)) => Requested::Regex(pattern),
        ("choice", Json::Array(choices)) => Requested::Choice(choices),
        ("grammar", Json::Str(grammar)) => Requested::Grammar(grammar),
        _ => Requested::Other,
    })
}
