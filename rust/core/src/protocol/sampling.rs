//! Sampling: what a request asks for, the server's defaults, and the `sampling_params` object of the answer.
//!
//! Which keys appear follows vLLM's msgspec struct: fields equal to their default are left out, except those that the
//! renderer always computes anew (see spec of `SamplingParams`, vLLM `sampling_params.py`).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::constraints::{self, StructuredOutputs};
use super::fields::{Fields, INT64, lax_float};
use crate::error::{Error, Result};
use crate::json::{Json, Map, write_float, write_str};
use crate::spec::RenderSettings;

/// Below this temperature sampling is greedy.
const GREEDY_TEMPERATURE: f64 = 1e-5;
/// Positive temperatures below this are raised to it.
const LEAST_TEMPERATURE: f64 = 1e-2;

/// Sampling values that apply where a request is silent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SamplingDefaults {
    pub repetition_penalty: Option<f64>,
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub top_k: Option<i64>,
    pub min_p: Option<f64>,
    pub max_tokens: Option<u64>,
    pub skip_special_tokens: Option<bool>,
}

impl SamplingDefaults {
    /// From `default_sampling_params` of a model; a value of the wrong type is a fault of the model folder.
    pub fn from_spec(params: &serde_json::Map<String, serde_json::Value>) -> Result<Self> {
        let mut defaults = Self::default();
        for (name, value) in params {
            let fault = || Error::setup(format!("generation config: `{name}` has the unusable value `{value}`"));
            let number = || value.as_f64().ok_or_else(fault).map(Some);
            match name.as_str() {
                "repetition_penalty" => defaults.repetition_penalty = number()?,
                "presence_penalty" => defaults.presence_penalty = number()?,
                "frequency_penalty" => defaults.frequency_penalty = number()?,
                "temperature" => defaults.temperature = number()?,
                "top_p" => defaults.top_p = number()?,
                "min_p" => defaults.min_p = number()?,
                "top_k" => defaults.top_k = Some(value.as_i64().ok_or_else(fault)?),
                "max_tokens" => defaults.max_tokens = Some(value.as_u64().ok_or_else(fault)?),
                "skip_special_tokens" => defaults.skip_special_tokens = Some(value.as_bool().ok_or_else(fault)?),
                _ => return Err(Error::setup(format!("generation config: unknown sampling default `{name}`"))),
            }
        }
        Ok(defaults)
    }
}

/// What chat and completion requests say alike about sampling; the fields' names are the wire's.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the wire")]
pub struct SamplingRequest<'a> {
    pub n: i128,
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
    pub repetition_penalty: Option<f64>,
    pub temperature: Option<f64>,
    pub watermarking: Option<bool>,
    pub top_p: Option<f64>,
    pub top_k: Option<i128>,
    pub min_p: Option<f64>,
    pub seed: Option<i128>,
    pub stop: Vec<&'a str>,
    pub stop_token_ids: Vec<i128>,
    pub ignore_eos: bool,
    pub min_tokens: i128,
    pub logprobs: Option<i128>,
    pub prompt_logprobs: Option<i128>,
    pub logprob_token_ids: Option<Vec<i128>>,
    pub skip_special_tokens: Option<bool>,
    pub spaces_between_special_tokens: bool,
    pub include_stop_str_in_output: bool,
    pub stream: bool,
    pub stream_interval: Option<i128>,
    pub structured_outputs: Option<StructuredOutputs<'a>>,
    /// Keys as they came.
    pub logit_bias: Option<Vec<(&'a str, f64)>>,
    pub allowed_token_ids: Option<Vec<i128>>,
    pub vllm_xargs: Option<Map<'a>>,
    pub bad_words: Vec<&'a str>,
    pub thinking_token_budget: Option<i128>,
    pub repetition_detection: Option<[i128; 3]>,
    pub routed_experts_prompt_start: i128,
}

impl<'a> SamplingRequest<'a> {
    /// Read the fields that both routes share. `logprobs` are left to the route.
    pub fn read(body: Fields<'a, 'a>, settings: &RenderSettings) -> Result<Self> {
        Ok(Self {
            n: body.int("n")?.unwrap_or(1),
            presence_penalty: body.float("presence_penalty")?,
            frequency_penalty: body.float("frequency_penalty")?,
            repetition_penalty: body.float("repetition_penalty")?,
            temperature: body.float("temperature")?,
            watermarking: body.bool("watermarking")?,
            top_p: body.float("top_p")?,
            top_k: body.int("top_k")?,
            min_p: body.float("min_p")?,
            seed: body.int_in("seed", INT64)?,
            stop: read_stop(body, settings.max_stop_strings)?,
            stop_token_ids: body.ints("stop_token_ids")?.unwrap_or_default(),
            ignore_eos: body.bool_or("ignore_eos", false)?,
            min_tokens: body.int_or("min_tokens", 0)?,
            logprobs: None,
            prompt_logprobs: body.int("prompt_logprobs")?,
            logprob_token_ids: body.ints("logprob_token_ids")?.filter(|ids| !ids.is_empty()),
            skip_special_tokens: body.bool("skip_special_tokens")?,
            spaces_between_special_tokens: body.bool_or("spaces_between_special_tokens", true)?,
            include_stop_str_in_output: body.bool_or("include_stop_str_in_output", false)?,
            stream: body.bool("stream")?.unwrap_or(false),
            stream_interval: body.int_in("stream_interval", 1..=i128::MAX)?,
            structured_outputs: constraints::read(body)?,
            logit_bias: read_logit_bias(body)?,
            allowed_token_ids: body.ints("allowed_token_ids")?,
            vllm_xargs: read_xargs(body)?,
            bad_words: match body.map.get("bad_words") {
                Some(Json::Null) => return Err(body.error("bad_words", "a list of strings")),
                _ => body.strs("bad_words")?.unwrap_or_default(),
            },
            thinking_token_budget: read_thinking_budget(body)?,
            repetition_detection: read_repetition_detection(body)?,
            routed_experts_prompt_start: match body.int_or("routed_experts_prompt_start", 0)? {
                start if start < 0 => return Err(body.error("routed_experts_prompt_start", "at least 0")),
                start => start,
            },
        })
    }

    /// Fill in the defaults and check every value, as vLLM does when it builds its `SamplingParams`.
    pub fn resolve(
        &self,
        max_tokens: i128,
        defaults: &SamplingDefaults,
        settings: &RenderSettings,
    ) -> Result<SamplingParams<'_>> {
        let pick = |own: Option<f64>, default: Option<f64>, last: f64| own.or(default).unwrap_or(last);
        let mut temperature = pick(self.temperature, defaults.temperature, 1.0);
        if temperature > 0.0 && temperature < LEAST_TEMPERATURE {
            temperature = LEAST_TEMPERATURE;
        }
        if let Some(outputs) = &self.structured_outputs {
            outputs.check()?;
        }
        let params = SamplingParams {
            request: self,
            logit_bias: self.logit_bias.as_deref().map(resolve_logit_bias).transpose()?,
            presence_penalty: pick(self.presence_penalty, defaults.presence_penalty, 0.0),
            frequency_penalty: pick(self.frequency_penalty, defaults.frequency_penalty, 0.0),
            repetition_penalty: pick(self.repetition_penalty, defaults.repetition_penalty, 1.0),
            temperature,
            top_p: pick(self.top_p, defaults.top_p, 1.0),
            top_k: self.top_k.or(defaults.top_k.map(i128::from)).unwrap_or(0),
            min_p: pick(self.min_p, defaults.min_p, 0.0),
            max_tokens,
            skip_special_tokens: self.skip_special_tokens.or(defaults.skip_special_tokens).unwrap_or(true),
        };
        params.check(settings)?;
        Ok(params)
    }
}

/// Rules that vLLM applies to values while it validates the body; their breach goes before any fault of type.
pub(super) fn check_within_validation(map: &Map<'_>) -> Result<()> {
    let body = Fields::new(map, "body");
    read_thinking_budget(body)?;
    for domain in [constraints::check_given(body), read_repetition_detection(body).map(|_| ())] {
        match domain {
            // Faults of type are found again when the fields are read.
            Ok(()) | Err(Error::Schema { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn read_stop<'a>(body: Fields<'a, 'a>, most: usize) -> Result<Vec<&'a str>> {
    match body.present("stop") {
        None => Ok(Vec::new()),
        Some(Json::Str(text)) => Ok(vec![text]),
        Some(_) => {
            let stop = body.strs("stop")?.unwrap_or_default();
            if stop.len() > most {
                return Err(body.error("stop", &format!("at most {most} strings")));
            }
            Ok(stop)
        }
    }
}

/// Token ids, still as text, with their biases clamped to ±100.
fn read_logit_bias<'a>(body: Fields<'a, 'a>) -> Result<Option<Vec<(&'a str, f64)>>> {
    let Some(map) = body.object("logit_bias")? else { return Ok(None) };
    let bias = |(key, value)| match lax_float(value) {
        // `max` and `min` of Python let NaN fall to the first bound.
        Some(value) if value.is_nan() => Ok((key, -100.0)),
        Some(value) => Ok((key, value.clamp(-100.0, 100.0))),
        None => Err(body.error("logit_bias", "a map from token ids to numbers")),
    };
    map.iter().map(bias).collect::<Result<_>>().map(Some)
}

/// Read the keys; of equal ids the last wins.
fn resolve_logit_bias(biases: &[(&str, f64)]) -> Result<Vec<(i128, f64)>> {
    let mut places: HashMap<i128, usize> = HashMap::with_capacity(biases.len());
    let mut resolved: Vec<(i128, f64)> = Vec::with_capacity(biases.len());
    for (key, value) in biases {
        let token: i128 = key.trim().parse().map_err(|_| {
            Error::bad_param("logit_bias", format!("`logit_bias` has the key `{key}`, which is not a token id"))
        })?;
        match places.entry(token) {
            Entry::Occupied(place) => resolved[*place.get()].1 = *value,
            Entry::Vacant(place) => {
                place.insert(resolved.len());
                resolved.push((token, *value));
            }
        }
    }
    Ok(resolved)
}

/// `vllm_xargs`: strings, numbers and lists of those; an empty object counts as none.
fn read_xargs<'a>(body: Fields<'_, 'a>) -> Result<Option<Map<'a>>> {
    let Some(map) = body.object("vllm_xargs")? else { return Ok(None) };
    let scalar = |value: &Json<'_>| {
        matches!(value, Json::Str(_) | Json::Int(_) | Json::BigInt(_) | Json::Float(_) | Json::Bool(_))
    };
    let mut out = Map::new();
    for (key, value) in map.iter() {
        let fits = match value {
            Json::Array(items) => items.iter().all(scalar),
            value => scalar(value),
        };
        if !fits {
            return Err(body.error("vllm_xargs", "a map to strings, numbers and lists of those"));
        }
        out.push(key.to_owned(), value.clone());
    }
    Ok((!out.is_empty()).then_some(out))
}

fn read_thinking_budget(body: Fields<'_, '_>) -> Result<Option<i128>> {
    match body.present("thinking_token_budget") {
        None | Some(Json::Int(-1)) => Ok(None),
        Some(Json::Int(budget)) if *budget >= 0 => Ok(Some(i128::from(*budget))),
        Some(Json::BigInt(text)) if !text.starts_with('-') => Ok(Some(text.parse().unwrap_or(i128::MAX))),
        Some(_) => Err(Error::bad_param("thinking_token_budget", "`thinking_token_budget` must be -1 or at least 0")),
    }
}

fn read_repetition_detection(body: Fields<'_, '_>) -> Result<Option<[i128; 3]>> {
    let Some(map) = body.object("repetition_detection")? else { return Ok(None) };
    let fields = Fields::new(map, "body.repetition_detection");
    let most = fields.int_or("max_pattern_size", 0)?;
    let least = fields.int_or("min_pattern_size", 0)?;
    let count = fields.int_or("min_count", 0)?;
    if most < 0 || least < 0 || least > most {
        return Err(Error::bad_request(
            "`repetition_detection`: pattern sizes must be at least 0, and the smallest no larger than the largest",
        ));
    }
    if most > 0 && count < 2 {
        return Err(Error::bad_request("`repetition_detection`: `min_count` must be at least 2"));
    }
    Ok(Some([most, least, count]))
}

/// A complete, valid set of sampling values.
#[derive(Debug, Clone)]
pub struct SamplingParams<'r> {
    request: &'r SamplingRequest<'r>,
    logit_bias: Option<Vec<(i128, f64)>>,
    presence_penalty: f64,
    frequency_penalty: f64,
    repetition_penalty: f64,
    temperature: f64,
    top_p: f64,
    top_k: i128,
    min_p: f64,
    max_tokens: i128,
    skip_special_tokens: bool,
}

impl SamplingParams<'_> {
    fn greedy(&self) -> bool {
        self.temperature < GREEDY_TEMPERATURE
    }

    fn check(&self, settings: &RenderSettings) -> Result<()> {
        let request = self.request;
        let refuse = |message: String| Err(Error::bad_request(message));
        let refuse_param = |param: &str, message: String| Err(Error::bad_param(param, message));
        if request.n < 1 {
            return refuse(format!("`n` must be at least 1, not {}", request.n));
        }
        if request.n > i128::from(settings.max_n_sequences) {
            return refuse(format!("`n` must be at most {}, not {}", settings.max_n_sequences, request.n));
        }
        if let Some(xargs) = &request.vllm_xargs {
            check_xarg_integers(xargs)?;
        }
        for (name, value) in
            [("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)]
        {
            if !(-2.0..=2.0).contains(&value) {
                return refuse(format!("`{name}` must be between -2 and 2, not {value}"));
            }
        }
        if !self.repetition_penalty.is_finite() || self.repetition_penalty <= 0.0 {
            return refuse(format!("`repetition_penalty` must be finite and above 0, not {}", self.repetition_penalty));
        }
        if !(0.0..=2.0).contains(&self.temperature) {
            return refuse_param(
                "temperature",
                format!("`temperature` must be between 0 and 2, not {}", self.temperature),
            );
        }
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return refuse_param("top_p", format!("`top_p` must be above 0 and at most 1, not {}", self.top_p));
        }
        if self.top_k < -1 {
            return refuse(format!("`top_k` must be -1 or at least 0, not {}", self.top_k));
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return refuse(format!("`min_p` must be between 0 and 1, not {}", self.min_p));
        }
        if self.max_tokens < 1 {
            return refuse_param(
                "max_tokens",
                format!("`max_tokens` must be at least 1, and comes to {}", self.max_tokens),
            );
        }
        if request.min_tokens < 0 || request.min_tokens > self.max_tokens {
            return refuse(format!(
                "`min_tokens` must be between 0 and `max_tokens` ({}), not {}",
                self.max_tokens, request.min_tokens
            ));
        }
        for (name, value) in [("logprobs", request.logprobs), ("prompt_logprobs", request.prompt_logprobs)] {
            if value.is_some_and(|value| value < -1) {
                return refuse_param(name, format!("`{name}` must be -1 or at least 0"));
            }
        }
        if request.stop.iter().any(|stop| stop.is_empty()) {
            return refuse("`stop` must not hold an empty string".to_owned());
        }
        if request.bad_words.iter().any(|word| word.is_empty()) {
            return refuse("`bad_words` must not hold an empty string".to_owned());
        }
        if self.greedy() && request.n > 1 {
            return refuse(format!("`n` must be 1 when sampling is greedy (temperature 0), not {}", request.n));
        }
        Ok(())
    }

    /// Append as a JSON object, keys in the order of vLLM's struct.
    pub fn write(&self, out: &mut Vec<u8>) {
        let request = self.request;
        let mut object = ObjectWriter::new(out);
        if request.n != 1 {
            object.int("n", request.n);
        }
        object.float("presence_penalty", self.presence_penalty);
        object.float("frequency_penalty", self.frequency_penalty);
        object.float("repetition_penalty", self.repetition_penalty);
        object.float("temperature", self.temperature);
        object.some("watermarking", request.watermarking, ObjectWriter::bool);
        if !self.greedy() {
            object.float("top_p", self.top_p);
            if self.top_k != 0 {
                object.int("top_k", self.top_k);
            }
            object.float("min_p", self.min_p);
        }
        object.some("seed", request.seed.filter(|seed| *seed != -1), ObjectWriter::int);
        object.strs("stop", &request.stop);
        object.ints("stop_token_ids", &unique(&request.stop_token_ids));
        if request.ignore_eos {
            object.bool("ignore_eos", true);
        }
        // vLLM leaves out what equals its default of 16, though it was computed; engines count on it.
        if self.max_tokens != 16 {
            object.int("max_tokens", self.max_tokens);
        }
        if request.min_tokens != 0 {
            object.int("min_tokens", request.min_tokens);
        }
        object.some("logprobs", request.logprobs, ObjectWriter::int);
        object.some("prompt_logprobs", request.prompt_logprobs, ObjectWriter::int);
        if let Some(ids) = &request.logprob_token_ids {
            object.ints("logprob_token_ids", ids);
        }
        if !self.skip_special_tokens {
            object.bool("skip_special_tokens", false);
        }
        if !request.spaces_between_special_tokens {
            object.bool("spaces_between_special_tokens", false);
        }
        if request.include_stop_str_in_output {
            object.bool("include_stop_str_in_output", true);
        }
        object.int("output_kind", if request.stream { 1 } else { 2 });
        object.some("stream_interval", request.stream_interval, ObjectWriter::int);
        object.bool("skip_clone", true);
        let held_back = request.stop.iter().map(|stop| stop.chars().count()).max().unwrap_or(0).saturating_sub(1);
        if held_back > 0 && !request.include_stop_str_in_output {
            object.int("output_text_buffer_length", i128::try_from(held_back).unwrap_or(i128::MAX));
        }
        if let Some(outputs) = &request.structured_outputs {
            outputs.write(object.key("structured_outputs"));
        }
        if let Some(biases) = &self.logit_bias {
            write_logit_bias(object.key("logit_bias"), biases);
        }
        if let Some(ids) = &request.allowed_token_ids {
            object.ints("allowed_token_ids", ids);
        }
        if let Some(xargs) = &request.vllm_xargs {
            xargs.write(object.key("extra_args"));
        }
        object.strs("bad_words", &unique(&request.bad_words));
        object.bool("skip_reading_prefix_cache", request.prompt_logprobs.is_some());
        object.some("thinking_token_budget", request.thinking_token_budget, ObjectWriter::int);
        if let Some([most, least, count]) = request.repetition_detection {
            let mut nested = ObjectWriter::new(object.key("repetition_detection"));
            nested.int("max_pattern_size", most);
            nested.int("min_pattern_size", least);
            nested.int("min_count", count);
            nested.end();
        }
        if request.routed_experts_prompt_start != 0 {
            object.int("routed_experts_prompt_start", request.routed_experts_prompt_start);
        }
        object.end();
    }
}

fn check_xarg_integers(xargs: &Map<'_>) -> Result<()> {
    let fits = |value: &Json<'_>| match value {
        Json::BigInt(text) => text.parse::<u64>().is_ok(),
        _ => true,
    };
    let all = xargs.iter().all(|(_, value)| match value {
        Json::Array(items) => items.iter().all(fits),
        value => fits(value),
    });
    if all { Ok(()) } else { Err(Error::bad_param("extra_args", "integers in `vllm_xargs` must fit in 64 bits")) }
}

fn write_logit_bias(out: &mut Vec<u8>, biases: &[(i128, f64)]) {
    let mut object = ObjectWriter::new(out);
    for (token, bias) in biases {
        object.float(itoa::Buffer::new().format(*token), *bias);
    }
    object.end();
}

/// Each value once, at its first place.
fn unique<T: Copy + Eq + std::hash::Hash>(values: &[T]) -> Vec<T> {
    let mut seen = std::collections::HashSet::with_capacity(values.len());
    values.iter().copied().filter(|value| seen.insert(*value)).collect()
}

/// Writes the members of one JSON object.
pub(crate) struct ObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl<'o> ObjectWriter<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// Write a key; the caller appends its value.
    pub(crate) fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !self.first {
            self.out.push(b',');
        }
        self.first = false;
        write_str(self.out, key);
        self.out.push(b':');
        self.out
    }

    pub(crate) fn end(self) {
        self.out.push(b'}');
    }

    pub(crate) fn int(&mut self, key: &str, value: i128) {
        self.key(key).extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    pub(crate) fn float(&mut self, key: &str, value: f64) {
        write_float(self.key(key), value);
    }

    pub(crate) fn bool(&mut self, key: &str, value: bool) {
        self.key(key).extend_from_slice(if value { b"true" } else { b"false" });
    }

    pub(crate) fn str(&mut self, key: &str, value: &str) {
        write_str(self.key(key), value);
    }

    fn some<T>(&mut self, key: &str, value: Option<T>, write: impl Fn(&mut Self, &str, T)) {
        if let Some(value) = value {
            write(self, key, value);
        }
    }

    fn ints(&mut self, key: &str, values: &[i128]) {
        let out = self.key(key);
        out.push(b'[');
        for (i, value) in values.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            out.extend_from_slice(itoa::Buffer::new().format(*value).as_bytes());
        }
        out.push(b']');
    }

    fn strs(&mut self, key: &str, values: &[&str]) {
        let out = self.key(key);
        out.push(b'[');
        for (i, value) in values.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            write_str(out, value);
        }
        out.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(text: &str, max_tokens: i128) -> Result<String> {
        let Ok(Json::Object(map)) = Json::parse(text) else { panic!("not an object") };
        let settings = RenderSettings::default();
        let request = SamplingRequest::read(Fields::new(&map, "body"), &settings)?;
        let mut out = Vec::new();
        request.resolve(max_tokens, &SamplingDefaults::default(), &settings)?.write(&mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_silent_request_gives_the_defaults_that_vllm_writes() {
        assert_eq!(
            params("{}", 100).unwrap(),
            concat!(
                r#"{"presence_penalty":0.0,"frequency_penalty":0.0,"repetition_penalty":1.0,"temperature":1.0,"top_p":1.0,"#,
                r#""min_p":0.0,"stop":[],"stop_token_ids":[],"max_tokens":100,"output_kind":2,"skip_clone":true,"bad_words":[],"#,
                r#""skip_reading_prefix_cache":false}"#
            )
        );
        assert!(!params("{}", 16).unwrap().contains("max_tokens"));
    }

    #[test]
    fn every_field_has_its_place() {
        let body = r#"{"n": 2, "watermarking": true, "top_k": -1, "seed": 7, "stop": ["ab", "日本語"], "stop_token_ids": [5, 6, 5],
            "ignore_eos": true, "min_tokens": 3, "prompt_logprobs": 0, "logprob_token_ids": [1], "skip_special_tokens": false,
            "spaces_between_special_tokens": false, "stream": true, "stream_interval": 4, "logit_bias": {"12": 500, "3": -1, " 12": 2},
            "allowed_token_ids": [9], "vllm_xargs": {"k": [1, "v"]}, "bad_words": ["x", "y", "x"], "thinking_token_budget": 10,
            "repetition_detection": {"max_pattern_size": 3, "min_count": 2}, "routed_experts_prompt_start": 1}"#;
        assert_eq!(
            params(body, 100).unwrap(),
            concat!(
                r#"{"n":2,"presence_penalty":0.0,"frequency_penalty":0.0,"repetition_penalty":1.0,"temperature":1.0,"watermarking":true,"#,
                r#""top_p":1.0,"top_k":-1,"min_p":0.0,"seed":7,"stop":["ab","日本語"],"stop_token_ids":[5,6],"ignore_eos":true,"#,
                r#""max_tokens":100,"min_tokens":3,"prompt_logprobs":0,"logprob_token_ids":[1],"skip_special_tokens":false,"#,
                r#""spaces_between_special_tokens":false,"output_kind":1,"stream_interval":4,"skip_clone":true,"output_text_buffer_length":2,"#,
                r#""logit_bias":{"12":2.0,"3":-1.0},"allowed_token_ids":[9],"extra_args":{"k":[1,"v"]},"bad_words":["x","y"],"#,
                r#""skip_reading_prefix_cache":true,"thinking_token_budget":10,"#,
                r#""repetition_detection":{"max_pattern_size":3,"min_pattern_size":0,"min_count":2},"routed_experts_prompt_start":1}"#
            )
        );
    }

    #[test]
    fn greedy_sampling_has_no_top_values() {
        let text = params(r#"{"temperature": 0, "top_p": 0.5, "top_k": 4, "seed": -1}"#, 4).unwrap();
        assert!(text.contains(r#""temperature":0.0,"stop":[]"#), "{text}");
        assert!(params(r#"{"temperature": 0.001}"#, 4).unwrap().contains(r#""temperature":0.01,"#));
    }

    #[test]
    fn values_out_of_bounds_are_refused_with_the_param_that_vllm_names() {
        for (body, param) in [
            (r#"{"n": 0}"#, None),
            (r#"{"n": 2147483647}"#, None),
            (r#"{"n": 2, "temperature": 0}"#, None),
            (r#"{"temperature": NaN}"#, Some("temperature")),
            (r#"{"temperature": 2.1}"#, Some("temperature")),
            (r#"{"top_p": 0}"#, Some("top_p")),
            (r#"{"top_k": -2}"#, None),
            (r#"{"min_p": 1.5}"#, None),
            (r#"{"presence_penalty": 3}"#, None),
            (r#"{"repetition_penalty": 0}"#, None),
            (r#"{"repetition_penalty": Infinity}"#, None),
            (r#"{"min_tokens": 101}"#, None),
            (r#"{"prompt_logprobs": -2}"#, Some("prompt_logprobs")),
            (r#"{"stop": [""]}"#, None),
            (r#"{"bad_words": [""]}"#, None),
            (r#"{"thinking_token_budget": true}"#, Some("thinking_token_budget")),
            (r#"{"logit_bias": {"x": 1}}"#, Some("logit_bias")),
            (r#"{"vllm_xargs": {"k": 99999999999999999999}}"#, Some("extra_args")),
            (r#"{"repetition_detection": {"max_pattern_size": 2}}"#, None),
        ] {
            let error = params(body, 100).unwrap_err();
            assert_eq!((error.kind(), error.param()), ("BadRequestError", param), "{body}");
        }
        for body in [
            r#"{"stop": ["a", "b", "c", "d", "e"]}"#,
            r#"{"seed": 9223372036854775808}"#,
            r#"{"stream_interval": 0}"#,
            r#"{"ignore_eos": null}"#,
            r#"{"vllm_xargs": {"k": {}}}"#,
            r#"{"bad_words": null}"#,
        ] {
            assert_eq!(params(body, 100).unwrap_err().kind(), "Bad Request", "{body}");
        }
        assert_eq!(params("{}", 0).unwrap_err().param(), Some("max_tokens"));
    }
}
