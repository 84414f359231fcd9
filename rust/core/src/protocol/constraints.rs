//! What the output is held to: `structured_outputs` and `response_format`, merged into one object.

use std::borrow::Cow;

use super::fields::Fields;
use crate::error::{Error, Result};
use crate::json::{Json, Map, python_dumps};

/// The kinds of constraint, in the order in which vLLM's `StructuredOutputsParams` declares them.
const KINDS: [&str; 6] = ["json", "regex", "choice", "grammar", "json_object", "structural_tag"];

/// `structured_outputs` of a sampling-params object: one constraint and its options.
#[derive(Debug, Clone, PartialEq)]
pub struct StructuredOutputs<'a> {
    fields: Map<'a>,
}

impl<'a> StructuredOutputs<'a> {
    /// One constraint, with the other fields at their defaults.
    pub fn of(kind: &str, value: Json<'a>) -> Self {
        let mut fields = read_given(&Map::new()).expect("no field can be wrong");
        fields.insert(kind.to_owned(), value);
        Self { fields }
    }

    /// The constraint and its kind.
    pub fn constraint(&self) -> Option<(&'static str, &Json<'a>)> {
        KINDS.iter().find_map(|kind| self.fields.present(kind).map(|value| (*kind, value)))
    }

    /// Just one constraint is left, now that `response_format` has been merged in.
    pub fn check(&self) -> Result<()> {
        count_constraints(&self.fields)
    }

    /// Append every field, nulls included, in declaration order.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.fields.write(out);
    }
}

/// Checks of the raw body: at most one of `json`, `regex` and `choice`. `param` is what an error names.
pub fn check_raw(body: &Map<'_>, param: Option<&str>) -> Result<usize> {
    let Some(given) = body.present("structured_outputs") else { return Ok(0) };
    let Some(given) = given.as_object() else {
        return Err(Error::schema("body.structured_outputs", "`structured_outputs` must be an object"));
    };
    let count = KINDS[..3].iter().filter(|kind| given.present(kind).is_some()).count();
    if count > 1 {
        return Err(Error::BadRequest {
            message: "`structured_outputs` takes one of `json`, `regex` and `choice`, not several".to_owned(),
            param: param.map(str::to_owned),
        });
    }
    if let Some(tag) = given.present("structural_tag") {
        check_structural_tag(tag.as_str(), "structured_outputs")?;
    }
    Ok(count)
}

/// Checks of the raw body: what a `response_format` of its type must bring.
pub fn check_raw_response_format(body: &Map<'_>) -> Result<()> {
    let Some(format) = body.present("response_format").and_then(Json::as_object) else { return Ok(()) };
    match format.get("type").and_then(Json::as_str) {
        Some("json_schema") if format.present("json_schema").is_none() => Err(Error::bad_param(
            "response_format",
            "a `response_format` of type `json_schema` needs the field `json_schema`",
        )),
        Some("structural_tag") => check_structural_tag(Some(&dump_structural_tag(format)?), "response_format"),
        _ => Ok(()),
    }
}

/// A structural tag is a JSON object with a `format`, or (the older form) with `structures` and `triggers`. Whether
/// its grammar compiles is for the engine to say.
fn check_structural_tag(tag: Option<&str>, param: &str) -> Result<()> {
    let fault = || Error::bad_param(param, format!("`{param}` holds an invalid structural tag"));
    let Ok(Json::Object(tag)) = Json::parse(tag.ok_or_else(fault)?) else { return Err(fault()) };
    let format = tag.get("format").and_then(Json::as_object).is_some_and(|format| format.get("type").is_some());
    let list = |key| tag.get(key).and_then(Json::as_array).is_some();
    if format || (list("structures") && list("triggers")) { Ok(()) } else { Err(fault()) }
}

/// A `response_format` of type `structural_tag` as the JSON string that the engine takes (Python's `json.dumps`).
fn dump_structural_tag(format: &Map<'_>) -> Result<String> {
    let declared: &[&str] =
        if format.contains_key("format") { &["type", "format"] } else { &["type", "structures", "triggers"] };
    let mut ordered = Map::new();
    for key in declared {
        let value = format
            .get(key)
            .ok_or_else(|| Error::bad_param("response_format", format!("a structural tag needs the field `{key}`")))?;
        ordered.push(Cow::Borrowed(*key), value.clone());
    }
    for (key, value) in format.iter().filter(|(key, _)| !declared.contains(key)) {
        ordered.push(Cow::Owned(key.to_owned()), value.clone());
    }
    Ok(python_dumps(&Json::Object(ordered)))
}

/// Read both fields and merge them: `response_format` becomes one more constraint.
pub fn read<'a>(body: Fields<'_, 'a>) -> Result<Option<StructuredOutputs<'a>>> {
    let given = body.object("structured_outputs")?;
    let mut fields = read_given(given.unwrap_or(&Map::new()))?;
    if given.is_some() {
        count_constraints(&fields)?;
    }
    let Some(format) = body.object("response_format")? else {
        return Ok(given.is_some().then_some(StructuredOutputs { fields }));
    };
    let format_fields = Fields::new(format, "body.response_format");
    match format_fields.word("type", &["text", "json_object", "json_schema", "structural_tag"])? {
        None => return Err(format_fields.error("type", "a string")),
        Some("text") => return Ok(given.is_some().then_some(StructuredOutputs { fields })),
        Some("json_object") => fields.insert("json_object", true.into()),
        Some("json_schema") => {
            let schema =
                format_fields.object("json_schema")?.ok_or_else(|| format_fields.error("json_schema", "an object"))?;
            let schema = Fields::new(schema, "body.response_format.json_schema");
            schema.str("name")?.ok_or_else(|| schema.error("name", "a string"))?;
            schema.str("description")?;
            schema.bool("strict")?;
            schema.object("schema")?;
            fields.insert("json", schema.present("schema").cloned().unwrap_or(Json::Null));
        }
        Some(_) => fields.insert("structural_tag", dump_structural_tag(format)?.into()),
    }
    Ok(Some(StructuredOutputs { fields }))
}

/// Whether `structured_outputs`, taken alone, hold one constraint.
pub fn check_given(body: Fields<'_, '_>) -> Result<()> {
    match body.object("structured_outputs")? {
        Some(given) => count_constraints(&read_given(given)?),
        None => Ok(()),
    }
}

fn read_given<'a>(given: &Map<'a>) -> Result<Map<'a>> {
    let fields = Fields::new(given, "body.structured_outputs");
    let mut out = Map::new();
    let mut keep = |key: &'static str| out.push(key, given.present(key).cloned().unwrap_or(Json::Null));
    if !matches!(given.get("json"), None | Some(Json::Null | Json::Str(_) | Json::Object(_))) {
        return Err(fields.error("json", "a JSON schema: an object or a string"));
    }
    keep("json");
    fields.str("regex")?;
    keep("regex");
    fields.strs("choice")?;
    keep("choice");
    fields.str("grammar")?;
    keep("grammar");
    out.push("json_object", fields.bool("json_object")?.map_or(Json::Null, Json::from));
    out.push("disable_any_whitespace", fields.bool_or("disable_any_whitespace", false)?.into());
    out.push("disable_additional_properties", fields.bool_or("disable_additional_properties", false)?.into());
    fields.str("whitespace_pattern")?;
    out.push("whitespace_pattern", given.present("whitespace_pattern").cloned().unwrap_or(Json::Null));
    fields.str("structural_tag")?;
    out.push("structural_tag", given.present("structural_tag").cloned().unwrap_or(Json::Null));
    out.push("_backend", Json::Null);
    out.push("_backend_was_auto", false.into());
    Ok(out)
}

fn count_constraints(fields: &Map<'_>) -> Result<()> {
    match KINDS.iter().filter(|kind| fields.present(kind).is_some()).count() {
        1 => Ok(()),
        0 => Err(Error::bad_request(format!("structured outputs need one of {}", KINDS.join(", ")))),
        _ => Err(Error::bad_request("structured outputs take one constraint, and several are given")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(text: &str) -> Result<Option<String>> {
        let Ok(Json::Object(map)) = Json::parse(text) else { panic!("not an object") };
        check_raw(&map, None)?;
        check_raw_response_format(&map)?;
        let Some(outputs) = read(Fields::new(&map, "body"))? else { return Ok(None) };
        outputs.check()?;
        let mut out = Vec::new();
        outputs.write(&mut out);
        Ok(Some(String::from_utf8(out).unwrap()))
    }

    #[test]
    fn response_formats_become_constraints() {
        assert_eq!(merged(r#"{"response_format": {"type": "text"}}"#).unwrap(), None);
        let json_object = merged(r#"{"response_format": {"type": "json_object"}}"#).unwrap().unwrap();
        assert_eq!(
            json_object,
            concat!(
                r#"{"json":null,"regex":null,"choice":null,"grammar":null,"json_object":true,"disable_any_whitespace":false,"#,
                r#""disable_additional_properties":false,"whitespace_pattern":null,"structural_tag":null,"_backend":null,"_backend_was_auto":false}"#
            )
        );
        let schema = r#"{"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}}"#;
        assert!(merged(schema).unwrap().unwrap().starts_with(r#"{"json":{"type":"object"},"regex":null"#));
        let tag = r#"{"response_format": {"format": {"type": "x", "é": 1}, "type": "structural_tag"}}"#;
        let want =
            r#""structural_tag":"{\"type\": \"structural_tag\", \"format\": {\"type\": \"x\", \"\\u00e9\": 1}}""#;
        assert!(merged(tag).unwrap().unwrap().contains(want));
    }

    #[test]
    fn one_constraint_and_no_more() {
        for (text, kind) in [
            (r#"{"structured_outputs": {}}"#, "BadRequestError"),
            (r#"{"structured_outputs": {"regex": "a", "choice": ["b"]}}"#, "BadRequestError"),
            (r#"{"structured_outputs": {"regex": "a", "grammar": "b"}}"#, "BadRequestError"),
            (
                r#"{"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}"#,
                "BadRequestError",
            ),
            (r#"{"structured_outputs": {"structural_tag": "{"}}"#, "BadRequestError"),
            (r#"{"structured_outputs": {"structural_tag": ""}}"#, "BadRequestError"),
            (r#"{"structured_outputs": {"regex": 5}}"#, "Bad Request"),
            (r#"{"structured_outputs": 5}"#, "Bad Request"),
            (r#"{"response_format": {"type": "json_schema"}}"#, "BadRequestError"),
            (r#"{"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}"#, "BadRequestError"),
            (r#"{"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}"#, "Bad Request"),
            (r#"{"response_format": {"type": "yaml"}}"#, "Bad Request"),
            (r#"{"response_format": {}}"#, "Bad Request"),
        ] {
            let error = merged(text).unwrap_err();
            assert_eq!((error.status(), error.kind()), (400, kind), "{text}");
        }
    }
}
