//! The parsers against what vLLM 0.33's own made of 346 outputs (../shared/conformance/parsers.json), where that is at hand.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::path::PathBuf;

use fastrender_core::json::Json;
use fastrender_core::parser::cases::{CaseDefaults, answer};
use fastrender_core::parser::{ParseRequest, Parser, ParserOptions};
use fastrender_core::protocol::fields::Fields;
use fastrender_core::protocol::tools::{read_tool_choice, read_tools};
use serde_json::Value;

fn recorded() -> Option<Vec<Value>> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("FASTRENDER_SHARED").map_or(beside, PathBuf::from);
    let Ok(text) = std::fs::read_to_string(shared.join("conformance/parsers.json")) else {
        eprintln!("skipped: there is no ../shared/conformance/parsers.json");
        return None;
    };
    let file: Value = serde_json::from_str(&text).expect("the file is JSON");
    Some(file["cases"].as_array().expect("it has cases").clone())
}

/// What counts of an answer: null is an empty text, ids are free.
fn plain(answer: &Value) -> Value {
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    let calls = answer["tool_calls"].as_array().cloned().unwrap_or_default();
    let calls: Vec<Value> = calls.iter().map(|call| serde_json::json!([call["name"], call["arguments"]])).collect();
    serde_json::json!([text("reasoning"), text("content"), calls, answer["finish_reason"]])
}

#[test]
fn recorded_outputs_are_read_as_the_reference_reads_them() {
    let Some(rows) = recorded() else { return };
    let mut faults = Vec::new();
    for row in &rows {
        let id = row["id"].as_str().unwrap();
        let got: Value = match answer(&row["case"].to_string(), &CaseDefaults::default()) {
            Ok(answer) => serde_json::from_str(&answer).unwrap(),
            Err(error) => {
                faults.push(format!("{id}: {error}"));
                continue;
            }
        };
        let mut check = |what: &str, want: &Value| {
            let (got, want) = (plain(&got[what]), plain(want));
            if got != want {
                faults.push(format!("{id} {what}\n  got  {got}\n  want {want}"));
            }
        };
        check("whole", &row["whole"]);
        for size in ["every_1", "every_3", "every_7"] {
            // Where the reference depends on the chunking, ours must not, and the calls are those of the whole.
            check(size, row.get("stream").unwrap_or(&got["every_1"]));
        }
        if row.get("stream").is_none() {
            let calls = |answer: &Value| {
                let calls = answer["tool_calls"].as_array().cloned().unwrap_or_default();
                let parsed = |call: &Value| {
                    let arguments = call["arguments"].as_str().unwrap_or_default();
                    (call["name"].clone(), serde_json::from_str::<Value>(arguments).unwrap_or_default())
                };
                calls.iter().map(parsed).collect::<Vec<_>>()
            };
            if calls(&got["every_1"]) != calls(&row["whole"]) {
                faults.push(format!("{id}: streamed calls {:?}", calls(&got["every_1"])));
            }
        }
    }
    let shown: Vec<&str> = faults.iter().take(40).map(String::as_str).collect();
    assert!(faults.is_empty(), "{} faults in {} cases\n{}", faults.len(), rows.len(), shown.join("\n"));
}

/// Its name, what it holds, and the added tokens of its model.
type Suite = (String, Value, Vec<(String, u32)>);

/// The recorded suites of the render side that have to do with tools.
fn suites() -> Vec<Suite> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("FASTRENDER_SHARED").map_or(beside, PathBuf::from);
    let Ok(folder) = std::fs::read_dir(shared.join("conformance/suites")) else {
        eprintln!("skipped: there is no ../shared/conformance/suites");
        return Vec::new();
    };
    let mut out = Vec::new();
    for path in folder.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with("-tools.json") {
            continue;
        }
        let suite: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let file = shared.join("assets").join(suite["model"].as_str().unwrap()).join("tokenizer.json");
        let tokenizer: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        let token = |token: &Value| {
            (token["content"].as_str().unwrap().to_owned(), u32::try_from(token["id"].as_u64().unwrap()).unwrap())
        };
        let tokens = tokenizer["added_tokens"].as_array().unwrap().iter().map(token).collect();
        out.push((name, suite, tokens));
    }
    out
}

#[test]
fn recorded_requests_are_adjusted_and_their_prompts_read_as_the_reference_does() {
    let mut faults = Vec::new();
    let mut compared = 0;
    for (name, suite, tokens) in suites() {
        let flags: Vec<&str> = suite["serve_args"].as_str().unwrap().split(' ').collect();
        let flag = |flag: &str| flags.iter().position(|word| *word == flag).map(|at| flags[at + 1]);
        let options = ParserOptions {
            tool_parser: flag("--tool-call-parser"),
            reasoning_parser: flag("--reasoning-parser"),
            ..ParserOptions::default()
        };
        let id = |text: &str| tokens.iter().find(|(token, _)| token == text).map(|(_, id)| *id);
        let parser = Parser::new(&options, &id).unwrap();
        for case in suite["cases"].as_array().unwrap() {
            let answer = &case["response"];
            if case["status"] != 200 || !answer["token_ids"].is_array() || !answer["parse_context"].is_object() {
                continue;
            }
            let context = answer["parse_context"].to_string();
            let context = Json::parse(&context).unwrap();
            let context = context.as_object().unwrap();
            let tools = read_tools(Fields::new(context, "body")).unwrap().unwrap_or_default();
            let prompt: Vec<u32> = answer["token_ids"]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
                .collect();
            let include_reasoning = answer["parse_context"]["include_reasoning"] != false;
            let request = ParseRequest {
                tools: ParseRequest::tools_of(&tools),
                tool_choice: match read_tool_choice(context) {
                    Ok(choice) => choice,
                    Err(error) => panic!("{name} {}: {error}", case["id"]),
                },
                include_reasoning,
                chat_template_kwargs: context.present("chat_template_kwargs").and_then(Json::as_object),
                prompt_ids: Some(&prompt),
                ..ParseRequest::default()
            };
            compared += 1;
            let ended = if include_reasoning { parser.reasoning_ended(&request) } else { Some(true) };
            if ended != answer["reasoning_ended"].as_bool() {
                faults.push(format!("{name} {}: ended {ended:?}, want {}", case["id"], answer["reasoning_ended"]));
            }
            let outputs = &answer["sampling_params"]["structured_outputs"];
            // What the request itself asked for is the renderer's to carry over.
            if let Some(tag) = outputs["structural_tag"].as_str() {
                let got = parser.structural_tag(&request, None);
                if got.as_deref() != Some(tag) {
                    faults.push(format!("{name} {}: tag {got:?}, want {tag}", case["id"]));
                }
            }
            let kept = answer["sampling_params"]["skip_special_tokens"] == false;
            let asked = case["body"]["skip_special_tokens"] == false;
            if parser.adjust(&request, None).unwrap().keeps_special_tokens != kept && !asked {
                faults.push(format!("{name} {}: keeps special tokens, want {kept}", case["id"]));
            }
        }
    }
    eprintln!("{compared} requests compared");
    let shown: Vec<&str> = faults.iter().take(30).map(String::as_str).collect();
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), shown.join("\n"));
}
