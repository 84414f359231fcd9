//! Every tool format by the same table: what a model of that format would write, and what is read.

use fastrender_core::json::{Json, python_dumps_unicode};
use fastrender_core::parser::Parser;

use crate::support::{calls, case};
use crate::writers::writers;

/// What the calls of the table are, by what they try.
const TABLE: [(&str, &[(&str, &str)]); 8] = [
    ("single", &[("get_weather", r#"{"city": "Oslo", "days": 3}"#)]),
    (
        "several",
        &[("get_weather", r#"{"city": "Oslo"}"#), ("now", "{}"), ("get_weather", r#"{"city": "Rio", "days": -1}"#)],
    ),
    ("no arguments", &[("now", "{}")]),
    ("the same twice", &[("now", "{}"), ("now", "{}")]),
    ("nested", &[("get_weather", r#"{"near": ["Bonn", "Aachen"], "opts": {"s": "x", "l": ["y"]}}"#)]),
    ("unicode", &[("write", r#"{"path": "日本/👩‍👩‍👧.txt", "body": "Zażółć"}"#)]),
    ("brackets and quotes in strings", &[("write", r#"{"path": "a } b ] \" { [ (", "body": "x), y=1"}"#)]),
    ("lines and backslashes", &[("write", r#"{"path": "c:\\d", "body": "def f():\n    return 'x'\n"}"#)]),
];

#[test]
fn every_call_of_the_table_is_read_whole_and_streamed() {
    for writer in writers() {
        for (what, made) in TABLE {
            let case = case(writer.name, "", &(writer.write)(made));
            let mut whole = case.whole();
            if writer.name == "openai" {
                // A whole answer escapes what is not ASCII.
                whole
                    .calls
                    .iter_mut()
                    .for_each(|(_, text)| *text = python_dumps_unicode(&Json::parse(&text.clone()).unwrap()));
            }
            assert_eq!(whole.calls, calls(made), "{}, {what}: {:?}", writer.name, case.text);
            assert_eq!(whole.reason, "tool_calls", "{}, {what}", writer.name);
            assert_eq!(whole.content, "", "{}, {what}", writer.name);
            assert_eq!(case.stream().calls, calls(made), "{}, {what}, streamed: {:?}", writer.name, case.text);
            let tokens = case.clone().tokens(writer.tokens);
            assert_eq!(tokens.whole(), case.whole(), "{}, {what}, with tokens", writer.name);
            assert_eq!(tokens.stream().calls, calls(made), "{}, {what}, streamed with tokens", writer.name);
        }
    }
}

#[test]
fn text_without_calls_is_content() {
    for writer in writers() {
        for text in [
            "The capital of France is Paris.",
            "a < b, {\"k\": [1, 2]} and <tool> or <thinking> [x](y)",
            "日本語 👩‍👩‍👧\n\n- ok",
        ] {
            let case = case(writer.name, "", text);
            assert_eq!(case.whole().content, text, "{}", writer.name);
            assert_eq!(case.stream().content, text, "{}", writer.name);
            assert!(case.stream().calls.is_empty());
        }
    }
}

#[test]
fn text_before_a_call_is_content() {
    for writer in writers().iter().filter(|writer| !writer.at_start) {
        let call = (writer.write)(&[("now", "{}")]);
        let message = if writer.name == "openai" {
            "<|channel|>final<|message|>Let me see.<|end|><|start|>assistant"
        } else {
            "Let me see."
        };
        let case = case(writer.name, "", &format!("{message}{call}"));
        assert_eq!(case.stream().content.trim_end(), "Let me see.", "{}", writer.name);
        assert_eq!(case.stream().calls, calls(&[("now", "{}")]), "{}", writer.name);
        let whole = if writer.name == "phi4_mini_json" { "" } else { "Let me see." };
        assert_eq!(case.whole().content, whole, "{}", writer.name);
    }
}

#[test]
fn reasoning_comes_before_calls() {
    for writer in writers().iter().filter(|writer| writer.name != "openai") {
        let call = (writer.write)(&[("now", "{}")]);
        let case = case(writer.name, "deepseek_r1", &format!("<think>r < s</think>{call}"));
        for answer in [case.whole(), case.stream()] {
            assert_eq!((answer.reasoning.as_str(), answer.content.trim()), ("r < s", ""), "{}", writer.name);
            assert_eq!(answer.calls, calls(&[("now", "{}")]), "{}", writer.name);
        }
    }
}

#[test]
fn messages_of_gpt_oss() {
    let text = "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary<|message|>Looking.<|end|>\
        <|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{\"a\": \"é\"}<|call|>\
        <|start|>assistant<|channel|>commentary to=browser.open<|message|>x<|call|>\
        <|start|>assistant<|channel|>analysis to=functions.now<|message|>{}<|call|>\
        <|start|>assistant<|channel|>final<|message|>Done.<|return|>";
    let case = case("openai", "openai_gptoss", text);
    let (whole, streamed) = (case.whole(), case.stream());
    assert_eq!((whole.reasoning.as_str(), whole.content.as_str()), ("Think.", "Looking.\nDone."));
    assert_eq!(whole.calls, calls(&[("now", "{\"a\": \"\\u00e9\"}"), ("now", "{}")]));
    assert_eq!((streamed.reasoning.as_str(), streamed.content.as_str()), ("Think.", "Looking.Done."));
    assert_eq!(streamed.calls, calls(&[("now", "{\"a\": \"é\"}"), ("now", "{}")]));
}

#[test]
fn what_looks_like_a_call_and_is_none_is_content() {
    for (name, text) in [
        ("hermes", "<tool_call>not json</tool_call>"),
        ("hermes", "<tool_call>{\"x\": 1}</tool_call>"),
        ("jamba", "<tool_calls>{]</tool_calls>"),
        ("llama3_json", "{\"name\": \"Bob\", \"age\": 3}"),
        ("llama3_json", "{\"a\": 1}"),
        ("pythonic", "[1] is a footnote"),
        ("pythonic", "[x](http://y)"),
        ("granite", "<|tool_call|>nothing"),
        ("gemma4", "<|tool_call>nothing"),
        ("xlam", "```python\nprint(1)\n```"),
    ] {
        let case = case(name, "", text);
        for answer in [case.whole(), case.stream()] {
            assert_eq!((answer.content.as_str(), answer.calls.len()), (text, 0), "{name}");
        }
    }
}

#[test]
fn a_complete_call_that_is_no_json_makes_a_whole_answer_text() {
    let text = "A <tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"now\", \"arguments\": {x}}</tool_call>";
    for tokens in [&[][..], &["<tool_call>", "</tool_call>"]] {
        let case = case("hermes", "qwen3", &format!("r</think>{text}")).on().tokens(tokens);
        let whole = case.whole();
        assert_eq!((whole.reasoning.as_str(), whole.content.as_str(), whole.calls.len()), ("r", text, 0));
        // A stream cannot take back what it sent.
        assert_eq!(case.stream().calls, calls(&[("now", "{}"), ("now", "{x}")]));
    }
}

#[test]
fn a_lone_wrapper_of_all_arguments_is_taken_off() {
    let text = "<｜DSML｜tool_calls><｜DSML｜invoke name=\"get_weather\"><｜DSML｜parameter name=\"arguments\" string=\"false\">\
        {\"city\": \"Oslo\"}</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>";
    let case = case("deepseek_v4", "", text);
    for answer in [case.whole(), case.stream()] {
        assert_eq!(answer.calls, calls(&[("get_weather", r#"{"city": "Oslo"}"#)]));
    }
}

#[test]
fn mistral_by_the_version_of_its_tokenizer() {
    let tokens = ["[TOOL_CALLS]", "[ARGS]"];
    let wanted = calls(&[("get_weather", r#"{"city": "Oslo"}"#), ("now", "{}")]);
    for text in [
        r#"[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]now[ARGS]{}"#,
        r#"[TOOL_CALLS]get_weather{"city": "Oslo"}[TOOL_CALLS]now{}"#,
    ] {
        let new = case("mistral", "mistral", text).tokens(&tokens);
        let parser = new.parser();
        assert_eq!(new.whole().calls, wanted);
        for cut in 0..new.pieces().len() {
            assert_eq!(new.streamed(&parser, &[cut]).0.calls, wanted, "{text} cut at {cut}");
        }
    }
    // Text behind the arguments is no part of them.
    let new = case("mistral", "", "[TOOL_CALLS]now[ARGS]{} ok").tokens(&tokens);
    assert_eq!((new.stream().content.as_str(), new.stream().calls), (" ok", calls(&[("now", "{}")])));
    // A forced call may come without its marker, one that is not forced may not.
    let text = r#"[{"name": "now", "arguments": {}}]"#;
    let old = case("mistral", "", text);
    assert_eq!((old.whole().content.as_str(), old.whole().calls.len()), (text, 0));
    let forced = crate::support::Case { choice: fastrender_core::protocol::tools::ToolChoice::Required, ..old };
    assert_eq!(forced.whole().calls, calls(&[("now", "{}")]));
    assert_eq!(forced.stream().calls, calls(&[("now", "{}")]));
}

#[test]
fn an_echo_of_the_calls_is_dropped() {
    let call = "[now()]<|tool_call_end|>";
    let case = case("lfm2", "", &format!("<|tool_call_start|>{call}{call}Done."));
    for answer in [case.whole(), case.stream()] {
        assert_eq!((answer.content.as_str(), answer.calls.len()), ("Done.", 1));
    }
    let text = "<|tool_call_start|>[now()]<|tool_call_end|>[1] says so";
    assert_eq!(crate::support::case("lfm2", "", text).stream().content, "[1] says so");
}

#[test]
fn a_format_of_the_user_is_read_like_any_other() {
    let toml = r#"
        names = ["mine"]
        whole = { respelled = true }
        [call]
        open = ["<<call>>"]
        close = ["<<end>>"]
        [body]
        kind = "json"
        arguments = ["args"]
    "#;
    let case = crate::support::Case {
        toml: vec![toml.to_owned()],
        ..case("mine", "", "hi <<call>>{\"name\": \"now\", \"args\": {}}<<end>>")
    };
    assert_eq!(case.whole().calls, calls(&[("now", "{}")]));
    assert_eq!(case.stream().content, "hi ");
}

#[test]
fn faults_of_a_users_format_are_named() {
    use fastrender_core::parser::ToolFormat;
    for (toml, part) in [
        ("", "missing field"),
        ("names = [\"x\"]\n[body]\nkind = \"json\"\narguments = []", "`body.arguments` is empty"),
        ("names = [\"x\"]\n[body]\nkind = \"json\"\narguments = [\"a\"]", "`call.open` is empty"),
        ("names = [\"x\"]\nunknown = 1\n[body]\nkind = \"harmony\"", "unknown"),
        ("names = [\"x y\"]\n[body]\nkind = \"harmony\"", "`names`"),
        ("names = [\"x\"]\n[call]\nopen = [\"\"]\n[body]\nkind = \"json\"\narguments = [\"a\"]", "a marker is empty"),
        ("names = [\"x\"]\n[call]\nopen = [\"<\"]\n[body]\nkind = \"nonsense\"", "unknown variant"),
    ] {
        let error = ToolFormat::from_toml(toml).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn names_are_the_references() {
    let tools = [
        "deepseek_v3",
        "deepseek_v31",
        "deepseek_v32",
        "deepseek_v4",
        "deepseek_v41",
        "ernie45",
        "gemma4",
        "glm45",
        "glm47",
        "granite",
        "granite4",
        "hermes",
        "hunyuan_a13b",
        "internlm",
        "jamba",
        "kimi_k2",
        "lfm2",
        "ling3",
        "llama3_json",
        "llama4_json",
        "llama4_pythonic",
        "longcat",
        "mimo",
        "minimax_m2",
        "mistral",
        "olmo3",
        "openai",
        "phi4_mini_json",
        "pythonic",
        "qwen3_coder",
        "qwen3_json",
        "qwen3_xml",
        "seed_oss",
        "step3p5",
        "step5",
        "xlam",
    ];
    assert_eq!(Parser::tool_names(), tools);
    for name in [
        "qwen3",
        "deepseek_r1",
        "deepseek_v3",
        "deepseek_v4",
        "glm45",
        "kimi_k2",
        "openai_gptoss",
        "minimax_m2",
        "minimax_m2_append_think",
        "gemma4",
        "mistral",
        "nemotron_v3",
        "granite",
        "step3",
        "step3p5",
        "mimo",
        "seed_oss",
        "olmo3",
        "ernie45",
        "hunyuan_a13b",
        "holo2",
    ] {
        assert!(Parser::reasoning_names().contains(&name), "{name}");
    }
    let options = fastrender_core::parser::ParserOptions { tool_parser: Some("hermez"), ..Default::default() };
    let error = Parser::new(&options, &|_| None).unwrap_err().to_string();
    assert!(error.contains("`hermez`") && error.contains("hermes") && error.contains("xlam"), "{error}");
}
