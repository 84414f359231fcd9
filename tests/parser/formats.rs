//! Every tool format by the same table: what a model of that format would write, and what is read.

use fastrender_core::json::{Json, python_dumps_unicode};
use fastrender_core::parser::Parser;

use crate::support::{calls, case};

/// Calls as a format writes them: names, and arguments as JSON objects.
type Write = fn(&[(&str, &str)]) -> String;

pub(crate) struct Writer {
    pub(crate) name: &'static str,
    pub(crate) write: Write,
    /// Calls count only at the beginning of an answer.
    pub(crate) at_start: bool,
    /// The opener, then further markers.
    pub(crate) fragments: &'static [&'static str],
    /// Those that are tokens in the model's vocabulary.
    pub(crate) tokens: &'static [&'static str],
}

pub(crate) fn writers() -> Vec<Writer> {
    const TOOL: &[&str] = &["<tool_call>", "</tool_call>"];
    const QWEN: &[&str] = &["<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>"];
    const SEED: &[&str] =
        &["<seed:tool_call>", "</seed:tool_call>", "<function=", "</function>", "<parameter=", "</parameter>"];
    const GLM: &[&str] = &["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"];
    const KIMI: &[&str] = &[
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ];
    const DEEPSEEK: &[&str] = &[
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ];
    const LISTS: &[&str] = &["<tool_calls>", "</tool_calls>"];
    vec![
        writer(
            "hermes",
            |calls| {
                each(calls, |n, a| format!("<tool_call>\n{{\"name\": \"{n}\", \"arguments\": {a}}}\n</tool_call>\n"))
            },
            TOOL,
            TOOL,
        ),
        writer(
            "granite4",
            |calls| each(calls, |n, a| format!("<tool_call>{{\"name\": \"{n}\", \"arguments\": {a}}}</tool_call>")),
            TOOL,
            TOOL,
        ),
        writer(
            "ernie45",
            |calls| each(calls, |n, a| format!("<tool_call>{{\"name\": \"{n}\", \"arguments\": {a}}}</tool_call>")),
            TOOL,
            TOOL,
        ),
        writer(
            "longcat",
            |calls| {
                each(calls, |n, a| {
                    format!("<longcat_tool_call>{{\"name\": \"{n}\", \"arguments\": {a}}}</longcat_tool_call>")
                })
            },
            &["<longcat_tool_call>", "</longcat_tool_call>"],
            &["<longcat_tool_call>", "</longcat_tool_call>"],
        ),
        writer(
            "internlm",
            |calls| {
                each(calls, |n, a| {
                    format!("<|action_start|><|plugin|>{{\"name\": \"{n}\", \"parameters\": {a}}}<|action_end|>")
                })
            },
            &["<|action_start|><|plugin|>", "<|action_end|>", "<|action_start|>", "<|plugin|>"],
            &["<|action_start|>", "<|plugin|>", "<|action_end|>"],
        ),
        Writer {
            at_start: true,
            ..writer(
                "llama3_json",
                |calls| envelopes(calls, "parameters", "; "),
                &["{", "<|python_tag|>", "; "],
                &["<|python_tag|>"],
            )
        },
        writer(
            "jamba",
            |calls| format!("<tool_calls>[{}]</tool_calls>", envelopes(calls, "arguments", ", ")),
            LISTS,
            LISTS,
        ),
        Writer {
            at_start: true,
            ..writer(
                "hunyuan_a13b",
                |calls| format!("<tool_calls>[{}]</tool_calls>", envelopes(calls, "arguments", ", ")),
                LISTS,
                &[],
            )
        },
        writer(
            "granite",
            |calls| format!("<|tool_call|>[{}]", envelopes(calls, "arguments", ", ")),
            &["<|tool_call|>", "<tool_call>", "[", "]"],
            &["<|tool_call|>"],
        ),
        writer(
            "phi4_mini_json",
            |calls| format!("functools[{}]", envelopes(calls, "arguments", ", ")),
            &["functools", "[", "]"],
            &[],
        ),
        Writer {
            at_start: true,
            ..writer(
                "xlam",
                |calls| format!("[{}]", envelopes(calls, "arguments", ", ")),
                &["[", "```json", "```", "</think>", "[TOOL_CALLS]", "]"],
                &[],
            )
        },
        writer(
            "mistral",
            |calls| format!("[TOOL_CALLS][{}]", envelopes(calls, "arguments", ", ")),
            &["[TOOL_CALLS]", "[", "]"],
            &["[TOOL_CALLS]"],
        ),
        writer(
            "deepseek_v3",
            |calls| {
                let inner = each(calls, |n, a| {
                    format!("<｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n```json\n{a}\n```<｜tool▁call▁end｜>")
                });
                format!("<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>")
            },
            DEEPSEEK,
            DEEPSEEK,
        ),
        writer(
            "deepseek_v31",
            |calls| {
                let inner = each(calls, |n, a| format!("<｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{a}<｜tool▁call▁end｜>"));
                format!("<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>")
            },
            DEEPSEEK,
            DEEPSEEK,
        ),
        writer(
            "kimi_k2",
            |calls| {
                let inner = each(calls, |n, a| {
                    format!("<|tool_call_begin|>functions.{n}:0<|tool_call_argument_begin|>{a}<|tool_call_end|>")
                });
                format!("<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>")
            },
            KIMI,
            KIMI,
        ),
        writer(
            "deepseek_v32",
            |calls| dsml(calls, "function_calls", ""),
            &["<｜DSML｜function_calls>", "</｜DSML｜parameter>", "<｜DSML｜parameter"],
            &["｜DSML｜"],
        ),
        writer(
            "deepseek_v4",
            |calls| dsml(calls, "tool_calls", ""),
            &["<｜DSML｜tool_calls>", "<｜DSML｜tool>", "<｜DSML｜invoke name=\"", "</｜DSML｜invoke>"],
            &["｜DSML｜"],
        ),
        writer(
            "deepseek_v41",
            |calls| dsml(calls, " calls", " "),
            &["<｜DSML｜ calls>", "<｜DSML｜ invoke name=\"", "</｜DSML｜ calls>"],
            &["｜DSML｜"],
        ),
        writer("qwen3_coder", |calls| qwen(calls, "tool_call"), QWEN, TOOL),
        writer("seed_oss", |calls| qwen(calls, "seed:tool_call"), SEED, &["<seed:tool_call>", "</seed:tool_call>"]),
        writer("step3p5", |calls| qwen(calls, "tool_call"), QWEN, TOOL),
        writer("step5", |calls| qwen(calls, "tool_call"), QWEN, TOOL),
        writer("mimo", |calls| qwen(calls, "tool_call").replace(">\n", ">").replace("\n</", "</"), QWEN, TOOL),
        writer("glm45", glm, GLM, GLM),
        writer("glm47", glm, GLM, TOOL),
        writer("ling3", glm, GLM, TOOL),
        writer(
            "minimax_m2",
            |calls| {
                let parameter = |k: &str, v: &str| format!("<parameter name=\"{k}\">{v}</parameter>\n");
                let inner = each(calls, |n, a| format!("<invoke name=\"{n}\">\n{}</invoke>\n", members(a, parameter)));
                format!("<minimax:tool_call>\n{inner}</minimax:tool_call>")
            },
            &[
                "<minimax:tool_call>",
                "<invoke name=\"",
                "<invoke name=",
                "</invoke>",
                "<parameter name=",
                "</parameter>",
                "</minimax:tool_call>",
            ],
            &["<minimax:tool_call>", "</minimax:tool_call>"],
        ),
        writer(
            "gemma4",
            gemma,
            &["<|tool_call>", "<tool_call|>", "<|\"|>", "call:", "<|channel>", "<channel|>"],
            &["<|tool_call>", "<tool_call|>", "<|\"|>"],
        ),
        Writer {
            at_start: true,
            ..writer("pythonic", |calls| format!("[{}]", python(calls, ", ")), &["[", "now(", ")]"], &[])
        },
        Writer {
            at_start: true,
            ..writer(
                "llama4_pythonic",
                |calls| format!("<|python_start|>[{}]<|python_end|>", python(calls, ", ")),
                &["<|python_start|>", "<|python_end|>"],
                &["<|python_start|>", "<|python_end|>"],
            )
        },
        Writer {
            at_start: true,
            ..writer(
                "olmo3",
                |calls| format!("<function_calls>{}</function_calls>", python(calls, "\n")),
                &["<function_calls>", "</function_calls>"],
                &[],
            )
        },
        writer(
            "lfm2",
            |calls| format!("<|tool_call_start|>[{}]<|tool_call_end|>", python(calls, ", ")),
            &["<|tool_call_start|>", "<|tool_call_end|>"],
            &["<|tool_call_start|>", "<|tool_call_end|>"],
        ),
        writer(
            "openai",
            |calls| {
                let written = each(calls, |n, a| {
                    format!(
                        "<|start|>assistant<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{a}<|call|>"
                    )
                });
                written.trim_start_matches("<|start|>assistant").to_owned()
            },
            &[
                "<|channel|>",
                "<|start|>",
                "<|message|>",
                "<|constrain|>",
                "<|call|>",
                "<|end|>",
                "assistant",
                "analysis",
                "final",
            ],
            &["<|channel|>", "<|start|>", "<|message|>", "<|constrain|>", "<|call|>", "<|end|>"],
        ),
    ]
}

fn writer(
    name: &'static str,
    write: Write,
    fragments: &'static [&'static str],
    tokens: &'static [&'static str],
) -> Writer {
    Writer { name, write, at_start: false, fragments, tokens }
}

fn each(calls: &[(&str, &str)], write: impl Fn(&str, &str) -> String) -> String {
    calls.iter().map(|(name, arguments)| write(name, arguments)).collect()
}

fn envelopes(calls: &[(&str, &str)], key: &str, separator: &str) -> String {
    let written: Vec<String> = calls.iter().map(|(n, a)| format!("{{\"name\": \"{n}\", \"{key}\": {a}}}")).collect();
    written.join(separator)
}

/// Each member, its value as text: strings bare, the rest as JSON.
fn members(arguments: &str, write: impl Fn(&str, &str) -> String) -> String {
    let parsed = Json::parse(arguments).unwrap();
    let text = |value: &Json<'_>| value.as_str().map_or_else(|| python_dumps_unicode(value), str::to_owned);
    parsed.as_object().unwrap().iter().map(|(key, value)| write(key, &text(value))).collect()
}

fn qwen(calls: &[(&str, &str)], tag: &str) -> String {
    each(calls, |name, arguments| {
        let parameters = members(arguments, |key, value| format!("<parameter={key}>\n{value}\n</parameter>\n"));
        format!("<{tag}>\n<function={name}>\n{parameters}</function>\n</{tag}>\n")
    })
}

fn glm(calls: &[(&str, &str)]) -> String {
    each(calls, |name, arguments| {
        let pair = |key: &str, value: &str| format!("\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>");
        format!("<tool_call>{name}{}\n</tool_call>", members(arguments, pair))
    })
}

fn dsml(calls: &[(&str, &str)], block: &str, space: &str) -> String {
    let inner = each(calls, |name, arguments| {
        let parsed = Json::parse(arguments).unwrap();
        let string = |key: &str| parsed.as_object().unwrap().get(key).is_some_and(|value| value.as_str().is_some());
        let parameter = |key: &str, value: &str| {
            format!(
                "<｜DSML｜{space}parameter name=\"{key}\" string=\"{}\">{value}</｜DSML｜{space}parameter>\n",
                string(key)
            )
        };
        format!("<｜DSML｜{space}invoke name=\"{name}\">\n{}</｜DSML｜{space}invoke>\n", members(arguments, parameter))
    });
    format!("<｜DSML｜{block}>\n{inner}</｜DSML｜{block}>")
}

fn gemma(calls: &[(&str, &str)]) -> String {
    fn literal(value: &Json<'_>) -> String {
        match value {
            Json::Str(text) => format!("<|\"|>{text}<|\"|>"),
            Json::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(",")),
            Json::Object(map) => {
                let members: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", literal(value))).collect();
                format!("{{{}}}", members.join(","))
            }
            other => python_dumps_unicode(other),
        }
    }
    each(calls, |name, arguments| {
        format!("<|tool_call>call:{name}{}<tool_call|>", literal(&Json::parse(arguments).unwrap()))
    })
}

fn python(calls: &[(&str, &str)], separator: &str) -> String {
    fn literal(value: &Json<'_>) -> String {
        match value {
            Json::Null => "None".to_owned(),
            Json::Bool(true) => "True".to_owned(),
            Json::Bool(false) => "False".to_owned(),
            Json::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
            Json::Object(map) => {
                let member = |(key, value): (&str, &Json<'_>)| {
                    format!("{}: {}", python_dumps_unicode(&key.into()), literal(value))
                };
                format!("{{{}}}", map.iter().map(member).collect::<Vec<_>>().join(", "))
            }
            other => python_dumps_unicode(other),
        }
    }
    let written: Vec<String> = calls
        .iter()
        .map(|(name, arguments)| {
            let parsed = Json::parse(arguments).unwrap();
            let keywords: Vec<String> =
                parsed.as_object().unwrap().iter().map(|(k, v)| format!("{k}={}", literal(v))).collect();
            format!("{name}({})", keywords.join(", "))
        })
        .collect();
    written.join(separator)
}

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
