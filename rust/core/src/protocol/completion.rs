//! `CompletionRequest`: the body of `/v1/completions/render`.

use super::constraints;
use super::fields::{Fields, lax_int};
use super::options::CommonFields;
use super::sampling::{self, SamplingRequest};
use super::{check_cache_salt, check_logprob_count, check_prompt_logprobs, check_stream_options};
use crate::error::{Error, Result};
use crate::json::{Json, Map};
use crate::spec::RenderSettings;

/// What vLLM gives where a completion request names no limit, or null.
const DEFAULT_MAX_TOKENS: i128 = 16;

/// One prompt of a completion request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt<'a> {
    Text(&'a str),
    Ids(Vec<u32>),
}

/// A completion request with every field read and checked.
#[derive(Debug, Clone)]
pub struct CompletionRequest<'a> {
    pub common: CommonFields<'a>,
    pub prompts: Vec<Prompt<'a>>,
    pub sampling: SamplingRequest<'a>,
    pub max_tokens: i128,
    pub echo: bool,
    suffix: bool,
    embeds: bool,
}

impl<'a> CompletionRequest<'a> {
    pub fn read(map: &'a Map<'a>, settings: &RenderSettings) -> Result<Self> {
        check_raw(map, settings)?;
        let body = Fields::new(map, "body");
        let prompts = read_prompts(body)?;
        let mut sampling = SamplingRequest::read(body, settings)?;
        // Unlike a chat request's, it may not be null.
        body.int_or("n", 1)?;
        let logprobs = body.int("logprobs")?;
        let echo = body.bool("echo")?.unwrap_or(false);
        sampling.logprobs = if sampling.logprob_token_ids.is_some() { None } else { logprobs };
        if sampling.prompt_logprobs.is_none() && echo {
            sampling.prompt_logprobs = logprobs;
        }
        Ok(Self {
            common: CommonFields::read(body, true)?,
            prompts,
            sampling,
            max_tokens: body.int("max_tokens")?.unwrap_or(DEFAULT_MAX_TOKENS),
            echo,
            suffix: body.str("suffix")?.is_some(),
            embeds: map.get("prompt_embeds").is_some_and(Json::truthy),
        })
    }

    /// What is well formed, but no renderer of token ids can serve.
    pub fn refuse_unsupported(&self) -> Result<()> {
        let suffix_matters =
            self.echo || self.embeds || self.common.truncation.tokens.is_some() || !self.prompts.is_empty();
        if self.suffix && suffix_matters {
            return Err(Error::bad_param(
                "suffix",
                "`suffix` needs a model that fills in the middle; this one does not",
            ));
        }
        if self.embeds {
            return Err(Error::bad_param("prompt_embeds", "`prompt_embeds` have no token ids and cannot be rendered"));
        }
        Ok(())
    }

    /// A list of prompts holds at least one.
    pub fn require_prompts(&self) -> Result<()> {
        if self.prompts.is_empty() {
            return Err(Error::bad_param("prompt", "`prompt` is an empty list: give at least one prompt"));
        }
        Ok(())
    }
}

/// The checks that vLLM makes on the raw body, in its order.
fn check_raw(map: &Map<'_>, settings: &RenderSettings) -> Result<()> {
    let most = settings.max_completion_prompts;
    for field in ["prompt", "prompt_embeds"] {
        let items = map.get(field).and_then(Json::as_array).unwrap_or_default();
        let ids = field == "prompt"
            && items.iter().all(|item| matches!(item, Json::Int(_) | Json::Bool(_) | Json::BigInt(_)));
        if items.len() > most && !ids {
            return Err(Error::bad_param(field, format!("`{field}` holds {} prompts, more than {most}", items.len())));
        }
    }
    let no_prompt = match map.get("prompt") {
        None | Some(Json::Null) => true,
        Some(prompt) => prompt.as_str() == Some(""),
    };
    let no_embeds = match map.get("prompt_embeds") {
        None | Some(Json::Null) => true,
        Some(embeds) => embeds.as_array().is_some_and(<[_]>::is_empty),
    };
    if no_prompt && no_embeds {
        return Err(Error::bad_param("prompt", "`prompt` must be given and not empty"));
    }
    check_stream_options(map)?;
    check_logprobs(map)?;
    constraints::check_raw(map, Some("structured_outputs"))?;
    constraints::check_raw_response_format(map)?;
    check_cache_salt(map)?;
    sampling::check_within_validation(map)
}

fn check_logprobs(map: &Map<'_>) -> Result<()> {
    let truthy = |key| map.get(key).is_some_and(Json::truthy);
    let without_logprobs = map.present("logprobs").is_none();
    if truthy("logprob_token_ids") && truthy("use_beam_search") {
        return Err(Error::bad_param("logprob_token_ids", "`logprob_token_ids` do not go with beam search"));
    }
    if truthy("use_beam_search") && truthy("echo") && !without_logprobs {
        return Err(Error::bad_param("echo", "`echo` with `logprobs` does not go with beam search"));
    }
    if truthy("logprob_token_ids") && truthy("echo") && map.get("max_tokens") == Some(&Json::Int(0)) {
        return Err(Error::bad_param("logprob_token_ids", "`logprob_token_ids` need at least one token of output"));
    }
    if truthy("logprob_token_ids") && without_logprobs {
        return Err(Error::bad_param("logprob_token_ids", "`logprob_token_ids` need `logprobs`"));
    }
    check_prompt_logprobs(map)?;
    check_logprob_count(map, "logprobs").map(|_| ())
}

/// A string, a list of strings, a list of ids, or a list of lists of ids.
fn read_prompts<'a>(body: Fields<'a, 'a>) -> Result<Vec<Prompt<'a>>> {
    const EXPECTED: &str = "a string, token ids, or a list of either";
    let items = match body.present("prompt") {
        None => return Ok(Vec::new()),
        Some(Json::Str(text)) => return Ok(vec![Prompt::Text(text)]),
        Some(Json::Array(items)) => items,
        Some(_) => return Err(body.error("prompt", EXPECTED)),
    };
    match items.first() {
        None => Ok(Vec::new()),
        Some(Json::Str(_)) => items
            .iter()
            .enumerate()
            .map(|(i, item)| {
                item.as_str().map(Prompt::Text).ok_or_else(|| body.error(&format!("prompt.{i}"), "a string"))
            })
            .collect(),
        Some(Json::Array(_)) => items
            .iter()
            .enumerate()
            .map(|(i, item)| {
                let path = format!("prompt.{i}");
                let ids = item.as_array().ok_or_else(|| body.error(&path, "a list of token ids"))?;
                read_ids(body, &path, ids).map(Prompt::Ids)
            })
            .collect(),
        Some(_) => Ok(vec![Prompt::Ids(read_ids(body, "prompt", items)?)]),
    }
}

/// Token ids; those beyond 32 bits, which no vocabulary has, are refused.
pub(super) fn read_ids(body: Fields<'_, '_>, path: &str, items: &[Json<'_>]) -> Result<Vec<u32>> {
    let id = |item: &Json<'_>| match item {
        Json::Int(id) => u32::try_from(*id).ok(),
        item => lax_int(item).and_then(|id| u32::try_from(id).ok()),
    };
    let mut ids = Vec::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        ids.push(
            id(item)
                .ok_or_else(|| body.error(&format!("{path}.{i}"), "a token id: an integer from 0 to 4294967295"))?,
        );
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(text: &str) -> Result<Vec<Prompt<'static>>> {
        let text: &'static str = text.to_owned().leak();
        let Ok(Json::Object(map)) = Json::parse(text) else { panic!("not an object") };
        let request = CompletionRequest::read(Box::leak(Box::new(map)), &RenderSettings::default())?;
        request.refuse_unsupported()?;
        request.require_prompts()?;
        Ok(request.prompts)
    }

    #[test]
    fn prompts_in_every_form() {
        assert_eq!(prompts(r#"{"prompt": "a"}"#).unwrap(), [Prompt::Text("a")]);
        assert_eq!(prompts(r#"{"prompt": ["a", ""]}"#).unwrap(), [Prompt::Text("a"), Prompt::Text("")]);
        assert_eq!(prompts(r#"{"prompt": [1, 2.0, true]}"#).unwrap(), [Prompt::Ids(vec![1, 2, 1])]);
        assert_eq!(prompts(r#"{"prompt": [[1], []]}"#).unwrap(), [Prompt::Ids(vec![1]), Prompt::Ids(vec![])]);
    }

    #[test]
    fn prompts_that_are_refused() {
        for (body, kind, param) in [
            (r#"{"prompt": ""}"#, "BadRequestError", Some("prompt")),
            ("{}", "BadRequestError", Some("prompt")),
            (r#"{"prompt": []}"#, "BadRequestError", Some("prompt")),
            (r#"{"prompt": [1, -2]}"#, "Bad Request", Some("body.prompt.1")),
            (r#"{"prompt": ["a", 1]}"#, "Bad Request", Some("body.prompt.1")),
            (r#"{"prompt": [[1], 2]}"#, "Bad Request", Some("body.prompt.1")),
            (r#"{"prompt": [[1, "x"]]}"#, "Bad Request", Some("body.prompt.0.1")),
            (r#"{"prompt": [4294967296]}"#, "Bad Request", Some("body.prompt.0")),
            (r#"{"prompt": {"a": 1}}"#, "Bad Request", Some("body.prompt")),
            (r#"{"prompt": "a", "suffix": "b"}"#, "BadRequestError", Some("suffix")),
            (r#"{"prompt_embeds": "abcd"}"#, "BadRequestError", Some("prompt_embeds")),
        ] {
            let error = prompts(body).unwrap_err();
            assert_eq!((error.kind(), error.param()), (kind, param), "{body}");
        }
        let many = format!(r#"{{"prompt": [{}]}}"#, vec![r#""a""#; 1025].join(","));
        assert_eq!(prompts(&many).unwrap_err().param(), Some("prompt"));
        let many_ids = format!(r#"{{"prompt": [{}]}}"#, vec!["1"; 1025].join(","));
        assert_eq!(prompts(&many_ids).unwrap().len(), 1);
    }
}
