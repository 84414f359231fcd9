//! One chunk of a stream whose state the client carries.

use std::borrow::Cow;

use super::Derenderer;
use super::context::Context;
use super::output::{Object, write_call_deltas, write_head, write_usage};
use super::progress::{Decoding, Progress, Step};
use super::request::{Choice, Chunk, Generated, Ids, Kind, Usage};
use super::state::{History, Open, StateAnswer, WireState, blob_item, invalid};
use super::{logprobs, saved};
use crate::error::{Error, Result};
use crate::spec::DerenderState;

/// The choices that a state is of.
pub(super) enum States {
    /// One, whose index may not be known.
    One(Option<i64>, Box<Progress>),
    Many(Vec<(i64, Progress)>),
}

impl Derenderer {
    pub(super) fn chunk(&self, kind: Kind, chunk: &Chunk<'_>) -> Result<Vec<u8>> {
        self.check_model(chunk.model)?;
        let context = Context::new(self, kind, &chunk.asked)?;
        let generated = &chunk.generated;
        let prompt = chunk.prompt_token_ids.as_deref();
        if context.parsing.is_some() && prompt.is_none() {
            return Err(Error::bad_request(
                "`prompt_token_ids` are needed where tool calls or reasoning are parsed: without them nobody knows \
                 whether the prompt left reasoning open",
            ));
        }
        self.check_bounds(std::slice::from_ref(generated))?;
        let prompt = prompt.or(generated.prompt_token_ids.as_ref().map(|ids| ids.ids.as_slice()));
        let prior = chunk.state.as_ref().map_or(0, |state| state.output.ids.len());
        self.check_length(prompt, prior, generated)?;
        let fresh = |index: i64| Progress::start(&context, prompt, generated.request_id, index);
        let mut states = saved::load(&context, chunk, prompt)?;
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(b"{\"chunk\":");
        let mut object = Object::new(&mut out, self.nulls);
        write_chunk_head(&mut object, kind, generated, self.model_name(chunk.model));
        let list = object.object.key("choices");
        list.push(b'[');
        for (i, choice) in generated.choices.iter().enumerate() {
            if i > 0 {
                list.push(b',');
            }
            let progress = states.of(choice.index, generated.choices.len(), &fresh);
            self.check_seen(prompt, progress, choice)?;
            self.stream_choice(&context, kind, generated, choice, prompt, progress, list)?;
        }
        list.push(b']');
        let usage = generated
            .usage
            .map(|usage| Usage { prompt_tokens: chunk.prompt_tokens.unwrap_or(usage.prompt_tokens), ..usage });
        write_chunk_tail(&mut object, kind, generated, usage, &context, self.nulls);
        object.end();
        out.extend_from_slice(b",\"stream_state\":");
        self.write_states(&context, chunk, prompt, states, &mut out)?;
        out.push(b'}');
        Ok(out)
    }

    /// Neither an engine nor a client can have more than the model's context of tokens.
    fn check_length(&self, prompt: Option<&[u32]>, prior: usize, generated: &Generated<'_>) -> Result<()> {
        let prompt = prompt.map_or(0, <[u32]>::len);
        // Choices run side by side.
        let new = generated.choices.iter().map(|choice| choice.ids().len()).max().unwrap_or(0);
        let most = self.model.max_model_len as usize;
        if prompt.saturating_add(prior).saturating_add(new) <= most {
            return Ok(());
        }
        Err(Error::bad_request(format!(
            "{prompt} tokens of prompt, {prior} of output and {new} new ones are more than the model's context of {most}"
        )))
    }

    pub(super) fn check_seen(&self, prompt: Option<&[u32]>, progress: &Progress, choice: &Choice<'_>) -> Result<()> {
        let (prompt, new) = (prompt.map_or(0, <[u32]>::len), choice.ids().len());
        let most = u64::from(self.model.max_model_len);
        if progress.seen.saturating_add((prompt + new) as u64) <= most {
            return Ok(());
        }
        Err(Error::bad_request(format!(
            "choice {} has {} tokens before these {new}, more than the model's context of {most} with its prompt",
            choice.index, progress.seen
        )))
    }

    /// Append the choice of an OpenAI chunk; whether it tells a client anything.
    #[expect(clippy::too_many_arguments, reason = "a choice, what it belongs to, and where it goes")]
    pub(super) fn stream_choice(
        &self,
        context: &Context<'_>,
        kind: Kind,
        generated: &Generated<'_>,
        choice: &Choice<'_>,
        prompt: Option<&[u32]>,
        progress: &mut Progress,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let mut namer = logprobs::Namer::new(&self.detokenizer, self.settings.logprob_bytes, &progress.open.context);
        let step = progress.step(context, choice, prompt, generated.request_id)?;
        let mut object = Object::new(out, self.nulls);
        object.object.int("index", i128::from(choice.index));
        let begins = kind == Kind::Chat && !progress.open.role_sent;
        match kind {
            Kind::Chat => {
                self.write_delta(&step, !progress.open.role_sent, object.object.key("delta"));
                progress.open.role_sent = true;
                match &choice.logprobs {
                    Some(found) if !context.hides_tokens => {
                        logprobs::write_chat(object.object.key("logprobs"), found, &mut namer, context.top_limit)?;
                    }
                    _ => object.null("logprobs"),
                }
                object.text("finish_reason", step.finish_reason.as_deref());
                object.stop_reason(step.stop_reason);
            }
            Kind::Completion => {
                object.object.str("text", &step.deltas.content);
                let begun = progress.open.text_offset;
                match &choice.logprobs {
                    Some(found) => {
                        let out = object.object.key("logprobs");
                        let end = logprobs::write_completion(out, found, &mut namer, context.top_limit, begun)?;
                        progress.open.text_offset = end;
                    }
                    None => object.null("logprobs"),
                }
                if choice.logprobs.as_ref().is_none_or(|found| found.content.as_ref().is_none_or(Vec::is_empty)) {
                    progress.open.text_offset = begun.saturating_add(step.deltas.content.chars().count() as u64);
                }
                object.text("finish_reason", step.finish_reason.as_deref());
                object.stop_reason(step.stop_reason);
                object
                    .ids("prompt_token_ids", generated.prompt_token_ids.as_ref().filter(|_| context.returns_token_ids));
            }
        }
        object.ids("token_ids", choice.token_ids.as_ref().filter(|_| context.returns_token_ids));
        object.null("weight_versions");
        object.end();
        progress.open.sampled(choice.ids());
        let tokens_told = !choice.ids().is_empty()
            && (context.returns_token_ids || (choice.logprobs.is_some() && !context.hides_tokens));
        Ok(begins || tokens_told || step.finish_reason.is_some() || !step.deltas.is_empty())
    }

    fn write_delta(&self, step: &Step<'_>, role: bool, out: &mut Vec<u8>) {
        let full = |text: &'_ str| !text.is_empty();
        let mut delta = Object::new(out, self.nulls);
        delta.text("role", role.then_some("assistant"));
        delta.text("content", Some(step.deltas.content.as_str()).filter(|text| full(text)));
        delta.text("reasoning", Some(step.deltas.reasoning.as_str()).filter(|text| full(text)));
        if !step.deltas.calls.is_empty() {
            write_call_deltas(delta.object.key("tool_calls"), &step.deltas.calls, self.nulls);
        }
        delta.end();
    }

    fn write_states(
        &self,
        context: &Context<'_>,
        chunk: &Chunk<'_>,
        prompt: Option<&[u32]>,
        states: States,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if let (Some(state), true) = (&chunk.state, chunk.generated.choices.is_empty()) {
            // Nothing happened.
            state.write(out);
            return Ok(());
        }
        let (index, progress) = match states {
            States::Many(choices) => {
                let open =
                    Open { role_sent: choices.iter().any(|(_, progress)| progress.open.role_sent), ..Open::default() };
                let blob = blob_item(saved::save(context, prompt, &choices, &[])?);
                StateAnswer {
                    prev_tokens: vec![blob.into()],
                    prefix_offset: 0,
                    read_offset: 0,
                    open: &open,
                    history: None,
                    choice_index: None,
                }
                .write(out);
                return Ok(());
            }
            States::One(index, progress) => {
                (index.or(chunk.generated.choices.first().map(|choice| choice.index)), progress)
            }
        };
        let nothing = Ids::default();
        let before = chunk.state.as_ref();
        let new = chunk.generated.choices.first().and_then(|choice| choice.token_ids.as_ref());
        let history = |new| {
            let output = before.map_or(&nothing, |state| &state.output);
            Some(History { output, chunk_lens: before.map_or(&[], |state| state.chunk_lens), new })
        };
        let mut answer = StateAnswer {
            prev_tokens: Vec::new(),
            prefix_offset: 0,
            read_offset: 0,
            open: &progress.open,
            history: None,
            choice_index: index.filter(|index| *index != 0),
        };
        let mode = self.settings.derender_state;
        let blob = |output: &[u32]| {
            let choices = [(index.unwrap_or(0), (*progress).clone())];
            saved::save(context, prompt, &choices, output).map(|bytes| Cow::from(blob_item(bytes)))
        };
        match &progress.decoding {
            Decoding::Window(_, window) => {
                answer.prev_tokens = window.pieces().map(Cow::from).collect();
                answer.read_offset = window.read_offset();
                answer.history = history(None);
            }
            Decoding::Text(_) => answer.prev_tokens = vec![blob(&[])?],
            Decoding::Parsed { .. } if mode == DerenderState::Compact => answer.prev_tokens = vec![blob(&[])?],
            Decoding::Parsed { .. } => {
                // A chunk of a state without its history goes on without.
                let complete = before.is_none_or(|state| {
                    state.output.ids.len() as u64 + new.map_or(0, |ids| ids.ids.len()) as u64 >= progress.seen
                });
                if complete {
                    answer.history = history(new);
                }
                let output: Vec<u32> = if complete {
                    let before = before.map(|state| state.output.ids.as_slice()).unwrap_or_default();
                    [before, new.map(|ids| ids.ids.as_slice()).unwrap_or_default()].concat()
                } else {
                    Vec::new()
                };
                // A chunk without tokens may come once more: what it made of this output is not what goes before it.
                let goes_on = !progress.finished && new.is_some_and(|ids| !ids.ids.is_empty());
                let carried = mode != DerenderState::Cache && !before.is_some_and(WireState::lost_its_blob);
                if complete && goes_on && !carried {
                    self.parses.put(saved::cache_key(context, prompt, &output), (*progress).clone());
                }
                if mode != DerenderState::Cache || !complete {
                    answer.prev_tokens = vec![blob(&output)?];
                }
            }
        }
        answer.write(out);
        Ok(())
    }
}

impl States {
    /// The progress of a choice, of `count` in a chunk.
    fn of(&mut self, index: i64, count: usize, fresh: &dyn Fn(i64) -> Progress) -> &mut Progress {
        if let States::One(known, progress) = self
            && (count > 1 || known.is_some_and(|known| known != index))
        {
            // A state that says nothing is that of the first choice.
            let progress = std::mem::replace(&mut **progress, Progress::nothing());
            *self = States::Many(vec![(known.unwrap_or(0), progress)]);
        }
        match self {
            States::One(known, progress) => {
                *known = Some(index);
                progress
            }
            States::Many(choices) => {
                let known = choices.iter().position(|(known, _)| *known == index);
                let place = known.unwrap_or_else(|| {
                    choices.push((index, fresh(index)));
                    choices.len() - 1
                });
                &mut choices[place].1
            }
        }
    }
}

/// The head of a chunk.
pub(super) fn write_chunk_head(object: &mut Object<'_>, kind: Kind, generated: &Generated<'_>, model: &str) {
    let name = match kind {
        Kind::Chat => "chat.completion.chunk",
        Kind::Completion => "text_completion",
    };
    write_head(object, generated, name, model);
}

/// What follows a chunk's choices.
pub(super) fn write_chunk_tail(
    object: &mut Object<'_>,
    kind: Kind,
    generated: &Generated<'_>,
    usage: Option<Usage>,
    context: &Context<'_>,
    nulls: crate::protocol::generate::Nulls,
) {
    object.optional("usage", usage, |out, usage| write_usage(out, usage, nulls));
    object.null("system_fingerprint");
    if kind == Kind::Chat {
        let echoed = generated.prompt_token_ids.as_ref().filter(|_| context.asked.returns_token_ids());
        object.ids("prompt_token_ids", echoed);
        object.null("prompt_text");
    }
    object.map("metrics", generated.metrics);
    object.null("kv_transfer_params");
}

/// A state that cannot be gone on with.
pub(super) fn lost() -> Error {
    invalid("the parse was lost: neither `prev_tokens` nor `output_token_ids` have it")
}
