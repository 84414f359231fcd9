//! Python's view of the engine's values: which type a value is, what it iterates as, and what JSON becomes.

use std::borrow::Cow;

use minijinja::value::{DynObject, ValueKind};
use minijinja::{Error, ErrorKind, Value};

pub(super) use super::arguments::Args;
use super::budget::{charge_items, work};
pub(super) use super::objects::{
    BigInt, Bound, Broken, Dict, DictPart, DictView, Lazy, Namespace, Native, Range, check_hashable, list, pair, tuple,
};
use super::objects::{Sequence, SequenceKind, list_of};
use crate::error::shortened;
use crate::json::{Json, Map};

pub(super) type Outcome<T = Value> = Result<T, Error>;

/// A failure while rendering, in our words.
pub(super) fn fail(message: impl Into<Cow<'static, str>>) -> Error {
    let message: Cow<'static, str> = message.into();
    let shown = shortened(&message);
    let message = if shown.len() < message.len() { Cow::Owned(shown.to_owned()) } else { message };
    Error::new(ErrorKind::InvalidOperation, message)
}

/// A use of an undefined value that Jinja2 does not forgive.
pub(super) fn undefined_error(action: &str) -> Error {
    Error::new(ErrorKind::UndefinedError, format!("an undefined value cannot be {action}"))
}

/// A value as Python's type system sees it.
pub(super) enum Py<'a> {
    Undefined,
    None,
    Bool(bool),
    Int(i128),
    BigInt(&'a BigInt),
    Float(f64),
    Str(&'a str),
    List(&'a [Value]),
    Tuple(&'a [Value]),
    Dict(&'a Dict),
    Object(&'a DynObject),
}

/// Classify a value.
pub(super) fn py(value: &Value) -> Py<'_> {
    if let Some(text) = value.as_str() {
        return Py::Str(text);
    }
    match value.kind() {
        ValueKind::Undefined => Py::Undefined,
        ValueKind::None => Py::None,
        ValueKind::Bool => Py::Bool(value.is_true()),
        ValueKind::Number => {
            if let Some(number) = value.is_integer().then(|| value.as_i64()).flatten() {
                return Py::Int(i128::from(number));
            }
            match (value.is_integer(), i128::try_from(value.clone()), f64::try_from(value.clone())) {
                (true, Ok(number), _) => Py::Int(number),
                (_, _, Ok(number)) => Py::Float(number),
                _ => Py::None,
            }
        }
        _ => match value.as_object() {
            Some(object) => py_object(value, object),
            None => Py::None,
        },
    }
}

fn py_object<'a>(value: &'a Value, object: &'a DynObject) -> Py<'a> {
    if let Some(dict) = value.downcast_object_ref::<Dict>() {
        Py::Dict(dict)
    } else if let Some(sequence) = value.downcast_object_ref::<Sequence>() {
        match sequence.kind() {
            SequenceKind::List => Py::List(sequence.items()),
            SequenceKind::Tuple => Py::Tuple(sequence.items()),
        }
    } else if let Some(number) = value.downcast_object_ref::<BigInt>() {
        Py::BigInt(number)
    } else {
        Py::Object(object)
    }
}

/// The name of a value's Python type, for messages.
pub(super) fn type_name(value: &Value) -> &'static str {
    match py(value) {
        Py::Undefined => "undefined",
        Py::None => "NoneType",
        Py::Bool(_) => "bool",
        Py::Int(_) | Py::BigInt(_) => "int",
        Py::Float(_) => "float",
        Py::Str(_) => "str",
        Py::List(_) => "list",
        Py::Tuple(_) => "tuple",
        Py::Dict(_) => "dict",
        Py::Object(_) => {
            if let Some(lazy) = value.downcast_object_ref::<Lazy>() {
                lazy.kind()
            } else if let Some(view) = value.downcast_object_ref::<DictView>() {
                view.part.type_name()
            } else if value.downcast_object_ref::<Range>().is_some() {
                "range"
            } else if value.downcast_object_ref::<Broken>().is_some() {
                "str"
            } else if value.downcast_object_ref::<Namespace>().is_some() {
                "namespace"
            } else {
                "object"
            }
        }
    }
}

/// The items that iterating a value gives, as Python's `iter` would; an iterator is used up. A unit of work for each.
pub(super) fn iterate(value: &Value) -> Outcome<Cow<'_, [Value]>> {
    match py(value) {
        Py::List(items) | Py::Tuple(items) => {
            work(items.len())?;
            Ok(Cow::Borrowed(items))
        }
        Py::Dict(dict) => {
            charge_items(dict.len())?;
            Ok(Cow::Owned(dict.entries().iter().map(|(key, _)| key.clone()).collect()))
        }
        Py::Str(text) => {
            charge_items(count_chars(text))?;
            Ok(Cow::Owned(text.chars().map(Value::from).collect()))
        }
        Py::Undefined => Ok(Cow::Borrowed(&[])),
        Py::Object(_) => {
            if let Some(lazy) = value.downcast_object_ref::<Lazy>() {
                let items = lazy.drain()?;
                charge_items(items.len())?;
                Ok(Cow::Owned(items))
            } else if let Some(view) = value.downcast_object_ref::<DictView>() {
                charge_items(view.len().saturating_mul(2))?;
                Ok(Cow::Owned(view.items()))
            } else if let Some(range) = value.downcast_object_ref::<Range>() {
                charge_items(range.len)?;
                Ok(Cow::Owned(range.items()))
            } else {
                Err(fail("a value of this type cannot be iterated"))
            }
        }
        _ => Err(fail(format!("a value of type `{}` cannot be iterated", type_name(value)))),
    }
}

/// The length of a value, where it has one.
pub(super) fn length(value: &Value) -> Outcome<usize> {
    match py(value) {
        Py::List(items) | Py::Tuple(items) => Ok(items.len()),
        Py::Dict(dict) => Ok(dict.len()),
        Py::Str(text) => Ok(count_chars(text)),
        Py::Undefined => Ok(0),
        Py::Object(_) => {
            if let Some(view) = value.downcast_object_ref::<DictView>() {
                Ok(view.len())
            } else if let Some(range) = value.downcast_object_ref::<Range>() {
                Ok(range.len)
            } else {
                Err(fail(format!("a value of type `{}` has no length", type_name(value))))
            }
        }
        _ => Err(fail(format!("a value of type `{}` has no length", type_name(value)))),
    }
}

pub(super) fn count_chars(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

/// JSON as the values that `json.loads` gives.
pub(super) fn from_json(json: &Json<'_>) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Int(value) => Value::from(*value),
        Json::BigInt(text) => big_int(text),
        Json::Float(value) => Value::from(*value),
        Json::Str(text) => Value::from(text.as_ref()),
        Json::BrokenStr(_) => Value::from_object(Broken),
        Json::Array(items) => list_from_json(items),
        Json::Object(map) => Value::from_object(dict_from_json(map)),
    }
}

pub(super) fn list_from_json(items: &[Json<'_>]) -> Value {
    list_of(items.iter().map(from_json).collect())
}

pub(super) fn dict_from_json(map: &Map<'_>) -> Dict {
    Dict::from_unique(pairs_from_json(map))
}

pub(super) fn pairs_from_json(map: &Map<'_>) -> Vec<(Value, Value)> {
    map.iter().map(|(key, value)| (Value::from(key), from_json(value))).collect()
}

/// A list of objects that will be printed rather than looked into.
pub(super) fn printed_from_json(items: &[Json<'_>]) -> Value {
    let mut scratch = String::with_capacity(1024);
    let mut printed = |item: &Json<'_>| match item {
        Json::Object(map) => Dict::from_printed(map, &mut scratch).map_or_else(|| from_json(item), Value::from_object),
        _ => from_json(item),
    };
    list_of(items.iter().map(&mut printed).collect())
}

/// An integer of any size, from decimal text.
pub(super) fn big_int(text: &str) -> Value {
    text.parse::<i128>().map_or_else(|_| Value::from_object(BigInt(text.to_owned())), Value::from)
}
