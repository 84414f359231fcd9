//! The derenderer: what an engine made of a rendered request, token ids, as the answer that OpenAI's clients expect.
//!
//! In: detokenizing, stop tokens and strings, logprobs, reasoning and tool calls, whole answers and streams of them, and
//! the state that a client carries through a stream. Out of scope: HTTP, and whose answer is whose.

mod bounds;
mod chunk;
mod context;
mod fields;
mod history;
mod logprobs;
mod output;
mod progress;
mod request;
mod saved;
mod state;
mod stop;
mod stream;
mod text;
mod whole;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub use request::Kind;
pub use stream::{OpenStream, Part};

use crate::detokenizer::Detokenizer;
use crate::error::Result;
use crate::parser::Parser;
use crate::protocol::generate::Nulls;
use crate::protocol::{check_model, parse_body};
use crate::renderer::{Effort, Renderer};
use crate::spec::{ModelSpec, RenderSettings};
use crate::templates::TemplateSet;
use request::Request;

/// Bodies up to this size can be short work.
const SHORT_BYTES: usize = 32 << 10;
/// The same where the library decodes, which is some fifty times slower.
const SHORT_BYTES_GENERAL: usize = 1 << 10;

/// Reads engines' answers for one model; immutable but for a bounded cache, shared by threads.
pub struct Derenderer {
    model: Arc<ModelSpec>,
    settings: Arc<RenderSettings>,
    templates: Arc<TemplateSet>,
    detokenizer: Detokenizer,
    /// `None` where neither tools nor reasoning are looked for.
    parser: Option<Arc<Parser>>,
    /// The token that the tokenizer says ends an output.
    eos: Option<u32>,
    /// All tokens that do.
    eos_ids: HashSet<u32>,
    nulls: Nulls,
    parses: history::Parses,
}

impl Derenderer {
    /// For the answers to what `renderer` renders.
    pub fn new(renderer: &Renderer) -> Result<Self> {
        let (model, settings) = (Arc::clone(&renderer.model), Arc::clone(&renderer.settings));
        let tokenizer = Arc::clone(&renderer.tokenizer);
        let eos = model.tokenizer.eos_token.as_deref().and_then(|token| tokenizer.token_to_id(token));
        Ok(Self {
            detokenizer: Detokenizer::new(tokenizer, &model.tokenizer.skipped_tokens),
            parser: renderer.parser.clone(),
            eos,
            eos_ids: model.eos_token_ids.iter().copied().chain(eos).collect(),
            nulls: if settings.omit_null { Nulls::Omit } else { Nulls::Write },
            templates: Arc::clone(&renderer.templates),
            parses: history::Parses::default(),
            model,
            settings,
        })
    }

    pub fn detokenizer(&self) -> &Detokenizer {
        &self.detokenizer
    }

    pub fn parser(&self) -> Option<&Parser> {
        self.parser.as_deref()
    }

    /// Serve one body, of a whole answer or of a chunk of a stream. `None` for more work than `effort` says.
    pub fn derender(&self, kind: Kind, body: &[u8], effort: Effort) -> Result<Option<Vec<u8>>> {
        let short = if self.detokenizer.is_fast() { SHORT_BYTES } else { SHORT_BYTES_GENERAL };
        if effort == Effort::Short && body.len() > short {
            return Ok(None);
        }
        let (body, _) = parse_body(body)?;
        match Request::read(&body, kind, &self.settings)? {
            Request::Whole(whole) => self.whole(kind, &whole),
            Request::Chunk(chunk) => self.chunk(kind, &chunk),
        }
        .map(Some)
    }

    fn check_model(&self, model: Option<&str>) -> Result<()> {
        check_model(model, &self.model.served_names, self.settings.skip_model_name_validation)
    }

    /// The model that an answer names.
    fn model_name<'m>(&'m self, asked: Option<&'m str>) -> &'m str {
        let default = self.model.served_names.first().unwrap_or(&self.model.name);
        asked.filter(|name| !name.is_empty()).unwrap_or(default)
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
