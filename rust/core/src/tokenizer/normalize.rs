//! Normalization as `tokenizers` does it, for the normalizers that generating models have.

use std::borrow::Cow;

use serde_json::Value;
use unicode_normalization_alignments::char::canonical_combining_class;
use unicode_normalization_alignments::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// What a space becomes in vocabularies that come from `SentencePiece`.
pub(super) const SPACE_MARK: &str = "\u{2581}";

/// Below this, every character is in NFC whatever is around it.
const FIRST_MARK: u32 = 0x300;
/// Above this, characters are rare enough to be checked by normalizing.
const TABLE_END: u32 = 0x3_0000;

/// Bytes that are looked at together.
const CHUNK: usize = 64;

/// A normalizer that is known to the letter.
pub(super) enum Normalizer {
    Identity,
    Nfc(NfcTable),
    /// Spaces become marks; `prepend` puts a mark in front.
    Spaces {
        prepend: bool,
    },
}

impl Normalizer {
    /// Read `normalizer` of tokenizer.json; the reason if it is an unknown one.
    pub(super) fn new(config: &Value) -> Result<Self, String> {
        let steps = match config["type"].as_str() {
            Some("Sequence") => config["normalizers"].as_array().map_or(&[][..], Vec::as_slice),
            Some(_) => std::slice::from_ref(config),
            None if config.is_null() => &[],
            None => return Err("the normalizer has no type".to_owned()),
        };
        let is_prepend = |step: &Value| step["type"] == "Prepend" && step["prepend"] == SPACE_MARK;
        let is_replace = |step: &Value| {
            step["type"] == "Replace" && step["pattern"]["String"] == " " && step["content"] == SPACE_MARK
        };
        match steps {
            [] => Ok(Self::Identity),
            [step] if step["type"] == "NFC" => Ok(Self::Nfc(NfcTable::new())),
            [step] if is_replace(step) => Ok(Self::Spaces { prepend: false }),
            [first, second] if is_prepend(first) && is_replace(second) => Ok(Self::Spaces { prepend: true }),
            _ => Err("the normalizer is not a known one".to_owned()),
        }
    }

    pub(super) fn normalize<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self {
            Self::Identity => Cow::Borrowed(text),
            Self::Nfc(table) if table.is_normal(text) => Cow::Borrowed(text),
            Self::Nfc(_) => Cow::Owned(text.nfc().map(|(c, _)| c).collect()),
            Self::Spaces { prepend } => Cow::Owned(mark_spaces(text, *prepend)),
        }
    }

    /// Whether normalizing surely leaves the text as it is.
    pub(super) fn keeps(&self, text: &str) -> bool {
        match self {
            Self::Identity => true,
            Self::Nfc(table) => table.is_normal(text),
            Self::Spaces { .. } => false,
        }
    }
}

/// The text with marks for spaces, and one more in front if asked (unless there is no text).
pub(super) fn mark_spaces(text: &str, prepend: bool) -> String {
    let mut marked = String::with_capacity(text.len() + text.len() / 2 + SPACE_MARK.len());
    if prepend && !text.is_empty() {
        marked.push_str(SPACE_MARK);
    }
    let mut rest = text;
    while let Some(at) = memchr::memchr(b' ', rest.as_bytes()) {
        marked.push_str(&rest[..at]);
        marked.push_str(SPACE_MARK);
        rest = &rest[at + 1..];
    }
    marked.push_str(rest);
    marked
}

/// The first place at or behind `at` where a character begins or the text ends.
fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// What NFC's quick check needs to know of each character: its combining class, or that it may change.
pub(super) struct NfcTable {
    /// One byte for each code point from `FIRST_MARK` to `TABLE_END`.
    classes: Vec<u8>,
}

/// Stands for a character that NFC may change or compose with the one before.
const MAY_CHANGE: u8 = u8::MAX;

impl NfcTable {
    fn new() -> Self {
        let class = |code| match char::from_u32(code) {
            Some(c) if matches!(is_nfc_quick(std::iter::once(c)), IsNormalized::Yes) => canonical_combining_class(c),
            _ => MAY_CHANGE,
        };
        Self { classes: (FIRST_MARK..TABLE_END).map(class).collect() }
    }

    /// Whether the text surely is in NFC: no character may change, and marks stand in the order of their classes.
    fn is_normal(&self, text: &str) -> bool {
        // Lead bytes below 0xCC begin characters below U+0300, and most of a text is made of them.
        let bytes = text.as_bytes();
        let mut last = 0;
        (0..bytes.len()).step_by(CHUNK).all(|start| {
            let end = bytes.len().min(start + CHUNK);
            if bytes[start..end].iter().fold(0, |most, &byte| byte.max(most)) < 0xCC {
                last = 0;
                return true;
            }
            let (start, end) = (boundary(text, start), boundary(text, end));
            text[start..end].chars().all(|c| {
                let class = match u32::from(c) {
                    ..FIRST_MARK => 0,
                    code => self.classes.get((code - FIRST_MARK) as usize).copied().unwrap_or(MAY_CHANGE),
                };
                let in_order = class == 0 || class >= last;
                last = class;
                in_order && class != MAY_CHANGE
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nfc_composes_as_of_unicode_9() {
        let nfc = Normalizer::new(&json!({"type": "NFC"})).unwrap();
        assert_eq!(nfc.normalize("e\u{301} \u{1112}\u{1161}\u{11ab}"), "é 한");
        assert!(nfc.keeps("plain é 中文 한국어"));
        assert!(nfc.keeps("परीक्षण सफल"), "a virama has a class, and changes nothing");
        assert!(!nfc.keeps("e\u{301}"));
        assert!(!nfc.keeps("क\u{94d}\u{93c}"), "marks out of order");
        // U+1DF6 came with Unicode 10 (class 232): older tables do not move it behind U+0323.
        assert_eq!(nfc.normalize("x\u{1df6}\u{323}"), "x\u{1df6}\u{323}");
    }

    #[test]
    fn every_code_point_that_the_table_passes_is_normal() {
        let table = NfcTable::new();
        for c in (0..0x11_0000).filter_map(char::from_u32) {
            let text = format!("a{c}\u{315}");
            if table.is_normal(&text) {
                assert_eq!(text.nfc().map(|(c, _)| c).collect::<String>(), text, "U+{:04X}", u32::from(c));
            }
        }
    }

    #[test]
    fn spaces_become_marks() {
        let spaces = Normalizer::new(&json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]}))
        .unwrap();
        assert_eq!(spaces.normalize("a  b "), "▁a▁▁b▁");
        assert_eq!(spaces.normalize(""), "");
    }
}
