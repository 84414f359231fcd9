//! Calls as `NAME{key:value,…}`, with strings between a marker of their own.

use memchr::memmem;

use crate::error::Result;
use crate::json::{Json, Map, python_dumps_unicode};
use crate::parser::format::Body;
use crate::parser::machine::{MAX_NAME_BYTES, Machine, Step};
use crate::parser::sink::Kind;
use crate::parser::state::{LiteralAt, Phase};

const MAX_DEPTH: usize = 64;

impl Machine<'_> {
    pub(in crate::parser) fn literal(&mut self, text: &str, last: bool) -> Result<Step> {
        let Some(Body::Literal { prefixes, quote }) = self.format.map(|format| &format.body) else {
            return Ok(Some(text.len()));
        };
        let Some(first) = text.chars().next() else { return Ok(Some(0)) };
        let width = first.len_utf8();
        match self.state.literal.at {
            LiteralAt::Prefix if first.is_whitespace() => Ok(Some(width)),
            LiteralAt::Prefix => {
                if let Some(prefix) = prefixes.iter().find(|prefix| text.starts_with(prefix.as_str())) {
                    self.state.text.clear();
                    self.state.literal.at = LiteralAt::Name;
                    return Ok(Some(prefix.len()));
                }
                if prefixes.iter().any(|prefix| prefix.starts_with(text)) {
                    return Ok(if last { Some(text.len()) } else { None });
                }
                self.unexpected(text, 0, last)
            }
            LiteralAt::Name => {
                let end = text.find(['{', '(']);
                self.state.text.push_str(&text[..end.unwrap_or(text.len())]);
                if self.state.text.len() > MAX_NAME_BYTES {
                    let name = std::mem::take(&mut self.state.text);
                    self.keep_raw(&name)?;
                    self.fail()?;
                    return Ok(Some(end.unwrap_or(text.len())));
                }
                let Some(end) = end else { return Ok(Some(text.len())) };
                let name = std::mem::take(&mut self.state.text);
                self.begin_call(name.trim(), None, true);
                self.state.literal.at = LiteralAt::Key;
                Ok(Some(end + 1))
            }
            LiteralAt::Key => self.literal_key(text, quote),
            LiteralAt::BeforeValue => self.literal_begin(text, first, quote, last),
            LiteralAt::Text => self.literal_text(text, quote, last),
            LiteralAt::Value => self.literal_value(text, quote, last),
            LiteralAt::AfterValue => {
                if matches!(first, '}' | ')') {
                    return self.end_literal().map(|()| Some(1));
                }
                if first == ',' {
                    self.state.literal.at = LiteralAt::Key;
                }
                Ok(Some(width))
            }
        }
    }

    fn literal_key(&mut self, text: &str, quote: &str) -> Result<Step> {
        if self.state.text.trim().is_empty() {
            let blank = text.len() - text.trim_start_matches(|c: char| c.is_whitespace() || c == ',').len();
            if blank > 0 {
                return Ok(Some(blank));
            }
            if text.starts_with(['}', ')']) {
                return self.end_literal().map(|()| Some(1));
            }
        }
        let end = text.find(':');
        self.state.text.push_str(&text[..end.unwrap_or(text.len())]);
        if self.state.text.len() > MAX_NAME_BYTES {
            // No key is so long: what follows is not read as a call.
            self.fail()?;
            return Ok(Some(end.unwrap_or(text.len())));
        }
        let Some(end) = end else { return Ok(Some(text.len())) };
        let key = self.state.text.trim();
        let bare = key.strip_prefix(quote).and_then(|key| key.strip_suffix(quote)).unwrap_or(key).to_owned();
        self.state.literal.key = bare;
        self.state.text.clear();
        self.state.literal.at = LiteralAt::BeforeValue;
        Ok(Some(end + 1))
    }

    fn literal_begin(&mut self, text: &str, first: char, quote: &str, last: bool) -> Result<Step> {
        if first.is_whitespace() {
            return Ok(Some(first.len_utf8()));
        }
        if text.starts_with(quote) {
            let key = std::mem::take(&mut self.state.literal.key);
            self.sink.key(&key, Kind::Text)?;
            self.state.literal.at = LiteralAt::Text;
            return Ok(Some(quote.len()));
        }
        if !last && quote.starts_with(text) {
            return Ok(None);
        }
        (self.state.literal.depth, self.state.literal.quoted) = (0, false);
        self.state.literal.at = LiteralAt::Value;
        Ok(Some(0))
    }

    fn literal_text(&mut self, text: &str, quote: &str, last: bool) -> Result<Step> {
        if let Some(end) = memmem::find(text.as_bytes(), quote.as_bytes()) {
            self.sink.value(&text[..end])?;
            self.sink.value_end()?;
            self.state.literal.at = LiteralAt::AfterValue;
            return Ok(Some(end + quote.len()));
        }
        let held = held_suffix(text, quote);
        let end = text.len() - held;
        self.sink.value(&text[..end])?;
        Ok(if last { Some(text.len()) } else { Some(end).filter(|end| *end > 0) })
    }

    /// A value that is no string of its own: to the comma or bracket that ends it.
    fn literal_value(&mut self, text: &str, quote: &str, last: bool) -> Result<Step> {
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            let rest = &text[at..];
            if rest.starts_with(quote) {
                self.state.literal.quoted = !self.state.literal.quoted;
                at += quote.len();
                continue;
            }
            if !last && quote.starts_with(rest) {
                break;
            }
            let literal = &mut self.state.literal;
            if !literal.quoted {
                match c {
                    '{' | '[' => literal.depth = literal.depth.saturating_add(1),
                    '}' | ']' | ')' | ',' if literal.depth == 0 => {
                        self.state.text.push_str(&text[..at]);
                        self.end_literal_value(quote)?;
                        // A bracket that closes nothing is passed over.
                        return Ok(Some(if c == ']' { at + 1 } else { at }));
                    }
                    '}' | ']' => literal.depth -= 1,
                    _ => {}
                }
            }
            at += c.len_utf8();
        }
        self.state.text.push_str(&text[..at]);
        self.check(self.state.text.len())?;
        Ok(Some(at).filter(|at| *at > 0))
    }

    fn end_literal_value(&mut self, quote: &str) -> Result<()> {
        let text = std::mem::take(&mut self.state.text);
        let key = std::mem::take(&mut self.state.literal.key);
        let text = text.trim();
        self.state.literal.at = LiteralAt::AfterValue;
        if text.starts_with(['{', '[']) {
            let value = Reader { text, quote, at: 0 }.value(0);
            self.sink.key(&key, Kind::Json)?;
            self.sink.value(&python_dumps_unicode(&value))?;
        } else {
            self.sink.key(&key, Kind::Text)?;
            self.sink.value(text)?;
        }
        self.sink.value_end()
    }

    fn end_literal(&mut self) -> Result<()> {
        self.end_call(false)?;
        self.state.phase = Phase::Trailer;
        Ok(())
    }
}

/// Bytes at the end of `text` that may begin `marker`.
fn held_suffix(text: &str, marker: &str) -> usize {
    (1..marker.len())
        .rev()
        .find(|length| marker.as_bytes().get(..*length).is_some_and(|head| text.as_bytes().ends_with(head)))
        .unwrap_or(0)
}

/// Reads a nested value; all that is no container is a string, which the schema types.
struct Reader<'a> {
    text: &'a str,
    quote: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip(&mut self, what: &[char]) {
        self.at =
            self.text.len() - self.rest().trim_start_matches(|c: char| c.is_whitespace() || what.contains(&c)).len();
    }

    fn value(&mut self, depth: usize) -> Json<'static> {
        self.skip(&[]);
        match self.rest().chars().next() {
            Some('{') if depth < MAX_DEPTH => {
                self.at += 1;
                Json::Object(self.members(depth))
            }
            Some('[') if depth < MAX_DEPTH => {
                self.at += 1;
                Json::Array(self.items(depth))
            }
            _ => self.scalar(),
        }
    }

    fn members(&mut self, depth: usize) -> Map<'static> {
        let mut map = Map::new();
        loop {
            self.skip(&[',']);
            if self.rest().is_empty() || self.eat('}') {
                return map;
            }
            let Some(colon) = self.rest().find(':') else {
                self.at = self.text.len();
                return map;
            };
            let key = self.rest()[..colon].trim();
            let key =
                key.strip_prefix(self.quote).and_then(|key| key.strip_suffix(self.quote)).unwrap_or(key).to_owned();
            self.at += colon + 1;
            let value = self.value(depth + 1);
            map.insert(key, value);
        }
    }

    fn items(&mut self, depth: usize) -> Vec<Json<'static>> {
        let mut items = Vec::new();
        loop {
            self.skip(&[',']);
            if self.rest().is_empty() || self.eat(']') {
                return items;
            }
            let before = self.at;
            items.push(self.value(depth + 1));
            if self.at == before {
                // A bracket of the other kind.
                self.at += 1;
            }
        }
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.rest().starts_with(c);
        self.at += usize::from(found);
        found
    }

    fn scalar(&mut self) -> Json<'static> {
        if let Some(quoted) = self.rest().strip_prefix(self.quote) {
            let end = memmem::find(quoted.as_bytes(), self.quote.as_bytes());
            let text = quoted[..end.unwrap_or(quoted.len())].to_owned();
            self.at += self.quote.len() + text.len() + end.map_or(0, |_| self.quote.len());
            return text.into();
        }
        let end = self.rest().find([',', '}', ']']).unwrap_or(self.rest().len());
        let text = self.rest()[..end].trim().to_owned();
        self.at += end;
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_values_hold_strings() {
        let read = |text| python_dumps_unicode(&Reader { text, quote: "<|\"|>", at: 0 }.value(0));
        assert_eq!(
            read("{a:{b:[1,2.5,null,true]},s:<|\"|>x}<|\"|>}"),
            r#"{"a": {"b": ["1", "2.5", "null", "true"]}, "s": "x}"}"#
        );
        assert_eq!(read("[}]"), "[\"\"]");
        read(&"[".repeat(100_000));
    }

    #[test]
    fn the_end_may_begin_a_marker() {
        assert_eq!(held_suffix("abc<|", "<|\"|>"), 2);
        assert_eq!(held_suffix("abc", "<|\"|>"), 0);
    }
}
