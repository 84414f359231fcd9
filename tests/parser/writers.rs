//! What models of each format would write.

use fastrender_core::json::{Json, python_dumps_unicode};

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

pub(crate) fn writers() -> Vec<Writer> {
    let mut all = in_json();
    all.extend(in_tags());
    all.extend(in_syntax_of_their_own());
    all
}

fn in_json() -> Vec<Writer> {
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
    ]
}

fn in_tags() -> Vec<Writer> {
    vec![
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
    ]
}

fn in_syntax_of_their_own() -> Vec<Writer> {
    vec![
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
