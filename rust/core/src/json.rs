//! JSON as Python reads it: a borrowed tree that keeps key order and every number as it was written.
//!
//! In: what `json.loads` accepts (`NaN`, `Infinity`, integers of any size, duplicate keys where the last wins, lone
//! surrogates). Out: compact JSON for the wire. Strings without escapes borrow from the body, so a data URL of
//! megabytes costs one scan.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::fmt::Write as _;

/// Containers nested deeper than this are refused: parsing recurses.
pub const MAX_DEPTH: usize = 256;

/// Values that one text may hold. The tree takes some thirty bytes for a value of two; the longest honest body, a
/// prompt of a million token ids, stays well below.
pub const MAX_VALUES: usize = 2_000_000;

/// Objects up to this size are searched for duplicate keys by comparison, larger ones by hashing.
const LINEAR_KEYS: usize = 12;

/// A JSON value that borrows from the text it was parsed from.
#[derive(Debug, Clone, PartialEq)]
pub enum Json<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer outside `i64`, as written.
    BigInt(Cow<'a, str>),
    Float(f64),
    Str(Cow<'a, str>),
    /// A string with lone surrogates (here replaced by U+FFFD). Python accepts such a body and fails only when the
    /// string is encoded, so a field that nobody reads does no harm.
    BrokenStr(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    Object(Map<'a>),
}

/// A JSON object in the order its keys were first written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Map<'a> {
    entries: Vec<(Cow<'a, str>, Json<'a>)>,
}

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

impl<'a> Map<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn get(&self, key: &str) -> Option<&Json<'a>> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Json<'a>> {
        self.entries.iter_mut().find(|(k, _)| k == key).map(|(_, value)| value)
    }

    /// The value, unless it is absent or null.
    pub fn present(&self, key: &str) -> Option<&Json<'a>> {
        self.get(key).filter(|value| !value.is_null())
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Set a key: in place when it exists, else at the end, as a Python dict does.
    pub fn insert(&mut self, key: impl Into<Cow<'a, str>>, value: Json<'a>) {
        let key = key.into();
        match self.get_mut(&key) {
            Some(old) => *old = value,
            None => self.entries.push((key, value)),
        }
    }

    /// Append a key that is known to be new.
    pub fn push(&mut self, key: impl Into<Cow<'a, str>>, value: Json<'a>) {
        self.entries.push((key.into(), value));
    }

    pub fn remove(&mut self, key: &str) -> Option<Json<'a>> {
        let index = self.entries.iter().position(|(k, _)| k == key)?;
        Some(self.entries.remove(index).1)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Json<'a>)> + Clone {
        self.entries.iter().map(|(key, value)| (key.as_ref(), value))
    }

    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(|(key, _)| key.as_ref())
    }

    fn from_parsed(mut entries: Vec<(Cow<'a, str>, Json<'a>)>) -> Self {
        if entries.len() <= LINEAR_KEYS {
            let mut i = 1;
            while i < entries.len() {
                match entries[..i].iter().position(|(key, _)| *key == entries[i].0) {
                    Some(first) => entries[first].1 = entries.remove(i).1,
                    None => i += 1,
                }
            }
            return Self { entries };
        }
        let mut places: HashMap<Cow<'a, str>, usize> = HashMap::with_capacity(entries.len());
        let mut unique: Vec<(Cow<'a, str>, Json<'a>)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            if let Some(&place) = places.get(&key) {
                unique[place].1 = value;
            } else {
                places.insert(key.clone(), unique.len());
                unique.push((key, value));
            }
        }
        Self { entries: unique }
    }
}

impl<'a> FromIterator<(Cow<'a, str>, Json<'a>)> for Map<'a> {
    fn from_iter<I: IntoIterator<Item = (Cow<'a, str>, Json<'a>)>>(pairs: I) -> Self {
        Self::from_parsed(pairs.into_iter().collect())
    }
}

impl<'a> IntoIterator for Map<'a> {
    type Item = (Cow<'a, str>, Json<'a>);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<'a> Json<'a> {
    /// Parse a whole text.
    pub fn parse(text: &'a str) -> Result<Self, JsonError> {
        let mut parser = Parser { bytes: text.as_bytes(), text, at: 0, depth: 0, values: 0 };
        let value = parser.document().map_err(|message| JsonError {
            position: text.get(..parser.at).map_or(parser.at, |head| head.chars().count()),
            message,
        })?;
        Ok(value)
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Json::Null)
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Json::Str(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Json<'a>]> {
        match self {
            Json::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&Map<'a>> {
        match self {
            Json::Object(map) => Some(map),
            _ => None,
        }
    }

    /// Truth as Python judges it.
    pub fn truthy(&self) -> bool {
        match self {
            Json::Null => false,
            Json::Bool(value) => *value,
            Json::Int(value) => *value != 0,
            Json::BigInt(_) => true,
            Json::Float(value) => *value != 0.0,
            Json::Str(text) | Json::BrokenStr(text) => !text.is_empty(),
            Json::Array(items) => !items.is_empty(),
            Json::Object(map) => !map.is_empty(),
        }
    }

    /// A copy that borrows nothing.
    pub fn into_owned(self) -> Json<'static> {
        match self {
            Json::Null => Json::Null,
            Json::Bool(value) => Json::Bool(value),
            Json::Int(value) => Json::Int(value),
            Json::BigInt(text) => Json::BigInt(Cow::Owned(text.into_owned())),
            Json::Float(value) => Json::Float(value),
            Json::Str(text) => Json::Str(Cow::Owned(text.into_owned())),
            Json::BrokenStr(text) => Json::BrokenStr(Cow::Owned(text.into_owned())),
            Json::Array(items) => Json::Array(items.into_iter().map(Json::into_owned).collect()),
            Json::Object(map) => Json::Object(Map {
                entries: map
                    .entries
                    .into_iter()
                    .map(|(key, value)| (Cow::Owned(key.into_owned()), value.into_owned()))
                    .collect(),
            }),
        }
    }

    /// Append as compact JSON. Floats are spelled as orjson does (`1e-7`), and NaN and infinities become null.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Json::Null => out.extend_from_slice(b"null"),
            Json::Bool(true) => out.extend_from_slice(b"true"),
            Json::Bool(false) => out.extend_from_slice(b"false"),
            Json::Int(value) => out.extend_from_slice(itoa::Buffer::new().format(*value).as_bytes()),
            Json::BigInt(text) => out.extend_from_slice(text.as_bytes()),
            Json::Float(value) => write_float(out, *value),
            Json::Str(text) | Json::BrokenStr(text) => write_str(out, text),
            Json::Array(items) => {
                out.push(b'[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Json::Object(map) => map.write(out),
        }
    }
}

impl Map<'_> {
    /// Append as a compact JSON object.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (i, (key, value)) in self.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_str(out, key);
            out.push(b':');
            value.write(out);
        }
        out.push(b'}');
    }
}

impl<'a> From<&'a str> for Json<'a> {
    fn from(text: &'a str) -> Self {
        Json::Str(Cow::Borrowed(text))
    }
}

impl From<String> for Json<'_> {
    fn from(text: String) -> Self {
        Json::Str(Cow::Owned(text))
    }
}

impl From<bool> for Json<'_> {
    fn from(value: bool) -> Self {
        Json::Bool(value)
    }
}

impl From<serde_json::Value> for Json<'static> {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Json::Null,
            serde_json::Value::Bool(value) => Json::Bool(value),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Json::Int(value),
                (None, Some(value)) => Json::BigInt(Cow::Owned(value.to_string())),
                (None, None) => Json::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Json::Str(Cow::Owned(text)),
            serde_json::Value::Array(items) => Json::Array(items.into_iter().map(Json::from).collect()),
            serde_json::Value::Object(map) => {
                Json::Object(map.into_iter().map(|(key, value)| (Cow::Owned(key), Json::from(value))).collect())
            }
        }
    }
}

/// Append a float as orjson spells it: shortest digits, `1.0`, `1e16`, `1e-7`; not-finite becomes null.
pub fn write_float(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes());
    } else {
        out.extend_from_slice(b"null");
    }
}

/// A float as Python's `repr` spells it: shortest digits, `1e-07`, `1e+16`, `inf`, `nan`.
pub fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // `{:e}` gives the shortest round-trip digits as `d.ddde±x`; Python switches to exponents outside 1e-4..1e16.
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("`{:e}` always writes an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is an integer");
    if (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        return if plain.contains('.') { plain } else { format!("{plain}.0") };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// Append a quoted, escaped JSON string: what both orjson and `json.dumps(ensure_ascii=False)` write.
pub fn write_str(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;
    for (i, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[start..i]);
        start = i + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            _ => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}

/// A value as Python's `json.dumps` writes it: `", "` and `": "`, and `\\uXXXX` for all that is not ASCII.
pub fn python_dumps(value: &Json<'_>) -> String {
    let mut out = String::new();
    dump(value, &mut out);
    out
}

fn dump(value: &Json<'_>, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Int(value) => out.push_str(itoa::Buffer::new().format(*value)),
        Json::BigInt(text) => out.push_str(text),
        Json::Float(value) if value.is_nan() => out.push_str("NaN"),
        Json::Float(value) if value.is_infinite() => out.push_str(if *value > 0.0 { "Infinity" } else { "-Infinity" }),
        Json::Float(value) => out.push_str(&python_float(*value)),
        Json::Str(text) | Json::BrokenStr(text) => dump_str(text, out),
        Json::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                dump(item, out);
            }
            out.push(']');
        }
        Json::Object(map) => {
            out.push('{');
            for (i, (key, value)) in map.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                dump_str(key, out);
                out.push_str(": ");
                dump(value, out);
            }
            out.push('}');
        }
    }
}

fn dump_str(text: &str, out: &mut String) {
    let mut escaped = Vec::new();
    write_str(&mut escaped, text);
    let mut units = [0u16; 2];
    for c in String::from_utf8_lossy(&escaped).chars() {
        if c < '\u{7f}' {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut units) {
            write!(out, "\\u{unit:04x}").expect("a String can be written to");
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
                    return Ok(Json::Object(Map::from_parsed(entries)));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let mut out = Vec::new();
        Json::parse(text).unwrap().write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn key_order_survives_and_the_last_duplicate_wins_at_the_first_place() {
        assert_eq!(written(r#"{"z": 1, "a": {"y": 2, "b": 3}, "z": 4}"#), r#"{"z":4,"a":{"y":2,"b":3}}"#);
        let many: Vec<String> = (0..40).map(|i| format!(r#""k{}": {i}"#, i % 20)).collect();
        let want: Vec<String> = (0..20).map(|i| format!(r#""k{i}":{}"#, i + 20)).collect();
        assert_eq!(written(&format!("{{{}}}", many.join(","))), format!("{{{}}}", want.join(",")));
    }

    #[test]
    fn numbers_keep_what_python_keeps() {
        assert_eq!(
            written("[1.0, 1e-7, 1e16, 123456789012345678901234567890, -0.0, -5]"),
            "[1.0,1e-7,1e16,123456789012345678901234567890,-0.0,-5]"
        );
        assert_eq!(written("[NaN, Infinity, -Infinity, 1e999]"), "[null,null,null,null]");
    }

    #[test]
    fn python_floats() {
        for (value, want) in [
            (1.0, "1.0"),
            (1e-7, "1e-07"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-0.0, "-0.0"),
            (1.5e300, "1.5e+300"),
            (0.1, "0.1"),
        ] {
            assert_eq!(python_float(value), want);
        }
    }

    #[test]
    fn python_dumps_escapes_what_is_not_ascii() {
        let value = Json::parse(r#"{"a": [1, 1e-7, "é😀\u007f\n"], "b": {}, "c": [], "d": null, "e": true}"#).unwrap();
        let want = r#"{"a": [1, 1e-07, "\u00e9\ud83d\ude00\u007f\n"], "b": {}, "c": [], "d": null, "e": true}"#;
        assert_eq!(python_dumps(&value), want);
    }

    #[test]
    fn strings_borrow_unless_escaped() {
        assert!(matches!(Json::parse(r#""plain é""#), Ok(Json::Str(Cow::Borrowed("plain é")))));
        assert_eq!(Json::parse(r#""a\u00e9\ud83d\ude00\n\/""#), Ok(Json::Str("aé😀\n/".into())));
        assert_eq!(Json::parse(r#""\ud83d x""#), Ok(Json::BrokenStr("\u{fffd} x".into())));
        assert_eq!(written(r#""\u0001\u001f\b\f\"\\\u007f""#), "\"\\u0001\\u001f\\b\\f\\\"\\\\\u{7f}\"");
    }

    #[test]
    fn faults_say_where() {
        for (text, position) in [
            ("", 0),
            (r#"{"prompt":"x",}"#, 14),
            ("[1,", 3),
            ("[1] 2", 4),
            (r#"["é" 1]"#, 5),
            ("\"a\nb\"", 2),
            ("nul", 0),
            ("01", 1),
            ("{a:1}", 1),
        ] {
            assert_eq!(Json::parse(text).unwrap_err().position, position, "{text}");
        }
    }

    #[test]
    fn the_number_of_values_is_bounded() {
        let list = |n: usize| format!("[{}1]", "1,".repeat(n - 2));
        assert!(Json::parse(&list(MAX_VALUES)).is_ok());
        assert_eq!(Json::parse(&list(MAX_VALUES + 1)).unwrap_err().message, "too many values");
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(Json::parse(&deep(MAX_DEPTH)).is_ok());
        assert!(Json::parse(&deep(MAX_DEPTH + 1)).is_err());
        assert!(Json::parse(&"[".repeat(1_000_000)).is_err());
    }
}
