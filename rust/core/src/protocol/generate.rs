//! `GenerateRequest`: the answer of the render routes, and what a token-in/token-out engine takes.

use super::features::Features;
use super::options::StreamOptions;
use super::sampling::{ObjectWriter, SamplingParams};
use super::tools::ToolChoice;
use crate::json::{Json, Map, write_str};

/// What the derenderer needs to know of the request.
#[derive(Debug, Clone)]
pub struct ParseContext<'r> {
    pub tools: Option<&'r [Json<'r>]>,
    pub tool_choice: &'r ToolChoice,
    pub parallel_tool_calls: Option<bool>,
    pub include_reasoning: bool,
    pub chat_template_kwargs: &'r Map<'r>,
    /// Tool calls in the assistant messages of the request.
    pub history_tool_call_cnt: usize,
}

/// A rendered request.
#[derive(Debug)]
pub struct GenerateRequest<'r> {
    pub request_id: &'r str,
    pub token_ids: &'r [u32],
    pub token_offsets: Option<&'r [(u32, u32)]>,
    /// Null for a prompt without media.
    pub features: Option<&'r Features<'r>>,
    pub sampling_params: SamplingParams<'r>,
    pub model: Option<&'r str>,
    pub reasoning_ended: Option<bool>,
    /// The template's variables, when a reasoning parser is configured.
    pub reasoning_parser_kwargs: Option<&'r Map<'r>>,
    pub return_token_ids: Option<bool>,
    pub parse_context: Option<ParseContext<'r>>,
    pub stream: bool,
    pub stream_options: Option<StreamOptions>,
    pub cache_salt: Option<&'r str>,
    pub priority: i128,
    pub kv_transfer_params: Option<&'r Map<'r>>,
    pub ec_transfer_params: Option<&'r Map<'r>>,
}

/// Whether null fields are written, as vLLM does, or left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    Write,
    Omit,
}

impl GenerateRequest<'_> {
    /// Append as JSON, keys in the order of vLLM's model.
    pub fn write(&self, out: &mut Vec<u8>, nulls: Nulls) {
        // Ids take up to seven bytes each, offsets about twice that; the rest is small.
        let offsets = self.token_offsets.map_or(0, |offsets| offsets.len() * 14);
        out.reserve(1024 + self.token_ids.len() * 7 + offsets + self.features.map_or(0, Features::size));
        let mut object = ObjectWriter::new(out);
        object.str("request_id", self.request_id);
        write_ids(object.key("token_ids"), self.token_ids);
        optional(&mut object, nulls, "token_offsets", self.token_offsets, write_offsets);
        optional(&mut object, nulls, "features", self.features, |out, features| features.write(out, nulls));
        optional(&mut object, nulls, "content_parts", None::<()>, |_, ()| {});
        self.sampling_params.write(object.key("sampling_params"));
        optional(&mut object, nulls, "model", self.model, write_str);
        optional(&mut object, nulls, "reasoning_ended", self.reasoning_ended, write_bool);
        optional(&mut object, nulls, "reasoning_parser_kwargs", self.reasoning_parser_kwargs, |out, kwargs| {
            let mut nested = ObjectWriter::new(out);
            kwargs.write(nested.key("chat_template_kwargs"));
            nested.end();
        });
        optional(&mut object, nulls, "return_token_ids", self.return_token_ids, write_bool);
        object.str("output_mode", "tokens");
        optional(&mut object, nulls, "parse_context", self.parse_context.as_ref(), |out, context| {
            context.write(out, nulls);
        });
        object.bool("stream", self.stream);
        optional(&mut object, nulls, "stream_options", self.stream_options, |out, options| {
            let mut nested = ObjectWriter::new(out);
            optional(&mut nested, Nulls::Write, "include_usage", options.include_usage, write_bool);
            optional(&mut nested, Nulls::Write, "continuous_usage_stats", options.continuous_usage_stats, write_bool);
            nested.end();
        });
        optional(&mut object, nulls, "cache_salt", self.cache_salt, write_str);
        object.int("priority", self.priority);
        optional(&mut object, nulls, "kv_transfer_params", self.kv_transfer_params, |out, map| map.write(out));
        optional(&mut object, nulls, "ec_transfer_params", self.ec_transfer_params, |out, map| map.write(out));
        object.end();
    }
}

impl ParseContext<'_> {
    fn write(&self, out: &mut Vec<u8>, nulls: Nulls) {
        let mut object = ObjectWriter::new(out);
        optional(&mut object, nulls, "tools", self.tools, |out, tools| {
            out.push(b'[');
            for (i, tool) in tools.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                tool.write(out);
            }
            out.push(b']');
        });
        let choice = self.tool_choice.to_json();
        optional(&mut object, nulls, "tool_choice", (!choice.is_null()).then_some(choice), |out, choice| {
            choice.write(out);
        });
        optional(&mut object, nulls, "parallel_tool_calls", self.parallel_tool_calls, write_bool);
        object.bool("include_reasoning", self.include_reasoning);
        self.chat_template_kwargs.write(object.key("chat_template_kwargs"));
        object.int("history_tool_call_cnt", i128::try_from(self.history_tool_call_cnt).unwrap_or(i128::MAX));
        object.end();
    }
}

fn optional<T>(
    object: &mut ObjectWriter<'_>,
    nulls: Nulls,
    key: &str,
    value: Option<T>,
    write: impl FnOnce(&mut Vec<u8>, T),
) {
    match value {
        Some(value) => write(object.key(key), value),
        None if nulls == Nulls::Write => object.key(key).extend_from_slice(b"null"),
        None => {}
    }
}

fn write_bool(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// Numbers that one table look-up turns into digits.
const GROUP: u32 = 10_000;
/// Numbers that take at most seven digits, which leave room for a comma in eight bytes.
const SHORT: u32 = 10_000_000;
/// Ids that are formatted before they are appended.
const BLOCK: usize = 512;
/// Bytes of the longest id and its comma.
const LONGEST: usize = 11;

/// The digits of each number below 10,000, the first in the lowest byte, and how many they are.
static DIGITS: [(u32, u32); GROUP as usize] = {
    let mut table = [(0, 0); GROUP as usize];
    let mut number = 0;
    while number < table.len() {
        let (mut digits, mut length, mut rest) = (0, 0, number);
        while rest > 0 || length == 0 {
            digits = digits << 8 | b"0123456789"[rest % 10] as u32;
            length += 1;
            rest /= 10;
        }
        table[number] = (digits, length);
        number += 1;
    }
    table
};

/// The same with leading zeros: always four.
static PADDED: [u32; GROUP as usize] = {
    let mut table = [0; GROUP as usize];
    let mut number = 0;
    while number < table.len() {
        let (digits, length) = DIGITS[number];
        // Zeros go to the low bytes, which come first.
        table[number] = if length == 4 { digits } else { digits << (32 - 8 * length) | 0x3030_3030 >> (8 * length) };
        number += 1;
    }
    table
};

/// Write `id` and a comma at `at`; the place behind. Ids are the bulk of an answer, so that a short one is a table
/// look-up or two and one store of eight bytes, of which those behind the comma are overwritten next.
fn format_id(id: u32, block: &mut [u8], at: usize) -> usize {
    if id >= SHORT {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(id).as_bytes();
        block[at..at + digits.len()].copy_from_slice(digits);
        block[at + digits.len()] = b',';
        return at + digits.len() + 1;
    }
    let (digits, length) = if id < GROUP {
        let (digits, length) = DIGITS[id as usize];
        (u64::from(digits), length)
    } else {
        let (digits, length) = DIGITS[(id / GROUP) as usize];
        (u64::from(digits) | u64::from(PADDED[(id % GROUP) as usize]) << (8 * length), length + 4)
    };
    let word = digits | u64::from(b',') << (8 * length);
    block[at..at + 8].copy_from_slice(&word.to_le_bytes());
    at + length as usize + 1
}

/// Append a list of ids.
pub(crate) fn write_ids(out: &mut Vec<u8>, ids: &[u32]) {
    out.push(b'[');
    let mut block = [0u8; BLOCK * LONGEST + 8];
    for ids in ids.chunks(BLOCK) {
        let end = ids.iter().fold(0, |at, id| format_id(*id, &mut block, at));
        out.extend_from_slice(&block[..end]);
    }
    if !ids.is_empty() {
        out.pop();
    }
    out.push(b']');
}

fn write_offsets(out: &mut Vec<u8>, offsets: &[(u32, u32)]) {
    out.push(b'[');
    let mut pair = [0u8; 2 * LONGEST + 8];
    for (start, end) in offsets {
        out.push(b'[');
        let middle = format_id(*start, &mut pair, 0);
        let end = format_id(*end, &mut pair, middle);
        out.extend_from_slice(&pair[..end - 1]);
        out.extend_from_slice(b"],");
    }
    if !offsets.is_empty() {
        out.pop();
    }
    out.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_every_length() {
        let edges = [999_999, 1_000_000, 9_999_999, 10_000_000, 99_999_999, 100_000_000, u32::MAX];
        let ids: Vec<u32> = (0..200_000).chain(edges).collect();
        let mut out = Vec::new();
        write_ids(&mut out, &ids);
        let want: Vec<String> = ids.iter().map(u32::to_string).collect();
        assert_eq!(String::from_utf8(out).unwrap(), format!("[{}]", want.join(",")));
        let mut out = Vec::new();
        write_ids(&mut out, &[]);
        write_offsets(&mut out, &[]);
        write_offsets(&mut out, &[(0, 12), (12, 100_000)]);
        assert_eq!(out, b"[][][[0,12],[12,100000]]");
    }
}
