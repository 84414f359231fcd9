//! Methods of Python's str, list, tuple, dict and float, and which attribute names they occupy.

mod string;

use minijinja::{Error, ErrorKind, State, Value};

use super::budget::{self, work};
use super::calls;
use super::operators;
use super::value::{
    Args, Bound, Dict, DictPart, DictView, Namespace, Outcome, Py, fail, iterate, py, type_name, undefined_error,
};

pub(super) use string::{capitalize, character_set, is_space, replace, split_lines};

const STRING_METHODS: [&str; 47] = [
    "capitalize",
    "casefold",
    "center",
    "count",
    "encode",
    "endswith",
    "expandtabs",
    "find",
    "format",
    "format_map",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "maketrans",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "translate",
    "upper",
    "zfill",
];
const DICT_METHODS: [&str; 6] = ["copy", "fromkeys", "get", "items", "keys", "values"];
const DICT_MUTATORS: [&str; 5] = ["clear", "pop", "popitem", "setdefault", "update"];
const LIST_METHODS: [&str; 3] = ["copy", "count", "index"];
const LIST_MUTATORS: [&str; 8] = ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];
const TUPLE_METHODS: [&str; 2] = ["count", "index"];

/// What an attribute name means to a value's Python type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attribute {
    Method,
    /// It exists, but the sandbox hides it: it would change the value, or reach into Python.
    Forbidden,
    None,
}

/// Whether some Python type has an attribute of this name, so that it must be looked for before a key.
pub(super) fn is_python_name(name: &str) -> bool {
    name.starts_with("__")
        || STRING_METHODS.contains(&name)
        || DICT_METHODS.contains(&name)
        || DICT_MUTATORS.contains(&name)
        || LIST_MUTATORS.contains(&name)
}

/// What `object.name` is.
pub(super) fn attribute(object: &Value, name: &str) -> Attribute {
    let (methods, mutators): (&[&str], &[&str]) = match py(object) {
        Py::Str(_) => (&STRING_METHODS, &[]),
        Py::Dict(_) => (&DICT_METHODS, &DICT_MUTATORS),
        Py::List(_) => (&LIST_METHODS, &LIST_MUTATORS),
        Py::Tuple(_) => (&TUPLE_METHODS, &[]),
        _ => (&[], &[]),
    };
    if methods.contains(&name) {
        Attribute::Method
    } else if mutators.contains(&name) || (name.starts_with("__") && name.ends_with("__")) {
        Attribute::Forbidden
    } else {
        Attribute::None
    }
}

/// `object.name` as a value of its own.
pub(super) fn bind(object: &Value, name: &str) -> Value {
    Value::from_object(Bound { receiver: object.clone(), name: name.to_owned() })
}

/// Call a method: what the engine asks when an object does not know it.
pub(super) fn call(state: &mut State<'_, '_>, object: &Value, name: &str, args: &[Value]) -> Outcome {
    let made = dispatch(state, object, name, args)?;
    budget::settle(state)?;
    Ok(made)
}

fn dispatch(state: &mut State<'_, '_>, object: &Value, name: &str, args: &[Value]) -> Outcome {
    if attribute(object, name) == Attribute::Forbidden {
        return Err(fail(format!("`{name}` of a `{}` is not open to templates", type_name(object))));
    }
    let arguments = Args::new(args);
    match py(object) {
        Py::Str(text) => string::call(object, text, name, &arguments),
        Py::Dict(dict) => match dict_method(object, dict, name, &arguments)? {
            Some(value) => Ok(value),
            None => match dict.get_str(name) {
                Some(value) => calls::call_value(state, value, args),
                None => Err(unknown(object, name)),
            },
        },
        Py::List(items) | Py::Tuple(items) => sequence_method(object, items, name, &arguments),
        Py::Float(number) if name == "is_integer" => Ok(Value::from(number.is_finite() && number.fract() == 0.0)),
        Py::Undefined => Err(undefined_error(&format!("asked for `{name}`"))),
        Py::Object(_) => match object.downcast_object_ref::<Namespace>().map(|namespace| namespace.get(name)) {
            Some(Some(value)) => calls::call_value(state, &value, args),
            Some(None) => Err(unknown(object, name)),
            // Loops and macros answer for themselves.
            None => Err(Error::from(ErrorKind::UnknownMethod)),
        },
        _ => Err(unknown(object, name)),
    }
}

fn unknown(object: &Value, name: &str) -> Error {
    fail(format!("a value of type `{}` has no attribute `{name}`", type_name(object)))
}

fn dict_method(object: &Value, dict: &Dict, name: &str, args: &Args<'_>) -> Outcome<Option<Value>> {
    let view = |part| Value::from_object(DictView { dict: object.clone(), part });
    let part = match name {
        "get" => {
            let [key, default] = args.bind("get", ["key", "default"])?;
            if !args.named.is_empty() {
                return Err(fail("`get` takes no named arguments"));
            }
            let key = key.ok_or_else(|| fail("`get` wants a key"))?;
            super::value::check_hashable(key)?;
            let found = dict.get(key).or(default).cloned();
            return Ok(Some(found.unwrap_or_else(|| Value::from(()))));
        }
        "copy" => {
            let [] = args.bind("copy", [])?;
            return Ok(Some(object.clone()));
        }
        "items" => DictPart::Items,
        "keys" => DictPart::Keys,
        "values" => DictPart::Values,
        "fromkeys" => return Err(fail("`fromkeys` is not supported")),
        _ => return Ok(None),
    };
    let [] = args.bind(name, [])?;
    Ok(Some(view(part)))
}

fn sequence_method(object: &Value, items: &[Value], name: &str, args: &Args<'_>) -> Outcome {
    match name {
        "copy" if matches!(py(object), Py::List(_)) => Ok(object.clone()),
        "count" => {
            let [wanted] = args.bind("count", ["value"])?;
            let wanted = wanted.ok_or_else(|| fail("`count` wants a value"))?;
            work(items.len() / 2)?;
            Ok(Value::from(items.iter().filter(|item| operators::equal(item, wanted)).count()))
        }
        "index" => {
            let [wanted, start, stop] = args.bind("index", ["value", "start", "stop"])?;
            let wanted = wanted.ok_or_else(|| fail("`index` wants a value"))?;
            let (start, stop) = window(start, stop, items.len())?;
            work(items.len() / 2)?;
            let found = (start..stop).find(|&place| operators::equal(&items[place], wanted));
            found.map(Value::from).ok_or_else(|| fail("`index` found nothing"))
        }
        _ => Err(unknown(object, name)),
    }
}

/// The part of a sequence between two optional indices, clamped as Python clamps them.
fn window(start: Option<&Value>, stop: Option<&Value>, len: usize) -> Outcome<(usize, usize)> {
    let bound = |value: Option<&Value>, default: usize| -> Outcome<usize> {
        match value {
            None => Ok(default),
            Some(value) if value.is_none() => Ok(default),
            Some(value) => {
                let index = operators::integer(value).ok_or_else(|| fail("an index must be an integer"))?;
                let index = if index < 0 { (index + len as i128).max(0) } else { index };
                Ok(usize::try_from(index).unwrap_or(usize::MAX))
            }
        }
    };
    let (start, stop) = (bound(start, 0)?, bound(stop, len)?.min(len));
    Ok((start, stop))
}

/// The one prefix or the tuple of prefixes that `startswith` and `endswith` take.
fn affixes(value: &Value) -> Outcome<Vec<Value>> {
    match py(value) {
        Py::Str(_) => Ok(vec![value.clone()]),
        Py::Tuple(_) => Ok(iterate(value)?.into_owned()),
        _ => Err(fail(format!("text or a tuple of texts is wanted, not `{}`", type_name(value)))),
    }
}
