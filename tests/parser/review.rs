//! Faults that comparing with the reference on thousands of made outputs brought up, one test each.

use fastrender_core::protocol::tools::ToolChoice;

use crate::support::{Case, calls, case};

/// The calls of a text, whole and streamed at each cut.
#[track_caller]
fn expect_calls(case: &Case, wanted: &[(&str, &str)]) {
    assert_eq!(case.whole().calls, calls(wanted), "whole");
    let parser = case.parser();
    let every: Vec<usize> = (0..case.pieces().len()).collect();
    assert_eq!(case.streamed(&parser, &every).0.calls, calls(wanted), "piece by piece");
    for cut in every {
        assert_eq!(case.streamed(&parser, &[cut]).0.calls, calls(wanted), "cut at {cut}");
    }
}

#[test]
fn arguments_that_are_no_object_end_where_they_end_at_every_cut() {
    for value in ["null", "5", "-1.5e3", "true", "\"x\"", "[1, \"}\"]"] {
        for (name, text) in [
            ("hermes", format!("<tool_call>{{\"name\": \"now\", \"arguments\": {value}}}</tool_call>")),
            ("granite4", format!("<tool_call>{{\"name\": \"now\", \"arguments\": {value} }}</tool_call>")),
            ("granite", format!("<|tool_call|>[{{\"name\": \"now\", \"arguments\": {value}}}]")),
            ("jamba", format!("<tool_calls>[{{\"name\": \"now\", \"arguments\": {value}}}]</tool_calls>")),
            ("llama3_json", format!("{{\"name\": \"now\", \"parameters\": {value}}}")),
            ("xlam", format!("[{{\"name\": \"now\", \"arguments\": {value}}}]")),
        ] {
            let case = case(name, "", &text);
            let parser = case.parser();
            for cut in 0..case.pieces().len() {
                let (answer, _) = case.streamed(&parser, &[cut]);
                assert_eq!(answer.calls, calls(&[("now", value)]), "{name} cut at {cut}: {text}");
            }
        }
    }
}

#[test]
fn a_call_that_breaks_off_makes_a_whole_answer_text() {
    for text in [
        // A quote too many in the name, a key that never ends, a call within a call.
        "A <tool_call>{\"name\": \"noarguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"now\", \"argument: {}}\n</tool_call><tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\":<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
        // The second is none, and would be lost; so would a member that is not the arguments.
        "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call><tool_call>{\"nome\": \"now\"}</tool_call>",
        "<tool_call>{\"name\": \"now\", \"argts\": {\"a\": 1}}</tool_call>",
        "<tool_call>{\"name\": \"now\", \"arguments\": {}}\nand more</tool_call>",
    ] {
        let case = case("hermes", "", text).tokens(&["<tool_call>", "</tool_call>"]);
        let whole = case.whole();
        assert_eq!((whole.content.as_str(), whole.calls.len()), (text, 0));
        assert_eq!(whole.reason, "stop");
    }
    // A brace too many or too few loses nothing.
    for text in [
        "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}}}</tool_call>",
        "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}</tool_call>",
    ] {
        expect_calls(&case("hermes", "", text).tokens(&["<tool_call>", "</tool_call>"]), &[("now", "{\"a\": 1}")]);
    }
}

#[test]
fn the_arguments_of_a_named_tool_are_what_the_model_wrote() {
    for text in
        ["I will not.", " {\"a\":1,\"b\":\"\\u00e9\"}\n", "{\"a\": ", "<tool_call>{\"name\": \"now\"}</tool_call>"]
    {
        let named = Case { choice: ToolChoice::Named("now".into()), ..case("granite4", "", text) };
        expect_calls(&named, &[("now", text)]);
    }
}

#[test]
fn a_forced_call_that_is_blank_leaves_no_content() {
    for tool in ["hermes", "qwen3_coder", "granite4"] {
        for choice in [ToolChoice::Required, ToolChoice::Named("now".into())] {
            let blank = Case { choice, ..case(tool, "", " \n") };
            assert_eq!(blank.whole().content, "", "{tool}");
        }
    }
}

#[test]
fn a_closer_of_reasoning_behind_a_call_without_closer_is_no_text() {
    let tokens = ["[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]"];
    let case = case("mistral", "mistral", "[THINK]hmm [TOOL_CALLS]now[ARGS]{}[/THINK]done").tokens(&tokens);
    let parser = case.parser();
    for cut in 0..case.pieces().len() {
        let answer = case.streamed(&parser, &[cut]).0;
        assert_eq!((answer.reasoning.as_str(), answer.content.as_str()), ("hmm", "done"), "cut at {cut}");
        assert_eq!(answer.calls, calls(&[("now", "{}")]));
    }
}

#[test]
fn the_qwen_formats_swallow_a_closer_of_reasoning_that_is_off() {
    let stray = case("qwen3_coder", "qwen3", "x</think>b").off();
    assert_eq!((stray.whole().content, stray.stream().content), ("xb".to_owned(), "xb".to_owned()));
    // With hermes, or without a reasoning parser, it is text.
    for other in [case("hermes", "qwen3", "x</think>b").off(), case("qwen3_coder", "", "x</think>b")] {
        assert_eq!((other.whole().content, other.stream().content), ("x</think>b".to_owned(), "x</think>b".to_owned()));
    }
}

#[test]
fn deepseek_v32_leaves_its_markup_where_no_tool_may_be_called() {
    let text = "A <｜DSML｜function_calls><｜DSML｜invoke name=\"now\"></｜DSML｜invoke></｜DSML｜function_calls>";
    let none = Case { choice: ToolChoice::None, ..case("deepseek_v32", "", text) };
    assert_eq!((none.whole().content.as_str(), none.stream().content.as_str()), (text, text));
}

#[test]
fn text_around_calls_of_python_formats_is_kept() {
    let lfm2 = case("lfm2", "", "A\n<|tool_call_start|>[now()]<|tool_call_end|>\n B");
    assert_eq!(lfm2.whole().content, "A\nB");
    let pythonic = case("pythonic", "", "[now()]\nDone.");
    assert_eq!((pythonic.whole().content.as_str(), pythonic.whole().calls.len()), ("\nDone.", 1));
}

#[test]
fn a_list_of_names_is_no_call() {
    let text = r#"[{"name": "Ada"}, {"name": "Bob"}]"#;
    let case = case("xlam", "", text);
    for answer in [case.whole(), case.stream()] {
        assert_eq!((answer.content.as_str(), answer.calls.len()), (text, 0));
    }
}

#[test]
fn parameters_for_arguments_are_not_lost() {
    for (name, open, close) in [
        ("granite4", "<tool_call>", "</tool_call>"),
        ("jamba", "<tool_calls>[", "]</tool_calls>"),
        ("hunyuan_a13b", "<tool_calls>[", "]</tool_calls>"),
        ("ernie45", "<tool_call>", "</tool_call>"),
    ] {
        let text = format!("{open}{{\"name\": \"now\", \"parameters\": {{\"a\": 1}}}}{close}");
        expect_calls(&case(name, "", &text), &[("now", "{\"a\": 1}")]);
    }
}
