//! Parsing of bodies, reading of conversations and writing of answers: the core's work around template and tokenizer.

use std::fmt::Write as _;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fastrender_core::conversation::{Reading, normalize, read_messages};
use fastrender_core::json::Json;
use fastrender_core::protocol::chat::ChatRequest;
use fastrender_core::protocol::generate::{GenerateRequest, Nulls};
use fastrender_core::protocol::parse_body;
use fastrender_core::protocol::sampling::SamplingDefaults;
use fastrender_core::spec::{ContentFormat, RenderSettings, RenderSpec};

/// Text with what JSON must escape, and some that takes more than one byte.
const SENTENCE: &str =
    "The server said \\\"busy\\\" again,\\n\\tso we looked at the log: größer als 请求, 42 lines of it. ";
const SPEC: &str = r#"{"model": {"name": "m", "served_names": ["m"], "max_model_len": 40960, "tokenizer": {}}}"#;

/// A chat request of `turns` messages with about `bytes` of text in each.
fn chat_body(turns: usize, bytes: usize) -> String {
    let mut body = String::from(r#"{"model":"m","temperature":0.7,"max_tokens":512,"messages":["#);
    for turn in 0..turns {
        let (comma, role) = (if turn > 0 { "," } else { "" }, if turn % 2 == 0 { "user" } else { "assistant" });
        let content = SENTENCE.repeat((bytes / SENTENCE.len()).max(1));
        write!(body, r#"{comma}{{"role":"{role}","content":"{turn} {content}"}}"#).expect("a string takes all");
    }
    body + "]}"
}

/// A chat request with one image of `bytes` in a data URL.
fn image_body(bytes: usize) -> String {
    let data = "iVBORw0KGgo+/AAB".repeat(bytes / 16);
    format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"text","text":"What is this?"}},{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}]}}]}}"#
    )
}

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    let bodies =
        [("short", chat_body(1, 60)), ("chat 142 KB", chat_body(20, 7_000)), ("data URL 2 MB", image_body(2 << 20))];
    for (name, body) in &bodies {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(*name, |bencher| bencher.iter(|| Json::parse(black_box(body)).expect("valid JSON")));
    }
    group.finish();
}

fn read(criterion: &mut Criterion) {
    let settings = RenderSettings::default();
    let mut group = criterion.benchmark_group("read request");
    for (name, body) in [("short", chat_body(1, 60)), ("100 turns", chat_body(100, 500))] {
        let map = parse_body(body.as_bytes()).expect("an object").0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| ChatRequest::read(black_box(&map), &settings).expect("a valid request"));
        });
    }
    group.finish();
}

fn conversation(criterion: &mut Criterion) {
    let spec: RenderSpec = serde_json::from_str(SPEC).expect("a valid spec");
    let body = chat_body(100, 500);
    let map = parse_body(body.as_bytes()).expect("an object").0;
    let messages = map.get("messages").and_then(Json::as_array).expect("a list");
    let mut group = criterion.benchmark_group("normalize 100 turns");
    for (name, format) in [("string", ContentFormat::String), ("openai", ContentFormat::OpenAi)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let messages = read_messages(black_box(messages), Reading::Chat).expect("valid messages");
                normalize(&messages, format, &spec.model, &spec.settings).expect("a valid conversation")
            });
        });
    }
    group.finish();
}

fn write(criterion: &mut Criterion) {
    let settings = RenderSettings::default();
    let body = chat_body(1, 60);
    let map = parse_body(body.as_bytes()).expect("an object").0;
    let request = ChatRequest::read(&map, &settings).expect("a valid request");
    let mut group = criterion.benchmark_group("write answer");
    for (name, count) in [("32 ids", 32), ("2k ids", 2_000), ("32k ids", 32_000)] {
        // Steps through the vocabulary, so that ids have as many digits as they have in prompts.
        let token_ids: Vec<u32> = (0..count).map(|i| i * 7_919 % 151_643).collect();
        let sampling_params =
            request.sampling.resolve(512, &SamplingDefaults::default(), &settings).expect("valid sampling parameters");
        let answer = GenerateRequest {
            request_id: "chatcmpl-0123456789abcdef",
            token_ids: &token_ids,
            token_offsets: None,
            features: None,
            sampling_params,
            model: Some("m"),
            reasoning_ended: None,
            reasoning_parser_kwargs: None,
            return_token_ids: None,
            parse_context: None,
            stream: false,
            stream_options: None,
            cache_salt: None,
            priority: 0,
            kv_transfer_params: None,
            ec_transfer_params: None,
        };
        group.throughput(Throughput::Elements(u64::from(count)));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut out = Vec::new();
                black_box(&answer).write(&mut out, Nulls::Write);
                out
            });
        });
    }
    group.finish();
}

criterion_group!(benches, parse, read, conversation, write);
criterion_main!(benches);
