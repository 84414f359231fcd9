//! GLM's values: for tools that are not strict, keys and the types of their values.

use super::parts::{any_text, constant, json_schema, object, one_or_either, sequence};
use crate::json::{Json, Map, python_dumps};
use crate::parser::request::Tool;

/// What a tag of GLM must not hold in a value.
const GLM_MARKERS: [&str; 8] =
    ["<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"];

/// Keys and the types of their values, for a tool that is not strict.
pub(super) fn glm_values(tool: &Tool<'_>) -> Json<'static> {
    let Some(properties) = tool.parameters.and_then(Json::as_object).and_then(plain_properties) else {
        return json_schema(true.into(), "glm_xml");
    };
    let pair = |(key, schema): (&str, &Json<'_>)| {
        let begin = format!("<arg_key>{key}</arg_key><arg_value>");
        sequence(vec![constant(&begin), glm_value(schema), constant("</arg_value>")])
    };
    let pairs: Vec<Json<'static>> = properties.iter().map(pair).collect();
    object([("type", "star".into()), ("content", one_or_either(pairs))])
}

/// The properties of a schema that says no more than what they are.
fn plain_properties<'a>(schema: &'a Map<'a>) -> Option<&'a Map<'a>> {
    let open = matches!(schema.get("additionalProperties"), Some(Json::Bool(true)));
    let composed = ["$ref", "allOf", "anyOf", "oneOf", "patternProperties"].iter().any(|key| schema.contains_key(key));
    let properties = schema.get("properties").and_then(Json::as_object)?;
    (!properties.is_empty() && !open && !composed).then_some(properties)
}

fn glm_value(schema: &Json<'_>) -> Json<'static> {
    let Some(schema) = schema.as_object() else { return any_text(&GLM_MARKERS) };
    if let Some(values) = schema.get("enum").and_then(Json::as_array) {
        let text = |value: &Json<'_>| value.as_str().map_or_else(|| python_dumps(value), str::to_owned);
        return one_or_either(values.iter().map(|value| constant(&text(value))).collect());
    }
    match schema.get("type") {
        Some(Json::Array(types)) => {
            let names = || types.iter().filter_map(Json::as_str);
            let mut formats: Vec<Json<'static>> = names().filter(|name| *name != "string").map(glm_type).collect();
            if names().any(|name| name == "string") {
                formats.push(any_text(&GLM_MARKERS));
            }
            one_or_either(formats)
        }
        Some(Json::Str(name)) => glm_type(name),
        _ => any_text(&GLM_MARKERS),
    }
}

fn glm_type(name: &str) -> Json<'static> {
    if name == "string" {
        return any_text(&GLM_MARKERS);
    }
    json_schema(object([("type", name.to_owned().into())]), "json")
}
