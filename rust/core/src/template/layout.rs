//! How Python lays out texts and numbers in fields, and the numbers that it reads from text.

use std::fmt::Write;

use super::methods::is_space;
use super::value::{Outcome, fail};

/// The widest field and the longest precision that a template may ask for.
const MAX_WIDTH: usize = 10_000;

/// How one field is laid out.
#[derive(Default)]
pub(super) struct Spec {
    pub(super) fill: Option<char>,
    pub(super) align: Option<char>,
    pub(super) sign: Option<char>,
    pub(super) alternate: bool,
    pub(super) zero: bool,
    pub(super) width: usize,
    pub(super) grouping: Option<char>,
    pub(super) precision: Option<usize>,
    pub(super) kind: Option<char>,
}

pub(super) fn bounded(width: u128) -> Outcome<usize> {
    usize::try_from(width).ok().filter(|&width| width <= MAX_WIDTH).ok_or_else(|| fail("a format is too wide"))
}

pub(super) fn digits(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Outcome<Option<usize>> {
    let mut number = None;
    while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
        rest.next();
        number = Some(bounded(number.unwrap_or(0) as u128 * 10 + u128::from(digit))?);
    }
    Ok(number)
}

pub(super) fn radix(number: i128, kind: char) -> (&'static str, String) {
    let sign = if number < 0 { "-" } else { "" };
    let size = number.unsigned_abs();
    match kind {
        'x' => ("0x", format!("{sign}{size:x}")),
        'X' => ("0X", format!("{sign}{size:X}")),
        'b' => ("0b", format!("{sign}{size:b}")),
        _ => ("0o", format!("{sign}{size:o}")),
    }
}

/// A number that may begin with a minus.
pub(super) fn append_signed(out: &mut String, number: &str, prefix: &str, spec: &Spec, align: char) {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => (
            spec.sign.map_or("", |sign| {
                if sign == '+' {
                    "+"
                } else if sign == ' ' {
                    " "
                } else {
                    ""
                }
            }),
            number,
        ),
    };
    pad(out, &format!("{sign}{prefix}"), digits, spec, align);
}

pub(super) fn pad(out: &mut String, head: &str, body: &str, spec: &Spec, align: char) {
    let missing = spec.width.saturating_sub(head.chars().count() + body.chars().count());
    let fill = spec.fill.unwrap_or(' ');
    let mut padding = |count: usize| out.extend(std::iter::repeat_n(fill, count));
    let before = match align {
        '<' | '=' => 0,
        '^' => missing / 2,
        _ => missing,
    };
    padding(before);
    out.push_str(head);
    if align == '=' {
        out.extend(std::iter::repeat_n(fill, missing));
    }
    out.push_str(body);
    if align != '=' {
        out.extend(std::iter::repeat_n(fill, missing - before));
    }
}

/// A float in one of C's notations.
pub(super) fn float(number: f64, kind: char, precision: usize, alternate: bool) -> String {
    let upper = kind.is_ascii_uppercase();
    if !number.is_finite() {
        let text = if number.is_nan() {
            "nan"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        return if upper { text.to_uppercase() } else { text.to_owned() };
    }
    let text = match kind.to_ascii_lowercase() {
        'e' => exponent(number, precision),
        'g' => general(number, precision.max(1), alternate),
        _ => format!("{number:.precision$}"),
    };
    if upper { text.to_uppercase() } else { text }
}

/// `1.5e+00`: at least two digits of exponent.
pub(super) fn exponent(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let sign = if power < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", power.unsigned_abs())
}

pub(super) fn general(number: f64, precision: usize, alternate: bool) -> String {
    let rounded = format!("{number:.*e}", precision - 1);
    let power: i64 = rounded.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    let significant = i64::try_from(precision).unwrap_or(i64::MAX);
    let strip = |text: String| {
        if alternate || !text.contains('.') {
            return text;
        }
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    if (-4..significant).contains(&power) {
        let decimals = usize::try_from(significant - 1 - power).unwrap_or(0);
        strip(format!("{number:.decimals$}"))
    } else {
        let text = exponent(number, precision - 1);
        let (mantissa, power) = text.split_once('e').unwrap_or((&text, "+00"));
        format!("{}e{power}", strip(mantissa.to_owned()))
    }
}

/// Python's `int(text, base)`.
pub(super) fn parse_int(text: &str, base: u32) -> Option<i128> {
    let text = text.trim_matches(is_space);
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let prefixed = |prefix: &str, of: u32| (base == of || base == 0).then(|| lower.strip_prefix(prefix)).flatten();
    let (digits, base) = if let Some(rest) = prefixed("0x", 16) {
        (rest.strip_prefix('_').unwrap_or(rest), 16)
    } else if let Some(rest) = prefixed("0o", 8) {
        (rest.strip_prefix('_').unwrap_or(rest), 8)
    } else if let Some(rest) = prefixed("0b", 2) {
        (rest.strip_prefix('_').unwrap_or(rest), 2)
    } else {
        (lower.as_str(), if base == 0 { 10 } else { base })
    };
    if digits.is_empty() || digits.starts_with('_') || digits.ends_with('_') || digits.contains("__") {
        return None;
    }
    let digits: String = digits.chars().filter(|&c| c != '_').collect();
    let mut signed = String::with_capacity(digits.len() + 1);
    let _ = write!(signed, "{}{digits}", if negative { "-" } else { "" });
    if !(2..=36).contains(&base) || digits.starts_with(['+', '-']) {
        return None;
    }
    i128::from_str_radix(&signed, base).ok()
}

/// Python's `float(text)`.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_space);
    let plain = text.to_ascii_lowercase();
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    match unsigned {
        "inf" | "infinity" | "nan" => return plain.parse().ok(),
        _ if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') => return None,
        _ => {}
    }
    if plain.contains('_') {
        let bytes = plain.as_bytes();
        let between = |place: usize| {
            place > 0 && bytes[place - 1].is_ascii_digit() && bytes.get(place + 1).is_some_and(u8::is_ascii_digit)
        };
        if !(0..bytes.len()).all(|place| bytes[place] != b'_' || between(place)) {
            return None;
        }
    }
    plain.replace('_', "").parse().ok()
}
