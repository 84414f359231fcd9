//! Jinja2's tests: what may stand after `is`.

use minijinja::{State, Value};

use super::operators::{self, Number, compare, contains, equal, number};
use super::value::{
    Args, Bound, Broken, Dict, DictView, Lazy, Native, Outcome, Py, Range, fail, py, type_name, undefined_error,
};
use super::{filters, text};

/// A test of a value, with its arguments.
pub(super) type Test = fn(&State<'_, '_>, &Value, &Args<'_>) -> Outcome<bool>;

/// Every test, by name.
pub(super) const TESTS: &[(&str, Test)] = &[
    ("!=", |_, a, args| Ok(!equal(a, one(args)?))),
    ("<", |_, a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_lt))),
    ("<=", |_, a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_le))),
    ("==", |_, a, args| Ok(equal(a, one(args)?))),
    (">", |_, a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_gt))),
    (">=", |_, a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_ge))),
    ("boolean", |_, value, _| Ok(matches!(py(value), Py::Bool(_)))),
    ("callable", |_, value, _| Ok(is_callable(value))),
    ("defined", |_, value, _| Ok(!value.is_undefined())),
    ("divisibleby", |state, value, args| Ok(equal(&operators::modulo(state, value, one(args)?)?, &Value::from(0)))),
    ("eq", |_, a, args| Ok(equal(a, one(args)?))),
    ("equalto", |_, a, args| Ok(equal(a, one(args)?))),
    ("escaped", |_, value, _| Ok(value.is_safe())),
    ("even", |state, value, _| Ok(equal(&operators::modulo(state, value, &Value::from(2))?, &Value::from(0)))),
    ("false", |_, value, _| Ok(matches!(py(value), Py::Bool(false)))),
    ("filter", |_, value, _| Ok(value.as_str().is_some_and(|name| filters::find(name).is_some()))),
    ("float", |_, value, _| Ok(matches!(py(value), Py::Float(_)))),
    ("ge", |_, a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_ge))),
    ("greaterthan", |_, a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_gt))),
    ("gt", |_, a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_gt))),
    ("in", |_, value, args| contains(one(args)?, value)),
    ("integer", |_, value, _| Ok(matches!(py(value), Py::Int(_) | Py::BigInt(_)))),
    ("iterable", |_, value, _| Ok(is_iterable(value))),
    ("le", |_, a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_le))),
    ("lessthan", |_, a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_lt))),
    ("lower", |_, value, _| has_case(value, char::is_lowercase, char::is_uppercase)),
    ("lt", |_, a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_lt))),
    ("mapping", |_, value, _| Ok(value.downcast_object_ref::<Dict>().is_some())),
    ("ne", |_, a, args| Ok(!equal(a, one(args)?))),
    ("none", |_, value, _| Ok(value.is_none())),
    ("number", |_, value, _| Ok(number(value).is_some() || matches!(py(value), Py::BigInt(_)))),
    ("odd", |state, value, _| Ok(equal(&operators::modulo(state, value, &Value::from(2))?, &Value::from(1)))),
    ("sameas", |_, value, args| same(value, one(args)?)),
    ("sequence", |_, value, _| Ok(is_sequence(value))),
    ("string", |_, value, _| Ok(value.as_str().is_some() || value.downcast_object_ref::<Broken>().is_some())),
    ("test", |_, value, _| Ok(value.as_str().is_some_and(|name| find(name).is_some()))),
    ("true", |_, value, _| Ok(matches!(py(value), Py::Bool(true)))),
    ("undefined", |_, value, _| Ok(value.is_undefined())),
    ("upper", |_, value, _| has_case(value, char::is_uppercase, char::is_lowercase)),
];

pub(super) fn find(name: &str) -> Option<Test> {
    TESTS.iter().find(|(known, _)| *known == name).map(|(_, test)| *test)
}

fn one<'a>(args: &Args<'a>) -> Outcome<&'a Value> {
    match args.positional {
        [value] if args.named.is_empty() => Ok(value),
        _ => Err(fail("this test wants one argument")),
    }
}

fn ordered(value: &Value, args: &Args<'_>) -> Outcome<Option<std::cmp::Ordering>> {
    compare(value, one(args)?)
}

fn is_callable(value: &Value) -> bool {
    match py(value) {
        // Undefined answers every call, with an error.
        Py::Undefined => true,
        Py::Object(_) => {
            value.downcast_object_ref::<Native>().is_some()
                || value.downcast_object_ref::<Bound>().is_some()
                || value.get_attr("arguments").is_ok_and(|arguments| !arguments.is_undefined())
        }
        _ => false,
    }
}

fn is_iterable(value: &Value) -> bool {
    match py(value) {
        Py::Undefined | Py::Str(_) | Py::List(_) | Py::Tuple(_) | Py::Dict(_) => true,
        Py::Object(_) => {
            value.downcast_object_ref::<Lazy>().is_some()
                || value.downcast_object_ref::<DictView>().is_some()
                || value.downcast_object_ref::<Range>().is_some()
                || value.downcast_object_ref::<Broken>().is_some()
        }
        _ => false,
    }
}

/// Something with a length and subscripts: dicts and text too.
fn is_sequence(value: &Value) -> bool {
    match py(value) {
        Py::Undefined | Py::Str(_) | Py::List(_) | Py::Tuple(_) | Py::Dict(_) => true,
        Py::Object(_) => {
            value.downcast_object_ref::<Range>().is_some() || value.downcast_object_ref::<Broken>().is_some()
        }
        _ => false,
    }
}

fn has_case(value: &Value, wanted: fn(char) -> bool, other: fn(char) -> bool) -> Outcome<bool> {
    let text = text::to_string(value)?;
    Ok(text.chars().any(wanted) && !text.chars().any(other))
}

/// `a is b`, where Python's answer does not depend on how values are stored.
fn same(left: &Value, right: &Value) -> Outcome<bool> {
    match (py(left), py(right)) {
        (Py::None, Py::None) => Ok(true),
        (Py::Bool(a), Py::Bool(b)) => Ok(a == b),
        (Py::Undefined, _) | (_, Py::Undefined) => Err(undefined_error("compared by identity")),
        (Py::None | Py::Bool(_), _) | (_, Py::None | Py::Bool(_)) => Ok(false),
        (Py::Int(a), Py::Int(b)) if (-5..=256).contains(&a) && (-5..=256).contains(&b) => Ok(a == b),
        (Py::List(a), Py::List(b)) => Ok(std::ptr::eq(a, b)),
        (Py::Dict(a), Py::Dict(b)) => Ok(std::ptr::eq(a, b)),
        _ if type_name(left) != type_name(right) => Ok(false),
        (Py::Int(_), Py::Int(_)) | (Py::Float(_), Py::Float(_)) => {
            Ok(operators::float(number(left).unwrap_or(Number::Int(0)))
                .total_cmp(&operators::float(number(right).unwrap_or(Number::Int(0))))
                .is_eq())
        }
        _ => Ok(equal(left, right)),
    }
}
