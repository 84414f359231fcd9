//! Calls as JSON objects with a name and arguments, alone or in a list.

use crate::error::Result;
use crate::json::Json;
use crate::parser::format::Body;
use crate::parser::machine::{MAX_NAME_BYTES, Machine, Step};
use crate::parser::state::{Member, ObjectAt, ObjectState, Phase, Tools, Tracker, ValueShape};

const FORCED_ARGUMENTS: [&str; 2] = ["parameters", "arguments"];

impl ObjectState {
    /// The opening brace was read.
    pub(in crate::parser) fn begin(&mut self) {
        *self = ObjectState { at: ObjectAt::BeforeKey, ..ObjectState::default() };
    }

    /// In a key, where no marker counts.
    pub(in crate::parser) fn is_in_text(&self) -> bool {
        self.at == ObjectAt::Key
    }
}

impl Machine<'_> {
    /// Before a list, or between its objects.
    pub(in crate::parser) fn list(&mut self, text: &str, last: bool) -> Result<Step> {
        let blank =
            text.len() - text.trim_start_matches(|c: char| c.is_whitespace() || (c == ',' && self.state.list)).len();
        if blank > 0 {
            if !self.state.called {
                self.keep_raw(&text[..blank])?;
            }
            return Ok(Some(blank));
        }
        match text.as_bytes()[0] {
            b'[' if !self.state.list => {
                self.state.list = true;
                self.keep_raw("[")?;
            }
            // A lone object stands for a list of one.
            b'{' => {
                self.state.object.begin();
                self.state.phase = Phase::Object;
                self.keep_raw("{")?;
            }
            b']' if self.state.list && self.state.called => {
                self.state.raw.clear();
                self.state.phase = self.after_body();
            }
            _ => return self.unexpected(text, 0, last),
        }
        Ok(Some(1))
    }

    /// In an object: from key to value and on.
    pub(in crate::parser) fn object(&mut self, text: &str, last: bool) -> Result<Step> {
        let before = self.state.phase;
        let was_in_call = self.state.in_call;
        let mut at = 0;
        while at < text.len() && self.state.phase == before {
            let Some(done) = self.object_step(&text[at..])? else { return self.unexpected(text, at, last) };
            if self.state.phase == before {
                self.keep_raw(&text[at..at + done])?;
            }
            at += done;
            if self.state.in_call != was_in_call {
                break;
            }
        }
        Ok(Some(at))
    }

    /// One step in an object; none if it goes on otherwise than a call can.
    fn object_step(&mut self, text: &str) -> Result<Step> {
        let byte = text.as_bytes()[0];
        if byte.is_ascii_whitespace()
            && !matches!(self.state.object.at, ObjectAt::Key)
            && !(self.state.object.at == ObjectAt::Value && self.state.tracker.kind != ValueShape::NotBegun)
        {
            return Ok(Some(1));
        }
        match (self.state.object.at, byte) {
            (ObjectAt::Start, b'{') => self.state.object.begin(),
            (ObjectAt::BeforeKey, b',') => {}
            (ObjectAt::BeforeKey, b'"') => {
                self.state.text.clear();
                self.state.object.at = ObjectAt::Key;
            }
            (ObjectAt::BeforeKey | ObjectAt::AfterValue, b'}') => {
                return Ok(if self.close_object()? { Some(1) } else { None });
            }
            (ObjectAt::Key, _) => return Ok(self.object_key(text)),
            (ObjectAt::AfterKey, b':') => {
                self.state.tracker = Tracker::default();
                self.state.text.clear();
                self.state.object.at = ObjectAt::Value;
            }
            (ObjectAt::Value, _) => return self.object_value(text),
            (ObjectAt::AfterValue, b',') => self.state.object.at = ObjectAt::BeforeKey,
            _ => return Ok(None),
        }
        Ok(Some(1))
    }

    fn object_key(&mut self, text: &str) -> Step {
        let end = text.bytes().position(|byte| {
            let escaped = std::mem::take(&mut self.state.object.escape);
            self.state.object.escape = byte == b'\\' && !escaped;
            byte == b'"' && !escaped
        });
        self.state.text.push_str(&text[..end.unwrap_or(text.len())]);
        if self.state.text.len() > MAX_NAME_BYTES {
            return None;
        }
        let Some(end) = end else { return Some(text.len()) };
        let key = std::mem::take(&mut self.state.text);
        let object = &mut self.state.object;
        object.at = ObjectAt::AfterKey;
        let arguments = match (self.state.tools, self.format.map(|format| &format.body)) {
            (Tools::Native, Some(Body::Json { arguments, .. })) => arguments.contains(&key),
            _ => FORCED_ARGUMENTS.contains(&key.as_str()),
        };
        object.others |= !arguments && key != "name";
        object.member = match key.as_str() {
            "name" if object.name.is_none() => Member::Name,
            _ if arguments && !object.arguments_seen => Member::Arguments,
            _ => Member::Other,
        };
        Some(end + 1)
    }

    fn object_value(&mut self, text: &str) -> Result<Step> {
        let first = text.as_bytes()[0];
        if self.state.tracker.kind == ValueShape::NotBegun && matches!(first, b',' | b'}' | b']' | b':') {
            return Ok(None);
        }
        if self.state.tracker.kind == ValueShape::NotBegun {
            self.state.object.string = first == b'"';
        }
        let done = self.state.tracker.advance(text.as_bytes());
        let part = &text[..done];
        match self.state.object.member {
            Member::Other => {}
            Member::Name => {
                self.state.text.push_str(part);
                if self.state.text.len() > MAX_NAME_BYTES {
                    return Ok(None);
                }
            }
            Member::Arguments => {
                self.state.object.arguments_seen = true;
                self.commit()?;
                // Strings may turn out to hold the arguments once more encoded.
                if self.state.in_call && !self.state.object.string {
                    self.sink.arguments(part)?;
                } else {
                    self.check(self.state.object.arguments.len() + part.len())?;
                    self.state.object.arguments.push_str(part);
                }
            }
        }
        if self.state.tracker.is_done() {
            self.end_of_member()?;
        }
        Ok(Some(done))
    }

    fn end_of_member(&mut self) -> Result<()> {
        self.state.object.at = ObjectAt::AfterValue;
        match self.state.object.member {
            Member::Name => {
                let name = std::mem::take(&mut self.state.text);
                if let Ok(Json::Str(name)) = Json::parse(&name)
                    && !name.is_empty()
                {
                    self.state.object.name = Some(name.into_owned());
                }
                self.commit()
            }
            Member::Arguments if self.state.object.string => {
                if self.unwraps_strings
                    && let Some(inner) = inner_json(&self.state.object.arguments)
                {
                    self.state.object.arguments = inner;
                }
                self.send_held_arguments()
            }
            _ => Ok(()),
        }
    }

    /// Begin the call as soon as it is certain that it is one.
    fn commit(&mut self) -> Result<()> {
        let required = self.arguments_required();
        if self.state.in_call || (required && !self.state.object.arguments_seen) {
            return Ok(());
        }
        let Some(name) = self.state.object.name.clone() else { return Ok(()) };
        self.begin_call(&name, None, false);
        if self.state.object.string && self.state.object.member == Member::Arguments {
            // Not yet complete.
            return Ok(());
        }
        self.send_held_arguments()
    }

    fn arguments_required(&self) -> bool {
        match (self.state.tools, self.format.map(|format| &format.body)) {
            (Tools::Native, Some(Body::Json { arguments_required, .. })) => *arguments_required,
            _ => false,
        }
    }

    fn send_held_arguments(&mut self) -> Result<()> {
        if self.state.in_call {
            let held = std::mem::take(&mut self.state.object.arguments);
            self.sink.arguments(&held)?;
        }
        Ok(())
    }

    /// The arguments of the open call are complete.
    pub(in crate::parser) fn has_arguments(&self) -> bool {
        self.state.phase == Phase::Object
            && self.state.object.arguments_seen
            && matches!(self.state.object.at, ObjectAt::AfterValue | ObjectAt::BeforeKey)
    }

    /// The object is complete; false if it is no call.
    fn close_object(&mut self) -> Result<bool> {
        if !self.state.in_call {
            let Some(name) = self.state.object.name.clone().filter(|_| !self.arguments_required()) else {
                return Ok(false);
            };
            self.begin_call(&name, None, false);
            self.send_held_arguments()?;
        }
        if !self.state.object.arguments_seen {
            if self.state.object.others {
                // What it has instead of arguments would be lost.
                self.sink.broken();
            }
            self.sink.arguments("{}")?;
        }
        self.end_call(false)?;
        self.state.raw.clear();
        self.state.phase = if self.state.list { Phase::List } else { self.after_body() };
        Ok(true)
    }
}

/// The object or list that a JSON string holds.
fn inner_json(text: &str) -> Option<String> {
    let Ok(Json::Str(inner)) = Json::parse(text) else { return None };
    matches!(Json::parse(&inner), Ok(Json::Object(_) | Json::Array(_))).then(|| inner.trim().to_owned())
}
