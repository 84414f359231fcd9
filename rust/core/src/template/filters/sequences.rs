//! Filters over sequences and mappings.

use std::collections::HashSet;

use minijinja::{State, Value};

use super::selection::{Path, generate};
use crate::template::budget::{Bytes, charge, charge_items, check_size, work, work_on};
use crate::template::operators;
use crate::template::text;
use crate::template::value::{
    self, Args, Lazy, Outcome, Py, check_hashable, fail, iterate, py, type_name, undefined_error,
};

pub(super) fn length(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("length", [])?;
    if let Some(text) = value.as_str() {
        work_on(Bytes::Searched, text.len())?;
    }
    value::length(value).map(Value::from)
}

pub(super) fn list(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("list", [])?;
    value::list(iterate(value)?.into_owned())
}

pub(super) fn first(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("first", [])?;
    if let Some(lazy) = value.downcast_object_ref::<Lazy>() {
        return Ok(lazy.next()?.unwrap_or_default());
    }
    if let Some(text) = value.as_str() {
        return Ok(text.chars().next().map(Value::from).unwrap_or_default());
    }
    if let Py::List(items) | Py::Tuple(items) = py(value) {
        return Ok(items.first().cloned().unwrap_or_default());
    }
    Ok(iterate(value)?.first().cloned().unwrap_or_default())
}

pub(super) fn last(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("last", [])?;
    if let Some(text) = value.as_str() {
        return Ok(text.chars().next_back().map(Value::from).unwrap_or_default());
    }
    if value.downcast_object_ref::<Lazy>().is_some() {
        return Err(fail(format!("a value of type `{}` cannot be reversed", type_name(value))));
    }
    if let Py::List(items) | Py::Tuple(items) = py(value) {
        return Ok(items.last().cloned().unwrap_or_default());
    }
    Ok(iterate(value)?.last().cloned().unwrap_or_default())
}

pub(super) fn reverse(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("reverse", [])?;
    if let Some(text) = value.as_str() {
        charge(text.len())?;
        work_on(Bytes::Read, text.len())?;
        return Ok(Value::from(text.chars().rev().collect::<String>()));
    }
    let mut items = iterate(value)?.into_owned();
    items.reverse();
    match py(value) {
        // What cannot be walked backwards becomes a list first.
        Py::Object(_) if value.downcast_object_ref::<Lazy>().is_some() => value::list(items),
        _ => Ok(Lazy::value("reversed", items, None)),
    }
}

pub(super) fn join(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [separator, attribute] = args.bind("join", ["d", "attribute"])?;
    let separator = separator.map_or(Ok(String::new()), text::to_string)?;
    let path = attribute.filter(|attribute| !attribute.is_none()).map(Path::parse).transpose()?;
    let mut out = String::new();
    for (place, item) in iterate(value)?.iter().enumerate() {
        if place > 0 {
            work_on(Bytes::Copied, separator.len())?;
            out.push_str(&separator);
        }
        match &path {
            Some(path) => text::append(&mut out, &path.follow(item, None)?)?,
            None => text::append(&mut out, item)?,
        }
        crate::template::budget::check_size(out.len())?;
    }
    charge(out.len())?;
    Ok(Value::from(out))
}

/// Text in lower case, for comparison that ignores case.
fn folded(value: Value) -> Outcome {
    match value.as_str() {
        Some(text) => {
            work_on(Bytes::Read, text.len())?;
            Ok(Value::from(text.to_lowercase()))
        }
        None => Ok(value),
    }
}

/// What items are compared by: the values at some paths, with or without case.
struct Key {
    paths: Vec<Path>,
    case_sensitive: bool,
}

impl Key {
    fn new(attribute: Option<&Value>, case_sensitive: Option<&Value>, several: bool) -> Outcome<Self> {
        let case_sensitive = case_sensitive.is_some_and(Value::is_true);
        let paths = match attribute.filter(|attribute| !attribute.is_none()) {
            None => Vec::new(),
            Some(attribute) => match attribute.as_str() {
                Some(text) if several => {
                    text.split(',').map(|part| Path::parse(&Value::from(part))).collect::<Outcome<_>>()?
                }
                _ => vec![Path::parse(attribute)?],
            },
        };
        Ok(Self { paths, case_sensitive })
    }

    fn of(&self, item: &Value) -> Outcome {
        let fold = |value| if self.case_sensitive { Ok(value) } else { folded(value) };
        match self.paths.as_slice() {
            [] => fold(item.clone()),
            [path] => path.follow(item, None).and_then(fold),
            paths => {
                value::list(paths.iter().map(|path| path.follow(item, None).and_then(fold)).collect::<Outcome<_>>()?)
            }
        }
    }
}

pub(super) fn sort(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [reverse, case_sensitive, attribute] = args.bind("sort", ["reverse", "case_sensitive", "attribute"])?;
    let key = Key::new(attribute, case_sensitive, true)?;
    let items = iterate(value)?;
    check_size(items.len().saturating_mul(2 * size_of::<Value>()))?;
    let keyed = items.iter().map(|item| Ok((key.of(item)?, item.clone()))).collect::<Outcome<Vec<_>>>()?;
    let reverse = reverse.is_some_and(Value::is_true);
    let sorted = operators::sorted(keyed, reverse, |(a, _), (b, _)| operators::less_than(a, b))?;
    value::list(sorted.into_iter().map(|(_, item)| item).collect())
}

pub(super) fn dictsort(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [case_sensitive, by, reverse] = args.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let place = match by.map_or(Some("key"), Value::as_str) {
        Some("key") => 0,
        Some("value") => 1,
        _ => return Err(fail("`dictsort` sorts by key or by value")),
    };
    let Py::Dict(dict) = py(value) else {
        if value.is_undefined() {
            return Err(undefined_error("sorted as a mapping"));
        }
        return Err(fail(format!("`dictsort` wants a mapping, not `{}`", type_name(value))));
    };
    check_size(dict.len().saturating_mul(3 * size_of::<Value>()))?;
    work(dict.len())?;
    let key = Key::new(None, case_sensitive, false)?;
    let keyed = dict
        .entries()
        .iter()
        .map(|entry| Ok((key.of(if place == 0 { &entry.0 } else { &entry.1 })?, entry.clone())))
        .collect::<Outcome<Vec<_>>>()?;
    let reverse = reverse.is_some_and(Value::is_true);
    let sorted = operators::sorted(keyed, reverse, |(a, _), (b, _)| operators::less_than(a, b))?;
    value::list(sorted.into_iter().map(|(_, (key, value))| value::pair(key, value)).collect())
}

pub(super) fn items(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("items", [])?;
    match py(value) {
        Py::Undefined => Ok(Lazy::value("generator", Vec::new(), None)),
        Py::Dict(dict) => {
            charge_items(dict.len().saturating_mul(2))?;
            let pairs = dict.entries().iter().map(|(key, value)| value::pair(key.clone(), value.clone())).collect();
            Ok(Lazy::value("generator", pairs, None))
        }
        // A generator: the error waits for who reads it.
        _ => Ok(Lazy::value("generator", Vec::new(), Some(fail("`items` wants a mapping")))),
    }
}

pub(super) fn unique(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [case_sensitive, attribute] = args.bind("unique", ["case_sensitive", "attribute"])?;
    let key = Key::new(attribute, case_sensitive, false)?;
    Ok(generate(|out| {
        let (mut texts, mut others): (HashSet<String>, Vec<Value>) = (HashSet::new(), Vec::new());
        for item in iterate(value)?.iter() {
            let key = key.of(item)?;
            check_hashable(&key)?;
            work(1 + others.len() / 2)?;
            let new = if let Some(text) = key.as_str() {
                work_on(Bytes::Read, text.len())?;
                texts.insert(text.to_owned())
            } else {
                let new = !others.iter().any(|other| operators::equal(other, &key));
                others.extend(new.then_some(key));
                new
            };
            out.extend(new.then(|| item.clone()));
        }
        Ok(())
    }))
}

fn extreme(name: &str, value: &Value, args: &Args<'_>, largest: bool) -> Outcome {
    let [case_sensitive, attribute] = args.bind(name, ["case_sensitive", "attribute"])?;
    let key = Key::new(attribute, case_sensitive, false)?;
    let items = iterate(value)?;
    work(items.len())?;
    let mut best: Option<(Value, &Value)> = None;
    for item in items.iter() {
        let key = key.of(item)?;
        let better = match &best {
            None => true,
            Some((old, _)) if largest => operators::less_than(old, &key)?,
            Some((old, _)) => operators::less_than(&key, old)?,
        };
        if better {
            best = Some((key, item));
        }
    }
    Ok(best.map(|(_, item)| item.clone()).unwrap_or_default())
}

pub(super) fn min(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    extreme("min", value, args, false)
}

pub(super) fn max(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    extreme("max", value, args, true)
}

pub(super) fn sum(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [attribute, start] = args.bind("sum", ["attribute", "start"])?;
    let path = attribute.filter(|attribute| !attribute.is_none()).map(Path::parse).transpose()?;
    let mut total = start.cloned().unwrap_or_else(|| Value::from(0));
    if total.as_str().is_some() {
        return Err(fail("`sum` does not add texts"));
    }
    for item in iterate(value)?.iter() {
        let item = path.as_ref().map_or_else(|| Ok(item.clone()), |path| path.follow(item, None))?;
        total = operators::add(&total, &item)?;
    }
    Ok(total)
}

/// A positive number of items or rows.
fn positive(name: &str, value: Option<&Value>) -> Outcome<usize> {
    let number = value.and_then(operators::integer).and_then(|number| usize::try_from(number).ok());
    number.filter(|&number| number > 0).ok_or_else(|| fail(format!("`{name}` wants a positive integer")))
}

pub(super) fn batch(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [size, fill] = args.bind("batch", ["linecount", "fill_with"])?;
    let fill = fill.filter(|fill| !fill.is_none());
    Ok(generate(|out| {
        let size = positive("batch", size)?;
        let items = iterate(value)?;
        for row in items.chunks(size) {
            work(4)?;
            let mut row = row.to_vec();
            if let Some(fill) = fill {
                charge_items(size)?;
                row.resize(size, fill.clone());
            }
            out.push(value::list(row)?);
        }
        Ok(())
    }))
}

pub(super) fn slice(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [slices, fill] = args.bind("slice", ["slices", "fill_with"])?;
    let fill = fill.filter(|fill| !fill.is_none());
    Ok(generate(|out| {
        let slices = positive("slice", slices)?;
        let items = iterate(value)?;
        check_size(slices.saturating_mul(size_of::<Value>()))?;
        work(slices.saturating_mul(4))?;
        let (each, extra) = (items.len() / slices, items.len() % slices);
        let mut start = 0;
        for number in 0..slices {
            let end = start + each + usize::from(number < extra);
            let mut row = items[start..end].to_vec();
            row.extend(fill.filter(|_| number >= extra).cloned());
            out.push(value::list(row)?);
            start = end;
        }
        Ok(())
    }))
}
