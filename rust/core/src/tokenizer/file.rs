//! tokenizer.json, read with its vocabulary borrowed.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::spec::AddedTokenSpec;

/// What of tokenizer.json bears on ids and text. Truncation and padding are left out on purpose.
#[derive(Deserialize)]
pub(super) struct TokenizerFile<'a> {
    #[serde(default)]
    pub added_tokens: Vec<AddedTokenSpec>,
    #[serde(default)]
    pub normalizer: Value,
    #[serde(default)]
    pub pre_tokenizer: Value,
    #[serde(default)]
    pub post_processor: Value,
    #[serde(default)]
    pub decoder: Value,
    #[serde(borrow)]
    pub model: ModelFile<'a>,
}

#[derive(Deserialize)]
pub(super) struct ModelFile<'a> {
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    #[serde(default)]
    pub dropout: Option<f32>,
    #[serde(default)]
    pub unk_token: Option<String>,
    #[serde(default)]
    pub continuing_subword_prefix: Option<String>,
    #[serde(default)]
    pub end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub byte_fallback: bool,
    #[serde(default)]
    pub ignore_merges: bool,
    #[serde(borrow)]
    pub vocab: VocabularyFile<'a>,
    #[serde(borrow, default)]
    pub merges: Vec<MergeFile<'a>>,
}

/// A vocabulary from pieces to ids; empty for models that have scores instead.
pub(super) struct VocabularyFile<'a>(pub Vec<(Cow<'a, str>, u32)>);

/// Left and right piece of a merge.
pub(super) struct MergeFile<'a>(pub Cow<'a, str>, pub Cow<'a, str>);

/// A string, borrowed where it has no escapes.
struct Text<'a>(Cow<'a, str>);

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct VocabularyVisitor;

impl<'de> Visitor<'de> for VocabularyVisitor {
    type Value = VocabularyFile<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a vocabulary")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((Text(piece), id)) = map.next_entry()? {
            entries.push((piece, id));
        }
        Ok(VocabularyFile(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(VocabularyFile(Vec::new()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for VocabularyFile<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VocabularyVisitor)
    }
}

struct MergeVisitor;

impl<'de> Visitor<'de> for MergeVisitor {
    type Value = MergeFile<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a merge: `left right`, or both in a list")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        let (left, right) = text.split_once(' ').ok_or_else(|| E::custom("a merge without a space"))?;
        Ok(MergeFile(Cow::Borrowed(left), Cow::Borrowed(right)))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        let (left, right) = text.split_once(' ').ok_or_else(|| E::custom("a merge without a space"))?;
        Ok(MergeFile(Cow::Owned(left.to_owned()), Cow::Owned(right.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut piece = || seq.next_element::<Text>()?.ok_or_else(|| A::Error::custom("a merge without two pieces"));
        let (Text(left), Text(right)) = (piece()?, piece()?);
        Ok(MergeFile(left, right))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for MergeFile<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MergeVisitor)
    }
}
