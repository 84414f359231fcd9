//! Filters that pick values, and those that apply a filter or a test to each item.

use std::borrow::Cow;

use minijinja::{State, Value};

use super::Filter;
use crate::template::budget::{Bytes, work, work_on};
use crate::template::operators;
use crate::template::predicates;
use crate::template::value::{Args, Lazy, Outcome, Py, fail, iterate, py, undefined_error};

pub(super) fn default(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [default, boolean] = args.bind("default", ["default_value", "boolean"])?;
    if value.is_undefined() || (boolean.is_some_and(Value::is_true) && !value.is_true()) {
        return Ok(default.cloned().unwrap_or_else(|| Value::from("")));
    }
    Ok(value.clone())
}

/// An attribute, never an item.
pub(super) fn attr(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [name] = args.bind("attr", ["name"])?;
    let name = name.and_then(Value::as_str).ok_or_else(|| fail("`attr` wants a name"))?;
    work(8)?;
    match py(value) {
        Py::Object(_) => value.get_attr(name),
        Py::Undefined => Err(undefined_error(&format!("asked for `{name}`"))),
        _ if crate::template::methods::is_python_name(name) => operators::get_attribute(value, name),
        _ => Ok(Value::UNDEFINED),
    }
}

/// A path of attributes and indices, as `attribute='a.0.b'` gives it.
pub(super) struct Path(Vec<Value>);

impl Path {
    pub(super) fn parse(attribute: &Value) -> Outcome<Path> {
        Ok(Path(match attribute.as_str() {
            Some(text) => {
                work_on(Bytes::Read, text.len())?;
                text.split('.').map(Self::part).collect()
            }
            None => vec![attribute.clone()],
        }))
    }

    fn part(part: &str) -> Value {
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            part.parse::<i64>().map_or_else(|_| Value::from(part), Value::from)
        } else {
            Value::from(part)
        }
    }

    /// What the path leads to; a step into nothing is the default, if there is one.
    pub(super) fn follow(&self, item: &Value, default: Option<&Value>) -> Outcome {
        work(self.0.len())?;
        let mut item = item.clone();
        for part in &self.0 {
            item = operators::get_item(&item, part)?;
            if let (true, Some(default)) = (item.is_undefined(), default) {
                item = default.clone();
            }
        }
        Ok(item)
    }
}

/// Items on which the filter's work goes on; a false value has none, whatever it is.
fn items(value: &Value) -> Outcome<Cow<'_, [Value]>> {
    if value.is_true() { iterate(value) } else { Ok(Cow::Borrowed(&[])) }
}

/// What a generator function makes: it does nothing, and so fails at nothing, before it is read.
pub(super) fn generate(body: impl FnOnce(&mut Vec<Value>) -> Outcome<()>) -> Value {
    let mut out = Vec::new();
    let failure = body(&mut out).err();
    Lazy::value("generator", out, failure)
}

#[expect(clippy::unnecessary_wraps, reason = "it has a filter's type")]
pub(super) fn map(state: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    Ok(generate(|out| {
        let items = items(value)?;
        if let (true, Some(attribute)) = (args.positional.is_empty(), args.named("attribute")) {
            let known = |key: &Value| matches!(key.as_str(), Some("attribute" | "default"));
            if !args.named.iter().all(|(key, _)| known(key)) {
                return Err(fail("`map` takes `attribute` and `default` only"));
            }
            let (path, default) = (Path::parse(attribute)?, args.named("default").filter(|value| !value.is_none()));
            return items.iter().try_for_each(|item| {
                out.push(path.follow(item, default)?);
                Ok(())
            });
        }
        if items.is_empty() {
            return Ok(());
        }
        let name = args.positional.first().ok_or_else(|| fail("`map` wants a filter"))?;
        let filter: Filter = super::named(name)?;
        let rest = args.skip(1);
        items.iter().try_for_each(|item| {
            work(2)?;
            out.push(filter(state, item, &rest)?);
            Ok(())
        })
    }))
}

/// Whether an item passes: a test by name, or its truth.
enum Condition<'a> {
    Truth,
    Test(&'a str, Args<'a>),
}

impl<'a> Condition<'a> {
    fn parse(args: &Args<'a>, skipped: usize) -> Outcome<Self> {
        match args.positional.get(skipped) {
            None => Ok(Condition::Truth),
            Some(name) => {
                let name = name.as_str().ok_or_else(|| fail("a test is named by text"))?;
                Ok(Condition::Test(name, args.skip(skipped + 1)))
            }
        }
    }

    fn holds(&self, item: &Value) -> Outcome<bool> {
        match self {
            Condition::Truth => Ok(item.is_true()),
            Condition::Test(name, args) => predicates::holds(name, item, args),
        }
    }
}

fn filtered(value: &Value, args: &Args<'_>, by_attribute: bool, wanted: bool) -> Value {
    generate(|out| {
        let items = items(value)?;
        work(items.len())?;
        if items.is_empty() {
            return Ok(());
        }
        let path = match (by_attribute, args.positional.first()) {
            (false, _) => None,
            (true, Some(attribute)) => Some(Path::parse(attribute)?),
            (true, None) => return Err(fail("an attribute is wanted")),
        };
        let condition = Condition::parse(args, usize::from(by_attribute))?;
        for item in items.iter() {
            let judged = path.as_ref().map_or_else(|| Ok(item.clone()), |path| path.follow(item, None))?;
            if condition.holds(&judged)? == wanted {
                out.push(item.clone());
            }
        }
        Ok(())
    })
}

#[expect(clippy::unnecessary_wraps, reason = "it has a filter's type")]
pub(super) fn select(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    Ok(filtered(value, args, false, true))
}

#[expect(clippy::unnecessary_wraps, reason = "it has a filter's type")]
pub(super) fn reject(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    Ok(filtered(value, args, false, false))
}

#[expect(clippy::unnecessary_wraps, reason = "it has a filter's type")]
pub(super) fn selectattr(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    Ok(filtered(value, args, true, true))
}

#[expect(clippy::unnecessary_wraps, reason = "it has a filter's type")]
pub(super) fn rejectattr(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    Ok(filtered(value, args, true, false))
}
