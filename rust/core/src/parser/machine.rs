//! The machine: text in, reports out, one phase at a time. It looks at each byte once, and holds back no more than what
//! may be the beginning of a marker.

use super::format::{Body, ToolFormat};
use super::grammar::Grammar;
use super::reasoning_format::ReasoningFormat;
use super::request::Piece;
use super::scan::{Found, Role};
use super::sink::Sink;
use super::state::{MachineState, ObjectState, Phase, Tools, Tracker};
use super::stream::too_long;
use crate::error::Result;

/// A tool's or a parameter's name; what is longer is neither.
pub(crate) const MAX_NAME_BYTES: usize = 1024;
/// Steps that consume nothing, one after the other: only a state from outside could need more.
const MAX_IDLE_STEPS: u32 = 64;

pub(crate) struct Machine<'a> {
    pub(crate) state: &'a mut MachineState,
    pub(crate) sink: &'a mut dyn Sink,
    pub(crate) grammar: &'a Grammar,
    pub(crate) format: Option<&'a ToolFormat>,
    pub(crate) reasoning: Option<&'a ReasoningFormat>,
    /// The request forces a call.
    pub(crate) forced: bool,
    /// The tool that the request names.
    pub(crate) named: Option<&'a str>,
    /// What a value that cannot be passed on yet may hold, in bytes.
    pub(crate) limit: usize,
    /// Arguments that are JSON in a string are taken out of it.
    pub(crate) unwraps_strings: bool,
    pub(crate) known: &'a dyn Fn(&str) -> bool,
}

/// How far a step came: bytes that are done with, or that it needs more.
pub(crate) type Step = Option<usize>;

impl Machine<'_> {
    pub(crate) fn push(&mut self, piece: Piece<'_>) -> Result<()> {
        match piece {
            Piece::Text(text) => self.text(text),
            Piece::Token { text, special } => self.token(text, special),
        }
    }

    fn text(&mut self, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        if self.state.held.is_empty() {
            return self.run(text, false);
        }
        let mut joined = std::mem::take(&mut self.state.held);
        joined.push_str(text);
        self.run(&joined, false)
    }

    fn token(&mut self, text: &str, special: bool) -> Result<()> {
        if self.state.phase == Phase::Harmony {
            return self.harmony_token(text, special);
        }
        let mut role = self.grammar.set(self.state.phase).and_then(|set| set.token(text));
        if role.is_none() && self.state.phase == Phase::AfterBare {
            self.state.phase = Phase::Content;
            role = self.grammar.set(self.state.phase).and_then(|set| set.token(text));
        }
        let Some(role) = role else {
            // Special tokens that no format looks for are no text.
            return if special && !(self.known)(text) { Ok(()) } else { self.text(text) };
        };
        if self.is_data(role) {
            return self.text(text);
        }
        let held = std::mem::take(&mut self.state.held);
        self.run(&held, true)?;
        match self.grammar.set(self.state.phase).and_then(|set| set.token(text)) {
            Some(role) => {
                if self.state.phase != Phase::Reasoning {
                    self.sink.raw(text);
                }
                self.marker(role, text)
            }
            None => self.text(text),
        }
    }

    /// A marker's token inside a JSON string or another quoted value is data.
    fn is_data(&self, role: Role) -> bool {
        match self.state.phase {
            Phase::Object => self.state.tracker.string || self.state.object.is_in_text(),
            Phase::Python => self.state.python.quote.is_some(),
            Phase::Arguments => role != Role::CallClose && self.state.tracker.string,
            _ => false,
        }
    }

    /// The answer is over: what was held is what it looks like.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let held = std::mem::take(&mut self.state.held);
        self.run(&held, true)?;
        match self.state.phase {
            Phase::Name => self.finish_in_name(),
            Phase::List | Phase::Object | Phase::Python | Phase::Literal | Phase::Echo => {
                self.finish_body(true);
            }
            Phase::Harmony => self.finish_harmony(),
            Phase::Reasoning if !self.state.prefix_done => self.finish_prefix(),
            _ => {}
        }
        if self.state.in_call {
            let typed = self.format.is_some_and(|format| format.whole.typed);
            if self.state.phase == Phase::Object && typed && !self.state.object.arguments_seen {
                self.sink.arguments("{}")?;
            }
            let cut = match self.state.phase {
                Phase::Arguments => !self.state.tracker.is_done(),
                Phase::Named => false,
                _ => true,
            };
            self.state.in_call = false;
            self.sink.call_end(cut)?;
        }
        Ok(())
    }

    pub(crate) fn run(&mut self, text: &str, last: bool) -> Result<()> {
        let mut rest = text;
        let mut idle = 0;
        while !rest.is_empty() {
            let reasoning = self.state.phase == Phase::Reasoning;
            let Some(done) = self.step(rest, last)? else { break };
            if !reasoning {
                self.sink.raw(&rest[..done]);
            }
            idle = if done == 0 { idle + 1 } else { 0 };
            if idle > MAX_IDLE_STEPS {
                self.state.phase = Phase::Content;
                self.content(rest);
                return Ok(());
            }
            rest = &rest[done..];
        }
        if !last {
            rest.clone_into(&mut self.state.held);
        }
        Ok(())
    }

    fn step(&mut self, text: &str, last: bool) -> Result<Step> {
        if self.state.untouched && !self.first_text(text, last) {
            return Ok(None);
        }
        match self.state.phase {
            Phase::List => return self.list(text, last),
            Phase::Object => return self.object(text, last),
            Phase::AfterBare => return Ok(Some(self.after_bare(text))),
            Phase::Python => return self.python(text, last),
            Phase::Literal => return self.literal(text, last),
            Phase::Harmony => return self.harmony(text, last),
            Phase::Arguments => return self.header_arguments(text, last),
            Phase::Echo => return Ok(self.echo(text, last)),
            Phase::Named => return self.named(text),
            Phase::Held => return Ok(Some(text.len())),
            _ => {}
        }
        let Some(set) = self.grammar.set(self.state.phase) else { return Ok(Some(text.len())) };
        match set.find(text, last) {
            Found::Marker { start: 0, end, role } => {
                self.marker(role, &text[..end])?;
                Ok(Some(end))
            }
            Found::Marker { start, .. } => self.plain(&text[..start]).map(|()| Some(start)),
            Found::Plain(0) => Ok(None),
            Found::Plain(end) => {
                // Markup that is cut off at the very end is not text.
                let markup = if last && self.is_markup_phase() { set.find(text, false) } else { Found::Plain(end) };
                let shown = if let Found::Plain(shown) = markup { shown } else { end };
                self.plain(&text[..shown])?;
                Ok(Some(end))
            }
        }
    }

    /// The phases in which nothing but markup is expected.
    fn is_markup_phase(&self) -> bool {
        matches!(
            self.state.phase,
            Phase::Preamble | Phase::Name | Phase::Between | Phase::Key | Phase::ValueOpen | Phase::Trailer
        )
    }

    /// Text that holds no marker.
    fn plain(&mut self, text: &str) -> Result<()> {
        match self.state.phase {
            Phase::Reasoning => self.reasoning_text(text),
            Phase::Content => self.content(text),
            Phase::Preamble => self.preamble_text(text),
            Phase::Name | Phase::Key => {
                if self.state.text.len() + text.len() > MAX_NAME_BYTES {
                    return self.overlong(text);
                }
                self.state.text.push_str(text);
            }
            Phase::Value => self.value_text(text)?,
            Phase::ValueOpen if !text.trim().is_empty() => self.state.phase = Phase::Between,
            // A bracket too many is a slip.
            Phase::Trailer if !text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '}' | ']')).is_empty() => {
                self.sink.broken();
            }
            _ => {}
        }
        Ok(())
    }

    /// Blanks around the markup belong to it; text is none, and not lost.
    fn preamble_text(&mut self, text: &str) {
        self.state.text.push_str(text);
        let end = self.state.text.trim_end().len();
        if end > 0 {
            let blank = self.state.text.split_off(end);
            let text = std::mem::replace(&mut self.state.text, blank);
            self.content(&text);
        } else if self.state.text.len() > self.limit {
            self.state.text.clear();
        }
    }

    /// A name that is none, or a key that is none.
    fn overlong(&mut self, text: &str) -> Result<()> {
        if self.state.phase == Phase::Key {
            self.state.phase = Phase::Between;
            return Ok(());
        }
        let raw = std::mem::take(&mut self.state.raw) + &std::mem::take(&mut self.state.text);
        self.state.phase = Phase::Content;
        self.content(&raw);
        self.text_again(text)
    }

    /// Text that another phase has a view of: markers in it were looked for already.
    fn text_again(&mut self, text: &str) -> Result<()> {
        self.plain(text)
    }

    pub(crate) fn content(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let drops = self.format.is_some_and(|format| format.content.drop_after);
        if drops && self.state.called && self.state.tools == Tools::Native {
            return;
        }
        self.state.begun |= !text.trim().is_empty();
        self.sink.content(text);
    }

    pub(crate) fn marker(&mut self, role: Role, text: &str) -> Result<()> {
        match self.state.phase {
            Phase::Reasoning => self.reasoning_marker(role, text),
            Phase::Content => {
                self.content_marker(role, text);
                Ok(())
            }
            Phase::Arguments => {
                self.end_call(false)?;
                self.call_marker(role, text);
                Ok(())
            }
            Phase::List | Phase::Object | Phase::Python | Phase::Literal | Phase::Echo => {
                if self.state.phase == Phase::Echo && role == Role::CallClose {
                    self.end_echo();
                    return Ok(());
                }
                let made_text = self.finish_body(false);
                if self.state.in_call && !self.has_arguments() {
                    self.sink.broken();
                }
                self.end_call(true)?;
                if made_text && matches!(role, Role::CallClose | Role::SectionClose) {
                    // What it closes turned out to be text.
                    self.content(text);
                    return Ok(());
                }
                self.call_marker(role, text);
                Ok(())
            }
            Phase::Name => self.name_marker(role, text),
            Phase::Key => self.key_marker(role, text),
            Phase::ValueOpen if role == Role::ValueOpen => {
                self.begin_value()?;
                Ok(())
            }
            Phase::Value => {
                if !self.state.value.broken {
                    self.sink.value_end()?;
                }
                self.between_marker(role, text)
            }
            _ => self.between_marker(role, text),
        }
    }

    pub(crate) fn content_marker(&mut self, role: Role, text: &str) {
        let at_start = match role {
            Role::SectionOpen | Role::CallOpen => self.grammar.opens_at_start,
            Role::Bare => self.grammar.bare_at_start,
            _ => false,
        };
        let unforced = role == Role::Bare && self.grammar.bare_needs_force && !self.forced;
        if unforced || (at_start && self.state.begun) {
            self.content(text);
            return;
        }
        match role {
            Role::ThinkOpen if self.state.reasoned && !self.reasoning.is_some_and(|format| format.reopens) => {
                self.content(text);
            }
            Role::ThinkOpen => self.state.phase = Phase::Reasoning,
            Role::SectionOpen | Role::CallOpen => self.call_marker(role, text),
            Role::Bare => self.begin_body(text),
            Role::Restart => {
                self.content(text);
                self.state.begun = false;
            }
            _ => {}
        }
    }

    /// A marker of calls, outside of any.
    pub(crate) fn call_marker(&mut self, role: Role, text: &str) {
        match role {
            Role::SectionOpen => {
                self.sink.opened();
                self.state.text.clear();
                self.state.phase = Phase::Preamble;
            }
            Role::CallOpen => self.begin_body(text),
            Role::SectionClose => self.state.phase = Phase::Content,
            Role::CallClose => {
                self.state.text.clear();
                self.state.phase = self.behind_call();
            }
            _ => {}
        }
    }

    /// The phase behind a closed call.
    pub(crate) fn behind_call(&self) -> Phase {
        let Some(format) = self.format else { return Phase::Content };
        if !format.section.open.is_empty() {
            return Phase::Preamble;
        }
        if format.content.echoes { Phase::Echo } else { Phase::Content }
    }

    /// The opener of a call was read: its body begins.
    pub(crate) fn begin_body(&mut self, opener: &str) {
        opener.clone_into(&mut self.state.raw);
        self.state.text.clear();
        self.state.tracker = Tracker::default();
        self.state.object = ObjectState::default();
        if self.state.tools == Tools::Required {
            (self.state.list, self.state.bare) = (true, true);
            self.state.phase = Phase::List;
            return;
        }
        let Some(format) = self.format else { return };
        let bare = matches!(opener, "[" | "{") && !format.call.open.iter().any(|text| text == opener);
        self.state.bare = bare;
        match &format.body {
            Body::Json { list, .. } => {
                // A bracket or brace that opens by itself is the body's own.
                self.state.list = *list && bare;
                self.state.phase = if *list { Phase::List } else { Phase::Object };
                if bare && !*list {
                    self.state.object.begin();
                }
            }
            Body::Header { .. } | Body::Tagged { .. } => {
                self.sink.opened();
                self.state.phase = Phase::Name;
            }
            Body::Literal { .. } => {
                self.sink.opened();
                self.state.literal = super::state::LiteralState::default();
                self.state.phase = Phase::Literal;
            }
            Body::Python { .. } => {
                self.state.python = super::state::PythonState::default();
                self.state.list = bare;
                self.state.phase = Phase::Python;
            }
            Body::Harmony => {}
        }
    }

    pub(crate) fn begin_call(&mut self, name: &str, id: Option<&str>, by_key: bool) {
        self.sink.opened();
        self.state.raw.clear();
        self.state.called = true;
        self.state.in_call = true;
        self.sink.call(name, id, by_key);
    }

    pub(crate) fn end_call(&mut self, cut: bool) -> Result<()> {
        if std::mem::take(&mut self.state.in_call) { self.sink.call_end(cut) } else { Ok(()) }
    }

    /// Within the bounds of what may be held back.
    pub(crate) fn check(&self, held: usize) -> Result<()> {
        if held > self.limit && !self.state.whole { Err(too_long(self.limit)) } else { Ok(()) }
    }
}
