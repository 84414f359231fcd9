//! Chat requests: the template's text, its ids, and the answer made of them.

use std::borrow::Cow;
use std::ops::Range;

use super::media::{self, PendingMedia};
use super::{Begun, CLIENT_FIELDS, Pending, Renderer, base_request_id, require_ids};
use crate::conversation::{self, Message, Reading};
use crate::error::{Error, Result};
use crate::escape::Escapes;
use crate::json::{Json, Map};
use crate::prompt::EncodedPrompt;
use crate::protocol::chat::{ChatRequest, TemplateFields, check_media_trust};
use crate::protocol::features::Features;
use crate::protocol::generate::{GenerateRequest, ParseContext};
use crate::protocol::tools::ToolChoice;
use crate::templates::TemplateVariables;
use crate::tokenizer::Input;

/// A chat request that passed all checks which need no prompt.
pub(super) struct Chat<'a> {
    pub(super) request: ChatRequest<'a>,
    pub(super) messages: Vec<Message<'a>>,
    pub(super) variables: TemplateVariables<'a>,
}

/// A chat template's output, and the media that it has places for.
pub(super) struct RenderedText {
    pub(super) text: String,
    /// Byte ranges that a client wrote, and that must not become control tokens.
    pub(super) plain: Vec<Range<usize>>,
    pub(super) media: Vec<PendingMedia>,
}

impl RenderedText {
    pub(super) fn input(&self) -> Input<'_> {
        Input { text: &self.text, plain: &self.plain }
    }
}

/// Forwarded prompt ids, and the transfer parameters that are echoed.
#[derive(Debug, Default)]
struct Forwarded<'a> {
    ids: Option<Vec<u32>>,
    kv_transfer_params: Option<Cow<'a, Map<'a>>>,
}

/// The template's text of a body, with nothing in it that a client wrote becoming a control token.
pub(super) fn escaped(
    escapes: &Escapes,
    body: &Map<'_>,
    render: impl FnOnce(&Map<'_>) -> Result<RenderedText>,
) -> Result<RenderedText> {
    let mut spelled = body.clone();
    let hidden = escapes.hide(&mut spelled, &CLIENT_FIELDS);
    if hidden.is_empty() {
        return render(body);
    }
    let rendered = render(&spelled)?;
    let (text, plain) = hidden.reveal(&rendered.text);
    Ok(RenderedText { text, plain, ..rendered })
}

impl Renderer {
    /// `raw` is the text that `body` was parsed from.
    pub(super) fn chat(&self, raw: &[u8], body: &Map<'_>, request_id: Option<&str>) -> Result<Begun> {
        let chat = self.read_chat(body)?;
        if let Some(ids) = self.forwarded_ids(&chat)?.ids {
            let prompt = EncodedPrompt { ids, offsets: None };
            return self.answer_chat(&chat, &prompt, None, request_id).map(Begun::Done);
        }
        let common = &chat.request.common;
        let no_output = chat.request.max_tokens == Some(0);
        let again = |body: &Map<'_>| self.chat_text(raw, &self.read_chat(body)?);
        let rendered = match &self.escapes {
            Some(escapes) => escaped(escapes, body, again)?,
            None => self.chat_text(raw, &chat)?,
        };
        if rendered.media.is_empty() {
            // A client can have the template step tokenize; then no place in the text is known.
            let offsets = common.return_token_offsets && !chat.variables.tokenizes();
            let prompt = self.encoder().encode(rendered.input(), common, no_output, offsets)?;
            return self.answer_chat(&chat, &prompt, None, request_id).map(Begun::Done);
        }
        let placed = self.place(body, rendered, again)?;
        let prompt = self.encoder().encode(placed.text.input(), common, no_output, false)?;
        let slots = self.slots(&prompt.ids, &placed, common.truncation.tokens.is_some())?;
        let options = media::Options::new(body, common.omit_media_payload);
        Ok(Begun::Pending(Pending { ids: prompt.ids, slots, media: placed.text.media, options }))
    }

    /// The answer to a request that waited for its media.
    pub(super) fn finish_chat(
        &self,
        body: &Map<'_>,
        request_id: Option<&str>,
        expanded: media::Expanded<'_>,
    ) -> Result<Vec<u8>> {
        let chat = self.read_chat(body)?;
        let no_output = chat.request.max_tokens == Some(0);
        let prompt = EncodedPrompt { ids: expanded.ids, offsets: None };
        let mut features = expanded.features;
        let prompt = self.encoder().limit_expanded(prompt, &chat.request.common, no_output, &mut features)?;
        self.answer_chat(&chat, &prompt, Some(&features), request_id)
    }

    fn read_chat<'a>(&self, body: &'a Map<'a>) -> Result<Chat<'a>> {
        let request = ChatRequest::read(body, &self.settings)?;
        let messages = conversation::read_messages(request.template.messages, Reading::Chat)?;
        self.check_model(request.common.model)?;
        request.common.refuse_beam_search()?;
        self.check_tool_choice(&request.tool_choice)?;
        request.template.check_trust(&self.settings)?;
        check_media_trust(body, &self.settings)?;
        request.common.check_limits(request.max_tokens, request.max_tokens_field, self.model.max_model_len)?;
        let variables = self.templates.variables(&request.template, request.documents, request.reasoning_effort);
        Ok(Chat { request, messages, variables })
    }

    fn chat_text(&self, raw: &[u8], chat: &Chat<'_>) -> Result<RenderedText> {
        let Chat { request, messages, variables } = chat;
        let exclude = self.settings.exclude_tools_when_tool_choice_none && request.tool_choice == ToolChoice::None;
        let tools = request.tools.as_deref().filter(|_| !exclude);
        self.template_text(raw, &request.template, variables, tools, messages)
    }

    /// Run the chat template over messages.
    pub(super) fn template_text<'a>(
        &self,
        raw: &[u8],
        fields: &TemplateFields<'a>,
        variables: &TemplateVariables<'a>,
        tools: Option<&[Json<'a>]>,
        messages: &[Message<'a>],
    ) -> Result<RenderedText> {
        let template = self.templates.resolve(fields.chat_template, tools.is_some())?;
        let format = self.templates.content_format(&template);
        let mut conversation = conversation::normalize(messages, format, &self.model, &self.settings)?;
        if conversation.messages.is_empty() {
            return Err(Error::bad_request("`messages` is empty: a prompt needs at least one message"));
        }
        if !template.mentions_developer() {
            conversation::fold_developer_messages(&mut conversation.messages)?;
        }
        let text = variables.render(&template, &conversation.messages, tools)?;
        let media = conversation.media.into_iter().map(|item| PendingMedia::new(item, raw)).collect();
        Ok(RenderedText { text, plain: Vec::new(), media })
    }

    fn answer_chat(
        &self,
        chat: &Chat<'_>,
        prompt: &EncodedPrompt,
        features: Option<&Features<'_>>,
        request_id: Option<&str>,
    ) -> Result<Vec<u8>> {
        let Chat { request, messages, variables } = chat;
        require_ids(&prompt.ids)?;
        let max_tokens = self.max_tokens(request.max_tokens, prompt.ids.len());
        let adjusted = self.adjusted(chat, &prompt.ids)?;
        let sampling_params = adjusted.sampling.resolve(max_tokens, &self.defaults, &self.settings)?;
        let forwarded = self.forwarded_ids(chat)?;
        let id = format!("chatcmpl-{}", base_request_id(request_id, request.common.request_id));
        let answer = GenerateRequest {
            request_id: &id,
            token_ids: &prompt.ids,
            token_offsets: prompt.offsets.as_deref(),
            features,
            sampling_params,
            model: request.common.model,
            reasoning_ended: adjusted.reasoning_ended,
            reasoning_parser_kwargs: self.settings.reasoning_parser.as_ref().map(|_| &variables.effective),
            return_token_ids: request.common.return_token_ids,
            parse_context: Some(ParseContext {
                tools: request.tools.as_deref(),
                tool_choice: &request.tool_choice,
                parallel_tool_calls: request.parallel_tool_calls,
                include_reasoning: request.include_reasoning,
                chat_template_kwargs: &variables.effective,
                history_tool_call_cnt: conversation::count_tool_calls(messages),
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
        Ok(out)
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

    /// Prompt ids that an earlier stage computed, so that a decode stage need not; and what is echoed without them.
    fn forwarded_ids<'a>(&self, chat: &Chat<'a>) -> Result<Forwarded<'a>> {
        const PARAM: &str = "kv_transfer_params.prompt_token_ids";
        let Chat { request, messages, .. } = chat;
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
}
