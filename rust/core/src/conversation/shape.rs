//! Which messages are accepted, and as what.
//!
//! vLLM holds each message against a union of typed shapes (OpenAI's, by role) and one permissive shape (any role,
//! content of strings and of any object). Of those that fit, the one with the most known fields wins, the typed one
//! on a tie. A typed shape checks content parts only when they are read, in the handler: its failures are
//! `BadRequestError`, all others `Bad Request`.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::json::{Json, Map};

/// The most messages of a request.
const MAX_MESSAGES: usize = 65_536;

/// The most content parts and tool calls of all messages.
const MAX_PARTS: usize = 262_144;

/// The content of a message as its shape lets it through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content<'a> {
    /// Null or absent.
    Nothing,
    Text(&'a str),
    /// Strings and objects.
    Parts(&'a [Json<'a>]),
    /// What the role's typed shape refuses once it is read: the items of a list, or none for an object.
    Unreadable(&'a [Json<'a>]),
}

/// What is done to messages before their shapes are checked, which differs by route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// `reasoning_content` stands in for `reasoning`, and every tool call is checked at once.
    Chat,
    /// Neither: `/tokenize` reads tool calls when it renders, and does not know `reasoning_content`.
    Tokenize,
}

/// A message whose shape is valid.
#[derive(Debug, Clone)]
pub struct Message<'a> {
    pub role: &'a str,
    pub content: Content<'a>,
    /// Calls of an assistant message, re-keyed: `id`, `function {arguments, name, …}`, `type`, and the rest.
    pub tool_calls: Vec<Json<'a>>,
    /// What is wrong with the calls, where that shows only when they are rendered.
    pub tool_call_fault: Option<&'static str>,
    /// `reasoning`, or else `reasoning_content`; null counts as absent.
    pub reasoning: Option<&'a Json<'a>>,
    pub tool_call_id: Option<&'a Json<'a>>,
    pub name: Option<&'a str>,
    pub task: Option<&'a str>,
    /// Tools of a developer message.
    pub tools: Option<Json<'a>>,
}

/// Roles with a typed shape of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TypedRole {
    /// `system` and `developer`.
    Instruction,
    User,
    Assistant,
    Tool,
    Function,
}

impl TypedRole {
    fn of(role: &str) -> Option<Self> {
        Some(match role {
            "system" | "developer" => Self::Instruction,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" => Self::Tool,
            "function" => Self::Function,
            _ => return None,
        })
    }
}

/// Refuse a conversation of more messages, parts and calls than anybody has: a template spends far more on each than a
/// client does.
fn check_size(messages: &[Json<'_>]) -> Result<()> {
    if messages.len() > MAX_MESSAGES {
        return Err(Error::bad_param("messages", format!("a conversation may have {MAX_MESSAGES} messages")));
    }
    let count = |message: &Json<'_>, key: &str| {
        message.as_object().and_then(|message| message.get(key)?.as_array()).map_or(0, <[Json<'_>]>::len)
    };
    let parts: usize = messages.iter().map(|message| count(message, "content") + count(message, "tool_calls")).sum();
    if parts > MAX_PARTS {
        let message =
            format!("the messages of a conversation may have {MAX_PARTS} content parts and tool calls in all");
        return Err(Error::bad_param("messages", message));
    }
    Ok(())
}

/// Read every message of a request; errors are those of the request's schema.
pub fn read_messages<'a>(messages: &'a [Json<'a>], reading: Reading) -> Result<Vec<Message<'a>>> {
    check_size(messages)?;
    messages.iter().enumerate().map(|(i, message)| read_message(message, i, reading)).collect()
}

fn read_message<'a>(message: &'a Json<'a>, index: usize, reading: Reading) -> Result<Message<'a>> {
    let fault = |key: &str, expected: &str| {
        let path =
            if key.is_empty() { format!("body.messages.{index}") } else { format!("body.messages.{index}.{key}") };
        Error::schema(
            path,
            format!("`messages[{index}]`{}{key} must be {expected}", if key.is_empty() { "" } else { ": " }),
        )
    };
    let Json::Object(map) = message else { return Err(fault("", "an object")) };
    let role = map.get("role").and_then(Json::as_str).ok_or_else(|| fault("role", "a string"))?;
    let typed = TypedRole::of(role);
    let content = map.get("content");
    let calls = read_tool_calls(map);
    let reasoning = reasoning(map, reading);
    let permissive = permissive_fields(map, reasoning, calls.is_ok());
    let strict = typed.and_then(|typed| typed_fields(map, typed));
    let content = match (strict, permissive) {
        (None, None) => return Err(first_fault(map, typed, &fault)),
        (Some(strict), permissive) if permissive.is_none_or(|permissive| permissive <= strict) => {
            let typed = typed.expect("a typed shape fits only typed roles");
            match content {
                Some(Json::Array(parts)) if parts.iter().all(|part| typed_part_fits(typed, part)) => {
                    Content::Parts(parts)
                }
                // An empty object is an empty iterable to Python.
                Some(Json::Object(map)) if map.is_empty() => Content::Parts(&[]),
                Some(Json::Array(parts)) => Content::Unreadable(parts),
                Some(Json::Object(_)) => Content::Unreadable(&[]),
                content => plain_content(content),
            }
        }
        _ => match content {
            Some(Json::Array(parts)) => Content::Parts(parts),
            content => plain_content(content),
        },
    };
    let (tool_calls, tool_call_fault) = match (typed, calls) {
        (Some(TypedRole::Assistant), Ok(calls)) => (calls, None),
        (Some(TypedRole::Assistant), Err(expected)) if reading == Reading::Chat => {
            return Err(fault("tool_calls", expected));
        }
        (Some(TypedRole::Assistant), Err(expected)) => (Vec::new(), Some(expected)),
        _ => (Vec::new(), None),
    };
    Ok(Message {
        role,
        content,
        tool_calls,
        tool_call_fault,
        reasoning,
        tool_call_id: map.get("tool_call_id"),
        name: map.get("name").and_then(Json::as_str),
        task: map.get("task").and_then(Json::as_str),
        tools: map.get("tools").map(rekey_developer_tools),
    })
}

/// `reasoning`, or else (in a chat) its older name.
fn reasoning<'a>(map: &'a Map<'a>, reading: Reading) -> Option<&'a Json<'a>> {
    let older = || map.present("reasoning_content").filter(|_| reading == Reading::Chat);
    map.present("reasoning").or_else(older)
}

fn is_function_call(call: &Json<'_>) -> bool {
    call.as_object().is_some_and(|call| has_type(call, "function"))
}

/// What Python turns into an empty list.
fn is_empty_iterable(value: &Json<'_>) -> bool {
    matches!(value, Json::Str(_) | Json::Object(_)) && !value.truthy()
}

fn plain_content<'a>(content: Option<&'a Json<'a>>) -> Content<'a> {
    content.and_then(Json::as_str).map_or(Content::Nothing, Content::Text)
}

fn first_fault(map: &Map<'_>, typed: Option<TypedRole>, fault: &dyn Fn(&str, &str) -> Error) -> Error {
    match map.get("content") {
        Some(Json::Null) => fault("content", "a string or a list of parts; only an assistant's may be null"),
        Some(Json::Str(_) | Json::Array(_)) | None => match typed {
            Some(TypedRole::Tool) => fault("tool_call_id", "a string"),
            _ => fault("name", "a string, and the content's parts strings or objects"),
        },
        Some(_) => fault("content", "a string or a list of parts"),
    }
}

/// Known fields that the permissive shape finds, or none where it does not fit.
fn permissive_fields(map: &Map<'_>, reasoning: Option<&Json<'_>>, calls_fit: bool) -> Option<usize> {
    let mut known = 1;
    match map.get("content") {
        None => {}
        Some(Json::Str(_)) => known += 1,
        Some(Json::Array(parts)) => {
            known += 1;
            for part in parts {
                known += match part {
                    Json::Str(_) => 0,
                    Json::Object(part) => known_part_fields(part),
                    _ => return None,
                };
            }
        }
        Some(_) => return None,
    }
    let text = |value: &Json<'_>| matches!(value, Json::Str(_));
    let text_or_null = |value: &Json<'_>| matches!(value, Json::Str(_) | Json::Null);
    let embeds = |value: &Json<'_>| {
        value.as_object().is_some_and(|map| map.get("data").is_some_and(text) && has_type(map, "prompt_embeds"))
    };
    let mut field = |key: &str, fits: &dyn Fn(&Json<'_>) -> bool| match map.get(key) {
        None => Some(()),
        Some(value) => fits(value).then(|| known += 1),
    };
    field("name", &text)?;
    field("tool_call_id", &text_or_null)?;
    field("task", &text_or_null)?;
    field("tools", &|value| {
        value.is_null() || value.as_array().is_some_and(|tools| tools.iter().all(developer_tool_fits))
    })?;
    match reasoning.or(map.get("reasoning")) {
        None => {}
        Some(value) if text_or_null(value) || embeds(value) => known += 1,
        Some(_) => return None,
    }
    match map.get("tool_calls") {
        None => {}
        // Each call brings `id`, `type` and the two fields of its function.
        Some(Json::Array(calls)) if calls_fit && calls.iter().all(is_function_call) => known += 1 + 5 * calls.len(),
        Some(Json::Null) => known += 1,
        Some(calls) if is_empty_iterable(calls) => known += 1,
        Some(_) => return None,
    }
    Some(known)
}

/// Known fields that the role's typed shape finds, or none where it does not fit. Parts are not looked at.
fn typed_fields(map: &Map<'_>, role: TypedRole) -> Option<usize> {
    let mut known = 1;
    let mut field = |key: &str, needed: bool, fits: &dyn Fn(&Json<'_>) -> bool| match map.get(key) {
        None => (!needed).then_some(()),
        Some(value) => fits(value).then(|| known += 1),
    };
    let text = |value: &Json<'_>| matches!(value, Json::Str(_));
    let text_or_list = |value: &Json<'_>| matches!(value, Json::Str(_) | Json::Array(_) | Json::Object(_));
    let or_null = |value: &Json<'_>| value.is_null();
    match role {
        TypedRole::Instruction | TypedRole::User => {
            field("content", true, &text_or_list)?;
            field("name", false, &text)?;
        }
        TypedRole::Assistant => {
            field("content", false, &|value| text_or_list(value) || or_null(value))?;
            field("name", false, &text)?;
            field("refusal", false, &|value| text(value) || or_null(value))?;
            field("audio", false, &|value| {
                or_null(value) || value.as_object().is_some_and(|map| map.contains_key("id"))
            })?;
            field("function_call", false, &|value| or_null(value) || value.as_object().is_some())?;
            field("tool_calls", false, &|value| !or_null(value))?;
        }
        TypedRole::Tool => {
            field("content", true, &text_or_list)?;
            field("tool_call_id", true, &text)?;
        }
        TypedRole::Function => {
            field("content", true, &|value| text(value) || or_null(value))?;
            field("name", true, &text)?;
        }
    }
    Some(known)
}

fn has_type(part: &Map<'_>, kind: &str) -> bool {
    part.get("type").and_then(Json::as_str) == Some(kind)
}

fn has_text(part: &Map<'_>, key: &str) -> bool {
    part.get(key).is_some_and(|value| value.as_str().is_some())
}

fn has_object_with_text(part: &Map<'_>, key: &str, inner: &str) -> bool {
    part.get(key).and_then(Json::as_object).is_some_and(|map| has_text(map, inner))
}

/// Whether a part is one of the typed parts that a role's messages may hold.
fn typed_part_fits(role: TypedRole, part: &Json<'_>) -> bool {
    let Some(part) = part.as_object() else { return false };
    let text = has_type(part, "text") && has_text(part, "text");
    match role {
        TypedRole::Instruction | TypedRole::Tool => text,
        TypedRole::Assistant => text || (has_type(part, "refusal") && has_text(part, "refusal")),
        TypedRole::User => {
            text || (has_type(part, "image_url") && has_object_with_text(part, "image_url", "url"))
                || (has_type(part, "input_audio")
                    && has_object_with_text(part, "input_audio", "data")
                    && has_object_with_text(part, "input_audio", "format"))
                || (has_type(part, "file") && part.get("file").is_some_and(|file| file.as_object().is_some()))
        }
        TypedRole::Function => false,
    }
}

/// The most known fields that any part shape finds in an object; every object fits at least one shape, with none.
fn known_part_fields(part: &Map<'_>) -> usize {
    let text_or_null = |key| usize::from(part.get(key).is_some_and(|value| matches!(value, Json::Str(_) | Json::Null)));
    let allows = |key| part.get(key).is_none_or(|value| matches!(value, Json::Str(_) | Json::Null));
    let kind = part.get("type").and_then(Json::as_str);
    let typed = match kind {
        Some("text") if has_text(part, "text") => 2,
        Some("refusal") if has_text(part, "refusal") => 2,
        Some("thinking") if has_text(part, "thinking") => 2,
        Some("prompt_embeds") if has_text(part, "data") => 2,
        Some(kind @ ("image_url" | "audio_url" | "video_url")) if has_object_with_text(part, kind, "url") => 3,
        Some("input_audio")
            if has_object_with_text(part, "input_audio", "data")
                && has_object_with_text(part, "input_audio", "format") =>
        {
            4
        }
        Some("file") if part.get("file").is_some_and(|file| file.as_object().is_some()) => 2,
        Some("image_embeds" | "audio_embeds" | "video_embeds" | "tool_reference") => 1,
        _ => 0,
    };
    let simple = |media: &'static str| {
        if allows(media) && allows("uuid") { text_or_null(media) + text_or_null("uuid") } else { 0 }
    };
    let named = usize::from(kind.is_none() && part.get("type").is_none() && has_text(part, "name"));
    let audio = if allows("audio_url") { text_or_null("audio_url") } else { 0 };
    [typed, simple("image_url"), simple("video_url"), audio, named].into_iter().max().unwrap_or(0)
}

/// The calls of a message, re-keyed as the typed shape orders them; the error says what a call must be.
fn read_tool_calls<'a>(map: &'a Map<'a>) -> Result<Vec<Json<'a>>, &'static str> {
    const EXPECTED: &str =
        "a list of calls, each with an `id`, a `type` and a `function` of `name` and `arguments` (strings)";
    match map.get("tool_calls") {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(Json::Array(calls)) => calls.iter().map(|call| rekey_call(call).ok_or(EXPECTED)).collect(),
        Some(calls) if is_empty_iterable(calls) => Ok(Vec::new()),
        Some(_) => Err(EXPECTED),
    }
}

fn rekey_call<'a>(call: &'a Json<'a>) -> Option<Json<'a>> {
    let call = call.as_object()?;
    let (body, fields) = match call.get("type")?.as_str()? {
        "function" => ("function", ["arguments", "name"]),
        "custom" => ("custom", ["input", "name"]),
        _ => return None,
    };
    let inner = call.get(body)?.as_object()?;
    let strings = call.get("id")?.as_str().is_some() && fields.iter().all(|field| has_text(inner, field));
    if !strings {
        return None;
    }
    let mut out = rekey(call, &["id", body, "type"]);
    out.insert(body, Json::Object(rekey(inner, &fields)));
    Some(Json::Object(out))
}

/// The declared keys that are there, in their order, then the others in theirs.
fn rekey<'a>(map: &'a Map<'a>, declared: &[&'static str]) -> Map<'a> {
    let mut out = Map::new();
    for key in declared {
        if let Some(value) = map.get(key) {
            out.push(*key, value.clone());
        }
    }
    for (key, value) in map.iter().filter(|(key, _)| !declared.contains(key)) {
        out.push(Cow::Borrowed(key), value.clone());
    }
    out
}

fn developer_tool_fits(tool: &Json<'_>) -> bool {
    tool.as_object().is_some_and(|tool| has_type(tool, "function") && has_object_with_text(tool, "function", "name"))
}

fn rekey_developer_tools<'a>(tools: &'a Json<'a>) -> Json<'a> {
    match tools {
        Json::Array(items) if items.iter().all(developer_tool_fits) => Json::Array(
            items
                .iter()
                .filter_map(Json::as_object)
                .map(|tool| {
                    let mut out = rekey(tool, &["function", "type"]);
                    if let Some(Json::Object(function)) = tool.get("function") {
                        out.insert(
                            "function",
                            Json::Object(rekey(function, &["name", "description", "parameters", "strict"])),
                        );
                    }
                    Json::Object(out)
                })
                .collect(),
        ),
        tools => tools.clone(),
    }
}
