//! BPE without the library: the same ids, some fifty times faster.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use serde_json::Value;

use super::added::{AddedTokens, Part};
use super::byte_level::ByteLevelBpe;
use super::characters::CharacterBpe;
use super::decode::Decoder;
use super::file::{ModelFile, TokenizerFile};
use super::merges::{Merges, Scratch};
use super::normalize::{Normalizer, SPACE_MARK, mark_spaces};
use super::post::{Frame, kept};
use super::segment_cache::{MIN_SEGMENT, SegmentCache};
use super::split::Splitter;
use super::turbo::{PROBE, Turbo};
use super::vocabulary::Vocabulary;
use super::{CacheStats, Encoding, Input, Truncation, class};
use crate::spec::{PrependScheme, TokenizerSpec};

/// How a text that holds no added token becomes ids.
enum Model {
    ByteLevel {
        splitter: Splitter,
        bpe: Box<ByteLevelBpe>,
        turbo: Turbo,
    },
    /// The vocabularies that come from `SentencePiece`. `marks` says that the pre-tokenizer, not the normalizer, marks the
    /// spaces.
    Characters {
        bpe: Box<CharacterBpe>,
        marks: Option<PrependScheme>,
    },
}

pub(super) struct Fast {
    vocabulary: Vocabulary,
    added: AddedTokens,
    normalizer: Normalizer,
    model: Model,
    frame: Frame,
    /// Bytes that a token matched on normalized text takes, where that can be said of the token alone.
    normalized_lengths: HashMap<u32, usize>,
    /// `None` if the decoder is left to the library.
    decoder: Option<Decoder>,
    cache: Option<SegmentCache>,
}

impl Fast {
    /// Set up from components that are known to the letter; the reason if one is not.
    pub(super) fn new(mut file: TokenizerFile<'_>, spec: &TokenizerSpec) -> Result<Self, String> {
        if let Some(prepend) = spec.llama_prepend {
            let components = class::llama_components(prepend);
            file.normalizer = Value::Null;
            file.pre_tokenizer = components.pre_tokenizer;
            file.decoder = components.decoder;
        }
        check_model(&file.model)?;
        let normalizer = Normalizer::new(&file.normalizer)?;
        let entries = file.model.vocab.0.iter().map(|(piece, id)| (piece.as_ref(), *id));
        let vocabulary = Vocabulary::new(entries).ok_or("the vocabulary names an id or a piece twice")?;
        let pairs = file.model.merges.iter().map(|merge| (merge.0.as_ref(), merge.1.as_ref()));
        let merges = Merges::new(pairs, &vocabulary).ok_or("a merge names a piece that is not in the vocabulary")?;
        let model = if file.model.byte_fallback {
            let marks = marks(&file.pre_tokenizer, &normalizer)?;
            Model::Characters { bpe: Box::new(CharacterBpe::new(&vocabulary, merges)?), marks }
        } else {
            if matches!(normalizer, Normalizer::Spaces { .. }) {
                return Err("byte-level pieces have no marks for spaces".to_owned());
            }
            if file.model.unk_token.is_some() {
                return Err("bytes may be unknown".to_owned());
            }
            let splitter = Splitter::byte_level(&file.pre_tokenizer)?;
            Model::ByteLevel {
                splitter,
                bpe: Box::new(ByteLevelBpe::new(&vocabulary, merges, file.model.ignore_merges)?),
                turbo: Turbo::default(),
            }
        };
        let id = |piece: &str| vocabulary.id(piece);
        let added = AddedTokens::new(file.added_tokens, &spec.added_tokens, vocabulary.len(), id, &normalizer)?;
        let token = |token: &str| added.id(token).or_else(|| vocabulary.id(token));
        let post_processor = class::post_processor(spec, token).map_err(|error| error.to_string())?;
        let frame = Frame::new(&post_processor.unwrap_or(file.post_processor))?;
        let decoder = Decoder::new(&file.decoder, &vocabulary, &added, &normalizer);
        let normalized_lengths = added
            .iter()
            .filter(|token| token.normalized && !token.lstrip && !token.rstrip)
            .map(|token| (token.id, token.content.len()))
            .collect();
        let cache = SegmentCache::new(spec.cache_bytes);
        Ok(Self { vocabulary, added, normalizer, model, frame, normalized_lengths, decoder, cache })
    }

    pub(super) fn name(&self) -> &'static str {
        match self.model {
            Model::ByteLevel { .. } => "byte-level BPE",
            Model::Characters { .. } => "BPE with byte fallback",
        }
    }

    /// Begin to load the faster encoder, for models that it can serve.
    pub(super) fn start_turbo(&self, tokenizer_json: &Arc<[u8]>) {
        if let Model::ByteLevel { splitter, bpe, turbo } = &self.model {
            let mut expected = Vec::new();
            encode_words(splitter, bpe, PROBE, &mut Scratch::default(), &mut expected);
            turbo.start(Arc::clone(tokenizer_json), expected);
        }
    }

    /// Wait for the faster encoder; whether there is one.
    pub(super) fn finish_loading(&self) -> bool {
        matches!(&self.model, Model::ByteLevel { turbo, .. } if turbo.wait())
    }

    pub(super) fn encode(
        &self,
        input: Input<'_>,
        add_special_tokens: bool,
        truncation: Option<Truncation>,
    ) -> Vec<u32> {
        let Input { text, plain } = input;
        let mut ids = Vec::with_capacity(text.len() / 3 + 8);
        if add_special_tokens {
            ids.extend_from_slice(&self.frame.before);
        }
        let first = ids.len();
        let mut scratch = Scratch::default();
        for part in self.added.split_raw(text, plain) {
            match part {
                Part::Token { id, .. } => ids.push(id),
                Part::Text { start, end } => self.segment(input, start..end, &mut scratch, &mut ids),
            }
        }
        let added = if add_special_tokens { self.frame.len() } else { 0 };
        let kept = kept(ids.len() - first, added, truncation);
        ids.truncate(first + kept.end);
        ids.drain(first..first + kept.start);
        if add_special_tokens {
            ids.extend_from_slice(&self.frame.after);
        }
        ids
    }

    /// `None` if the library must find the offsets: where normalization changes the text, where pieces are not bytes of
    /// it, or where the post-processor moves them.
    pub(super) fn encode_with_offsets(
        &self,
        input: Input<'_>,
        add_special_tokens: bool,
        truncation: Option<Truncation>,
    ) -> Option<Encoding> {
        let Input { text, plain } = input;
        let Model::ByteLevel { bpe, .. } = &self.model else { return None };
        if self.frame.trims_offsets || !self.normalizer.keeps(text) {
            return None;
        }
        let mut scratch = Scratch::default();
        let mut encoding = Encoding::default();
        let mut position = Position { bytes: text.as_bytes(), at: 0, begun: 0 };
        for part in self.added.split_raw(text, plain) {
            match part {
                Part::Token { id, start, end } => {
                    if start < position.at {
                        return None;
                    }
                    encoding.ids.push(id);
                    encoding.offsets.push(position.advance(end));
                }
                Part::Text { start, end } => {
                    let first = encoding.ids.len();
                    self.segment(input, start..end, &mut scratch, &mut encoding.ids);
                    for &id in &encoding.ids[first..] {
                        let length = match self.normalized_lengths.get(&id) {
                            Some(&length) => length,
                            None => bpe.piece(id)?.len(),
                        };
                        encoding.offsets.push(position.advance(position.at + length));
                    }
                    if position.at != end {
                        return None;
                    }
                }
            }
        }
        let added = if add_special_tokens { self.frame.len() } else { 0 };
        let kept = kept(encoding.ids.len(), added, truncation);
        let (before, after) =
            if add_special_tokens { (&self.frame.before[..], &self.frame.after[..]) } else { (&[][..], &[][..]) };
        let ids = [before, &encoding.ids[kept.clone()], after].concat();
        let no_place = |count| std::iter::repeat_n((0, 0), count);
        let offsets =
            no_place(before.len()).chain(encoding.offsets[kept].iter().copied()).chain(no_place(after.len())).collect();
        Some(Encoding { ids, offsets })
    }

    /// `None` if the decoder is left to the library.
    pub(super) fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Option<String> {
        Some(self.decoder.as_ref()?.decode(ids, skip_special_tokens))
    }

    /// `None` if it is left to the library.
    pub(super) fn decoder(&self) -> Option<&Decoder> {
        self.decoder.as_ref()
    }

    pub(super) fn added_id(&self, token: &str) -> Option<u32> {
        self.added.id(token)
    }

    /// The added tokens' texts, and which are special.
    pub(super) fn added_tokens(&self) -> impl Iterator<Item = (&str, bool)> + Clone {
        self.added.iter().map(|token| (token.content.as_str(), token.special))
    }

    /// The ids of the added tokens, and which are special.
    pub(super) fn added_ids(&self) -> Vec<(u32, bool)> {
        self.added.iter().map(|token| (token.id, token.special)).collect()
    }

    pub(super) fn id_to_token(&self, id: u32) -> Option<String> {
        let respelled = self.decoder.as_ref().and_then(|decoder| decoder.respelled(id));
        let added = || self.added.iter().find(|token| token.id == id).map(|token| token.content.as_str());
        respelled.or_else(|| self.vocabulary.piece(id)).or_else(added).map(str::to_owned)
    }

    pub(super) fn token_to_id(&self, token: &str) -> Option<u32> {
        self.added.id(token).or_else(|| self.vocabulary.id(token))
    }

    pub(super) fn max_id(&self) -> u32 {
        let own = u32::try_from(self.vocabulary.limit().saturating_sub(1)).unwrap_or(u32::MAX);
        self.added.iter().map(|token| token.id).fold(own, u32::max)
    }

    pub(super) fn longest_chars(&self) -> usize {
        self.added.iter().map(|token| token.content.chars().count()).fold(self.vocabulary.longest(), usize::max)
    }

    pub(super) fn cache_stats(&self) -> CacheStats {
        self.cache.as_ref().map(SegmentCache::stats).unwrap_or_default()
    }

    /// Append the ids of a text between added tokens, `range` of the input.
    fn segment(&self, input: Input<'_>, range: Range<usize>, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        let (text, start) = (&input.text[range.clone()], range.start);
        // Whether a segment begins the input matters for one way to mark spaces only.
        let begins_input =
            start == 0 && matches!(self.model, Model::Characters { marks: Some(PrependScheme::First), .. });
        if input.plain.iter().any(|plain| plain.start < range.end && range.start < plain.end) {
            return self.encode_with_plain(input, range, begins_input, scratch, ids);
        }
        match &self.cache {
            Some(cache) if text.len() >= MIN_SEGMENT => {
                cache.get_or_encode(text, begins_input, ids, |ids| {
                    self.encode_segment(text, begins_input, scratch, ids);
                });
            }
            _ => self.encode_segment(text, begins_input, scratch, ids),
        }
    }

    fn encode_segment(&self, text: &str, begins_input: bool, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        let text = self.normalizer.normalize(text);
        if !self.added.has_normalized() {
            return self.encode_plain(&text, begins_input, scratch, ids);
        }
        for part in self.added.split_normalized(&text, &[]) {
            match part {
                Part::Token { id, .. } => ids.push(id),
                Part::Text { start, end } => {
                    self.encode_plain(&text[start..end], begins_input && start == 0, scratch, ids);
                }
            }
        }
    }

    /// As `encode_segment`, for a segment with ranges in which no added token is to be found. The cache and the faster
    /// encoder know segments by their text alone, and are passed by.
    fn encode_with_plain(
        &self,
        input: Input<'_>,
        range: Range<usize>,
        begins_input: bool,
        scratch: &mut Scratch,
        ids: &mut Vec<u32>,
    ) {
        let (mut text, mut plain) = (String::with_capacity(range.len()), Vec::new());
        let mut done = range.start;
        for part in input.plain.iter().filter(|part| part.start < range.end && range.start < part.end) {
            let part = part.start.max(range.start)..part.end.min(range.end);
            text.push_str(&self.normalizer.normalize(&input.text[done..part.start]));
            let start = text.len();
            text.push_str(&self.normalizer.normalize(&input.text[part.clone()]));
            plain.push(start..text.len());
            done = part.end;
        }
        text.push_str(&self.normalizer.normalize(&input.text[done..range.end]));
        for part in self.added.split_normalized(&text, &plain) {
            match part {
                Part::Token { id, .. } => ids.push(id),
                Part::Text { start, end } => match &self.model {
                    Model::ByteLevel { splitter, bpe, .. } => {
                        encode_words(splitter, bpe, &text[start..end], scratch, ids);
                    }
                    Model::Characters { .. } => {
                        self.encode_plain(&text[start..end], begins_input && start == 0, scratch, ids);
                    }
                },
            }
        }
    }

    fn encode_plain(&self, text: &str, begins_input: bool, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        match &self.model {
            Model::ByteLevel { splitter, bpe, turbo } => {
                if !turbo.encode(text, ids) {
                    encode_words(splitter, bpe, text, scratch, ids);
                }
            }
            Model::Characters { bpe, marks: None } => bpe.encode(text, scratch, ids),
            Model::Characters { bpe, marks: Some(scheme) } => {
                let wanted = match scheme {
                    PrependScheme::First => begins_input,
                    PrependScheme::Always => true,
                    PrependScheme::Never => false,
                };
                let has_mark = text.starts_with(' ') || text.starts_with(SPACE_MARK);
                bpe.encode(&mark_spaces(text, wanted && !has_mark), scratch, ids);
            }
        }
    }
}

fn encode_words(splitter: &Splitter, bpe: &ByteLevelBpe, text: &str, scratch: &mut Scratch, ids: &mut Vec<u32>) {
    let bytes = text.as_bytes();
    splitter.split(bytes, &mut |start, end| bpe.encode(bytes, start, end, scratch, ids));
}

/// A place in a text, counted in bytes and in characters.
struct Position<'t> {
    bytes: &'t [u8],
    at: usize,
    /// Characters that begin before `at`.
    begun: u32,
}

impl Position<'_> {
    /// Go on to byte `end`; the characters that the stretch touches.
    fn advance(&mut self, end: usize) -> (u32, u32) {
        let is_start = |byte: u8| byte & 0xC0 != 0x80;
        let stretch = self.bytes.get(self.at..end).unwrap_or_default();
        let start = self.begun - u32::from(stretch.first().is_some_and(|&byte| !is_start(byte)));
        let starts = stretch.iter().filter(|&&byte| is_start(byte)).count();
        self.begun += u32::try_from(starts).unwrap_or(u32::MAX);
        self.at = end;
        (start, self.begun)
    }
}

fn check_model(model: &ModelFile<'_>) -> Result<(), String> {
    let is_empty = |affix: &Option<String>| affix.as_deref().unwrap_or_default().is_empty();
    if model.kind.as_deref() != Some("BPE") {
        return Err(format!("the model is `{}`, not BPE", model.kind.as_deref().unwrap_or("untyped")));
    }
    if model.dropout.is_some_and(|dropout| dropout != 0.0) {
        return Err("the model drops merges at random".to_owned());
    }
    if !is_empty(&model.continuing_subword_prefix) || !is_empty(&model.end_of_word_suffix) {
        return Err("the model puts affixes on pieces".to_owned());
    }
    if model.byte_fallback && model.ignore_merges {
        return Err("the model looks up whole texts".to_owned());
    }
    Ok(())
}

/// How the pre-tokenizer of a model with byte fallback marks spaces; the reason if it is an unknown one.
fn marks(config: &Value, normalizer: &Normalizer) -> Result<Option<PrependScheme>, String> {
    let marks_spaces = matches!(normalizer, Normalizer::Spaces { .. });
    match config["type"].as_str() {
        None if config.is_null() => Ok(None),
        // Once the normalizer has marked the spaces there are none to split at.
        Some("Split") if marks_spaces && config["pattern"]["String"] == " " => Ok(None),
        Some("Metaspace")
            if matches!(normalizer, Normalizer::Identity)
                && config["replacement"] == SPACE_MARK
                && config["split"] == false =>
        {
            match config["prepend_scheme"].as_str() {
                Some("first") => Ok(Some(PrependScheme::First)),
                Some("always") => Ok(Some(PrependScheme::Always)),
                Some("never") => Ok(Some(PrependScheme::Never)),
                _ => Err("the pre-tokenizer does not say when it prepends".to_owned()),
            }
        }
        _ => Err("the pre-tokenizer is not a known one".to_owned()),
    }
}
