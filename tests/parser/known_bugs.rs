//! Twenty kinds of bugs in public trackers: what is right, whole and streamed.

use fastrender_core::protocol::tools::ToolChoice;

use crate::support::{Answer, Case, calls, case};

/// The answer, whole and streamed, at every single cut.
#[track_caller]
fn expect(case: &Case, reasoning: &str, content: &str, wanted: &[(&str, &str)], reason: &str) {
    expect_both(case, (reasoning, content, wanted), (reasoning, content, wanted), reason);
}

type Wanted<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

#[track_caller]
fn expect_both(case: &Case, whole: Wanted<'_>, streamed: Wanted<'_>, reason: &str) {
    let answer = |(reasoning, content, wanted): Wanted<'_>| Answer {
        reasoning: reasoning.to_owned(),
        content: content.to_owned(),
        calls: calls(wanted),
        reason: reason.to_owned(),
    };
    assert_eq!(case.whole(), answer(whole), "whole");
    let parser = case.parser();
    for cut in 0..case.pieces().len() {
        assert_eq!(case.streamed(&parser, &[cut]).0, answer(streamed), "cut at {cut}");
    }
}

#[test]
fn p1_a_tag_split_over_chunks() {
    let text = "Sure. <tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    expect(&case("hermes", "", text), "", "Sure. ", &[("now", "{}")], "tool_calls");
}

#[test]
fn p2_what_looks_like_a_tag_is_text_in_its_place() {
    let text = "if x <| 3 use <b>bold</b> or <tool_kit>.";
    expect(&case("hermes", "", text), "", text, &[], "stop");
    expect(&case("qwen3_coder", "qwen3", text).off(), "", text, &[], "stop");
    // Only what may become a tag is held.
    let parser = case("hermes", "", "").parser();
    let chunks = case("hermes", "", "or <tool_kit>");
    let (_, deltas) = chunks.streamed(&parser, &[8]);
    assert_eq!(deltas[0].content, "or ");
    assert_eq!(deltas[1].content, "<tool_kit>");
}

#[test]
fn p3_brackets_and_quotes_in_strings() {
    let text =
        r#"[{"name": "write", "parameters": {"path": "a } b ] \" {", "body": "x"}}, {"name":"now","parameters":{}}]"#;
    let required = Case { choice: ToolChoice::Required, ..case("granite4", "", text) };
    let wanted = [("write", r#"{"path": "a } b ] \" {", "body": "x"}"#), ("now", "{}")];
    expect(&required, "", "", &wanted, "tool_calls");
}

#[test]
fn p4_a_closer_in_a_string_is_data() {
    let arguments = r#"{"path": "p", "body": "end with </tool_call> ok"}"#;
    let text = format!("<tool_call>{{\"name\": \"write\", \"arguments\": {arguments}}}</tool_call>");
    expect(&case("hermes", "", &text), "", "", &[("write", arguments)], "tool_calls");
    let tokens = ["<tool_call>", "</tool_call>"];
    expect(&case("hermes", "", &text).tokens(&tokens), "", "", &[("write", arguments)], "tool_calls");
}

#[test]
fn p5_letters_beyond_ascii_once_and_unescaped() {
    let text = r#"{"name": "get_weather", "parameters": {"city": "Münster 東京 \u00e9"}}"#;
    let wanted = [("get_weather", r#"{"city": "Münster 東京 é"}"#)];
    expect(&case("llama3_json", "", text), "", "", &wanted, "tool_calls");
}

#[test]
fn p6_null_enums_and_numbers() {
    let text = "<tool_call>\n<function=pick>\n<parameter=mode>\nnone\n</parameter>\n<parameter=note>\nnull\n</parameter>\n\
        <parameter=lit>\nnull\n</parameter>\n<parameter=n>\n1.0\n</parameter>\n</function>\n</tool_call>";
    let wanted = [("pick", r#"{"mode": "none", "note": null, "lit": "null", "n": 1}"#)];
    let case = case("qwen3_coder", "qwen3", text).off();
    expect(&case, "", "", &wanted, "tool_calls");
    // What may yet be null is not sent as a string.
    let cut = text.find("null").unwrap() + 3;
    let (_, deltas) = case.streamed(&case.parser(), &[cut]);
    let sent: String = deltas[0].calls.iter().filter_map(|call| call.arguments.clone()).collect();
    assert_eq!(sent, r#"{"mode": "none", "note": "#);
}

#[test]
fn p7_reasoning_without_end() {
    expect(&case("hermes", "qwen3", "I should consider").on().cut(), "I should consider", "", &[], "length");
}

#[test]
fn p8_a_call_without_arguments_has_empty_ones() {
    let qwen = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
    expect(&case("qwen3_coder", "qwen3", qwen).off(), "", "", &[("now", "{}")], "tool_calls");
    let llama = r#"{"name": "now", "parameters": {}}"#;
    expect(&case("llama3_json", "", llama), "", "", &[("now", "{}")], "tool_calls");
}

#[test]
fn p9_a_cut_in_the_opener_leaks_no_markup() {
    let qwen = "Let me look.\n<tool_call>\n<func";
    expect(&case("qwen3_coder", "qwen3", qwen).off().cut(), "", "Let me look.\n", &[], "length");
    let hermes = "Let me look.\n<tool_call>\n{\"na";
    expect(&case("hermes", "", hermes).cut(), "", "Let me look.\n", &[], "length");
}

#[test]
fn p10_a_cut_call_is_no_reason_to_say_that_tools_were_called() {
    let text = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOsl";
    let whole: Wanted<'_> = ("", "", &[("get_weather", "{}")]);
    let streamed: Wanted<'_> = ("", "", &[("get_weather", r#"{"city": "Osl"#)]);
    expect_both(&case("qwen3_coder", "qwen3", text).off().cut(), whole, streamed, "length");
}

#[test]
fn p11_a_call_inside_reasoning() {
    let text = "hmm <tool_call>\n<function=now>\n</function>\n</tool_call></think>done";
    let whole: Wanted<'_> = ("hmm ", "", &[("now", "{}")]);
    let streamed: Wanted<'_> = ("hmm ", "done", &[("now", "{}")]);
    expect_both(&case("qwen3_coder", "qwen3", text).on(), whole, streamed, "tool_calls");
}

#[test]
fn p12_the_end_of_reasoning_and_a_call_in_one_chunk() {
    let text = "r</think><tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    expect(&case("hermes", "qwen3", text).on(), "r", "", &[("now", "{}")], "tool_calls");
}

#[test]
fn p13_a_whole_call_in_one_chunk() {
    let tokens = [
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ];
    let text = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    for tokens in [&tokens[..], &[]] {
        expect(&case("deepseek_v31", "", text).tokens(tokens), "", "", &[("now", "{}")], "tool_calls");
    }
}

#[test]
fn p14_ids_are_unique_over_turns() {
    let text = "<tool_call>now</tool_call><tool_call>now</tool_call>";
    let glm = Case { model_type: Some("kimi_k2"), history: 1, ..case("glm47", "", text) };
    let ids = |case: &Case| -> Vec<String> {
        let message = case.with(|request| case.parser().whole(request, case.pieces(), Some("stop"))).unwrap();
        let whole: Vec<String> = message.tool_calls.into_iter().map(|call| call.id).collect();
        let (_, deltas) = case.streamed(&case.parser(), &[]);
        let streamed: Vec<String> = deltas.iter().flat_map(|d| &d.calls).filter_map(|call| call.id.clone()).collect();
        assert_eq!(whole, streamed);
        whole
    };
    assert_eq!(ids(&glm), ["functions.now:1", "functions.now:2"]);
    let kimi =
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:7<|tool_call_argument_begin|>{}<|tool_call_end|>";
    assert_eq!(ids(&Case { history: 1, ..case("kimi_k2", "", kimi) }), ["functions.now:7"]);
    // Random ids come from the seed: a call that is made again has the same.
    let again = case("glm47", "", text);
    assert_eq!(ids(&again), ids(&again));
    assert!(ids(&again)[0] != ids(&again)[1] && ids(&again)[0].starts_with("chatcmpl-tool-"));
}

#[test]
fn p15_special_tokens_are_seen_and_not_shown() {
    for (tool, reasoning) in [("qwen3_coder", "qwen3"), ("hermes", "")] {
        let hello = Case { special: vec!["<|im_end|>"], ..case(tool, reasoning, "hello<|im_end|>").off() };
        expect(&hello, "", "hello", &[], "stop");
    }
    let text = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    let special = Case { special: vec!["<tool_call>", "</tool_call>"], ..case("hermes", "", text) };
    expect(&special, "", "", &[("now", "{}")], "tool_calls");
}

#[test]
fn p16_arguments_that_were_encoded_twice() {
    let text = r#"<tool_call>{"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}</tool_call>"#;
    expect(&case("hermes", "", text), "", "", &[("get_weather", r#"{"city": "Oslo"}"#)], "tool_calls");
    let text = r#"<tool_call>{"name": "get_weather", "arguments": "{hi}"}</tool_call>"#;
    expect(&case("hermes", "", text), "", "", &[("get_weather", r#""{hi}""#)], "tool_calls");
}

#[test]
fn p17_newlines_and_spaces_of_values() {
    let text = "<function=write>\n<parameter=body>\n\ndef f():\n    return 1\n\n</parameter>\n</function>";
    let wanted = [("write", r#"{"body": "\ndef f():\n    return 1\n"}"#)];
    expect(&case("qwen3_coder", "qwen3", text).off(), "", "", &wanted, "tool_calls");
    let text = "<tool_call>write<arg_key>path</arg_key><arg_value>  x </arg_value></tool_call>";
    expect(&case("glm45", "glm45", text).off(), "", "", &[("write", r#"{"path": "  x "}"#)], "tool_calls");
}

#[test]
fn p18_blank_text_around_calls_and_blank_lines_in_prose() {
    let text = "r</think>\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n";
    expect(&case("qwen3_coder", "qwen3", text).on(), "r", "", &[("now", "{}")], "tool_calls");
    let text = "1. a\n2. b\n\n3. c";
    expect(&case("qwen3_coder", "qwen3", text).off(), "", text, &[], "stop");
}

#[test]
fn p19_text_behind_a_call() {
    let text = "A <tool_call>\n<function=now>\n</function>\n</tool_call> B";
    let whole: Wanted<'_> = ("", "A", &[("now", "{}")]);
    let streamed: Wanted<'_> = ("", "A  B", &[("now", "{}")]);
    expect_both(&case("qwen3_coder", "qwen3", text).off(), whole, streamed, "tool_calls");
}

#[test]
fn p20_tools_that_the_request_does_not_have() {
    expect(&case("glm47", "glm45", "hi <tool_call>nope</tool_call>").off(), "", "hi ", &[], "stop");
    let text = "<function=nope>\n</function>";
    expect(&case("qwen3_coder", "qwen3", text).off(), "", "", &[("nope", "{}")], "tool_calls");
    // A later valid call keeps its own index.
    let text = "<tool_call>nope</tool_call><tool_call>now</tool_call>";
    let glm = case("glm47", "glm45", text).off();
    let (_, deltas) = glm.streamed(&glm.parser(), &[]);
    assert_eq!(deltas[0].calls.iter().map(|call| call.index).collect::<Vec<_>>(), [1]);
}

#[test]
fn broken_parameters_do_not_break_the_arguments() {
    for (text, wanted) in [
        (
            "<tool_call><function=run><parameter=cmd>ls</parameter><parameter=\nx</parameter></function></tool_call>",
            r#"{"cmd": "ls"}"#,
        ),
        ("<function=run><parameter=ids: [1]</parameter></function>", "{}"),
        ("<function=run><parameter=a>1<parameter=b>2</function>", r#"{"a": "1", "b": "2"}"#),
        ("<function=run><parameter=a>1</parameter><parameter=a>2</parameter></function>", r#"{"a": "1"}"#),
    ] {
        let case = case("qwen3_coder", "", text);
        let parser = case.parser();
        for cut in 0..case.pieces().len() {
            let (answer, deltas) = case.streamed(&parser, &[cut]);
            assert_eq!(answer.calls, calls(&[("run", wanted)]), "{text} cut at {cut}");
            let sent: String = deltas[0].calls.iter().filter_map(|call| call.arguments.clone()).collect();
            assert!(wanted.starts_with(&sent), "{text} cut at {cut}: {sent}");
        }
    }
}

#[test]
fn finish_reason_and_choice() {
    let call = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    for (choice, text, finish, reason, made) in [
        (ToolChoice::None, call, "stop", "stop", 0),
        (ToolChoice::Null, call, "stop", "stop", 0),
        (ToolChoice::Auto, call, "stop", "tool_calls", 1),
        (ToolChoice::Auto, call, "length", "length", 1),
        (ToolChoice::Auto, "hi", "stop", "stop", 0),
        (ToolChoice::Required, call, "stop", "tool_calls", 1),
        (ToolChoice::Named("now".into()), call, "stop", "stop", 1),
    ] {
        let case = Case { choice: choice.clone(), finish, ..case("hermes", "", text) };
        for answer in [case.whole(), case.stream()] {
            assert_eq!((answer.reason.as_str(), answer.calls.len()), (reason, made), "{choice:?} {text} {finish}");
        }
    }
    // What is not parsed is left as it is; what is, is taken out.
    let off = Case { choice: ToolChoice::None, ..case("hermes", "", call) };
    assert_eq!(off.whole().content, call);
    let text = "x <tool_call>\n<function=now>\n</function>\n</tool_call> y";
    let off = Case { choice: ToolChoice::None, ..case("qwen3_coder", "qwen3", text).off() };
    assert_eq!((off.whole().content, off.stream().content), ("x  y".to_owned(), "x  y".to_owned()));
}

#[test]
fn only_the_first_call_where_calls_may_not_be_parallel() {
    let text = "<tool_call>now</tool_call><tool_call>now</tool_call>";
    let case = Case { parallel: Some(false), ..case("glm45", "", text) };
    assert_eq!(case.whole().calls.len(), 1);
    assert_eq!(case.stream().calls.len(), 1);
}

#[test]
fn reasoning_that_is_not_asked_for_is_not_sent() {
    let case = Case { include_reasoning: false, ..case("hermes", "qwen3", "r</think>c").on() };
    assert_eq!((case.whole().reasoning, case.whole().content), (String::new(), "c".to_owned()));
    assert_eq!((case.stream().reasoning, case.stream().content), (String::new(), "c".to_owned()));
}

#[test]
fn a_named_tool_takes_the_text_for_its_arguments() {
    let named = |text: &str| Case { choice: ToolChoice::Named("now".into()), ..case("granite4", "", text) };
    expect(&named("{\"a\": 1}"), "", "", &[("now", "{\"a\": 1}")], "stop");
    expect(&named("  "), "", "", &[], "stop");
}
