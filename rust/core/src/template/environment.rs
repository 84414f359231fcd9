//! The engine set up as transformers sets up Jinja2, and the filters that stand in for its instructions.

use std::collections::HashMap;
use std::sync::LazyLock;

use minijinja::machinery::Instruction;
use minijinja::value::{Rest, ValueOrKwargs};
use minijinja::{Environment, State, Value};

use super::value::{Args, Namespace, Native, Outcome, Py, fail, iterate, list, pair, py, tuple};
use super::{budget, calls, filters, functions, methods, operators, predicates, text};

/// How many filters the engine looks up once per run rather than at each use.
pub(super) const MAX_CACHED_FILTERS: usize = 50;

// A name that no template can write.
pub(super) const ADD: &str = "+";
pub(super) const MULTIPLY: &str = "*";
pub(super) const MODULO: &str = "%";
pub(super) const CONCAT: &str = "~";
pub(super) const EQUAL: &str = "==";
pub(super) const NOT_EQUAL: &str = "!=";
pub(super) const LESS: &str = "<";
pub(super) const LESS_EQUAL: &str = "<=";
pub(super) const GREATER: &str = ">";
pub(super) const GREATER_EQUAL: &str = ">=";
pub(super) const IN: &str = "?in";
pub(super) const SLICE: &str = "[:]";
pub(super) const ITEM: &str = "[]";
pub(super) const ATTRIBUTE: &str = ".";
pub(super) const SET_ATTRIBUTE: &str = ".=";
pub(super) const DICT: &str = "{}";
pub(super) const LIST: &str = "[,]";
pub(super) const TUPLE: &str = "(,)";
pub(super) const ITERATE: &str = "?iterate";
pub(super) const GIVEN: &str = "?given";
pub(super) const MISSING: &str = "?missing";
pub(super) const CALL: &str = "()";
pub(super) const ARRANGE: &str = "?arrange";
pub(super) const DECLARE: &str = "?declare";
pub(super) const PAY: &str = "?pay";
pub(super) const RECURSE: &str = "?recurse";

/// What a loop of the engine's takes.
const LOOP_BYTES: usize = 256;

/// What a macro and its closure take, which live until the rendering ends.
const DECLARATION_BYTES: usize = 1024;
const DECLARATION_WORK: usize = 20;

/// Scopes that are open at once in a loop that calls itself: each is walked over to find a variable.
pub(super) const MAX_RECURSIVE_FRAMES: usize = 100;

/// A comparison that is followed by another one.
type Comparison = fn(&Value, &Value) -> Outcome<bool>;

const CHAINED: [(&str, Comparison); 8] = [
    ("&==", |a, b| Ok(operators::equal(a, b))),
    ("&!=", |a, b| Ok(!operators::equal(a, b))),
    ("&<", |a, b| Ok(operators::compare(a, b)?.is_some_and(std::cmp::Ordering::is_lt))),
    ("&<=", |a, b| Ok(operators::compare(a, b)?.is_some_and(std::cmp::Ordering::is_le))),
    ("&>", |a, b| Ok(operators::compare(a, b)?.is_some_and(std::cmp::Ordering::is_gt))),
    ("&>=", |a, b| Ok(operators::compare(a, b)?.is_some_and(std::cmp::Ordering::is_ge))),
    ("&in", |a, b| operators::contains(b, a)),
    ("&not in", |a, b| operators::contains(b, a).map(|found| !found)),
];

/// The filter for a comparison that keeps its right side for the next one.
pub(super) fn preserving(instruction: &Instruction<'_>) -> &'static str {
    // The operator's type is not public, its debug form is.
    let shown = format!("{instruction:?}");
    let names = ["Eq", "Ne", "Lt", "Lte", "Gt", "Gte", "In", "NotIn"];
    let place = names.iter().position(|name| shown.ends_with(&format!("({name})"))).unwrap_or(0);
    CHAINED[place].0
}

/// Names of filters and tests that got no arguments, which needs no list of them.
static PLAIN: LazyLock<HashMap<&'static str, String>> = LazyLock::new(|| {
    let names =
        filters::FILTERS.iter().map(|(name, _)| *name).chain(predicates::TESTS.iter().map(|(name, _, _)| *name));
    names.map(|name| (name, format!("{name}|"))).collect()
});

pub(super) fn plain(name: &str) -> Option<&'static str> {
    PLAIN.get(name).map(String::as_str)
}

pub(super) fn is_global(name: &str) -> bool {
    functions::FUNCTIONS.iter().any(|function| function.name == name)
}

static BASE: LazyLock<Environment<'static>> = LazyLock::new(base);

/// An environment whose renderings may use this much fuel.
pub(super) fn with_fuel(fuel: u64) -> Environment<'static> {
    let mut environment = BASE.clone();
    environment.set_fuel((fuel > 0).then_some(fuel));
    environment
}

fn base() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_formatter(|out, state, value| {
        if let Some(text) = value.as_str() {
            budget::emit(text.len())?;
            return Ok(out.write_str(text)?);
        }
        match py(value) {
            Py::Undefined => Ok(()),
            Py::Int(number) => Ok(write!(out, "{number}")?),
            _ => {
                let text = text::to_string(value)?;
                budget::settle(state)?;
                budget::emit(text.len())?;
                Ok(out.write_str(&text)?)
            }
        }
    });
    environment.set_unknown_method_callback(methods::call);
    for function in functions::FUNCTIONS {
        environment.add_global(function.name, Value::from_object::<Native>(function));
    }
    for (name, filter) in filters::FILTERS {
        let (name, filter) = (*name, *filter);
        environment.add_filter(name, move |state: &mut State<'_, '_>, value: &Value, rest: Rest<ValueOrKwargs>| {
            let values = rest.into_values();
            let made = filter(state, value, &Args::new(&values))?;
            settled(state, made)
        });
        if let Some(plain) = plain(name) {
            environment.add_filter(plain, move |state: &mut State<'_, '_>, value: &Value| {
                let made = filter(state, value, &Args::NONE)?;
                settled(state, made)
            });
        }
    }
    for (name, _, test) in predicates::TESTS {
        let (name, test) = (*name, *test);
        environment.add_test(name, move |state: &State<'_, '_>, value: &Value, rest: Rest<ValueOrKwargs>| {
            let values = rest.into_values();
            settled(state, test(value, &Args::new(&values))?)
        });
        if let Some(plain) = plain(name) {
            environment
                .add_test(plain, move |state: &State<'_, '_>, value: &Value| settled(state, test(value, &Args::NONE)?));
        }
    }
    add_operators(&mut environment);
    add_structure(&mut environment);
    environment
}

type Binary = fn(&Value, &Value) -> Outcome;

fn add_operators(environment: &mut Environment<'static>) {
    let binary: [(&str, Binary); 4] = [
        (ADD, operators::add),
        (MULTIPLY, operators::multiply),
        (MODULO, operators::modulo),
        (CONCAT, operators::concat),
    ];
    for (name, operator) in binary {
        environment
            .add_filter(name, move |state: &State<'_, '_>, a: &Value, b: &Value| settled(state, operator(a, b)?));
    }
    for (name, chained) in
        [(EQUAL, 0), (NOT_EQUAL, 1), (LESS, 2), (LESS_EQUAL, 3), (GREATER, 4), (GREATER_EQUAL, 5), (IN, 6)]
    {
        let comparison = CHAINED[chained].1;
        environment
            .add_filter(name, move |state: &State<'_, '_>, a: &Value, b: &Value| settled(state, comparison(a, b)?));
    }
    for (name, comparison) in CHAINED {
        environment.add_filter(name, move |state: &State<'_, '_>, a: &Value, b: &Value| {
            budget::work(1)?;
            settled(state, pair(Value::from(comparison(a, b)?), b.clone()))
        });
    }
    environment.add_filter(
        SLICE,
        |state: &State<'_, '_>, object: &Value, start: &Value, stop: &Value, step: &Value| {
            settled(state, operators::slice(object, start, stop, step)?)
        },
    );
    environment.add_filter(ITEM, |state: &State<'_, '_>, object: &Value, key: &Value| {
        settled(state, operators::get_item(object, key)?)
    });
    environment.add_filter(ATTRIBUTE, |state: &State<'_, '_>, object: &Value, name: &Value| {
        settled(state, operators::get_attribute(object, name.as_str().unwrap_or_default())?)
    });
    environment.add_filter(SET_ATTRIBUTE, |state: &State<'_, '_>, value: &Value, object: &Value, name: &Value| {
        let namespace = object.downcast_object_ref::<Namespace>();
        let namespace = namespace.ok_or_else(|| fail("only an attribute of a namespace can be set"))?;
        namespace.set(name.as_str().unwrap_or_default(), value.clone())?;
        settled(state, true)
    });
}

fn add_structure(environment: &mut Environment<'static>) {
    environment
        .add_filter(DICT, |state: &State<'_, '_>, flat: &[Value]| settled(state, operators::dict_literal(flat)?));
    environment.add_filter(LIST, |items: &[Value]| list(items.to_vec()));
    environment.add_filter(TUPLE, |items: &[Value]| tuple(items.to_vec()));
    environment.add_filter(ITERATE, |state: &State<'_, '_>, value: &Value| iterable(state, value));
    environment.add_filter(GIVEN, |value: &Value| calls::given(value));
    environment.add_filter(MISSING, |value: &Value| calls::is_missing(value));
    environment.add_filter(ARRANGE, |state: &State<'_, '_>, values: Rest<ValueOrKwargs>| {
        settled(state, calls::arrange_named(state, &values.into_values())?)
    });
    environment.add_filter(DECLARE, |state: &State<'_, '_>, _: &Value| {
        budget::make(DECLARATION_BYTES)?;
        budget::work(DECLARATION_WORK)?;
        settled(state, true)
    });
    environment.add_filter(PAY, |state: &State<'_, '_>, count: &Value| {
        budget::work(count.as_usize().unwrap_or_default())?;
        settled(state, true)
    });
    environment.add_filter(RECURSE, |state: &State<'_, '_>, items: &Value, frames: &Value| {
        let depth = state.lookup("loop").and_then(|each| each.get_attr("depth").ok()?.as_usize()).unwrap_or_default();
        if depth.saturating_mul(frames.as_usize().unwrap_or_default()) > MAX_RECURSIVE_FRAMES {
            return Err(fail("a loop recurses too deeply"));
        }
        iterable(state, items)
    });
    environment.add_filter(CALL, |state: &mut State<'_, '_>, values: Rest<ValueOrKwargs>| {
        let values = values.into_values();
        let (callee, args) = values.split_first().ok_or_else(|| fail("a call without a callee"))?;
        let made = calls::call_value(state, callee, args)?;
        settled(state, made)
    });
}

/// What an operation gives, once its work is paid for.
fn settled<T>(state: &State<'_, '_>, made: T) -> Outcome<T> {
    budget::settle(state)?;
    Ok(made)
}

/// A value that the engine iterates as Python would.
fn iterable(state: &State<'_, '_>, value: &Value) -> Outcome {
    budget::make(LOOP_BYTES)?;
    let items = match py(value) {
        Py::List(_) | Py::Tuple(_) | Py::Undefined => value.clone(),
        _ => list(iterate(value)?.into_owned())?,
    };
    settled(state, items)
}
