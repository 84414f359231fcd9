//! The window of tokens that the wire's stream state carries: the pieces that gave the last text, and those since.
//!
//! A stock vLLM can go on with it, and we with one of its own.

use super::fallback::Fallback;
use super::stream::{State, fall_back};
use super::tail::REPLACEMENT;
use super::{Detokenizer, Output as _, Specials, Stream};
use crate::error::{Error, Result};
use crate::tokenizer::decode::{Kind, Piece, fallback_byte, level_bytes, level_piece, push_spaced};

/// Bytes of all pieces together: far more than any that a stream comes to.
const MOST_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    /// They gave the last text.
    given: Vec<String>,
    /// Nothing came of them yet.
    held: Vec<String>,
}

impl Window {
    /// `prev_tokens` of the wire.
    pub fn pieces(&self) -> impl Iterator<Item = &str> {
        self.given.iter().chain(&self.held).map(String::as_str)
    }

    /// `read_offset` of the wire.
    pub fn read_offset(&self) -> usize {
        self.given.len()
    }
}

impl Detokenizer {
    /// As [`Self::start`], with the window.
    pub fn start_window(&self, prompt_ids: &[u32], specials: Specials) -> (Stream, Window) {
        let kept =
            |ids: &[u32]| -> Vec<u32> { ids.iter().copied().filter(|&id| !self.is_skipped(id, specials)).collect() };
        let first = prompt_ids.len().saturating_sub(super::CONTEXT_TOKENS + super::SPARE_TOKENS);
        let context = kept(&prompt_ids[first..]);
        let given = &context[context.len().saturating_sub(super::CONTEXT_TOKENS)..];
        let stream = self.after(given);
        let mut window = Window { given: given.iter().map(|&id| self.piece(id)).collect(), held: Vec::new() };
        Self::settle(&stream, &mut window);
        (stream, window)
    }

    /// A stream from the wire's `prev_tokens` and offsets. What of it a stock server still holds back, and we do not, is
    /// appended to `out`.
    pub fn load(&self, pieces: &[&str], prefix: usize, read: usize, out: &mut String) -> Result<(Stream, Window)> {
        if prefix > read || read > pieces.len() {
            return Err(damaged("its offsets are not in `prev_tokens`"));
        }
        if pieces.iter().map(|piece| piece.len()).sum::<usize>() > MOST_BYTES {
            return Err(damaged("`prev_tokens` are too long"));
        }
        let owned = |pieces: &[&str]| pieces.iter().map(|&piece| piece.to_owned()).collect();
        let mut window = Window { given: owned(&pieces[prefix..read]), held: owned(&pieces[read..]) };
        let before = out.len();
        let stream: Stream = match self.decoder() {
            None => {
                let stream = State::Pieces { pieces: owned(&pieces[prefix..]), read: read - prefix }.into();
                if !self.check(&stream) {
                    return Err(damaged("`prev_tokens` are no pieces of this model's vocabulary"));
                }
                stream
            }
            Some(decoder) if decoder.kind() == Kind::ByteLevel => load_bytes(&window, out),
            Some(decoder) => {
                let spaced: Vec<(Option<u8>, Vec<u8>)> =
                    pieces[prefix..].iter().map(|piece| read_piece(piece)).collect();
                let (given, held) = spaced.split_at(read - prefix);
                let mut stream = Self::behind(decoder, given.iter().map(|piece| Some(as_piece(piece))));
                if matches!(stream.state, State::Fallback(_)) {
                    let (mut probe, mut text) = (Fallback::default(), String::new());
                    for piece in given {
                        fall_back(&mut probe, Some(as_piece(piece)), &mut text);
                    }
                    stream.tail.flooded = text.ends_with(REPLACEMENT);
                }
                let Stream { state, tail } = &mut stream;
                let mut out = tail.on(out);
                match state {
                    State::Fallback(state) => {
                        for piece in held.iter().map(as_piece) {
                            fall_back(state, Some(piece), &mut out);
                        }
                    }
                    State::Marks { at_start } => *at_start &= held.is_empty(),
                    State::Bytes(_) | State::Pieces { .. } => {}
                }
                stream
            }
        };
        if out.len() > before {
            window.given = std::mem::take(&mut window.held);
            Self::settle(&stream, &mut window);
        }
        Ok((stream, window))
    }

    /// As [`Self::push`], with the window.
    pub fn push_tracked(
        &self,
        stream: &mut Stream,
        window: &mut Window,
        ids: &[u32],
        specials: Specials,
        out: &mut String,
    ) -> Result<()> {
        for &id in ids {
            if self.is_skipped(id, specials) {
                continue;
            }
            let before = out.len();
            self.push(stream, &[id], specials, out)?;
            let piece = self.piece(id);
            if !(piece.is_empty() && window.held.last().is_some_and(String::is_empty)) {
                window.held.push(piece);
            }
            if out.len() > before {
                window.given = std::mem::take(&mut window.held);
            }
            Self::settle(stream, window);
        }
        Ok(())
    }

    /// Where less is held back than whole pieces, say so with pieces that decode to the same.
    fn settle(stream: &Stream, window: &mut Window) {
        let flooded = stream.tail.flooded;
        match &stream.state {
            State::Bytes(pending) if window.held.is_empty() => {
                let mut bytes = all_bytes(&window.given);
                let held = if flooded { pending.len() } else { unclear_bytes(&bytes).max(pending.len()) };
                if held == 0 {
                    return;
                }
                let clear = bytes.len().saturating_sub(held);
                window.held = vec![level_piece(&bytes[clear..])];
                bytes.truncate(clear);
                window.given = vec![level_piece(&bytes)];
            }
            State::Fallback(state) if flooded && window.held.is_empty() => {
                // One byte that is no character's makes none of all that follow it.
                window.given = vec!["<0xFF>".to_owned()];
                if !state.broken {
                    window.given.push(String::new());
                    window.held = state.run.iter().map(|byte| format!("<0x{byte:02X}>")).collect();
                }
            }
            State::Fallback(_) | State::Marks { .. } if stream.tail.held > 0 && window.held.is_empty() => {
                let Some(last) = window.given.last_mut() else { return };
                let clear = last.trim_end_matches(REPLACEMENT).len();
                window.held = vec![last.split_off(clear)];
            }
            State::Pieces { pieces, read } => {
                window.given = pieces[..*read].to_vec();
                window.held = pieces[*read..].to_vec();
            }
            _ => {}
        }
    }
}

/// Bytes at the end that are no characters.
fn unclear_bytes(bytes: &[u8]) -> usize {
    let clear = bytes.utf8_chunks().fold((0, 0), |(at, clear), chunk| {
        let text = chunk.valid().trim_end_matches(REPLACEMENT).len();
        let end = at + chunk.valid().len() + chunk.invalid().len();
        (end, if text > 0 { at + text } else { clear })
    });
    bytes.len() - clear.1
}

fn damaged(why: &str) -> Error {
    Error::bad_request(format!("invalid stream_state: {why}"))
}

fn all_bytes(pieces: &[String]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut bytes = Vec::new();
    for piece in pieces {
        level_bytes(piece, &mut bytes);
        all.extend_from_slice(&bytes);
    }
    all
}

fn load_bytes(window: &Window, out: &mut String) -> Stream {
    let mut bytes = all_bytes(&window.given);
    let known = String::from_utf8_lossy(&bytes);
    let flooded = known.ends_with(REPLACEMENT);
    let known = known.chars().count();
    bytes.extend(all_bytes(&window.held));
    let mut text = String::new();
    let held = super::stream::give_bytes(&bytes, &mut text);
    let mut stream = Stream::from(State::Bytes(bytes[bytes.len() - held..].to_vec()));
    stream.tail.flooded = flooded;
    let new: String = text.chars().skip(known).collect();
    if !new.is_empty() {
        stream.tail.on(out).text(&new);
    }
    stream
}

fn read_piece(piece: &str) -> (Option<u8>, Vec<u8>) {
    let mut text = Vec::new();
    let byte = fallback_byte(piece.as_bytes());
    if byte.is_none() {
        push_spaced(piece.as_bytes(), &mut text);
    }
    (byte, text)
}

fn as_piece((byte, text): &(Option<u8>, Vec<u8>)) -> Piece<'_> {
    byte.map_or(Piece::Text(text), Piece::Byte)
}
