//! Filters that make text.

use std::borrow::Cow;
use std::fmt::Write;

use minijinja::{State, Value};

use crate::template::budget::{Bytes, charge, check_size, make, work, work_on};
use crate::template::dumps::{self, Style};
use crate::template::methods;
use crate::template::operators;
use crate::template::percent;
use crate::template::text;
use crate::template::value::{Args, Outcome, Py, count_chars, fail, iterate, py, type_name, undefined_error};

/// The text that Jinja2's text filters work on: `str(value)`, an undefined value being empty.
fn soft_text(value: &Value) -> Outcome<Cow<'_, str>> {
    match value.as_str() {
        Some(text) => Ok(Cow::Borrowed(text)),
        None => text::to_string(value).map(Cow::Owned),
    }
}

/// The same text, when each of its characters is about to be looked at.
fn read(value: &Value) -> Outcome<Cow<'_, str>> {
    let text = soft_text(value)?;
    work_on(Bytes::Read, text.len())?;
    make(text.len())?;
    Ok(text)
}

fn integer(value: Option<&Value>, default: i128) -> Outcome<i128> {
    value.map_or(Ok(default), |value| {
        operators::integer(value).ok_or_else(|| fail(format!("an integer is wanted, not `{}`", type_name(value))))
    })
}

fn truth(value: Option<&Value>) -> bool {
    value.is_some_and(Value::is_true)
}

pub(super) fn string(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("string", [])?;
    if value.as_str().is_some() { Ok(value.clone()) } else { text::to_string(value).map(Value::from) }
}

pub(super) fn upper(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("upper", [])?;
    Ok(Value::from(read(value)?.to_uppercase()))
}

pub(super) fn lower(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("lower", [])?;
    Ok(Value::from(read(value)?.to_lowercase()))
}

pub(super) fn capitalize(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("capitalize", [])?;
    Ok(Value::from(methods::capitalize(&read(value)?)))
}

/// The first character of each word in upper case, the others in lower case; a word ends at a space or a bracket.
pub(super) fn title(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("title", [])?;
    let text = read(value)?;
    let mut out = String::with_capacity(text.len());
    let mut starts = true;
    for character in text.chars() {
        if starts {
            out.extend(character.to_uppercase());
        } else {
            out.extend(character.to_lowercase());
        }
        starts = methods::is_space(character) || "-({[<".contains(character);
    }
    Ok(Value::from(out))
}

pub(super) fn trim(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [characters] = args.bind("trim", ["chars"])?;
    let text = soft_text(value)?;
    let trimmed = match characters {
        None => text.trim_matches(methods::is_space),
        Some(value) if value.is_none() => text.trim_matches(methods::is_space),
        Some(value) => {
            let set = value.as_str().ok_or_else(|| fail("`trim` wants text"))?;
            text.trim_matches(methods::character_set(set)?)
        }
    };
    work_on(Bytes::Read, text.len() - trimmed.len())?;
    make(trimmed.len())?;
    if value.is_safe() {
        return Ok(Value::from_safe_string(trimmed.to_owned()));
    }
    if value.as_str().is_some_and(|whole| whole.len() == trimmed.len()) {
        return Ok(value.clone());
    }
    Ok(Value::from(trimmed))
}

pub(super) fn replace(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [old, new, count] = args.bind("replace", ["old", "new", "count"])?;
    let (Some(old), Some(new)) = (old, new) else { return Err(fail("`replace` wants two texts")) };
    let (text, old, new) = (soft_text(value)?, soft_text(old)?, soft_text(new)?);
    let count = match count {
        Some(count) if !count.is_none() => integer(Some(count), -1)?,
        _ => -1,
    };
    work_on(Bytes::Copied, text.len())?;
    let most = if old.is_empty() { text.len() + 1 } else { text.matches(old.as_ref()).count() };
    charge(text.len().saturating_add(most.saturating_mul(new.len())))?;
    Ok(Value::from(methods::replace(&text, &old, &new, count)))
}

pub(super) fn safe(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("safe", [])?;
    Ok(Value::from_safe_string(soft_text(value)?.into_owned()))
}

pub(super) fn escape(state: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("escape", [])?;
    if value.is_safe() { Ok(value.clone()) } else { force_escape(state, value, args) }
}

pub(super) fn force_escape(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("forceescape", [])?;
    let escaped = operators::escape(&read(value)?);
    charge(escaped.len())?;
    Ok(Value::from_safe_string(escaped))
}

pub(super) fn format(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    if !args.named.is_empty() && !args.positional.is_empty() {
        return Err(fail("`format` takes positional or named values, not both"));
    }
    let out = percent::filter_format(&soft_text(value)?, args)?;
    Ok(Value::from(out))
}

pub(super) fn center(state: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [width] = args.bind("center", ["width"])?;
    let width = width.cloned().unwrap_or_else(|| Value::from(80));
    let text = Value::from(read(value)?.into_owned());
    methods::call(state, &text, "center", &[width])
}

pub(super) fn indent(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [width, first, blank] = args.bind("indent", ["width", "first", "blank"])?;
    let text = match py(value) {
        Py::Str(text) => text,
        Py::Undefined => return Err(undefined_error("indented")),
        _ => return Err(fail(format!("`indent` wants text, not `{}`", type_name(value)))),
    };
    let indention = match width.map(|width| (width, width.as_str())) {
        Some((_, Some(text))) => text.to_owned(),
        Some((width, None)) => {
            let width = usize::try_from(integer(Some(width), 4)?.max(0)).unwrap_or(usize::MAX);
            check_size(width)?;
            " ".repeat(width)
        }
        None => " ".repeat(4),
    };
    // A newline is put at the end first, so a last empty line counts.
    work_on(Bytes::Read, text.len())?;
    let whole = [text, "\n"].concat();
    let lines = methods::split_lines(&whole, false);
    charge(whole.len().saturating_add(indention.len().saturating_mul(lines.len())))?;
    let mut out = String::with_capacity(whole.len() + indention.len() * lines.len());
    for (place, line) in lines.iter().enumerate() {
        if place > 0 {
            out.push('\n');
        }
        if if place == 0 { truth(first) } else { truth(blank) || !line.is_empty() } {
            out.push_str(&indention);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

pub(super) fn truncate(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [length, kill_words, end, leeway] = args.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    if value.is_undefined() {
        return Ok(Value::UNDEFINED);
    }
    let text = value.as_str().ok_or_else(|| fail("`truncate` wants text"))?;
    let end = end.map_or(Ok("..."), |end| end.as_str().ok_or_else(|| fail("`truncate` wants text for its end")))?;
    let length = integer(length, 255)?;
    let leeway = match leeway {
        Some(leeway) if !leeway.is_none() => integer(Some(leeway), 5)?,
        _ => 5,
    };
    charge(text.len())?;
    let room = length - count_chars(end) as i128;
    if room < 0 || leeway < 0 {
        return Err(fail("`truncate` leaves no room for its end"));
    }
    if count_chars(text) as i128 <= length.saturating_add(leeway) {
        return Ok(value.clone());
    }
    let kept: String = text.chars().take(usize::try_from(room).unwrap_or(usize::MAX)).collect();
    let kept =
        if truth(kill_words) { kept.as_str() } else { kept.rsplit_once(' ').map_or(kept.as_str(), |(head, _)| head) };
    Ok(Value::from([kept, end].concat()))
}

pub(super) fn wordcount(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("wordcount", [])?;
    let text = read(value)?;
    Ok(Value::from(text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).count()))
}

pub(super) fn urlencode(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let [] = args.bind("urlencode", [])?;
    let quoted = |text: &str, safe: &str, out: &mut String| {
        for byte in text.bytes() {
            let character = char::from(byte);
            if character.is_ascii_alphanumeric() || "_.-~".contains(character) || safe.contains(character) {
                out.push(character);
            } else {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    };
    let mut out = String::new();
    if let (Py::Str(_) | Py::Undefined | Py::None | Py::Bool(_) | Py::Int(_) | Py::Float(_) | Py::BigInt(_), text) =
        (py(value), soft_text(value)?)
    {
        charge(text.len().saturating_mul(3))?;
        work(text.len())?;
        quoted(&text, "/", &mut out);
        return Ok(Value::from(out));
    }
    let pairs = match py(value) {
        Py::Dict(dict) => dict.entries().to_vec(),
        _ => iterate(value)?
            .iter()
            .map(|item| match iterate(item).as_deref() {
                Ok([key, value]) => Ok((key.clone(), value.clone())),
                _ => Err(fail("`urlencode` wants pairs")),
            })
            .collect::<Outcome<_>>()?,
    };
    for (place, (key, value)) in pairs.iter().enumerate() {
        if place > 0 {
            out.push('&');
        }
        let before = out.len();
        quoted(&read(key)?, "", &mut out);
        out.push('=');
        quoted(&read(value)?, "", &mut out);
        work(out.len() - before)?;
        check_size(out.len())?;
    }
    Ok(Value::from(out.replace("%20", "+")))
}

pub(super) fn tojson(_: &mut State<'_, '_>, value: &Value, args: &Args<'_>) -> Outcome {
    let mut out = String::new();
    if args.positional.is_empty() && args.named.is_empty() {
        if let Py::Dict(dict) = py(value)
            && let Some(json) = dict.json()
        {
            charge(json.as_str().map_or(0, str::len))?;
            return Ok(json.clone());
        }
        dumps::append(&mut out, value, &Style::PLAIN, 0)?;
    } else {
        let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
        let [ensure_ascii, indent, separators, sort_keys] = args.bind("tojson", names)?;
        let indent = match indent {
            None => None,
            Some(value) if value.is_none() => None,
            Some(value) => Some(if let Some(text) = value.as_str() {
                Cow::Borrowed(text)
            } else {
                let width = usize::try_from(integer(Some(value), 0)?.max(0)).unwrap_or(usize::MAX);
                check_size(width)?;
                Cow::Owned(" ".repeat(width))
            }),
        };
        let item_separator = if indent.is_some() { "," } else { ", " };
        let (item_separator, key_separator) = match separators {
            Some(value) if !value.is_none() => match iterate(value)?.as_ref() {
                [item, key] => (soft_text(item)?.into_owned().into(), soft_text(key)?.into_owned().into()),
                _ => return Err(fail("`tojson` wants two separators")),
            },
            _ => (Cow::Borrowed(item_separator), Cow::Borrowed(": ")),
        };
        let ensure_ascii = truth(ensure_ascii);
        let sort_keys = truth(sort_keys);
        let style = Style { ensure_ascii, indent, item_separator, key_separator, sort_keys, is_plain: false };
        dumps::append(&mut out, value, &style, 0)?;
    }
    charge(out.len())?;
    Ok(Value::from(out))
}
