//! `ChatCompletionRequest`: the body of `/v1/chat/completions/render`.

use super::constraints;
use super::fields::Fields;
use super::options::CommonFields;
use super::sampling::{self, SamplingRequest};
use super::tools::{ToolChoice, read_tool_choice, read_tools};
use super::{check_cache_salt, check_logprob_count, check_prompt_logprobs, check_stream_options};
use crate::error::{Error, Result};
use crate::json::{Json, Map};
use crate::spec::RenderSettings;

const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// What a chat template is rendered with; shared by chat and tokenize requests.
#[derive(Debug, Clone)]
pub struct TemplateFields<'a> {
    pub messages: &'a [Json<'a>],
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
    pub chat_template: Option<&'a str>,
    pub chat_template_kwargs: Option<&'a Map<'a>>,
}

impl<'a> TemplateFields<'a> {
    pub fn read(body: Fields<'a, 'a>) -> Result<Self> {
        Ok(Self {
            messages: read_messages(body.map)?,
            add_generation_prompt: body.bool_or("add_generation_prompt", true)?,
            continue_final_message: body.bool_or("continue_final_message", false)?,
            chat_template: body.str("chat_template")?,
            chat_template_kwargs: body.object("chat_template_kwargs")?,
        })
    }

    /// A template from a client is a program from a client: run only on a server that says so.
    pub fn check_trust(&self, settings: &RenderSettings) -> Result<()> {
        let hidden = self.chat_template_kwargs.is_some_and(|kwargs| kwargs.present("chat_template").is_some());
        if (self.chat_template.is_some() || hidden) && !settings.trust_request_chat_template {
            return Err(Error::bad_request(
                "the request brings a chat template; this server takes none (see --trust-request-chat-template)",
            ));
        }
        Ok(())
    }
}

/// A chat request with every field read and checked, but for the messages, which [`crate::conversation`] reads.
#[derive(Debug, Clone)]
pub struct ChatRequest<'a> {
    pub common: CommonFields<'a>,
    pub template: TemplateFields<'a>,
    pub sampling: SamplingRequest<'a>,
    pub max_tokens: Option<i128>,
    /// The field that `max_tokens` came from.
    pub max_tokens_field: &'static str,
    pub tools: Option<Vec<Json<'a>>>,
    pub tool_choice: ToolChoice,
    pub reasoning_effort: Option<&'a str>,
    pub include_reasoning: bool,
    pub parallel_tool_calls: Option<bool>,
    pub documents: Option<&'a Json<'a>>,
    pub echo: bool,
    pub media_fields: MediaFields<'a>,
}

impl<'a> ChatRequest<'a> {
    pub fn read(map: &'a Map<'a>, settings: &RenderSettings) -> Result<Self> {
        let tool_choice = check_raw(map)?;
        let body = Fields::new(map, "body");
        let template = TemplateFields::read(body)?;
        let logprobs = body.bool("logprobs")?.unwrap_or(false);
        let top_logprobs = body.int("top_logprobs")?.unwrap_or(0);
        let mut sampling = SamplingRequest::read(body, settings)?;
        sampling.logprobs = (logprobs && sampling.logprob_token_ids.is_none()).then_some(top_logprobs);
        let echo = body.bool_or("echo", false)?;
        if sampling.prompt_logprobs.is_none() && echo {
            sampling.prompt_logprobs = Some(top_logprobs);
        }
        body.bool("return_prompt_text")?;
        let max_tokens = body.int("max_tokens")?;
        let max_completion_tokens = body.int("max_completion_tokens")?;
        Ok(Self {
            common: CommonFields::read(body, false)?,
            template,
            sampling,
            max_tokens: max_completion_tokens.or(max_tokens),
            max_tokens_field: if max_completion_tokens.is_some() { "max_completion_tokens" } else { "max_tokens" },
            tools: read_tools(body)?,
            tool_choice,
            reasoning_effort: body.word("reasoning_effort", &EFFORTS)?,
            include_reasoning: body.bool_or("include_reasoning", true)?,
            parallel_tool_calls: if map.contains_key("parallel_tool_calls") {
                body.bool("parallel_tool_calls")?
            } else {
                Some(true)
            },
            documents: read_documents(body)?,
            echo,
            media_fields: MediaFields::read(body)?,
        })
    }
}

/// Options for media that a request may bring, where the server trusts it to.
#[derive(Debug, Clone, Copy)]
pub struct MediaFields<'a> {
    pub mm_processor_kwargs: Option<&'a Map<'a>>,
    pub media_io_kwargs: Option<&'a Map<'a>>,
}

impl<'a> MediaFields<'a> {
    pub fn read(body: Fields<'a, 'a>) -> Result<Self> {
        let media_io_kwargs = body.object("media_io_kwargs")?;
        if media_io_kwargs.is_some_and(|kwargs| kwargs.iter().any(|(_, value)| value.as_object().is_none())) {
            return Err(body.error("media_io_kwargs", "a map from modalities to objects"));
        }
        Ok(Self { mm_processor_kwargs: body.object("mm_processor_kwargs")?, media_io_kwargs })
    }
}

/// Media options change what a request costs: taken only on a server that trusts its clients. Runs on the raw body,
/// since a completion request, which has no such fields, is held to it too.
pub fn check_media_trust(map: &Map<'_>, settings: &RenderSettings) -> Result<()> {
    for name in ["mm_processor_kwargs", "media_io_kwargs"] {
        if map.get(name).is_some_and(Json::truthy) && !settings.trust_request_mm_kwargs {
            return Err(Error::bad_param(
                name,
                format!("`{name}` of a request are refused by this server (see --trust-request-mm-kwargs)"),
            ));
        }
    }
    Ok(())
}

/// The checks that vLLM makes on the raw body, in its order.
fn check_raw(map: &Map<'_>) -> Result<ToolChoice> {
    if matches!(map.get("messages"), Some(Json::Null | Json::Bool(_) | Json::Int(_) | Json::BigInt(_) | Json::Float(_)))
    {
        return Err(Error::bad_request("`messages` must be a list"));
    }
    check_generation_prompt(map)?;
    let tool_choice = read_tool_choice(map)?;
    let constraints = constraints::check_raw(map, None)?;
    if constraints > 0 && matches!(tool_choice, ToolChoice::Named(_) | ToolChoice::Null) {
        return Err(Error::bad_request("structured outputs and a named `tool_choice` exclude each other"));
    }
    check_logprobs(map)?;
    check_stream_options(map)?;
    constraints::check_raw_response_format(map)?;
    check_tool_call_lists(map)?;
    check_cache_salt(map)?;
    sampling::check_within_validation(map)?;
    Ok(tool_choice)
}

/// A prompt either opens a new turn or continues the last message.
pub fn check_generation_prompt(map: &Map<'_>) -> Result<()> {
    let truthy = |key| map.get(key).is_some_and(Json::truthy);
    if truthy("continue_final_message") && truthy("add_generation_prompt") {
        return Err(Error::bad_request("`continue_final_message` and `add_generation_prompt` exclude each other"));
    }
    Ok(())
}

#[expect(clippy::float_cmp, reason = "-1 is a code, not a measurement")]
fn check_logprobs(map: &Map<'_>) -> Result<()> {
    let truthy = |key| map.get(key).is_some_and(Json::truthy);
    if truthy("logprob_token_ids") && truthy("use_beam_search") {
        return Err(Error::bad_param("logprob_token_ids", "`logprob_token_ids` do not go with beam search"));
    }
    if truthy("logprob_token_ids") && !truthy("logprobs") {
        return Err(Error::bad_param("logprob_token_ids", "`logprob_token_ids` need `logprobs: true`"));
    }
    check_prompt_logprobs(map)?;
    if let Some(top) = check_logprob_count(map, "top_logprobs")?
        && (top == -1.0 || top > 0.0)
        && !truthy("logprobs")
    {
        return Err(Error::bad_param("top_logprobs", "`top_logprobs` need `logprobs: true`"));
    }
    Ok(())
}

/// vLLM turns `tool_calls` of a message into a list before anything else, which a number resists.
fn check_tool_call_lists(map: &Map<'_>) -> Result<()> {
    let messages = map.get("messages").and_then(Json::as_array).unwrap_or_default();
    for message in messages.iter().filter_map(Json::as_object) {
        if matches!(message.get("tool_calls"), Some(Json::Bool(_) | Json::Int(_) | Json::BigInt(_) | Json::Float(_))) {
            return Err(Error::bad_request("`tool_calls` of a message must be a list"));
        }
    }
    Ok(())
}

fn read_messages<'a>(map: &'a Map<'a>) -> Result<&'a [Json<'a>]> {
    match map.get("messages") {
        Some(Json::Array(messages)) => Ok(messages),
        Some(_) => Err(Error::schema("body.messages", "`messages` must be a list")),
        None => Err(Error::schema("body.messages", "the field `messages` is missing")),
    }
}

/// `documents`: a list of maps from strings to strings.
fn read_documents<'a>(body: Fields<'a, 'a>) -> Result<Option<&'a Json<'a>>> {
    let Some(documents) = body.array("documents")? else { return Ok(None) };
    let text_map = |document: &Json<'_>| {
        document.as_object().is_some_and(|document| document.iter().all(|(_, value)| value.as_str().is_some()))
    };
    if !documents.iter().all(text_map) {
        return Err(body.error("documents", "a list of maps from strings to strings"));
    }
    Ok(body.map.get("documents"))
}
