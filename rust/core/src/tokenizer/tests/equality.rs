//! Every combination of components that is taken, on random texts and on all kinds of code points.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::unigram::UnigramTrainer;
use tokenizers::models::wordpiece::WordPieceTrainer;

use super::super::split::KNOWN_PATTERNS;
use super::small::{CORPUS, byte_level, characters, specials, template, train, with_added_tokens};
use super::{difference, fast, oracle, texts, truncated_difference};
use crate::spec::TokenizerSpec;
use crate::tokenizer::{Tokenizer, Truncation, TruncationSide};

const CASES: u32 = 160;

/// A combination's texts, encoded by both; each twice, the second time from the caches.
fn hold(name: &str, tokenizer: &Value) {
    let json = tokenizer.to_string();
    let (ours, oracle) = (fast(json.as_bytes(), 1 << 20), oracle(json.as_bytes()));
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let bounds = (0..12_usize, any::<bool>());
    runner
        .run(&(texts::text(&specials(tokenizer)), bounds), |(text, (max_length, is_left))| {
            for _ in 0..2 {
                let found = difference(&ours, &oracle, &text);
                prop_assert!(found.is_none(), "{name}: {}", found.unwrap_or_default());
            }
            // Below two, the library subtracts past zero, which a debug build of it refuses.
            let side = if is_left { TruncationSide::Left } else { TruncationSide::Right };
            let truncation = Truncation { max_length: max_length + 2, side };
            let found = truncated_difference(&ours, &oracle, &text, truncation);
            prop_assert!(found.is_none(), "{name}: {}", found.unwrap_or_default());
            Ok(())
        })
        .unwrap();
}

fn split(pattern: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

/// Every pre-tokenizer of byte-level models that is taken.
fn byte_level_pre_tokenizers() -> Vec<Value> {
    let bytes = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
    let sequence = |steps: Vec<Value>| json!({"type": "Sequence", "pretokenizers": steps});
    let patterns = KNOWN_PATTERNS.iter().map(|(pattern, _)| *pattern);
    let mut all: Vec<Value> = patterns.clone().map(|pattern| sequence(vec![split(pattern), bytes(false)])).collect();
    // DeepSeek has the last three one after the other.
    let last_three = patterns.skip(KNOWN_PATTERNS.len() - 3).map(split);
    all.push(sequence(last_three.chain([bytes(false)]).collect()));
    all.push(sequence(vec![json!({"type": "Digits", "individual_digits": true}), bytes(true)]));
    all.push(bytes(true));
    all
}

#[test]
fn byte_level_tokenizers_equal_the_library() {
    let trained = with_added_tokens(byte_level());
    for (number, pre_tokenizer) in byte_level_pre_tokenizers().into_iter().enumerate() {
        let mut tokenizer = trained.clone();
        tokenizer["pre_tokenizer"] = pre_tokenizer;
        // Normalizer, post-processor and merges turn by turn, so that each meets many patterns.
        if number % 2 == 0 {
            tokenizer["normalizer"] = json!({"type": "NFC"});
        }
        if number % 3 > 0 {
            tokenizer["post_processor"] = template(&tokenizer);
        }
        if number % 3 == 1 {
            let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": number % 2 == 0});
            tokenizer["post_processor"] = json!({"type": "Sequence", "processors": [bytes, template(&tokenizer)]});
        }
        tokenizer["model"]["ignore_merges"] = json!(number % 4 == 3);
        hold(&tokenizer["pre_tokenizer"].to_string(), &tokenizer);
    }
}

#[test]
fn bytes_without_a_token_are_left_out() {
    let mut tokenizer = byte_level();
    // The bytes of `é` and `中`, and the merges that need them.
    let vocab = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    let gone = ["Ã", "ä", "¸"];
    vocab.retain(|piece, _| !gone.iter().any(|byte| piece.contains(byte)));
    for (id, value) in vocab.values_mut().enumerate() {
        *value = json!(id);
    }
    let merges = tokenizer["model"]["merges"].as_array_mut().unwrap();
    merges.retain(|merge| !gone.iter().any(|byte| merge.to_string().contains(byte)));
    hold("bytes without a token", &with_added_tokens(tokenizer));
}

#[test]
fn tokenizers_with_byte_fallback_equal_the_library() {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let prepend = json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]});
    let at_spaces = json!({
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false,
    });
    let metaspace =
        |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
    let trained = with_added_tokens(characters());
    for (normalizer, pre_tokenizer) in [
        (prepend, Value::Null),
        (replace, at_spaces),
        (Value::Null, metaspace("first")),
        (Value::Null, metaspace("always")),
        (Value::Null, metaspace("never")),
    ] {
        let mut tokenizer = trained.clone();
        tokenizer["normalizer"] = normalizer;
        tokenizer["pre_tokenizer"] = pre_tokenizer;
        tokenizer["post_processor"] = template(&tokenizer);
        hold(&format!("{} {}", tokenizer["normalizer"], tokenizer["pre_tokenizer"]), &tokenizer);
    }
}

/// Code points in contexts where their class decides where a text is cut.
#[test]
fn every_class_of_code_points_is_cut_as_the_library_cuts() {
    let trained = byte_level();
    let points = (0..0x3400).chain((0x3400..0x1_0000).step_by(61)).chain((0x1_0000..0x1_3000).step_by(3));
    let points = points.chain(0x1_F000..0x1_FB00).chain((0x1_3000..0x11_0000).step_by(499));
    let points: Vec<char> = points.filter_map(char::from_u32).collect();
    for pre_tokenizer in byte_level_pre_tokenizers() {
        let mut tokenizer = trained.clone();
        tokenizer["pre_tokenizer"] = pre_tokenizer;
        let json = tokenizer.to_string();
        let (ours, oracle) = (fast(json.as_bytes(), 0), oracle(json.as_bytes()));
        for some in points.chunks(16) {
            let text = some.iter().map(|c| format!("a{c}B {c}{c} 1{c}2'{c}\n{c} \n")).collect::<Vec<_>>().concat();
            let want = oracle.encode_fast(text.as_str(), false).unwrap();
            assert_eq!(
                ours.encode(&text, false, None).unwrap(),
                want.get_ids(),
                "{text:?} {}",
                tokenizer["pre_tokenizer"]
            );
        }
    }
}

#[test]
fn models_that_are_not_bpe_are_left_to_the_library() {
    let wordpiece = WordPieceTrainer::builder()
        .show_progress(false)
        .vocab_size(300)
        .special_tokens(vec![tokenizers::AddedToken::from("[UNK]", true)])
        .build();
    let unigram = UnigramTrainer::builder()
        .show_progress(false)
        .vocab_size(300)
        .special_tokens(vec![tokenizers::AddedToken::from("<unk>", true)])
        .unk_token(Some("<unk>".into()))
        .build();
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let configs = [
        (
            json!({
                "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                               "strip_accents": null, "lowercase": true},
                "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null,
                "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
                "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                          "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0}},
            }),
            TrainerWrapper::from(wordpiece),
        ),
        (
            json!({
                "normalizer": null, "pre_tokenizer": metaspace, "post_processor": null, "decoder": metaspace,
                "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]], "byte_fallback": false},
            }),
            TrainerWrapper::from(unigram.unwrap()),
        ),
    ];
    for (config, trainer) in configs {
        let mut trained = train(config, trainer);
        // What a file says of truncation and padding is another call's business.
        trained["truncation"] = json!({"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0});
        let json = trained.to_string();
        let (ours, oracle) =
            (Tokenizer::new(json.as_bytes(), &TokenizerSpec::default()).unwrap(), oracle(json.as_bytes()));
        assert!(ours.backend().starts_with("tokenizers: the model is "), "{}", ours.backend());
        for text in [CORPUS, "", "Hello the  quick fox", "\u{10ffff}"] {
            let want = oracle.encode_fast(text, true).unwrap();
            let vocabulary = oracle.get_vocab(true);
            assert_eq!(ours.encode(text, true, None).unwrap(), want.get_ids());
            assert_eq!(difference(&ours, &oracle, text), None);
            let truncation = Truncation { max_length: 4, side: TruncationSide::Left };
            assert_eq!(truncated_difference(&ours, &oracle, text, truncation), None);
            assert_eq!(ours.max_token_id(), vocabulary.values().copied().max().unwrap());
        }
    }
}
