//! Messages as vLLM reads them: `golden/conversations.json`, recorded by `golden/generate_conversations.py`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;

use fastrender_core::conversation::{Reading, fold_developer_messages, normalize, read_messages};
use fastrender_core::json::Json;
use fastrender_core::spec::{ContentFormat, RenderSpec};

const GOLDEN: &str = include_str!("golden/conversations.json");

fn spec() -> RenderSpec {
    let spec = r#"{"model": {"name": "m", "served_names": ["m"], "max_model_len": 10, "tokenizer": {}}}"#;
    serde_json::from_str(spec).unwrap()
}

/// Messages before and after developer messages are folded, or an error's type and param.
type Outcome = Result<(Vec<u8>, Vec<u8>), (&'static str, Option<String>)>;

/// What our reading gives, in the golden file's terms.
fn outcome(request: &Json<'_>, format: ContentFormat, spec: &RenderSpec) -> Outcome {
    let fault = |error: fastrender_core::Error| (error.kind(), error.param().map(str::to_owned));
    let messages = request.as_array().unwrap();
    let resists_listing = |message: &Json<'_>| {
        message.as_object().is_some_and(|message| matches!(message.get("tool_calls"), Some(Json::Int(_))))
    };
    if messages.iter().any(resists_listing) {
        // Refused from the raw body, before messages are read.
        return Err(("BadRequestError", None));
    }
    let messages = read_messages(messages, Reading::Chat).map_err(fault)?;
    let conversation = normalize(&messages, format, &spec.model, &spec.settings).map_err(fault)?;
    let mut folded = conversation.messages.clone();
    fold_developer_messages(&mut folded).map_err(fault)?;
    let written = |messages: Vec<Json<'_>>| {
        let mut out = Vec::new();
        Json::Array(messages).write(&mut out);
        out
    };
    Ok((written(conversation.messages), written(folded)))
}

#[test]
fn messages_are_read_as_vllm_reads_them() {
    let golden = Json::parse(GOLDEN).unwrap();
    let cases = golden.as_object().unwrap().get("cases").unwrap().as_array().unwrap();
    assert!(cases.len() > 1000, "the golden file is too small: {}", cases.len());
    let spec = spec();
    let mut faults = String::new();
    for case in cases {
        let case = case.as_object().unwrap();
        for (name, format) in [("string", ContentFormat::String), ("openai", ContentFormat::OpenAi)] {
            let want = case.get(name).unwrap().as_object().unwrap();
            let got = outcome(case.get("request").unwrap(), format, &spec);
            let equal = match (&got, want.get("error").and_then(Json::as_str)) {
                (Err((kind, param)), Some(error)) => {
                    *kind == error
                        && (error == "Bad Request" || param.as_deref() == want.get("param").and_then(Json::as_str))
                }
                (Ok((messages, folded)), None) => {
                    let text = |key| {
                        want.get(key).map(|value| {
                            let mut out = Vec::new();
                            value.write(&mut out);
                            out
                        })
                    };
                    text("messages").as_ref() == Some(messages) && text("folded").is_none_or(|want| want == *folded)
                }
                _ => false,
            };
            if !equal {
                let mut request = Vec::new();
                case.get("request").unwrap().write(&mut request);
                let mut wanted = Vec::new();
                want.write(&mut wanted);
                let got = got.map(|(messages, folded)| {
                    (String::from_utf8(messages).unwrap(), String::from_utf8(folded).unwrap())
                });
                writeln!(
                    faults,
                    "{name} {}\n  want {}\n  got {got:?}",
                    String::from_utf8_lossy(&request),
                    String::from_utf8_lossy(&wanted)
                )
                .unwrap();
            }
        }
    }
    let count = faults.lines().count() / 3;
    assert!(faults.is_empty(), "{count} differ:\n{}", faults.chars().take(6000).collect::<String>());
}
