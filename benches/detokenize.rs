//! Ids to text and answers to messages: whole, token by token, and with a parser.
//! By the tokenizer of `FASTRENDER_TOKENIZER` (a tokenizer.json), else the embedded one; on text of `FASTRENDER_TEXT` (a
//! UTF-8 file), else on this repository's README and documents.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fastrender_core::detokenizer::{Detokenizer, Specials};
use fastrender_core::parser::{Deltas, ParseRequest, Parser, ParserOptions, Piece};
use fastrender_core::protocol::tools::ToolChoice;
use fastrender_core::spec::TokenizerSpec;
use fastrender_core::tokenizer::Tokenizer;

const TEXT_BYTES: usize = 256 << 10;
const CHUNKS: usize = 2_000;

struct Setting {
    detokenizer: Detokenizer,
    ids: Vec<u32>,
}

impl Setting {
    fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let json =
            given("FASTRENDER_TOKENIZER").unwrap_or_else(|| root.join("python/fastrender/embedded/tokenizer.json"));
        let json = std::fs::read(json).expect("there is a tokenizer.json");
        let text = match given("FASTRENDER_TEXT") {
            Some(path) => std::fs::read_to_string(path).expect("FASTRENDER_TEXT is a UTF-8 file"),
            None => own_text(&root),
        };
        let mut end = TEXT_BYTES.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let tokenizer = Tokenizer::new(&json, &TokenizerSpec::default()).expect("the tokenizer loads");
        let ids = tokenizer.encode(&text[..end], false, None).expect("the text is read");
        Self { detokenizer: Detokenizer::new(Arc::new(tokenizer), &[]), ids }
    }
}

fn own_text(root: &Path) -> String {
    let names = ["README.md", "ARCHITECTURE.md", "docs/parsers.md", "docs/deviations.md", "docs/templates.md"];
    let texts = names.iter().filter_map(|name| std::fs::read_to_string(root.join(name)).ok());
    let text: String = texts.collect();
    text.repeat(1 + TEXT_BYTES / text.len().max(1))
}

fn detokenize(criterion: &mut Criterion) {
    let Setting { detokenizer, ids } = Setting::new();
    let whole = detokenizer.decode(detokenizer.start(&[], Specials::Keep), &ids, Specials::Keep).expect("ids decode");
    let mut group = criterion.benchmark_group("detokenize");
    group.throughput(Throughput::Bytes(whole.len() as u64));
    group.bench_function("whole", |bencher| {
        bencher.iter(|| detokenizer.decode(detokenizer.start(&[], Specials::Keep), black_box(&ids), Specials::Keep));
    });
    group.throughput(Throughput::Elements(ids.len() as u64));
    group.bench_function("token by token", |bencher| {
        bencher.iter(|| {
            let mut stream = detokenizer.start(&[], Specials::Keep);
            let mut text = String::with_capacity(64);
            let mut bytes = 0;
            for id in &ids {
                text.clear();
                let id = std::slice::from_ref(black_box(id));
                detokenizer.push(&mut stream, id, Specials::Keep, &mut text).expect("ids decode");
                bytes += text.len();
            }
            bytes
        });
    });
    group.bench_function("token by token, with the window of the wire", |bencher| {
        bencher.iter(|| {
            let (mut stream, mut window) = detokenizer.start_window(&[], Specials::Keep);
            let mut text = String::with_capacity(64);
            let mut bytes = 0;
            for id in &ids {
                text.clear();
                let id = std::slice::from_ref(black_box(id));
                detokenizer.push_tracked(&mut stream, &mut window, id, Specials::Keep, &mut text).expect("ids decode");
                bytes += text.len();
            }
            bytes
        });
    });
    group.finish();
}

fn parse(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parse");
    let body = "word ".repeat(CHUNKS);
    for (name, text) in [
        (
            "hermes",
            format!(
                "<tool_call>{{\"name\": \"w\", \"arguments\": {{\"path\": \"x\", \"body\": \"{body}\"}}}}</tool_call>"
            ),
        ),
        (
            "qwen3_coder",
            format!("<tool_call>\n<function=w>\n<parameter=body>\n{body}\n</parameter>\n</function>\n</tool_call>"),
        ),
        ("openai", format!("<|channel|>commentary to=functions.w<|message|>{{\"body\": \"{body}\"}}<|call|>")),
    ] {
        let options = ParserOptions { tool_parser: Some(name), ..ParserOptions::default() };
        let parser = Parser::new(&options, &|_| None).expect("the format is known");
        let request = ParseRequest { tool_choice: ToolChoice::Auto, any_tool: true, ..ParseRequest::default() };
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(format!("{name}, whole"), |bencher| {
            bencher.iter(|| parser.whole(&request, [Piece::Text(black_box(&text))], Some("stop")));
        });
        let chunks: Vec<&str> = text.split_inclusive(' ').collect();
        group.throughput(Throughput::Elements(chunks.len() as u64));
        group.bench_function(format!("{name}, chunk by chunk with the state saved"), |bencher| {
            bencher.iter(|| {
                let mut bytes = parser.start(&request).save();
                for chunk in &chunks {
                    let mut state = parser.load(&bytes).expect("a state of ours");
                    let mut deltas = Deltas::default();
                    parser.push(&mut state, &request, [Piece::Text(chunk)], &mut deltas).expect("the text is read");
                    bytes = state.save();
                }
                bytes.len()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, detokenize, parse);
criterion_main!(benches);
