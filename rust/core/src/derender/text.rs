//! An output's text: its ids decoded, cut at the string that ends it, and held back as far as it may yet be cut.
//!
//! A stop string counts only if the engine stopped by itself, which is known at the end alone: until then nothing goes
//! out from where a stop string may have begun. So parts of any size come to the text of the whole.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::request::StopReason;
use crate::detokenizer::{Detokenizer, Output, Specials, Stream};
use crate::error::Result;

/// Text that can be cut.
pub(super) trait Buffer: Output + Default + Clone + Serialize + DeserializeOwned {
    fn as_str(&self) -> &str;
    /// Take the first bytes away.
    fn take_front(&mut self, bytes: usize) -> Self;
    fn truncate(&mut self, bytes: usize);
    /// The place at or before this one that is not within a token.
    fn whole_before(&self, bytes: usize) -> usize {
        bytes
    }

    /// Whether its parts fit together.
    fn is_sound(&self) -> bool {
        true
    }
}

impl Buffer for String {
    fn as_str(&self) -> &str {
        self
    }

    fn take_front(&mut self, bytes: usize) -> Self {
        let rest = self.split_off(bytes);
        std::mem::replace(self, rest)
    }

    fn truncate(&mut self, bytes: usize) {
        String::truncate(self, bytes);
    }
}

/// Text whose added tokens are known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pieces {
    text: String,
    /// Start and end of each token in the text, and whether it is special.
    tokens: Vec<(usize, usize, bool)>,
}

impl Output for Pieces {
    const TOKENS: bool = true;

    fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn token(&mut self, text: &str, special: bool) {
        let start = self.text.len();
        self.text.push_str(text);
        self.tokens.push((start, self.text.len(), special));
    }
}

impl Buffer for Pieces {
    fn as_str(&self) -> &str {
        &self.text
    }

    /// A token that is cut through becomes text.
    fn take_front(&mut self, bytes: usize) -> Self {
        let front = Self {
            text: self.text.take_front(bytes),
            tokens: self.tokens.iter().copied().filter(|&(_, end, _)| end <= bytes).collect(),
        };
        self.tokens.retain(|&(start, _, _)| start >= bytes);
        for (start, end, _) in &mut self.tokens {
            (*start, *end) = (*start - bytes, *end - bytes);
        }
        front
    }

    fn truncate(&mut self, bytes: usize) {
        self.text.truncate(bytes);
        self.tokens.retain(|&(_, end, _)| end <= bytes);
    }

    fn whole_before(&self, bytes: usize) -> usize {
        let within = self.tokens.iter().find(|&&(start, end, _)| start < bytes && bytes < end);
        within.map_or(bytes, |&(start, _, _)| start)
    }

    fn is_sound(&self) -> bool {
        let mut done = 0;
        self.tokens.iter().all(|&(start, end, _)| {
            let fits = done <= start && self.text.get(start..end).is_some();
            done = end;
            fits
        })
    }
}

impl Pieces {
    /// Stretches of text and tokens, in order; `None` for text, or whether the token is special.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Option<bool>)> {
        let mut done = 0;
        let ends = self.tokens.iter().map(|&(start, end, special)| (start, end, Some(special)));
        let stretches =
            ends.chain([(self.text.len(), self.text.len(), None)]).flat_map(move |(start, end, special)| {
                let before = std::mem::replace(&mut done, end);
                [(before, start, None), (start, end, special)]
            });
        stretches.filter_map(|(start, end, kind)| {
            self.text.get(start..end).filter(|text| !text.is_empty()).map(|text| (text, kind))
        })
    }
}

/// What holds for all of an output's text.
#[derive(Clone, Copy)]
pub(super) struct TextRules<'r> {
    pub(super) detokenizer: &'r Detokenizer,
    pub(super) specials: Specials,
    /// Not empty, any of them.
    pub(super) stop: &'r [&'r str],
    pub(super) include_stop: bool,
    /// Stop strings that end within this many tokens are text.
    pub(super) min_tokens: u64,
}

/// Where an output's text stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Text<B> {
    stream: Stream,
    held: B,
    /// Tokens so far, as far as they matter.
    #[serde(default)]
    seen: u64,
    /// Bytes of `held` that come of the first `min_tokens`.
    #[serde(default)]
    early: usize,
    /// There is a stop string in `held`.
    #[serde(default)]
    found: bool,
}

impl<B: Buffer> Text<B> {
    pub(super) fn start(rules: &TextRules<'_>, prompt_ids: &[u32]) -> Self {
        Self::behind(rules.detokenizer.start(prompt_ids, rules.specials))
    }

    /// Go on with decoding from where it stands, with no text held back.
    pub(super) fn behind(stream: Stream) -> Self {
        Self { stream, held: B::default(), seen: 0, early: 0, found: false }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.held.as_str().len()
    }

    /// Whether a stop string was met: an output that stops by itself ends there.
    pub(super) fn holds_stop(&self) -> bool {
        self.found
    }

    /// Go on with `ids`; the text that can go out.
    pub(super) fn push(&mut self, rules: &TextRules<'_>, ids: &[u32]) -> Result<B> {
        let mut rest = ids;
        if self.seen < rules.min_tokens && !rules.stop.is_empty() {
            let left = usize::try_from(rules.min_tokens - self.seen).unwrap_or(usize::MAX).min(ids.len());
            let (early, late) = ids.split_at(left);
            rules.detokenizer.push(&mut self.stream, early, rules.specials, &mut self.held)?;
            self.early = self.held.as_str().len();
            self.seen += early.len() as u64;
            rest = late;
        }
        rules.detokenizer.push(&mut self.stream, rest, rules.specials, &mut self.held)?;
        Ok(self.release(rules))
    }

    /// The text that no stop string can reach.
    fn release(&mut self, rules: &TextRules<'_>) -> B {
        if rules.stop.is_empty() {
            return std::mem::take(&mut self.held);
        }
        if self.found {
            return B::default();
        }
        let text = self.held.as_str();
        let mut free = text.len();
        for stop in rules.stop {
            if let Some(start) = find(text, stop, self.early) {
                self.found = true;
                free = free.min(start);
            }
            free = free.min(text.len() - begun(text, stop));
        }
        let free = self.held.whole_before(free);
        self.early = self.early.saturating_sub(free);
        self.held.take_front(free)
    }

    /// The end: the rest of the text, and the stop string that ends it, if one does.
    pub(super) fn finish<'s>(
        &mut self,
        rules: &TextRules<'s>,
        finish_reason: Option<&str>,
        stop_reason: StopReason<'s>,
    ) -> Result<(B, Option<&'s str>)> {
        rules.detokenizer.finish(&mut self.stream, &mut self.held)?;
        let mut rest = std::mem::take(&mut self.held);
        let reported: [&str; 1];
        let stop = match stop_reason {
            _ if finish_reason != Some("stop") => &[],
            StopReason::Token(_) => &[][..],
            StopReason::Text(text) => {
                reported = [text];
                &reported
            }
            StopReason::None => rules.stop,
        };
        let ends = stop.iter().filter(|stop| !stop.is_empty()).filter_map(|stop| {
            let start = find(rest.as_str(), stop, self.early)?;
            Some((start + stop.len(), start, *stop))
        });
        // Of those that end first, the first that is listed.
        let Some((end, start, stop)) = ends.reduce(|first, next| if next.0 < first.0 { next } else { first }) else {
            return Ok((rest, None));
        };
        rest.truncate(if rules.include_stop { end } else { start });
        Ok((rest, Some(stop)))
    }

    /// Whether this, perhaps from a client, can be gone on with.
    pub(super) fn check(&self, rules: &TextRules<'_>, most_bytes: usize) -> bool {
        let text = self.held.as_str();
        rules.detokenizer.check(&self.stream)
            && text.len() <= most_bytes
            && (!rules.stop.is_empty() || text.is_empty())
            && self.early <= text.len()
            && text.is_char_boundary(self.early)
            && self.held.is_sound()
    }
}

/// Where `stop` first begins in `text` if it ends behind `early`.
fn find(text: &str, stop: &str, early: usize) -> Option<usize> {
    let mut from = (early + 1).saturating_sub(stop.len());
    while !text.is_char_boundary(from) {
        from += 1;
    }
    memchr::memmem::find(&text.as_bytes()[from..], stop.as_bytes()).map(|at| from + at)
}

/// Bytes at the end of `text` that may be the beginning of `stop`, but not all of it.
fn begun(text: &str, stop: &str) -> usize {
    let (text, stop) = (text.as_bytes(), stop.as_bytes());
    let tail = &text[text.len().saturating_sub(stop.len().saturating_sub(1))..];
    // For each beginning of `stop`, the longest shorter one that it ends with (Knuth, Morris, Pratt).
    let mut shorter = vec![0; stop.len()];
    let mut matched = 0;
    for at in 1..stop.len() {
        while matched > 0 && stop[at] != stop[matched] {
            matched = shorter[matched - 1];
        }
        matched += usize::from(stop[at] == stop[matched]);
        shorter[at] = matched;
    }
    let mut matched = 0;
    for &byte in tail {
        while matched > 0 && byte != stop[matched] {
            matched = shorter[matched - 1];
        }
        matched += usize::from(byte == stop[matched]);
    }
    matched
}
