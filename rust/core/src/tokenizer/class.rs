//! What the tokenizer's class changes in tokenizer.json's own components.

use serde_json::{Value, json};

use super::normalize::SPACE_MARK;
use crate::error::{Error, Result};
use crate::spec::{PrependScheme, TokenizerSpec};

/// The components that `LlamaTokenizer` of transformers 5 sets: no normalizer, spaces marked while pre-tokenizing.
pub(super) struct LlamaComponents {
    pub pre_tokenizer: Value,
    pub decoder: Value,
}

pub(super) fn llama_components(prepend: PrependScheme) -> LlamaComponents {
    let scheme = match prepend {
        PrependScheme::First => "first",
        PrependScheme::Always => "always",
        PrependScheme::Never => "never",
    };
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prepend != PrependScheme::Never {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    LlamaComponents {
        pre_tokenizer: json!({
            "type": "Metaspace", "replacement": SPACE_MARK, "prepend_scheme": scheme, "split": false,
        }),
        decoder: json!({"type": "Sequence", "decoders": decoders}),
    }
}

/// The post-processor that `add_bos_token` and `add_eos_token` ask for; `None` if neither says anything.
pub(super) fn post_processor(spec: &TokenizerSpec, id: impl Fn(&str) -> Option<u32>) -> Result<Option<Value>> {
    if spec.add_bos_token.is_none() && spec.add_eos_token.is_none() {
        return Ok(None);
    }
    let mut special_tokens = serde_json::Map::new();
    let mut piece = |wanted: Option<bool>, token: Option<&String>| -> Result<Option<Value>> {
        let Some(token) = token.filter(|_| wanted == Some(true)) else {
            return Ok(None);
        };
        let id = id(token).ok_or_else(|| Error::setup(format!("the vocabulary has no token `{token}`")))?;
        special_tokens.insert(token.clone(), json!({"id": token, "ids": [id], "tokens": [token]}));
        Ok(Some(json!({"SpecialToken": {"id": token, "type_id": 0}})))
    };
    let bos = piece(spec.add_bos_token, spec.bos_token.as_ref())?;
    let eos = piece(spec.add_eos_token, spec.eos_token.as_ref())?;
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let second = json!({"Sequence": {"id": "B", "type_id": 1}});
    let single: Vec<Value> = bos.into_iter().chain([text]).chain(eos).collect();
    let pair: Vec<Value> = single.iter().cloned().chain([second]).collect();
    Ok(Some(json!({
        "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special_tokens,
    })))
}
