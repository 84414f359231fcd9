//! Where one choice of a stream stands, and a step of it.

use super::context::{Context, id_seed};
use super::request::{Choice, StopReason};
use super::state::Open;
use super::text::{Buffer, Pieces, Text, TextRules};
use super::whole::as_piece;
use crate::detokenizer::{Stream, Window};
use crate::error::Result;
use crate::parser::{self, Deltas};

#[derive(Clone)]
pub(super) struct Progress {
    pub(super) open: Open,
    /// Tokens so far, where something depends on them.
    pub(super) seen: u64,
    /// Text that a stock server held back and we do not.
    pub(super) late: String,
    pub(super) finished: bool,
    pub(super) decoding: Decoding,
}

#[derive(Clone)]
pub(super) enum Decoding {
    /// Plain text; the wire's own state says all.
    Window(Stream, Window),
    /// Plain text that a string may end.
    Text(Text<String>),
    Parsed {
        text: Text<Pieces>,
        parser: Box<parser::State>,
    },
}

/// What a chunk adds to a choice.
pub(super) struct Step<'c> {
    pub(super) deltas: Deltas,
    pub(super) finish_reason: Option<String>,
    pub(super) stop_reason: StopReason<'c>,
}

impl Progress {
    pub(super) fn start(context: &Context<'_>, prompt: Option<&[u32]>, request_id: Option<&str>, index: i64) -> Self {
        let rules = context.rules(&context.stop);
        let ids = prompt.unwrap_or_default();
        let decoding = match &context.parsing {
            Some(parsing) => {
                let seed = id_seed(request_id, index, prompt, &[]);
                let parser = parsing.parser.start(&parsing.request(prompt, &seed));
                Decoding::Parsed { text: Text::start(&rules, ids), parser: Box::new(parser) }
            }
            None if context.stop.is_empty() => {
                let (stream, window) = rules.detokenizer.start_window(ids, rules.specials);
                Decoding::Window(stream, window)
            }
            None => Decoding::Text(Text::start(&rules, ids)),
        };
        Self::new(decoding)
    }

    /// A place where there is none any more.
    pub(super) fn nothing() -> Self {
        Self::new(Decoding::Window(Stream::default(), Window::default()))
    }

    pub(super) fn new(decoding: Decoding) -> Self {
        Self { open: Open::default(), seen: 0, late: String::new(), finished: false, decoding }
    }

    /// About the bytes that it takes.
    pub(super) fn size(&self) -> usize {
        let own = std::mem::size_of::<Self>();
        match &self.decoding {
            Decoding::Window(..) => own,
            Decoding::Text(text) => own + text.held_bytes(),
            Decoding::Parsed { text, parser } => own + text.held_bytes() + 2 * parser.save().len(),
        }
    }

    /// As it is without what the wire's own state says, for streams whose state stays here.
    pub(super) fn without_window(mut self) -> Self {
        if let Decoding::Window(stream, _) = self.decoding {
            self.decoding = Decoding::Text(Text::behind(stream));
        }
        self
    }

    /// Whether a stop string was met in what has not ended.
    pub(super) fn holds_stop(&self) -> bool {
        let found = match &self.decoding {
            Decoding::Window(..) => false,
            Decoding::Text(text) => text.holds_stop(),
            Decoding::Parsed { text, .. } => text.holds_stop(),
        };
        found && !self.finished
    }

    /// Take a chunk's tokens in.
    pub(super) fn step<'c>(
        &mut self,
        context: &'c Context<'_>,
        choice: &'c Choice<'c>,
        prompt: Option<&[u32]>,
        request_id: Option<&str>,
    ) -> Result<Step<'c>> {
        let stopped = context.derenderer.stopped(choice, context.asked);
        let strings = context.stop_of_part(choice);
        let rules = context.rules(&strings);
        let mut step = Step {
            deltas: Deltas::default(),
            finish_reason: choice.finish_reason.map(str::to_owned),
            stop_reason: stopped.reason,
        };
        let mut ended_by = |found: Option<&str>| {
            if let Some(string) = found.and_then(|found| strings.iter().find(|string| **string == found)) {
                step.stop_reason = StopReason::Text(string);
            }
        };
        if let Decoding::Window(stream, _) = &self.decoding
            && !strings.is_empty()
        {
            self.decoding = Decoding::Text(Text::behind(stream.clone()));
        }
        match &mut self.decoding {
            Decoding::Window(stream, window) => {
                let said = &mut step.deltas.content;
                said.push_str(&std::mem::take(&mut self.late));
                rules.detokenizer.push_tracked(stream, window, stopped.ids, rules.specials, said)?;
                if choice.finish_reason.is_some() {
                    rules.detokenizer.finish(stream, said)?;
                }
            }
            Decoding::Text(text) => {
                let (said, found) = advance(text, &rules, choice, stopped.ids)?;
                ended_by(found);
                step.deltas.content = std::mem::take(&mut self.late) + &said.concat();
            }
            Decoding::Parsed { text, parser } => {
                let Some(parsing) = &context.parsing else { return Ok(step) };
                let seed = id_seed(request_id, choice.index, prompt, &[]);
                let request = parsing.request(prompt, &seed);
                let (pieces, found) = advance(text, &rules, choice, stopped.ids)?;
                ended_by(found);
                let pieces = pieces.iter().flat_map(Pieces::iter).map(as_piece);
                parsing.parser.push(parser, &request, pieces, &mut step.deltas)?;
                if choice.finish_reason.is_some() {
                    parsing.parser.finish(parser, &request, &mut step.deltas)?;
                }
                self.open.pin(&mut step.deltas);
                let called = self.open.tools_streamed;
                let reason =
                    choice.finish_reason.map(|reason| parsing.parser.finish_reason(&request, Some(reason), called));
                step.finish_reason = reason.map(str::to_owned);
            }
        }
        self.seen = self.seen.saturating_add(choice.ids().len() as u64);
        self.finished |= choice.finish_reason.is_some();
        Ok(step)
    }

    /// Take tokens in whose deltas went out before.
    pub(super) fn replay(
        &mut self,
        context: &Context<'_>,
        ids: &[u32],
        index: i64,
        prompt: Option<&[u32]>,
        request_id: Option<&str>,
    ) -> Result<()> {
        let Decoding::Parsed { text, parser } = &mut self.decoding else { return Ok(()) };
        let Some(parsing) = &context.parsing else { return Ok(()) };
        let seed = id_seed(request_id, index, prompt, &[]);
        let request = parsing.request(prompt, &seed);
        let pieces = text.push(&context.rules(&context.stop), ids)?;
        parsing.parser.push(parser, &request, pieces.iter().map(as_piece), &mut Deltas::default())?;
        self.seen = self.seen.saturating_add(ids.len() as u64);
        Ok(())
    }
}

impl Open {
    /// A call keeps the id that the client was told first.
    fn pin(&mut self, deltas: &mut Deltas) {
        self.tools_streamed |= !deltas.calls.is_empty();
        for call in &mut deltas.calls {
            let Some(id) = &mut call.id else { continue };
            match self.call_ids.get(call.index as usize) {
                Some(known) => id.clone_from(known),
                None => self.call_ids.push(id.clone()),
            }
        }
    }
}

/// The text of a chunk, with the rest if it is the last.
fn advance<'s, B: Buffer>(
    text: &mut Text<B>,
    rules: &TextRules<'s>,
    choice: &Choice<'s>,
    ids: &[u32],
) -> Result<([B; 2], Option<&'s str>)> {
    let content = text.push(rules, ids)?;
    if choice.finish_reason.is_none() {
        return Ok(([content, B::default()], None));
    }
    let (rest, found) = text.finish(rules, choice.finish_reason, choice.stop_reason)?;
    Ok(([content, rest], found))
}
