//! Text to token ids and back, equal to Hugging Face `tokenizers` 0.23 in every id.
//!
//! Two implementations stand behind [`Tokenizer`]. The fast one knows BPE with the components that generating models
//! have, and is taken only where every component of tokenizer.json is one that was compared with the library. The
//! library itself serves all other tokenizers, and what the fast one leaves out.

mod added;
mod byte_level;
mod characters;
mod class;
pub(crate) mod decode;
mod fast;
mod file;
mod general;
mod merges;
mod normalize;
mod post;
mod scanner;
mod segment_cache;
mod split;
#[cfg(test)]
mod tests;
mod turbo;
mod vocabulary;
mod whole_words;
mod word_cache;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use self::decode::Decoder;
use self::fast::Fast;
use self::file::TokenizerFile;
use self::general::General;
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

/// A text to encode.
#[derive(Debug, Clone, Copy)]
pub struct Input<'t> {
    pub text: &'t str,
    /// Byte ranges, ascending, that no added token may touch: there the text is plain text, whatever it spells.
    pub plain: &'t [Range<usize>],
}

impl<'t> From<&'t str> for Input<'t> {
    fn from(text: &'t str) -> Self {
        Self { text, plain: &[] }
    }
}

impl<'t> From<&'t String> for Input<'t> {
    fn from(text: &'t String) -> Self {
        text.as_str().into()
    }
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

/// A tokenizer; immutable but for its caches, shared by threads.
pub struct Tokenizer {
    implementation: Implementation,
    backend: String,
    max_id: u32,
    longest_chars: usize,
    leading_mark: Option<char>,
}

enum Implementation {
    Fast(Box<FastWithLibrary>),
    General(Box<General>),
}

struct FastWithLibrary {
    fast: Fast,
    /// Built when it is first needed, from the file that is kept for it.
    library: OnceLock<Result<General>>,
    source: Arc<[u8]>,
    spec: TokenizerSpec,
}

impl Tokenizer {
    /// Build from the text of tokenizer.json. Truncation and padding written there are ignored: they are what one call
    /// asked for, not part of the tokenizer.
    pub fn new(tokenizer_json: &[u8], spec: &TokenizerSpec) -> Result<Self> {
        let tokenizer = Self::early(tokenizer_json, spec)?;
        if let Implementation::Fast(own) = &tokenizer.implementation {
            own.fast.start_turbo(&own.source);
        }
        Ok(tokenizer)
    }

    /// As [`Self::new`], without what is loaded in the background.
    fn early(tokenizer_json: &[u8], spec: &TokenizerSpec) -> Result<Self> {
        let file = serde_json::from_slice::<TokenizerFile>(tokenizer_json);
        let leading_mark = file.as_ref().ok().and_then(|file| leading_mark(&file.pre_tokenizer, spec));
        match file.map_err(|error| error.to_string()).and_then(|file| Fast::new(file, spec)) {
            Ok(fast) => Ok(Self {
                leading_mark,
                backend: format!("fast: {}", fast.name()),
                max_id: fast.max_id(),
                longest_chars: fast.longest_chars(),
                implementation: Implementation::Fast(Box::new(FastWithLibrary {
                    fast,
                    library: OnceLock::new(),
                    source: tokenizer_json.into(),
                    spec: spec.clone(),
                })),
            }),
            Err(reason) => {
                let mut general = Self::general(tokenizer_json, spec)?;
                general.backend = format!("tokenizers: {reason}");
                Ok(general)
            }
        }
    }

    /// As [`Self::new`], by the library alone, which is what the fast implementation is compared with.
    pub fn general(tokenizer_json: &[u8], spec: &TokenizerSpec) -> Result<Self> {
        let general = General::new(tokenizer_json, spec)?;
        let sizes = general.sizes();
        let file = serde_json::from_slice::<TokenizerFile>(tokenizer_json);
        Ok(Self {
            leading_mark: file.ok().and_then(|file| leading_mark(&file.pre_tokenizer, spec)),
            implementation: Implementation::General(Box::new(general)),
            backend: "tokenizers".to_owned(),
            max_id: sizes.max_id,
            longest_chars: sizes.longest_chars,
        })
    }

    /// Wait until all that is loaded in the background is there; whether the fastest encoder is among it.
    pub fn finish_loading(&self) -> bool {
        match &self.implementation {
            Implementation::Fast(own) => own.fast.finish_loading(),
            Implementation::General(_) => false,
        }
    }

    /// Whether an implementation of our own encodes, and not the library alone.
    pub fn is_fast(&self) -> bool {
        matches!(self.implementation, Implementation::Fast(_))
    }

    /// Which implementation encodes, and why: for logs and `/metrics`.
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Ids of a text. With `add_special_tokens` the post-processor's tokens are put around them. A bound below the
    /// number of these keeps the text whole, as the library does.
    pub fn encode<'t>(
        &self,
        input: impl Into<Input<'t>>,
        add_special_tokens: bool,
        truncation: Option<Truncation>,
    ) -> Result<Vec<u32>> {
        let input = input.into();
        match &self.implementation {
            Implementation::Fast(own) => Ok(own.fast.encode(input, add_special_tokens, truncation)),
            Implementation::General(general) => general.encode(unescaped(input)?, add_special_tokens, truncation),
        }
    }

    /// As [`Self::encode`], with character offsets, in one pass.
    pub fn encode_with_offsets<'t>(
        &self,
        input: impl Into<Input<'t>>,
        add_special_tokens: bool,
        truncation: Option<Truncation>,
    ) -> Result<Encoding> {
        let input = input.into();
        if let Implementation::Fast(own) = &self.implementation
            && let Some(encoding) = own.fast.encode_with_offsets(input, add_special_tokens, truncation)
        {
            return Ok(encoding);
        }
        self.library()?.encode_with_offsets(unescaped(input)?, add_special_tokens, truncation)
    }

    /// Text of ids; ids outside the vocabulary give nothing.
    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String> {
        if let Implementation::Fast(own) = &self.implementation
            && let Some(text) = own.fast.decode(ids, skip_special_tokens)
        {
            return Ok(text);
        }
        self.library()?.decode(ids, skip_special_tokens)
    }

    /// The table from ids to text; `None` if the library alone knows how pieces become text.
    pub(crate) fn decoder(&self) -> Option<&Decoder> {
        match &self.implementation {
            Implementation::Fast(own) => own.fast.decoder(),
            Implementation::General(general) => general.decoder(self.max_id.saturating_add(1)),
        }
    }

    /// The text of vocabulary pieces in a row, as the library's decoder makes it.
    pub(crate) fn decode_pieces(&self, pieces: Vec<String>) -> Result<String> {
        self.library()?.decode_pieces(pieces)
    }

    /// The added tokens' texts, and which are special, where [`Input::plain`] can be heeded.
    pub(crate) fn escapable_tokens(&self) -> Option<impl Iterator<Item = (&str, bool)> + Clone> {
        match &self.implementation {
            Implementation::Fast(own) => Some(own.fast.added_tokens()),
            Implementation::General(_) => None,
        }
    }

    /// The ids of the added tokens, and which are special.
    pub(crate) fn added_ids(&self) -> Vec<(u32, bool)> {
        match &self.implementation {
            Implementation::Fast(own) => own.fast.added_ids(),
            Implementation::General(general) => general.added_ids(),
        }
    }

    /// The id of an added token.
    pub(crate) fn added_id(&self, token: &str) -> Option<u32> {
        match &self.implementation {
            Implementation::Fast(own) => own.fast.added_id(token),
            Implementation::General(general) => general.added_id(token),
        }
    }

    /// What marks a space in front of a piece, where decoding a piece alone loses it.
    pub(crate) fn leading_mark(&self) -> Option<char> {
        self.leading_mark
    }

    /// The raw vocabulary piece (`Ġworld`), added tokens included.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        match &self.implementation {
            Implementation::Fast(own) => own.fast.id_to_token(id),
            Implementation::General(general) => general.id_to_token(id),
        }
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        match &self.implementation {
            Implementation::Fast(own) => own.fast.token_to_id(token),
            Implementation::General(general) => general.token_to_id(token),
        }
    }

    /// Largest id of the vocabulary, added tokens included.
    pub fn max_token_id(&self) -> u32 {
        self.max_id
    }

    /// Characters of the longest vocabulary piece, as it stands in the vocabulary.
    pub fn longest_token_chars(&self) -> usize {
        self.longest_chars
    }

    /// All zero where the library encodes: it has no segment cache.
    pub fn cache_stats(&self) -> CacheStats {
        match &self.implementation {
            Implementation::Fast(own) => own.fast.cache_stats(),
            Implementation::General(_) => CacheStats::default(),
        }
    }

    fn library(&self) -> Result<&General> {
        match &self.implementation {
            Implementation::Fast(own) => {
                own.library.get_or_init(|| General::new(&own.source, &own.spec)).as_ref().map_err(Error::clone)
            }
            Implementation::General(general) => Ok(general),
        }
    }
}

/// The text for the library, which finds added tokens wherever they are spelled.
fn unescaped(input: Input<'_>) -> Result<&str> {
    if !input.plain.is_empty() {
        return Err(Error::bad_param(
            "return_token_offsets",
            "the offsets of this prompt cannot be told: it holds escaped control tokens",
        ));
    }
    Ok(input.text)
}

/// The mark of a pre-tokenizer that puts one in front of a text, and whose decoder takes it away again.
fn leading_mark(pre_tokenizer: &serde_json::Value, spec: &TokenizerSpec) -> Option<char> {
    if spec.llama_prepend.is_some() {
        return normalize::SPACE_MARK.chars().next();
    }
    let metaspace = |config: &serde_json::Value| {
        (config["type"] == "Metaspace")
            .then(|| config["replacement"].as_str().unwrap_or(normalize::SPACE_MARK).chars().next())
    };
    let steps = pre_tokenizer["pretokenizers"].as_array().map(Vec::as_slice).unwrap_or_default();
    metaspace(pre_tokenizer).or_else(|| steps.iter().find_map(metaspace)).flatten()
}
