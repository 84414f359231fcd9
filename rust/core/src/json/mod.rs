//! JSON as Python reads it: a borrowed tree that keeps key order and every number as it was written.
//!
//! In: what `json.loads` accepts (`NaN`, `Infinity`, integers of any size, duplicate keys where the last wins, lone
//! surrogates). Out: compact JSON for the wire. Strings without escapes borrow from the body, so a data URL of
//! megabytes costs one scan.

mod map;
mod parse;
mod write;

use std::borrow::Cow;

pub use map::Map;
pub use parse::{JsonError, MAX_DEPTH, MAX_VALUES};
pub use write::{python_dumps, python_dumps_unicode, python_float, write_float, write_str};

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

impl<'a> Json<'a> {
    /// Parse a whole text.
    pub fn parse(text: &'a str) -> Result<Self, JsonError> {
        parse::parse(text).map(|(value, _)| value)
    }

    /// Parse a whole text; also tells how many values it holds, which is a measure of the work it asks for.
    pub fn parse_counting(text: &'a str) -> Result<(Self, usize), JsonError> {
        parse::parse(text)
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

    /// Whether a string anywhere in this, or a key, holds `wanted`.
    pub fn mentions(&self, wanted: &str) -> bool {
        match self {
            Json::Str(text) | Json::BrokenStr(text) => text.contains(wanted),
            Json::Array(items) => items.iter().any(|item| item.mentions(wanted)),
            Json::Object(map) => map.iter().any(|(key, value)| key.contains(wanted) || value.mentions(wanted)),
            _ => false,
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
            Json::Object(map) => {
                let own = |(key, value): (Cow<'_, str>, Json<'_>)| (Cow::Owned(key.into_owned()), value.into_owned());
                Json::Object(map.into_iter().map(own).collect())
            }
        }
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
            (562_949_953_421_312.0 + 0.25, "562949953421312.2"),
            (9_007_199_254_740_993.0, "9007199254740992.0"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
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
