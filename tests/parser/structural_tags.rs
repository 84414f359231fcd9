//! What the parsers ask of the request: held against what vLLM 0.33 sends (`tests/golden/structural_tags.json`).

use fastrender_core::json::{Json, python_dumps};
use fastrender_core::parser::{Constraint, ParseRequest, Parser, ParserOptions, Requested, StrictLevel};
use fastrender_core::protocol::fields::Fields;
use fastrender_core::protocol::tools::{read_tool_choice, read_tools};
use serde_json::Value;

const TOKENS: [&str; 3] = ["[TOOL_CALLS]", "<tool_call>", "<|tool_call|>"];

fn golden() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/structural_tags.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn requests_are_adjusted_as_the_reference_adjusts_them() {
    let golden = golden();
    let mut faults = Vec::new();
    for case in golden["cases"].as_array().unwrap() {
        let number = usize::try_from(case["request"].as_u64().unwrap()).unwrap();
        let text = golden["requests"][number].to_string();
        let body = Json::parse(&text).unwrap();
        let body = body.as_object().unwrap();
        let tools = read_tools(Fields::new(body, "body")).unwrap().unwrap();
        let options = ParserOptions {
            tool_parser: case["format"].as_str(),
            strict_level: match case["level"].as_str() {
                None => None,
                Some("function") => Some(StrictLevel::Function),
                Some("parameter") => Some(StrictLevel::Parameter),
                Some(other) => panic!("{other}"),
            },
            ..ParserOptions::default()
        };
        let parser = Parser::new(&options, &|text| TOKENS.contains(&text).then_some(1)).unwrap();
        let request = ParseRequest {
            tools: ParseRequest::tools_of(&tools),
            tool_choice: read_tool_choice(body).unwrap(),
            parallel_tool_calls: body.get("parallel_tool_calls").map(Json::truthy),
            ..ParseRequest::default()
        };
        let format = body.get("response_format").and_then(Json::as_object);
        let choice = body.get("structured_outputs").and_then(Json::as_object).and_then(|outputs| outputs.get("choice"));
        let requested = match (format, choice) {
            (_, Some(choice)) => Some(Requested::Choice(choice.as_array().unwrap())),
            (Some(format), None) => Some(match format.get("json_schema").and_then(Json::as_object) {
                Some(schema) => Requested::Json(schema.get("schema").unwrap()),
                None => Requested::JsonObject,
            }),
            (None, None) => None,
        };
        let adjusted = parser.adjust(&request, requested).unwrap();
        let id = format!("{} {number} {}", case["format"], case["level"]);
        let want = &case["want"];
        if adjusted.keeps_special_tokens != (want["skip_special_tokens"] == Value::Bool(false)) {
            faults.push(format!("{id}: keeps special tokens {}", adjusted.keeps_special_tokens));
        }
        let (tag, json) = match &adjusted.constraint {
            Some(Constraint::StructuralTag(tag)) => (Some(tag.as_str()), None),
            Some(Constraint::Json(schema)) => (None, Some(python_dumps(schema))),
            None => (None, None),
        };
        if tag != want["structural_tag"].as_str() {
            faults.push(format!("{id}\n  got  {tag:?}\n  want {}", want["structural_tag"]));
        }
        // The reference leaves the request's own constraint in place where the tools make none.
        let wanted = want.get("json").filter(|json| !json.is_null());
        let wanted = wanted.map(|json| python_dumps(&Json::from(json.clone())));
        if json != wanted {
            faults.push(format!("{id}\n  got  {json:?}\n  want {wanted:?}"));
        }
    }
    let shown: Vec<&str> = faults.iter().take(12).map(String::as_str).collect();
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), shown.join("\n"));
}
