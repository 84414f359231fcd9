//! Small tokenizers, trained here, with every combination of components that is taken.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::BpeTrainer;
use tokenizers::models::unigram::UnigramTrainer;
use tokenizers::models::wordpiece::WordPieceTrainer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::super::split::KNOWN_PATTERNS;
use super::{difference, fast, oracle, texts, truncated_difference};
use crate::spec::{AddedTokenSpec, PrependScheme, TokenizerSpec};
use crate::tokenizer::{Tokenizer, Truncation, TruncationSide};

const CASES: u32 = 160;

/// What the tokenizers are trained on.
const CORPUS: &str = "The quick brown fox jumps over the lazy dog. Hello world, hello there! Don't you think it's theirs? \
    We'll see; they've seen 1234567 of 2024's 365 days, 50% done.\n\n    def hello(self, world):\n\t\treturn self.world + 1\n\
    HTTPServer camelCase snake_case === --> // /* comment */ {\"a\": [1, 2, 3]}\r\n\
    日本語の文章です。中文字符也在这里。한국어 문장입니다. Русский текст тоже здесь. العربية هنا. हिन्दी यहाँ है। ไทยอยู่ที่นี่ é è ü ñ 😀👍🏽🎉 \
    the of a to in the of a to in the the the of of of          spaces and spaces";

fn train(mut config: Value, mut trainer: TrainerWrapper) -> Value {
    config["version"] = json!("1.0");
    config["added_tokens"] = json!([]);
    let mut tokenizer = oracle(config.to_string().as_bytes());
    let lines: Vec<&str> = CORPUS.split_inclusive(['.', '\n']).flat_map(|line| [line; 4]).collect();
    tokenizer.train(&mut trainer, lines.into_iter()).unwrap();
    serde_json::from_str(&tokenizer.to_string(false).unwrap()).unwrap()
}

fn bpe_model(byte_fallback: bool) -> Value {
    json!({
        "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
        "fuse_unk": false, "byte_fallback": byte_fallback, "ignore_merges": false, "vocab": {}, "merges": [],
    })
}

fn byte_level() -> Value {
    let mut trainer = BpeTrainer::builder().show_progress(false).vocab_size(700).min_frequency(1).build();
    trainer.initial_alphabet = ByteLevel::alphabet();
    let config = json!({
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": bpe_model(false),
    });
    train(config, trainer.into())
}

fn characters() -> Value {
    let trainer = BpeTrainer::builder().show_progress(false).vocab_size(400).min_frequency(1).build();
    let config = json!({
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": bpe_model(true),
    });
    let mut trained = train(config, trainer.into());
    let vocab = trained["model"]["vocab"].as_object_mut().unwrap();
    for byte in 0..256 {
        let id = vocab.len();
        vocab.insert(format!("<0x{byte:02X}>"), json!(id));
    }
    trained
}

/// Added tokens with every flag, numbered behind the vocabulary.
fn with_added_tokens(mut tokenizer: Value) -> Value {
    let first = tokenizer["model"]["vocab"].as_object().unwrap().len();
    let flags = [
        ("<|im_start|>", "s"),
        ("<|im_end|>", "s"),
        ("<tool>", ""),
        ("<tool>>", ""),
        ("<mask>", "ls"),
        ("<right>", "r"),
        ("<both>", "lrs"),
        ("word", "w"),
        ("<normal>", "n"),
        ("e\u{301}x", "n"),
        ("<strip> ", "nlr"),
        ("Ġ", "s"),
    ];
    let added = flags.iter().zip(first..).map(|(&(content, flags), id)| {
        json!({
            "id": tokenizer["model"]["vocab"].get(content).cloned().unwrap_or_else(|| json!(id)), "content": content,
            "special": flags.contains('s'), "lstrip": flags.contains('l'), "rstrip": flags.contains('r'),
            "single_word": flags.contains('w'), "normalized": flags.contains('n'),
        })
    });
    tokenizer["added_tokens"] = added.collect();
    tokenizer
}

fn specials(tokenizer: &Value) -> Vec<String> {
    let contents = tokenizer["added_tokens"].as_array().unwrap().iter().map(|token| token["content"].as_str().unwrap());
    contents.map(str::to_owned).collect()
}

fn template(tokenizer: &Value) -> Value {
    let id = &tokenizer["added_tokens"][0]["id"];
    json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "bos", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                   {"SpecialToken": {"id": "bos", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"bos": {"id": "bos", "ids": [id], "tokens": ["<|im_start|>"]}},
    })
}

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
            let text: String = some.iter().map(|c| format!("a{c}B {c}{c} 1{c}2'{c}\n{c} \n")).collect();
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

#[test]
fn tokens_of_other_files_are_added_as_the_library_adds_them() {
    let json = with_added_tokens(byte_level()).to_string();
    let token = |content: &str, special: bool, normalized: bool| AddedTokenSpec {
        id: 0,
        content: content.to_owned(),
        single_word: false,
        lstrip: false,
        rstrip: content == "<right>",
        normalized,
        special,
    };
    let added_tokens = vec![
        token("<|image_pad|>", true, false),
        token("<tool>", true, false),
        token("<think>", false, false),
        token("the", false, true),
        token("<right>", false, false),
        token("", false, false),
    ];
    let spec = TokenizerSpec { added_tokens: added_tokens.clone(), ..TokenizerSpec::default() };
    let (ours, general) =
        (Tokenizer::new(json.as_bytes(), &spec).unwrap(), Tokenizer::general(json.as_bytes(), &spec).unwrap());
    assert!(ours.backend().starts_with("fast: "));
    let mut oracle = oracle(json.as_bytes());
    let tokens = added_tokens.iter().map(|token| {
        tokenizers::AddedToken::from(token.content.clone(), token.special)
            .normalized(token.normalized)
            .rstrip(token.rstrip)
    });
    oracle.add_tokens(tokens).unwrap();
    for text in ["a<think>b<|image_pad|>", "<tool> the<right>  other", "<think><think>\n<|im_end|>"] {
        for ours in [&ours, &general] {
            assert_eq!(difference(ours, &oracle, text), None);
        }
    }
    let vocabulary = oracle.get_vocab(true);
    for ours in [&ours, &general] {
        assert_eq!(ours.max_token_id(), vocabulary.values().copied().max().unwrap());
        assert_eq!(ours.longest_token_chars(), vocabulary.keys().map(|piece| piece.chars().count()).max().unwrap());
        for (piece, &id) in &vocabulary {
            assert_eq!(ours.token_to_id(piece), Some(id));
            assert_eq!(ours.id_to_token(id), oracle.id_to_token(id));
        }
        assert_eq!(ours.id_to_token(ours.max_token_id() + 1), None);
        assert_eq!(ours.decode(&[ours.max_token_id() + 1, u32::MAX], false).unwrap(), "");
    }
}

#[test]
fn begin_and_end_tokens_are_put_around_on_demand() {
    let json = with_added_tokens(byte_level()).to_string();
    let spec = |add_bos_token, add_eos_token| TokenizerSpec {
        add_bos_token,
        add_eos_token,
        bos_token: Some("<|im_start|>".to_owned()),
        eos_token: Some("<|im_end|>".to_owned()),
        ..TokenizerSpec::default()
    };
    for (bos, eos, before, after) in
        [(Some(true), None, 1, 0), (Some(true), Some(true), 1, 1), (Some(false), Some(true), 0, 1), (None, None, 0, 0)]
    {
        let spec = spec(bos, eos);
        let fast = Tokenizer::new(json.as_bytes(), &spec).unwrap();
        let general = Tokenizer::general(json.as_bytes(), &spec).unwrap();
        let id = |token: &str| fast.token_to_id(token).unwrap();
        let plain = fast.encode("hello", false, None).unwrap();
        let want = [&[id("<|im_start|>")][..before], &plain[..], &[id("<|im_end|>")][..after]].concat();
        for tokenizer in [&fast, &general] {
            assert_eq!(tokenizer.encode("hello", true, None).unwrap(), want);
            assert_eq!(tokenizer.encode("hello", false, None).unwrap(), plain);
        }
    }
    let unknown = TokenizerSpec { bos_token: Some("<none>".to_owned()), ..spec(Some(true), None) };
    assert_eq!(Tokenizer::new(json.as_bytes(), &unknown).err().unwrap().status(), 500);
}

#[test]
fn the_llama_class_brings_its_own_spaces() {
    let mut tokenizer = with_added_tokens(characters());
    tokenizer["normalizer"] = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ]});
    let json = tokenizer.to_string();
    for prepend in [PrependScheme::First, PrependScheme::Always, PrependScheme::Never] {
        let spec = TokenizerSpec { llama_prepend: Some(prepend), ..TokenizerSpec::default() };
        let fast = Tokenizer::new(json.as_bytes(), &spec).unwrap();
        assert!(fast.backend().starts_with("fast: "), "{}", fast.backend());
        let general = Tokenizer::general(json.as_bytes(), &spec).unwrap();
        for text in ["hello<tool>hello world", " hello", "<tool> hello", "", "▁hello", "中\u{10ffff}"] {
            let ids = fast.encode(text, true, None).unwrap();
            assert_eq!(ids, general.encode(text, true, None).unwrap(), "{prepend:?} {text:?}");
            assert_eq!(fast.decode(&ids, false), general.decode(&ids, false));
        }
        let pieces: Vec<_> =
            fast.encode("a<tool>a", false, None).unwrap().into_iter().map(|id| fast.id_to_token(id)).collect();
        let first = |text: &Option<String>| text.as_ref().is_some_and(|piece| piece.starts_with('▁'));
        let (begin, behind) = (first(&pieces[0]), first(pieces.last().unwrap()) || pieces.len() > 3);
        assert_eq!(begin, prepend != PrependScheme::Never, "{pieces:?}");
        assert_eq!(behind, prepend == PrependScheme::Always, "{pieces:?}");
    }
}

#[test]
fn a_file_that_cannot_be_used_says_so() {
    for json in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}"#,
        "{\"version\": \"9\"}",
    ] {
        let error = Tokenizer::new(json.as_bytes(), &TokenizerSpec::default()).err().unwrap();
        assert!(error.to_string().starts_with("tokenizer.json cannot be used: "), "{error}");
        assert_eq!(error.status(), 500);
    }
}

#[test]
fn threads_with_other_bounds_do_not_disturb_each_other() {
    let tokenizer = with_added_tokens(byte_level()).to_string();
    let tokenizer = fast(tokenizer.as_bytes(), 1 << 16);
    let texts: Vec<String> =
        (0..24).map(|n| format!("<|im_start|>{}<|im_end|>{n}", CORPUS.repeat(n % 3 + 1))).collect();
    let bound = |n: usize| match n % 3 {
        0 => None,
        1 => Some(Truncation { max_length: 5, side: TruncationSide::Left }),
        _ => Some(Truncation { max_length: n + 9, side: TruncationSide::Right }),
    };
    let want: Vec<_> = (0..texts.len()).map(|n| tokenizer.encode(&texts[n], true, bound(n)).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (tokenizer, texts, want) = (&tokenizer, &texts, &want);
            scope.spawn(move || {
                for round in 0..60 {
                    let n = (thread * 7 + round) % texts.len();
                    assert_eq!(tokenizer.encode(&texts[n], true, bound(n)).unwrap(), want[n]);
                    let encoding = tokenizer.encode_with_offsets(&texts[n], true, bound(n)).unwrap();
                    assert_eq!(encoding.ids, want[n]);
                }
            });
        }
    });
}

#[test]
fn the_next_turn_costs_only_its_own_segments() {
    let tokenizer = with_added_tokens(byte_level()).to_string();
    let (cached, plain) = (fast(tokenizer.as_bytes(), 1 << 20), fast(tokenizer.as_bytes(), 0));
    let mut conversation = String::new();
    for turn in 0..10 {
        conversation += &format!("<|im_start|>user\n{turn} {CORPUS}<|im_end|>\n");
        assert_eq!(cached.encode(&conversation, true, None), plain.encode(&conversation, true, None));
        let stats = cached.cache_stats();
        assert_eq!((stats.misses, stats.hits), (turn + 1, turn * (turn + 1) / 2));
    }
    assert_eq!(plain.cache_stats(), super::super::CacheStats::default());
}
