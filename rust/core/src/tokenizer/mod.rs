//! Text to token ids and back, equal to Hugging Face `tokenizers` 0.23 in every id.

use crate::error::{Error, Result};
use crate::spec::TokenizerSpec;

/// Which end of an over-long text is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TruncationSide {
    /// Drop the beginning, keep the end.
    Left,
    /// Drop the end, keep the beginning.
    Right,
}

/// A bound on the ids of one call, special tokens of the post-processor included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    pub max_length: usize,
    pub side: TruncationSide,
}

/// Token ids with the place of each in the text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoding {
    pub ids: Vec<u32>,
    /// `[start, end)` in characters of the input text; `(0, 0)` for tokens that the post-processor added.
    pub offsets: Vec<(u32, u32)>,
}

/// Counters of the segment cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    pub hits: u64,
    pub misses: u64,
    pub bytes: u64,
    pub entries: u64,
}

/// A tokenizer; immutable but for its cache, shared by threads.
pub struct Tokenizer {}

impl Tokenizer {
    /// Build from the text of tokenizer.json. Truncation and padding written there are ignored, as `AutoTokenizer` does.
    pub fn new(_tokenizer_json: &[u8], _spec: &TokenizerSpec) -> Result<Self> {
        Err(Error::setup("not built yet"))
    }

    /// Which implementation encodes, and why: for logs and `/metrics`.
    pub fn backend(&self) -> &str {
        ""
    }

    pub fn encode(&self, _text: &str, _add_special_tokens: bool, _truncation: Option<Truncation>) -> Result<Vec<u32>> {
        Err(Error::setup("not built yet"))
    }

    /// As [`Self::encode`], with character offsets, in one pass.
    pub fn encode_with_offsets(
        &self,
        _text: &str,
        _add_special_tokens: bool,
        _truncation: Option<Truncation>,
    ) -> Result<Encoding> {
        Err(Error::setup("not built yet"))
    }

    /// Text of ids; ids outside the vocabulary give nothing.
    pub fn decode(&self, _ids: &[u32], _skip_special_tokens: bool) -> Result<String> {
        Err(Error::setup("not built yet"))
    }

    /// The raw vocabulary piece (`Ġworld`), added tokens included.
    pub fn id_to_token(&self, _id: u32) -> Option<String> {
        None
    }

    pub fn token_to_id(&self, _token: &str) -> Option<u32> {
        None
    }

    /// Largest id of the vocabulary, added tokens included.
    pub fn max_token_id(&self) -> u32 {
        0
    }

    /// Characters of the longest vocabulary piece, as it stands in the vocabulary.
    pub fn longest_token_chars(&self) -> usize {
        0
    }

    pub fn cache_stats(&self) -> CacheStats {
        CacheStats::default()
    }
}
