//! From the machine's reports to deltas, each of which only adds to what the client has.

use super::format::ToolFormat;
use super::ids::{self, Style};
use super::request::{CallDelta, Deltas, ParseRequest};
use super::schema::{finite_json, only_string, typed, typed_text};
use super::sink::{Kind, MAX_KEYS, Sink};
use super::state::{OpenValue, StreamState};
use super::unescape::unescaped;
use crate::error::{Error, Result};
use crate::json::{Json, python_dumps_unicode, write_str};

/// Blank text that is held until it is known to matter.
const MAX_BLANK_BYTES: usize = 4096;
/// Reasoning that is kept lest the answer have no content.
pub(crate) const MAX_KEPT_REASONING: usize = 1 << 20;

/// What holds for every answer to one request.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Rules<'a> {
    pub(crate) request: &'a ParseRequest<'a>,
    pub(crate) format: Option<&'a ToolFormat>,
    /// Calls are passed on.
    pub(crate) keeps_calls: bool,
    /// `tool_choice: "none"`: calls are taken out of the text as if they had not been there.
    pub(crate) ignores_calls: bool,
    pub(crate) id_style: Style,
    /// Trailing blanks of reasoning are dropped.
    pub(crate) trims_reasoning: bool,
    /// Reasoning becomes the content of an answer without any.
    pub(crate) reasoning_may_be_content: bool,
    pub(crate) value_limit: usize,
}

impl<'a> Rules<'a> {
    /// The call of this name is none that the request could have meant.
    pub(crate) fn is_unknown(&self, name: &str) -> bool {
        let only_known = self.format.is_some_and(|format| format.known_tools_only);
        only_known && !self.request.tools.is_empty() && self.request.tool(name).is_none()
    }

    pub(crate) fn schema(&self, name: &str, key: &str) -> Option<&'a Json<'a>> {
        self.request.properties(name)?.get(key).filter(|schema| schema.as_object().is_some())
    }

    /// An argument of this name may hold all the others.
    pub(crate) fn may_wrap(&self, name: &str, key: &str) -> bool {
        use super::format::{Body, Values};
        let attributed = |body: &Body| matches!(body, Body::Tagged { values: Values::Attributed, .. });
        ["arguments", "input"].contains(&key)
            && self.format.is_some_and(|format| attributed(&format.body))
            && self.request.properties(name).is_some_and(|properties| !properties.contains_key(key))
    }

    /// The arguments that `value` holds, if it is an object of nothing but the tool's arguments.
    pub(crate) fn unwrapped(&self, name: &str, value: &Json<'static>) -> Option<Json<'static>> {
        let properties = self.request.properties(name)?;
        let inner = match value {
            Json::Str(text) => Json::parse(text).ok()?.into_owned(),
            other => other.clone(),
        };
        let known = inner.as_object()?.keys().all(|key| properties.contains_key(key));
        known.then_some(inner)
    }

    /// The value that a parameter's text stands for.
    pub(crate) fn value(&self, name: &str, key: &str, kind: Kind, text: &str) -> Json<'static> {
        let schema = self.schema(name, key);
        match kind {
            Kind::Text if schema.is_some() => typed_text(text, schema),
            Kind::Text | Kind::ExactText => text.to_owned().into(),
            Kind::Json | Kind::ExactJson => {
                let parsed = if kind == Kind::ExactJson {
                    Json::parse(text).ok().map(Json::into_owned)
                } else {
                    finite_json(text)
                };
                let value = parsed.unwrap_or_else(|| text.to_owned().into());
                if kind == Kind::Json && schema.is_some() { typed(value, schema, 0) } else { value }
            }
        }
    }
}

pub(crate) struct Stream<'a> {
    pub(crate) state: &'a mut StreamState,
    pub(crate) rules: Rules<'a>,
    pub(crate) deltas: &'a mut Deltas,
}

impl Stream<'_> {
    fn send(&mut self, text: &str) {
        let index = self.state.calls.saturating_sub(1);
        match self.deltas.calls.last_mut() {
            Some(delta) if delta.index == index => delta.arguments.get_or_insert_default().push_str(text),
            _ => {
                let arguments = Some(text.to_owned());
                self.deltas.calls.push(CallDelta { index, id: None, name: None, arguments });
            }
        }
    }

    fn send_key(&mut self, key: &str) {
        let mut text = if self.state.keys.is_empty() { b"{".to_vec() } else { b", ".to_vec() };
        write_str(&mut text, key);
        text.extend_from_slice(b": ");
        self.state.keys.push(key.to_owned());
        self.send(&String::from_utf8_lossy(&text));
    }

    fn hold(&mut self, text: &str) -> Result<()> {
        if self.state.value.len() + text.len() > self.rules.value_limit {
            return Err(too_long(self.rules.value_limit));
        }
        self.state.value.push_str(text);
        Ok(())
    }

    /// What was held as the possible wrapper of all arguments is one like any other.
    fn send_wrapper(&mut self) {
        let Some((key, value)) = self.state.wrapper.take() else { return };
        self.send_key(&key);
        self.send(&value);
    }

    /// The end of the answer: blank text that nothing followed.
    pub(crate) fn finish(&mut self, in_reasoning: bool) {
        if !self.state.opened {
            let blank = std::mem::take(&mut self.state.blank);
            self.deltas.content.push_str(&blank);
        }
        if in_reasoning && self.state.reasoning.len() < MAX_KEPT_REASONING {
            let reasoning = std::mem::take(&mut self.state.reasoning);
            self.deltas.content.push_str(&reasoning);
        }
    }
}

impl Sink for Stream<'_> {
    fn reasoning(&mut self, text: &str) {
        let shown = if self.rules.trims_reasoning {
            let held = &mut self.state.reasoning_blank;
            held.push_str(text);
            let end = held.trim_end().len();
            // Of blanks without end only the last are held.
            let excess = held.len().saturating_sub(MAX_BLANK_BYTES);
            let cut = (end.max(excess)..=held.len()).find(|cut| held.is_char_boundary(*cut)).unwrap_or(held.len());
            let rest = held.split_off(cut);
            std::mem::replace(held, rest)
        } else {
            text.to_owned()
        };
        if self.rules.reasoning_may_be_content {
            let room = MAX_KEPT_REASONING - self.state.reasoning.len().min(MAX_KEPT_REASONING);
            let end = (0..=room.min(shown.len())).rev().find(|end| shown.is_char_boundary(*end)).unwrap_or(0);
            self.state.reasoning.push_str(&shown[..end]);
        }
        if self.rules.request.include_reasoning {
            self.deltas.reasoning.push_str(&shown);
        }
    }

    fn reasoning_end(&mut self) {
        self.state.reasoning_blank.clear();
        self.state.reasoning.clear();
    }

    fn content(&mut self, text: &str) {
        let holds = self.rules.format.is_some_and(|format| format.content.drop_blank);
        if !holds || self.state.begun {
            self.deltas.content.push_str(text);
            return;
        }
        self.state.blank.push_str(text);
        if !self.state.blank.trim().is_empty() || self.state.blank.len() > MAX_BLANK_BYTES {
            self.state.begun = true;
            let text = std::mem::take(&mut self.state.blank);
            self.deltas.content.push_str(&text);
        }
    }

    fn raw(&mut self, _text: &str) {}

    fn opened(&mut self) {
        if self.rules.ignores_calls {
            return;
        }
        self.state.opened = true;
        self.state.blank.clear();
    }

    fn message(&mut self) {}

    fn call(&mut self, name: &str, id: Option<&str>, by_key: bool) {
        let index = self.state.calls;
        self.state.calls = index.saturating_add(1);
        self.state.keys.clear();
        self.state.wrapper = None;
        self.state.open = OpenValue::None;
        self.state.value.clear();
        self.state.by_key = by_key;
        self.state.dropped = true;
        if self.rules.ignores_calls || name.is_empty() || self.rules.is_unknown(name) {
            return;
        }
        let number = self.rules.request.history_tool_calls.saturating_add(self.state.ids);
        self.state.ids = self.state.ids.saturating_add(1);
        let single = self.rules.request.parallel_tool_calls == Some(false);
        if !self.rules.keeps_calls || (single && index > 0) {
            return;
        }
        self.state.dropped = false;
        self.state.sent = true;
        name.clone_into(&mut self.state.name);
        let made = || ids::make(self.rules.id_style, name, index, number, self.rules.request.id_seed);
        let id = Some(id.map_or_else(made, str::to_owned));
        self.deltas.calls.push(CallDelta { index, id, name: Some(name.to_owned()), arguments: None });
    }

    fn arguments(&mut self, text: &str) -> Result<()> {
        if self.state.dropped || text.is_empty() {
            return Ok(());
        }
        if self.rules.format.is_some_and(|format| format.streams_unescaped) {
            let plain = unescaped(&mut self.state.escape, text);
            self.send(&plain);
        } else {
            self.send(text);
        }
        Ok(())
    }

    fn key(&mut self, key: &str, kind: Kind) -> Result<()> {
        if self.state.dropped {
            return Ok(());
        }
        self.send_wrapper();
        if self.state.keys.iter().any(|known| known == key) {
            self.state.open = OpenValue::Duplicate;
            return Ok(());
        }
        let held: usize = self.state.keys.iter().map(String::len).sum();
        if self.state.keys.len() >= MAX_KEYS || held + key.len() > self.rules.value_limit {
            return Err(Error::bad_request("a tool call of the answer has too many arguments"));
        }
        if self.state.keys.is_empty() && self.rules.may_wrap(&self.state.name, key) {
            self.state.wrapper = Some((key.to_owned(), String::new()));
            self.state.open = OpenValue::Wrapper(kind);
            return Ok(());
        }
        self.send_key(key);
        let streams = match kind {
            Kind::ExactText => true,
            // Without a schema every value is a string.
            Kind::Text => match self.rules.request.properties(&self.state.name) {
                Some(properties) => properties.get(key).is_some_and(|schema| only_string(Some(schema))),
                None => true,
            },
            Kind::Json | Kind::ExactJson => false,
        };
        self.state.open = if streams { OpenValue::Text } else { OpenValue::Held(kind) };
        if streams {
            self.send("\"");
        }
        Ok(())
    }

    fn value(&mut self, text: &str) -> Result<()> {
        if self.state.dropped || text.is_empty() {
            return Ok(());
        }
        match self.state.open {
            OpenValue::None | OpenValue::Duplicate => Ok(()),
            OpenValue::Held(_) | OpenValue::Wrapper(_) => self.hold(text),
            OpenValue::Text => {
                let mut escaped = Vec::with_capacity(text.len() + 2);
                write_str(&mut escaped, text);
                self.send(&String::from_utf8_lossy(&escaped[1..escaped.len() - 1]));
                Ok(())
            }
        }
    }

    fn value_end(&mut self) -> Result<()> {
        if self.state.dropped {
            return Ok(());
        }
        let open = std::mem::take(&mut self.state.open);
        let text = std::mem::take(&mut self.state.value);
        match open {
            OpenValue::None | OpenValue::Duplicate => {}
            OpenValue::Text => self.send("\""),
            OpenValue::Held(kind) => {
                let key = self.state.keys.last().cloned().unwrap_or_default();
                let value = self.rules.value(&self.state.name, &key, kind, &text);
                self.send(&python_dumps_unicode(&value));
            }
            OpenValue::Wrapper(kind) => {
                if let Some((key, held)) = &mut self.state.wrapper {
                    *held = python_dumps_unicode(&self.rules.value(&self.state.name, key, kind, &text));
                }
            }
        }
        Ok(())
    }

    fn broken(&mut self) {}

    fn call_end(&mut self, cut: bool) -> Result<()> {
        let escape = std::mem::take(&mut self.state.escape);
        if !escape.is_empty() && !self.state.dropped {
            self.send(&escape);
        }
        if self.state.dropped || !self.state.by_key {
            self.state.dropped = true;
            return Ok(());
        }
        if self.state.open != OpenValue::None && !cut {
            self.value_end()?;
        }
        if self.state.open == OpenValue::None {
            let held = self.state.wrapper.as_ref().and_then(|(_, value)| Json::parse(value).ok());
            let inner = held.and_then(|held| self.rules.unwrapped(&self.state.name, &held.into_owned()));
            if let Some(inner) = inner {
                self.state.wrapper = None;
                self.send(&python_dumps_unicode(&inner));
            } else {
                self.send_wrapper();
                let text = if self.state.keys.is_empty() { "{}" } else { "}" };
                self.send(text);
            }
        }
        self.state.dropped = true;
        Ok(())
    }
}

pub(crate) fn too_long(limit: usize) -> Error {
    Error::bad_request(format!("an unfinished argument of a tool call is longer than {limit} bytes"))
}
