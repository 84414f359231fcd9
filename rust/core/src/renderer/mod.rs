//! The renderer: request bytes to response bytes, or to the media that a response waits for.

mod chat;
mod completions;
mod media;
mod parsing;
mod tokenize;

use std::borrow::Cow;
use std::sync::Arc;

pub use media::{MediaSource, Options as MediaOptions, Pending, PendingMedia, ReadyMedia};

use crate::error::{Error, Result};
use crate::escape::Escapes;
use crate::json::{Json, Map};
use crate::parser::Parser;
use crate::prompt::PromptEncoder;
use crate::protocol::generate::Nulls;
use crate::protocol::sampling::SamplingDefaults;
use crate::protocol::{check_model, parse_body};
use crate::spec::{ModelSpec, RenderSettings, RenderSpec};
use crate::templates::TemplateSet;
use crate::tokenizer::{CacheStats, Tokenizer};

/// What a body asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `/v1/chat/completions/render`
    Chat,
    /// `/v1/completions/render`
    Completions,
    /// `/tokenize`
    Tokenize,
    /// `/detokenize`
    Detokenize,
}

/// Bodies up to this size can be short work.
const SHORT_BYTES: usize = 32 << 10;
/// The same where the general tokenizer encodes, which is some twenty times slower.
const SHORT_BYTES_GENERAL: usize = 2 << 10;
/// Values of a body that can be short work: each costs a template and the answer some microseconds at most.
const SHORT_VALUES: usize = 512;
/// Prompts of a completion that can be short work: each has an answer with all parameters of its own.
const SHORT_PROMPTS: usize = 8;

/// What a client writes that reaches a template.
const CLIENT_FIELDS: [&str; 4] = ["messages", "tools", "documents", "chat_template_kwargs"];

/// How much work a caller is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// About half a millisecond, for callers that hold others up meanwhile.
    Short,
    Any,
}

/// How far a request has come.
#[derive(Debug)]
pub enum Begun {
    /// The response body.
    Done(Vec<u8>),
    /// Nothing is done: this is more than the short work that was asked for.
    Lengthy,
    /// The media without which there is no answer; [`Renderer::finish`] goes on.
    Pending(Pending),
}

/// Renders requests for one model; immutable, shared by threads.
pub struct Renderer {
    // Shared with what reads the answers to what is rendered here.
    pub(crate) model: Arc<ModelSpec>,
    pub(crate) settings: Arc<RenderSettings>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) templates: Arc<TemplateSet>,
    /// Of the answers; it has a say in what is rendered, too.
    pub(crate) parser: Option<Arc<Parser>>,
    defaults: SamplingDefaults,
    nulls: Nulls,
    /// The id of the token that images take the place of.
    image_token: Option<u32>,
    escapes: Option<Escapes>,
}

impl Renderer {
    /// Build from a spec and the text of tokenizer.json. Every template is compiled here, so that one that cannot be
    /// served fails now.
    pub fn new(spec: RenderSpec, tokenizer_json: &[u8]) -> Result<Self> {
        let RenderSpec { model, settings } = spec;
        let tokenizer = Tokenizer::new(tokenizer_json, &model.tokenizer)?;
        let templates = TemplateSet::new(&model, &settings)?;
        let defaults = SamplingDefaults::from_spec(&model.default_sampling_params)?;
        let nulls = if settings.omit_null { Nulls::Omit } else { Nulls::Write };
        let image_token = model.image_placeholder.as_ref().map(|token| image_token(&tokenizer, token)).transpose()?;
        let parser = parsing::parser(&model, &settings, &tokenizer)?.map(Arc::new);
        let escapes = if settings.escape_special_tokens { Some(escapes(&tokenizer)?) } else { None };
        Ok(Self {
            model: Arc::new(model),
            settings: Arc::new(settings),
            tokenizer: Arc::new(tokenizer),
            templates: Arc::new(templates),
            parser,
            defaults,
            nulls,
            image_token,
            escapes,
        })
    }

    pub fn model(&self) -> &ModelSpec {
        &self.model
    }

    pub fn settings(&self) -> &RenderSettings {
        &self.settings
    }

    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    pub fn cache_stats(&self) -> CacheStats {
        self.tokenizer.cache_stats()
    }

    /// Serve one body. `request_id` is the `X-Request-Id` header, which goes before the body's.
    pub fn begin(&self, route: Route, body: &[u8], request_id: Option<&str>, effort: Effort) -> Result<Begun> {
        if effort == Effort::Short && body.len() - media::likely_data_bytes(body) > self.short_bytes() {
            return Ok(Begun::Lengthy);
        }
        let raw = body;
        let (body, values) = parse_body(raw)?;
        if effort == Effort::Short && !(self.is_short(&body, values) && self.has_little_text(raw, &body)) {
            return Ok(Begun::Lengthy);
        }
        match route {
            Route::Chat => self.chat(raw, &body, request_id),
            Route::Completions => self.completions(&body, request_id).map(Begun::Done),
            Route::Tokenize => self.tokenize(raw, &body),
            Route::Detokenize => self.detokenize(&body).map(Begun::Done),
        }
    }

    /// Serve a body that [`Self::begin`] found waiting for media: `ready`, one for each of `pending.media`.
    ///
    /// The body is read once more, which costs far less than keeping what was read of it.
    pub fn finish(
        &self,
        route: Route,
        body: &[u8],
        request_id: Option<&str>,
        pending: &Pending,
        ready: &[ReadyMedia<'_>],
    ) -> Result<Vec<u8>> {
        let (body, _) = parse_body(body)?;
        let expanded = pending.expand(self.image_token()?, ready)?;
        match route {
            Route::Chat => self.finish_chat(&body, request_id, expanded),
            Route::Tokenize => self.finish_tokenize(&body, &expanded),
            Route::Completions | Route::Detokenize => {
                Err(Error::Internal { message: "this route has no media to wait for".to_owned() })
            }
        }
    }

    fn image_token(&self) -> Result<u32> {
        self.image_token.ok_or_else(|| Error::Internal { message: "this model has no images".to_owned() })
    }

    fn short_bytes(&self) -> usize {
        if self.tokenizer.is_fast() { SHORT_BYTES } else { SHORT_BYTES_GENERAL }
    }

    /// What looked like a medium's data may have been text after all.
    fn has_little_text(&self, raw: &[u8], body: &Map<'_>) -> bool {
        raw.len() <= self.short_bytes() || raw.len() - media::data_bytes(body) <= self.short_bytes()
    }

    fn is_short(&self, body: &Map<'_>, values: usize) -> bool {
        // Ids of one prompt are a list as well.
        let prompts = match body.get("prompt") {
            Some(Json::Array(items)) if !matches!(items.first(), Some(Json::Int(_))) => items.len(),
            _ => 1,
        };
        // A client's template may take its time, whatever its length.
        values <= SHORT_VALUES
            && prompts <= SHORT_PROMPTS
            && !(self.settings.trust_request_chat_template && brings_template(body))
    }

    fn check_model(&self, model: Option<&str>) -> Result<()> {
        check_model(model, &self.model.served_names, self.settings.skip_model_name_validation)
    }

    fn encoder(&self) -> PromptEncoder<'_> {
        PromptEncoder { tokenizer: &self.tokenizer, max_model_len: self.model.max_model_len as usize }
    }

    /// The least of what is left of the context, what is asked for (or the model's default), and the server's cap.
    fn max_tokens(&self, requested: Option<i128>, prompt_tokens: usize) -> i128 {
        let left = i128::from(self.model.max_model_len) - i128::try_from(prompt_tokens).unwrap_or(i128::MAX);
        let wanted = requested.or(self.defaults.max_tokens.map(i128::from));
        [Some(left), wanted, self.model.max_tokens_cap.map(i128::from)].into_iter().flatten().min().unwrap_or(left)
    }
}

/// Whether a body holds a chat template of the client's own.
fn brings_template(body: &Map<'_>) -> bool {
    let hidden =
        body.get("chat_template_kwargs").and_then(Json::as_object).and_then(|map| map.present("chat_template"));
    hidden.or(body.present("chat_template")).is_some()
}

fn escapes(tokenizer: &Tokenizer) -> Result<Escapes> {
    let tokens = tokenizer.escapable_tokens().ok_or_else(|| {
        Error::setup(format!("--escape-special-tokens cannot be kept with this tokenizer ({})", tokenizer.backend()))
    })?;
    Escapes::new(tokens)
}

fn image_token(tokenizer: &Tokenizer, token: &str) -> Result<u32> {
    tokenizer
        .token_to_id(token)
        .ok_or_else(|| Error::setup(format!("tokenizer.json has no token `{token}` for images")))
}

fn require_ids(ids: &[u32]) -> Result<()> {
    if ids.is_empty() {
        return Err(Error::bad_request("the prompt comes to no tokens at all"));
    }
    Ok(())
}

/// The header's id, else the body's, else a random one.
fn base_request_id<'r>(header: Option<&'r str>, body: Option<&'r str>) -> Cow<'r, str> {
    header.or(body).map_or_else(|| Cow::Owned(random_id()), Cow::Borrowed)
}

/// 64 random bits in hexadecimal.
pub(crate) fn random_id() -> String {
    let bits = getrandom::u64().unwrap_or_else(|_| {
        // Without an entropy source the hasher's per-process key and the clock still tell requests apart.
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(std::time::Instant::now())
    });
    format!("{bits:016x}")
}
