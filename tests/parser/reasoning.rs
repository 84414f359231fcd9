//! Every reasoning format by the same table.

use fastrender_core::parser::{Deltas, ParseRequest, Parser, ParserOptions, Piece};

use crate::support::{Answer, case};

/// Format, thinking on or off or as the format has it, text, reasoning, content.
const TABLE: &[(&str, Option<bool>, &str, &str, &str)] = &[
    ("qwen3", None, "<think>\nr\n</think>\n\nc", "\nr\n", "\n\nc"),
    ("qwen3", None, "r</think>c", "r", "c"),
    ("qwen3", None, "r", "r", ""),
    ("qwen3", None, "r</think>c</think>d", "r", "cd"),
    ("qwen3", Some(false), "<think>r</think>c", "", "<think>r</think>c"),
    ("mimo", None, "r</think>c", "r", "c"),
    ("seed_oss", None, "<seed:think>r</seed:think>c", "r", "c"),
    ("step3p5", Some(false), "r \n</think>\nc", "r", "\nc"),
    ("deepseek_r1", None, "<think>r\n</think>c</think>", "r\n", "c</think>"),
    ("step5", None, "r</think>c", "r", "c"),
    ("deepseek_v3", None, "r</think>c", "", "r</think>c"),
    ("deepseek_v3", Some(true), "r</think>c", "r", "c"),
    ("holo2", None, "r</think>c", "r", "c"),
    ("holo2", Some(false), "r</think>c", "", "r</think>c"),
    ("deepseek_v4", None, "r \n</think>c", "r", "c"),
    ("deepseek_v4", Some(false), "c</think>d<think>r</think>e", "r", "cde"),
    ("glm45", None, "<think>a</think>b<think>c</think>d", "ac", "bd"),
    ("glm47", Some(false), "c</think>", "", "c</think>"),
    ("ling3", None, "r</think>c", "r", "c"),
    ("kimi_k2", None, "<think>r </think>c", "r", "c"),
    ("minimax_m2", Some(false), "r\n</think>\n\nc", "r", "\n\nc"),
    ("minimax_m2_append_think", None, "r</think>c", "", "<think>r</think>c"),
    ("gemma4", None, "<|channel>thought\nr<channel|>c", "r", "c"),
    ("gemma4", None, "thought\nr<channel|>c", "r", "c"),
    ("gemma4", None, "<|channel>thought<channel|>c", "", "c"),
    ("gemma4", None, "<|channel>thorough<channel|>c", "thorough", "c"),
    ("gemma4", None, "thoughts", "", "thoughts"),
    ("mistral", None, "[THINK]r [/THINK]c", "r", "c"),
    ("mistral", None, "c", "", "c"),
    ("nemotron_v3", None, "r\n</think>c", "r", "c"),
    ("granite", None, "Here is my thought process: r Here is my response: c", " r ", " c"),
    ("granite", None, "Here's my thought process:rHere's my response:c", "r", "c"),
    ("granite", None, "Here is my answer", "", "Here is my answer"),
    ("step3", None, "r</think>c", "r", "c"),
    ("olmo3", None, "<think>r</think>c", "r", "c"),
    ("ernie45", None, "r\n</think>\n\n<response>\nc\n</response>\n", "r\n", "\n\n\nc\n\n"),
    ("hunyuan_a13b", None, "<think>\nr\n</think>\n<answer>\nc\n</answer>", "r", "c"),
    (
        "openai_gptoss",
        None,
        "<|channel|>analysis<|message|>r<|end|><|start|>assistant<|channel|>final<|message|>c",
        "r",
        "c",
    ),
];

#[test]
fn reasoning_is_told_from_content_whole_and_at_every_cut() {
    for (name, thinking, text, reasoning, content) in TABLE {
        let mut case = case("", name, text);
        case.thinking = *thinking;
        let want = Answer {
            reasoning: (*reasoning).to_owned(),
            content: (*content).to_owned(),
            calls: Vec::new(),
            reason: "stop".to_owned(),
        };
        assert_eq!(case.whole(), want, "{name} {text:?}");
        let parser = case.parser();
        for cut in 0..case.pieces().len() {
            assert_eq!(case.streamed(&parser, &[cut]).0, want, "{name} {text:?} cut at {cut}");
        }
    }
    for name in Parser::reasoning_names() {
        let tested = TABLE.iter().any(|row| row.0 == name || (name == "deepseek_v41" && row.0 == "deepseek_v4"));
        assert!(tested, "{name} is in no row of the table");
    }
}

#[test]
fn reasoning_that_is_all_there_is_becomes_the_content_where_the_template_asks_for_it() {
    let off = case("", "nemotron_v3", "only this").off();
    // Off, there is no reasoning to begin with.
    assert_eq!((off.whole().reasoning, off.whole().content), (String::new(), "only this".to_owned()));
    let options = ParserOptions { reasoning_parser: Some("nemotron_v3"), ..ParserOptions::default() };
    let parser = Parser::new(&options, &|_| None).unwrap();
    let kwargs = fastrender_core::json::Json::parse(r#"{"force_nonempty_content": true}"#).unwrap();
    let request = ParseRequest { chat_template_kwargs: kwargs.as_object(), ..ParseRequest::default() };
    let whole = parser.whole(&request, [Piece::Text("only this")], None).unwrap();
    assert_eq!((whole.reasoning, whole.content.as_deref()), (None, Some("only this")));
    let mut state = parser.start(&request);
    let mut deltas = Deltas::default();
    parser.push(&mut state, &request, [Piece::Text("only this")], &mut deltas).unwrap();
    state = parser.load(&state.save()).unwrap();
    parser.finish(&mut state, &request, &mut deltas).unwrap();
    // A stream cannot take its reasoning back.
    assert_eq!((deltas.reasoning.as_str(), deltas.content.as_str()), ("only this", "only this"));
}

#[test]
fn the_prompt_says_where_an_answer_begins() {
    const TOKENS: [&str; 9] = [
        "<think>",
        "</think>",
        "<|im_start|>",
        "<|im_end|>",
        "<|channel>",
        "<channel|>",
        "<|turn>",
        "<｜User｜>",
        "<|user|>",
    ];
    let id = |text: &str| TOKENS.iter().position(|token| *token == text).map(|at| u32::try_from(at).unwrap());
    for (name, prompt, ended, reasons) in [
        ("qwen3", &["<|im_start|>", "<think>"][..], false, true),
        ("qwen3", &["<|im_start|>", "<think>", "</think>"], true, false),
        // What an earlier turn closed is of no account.
        ("qwen3", &["<think>", "</think>", "<|im_end|>", "<|im_start|>"], false, true),
        ("deepseek_r1", &["<think>", "</think>", "<｜User｜>"], false, true),
        ("deepseek_r1", &["<｜User｜>", "</think>"], true, false),
        ("glm45", &["<|user|>", "<think>", "</think>"], true, false),
        ("gemma4", &["<|turn>", "<|channel>"], false, true),
        ("gemma4", &["<|channel>", "<|turn>"], false, false),
        ("step3", &["</think>"], true, false),
    ] {
        let options = ParserOptions { reasoning_parser: Some(name), ..ParserOptions::default() };
        let parser = Parser::new(&options, &id).unwrap();
        let ids: Vec<u32> = prompt.iter().map(|token| id(token).unwrap()).collect();
        let request = ParseRequest { prompt_ids: Some(&ids), ..ParseRequest::default() };
        assert_eq!(parser.reasoning_ended(&request), Some(ended), "{name} {prompt:?}");
        let whole = parser.whole(&request, [Piece::Text("half a thou")], Some("length")).unwrap();
        assert_eq!(whole.reasoning.is_some(), reasons, "{name} {prompt:?}");
    }
    let none = Parser::new(&ParserOptions::default(), &id).unwrap();
    assert_eq!(none.reasoning_ended(&ParseRequest::default()), None);
}
