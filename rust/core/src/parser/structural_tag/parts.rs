//! The parts that structural tags are made of, keys in the order in which xgrammar writes them.

use crate::json::Json;

pub(super) fn object<const N: usize>(members: [(&'static str, Json<'static>); N]) -> Json<'static> {
    Json::Object(members.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

pub(super) fn strings(texts: &[String]) -> Json<'static> {
    Json::Array(texts.iter().map(|text| text.clone().into()).collect())
}

pub(super) fn tag(begin: &str, content: Json<'static>, end: &str) -> Json<'static> {
    let (begin, end) = (begin.to_owned().into(), end.to_owned().into());
    object([("type", "tag".into()), ("begin", begin), ("content", content), ("end", end)])
}

/// A message of gpt-oss, which may also end where the answer does.
pub(super) fn message(begin: &str, content: Json<'static>) -> Json<'static> {
    let end = Json::Array(vec!["<|end|>".into(), "".into()]);
    object([("type", "tag".into()), ("begin", begin.to_owned().into()), ("content", content), ("end", end)])
}

pub(super) fn json_schema(schema: Json<'static>, style: &str) -> Json<'static> {
    object([
        ("type", "json_schema".into()),
        ("json_schema", schema),
        ("style", style.to_owned().into()),
        ("any_order", false.into()),
        ("max_whitespace_cnt", Json::Null),
        ("excludes", Json::Array(Vec::new())),
    ])
}

pub(super) fn any_text(excludes: &[&'static str]) -> Json<'static> {
    let excludes = Json::Array(excludes.iter().map(|text| (*text).into()).collect());
    object([("type", "any_text".into()), ("excludes", excludes), ("max_tokens", Json::Null), ("max_chars", Json::Null)])
}

pub(super) fn constant(text: &str) -> Json<'static> {
    object([("type", "const_string".into()), ("value", text.to_owned().into())])
}

pub(super) fn sequence(elements: Vec<Json<'static>>) -> Json<'static> {
    object([("type", "sequence".into()), ("elements", Json::Array(elements))])
}

pub(super) fn either(elements: Vec<Json<'static>>) -> Json<'static> {
    object([("type", "or".into()), ("elements", Json::Array(elements))])
}

pub(super) fn one_or_either(mut elements: Vec<Json<'static>>) -> Json<'static> {
    if elements.len() == 1 { elements.remove(0) } else { either(elements) }
}
