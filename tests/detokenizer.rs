//! Incremental decoding against the algorithm of the reference (protocol.md §5.4), run on `tokenizers` 0.23's decoders.
//!
//! Small tokenizers of every kind are written here; the real ones of ../shared/assets (or `$FASTRENDER_SHARED`) are held
//! too where they are.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use fastrender_core::detokenizer::{Detokenizer, Output, Specials, Stream};
use fastrender_core::spec::TokenizerSpec;
use fastrender_core::tokenizer::Tokenizer;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokenizers::tokenizer::Decoder as _;

/// The tokenizer inside the package: byte-level BPE.
const EMBEDDED: &[u8] = include_bytes!("../python/fastrender/embedded/tokenizer.json");

/// What the reference does for each token, with the library.
struct Oracle<'t> {
    library: &'t tokenizers::Tokenizer,
    skipped: &'t [u32],
    window: Vec<String>,
    read: usize,
}

impl<'t> Oracle<'t> {
    fn new(library: &'t tokenizers::Tokenizer, prompt: &[u32], skipped: &'t [u32]) -> Self {
        let tail = &prompt[prompt.len().saturating_sub(7)..];
        let kept = tail.iter().filter(|id| !skipped.contains(id));
        let mut window: Vec<String> = kept.map(|id| library.id_to_token(*id).unwrap_or_default()).collect();
        window.drain(..window.len().saturating_sub(5));
        Self { library, skipped, read: window.len(), window }
    }

    fn text(&self, pieces: &[String]) -> String {
        self.library.get_decoder().unwrap().decode(pieces.to_vec()).unwrap()
    }

    fn push(&mut self, id: u32) -> String {
        if !self.skipped.contains(&id) {
            self.window.push(self.library.id_to_token(id).unwrap_or_default());
        }
        let (before, all) = (self.text(&self.window[..self.read]), self.text(&self.window));
        if all.chars().count() <= before.chars().count() || all.ends_with('\u{FFFD}') {
            return String::new();
        }
        self.window.drain(..self.read);
        self.read = self.window.len();
        all.chars().skip(before.chars().count()).collect()
    }

    /// What the reference holds back to the end and never gives out: of which many replacements go out, and of a piece
    /// with text before them the text.
    fn rest(&self) -> String {
        let before = self.text(&self.window[..self.read]);
        let rest: String = self.text(&self.window).chars().skip(before.chars().count()).collect();
        let clear = rest.trim_end_matches('\u{FFFD}');
        if rest[clear.len()..].chars().count() > 8 { rest } else { clear.to_owned() }
    }
}

struct Pair {
    name: String,
    library: tokenizers::Tokenizer,
    ours: Detokenizer,
    skipped: Vec<u32>,
}

impl Pair {
    fn new(name: &str, tokenizer_json: &[u8], skipped: &[&str]) -> Self {
        let tokenizer = Arc::new(Tokenizer::new(tokenizer_json, &TokenizerSpec::default()).unwrap());
        let library = tokenizers::Tokenizer::from_bytes(tokenizer_json).unwrap();
        let skipped_ids = skipped.iter().filter_map(|token| library.token_to_id(token)).collect();
        let tokens: Vec<String> = skipped.iter().map(|&token| token.to_owned()).collect();
        Self { name: name.to_owned(), library, ours: Detokenizer::new(tokenizer, &tokens), skipped: skipped_ids }
    }

    fn skipped(&self, specials: Specials) -> &[u32] {
        if specials == Specials::Skip { &self.skipped } else { &[] }
    }

    fn expected(&self, prompt: &[u32], ids: &[u32], specials: Specials) -> String {
        let mut oracle = Oracle::new(&self.library, prompt, self.skipped(specials));
        let mut text: String = ids.iter().map(|&id| oracle.push(id)).collect();
        text.push_str(&oracle.rest());
        text
    }

    /// Joined text of the parts, by the stream alone, through serde, and by the wire's window.
    fn parts(&self, prompt: &[u32], parts: &[&[u32]], specials: Specials) -> [String; 2] {
        let (mut plain, mut tracked) = (String::new(), String::new());
        let mut stream = self.ours.start(prompt, specials);
        let (mut stream_too, mut window) = self.ours.start_window(prompt, specials);
        for part in parts {
            let saved = serde_json::to_string(&stream).unwrap();
            stream = serde_json::from_str(&saved).unwrap();
            assert!(self.ours.check(&stream), "{}: {saved}", self.name);
            self.ours.push(&mut stream, part, specials, &mut plain).unwrap();
            self.ours.push_tracked(&mut stream_too, &mut window, part, specials, &mut tracked).unwrap();
            let pieces: Vec<&str> = window.pieces().collect();
            assert!(pieces.len() < 64, "{}: {pieces:?}", self.name);
            let before = tracked.len();
            (stream_too, window) = self.ours.load(&pieces, 0, window.read_offset(), &mut tracked).unwrap();
            assert_eq!(tracked.len(), before, "{}: nothing is given out twice", self.name);
        }
        self.ours.finish(&mut stream, &mut plain).unwrap();
        self.ours.finish(&mut stream_too, &mut tracked).unwrap();
        [plain, tracked]
    }

    /// A stock server begins, we go on from its state.
    fn taken_over(&self, prompt: &[u32], ids: &[u32], at: usize, specials: Specials) -> String {
        let mut oracle = Oracle::new(&self.library, prompt, self.skipped(specials));
        let mut text: String = ids[..at].iter().map(|&id| oracle.push(id)).collect();
        let pieces: Vec<&str> = oracle.window.iter().map(String::as_str).collect();
        let (mut stream, _) = self.ours.load(&pieces, 0, oracle.read, &mut text).unwrap();
        self.ours.push(&mut stream, &ids[at..], specials, &mut text).unwrap();
        self.ours.finish(&mut stream, &mut text).unwrap();
        text
    }

    /// We begin, a stock server goes on from our state.
    fn handed_over(&self, prompt: &[u32], ids: &[u32], at: usize, specials: Specials) -> String {
        let mut text = String::new();
        let (mut stream, mut window) = self.ours.start_window(prompt, specials);
        self.ours.push_tracked(&mut stream, &mut window, &ids[..at], specials, &mut text).unwrap();
        let mut oracle = Oracle::new(&self.library, &[], self.skipped(specials));
        oracle.window = window.pieces().map(str::to_owned).collect();
        oracle.read = window.read_offset();
        text.extend(ids[at..].iter().map(|&id| oracle.push(id)));
        text.push_str(&oracle.rest());
        text
    }

    fn hold(&self, prompt: &[u32], ids: &[u32], cuts: &[usize]) {
        for specials in [Specials::Keep, Specials::Skip] {
            let want = self.expected(prompt, ids, specials);
            let names: Vec<_> = ids.iter().map(|&id| self.library.id_to_token(id)).collect();
            let context = format!("{} {specials:?} {prompt:?} {names:?}", self.name);
            let start = self.ours.start(prompt, specials);
            assert_eq!(self.ours.decode(start, ids, specials).unwrap(), want, "{context}");
            let mut parts = Vec::new();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (ids.len() + 1)).collect();
            cuts.sort_unstable();
            let mut begun = 0;
            for &cut in &cuts {
                parts.push(&ids[begun..cut]);
                begun = cut;
            }
            parts.push(&ids[begun..]);
            for text in self.parts(prompt, &parts, specials) {
                assert_eq!(text, want, "{context} {cuts:?}");
            }
            let ones: Vec<&[u32]> = ids.chunks(1).collect();
            for text in self.parts(prompt, &ones, specials) {
                assert_eq!(text, want, "{context}");
            }
            if let Some(&cut) = cuts.first() {
                // A stock server forgets that there were too many to hold.
                let clear = |text: &str| text.trim_end_matches('\u{FFFD}').to_owned();
                assert_eq!(clear(&self.taken_over(prompt, ids, cut, specials)), clear(&want), "{context} {cut}");
                assert_eq!(clear(&self.handed_over(prompt, ids, cut, specials)), clear(&want), "{context} {cut}");
            }
        }
    }

    fn hold_random(&self, cases: u32) {
        let encode = |text: &str| self.library.encode_fast(text, false).unwrap().get_ids().to_vec();
        let prompts = [vec![], encode("hello"), encode("a b <s>"), encode("日本 "), encode("x\ny z w v u t")];
        let limit = self.ours.tokenizer().max_token_id() + 3;
        let texts =
            ["👩\u{200d}👩\u{200d}👧 ď 日本", " a  b", "naïve — 🦜🦜", "\u{FFFD}x", "ab ba <s> a</s>"].map(encode);
        // Where there is a piece for it no model writes a space as a byte; the reference counts it in two ways.
        let bytes: Vec<u32> =
            (0x21..=255u8).filter_map(|b| self.library.token_to_id(&format!("<0x{b:02X}>"))).collect();
        let space = self.library.token_to_id("<0x20>");
        let some = proptest::sample::select(texts.to_vec());
        let any_byte = if bytes.is_empty() { (0..limit).boxed() } else { proptest::sample::select(bytes).boxed() };
        let part = prop_oneof![
            3 => some,
            2 => proptest::collection::vec((0..limit).prop_filter("a space as a byte", move |id| Some(*id) != space), 0..6),
            2 => proptest::collection::vec(any_byte, 0..6),
        ];
        let ids = proptest::collection::vec(part, 0..6).prop_map(|parts| parts.concat());
        let strategy =
            (proptest::sample::select(prompts.to_vec()), ids, proptest::collection::vec(any::<usize>(), 1..4));
        let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let held = runner.run(&strategy, |(prompt, ids, cuts)| {
            self.hold(&prompt, &ids, &cuts);
            Ok(())
        });
        if let Err(error) = held {
            panic!("{}: {error}", self.name);
        }
    }
}

fn added(tokens: &[(u32, &str)]) -> Value {
    let token = |&(id, content): &(u32, &str)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    tokens.iter().map(token).collect()
}

fn byte_fallback(strips: bool) -> Vec<u8> {
    let mut vocab = serde_json::Map::new();
    for piece in ["<unk>", "<s>", "</s>"] {
        vocab.insert(piece.to_owned(), vocab.len().into());
    }
    for byte in 0..=255u8 {
        vocab.insert(format!("<0x{byte:02X}>"), vocab.len().into());
    }
    for piece in ["▁", "▁▁", "a", "b", "▁a", "▁b", "日", "é", "\u{FFFD}", "x\u{FFFD}", "a▁b"] {
        vocab.insert(piece.to_owned(), vocab.len().into());
    }
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if strips {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let normalizer = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ]});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added(&[(0, "<unk>"), (1, "<s>"), (2, "</s>")]),
        "normalizer": normalizer, "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": []},
    })
    .to_string()
    .into_bytes()
}

fn unigram() -> Vec<u8> {
    let pieces = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "▁b", "ab", "日", "▁▁", "a▁b"];
    let vocab: Vec<Value> = pieces.iter().map(|piece| json!([piece, -1.0])).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added(&[(0, "<unk>"), (1, "<s>"), (2, "</s>")]),
        "normalizer": null, "post_processor": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false},
    })
    .to_string()
    .into_bytes()
}

fn word_piece() -> Vec<u8> {
    let pieces = ["[UNK]", "<s>", "</s>", "a", "b", "##a", "##b", "ab", ".", "'", "s", "日", "do", "n't"];
    let vocab: serde_json::Map<String, Value> =
        pieces.iter().enumerate().map(|(id, piece)| ((*piece).to_owned(), id.into())).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added(&[(0, "[UNK]"), (1, "<s>"), (2, "</s>")]),
        "normalizer": null, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab},
    })
    .to_string()
    .into_bytes()
}

#[test]
fn the_embedded_tokenizer_decodes_as_the_reference() {
    Pair::new("embedded", EMBEDDED, &["<|im_end|>", "<|endoftext|>"]).hold_random(400);
}

#[test]
fn byte_fallback_decodes_as_the_reference() {
    for strips in [false, true] {
        Pair::new("byte fallback", &byte_fallback(strips), &["<s>", "</s>"]).hold_random(1500);
    }
}

#[test]
fn metaspace_decodes_as_the_reference() {
    let pair = Pair::new("unigram", &unigram(), &["<s>", "</s>"]);
    assert!(pair.ours.is_fast());
    pair.hold_random(600);
}

#[test]
fn other_decoders_are_the_librarys() {
    let pair = Pair::new("word piece", &word_piece(), &["<s>", "</s>"]);
    assert!(!pair.ours.is_fast());
    pair.hold_random(300);
}

#[test]
fn real_tokenizers_decode_as_the_reference() {
    let shared = std::env::var_os("FASTRENDER_SHARED").map(PathBuf::from);
    let shared = shared.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"));
    let Ok(folders) = std::fs::read_dir(shared.join("assets")) else {
        eprintln!("skipped: there is no ../shared/assets");
        return;
    };
    for folder in folders {
        let path = folder.unwrap().path();
        let Ok(text) = std::fs::read(path.join("tokenizer.json")) else { continue };
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if tokenizers::Tokenizer::from_bytes(&text).is_err() {
            continue;
        }
        Pair::new(&name, &text, &["<s>", "</s>", "<|im_end|>", "<eos>", "[SEP]"]).hold_random(6);
    }
}

/// Text by tokens, as a parser takes it.
#[derive(Default)]
struct Tokens(Vec<(bool, String)>);

impl Output for Tokens {
    const TOKENS: bool = true;

    fn text(&mut self, text: &str) {
        match self.0.last_mut() {
            Some((false, last)) => last.push_str(text),
            _ => self.0.push((false, text.to_owned())),
        }
    }

    fn token(&mut self, text: &str, _special: bool) {
        self.0.push((true, text.to_owned()));
    }
}

#[test]
fn added_tokens_come_by_themselves() {
    for (json, text) in [(EMBEDDED.to_vec(), "a🦜<|im_start|>b<|im_start|>"), (byte_fallback(true), "a日<s>é b</s>")]
    {
        let pair = Pair::new("tokens", &json, &[]);
        let ids = pair.library.encode_fast(text, false).unwrap().get_ids().to_vec();
        let mut tokens = Tokens::default();
        let mut stream = pair.ours.start(&[], Specials::Keep);
        for id in &ids {
            pair.ours.push(&mut stream, &[*id], Specials::Keep, &mut tokens).unwrap();
        }
        pair.ours.finish(&mut stream, &mut tokens).unwrap();
        let joined: String = tokens.0.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(joined.replace(' ', ""), text.replace(' ', ""));
        assert_eq!(tokens.0.iter().filter(|(token, _)| *token).count(), 2, "{:?}", tokens.0);
    }
}

#[test]
fn a_flood_of_replacement_characters_goes_out_in_linear_time() {
    for (json, piece) in [(EMBEDDED.to_vec(), "Ģ"), (byte_fallback(true), "<0x80>"), (byte_fallback(true), "<0xE6>")] {
        let pair = Pair::new("flood", &json, &[]);
        let id = pair.library.token_to_id(piece).unwrap();
        let time = |count: usize| {
            let begun = Instant::now();
            let mut text = String::new();
            let (mut stream, mut window) = pair.ours.start_window(&[], Specials::Keep);
            for _ in 0..count {
                pair.ours.push_tracked(&mut stream, &mut window, &[id], Specials::Keep, &mut text).unwrap();
                assert!(window.pieces().count() < 32);
            }
            assert!(text.chars().count() + 10 >= count, "it is not held back");
            pair.ours.finish(&mut stream, &mut text).unwrap();
            assert_eq!(text, "\u{FFFD}".repeat(count));
            begun.elapsed().as_secs_f64()
        };
        let (short, long) = (time(5_000), time(40_000));
        assert!(long < short * 8.0 * 6.0 + 0.05, "{piece}: {short} s, then {long} s");
    }
}

#[test]
fn hostile_states_are_refused_or_harmless() {
    let pairs = [
        Pair::new("embedded", EMBEDDED, &[]),
        Pair::new("byte fallback", &byte_fallback(true), &[]),
        Pair::new("unigram", &unigram(), &[]),
        Pair::new("word piece", &word_piece(), &[]),
    ];
    let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    let piece = prop_oneof!["\\PC{0,5}", "<0x[0-9A-F]{2}>", Just("Ġ".to_owned()), Just("æ".to_owned())];
    let strategy =
        (proptest::collection::vec(piece, 0..8), 0..10usize, 0..10usize, proptest::collection::vec(0..300u32, 0..9));
    let held = runner.run(&strategy, |(pieces, prefix, read, ids)| {
        for pair in &pairs {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let mut text = String::new();
            let loaded = pair.ours.load(&pieces, prefix, read, &mut text);
            if let Err(error) = &loaded {
                prop_assert_eq!(error.status(), 400);
            }
            if let Ok((mut stream, mut window)) = loaded {
                pair.ours.push_tracked(&mut stream, &mut window, &ids, Specials::Keep, &mut text).unwrap();
                pair.ours.finish(&mut stream, &mut text).unwrap();
            }
        }
        Ok(())
    });
    held.unwrap();
    let long = "a".repeat(1 << 20);
    assert_eq!(pairs[0].ours.load(&[&long], 0, 1, &mut String::new()).unwrap_err().status(), 400);
    let foreign: Stream = serde_json::from_str(r#"{"s": {"Bytes": [1, 2, 3, 4, 5, 6]}}"#).unwrap();
    assert!(pairs.iter().all(|pair| !pair.ours.check(&foreign)));
}

#[test]
fn a_token_alone_has_the_space_that_it_has_in_a_text() {
    let pair = Pair::new("unigram", &unigram(), &[]);
    let text = |piece: &str| pair.ours.token_text(pair.library.token_to_id(piece).unwrap()).unwrap();
    assert_eq!(text("▁a").as_deref(), Some(" a"));
    assert_eq!(text("a").as_deref(), Some("a"));
    assert_eq!(pair.ours.token_text(9999).unwrap(), None);
    let pair = Pair::new("embedded", EMBEDDED, &[]);
    let first = pair.library.token_to_id("ð").unwrap();
    assert_eq!(pair.ours.token_bytes(first), Some(&[0xF0][..]));
}
