//! Python's text formatting: `text % values`, `str.format`, and the numbers inside them.

use std::fmt::Write;

use minijinja::Value;

use super::operators::{self, Number};
use super::text;
use super::value::{Args, Outcome, Py, fail, iterate, py, type_name};
use crate::json::python_float;

/// The widest field and the longest precision that a template may ask for.
const MAX_WIDTH: usize = 10_000;

/// How one field is laid out.
#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

/// `format % values`.
pub(super) fn format(format: &str, values: &Value) -> Outcome<String> {
    let single = std::slice::from_ref(values);
    let positional = if let Py::Tuple(items) = py(values) { items } else { single };
    let mapping = matches!(py(values), Py::Dict(_)).then_some(values);
    let mut next = positional.iter();
    let mut named = false;
    let mut out = String::with_capacity(format.len());
    let mut rest = format.chars().peekable();
    while let Some(character) = rest.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut key = None;
        if rest.next_if_eq(&'(').is_some() {
            let mut depth = 1;
            let mut name = String::new();
            loop {
                let character = rest.next().ok_or_else(|| fail("a format key is not closed"))?;
                match character {
                    ')' if depth == 1 => break,
                    ')' => depth -= 1,
                    '(' => depth += 1,
                    _ => {}
                }
                name.push(character);
            }
            key = Some(name);
        }
        let mut spec = Spec::default();
        while let Some(flag) = rest.next_if(|c| "-+ 0#".contains(*c)) {
            match flag {
                '-' => spec.align = Some('<'),
                '+' => spec.sign = Some('+'),
                ' ' => spec.sign = spec.sign.or(Some(' ')),
                '0' => spec.zero = true,
                _ => spec.alternate = true,
            }
        }
        let star = |next: &mut std::slice::Iter<'_, Value>| {
            let value = next.next().and_then(operators::integer);
            value.ok_or_else(|| fail("`*` in a format wants an integer"))
        };
        if rest.next_if_eq(&'*').is_some() {
            let width = star(&mut next)?;
            if width < 0 {
                spec.align = Some('<');
            }
            spec.width = bounded(width.unsigned_abs())?;
        } else {
            spec.width = digits(&mut rest)?.unwrap_or(0);
        }
        if rest.next_if_eq(&'.').is_some() {
            spec.precision = Some(if rest.next_if_eq(&'*').is_some() {
                bounded(star(&mut next)?.max(0).unsigned_abs())?
            } else {
                digits(&mut rest)?.unwrap_or(0)
            });
        }
        while rest.next_if(|c| "hlL".contains(*c)).is_some() {}
        let kind = rest.next().ok_or_else(|| fail("a format is incomplete"))?;
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = match &key {
            Some(key) => {
                named = true;
                let mapping = mapping.ok_or_else(|| fail("a format with names wants a mapping"))?;
                let Py::Dict(dict) = py(mapping) else { return Err(fail("a format with names wants a mapping")) };
                dict.get_str(key).ok_or_else(|| fail(format!("a format names `{key}`, which is missing")))?
            }
            None => next.next().ok_or_else(|| fail("a format has more fields than values"))?,
        };
        append_percent(&mut out, kind, value, spec)?;
    }
    // Whatever has subscripts counts as a mapping here, and may stay unused.
    let subscripts = matches!(py(values), Py::Dict(_) | Py::List(_) | Py::Undefined);
    if !named && !subscripts && next.next().is_some() {
        return Err(fail("a format has fewer fields than values"));
    }
    Ok(out)
}

fn bounded(width: u128) -> Outcome<usize> {
    usize::try_from(width).ok().filter(|&width| width <= MAX_WIDTH).ok_or_else(|| fail("a format is too wide"))
}

fn digits(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Outcome<Option<usize>> {
    let mut number = None;
    while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
        rest.next();
        number = Some(bounded(number.unwrap_or(0) as u128 * 10 + u128::from(digit))?);
    }
    Ok(number)
}

fn append_percent(out: &mut String, kind: char, value: &Value, mut spec: Spec) -> Outcome<()> {
    if spec.align.is_none() && spec.zero && "diouxXeEfFgG".contains(kind) {
        spec.fill = Some('0');
        spec.align = Some('=');
    }
    let align = spec.align.unwrap_or('>');
    match kind {
        's' | 'r' | 'a' => {
            let mut text = String::new();
            if kind == 's' {
                text::append(&mut text, value)?;
            } else {
                text::append_repr(&mut text, value)?;
            }
            if let Some(precision) = spec.precision {
                text = text.chars().take(precision).collect();
            }
            pad(out, "", &text, &Spec { fill: None, ..spec }, if align == '=' { '>' } else { align });
        }
        'c' => {
            let text = match py(value) {
                Py::Str(text) if text.chars().count() == 1 => text.to_owned(),
                _ => {
                    let code = operators::integer(value).and_then(|code| u32::try_from(code).ok());
                    let character = code.and_then(char::from_u32);
                    character.ok_or_else(|| fail("`%c` wants one character"))?.to_string()
                }
            };
            pad(out, "", &text, &spec, align);
        }
        'd' | 'i' | 'u' => {
            let digits = match (py(value), operators::number(value)) {
                (Py::BigInt(number), _) => number.0.clone(),
                (_, Some(Number::Int(number))) => number.to_string(),
                (_, Some(Number::Float(number))) => truncated(number)?.to_string(),
                _ => return Err(fail(format!("`%{kind}` wants a number, not `{}`", type_name(value)))),
            };
            append_integer(out, &digits, "", &spec, align);
        }
        'x' | 'X' | 'o' => {
            let number = operators::integer(value)
                .ok_or_else(|| fail(format!("`%{kind}` wants an integer, not `{}`", type_name(value))))?;
            let (prefix, digits) = radix(number, kind);
            append_integer(out, &digits, if spec.alternate { prefix } else { "" }, &spec, align);
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let number = operators::number(value)
                .ok_or_else(|| fail(format!("`%{kind}` wants a number, not `{}`", type_name(value))))?;
            let digits = float(operators::float(number), kind, spec.precision.unwrap_or(6), spec.alternate);
            append_signed(out, &digits, "", &spec, align);
        }
        _ => return Err(fail(format!("a format has no conversion `{kind}`"))),
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "checked before")]
fn truncated(number: f64) -> Outcome<i128> {
    if number.is_finite() && number.abs() < 1e38 {
        Ok(number.trunc() as i128)
    } else {
        Err(fail("a number is too large for an integer"))
    }
}

fn radix(number: i128, kind: char) -> (&'static str, String) {
    let sign = if number < 0 { "-" } else { "" };
    let size = number.unsigned_abs();
    match kind {
        'x' => ("0x", format!("{sign}{size:x}")),
        'X' => ("0X", format!("{sign}{size:X}")),
        'b' => ("0b", format!("{sign}{size:b}")),
        _ => ("0o", format!("{sign}{size:o}")),
    }
}

/// An integer with at least `precision` digits.
fn append_integer(out: &mut String, digits: &str, prefix: &str, spec: &Spec, align: char) {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let zeros = spec.precision.unwrap_or(0).saturating_sub(digits.len());
    append_signed(out, &format!("{sign}{}{digits}", "0".repeat(zeros)), prefix, spec, align);
}

/// A number that may begin with a minus.
fn append_signed(out: &mut String, number: &str, prefix: &str, spec: &Spec, align: char) {
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

fn pad(out: &mut String, head: &str, body: &str, spec: &Spec, align: char) {
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
fn float(number: f64, kind: char, precision: usize, alternate: bool) -> String {
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
fn exponent(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let sign = if power < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", power.unsigned_abs())
}

fn general(number: f64, precision: usize, alternate: bool) -> String {
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

/// `format.format(*args, **kwargs)`, without access to private attributes.
pub(super) fn str_format(format: &str, args: &Args<'_>) -> Outcome<String> {
    let mut fields = Fields { args, automatic: 0 };
    let mut out = String::with_capacity(format.len());
    fields.append(&mut out, format, 2)?;
    Ok(out)
}

struct Fields<'a> {
    args: &'a Args<'a>,
    automatic: usize,
}

impl Fields<'_> {
    fn append(&mut self, out: &mut String, format: &str, depth: usize) -> Outcome<()> {
        let mut rest = format;
        while let Some(place) = rest.find(['{', '}']) {
            out.push_str(&rest[..place]);
            let brace = &rest[place..=place];
            rest = &rest[place + 1..];
            if let Some(after) = rest.strip_prefix(brace) {
                out.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" || depth == 0 {
                return Err(fail("a brace in a format stands alone"));
            }
            let mut open = 1;
            let end = rest.find(|c| {
                open += i32::from(c == '{') - i32::from(c == '}');
                open == 0
            });
            let end = end.ok_or_else(|| fail("a field of a format is not closed"))?;
            self.append_field(out, &rest[..end], depth)?;
            rest = &rest[end + 1..];
        }
        out.push_str(rest);
        Ok(())
    }

    fn append_field(&mut self, out: &mut String, field: &str, depth: usize) -> Outcome<()> {
        let name_end = field.find(['!', ':']).unwrap_or(field.len());
        let (name, mut rest) = field.split_at(name_end);
        let value = self.lookup(name)?;
        let mut conversion = None;
        if let Some(after) = rest.strip_prefix('!') {
            conversion = after.chars().next();
            rest = after.get(1..).unwrap_or_default();
        }
        let mut spec = String::new();
        if let Some(after) = rest.strip_prefix(':') {
            self.append(&mut spec, after, depth - 1)?;
        }
        let value = match conversion {
            None => value,
            Some('s') => Value::from(text::to_string(&value)?),
            Some('r' | 'a') => {
                let mut shown = String::new();
                text::append_repr(&mut shown, &value)?;
                Value::from(shown)
            }
            Some(other) => return Err(fail(format!("a format has no conversion `!{other}`"))),
        };
        append_formatted(out, &value, &spec)
    }

    /// The value of `0.attribute[key]`.
    fn lookup(&mut self, name: &str) -> Outcome {
        let end = name.find(['.', '[']).unwrap_or(name.len());
        let (first, mut path) = name.split_at(end);
        let missing = || fail(format!("a format names `{first}`, which is missing"));
        let mut value = if first.is_empty() || first.bytes().all(|b| b.is_ascii_digit()) {
            let place = if first.is_empty() {
                self.automatic += 1;
                self.automatic - 1
            } else {
                first.parse().map_err(|_| missing())?
            };
            self.args.positional.get(place).ok_or_else(missing)?.clone()
        } else {
            self.args.named(first).ok_or_else(missing)?.clone()
        };
        while !path.is_empty() {
            if let Some(rest) = path.strip_prefix('.') {
                let end = rest.find(['.', '[']).unwrap_or(rest.len());
                value = operators::get_attribute(&value, &rest[..end])?;
                path = &rest[end..];
            } else {
                let close = path.find(']').ok_or_else(|| fail("a bracket in a format is not closed"))?;
                let key = path.get(1..close).unwrap_or_default();
                let key = key.parse::<i64>().map_or_else(|_| Value::from(key), Value::from);
                value = operators::get_item(&value, &key)?;
                path = &path[close + 1..];
            }
        }
        Ok(value)
    }
}

fn parse_spec(text: &str) -> Outcome<Spec> {
    let mut spec = Spec::default();
    let characters: Vec<char> = text.chars().take(2).collect();
    let mut rest = text.chars().peekable();
    if characters.len() == 2 && "<>=^".contains(characters[1]) {
        spec.fill = rest.next();
        spec.align = rest.next();
    } else if let Some(align) = rest.next_if(|c| "<>=^".contains(*c)) {
        spec.align = Some(align);
    }
    spec.sign = rest.next_if(|c| "+- ".contains(*c));
    spec.alternate = rest.next_if_eq(&'#').is_some();
    if rest.next_if_eq(&'0').is_some() {
        spec.zero = true;
        spec.fill = spec.fill.or(Some('0'));
        spec.align = spec.align.or(Some('='));
    }
    spec.width = digits(&mut rest)?.unwrap_or(0);
    spec.grouping = rest.next_if(|c| ",_".contains(*c));
    if rest.next_if_eq(&'.').is_some() {
        spec.precision = Some(digits(&mut rest)?.ok_or_else(|| fail("a format lacks its precision"))?);
    }
    spec.kind = rest.next();
    if rest.next().is_some() {
        return Err(fail(format!("`{text}` is not a format")));
    }
    Ok(spec)
}

/// `format(value, spec)`.
fn append_formatted(out: &mut String, value: &Value, spec: &str) -> Outcome<()> {
    if spec.is_empty() {
        return text::append(out, value);
    }
    let spec = parse_spec(spec)?;
    let bad = || fail(format!("a value of type `{}` cannot be laid out that way", type_name(value)));
    match (py(value), operators::number(value)) {
        (Py::Str(shown), _) => {
            if !matches!(spec.kind, None | Some('s')) || spec.grouping.is_some() || spec.sign.is_some() {
                return Err(bad());
            }
            let shown: String = shown.chars().take(spec.precision.unwrap_or(usize::MAX)).collect();
            let align = spec.align.map_or('<', |align| if spec.zero && align == '=' { '<' } else { align });
            pad(out, "", &shown, &spec, align);
            Ok(())
        }
        (_, Some(Number::Int(number))) if matches!(spec.kind, None | Some('d' | 'n' | 'x' | 'X' | 'b' | 'o' | 'c')) => {
            if spec.precision.is_some() {
                return Err(bad());
            }
            let align = spec.align.unwrap_or('>');
            match spec.kind {
                Some('c') => {
                    let character = u32::try_from(number).ok().and_then(char::from_u32).ok_or_else(bad)?;
                    pad(out, "", &character.to_string(), &spec, spec.align.unwrap_or('<'));
                }
                Some(kind @ ('x' | 'X' | 'b' | 'o')) => {
                    let (prefix, digits) = radix(number, kind);
                    append_signed(
                        out,
                        &grouped(&digits, &spec, 4),
                        if spec.alternate { prefix } else { "" },
                        &spec,
                        align,
                    );
                }
                _ => append_signed(out, &grouped(&number.to_string(), &spec, 3), "", &spec, align),
            }
            Ok(())
        }
        (_, Some(number)) => {
            let number = operators::float(number);
            let align = spec.align.unwrap_or('>');
            let shown = match spec.kind {
                None if spec.precision.is_none() => python_float(number),
                None => {
                    let shown = general(number, spec.precision.unwrap_or(0).max(1), false);
                    if shown.contains(['.', 'e', 'n']) { shown } else { format!("{shown}.0") }
                }
                Some('%') => format!("{}%", float(number * 100.0, 'f', spec.precision.unwrap_or(6), false)),
                Some('n') => float(number, 'g', spec.precision.unwrap_or(6), spec.alternate),
                Some(kind) if "eEfFgG".contains(kind) => {
                    float(number, kind, spec.precision.unwrap_or(6), spec.alternate)
                }
                Some(_) => return Err(bad()),
            };
            append_signed(out, &grouped(&shown, &spec, 3), "", &spec, align);
            Ok(())
        }
        _ => Err(bad()),
    }
}

/// Put the grouping character between groups of digits of the whole part.
fn grouped(number: &str, spec: &Spec, size: usize) -> String {
    let Some(separator) = spec.grouping else { return number.to_owned() };
    let (sign, number) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let end = number.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(number.len());
    let (whole, rest) = number.split_at(end);
    let mut out = String::from(sign);
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(size) {
            out.push(separator);
        }
        out.push(digit);
    }
    out.push_str(rest);
    out
}

/// Python's `int(text, base)`.
pub(super) fn parse_int(text: &str, base: u32) -> Option<i128> {
    let text = text.trim_matches(super::methods::is_space);
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
    let text = text.trim_matches(super::methods::is_space);
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

/// The values of `%` when a filter got them as arguments.
pub(super) fn filter_format(format: &str, args: &Args<'_>) -> Outcome<String> {
    if args.named.is_empty() {
        let values = super::value::tuple(args.positional.to_vec())?;
        return self::format(format, &values);
    }
    let pairs = args.named.iter().cloned();
    let values = Value::from_object(super::value::Dict::from_pairs(pairs)?);
    self::format(format, &values)
}

/// Joins the texts of an iterable, as `separator.join(…)` does: only strings are taken.
pub(super) fn join_strict(separator: &str, values: &Value) -> Outcome<String> {
    let mut out = String::new();
    for (place, item) in iterate(values)?.iter().enumerate() {
        if place > 0 {
            out.push_str(separator);
        }
        let item = item.as_str().ok_or_else(|| fail(format!("`join` takes text, not `{}`", type_name(item))))?;
        out.push_str(item);
        super::budget::check_size(out.len())?;
    }
    Ok(out)
}
