//! What chat and completion requests say alike about everything but sampling.

use super::fields::{Fields, INT64};
use crate::error::{Error, Result};
use crate::json::Map;
use crate::tokenizer::TruncationSide;

/// `stream_options` as they are echoed: both keys, with their defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    pub include_usage: Option<bool>,
    pub continuous_usage_stats: Option<bool>,
}

/// How many of the prompt's tokens are kept, and of which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PromptTruncation {
    /// `truncate_prompt_tokens`: -1 stands for the model's limit.
    pub tokens: Option<i128>,
    pub side: Option<TruncationSide>,
}

/// Fields that both routes share; the names are the wire's.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the wire")]
pub struct CommonFields<'a> {
    pub model: Option<&'a str>,
    pub request_id: Option<&'a str>,
    pub stream_options: Option<StreamOptions>,
    pub return_token_ids: Option<bool>,
    pub return_token_offsets: bool,
    pub add_special_tokens: bool,
    pub truncation: PromptTruncation,
    pub use_beam_search: bool,
    pub cache_salt: Option<&'a str>,
    pub priority: i128,
    pub kv_transfer_params: Option<&'a Map<'a>>,
    pub ec_transfer_params: Option<&'a Map<'a>>,
    /// `mm_payload: "none"`: hashes and layout, no tensors.
    pub omit_media_payload: bool,
}

impl<'a> CommonFields<'a> {
    pub fn read(body: Fields<'a, 'a>, add_special_tokens: bool) -> Result<Self> {
        for ignored in ["user", "session_id"] {
            body.str(ignored)?;
        }
        body.float_or("length_penalty", 1.0)?;
        body.bool("return_tokens_as_token_ids")?;
        body.bool_or("return_weight_versions", false)?;
        let request_id = match body.map.get("request_id") {
            None => None,
            Some(value) => Some(value.as_str().ok_or_else(|| body.error("request_id", "a string"))?),
        };
        Ok(Self {
            model: body.str("model")?,
            request_id,
            stream_options: read_stream_options(body)?,
            return_token_ids: body.bool("return_token_ids")?,
            return_token_offsets: body.bool("return_token_offsets")?.unwrap_or(false),
            add_special_tokens: body.bool_or("add_special_tokens", add_special_tokens)?,
            truncation: PromptTruncation {
                tokens: body.int_in("truncate_prompt_tokens", -1..=*INT64.end())?,
                side: body.word("truncation_side", &["left", "right"])?.map(|side| match side {
                    "left" => TruncationSide::Left,
                    _ => TruncationSide::Right,
                }),
            },
            use_beam_search: body.bool_or("use_beam_search", false)?,
            cache_salt: body.str("cache_salt")?,
            priority: match body.map.get("priority") {
                None => 0,
                Some(_) => body.int_in("priority", INT64)?.ok_or_else(|| body.error("priority", "an integer"))?,
            },
            kv_transfer_params: body.object("kv_transfer_params")?,
            ec_transfer_params: body.object("ec_transfer_params")?,
            omit_media_payload: read_omit_media_payload(body)?,
        })
    }

    /// Beam search has no token-in form.
    pub fn refuse_beam_search(&self) -> Result<()> {
        if self.use_beam_search {
            return Err(Error::bad_request("beam search cannot be rendered"));
        }
        Ok(())
    }

    /// Neither the output nor the kept prompt can be longer than the model's context.
    pub fn check_limits(&self, max_tokens: Option<i128>, max_tokens_field: &str, max_model_len: u32) -> Result<()> {
        let most = i128::from(max_model_len);
        if let Some(tokens) = max_tokens.filter(|tokens| *tokens > most) {
            return Err(Error::bad_param(
                max_tokens_field,
                format!("`{max_tokens_field}` is {tokens}, more than the model's context of {most} tokens"),
            ));
        }
        if let Some(tokens) = self.truncation.tokens.filter(|tokens| *tokens > most) {
            return Err(Error::bad_param(
                "truncate_prompt_tokens",
                format!("`truncate_prompt_tokens` is {tokens}, more than the model's context of {most} tokens"),
            ));
        }
        Ok(())
    }
}

fn read_stream_options(body: Fields<'_, '_>) -> Result<Option<StreamOptions>> {
    let Some(map) = body.object("stream_options")? else { return Ok(None) };
    let options = Fields::new(map, "body.stream_options");
    let read = |key| if map.contains_key(key) { options.bool(key) } else { Ok(Some(false)) };
    Ok(Some(StreamOptions {
        include_usage: read("include_usage")?,
        continuous_usage_stats: read("continuous_usage_stats")?,
    }))
}

/// `mm_payload`, or its deprecated alias `return_mm_kwargs: false`.
fn read_omit_media_payload(body: Fields<'_, '_>) -> Result<bool> {
    let alias = body.bool("return_mm_kwargs")?;
    match body.map.get("mm_payload") {
        None => Ok(alias == Some(false)),
        Some(_) => match body.word("mm_payload", &["tensors", "none"])? {
            Some(word) => Ok(word == "none"),
            None => Err(body.error("mm_payload", "\"tensors\" or \"none\"")),
        },
    }
}
