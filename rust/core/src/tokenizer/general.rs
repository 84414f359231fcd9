//! The library that the reference uses, for everything that the fast path leaves out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use serde::de::DeserializeOwned;
use serde_json::Value;

use tokenizers::tokenizer::{Decoder as _, PostProcessor as _, TruncationDirection};
use tokenizers::{AddedToken, ModelWrapper, PostProcessorWrapper, Tokenizer};

use super::decode::Decoder;
use super::post::kept;
use super::{Encoding, Truncation, class};
use crate::error::{Error, Result};
use crate::spec::TokenizerSpec;

pub(super) struct General {
    /// Without truncation, padding and post-processor: what a call asks for must not be state that others see.
    tokenizer: Tokenizer,
    post_processor: Option<PostProcessorWrapper>,
    /// Made when it is first asked for; `None` if the decoder is an unknown one.
    decoder: OnceLock<Option<Decoder>>,
}

/// Sizes of the vocabulary, added tokens included.
pub(super) struct VocabularySizes {
    pub max_id: u32,
    pub longest_chars: usize,
}

impl General {
    pub(super) fn new(tokenizer_json: &[u8], spec: &TokenizerSpec) -> Result<Self> {
        guarded(|| Self::build(tokenizer_json, spec))
            .unwrap_or_else(|| Err(Error::setup("tokenizer.json cannot be used: the library gave up on it")))
    }

    fn build(tokenizer_json: &[u8], spec: &TokenizerSpec) -> Result<Self> {
        let mut tokenizer = Tokenizer::from_bytes(tokenizer_json).map_err(setup)?;
        tokenizer.with_truncation(None).map_err(setup)?;
        tokenizer.with_padding(None);
        if let Some(prepend) = spec.llama_prepend {
            let components = class::llama_components(prepend);
            tokenizer.with_normalizer(None::<tokenizers::NormalizerWrapper>).map_err(setup)?;
            tokenizer.with_pre_tokenizer(Some(component::<tokenizers::PreTokenizerWrapper>(components.pre_tokenizer)?));
            tokenizer.with_decoder(Some(component::<tokenizers::DecoderWrapper>(components.decoder)?));
            if let ModelWrapper::BPE(bpe) = tokenizer.get_model()
                && bpe.unk_token.is_some()
            {
                let mut bpe = bpe.clone();
                bpe.unk_token = None;
                tokenizer.with_model(bpe);
            }
        }
        let added = spec.added_tokens.iter().map(|token| {
            AddedToken::from(token.content.clone(), token.special)
                .single_word(token.single_word)
                .lstrip(token.lstrip)
                .rstrip(token.rstrip)
                .normalized(token.normalized)
        });
        tokenizer.add_tokens(added).map_err(setup)?;
        let post_processor = match class::post_processor(spec, |token| tokenizer.token_to_id(token))? {
            Some(config) => Some(component(config)?),
            None => tokenizer.get_post_processor().cloned(),
        };
        tokenizer.with_post_processor(None::<PostProcessorWrapper>);
        Ok(Self { tokenizer, post_processor, decoder: OnceLock::new() })
    }

    pub(super) fn encode(
        &self,
        text: &str,
        add_special_tokens: bool,
        truncation: Option<Truncation>,
    ) -> Result<Vec<u32>> {
        let encode = || self.tokenizer.encode_fast(text, false);
        Ok(self.process(encode, add_special_tokens, truncation)?.get_ids().to_vec())
    }

    pub(super) fn encode_with_offsets(
        &self,
        text: &str,
        add_special_tokens: bool,
        truncation: Option<Truncation>,
    ) -> Result<Encoding> {
        let encode = || self.tokenizer.encode_char_offsets(text, false);
        let encoding = self.process(encode, add_special_tokens, truncation)?;
        let offset = |&(start, end): &(usize, usize)| {
            (u32::try_from(start).unwrap_or(u32::MAX), u32::try_from(end).unwrap_or(u32::MAX))
        };
        Ok(Encoding { ids: encoding.get_ids().to_vec(), offsets: encoding.get_offsets().iter().map(offset).collect() })
    }

    fn process(
        &self,
        encode: impl FnOnce() -> tokenizers::Result<tokenizers::Encoding>,
        add_special_tokens: bool,
        truncation: Option<Truncation>,
    ) -> Result<tokenizers::Encoding> {
        let run = || {
            let mut encoding = encode().map_err(internal)?;
            let added =
                self.post_processor.as_ref().filter(|_| add_special_tokens).map_or(0, |post| post.added_tokens(false));
            let kept = kept(encoding.len(), added, truncation);
            if kept.len() < encoding.len() {
                let direction = if kept.start > 0 || (kept.is_empty() && is_left(truncation)) {
                    TruncationDirection::Left
                } else {
                    TruncationDirection::Right
                };
                encoding.truncate(kept.len(), 0, direction);
            }
            match &self.post_processor {
                Some(post) => post.process(encoding, None, add_special_tokens).map_err(internal),
                None => Ok(encoding),
            }
        };
        guarded(run).unwrap_or_else(|| Err(Error::Internal { message: "the tokenizer gave up on the text".to_owned() }))
    }

    pub(super) fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String> {
        guarded(|| self.tokenizer.decode(ids, skip_special_tokens).map_err(internal))
            .unwrap_or_else(|| Err(Error::Internal { message: "the tokenizer gave up on the ids".to_owned() }))
    }

    /// The text of vocabulary pieces, in a row.
    pub(super) fn decode_pieces(&self, pieces: Vec<String>) -> Result<String> {
        let decode = || match self.tokenizer.get_decoder() {
            Some(decoder) => decoder.decode(pieces).map_err(internal),
            None => Ok(pieces.join(" ")),
        };
        guarded(decode)
            .unwrap_or_else(|| Err(Error::Internal { message: "the tokenizer gave up on the pieces".to_owned() }))
    }

    /// `limit` is one more than the largest id.
    pub(super) fn decoder(&self, limit: u32) -> Option<&Decoder> {
        let build = || {
            let config = serde_json::to_value(self.tokenizer.get_decoder()?).ok()?;
            let added = self.tokenizer.get_added_tokens_decoder();
            let special: std::collections::HashSet<&str> =
                added.values().filter(|token| token.special).map(|token| token.content.as_str()).collect();
            Decoder::of_pieces(&config, limit, |id| self.tokenizer.id_to_token(id), |piece| special.contains(piece))
        };
        self.decoder.get_or_init(build).as_ref()
    }

    pub(super) fn added_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.get_added_vocabulary().get_vocab().get(token).copied()
    }

    /// The ids of the added tokens, and which are special.
    pub(super) fn added_ids(&self) -> Vec<(u32, bool)> {
        self.tokenizer.get_added_tokens_decoder().into_iter().map(|(id, token)| (id, token.special)).collect()
    }

    pub(super) fn id_to_token(&self, id: u32) -> Option<String> {
        self.tokenizer.id_to_token(id)
    }

    pub(super) fn token_to_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    pub(super) fn sizes(&self) -> VocabularySizes {
        let vocabulary = self.tokenizer.get_vocab(true);
        VocabularySizes {
            max_id: vocabulary.values().copied().max().unwrap_or(0),
            longest_chars: vocabulary.keys().map(|piece| piece.chars().count()).max().unwrap_or(0),
        }
    }
}

fn is_left(truncation: Option<Truncation>) -> bool {
    truncation.is_some_and(|truncation| truncation.side == super::TruncationSide::Left)
}

fn component<T: DeserializeOwned>(config: Value) -> Result<T> {
    serde_json::from_value(config).map_err(|error| Error::setup(format!("a component of the tokenizer: {error}")))
}

/// Run code of the library; `None` if it panics.
fn guarded<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function of the error")]
fn setup(error: tokenizers::Error) -> Error {
    Error::setup(format!("tokenizer.json cannot be used: {error}"))
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function of the error")]
fn internal(error: tokenizers::Error) -> Error {
    Error::Internal { message: format!("tokenizer: {error}") }
}
