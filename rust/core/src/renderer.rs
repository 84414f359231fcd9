//! The renderer: request bytes to response bytes, or to the media that a response waits for.

use std::borrow::Cow;

use crate::conversation::{self, MediaItem, Reading};
use crate::error::{Error, Result};
use crate::json::{Json, Map};
use crate::prompt::{EncodedPrompt, PromptEncoder};
use crate::protocol::chat::{ChatRequest, TemplateFields, check_media_trust};
use crate::protocol::completion::{CompletionRequest, Prompt};
use crate::protocol::generate::{GenerateRequest, Nulls, ParseContext};
use crate::protocol::sampling::SamplingDefaults;
use crate::protocol::tokenize::{
    DetokenizeRequest, TokenizeInput, TokenizeRequest, write_detokenize_response, write_tokenize_response,
};
use crate::protocol::tools::ToolChoice;
use crate::protocol::{check_model, parse_body};
use crate::spec::{ModelSpec, RenderSettings, RenderSpec};
use crate::templates::{TemplateSet, TemplateVariables};
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
/// Bytes that the answers to the prompts of one completion may repeat, beside what each prompt itself comes to.
const MAX_REPEATED_BYTES: usize = 32 << 20;
/// The longest spelling of a token id, and of a pair of offsets, with what separates them.
const ID_BYTES: usize = 11;
const OFFSETS_BYTES: usize = 24;

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
    /// The media, in request order, without which there is no answer.
    Pending(Vec<MediaItem<'static>>),
}

/// Renders requests for one model; immutable, shared by threads.
pub struct Renderer {
    model: ModelSpec,
    settings: RenderSettings,
    tokenizer: Tokenizer,
    templates: TemplateSet,
    defaults: SamplingDefaults,
    nulls: Nulls,
}

/// A chat template's output in token ids, or what it waits for.
enum RenderedChat {
    Ids(EncodedPrompt),
    Pending(Vec<MediaItem<'static>>),
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
        Ok(Self { model, settings, tokenizer, templates, defaults, nulls })
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
        if effort == Effort::Short && body.len() > self.short_bytes() {
            return Ok(Begun::Lengthy);
        }
        let (body, values) = parse_body(body)?;
        if effort == Effort::Short && !self.is_short(&body, values) {
            return Ok(Begun::Lengthy);
        }
        match route {
            Route::Chat => self.chat(&body, request_id),
            Route::Completions => self.completions(&body, request_id).map(Begun::Done),
            Route::Tokenize => self.tokenize(&body),
            Route::Detokenize => self.detokenize(&body).map(Begun::Done),
        }
    }

    fn short_bytes(&self) -> usize {
        if self.tokenizer.is_fast() { SHORT_BYTES } else { SHORT_BYTES_GENERAL }
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

    fn chat(&self, body: &Map<'_>, request_id: Option<&str>) -> Result<Begun> {
        let request = ChatRequest::read(body, &self.settings)?;
        let messages = conversation::read_messages(request.template.messages, Reading::Chat)?;
        self.check_model(request.common.model)?;
        request.common.refuse_beam_search()?;
        self.check_tool_choice(&request.tool_choice)?;
        request.template.check_trust(&self.settings)?;
        check_media_trust(body, &self.settings)?;
        request.common.check_limits(request.max_tokens, request.max_tokens_field, self.model.max_model_len)?;

        let variables = self.templates.variables(&request.template, request.documents, request.reasoning_effort);
        let forwarded = self.forwarded_ids(&request, &messages)?;
        let prompt = if let Some(ids) = forwarded.ids {
            EncodedPrompt { ids, offsets: None }
        } else {
            let exclude = self.settings.exclude_tools_when_tool_choice_none && request.tool_choice == ToolChoice::None;
            let tools = request.tools.as_deref().filter(|_| !exclude);
            let rendered = self.render_chat(&request.template, &variables, tools, &messages, |text, visible| {
                let offsets = request.common.return_token_offsets && visible;
                self.encoder().encode(text, &request.common, request.max_tokens == Some(0), offsets)
            })?;
            match rendered {
                RenderedChat::Ids(prompt) => prompt,
                RenderedChat::Pending(media) => return Ok(Begun::Pending(media)),
            }
        };
        require_ids(&prompt.ids)?;
        let max_tokens = self.max_tokens(request.max_tokens, prompt.ids.len());
        let sampling_params = request.sampling.resolve(max_tokens, &self.defaults, &self.settings)?;
        let id = format!("chatcmpl-{}", base_request_id(request_id, request.common.request_id));
        let answer = GenerateRequest {
            request_id: &id,
            token_ids: &prompt.ids,
            token_offsets: prompt.offsets.as_deref(),
            sampling_params,
            model: request.common.model,
            // Whether reasoning is over in the prompt is for a parser to say; a client that wants none has said so.
            reasoning_ended: (!request.include_reasoning).then_some(true),
            reasoning_parser_kwargs: self.settings.reasoning_parser.as_ref().map(|_| &variables.effective),
            return_token_ids: request.common.return_token_ids,
            parse_context: Some(ParseContext {
                tools: request.tools.as_deref(),
                tool_choice: &request.tool_choice,
                parallel_tool_calls: request.parallel_tool_calls,
                include_reasoning: request.include_reasoning,
                chat_template_kwargs: &variables.effective,
                history_tool_call_cnt: conversation::count_tool_calls(&messages),
            }),
            stream: request.sampling.stream,
            stream_options: request.common.stream_options.filter(|_| request.sampling.stream),
            cache_salt: request.common.cache_salt,
            priority: request.common.priority,
            kv_transfer_params: forwarded.kv_transfer_params.as_deref().filter(|map| !map.is_empty()),
            ec_transfer_params: request.common.ec_transfer_params.filter(|map| !map.is_empty()),
        };
        let mut out = Vec::new();
        answer.write(&mut out, self.nulls);
        Ok(Begun::Done(out))
    }

    /// Template and tokenize messages. `encode` is told the text, and whether the template's output is what is
    /// tokenized (it is not when a client asks the template step for ids).
    fn render_chat<'a>(
        &self,
        fields: &TemplateFields<'a>,
        variables: &TemplateVariables<'a>,
        tools: Option<&[Json<'a>]>,
        messages: &[conversation::Message<'a>],
        encode: impl FnOnce(&str, bool) -> Result<EncodedPrompt>,
    ) -> Result<RenderedChat> {
        let template = self.templates.resolve(fields.chat_template, tools.is_some())?;
        let format = self.templates.content_format(&template);
        let mut conversation = conversation::normalize(messages, format, &self.model, &self.settings)?;
        if conversation.messages.is_empty() {
            return Err(Error::bad_request("`messages` is empty: a prompt needs at least one message"));
        }
        if !template.mentions_developer() {
            conversation::fold_developer_messages(&mut conversation.messages)?;
        }
        if !conversation.media.is_empty() {
            return Ok(RenderedChat::Pending(conversation.media.into_iter().map(MediaItem::into_owned).collect()));
        }
        let text = variables.render(&template, &conversation.messages, tools)?;
        encode(&text, !variables.tokenizes()).map(RenderedChat::Ids)
    }

    fn check_tool_choice(&self, choice: &ToolChoice) -> Result<()> {
        let settings = &self.settings;
        if settings.enable_auto_tool_choice && settings.tool_call_parser.is_some() {
            return Ok(());
        }
        match choice {
            ToolChoice::Null | ToolChoice::None => Ok(()),
            ToolChoice::Auto if settings.enable_auto_tool_choice => Ok(()),
            ToolChoice::Auto => Err(Error::bad_request(
                "`tool_choice` \"auto\" needs a server started with --enable-auto-tool-choice and --tool-call-parser",
            )),
            ToolChoice::Required => {
                Err(Error::bad_request("`tool_choice` \"required\" needs a server started with --tool-call-parser"))
            }
            ToolChoice::Named(name) => Err(Error::bad_request(format!(
                "`tool_choice` of the function `{name}` needs a server started with --tool-call-parser"
            ))),
        }
    }

    /// The least of what is left of the context, what is asked for (or the model's default), and the server's cap.
    fn max_tokens(&self, requested: Option<i128>, prompt_tokens: usize) -> i128 {
        let left = i128::from(self.model.max_model_len) - i128::try_from(prompt_tokens).unwrap_or(i128::MAX);
        let wanted = requested.or(self.defaults.max_tokens.map(i128::from));
        [Some(left), wanted, self.model.max_tokens_cap.map(i128::from)].into_iter().flatten().min().unwrap_or(left)
    }

    /// Prompt ids that an earlier stage computed, so that a decode stage need not; and what is echoed without them.
    fn forwarded_ids<'a>(
        &self,
        request: &ChatRequest<'a>,
        messages: &[conversation::Message<'_>],
    ) -> Result<Forwarded<'a>> {
        const PARAM: &str = "kv_transfer_params.prompt_token_ids";
        let Some(map) = request.common.kv_transfer_params else { return Ok(Forwarded::default()) };
        let Some(ids) = map.get("prompt_token_ids") else {
            return Ok(Forwarded { ids: None, kv_transfer_params: Some(Cow::Borrowed(map)) });
        };
        let mut echoed = map.clone();
        echoed.remove("prompt_token_ids");
        let echoed = Some(Cow::Owned(echoed));
        if ids.is_null() || request.echo || conversation::has_media(messages) {
            return Ok(Forwarded { ids: None, kv_transfer_params: echoed });
        }
        let most = self.model.vocab_size.map_or(0, |size| size.saturating_sub(1)).max(self.tokenizer.max_token_id());
        let id = |id: &Json<'_>| match id {
            Json::Int(id) => u32::try_from(*id).ok(),
            _ => None,
        };
        let items = ids.as_array().unwrap_or_default();
        let ids: Option<Vec<u32>> = items.iter().map(id).collect();
        match ids {
            Some(ids) if !ids.is_empty() => match ids.iter().find(|id| **id > most) {
                Some(id) => {
                    Err(Error::bad_param(PARAM, format!("token id {id} is beyond the vocabulary (largest: {most})")))
                }
                None => Ok(Forwarded { ids: Some(ids), kv_transfer_params: echoed }),
            },
            _ => Err(Error::bad_param(PARAM, "`prompt_token_ids` must be a non-empty list of token ids")),
        }
    }

    fn completions(&self, body: &Map<'_>, request_id: Option<&str>) -> Result<Vec<u8>> {
        let request = CompletionRequest::read(body, &self.settings)?;
        self.check_model(request.common.model)?;
        request.common.refuse_beam_search()?;
        request.refuse_unsupported()?;
        check_media_trust(body, &self.settings)?;
        request.require_prompts()?;
        request.common.check_limits(Some(request.max_tokens), "max_tokens", self.model.max_model_len)?;

        let encoder = self.encoder();
        let no_output = request.max_tokens == 0;
        let prompts = request
            .prompts
            .iter()
            .map(|prompt| match prompt {
                Prompt::Text(text) => {
                    encoder.encode(text, &request.common, no_output, request.common.return_token_offsets)
                }
                Prompt::Ids(ids) => encoder.limit_ids(ids.clone(), &request.common, no_output),
            })
            .collect::<Result<Vec<_>>>()?;
        let base = format!("cmpl-{}", base_request_id(request_id, request.common.request_id));
        let mut out = vec![b'['];
        let mut repeated = 0;
        for (i, prompt) in prompts.iter().enumerate() {
            require_ids(&prompt.ids)?;
            let max_tokens =
                if request.echo && no_output { 1 } else { self.max_tokens(Some(request.max_tokens), prompt.ids.len()) };
            let sampling_params = request.sampling.resolve(max_tokens, &self.defaults, &self.settings)?;
            let id = if prompts.len() == 1 { base.clone() } else { format!("{base}-{i}") };
            let answer = GenerateRequest {
                request_id: &id,
                token_ids: &prompt.ids,
                token_offsets: prompt.offsets.as_deref(),
                sampling_params,
                model: request.common.model,
                reasoning_ended: None,
                reasoning_parser_kwargs: None,
                return_token_ids: request.common.return_token_ids,
                parse_context: None,
                stream: request.sampling.stream,
                stream_options: request.common.stream_options.filter(|_| request.sampling.stream),
                cache_salt: request.common.cache_salt,
                priority: request.common.priority,
                kv_transfer_params: request.common.kv_transfer_params.filter(|map| !map.is_empty()),
                ec_transfer_params: request.common.ec_transfer_params.filter(|map| !map.is_empty()),
            };
            if i > 0 {
                out.push(b',');
            }
            let before = out.len();
            answer.write(&mut out, self.nulls);
            let offsets = prompt.offsets.as_ref().map_or(0, Vec::len);
            let own = prompt.ids.len() * ID_BYTES + offsets * OFFSETS_BYTES;
            repeated += (out.len() - before).saturating_sub(own);
            if repeated > MAX_REPEATED_BYTES {
                return Err(Error::bad_request(format!(
                    "the parameters of this request, repeated for each of its {} prompts, come to more than {} MiB; \
                     send fewer prompts at once",
                    prompts.len(),
                    MAX_REPEATED_BYTES >> 20
                )));
            }
        }
        out.push(b']');
        Ok(out)
    }

    fn tokenize(&self, body: &Map<'_>) -> Result<Begun> {
        let request = TokenizeRequest::read(body)?;
        let encode = |text: &str| {
            let ids = self.tokenizer.encode(text, request.add_special_tokens, None)?;
            Ok(EncodedPrompt { ids, offsets: None })
        };
        let prompt = match &request.input {
            TokenizeInput::Prompt(text) => {
                self.check_model(request.model)?;
                encode(text)?
            }
            TokenizeInput::Chat { template, tools, .. } => {
                let messages = conversation::read_messages(template.messages, Reading::Tokenize)?;
                self.check_model(request.model)?;
                template.check_trust(&self.settings)?;
                check_media_trust(body, &self.settings)?;
                let variables = self.templates.variables(template, None, None);
                let tools = tools.as_deref();
                match self.render_chat(template, &variables, tools, &messages, |text, _| encode(text))? {
                    RenderedChat::Ids(prompt) => prompt,
                    RenderedChat::Pending(media) => return Ok(Begun::Pending(media)),
                }
            }
        };
        let pieces: Option<Vec<String>> = request
            .return_token_strs
            .then(|| prompt.ids.iter().map(|id| self.tokenizer.id_to_token(*id).unwrap_or_default()).collect());
        let mut out = Vec::with_capacity(64 + prompt.ids.len() * 7);
        write_tokenize_response(&mut out, &prompt.ids, self.model.max_model_len, pieces.as_deref());
        Ok(Begun::Done(out))
    }

    fn detokenize(&self, body: &Map<'_>) -> Result<Vec<u8>> {
        let request = DetokenizeRequest::read(body)?;
        self.check_model(request.model)?;
        let text = self.tokenizer.decode(&request.tokens, false)?;
        let mut out = Vec::with_capacity(text.len() + 16);
        write_detokenize_response(&mut out, &text);
        Ok(out)
    }
}

/// Whether a body holds a chat template of the client's own.
fn brings_template(body: &Map<'_>) -> bool {
    let hidden =
        body.get("chat_template_kwargs").and_then(Json::as_object).and_then(|map| map.present("chat_template"));
    hidden.or(body.present("chat_template")).is_some()
}

/// Forwarded prompt ids, and the transfer parameters that are echoed.
#[derive(Debug, Default)]
struct Forwarded<'a> {
    ids: Option<Vec<u32>>,
    kv_transfer_params: Option<Cow<'a, Map<'a>>>,
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
fn random_id() -> String {
    let bits = getrandom::u64().unwrap_or_else(|_| {
        // Without an entropy source the hasher's per-process key and the clock still tell requests apart.
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(std::time::Instant::now())
    });
    format!("{bits:016x}")
}
