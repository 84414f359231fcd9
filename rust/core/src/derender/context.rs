//! What holds for all choices of a body: what the request behind it says of its answer.

use super::Derenderer;
use super::request::{Asked, Choice, Kind, StopReason};
use super::text::TextRules;
use crate::conversation::{self, Reading};
use crate::detokenizer::Specials;
use crate::error::{Error, Result};
use crate::json::Map;
use crate::parser::{ParseRequest, Parser, Tool};
use crate::protocol::chat::ChatRequest;

pub(super) struct Context<'r> {
    pub(super) derenderer: &'r Derenderer,
    pub(super) asked: &'r Asked<'r>,
    /// `None` for plain text.
    pub(super) parsing: Option<Parsing<'r>>,
    /// Stop strings of the request.
    pub(super) stop: Vec<&'r str>,
    pub(super) specials: Specials,
    pub(super) returns_token_ids: bool,
    /// Per-token data would tell of reasoning that is not to be told.
    pub(super) hides_tokens: bool,
    pub(super) top_limit: Option<usize>,
}

/// What a parser needs to know of the request.
pub(super) struct Parsing<'r> {
    pub(super) parser: &'r Parser,
    request: &'r ChatRequest<'r>,
    tools: Vec<Tool<'r>>,
    variables: Map<'r>,
    history_tool_calls: u32,
}

impl<'r> Context<'r> {
    pub(super) fn new(derenderer: &'r Derenderer, kind: Kind, asked: &'r Asked<'r>) -> Result<Self> {
        let parsing = match (&derenderer.parser, asked) {
            (Some(parser), Asked::Chat(request)) if kind == Kind::Chat => {
                Some(Parsing::new(derenderer, parser, request)?)
            }
            (Some(_), _) if kind == Kind::Chat => {
                return Err(Error::bad_request(
                    "`chat_request` is needed where tool calls or reasoning are parsed: without it their markup would \
                     be content",
                ));
            }
            _ => None,
        };
        let sampling = asked.sampling();
        let keeps = parsing.is_some() || sampling.is_some_and(|sampling| sampling.skip_special_tokens == Some(false));
        let hides_tokens = parsing.as_ref().is_some_and(|parsing| !parsing.request.include_reasoning);
        Ok(Self {
            derenderer,
            asked,
            stop: sampling.map(|sampling| non_empty(&sampling.stop)).unwrap_or_default(),
            specials: if keeps { Specials::Keep } else { Specials::Skip },
            returns_token_ids: asked.returns_token_ids() && !hides_tokens,
            hides_tokens,
            top_limit: asked.top_limit(),
            parsing,
        })
    }

    /// Rules for a text that these strings may end.
    pub(super) fn rules<'s>(&'s self, stop: &'s [&'s str]) -> TextRules<'s> {
        let sampling = self.asked.sampling();
        TextRules {
            detokenizer: &self.derenderer.detokenizer,
            specials: self.specials,
            stop,
            include_stop: sampling.is_some_and(|sampling| sampling.include_stop_str_in_output),
            min_tokens: sampling.map_or(0, |sampling| u64::try_from(sampling.min_tokens).unwrap_or(0)),
        }
    }

    /// The strings that may end a whole output.
    pub(super) fn stop_of_whole<'c>(&'c self, choice: &'c Choice<'c>) -> Vec<&'c str> {
        match choice.stop_reason {
            _ if choice.finish_reason != Some("stop") => Vec::new(),
            StopReason::Token(_) => Vec::new(),
            StopReason::Text(text) => non_empty(&[text]),
            StopReason::None => self.stop.clone(),
        }
    }

    /// The strings that may end an output of which this is a part: those of the request, and one that the engine names.
    pub(super) fn stop_of_part<'c>(&'c self, choice: &'c Choice<'c>) -> Vec<&'c str> {
        let mut stop = self.stop.clone();
        if let StopReason::Text(text) = choice.stop_reason
            && !text.is_empty()
            && !stop.contains(&text)
        {
            stop.push(text);
        }
        stop
    }
}

impl<'r> Parsing<'r> {
    fn new(derenderer: &Derenderer, parser: &'r Parser, request: &'r ChatRequest<'r>) -> Result<Self> {
        let messages = conversation::read_messages(request.template.messages, Reading::Chat)?;
        let variables =
            derenderer.templates.variables(&request.template, request.documents, request.reasoning_effort).effective;
        Ok(Self {
            parser,
            request,
            tools: request.tools.as_deref().map(ParseRequest::tools_of).unwrap_or_default(),
            variables,
            history_tool_calls: u32::try_from(conversation::count_tool_calls(&messages)).unwrap_or(u32::MAX),
        })
    }

    pub(super) fn request<'q>(&'q self, prompt_ids: Option<&'q [u32]>, id_seed: &'q [u8]) -> ParseRequest<'q> {
        ParseRequest {
            tools: self.tools.clone(),
            tool_choice: self.request.tool_choice.clone(),
            any_tool: false,
            parallel_tool_calls: self.request.parallel_tool_calls,
            include_reasoning: self.request.include_reasoning,
            chat_template_kwargs: Some(&self.variables),
            history_tool_calls: self.history_tool_calls,
            id_seed,
            prompt_ids,
        }
    }

    /// Add to `hasher` what a parse depends on.
    pub(super) fn hash(&self, hasher: &mut blake3::Hasher) {
        let mut bytes = Vec::new();
        self.request.tools.iter().flatten().for_each(|tool| tool.write(&mut bytes));
        self.request.tool_choice.to_json().write(&mut bytes);
        self.variables.write(&mut bytes);
        bytes.push(u8::from(self.request.include_reasoning));
        bytes.extend(self.request.parallel_tool_calls.map(u8::from));
        hasher.update(&bytes).update(&self.history_tool_calls.to_le_bytes());
    }
}

fn non_empty<'s>(texts: &[&'s str]) -> Vec<&'s str> {
    texts.iter().copied().filter(|text| !text.is_empty()).collect()
}

/// What the ids of a choice's calls are made from: the same for the same choice of the same answer.
pub(super) fn id_seed(request_id: Option<&str>, index: i64, prompt_ids: Option<&[u32]>, output: &[u32]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key("fastrender 2026 seed of tool call ids");
    hasher.update(request_id.unwrap_or_default().as_bytes()).update(&index.to_le_bytes());
    // Without a prompt there is only the output to tell one answer from another of the same name.
    hash_ids(&mut hasher, prompt_ids.unwrap_or(output));
    let mut seed = [0; 16];
    seed.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    seed
}

pub(super) fn hash_ids(hasher: &mut blake3::Hasher, ids: &[u32]) {
    let mut bytes = [0u8; 4096];
    for ids in ids.chunks(bytes.len() / 4) {
        for (place, id) in bytes.chunks_exact_mut(4).zip(ids) {
            place.copy_from_slice(&id.to_le_bytes());
        }
        hasher.update(&bytes[..ids.len() * 4]);
    }
}
