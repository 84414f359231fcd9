//! The `fastokens` crate beside our own byte-level BPE: several times faster at words that it has not seen, but it takes
//! seconds to load a large vocabulary. So a server starts on our own, and goes on with this as soon as it is there.
//! Both give the ids of `tokenizers`; a probe text holds them against each other before the change.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use serde_json::Value;

/// Below this many bytes the call costs more than it saves.
const SHORTEST: usize = 64;

/// Words, numbers, spaces and scripts that byte-level pre-tokenizers treat differently.
pub(super) const PROBE: &str = "The quick brown fox didn't jump 1234567 times over it's own shadow…\n\n  \tdef f(x):\n        return {'k': [1, 2.50]}  # ok?\r\n\
     naïve Straße 数据很重要。 今日は晴れです 회의 자료 проверили журнал مرحبا परीक्षण שלום ไทย 🦜👩‍👩‍👧 ½ ² Ⅷ \u{a0}\u{3000}x\u{2028}end   ";

/// A faster encoder of normalized text without added tokens, once it is loaded.
#[derive(Default)]
pub(super) struct Turbo {
    ready: Arc<OnceLock<fastokens::Tokenizer>>,
    loading: Mutex<Option<JoinHandle<()>>>,
}

impl Turbo {
    /// Load from the text of `tokenizer.json` on a thread of its own. `expected` are the probe's ids.
    pub(super) fn start(&self, tokenizer_json: Arc<[u8]>, expected: Vec<u32>) {
        let ready = Arc::clone(&self.ready);
        let work = move || {
            let loaded = catch_unwind(|| load(&tokenizer_json)).ok().flatten();
            if let Some(loaded) = loaded.filter(|loaded| encode(loaded, PROBE).is_some_and(|ids| ids == expected)) {
                let _ = ready.set(loaded);
            }
        };
        let thread = std::thread::Builder::new().name("tokenizer-load".to_owned()).spawn(work);
        // Without a thread there is no turbo, and all else works.
        *self.loading.lock().unwrap_or_else(PoisonError::into_inner) = thread.ok();
    }

    /// Wait until loading has ended; whether it is there.
    pub(super) fn wait(&self) -> bool {
        let loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = loading {
            let _ = thread.join();
        }
        self.ready.get().is_some()
    }

    /// Append the ids of `text`; false if it has to be encoded otherwise.
    pub(super) fn encode(&self, text: &str, ids: &mut Vec<u32>) -> bool {
        if text.len() < SHORTEST {
            return false;
        }
        let Some(encoded) = self.ready.get().and_then(|turbo| encode(turbo, text)) else { return false };
        ids.extend_from_slice(&encoded);
        true
    }
}

/// The model and its pre-tokenizer alone: normalization, added tokens and the post-processor are ours.
fn load(tokenizer_json: &[u8]) -> Option<fastokens::Tokenizer> {
    let mut file: Value = serde_json::from_slice(tokenizer_json).ok()?;
    let parts = file.as_object_mut()?;
    parts.insert("added_tokens".to_owned(), Value::Array(Vec::new()));
    for part in ["normalizer", "post_processor", "decoder", "truncation", "padding"] {
        parts.insert(part.to_owned(), Value::Null);
    }
    fastokens::Tokenizer::from_json(file).ok()
}

fn encode(turbo: &fastokens::Tokenizer, text: &str) -> Option<Vec<u32>> {
    catch_unwind(AssertUnwindSafe(|| turbo.encode(text))).ok()?.ok()
}
