//! Methods of Python's str.

use std::collections::HashSet;

use minijinja::Value;

use super::{affixes, unknown, window};
use crate::template::budget::{Bytes, charge, charge_items, check_size, make, work_on};
use crate::template::operators;
use crate::template::str_format::str_format;
use crate::template::value::{Args, Outcome, count_chars, fail, iterate, list, tuple, type_name};

/// Texts up to this size are kept in their value; sets of characters up to it are searched one by one.
const SMALL: usize = 22;

/// Whether `str.isspace` holds for a character.
pub(in crate::template) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\x1c'..='\x1f').contains(&character)
}

/// Call `text.name(…)`.
pub(super) fn call(object: &Value, text: &str, name: &str, args: &Args<'_>) -> Outcome {
    match name {
        "strip" | "lstrip" | "rstrip" | "startswith" | "endswith" | "removeprefix" | "removesuffix" | "isascii" => {}
        "split" | "rsplit" | "replace" | "find" | "rfind" | "index" | "rindex" | "count" | "partition"
        | "rpartition" => {
            work_on(Bytes::Copied, text.len())?;
        }
        _ => {
            work_on(Bytes::Read, text.len())?;
            make(text.len())?;
        }
    }
    for arg in args.positional.iter().filter_map(Value::as_str) {
        work_on(Bytes::Copied, arg.len())?;
    }
    let value = match name {
        "strip" | "lstrip" | "rstrip" => strip(text, name, args)?,
        "split" | "rsplit" => return split(text, name, args),
        "startswith" | "endswith" => return starts_or_ends(text, name, args),
        "replace" => {
            let [old, new, count] = args.bind("replace", ["old", "new", "count"])?;
            let (old, new) = (wanted(old, name)?, wanted(new, name)?);
            let count = optional_integer(count, -1)?;
            charge(replaced_size(text, old, new))?;
            Value::from(replace(text, old, new, count))
        }
        "upper" => no_args(name, args, || Value::from(text.to_uppercase()))?,
        "lower" => no_args(name, args, || Value::from(text.to_lowercase()))?,
        "casefold" => no_args(name, args, || Value::from(text.to_lowercase().replace('ß', "ss")))?,
        "title" => no_args(name, args, || Value::from(title(text)))?,
        "capitalize" => no_args(name, args, || Value::from(capitalize(text)))?,
        "swapcase" => no_args(name, args, || Value::from(swap_case(text)))?,
        "format" => {
            let out = str_format(text, args)?;
            charge(out.len())?;
            Value::from(out)
        }
        "join" => {
            let [items] = args.bind("join", ["iterable"])?;
            let items = items.ok_or_else(|| fail("`join` wants an iterable"))?;
            let out = join(text, items)?;
            charge(out.len())?;
            Value::from(out)
        }
        "splitlines" => {
            let [keep_ends] = args.bind("splitlines", ["keepends"])?;
            let lines = split_lines(text, keep_ends.is_some_and(Value::is_true));
            return texts(&lines);
        }
        "find" | "rfind" | "index" | "rindex" | "count" => return search(text, name, args),
        "partition" | "rpartition" => return partition(text, name, args),
        "removeprefix" | "removesuffix" => {
            let [affix] = args.bind(name, ["affix"])?;
            let affix = wanted(affix, name)?;
            let rest = if name == "removeprefix" { text.strip_prefix(affix) } else { text.strip_suffix(affix) };
            charge(text.len())?;
            Value::from(rest.unwrap_or(text))
        }
        "ljust" | "rjust" | "center" | "zfill" => justify(text, name, args)?,
        "isdigit" | "isnumeric" | "isdecimal" => return all(text, name, args, char::is_numeric),
        "isalpha" => return all(text, name, args, char::is_alphabetic),
        "isalnum" => return all(text, name, args, char::is_alphanumeric),
        "isspace" => return all(text, name, args, is_space),
        "isascii" => return no_args(name, args, || Value::from(text.is_ascii())),
        "isupper" => {
            let has = text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase);
            return no_args(name, args, || Value::from(has));
        }
        "islower" => {
            let has = text.chars().any(char::is_lowercase) && !text.chars().any(char::is_uppercase);
            return no_args(name, args, || Value::from(has));
        }
        _ => return Err(unsupported(object, name)),
    };
    // Methods of a text marked safe give texts marked safe; those that take text would escape it first.
    match value.as_str() {
        Some(result) if object.is_safe() && args.positional.is_empty() && args.named.is_empty() => {
            Ok(Value::from_safe_string(result.to_owned()))
        }
        _ => Ok(value),
    }
}

fn unsupported(object: &Value, name: &str) -> minijinja::Error {
    if super::STRING_METHODS.contains(&name) {
        fail(format!("the method `{name}` of text is not supported"))
    } else {
        unknown(object, name)
    }
}

fn no_args(name: &str, args: &Args<'_>, result: impl FnOnce() -> Value) -> Outcome {
    let [] = args.bind(name, [])?;
    Ok(result())
}

fn all(text: &str, name: &str, args: &Args<'_>, holds: fn(char) -> bool) -> Outcome {
    no_args(name, args, || Value::from(!text.is_empty() && text.chars().all(holds)))
}

/// A text argument that must be there.
fn wanted<'a>(value: Option<&'a Value>, name: &str) -> Outcome<&'a str> {
    let value = value.ok_or_else(|| fail(format!("`{name}` wants an argument")))?;
    value.as_str().ok_or_else(|| fail(format!("`{name}` wants text, not `{}`", type_name(value))))
}

fn optional_integer(value: Option<&Value>, default: i128) -> Outcome<i128> {
    value.map_or(Ok(default), |value| {
        operators::integer(value).ok_or_else(|| fail(format!("an integer is wanted, not `{}`", type_name(value))))
    })
}

fn strip(text: &str, name: &str, args: &Args<'_>) -> Outcome {
    let [characters] = args.bind(name, ["chars"])?;
    let characters = match characters {
        Some(value) if !value.is_none() => Some(wanted(Some(value), name)?),
        _ => None,
    };
    let set = characters.map(character_set).transpose()?;
    let drops = |c: char| set.as_ref().map_or_else(|| is_space(c), |set| set(c));
    let stripped = match name {
        "strip" => text.trim_matches(drops),
        "lstrip" => text.trim_start_matches(drops),
        _ => text.trim_end_matches(drops),
    };
    work_on(Bytes::Read, text.len() - stripped.len())?;
    charge(stripped.len())?;
    Ok(Value::from(stripped))
}

/// Whether a character is one of a text's.
pub(in crate::template) fn character_set(text: &str) -> Outcome<impl Fn(char) -> bool> {
    work_on(Bytes::Read, text.len())?;
    let many: HashSet<char> = if text.len() > SMALL { text.chars().collect() } else { HashSet::new() };
    Ok(move |c| if many.is_empty() { text.contains(c) } else { many.contains(&c) })
}

fn split(text: &str, name: &str, args: &Args<'_>) -> Outcome {
    let [separator, limit] = args.bind(name, ["sep", "maxsplit"])?;
    let limit = usize::try_from(optional_integer(limit, -1)?).unwrap_or(usize::MAX - 1);
    let from_right = name == "rsplit";
    let parts: Vec<&str> = match separator {
        Some(separator) if !separator.is_none() => {
            let separator = wanted(Some(separator), name)?;
            if separator.is_empty() {
                return Err(fail("a separator must not be empty"));
            }
            if from_right {
                let mut parts: Vec<&str> = text.rsplitn(limit + 1, separator).collect();
                parts.reverse();
                parts
            } else {
                text.splitn(limit + 1, separator).collect()
            }
        }
        _ if from_right => rsplit_space(text, limit),
        _ => split_space(text, limit),
    };
    texts(&parts)
}

/// A list of parts of a text.
fn texts(parts: &[&str]) -> Outcome {
    charge_items(parts.len())?;
    make(parts.iter().map(|part| if part.len() > SMALL { part.len() + 32 } else { 0 }).sum())?;
    list(parts.iter().copied().map(Value::from).collect())
}

fn split_space(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        if parts.len() == limit {
            parts.push(rest);
            break;
        }
        let end = rest.find(is_space).unwrap_or(rest.len());
        parts.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    parts
}

fn rsplit_space(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() {
        if parts.len() == limit {
            parts.push(rest);
            break;
        }
        let start = rest.char_indices().rev().find(|(_, c)| is_space(*c)).map_or(0, |(at, c)| at + c.len_utf8());
        parts.push(&rest[start..]);
        rest = rest[..start].trim_end_matches(is_space);
    }
    parts.reverse();
    parts
}

/// The text between two character indices.
fn windowed<'a>(text: &'a str, start: Option<&Value>, stop: Option<&Value>) -> Outcome<(&'a str, usize)> {
    if start.is_none() && stop.is_none() {
        return Ok((text, 0));
    }
    work_on(Bytes::Read, text.len())?;
    let len = count_chars(text);
    let (start, stop) = window(start, stop, len)?;
    if start > stop {
        return Ok(("", usize::MAX));
    }
    let offset = |place: usize| text.char_indices().nth(place).map_or(text.len(), |(at, _)| at);
    Ok((&text[offset(start)..offset(stop)], start))
}

fn starts_or_ends(text: &str, name: &str, args: &Args<'_>) -> Outcome {
    let [affix, start, stop] = args.bind(name, ["affix", "start", "stop"])?;
    let affix = affix.ok_or_else(|| fail(format!("`{name}` wants an argument")))?;
    let (text, first) = windowed(text, start, stop)?;
    for affix in affixes(affix)? {
        let affix = wanted(Some(&affix), name)?;
        work_on(Bytes::Searched, affix.len().min(text.len()))?;
        let holds = if name == "startswith" { text.starts_with(affix) } else { text.ends_with(affix) };
        if holds && first != usize::MAX {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

fn search(text: &str, name: &str, args: &Args<'_>) -> Outcome {
    let [part, start, stop] = args.bind(name, ["sub", "start", "stop"])?;
    let part = wanted(part, name)?;
    let (text, first) = windowed(text, start, stop)?;
    if name == "count" {
        let empty = if first == usize::MAX { 0 } else { count_chars(text) + 1 };
        return Ok(Value::from(if part.is_empty() { empty } else { text.matches(part).count() }));
    }
    let found = if first == usize::MAX {
        None
    } else if name.starts_with('r') {
        text.rfind(part)
    } else {
        text.find(part)
    };
    match found {
        Some(place) => Ok(Value::from(count_chars(&text[..place]) + first)),
        None if name.ends_with("index") => Err(fail(format!("`{name}` found nothing"))),
        None => Ok(Value::from(-1)),
    }
}

fn partition(text: &str, name: &str, args: &Args<'_>) -> Outcome {
    let [separator] = args.bind(name, ["sep"])?;
    let separator = wanted(separator, name)?;
    if separator.is_empty() {
        return Err(fail("a separator must not be empty"));
    }
    let parts = if name == "partition" {
        text.split_once(separator).map_or([text, "", ""], |(head, tail)| [head, separator, tail])
    } else {
        text.rsplit_once(separator).map_or(["", "", text], |(head, tail)| [head, separator, tail])
    };
    make(text.len())?;
    tuple(parts.into_iter().map(Value::from).collect())
}

/// An upper bound of what a replacement makes.
fn replaced_size(text: &str, old: &str, new: &str) -> usize {
    let most = if old.is_empty() { text.len() + 1 } else { text.len() / old.len() };
    if new.len() <= old.len() {
        return text.len();
    }
    // Counted only when it could be large.
    let count =
        if most.saturating_mul(new.len()) > 1 << 20 && !old.is_empty() { text.matches(old).count() } else { most };
    text.len().saturating_add(count.saturating_mul(new.len()))
}

/// `text.replace(old, new, count)`; a negative count is none.
pub(in crate::template) fn replace(text: &str, old: &str, new: &str, count: i128) -> String {
    match usize::try_from(count) {
        Ok(count) => text.replacen(old, new, count),
        Err(_) => text.replace(old, new),
    }
}

/// Python's line boundaries, of which there are more than newlines.
pub(in crate::template) fn split_lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((place, character)) = characters.next() {
        if !matches!(character, '\n'..='\r' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}') {
            continue;
        }
        let mut end = place + character.len_utf8();
        if character == '\r' && characters.next_if(|(_, next)| *next == '\n').is_some() {
            end += 1;
        }
        lines.push(&text[start..if keep_ends { end } else { place }]);
        start = end;
    }
    if start < text.len() {
        lines.push(&text[start..]);
    }
    lines
}

/// The first character in title case.
fn title_first(character: char) -> String {
    match character {
        '\u{1c4}'..='\u{1c6}' => "\u{1c5}".to_owned(),
        '\u{1c7}'..='\u{1c9}' => "\u{1c8}".to_owned(),
        '\u{1ca}'..='\u{1cc}' => "\u{1cb}".to_owned(),
        '\u{1f1}'..='\u{1f3}' => "\u{1f2}".to_owned(),
        _ => {
            let mut upper = character.to_uppercase();
            let first = upper.next().map(String::from).unwrap_or_default();
            first + &upper.flat_map(char::to_lowercase).collect::<String>()
        }
    }
}

fn is_cased(character: char) -> bool {
    character.is_lowercase()
        || character.is_uppercase()
        || matches!(character, '\u{1c5}' | '\u{1c8}' | '\u{1cb}' | '\u{1f2}')
}

fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for character in text.chars() {
        if inside {
            out.extend(character.to_lowercase());
        } else {
            out.push_str(&title_first(character));
        }
        inside = is_cased(character);
    }
    out
}

pub(in crate::template) fn capitalize(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(title_first).unwrap_or_default();
    first + &characters.as_str().to_lowercase()
}

fn swap_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_uppercase() {
            out.extend(character.to_lowercase());
        } else {
            out.extend(character.to_uppercase());
        }
    }
    out
}

fn justify(text: &str, name: &str, args: &Args<'_>) -> Outcome {
    let [width, fill] = args.bind(name, ["width", "fillchar"])?;
    let width = optional_integer(width, 0)?;
    let fill = fill.map_or(Ok(" "), |fill| wanted(Some(fill), name))?;
    let fill = if name == "zfill" { "0" } else { fill };
    if count_chars(fill) != 1 {
        return Err(fail("a fill must be one character"));
    }
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(count_chars(text));
    charge(text.len().saturating_add(missing.saturating_mul(fill.len())))?;
    if name == "zfill" {
        let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
        return Ok(Value::from(format!("{sign}{}{digits}", fill.repeat(missing))));
    }
    let before = match name {
        "ljust" => 0,
        "rjust" => missing,
        // CPython gives the odd one to the left when the width is odd.
        _ => missing / 2 + (missing & usize::try_from(width).unwrap_or(0) & 1),
    };
    Ok(Value::from(format!("{}{text}{}", fill.repeat(before), fill.repeat(missing - before))))
}

/// Joins the texts of an iterable, as `separator.join(…)` does: only strings are taken.
fn join(separator: &str, values: &Value) -> Outcome<String> {
    let mut out = String::new();
    for (place, item) in iterate(values)?.iter().enumerate() {
        if place > 0 {
            work_on(Bytes::Copied, separator.len())?;
            out.push_str(separator);
        }
        let item = item.as_str().ok_or_else(|| fail(format!("`join` takes text, not `{}`", type_name(item))))?;
        out.push_str(item);
        check_size(out.len())?;
    }
    Ok(out)
}
