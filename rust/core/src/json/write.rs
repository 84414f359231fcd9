//! Writing JSON: for the wire as orjson does, and for templates and prompts as Python's `json.dumps` does.

use std::fmt::Write as _;

use super::{Json, Map};

impl Json<'_> {
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
    // `{:e}` gives the shortest round-trip digits as `d.ddde±x`. Of two that are as near Python takes the even one, which
    // rounding to that many digits does too.
    let shortest = format!("{value:e}");
    let digits = shortest.bytes().take_while(|byte| *byte != b'e').filter(u8::is_ascii_digit).count();
    let even = format!("{value:.*e}", digits.saturating_sub(1));
    let scientific = if even.parse() == Ok(value) { even } else { shortest };
    let (mantissa, exponent) = scientific.split_once('e').expect("`{:e}` always writes an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is an integer");
    // Python switches to exponents outside 1e-4..1e16.
    if (-4..16).contains(&exponent) {
        let decimals = digits.saturating_sub(1);
        let decimals = usize::try_from(i64::try_from(decimals).unwrap_or(0) - i64::from(exponent)).unwrap_or(0);
        return format!("{value:.*}", decimals.max(1));
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
    dump(value, Escapes::Ascii, &mut out);
    out
}

/// The same with `ensure_ascii=False`: only what JSON asks for is escaped.
pub fn python_dumps_unicode(value: &Json<'_>) -> String {
    let mut out = String::new();
    dump(value, Escapes::Needed, &mut out);
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Escapes {
    Ascii,
    Needed,
}

fn dump(value: &Json<'_>, escapes: Escapes, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Int(value) => out.push_str(itoa::Buffer::new().format(*value)),
        Json::BigInt(text) => out.push_str(text),
        Json::Float(value) if value.is_nan() => out.push_str("NaN"),
        Json::Float(value) if value.is_infinite() => out.push_str(if *value > 0.0 { "Infinity" } else { "-Infinity" }),
        Json::Float(value) => out.push_str(&python_float(*value)),
        Json::Str(text) | Json::BrokenStr(text) => dump_str(text, escapes, out),
        Json::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                dump(item, escapes, out);
            }
            out.push(']');
        }
        Json::Object(map) => {
            out.push('{');
            for (i, (key, value)) in map.iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                dump_str(key, escapes, out);
                out.push_str(": ");
                dump(value, escapes, out);
            }
            out.push('}');
        }
    }
}

fn dump_str(text: &str, escapes: Escapes, out: &mut String) {
    let mut quoted = Vec::new();
    write_str(&mut quoted, text);
    let quoted = String::from_utf8_lossy(&quoted);
    if escapes == Escapes::Needed {
        out.push_str(&quoted);
        return;
    }
    let mut units = [0u16; 2];
    for c in quoted.chars() {
        if c < '\u{7f}' {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut units) {
            write!(out, "\\u{unit:04x}").expect("a String can be written to");
        }
    }
}
