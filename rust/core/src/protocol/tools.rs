//! Tools of a chat request, re-keyed as vLLM serialises them.

use super::fields::Fields;
use crate::error::{Error, Result};
use crate::json::{Json, Map};

/// Who decides whether a tool is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// An explicit null.
    Null,
    None,
    Auto,
    Required,
    Named(String),
}

impl ToolChoice {
    /// Append as it stands in `parse_context`.
    pub fn to_json(&self) -> Json<'static> {
        match self {
            ToolChoice::Null => Json::Null,
            ToolChoice::None => "none".into(),
            ToolChoice::Auto => "auto".into(),
            ToolChoice::Required => "required".into(),
            ToolChoice::Named(name) => {
                let mut function = Map::new();
                function.push("name", name.clone().into());
                let mut choice = Map::new();
                choice.push("function", Json::Object(function));
                choice.push("type", "function".into());
                Json::Object(choice)
            }
        }
    }
}

/// Read `tool_choice`, and hold it against the tools. Runs on the raw body, before its fields are validated.
pub fn read_tool_choice(body: &Map<'_>) -> Result<ToolChoice> {
    let tools = body.get("tools");
    if tools.and_then(Json::as_array).is_some_and(<[_]>::is_empty) {
        return Err(Error::bad_param("tools", "`tools` must not be an empty list: name a tool or leave the field out"));
    }
    let choice = match body.get("tool_choice") {
        None if tools.is_some_and(Json::truthy) => return Ok(ToolChoice::Auto),
        None => return Ok(ToolChoice::None),
        Some(Json::Null) => return Ok(ToolChoice::Null),
        Some(Json::Str(word)) if word == "none" => return Ok(ToolChoice::None),
        Some(choice) => choice,
    };
    let Some(tools) = tools.filter(|tools| !tools.is_null()) else {
        return Err(Error::bad_param("tool_choice", "`tool_choice` needs `tools`"));
    };
    match choice {
        Json::Str(word) if word == "auto" => Ok(ToolChoice::Auto),
        Json::Str(word) if word == "required" => Ok(ToolChoice::Required),
        Json::Object(choice) => named(choice, tools),
        _ => Err(Error::bad_param(
            "tool_choice",
            "`tool_choice` must be \"none\", \"auto\", \"required\" or name a function",
        )),
    }
}

fn named(choice: &Map<'_>, tools: &Json<'_>) -> Result<ToolChoice> {
    const USAGE: &str = "name the function as {\"type\": \"function\", \"function\": {\"name\": \"…\"}}";
    let Some(function) = choice.get("function").and_then(Json::as_object) else {
        return Err(Error::bad_param(
            "tool_choice.function",
            format!("`function` in `tool_choice` must be an object; {USAGE}"),
        ));
    };
    let Some(name) = function.get("name").and_then(Json::as_str).filter(|name| !name.is_empty()) else {
        return Err(Error::bad_param(
            "tool_choice.function.name",
            format!("`tool_choice` has no function name; {USAGE}"),
        ));
    };
    let tool_name = |tool: &Json<'_>| {
        let function = tool.as_object().and_then(|tool| tool.get("function")?.as_object()?.get("name")?.as_str());
        function == Some(name)
    };
    if !tools.as_array().is_some_and(|tools| tools.iter().any(tool_name)) {
        return Err(Error::bad_param("tool_choice", format!("`tool_choice` names `{name}`, which is none of `tools`")));
    }
    if choice.get("type").is_some_and(|kind| kind.as_str() != Some("function")) {
        return Err(Error::schema("body.tool_choice.type", "the `type` of `tool_choice` must be \"function\""));
    }
    Ok(ToolChoice::Named(name.to_owned()))
}

/// Read `tools` and re-key each as the Python model dumps it: `type`, `function {name, description, parameters
/// [, strict] [, defer_loading]}` `[, defer_loading]`; missing description and parameters become null, unknown keys go.
pub fn read_tools<'a>(body: Fields<'_, 'a>) -> Result<Option<Vec<Json<'a>>>> {
    let Some(tools) = body.array("tools")? else { return Ok(None) };
    tools.iter().enumerate().map(|(i, tool)| read_tool(tool, i)).collect::<Result<_>>().map(Some)
}

fn read_tool<'a>(tool: &Json<'a>, index: usize) -> Result<Json<'a>> {
    let path = format!("body.tools.{index}");
    let Some(tool) = tool.as_object() else { return Err(Error::schema(path, "a tool must be an object")) };
    let outer = Fields::new(tool, &path);
    if tool.get("type").is_some_and(|kind| kind.as_str() != Some("function")) {
        return Err(outer.error("type", "\"function\""));
    }
    let function_path = format!("{path}.function");
    let function = match tool.get("function") {
        Some(Json::Object(function)) => Fields::new(function, &function_path),
        _ => return Err(outer.error("function", "an object")),
    };
    let name = function.str("name")?.ok_or_else(|| function.error("name", "a string"))?;
    let mut dumped = Map::new();
    dumped.push("name", Json::Str(name.to_owned().into()));
    function.str("description")?;
    dumped.push("description", function.present("description").cloned().unwrap_or(Json::Null));
    function.object("parameters")?;
    dumped.push("parameters", function.present("parameters").cloned().unwrap_or(Json::Null));
    if let Some(strict) = function.bool("strict")? {
        dumped.push("strict", strict.into());
    }
    let tool_defer = outer.bool("defer_loading")?;
    if let Some(defer) = function.bool("defer_loading")?.or(tool_defer) {
        dumped.push("defer_loading", defer.into());
    }
    let mut out = Map::new();
    out.push("type", "function".into());
    out.push("function", Json::Object(dumped));
    if let Some(defer) = tool_defer {
        out.push("defer_loading", defer.into());
    }
    Ok(Json::Object(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Map<'_> {
        let Ok(Json::Object(map)) = Json::parse(text) else { panic!("not an object") };
        map
    }

    #[test]
    fn tools_are_rekeyed_as_the_python_model_dumps_them() {
        let map = body(
            r#"{"tools": [{"x": 1, "function": {"z": 2, "parameters": {"b": 1, "a": 2}, "name": "f"}, "type": "function"},
                {"function": {"name": "g", "strict": false, "description": "d"}, "defer_loading": true}]}"#,
        );
        let tools = read_tools(Fields::new(&map, "body")).unwrap().unwrap();
        let mut out = Vec::new();
        Json::Array(tools).write(&mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            concat!(
                r#"[{"type":"function","function":{"name":"f","description":null,"parameters":{"b":1,"a":2}}},"#,
                r#"{"type":"function","function":{"name":"g","description":"d","parameters":null,"strict":false,"defer_loading":true},"defer_loading":true}]"#
            )
        );
    }

    #[test]
    fn tool_choice_is_held_against_the_tools() {
        let tools = r#""tools": [{"function": {"name": "f"}}]"#;
        for (choice, want) in [
            (String::new(), Ok(ToolChoice::None)),
            (tools.to_owned(), Ok(ToolChoice::Auto)),
            (format!(r#"{tools}, "tool_choice": null"#), Ok(ToolChoice::Null)),
            (format!(r#"{tools}, "tool_choice": "required""#), Ok(ToolChoice::Required)),
            (
                format!(r#"{tools}, "tool_choice": {{"function": {{"name": "f"}}}}"#),
                Ok(ToolChoice::Named("f".to_owned())),
            ),
            (r#""tools": []"#.to_owned(), Err("tools")),
            (r#""tool_choice": "auto""#.to_owned(), Err("tool_choice")),
            (format!(r#"{tools}, "tool_choice": "any""#), Err("tool_choice")),
            (format!(r#"{tools}, "tool_choice": {{"function": "f"}}"#), Err("tool_choice.function")),
            (format!(r#"{tools}, "tool_choice": {{"function": {{}}}}"#), Err("tool_choice.function.name")),
            (format!(r#"{tools}, "tool_choice": {{"function": {{"name": "g"}}}}"#), Err("tool_choice")),
        ] {
            let text = format!("{{{choice}}}");
            let got = read_tool_choice(&body(&text));
            match want {
                Ok(want) => assert_eq!(got.unwrap(), want, "{text}"),
                Err(param) => assert_eq!(got.unwrap_err().param(), Some(param), "{text}"),
            }
        }
    }
}
