//! A stream whose state stays here: one request, and the engine's chunks as they come.

use std::sync::Arc;

use self_cell::self_cell;

use super::context::Context;
use super::output::Object;
use super::progress::Progress;
use super::request::{Choice, Chunk, Generated, Ids, Kind, StopReason, Usage};
use super::{Derenderer, chunk};
use crate::error::{Error, Result};
use crate::json::{Json, Map};
use crate::protocol::fields::Fields;
use crate::protocol::parse_body;

type Opening<'a> = Chunk<'a>;

self_cell!(
    /// A body, and what it says.
    struct Body {
        owner: Map<'static>,
        #[covariant]
        dependent: Opening,
    }
);

type Owner = (Arc<Derenderer>, Body);

self_cell!(
    struct Opened {
        owner: Owner,
        #[covariant]
        dependent: Context,
    }
);

/// One streamed answer; its chunks come in order.
pub struct OpenStream {
    opened: Opened,
    kind: Kind,
    /// By index, in the order in which they came.
    choices: Vec<(i64, Progress)>,
    /// Of the prompt, once known.
    prompt: Option<Vec<u32>>,
    request_id: Option<String>,
    usage: Usage,
    /// Whether the last chunk tells a client anything.
    tells: bool,
}

/// A part of an output, as a library's caller has it.
#[derive(Debug, Clone, Copy)]
pub struct Part<'p> {
    pub index: i64,
    pub token_ids: &'p [u32],
    pub finish_reason: Option<&'p str>,
}

impl OpenStream {
    /// `body` is that of a streamed derender request without chunk and state.
    pub fn new(derenderer: &Arc<Derenderer>, kind: Kind, body: &[u8]) -> Result<Self> {
        let (map, _) = parse_body(body)?;
        let map = Json::Object(map).into_owned();
        let Json::Object(map) = map else { return Err(Error::Internal { message: "an object is one".to_owned() }) };
        let body = Body::try_new(map, |map| Chunk::opening(Fields::new(map, "body"), kind, &derenderer.settings))?;
        let opening = body.borrow_dependent();
        derenderer.check_model(opening.model)?;
        let prompt = opening.prompt_token_ids.clone();
        let opened = Opened::try_new((Arc::clone(derenderer), body), |(derenderer, body)| {
            Context::new(derenderer, kind, &body.borrow_dependent().asked)
        })?;
        if let Some(ids) = &prompt {
            derenderer.check_prompt(ids)?;
        } else if opened.borrow_dependent().parsing.is_some() {
            return Err(Error::bad_request("`prompt_token_ids` are needed where tool calls or reasoning are parsed"));
        }
        Ok(Self { opened, kind, choices: Vec::new(), prompt, request_id: None, usage: Usage::default(), tells: false })
    }

    fn derenderer(&self) -> &Derenderer {
        &self.opened.borrow_owner().0
    }

    /// Take a chunk of the engine's in, as JSON; the chunk for the client, as JSON.
    pub fn push_chunk(&mut self, chunk: &[u8]) -> Result<Vec<u8>> {
        let (map, _) = parse_body(chunk)?;
        let value = Json::Object(map);
        let generated = Generated::read_chunk(&value)?;
        self.push(&generated)
    }

    /// Take a part of an output in; the chunk for the client, as JSON.
    pub fn push_part(&mut self, part: Part<'_>) -> Result<Vec<u8>> {
        let raw: Vec<Json<'_>> = part.token_ids.iter().map(|id| Json::Int(i64::from(*id))).collect();
        let choice = Choice {
            index: part.index,
            finish_reason: part.finish_reason,
            stop_reason: StopReason::None,
            token_ids: Some(Ids { ids: part.token_ids.to_vec(), raw: &raw }),
            logprobs: None,
        };
        let generated = Generated { choices: vec![choice], ..Generated::empty() };
        self.push(&generated)
    }

    /// The choices that have begun and not ended are ended for this reason; the chunk for the client, as JSON.
    pub fn finish(&mut self, finish_reason: &str) -> Result<Option<Vec<u8>>> {
        let open: Vec<i64> =
            self.choices.iter().filter(|(_, progress)| !progress.finished).map(|(index, _)| *index).collect();
        if open.is_empty() {
            return Ok(None);
        }
        let choice = |index| Choice {
            index,
            finish_reason: Some(finish_reason),
            stop_reason: StopReason::None,
            token_ids: None,
            logprobs: None,
        };
        let generated = Generated { choices: open.into_iter().map(choice).collect(), ..Generated::empty() };
        self.push(&generated).map(Some)
    }

    fn push(&mut self, generated: &Generated<'_>) -> Result<Vec<u8>> {
        self.derenderer().check_bounds(std::slice::from_ref(generated))?;
        if self.prompt.is_none() {
            self.prompt = generated.prompt_token_ids.as_ref().map(|ids| ids.ids.clone());
        }
        match (&self.request_id, generated.request_id) {
            (None, Some(id)) => self.request_id = Some(id.to_owned()),
            (None, None) => self.request_id = Some(crate::renderer::random_id()),
            _ => {}
        }
        let named = Generated { request_id: self.request_id.as_deref(), ..generated.clone() };
        let context = self.opened.borrow_dependent();
        let (derenderer, body) = self.opened.borrow_owner();
        let opening = body.borrow_dependent();
        let prompt = self.prompt.as_deref();
        let mut out = Vec::with_capacity(512);
        let mut object = Object::new(&mut out, derenderer.nulls);
        chunk::write_chunk_head(&mut object, self.kind, &named, derenderer.model_name(opening.model));
        let list = object.object.key("choices");
        list.push(b'[');
        self.tells = generated.usage.is_some() || generated.metrics.is_some();
        let most = usize::try_from(derenderer.settings.max_n_sequences).unwrap_or(usize::MAX);
        for (i, choice) in generated.choices.iter().enumerate() {
            if i > 0 {
                list.push(b',');
            }
            let place = match self.choices.iter().position(|(index, _)| *index == choice.index) {
                Some(place) => place,
                None if self.choices.len() >= most => {
                    return Err(super::bounds::too_many("choices of a stream", self.choices.len() + 1, most));
                }
                None => {
                    let fresh = Progress::start(context, prompt, named.request_id, choice.index);
                    self.choices.push((choice.index, fresh.without_window()));
                    self.choices.len() - 1
                }
            };
            let progress = &mut self.choices[place].1;
            derenderer.check_seen(prompt, progress, choice)?;
            if progress.finished && !choice.ids().is_empty() {
                return Err(Error::bad_request(format!("choice {} has ended already", choice.index)));
            }
            self.tells |= derenderer.stream_choice(context, self.kind, &named, choice, prompt, progress, list)?;
            self.usage.completion_tokens += choice.ids().len() as i128;
        }
        list.push(b']');
        self.usage.prompt_tokens = opening.prompt_tokens.unwrap_or_else(|| prompt.map_or(0, |ids| ids.len() as i128));
        let usage = generated
            .usage
            .map(|usage| Usage { prompt_tokens: opening.prompt_tokens.unwrap_or(usage.prompt_tokens), ..usage });
        chunk::write_chunk_tail(&mut object, self.kind, &named, usage, context, derenderer.nulls);
        object.end();
        Ok(out)
    }

    /// The last chunk of a stream that tells its usage: the tokens counted here.
    pub fn usage_chunk(&self) -> Vec<u8> {
        let (derenderer, body) = self.opened.borrow_owner();
        let generated = Generated { request_id: self.request_id.as_deref(), ..Generated::empty() };
        let mut out = Vec::with_capacity(256);
        let mut object = Object::new(&mut out, derenderer.nulls);
        let model = derenderer.model_name(body.borrow_dependent().model);
        chunk::write_chunk_head(&mut object, self.kind, &generated, model);
        object.object.key("choices").extend_from_slice(b"[]");
        let context = self.opened.borrow_dependent();
        chunk::write_chunk_tail(&mut object, self.kind, &generated, Some(self.usage), context, derenderer.nulls);
        object.end();
        out
    }

    /// Whether the last chunk tells a client anything: text may be held back until more of it is known.
    pub fn tells(&self) -> bool {
        self.tells
    }

    /// The choices that have met a stop string and not ended: their engine does not know such strings.
    pub fn stopped(&self) -> Vec<i64> {
        self.choices.iter().filter(|(_, progress)| progress.holds_stop()).map(|(index, _)| *index).collect()
    }

    /// Whether the request wants its usage told in the end.
    pub fn includes_usage(&self) -> bool {
        self.opened.borrow_dependent().asked.includes_usage()
    }
}
