//! Whole answers.

use super::Derenderer;
use super::context::{Context, id_seed};
use super::logprobs::{self, Namer};
use super::output::{Object, write_head, write_tool_calls, write_usage};
use super::request::{Choice, Generated, Kind, StopReason, Usage, Whole};
use super::text::{Pieces, Text};
use crate::error::{Error, Result};
use crate::json::Json;
use crate::parser::{Message, Piece};
use crate::protocol::fields::{lax_float, lax_int};

/// Bytes that the choices of an answer may repeat of the prompts.
const MAX_REPEATED_BYTES: usize = 32 << 20;

/// A choice's text, read.
struct Read<'c> {
    message: Message,
    /// Whether the request's choice of a tool, or calls, leave content open.
    parsed: bool,
    stop_reason: StopReason<'c>,
}

impl Derenderer {
    pub(super) fn whole(&self, kind: Kind, whole: &Whole<'_>) -> Result<Vec<u8>> {
        self.check_model(whole.model)?;
        if whole.responses.is_empty() {
            return Err(Error::bad_request("`generate_responses` is empty: give at least one"));
        }
        self.check_bounds(&whole.responses)?;
        whole.prompt_token_ids.iter().flatten().try_for_each(|ids| self.check_prompt(ids))?;
        whole
            .responses
            .iter()
            .flat_map(|response| &response.prompt_token_ids)
            .try_for_each(|ids| self.check_prompt(&ids.ids))?;
        let context = Context::new(self, kind, &whole.asked)?;
        for (i, response) in whole.responses.iter().enumerate() {
            // An output that is empty does not lose its siblings theirs.
            if !response.choices.is_empty() && response.choices.iter().all(|choice| choice.ids().is_empty()) {
                return Err(Error::bad_request(format!("response {i} has no token ids in any choice")));
            }
        }
        match kind {
            Kind::Chat => self.whole_chat(&context, whole),
            Kind::Completion => self.whole_completion(&context, whole),
        }
    }

    fn whole_chat(&self, context: &Context<'_>, whole: &Whole<'_>) -> Result<Vec<u8>> {
        let generated = &whole.responses[0];
        let mut out = Vec::with_capacity(1024);
        let mut object = Object::new(&mut out, self.nulls);
        write_head(&mut object, generated, "chat.completion", self.model_name(whole.model));
        let list = object.object.key("choices");
        list.push(b'[');
        for (i, choice) in generated.choices.iter().enumerate() {
            if i > 0 {
                list.push(b',');
            }
            self.chat_choice(context, whole, choice, list)?;
        }
        list.push(b']');
        object.null("service_tier");
        object.null("system_fingerprint");
        write_usage(object.object.key("usage"), usage(whole), self.nulls);
        object.optional("prompt_logprobs", generated.prompt_logprobs, write_prompt_logprobs);
        object
            .ids("prompt_token_ids", generated.prompt_token_ids.as_ref().filter(|_| context.asked.returns_token_ids()));
        object.null("prompt_text");
        object.map("kv_transfer_params", generated.kv_transfer_params);
        object.null("ec_transfer_params");
        object.map("metrics", generated.metrics);
        object.end();
        Ok(out)
    }

    fn chat_choice(
        &self,
        context: &Context<'_>,
        whole: &Whole<'_>,
        choice: &Choice<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let generated = &whole.responses[0];
        let given = whole.prompt_token_ids.first().and_then(Option::as_deref);
        let own = generated.prompt_token_ids.as_ref().map(|ids| ids.ids.as_slice());
        let read = self.read(context, choice, given.or(own), own.or(given), generated.request_id)?;
        let mut object = Object::new(out, self.nulls);
        object.object.int("index", i128::from(choice.index));
        let mut message = Object::new(object.object.key("message"), self.nulls);
        message.object.str("role", "assistant");
        match read.message.content.as_deref() {
            None if !read.parsed => message.object.str("content", ""),
            said => message.text("content", said),
        }
        message.null("refusal");
        message.null("annotations");
        message.null("audio");
        message.null("function_call");
        if !read.message.tool_calls.is_empty() {
            write_tool_calls(message.object.key("tool_calls"), &read.message.tool_calls);
        }
        message.text("reasoning", read.message.reasoning.as_deref());
        message.end();
        match &choice.logprobs {
            Some(logprobs) if !context.hides_tokens => {
                let mut namer = Namer::new(&self.detokenizer, self.settings.logprob_bytes, &[]);
                logprobs::write_chat(object.object.key("logprobs"), logprobs, &mut namer, context.top_limit)?;
            }
            _ => object.null("logprobs"),
        }
        object.object.str("finish_reason", &read.message.finish_reason);
        object.stop_reason(read.stop_reason);
        object.ids("token_ids", choice.token_ids.as_ref().filter(|_| context.returns_token_ids));
        object.null("routed_experts");
        object.null("weight_versions");
        object.end();
        Ok(())
    }

    fn whole_completion(&self, context: &Context<'_>, whole: &Whole<'_>) -> Result<Vec<u8>> {
        let first = &whole.responses[0];
        let mut out = Vec::with_capacity(1024);
        let mut object = Object::new(&mut out, self.nulls);
        write_head(&mut object, first, "text_completion", self.model_name(whole.model));
        let list = object.object.key("choices");
        list.push(b'[');
        let (mut index, mut repeated) = (0i128, 0);
        for (i, generated) in whole.responses.iter().enumerate() {
            let given = whole.prompt_token_ids.get(i).and_then(Option::as_deref);
            for choice in &generated.choices {
                if index > 0 {
                    list.push(b',');
                }
                repeated += self.completion_choice(context, generated, choice, given, index, list)?;
                index += 1;
                if repeated > MAX_REPEATED_BYTES {
                    return Err(Error::bad_request(format!(
                        "what the choices of this answer repeat of their prompts comes to more than {} MiB",
                        MAX_REPEATED_BYTES >> 20
                    )));
                }
            }
        }
        list.push(b']');
        object.null("service_tier");
        object.null("system_fingerprint");
        write_usage(object.object.key("usage"), usage(whole), self.nulls);
        let same = whole.responses.iter().all(|response| response.kv_transfer_params == first.kv_transfer_params);
        object.map("kv_transfer_params", first.kv_transfer_params.filter(|_| same));
        object.null("ec_transfer_params");
        object.map("metrics", first.metrics.filter(|_| whole.responses.len() == 1));
        object.end();
        Ok(out)
    }

    /// Bytes of the prompt that were repeated.
    fn completion_choice(
        &self,
        context: &Context<'_>,
        generated: &Generated<'_>,
        choice: &Choice<'_>,
        given: Option<&[u32]>,
        index: i128,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let own = generated.prompt_token_ids.as_ref();
        let prompt = given.or(own.map(|ids| ids.ids.as_slice()));
        let read = self.read(context, choice, prompt, prompt, generated.request_id)?;
        let mut object = Object::new(out, self.nulls);
        object.object.int("index", index);
        object.object.str("text", read.message.content.as_deref().unwrap_or_default());
        match &choice.logprobs {
            Some(logprobs) => {
                let mut namer = Namer::new(&self.detokenizer, self.settings.logprob_bytes, &[]);
                logprobs::write_completion(object.object.key("logprobs"), logprobs, &mut namer, context.top_limit, 0)?;
            }
            None => object.null("logprobs"),
        }
        object.text("finish_reason", choice.finish_reason);
        object.stop_reason(read.stop_reason);
        object.ids("token_ids", choice.token_ids.as_ref().filter(|_| context.returns_token_ids));
        let repeated = prompt_bytes(generated, context.returns_token_ids);
        object.optional("prompt_logprobs", generated.prompt_logprobs, write_prompt_logprobs);
        object.ids("prompt_token_ids", own.filter(|_| context.returns_token_ids));
        object.null("routed_experts");
        object.null("weight_versions");
        object.end();
        Ok(repeated)
    }

    /// What a choice says. `seed_ids` are the prompt as decoding begins with it, `prompt_ids` as a parser reads it.
    fn read<'c>(
        &self,
        context: &'c Context<'_>,
        choice: &'c Choice<'c>,
        seed_ids: Option<&[u32]>,
        prompt_ids: Option<&[u32]>,
        request_id: Option<&str>,
    ) -> Result<Read<'c>> {
        let stopped = self.stopped(choice, context.asked);
        let stop = context.stop_of_whole(choice);
        let rules = context.rules(&stop);
        let seed_ids = seed_ids.unwrap_or_default();
        // A string that ends the output goes before a token that does.
        let ended_by = |found: Option<&str>| {
            let found = found.and_then(|found| stop.iter().find(|stop| **stop == found));
            found.map_or(stopped.reason, |stop| StopReason::Text(stop))
        };
        let Some(parsing) = &context.parsing else {
            let mut text = Text::<String>::start(&rules, seed_ids);
            let mut said = text.push(&rules, stopped.ids)?;
            let (rest, found) = text.finish(&rules, choice.finish_reason, choice.stop_reason)?;
            said.push_str(&rest);
            let stop_reason = ended_by(found);
            let finish_reason = choice.finish_reason.unwrap_or("stop").to_owned();
            let message = Message { content: Some(said), finish_reason, ..Message::default() };
            return Ok(Read { message, parsed: false, stop_reason });
        };
        let mut text = Text::<Pieces>::start(&rules, seed_ids);
        let pushed = text.push(&rules, stopped.ids)?;
        let (rest, found) = text.finish(&rules, choice.finish_reason, choice.stop_reason)?;
        let stop_reason = ended_by(found);
        let seed = id_seed(request_id, choice.index, prompt_ids, choice.ids());
        let request = parsing.request(prompt_ids, &seed);
        let pieces = pushed.iter().chain(rest.iter()).map(as_piece);
        let message = parsing.parser.whole(&request, pieces, choice.finish_reason)?;
        Ok(Read { message, parsed: true, stop_reason })
    }
}

pub(super) fn as_piece((text, token): (&str, Option<bool>)) -> Piece<'_> {
    match token {
        None => Piece::Text(text),
        Some(special) => Piece::Token { text, special },
    }
}

fn usage(whole: &Whole<'_>) -> Usage {
    let choices = whole.responses.iter().flat_map(|response| &response.choices);
    let completion = choices.map(|choice| choice.ids().len()).sum::<usize>();
    let prompt = whole.prompt_tokens.iter().fold(0i128, |sum, tokens| sum.saturating_add(*tokens));
    Usage { prompt_tokens: prompt, completion_tokens: completion as i128 }
}

/// About the bytes that a choice repeats of its prompt.
fn prompt_bytes(generated: &Generated<'_>, returns_ids: bool) -> usize {
    let ids = generated.prompt_token_ids.as_ref().filter(|_| returns_ids).map_or(0, |ids| ids.ids.len() * 7);
    let entry = |entry: &Json<'_>| entry.as_object().map_or(4, |map| map.len() * 64);
    ids + generated.prompt_logprobs.unwrap_or_default().iter().map(entry).sum::<usize>()
}

/// As the reference dumps them: by id, with all of the fields that a logprob has.
fn write_prompt_logprobs(out: &mut Vec<u8>, entries: &[Json<'_>]) {
    out.push(b'[');
    for (i, entry) in entries.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        let Some(map) = entry.as_object() else {
            out.extend_from_slice(b"null");
            continue;
        };
        let mut by_id = crate::protocol::sampling::ObjectWriter::new(out);
        for (id, logprob) in map.iter() {
            let field = |key: &str| logprob.as_object().and_then(|map| map.present(key));
            let mut object = crate::protocol::sampling::ObjectWriter::new(by_id.key(id.trim()));
            object.float("logprob", field("logprob").and_then(lax_float).unwrap_or(f64::NAN));
            match field("rank").and_then(lax_int) {
                Some(rank) => object.int("rank", rank),
                None => object.key("rank").extend_from_slice(b"null"),
            }
            match field("decoded_token").and_then(Json::as_str) {
                Some(token) => object.str("decoded_token", token),
                None => object.key("decoded_token").extend_from_slice(b"null"),
            }
            object.end();
        }
        by_id.end();
    }
    out.push(b']');
}
