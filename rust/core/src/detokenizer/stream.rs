//! Where an output stands between two parts of it: plain data, a few bytes long.

use serde::{Deserialize, Serialize};

use super::fallback::Fallback;
use super::tail::{REPLACEMENT, Tail};
use super::{ADDED, Detokenizer, Output, SPECIAL, Specials};
use crate::error::Result;
use crate::tokenizer::decode::{Decoder, Kind, Piece, push_metaspace};

/// Pieces that the library has given no clean text for, beyond which what there is goes out.
const MOST_UNCLEAR: usize = 16;
/// The longest character, in bytes.
const LONGEST: usize = 4;

/// An output's decoding: what is held back of it, and what its next token is decoded with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    #[serde(rename = "s")]
    pub(super) state: State,
    #[serde(rename = "u", default, skip_serializing_if = "is_default")]
    pub(super) tail: Tail,
}

fn is_default(tail: &Tail) -> bool {
    *tail == Tail::default()
}

impl From<State> for Stream {
    fn from(state: State) -> Self {
        Stream { state, tail: Tail::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    /// The bytes of a character that is not whole yet.
    Bytes(Vec<u8>),
    Fallback(Fallback),
    /// There was no token yet: marks of the next are dropped.
    Marks {
        at_start: bool,
    },
    /// For the library: pieces, of which `read` have become text.
    Pieces {
        pieces: Vec<String>,
        read: usize,
    },
}

impl Default for Stream {
    fn default() -> Self {
        State::Bytes(Vec::new()).into()
    }
}

impl Detokenizer {
    /// An output behind these tokens of its prompt.
    pub(super) fn after(&self, context: &[u32]) -> Stream {
        let Some(decoder) = self.decoder() else {
            let pieces: Vec<String> = context.iter().map(|&id| self.piece(id)).collect();
            return State::Pieces { read: pieces.len(), pieces }.into();
        };
        Self::behind(decoder, context.iter().map(|&id| decoder.piece(id)))
    }

    /// An output behind these pieces of its prompt.
    pub(super) fn behind<'p>(decoder: &Decoder, context: impl Iterator<Item = Option<Piece<'p>>>) -> Stream {
        let mut ignored = String::new();
        match decoder.kind() {
            Kind::ByteLevel => {
                let mut bytes = Vec::new();
                for piece in context {
                    if let Some(Piece::Text(text)) = piece {
                        bytes.extend_from_slice(text);
                    }
                }
                State::Bytes(unfinished(&bytes).to_vec()).into()
            }
            Kind::ByteFallback { strips_first } => {
                let mut state = Fallback { at_start: strips_first, ..Fallback::default() };
                context.for_each(|piece| fall_back(&mut state, piece, &mut ignored));
                state.at_start &= ignored.is_empty();
                State::Fallback(state).into()
            }
            Kind::Metaspace { strips_first } => State::Marks { at_start: strips_first && context.count() == 0 }.into(),
        }
    }

    /// A piece for the library; an unknown id is an empty one.
    pub(super) fn piece(&self, id: u32) -> String {
        self.tokenizer.id_to_token(id).unwrap_or_default()
    }

    /// Whether a stream, perhaps from a client, is one of this tokenizer's.
    pub fn check(&self, stream: &Stream) -> bool {
        let sound = match (&stream.state, self.decoder().map(Decoder::kind)) {
            (State::Bytes(pending), Some(Kind::ByteLevel)) => pending.len() < LONGEST,
            (State::Fallback(state), Some(Kind::ByteFallback { .. })) => {
                state.run.len() < 4 * LONGEST && state.given <= state.run.len()
            }
            (State::Marks { .. }, Some(Kind::Metaspace { .. })) => true,
            (State::Pieces { pieces, read }, None) => {
                *read <= pieces.len()
                    && pieces.len() <= 4 * MOST_UNCLEAR
                    && pieces.iter().all(|piece| piece.len() <= 4 * self.tokenizer.longest_token_chars().max(6))
            }
            _ => false,
        };
        sound && stream.tail.check()
    }

    /// Go on with `ids`; their text goes to `out`.
    pub fn push<O: Output>(&self, stream: &mut Stream, ids: &[u32], specials: Specials, out: &mut O) -> Result<()> {
        let flags = self.flags();
        let of = |id: u32| flags.get(id as usize).copied().unwrap_or(0);
        let skips = specials == Specials::Skip;
        let Stream { state, tail } = stream;
        let out = &mut tail.on(out);
        let Some(decoder) = self.decoder() else { return self.push_pieces(state, ids, specials, out) };
        match state {
            State::Bytes(pending) => {
                let mut bytes = std::mem::take(pending);
                bytes.reserve(ids.len() * 5);
                for &id in ids {
                    let flags = of(id);
                    if flags == 0 {
                        bytes.extend_from_slice(decoder.bytes(id));
                    } else if skips && flags & super::SKIPPED != 0 {
                    } else if O::TOKENS && flags & ADDED != 0 {
                        flush_bytes(&mut bytes, out);
                        out.token(&String::from_utf8_lossy(decoder.bytes(id)), flags & SPECIAL != 0);
                    } else {
                        bytes.extend_from_slice(decoder.bytes(id));
                    }
                }
                let held = give_bytes(&bytes, out);
                bytes.drain(..bytes.len() - held);
                *pending = bytes;
            }
            State::Fallback(state) => {
                for &id in ids {
                    let flags = of(id);
                    if skips && flags & super::SKIPPED != 0 {
                        continue;
                    }
                    if O::TOKENS && flags & ADDED != 0 {
                        state.end_run(out);
                        state.at_start = false;
                        out.token(&String::from_utf8_lossy(decoder.bytes(id)), flags & SPECIAL != 0);
                        continue;
                    }
                    fall_back(state, decoder.piece(id), out);
                }
            }
            State::Marks { at_start } => {
                let mut text = Vec::new();
                for &id in ids {
                    let flags = of(id);
                    if skips && flags & super::SKIPPED != 0 {
                        continue;
                    }
                    text.clear();
                    push_metaspace(decoder.bytes(id), *at_start, &mut text);
                    *at_start = false;
                    let text = String::from_utf8_lossy(&text);
                    if O::TOKENS && flags & ADDED != 0 {
                        out.token(&text, flags & SPECIAL != 0);
                    } else if !text.is_empty() {
                        out.text(&text);
                    }
                }
            }
            State::Pieces { .. } => {}
        }
        Ok(())
    }

    /// The end: what was held back is not to become a character any more.
    pub fn finish<O: Output>(&self, stream: &mut Stream, out: &mut O) -> Result<()> {
        let Stream { state, tail } = stream;
        let mut held = tail.on(out);
        let out = &mut held;
        match state {
            State::Bytes(pending) => flush_bytes(pending, out),
            State::Fallback(state) => state.end_run(out),
            State::Marks { .. } => {}
            State::Pieces { pieces, read } => {
                let (before, all) = self.window(pieces, *read)?;
                if let Some(new) = behind(&all, &before) {
                    out.text(new);
                }
                pieces.clear();
                *read = 0;
            }
        }
        held.end();
        Ok(())
    }

    fn push_pieces<O: Output>(&self, state: &mut State, ids: &[u32], specials: Specials, out: &mut O) -> Result<()> {
        let State::Pieces { pieces, read } = state else { return Ok(()) };
        for &id in ids {
            if self.is_skipped(id, specials) {
                continue;
            }
            pieces.push(self.piece(id));
            let (before, all) = self.window(pieces, *read)?;
            let unclear = all.ends_with(REPLACEMENT) && pieces.len() - *read < MOST_UNCLEAR;
            let Some(new) = behind(&all, &before).filter(|_| !unclear) else {
                // Pieces without text, which nothing can come of.
                if pieces.len() - *read >= MOST_UNCLEAR {
                    pieces.drain(..*read);
                    *read = pieces.len();
                }
                continue;
            };
            let flags = self.flags().get(id as usize).copied().unwrap_or(0);
            if O::TOKENS && flags & ADDED != 0 {
                out.token(new, flags & SPECIAL != 0);
            } else {
                out.text(new);
            }
            pieces.drain(..*read);
            *read = pieces.len();
        }
        Ok(())
    }

    /// The text of the pieces that have become text, and of all.
    fn window(&self, pieces: &[String], read: usize) -> Result<(String, String)> {
        let before = self.tokenizer.decode_pieces(pieces[..read].to_vec())?;
        Ok((before, self.tokenizer.decode_pieces(pieces.to_vec())?))
    }
}

pub(super) fn fall_back(state: &mut Fallback, piece: Option<Piece<'_>>, out: &mut impl Output) {
    match piece {
        Some(Piece::Byte(byte)) => state.byte(byte, out),
        Some(Piece::Text(text)) => state.text(&String::from_utf8_lossy(text), out),
        None => state.text("", out),
    }
}

/// What `all` has more characters of than `before`; `None` if it has no more.
fn behind<'t>(all: &'t str, before: &str) -> Option<&'t str> {
    if let Some(new) = all.strip_prefix(before) {
        return Some(new).filter(|new| !new.is_empty());
    }
    let (at, _) = all.char_indices().nth(before.chars().count())?;
    Some(&all[at..])
}

/// The end of bytes that may be the beginning of a character.
fn unfinished(bytes: &[u8]) -> &[u8] {
    let tail = &bytes[bytes.len().saturating_sub(LONGEST - 1)..];
    for start in 0..tail.len() {
        match std::str::from_utf8(&tail[start..]) {
            Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => return &tail[start..],
            _ => {}
        }
    }
    &[]
}

/// Give out what is text for sure, replacements where no character can come of the bytes; how many are left at the end.
pub(super) fn give_bytes(bytes: &[u8], out: &mut impl Output) -> usize {
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(text) => {
                if !text.is_empty() {
                    out.text(text);
                }
                return 0;
            }
            Err(error) => {
                let (text, behind) = rest.split_at(error.valid_up_to());
                if !text.is_empty() {
                    out.text(std::str::from_utf8(text).unwrap_or_default());
                }
                let Some(length) = error.error_len() else { return behind.len() };
                out.text("\u{FFFD}");
                rest = &behind[length..];
            }
        }
    }
}

fn flush_bytes(bytes: &mut Vec<u8>, out: &mut impl Output) {
    if give_bytes(bytes, out) > 0 {
        out.text("\u{FFFD}");
    }
    bytes.clear();
}
