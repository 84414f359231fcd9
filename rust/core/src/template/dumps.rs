//! `tojson` as transformers defines it: Python's `json.dumps`.

use std::borrow::Cow;
use std::fmt::Write;

use minijinja::Value;

use super::budget::{self, Bytes};
use super::operators;
use super::text::FLOAT_WORK;
use super::value::{Outcome, Py, fail, py, type_name};
use crate::json::{Json, Map, python_float};

/// How `json.dumps` was called.
pub(super) struct Style<'a> {
    pub(super) ensure_ascii: bool,
    /// What one level is indented by; `None` keeps all on one line.
    pub(super) indent: Option<Cow<'a, str>>,
    pub(super) item_separator: Cow<'a, str>,
    pub(super) key_separator: Cow<'a, str>,
    pub(super) sort_keys: bool,
    /// Whether all of it is as in [`Style::PLAIN`].
    pub(super) is_plain: bool,
}

impl Style<'_> {
    /// The style of `tojson` without arguments.
    pub(super) const PLAIN: Style<'static> = Style {
        ensure_ascii: false,
        indent: None,
        item_separator: Cow::Borrowed(", "),
        key_separator: Cow::Borrowed(": "),
        sort_keys: false,
        is_plain: true,
    };
}

/// Append a value as JSON.
pub(super) fn append(out: &mut String, value: &Value, style: &Style<'_>, level: usize) -> Outcome<()> {
    budget::work(1)?;
    match py(value) {
        Py::None => out.push_str("null"),
        Py::Bool(true) => out.push_str("true"),
        Py::Bool(false) => out.push_str("false"),
        Py::Int(number) => out.push_str(itoa::Buffer::new().format(number)),
        Py::BigInt(number) => out.push_str(&number.0),
        Py::Float(number) => {
            budget::work(FLOAT_WORK)?;
            out.push_str(&float(number));
        }
        Py::Str(text) => {
            budget::work_on(if style.ensure_ascii { Bytes::Read } else { Bytes::Copied }, text.len())?;
            append_str(out, text, style.ensure_ascii);
        }
        Py::List(items) | Py::Tuple(items) => {
            if items.is_empty() {
                out.push_str("[]");
                return Ok(());
            }
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                budget::check_size(out.len())?;
                separate(out, style, level + 1, place > 0);
                append(out, item, style, level + 1)?;
            }
            close(out, style, level, ']');
        }
        Py::Dict(dict) if style.is_plain && dict.json().is_some() => {
            out.push_str(dict.json().and_then(Value::as_str).unwrap_or_default());
        }
        Py::Dict(dict) => {
            if dict.len() == 0 {
                out.push_str("{}");
                return Ok(());
            }
            out.push('{');
            let mut entries: Cow<'_, [(Value, Value)]> = Cow::Borrowed(dict.entries());
            if style.sort_keys {
                entries = Cow::Owned(operators::sorted(entries.into_owned(), false, |(a, _), (b, _)| {
                    operators::less_than(a, b)
                })?);
            }
            for (place, (key, value)) in entries.iter().enumerate() {
                budget::check_size(out.len())?;
                separate(out, style, level + 1, place > 0);
                append_key(out, key, style)?;
                out.push_str(&style.key_separator);
                append(out, value, style, level + 1)?;
            }
            close(out, style, level, '}');
        }
        Py::Undefined | Py::Object(_) => {
            return Err(fail(format!("a value of type `{}` cannot be written as JSON", type_name(value))));
        }
    }
    Ok(())
}

fn append_key(out: &mut String, key: &Value, style: &Style<'_>) -> Outcome<()> {
    let text: Cow<'_, str> = match py(key) {
        Py::Str(text) => Cow::Borrowed(text),
        Py::None => Cow::Borrowed("null"),
        Py::Bool(true) => Cow::Borrowed("true"),
        Py::Bool(false) => Cow::Borrowed("false"),
        Py::Int(number) => Cow::Owned(number.to_string()),
        Py::BigInt(number) => Cow::Borrowed(&number.0),
        Py::Float(number) => Cow::Owned(float(number)),
        _ => return Err(fail(format!("a key of type `{}` cannot be written as JSON", type_name(key)))),
    };
    budget::work_on(Bytes::Copied, text.len())?;
    append_str(out, &text, style.ensure_ascii);
    Ok(())
}

fn separate(out: &mut String, style: &Style<'_>, level: usize, between: bool) {
    if between {
        out.push_str(&style.item_separator);
    }
    new_line(out, style, level);
}

fn close(out: &mut String, style: &Style<'_>, level: usize, bracket: char) {
    new_line(out, style, level);
    out.push(bracket);
}

fn new_line(out: &mut String, style: &Style<'_>, level: usize) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..level {
            out.push_str(indent);
        }
    }
}

fn float(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        python_float(number)
    }
}

/// Append an object as `tojson` without arguments would, straight from JSON. Gives its depth, or `None` for what such
/// text cannot carry: strings that are not text.
pub(super) fn append_map(out: &mut String, map: &Map<'_>) -> Option<u32> {
    out.push('{');
    let mut depth = 0;
    for (place, (key, value)) in map.iter().enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        append_str(out, key, false);
        out.push_str(": ");
        depth = depth.max(append_json(out, value)?);
    }
    out.push('}');
    Some(depth + 1)
}

fn append_json(out: &mut String, json: &Json<'_>) -> Option<u32> {
    match json {
        Json::Null => out.push_str("null"),
        Json::Bool(true) => out.push_str("true"),
        Json::Bool(false) => out.push_str("false"),
        Json::Int(number) => out.push_str(itoa::Buffer::new().format(*number)),
        Json::BigInt(number) => out.push_str(number),
        Json::Float(number) => out.push_str(&float(*number)),
        Json::Str(text) => append_str(out, text, false),
        Json::BrokenStr(_) => return None,
        Json::Array(items) => {
            out.push('[');
            let mut depth = 0;
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push_str(", ");
                }
                depth = depth.max(append_json(out, item)?);
            }
            out.push(']');
            return Some(depth + 1);
        }
        Json::Object(map) => return append_map(out, map),
    }
    Some(0)
}

/// Append a string in quotes.
pub(super) fn append_str(out: &mut String, text: &str, ensure_ascii: bool) {
    out.reserve(text.len() + 2);
    out.push('"');
    #[expect(clippy::needless_bitwise_bool, reason = "without branches the compiler vectorises it")]
    let escapes = |found: bool, &byte: &u8| found | (byte < 0x20) | (byte == b'"') | (byte == b'\\');
    if !ensure_ascii && !text.as_bytes().iter().fold(false, escapes) {
        out.push_str(text);
        out.push('"');
        return;
    }
    let mut start = 0;
    for (place, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0..=0x1f => {
                append_plain(out, &text[start..place], ensure_ascii);
                let _ = write!(out, "\\u{byte:04x}");
                start = place + 1;
                continue;
            }
            _ => continue,
        };
        append_plain(out, &text[start..place], ensure_ascii);
        out.push_str(escape);
        start = place + 1;
    }
    append_plain(out, &text[start..], ensure_ascii);
    out.push('"');
}

fn append_plain(out: &mut String, text: &str, ensure_ascii: bool) {
    // Python escapes DEL too when it keeps to ASCII.
    if !ensure_ascii || text.bytes().all(|byte| byte < 0x7f) {
        out.push_str(text);
        return;
    }
    for character in text.chars() {
        if character < '\u{7f}' {
            out.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
}
