//! From prompt text to ids under a model's limits: checks before the work, truncation, checks after it.
//!
//! Source: vLLM's `renderers/params.py` (`TokenizeParams`).

use std::borrow::Cow;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::protocol::features::Features;
use crate::protocol::options::{CommonFields, PromptTruncation};
use crate::tokenizer::{Encoding, Input, Tokenizer, Truncation, TruncationSide};

/// Ids of a prompt, with `[start, end)` in characters of its text where they were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedPrompt {
    pub ids: Vec<u32>,
    pub offsets: Option<Vec<(u32, u32)>>,
}

/// Encodes prompts of one model.
#[derive(Clone, Copy)]
pub struct PromptEncoder<'t> {
    pub tokenizer: &'t Tokenizer,
    pub max_model_len: usize,
}

impl PromptEncoder<'_> {
    /// Tokenize `text`. `no_output` says that the request asks for no tokens, which leaves the prompt one more.
    pub fn encode(
        self,
        input: Input<'_>,
        request: &CommonFields<'_>,
        no_output: bool,
        offsets: bool,
    ) -> Result<EncodedPrompt> {
        let truncation = request.truncation;
        let (text, removed) = self.bound_text(input.text, truncation)?;
        let plain = moved(input, text);
        let input = Input { text, plain: &plain };
        let for_tokenizer = match (truncation.tokens, truncation.side) {
            (Some(_), None) => self
                .limit(truncation, no_output)
                .map(|max_length| Truncation { max_length, side: TruncationSide::Left }),
            _ => None,
        };
        let add = request.add_special_tokens;
        let mut prompt = if offsets {
            let Encoding { ids, mut offsets } = self.tokenizer.encode_with_offsets(input, add, for_tokenizer)?;
            shift_offsets(&mut offsets, removed);
            EncodedPrompt { ids, offsets: Some(offsets) }
        } else {
            EncodedPrompt { ids: self.tokenizer.encode(input, add, for_tokenizer)?, offsets: None }
        };
        self.truncate(&mut prompt, truncation, no_output);
        self.check_length(prompt)
    }

    /// Bound ids that came as ids.
    pub fn limit_ids(self, ids: Vec<u32>, request: &CommonFields<'_>, no_output: bool) -> Result<EncodedPrompt> {
        let mut prompt = EncodedPrompt { ids, offsets: None };
        self.truncate(&mut prompt, request.truncation, no_output);
        self.check_length(prompt)
    }

    /// Bound a prompt whose placeholders are expanded. A medium is kept whole or the request refused.
    pub fn limit_expanded(
        self,
        mut prompt: EncodedPrompt,
        request: &CommonFields<'_>,
        no_output: bool,
        features: &mut Features<'_>,
    ) -> Result<EncodedPrompt> {
        let kept = self.kept(prompt.ids.len(), request.truncation, no_output);
        if !features.shift(&kept) {
            return Err(Error::bad_param(
                "truncate_prompt_tokens",
                "a media item would be cut; keep more of the prompt",
            ));
        }
        self.truncate(&mut prompt, request.truncation, no_output);
        self.check_length(prompt)
    }

    /// The number of tokens that a truncated prompt may keep.
    fn limit(self, truncation: PromptTruncation, no_output: bool) -> Option<usize> {
        truncation.tokens.map(|tokens| match usize::try_from(tokens) {
            Ok(tokens) => tokens,
            Err(_) if no_output => self.max_model_len,
            Err(_) => self.max_model_len.saturating_sub(1),
        })
    }

    /// Refuse (or, where the request says which end to keep, cut) text that cannot fit, however it is tokenized.
    /// Also the number of characters cut off the front.
    fn bound_text(self, text: &str, truncation: PromptTruncation) -> Result<(&str, usize)> {
        let most = self.max_model_len.saturating_mul(self.tokenizer.longest_token_chars());
        // Bytes bound characters from above, so short texts need no counting.
        if text.len() <= most {
            return Ok((text, 0));
        }
        let length = text.chars().count();
        if length <= most {
            return Ok((text, 0));
        }
        match truncation {
            PromptTruncation { tokens: None, .. } => Err(Error::bad_param(
                "input_text",
                format!(
                    "the prompt has {length} characters; the model's context of {} tokens holds at most {most}",
                    self.max_model_len
                ),
            )),
            PromptTruncation { side: None, .. } => Ok((text, 0)),
            PromptTruncation { side: Some(TruncationSide::Left), .. } => {
                let start = char_boundary(text, length - most);
                Ok((&text[start..], length - most))
            }
            PromptTruncation { side: Some(TruncationSide::Right), .. } => Ok((&text[..char_boundary(text, most)], 0)),
        }
    }

    /// Which of `length` ids are kept.
    fn kept(self, length: usize, truncation: PromptTruncation, no_output: bool) -> Range<usize> {
        match self.limit(truncation, no_output) {
            Some(limit) if limit < length => match truncation.side.unwrap_or(TruncationSide::Left) {
                TruncationSide::Left => length - limit..length,
                TruncationSide::Right => 0..limit,
            },
            _ => 0..length,
        }
    }

    fn truncate(self, prompt: &mut EncodedPrompt, truncation: PromptTruncation, no_output: bool) {
        let kept = self.kept(prompt.ids.len(), truncation, no_output);
        if kept.len() == prompt.ids.len() {
            return;
        }
        if let Some(offsets) = &mut prompt.offsets {
            *offsets = offsets[kept.clone()].to_vec();
        }
        prompt.ids = prompt.ids[kept].to_vec();
    }

    fn check_length(self, prompt: EncodedPrompt) -> Result<EncodedPrompt> {
        let length = prompt.ids.len();
        if length > self.max_model_len {
            return Err(Error::bad_param(
                "input_tokens",
                format!("the prompt has {length} tokens; the model's context holds {}", self.max_model_len),
            ));
        }
        Ok(prompt)
    }
}

/// The plain ranges of an input, of which `kept` is left.
fn moved<'t>(input: Input<'t>, kept: &str) -> Cow<'t, [Range<usize>]> {
    if input.plain.is_empty() || kept.len() == input.text.len() {
        return Cow::Borrowed(input.plain);
    }
    let start = kept.as_ptr().addr() - input.text.as_ptr().addr();
    let place = |at: usize| at.saturating_sub(start).min(kept.len());
    let moved = input.plain.iter().map(|range| place(range.start)..place(range.end));
    moved.filter(|range| !range.is_empty()).collect()
}

fn char_boundary(text: &str, chars: usize) -> usize {
    text.char_indices().nth(chars).map_or(text.len(), |(at, _)| at)
}

/// Offsets into a text whose first `removed` characters were cut off; `(0, 0)` marks a token that stands for no text.
fn shift_offsets(offsets: &mut [(u32, u32)], removed: usize) {
    let removed = u32::try_from(removed).unwrap_or(u32::MAX);
    for offset in offsets.iter_mut().filter(|offset| **offset != (0, 0)) {
        *offset = (offset.0.saturating_add(removed), offset.1.saturating_add(removed));
    }
}
