//! Bodies and answers of `/tokenize` and `/detokenize`.

use super::chat::{MediaFields, TemplateFields, check_generation_prompt};
use super::completion::read_ids;
use super::fields::Fields;
use super::generate::write_ids;
use super::sampling::ObjectWriter;
use super::tools::read_tools;
use crate::error::{Error, Result};
use crate::json::{Json, Map, write_str};

/// What is to be tokenized.
#[derive(Debug, Clone)]
pub enum TokenizeInput<'a> {
    Prompt(&'a str),
    Chat { template: TemplateFields<'a>, tools: Option<Vec<Json<'a>>>, media_fields: MediaFields<'a> },
}

/// The body of `/tokenize`: a prompt, or messages.
#[derive(Debug, Clone)]
pub struct TokenizeRequest<'a> {
    pub model: Option<&'a str>,
    pub input: TokenizeInput<'a>,
    pub add_special_tokens: bool,
    pub return_token_strs: bool,
}

impl<'a> TokenizeRequest<'a> {
    pub fn read(map: &'a Map<'a>) -> Result<Self> {
        let body = Fields::new(map, "body");
        if let Some(prompt) = map.get("prompt").and_then(Json::as_str) {
            return Ok(Self {
                model: body.str("model")?,
                input: TokenizeInput::Prompt(prompt),
                add_special_tokens: body.bool_or("add_special_tokens", true)?,
                return_token_strs: body.bool("return_token_strs")?.unwrap_or(false),
            });
        }
        if !matches!(map.get("messages"), Some(Json::Array(_))) {
            return Err(Error::schema("body.prompt", "the body needs a string `prompt` or a list of `messages`"));
        }
        check_generation_prompt(map)?;
        Ok(Self {
            model: body.str("model")?,
            input: TokenizeInput::Chat {
                template: TemplateFields::read(body)?,
                tools: read_tools(body)?,
                media_fields: MediaFields::read(body)?,
            },
            add_special_tokens: body.bool_or("add_special_tokens", false)?,
            return_token_strs: body.bool("return_token_strs")?.unwrap_or(false),
        })
    }
}

/// Append the answer of `/tokenize`; `token_strs` are raw vocabulary pieces.
pub fn write_tokenize_response(out: &mut Vec<u8>, ids: &[u32], max_model_len: u32, token_strs: Option<&[String]>) {
    let mut object = ObjectWriter::new(out);
    object.int("count", i128::try_from(ids.len()).unwrap_or(i128::MAX));
    object.int("max_model_len", i128::from(max_model_len));
    write_ids(object.key("tokens"), ids);
    let out = object.key("token_strs");
    match token_strs {
        None => out.extend_from_slice(b"null"),
        Some(pieces) => {
            out.push(b'[');
            for (i, piece) in pieces.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_str(out, piece);
            }
            out.push(b']');
        }
    }
    object.end();
}

/// The body of `/detokenize`.
#[derive(Debug, Clone)]
pub struct DetokenizeRequest<'a> {
    pub model: Option<&'a str>,
    pub tokens: Vec<u32>,
}

impl<'a> DetokenizeRequest<'a> {
    pub fn read(map: &'a Map<'a>) -> Result<Self> {
        let body = Fields::new(map, "body");
        let items = body.array("tokens")?.ok_or_else(|| body.error("tokens", "a list of token ids"))?;
        Ok(Self { model: body.str("model")?, tokens: read_ids(body, "tokens", items)? })
    }
}

/// Append the answer of `/detokenize`.
pub fn write_detokenize_response(out: &mut Vec<u8>, text: &str) {
    let mut object = ObjectWriter::new(out);
    object.str("prompt", text);
    object.end();
}
