//! `stream_state` of the wire: what a client carries from one chunk of a stream to the next.
//!
//! A stock vLLM keeps its window of tokens in it, or, with a parser, all tokens so far. Ours has that too, so that either
//! can go on with the other's; and, as the only item of `prev_tokens`, a blob with the parse itself, so that a chunk
//! costs no more than what is new in it. Nothing in a state is trusted.

use std::borrow::Cow;

use super::fields::At;
use super::request::Ids;
use crate::error::{Error, Result};
use crate::json::{Json, Map, write_str};
use crate::protocol::fields::{Fields, lax_int};
use crate::protocol::generate::write_ids;
use crate::protocol::sampling::ObjectWriter;

/// Items of `prev_tokens`.
const MOST_PIECES: usize = 1024;
/// Ids of `logprob_context_token_ids`.
pub(super) const CONTEXT_IDS: usize = 4;
const MOST_CALLS: usize = 4096;
const LONGEST_CALL_ID: usize = 256;
const BLOB: &str = "fr1.";
/// Bytes of the digest at a blob's end.
const DIGEST: usize = 8;

/// A state as it came.
#[derive(Debug, Clone)]
pub(super) struct WireState<'a> {
    pub(super) prev_tokens: Vec<&'a str>,
    pub(super) prefix_offset: usize,
    pub(super) read_offset: usize,
    pub(super) open: Open,
    pub(super) output: Ids<'a>,
    pub(super) chunk_lens: &'a [Json<'a>],
    /// The choice that the state is of, where a state of ours says it.
    pub(super) choice_index: Option<i64>,
}

/// What of a choice's state anyone can read.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Open {
    pub(super) role_sent: bool,
    /// The last sampled ids.
    pub(super) context: Vec<u32>,
    pub(super) text_offset: u64,
    pub(super) tools_streamed: bool,
    pub(super) call_ids: Vec<String>,
}

impl Open {
    pub(super) fn check(&self) -> bool {
        self.context.len() <= CONTEXT_IDS
            && self.call_ids.len() <= MOST_CALLS
            && self.call_ids.iter().all(|id| id.len() <= LONGEST_CALL_ID)
    }

    pub(super) fn sampled(&mut self, ids: &[u32]) {
        self.context.extend_from_slice(&ids[ids.len().saturating_sub(CONTEXT_IDS)..]);
        self.context.drain(..self.context.len().saturating_sub(CONTEXT_IDS));
    }
}

impl<'a> WireState<'a> {
    pub(super) fn read(map: &'a Map<'a>) -> Result<Self> {
        const PATH: &str = "body.stream_state";
        let (at, fields) = (At { map, path: PATH }, Fields::new(map, PATH));
        let list = |key: &str| match map.get(key) {
            None => Ok(&[][..]),
            Some(Json::Array(items)) => Ok(items.as_slice()),
            Some(_) => Err(at.error(key, "a list")),
        };
        let texts = |key: &str, most: usize| {
            let items = list(key)?;
            if items.len() > most {
                return Err(at.error(key, &format!("at most {most} items")));
            }
            items.iter().map(|item| item.as_str().ok_or_else(|| at.error(key, "a list of strings"))).collect()
        };
        let count = |key: &str| {
            let value = fields.int_or(key, 0)?;
            u64::try_from(value).map_err(|_| at.error(key, "at least 0"))
        };
        let offset = |key: &str| Ok::<_, Error>(usize::try_from(count(key)?).unwrap_or(usize::MAX));
        let context = Ids::read(list("logprob_context_token_ids")?, PATH, false)?.ids;
        let call_ids: Vec<&str> = texts("last_tool_call_ids", MOST_CALLS)?;
        let state = Self {
            prev_tokens: texts("prev_tokens", MOST_PIECES)?,
            prefix_offset: offset("prefix_offset")?,
            read_offset: offset("read_offset")?,
            open: Open {
                role_sent: fields.bool_or("role_sent", false)?,
                context,
                text_offset: count("logprob_text_offset")?,
                tools_streamed: fields.bool_or("tools_streamed", false)?,
                call_ids: call_ids.into_iter().map(str::to_owned).collect(),
            },
            output: Ids::read(list("output_token_ids")?, PATH, false)?,
            chunk_lens: list("output_chunk_lens")?,
            choice_index: map.get("choice_index").and_then(lax_int).and_then(|index| i64::try_from(index).ok()),
        };
        if !state.open.check() {
            return Err(Error::schema(
                PATH,
                format!("a state holds at most {CONTEXT_IDS} ids of context, and short ids of calls"),
            ));
        }
        let mut sum = 0i128;
        for length in state.chunk_lens {
            let length = lax_int(length).filter(|length| *length > 0);
            sum += length.ok_or_else(|| at.error("output_chunk_lens", "a list of lengths above 0"))?;
        }
        if usize::try_from(sum) != Ok(state.output.ids.len()) {
            return Err(Error::schema(PATH, "`output_chunk_lens` must add up to the length of `output_token_ids`"));
        }
        Ok(state)
    }

    /// Whether it carries output, and not the parse of it.
    pub(super) fn lost_its_blob(&self) -> bool {
        !self.output.ids.is_empty() && !self.prev_tokens.iter().any(|item| item.starts_with(BLOB))
    }

    /// Append it as it came.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        StateAnswer {
            prev_tokens: self.prev_tokens.iter().map(|&item| Cow::from(item)).collect(),
            prefix_offset: self.prefix_offset,
            read_offset: self.read_offset,
            open: &self.open,
            history: Some(History { output: &self.output, chunk_lens: self.chunk_lens, new: None }),
            choice_index: self.choice_index,
        }
        .write(out);
    }

    /// The blob of ours that it carries; an error if it is damaged.
    pub(super) fn blob(&self) -> Result<Option<Vec<u8>>> {
        let [item] = self.prev_tokens[..] else { return Ok(None) };
        let Some(text) = item.strip_prefix(BLOB) else { return Ok(None) };
        let damaged = || invalid("its first token is a damaged state of ours");
        let mut bytes = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(text).map_err(|_| damaged())?;
        let end = bytes.len().checked_sub(DIGEST).ok_or_else(damaged)?;
        if blake3::hash(&bytes[..end]).as_bytes()[..DIGEST] != bytes[end..] {
            return Err(damaged());
        }
        bytes.truncate(end);
        Ok(Some(bytes))
    }
}

/// A state as it goes out.
pub(super) struct StateAnswer<'s> {
    pub(super) prev_tokens: Vec<Cow<'s, str>>,
    pub(super) prefix_offset: usize,
    pub(super) read_offset: usize,
    pub(super) open: &'s Open,
    /// All output so far, and its parts.
    pub(super) history: Option<History<'s>>,
    pub(super) choice_index: Option<i64>,
}

/// The output before this chunk, and in it.
pub(super) struct History<'s> {
    pub(super) output: &'s Ids<'s>,
    pub(super) chunk_lens: &'s [Json<'s>],
    pub(super) new: Option<&'s Ids<'s>>,
}

/// A blob as the item of `prev_tokens` that carries it.
pub(super) fn blob_item(mut bytes: Vec<u8>) -> String {
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(&digest.as_bytes()[..DIGEST]);
    format!("{BLOB}{}", base64_simd::URL_SAFE_NO_PAD.encode_to_string(&bytes))
}

impl StateAnswer<'_> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut object = ObjectWriter::new(out);
        write_list(object.key("prev_tokens"), &self.prev_tokens, |out, piece| write_str(out, piece));
        object.int("prefix_offset", self.prefix_offset as i128);
        object.int("read_offset", self.read_offset as i128);
        object.bool("role_sent", self.open.role_sent);
        write_ids(object.key("logprob_context_token_ids"), &self.open.context);
        object.int("logprob_text_offset", i128::from(self.open.text_offset));
        let out = object.key("output_token_ids");
        match &self.history {
            None => out.extend_from_slice(b"[]"),
            Some(history) => {
                history.output.write(out);
                append(out, |out| {
                    if let Some(new) = history.new {
                        new.write(out);
                    } else {
                        out.extend_from_slice(b"[]");
                    }
                });
            }
        }
        let out = object.key("output_chunk_lens");
        let lengths = self.history.as_ref().map(|history| history.chunk_lens).unwrap_or_default();
        write_list(out, lengths, |out, length| {
            out.extend_from_slice(itoa::Buffer::new().format(lax_int(length).unwrap_or(1)).as_bytes());
        });
        append(out, |out| {
            let new = self.history.as_ref().and_then(|history| history.new).map_or(0, |new| new.ids.len());
            let new = [new];
            write_list(out, if new[0] > 0 { &new[..] } else { &[] }, |out, length| {
                out.extend_from_slice(itoa::Buffer::new().format(*length).as_bytes());
            });
        });
        object.bool("tools_streamed", self.open.tools_streamed);
        write_list(object.key("last_tool_call_ids"), &self.open.call_ids, |out, id| write_str(out, id));
        if let Some(index) = self.choice_index {
            object.int("choice_index", i128::from(index));
        }
        object.end();
    }
}

fn write_list<T>(out: &mut Vec<u8>, items: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

/// Make one list of the one at the end of `out` and the one that `write` appends.
fn append(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let seam = out.len() - 1;
    write(out);
    // `[…][…]` becomes `[…,…]`, or one of them where the other is empty.
    let (first_empty, second_empty) = (out[seam - 1] == b'[', out.len() - seam == 3);
    let cut = match (first_empty, second_empty) {
        (_, true) => {
            out.truncate(seam + 1);
            return;
        }
        (true, false) => seam..seam + 2,
        (false, false) => seam..seam + 1,
    };
    out.drain(cut);
    if !first_empty {
        out[seam] = b',';
    }
}

pub(super) fn invalid(why: &str) -> Error {
    Error::bad_request(format!("invalid stream_state: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_joined() {
        for (first, second, want) in [
            ("[1,2]", "[3]", "[1,2,3]"),
            ("[]", "[3]", "[3]"),
            ("[1]", "[]", "[1]"),
            ("[]", "[]", "[]"),
            ("[1]", "[22,3]", "[1,22,3]"),
        ] {
            let mut out = first.as_bytes().to_vec();
            append(&mut out, |out| out.extend_from_slice(second.as_bytes()));
            assert_eq!(String::from_utf8(out).unwrap(), want, "{first} {second}");
        }
    }

    #[test]
    fn a_blob_that_was_touched_is_refused() {
        let item = blob_item(b"state".to_vec());
        let state = |item: &str| {
            let text = format!(r#"{{"prev_tokens": ["{item}"]}}"#).leak();
            let Ok(Json::Object(map)) = Json::parse(text) else { panic!("not an object") };
            WireState::read(Box::leak(Box::new(map))).unwrap()
        };
        assert_eq!(state(&item).blob().unwrap().as_deref(), Some(&b"state"[..]));
        assert_eq!(state("Ġa").blob().unwrap(), None);
        for at in 4..item.len() {
            let mut touched = item.clone().into_bytes();
            touched[at] = if touched[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(state(std::str::from_utf8(&touched).unwrap()).blob().unwrap_err().status(), 400);
        }
    }
}
