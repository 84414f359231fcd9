//! How Python prints values: `str()` and `repr()`.

use std::cell::Cell;
use std::fmt::{self, Write};

use minijinja::Value;
use minijinja::value::ValueKind;

use super::budget::{self, Bytes};
use super::printable::is_printable;
use super::value::{Bound, Broken, Dict, DictView, Lazy, Namespace, Native, Outcome, Py, Range, fail, py};
use crate::json::python_float;

/// What writing a float costs.
pub(super) const FLOAT_WORK: usize = 30;

/// Namespaces within namespaces that are printed.
const MAX_SHOWN_NAMESPACES: u32 = 8;

thread_local! {
    static SHOWN_NAMESPACES: Cell<u32> = const { Cell::new(0) };
}

/// `str(value)`; an undefined value is empty.
pub(super) fn to_string(value: &Value) -> Outcome<String> {
    let mut out = String::new();
    append(&mut out, value)?;
    Ok(out)
}

/// Append `str(value)`.
pub(super) fn append(out: &mut String, value: &Value) -> Outcome<()> {
    match py(value) {
        Py::Str(text) => {
            budget::work_on(Bytes::Copied, text.len())?;
            out.push_str(text);
        }
        Py::Undefined => {}
        _ => append_repr(out, value)?,
    }
    Ok(())
}

/// Append `repr(value)`.
pub(super) fn append_repr(out: &mut String, value: &Value) -> Outcome<()> {
    budget::work(1)?;
    match py(value) {
        Py::Undefined => out.push_str("Undefined"),
        Py::None => out.push_str("None"),
        Py::Bool(true) => out.push_str("True"),
        Py::Bool(false) => out.push_str("False"),
        Py::Int(number) => out.push_str(itoa::Buffer::new().format(number)),
        Py::BigInt(number) => out.push_str(&number.0),
        Py::Float(number) => {
            budget::work(FLOAT_WORK)?;
            out.push_str(&python_float(number));
        }
        Py::Str(text) if value.is_safe() => {
            budget::work_on(Bytes::Read, text.len())?;
            out.push_str("Markup(");
            append_str_repr(out, text);
            out.push(')');
        }
        Py::Str(text) => {
            budget::work_on(Bytes::Read, text.len())?;
            append_str_repr(out, text);
        }
        Py::List(items) => append_items(out, "[", items, "]")?,
        Py::Tuple([only]) => append_items(out, "(", std::slice::from_ref(only), ",)")?,
        Py::Tuple(items) => append_items(out, "(", items, ")")?,
        Py::Dict(dict) => {
            out.push('{');
            for (place, (key, value)) in dict.entries().iter().enumerate() {
                if place > 0 {
                    out.push_str(", ");
                }
                budget::check_size(out.len())?;
                append_repr(out, key)?;
                out.push_str(": ");
                append_repr(out, value)?;
            }
            out.push('}');
        }
        Py::Object(_) => append_object(out, value)?,
    }
    Ok(())
}

fn append_items(out: &mut String, open: &str, items: &[Value], close: &str) -> Outcome<()> {
    out.push_str(open);
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            out.push_str(", ");
        }
        budget::check_size(out.len())?;
        append_repr(out, item)?;
    }
    out.push_str(close);
    Ok(())
}

fn append_object(out: &mut String, value: &Value) -> Outcome<()> {
    if let Some(view) = value.downcast_object_ref::<DictView>() {
        out.push_str(view.part.type_name());
        return append_items(out, "([", &view.items(), "])");
    }
    if let Some(range) = value.downcast_object_ref::<Range>() {
        let _ = write!(out, "range({}, {}", range.start, range.stop);
        if range.step != 1 {
            let _ = write!(out, ", {}", range.step);
        }
        out.push(')');
        return Ok(());
    }
    if value.downcast_object_ref::<Broken>().is_some() {
        return Err(fail("a string holds a lone surrogate, which cannot be encoded"));
    }
    if let Some(namespace) = value.downcast_object_ref::<Namespace>() {
        return append_namespace(out, namespace);
    }
    let without_text = value.downcast_object_ref::<Lazy>().is_some()
        || value.downcast_object_ref::<Bound>().is_some()
        || value.downcast_object_ref::<Native>().is_some();
    if without_text || value.kind() != ValueKind::Map {
        // Python would print an address of memory.
        return Err(fail("an iterator or a function has no text of its own"));
    }
    // Macros and loops are the engine's own objects.
    if let Ok(name) = value.get_attr("name")
        && let (Some(name), Ok(true)) = (name.as_str(), value.get_attr("arguments").map(|v| !v.is_undefined()))
    {
        out.push_str("<Macro ");
        append_str_repr(out, name);
        out.push('>');
        return Ok(());
    }
    if let (Ok(index), Ok(length)) = (value.get_attr("index"), value.get_attr("length"))
        && let (Some(index), Some(length)) = (index.as_usize(), length.as_usize())
    {
        let _ = write!(out, "<LoopContext {index}/{length}>");
        return Ok(());
    }
    Err(fail("an object of the template engine has no text of its own"))
}

/// Namespaces may hold each other: only so many are shown within each other.
fn append_namespace(out: &mut String, namespace: &Namespace) -> Outcome<()> {
    if SHOWN_NAMESPACES.get() > MAX_SHOWN_NAMESPACES {
        return Err(fail("namespaces are nested too deeply to be printed"));
    }
    SHOWN_NAMESPACES.set(SHOWN_NAMESPACES.get() + 1);
    let entries = namespace.entries().into_iter().map(|(name, value)| (Value::from(name), value)).collect();
    out.push_str("<Namespace ");
    let result = append_repr(out, &Value::from_object(Dict::from_unique(entries)));
    out.push('>');
    SHOWN_NAMESPACES.set(SHOWN_NAMESPACES.get() - 1);
    result
}

/// A string as `repr` quotes and escapes it.
pub(super) fn append_str_repr(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.reserve(text.len() + 2);
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => {
                out.push('\\');
                out.push(quote);
            }
            ' '..='~' => out.push(character),
            _ if is_printable(character) => out.push(character),
            _ => {
                let code = u32::from(character);
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02x}"),
                    0x100..=0xffff => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// `repr` for the engine's own messages.
pub(super) fn display(value: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut out = String::new();
    append_repr(&mut out, value).map_err(|_| fmt::Error)?;
    f.write_str(&out)
}
