//! Python's operators: arithmetic on text and lists, comparison, membership, subscripts and slices.

use std::cmp::Ordering;

use minijinja::Value;
use minijinja::value::Object;

use super::budget::{self, Bytes, charge, charge_items, check_size, work, work_on};
use super::methods::{self, Attribute};
use super::percent;
use super::value::{
    Bound, Broken, Dict, DictPart, DictView, Lazy, Namespace, Native, Outcome, Py, Range, check_hashable, count_chars,
    fail, iterate, list, py, tuple, type_name, undefined_error,
};

/// What comparing two containers costs beyond their items.
const CONTAINER_WORK: usize = 3;

/// How many items are sorted by insertion before they are merged.
const RUN: usize = 16;

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
pub(super) fn add(left: &Value, right: &Value) -> Outcome {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        charge(a.len() + b.len())?;
        if left.is_safe() || right.is_safe() {
            return Ok(Value::from_safe_string(markup(left, a) + &markup(right, b)));
        }
        return Ok(Value::from([a, b].concat()));
    }
    match (py(left), py(right)) {
        (Py::List(a), Py::List(b)) => {
            charge_items(a.len() + b.len())?;
            list([a, b].concat())
        }
        (Py::Tuple(a), Py::Tuple(b)) => {
            charge_items(a.len() + b.len())?;
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
pub(super) fn multiply(left: &Value, right: &Value) -> Outcome {
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
            charge(text.len().checked_mul(count).ok_or_else(too_long)?)?;
            let repeated = text.repeat(count);
            Ok(if sequence.is_safe() { Value::from_safe_string(repeated) } else { Value::from(repeated) })
        }
        Py::List(items) | Py::Tuple(items) => {
            let total = items.len().checked_mul(count).ok_or_else(too_long)?;
            charge_items(total)?;
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
pub(super) fn modulo(left: &Value, right: &Value) -> Outcome {
    if let Some(format) = left.as_str() {
        let out = percent::format(format, right)?;
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
pub(super) fn concat(left: &Value, right: &Value) -> Outcome {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        charge(a.len() + b.len())?;
        return Ok(Value::from([a, b].concat()));
    }
    let mut out = String::new();
    super::text::append(&mut out, left)?;
    super::text::append(&mut out, right)?;
    charge(out.len())?;
    Ok(Value::from(out))
}

/// `left == right`.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        return a.len() == b.len() && budget::visit_text(a.len()) && a == b;
    }
    match (py(left), py(right)) {
        (Py::List(_) | Py::Tuple(_) | Py::Dict(_), _) if !budget::visit(CONTAINER_WORK) => false,
        (Py::Undefined, Py::Undefined) | (Py::None, Py::None) => true,
        (Py::BigInt(a), Py::BigInt(b)) => budget::visit_text(a.0.len()) && a == b,
        (Py::List(a), Py::List(b)) | (Py::Tuple(a), Py::Tuple(b)) => {
            std::ptr::eq(a, b)
                || (a.len() == b.len() && budget::visit(a.len()) && a.iter().zip(b).all(|(a, b)| equal(a, b)))
        }
        (Py::Dict(a), Py::Dict(b)) if std::ptr::eq(a, b) => true,
        (Py::Dict(a), Py::Dict(b)) => {
            let matches = |(key, value): &(Value, Value)| b.get(key).is_some_and(|other| equal(value, other));
            a.len() == b.len() && budget::visit(a.len()) && a.entries().iter().all(matches)
        }
        (Py::Object(a), Py::Object(b)) => {
            if let (Some(a), Some(b)) = (left.downcast_object_ref::<Range>(), right.downcast_object_ref::<Range>()) {
                return a.len == b.len && a.get(0) == b.get(0) && a.get(1) == b.get(1);
            }
            if let (Some(a), Some(b)) = (dict_view(left), dict_view(right)) {
                return equal_views(a, b);
            }
            std::ptr::eq(a, b) || same_object(left, right)
        }
        _ => match (number(left), number(right)) {
            (Some(Number::Int(a)), Some(Number::Int(b))) => a == b,
            #[expect(clippy::float_cmp, reason = "Python compares exactly too")]
            (Some(a), Some(b)) => float(a) == float(b),
            _ => false,
        },
    }
}

/// Views compare as sets do.
fn equal_views(left: &DictView, right: &DictView) -> bool {
    if left.len() != right.len() {
        return false;
    }
    match (left.part, right.part, py(&left.dict), py(&right.dict)) {
        (DictPart::Items, DictPart::Items, ..) => equal(&left.dict, &right.dict),
        (DictPart::Keys, DictPart::Keys, Py::Dict(a), Py::Dict(b)) => {
            budget::visit(a.len()) && a.entries().iter().all(|(key, _)| b.get(key).is_some())
        }
        _ => {
            budget::visit(left.len().saturating_mul(left.len())) && {
                let (a, b) = (left.items(), right.items());
                a.iter().all(|item| b.iter().any(|other| equal(item, other)))
            }
        }
    }
}

/// Whether two objects that are no containers are the same one. The engine's own, which cannot be told apart by their
/// place, are the same when they look so; comparing all that they hold might have no end.
fn same_object(left: &Value, right: &Value) -> bool {
    fn both<T: Object + 'static>(left: &Value, right: &Value) -> Option<bool> {
        match (left.downcast_object_ref::<T>(), right.downcast_object_ref::<T>()) {
            (None, None) => None,
            (Some(a), Some(b)) => Some(std::ptr::eq(a, b)),
            _ => Some(false),
        }
    }
    let ours = both::<Namespace>(left, right)
        .or_else(|| both::<Lazy>(left, right))
        .or_else(|| both::<Native>(left, right))
        .or_else(|| both::<Bound>(left, right))
        .or_else(|| both::<Broken>(left, right));
    ours.unwrap_or_else(|| {
        ["name", "index", "length", "depth"].iter().all(|name| {
            let shown = |value: &Value| value.get_attr(name).ok().map(|value| (value.as_i64(), value.to_str()));
            shown(left) == shown(right)
        })
    })
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
        work_on(Bytes::Searched, a.len().min(b.len()))?;
        return Ok(Some(a.cmp(b)));
    }
    match (py(left), py(right)) {
        (Py::List(a), Py::List(b)) | (Py::Tuple(a), Py::Tuple(b)) => {
            work(1 + a.len().min(b.len()))?;
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
    let mut runs: Vec<Vec<T>> = Vec::with_capacity(items.len().div_ceil(RUN));
    let mut items = items.into_iter();
    while items.len() > 0 {
        let mut run: Vec<T> = items.by_ref().take(RUN).collect();
        for end in 1..run.len() {
            work(2)?;
            let mut place = end;
            while place > 0 {
                let (left, right) = (&run[place - 1], &run[place]);
                if !(if reverse { less(left, right)? } else { less(right, left)? }) {
                    break;
                }
                run.swap(place - 1, place);
                place -= 1;
            }
        }
        runs.push(run);
    }
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
    work(2 * (left.len() + right.len()))?;
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
            Py::Str(part) => {
                work_on(Bytes::Searched, text.len() + part.len())?;
                Ok(memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some())
            }
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
        Py::List(items) | Py::Tuple(items) => {
            let place = items.iter().position(|other| equal(other, item));
            work(place.unwrap_or(items.len()) / 2)?;
            Ok(place.is_some())
        }
        _ => Ok(iterate(container)?.iter().any(|other| equal(other, item))),
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
            let place = usize::try_from(if key < 0 { -1 - key } else { key }).ok()?;
            let found = if key < 0 { text.chars().nth_back(place) } else { text.chars().nth(place) };
            let walked = place.min(text.len()) / 4;
            found.filter(|_| walked == 0 || budget::visit(walked)).map(Value::from)
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
pub(super) fn slice(object: &Value, start: &Value, end: &Value, step: &Value) -> Outcome {
    if object.is_undefined() {
        return Err(undefined_error("sliced"));
    }
    let bounds = [slice_bound(start)?, slice_bound(end)?, slice_bound(step)?];
    match py(object) {
        Py::Str(text) => {
            if bounds[2].is_none_or(|step| step == 1) {
                let is_ascii = text.is_ascii();
                work_on(if is_ascii { Bytes::Searched } else { Bytes::Read }, text.len())?;
                let (first, count, _) = slice_places(bounds, count_chars(text))?;
                let after = |text: &str, count: usize| {
                    if is_ascii { count } else { text.char_indices().nth(count).map_or(text.len(), |(at, _)| at) }
                };
                let text = &text[after(text, first)..];
                let text = &text[..after(text, count)];
                charge(text.len())?;
                return Ok(Value::from(text));
            }
            check_size(text.len())?;
            work_on(Bytes::Read, text.len())?;
            let characters: Vec<char> = text.chars().collect();
            let picked = slice_pick(bounds, &characters)?;
            Ok(Value::from(picked.into_iter().collect::<String>()))
        }
        Py::List(items) => list(slice_pick(bounds, items)?),
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
    if let Py::BigInt(number) = py(value) {
        // Beyond every length there is.
        return Ok(Some(if number.0.starts_with('-') { i128::MIN / 4 } else { i128::MAX / 4 }));
    }
    integer(value).map(Some).ok_or_else(|| {
        if value.is_undefined() { undefined_error("used as an index") } else { fail("a slice takes integers") }
    })
}

fn slice_pick<T: Clone>(bounds: [Option<i128>; 3], items: &[T]) -> Outcome<Vec<T>> {
    let (first, count, step) = slice_places(bounds, items.len())?;
    charge_items(count)?;
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
