//! Token ids to text, in parts of any size: what comes of the parts is what comes of all ids at once.
//!
//! In: decoding with the window of the last tokens that vLLM's incremental detokenizer has (protocol.md §5.4), held to
//! the same text; characters whose bytes are still on their way are held back, and dropped if they never come. Unlike
//! there, much that can never become characters is not held. Out of scope: stop strings, parsing.

mod fallback;
mod stream;
mod tail;
mod window;

use std::sync::{Arc, OnceLock};

pub use stream::Stream;
pub use window::Window;

use crate::error::Result;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::decode::{Decoder, Kind, Piece};

/// Tokens before the output that its first one is decoded with, and those more in case some are skipped.
const CONTEXT_TOKENS: usize = 5;
const SPARE_TOKENS: usize = 2;

const SKIPPED: u8 = 1;
const ADDED: u8 = 2;
const SPECIAL: u8 = 4;

/// Takes the text that ids turn out to be.
pub trait Output {
    /// Whether added tokens are to come by themselves.
    const TOKENS: bool = false;

    fn text(&mut self, text: &str);

    /// An added token; `text` is how it is written.
    fn token(&mut self, text: &str, special: bool) {
        let _ = special;
        self.text(text);
    }
}

impl Output for String {
    fn text(&mut self, text: &str) {
        self.push_str(text);
    }
}

/// What to do with special tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specials {
    Keep,
    Skip,
}

/// Decodes the ids of one tokenizer; immutable, shared by threads.
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    skipped: Vec<u32>,
    table: OnceLock<Box<[u8]>>,
}

impl Detokenizer {
    /// `skipped_tokens` are those that `skip_special_tokens` leaves out, as the vocabulary spells them.
    pub fn new(tokenizer: Arc<Tokenizer>, skipped_tokens: &[String]) -> Self {
        let skipped = skipped_tokens.iter().filter_map(|token| tokenizer.token_to_id(token)).collect();
        Self { tokenizer, skipped, table: OnceLock::new() }
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Whether there is a table of what ids stand for, without which decoding takes some fifty times longer.
    pub fn is_fast(&self) -> bool {
        self.decoder().is_some()
    }

    fn decoder(&self) -> Option<&Decoder> {
        self.tokenizer.decoder()
    }

    /// What is known of each id.
    fn flags(&self) -> &[u8] {
        self.table.get_or_init(|| {
            let mut flags = vec![0; self.tokenizer.max_token_id() as usize + 1];
            let mut set = |id: u32, flag: u8| {
                if let Some(flags) = flags.get_mut(id as usize) {
                    *flags |= flag;
                }
            };
            self.skipped.iter().for_each(|&id| set(id, SKIPPED));
            for (id, special) in self.tokenizer.added_ids() {
                set(id, if special { ADDED | SPECIAL } else { ADDED });
            }
            flags.into()
        })
    }

    fn is_skipped(&self, id: u32, specials: Specials) -> bool {
        specials == Specials::Skip && self.flags().get(id as usize).is_some_and(|flags| flags & SKIPPED != 0)
    }

    /// At most this many bytes come of `ids`.
    pub fn most_bytes(&self, ids: &[u32]) -> usize {
        // A byte that is no character's becomes a replacement character, of three.
        match self.decoder() {
            Some(decoder) => ids.iter().map(|&id| decoder.bytes(id).len().max(1) * 3).sum(),
            None => ids.len().saturating_mul(self.tokenizer.longest_token_chars() * 4),
        }
    }

    /// Begin an output, whose prompt is `prompt_ids` if known: it decides whether the first token's space is kept.
    pub fn start(&self, prompt_ids: &[u32], specials: Specials) -> Stream {
        let first = prompt_ids.len().saturating_sub(CONTEXT_TOKENS + SPARE_TOKENS);
        let mut context: Vec<u32> =
            prompt_ids[first..].iter().copied().filter(|&id| !self.is_skipped(id, specials)).collect();
        context.drain(..context.len().saturating_sub(CONTEXT_TOKENS));
        self.after(&context)
    }

    /// A whole output.
    pub fn decode(&self, mut stream: Stream, ids: &[u32], specials: Specials) -> Result<String> {
        let mut text = String::with_capacity(ids.len() * 5);
        self.push(&mut stream, ids, specials, &mut text)?;
        self.finish(&mut stream, &mut text)?;
        Ok(text)
    }

    /// The text of one id alone, with the spaces in front that it has within a text; `None` outside of the vocabulary.
    pub fn token_text(&self, id: u32) -> Result<Option<String>> {
        let Some(piece) = self.tokenizer.id_to_token(id) else { return Ok(None) };
        let text = self.tokenizer.decode(&[id], false)?;
        let Some(mark) = self.tokenizer.leading_mark() else { return Ok(Some(text)) };
        let marks = piece.chars().take_while(|&c| c == mark).count();
        let spaces = text.len() - text.trim_start_matches(' ').len();
        Ok(Some(" ".repeat(marks.saturating_sub(spaces)) + &text))
    }

    /// The bytes that an id stands for, where they are more than its text says: those of parts of characters.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        let decoder = self.decoder()?;
        match (decoder.kind(), decoder.piece(id)?) {
            (Kind::ByteLevel, Piece::Text(bytes)) => Some(bytes),
            (_, Piece::Byte(_)) => Some(decoder.bytes(id)),
            _ => None,
        }
    }

    /// As [`Tokenizer::decode`], of few ids.
    pub fn plain(&self, ids: &[u32]) -> Result<String> {
        self.tokenizer.decode(ids, false)
    }
}
