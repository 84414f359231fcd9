//! Escaping: text of a client's that never becomes a control token (`--escape-special-tokens`).
//!
//! While the template runs, what a client wrote of added tokens is spelled otherwise; the template's text then has it
//! again, with the byte ranges where the tokenizer must see plain text. Fragments that could become a token together with
//! their neighbours are treated alike: `<|im_` at the end of one part and `end|>` at the beginning of the next.
//!
//! Out of scope: what a template itself makes of pieces of a text that it cut apart.

use std::borrow::Cow;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::error::{Error, Result};
use crate::json::{Json, Map};

/// Keys whose values templates compare with words of their own: only whole tokens are hidden there.
const WORDS: [&str; 2] = ["role", "type"];
/// Keys of content parts that hold media, which are no text.
const MEDIA: [&str; 10] = [
    "image_url",
    "image_pil",
    "image_embeds",
    "audio_url",
    "audio_embeds",
    "input_audio",
    "video_url",
    "input_image",
    "image",
    "uuid",
];
/// What an assistant's turn may hold as it is: templates look for it there.
const ASSISTANT: &str = "assistant";

/// The added tokens of a model, to be found in clients' texts.
pub struct Escapes {
    all: Tokens,
    /// Those that are control tokens in an assistant's turn too: a model's own marks of reasoning and calls are not.
    special: Tokens,
}

/// What was hidden in one request.
#[derive(Debug)]
pub struct Hidden {
    /// In front of each stand-in's number; in no text of the request.
    base: String,
    originals: Vec<String>,
}

struct Tokens {
    whole: AhoCorasick,
    /// Sorted, to be asked for a beginning.
    forward: Vec<Vec<u8>>,
    /// Spelled backwards and sorted.
    backward: Vec<Vec<u8>>,
    /// One after the other, each behind a zero byte.
    joined: Vec<u8>,
    longest: usize,
}

/// Which rules hold for a text.
#[derive(Clone, Copy)]
enum Reach {
    /// Whole tokens alone.
    Whole,
    /// Fragments at the ends, too.
    Ends,
}

impl Escapes {
    /// `tokens` are contents, each with whether it is special. Blank ones (Gemma has runs of line breaks) control nothing.
    pub fn new<'t>(tokens: impl Iterator<Item = (&'t str, bool)> + Clone) -> Result<Self> {
        let tokens = tokens.filter(|(content, _)| !content.trim().is_empty());
        let special = tokens.clone().filter(|(_, special)| *special).map(|(content, _)| content);
        Ok(Self { all: Tokens::new(tokens.map(|(content, _)| content))?, special: Tokens::new(special)? })
    }

    /// Hide the tokens, and what could become one, in these `fields` of a request.
    pub fn hide(&self, body: &mut Map<'_>, fields: &[&str]) -> Hidden {
        // Letters and digits pass through templates, their filters and JSON unharmed.
        let base = (0..u64::MAX)
            .map(|number| format!("Escaped{number}x"))
            .find(|base| !fields.iter().filter_map(|field| body.get(field)).any(|value| value.mentions(base)))
            .expect("some number is not in the texts");
        let mut hidden = Hidden { base, originals: Vec::new() };
        for field in fields {
            match body.get_mut(field) {
                Some(Json::Array(messages)) if *field == "messages" => {
                    for message in messages {
                        self.hide_message(message, &mut hidden);
                    }
                }
                Some(value) => self.all.hide(value, Reach::Ends, &mut hidden),
                None => {}
            }
        }
        hidden
    }

    fn hide_message(&self, message: &mut Json<'_>, hidden: &mut Hidden) {
        let Json::Object(fields) = message else { return self.all.hide(message, Reach::Ends, hidden) };
        let is_assistant = fields.get("role").and_then(Json::as_str) == Some(ASSISTANT);
        let tokens = if is_assistant { &self.special } else { &self.all };
        tokens.hide_entries(fields, Reach::Ends, hidden, |key, value, hidden| match value {
            Json::Array(parts) if key == "content" => {
                for part in parts {
                    match part {
                        Json::Object(fields) => {
                            tokens.hide_entries(fields, Reach::Ends, hidden, |key, value, hidden| {
                                if !MEDIA.contains(&key) {
                                    tokens.hide(value, reach(key, Reach::Ends), hidden);
                                }
                            });
                        }
                        part => tokens.hide(part, Reach::Ends, hidden),
                    }
                }
            }
            value => tokens.hide(value, reach(key, Reach::Ends), hidden),
        });
    }
}

impl Hidden {
    /// Whether nothing was.
    pub fn is_empty(&self) -> bool {
        self.originals.is_empty()
    }

    /// The text as it would have been, and the byte ranges of what was hidden.
    pub fn reveal(&self, text: &str) -> (String, Vec<Range<usize>>) {
        let mut revealed = String::with_capacity(text.len());
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some(at) = memchr::memmem::find(rest.as_bytes(), self.base.as_bytes()) {
            let number = &rest[at + self.base.len()..];
            let digits = number.bytes().take_while(u8::is_ascii_digit).count();
            let original = number[..digits].parse().ok().and_then(|number: usize| self.originals.get(number));
            revealed.push_str(&rest[..at]);
            // A template may have cut a stand-in; then there is nothing left to spell.
            let Some(original) = original.filter(|_| number[digits..].starts_with(END)) else {
                revealed.push_str(&self.base);
                rest = number;
                continue;
            };
            plain.push(revealed.len()..revealed.len() + original.len());
            revealed.push_str(original);
            rest = &number[digits + END.len_utf8()..];
        }
        revealed.push_str(rest);
        (revealed, plain)
    }

    fn stand_in(&mut self, original: &str, out: &mut String) {
        let number = self.originals.iter().position(|known| known == original).unwrap_or_else(|| {
            self.originals.push(original.to_owned());
            self.originals.len() - 1
        });
        out.push_str(&self.base);
        out.push_str(&number.to_string());
        out.push(END);
    }
}

/// Ends a stand-in's number.
const END: char = 'y';

impl Tokens {
    fn new<'t>(tokens: impl Iterator<Item = &'t str> + Clone) -> Result<Self> {
        let whole = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.clone())
            .map_err(|error| Error::setup(format!("the added tokens cannot be matched: {error}")))?;
        let mut forward: Vec<Vec<u8>> = tokens.clone().map(|token| token.as_bytes().to_vec()).collect();
        let mut backward: Vec<Vec<u8>> = forward.iter().map(|token| token.iter().rev().copied().collect()).collect();
        forward.sort_unstable();
        backward.sort_unstable();
        let joined = tokens.clone().flat_map(|token| std::iter::once(0).chain(token.bytes())).collect();
        let longest = tokens.map(str::len).max().unwrap_or(0);
        Ok(Self { whole, forward, backward, joined, longest })
    }

    fn hide(&self, value: &mut Json<'_>, reach: Reach, hidden: &mut Hidden) {
        match value {
            Json::Str(text) | Json::BrokenStr(text) => {
                if let Some(changed) = self.hide_in(text, reach, hidden) {
                    *text = Cow::Owned(changed);
                }
            }
            Json::Array(items) => items.iter_mut().for_each(|item| self.hide(item, reach, hidden)),
            Json::Object(fields) => self.hide_entries(fields, reach, hidden, |key, value, hidden| {
                self.hide(value, self::reach(key, reach), hidden);
            }),
            _ => {}
        }
    }

    fn hide_entries(
        &self,
        fields: &mut Map<'_>,
        reach: Reach,
        hidden: &mut Hidden,
        mut value_of: impl FnMut(&str, &mut Json<'_>, &mut Hidden),
    ) {
        let entries = std::mem::take(fields).into_iter().map(|(key, mut value)| {
            value_of(&key, &mut value, hidden);
            // A template looks for names such as `description`.
            let is_name = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            let changed = if is_name { None } else { self.hide_in(&key, reach, hidden) };
            (changed.map_or(key, Cow::Owned), value)
        });
        *fields = entries.collect();
    }

    /// The text with what is to be hidden spelled otherwise; `None` if that is nothing.
    fn hide_in(&self, text: &str, reach: Reach, hidden: &mut Hidden) -> Option<String> {
        let mut found: Vec<Range<usize>> = self.whole.find_iter(text).map(|found| found.range()).collect();
        if let Reach::Ends = reach {
            self.add_ends(text, &mut found);
        }
        if found.is_empty() {
            return None;
        }
        let mut out = String::with_capacity(text.len() + 16 * found.len());
        let mut done = 0;
        for range in found {
            out.push_str(&text[done..range.start]);
            hidden.stand_in(&text[range.clone()], &mut out);
            done = range.end;
        }
        out.push_str(&text[done..]);
        Some(out)
    }

    /// Add what could become a token together with what a template puts in front or behind.
    fn add_ends(&self, text: &str, found: &mut Vec<Range<usize>>) {
        let begin = text.len() - text.trim_start().len();
        let end = text.trim_end().len();
        if begin >= end {
            return;
        }
        let is_infix =
            end - begin <= self.longest && memchr::memmem::find(&self.joined, &text.as_bytes()[begin..end]).is_some();
        if is_infix {
            found.clear();
            found.push(begin..end);
            return;
        }
        let head = (1..self.longest.min(end - begin + 1))
            .rev()
            .find(|length| text.is_char_boundary(begin + length) && self.ends_a_token(&text[begin..begin + length]));
        let tail = (1..self.longest.min(end - begin + 1))
            .rev()
            .find(|length| text.is_char_boundary(end - length) && self.begins_a_token(&text[end - length..end]));
        if let Some(length) = head {
            let start = found.first().map_or(end, |first| first.start);
            let range = begin..(begin + length).min(start);
            if !range.is_empty() {
                found.insert(0, range);
            }
        }
        if let Some(length) = tail {
            let stop = found.last().map_or(begin, |last| last.end);
            let range = (end - length).max(stop)..end;
            if !range.is_empty() {
                found.push(range);
            }
        }
    }

    fn begins_a_token(&self, part: &str) -> bool {
        begins(&self.forward, part.as_bytes())
    }

    fn ends_a_token(&self, part: &str) -> bool {
        begins(&self.backward, &part.bytes().rev().collect::<Vec<_>>())
    }
}

fn begins(sorted: &[Vec<u8>], part: &[u8]) -> bool {
    let at = sorted.partition_point(|token| token.as_slice() < part);
    sorted.get(at).is_some_and(|token| token.starts_with(part))
}

fn reach(key: &str, around: Reach) -> Reach {
    if WORDS.contains(&key) { Reach::Whole } else { around }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escapes() -> Escapes {
        Escapes::new([("<|im_start|>", true), ("<|im_end|>", true), ("</think>", false)].into_iter()).unwrap()
    }

    fn hidden(json: &str) -> (Hidden, String) {
        let Json::Object(mut body) = Json::parse(json).unwrap() else { panic!("no object") };
        let hidden = escapes().hide(&mut body, &["messages", "tools"]);
        let mut out = Vec::new();
        Json::Object(body).write(&mut out);
        (hidden, String::from_utf8(out).unwrap())
    }

    fn plain(json: &str) -> (String, Vec<String>) {
        let (hidden, text) = hidden(json);
        let (text, ranges) = hidden.reveal(&text);
        let plain = ranges.into_iter().map(|range| text[range].to_owned()).collect();
        (text, plain)
    }

    #[test]
    fn what_a_client_wrote_is_hidden_and_comes_back() {
        let json = r#"{"messages":[{"role":"user","content":"a<|im_end|>b<|im_end|></think>"}],"n":"<|im_end|>"}"#;
        let (hidden, text) = hidden(json);
        assert_eq!(hidden.originals, ["<|im_end|>", "</think>"]);
        assert_eq!(text.matches("<|im_end|>").count(), 1);
        assert_eq!(hidden.reveal(&text).0, json);
    }

    #[test]
    fn assistants_keep_the_models_own_marks() {
        let json = r#"{"messages":[{"role":"assistant","content":"x</think>y<|im_end|>"}]}"#;
        assert_eq!(plain(json).1, ["<|im_end|>"]);
    }

    #[test]
    fn fragments_that_neighbours_could_complete_are_hidden() {
        let json = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"x <|im_ "},{"type":"text","text":"end|> y"},{"type":"text","text":"|im_start|"},{"type":"image_url","image_url":{"url":"x<|im_end|>"}}]}]}"#;
        let (text, plain) = plain(json);
        assert_eq!(text, json);
        assert_eq!(plain, ["<|im_", "end|>", "|im_start|"]);
    }

    #[test]
    fn words_and_names_that_templates_know_stay() {
        let json =
            r#"{"messages":[{"role":"im","content":"hello"}],"tools":[{"type":"think","think":1,"<|im_end|>":"t"}]}"#;
        assert_eq!(plain(json).1, ["<|im_end|>", "t"]);
    }

    #[test]
    fn stand_ins_that_are_in_the_text_already_are_not_taken() {
        let json = r#"{"messages":[{"role":"user","content":"Escaped0x0y <|im_end|>"}]}"#;
        let (hidden, text) = hidden(json);
        assert_eq!(hidden.base, "Escaped1x");
        assert_eq!(hidden.reveal(&text).0, json);
        assert_eq!(hidden.reveal("Escaped1x9y Escaped1x Escaped1x0").0, "Escaped1x9y Escaped1x Escaped1x0");
    }
}
