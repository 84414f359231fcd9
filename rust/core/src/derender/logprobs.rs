//! Logprobs by token id to OpenAI's shapes: with the token's text and bytes.
//!
//! A token may be a part of a character only. Its text is then what it adds to the tokens before it, its bytes are its
//! own: OpenAI has `bytes` for just that. Source: protocol.md §5.8.

use super::request::{Candidate, Logprobs, Position};
use super::state::CONTEXT_IDS;
use crate::detokenizer::Detokenizer;
use crate::error::Result;
use crate::json::{write_float, write_str};
use crate::spec::LogprobBytes;

const REPLACEMENT: char = '\u{FFFD}';

/// What a token is called.
struct Named {
    text: String,
    /// `None` for an id that the vocabulary lacks.
    bytes: Option<Vec<u8>>,
}

/// Names tokens in the context of those that were sampled before.
pub(super) struct Namer<'d> {
    detokenizer: &'d Detokenizer,
    bytes: LogprobBytes,
    /// The last sampled ids.
    context: Vec<u32>,
}

impl<'d> Namer<'d> {
    pub(super) fn new(detokenizer: &'d Detokenizer, bytes: LogprobBytes, context: &[u32]) -> Self {
        Self { detokenizer, bytes, context: context.to_vec() }
    }

    fn sampled(&mut self, id: u32) {
        self.context.push(id);
        self.context.drain(..self.context.len().saturating_sub(CONTEXT_IDS));
    }

    fn name(&self, id: u32) -> Result<Named> {
        let Some(mut text) = self.detokenizer.token_text(id)? else {
            return Ok(Named { text: String::new(), bytes: None });
        };
        if text.ends_with(REPLACEMENT) {
            text = self.in_context(id)?;
        }
        let own = match self.bytes {
            LogprobBytes::Raw => self.detokenizer.token_bytes(id),
            LogprobBytes::Text => None,
        };
        let bytes = Some(own.unwrap_or(text.as_bytes()).to_vec());
        Ok(Named { text, bytes })
    }

    /// What an id adds to the shortest context in which it ends a character; nothing if there is none.
    fn in_context(&self, id: u32) -> Result<String> {
        for start in (0..self.context.len()).rev() {
            let context = &self.context[start..];
            let whole = self.detokenizer.plain(&[context, &[id]].concat())?;
            if whole.ends_with(REPLACEMENT) {
                continue;
            }
            let mut clean = context.len();
            while clean > 0 && self.detokenizer.plain(&context[clean - 1..clean])?.ends_with(REPLACEMENT) {
                clean -= 1;
            }
            let before = if clean > 0 { self.detokenizer.plain(&context[..clean])? } else { String::new() };
            let same = whole.chars().zip(before.chars()).take_while(|(a, b)| a == b);
            let shared: usize = same.map(|(c, _)| c.len_utf8()).sum();
            return Ok(whole[shared..].to_owned());
        }
        Ok(String::new())
    }
}

/// Append logprobs in the shape of chat completions.
pub(super) fn write_chat(
    out: &mut Vec<u8>,
    logprobs: &Logprobs<'_>,
    namer: &mut Namer<'_>,
    limit: Option<usize>,
) -> Result<()> {
    let Some(content) = &logprobs.content else {
        out.extend_from_slice(b"{\"content\":null}");
        return Ok(());
    };
    out.extend_from_slice(b"{\"content\":[");
    for (i, position) in content.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_token(out, &namer.name(position.token.id)?, position.token.logprob);
        out.extend_from_slice(b",\"top_logprobs\":[");
        for (j, candidate) in kept(position, limit).enumerate() {
            if j > 0 {
                out.push(b',');
            }
            write_token(out, &namer.name(candidate.id)?, candidate.logprob);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
        namer.sampled(position.token.id);
    }
    out.extend_from_slice(b"]}");
    Ok(())
}

/// Append logprobs in the shape of completions; texts begin at `offset`. Where the next begins.
pub(super) fn write_completion(
    out: &mut Vec<u8>,
    logprobs: &Logprobs<'_>,
    namer: &mut Namer<'_>,
    limit: Option<usize>,
    offset: u64,
) -> Result<u64> {
    let (mut offsets, mut numbers, mut tokens, mut tops) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut offset = offset;
    for (i, position) in logprobs.content.iter().flatten().enumerate() {
        if i > 0 {
            for list in [&mut offsets, &mut numbers, &mut tokens, &mut tops] {
                list.push(b',');
            }
        }
        let name = namer.name(position.token.id)?.text;
        offsets.extend_from_slice(itoa::Buffer::new().format(offset).as_bytes());
        write_float(&mut numbers, position.token.logprob);
        write_str(&mut tokens, &name);
        if position.top.is_empty() {
            tops.extend_from_slice(b"null");
        } else {
            write_top(&mut tops, position, namer, limit)?;
        }
        offset += name.chars().count() as u64;
        namer.sampled(position.token.id);
    }
    for (key, list) in [
        ("{\"text_offset\":[", offsets),
        ("],\"token_logprobs\":[", numbers),
        ("],\"tokens\":[", tokens),
        ("],\"top_logprobs\":[", tops),
    ] {
        out.extend_from_slice(key.as_bytes());
        out.extend_from_slice(&list);
    }
    out.extend_from_slice(b"]}");
    Ok(offset)
}

/// Candidates by their text; of two with the same, the last one's logprob at the first one's place.
fn write_top(out: &mut Vec<u8>, position: &Position<'_>, namer: &Namer<'_>, limit: Option<usize>) -> Result<()> {
    let mut by_text = crate::json::Map::new();
    for candidate in kept(position, limit) {
        by_text.insert(namer.name(candidate.id)?.text, crate::json::Json::Float(candidate.logprob));
    }
    by_text.write(out);
    Ok(())
}

fn kept(position: &Position<'_>, limit: Option<usize>) -> impl Iterator<Item = Candidate> {
    position.top.iter().take(limit.unwrap_or(usize::MAX)).filter_map(Candidate::read)
}

/// Append the beginning of a token's object.
fn write_token(out: &mut Vec<u8>, name: &Named, logprob: f64) {
    out.extend_from_slice(b"{\"token\":");
    write_str(out, &name.text);
    out.extend_from_slice(b",\"logprob\":");
    write_float(out, logprob);
    out.extend_from_slice(b",\"bytes\":");
    let Some(bytes) = &name.bytes else { return out.extend_from_slice(b"null") };
    out.push(b'[');
    for (i, byte) in bytes.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        out.extend_from_slice(itoa::Buffer::new().format(*byte).as_bytes());
    }
    out.push(b']');
}
