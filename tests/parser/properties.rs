//! What holds for every format and every text: chunks do not matter, states can be saved, nothing panics, nothing is slow.

use std::time::{Duration, Instant};

use fastrender_core::parser::{Deltas, Parser, Piece};
use proptest::prelude::*;

use crate::support::{Answer, Case, case};
use crate::writers::{Writer, writers};

const REASONING: [&str; 6] = ["", "qwen3", "deepseek_r1", "glm45", "gemma4", "mistral"];

/// So many cases, or `$FASTRENDER_PROPTEST_FACTOR` times as many.
fn cases(number: u32) -> u32 {
    let factor = std::env::var("FASTRENDER_PROPTEST_FACTOR").ok().and_then(|factor| factor.parse().ok());
    number * factor.unwrap_or(1)
}

/// Fragments that formats are made of, and such that are almost that.
fn fragments() -> Vec<String> {
    let mut all: Vec<String> =
        writers().iter().flat_map(|writer| writer.fragments.iter().map(|text| (*text).to_owned())).collect();
    for text in [
        "<think>",
        "</think>",
        "<",
        "</",
        "<tool",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        "'",
        "(",
        ")",
        ":",
        ",",
        "=",
        ">",
        " ",
        "\n",
        "{\"name\": \"now\", \"arguments\": {}}",
        "\"name\"",
        "\"arguments\"",
        "now",
        "get_weather",
        "a",
        "é",
        "日本",
        "\\u00e9",
        "\\ud83d\\ude00",
        "functions.now:0",
        "3",
        "null",
        "true",
        "name=\"city\"",
        "string=\"true\"",
        "days",
        "city",
        "f(",
        "x=",
        "[now()]",
        "call:now{",
        "<|\"|>",
        "; ",
        "```",
        "thought\n",
    ] {
        all.push(text.to_owned());
    }
    all.sort();
    all.dedup();
    all
}

fn soup() -> impl Strategy<Value = String> {
    let fragments = fragments();
    prop::collection::vec(prop::sample::select(fragments), 0..24).prop_map(|parts| parts.concat())
}

/// Text that is mostly of one format.
fn soup_of(writer: &Writer) -> impl Strategy<Value = String> + use<> {
    let own: Vec<String> = writer.fragments.iter().map(|text| (*text).to_owned()).collect();
    let call = (writer.write)(&[("get_weather", r#"{"city": "Os}lo", "days": 3}"#)]);
    let any = prop::sample::select(fragments());
    let part = prop_oneof![4 => prop::sample::select(own), 2 => any, 1 => Just(call)];
    prop::collection::vec(part, 0..16).prop_map(|parts| parts.concat())
}

fn at_cuts(case: &Case, parser: &Parser, cuts: &[usize]) -> Answer {
    case.streamed(parser, cuts).0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(24), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_in_any_chunks_gives_the_same(text in soup(), which in 0..writers().len(), reasoning in 0..REASONING.len(), cuts in prop::collection::vec(0..120usize, 0..6), tokens in any::<bool>()) {
        check_chunks(&writers()[which], REASONING[reasoning], &text, cuts, tokens)?;
    }
}

fn check_chunks(
    writer: &Writer,
    reasoning: &'static str,
    text: &str,
    mut cuts: Vec<usize>,
    tokens: bool,
) -> Result<(), TestCaseError> {
    let mut case = case(writer.name, reasoning, text);
    if tokens {
        case = case.tokens(writer.tokens);
    }
    let parser = case.parser();
    let once = at_cuts(&case, &parser, &[]);
    let every: Vec<usize> = (0..case.pieces().len()).collect();
    prop_assert_eq!(
        &at_cuts(&case, &parser, &every),
        &once,
        "{} {:?} char by char: {:?}",
        writer.name,
        reasoning,
        text
    );
    cuts.sort_unstable();
    prop_assert_eq!(
        &at_cuts(&case, &parser, &cuts),
        &once,
        "{} {:?} at {:?}: {:?}",
        writer.name,
        reasoning,
        cuts,
        text
    );
    // A whole text is the same machine: the same calls are begun.
    let whole = case.whole();
    // Where one is broken, and a format is all or nothing, the text is left as it is.
    let spoilt = whole.calls.is_empty() && !whole.content.is_empty() && text.ends_with(&whole.content);
    if !spoilt && !matches!(writer.name, "llama3_json" | "olmo3" | "hunyuan_a13b") {
        let names = |calls: &[(String, String)]| calls.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        prop_assert_eq!(names(&whole.calls), names(&once.calls), "{} {:?} whole: {:?}", writer.name, reasoning, text);
    }
    Ok(())
}

#[test]
fn mostly_well_formed_text_in_any_chunks_gives_the_same() {
    for writer in writers() {
        let config = ProptestConfig { cases: cases(40), failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let input = (soup_of(&writer), 0..REASONING.len(), prop::collection::vec(0..120usize, 0..6), any::<bool>());
        let result = runner.run(&input, |(text, reasoning, cuts, tokens)| {
            check_chunks(&writer, REASONING[reasoning], &text, cuts, tokens)
        });
        if let Err(error) = result {
            panic!("{}: {error}", writer.name);
        }
    }
}

#[test]
fn every_cut_and_every_pair_of_cuts_gives_the_same() {
    for writer in writers() {
        let text = (writer.write)(&[("write", r#"{"path": "a}\"b"}"#), ("now", "{}")]);
        for tokens in [&[][..], writer.tokens] {
            let case = case(writer.name, "", &text).tokens(tokens);
            let parser = case.parser();
            let once = case.streamed(&parser, &[]).0;
            let length = case.pieces().len();
            for first in 0..length {
                // Pairs near each other are where markers are; far ones are single cuts in effect.
                for second in first..length.min(first + 24) {
                    assert_eq!(
                        case.streamed(&parser, &[first, second]).0,
                        once,
                        "{} cut at {first} and {second}",
                        writer.name
                    );
                }
            }
        }
    }
}

#[test]
fn arguments_sent_are_a_prefix_of_the_final_ones() {
    for writer in writers() {
        let text = (writer.write)(&[("get_weather", r#"{"city": "Os\"}lo é\n", "days": 3, "near": ["a", "b"]}"#)]);
        let case = case(writer.name, "", &text);
        let parser = case.parser();
        let last = case.stream().calls[0].1.clone();
        let pieces = case.pieces();
        case.with(|request| {
            let mut state = parser.start(request);
            let mut sent = String::new();
            for piece in pieces {
                let mut deltas = Deltas::default();
                parser.push(&mut state, request, [piece], &mut deltas).unwrap();
                sent.extend(deltas.calls.iter().filter_map(|call| call.arguments.clone()));
                assert!(last.starts_with(&sent), "{}: {sent} is no beginning of {last}", writer.name);
            }
        });
    }
}

#[test]
fn an_answer_cut_anywhere_keeps_its_text_and_shows_no_markup() {
    for writer in writers() {
        let call = (writer.write)(&[("get_weather", r#"{"city": "Oslo", "days": 3}"#)]);
        let before = if writer.at_start || writer.name == "openai" { "" } else { "Let me look." };
        let text = format!("{before}{call}");
        for (end, _) in text.char_indices().skip(before.len()) {
            let case = case(writer.name, "", &text[..end]).cut();
            let parser = case.parser();
            let once = case.streamed(&parser, &[]).0;
            assert!(once.content.starts_with(before), "{} cut at {end}: {once:?}", writer.name);
            let opener = writer.fragments[0];
            // What also stands in prose is not markup by itself.
            assert!(
                writer.at_start || writer.name == "phi4_mini_json" || !once.content.contains(opener),
                "{} cut at {end}: {once:?}",
                writer.name
            );
            assert_eq!(once.reason, "length");
            let every: Vec<usize> = (0..case.pieces().len()).collect();
            assert_eq!(case.streamed(&parser, &every).0, once, "{} cut at {end}", writer.name);
            let whole = case.whole();
            assert_eq!(whole.calls.len(), once.calls.len(), "{} cut at {end}: {whole:?} {once:?}", writer.name);
        }
    }
}

/// How long a call with one long string takes, passed on in parts of `size` bytes.
fn time_of(writer: &Writer, bytes: usize, size: usize) -> Duration {
    let arguments = format!(r#"{{"path": "x", "body": "{}"}}"#, "word ".repeat(bytes / 5));
    let text = (writer.write)(&[("write", &arguments)]);
    let case = case(writer.name, "", "");
    let parser = case.parser();
    case.with(|request| {
        let started = Instant::now();
        let mut state = parser.start(request);
        let mut total = 0;
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let end = (size.min(rest.len())..=rest.len()).find(|end| rest.is_char_boundary(*end)).unwrap();
            let mut deltas = Deltas::default();
            parser.push(&mut state, request, [Piece::Text(&rest[..end])], &mut deltas).unwrap();
            total += deltas.calls.iter().filter_map(|call| call.arguments.as_ref()).map(String::len).sum::<usize>();
            rest = &rest[end..];
        }
        assert!(total > bytes, "{}: {total} of {bytes} bytes were passed on", writer.name);
        started.elapsed()
    })
}

#[test]
fn a_long_argument_takes_time_in_proportion() {
    for writer in writers() {
        let short = time_of(&writer, 1 << 17, 8);
        let long = time_of(&writer, 1 << 20, 8);
        // Eight times the text; the square of it would be 64 times the time.
        assert!(long < short * 24 + Duration::from_millis(200), "{}: {short:?}, then {long:?}", writer.name);
    }
}

#[test]
fn floods_are_linear_and_bounded() {
    let floods: [(&str, String); 8] = [
        ("pythonic", format!("[f({}", "a1=1, ".repeat(40))),
        ("hermes", format!("<tool_call>{}", " ".repeat(60_000))),
        ("kimi_k2", "<|tool_call_begin|>".repeat(50_000)),
        ("qwen3_coder", "<tool_call>".repeat(50_000)),
        ("qwen3_coder", format!("<function=f>{}", "<parameter=a>".repeat(50_000))),
        ("glm45", "<arg_key>".repeat(50_000)),
        ("llama3_json", "{".repeat(100_000)),
        ("gemma4", format!("<|tool_call>call:now{{a:{}", "[".repeat(50_000))),
    ];
    for (name, text) in floods {
        let case = case(name, "", "");
        let parser = case.parser();
        case.with(|request| {
            let started = Instant::now();
            let mut state = parser.start(request);
            let mut deltas = Deltas::default();
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let end = rest.len().min(7);
                if parser.push(&mut state, request, [Piece::Text(&rest[..end])], &mut deltas).is_err() {
                    break;
                }
                rest = &rest[end..];
            }
            assert!(state.save().len() < 300_000, "{name}: {} bytes", state.save().len());
            assert!(started.elapsed() < Duration::from_secs(20), "{name}: {:?}", started.elapsed());
        });
    }
}

#[test]
fn a_value_that_must_be_held_is_bounded() {
    let text = format!("<function=get_weather>\n<parameter=days>{}", "1".repeat(70_000));
    let case = case("qwen3_coder", "", &text);
    case.with(|request| {
        let mut state = case.parser().start(request);
        let error = case.parser().push(&mut state, request, [Piece::Text(&text)], &mut Deltas::default()).unwrap_err();
        assert_eq!(error.status(), 400);
        // A whole text is in memory anyway.
        assert!(case.parser().whole(request, [Piece::Text(&text)], None).is_ok());
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(300), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_state_from_outside_makes_it_panic(
        text in soup(), more in soup(), which in 0..writers().len(), edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let case = case(writers()[which].name, "qwen3", &text);
        let parser = case.parser();
        case.with(|request| {
            let mut state = parser.start(request);
            let _ = parser.push(&mut state, request, case.pieces(), &mut Deltas::default());
            let mut bytes = state.save();
            for (place, byte) in &edits {
                let place = place.index(bytes.len());
                bytes[place] = *byte;
            }
            if let Ok(mut state) = parser.load(&bytes) {
                let mut deltas = Deltas::default();
                let _ = parser.push(&mut state, request, [Piece::Text(&more)], &mut deltas);
                let _ = parser.finish(&mut state, request, &mut deltas);
            }
            let _ = parser.load(&edits.iter().map(|(_, byte)| *byte).collect::<Vec<_>>());
        });
    }

    /// Numbers and words of a state, each replaced by another that fits its place.
    #[test]
    fn no_plausible_state_makes_it_panic(text in soup(), more in soup(), which in 0..writers().len(), pick in any::<prop::sample::Index>(), number in any::<u32>(), word in soup()) {
        let case = case(writers()[which].name, "gemma4", &text);
        let parser = case.parser();
        case.with(|request| {
            let mut state = parser.start(request);
            let _ = parser.push(&mut state, request, case.pieces(), &mut Deltas::default());
            let mut value: serde_json::Value = serde_json::from_slice(&state.save()).unwrap();
            let mut leaves = Vec::new();
            collect(&value, String::new(), &mut leaves);
            let path = &leaves[pick.index(leaves.len())];
            let leaf = value.pointer_mut(path).unwrap();
            *leaf = match leaf {
                serde_json::Value::Number(_) => number.into(),
                serde_json::Value::Bool(flag) => (!*flag).into(),
                _ => word.clone().into(),
            };
            for phase in ["Reasoning", "Content", "Preamble", "Name", "Arguments", "Between", "Key", "ValueOpen", "Value", "Trailer", "List", "Object", "AfterBare", "Python", "Literal", "Harmony", "Named", "Echo", "Held"] {
                value["machine"]["phase"] = phase.into();
                if let Ok(mut state) = parser.load(&serde_json::to_vec(&value).unwrap()) {
                    let mut deltas = Deltas::default();
                    let _ = parser.push(&mut state, request, [Piece::Text(&more), Piece::Token { text: "</think>", special: true }], &mut deltas);
                    let _ = parser.finish(&mut state, request, &mut deltas);
                }
            }
        });
    }
}

fn collect(value: &serde_json::Value, path: String, out: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            map.iter().for_each(|(key, value)| collect(value, format!("{path}/{key}"), out));
        }
        serde_json::Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, value)| collect(value, format!("{path}/{i}"), out));
        }
        _ => out.push(path),
    }
}
