//! Python literals as JSON values.

use std::borrow::Cow;

use crate::json::{Json, Map};
use crate::parser::schema::python_int;

const MAX_DEPTH: usize = 64;

/// The value that a Python literal spells; none for any other expression.
pub(super) fn parse(text: &str) -> Option<Json<'static>> {
    let mut reader = Reader { text, at: 0 };
    let value = reader.value(0)?;
    reader.blank();
    (reader.at == text.len()).then_some(value)
}

/// What an escape in a string stands for, and how many of its bytes are part of it; none if more must come.
/// `sequence` begins with the backslash.
pub(super) fn escaped(sequence: &str) -> Option<(String, usize)> {
    let mut chars = sequence.char_indices().skip(1);
    let (_, kind) = chars.next()?;
    let whole = |text: &str| Some((text.to_owned(), 1 + kind.len_utf8()));
    let hex = |digits: usize| {
        let end = 2 + digits;
        let valid = sequence[2..].bytes().take(digits).all(|byte| byte.is_ascii_hexdigit());
        if !valid {
            return Some((sequence.to_owned(), sequence.len()));
        }
        let code = sequence.get(2..end)?;
        let code = u32::from_str_radix(code, 16).ok()?;
        // Half of a pair is no character.
        Some((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER).to_string(), end))
    };
    match kind {
        '\n' => whole(""),
        '\\' => whole("\\"),
        '\'' => whole("'"),
        '"' => whole("\""),
        'n' => whole("\n"),
        't' => whole("\t"),
        'r' => whole("\r"),
        'a' => whole("\x07"),
        'b' => whole("\x08"),
        'f' => whole("\x0c"),
        'v' => whole("\x0b"),
        'x' => hex(2),
        'u' => hex(4),
        'U' => hex(8),
        '0'..='7' => {
            let digits = sequence[1..].bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
            if digits < 3 && sequence.len() == 1 + digits {
                return None;
            }
            let code = u32::from_str_radix(&sequence[1..=digits], 8).ok()?;
            Some((char::from_u32(code)?.to_string(), 1 + digits))
        }
        // Python keeps the backslash of an escape that it does not know.
        _ => Some((sequence[..=kind.len_utf8()].to_owned(), 1 + kind.len_utf8())),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn blank(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, c: char) -> bool {
        self.blank();
        let found = self.rest().starts_with(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn value(&mut self, depth: usize) -> Option<Json<'static>> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.blank();
        match self.rest().chars().next()? {
            '[' => self.items('[', ']', depth),
            '(' => self.items('(', ')', depth),
            '{' => self.braces(depth),
            '"' | '\'' => self.strings(),
            _ => self.word(),
        }
    }

    fn items(&mut self, open: char, close: char, depth: usize) -> Option<Json<'static>> {
        self.eat(open);
        let mut items = Vec::new();
        let mut comma = false;
        while !self.eat(close) {
            items.push(self.value(depth + 1)?);
            comma |= self.rest_has_comma();
            if !self.eat(',') && !self.rest_closes(close) {
                return None;
            }
        }
        // Parentheses around one value make no tuple.
        if open == '(' && items.len() == 1 && !comma {
            return items.pop();
        }
        Some(Json::Array(items))
    }

    fn rest_has_comma(&mut self) -> bool {
        self.blank();
        self.rest().starts_with(',')
    }

    fn rest_closes(&mut self, close: char) -> bool {
        self.blank();
        self.rest().starts_with(close)
    }

    /// A dictionary, or a set, which JSON has no word for but a list.
    fn braces(&mut self, depth: usize) -> Option<Json<'static>> {
        self.eat('{');
        let (mut map, mut set) = (Map::new(), Vec::new());
        while !self.eat('}') {
            let first = self.value(depth + 1)?;
            if self.eat(':') {
                let key = match first {
                    Json::Str(key) => key,
                    Json::Array(_) | Json::Object(_) => return None,
                    other => Cow::Owned(crate::json::python_dumps_unicode(&other)),
                };
                map.insert(key, self.value(depth + 1)?);
            } else {
                set.push(first);
            }
            if !self.eat(',') && !self.rest_closes('}') {
                return None;
            }
        }
        match (map.is_empty(), set.is_empty()) {
            (_, true) => Some(Json::Object(map)),
            (true, false) => Some(Json::Array(set)),
            (false, false) => None,
        }
    }

    /// One string, or several side by side.
    fn strings(&mut self) -> Option<Json<'static>> {
        let mut out = String::new();
        loop {
            self.blank();
            let Some(quote @ ('"' | '\'')) = self.rest().chars().next() else { return Some(out.into()) };
            self.at += 1;
            loop {
                let c = self.rest().chars().next()?;
                self.at += c.len_utf8();
                if c == quote {
                    break;
                }
                if c != '\\' {
                    out.push(c);
                    continue;
                }
                let begin = self.at - 1;
                let mut end = self.at;
                let (shown, used) = loop {
                    end += self.text[end..].chars().next()?.len_utf8();
                    if let Some(found) = escaped(&self.text[begin..end]) {
                        break found;
                    }
                };
                out.push_str(&shown);
                self.at = begin + used;
            }
        }
    }

    fn word(&mut self) -> Option<Json<'static>> {
        let ends = |c: char| matches!(c, ',' | ')' | ']' | '}' | ':') || c.is_whitespace();
        let end = self.rest().find(ends).unwrap_or(self.rest().len());
        let word = self.rest()[..end].to_owned();
        self.at += end;
        match word.as_str() {
            "None" | "null" => Some(Json::Null),
            "True" | "true" => Some(Json::Bool(true)),
            "False" | "false" => Some(Json::Bool(false)),
            _ => number(&word),
        }
    }
}

fn number(word: &str) -> Option<Json<'static>> {
    if let Some(hex) = word.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16).ok().map(Json::Int);
    }
    if let Some(value) = python_int(word) {
        return Some(value);
    }
    let numeric = word.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    word.parse().ok().filter(|value: &f64| numeric && value.is_finite()).map(Json::Float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::python_dumps_unicode;

    #[test]
    fn literals_become_json() {
        for (text, want) in [
            ("{'a': {'b': [1, 2.5, None, True]}, 's': 'x'}", r#"{"a": {"b": [1, 2.5, null, true]}, "s": "x"}"#),
            ("(800, 600)", "[800, 600]"),
            ("(1)", "1"),
            ("{'a', 'b'}", r#"["a", "b"]"#),
            ("{}", "{}"),
            (r"'it\'s' \n'", "none"),
            (r#"'it\'s' " é\u00e9\x41\101\d""#, r#""it's ééAA\\d""#),
            ("-1", "-1"),
            ("1e3", "1000.0"),
            ("{1: 2}", r#"{"1": 2}"#),
            ("f(x)", "none"),
            ("[1, 2", "none"),
            ("1 2", "none"),
        ] {
            let got = parse(text).map_or("none".to_owned(), |value| python_dumps_unicode(&value));
            assert_eq!(got, want, "{text}");
        }
        assert_eq!(parse(&"[".repeat(100_000)), None);
    }

    #[test]
    fn an_escape_waits_for_its_last_digit() {
        assert_eq!(escaped("\\u00e"), None);
        assert_eq!(escaped("\\u00e9"), Some(("é".to_owned(), 6)));
        assert_eq!(escaped("\\1"), None);
        assert_eq!(escaped("\\1x"), Some(("\u{1}".to_owned(), 2)));
        assert_eq!(escaped("\\uzz"), Some(("\\uzz".to_owned(), 4)));
    }
}
