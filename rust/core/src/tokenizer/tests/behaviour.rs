//! What else a tokenizer promises: added tokens of other files, classes, errors, threads, the cache.

use std::fmt::Write as _;

use serde_json::json;

use super::small::{CORPUS, byte_level, characters, with_added_tokens};
use super::{difference, fast, oracle};
use crate::spec::{AddedTokenSpec, PrependScheme, TokenizerSpec};
use crate::tokenizer::{CacheStats, Tokenizer, Truncation, TruncationSide};

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
        (Tokenizer::early(json.as_bytes(), &spec).unwrap(), Tokenizer::general(json.as_bytes(), &spec).unwrap());
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
        let fast = Tokenizer::early(json.as_bytes(), &spec).unwrap();
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
    assert_eq!(Tokenizer::early(json.as_bytes(), &unknown).err().unwrap().status(), 500);
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
        let fast = Tokenizer::early(json.as_bytes(), &spec).unwrap();
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
        let error = Tokenizer::early(json.as_bytes(), &TokenizerSpec::default()).err().unwrap();
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
        write!(conversation, "<|im_start|>user\n{turn} {CORPUS}<|im_end|>\n").unwrap();
        assert_eq!(cached.encode(&conversation, true, None), plain.encode(&conversation, true, None));
        let stats = cached.cache_stats();
        assert_eq!((stats.misses, stats.hits), (turn + 1, turn * (turn + 1) / 2));
    }
    assert_eq!(plain.cache_stats(), CacheStats::default());
}
