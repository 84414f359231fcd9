//! Bodies of the derender routes: an engine's answer, or a chunk of one, and what is known of the request behind it.
//!
//! Source: vLLM's `entrypoints/scale_out/token_in_token_out/protocol.py`. Fields that are echoed are checked and kept as
//! they came.

use super::fields::At;
use super::state::WireState;
use crate::error::{Error, Result};
use crate::json::{Json, Map};
use crate::protocol::chat::ChatRequest;
use crate::protocol::completion::CompletionRequest;
use crate::protocol::fields::{Fields, INT64, lax_float, lax_int};
use crate::protocol::sampling::SamplingRequest;
use crate::spec::RenderSettings;

/// Token ids, and as they were written.
#[derive(Debug, Clone, Default)]
pub(super) struct Ids<'a> {
    /// Ids that no vocabulary has are `u32::MAX`.
    pub(super) ids: Vec<u32>,
    pub(super) raw: &'a [Json<'a>],
}

/// Why generation stopped, as the engine says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason<'a> {
    None,
    Token(i128),
    Text(&'a str),
}

/// One output of an engine, or a part of one.
#[derive(Debug, Clone)]
pub(super) struct Choice<'a> {
    pub(super) index: i64,
    pub(super) finish_reason: Option<&'a str>,
    pub(super) stop_reason: StopReason<'a>,
    pub(super) token_ids: Option<Ids<'a>>,
    pub(super) logprobs: Option<Logprobs<'a>>,
}

/// Logprobs by token id; `None` where the engine gave none.
#[derive(Debug, Clone)]
pub(super) struct Logprobs<'a> {
    pub(super) content: Option<Vec<Position<'a>>>,
}

/// The logprob of a sampled token and its alternatives.
#[derive(Debug, Clone)]
pub(super) struct Position<'a> {
    pub(super) token: Candidate,
    pub(super) top: &'a [Json<'a>],
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) id: u32,
    pub(super) logprob: f64,
}

/// An engine's answer or chunk.
#[derive(Debug, Clone)]
pub(super) struct Generated<'a> {
    pub(super) request_id: Option<&'a str>,
    pub(super) choices: Vec<Choice<'a>>,
    pub(super) prompt_token_ids: Option<Ids<'a>>,
    pub(super) prompt_logprobs: Option<&'a [Json<'a>]>,
    pub(super) usage: Option<Usage>,
    pub(super) metrics: Option<&'a Map<'a>>,
    pub(super) kv_transfer_params: Option<&'a Map<'a>>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) prompt_tokens: i128,
    pub(super) completion_tokens: i128,
}

/// The request that the engine answered.
#[derive(Debug, Clone)]
pub(super) enum Asked<'a> {
    Nothing,
    Chat(Box<ChatRequest<'a>>),
    Completion(Box<CompletionRequest<'a>>),
}

/// A body of a derender route.
#[derive(Debug, Clone)]
pub(super) enum Request<'a> {
    Whole(Whole<'a>),
    Chunk(Box<Chunk<'a>>),
}

#[derive(Debug, Clone)]
pub(super) struct Whole<'a> {
    pub(super) model: Option<&'a str>,
    /// One, for chat.
    pub(super) responses: Vec<Generated<'a>>,
    /// Empty, or one for each response.
    pub(super) prompt_tokens: Vec<i128>,
    /// Empty, or one for each response.
    pub(super) prompt_token_ids: Vec<Option<Vec<u32>>>,
    pub(super) asked: Asked<'a>,
}

#[derive(Debug, Clone)]
pub(super) struct Chunk<'a> {
    pub(super) model: Option<&'a str>,
    pub(super) generated: Generated<'a>,
    pub(super) state: Option<WireState<'a>>,
    pub(super) prompt_tokens: Option<i128>,
    pub(super) prompt_token_ids: Option<Vec<u32>>,
    pub(super) asked: Asked<'a>,
}

/// Which kind of answer is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Chat,
    Completion,
}

impl Kind {
    fn request_key(self) -> &'static str {
        match self {
            Kind::Chat => "chat_request",
            Kind::Completion => "completion_request",
        }
    }
}

impl<'a> Request<'a> {
    pub(super) fn read(map: &'a Map<'a>, kind: Kind, settings: &RenderSettings) -> Result<Self> {
        let body = Fields::new(map, "body");
        if body.bool_or("stream", false)? {
            return Chunk::read(body, kind, settings).map(|chunk| Request::Chunk(Box::new(chunk)));
        }
        Whole::read(body, kind, settings).map(Request::Whole)
    }
}

impl<'a> Whole<'a> {
    fn read(body: Fields<'a, 'a>, kind: Kind, settings: &RenderSettings) -> Result<Self> {
        let mut whole = Self {
            model: body.str("model")?,
            responses: Vec::new(),
            prompt_tokens: Vec::new(),
            prompt_token_ids: Vec::new(),
            asked: Asked::Nothing,
        };
        match kind {
            Kind::Chat => {
                whole.responses.push(Generated::read(
                    required(body, "generate_response")?,
                    "body.generate_response",
                    Part::Whole,
                )?);
                whole.prompt_tokens.extend(body.int("prompt_tokens")?);
                if let Some(ids) = body.array("prompt_token_ids")? {
                    whole.prompt_token_ids.push(Some(Ids::read(ids, "body.prompt_token_ids", true)?.ids));
                }
            }
            Kind::Completion => {
                let responses = body.array("generate_responses")?;
                let responses = responses.ok_or_else(|| body.error("generate_responses", "given"))?;
                for (i, response) in responses.iter().enumerate() {
                    whole.responses.push(Generated::read(
                        response,
                        &format!("body.generate_responses.{i}"),
                        Part::Whole,
                    )?);
                }
                if let Some(tokens) = body.ints("prompt_tokens")? {
                    check_length("prompt_tokens", tokens.len(), responses.len())?;
                    whole.prompt_tokens = tokens;
                }
                if let Some(lists) = body.array("prompt_token_ids")? {
                    check_length("prompt_token_ids", lists.len(), responses.len())?;
                    for (i, list) in lists.iter().enumerate() {
                        let path = format!("body.prompt_token_ids.{i}");
                        whole.prompt_token_ids.push(optional_ids(Some(list), &path)?.map(|ids| ids.ids));
                    }
                }
            }
        }
        whole.asked = Asked::read(body, kind, settings)?;
        Ok(whole)
    }
}

impl<'a> Chunk<'a> {
    fn read(body: Fields<'a, 'a>, kind: Kind, settings: &RenderSettings) -> Result<Self> {
        Ok(Self {
            generated: Generated::read(required(body, "generate_chunk")?, "body.generate_chunk", Part::Chunk)?,
            state: body.object("stream_state")?.map(WireState::read).transpose()?,
            ..Self::opening(body, kind, settings)?
        })
    }

    /// All but the chunk and its state: what a stream over one connection begins with.
    pub(super) fn opening(body: Fields<'a, 'a>, kind: Kind, settings: &RenderSettings) -> Result<Self> {
        Ok(Self {
            model: body.str("model")?,
            generated: Generated::empty(),
            state: None,
            prompt_tokens: body.int("prompt_tokens")?,
            prompt_token_ids: optional_ids(body.map.get("prompt_token_ids"), "body.prompt_token_ids")?
                .map(|ids| ids.ids),
            asked: Asked::read(body, kind, settings)?,
        })
    }
}

impl<'a> Asked<'a> {
    fn read(body: Fields<'a, 'a>, kind: Kind, settings: &RenderSettings) -> Result<Self> {
        let Some(map) = body.object(kind.request_key())? else { return Ok(Asked::Nothing) };
        Ok(match kind {
            Kind::Chat => Asked::Chat(Box::new(ChatRequest::read(map, settings)?)),
            Kind::Completion => Asked::Completion(Box::new(CompletionRequest::read(map, settings)?)),
        })
    }

    pub(super) fn sampling(&self) -> Option<&SamplingRequest<'a>> {
        match self {
            Asked::Nothing => None,
            Asked::Chat(request) => Some(&request.sampling),
            Asked::Completion(request) => Some(&request.sampling),
        }
    }

    pub(super) fn includes_usage(&self) -> bool {
        let options = match self {
            Asked::Nothing => None,
            Asked::Chat(request) => request.common.stream_options,
            Asked::Completion(request) => request.common.stream_options,
        };
        options.is_some_and(|options| options.include_usage == Some(true))
    }

    pub(super) fn returns_token_ids(&self) -> bool {
        let common = match self {
            Asked::Nothing => return false,
            Asked::Chat(request) => &request.common,
            Asked::Completion(request) => &request.common,
        };
        common.return_token_ids == Some(true)
    }

    /// How many of a position's candidates are passed on; `None` for all.
    pub(super) fn top_limit(&self) -> Option<usize> {
        let asked = self.sampling()?.logprobs.filter(|count| *count != -1)?;
        let more = i128::from(matches!(self, Asked::Completion(_)));
        usize::try_from(asked.saturating_add(more)).ok().or(Some(0))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Chunk,
}

impl<'a> Generated<'a> {
    pub(super) fn empty() -> Self {
        Self {
            request_id: None,
            choices: Vec::new(),
            prompt_token_ids: None,
            prompt_logprobs: None,
            usage: None,
            metrics: None,
            kv_transfer_params: None,
        }
    }

    /// Read a chunk that stands alone, as it comes over a stream's connection.
    pub(super) fn read_chunk(map: &'a Json<'a>) -> Result<Self> {
        Self::read(map, "chunk", Part::Chunk)
    }

    fn read(value: &'a Json<'a>, path: &str, part: Part) -> Result<Self> {
        let map = value.as_object().ok_or_else(|| Error::schema(path, "an engine's answer must be an object"))?;
        let fields = At { map, path };
        if map.get("output_mode").is_some_and(|mode| mode.as_str() != Some("tokens")) {
            return Err(fields.error("output_mode", "\"tokens\": only token ids can be derendered"));
        }
        let request_id = match map.get("request_id") {
            None => None,
            Some(_) => Some(fields.str("request_id")?.ok_or_else(|| fields.error("request_id", "a string"))?),
        };
        let choices = fields.array("choices")?.ok_or_else(|| fields.missing("choices"))?;
        let choice = |(i, choice)| Choice::read(choice, &format!("{path}.choices.{i}"), part);
        let mut generated = Self {
            request_id,
            choices: choices.iter().enumerate().map(choice).collect::<Result<_>>()?,
            prompt_token_ids: optional_ids(map.get("prompt_token_ids"), &format!("{path}.prompt_token_ids"))?,
            usage: read_usage(map, path)?,
            metrics: fields.object("metrics")?,
            ..Self::empty()
        };
        if part == Part::Whole {
            generated.prompt_logprobs = fields.array("prompt_logprobs")?;
            generated.kv_transfer_params = fields.object("kv_transfer_params")?;
            fields.object("ec_transfer_params")?;
            check_prompt_logprobs(generated.prompt_logprobs.unwrap_or_default(), path)?;
        }
        Ok(generated)
    }
}

impl<'a> Choice<'a> {
    fn read(value: &'a Json<'a>, path: &str, part: Part) -> Result<Self> {
        let map = value.as_object().ok_or_else(|| Error::schema(path, "a choice must be an object"))?;
        let fields = At { map, path };
        let index = Fields::new(map, path).int_in("index", INT64)?.ok_or_else(|| fields.missing("index"))?;
        let finish_reason = match map.get("finish_reason") {
            None if part == Part::Whole => Some("stop"),
            _ => fields.str("finish_reason")?,
        };
        let stop_reason = match fields.present("stop_reason") {
            None => StopReason::None,
            Some(Json::Str(text)) => StopReason::Text(text),
            Some(token) => {
                StopReason::Token(lax_int(token).ok_or_else(|| fields.error("stop_reason", "a token id or a string"))?)
            }
        };
        let token_ids = fields
            .array("token_ids")?
            .map(|ids| Ids::read(ids, &format!("{path}.token_ids"), part == Part::Whole))
            .transpose()?;
        let logprobs =
            fields.object("logprobs")?.map(|map| Logprobs::read(map, &format!("{path}.logprobs"))).transpose()?;
        Ok(Self { index: i64::try_from(index).unwrap_or(0), finish_reason, stop_reason, token_ids, logprobs })
    }

    pub(super) fn ids(&self) -> &[u32] {
        self.token_ids.as_ref().map(|ids| ids.ids.as_slice()).unwrap_or_default()
    }
}

impl<'a> Logprobs<'a> {
    fn read(map: &'a Map<'a>, path: &str) -> Result<Self> {
        let Some(content) = (At { map, path }).array("content")? else { return Ok(Self { content: None }) };
        let position = |(i, value): (usize, &'a Json<'a>)| {
            let path = format!("{path}.content.{i}");
            let map =
                value.as_object().ok_or_else(|| Error::schema(&*path, "logprobs of a token must be an object"))?;
            let top = match map.get("top_logprobs") {
                None => &[],
                Some(Json::Array(top)) => top.as_slice(),
                Some(_) => return Err(Error::schema(path, "`top_logprobs` must be a list")),
            };
            for candidate in top {
                Candidate::read(candidate).ok_or_else(|| no_logprob(&path))?;
            }
            Ok(Position { token: Candidate::read(value).ok_or_else(|| no_logprob(&path))?, top })
        };
        Ok(Self { content: Some(content.iter().enumerate().map(position).collect::<Result<_>>()?) })
    }
}

impl Candidate {
    pub(super) fn read(value: &Json<'_>) -> Option<Self> {
        let map = value.as_object()?;
        let id = lax_int(map.get("token_id")?)?;
        map.present("rank").is_none_or(|rank| lax_int(rank).is_some()).then_some(())?;
        Some(Self { id: u32::try_from(id).unwrap_or(u32::MAX), logprob: lax_float(map.get("logprob")?)? })
    }
}

impl<'a> Ids<'a> {
    /// In chunks negative ids are no fault: no vocabulary has them.
    pub(super) fn read(raw: &'a [Json<'a>], path: &str, refuses_negative: bool) -> Result<Self> {
        let mut ids = Vec::with_capacity(raw.len());
        for (i, value) in raw.iter().enumerate() {
            let id = match value {
                Json::Int(id) => i128::from(*id),
                value => lax_int(value)
                    .ok_or_else(|| Error::schema(format!("{path}.{i}"), "a token id must be an integer"))?,
            };
            if refuses_negative && id < 0 {
                return Err(Error::schema(path, "token ids must not be negative"));
            }
            ids.push(u32::try_from(id).unwrap_or(u32::MAX));
        }
        Ok(Self { ids, raw })
    }

    /// Append the ids as they came.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        if !self.ids.contains(&u32::MAX) {
            return crate::protocol::generate::write_ids(out, &self.ids);
        }
        out.push(b'[');
        for (i, value) in self.raw.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(itoa::Buffer::new().format(lax_int(value).unwrap_or_default()).as_bytes());
        }
        out.push(b']');
    }
}

fn optional_ids<'a>(value: Option<&'a Json<'a>>, path: &str) -> Result<Option<Ids<'a>>> {
    match value {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Array(ids)) => Ids::read(ids, path, true).map(Some),
        Some(_) => Err(Error::schema(path, "token ids must be a list")),
    }
}

fn read_usage(map: &Map<'_>, path: &str) -> Result<Option<Usage>> {
    let Some(map) = Fields::new(map, path).object("usage")? else { return Ok(None) };
    let path = format!("{path}.usage");
    let usage = Fields::new(map, &path);
    Ok(Some(Usage {
        prompt_tokens: usage.int_in("prompt_tokens", INT64)?.unwrap_or(0),
        completion_tokens: usage.int_in("completion_tokens", INT64)?.unwrap_or(0),
    }))
}

/// `prompt_logprobs`: for each token of the prompt null, or logprobs by token id.
fn check_prompt_logprobs(entries: &[Json<'_>], path: &str) -> Result<()> {
    let is_logprob = |value: &Json<'_>| {
        value.as_object().and_then(|map| map.get("logprob")).is_some_and(|logprob| lax_float(logprob).is_some())
    };
    let fits = |entry: &Json<'_>| match entry {
        Json::Null => true,
        Json::Object(map) => map.iter().all(|(id, value)| lax_int(&Json::from(id)).is_some() && is_logprob(value)),
        _ => false,
    };
    if entries.iter().all(fits) {
        return Ok(());
    }
    Err(Error::schema(
        format!("{path}.prompt_logprobs"),
        "`prompt_logprobs` must be a list of maps from token ids to logprobs",
    ))
}

fn required<'m, 'a>(fields: Fields<'m, 'a>, key: &str) -> Result<&'m Json<'a>> {
    fields.map.get(key).ok_or_else(|| fields.error(key, "given"))
}

fn no_logprob(path: &str) -> Error {
    Error::schema(path, "a logprob must have an integer `token_id` and a number `logprob`")
}

fn check_length(field: &str, length: usize, responses: usize) -> Result<()> {
    if length == responses {
        return Ok(());
    }
    Err(Error::schema("body", format!("`{field}` has {length} entries for {responses} responses; give one for each")))
}
