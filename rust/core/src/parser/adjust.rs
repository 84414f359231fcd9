//! What a parser changes in the request that is rendered, so that the engine's answer can be parsed.
//!
//! Source: protocol.md §2.3.4.

use super::engine::Parser;
use super::format::SpecialTokens;
use super::request::ParseRequest;
use super::structural_tag::{Constraint, Requested};
use crate::error::{Error, Result};
use crate::json::{Json, Map};
use crate::protocol::tools::ToolChoice;

/// Changes to a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Adjustment {
    /// `skip_special_tokens` becomes false.
    pub keeps_special_tokens: bool,
    /// It takes the place of the request's own `structured_outputs` and `response_format`.
    pub constraint: Option<Constraint>,
}

impl Parser {
    /// What is changed in a request; `requested` is the constraint that it has already.
    pub fn adjust(&self, request: &ParseRequest<'_>, requested: Option<Requested<'_>>) -> Result<Adjustment> {
        let reasoning = self.reasoning_format();
        if reasoning.is_none() && request.tool_choice == ToolChoice::None {
            return Ok(Adjustment::default());
        }
        let may_call = !request.tools.is_empty() && request.tool_choice != ToolChoice::None;
        let special_tokens = self.tool_format().map(|format| format.request.special_tokens).unwrap_or_default();
        let keeps_special_tokens = reasoning.is_some_and(|format| format.keeps_special_tokens)
            || special_tokens == SpecialTokens::Kept
            || (special_tokens == SpecialTokens::KeptWithTools && may_call);
        Ok(Adjustment { keeps_special_tokens, constraint: self.constraint(request, requested)? })
    }

    /// The structural tag of a request, as the reference spells it; none where it sends none.
    pub fn structural_tag(&self, request: &ParseRequest<'_>, requested: Option<Requested<'_>>) -> Option<String> {
        self.tool_format()?.structural_tag.as_ref()?.tag(request, self.strict_level(), requested)
    }

    fn constraint(&self, request: &ParseRequest<'_>, requested: Option<Requested<'_>>) -> Result<Option<Constraint>> {
        let Some(format) = self.tool_format().filter(|_| !request.tools.is_empty()) else { return Ok(None) };
        if let Some(tag) = self.structural_tag(request, requested) {
            return Ok(Some(Constraint::StructuralTag(tag)));
        }
        if matches!(requested, Some(Requested::Other)) || format.structural_tag.is_some() {
            return Ok(None);
        }
        let schema = match (&format.request.forced_list_of, &request.tool_choice) {
            // A constraint of the request's own goes before.
            (Some(_), _) if !matches!(requested, None | Some(Requested::JsonObject | Requested::Json(_))) => None,
            (Some(key), ToolChoice::Required) => Some(native_list(request, None, key)),
            (Some(key), ToolChoice::Named(name)) => Some(native_list(request, Some(name), key)),
            (None, ToolChoice::Required) if format.forced_json => Some(list_of_calls(request)?),
            (None, ToolChoice::Named(name)) if format.forced_json => {
                Some(parameters(request.tool(name).and_then(|tool| tool.parameters)))
            }
            _ => None,
        };
        Ok(schema.map(Constraint::Json))
    }
}

fn map<const N: usize>(members: [(&'static str, Json<'static>); N]) -> Map<'static> {
    members.into_iter().map(|(key, value)| (key.into(), value)).collect()
}

/// A tool's schema; an object, if it has none.
fn parameters(schema: Option<&Json<'_>>) -> Json<'static> {
    match schema.and_then(Json::as_object).filter(|schema| !schema.is_empty()) {
        Some(schema) => Json::Object(schema.clone()).into_owned(),
        None => Json::Object(map([("type", "object".into()), ("properties", Json::Object(Map::new()))])),
    }
}

fn name_of(name: &str) -> Json<'static> {
    Json::Object(map([("type", "string".into()), ("enum", Json::Array(vec![name.to_owned().into()]))]))
}

/// `[{"name": …, "parameters": …}, …]` for any of the tools; the definitions of their schemas come together at the top.
fn list_of_calls(request: &ParseRequest<'_>) -> Result<Json<'static>> {
    let mut definitions = Map::new();
    let mut calls = Vec::new();
    for tool in &request.tools {
        let mut schema = parameters(tool.parameters);
        let own = if let Json::Object(schema) = &mut schema { schema.remove("$defs") } else { None };
        match own {
            None => {}
            Some(Json::Object(own)) => {
                for (name, definition) in own {
                    if definitions.get(&name).is_some_and(|known| *known != definition) {
                        return Err(Error::bad_param(
                            "tools",
                            format!("the tools' schemas define `{name}` in different ways; rename one of them"),
                        ));
                    }
                    definitions.insert(name, definition);
                }
            }
            Some(_) => {
                return Err(Error::bad_param(
                    "tools",
                    format!("`$defs` of the tool `{}` must be an object", tool.name),
                ));
            }
        }
        let properties = map([("name", name_of(tool.name)), ("parameters", schema)]);
        let required = Json::Array(vec!["name".into(), "parameters".into()]);
        calls.push(Json::Object(map([("properties", Json::Object(properties)), ("required", required)])));
    }
    let items = map([("type", "object".into()), ("anyOf", Json::Array(calls))]);
    let mut list = map([("type", "array".into()), ("minItems", Json::Int(1)), ("items", Json::Object(items))]);
    if request.parallel_tool_calls == Some(false) {
        list.push("maxItems", Json::Int(1));
    }
    if !definitions.is_empty() {
        list.push("$defs", Json::Object(definitions));
    }
    Ok(Json::Object(list))
}

/// The list that the model writes of its own accord.
fn native_list(request: &ParseRequest<'_>, only: Option<&str>, key: &str) -> Json<'static> {
    let tools = request.tools.iter().filter(|tool| only.is_none_or(|only| tool.name == only));
    let call = |tool: &super::request::Tool<'_>| {
        let schema = tool.parameters.and_then(Json::as_object).filter(|schema| !schema.is_empty());
        let schema = schema.map_or_else(
            || map([("type", "object".into())]),
            |schema| schema.clone().into_iter().map(|(k, v)| (k.into_owned().into(), v.into_owned())).collect(),
        );
        let mut properties = map([("name", name_of(tool.name))]);
        properties.push(key.to_owned(), Json::Object(schema));
        let required = Json::Array(vec!["name".into(), key.to_owned().into()]);
        let members = [("type", "object".into()), ("properties", Json::Object(properties)), ("required", required)];
        Json::Object(map(members))
    };
    let calls = tools.map(call).collect();
    let mut list = map([("type", "array".into()), ("minItems", Json::Int(1))]);
    if only.is_some() {
        list.push("maxItems", Json::Int(1));
    }
    list.push("items", Json::Object(map([("type", "object".into()), ("anyOf", Json::Array(calls))])));
    Json::Object(list)
}
