//! The tokenizers of real models, in the assets beside the repository; skipped where there are none.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;

use super::{difference, oracle, texts};
use crate::spec::TokenizerSpec;
use crate::tokenizer::Tokenizer;

/// For each tokenizer; loading comes on top.
const TIME: Duration = Duration::from_millis(400);
/// A debug build takes seconds to load more; `tests/python/test_tokenizer.py` has them all.
const MAX_FILE: usize = 6_000_000;

fn assets() -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("FASTRENDER_SHARED").map_or(beside, PathBuf::from);
    Some(shared.join("assets")).filter(|assets| assets.is_dir())
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn tokenizers_of_real_models_equal_the_library() {
    let Some(assets) = assets() else {
        eprintln!("skipped: no ../shared/assets, and FASTRENDER_SHARED names no other place");
        return;
    };
    let mut folders: Vec<_> = std::fs::read_dir(&assets).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let mut seen = HashSet::new();
    let prose: Vec<char> =
        std::fs::read_to_string(assets.join("corpora/chat_requests.jsonl")).unwrap().chars().collect();
    for folder in folders {
        let Ok(json) = std::fs::read(folder.join("tokenizer.json")) else { continue };
        if json.len() > MAX_FILE {
            continue;
        }
        let file: Value = serde_json::from_slice(&json).unwrap();
        // Families share their components; one of each is enough here.
        let shape = format!("{} {} {}", file["normalizer"], file["pre_tokenizer"], file["model"]["ignore_merges"]);
        if !seen.insert(shape) {
            continue;
        }
        let spec = TokenizerSpec { cache_bytes: 1 << 20, ..TokenizerSpec::default() };
        let (ours, oracle) = (Tokenizer::early(&json, &spec).unwrap(), oracle(&json));
        let is_bpe = !file["model"]["merges"].is_null();
        assert_eq!(ours.backend().starts_with("fast: "), is_bpe, "{}: {}", folder.display(), ours.backend());
        let mut specials: Vec<String> =
            oracle.get_added_tokens_decoder().into_values().map(|token| token.content).collect();
        specials.sort();
        let strategy = (texts::text(&specials), any::<prop::sample::Index>(), 0..2000_usize);
        let mut runner = TestRunner::new(Config::default());
        let start = Instant::now();
        let mut cases = 0;
        while cases < 20 || start.elapsed() < TIME {
            let (text, at, length) = strategy.new_tree(&mut runner).unwrap().current();
            let at = at.index(prose.len());
            let excerpt: String = prose[at..prose.len().min(at + length)].iter().collect();
            for text in [text, excerpt] {
                let found = difference(&ours, &oracle, &text);
                assert!(found.is_none(), "{}: {}", folder.display(), found.unwrap_or_default());
            }
            cases += 1;
        }
    }
}
