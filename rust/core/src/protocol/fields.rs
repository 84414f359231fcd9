//! Reading typed fields from a body, as leniently as pydantic's lax mode: `"5"` is an integer, `1` is true.

use crate::error::{Error, Result};
use crate::json::{Json, Map};

/// Bounds of a signed 64-bit integer, which some fields are held to.
pub const INT64: std::ops::RangeInclusive<i128> = (i64::MIN as i128)..=(i64::MAX as i128);

/// The fields of one object; errors name them below `path`.
#[derive(Clone, Copy)]
pub struct Fields<'m, 'a> {
    pub map: &'m Map<'a>,
    path: &'m str,
}

impl<'m, 'a> Fields<'m, 'a> {
    pub fn new(map: &'m Map<'a>, path: &'m str) -> Self {
        Self { map, path }
    }

    /// The value, unless it is absent or null.
    pub fn present(self, key: &str) -> Option<&'m Json<'a>> {
        self.map.present(key)
    }

    pub fn error(self, key: &str, expected: &str) -> Error {
        Error::schema(format!("{}.{key}", self.path), format!("`{key}` must be {expected}"))
    }

    /// The value read by `read`; null and absence give none.
    fn optional<T>(self, key: &str, expected: &str, read: impl Fn(&'m Json<'a>) -> Option<T>) -> Result<Option<T>> {
        self.present(key).map(|value| read(value).ok_or_else(|| self.error(key, expected))).transpose()
    }

    /// The value, or `default` when it is absent; null is refused, as for a pydantic field that is not nullable.
    fn required_type<T>(
        self,
        key: &str,
        default: T,
        expected: &str,
        read: impl Fn(&'m Json<'a>) -> Option<T>,
    ) -> Result<T> {
        match self.map.get(key) {
            None => Ok(default),
            Some(value) => read(value).ok_or_else(|| self.error(key, expected)),
        }
    }

    pub fn int(self, key: &str) -> Result<Option<i128>> {
        self.optional(key, "an integer", lax_int)
    }

    pub fn int_or(self, key: &str, default: i128) -> Result<i128> {
        self.required_type(key, default, "an integer", lax_int)
    }

    pub fn int_in(self, key: &str, range: std::ops::RangeInclusive<i128>) -> Result<Option<i128>> {
        let value = self.int(key)?;
        match value {
            Some(value) if !range.contains(&value) => {
                Err(self.error(key, &format!("between {} and {}", range.start(), range.end())))
            }
            _ => Ok(value),
        }
    }

    pub fn float(self, key: &str) -> Result<Option<f64>> {
        self.optional(key, "a number", lax_float)
    }

    pub fn float_or(self, key: &str, default: f64) -> Result<f64> {
        self.required_type(key, default, "a number", lax_float)
    }

    pub fn bool(self, key: &str) -> Result<Option<bool>> {
        self.optional(key, "a boolean", lax_bool)
    }

    /// A boolean that may not be null.
    pub fn bool_or(self, key: &str, default: bool) -> Result<bool> {
        self.required_type(key, default, "a boolean", lax_bool)
    }

    pub fn str(self, key: &str) -> Result<Option<&'m str>> {
        self.optional(key, "a string", Json::as_str)
    }

    pub fn object(self, key: &str) -> Result<Option<&'m Map<'a>>> {
        self.optional(key, "an object", Json::as_object)
    }

    pub fn array(self, key: &str) -> Result<Option<&'m [Json<'a>]>> {
        self.optional(key, "a list", Json::as_array)
    }

    /// A list of integers; null and absence give none.
    pub fn ints(self, key: &str) -> Result<Option<Vec<i128>>> {
        let Some(items) = self.array(key)? else { return Ok(None) };
        items
            .iter()
            .map(lax_int)
            .collect::<Option<Vec<_>>>()
            .map(Some)
            .ok_or_else(|| self.error(key, "a list of integers"))
    }

    /// A list of strings; null and absence give none.
    pub fn strs(self, key: &str) -> Result<Option<Vec<&'m str>>> {
        let Some(items) = self.array(key)? else { return Ok(None) };
        items
            .iter()
            .map(Json::as_str)
            .collect::<Option<Vec<_>>>()
            .map(Some)
            .ok_or_else(|| self.error(key, "a list of strings"))
    }

    /// One of a few words; null and absence give none.
    pub fn word(self, key: &str, words: &[&str]) -> Result<Option<&'m str>> {
        match self.str(key)? {
            Some(word) if !words.contains(&word) => Err(self.error(key, &format!("one of {}", words.join(", ")))),
            word => Ok(word),
        }
    }
}

/// An integer as pydantic reads it: `5`, `5.0`, `"5"`, `true`. Beyond `i128` it saturates, which every bound refuses.
pub fn lax_int(value: &Json<'_>) -> Option<i128> {
    match value {
        Json::Int(value) => Some(i128::from(*value)),
        Json::BigInt(text) => Some(big_int(text)),
        Json::Bool(value) => Some(i128::from(*value)),
        #[expect(clippy::cast_possible_truncation, reason = "a whole float; `as` saturates")]
        Json::Float(value) if value.fract() == 0.0 => Some(*value as i128),
        Json::Str(text) => {
            let text = text.trim();
            let text = text.split_once('.').map_or(text, |(whole, zeros)| {
                if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') { whole } else { text }
            });
            let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
            let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| big_int(text))
        }
        _ => None,
    }
}

fn big_int(text: &str) -> i128 {
    text.parse().unwrap_or(if text.starts_with('-') { i128::MIN } else { i128::MAX })
}

/// A float as pydantic reads it: numbers, numeric strings, booleans.
pub fn lax_float(value: &Json<'_>) -> Option<f64> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "as Python's float() of an int")]
        Json::Int(value) => Some(*value as f64),
        Json::BigInt(text) => text.parse().ok(),
        Json::Float(value) => Some(*value),
        Json::Bool(value) => Some(f64::from(u8::from(*value))),
        Json::Str(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A boolean as pydantic reads it: also 0 and 1, and the usual words.
pub fn lax_bool(value: &Json<'_>) -> Option<bool> {
    match value {
        Json::Bool(value) => Some(*value),
        Json::Int(0) => Some(false),
        Json::Int(1) => Some(true),
        Json::Float(value) if *value == 0.0 => Some(false),
        #[expect(clippy::float_cmp, reason = "exactly one")]
        Json::Float(value) if *value == 1.0 => Some(true),
        Json::Str(text) => match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "t" | "yes" | "y" | "on" => Some(true),
            "0" | "false" | "f" | "no" | "n" | "off" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Map<'_> {
        let Ok(Json::Object(map)) = Json::parse(text) else { panic!("not an object") };
        map
    }

    #[test]
    fn integers_are_read_leniently() {
        let map = body(
            r#"{"a": "5", "b": 5.0, "c": true, "d": " 7.00 ", "e": 99999999999999999999999999999999999999999, "f": -3}"#,
        );
        let fields = Fields::new(&map, "body");
        for (key, want) in [("a", 5), ("b", 5), ("c", 1), ("d", 7), ("e", i128::MAX), ("f", -3)] {
            assert_eq!(fields.int(key).unwrap(), Some(want), "{key}");
        }
        let map = body(r#"{"a": 5.5, "b": "x", "c": [], "d": "", "e": "1e3", "f": "5."}"#);
        for key in ["a", "b", "c", "d", "e", "f"] {
            let error = Fields::new(&map, "body").int(key).unwrap_err();
            assert_eq!((error.status(), error.param()), (400, Some(format!("body.{key}").as_str())));
        }
    }

    #[test]
    fn null_is_absent_only_where_the_field_is_nullable() {
        let map = body(r#"{"a": null}"#);
        let fields = Fields::new(&map, "body");
        assert_eq!(fields.bool("a").unwrap(), None);
        assert!(fields.bool_or("a", true).is_err());
        assert!(fields.bool_or("b", true).unwrap());
    }

    #[test]
    fn words_and_booleans() {
        let map = body(r#"{"a": "Yes", "b": 0, "c": 2, "d": "left", "e": "up"}"#);
        let fields = Fields::new(&map, "body");
        assert_eq!((fields.bool("a").unwrap(), fields.bool("b").unwrap()), (Some(true), Some(false)));
        assert!(fields.bool("c").is_err());
        assert_eq!(fields.word("d", &["left", "right"]).unwrap(), Some("left"));
        assert!(fields.word("e", &["left", "right"]).is_err());
    }
}
