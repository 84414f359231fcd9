//! Calls whose arguments are keys and values in tags.

use super::attributes;
use crate::error::Result;
use crate::parser::format::{Body, Values};
use crate::parser::machine::Machine;
use crate::parser::scan::Role;
use crate::parser::sink::Kind;
use crate::parser::state::{Phase, ValueState};

impl Machine<'_> {
    pub(in crate::parser) fn begin_value(&mut self) -> Result<()> {
        let (key, kind) = self.key_and_kind();
        self.state.value = ValueState { broken: key.is_none(), ..ValueState::default() };
        self.state.text.clear();
        self.state.phase = Phase::Value;
        if let Some(key) = key {
            self.sink.key(&key, kind)?;
        }
        Ok(())
    }

    /// The key as its tag spells it; none if it is broken.
    fn key_and_kind(&self) -> (Option<String>, Kind) {
        let text = self.state.text.trim();
        let attributed =
            matches!(self.format.map(|format| &format.body), Some(Body::Tagged { values: Values::Attributed, .. }));
        if attributed {
            let string = attributes::value(text, "string");
            let kind = if string == Some("true") { Kind::Text } else { Kind::Json };
            return (attributes::value(text, "name").filter(|key| !key.is_empty()).map(str::to_owned), kind);
        }
        (Some(attributes::unquoted(text).to_owned()).filter(|key| !key.is_empty()), Kind::Text)
    }

    pub(in crate::parser) fn value_text(&mut self, text: &str) -> Result<()> {
        if self.state.value.broken || text.is_empty() {
            return Ok(());
        }
        let one_newline =
            matches!(self.format.map(|format| &format.body), Some(Body::Tagged { values: Values::OneNewline, .. }));
        if !one_newline {
            return self.sink.value(text);
        }
        let mut text = text;
        if !std::mem::replace(&mut self.state.value.begun, true) {
            text = text.strip_prefix('\n').unwrap_or(text);
        }
        if !text.is_empty() && std::mem::take(&mut self.state.value.newline) {
            self.sink.value("\n")?;
        }
        if let Some(shorter) = text.strip_suffix('\n') {
            self.state.value.newline = true;
            text = shorter;
        }
        self.sink.value(text)
    }

    pub(in crate::parser) fn key_marker(&mut self, role: Role, text: &str) -> Result<()> {
        if role != Role::KeyEnd {
            // The tag never ended: the parameter is broken.
            self.state.phase = Phase::Between;
            return self.between_marker(role, text);
        }
        match self.format.map(|format| &format.body) {
            Some(Body::Tagged { value_open, .. }) if !value_open.is_empty() => {
                self.state.phase = Phase::ValueOpen;
                Ok(())
            }
            _ => self.begin_value(),
        }
    }

    /// A marker in a call, outside of its values.
    pub(in crate::parser) fn between_marker(&mut self, role: Role, text: &str) -> Result<()> {
        match role {
            Role::KeyOpen => {
                self.state.text.clear();
                self.state.phase = Phase::Key;
                Ok(())
            }
            Role::CallOpen | Role::CallClose | Role::SectionOpen | Role::SectionClose => {
                self.end_call(false)?;
                self.call_marker(role, text);
                Ok(())
            }
            _ => {
                self.state.phase = if self.state.in_call { Phase::Between } else { self.state.phase };
                Ok(())
            }
        }
    }
}
