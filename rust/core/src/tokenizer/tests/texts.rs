//! Texts that tokenizers stumble over.

use proptest::prelude::*;

/// Words, marks and look-alikes: contractions with long s and the Kelvin sign, emoji sequences, decomposed letters and
/// syllables, digits of several scripts, vocabulary alphabets taken literally, halves of special tokens.
const WORDS: &[&str] = &[
    "'s",
    "'S",
    "'ll",
    "'LL",
    "'\u{17f}",
    "\u{2019}s",
    "'re",
    "\u{212a}",
    "'t",
    "'d",
    "İ",
    "ß",
    "👩‍👩‍👧‍👦",
    "🏳️‍🌈",
    "🇩🇪",
    "é",
    "e\u{301}",
    "a\u{308}\u{323}",
    "한국어",
    "\u{1112}\u{1161}\u{11ab}",
    "日本語",
    "中文字符",
    "العربية",
    "हिन्दी",
    "ไทย",
    "123",
    "1234567",
    "٣٤٥",
    "½",
    "Ⅷ",
    "²",
    "〇",
    "x",
    "Hello",
    "WORLD",
    "camelCase",
    "HTTPServer",
    "foo_bar",
    "//",
    "/*",
    "===",
    "...",
    "-->",
    "{\"a\":",
    "▁",
    "▁▁",
    "<0x0A>",
    "<0xE4>",
    "Ġ",
    "Ċ",
    "<",
    "<|",
    "|>",
    "</",
    "\u{fffd}",
    "\u{10ffff}",
    "\u{e000}",
    "ﬁ",
    "\u{212b}",
    "\u{344}",
    "\u{958}",
    "the",
    "of a",
    "to",
    "in",
];

const SPACES: &[char] = &[
    ' ', ' ', ' ', '\t', '\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{a0}', '\u{1680}', '\u{2003}', '\u{2028}',
    '\u{2029}', '\u{202f}', '\u{3000}', '\u{200b}', '\u{feff}', '\0', '\u{1f}',
];

/// Combining marks, those of Unicode 10 and later among them: NFC of the library does not know their classes.
const MARKS: &[char] = &[
    '\u{300}',
    '\u{301}',
    '\u{308}',
    '\u{323}',
    '\u{327}',
    '\u{338}',
    '\u{345}',
    '\u{34f}',
    '\u{5b0}',
    '\u{64b}',
    '\u{93c}',
    '\u{9be}',
    '\u{1161}',
    '\u{11a8}',
    '\u{3099}',
    '\u{1d165}',
    '\u{7fd}',
    '\u{898}',
    '\u{d3b}',
    '\u{1df6}',
    '\u{1df9}',
    '\u{10d24}',
    '\u{11935}',
    '\u{11930}',
    '\u{1e2ae}',
    '\u{1e4ef}',
];

fn any_char() -> impl Strategy<Value = char> {
    prop_oneof![
        4 => prop::char::range(' ', '~'),
        1 => prop::char::range('\0', '\u{ff}'),
        1 => prop::char::range('\0', '\u{7ff}'),
        2 => prop::char::range('\0', '\u{ffff}'),
        1 => prop::char::range('\u{10000}', '\u{1ffff}'),
        1 => any::<char>(),
    ]
}

fn piece(specials: Vec<String>) -> impl Strategy<Value = String> {
    let spaces = prop::collection::vec(prop::sample::select(SPACES), 1..6).prop_map(String::from_iter);
    let marked = (any_char(), prop::collection::vec(prop::sample::select(MARKS), 1..5))
        .prop_map(|(base, marks)| std::iter::once(base).chain(marks).collect());
    let cut = (prop::sample::select(specials.clone()), 0..8_usize)
        .prop_map(|(special, cut)| special.chars().skip(cut / 4).take(cut * 2).collect());
    prop_oneof![
        3 => prop::sample::select(WORDS).prop_map(str::to_owned),
        2 => spaces,
        2 => prop::collection::vec(any_char(), 1..8).prop_map(String::from_iter),
        1 => "[a-zA-Z]{1,12}",
        1 => "[0-9]{1,9}",
        1 => marked,
        2 => prop::sample::select(specials),
        1 => cut,
        1 => (any_char(), 1..90_usize).prop_map(|(c, times)| c.to_string().repeat(times)),
    ]
}

/// Texts with a tokenizer's own added tokens, whole and in part, among other things.
pub(super) fn text(specials: &[String]) -> impl Strategy<Value = String> + use<> {
    prop::collection::vec(piece(specials.to_vec()), 0..24).prop_map(|pieces| pieces.concat())
}
