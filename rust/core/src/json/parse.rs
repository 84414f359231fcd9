//! Reading JSON as Python's `json.loads` does.

use std::borrow::Cow;
use std::fmt;

use super::{Json, Map};

/// Containers nested deeper than this are refused: parsing recurses.
pub const MAX_DEPTH: usize = 256;

/// Values that one text may hold. The tree takes some thirty bytes for a value of two; the longest honest body, a
/// prompt of a million token ids, stays well below.
pub const MAX_VALUES: usize = 2_000_000;

/// Where and why a text is not JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    /// In characters from the start, as Python counts.
    pub position: usize,
    pub message: &'static str,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at character {}", self.message, self.position)
    }
}

impl std::error::Error for JsonError {}

/// Parse a whole text; the value, and how many values it holds, itself among them.
pub(super) fn parse(text: &str) -> Result<(Json<'_>, usize), JsonError> {
    let mut parser = Parser { bytes: text.as_bytes(), text, at: 0, depth: 0, values: 0 };
    match parser.document() {
        Ok(value) => Ok((value, parser.values)),
        Err(message) => {
            let position = text.get(..parser.at).map_or(parser.at, |head| head.chars().count());
            Err(JsonError { position, message })
        }
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    depth: usize,
    values: usize,
}

type Parsed<T> = Result<T, &'static str>;

impl<'a> Parser<'a> {
    fn document(&mut self) -> Parsed<Json<'a>> {
        self.skip_space();
        let value = self.value()?;
        self.skip_space();
        if self.at < self.bytes.len() { Err("extra data") } else { Ok(value) }
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Parsed<Json<'a>> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err("too many values");
        }
        match self.bytes.get(self.at) {
            Some(b'"') => {
                self.at += 1;
                self.string()
            }
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(b'N') => self.word("NaN", Json::Float(f64::NAN)),
            Some(b'I') => self.word("Infinity", Json::Float(f64::INFINITY)),
            _ => Err("a value is expected"),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Parsed<Json<'a>>) -> Parsed<Json<'a>> {
        if self.depth == MAX_DEPTH {
            return Err("nested too deeply");
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn word(&mut self, word: &str, value: Json<'a>) -> Parsed<Json<'a>> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            Err("a value is expected")
        }
    }

    fn array(&mut self) -> Parsed<Json<'a>> {
        let mut items = Vec::new();
        self.skip_space();
        if self.bytes.get(self.at) == Some(&b']') {
            self.at += 1;
            return Ok(Json::Array(items));
        }
        loop {
            self.skip_space();
            items.push(self.value()?);
            self.skip_space();
            match self.bytes.get(self.at) {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Json::Array(items));
                }
                _ => return Err("`,` or `]` is expected"),
            }
        }
    }

    fn object(&mut self) -> Parsed<Json<'a>> {
        let mut entries = Vec::new();
        self.skip_space();
        if self.bytes.get(self.at) == Some(&b'}') {
            self.at += 1;
            return Ok(Json::Object(Map::new()));
        }
        loop {
            self.skip_space();
            if self.bytes.get(self.at) != Some(&b'"') {
                return Err("a property name in double quotes is expected");
            }
            self.at += 1;
            let (Json::Str(key) | Json::BrokenStr(key)) = self.string()? else {
                unreachable!("`string` gives strings");
            };
            self.skip_space();
            if self.bytes.get(self.at) != Some(&b':') {
                return Err("`:` is expected");
            }
            self.at += 1;
            self.skip_space();
            entries.push((key, self.value()?));
            self.skip_space();
            match self.bytes.get(self.at) {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Json::Object(entries.into_iter().collect()));
                }
                _ => return Err("`,` or `}` is expected"),
            }
        }
    }

    fn number(&mut self) -> Parsed<Json<'a>> {
        let start = self.at;
        if self.bytes[self.at] == b'-' {
            self.at += 1;
            if self.bytes.get(self.at) == Some(&b'I') {
                return self.word("Infinity", Json::Float(f64::NEG_INFINITY));
            }
        }
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => {
                self.at = start;
                return Err("a value is expected");
            }
        }
        let mut float = false;
        if self.bytes.get(self.at) == Some(&b'.') && matches!(self.bytes.get(self.at + 1), Some(b'0'..=b'9')) {
            float = true;
            self.at += 1;
            self.digits();
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            let sign = usize::from(matches!(self.bytes.get(self.at + 1), Some(b'+' | b'-')));
            if matches!(self.bytes.get(self.at + 1 + sign), Some(b'0'..=b'9')) {
                float = true;
                self.at += 1 + sign;
                self.digits();
            }
        }
        let text = &self.text[start..self.at];
        if float {
            return text.parse().map(Json::Float).map_err(|_| "a number is expected");
        }
        // Python prints `-0` as 0.
        Ok(text.parse().map_or(Json::BigInt(Cow::Borrowed(text)), Json::Int))
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    /// A string whose opening quote has been read.
    fn string(&mut self) -> Parsed<Json<'a>> {
        let start = self.at;
        let end = self.plain_run()?;
        if self.bytes[end] == b'"' {
            self.at = end + 1;
            return Ok(Json::Str(Cow::Borrowed(&self.text[start..end])));
        }
        let mut owned = String::with_capacity(end - start + 64);
        owned.push_str(&self.text[start..end]);
        let mut broken = false;
        self.at = end;
        loop {
            if self.bytes[self.at] == b'"' {
                self.at += 1;
                let text = Cow::Owned(owned);
                return Ok(if broken { Json::BrokenStr(text) } else { Json::Str(text) });
            }
            self.at += 1;
            broken |= self.escape(&mut owned)?;
            let start = self.at;
            let end = self.plain_run()?;
            owned.push_str(&self.text[start..end]);
            self.at = end;
        }
    }

    /// The place of the next quote or backslash.
    fn plain_run(&mut self) -> Parsed<usize> {
        let start = self.at;
        let Some(length) = memchr::memchr2(b'"', b'\\', &self.bytes[start..]) else {
            self.at = start.saturating_sub(1);
            return Err("a string is not closed");
        };
        let run = &self.bytes[start..start + length];
        // The smallest byte instead of the first bad one: the compiler vectorises it.
        if run.iter().copied().min().is_some_and(|byte| byte < 0x20) {
            self.at = start + run.iter().position(|&byte| byte < 0x20).unwrap_or(0);
            return Err("a control character in a string must be escaped");
        }
        Ok(start + length)
    }

    /// Read what follows a backslash; true when it was a lone surrogate.
    fn escape(&mut self, out: &mut String) -> Parsed<bool> {
        let byte = *self.bytes.get(self.at).ok_or("a string is not closed")?;
        let plain = match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex4(self.at + 1)?;
                self.at += 5;
                let mut code = u32::from(first);
                if (0xd800..0xdc00).contains(&first)
                    && self.bytes[self.at..].starts_with(b"\\u")
                    && let Ok(second @ 0xdc00..0xe000) = self.hex4(self.at + 2)
                {
                    self.at += 6;
                    code = 0x10000 + ((code - 0xd800) << 10) + (u32::from(second) - 0xdc00);
                }
                let decoded = char::from_u32(code);
                out.push(decoded.unwrap_or('\u{fffd}'));
                return Ok(decoded.is_none());
            }
            _ => return Err("an unknown escape"),
        };
        self.at += 1;
        out.push(plain);
        Ok(false)
    }

    fn hex4(&self, at: usize) -> Parsed<u16> {
        let digits = self.bytes.get(at..at + 4).ok_or("`\\u` wants four hexadecimal digits")?;
        digits.iter().try_fold(0u16, |code, &digit| {
            let value = char::from(digit).to_digit(16).ok_or("`\\u` wants four hexadecimal digits")?;
            Ok((code << 4) | u16::try_from(value).expect("a hexadecimal digit is below 16"))
        })
    }
}
