//! `GenerateRequest`: the answer of the render routes, and what a token-in/token-out engine takes.

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
        out.reserve(1024 + self.token_ids.len() * 7 + self.token_offsets.map_or(0, |offsets| offsets.len() * 14));
        let mut object = ObjectWriter::new(out);
        object.str("request_id", self.request_id);
        write_ids(object.key("token_ids"), self.token_ids);
        optional(&mut object, nulls, "token_offsets", self.token_offsets, write_offsets);
        optional(&mut object, nulls, "features", None::<()>, |_, ()| {});
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

/// Four decimal digits of each number below 10,000.
static DIGITS: [[u8; 4]; 10_000] = {
    let mut table = [[b'0'; 4]; 10_000];
    let mut number = 0;
    while number < 10_000 {
        let mut rest = number;
        let mut place = 4;
        while place > 0 {
            place -= 1;
            table[number][place] = b"0123456789"[rest % 10];
            rest /= 10;
        }
        number += 1;
    }
    table
};

/// Append a list of ids. This is the bulk of an answer, so digits come from a table, four at a time.
pub(super) fn write_ids(out: &mut Vec<u8>, ids: &[u32]) {
    out.push(b'[');
    let mut scratch = [0u8; 11];
    for &id in ids {
        let length = format_id(id, &mut scratch);
        out.extend_from_slice(&scratch[..length]);
    }
    if !ids.is_empty() {
        out.pop();
    }
    out.push(b']');
}

/// Write `id` and a comma; the number of bytes.
fn format_id(id: u32, scratch: &mut [u8; 11]) -> usize {
    let mut length = 0;
    let mut push = |digits: &[u8]| {
        scratch[length..length + digits.len()].copy_from_slice(digits);
        length += digits.len();
    };
    let groups = [id / 100_000_000, id / 10_000 % 10_000, id % 10_000];
    let first = groups.iter().position(|group| *group != 0).unwrap_or(2);
    for (i, group) in groups.iter().enumerate().skip(first) {
        let digits = &DIGITS[*group as usize];
        let skip = if i == first { digits.iter().take(3).take_while(|digit| **digit == b'0').count() } else { 0 };
        push(&digits[skip..]);
    }
    push(b",");
    length
}

fn write_offsets(out: &mut Vec<u8>, offsets: &[(u32, u32)]) {
    out.push(b'[');
    let mut scratch = [0u8; 11];
    for (start, end) in offsets {
        out.push(b'[');
        let length = format_id(*start, &mut scratch);
        out.extend_from_slice(&scratch[..length]);
        let length = format_id(*end, &mut scratch);
        out.extend_from_slice(&scratch[..length - 1]);
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
        let ids = [0, 9, 10, 99, 100, 9_999, 10_000, 151_643, 1_000_000, 99_999_999, 100_000_000, u32::MAX];
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
