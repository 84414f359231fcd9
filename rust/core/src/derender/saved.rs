//! The blob of a state: a stream's progress as bytes, and back; nothing in it is trusted.

use serde::{Deserialize, Serialize};

use super::chunk::{States, lost};
use super::context::{Context, hash_ids};
use super::progress::{Decoding, Progress};
use super::request::Chunk;
use super::state::{Open, WireState, invalid};
use super::text::{Pieces, Text};
use crate::detokenizer::Specials;
use crate::error::{Error, Result};
use crate::parser;

const VERSION: u8 = 1;
/// Bytes of version and fingerprint.
const HEAD: usize = 9;

/// One choice's progress.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    #[serde(rename = "i")]
    index: i64,
    #[serde(rename = "n")]
    seen: u64,
    /// Of the output so far, where the state has that too.
    #[serde(rename = "d", default, skip_serializing_if = "is_zero")]
    digest: u64,
    /// Where there are several choices, and the wire's fields cannot say it.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    open: Option<Open>,
    #[serde(rename = "t")]
    text: SavedText,
}

#[derive(Serialize, Deserialize)]
enum SavedText {
    #[serde(rename = "t")]
    Text(Text<String>),
    #[serde(rename = "p")]
    Parsed(Box<(Text<Pieces>, parser::State)>),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The progress of `choices` as bytes; `output` is all output so far, if the state carries it.
pub(super) fn save(
    context: &Context<'_>,
    prompt: Option<&[u32]>,
    choices: &[(i64, Progress)],
    output: &[u32],
) -> Result<Vec<u8>> {
    let saved = choices.iter().map(|(index, progress)| Saved {
        index: *index,
        seen: progress.seen,
        digest: if output.is_empty() { 0 } else { digest(output) },
        open: (choices.len() > 1).then(|| progress.open.clone()),
        text: match &progress.decoding {
            Decoding::Window(stream, _) => SavedText::Text(Text::behind(stream.clone())),
            Decoding::Text(text) => SavedText::Text(text.clone()),
            Decoding::Parsed { text, parser } => SavedText::Parsed(Box::new((text.clone(), (**parser).clone()))),
        },
    });
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&fingerprint(context, prompt));
    serde_json::to_writer(&mut bytes, &saved.collect::<Vec<_>>())
        .map_err(|error| Error::Internal { message: format!("a stream's state cannot be written: {error}") })?;
    let most = context.derenderer.settings.max_request_bytes;
    if bytes.len() as u64 > most / 2 {
        return Err(invalid("it grew too large to be carried in a request"));
    }
    Ok(bytes)
}

/// The progress that a chunk goes on from.
pub(super) fn load(context: &Context<'_>, chunk: &Chunk<'_>, prompt: Option<&[u32]>) -> Result<States> {
    let choices = &chunk.generated.choices;
    let request_id = chunk.generated.request_id;
    let first = choices.first().map_or(0, |choice| choice.index);
    let fresh = |index| Progress::start(context, prompt, request_id, index);
    let Some(state) = &chunk.state else {
        return Ok(match choices.len() {
            0 | 1 => States::One(choices.first().map(|choice| choice.index), Box::new(fresh(first))),
            _ => States::Many(Vec::new()),
        });
    };
    let blob = state.blob()?;
    let fits = blob.as_ref().is_some_and(|bytes| {
        bytes.len() > HEAD && bytes[0] == VERSION && bytes[1..HEAD] == fingerprint(context, prompt)
    });
    if let Some(bytes) = blob.as_deref().filter(|_| fits) {
        let mut saved: Vec<Saved> =
            serde_json::from_slice(&bytes[HEAD..]).map_err(|_| invalid("what `prev_tokens` carry is damaged"))?;
        if let [only] = &saved[..]
            && only.open.is_none()
        {
            let only = saved.remove(0);
            return load_one(context, chunk, state, only, prompt);
        }
        let most = usize::try_from(context.derenderer.settings.max_n_sequences).unwrap_or(usize::MAX);
        if saved.len() > most {
            return Err(invalid("it has more choices than this server takes"));
        }
        let many = saved.into_iter().map(|saved| {
            let index = saved.index;
            saved.open(context, None).map(|progress| (index, progress))
        });
        return many.collect::<Result<_>>().map(States::Many);
    }
    if context.parsing.is_none() {
        if blob.is_some() {
            return Err(invalid("it is of another request"));
        }
        return load_window(context, state);
    }
    // Without the parse there is the output that it was of; a stream may have begun without any.
    let begun = state.open.tools_streamed || !state.open.context.is_empty() || blob.is_some();
    if state.output.ids.is_empty() && begun {
        return Err(lost());
    }
    let cached = context.derenderer.parses.get(&cache_key(context, prompt, &state.output.ids));
    let mut progress = if let Some(progress) = cached {
        progress
    } else {
        let mut progress = fresh(state.choice_index.unwrap_or(first));
        progress.replay(context, &state.output.ids, first, prompt, request_id)?;
        progress
    };
    progress.open = state.open.clone();
    Ok(States::One(state.choice_index, Box::new(progress)))
}

/// Go on from a blob with one choice: it may be older than the output that the state has.
fn load_one(
    context: &Context<'_>,
    chunk: &Chunk<'_>,
    state: &WireState<'_>,
    saved: Saved,
    prompt: Option<&[u32]>,
) -> Result<States> {
    let index = saved.index;
    let request_id = chunk.generated.request_id;
    let output = &state.output.ids;
    let seen = usize::try_from(saved.seen).unwrap_or(usize::MAX);
    let (of_output, expected) = (saved.digest != 0, saved.digest);
    let mut progress = saved.open(context, Some(&state.open))?;
    if !output.is_empty() && context.parsing.is_some() {
        let known = output.split_at_checked(seen).filter(|(known, _)| of_output && digest(known) == expected);
        if let Some((_, since)) = known {
            // A stock server answered in between, and left the blob as it was.
            progress.replay(context, since, index, prompt, request_id)?;
        } else {
            progress = Progress::start(context, prompt, request_id, index);
            progress.replay(context, output, index, prompt, request_id)?;
            progress.open = state.open.clone();
        }
    }
    Ok(States::One(Some(index), Box::new(progress)))
}

/// Go on from a state that a stock server may have made.
fn load_window(context: &Context<'_>, state: &WireState<'_>) -> Result<States> {
    let mut late = String::new();
    let detokenizer = &context.derenderer.detokenizer;
    let (stream, window) = detokenizer.load(&state.prev_tokens, state.prefix_offset, state.read_offset, &mut late)?;
    let decoding =
        if context.stop.is_empty() { Decoding::Window(stream, window) } else { Decoding::Text(Text::behind(stream)) };
    let progress = Progress { open: state.open.clone(), late, ..Progress::new(decoding) };
    Ok(States::One(state.choice_index, Box::new(progress)))
}

impl Saved {
    /// The progress, checked in every part; `open` is what the wire's fields say.
    fn open(self, context: &Context<'_>, open: Option<&Open>) -> Result<Progress> {
        let derenderer = context.derenderer;
        let most = usize::try_from(derenderer.settings.max_request_bytes).unwrap_or(usize::MAX);
        let rules = context.rules(&context.stop);
        let damaged = || invalid("what `prev_tokens` carry is damaged");
        let open = open.cloned().or(self.open).unwrap_or_default();
        if self.seen > u64::from(derenderer.model.max_model_len) || !open.check() {
            return Err(damaged());
        }
        let decoding = match (self.text, &context.parsing) {
            (SavedText::Text(text), None) if text.check(&rules, most) => Decoding::Text(text),
            (SavedText::Parsed(saved), Some(parsing)) if saved.0.check(&rules, most) => {
                let (text, parser) = *saved;
                let parser = parsing.parser.load(&parser.save())?;
                Decoding::Parsed { text, parser: Box::new(parser) }
            }
            _ => return Err(damaged()),
        };
        Ok(Progress { open, seen: self.seen, ..Progress::new(decoding) })
    }
}

fn digest(output: &[u32]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hash_ids(&mut hasher, output);
    first_bytes(&hasher).max(1)
}

fn first_bytes(hasher: &blake3::Hasher) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

/// What a parse depends on beside the output: a state of another request must not be gone on with.
fn fingerprint(context: &Context<'_>, prompt: Option<&[u32]>) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new_derive_key("fastrender 2026 fingerprint of a stream");
    let rules = context.rules(&context.stop);
    hasher.update(context.derenderer.model.name.as_bytes());
    hasher.update(&[u8::from(rules.specials == Specials::Skip), u8::from(rules.include_stop)]);
    hasher.update(&rules.min_tokens.to_le_bytes());
    for stop in rules.stop {
        hasher.update(&(stop.len() as u64).to_le_bytes()).update(stop.as_bytes());
    }
    if let Some(parsing) = &context.parsing {
        parsing.hash(&mut hasher);
        hash_ids(&mut hasher, prompt.unwrap_or_default());
    }
    first_bytes(&hasher).to_le_bytes()
}

/// Where the parse of an output is kept.
pub(super) fn cache_key(context: &Context<'_>, prompt: Option<&[u32]>, output: &[u32]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("fastrender 2026 key of a parse");
    hasher.update(&fingerprint(context, prompt));
    hash_ids(&mut hasher, output);
    *hasher.finalize().as_bytes()
}
