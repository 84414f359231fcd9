//! Decoding pieces that are text, and bytes where the vocabulary has no piece: a run of such bytes is characters only if
//! all of it is.
//!
//! The run is judged within the window of tokens that the reference decodes: the tokens that gave the last text, and
//! those since.

use serde::{Deserialize, Serialize};

use super::Output;

const REPLACEMENT: &str = "\u{FFFD}";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Fallback {
    /// There was no text yet: the first space of what comes is dropped.
    pub(super) at_start: bool,
    /// The bytes at the window's end.
    pub(super) run: Vec<u8>,
    /// Characters of the run that were given out.
    pub(super) given: usize,
    /// The run will never be characters; its bytes were given out as replacements.
    pub(super) broken: bool,
}

impl Fallback {
    pub(super) fn byte(&mut self, byte: u8, out: &mut impl Output) {
        if self.broken {
            return out.text(REPLACEMENT);
        }
        self.run.push(byte);
        match std::str::from_utf8(&self.run) {
            Ok(text) => {
                let text = if self.at_start { text.strip_prefix(' ').unwrap_or(text) } else { text };
                let behind = text.char_indices().nth(self.given).map_or(text.len(), |(at, _)| at);
                let new = &text[behind..];
                if new.is_empty() {
                    return;
                }
                out.text(new);
                // The window goes on to the tokens of what was just given out.
                let kept = new.len();
                self.given = new.chars().count();
                self.run.drain(..self.run.len() - kept);
                self.at_start = false;
            }
            Err(error) if error.error_len().is_none() => {}
            Err(_) => self.give_up(out),
        }
    }

    pub(super) fn text(&mut self, text: &str, out: &mut impl Output) {
        self.end_run(out);
        let new = if self.at_start { text.strip_prefix(' ').unwrap_or(text) } else { text };
        self.at_start &= text.is_empty();
        if !new.is_empty() {
            out.text(new);
        }
    }

    /// What follows is none of the run's bytes.
    pub(super) fn end_run(&mut self, out: &mut impl Output) {
        if !self.broken && std::str::from_utf8(&self.run).is_err() {
            self.give_up(out);
        }
        self.at_start &= self.run.is_empty();
        (self.given, self.broken) = (0, false);
        self.run.clear();
    }

    fn give_up(&mut self, out: &mut impl Output) {
        for _ in self.given..self.run.len() {
            out.text(REPLACEMENT);
        }
        self.broken = true;
        self.at_start = false;
    }
}
