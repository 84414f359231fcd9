//! Small tokenizers, trained here.

use serde_json::{Value, json};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::BpeTrainer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::oracle;

/// What the tokenizers are trained on.
pub(super) const CORPUS: &str = "The quick brown fox jumps over the lazy dog. Hello world, hello there! Don't you think it's theirs? \
    We'll see; they've seen 1234567 of 2024's 365 days, 50% done.\n\n    def hello(self, world):\n\t\treturn self.world + 1\n\
    HTTPServer camelCase snake_case === --> // /* comment */ {\"a\": [1, 2, 3]}\r\n\
    日本語の文章です。中文字符也在这里。한국어 문장입니다. Русский текст тоже здесь. العربية هنا. हिन्दी यहाँ है। ไทยอยู่ที่นี่ é è ü ñ 😀👍🏽🎉 \
    the of a to in the of a to in the the the of of of          spaces and spaces";

pub(super) fn train(mut config: Value, mut trainer: TrainerWrapper) -> Value {
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

pub(super) fn byte_level() -> Value {
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

pub(super) fn characters() -> Value {
    let builder = BpeTrainer::builder().show_progress(false).vocab_size(400).min_frequency(1);
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
    let mut tokenizer = train(config, builder.build().into());
    let vocab = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    for byte in 0..256 {
        let id = vocab.len();
        vocab.insert(format!("<0x{byte:02X}>"), json!(id));
    }
    tokenizer
}

/// Added tokens with every flag, numbered behind the vocabulary.
pub(super) fn with_added_tokens(mut tokenizer: Value) -> Value {
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

pub(super) fn specials(tokenizer: &Value) -> Vec<String> {
    let contents = tokenizer["added_tokens"].as_array().unwrap().iter().map(|token| token["content"].as_str().unwrap());
    contents.map(str::to_owned).collect()
}

pub(super) fn template(tokenizer: &Value) -> Value {
    let id = &tokenizer["added_tokens"][0]["id"];
    json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "bos", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                   {"SpecialToken": {"id": "bos", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"bos": {"id": "bos", "ids": [id], "tokens": ["<|im_start|>"]}},
    })
}
