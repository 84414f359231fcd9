//! Bounds on what a body asks to be decoded, checked before anything is.
//!
//! Counts are held to what an engine of this model can give; the text to come, to the size of a request.

use super::Derenderer;
use super::request::{Choice, Generated};
use crate::error::{Error, Result};
use crate::protocol::fields::lax_int;

impl Derenderer {
    /// Hold engines' answers to their bounds, in the reference's order.
    pub(super) fn check_bounds(&self, responses: &[Generated<'_>]) -> Result<()> {
        let most = usize::try_from(self.settings.max_n_sequences).unwrap_or(usize::MAX);
        if responses.len() > most {
            return Err(too_many("`generate_responses`", responses.len(), most));
        }
        for response in responses {
            if response.choices.len() > most {
                return Err(too_many("`choices` of a response", response.choices.len(), most));
            }
            response.choices.iter().try_for_each(|choice| self.check_choice(choice))?;
            self.check_prompt_logprobs(response)?;
        }
        let choices: usize = responses.iter().map(|response| response.choices.len()).sum();
        if choices > most {
            return Err(too_many("choices of all responses", choices, most));
        }
        self.check_text(responses.iter().flat_map(|response| &response.choices))
    }

    pub(super) fn check_choice(&self, choice: &Choice<'_>) -> Result<()> {
        let length = self.model.max_model_len as usize;
        if choice.ids().len() > length {
            return Err(too_many(&format!("`token_ids` of choice {}", choice.index), choice.ids().len(), length));
        }
        let Some(content) = choice.logprobs.as_ref().and_then(|logprobs| logprobs.content.as_ref()) else {
            return Ok(());
        };
        if content.len() > length {
            return Err(too_many(&format!("`logprobs` of choice {}", choice.index), content.len(), length));
        }
        let Ok(most) = usize::try_from(self.settings.max_logprobs) else { return Ok(()) };
        match content.iter().map(|position| position.top.len()).find(|width| *width > most) {
            Some(width) => Err(too_many(&format!("`top_logprobs` of choice {}", choice.index), width, most)),
            None => Ok(()),
        }
    }

    /// Its entries are as wide as `prompt_logprobs` of a request may be, and the prompt's own token.
    fn check_prompt_logprobs(&self, response: &Generated<'_>) -> Result<()> {
        let entries = response.prompt_logprobs.unwrap_or_default();
        let length = self.model.max_model_len as usize;
        if entries.len() > length {
            return Err(too_many("`prompt_logprobs`", entries.len(), length));
        }
        let Ok(most) = usize::try_from(self.settings.max_logprobs) else { return Ok(()) };
        let widths = entries.iter().filter_map(|entry| entry.as_object()).map(crate::json::Map::len);
        match widths.into_iter().find(|width| *width > most + 1) {
            Some(width) => Err(too_many("an entry of `prompt_logprobs`", width, most + 1)),
            None => Ok(()),
        }
    }

    pub(super) fn check_prompt(&self, ids: &[u32]) -> Result<()> {
        let length = self.model.max_model_len as usize;
        if ids.len() > length { Err(too_many("`prompt_token_ids`", ids.len(), length)) } else { Ok(()) }
    }

    /// A short list of ids can stand for a long text: its bytes, the logprobs' too, are counted beforehand.
    pub(super) fn check_text<'c>(&self, choices: impl Iterator<Item = &'c Choice<'c>>) -> Result<()> {
        let most = usize::try_from(self.settings.max_request_bytes).unwrap_or(usize::MAX);
        let mut bytes = 0usize;
        for choice in choices {
            bytes = bytes.saturating_add(self.detokenizer.most_bytes(choice.ids()));
            for position in choice.logprobs.iter().filter_map(|logprobs| logprobs.content.as_ref()).flatten() {
                let others = position.top.iter().filter_map(|top| top.as_object()?.get("token_id").and_then(lax_int));
                let others = others.map(|id| u32::try_from(id).unwrap_or(u32::MAX));
                // As text, and each byte as a number.
                let size = |id: u32| self.detokenizer.most_bytes(&[id]).saturating_mul(2);
                let sizes = std::iter::once(position.token.id).chain(others).map(size);
                bytes = sizes.fold(bytes, usize::saturating_add);
            }
            if bytes > most {
                return Err(Error::bad_request(format!(
                    "the text of these ids comes to more than the {most} bytes that this server handles at once"
                )));
            }
        }
        Ok(())
    }
}

pub(super) fn too_many(what: &str, count: usize, most: usize) -> Error {
    Error::bad_request(format!("{what}: {count}, and this server takes at most {most}"))
}
