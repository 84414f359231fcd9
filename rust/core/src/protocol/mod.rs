//! Requests and answers as they stand on the wire of vLLM 0.33.
//!
//! Bodies are read leniently, as pydantic's lax mode does, and once: what comes out of here needs no further checks
//! of type. Sources: vLLM's `entrypoints/openai/{chat_completion,completion}/protocol.py`,
//! `entrypoints/scale_out/token_in_token_out/protocol.py`.

pub mod chat;
pub mod completion;
pub mod constraints;
pub mod features;
pub mod fields;
pub mod generate;
pub mod options;
pub mod sampling;
pub mod tokenize;
pub mod tools;

use crate::error::{Error, Result};
use crate::json::{Json, Map};

/// Parse a request body into its object; also tells how many values it holds.
pub fn parse_body(body: &[u8]) -> Result<(Map<'_>, usize)> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let text = std::str::from_utf8(body)
        .map_err(|error| Error::schema("body", format!("the body is not UTF-8 (byte {})", error.valid_up_to())))?;
    match Json::parse_counting(text) {
        Ok((Json::Object(map), values)) => Ok((map, values)),
        Ok(_) => Err(Error::schema("body", "the body must be a JSON object")),
        Err(error) => {
            Err(Error::schema(format!("body.{}", error.position), format!("the body is not valid JSON: {error}")))
        }
    }
}

/// The model named by a request must be one that is served; null and `""` stand for the default.
pub fn check_model(model: Option<&str>, served: &[String], skip: bool) -> Result<()> {
    match model {
        Some(name) if !name.is_empty() && !skip && !served.iter().any(|known| known == name) => Err(Error::NotFound {
            message: format!("no model `{name}` is served here; known: {}", served.join(", ")),
            param: Some("model".to_owned()),
        }),
        _ => Ok(()),
    }
}

/// The rules of `cache_salt`: a non-empty string of at most 128 characters without `@`, `/`, `\` and NUL.
fn check_cache_salt(body: &Map<'_>) -> Result<()> {
    let Some(salt) = body.present("cache_salt") else { return Ok(()) };
    let Some(text) = salt.as_str().filter(|text| !text.is_empty()) else {
        return Err(Error::bad_param("cache_salt", "`cache_salt` must be a non-empty string"));
    };
    if text.chars().count() > 128 || text.contains(['@', '/', '\\', '\0']) {
        return Err(Error::bad_param(
            "cache_salt",
            "`cache_salt` may hold at most 128 characters, and none of `@`, `/`, `\\` and NUL",
        ));
    }
    Ok(())
}

/// `stream_options` make sense only for a stream.
fn check_stream_options(body: &Map<'_>) -> Result<()> {
    let truthy = |key| body.get(key).is_some_and(Json::truthy);
    if truthy("stream_options") && !truthy("stream") {
        return Err(Error::bad_param(
            "stream_options",
            "`stream_options` is only allowed together with `stream: true`",
        ));
    }
    Ok(())
}

/// A field that is compared as a number before it is validated: null, or the number.
fn raw_number(body: &Map<'_>, field: &'static str) -> Result<Option<f64>> {
    match body.get(field) {
        None | Some(Json::Null) => Ok(None),
        #[expect(clippy::cast_precision_loss, reason = "only the sign and -1 matter")]
        Some(Json::Int(value)) => Ok(Some(*value as f64)),
        Some(Json::BigInt(text)) => Ok(Some(if text.starts_with('-') { f64::MIN } else { f64::MAX })),
        Some(Json::Float(value)) => Ok(Some(*value)),
        Some(Json::Bool(value)) => Ok(Some(f64::from(u8::from(*value)))),
        Some(_) => Err(Error::bad_param(field, format!("`{field}` must be an integer"))),
    }
}

/// The bounds of `prompt_logprobs` and of `logprobs` or `top_logprobs`, which are read before the body is validated.
#[expect(clippy::float_cmp, reason = "-1 is a code, not a measurement")]
fn check_logprob_count(body: &Map<'_>, field: &'static str) -> Result<Option<f64>> {
    let number = raw_number(body, field)?;
    if let Some(value) = number
        && value < 0.0
        && value != -1.0
    {
        return Err(Error::bad_param(field, format!("`{field}` must be -1 or at least 0")));
    }
    Ok(number)
}

#[expect(clippy::float_cmp, reason = "-1 is a code, not a measurement")]
fn check_prompt_logprobs(body: &Map<'_>) -> Result<()> {
    if let Some(value) = raw_number(body, "prompt_logprobs")?
        && (value > 0.0 || value == -1.0)
        && body.get("stream").is_some_and(Json::truthy)
    {
        return Err(Error::bad_param("prompt_logprobs", "`prompt_logprobs` are not available in a stream"));
    }
    check_logprob_count(body, "prompt_logprobs").map(|_| ())
}
