//! From a request's messages to the conversation that a chat template sees.
//!
//! In: messages as clients send them. Out: messages with just the keys that vLLM passes on, content in the template's
//! format, and the media referred to, in order. Source: vLLM's `renderers/chat_utils/chat_message.py`.

mod media;
mod shape;

use std::borrow::Cow;

pub use media::{MediaItem, Modality};
pub use shape::{Content, Message, Reading, read_messages};

use crate::error::{Error, Result};
use crate::json::{Json, Map};
use crate::spec::{ContentFormat, ModelSpec, RenderSettings};
use media::{KIND_BY_KEY, MediaCollector, StringContent, read_media};

/// Fields of any known part shape; all others are passed on to an openai-format template.
const KNOWN_PART_FIELDS: [&str; 18] = [
    "audio_embeds",
    "audio_url",
    "closed",
    "data",
    "file",
    "image_embeds",
    "image_pil",
    "image_url",
    "input_audio",
    "name",
    "prompt_cache_breakpoint",
    "refusal",
    "text",
    "thinking",
    "type",
    "uuid",
    "video_embeds",
    "video_url",
];

/// Part types that vLLM names in its answer to an unknown one.
const SUPPORTED_PARTS: &str = "audio_embeds, audio_url, image_embeds, image_url, input_audio, input_image, input_text, \
     output_text, refusal, text, thinking, tool_reference, video_embeds, video_url";

/// Claude Code's first line in a system prompt; its value changes with every request, which would defeat prefix caches.
const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// What a chat template is given.
#[derive(Debug, Clone)]
pub struct Conversation<'a> {
    pub messages: Vec<Json<'a>>,
    pub media: Vec<MediaItem<'a>>,
}

/// Calls in the assistant messages of a request.
pub fn count_tool_calls(messages: &[Message<'_>]) -> usize {
    messages.iter().map(|message| message.tool_calls.len()).sum()
}

/// Whether any message holds something else than text; ids that a client forwards cannot stand for that.
pub fn has_media(messages: &[Message<'_>]) -> bool {
    const TEXT: [&str; 6] = ["text", "input_text", "output_text", "refusal", "thinking", "tool_reference"];
    const MEDIA_KEYS: [&str; 10] = [
        "image_url",
        "input_image",
        "image_embeds",
        "audio_embeds",
        "video_embeds",
        "prompt_embeds",
        "image_pil",
        "audio_url",
        "input_audio",
        "video_url",
    ];
    let is_media = |part: &Json<'_>| {
        part.as_object().is_some_and(|part| {
            MEDIA_KEYS.iter().any(|key| part.contains_key(key))
                || part.get("type").is_some_and(|kind| !kind.as_str().is_some_and(|kind| TEXT.contains(&kind)))
        })
    };
    messages.iter().any(|message| match message.content {
        Content::Parts(parts) | Content::Unreadable(parts) => parts.iter().any(is_media),
        Content::Nothing | Content::Text(_) => false,
    })
}

/// Bring messages into the form that the template wants.
pub fn normalize<'a>(
    messages: &[Message<'a>],
    format: ContentFormat,
    model: &ModelSpec,
    settings: &RenderSettings,
) -> Result<Conversation<'a>> {
    let mut media = MediaCollector::new(model, settings);
    let mut out = Vec::with_capacity(messages.len());
    for message in messages {
        let mut normalized = Map::new();
        normalized.push("role", message.role.into());
        let content = match format {
            ContentFormat::OpenAi => openai_content(message, &mut media)?,
            ContentFormat::String | ContentFormat::Auto => string_content(message, &mut media, settings)?,
        };
        normalized.push("content", content);
        match message.role {
            "assistant" => {
                if let Some(expected) = message.tool_call_fault {
                    return Err(Error::bad_request(format!("`tool_calls` must be {expected}")));
                }
                if !message.tool_calls.is_empty() {
                    let calls = message.tool_calls.iter().map(decode_arguments).collect::<Result<_>>()?;
                    normalized.push("tool_calls", Json::Array(calls));
                }
                if let Some(reasoning) = message.reasoning {
                    normalized.push("reasoning", reasoning.clone());
                    normalized.push("reasoning_content", reasoning.clone());
                }
            }
            "tool" => {
                if let Some(id) = message.tool_call_id {
                    normalized.push("tool_call_id", id.clone());
                }
                flatten_texts(&mut normalized)?;
            }
            _ => {}
        }
        if let Some(name) = message.name {
            normalized.push("name", name.into());
        }
        if let Some(task) = message.task {
            normalized.push("task", task.into());
        }
        if message.role == "developer" {
            normalized.push("tools", message.tools.clone().unwrap_or(Json::Null));
        }
        out.push(Json::Object(normalized));
    }
    Ok(Conversation { messages: out, media: media.items })
}

/// The parts of a message, a plain string standing for one text part; without a billing header in system messages.
fn parts<'a>(message: &Message<'a>) -> Result<Vec<Cow<'a, Json<'a>>>> {
    let parts: Vec<Cow<'a, Json<'a>>> = match message.content {
        Content::Nothing => Vec::new(),
        Content::Text(text) => vec![Cow::Owned(Json::Str(Cow::Borrowed(text)))],
        Content::Parts(parts) => parts.iter().map(Cow::Borrowed).collect(),
        Content::Unreadable(_) => {
            return Err(Error::bad_request(format!(
                "the content of a message of role `{}` holds a part of an unknown form",
                message.role
            )));
        }
    };
    if message.role != "system" {
        return Ok(parts);
    }
    Ok(parts.into_iter().filter_map(without_billing_header).collect())
}

fn without_billing_header<'a>(part: Cow<'a, Json<'a>>) -> Option<Cow<'a, Json<'a>>> {
    let text = match part.as_ref() {
        Json::Str(text) => Some(text),
        Json::Object(map) if map.get("type").and_then(Json::as_str) == Some("text") => match map.get("text") {
            Some(Json::Str(text)) => Some(text),
            _ => None,
        },
        _ => None,
    };
    let Some(rest) = text.filter(|text| text.starts_with(BILLING_HEADER)) else { return Some(part) };
    let rest = rest.split_once('\n').map_or("", |(_, rest)| rest).to_owned();
    if rest.is_empty() {
        return None;
    }
    Some(Cow::Owned(match part.into_owned() {
        Json::Object(mut map) => {
            map.insert("text", rest.into());
            Json::Object(map)
        }
        _ => rest.into(),
    }))
}

/// What a part is, once its kind is known.
enum Part<'a> {
    /// A string, or (in a permissive message) whatever stands in its place.
    Text(&'a Json<'a>),
    Media(MediaItem<'a>),
    ToolReference(Json<'a>),
    /// A text part whose text is null.
    Skipped,
}

fn read_part<'a>(part: &'a Map<'a>) -> Result<Part<'a>> {
    let kind = part.get("type");
    let has_uuid = part.present("uuid").is_some();
    let named = match kind {
        Some(Json::Str(kind)) if !has_uuid => Some(kind.as_ref()),
        _ => None,
    };
    if let Some(kind) = named {
        let known_media = match kind {
            "input_image" => Some(("input_image", Modality::Image)),
            kind => KIND_BY_KEY.into_iter().find(|(key, _)| *key == kind),
        };
        if let Some((key, modality)) = known_media {
            return read_media(part, key, modality, false).map(Part::Media);
        }
        match kind {
            "text" | "input_text" | "output_text" => return read_text(part, "text", kind),
            "refusal" | "thinking" => {
                return read_text(part, if kind == "refusal" { "refusal" } else { "thinking" }, kind);
            }
            "tool_reference" => return Ok(Part::ToolReference(part.get("name").cloned().unwrap_or(Json::Null))),
            "prompt_embeds" | "image_pil" => {
                return Err(Error::bad_param(kind, format!("`{kind}` parts are not accepted by this server")));
            }
            _ => {}
        }
    } else if kind.is_none_or(Json::is_null) || has_uuid {
        if let Some((key, modality)) = KIND_BY_KEY.into_iter().find(|(key, _)| part.contains_key(key)) {
            return read_media(part, key, modality, true).map(Part::Media);
        }
        if part.contains_key("tool_reference") {
            return Ok(Part::ToolReference(part.get("name").cloned().unwrap_or(Json::Null)));
        }
        return Err(Error::bad_param("type", "a content part has no `type`, and nothing else tells its kind"));
    }
    match kind.and_then(Json::as_str) {
        Some(kind) => {
            Err(Error::bad_param("type", format!("unknown content part type `{kind}`; known: {SUPPORTED_PARTS}")))
        }
        None => Err(Error::bad_param("type", "the `type` of a content part must be a string")),
    }
}

fn read_text<'a>(part: &'a Map<'a>, field: &'static str, kind: &str) -> Result<Part<'a>> {
    match part.get(field) {
        Some(Json::BrokenStr(_)) => Err(lone_surrogate()),
        None | Some(Json::Null) if matches!(kind, "text" | "refusal") => Ok(Part::Skipped),
        text => Ok(Part::Text(text.unwrap_or(&Json::Null))),
    }
}

fn lone_surrogate() -> Error {
    Error::bad_request("a text holds a lone surrogate, which no encoding can write")
}

fn string_content<'a>(
    message: &Message<'a>,
    media: &mut MediaCollector<'a, '_>,
    settings: &RenderSettings,
) -> Result<Json<'a>> {
    if let (Content::Text(text), true) = (message.content, message.role != "system") {
        return Ok(text.into());
    }
    let mut content = StringContent::new(settings.interleave_mm_strings);
    for part in parts(message)? {
        match part {
            Cow::Borrowed(Json::Str(text)) => content.push_text(text.as_ref()),
            Cow::Owned(Json::Str(text)) => content.push_text(text),
            Cow::Borrowed(Json::Object(part)) => match read_part(part)? {
                Part::Text(Json::Str(text)) => content.push_text(text.as_ref()),
                Part::Text(_) => return Err(Error::bad_request("the text of a content part must be a string")),
                Part::ToolReference(Json::Str(name)) => content.push_text(name),
                Part::ToolReference(_) | Part::Skipped => {}
                Part::Media(item) => {
                    let modality = item.modality;
                    content.push_media(media.add(item)?, modality);
                }
            },
            // Only a system message's header is ever rewritten, and only in a text part.
            Cow::Owned(Json::Object(part)) => {
                content.push_text(part.get("text").and_then(Json::as_str).unwrap_or_default().to_owned());
            }
            part => return Err(unreadable(part.as_ref())),
        }
    }
    content.join().map(Json::Str)
}

fn unreadable(part: &Json<'_>) -> Error {
    match part {
        Json::BrokenStr(_) => lone_surrogate(),
        _ => Error::bad_request("a content part must be a string or an object"),
    }
}

fn openai_content<'a>(message: &Message<'a>, media: &mut MediaCollector<'a, '_>) -> Result<Json<'a>> {
    let text_part = |text: Json<'a>| {
        let mut out = Map::new();
        out.push("type", "text".into());
        out.push("text", text);
        out
    };
    let mut content = Vec::new();
    for part in parts(message)? {
        let out = match part {
            Cow::Borrowed(text @ Json::Str(_)) => text_part(text.clone()),
            Cow::Owned(text @ Json::Str(_)) => text_part(text),
            Cow::Borrowed(Json::Object(part)) => {
                let mut out = match read_part(part)? {
                    Part::Text(text) => text_part(text.clone()),
                    Part::ToolReference(name) => {
                        let mut out = Map::new();
                        out.push("type", "tool_reference".into());
                        out.push("name", name);
                        content.push(Json::Object(out));
                        continue;
                    }
                    Part::Skipped => continue,
                    Part::Media(item) => {
                        let mut out = Map::new();
                        out.push("type", item.modality.name().into());
                        media.add(item)?;
                        out
                    }
                };
                add_extra_fields(&mut out, part);
                out
            }
            Cow::Owned(Json::Object(part)) => {
                let mut out = text_part(part.get("text").cloned().unwrap_or(Json::Null));
                for (key, value) in part.iter().filter(|(key, _)| !KNOWN_PART_FIELDS.contains(key)) {
                    out.insert(key.to_owned(), value.clone());
                }
                out
            }
            part => return Err(unreadable(part.as_ref())),
        };
        content.push(Json::Object(out));
    }
    Ok(Json::Array(content))
}

/// Keys of no part shape (`cache_control`, a model's own) reach the template.
fn add_extra_fields<'a>(out: &mut Map<'a>, part: &'a Map<'a>) {
    for (key, value) in part.iter().filter(|(key, _)| !KNOWN_PART_FIELDS.contains(key)) {
        out.insert(key, value.clone());
    }
}

/// A tool's result of text parts becomes one string, which is all that most templates can print.
fn flatten_texts(message: &mut Map<'_>) -> Result<()> {
    let Some(Json::Array(parts)) = message.get("content") else { return Ok(()) };
    let is_text =
        |part: &Json<'_>| part.as_object().is_some_and(|part| part.get("type").and_then(Json::as_str) == Some("text"));
    if parts.iter().all(is_text) {
        let joined = join_texts(parts)?;
        message.insert("content", joined.into());
    }
    Ok(())
}

/// The texts of parts, a line each.
fn join_texts(parts: &[Json<'_>]) -> Result<String> {
    let mut texts = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Json::Object(part) => match part.get("text") {
                Some(Json::Str(text)) => texts.push(text.as_ref()),
                Some(_) => return Err(Error::bad_request("the text of a content part must be a string")),
                None => {}
            },
            part => texts.extend(part.as_str()),
        }
    }
    Ok(texts.join("\n"))
}

/// Templates want a call's arguments as an object. What is no JSON object becomes an empty one: a bad turn in the
/// history must not end the conversation.
fn decode_arguments<'a>(call: &Json<'a>) -> Result<Json<'a>> {
    let fault = || Error::bad_param("tool_calls", "`tool_calls` of an assistant message must be function calls");
    let Json::Object(call) = call else { return Err(fault()) };
    let Some(Json::Object(function)) = call.get("function") else { return Err(fault()) };
    let arguments = match function.get("arguments") {
        Some(Json::Str(Cow::Borrowed(text))) => Json::parse(text).ok(),
        Some(Json::Str(Cow::Owned(text))) => Json::parse(text).ok().map(Json::into_owned),
        _ => None,
    };
    let arguments =
        arguments.filter(|arguments| arguments.as_object().is_some()).unwrap_or_else(|| Json::Object(Map::new()));
    let mut function = function.clone();
    function.insert("arguments", arguments);
    let mut call = call.clone();
    call.insert("function", Json::Object(function));
    Ok(Json::Object(call))
}

/// For a template that knows no developer role: its messages become system messages, and all system messages one,
/// at the beginning, unless there is just one and it stands there.
pub fn fold_developer_messages(messages: &mut Vec<Json<'_>>) -> Result<()> {
    let has_role = |message: &Json<'_>, role: &str| {
        message.as_object().is_some_and(|message| message.get("role").and_then(Json::as_str) == Some(role))
    };
    if !messages.iter().any(|message| has_role(message, "developer")) {
        return Ok(());
    }
    for message in &mut *messages {
        if has_role(message, "developer")
            && let Json::Object(map) = message
        {
            map.insert("role", "system".into());
            map.remove("tools");
        }
    }
    let mut texts = Vec::new();
    for message in messages.iter().filter(|message| has_role(message, "system")) {
        texts.push(system_text(message)?);
    }
    if !messages.iter().skip(1).any(|message| has_role(message, "system")) {
        return Ok(());
    }
    texts.retain(|text| !text.is_empty());
    let mut merged = Map::new();
    merged.push("role", "system".into());
    merged.push("content", texts.join("\n\n").into());
    messages.retain(|message| !has_role(message, "system"));
    messages.insert(0, Json::Object(merged));
    Ok(())
}

fn system_text(message: &Json<'_>) -> Result<String> {
    match message.as_object().and_then(|message| message.get("content")) {
        Some(Json::Str(text)) => Ok(text.clone().into_owned()),
        Some(Json::Array(parts)) => join_texts(parts),
        _ => Ok(String::new()),
    }
}
