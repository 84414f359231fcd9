//! Filters that make numbers.

use minijinja::{State, Value};

use crate::template::budget::{Bytes, work, work_on};
use crate::template::layout::{parse_float, parse_int};
use crate::template::methods::is_space;
use crate::template::operators::{self, Number, number};
use crate::template::value::{self, Args, Outcome, Py, fail, py, type_name, undefined_error};

pub(super) fn abs(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("abs", [])?;
    match number(value) {
        Some(Number::Int(number)) => {
            number.checked_abs().map(Value::from).ok_or_else(|| fail("an integer is too large"))
        }
        Some(Number::Float(number)) => Ok(Value::from(number.abs())),
        None if value.is_undefined() => Err(undefined_error("computed with")),
        None => Err(fail(format!("`abs` wants a number, not `{}`", type_name(value)))),
    }
}

/// The whole part of a float, whatever its size.
fn truncate(number: f64) -> Option<Value> {
    number.is_finite().then(|| value::big_int(&format!("{:.0}", number.trunc())))
}

pub(super) fn int(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [default, base] = args.bind("int", ["default", "base"])?;
    let default = default.cloned().unwrap_or_else(|| Value::from(0));
    let base = base.map_or(Some(10), |base| operators::integer(base).and_then(|base| u32::try_from(base).ok()));
    let base = base.ok_or_else(|| fail("`int` wants an integer for its base"))?;
    if let Some(text) = value.as_str() {
        work_on(Bytes::Read, text.len())?;
    }
    let whole = match py(value) {
        Py::Undefined => return Err(undefined_error("made an integer")),
        Py::BigInt(_) => return Ok(value.clone()),
        Py::Str(text) => parse_int(text, base)
            .map(Value::from)
            .or_else(|| (base == 10).then(|| parse_long(text)).flatten())
            .or_else(|| truncate(parse_float(text)?)),
        _ => match number(value) {
            Some(Number::Int(number)) => Some(Value::from(number)),
            Some(Number::Float(number)) if number.is_infinite() => {
                return Err(fail("an infinite number has no integer"));
            }
            Some(Number::Float(number)) => truncate(number),
            None => None,
        },
    };
    Ok(whole.unwrap_or(default))
}

/// An integer of more digits than 128 bits have.
fn parse_long(text: &str) -> Option<Value> {
    let text = text.trim_matches(is_space);
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (if text.starts_with('-') { "-" } else { "" }, digits),
        None => ("", text),
    };
    let digits = digits.trim_start_matches('0');
    let plain = digits.len() > 30 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| value::big_int(&format!("{sign}{digits}")))
}

pub(super) fn float(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [default] = args.bind("float", ["default"])?;
    let default = default.cloned().unwrap_or_else(|| Value::from(0.0));
    let number = match py(value) {
        Py::Undefined => return Err(undefined_error("made a float")),
        Py::Str(text) => {
            work_on(Bytes::Read, text.len())?;
            parse_float(text)
        }
        Py::BigInt(number) => {
            work_on(Bytes::Read, number.0.len())?;
            number.0.parse().ok()
        }
        _ => number(value).map(operators::float),
    };
    Ok(number.map_or(default, Value::from))
}

pub(super) fn round(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [precision, method] = args.bind("round", ["precision", "method"])?;
    let precision = precision.map_or(Some(0), operators::integer).and_then(|digits| i32::try_from(digits).ok());
    let precision = precision.filter(|digits| (-300..=300).contains(digits));
    let precision = precision.ok_or_else(|| fail("`round` wants a small integer for its precision"))?;
    let method = method.map_or(Some("common"), Value::as_str).unwrap_or_default();
    // Through decimal text, of as many digits.
    work(10 + 4 * precision.unsigned_abs() as usize)?;
    let number = match number(value) {
        Some(number) => number,
        None if value.is_undefined() => return Err(undefined_error("rounded")),
        None => return Err(fail(format!("`round` wants a number, not `{}`", type_name(value)))),
    };
    let scale = 10f64.powi(precision);
    match (method, number) {
        ("common", Number::Int(number)) => Ok(Value::from(round_int(number, precision)?)),
        ("common", Number::Float(number)) => Ok(Value::from(round_float(number, precision))),
        ("ceil", number) => Ok(Value::from((operators::float(number) * scale).ceil() / scale)),
        ("floor", number) => Ok(Value::from((operators::float(number) * scale).floor() / scale)),
        _ => Err(fail("`round` knows the methods common, ceil and floor")),
    }
}

/// Python rounds integers to powers of ten, a half to the even one.
fn round_int(number: i128, precision: i32) -> Outcome<i128> {
    if precision >= 0 {
        return Ok(number);
    }
    let Some(unit) = 10i128.checked_pow(precision.unsigned_abs()) else { return Ok(0) };
    let (whole, rest) = (number.div_euclid(unit), number.rem_euclid(unit));
    let up = rest * 2 > unit || (rest * 2 == unit && whole % 2 != 0);
    (whole + i128::from(up)).checked_mul(unit).ok_or_else(|| fail("an integer is too large"))
}

/// Correctly rounded, through the decimal text.
fn round_float(number: f64, precision: i32) -> f64 {
    if !number.is_finite() {
        return number;
    }
    if let Ok(digits) = usize::try_from(precision) {
        return format!("{number:.digits$}").parse().unwrap_or(number);
    }
    let unit = 10f64.powi(-precision);
    (number / unit).round_ties_even() * unit
}
