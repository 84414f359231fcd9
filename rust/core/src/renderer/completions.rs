//! Completion requests: one answer for each prompt.

use super::{Renderer, base_request_id, require_ids};
use crate::error::{Error, Result};
use crate::json::Map;
use crate::protocol::chat::check_media_trust;
use crate::protocol::completion::{CompletionRequest, Prompt};
use crate::protocol::generate::GenerateRequest;

/// Bytes that the answers to the prompts of one request may repeat, beside what each prompt itself comes to.
const MAX_REPEATED_BYTES: usize = 32 << 20;
/// The longest spelling of a token id, and of a pair of offsets, with what separates them.
const ID_BYTES: usize = 11;
const OFFSETS_BYTES: usize = 24;

impl Renderer {
    pub(super) fn completions(&self, body: &Map<'_>, request_id: Option<&str>) -> Result<Vec<u8>> {
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
                    encoder.encode((*text).into(), &request.common, no_output, request.common.return_token_offsets)
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
                features: None,
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
}
