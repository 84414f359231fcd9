//! Python's `text % values`.

use minijinja::Value;

use super::budget::{Bytes, charge, check_size, work, work_on};
use super::layout::{Spec, append_signed, bounded, digits, float, pad, radix};
use super::operators::{self, Number};
use super::text;
use super::value::{Args, Outcome, Py, fail, py, type_name};

/// `format % values`.
pub(super) fn format(format: &str, values: &Value) -> Outcome<String> {
    let single = std::slice::from_ref(values);
    let positional = if let Py::Tuple(items) = py(values) { items } else { single };
    let mapping = matches!(py(values), Py::Dict(_)).then_some(values);
    let mut next = positional.iter();
    let mut named = false;
    work_on(Bytes::Read, format.len())?;
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
        let before = out.len();
        work(2 + spec.precision.unwrap_or(0))?;
        append_percent(&mut out, kind, value, spec)?;
        check_size(out.len())?;
        work_on(Bytes::Copied, out.len() - before)?;
    }
    charge(out.len())?;
    // Whatever has subscripts counts as a mapping here, and may stay unused.
    let subscripts = matches!(py(values), Py::Dict(_) | Py::List(_) | Py::Undefined);
    if !named && !subscripts && next.next().is_some() {
        return Err(fail("a format has fewer fields than values"));
    }
    Ok(out)
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

/// An integer with at least `precision` digits.
fn append_integer(out: &mut String, digits: &str, prefix: &str, spec: &Spec, align: char) {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let zeros = spec.precision.unwrap_or(0).saturating_sub(digits.len());
    append_signed(out, &format!("{sign}{}{digits}", "0".repeat(zeros)), prefix, spec, align);
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
