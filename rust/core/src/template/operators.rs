//! Python's operators: arithmetic on text and lists, comparison, membership, subscripts and slices.

use std::cmp::Ordering;

use minijinja::{State, Value};

use super::budget::{self, charge, charge_items};
use super::methods::{self, Attribute};
use super::percent;
use super::value::{
    Dict, DictPart, DictView, Outcome, Py, Range, check_hashable, count_chars, fail, iterate, list, py, tuple,
    type_name, undefined_error,
};

/// A number, with booleans as Python's 0 and 1.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
}

pub(super) fn number(value: &Value) -> Option<Number> {
    match py(value) {
        Py::Bool(value) => Some(Number::Int(i128::from(value))),
        Py::Int(value) => Some(Number::Int(value)),
        Py::Float(value) => Some(Number::Float(value)),
        _ => None,
    }
}

/// An index or a count: an integer or a boolean.
pub(super) fn integer(value: &Value) -> Option<i128> {
    match number(value) {
        Some(Number::Int(value)) => Some(value),
        _ => None,
    }
}

fn unsupported(operator: &str, left: &Value, right: &Value) -> minijinja::Error {
    if left.is_undefined() || right.is_undefined() {
        return undefined_error("computed with");
    }
    fail(format!("`{operator}` does not take `{}` and `{}`", type_name(left), type_name(right)))
}

/// `left + right`.
pub(super) fn add(state: &State<'_, '_>, left: &Value, right: &Value) -> Outcome {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        charge(state, a.len() + b.len())?;
        if left.is_safe() || right.is_safe() {
            return Ok(Value::from_safe_string(markup(left, a) + &markup(right, b)));
        }
        return Ok(Value::from([a, b].concat()));
    }
    match (py(left), py(right)) {
        (Py::List(a), Py::List(b)) => {
            charge_items(state, a.len() + b.len())?;
            list([a, b].concat())
        }
        (Py::Tuple(a), Py::Tuple(b)) => {
            charge_items(state, a.len() + b.len())?;
            tuple([a, b].concat())
        }
        _ => match (number(left), number(right)) {
            (Some(Number::Int(a)), Some(Number::Int(b))) => {
                a.checked_add(b).map(Value::from).ok_or_else(|| fail("an integer is too large"))
            }
            (Some(a), Some(b)) => Ok(Value::from(float(a) + float(b))),
            _ => Err(unsupported("+", left, right)),
        },
    }
}

/// Text as it joins a text marked safe.
fn markup(value: &Value, text: &str) -> String {
    if value.is_safe() { text.to_owned() } else { escape(text) }
}

/// What Jinja2's `escape` makes of a text.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            _ => out.push(character),
        }
    }
    out
}

#[expect(clippy::cast_precision_loss, reason = "Python's int to float conversion rounds the same way")]
pub(super) fn float(number: Number) -> f64 {
    match number {
        Number::Int(value) => value as f64,
        Number::Float(value) => value,
    }
}

/// `left * right`.
pub(super) fn multiply(state: &State<'_, '_>, left: &Value, right: &Value) -> Outcome {
    let (sequence, count) = match (integer(left), integer(right)) {
        (None, Some(count)) => (left, count),
        (Some(count), None) => (right, count),
        (Some(a), Some(b)) => {
            return a.checked_mul(b).map(Value::from).ok_or_else(|| fail("an integer is too large"));
        }
        (None, None) => match (number(left), number(right)) {
            (Some(a), Some(b)) => return Ok(Value::from(float(a) * float(b))),
            _ => return Err(unsupported("*", left, right)),
        },
    };
    let count = usize::try_from(count.max(0)).map_err(|_| fail("a repetition is too long"))?;
    let too_long = || fail("a repetition is too long");
    match py(sequence) {
        Py::Str(text) => {
            charge(state, text.len().checked_mul(count).ok_or_else(too_long)?)?;
            let repeated = text.repeat(count);
            Ok(if sequence.is_safe() { Value::from_safe_string(repeated) } else { Value::from(repeated) })
        }
        Py::List(items) | Py::Tuple(items) => {
            let total = items.len().checked_mul(count).ok_or_else(too_long)?;
            charge(state, total.checked_mul(size_of::<Value>()).ok_or_else(too_long)?)?;
            charge_items(state, total)?;
            let repeated = std::iter::repeat_n(items, count).flatten().cloned().collect();
            if matches!(py(sequence), Py::List(_)) { list(repeated) } else { tuple(repeated) }
        }
        Py::Float(value) => {
            let count = if number(left).is_some() && integer(left).is_some() { left } else { right };
            Ok(Value::from(value * integer(count).map_or(0.0, |count| float(Number::Int(count)))))
        }
        _ => Err(unsupported("*", left, right)),
    }
}

/// `left % right`: a remainder, or Python's formatting when the left side is text.
pub(super) fn modulo(state: &State<'_, '_>, left: &Value, right: &Value) -> Outcome {
    if let Some(format) = left.as_str() {
        let out = percent::format(format, right)?;
        charge(state, out.len())?;
        return Ok(if left.is_safe() { Value::from_safe_string(out) } else { Value::from(out) });
    }
    match (number(left), number(right)) {
        (Some(Number::Int(a)), Some(Number::Int(b))) => {
            let remainder = a.checked_rem(b).ok_or_else(|| fail("a division by zero"))?;
            let wrapped = remainder != 0 && (remainder < 0) != (b < 0);
            Ok(Value::from(if wrapped { remainder + b } else { remainder }))
        }
        (Some(a), Some(b)) => {
            let (a, b) = (float(a), float(b));
            if b == 0.0 {
                return Err(fail("a division by zero"));
            }
            let remainder = a % b;
            Ok(Value::from(if remainder == 0.0 {
                0.0_f64.copysign(b)
            } else if (remainder < 0.0) == (b < 0.0) {
                remainder
            } else {
                remainder + b
            }))
        }
        _ => Err(unsupported("%", left, right)),
    }
}

/// `left ~ right`.
pub(super) fn concat(state: &State<'_, '_>, left: &Value, right: &Value) -> Outcome {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        charge(state, a.len() + b.len())?;
        return Ok(Value::from([a, b].concat()));
    }
    let mut out = String::new();
    super::text::append(&mut out, left)?;
    super::text::append(&mut out, right)?;
    charge(state, out.len())?;
    Ok(Value::from(out))
}

/// `left == right`.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        return a == b;
    }
    match (py(left), py(right)) {
        (Py::List(_) | Py::Tuple(_) | Py::Dict(_), _) if !budget::visit(1) => false,
        (Py::Undefined, Py::Undefined) | (Py::None, Py::None) => true,
        (Py::BigInt(a), Py::BigInt(b)) => a == b,
        (Py::List(a), Py::List(b)) | (Py::Tuple(a), Py::Tuple(b)) => {
            std::ptr::eq(a, b) || (a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)))
        }
        (Py::Dict(a), Py::Dict(b)) if std::ptr::eq(a, b) => true,
        (Py::Dict(a), Py::Dict(b)) => {
            let matches = |(key, value): &(Value, Value)| b.get(key).is_some_and(|other| equal(value, other));
            a.len() == b.len() && a.entries().iter().all(matches)
        }
        (Py::Object(a), Py::Object(b)) => {
            if let (Some(a), Some(b)) = (left.downcast_object_ref::<Range>(), right.downcast_object_ref::<Range>()) {
                return a.items().len() == b.items().len() && a.get(0) == b.get(0) && a.get(1) == b.get(1);
            }
            if let (Some(a), Some(b)) = (dict_view(left), dict_view(right)) {
                let (a, b) = (a.items(), b.items());
                return a.len() == b.len() && a.iter().all(|item| b.iter().any(|other| equal(item, other)));
            }
            std::ptr::eq(a, b) || left == right
        }
        _ => match (number(left), number(right)) {
            (Some(Number::Int(a)), Some(Number::Int(b))) => a == b,
            #[expect(clippy::float_cmp, reason = "Python compares exactly too")]
            (Some(a), Some(b)) => float(a) == float(b),
            _ => false,
        },
    }
}

/// A view that compares as a set does.
fn dict_view(value: &Value) -> Option<&DictView> {
    value.downcast_object_ref::<DictView>().filter(|view| view.part != DictPart::Values)
}

/// `left < right`, and whatever else orders values.
pub(super) fn less_than(left: &Value, right: &Value) -> Outcome<bool> {
    compare(left, right).map(|order| order == Some(Ordering::Less))
}

/// How two values are ordered; `None` when they are not (NaN).
pub(super) fn compare(left: &Value, right: &Value) -> Outcome<Option<Ordering>> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        return Ok(Some(a.cmp(b)));
    }
    match (py(left), py(right)) {
        (Py::List(a), Py::List(b)) | (Py::Tuple(a), Py::Tuple(b)) => {
            let different = a.iter().zip(b).find(|(a, b)| !equal(a, b));
            different.map_or(Ok(Some(a.len().cmp(&b.len()))), |(a, b)| compare(a, b))
        }
        _ => match (number(left), number(right)) {
            (Some(Number::Int(a)), Some(Number::Int(b))) => Ok(Some(a.cmp(&b))),
            (Some(a), Some(b)) => Ok(float(a).partial_cmp(&float(b))),
            _ if left.is_undefined() || right.is_undefined() => Err(undefined_error("compared")),
            _ => Err(fail(format!("`{}` and `{}` cannot be ordered", type_name(left), type_name(right)))),
        },
    }
}

/// Sort as Python's `sorted` does: stable, and stopped by the first pair that cannot be ordered.
pub(super) fn sorted<T>(items: Vec<T>, reverse: bool, less: impl Fn(&T, &T) -> Outcome<bool>) -> Outcome<Vec<T>> {
    // Not `sort_by`: an order that is not total (NaN) may make that panic.
    let mut runs: Vec<Vec<T>> = items.into_iter().map(|item| vec![item]).collect();
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut rest = runs.into_iter();
        while let Some(left) = rest.next() {
            merged.push(match rest.next() {
                Some(right) => merge(left, right, reverse, &less)?,
                None => left,
            });
        }
        runs = merged;
    }
    Ok(runs.pop().unwrap_or_default())
}

fn merge<T>(left: Vec<T>, right: Vec<T>, reverse: bool, less: &impl Fn(&T, &T) -> Outcome<bool>) -> Outcome<Vec<T>> {
    let mut out = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let take_right = if reverse { less(a, b)? } else { less(b, a)? };
        out.extend(if take_right { right.next() } else { left.next() });
    }
    out.extend(left);
    out.extend(right);
    Ok(out)
}

/// `item in container`.
pub(super) fn contains(container: &Value, item: &Value) -> Outcome<bool> {
    match py(container) {
        Py::Str(text) => match py(item) {
            Py::Str(part) => Ok(memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some()),
            _ => Err(fail(format!("a value of type `{}` cannot be looked for in text", type_name(item)))),
        },
        Py::Dict(dict) => {
            check_hashable(item)?;
            Ok(dict.get(item).is_some())
        }
        Py::Object(_) => {
            if let Some(view) = container.downcast_object_ref::<DictView>()
                && view.part == DictPart::Keys
            {
                return contains(&view.dict, item);
            }
            Ok(iterate(container)?.iter().any(|other| equal(other, item)))
        }
        _ => {
            let items = iterate(container)?;
            Ok(budget::visit(items.len()) && items.iter().any(|other| equal(other, item)))
        }
    }
}

/// `object[key]`, with Jinja2's fall-back to an attribute of that name.
pub(super) fn get_item(object: &Value, key: &Value) -> Outcome {
    let found = match py(object) {
        Py::Undefined => return Err(undefined_error("looked into")),
        Py::Dict(dict) => dict.get(key).cloned(),
        Py::List(items) | Py::Tuple(items) => {
            integer(key).and_then(|key| place(key, items.len())).map(|place| items[place].clone())
        }
        Py::Str(text) => integer(key).and_then(|key| {
            let place = place(key, count_chars(text))?;
            text.chars().nth(place).map(Value::from)
        }),
        Py::Object(_) => match object.downcast_object_ref::<Range>() {
            Some(range) => integer(key).and_then(|key| range.get(place(key, range.len)?)),
            None => None,
        },
        _ => None,
    };
    match (found, key.as_str()) {
        (Some(value), _) => Ok(value),
        (None, Some(name)) => get_attribute(object, name),
        (None, None) => Ok(Value::UNDEFINED),
    }
}

/// `object.name` where `name` may be a method of Python's: those come before a dict's keys.
pub(super) fn get_attribute(object: &Value, name: &str) -> Outcome {
    if object.is_undefined() {
        return Err(undefined_error(&format!("asked for `{name}`")));
    }
    match methods::attribute(object, name) {
        Attribute::Method => Ok(methods::bind(object, name)),
        Attribute::Forbidden => Ok(Value::UNDEFINED),
        Attribute::None => object.get_attr(name),
    }
}

fn place(index: i128, len: usize) -> Option<usize> {
    let index = if index < 0 { index + len as i128 } else { index };
    usize::try_from(index).ok().filter(|&place| place < len)
}

/// `object[start:stop:step]`.
pub(super) fn slice(state: &State<'_, '_>, object: &Value, start: &Value, end: &Value, step: &Value) -> Outcome {
    if object.is_undefined() {
        return Err(undefined_error("sliced"));
    }
    let bounds = [slice_bound(start)?, slice_bound(end)?, slice_bound(step)?];
    match py(object) {
        Py::Str(text) => {
            if text.is_ascii() && bounds[2].is_none_or(|step| step == 1) {
                let (first, count, _) = slice_places(bounds, text.len())?;
                charge(state, count)?;
                return Ok(Value::from(&text[first..first + count]));
            }
            let characters: Vec<char> = text.chars().collect();
            let picked = slice_pick(bounds, &characters)?;
            charge(state, picked.len())?;
            Ok(Value::from(picked.into_iter().collect::<String>()))
        }
        Py::List(items) => {
            charge_items(state, items.len())?;
            list(slice_pick(bounds, items)?)
        }
        Py::Tuple(items) => tuple(slice_pick(bounds, items)?),
        _ => match object.downcast_object_ref::<Range>() {
            Some(range) => {
                let (first, count, step) = slice_places(bounds, range.len)?;
                let step = range.step.saturating_mul(i64::try_from(step).unwrap_or(i64::MAX));
                let start = i64::try_from(first).ok().and_then(|first| first.checked_mul(range.step));
                let start = range.start.saturating_add(start.unwrap_or(0));
                let end = start.saturating_add(step.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX)));
                Ok(Value::from_object(Range { start, stop: end, step, len: count }))
            }
            None => Err(fail(format!("a value of type `{}` cannot be sliced", type_name(object)))),
        },
    }
}

fn slice_bound(value: &Value) -> Outcome<Option<i128>> {
    if value.is_none() {
        return Ok(None);
    }
    integer(value).map(Some).ok_or_else(|| {
        if value.is_undefined() { undefined_error("used as an index") } else { fail("a slice takes integers") }
    })
}

fn slice_pick<T: Clone>(bounds: [Option<i128>; 3], items: &[T]) -> Outcome<Vec<T>> {
    let (first, count, step) = slice_places(bounds, items.len())?;
    let mut picked = Vec::with_capacity(count);
    let mut place = first as i128;
    for _ in 0..count {
        picked.extend(usize::try_from(place).ok().and_then(|place| items.get(place)).cloned());
        place = place.saturating_add(step);
    }
    Ok(picked)
}

/// The first place, how many, and the step between them.
fn slice_places([start, end, step]: [Option<i128>; 3], len: usize) -> Outcome<(usize, usize, i128)> {
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(fail("a slice cannot step by 0"));
    }
    let len = len as i128;
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamp = |bound: i128| (if bound < 0 { bound.saturating_add(len) } else { bound }).clamp(low, high);
    let start = start.map_or(if step > 0 { low } else { high }, clamp);
    let end = end.map_or(if step > 0 { high } else { low }, clamp);
    let distance = if step > 0 { end - start } else { start - end };
    let count = if distance <= 0 { 0 } else { (distance - 1) / step.saturating_abs() + 1 };
    Ok((usize::try_from(start).unwrap_or(0), usize::try_from(count).unwrap_or(0), step))
}

/// A dict literal from its keys and values in turn.
pub(super) fn dict_literal(flat: &[Value]) -> Outcome {
    let pairs = flat.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
    Dict::from_pairs(pairs).map(Value::from_object)
}
