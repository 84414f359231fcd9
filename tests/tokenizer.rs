//! Ids, offsets and text against `tokenizers` 0.23, which `Tokenizer::general` is.
//!
//! Small tokenizers are trained here; the real ones of ../shared/assets (or `$FASTRENDER_SHARED`) are held too where
//! they are.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastrender_core::spec::TokenizerSpec;
use fastrender_core::tokenizer::{Tokenizer, Truncation, TruncationSide};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// The tokenizer inside the package: byte-level BPE with NFC and two dozen added tokens.
const EMBEDDED: &[u8] = include_bytes!("../python/fastrender/embedded/tokenizer.json");
const ADDED: [&str; 6] = ["<|im_start|>", "<|im_end|>", "<|image_pad|>", "<think>", "</tool_call>", "<|endoftext|>"];

fn spec() -> TokenizerSpec {
    TokenizerSpec { cache_bytes: 1 << 20, ..TokenizerSpec::default() }
}

/// Texts that tokenizers stumble over: whitespace runs, marks newer than Unicode 9, control tokens, long words.
fn hostile_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[ -~]{0,12}",
        2 => "\\PC{0,8}",
        2 => proptest::collection::vec(any::<char>(), 0..6).prop_map(String::from_iter),
        3 => prop::sample::select(vec![
            " ", "  ", "\n", "\r\n", "\t", "\u{a0}", "\u{3000}", "\u{2028}", "\u{85}", "é", "e\u{301}", "\u{1df6}\u{323}",
            "\u{11935}\u{11930}", "한국어", "\u{1112}\u{1161}\u{11ab}", "数据", "परीक्षण", "क\u{94d}\u{93c}", "ſ", "'S", "'ll", "🦜",
            "👩\u{200d}👩\u{200d}👧", "\u{feff}", "½", "١٢٣", "\0", "\u{7f}",
        ]).prop_map(str::to_owned),
        2 => prop::sample::select(ADDED.to_vec()).prop_map(str::to_owned),
        1 => ("[a-z0-9 =中é]", 1..400usize).prop_map(|(unit, times)| unit.repeat(times)),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

fn truncation() -> impl Strategy<Value = Option<Truncation>> {
    let side = prop_oneof![Just(TruncationSide::Left), Just(TruncationSide::Right)];
    proptest::option::of((0..40usize, side).prop_map(|(max_length, side)| Truncation { max_length, side }))
}

fn hold(ours: &Tokenizer, oracle: &Tokenizer, text: &str, add: bool, truncation: Option<Truncation>) {
    let ids = ours.encode(text, add, truncation).unwrap();
    let want = oracle.encode_with_offsets(text, add, truncation).unwrap();
    assert_eq!(ids, want.ids, "{text:?}");
    assert_eq!(ours.encode_with_offsets(text, add, truncation).unwrap(), want, "{text:?}");
    // A second time, from the caches.
    assert_eq!(ours.encode(text, add, truncation).unwrap(), want.ids, "{text:?}");
    for skip in [false, true] {
        assert_eq!(ours.decode(&ids, skip).unwrap(), oracle.decode(&ids, skip).unwrap(), "{text:?}");
    }
}

#[test]
fn the_embedded_tokenizer_equals_the_library() {
    let oracle = Tokenizer::general(EMBEDDED, &spec()).unwrap();
    let early = Tokenizer::new(EMBEDDED, &TokenizerSpec::default()).unwrap();
    let late = Tokenizer::new(EMBEDDED, &spec()).unwrap();
    assert!(late.backend().starts_with("fast"), "{}", late.backend());
    assert!(late.finish_loading(), "the faster encoder was refused");
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    runner
        .run(&(hostile_text(), any::<bool>(), truncation()), |(text, add, truncation)| {
            hold(&early, &oracle, &text, add, truncation);
            hold(&late, &oracle, &text, add, truncation);
            Ok(())
        })
        .unwrap();
}

#[test]
fn threads_with_different_truncation_do_not_disturb_each_other() {
    let tokenizer = Tokenizer::new(EMBEDDED, &spec()).unwrap();
    let text = "one two three four five six seven eight nine ten <|im_end|> ".repeat(8);
    let whole = tokenizer.encode(&text, false, None).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (tokenizer, text, whole) = (&tokenizer, &text, &whole);
            scope.spawn(move || {
                for round in 0..200 {
                    let max_length = (thread * 7 + round) % 30 + 1;
                    let truncation = Truncation { max_length, side: TruncationSide::Left };
                    let cut = tokenizer.encode(text, false, (round % 3 > 0).then_some(truncation)).unwrap();
                    let want = if round % 3 > 0 { &whole[whole.len() - max_length..] } else { &whole[..] };
                    assert_eq!(cut, want);
                }
            });
        }
    });
}

#[test]
fn a_repeated_conversation_costs_its_new_tail() {
    let tokenizer = Tokenizer::new(EMBEDDED, &spec()).unwrap();
    let turn = |i: usize| {
        format!("<|im_start|>user\n{}<|im_end|>\n", format!("turn {i} says something of its own ").repeat(20))
    };
    let mut conversation = String::new();
    for i in 0..20 {
        conversation.push_str(&turn(i));
        tokenizer.encode(&conversation, false, None).unwrap();
    }
    let before = tokenizer.cache_stats();
    conversation.push_str(&turn(20));
    tokenizer.encode(&conversation, false, None).unwrap();
    let after = tokenizer.cache_stats();
    assert_eq!(after.misses - before.misses, 1, "only the new turn is encoded");
    assert!(after.hits - before.hits >= 20);
    assert!(after.bytes <= 1 << 20);
}

#[test]
fn broken_files_are_refused_with_a_sentence() {
    for broken in [&b"{"[..], b"", b"{}", b"[]", br#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}"#]
    {
        let Err(error) = Tokenizer::new(broken, &spec()) else { panic!("{broken:?} was accepted") };
        assert!(!error.to_string().is_empty());
    }
}

fn assets() -> Option<PathBuf> {
    let shared = std::env::var_os("FASTRENDER_SHARED").map(PathBuf::from);
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    Some(shared.unwrap_or(beside).join("assets")).filter(|folder| folder.is_dir())
}

#[test]
fn real_tokenizers_equal_the_library() {
    let Some(assets) = assets() else {
        eprintln!("skipped: there is no ../shared/assets");
        return;
    };
    // One of each kind: loading all 26 takes minutes.
    for name in ["glm-4.5", "gpt-oss", "granite-3.3", "llama2", "llama3.1", "phi-3", "qwen3", "t5-small"] {
        let folder = assets.join(name);
        let file = std::fs::read(folder.join("tokenizer.json")).unwrap();
        let ours = Tokenizer::new(&file, &spec()).unwrap();
        let oracle = Tokenizer::general(&file, &spec()).unwrap();
        ours.finish_loading();
        let mut runner = TestRunner::new(Config { cases: 10_000, failure_persistence: None, ..Config::default() });
        let started = Instant::now();
        let strategy = (hostile_text(), any::<bool>(), truncation());
        let run = runner.run(&strategy, |(text, add, truncation)| {
            // Bounded in time, not in cases: the library is slow, and slower still on a busy machine.
            if started.elapsed() < Duration::from_secs(1) {
                hold(&ours, &oracle, &text, add, truncation);
            }
            Ok(())
        });
        assert!(run.is_ok(), "{}: {run:?}", folder.display());
    }
}
