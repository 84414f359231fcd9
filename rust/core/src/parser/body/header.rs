//! Calls with a header: the name, a marker, the arguments as JSON. And the names of tagged calls.

use crate::error::Result;
use crate::parser::format::Body;
use crate::parser::machine::{Machine, Step};
use crate::parser::scan::{At, Found, Role};
use crate::parser::state::{Phase, Tracker, ValueShape};

impl Machine<'_> {
    /// A marker behind or in a name.
    pub(in crate::parser) fn name_marker(&mut self, role: Role, text: &str) -> Result<()> {
        match role {
            Role::BeforeName => self.state.text.clear(),
            Role::NameEnd | Role::KeyOpen => {
                let tagged = self.begin_named_call();
                if role == Role::KeyOpen {
                    return self.between_marker(role, text);
                }
                self.state.phase = if tagged { Phase::Between } else { Phase::Arguments };
                if text == "{" && !tagged {
                    self.header_arguments(text, false)?;
                }
            }
            _ => {
                // No arguments, or a name without its end: what there is of it is the name.
                if !self.state.text.trim().is_empty() {
                    let tagged = self.begin_named_call();
                    if !tagged {
                        self.sink.arguments("{}")?;
                    }
                    self.end_call(false)?;
                }
                self.state.raw.clear();
                self.call_marker(role, text);
            }
        }
        Ok(())
    }

    /// The answer ends in a name, which counts only if there is proof that it is whole.
    pub(in crate::parser) fn finish_in_name(&mut self) {
        let Some(format) = self.format else { return };
        let header_id = matches!(format.body, Body::Header { id_in_header: true, .. });
        if header_id && header(&self.state.text).is_none() {
            return;
        }
        if header_id || format.known_tools_only {
            self.begin_named_call();
        }
    }

    /// Begin the call whose name was read; its arguments come by key.
    fn begin_named_call(&mut self) -> bool {
        let text = std::mem::take(&mut self.state.text);
        self.state.tracker = Tracker::default();
        match self.format.map(|format| &format.body) {
            Some(Body::Header { id_in_header: true, .. }) => {
                let (id, name) = header(&text).unwrap_or_default();
                self.begin_call(name, Some(id), false);
                false
            }
            Some(Body::Header { .. }) => {
                self.begin_call(text.trim(), None, false);
                false
            }
            _ => {
                self.begin_call(text.trim(), None, true);
                true
            }
        }
    }

    /// The arguments of a call with a header, up to its closer.
    pub(in crate::parser) fn header_arguments(&mut self, text: &str, last: bool) -> Result<Step> {
        let Some(set) = self.grammar.set(Phase::Arguments) else { return Ok(Some(text.len())) };
        if self.state.tracker.kind == ValueShape::NotBegun {
            let blank = text.len() - text.trim_start().len();
            if blank > 0 {
                return Ok(Some(blank));
            }
        }
        let bytes = text.as_bytes();
        let mut at = 0;
        let mut end = None;
        while at < bytes.len() && !self.state.tracker.is_done() {
            if !self.state.tracker.string && set.is_first(bytes[at]) {
                match set.at(&bytes[at..], last) {
                    At::Marker(length, role) => {
                        end = Some((length, role));
                        break;
                    }
                    At::Unfinished => {
                        self.sink.arguments(&text[..at])?;
                        return Ok(if at > 0 { Some(at) } else { None });
                    }
                    At::Nothing => {}
                }
            }
            // Only brackets open a value whose end shows; anything else goes on to the marker.
            if self.state.tracker.kind == ValueShape::NotBegun && !matches!(bytes[at], b'{' | b'[') {
                self.state.tracker.kind = ValueShape::Scalar;
            }
            at += self.state.tracker.step(&bytes[at..]);
        }
        self.sink.arguments(&text[..at])?;
        if let Some((length, role)) = end {
            if self.state.tracker.kind == ValueShape::NotBegun {
                self.sink.arguments("{}")?;
            }
            self.end_call(false)?;
            let marker = &text[at..at + length];
            self.call_marker(role, marker);
            return Ok(Some(at + length));
        }
        if self.state.tracker.is_done() && self.format.is_some_and(|format| format.call.close.is_empty()) {
            // Nothing closes it: what follows is text, or a marker of it.
            self.end_call(false)?;
            self.state.phase = Phase::Content;
            return Ok(Some(at));
        }
        if at > 0 {
            return Ok(Some(at));
        }
        self.behind_arguments(text, last)
    }

    /// Behind complete arguments: nothing but the closer counts, where there is one.
    fn behind_arguments(&mut self, text: &str, last: bool) -> Result<Step> {
        let Some(set) = self.grammar.set(Phase::Arguments) else { return Ok(Some(text.len())) };
        match set.find(text, last) {
            Found::Marker { start: 0, end, role } => {
                self.end_call(false)?;
                self.call_marker(role, &text[..end]);
                Ok(Some(end))
            }
            Found::Marker { start, .. } => Ok(Some(start)),
            Found::Plain(0) => Ok(None),
            Found::Plain(end) => Ok(Some(end)),
        }
    }
}

/// Id and name in a header `functions.NAME:INDEX`.
fn header(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let digits = |at: usize| text[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
    let colons = text.bytes().enumerate().filter(|(_, byte)| *byte == b':').map(|(at, _)| at);
    let colon = colons.rev().find(|at| *at > 0 && digits(*at) > 0)?;
    let id = &text[..colon + 1 + digits(colon)];
    let name = id.split(':').next().unwrap_or_default();
    Some((id, name.strip_prefix("functions.").unwrap_or(name)))
}

#[cfg(test)]
mod tests {
    use super::header;

    #[test]
    fn headers_are_ids() {
        assert_eq!(header(" functions.get_weather:0\n"), Some(("functions.get_weather:0", "get_weather")));
        assert_eq!(header("now:12"), Some(("now:12", "now")));
        assert_eq!(header("functions.now"), None);
        assert_eq!(header(":1"), None);
    }
}
