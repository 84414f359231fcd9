//! The parsers against what vLLM 0.33's own made of 346 outputs (../shared/conformance/parsers.json), where that is at hand.

use std::path::PathBuf;

use fastrender_core::parser::cases::{CaseDefaults, answer};
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
