//! Replacement characters at the end of what there is.
//!
//! The reference holds them back, since more bytes may make characters of them, and never gives them out if nothing
//! follows. Few of them are dealt with so here too; many are no character on its way, and go out.

use serde::{Deserialize, Serialize};

use super::Output;

pub(super) const REPLACEMENT: char = '\u{FFFD}';
/// More than these are given out.
const FEW: u32 = 8;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tail {
    pub(super) held: u32,
    /// There were too many to hold: they go out at once until there is something else.
    pub(super) flooded: bool,
}

impl Tail {
    pub(super) fn check(&self) -> bool {
        self.held <= FEW
    }

    pub(super) fn on<'t, O: Output>(&'t mut self, out: &'t mut O) -> Held<'t, O> {
        Held { tail: self, out }
    }

    fn release(&mut self, out: &mut impl Output) {
        for _ in 0..std::mem::take(&mut self.held) {
            out.text("\u{FFFD}");
        }
    }
}

/// An output that holds back.
pub(super) struct Held<'t, O> {
    tail: &'t mut Tail,
    out: &'t mut O,
}

impl<O: Output> Held<'_, O> {
    /// Nothing follows.
    pub(super) fn end(self) {
        if self.tail.flooded {
            self.tail.release(self.out);
        }
        *self.tail = Tail::default();
    }
}

impl<O: Output> Output for Held<'_, O> {
    const TOKENS: bool = O::TOKENS;

    fn text(&mut self, text: &str) {
        let clear = text.trim_end_matches(REPLACEMENT);
        if !clear.is_empty() {
            self.tail.release(self.out);
            self.tail.flooded = false;
            self.out.text(clear);
        }
        if clear.len() < text.len() {
            let count = text[clear.len()..].chars().count();
            self.tail.held = self.tail.held.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
            if self.tail.flooded || self.tail.held > FEW {
                self.tail.flooded = true;
                self.tail.release(self.out);
            }
        }
    }

    fn token(&mut self, text: &str, special: bool) {
        self.tail.release(self.out);
        self.tail.flooded = false;
        self.out.token(text, special);
    }
}
