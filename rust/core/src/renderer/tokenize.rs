//! `/tokenize` and `/detokenize`.

use super::chat::{RenderedText, escaped};
use super::{Begun, Pending, Renderer, media};
use crate::conversation::{self, Reading};
use crate::error::{Error, Result};
use crate::json::Map;
use crate::protocol::chat::check_media_trust;
use crate::protocol::tokenize::{
    DetokenizeRequest, TokenizeInput, TokenizeRequest, write_detokenize_response, write_tokenize_response,
};
use crate::tokenizer::Input;

impl Renderer {
    /// `raw` is the text that `body` was parsed from.
    pub(super) fn tokenize(&self, raw: &[u8], body: &Map<'_>) -> Result<Begun> {
        let request = TokenizeRequest::read(body)?;
        let encode = |text: Input<'_>| self.tokenizer.encode(text, request.add_special_tokens, None);
        if let TokenizeInput::Prompt(text) = &request.input {
            self.check_model(request.model)?;
            return Ok(Begun::Done(self.answer_tokenize(&request, &encode((*text).into())?)));
        }
        let again = |body: &Map<'_>| self.tokenize_text(raw, body);
        let rendered = match &self.escapes {
            Some(escapes) => escaped(escapes, body, again)?,
            None => again(body)?,
        };
        if rendered.media.is_empty() {
            return Ok(Begun::Done(self.answer_tokenize(&request, &encode(rendered.input())?)));
        }
        let placed = self.place(body, rendered, again)?;
        let ids = encode(placed.text.input())?;
        let slots = self.slots(&ids, &placed, false)?;
        Ok(Begun::Pending(Pending { ids, slots, media: placed.text.media, options: media::Options::new(body, true) }))
    }

    /// The answer to a request that waited for its media.
    pub(super) fn finish_tokenize(&self, body: &Map<'_>, expanded: &media::Expanded<'_>) -> Result<Vec<u8>> {
        Ok(self.answer_tokenize(&TokenizeRequest::read(body)?, &expanded.ids))
    }

    /// The template's text of a body with messages.
    fn tokenize_text(&self, raw: &[u8], body: &Map<'_>) -> Result<RenderedText> {
        let request = TokenizeRequest::read(body)?;
        let TokenizeInput::Chat { template, tools, .. } = &request.input else {
            return Err(Error::Internal { message: "a prompt has no template".to_owned() });
        };
        let messages = conversation::read_messages(template.messages, Reading::Tokenize)?;
        self.check_model(request.model)?;
        template.check_trust(&self.settings)?;
        check_media_trust(body, &self.settings)?;
        let variables = self.templates.variables(template, None, None);
        self.template_text(raw, template, &variables, tools.as_deref(), &messages)
    }

    fn answer_tokenize(&self, request: &TokenizeRequest<'_>, ids: &[u32]) -> Vec<u8> {
        let pieces: Option<Vec<String>> = request
            .return_token_strs
            .then(|| ids.iter().map(|id| self.tokenizer.id_to_token(*id).unwrap_or_default()).collect());
        let mut out = Vec::with_capacity(64 + ids.len() * 7);
        write_tokenize_response(&mut out, ids, self.model.max_model_len, pieces.as_deref());
        out
    }

    pub(super) fn detokenize(&self, body: &Map<'_>) -> Result<Vec<u8>> {
        let request = DetokenizeRequest::read(body)?;
        self.check_model(request.model)?;
        let text = self.tokenizer.decode(&request.tokens, false)?;
        let mut out = Vec::with_capacity(text.len() + 16);
        write_detokenize_response(&mut out, &text);
        Ok(out)
    }
}
