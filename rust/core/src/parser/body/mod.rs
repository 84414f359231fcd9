//! The syntax of calls, one file a kind: each reads its part of the text and reports name and arguments.

mod attributes;
mod harmony;
mod header;
mod literal;
mod object;
mod python;
mod python_literal;
mod tagged;
mod tracker;

pub(super) use harmony::markers as harmony_markers;

use super::format::Body;
use super::machine::{Machine, Step};
use super::scan::{At, Found, Role};
use super::state::{Phase, Tools};
use crate::error::Result;

impl Machine<'_> {
    /// The body is complete: what is expected behind it.
    fn after_body(&self) -> Phase {
        let Some(format) = self.format.filter(|_| self.state.tools == Tools::Native) else { return Phase::Content };
        if !self.state.bare && !format.call.close.is_empty() {
            return Phase::Trailer;
        }
        let object = matches!(&format.body, Body::Json { list: false, .. });
        if object { Phase::AfterBare } else { Phase::Content }
    }

    /// What was read is no call, or not any more: text that was held is content.
    fn fail(&mut self) -> Result<()> {
        if self.state.in_call {
            self.sink.broken();
            self.end_call(true)?;
            self.state.raw.clear();
            self.state.phase = self.after_body();
            return Ok(());
        }
        self.no_call();
        let raw = std::mem::take(&mut self.state.raw);
        self.state.phase = Phase::Content;
        self.content(&raw);
        Ok(())
    }

    /// What a marker opened is no call; a brace or bracket in prose says nothing.
    fn no_call(&mut self) {
        if !self.state.bare {
            self.sink.broken();
        }
    }

    /// The text goes on at `at` otherwise than the body can: with a closer, or it is no call. What is before is dealt with.
    fn unexpected(&mut self, text: &str, at: usize, last: bool) -> Result<Step> {
        let rest = &text.as_bytes()[at..];
        let found = self.grammar.set(self.state.phase).map_or(At::Nothing, |set| set.at(rest, false));
        match found {
            At::Marker(length, role) => {
                self.marker(role, &text[at..at + length])?;
                Ok(Some(at + length))
            }
            // A closer that is cut off is markup.
            At::Unfinished if last => Ok(Some(text.len())),
            At::Unfinished => Ok(Some(at).filter(|at| *at > 0)),
            At::Nothing => {
                self.fail()?;
                Ok(Some(at))
            }
        }
    }

    /// Keep text that may yet turn out to be content; too much of it is.
    fn keep_raw(&mut self, text: &str) -> Result<()> {
        if self.state.in_call {
            return Ok(());
        }
        self.state.raw.push_str(text);
        if self.state.raw.len() > self.limit && !self.state.whole {
            self.fail()?;
        }
        Ok(())
    }

    /// The answer or a closer ends the body here; true if that makes text of it.
    pub(super) fn finish_body(&mut self, cut: bool) -> bool {
        if self.state.in_call {
            return false;
        }
        let raw = std::mem::take(&mut self.state.raw);
        let echo = self.state.phase == Phase::Echo;
        self.state.phase = Phase::Content;
        // The beginning of a call behind its marker is markup.
        let shown = self.state.bare || echo || self.format.is_some_and(|format| format.opener_is_text);
        let text = (!cut || shown) && (echo || !raw.trim().is_empty());
        if text && !cut && !echo {
            self.no_call();
        }
        if text {
            self.content(&raw);
        }
        text
    }

    /// Behind an object that opened by itself: another one, or text.
    pub(super) fn after_bare(&mut self, text: &str) -> usize {
        let separators = match self.format.map(|format| &format.body) {
            Some(Body::Json { separators, .. }) => separators.as_str(),
            _ => "",
        };
        let skipped = text.len() - text.trim_start_matches(|c: char| c.is_whitespace() || separators.contains(c)).len();
        if skipped > 0 {
            return skipped;
        }
        if text.starts_with('{') {
            self.begin_body("{");
            return 1;
        }
        self.state.phase = Phase::Content;
        0
    }

    /// Behind a closed call: what looks like the call written again is dropped if its closer follows.
    pub(super) fn echo(&mut self, text: &str, last: bool) -> Step {
        let Some(set) = self.grammar.set(Phase::Echo) else { return Some(text.len()) };
        let first = |text: &str| text.trim_start().chars().next();
        let suspect = first(&self.state.raw).or_else(|| first(text)).is_none_or(|first| first == '[');
        let closer = matches!(set.at(text.as_bytes(), last), At::Marker(_, Role::CallClose) | At::Unfinished);
        if !suspect && !closer {
            self.finish_body(false);
            return Some(0);
        }
        let end = match set.find(text, last) {
            Found::Marker { start: 0, end, role: Role::CallClose } => {
                self.end_echo();
                return Some(end);
            }
            Found::Marker { start: 0, .. } => {
                self.finish_body(false);
                return Some(0);
            }
            Found::Marker { start, .. } => start,
            Found::Plain(0) => return None,
            Found::Plain(end) => end,
        };
        self.state.raw.push_str(&text[..end]);
        if self.state.raw.len() > self.limit && !self.state.whole {
            self.finish_body(false);
        }
        Some(end)
    }

    /// The closer of what was written again, which is dropped; blanks are no echo.
    pub(super) fn end_echo(&mut self) {
        if !self.state.raw.trim().is_empty() {
            self.state.raw.clear();
        }
        self.finish_body(false);
    }

    /// The whole text is the arguments of one tool.
    pub(super) fn named(&mut self, text: &str) -> Result<Step> {
        if !self.state.in_call {
            if self.state.called || text.trim().is_empty() {
                self.keep_raw(text)?;
                return Ok(Some(text.len()));
            }
            let blank = std::mem::take(&mut self.state.raw);
            self.begin_call(self.named.unwrap_or_default(), None, false);
            self.sink.arguments(&blank)?;
        }
        self.sink.arguments(text)?;
        Ok(Some(text.len()))
    }
}
