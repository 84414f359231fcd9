//! Jinja2's tests: what may stand after `is`.

use minijinja::Value;

use super::budget::{self, Bytes};
use super::operators::{self, compare, contains, equal, number};
use super::value::{Args, Bound, Broken, Dict, DictView, Lazy, Native, Outcome, Py, Range, fail, py, type_name};
use super::{filters, text};

/// A test of a value, with its arguments.
pub(super) type Test = fn(&Value, &Args<'_>) -> Outcome<bool>;

/// Every test by name, with the number of arguments that it takes.
pub(super) const TESTS: &[(&str, usize, Test)] = &[
    ("!=", 1, |a, args| Ok(!equal(a, one(args)?))),
    ("<", 1, |a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_lt))),
    ("<=", 1, |a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_le))),
    ("==", 1, |a, args| Ok(equal(a, one(args)?))),
    (">", 1, |a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_gt))),
    (">=", 1, |a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_ge))),
    ("boolean", 0, |value, _| Ok(matches!(py(value), Py::Bool(_)))),
    ("callable", 0, |value, _| Ok(is_callable(value))),
    ("defined", 0, |value, _| Ok(!value.is_undefined())),
    ("divisibleby", 1, |value, args| Ok(equal(&operators::modulo(value, one(args)?)?, &Value::from(0)))),
    ("eq", 1, |a, args| Ok(equal(a, one(args)?))),
    ("equalto", 1, |a, args| Ok(equal(a, one(args)?))),
    ("escaped", 0, |value, _| Ok(value.is_safe())),
    ("even", 0, |value, _| Ok(equal(&operators::modulo(value, &Value::from(2))?, &Value::from(0)))),
    ("false", 0, |value, _| Ok(matches!(py(value), Py::Bool(false)))),
    ("filter", 0, |value, _| Ok(value.as_str().is_some_and(|name| filters::find(name).is_some()))),
    ("float", 0, |value, _| Ok(matches!(py(value), Py::Float(_)))),
    ("ge", 1, |a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_ge))),
    ("greaterthan", 1, |a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_gt))),
    ("gt", 1, |a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_gt))),
    ("in", 1, |value, args| contains(one(args)?, value)),
    ("integer", 0, |value, _| Ok(matches!(py(value), Py::Int(_) | Py::BigInt(_)))),
    ("iterable", 0, |value, _| Ok(is_iterable(value))),
    ("le", 1, |a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_le))),
    ("lessthan", 1, |a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_lt))),
    ("lower", 0, |value, _| has_case(value, char::is_lowercase, char::is_uppercase)),
    ("lt", 1, |a, args| Ok(ordered(a, args)?.is_some_and(std::cmp::Ordering::is_lt))),
    ("mapping", 0, |value, _| Ok(value.downcast_object_ref::<Dict>().is_some())),
    ("ne", 1, |a, args| Ok(!equal(a, one(args)?))),
    ("none", 0, |value, _| Ok(value.is_none())),
    ("number", 0, |value, _| Ok(number(value).is_some() || matches!(py(value), Py::BigInt(_)))),
    ("odd", 0, |value, _| Ok(equal(&operators::modulo(value, &Value::from(2))?, &Value::from(1)))),
    ("sameas", 1, |value, args| Ok(same(value, one(args)?))),
    ("sequence", 0, |value, _| Ok(is_sequence(value))),
    ("string", 0, |value, _| Ok(value.as_str().is_some() || value.downcast_object_ref::<Broken>().is_some())),
    ("test", 0, |value, _| Ok(value.as_str().is_some_and(|name| find(name).is_some()))),
    ("true", 0, |value, _| Ok(matches!(py(value), Py::Bool(true)))),
    ("undefined", 0, |value, _| Ok(value.is_undefined())),
    ("upper", 0, |value, _| has_case(value, char::is_uppercase, char::is_lowercase)),
];

/// The test of this name, and the number of arguments that it takes.
pub(super) fn find(name: &str) -> Option<(usize, Test)> {
    TESTS.iter().find(|(known, _, _)| *known == name).map(|(_, count, test)| (*count, *test))
}

/// Apply a test that a filter names.
pub(super) fn holds(name: &str, value: &Value, args: &Args<'_>) -> Outcome<bool> {
    let (count, test) = find(name).ok_or_else(|| fail(format!("there is no test `{name}`")))?;
    if args.positional.len() != count || !args.named.is_empty() {
        return Err(fail(format!("the test `{name}` takes {count} arguments")));
    }
    test(value, args)
}

fn one<'a>(args: &Args<'a>) -> Outcome<&'a Value> {
    args.positional.first().ok_or_else(|| fail("this test wants an argument"))
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
    budget::work_on(Bytes::Read, text.len())?;
    Ok(text.chars().any(wanted) && !text.chars().any(other))
}

/// `a is b`, where Python's answer does not depend on how values are stored.
fn same(left: &Value, right: &Value) -> bool {
    match (py(left), py(right)) {
        (Py::None, Py::None) => true,
        (Py::Bool(a), Py::Bool(b)) => a == b,
        (Py::None | Py::Bool(_) | Py::Undefined, _) | (_, Py::None | Py::Bool(_) | Py::Undefined) => false,
        (Py::Int(a), Py::Int(b)) if (-5..=256).contains(&a) && (-5..=256).contains(&b) => a == b,
        (Py::List(a), Py::List(b)) => std::ptr::eq(a, b),
        (Py::Dict(a), Py::Dict(b)) => std::ptr::eq(a, b),
        _ if type_name(left) != type_name(right) => false,
        _ => equal(left, right),
    }
}
