//! Pre-tokenization of byte-level models: a text cut into the pieces that BPE works on alone.

use serde_json::Value;

use super::scanner::Scanner;

/// The patterns that are taken, as tokenizer.json has them, with what the scanner compiles instead where their syntax
/// is Oniguruma's own. Each was held against Oniguruma over all code points; one that is not listed is left to
/// `tokenizers`, because a pattern that merely looks alike may cut elsewhere.
pub(super) const KNOWN_PATTERNS: &[(&str, Option<&str>)] = &[
    // Llama 3, GLM 4.5, Kimi K2, MiniMax M2, Phi 4 (cl100k).
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        None,
    ),
    // Qwen 2 to 3.
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        None,
    ),
    // Qwen 3.5.
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        None,
    ),
    // gpt-oss, Llama 4 (o200k).
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        None,
    ),
    // Mistral's Tekken, Nemotron.
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        None,
    ),
    // DBRX, OLMo 2. Nothing behind a possessive part can match what the part took, so greedy is the same.
    (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        Some(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        ),
    ),
    // DeepSeek's three steps.
    (r"\p{N}{1,3}", None),
    ("[一-龥\u{3040}-ゟ゠-ヿ]+", None),
    (
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
        None,
    ),
];

/// The pattern that `ByteLevel` with `use_regex` has built in.
const GPT2_PATTERN: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

enum Step {
    /// Matches and what is between them become pieces.
    Pattern(Box<Scanner>),
    /// Each character that is numeric becomes a piece.
    Digits,
}

/// The steps of a byte-level pre-tokenizer; each cuts the pieces of the one before.
pub(super) struct Splitter {
    steps: Vec<Step>,
}

impl Splitter {
    /// Read `pre_tokenizer` of tokenizer.json; the reason if it is not one that is known to the letter.
    pub(super) fn byte_level(config: &Value) -> Result<Self, String> {
        let steps = match config["type"].as_str() {
            Some("Sequence") => config["pretokenizers"].as_array().map_or(&[][..], Vec::as_slice),
            Some(_) => std::slice::from_ref(config),
            None => return Err("there is no pre-tokenizer".to_owned()),
        };
        let Some((last, before)) = steps.split_last() else {
            return Err("the pre-tokenizer is empty".to_owned());
        };
        let mut known = before.iter().map(step).collect::<Result<Vec<_>, _>>()?;
        if last["type"] != "ByteLevel" || last["add_prefix_space"] != false {
            return Err("the pre-tokenizer does not end in a plain `ByteLevel`".to_owned());
        }
        if last["use_regex"] != false {
            known.push(Step::Pattern(scanner(GPT2_PATTERN)?));
        }
        Ok(Self { steps: known })
    }

    /// Call `piece` with the range of each piece of a text, in order. `text` is UTF-8.
    pub(super) fn split(&self, text: &[u8], piece: &mut impl FnMut(usize, usize)) {
        cut(&self.steps, text, 0, piece);
    }
}

/// Cut `text` from `start` on. What is in front does not count.
fn cut(steps: &[Step], text: &[u8], start: usize, piece: &mut impl FnMut(usize, usize)) {
    match steps {
        [] => piece(start, text.len()),
        // The piece's end is a text's end for the next step.
        [Step::Pattern(scanner)] => cut_by(text, start, |at| scanner.match_at(text, at), piece),
        [Step::Digits] => cut_by(text, start, |at| numeric(text, at), piece),
        [Step::Pattern(scanner), rest @ ..] => {
            let mut part = |from, to| cut(rest, &text[..to], from, piece);
            cut_by(text, start, |at| scanner.match_at(text, at), &mut part);
        }
        [Step::Digits, rest @ ..] => {
            let mut part = |from, to| cut(rest, &text[..to], from, piece);
            cut_by(text, start, |at| numeric(text, at), &mut part);
        }
    }
}

/// Cut into what `find` finds and what is between.
#[inline]
fn cut_by(text: &[u8], start: usize, find: impl Fn(usize) -> Option<usize>, piece: &mut impl FnMut(usize, usize)) {
    let (mut at, mut gap) = (start, start);
    while at < text.len() {
        let Some(stop) = find(at) else {
            at += width(text[at]);
            continue;
        };
        if gap < at {
            piece(gap, at);
        }
        piece(at, stop);
        (at, gap) = (stop, stop);
    }
    if gap < text.len() {
        piece(gap, text.len());
    }
}

/// Length of the UTF-8 sequence that `first` begins.
fn width(first: u8) -> usize {
    match first {
        0..0x80 => 1,
        0x80..0xE0 => 2,
        0xE0..0xF0 => 3,
        _ => 4,
    }
}

fn numeric(text: &[u8], at: usize) -> Option<usize> {
    let end = at + width(text[at]);
    if end == at + 1 {
        return text[at].is_ascii_digit().then_some(end);
    }
    let c = std::str::from_utf8(text.get(at..end)?).ok()?.chars().next()?;
    c.is_numeric().then_some(end)
}

fn step(config: &Value) -> Result<Step, String> {
    let source = match config["type"].as_str() {
        Some("Digits") if config["individual_digits"] == true => return Ok(Step::Digits),
        Some("Split") if config["behavior"] == "Isolated" && config["invert"] == false => {
            config["pattern"]["Regex"].as_str()
        }
        _ => None,
    };
    let known = source.and_then(|source| KNOWN_PATTERNS.iter().find(|(pattern, _)| *pattern == source));
    let Some((pattern, spelled)) = known else {
        return Err("the pre-tokenizer has a step that is not known".to_owned());
    };
    Ok(Step::Pattern(scanner(spelled.unwrap_or(pattern))?))
}

fn scanner(pattern: &str) -> Result<Box<Scanner>, String> {
    Scanner::new(pattern).map(Box::new).ok_or_else(|| format!("the pattern `{pattern}` does not compile"))
}
