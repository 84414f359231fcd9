//! Added tokens: words that are cut out of a text before anything else sees it.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use hashbrown::{HashMap, HashSet};

use super::normalize::Normalizer;
use crate::spec::AddedTokenSpec;

/// A stretch of text between added tokens, or a token with the text that it took, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Text { start: usize, end: usize },
    Token { id: u32, start: usize, end: usize },
}

/// The added vocabulary, put together as `tokenizers` does it: an id is what the model has for the text, else the next
/// free one; a text that is there already keeps its id and takes the new flags.
pub(super) struct AddedTokens {
    tokens: Vec<AddedTokenSpec>,
    by_content: HashMap<String, usize>,
    /// Matched on the text as it is.
    raw: Option<Matcher>,
    /// Matched on normalized text, by their normalized content.
    normalized: Option<Matcher>,
}

impl AddedTokens {
    /// The tokens of tokenizer.json, then those of other files. `Err` has the reason if the first do not get the ids that
    /// they are written with, or if the matchers cannot be built.
    pub(super) fn new(
        written: Vec<AddedTokenSpec>,
        more: &[AddedTokenSpec],
        vocab_size: usize,
        model_id: impl Fn(&str) -> Option<u32>,
        normalizer: &Normalizer,
    ) -> Result<Self, String> {
        let mut added = Self { tokens: Vec::new(), by_content: HashMap::new(), raw: None, normalized: None };
        let vocab_size = u32::try_from(vocab_size).map_err(|_| "the vocabulary is too large".to_owned())?;
        for (batch, is_written) in [(written, true), (more.to_vec(), false)] {
            let highest = added.tokens.iter().map(|token| token.id).max();
            let mut next = highest.filter(|&id| id >= vocab_size).map_or(vocab_size, |id| id + 1);
            for token in batch {
                if token.content.is_empty() {
                    continue;
                }
                let known = added.by_content.get(&token.content).copied();
                let id =
                    known.map(|at| added.tokens[at].id).or_else(|| model_id(&token.content)).unwrap_or_else(|| {
                        next += 1;
                        next - 1
                    });
                if is_written && id != token.id {
                    return Err(format!("added token `{}` does not get its id", token.content));
                }
                let token = AddedTokenSpec { id, ..token };
                if let Some(at) = known {
                    added.tokens[at] = token;
                } else {
                    added.by_content.insert(token.content.clone(), added.tokens.len());
                    added.tokens.push(token);
                }
            }
        }
        let (folded, literal): (Vec<_>, Vec<_>) = added.tokens.iter().partition(|token| token.normalized);
        added.raw = Matcher::new(&literal.iter().map(|token| (token.content.clone(), *token)).collect::<Vec<_>>())?;
        let pattern = |token: &&AddedTokenSpec| normalizer.normalize(&token.content).into_owned();
        added.normalized = Matcher::new(&folded.iter().map(|token| (pattern(token), *token)).collect::<Vec<_>>())?;
        Ok(added)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &AddedTokenSpec> + Clone {
        self.tokens.iter()
    }

    pub(super) fn id(&self, content: &str) -> Option<u32> {
        Some(self.tokens[*self.by_content.get(content)?].id)
    }

    /// Cut out the tokens that are matched on the text as it is, but for those that touch `plain`: ascending ranges.
    pub(super) fn split_raw(&self, text: &str, plain: &[Range<usize>]) -> Vec<Part> {
        split(self.raw.as_ref(), text, plain)
    }

    /// The same for tokens that are matched on normalized text.
    pub(super) fn split_normalized(&self, text: &str, plain: &[Range<usize>]) -> Vec<Part> {
        split(self.normalized.as_ref(), text, plain)
    }

    pub(super) fn has_normalized(&self) -> bool {
        self.normalized.is_some()
    }
}

fn split(matcher: Option<&Matcher>, text: &str, plain: &[Range<usize>]) -> Vec<Part> {
    match matcher {
        Some(matcher) => matcher.split(text, plain),
        None if text.is_empty() => Vec::new(),
        None => vec![Part::Text { start: 0, end: text.len() }],
    }
}

#[derive(Clone, Copy)]
struct Rule {
    id: u32,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
}

struct Matcher {
    automaton: AhoCorasick,
    /// By pattern.
    rules: Vec<Rule>,
}

impl Matcher {
    fn new(tokens: &[(String, &AddedTokenSpec)]) -> Result<Option<Self>, String> {
        let mut seen = HashSet::new();
        if tokens.iter().any(|(pattern, _)| pattern.is_empty() || !seen.insert(pattern)) {
            return Err("two added tokens are the same once normalized".to_owned());
        }
        if tokens.is_empty() {
            return Ok(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(tokens.iter().map(|(pattern, _)| pattern))
            .map_err(|error| format!("the added tokens cannot be matched: {error}"))?;
        let rule = |token: &AddedTokenSpec| Rule {
            id: token.id,
            single_word: token.single_word,
            lstrip: token.lstrip,
            rstrip: token.rstrip,
        };
        Ok(Some(Self { automaton, rules: tokens.iter().map(|(_, token)| rule(token)).collect() }))
    }

    fn split(&self, text: &str, plain: &[Range<usize>]) -> Vec<Part> {
        let mut parts = Vec::new();
        // Where the text behind the last token begins.
        let mut done = 0;
        let begins = std::iter::once(0).chain(plain.iter().map(|range| range.end));
        let ends = plain.iter().map(|range| range.start).chain(std::iter::once(text.len()));
        let found = begins.zip(ends).flat_map(|(begin, end)| {
            let found = self.automaton.find_iter(&text[begin..end]);
            found.map(move |found| (found.pattern(), begin + found.start(), begin + found.end()))
        });
        for (pattern, mut start, mut end) in found {
            let rule = self.rules[pattern];
            if rule.single_word {
                let before = text[..start].chars().next_back();
                let after = text[end..].chars().next();
                if before.into_iter().chain(after).any(is_word) {
                    continue;
                }
            }
            if rule.lstrip {
                start = text[..start].trim_end().len().max(done);
            }
            if rule.rstrip {
                end = text.len() - text[end..].trim_start().len();
            }
            if done < start {
                parts.push(Part::Text { start: done, end: start });
            }
            parts.push(Part::Token { id: rule.id, start, end });
            done = end;
        }
        if done < text.len() {
            parts.push(Part::Text { start: done, end: text.len() });
        }
        parts
    }
}

/// `\w` of the `regex` crate.
fn is_word(c: char) -> bool {
    regex_syntax::is_word_character(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(content: &str, flags: &str) -> AddedTokenSpec {
        AddedTokenSpec {
            id: 0,
            content: content.to_owned(),
            single_word: flags.contains('w'),
            lstrip: flags.contains('l'),
            rstrip: flags.contains('r'),
            normalized: flags.contains('n'),
            special: flags.contains('s'),
        }
    }

    fn added(tokens: &[AddedTokenSpec]) -> AddedTokens {
        AddedTokens::new(Vec::new(), tokens, 100, |text| (text == "known").then_some(7), &Normalizer::Identity).unwrap()
    }

    fn pieces<'t>(added: &AddedTokens, text: &'t str) -> Vec<(Option<u32>, &'t str)> {
        added
            .split_raw(text, &[])
            .into_iter()
            .map(|part| match part {
                Part::Text { start, end } => (None, &text[start..end]),
                Part::Token { id, start, end } => (Some(id), &text[start..end]),
            })
            .collect()
    }

    #[test]
    fn ids_are_the_models_or_the_next_free_ones() {
        let added = added(&[token("<a>", ""), token("known", ""), token("<b>", ""), token("<a>", "s")]);
        let ids: Vec<_> = added.iter().map(|token| (token.content.as_str(), token.id, token.special)).collect();
        assert_eq!(ids, [("<a>", 100, true), ("known", 7, false), ("<b>", 101, false)]);
    }

    #[test]
    fn no_token_touches_a_plain_range() {
        let added = added(&[token("<a>", ""), token("<", "")]);
        let found = |plain: &[(usize, usize)]| {
            let plain: Vec<_> = plain.iter().map(|(start, end)| *start..*end).collect();
            let token = |part: Part| match part {
                Part::Token { id, start, .. } => Some((id, start)),
                Part::Text { .. } => None,
            };
            added.split_raw("<a><a>x<a>", &plain).into_iter().filter_map(token).collect::<Vec<_>>()
        };
        assert_eq!(found(&[]), [(100, 0), (100, 3), (100, 7)]);
        assert_eq!(found(&[(0, 3)]), [(100, 3), (100, 7)]);
        assert_eq!(found(&[(2, 4), (8, 9)]), [(101, 0), (101, 7)]);
        assert_eq!(found(&[(0, 10)]), []);
    }

    #[test]
    fn the_longest_token_wins_and_takes_the_space_that_it_strips() {
        let added = added(&[token("<a>", "l"), token("<a>>", "r"), token("w", "w")]);
        assert_eq!(
            pieces(&added, "x  <a>y<a>>  w ww"),
            [(None, "x"), (Some(100), "  <a>"), (None, "y"), (Some(101), "<a>>  "), (Some(102), "w"), (None, " ww"),]
        );
    }
}
