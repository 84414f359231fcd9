//! Writing answers: what whole answers and chunks have in common.

use super::request::{Generated, Ids, StopReason, Usage};
use crate::json::{Map, write_str};
use crate::parser::{CallDelta, ToolCall};
use crate::protocol::generate::Nulls;
use crate::protocol::sampling::ObjectWriter;

/// An object whose nulls are written or left out.
pub(super) struct Object<'o> {
    pub(super) object: ObjectWriter<'o>,
    nulls: Nulls,
}

impl<'o> Object<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, nulls: Nulls) -> Self {
        Self { object: ObjectWriter::new(out), nulls }
    }

    pub(super) fn null(&mut self, key: &str) {
        if self.nulls == Nulls::Write {
            self.object.key(key).extend_from_slice(b"null");
        }
    }

    pub(super) fn optional<T>(&mut self, key: &str, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
        match value {
            Some(value) => write(self.object.key(key), value),
            None => self.null(key),
        }
    }

    pub(super) fn text(&mut self, key: &str, value: Option<&str>) {
        self.optional(key, value, write_str);
    }

    pub(super) fn map(&mut self, key: &str, value: Option<&Map<'_>>) {
        self.optional(key, value, |out, map| map.write(out));
    }

    pub(super) fn ids(&mut self, key: &str, value: Option<&Ids<'_>>) {
        self.optional(key, value, |out, ids| ids.write(out));
    }

    pub(super) fn stop_reason(&mut self, reason: StopReason<'_>) {
        match reason {
            StopReason::None => self.null("stop_reason"),
            StopReason::Token(token) => self.object.int("stop_reason", token),
            StopReason::Text(text) => self.object.str("stop_reason", text),
        }
    }

    pub(super) fn end(self) {
        self.object.end();
    }
}

/// The head that all answers have: `id`, `object`, `created`, `model`.
pub(super) fn write_head(object: &mut Object<'_>, generated: &Generated<'_>, kind: &str, model: &str) {
    match generated.request_id {
        Some(id) => object.object.str("id", id),
        None => object.object.str("id", &crate::renderer::random_id()),
    }
    object.object.str("object", kind);
    object.object.int("created", i128::from(super::now()));
    object.object.str("model", model);
}

pub(super) fn write_usage(out: &mut Vec<u8>, usage: Usage, nulls: Nulls) {
    let mut object = Object::new(out, nulls);
    object.object.int("prompt_tokens", usage.prompt_tokens);
    object.object.int("total_tokens", usage.prompt_tokens.saturating_add(usage.completion_tokens));
    object.object.int("completion_tokens", usage.completion_tokens);
    object.null("prompt_tokens_details");
    object.null("completion_tokens_details");
    object.end();
}

pub(super) fn write_tool_calls(out: &mut Vec<u8>, calls: &[ToolCall]) {
    out.push(b'[');
    for (i, call) in calls.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        let mut object = ObjectWriter::new(out);
        object.str("id", &call.id);
        object.str("type", "function");
        let mut function = ObjectWriter::new(object.key("function"));
        function.str("name", &call.name);
        function.str("arguments", &call.arguments);
        function.end();
        object.end();
    }
    out.push(b']');
}

pub(super) fn write_call_deltas(out: &mut Vec<u8>, calls: &[CallDelta], nulls: Nulls) {
    out.push(b'[');
    for (i, call) in calls.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        let mut object = Object::new(out, nulls);
        object.text("id", call.id.as_deref());
        object.text("type", call.id.as_ref().map(|_| "function"));
        object.object.int("index", i128::from(call.index));
        let mut function = Object::new(object.object.key("function"), nulls);
        function.text("name", call.name.as_deref());
        function.text("arguments", call.arguments.as_deref());
        function.end();
        object.end();
    }
    out.push(b']');
}
