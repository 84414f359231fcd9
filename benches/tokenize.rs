//! Text to ids: short, 2k and 32k tokens at first sight and again, the next turn of a conversation, offsets and text,
//! each beside the `tokenizers` library. By the tokenizer of `FASTRENDER_TOKENIZER` (a tokenizer.json), else the embedded
//! one; on text of `FASTRENDER_TEXT` (a UTF-8 file, a megabyte or more), else on this repository's own.

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fastrender_core::spec::TokenizerSpec;
use fastrender_core::tokenizer::Tokenizer;

const LENGTHS: [(&str, usize); 3] = [("200 tokens", 850), ("2k tokens", 8_500), ("32k tokens", 136_000)];
const CACHE_BYTES: usize = 64 << 20;

struct Setting {
    json: Vec<u8>,
    text: String,
}

impl Setting {
    fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let json =
            given("FASTRENDER_TOKENIZER").unwrap_or_else(|| root.join("python/fastrender/embedded/tokenizer.json"));
        let text = match given("FASTRENDER_TEXT") {
            Some(path) => std::fs::read_to_string(path).expect("FASTRENDER_TEXT is a UTF-8 file"),
            None => own_text(&root),
        };
        Self { json: std::fs::read(json).expect("there is a tokenizer.json"), text }
    }

    fn tokenizer(&self, cache_bytes: usize) -> Tokenizer {
        let spec = TokenizerSpec { cache_bytes, ..TokenizerSpec::default() };
        let tokenizer = Tokenizer::new(&self.json, &spec).expect("the tokenizer loads");
        tokenizer.finish_loading();
        tokenizer
    }

    /// Texts of `bytes` bytes from the text's second half; the first is for warming up.
    fn unseen(&self, bytes: usize) -> Vec<&str> {
        let mut rest = &self.text[boundary(&self.text, self.text.len() / 2)..];
        let mut texts = Vec::new();
        while rest.len() > bytes {
            let (text, behind) = rest.split_at(boundary(rest, bytes));
            texts.push(text);
            rest = behind;
        }
        assert!(!texts.is_empty(), "the text is too short");
        texts
    }
}

/// The repository's sources and documents, for want of a better text.
fn own_text(root: &Path) -> String {
    let mut text = String::new();
    let mut folders = vec![root.join("rust"), root.join("python"), root.join("docs"), root.join("tests")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs" || kind == "py" || kind == "md") {
                text += &std::fs::read_to_string(path).unwrap_or_default();
            }
        }
    }
    text
}

fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// A tokenizer that has seen the first half of the text.
fn warmed(setting: &Setting) -> Tokenizer {
    let tokenizer = setting.tokenizer(0);
    let seen = &setting.text[..boundary(&setting.text, setting.text.len() / 2)];
    tokenizer.encode(seen, false, None).expect("a text has ids");
    tokenizer
}

fn encode(criterion: &mut Criterion) {
    let setting = Setting::new();
    let library = Tokenizer::general(&setting.json, &TokenizerSpec::default()).expect("the tokenizer loads");
    for (name, bytes) in LENGTHS {
        let texts = setting.unseen(bytes);
        let mut ours = warmed(&setting);
        for text in texts.iter().take(3) {
            assert_eq!(ours.encode(*text, false, None), library.encode(*text, false, None), "ids differ");
        }
        let mut group = criterion.benchmark_group(format!("encode {name}"));
        group.sample_size(10).measurement_time(Duration::from_millis(300)).warm_up_time(Duration::from_millis(100));
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function("first sight", |bencher| {
            bencher.iter_custom(|iterations| {
                let mut spent = Duration::ZERO;
                for at in (0..texts.len()).cycle().take(usize::try_from(iterations).unwrap_or(usize::MAX)) {
                    if at == 0 {
                        ours = warmed(&setting);
                    }
                    let start = Instant::now();
                    black_box(ours.encode(black_box(texts[at]), false, None)).expect("a text has ids");
                    spent += start.elapsed();
                }
                spent
            });
        });
        for (name, tokenizer) in [("again", &ours), ("tokenizers", &library)] {
            group.bench_function(name, |bencher| {
                bencher.iter(|| tokenizer.encode(black_box(texts[0]), false, None));
            });
        }
        group.finish();
    }
}

/// Of 32k tokens, a tenth is new.
fn next_turn(criterion: &mut Criterion) {
    let setting = Setting::new();
    let turns = setting.unseen(3_400);
    let (known, new) = turns.split_at(turns.len().min(36));
    let mut conversation = String::new();
    for turn in known {
        write!(conversation, "<|im_start|>user\n{turn}<|im_end|>\n").expect("a string takes all");
    }
    let ours = setting.tokenizer(CACHE_BYTES);
    ours.encode(&conversation, false, None).expect("a text has ids");
    let mut requests = new.chunks_exact(4).cycle();
    criterion.bench_function("next turn of 32k tokens", |bencher| {
        bencher.iter_custom(|iterations| {
            let mut spent = Duration::ZERO;
            for number in 0..iterations {
                let turns = requests.next().unwrap_or_default().concat();
                // The number makes the segment a new one, whatever the cache has seen.
                let request = format!("{conversation}<|im_start|>user\n{number} {turns}<|im_end|>\n");
                let start = Instant::now();
                black_box(ours.encode(black_box(&request), false, None)).expect("a text has ids");
                spent += start.elapsed();
            }
            spent
        });
    });
}

fn places_and_text(criterion: &mut Criterion) {
    let setting = Setting::new();
    let library = Tokenizer::general(&setting.json, &TokenizerSpec::default()).expect("the tokenizer loads");
    let text = setting.unseen(LENGTHS[2].1)[0];
    let ours = setting.tokenizer(0);
    let ids = ours.encode(text, false, None).expect("a text has ids");
    let mut group = criterion.benchmark_group("32k tokens");
    group.sample_size(10).throughput(Throughput::Bytes(text.len() as u64));
    for (name, tokenizer) in [("fast", &ours), ("tokenizers", &library)] {
        group.bench_function(format!("with offsets, {name}"), |bencher| {
            bencher.iter(|| tokenizer.encode_with_offsets(black_box(text), false, None));
        });
        group.bench_function(format!("decode, {name}"), |bencher| {
            bencher.iter(|| tokenizer.decode(black_box(&ids), false));
        });
    }
    group.finish();
}

criterion_group!(benches, encode, next_turn, places_and_text);
criterion_main!(benches);
