//! The functions that every template may call.

use std::fmt;
use std::sync::Arc;

use minijinja::{State, Value};

use super::operators::integer;
use super::strftime::strftime;
use super::value::{Args, Dict, Namespace, Native, Outcome, Py, Range, fail, iterate, py, type_name};
use super::{budget, text};
use crate::error::shortened;

/// Every global function.
pub(super) const FUNCTIONS: [Native; 5] = [
    Native { name: "dict", body: dict },
    Native { name: "namespace", body: namespace },
    Native { name: "raise_exception", body: raise_exception },
    Native { name: "range", body: range },
    Native { name: "strftime_now", body: strftime_now },
];

/// Globals of Jinja2's that we refuse when a template is compiled.
pub(super) const UNSUPPORTED: [&str; 3] = ["cycler", "joiner", "lipsum"];

/// The sandbox's bound on `range`.
const MAX_RANGE: usize = 100_000;

/// Marks an error that the template raised: its message is the template's own.
#[derive(Debug)]
pub(super) struct Raised;

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("raised by the template")
    }
}

impl std::error::Error for Raised {}

fn raise_exception(_: &mut State<'_, '_>, args: &Args<'_>) -> Outcome {
    let [message] = args.bind("raise_exception", ["message"])?;
    let message = message.ok_or_else(|| fail("`raise_exception` wants a message"))?;
    let message = text::to_string(message)?;
    Err(fail(shortened(&message).to_owned()).with_source(Raised))
}

fn strftime_now(_: &mut State<'_, '_>, args: &Args<'_>) -> Outcome {
    let [format] = args.bind("strftime_now", ["format"])?;
    let format = format.and_then(Value::as_str).ok_or_else(|| fail("`strftime_now` wants a format"))?;
    // No directive makes more of its two bytes than `%c` does.
    budget::charge(format.len().saturating_mul(12))?;
    budget::work(format.len().saturating_mul(4))?;
    Ok(Value::from(strftime(&budget::now(), format)))
}

fn range(_: &mut State<'_, '_>, args: &Args<'_>) -> Outcome {
    if !args.named.is_empty() {
        return Err(fail("`range` takes no named arguments"));
    }
    let number = |value: &Value| {
        let number = integer(value).and_then(|number| i64::try_from(number).ok());
        number.ok_or_else(|| fail(format!("`range` wants integers, not `{}`", type_name(value))))
    };
    let (start, end, step) = match args.positional {
        [end] => (0, number(end)?, 1),
        [start, end] => (number(start)?, number(end)?, 1),
        [start, end, step] => (number(start)?, number(end)?, number(step)?),
        _ => return Err(fail("`range` takes one to three integers")),
    };
    let distance = if step > 0 { i128::from(end) - i128::from(start) } else { i128::from(start) - i128::from(end) };
    let len = match step {
        0 => return Err(fail("`range` cannot step by 0")),
        _ if distance <= 0 => 0,
        _ => usize::try_from((distance - 1) / i128::from(step.unsigned_abs()) + 1).unwrap_or(usize::MAX),
    };
    if len > MAX_RANGE {
        return Err(fail(format!("a range may have {MAX_RANGE} items")));
    }
    Ok(Value::from_object(Range { start, stop: end, step, len }))
}

/// The pairs of `dict(mapping or pairs, **named)`.
fn pairs(function: &str, args: &Args<'_>) -> Outcome<Vec<(Value, Value)>> {
    let mut pairs = match args.positional {
        [] => Vec::new(),
        [value] => match py(value) {
            Py::Dict(dict) => dict.entries().to_vec(),
            _ => iterate(value)?
                .iter()
                .map(|item| match iterate(item)?.as_ref() {
                    [key, value] => Ok((key.clone(), value.clone())),
                    _ => Err(fail(format!("`{function}` wants pairs"))),
                })
                .collect::<Outcome<_>>()?,
        },
        _ => return Err(fail(format!("`{function}` takes one positional argument"))),
    };
    pairs.extend(args.named.iter().cloned());
    Ok(pairs)
}

fn dict(_: &mut State<'_, '_>, args: &Args<'_>) -> Outcome {
    let pairs = pairs("dict", args)?;
    Dict::from_pairs(pairs).map(Value::from_object)
}

fn namespace(_: &mut State<'_, '_>, args: &Args<'_>) -> Outcome {
    let dict = Dict::from_pairs(pairs("namespace", args)?)?;
    budget::make(256)?;
    budget::work(40)?;
    let attributes = dict.entries().iter().filter_map(|(key, value)| Some((key.to_str()?, value.clone())));
    Ok(budget::namespace(Namespace::new(attributes.collect::<Vec<(Arc<str>, Value)>>())))
}
