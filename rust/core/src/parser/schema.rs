//! Types by the tool's schema: what the text of an argument becomes.
//!
//! Source: parsers.md §3.5.

use std::borrow::Cow;

use crate::json::{Json, Map, python_dumps_unicode};

/// Schemas refer to schemas; nobody nests them deeper.
const MAX_NESTING: usize = 64;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Types {
    null: bool,
    integer: bool,
    number: bool,
    boolean: bool,
    object: bool,
    array: bool,
    string: bool,
    /// Something that no schema knows.
    other: bool,
}

impl Types {
    fn any(self) -> bool {
        self != Types::default()
    }

    fn add(&mut self, name: &str) {
        match name.trim().to_lowercase().as_str() {
            "null" => self.null = true,
            "integer" | "int" | "int32" | "int64" | "uint" | "uint32" | "uint64" | "long" | "short" | "unsigned" => {
                self.integer = true;
            }
            "number" | "float" | "float32" | "float64" | "double" => self.number = true,
            "boolean" | "bool" => self.boolean = true,
            "object" | "dict" => self.object = true,
            "array" | "arr" | "list" | "sequence" => self.array = true,
            "string" | "str" | "text" | "varchar" | "char" | "enum" => self.string = true,
            _ => self.other = true,
        }
    }

    fn add_type_of(&mut self, value: &Json<'_>) {
        match value {
            Json::Null => self.null = true,
            Json::Bool(_) => self.boolean = true,
            Json::Int(_) | Json::BigInt(_) => self.integer = true,
            Json::Float(_) => self.number = true,
            Json::Str(_) | Json::BrokenStr(_) => self.string = true,
            Json::Array(_) => self.array = true,
            Json::Object(_) => self.object = true,
        }
    }
}

/// Every type that a schema allows, from `type`, `enum` and its alternatives; a string if it says nothing.
fn types_of(schema: Option<&Json<'_>>, depth: usize) -> Types {
    let mut types = Types::default();
    if let Some(schema) = schema.and_then(Json::as_object).filter(|_| depth < MAX_NESTING) {
        match schema.get("type") {
            Some(Json::Str(name)) => types.add(name),
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).for_each(|name| types.add(name)),
            _ => {}
        }
        schema
            .get("enum")
            .and_then(Json::as_array)
            .unwrap_or_default()
            .iter()
            .for_each(|value| types.add_type_of(value));
        for field in ["anyOf", "oneOf", "allOf"] {
            for choice in schema.get(field).and_then(Json::as_array).unwrap_or_default() {
                let more = types_of(Some(choice), depth + 1);
                types.null |= more.null;
                types.integer |= more.integer;
                types.number |= more.number;
                types.boolean |= more.boolean;
                types.object |= more.object;
                types.array |= more.array;
                types.string |= more.string;
                types.other |= more.other;
            }
        }
    }
    if !types.any() {
        types.string = true;
    }
    types
}

/// A value of this schema can be nothing but a string, so that its text need not be complete.
pub(crate) fn only_string(schema: Option<&Json<'_>>) -> bool {
    let types = types_of(schema, 0);
    types == Types { string: true, ..Types::default() }
}

/// The value that the text of an argument stands for.
pub(crate) fn typed_text(text: &str, schema: Option<&Json<'_>>) -> Json<'static> {
    let types = types_of(schema, 0);
    if types.null && text.eq_ignore_ascii_case("null") {
        return Json::Null;
    }
    if types.integer
        && let Some(value) = python_int(text)
    {
        return value;
    }
    if types.number
        && let Some(value) = python_number(text)
    {
        return value;
    }
    if types.boolean {
        match text.trim().to_lowercase().as_str() {
            "true" | "1" => return Json::Bool(true),
            "false" | "0" => return Json::Bool(false),
            _ => {}
        }
    }
    if (types.object || types.array)
        && let Some(value) = finite_json(text)
    {
        return value;
    }
    if types.string {
        return text.to_owned().into();
    }
    finite_json(text).unwrap_or_else(|| text.to_owned().into())
}

/// A value of any type, corrected by its schema; members and items too.
pub(crate) fn typed(value: Json<'static>, schema: Option<&Json<'_>>, depth: usize) -> Json<'static> {
    let Some(object) = schema.and_then(Json::as_object).filter(|_| depth < MAX_NESTING) else { return value };
    match value {
        Json::Str(text) => typed_text(&text, schema),
        Json::Object(map) => match object.get("properties").and_then(Json::as_object) {
            Some(properties) => Json::Object(typed_members(map, properties, depth + 1)),
            None => Json::Object(map),
        },
        Json::Array(items) => match object.get("items") {
            Some(schema @ Json::Object(_)) => {
                Json::Array(items.into_iter().map(|item| typed(item, Some(schema), depth + 1)).collect())
            }
            _ => Json::Array(items),
        },
        Json::BrokenStr(_) => value,
        other => {
            let text = python_dumps_unicode(&other);
            let corrected = typed_text(&text, schema);
            if same(&corrected, &other) { other } else { corrected }
        }
    }
}

/// The members of an object, each corrected by its schema.
pub(crate) fn typed_members(map: Map<'static>, properties: &Map<'_>, depth: usize) -> Map<'static> {
    let correct = |(key, value): (Cow<'static, str>, Json<'static>)| {
        let schema = properties.get(&key).filter(|schema| schema.as_object().is_some());
        let value = if schema.is_some() { typed(value, schema, depth) } else { value };
        (key, value)
    };
    map.into_iter().map(correct).collect()
}

/// Equal as Python sees it, where a value and its type decide.
fn same(a: &Json<'_>, b: &Json<'_>) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b) && a == b
}

/// JSON without infinities; none for anything else.
pub(crate) fn finite_json(text: &str) -> Option<Json<'static>> {
    fn finite(value: &Json<'_>) -> bool {
        match value {
            Json::Float(value) => value.is_finite(),
            Json::Array(items) => items.iter().all(finite),
            Json::Object(map) => map.iter().all(|(_, value)| finite(value)),
            _ => true,
        }
    }
    Json::parse(text).ok().filter(finite).map(Json::into_owned)
}

/// What Python's `int()` makes of a text.
pub(crate) fn python_int(text: &str) -> Option<Json<'static>> {
    let text = text.trim();
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let digits = without_underscores(digits)?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = match digits.trim_start_matches('0') {
        "" => "0",
        significant => significant,
    };
    let sign = if digits == "0" { "" } else { sign };
    let number = format!("{sign}{digits}");
    Some(number.parse().map_or_else(|_| Json::BigInt(Cow::Owned(number)), Json::Int))
}

/// What `int()` makes of it, or else `float()`; whole numbers are integers.
fn python_number(text: &str) -> Option<Json<'static>> {
    if let Some(value) = python_int(text) {
        return Some(value);
    }
    let text = without_underscores(text.trim())?;
    // Rust reads the same spellings, and also `infinity` and `nan`, which are not finite.
    let value: f64 = text.parse().ok().filter(|value: &f64| value.is_finite())?;
    if value.fract() != 0.0 {
        return Some(Json::Float(value));
    }
    python_int(&format!("{value:.0}"))
}

/// The text without the underscores that Python allows between two digits; none if there is one elsewhere.
fn without_underscores(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(text.into());
    }
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let between = |(at, byte): (usize, &u8)| *byte != b'_' || (digit(at.checked_sub(1)) && digit(Some(at + 1)));
    bytes.iter().enumerate().all(between).then(|| text.replace('_', "").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coerced(text: &str, schema: &str) -> String {
        python_dumps_unicode(&typed_text(text, Some(&Json::parse(schema).unwrap())))
    }

    #[test]
    fn text_becomes_the_first_type_that_fits() {
        for (text, schema, want) in [
            ("3", r#"{"type": "integer"}"#, "3"),
            (" 1_000 ", r#"{"type": "integer"}"#, "1000"),
            ("-0", r#"{"type": "int64"}"#, "0"),
            ("123456789012345678901234567890", r#"{"type": "integer"}"#, "123456789012345678901234567890"),
            ("3.5", r#"{"type": "integer"}"#, "3.5"),
            ("three", r#"{"type": "integer"}"#, "\"three\""),
            ("1.0", r#"{"type": "number"}"#, "1"),
            ("1e22", r#"{"type": "number"}"#, "10000000000000000000000"),
            ("1e999", r#"{"type": "number"}"#, "\"1e999\""),
            (".5", r#"{"type": "float"}"#, "0.5"),
            ("True", r#"{"type": "boolean"}"#, "true"),
            ("0", r#"{"type": "bool"}"#, "false"),
            ("yes", r#"{"type": "boolean"}"#, "\"yes\""),
            ("NULL", r#"{"type": ["string", "null"]}"#, "null"),
            ("null", r#"{"type": "string"}"#, "\"null\""),
            ("none", r#"{"enum": ["none", "fast"]}"#, "\"none\""),
            ("2", r#"{"enum": [1, 2, "x"]}"#, "2"),
            ("[1, \"2\"]", r#"{"type": "array", "items": {"type": "integer"}}"#, "[1, \"2\"]"),
            ("7", r#"{"type": "array"}"#, "7"),
            ("x", r#"{"anyOf": [{"type": "null"}, {"type": "string"}]}"#, "\"x\""),
            ("5", "{}", "\"5\""),
            ("5", r#"{"type": "whatever"}"#, "5"),
        ] {
            assert_eq!(coerced(text, schema), want, "{text} as {schema}");
        }
    }

    #[test]
    fn values_are_corrected_within() {
        let schema = Json::parse(
            r#"{"type": "object", "properties": {"n": {"type": "integer"}, "l": {"items": {"type": "number"}}, "s": {"type": "string"}}}"#,
        )
        .unwrap();
        let value = Json::parse(r#"{"n": "3", "l": ["1.5", 2], "s": 4, "u": "5"}"#).unwrap().into_owned();
        assert_eq!(
            python_dumps_unicode(&typed(value, Some(&schema), 0)),
            r#"{"n": 3, "l": [1.5, 2], "s": "4", "u": "5"}"#
        );
    }

    #[test]
    fn only_strings_may_go_out_early() {
        for (schema, want) in [
            (r#"{"type": "string"}"#, true),
            ("{}", true),
            (r#"{"type": ["string", "null"]}"#, false),
            (r#"{"type": "integer"}"#, false),
            (r#"{"type": "string", "enum": ["a"]}"#, true),
        ] {
            assert_eq!(only_string(Some(&Json::parse(schema).unwrap())), want, "{schema}");
        }
        assert!(only_string(None));
    }
}
