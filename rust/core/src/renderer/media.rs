//! Requests that wait for media: what they need, where it goes in the prompt, and how they go on.

use std::borrow::Cow;
use std::ops::Range;

use super::chat::RenderedText;
use super::{CLIENT_FIELDS, Renderer};
use crate::conversation::{MediaItem, Modality};
use crate::error::{Error, Result};
use crate::image::Processed;
use crate::json::{Json, Map};
use crate::placeholder::{TypedPlaceholders, expand};
use crate::protocol::features::{Feature, Features};
use crate::wire::base64::{self, Wrapping};

/// Where a medium is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaSource {
    /// This range of the request's body.
    Body(Range<usize>),
    /// A text that was escaped in the body.
    Text(String),
}

/// One medium of a request, in request order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingMedia {
    pub modality: Modality,
    /// The part's kind: `image_url`, …
    pub kind: &'static str,
    /// A URL; absent for a part that names only a uuid.
    pub source: Option<MediaSource>,
    pub uuid: Option<String>,
}

impl PendingMedia {
    /// `raw` is the body that `item` may borrow from.
    pub(super) fn new(item: MediaItem<'_>, raw: &[u8]) -> Self {
        let source = item.source.map(|source| match source {
            Cow::Borrowed(text) => {
                range_in(text.as_bytes(), raw).map_or_else(|| MediaSource::Text(text.to_owned()), MediaSource::Body)
            }
            Cow::Owned(text) => MediaSource::Text(text),
        });
        Self { modality: item.modality, kind: item.kind, source, uuid: item.uuid.map(Cow::into_owned) }
    }

    /// The URL or data; `body` is the one that the request came in.
    pub fn text<'a>(&'a self, body: &'a [u8]) -> Option<&'a [u8]> {
        self.source.as_ref().map(|source| match source {
            MediaSource::Body(range) => &body[range.clone()],
            MediaSource::Text(text) => text.as_bytes(),
        })
    }

    /// Whether the source is a `data:` URL.
    pub fn is_data(&self, body: &[u8]) -> bool {
        self.text(body).is_some_and(is_data)
    }

    /// The bytes that a `data:` URL holds; `None` for any other source.
    ///
    /// Base64 is read as vLLM reads it, but for line breaks, which it refuses. 400 for what is malformed.
    pub fn data(&self, body: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(text) = self.text(body).filter(|text| is_data(text)) else { return Ok(None) };
        let Some(comma) = memchr::memchr(b',', text) else {
            return Err(Error::bad_request("a data URL must have a comma between its type and its data"));
        };
        if !text[..comma].ends_with(b";base64") {
            return Err(Error::bad_request("a data URL must hold base64: `data:<type>;base64,<data>`"));
        }
        let mut data = Vec::new();
        base64::decode(&text[comma + 1..], Wrapping::Allowed, &mut data)?;
        Ok(Some(data))
    }
}

/// Bytes of a body, not read yet, that look like the data of `data:` URLs.
pub(super) fn likely_data_bytes(body: &[u8]) -> usize {
    const MARK: &[u8] = b";base64,";
    let (mut bytes, mut rest) = (0, body);
    while let Some(at) = memchr::memmem::find(rest, MARK) {
        let data = &rest[at + MARK.len()..];
        let length = memchr::memchr(b'"', data).unwrap_or(data.len());
        bytes += length;
        rest = &data[length..];
    }
    bytes
}

/// Bytes of the `data:` URLs of a chat request's parts, which reach no template.
pub(super) fn data_bytes(body: &Map<'_>) -> usize {
    let messages = body.get("messages").and_then(Json::as_array).unwrap_or_default();
    let contents = messages.iter().filter_map(|message| message.as_object()?.get("content")?.as_array());
    let urls = contents.flatten().filter_map(|part| {
        let url = part.as_object()?.get("image_url")?;
        url.as_str().or_else(|| url.as_object()?.get("url")?.as_str())
    });
    urls.filter(|url| is_data(url.as_bytes())).map(str::len).sum()
}

fn is_data(url: &[u8]) -> bool {
    const SCHEME: &[u8] = b"data:";
    url.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// Where `part` lies in `whole`, if it does.
fn range_in(part: &[u8], whole: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}

/// How a request wants its media decoded, processed and answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// `media_io_kwargs` and `mm_processor_kwargs` as JSON, where they are not empty.
    pub media_io_kwargs: Option<String>,
    pub mm_processor_kwargs: Option<String>,
    /// `mm_payload: "none"`: hashes and places, no tensors.
    pub omit_payload: bool,
}

impl Options {
    pub(super) fn new(body: &Map<'_>, omit_payload: bool) -> Self {
        let json = |key| {
            let map = body.get(key).and_then(Json::as_object).filter(|map| !map.is_empty())?;
            let mut out = Vec::new();
            map.write(&mut out);
            String::from_utf8(out).ok()
        };
        Self {
            media_io_kwargs: json("media_io_kwargs"),
            mm_processor_kwargs: json("mm_processor_kwargs"),
            omit_payload,
        }
    }
}

/// A request that waits for its media.
#[derive(Debug, Clone)]
pub struct Pending {
    pub media: Vec<PendingMedia>,
    pub options: Options,
    pub(super) ids: Vec<u32>,
    /// The place in `ids` of each medium.
    pub(super) slots: Vec<usize>,
}

/// What has become of a medium.
#[derive(Debug, Clone, Copy)]
pub struct ReadyMedia<'a> {
    pub hash: &'a str,
    /// Ids that take the placeholder's place; each is the placeholder's.
    pub tokens: usize,
    /// Absent with `mm_payload: "none"`.
    pub processed: Option<&'a Processed>,
}

/// A prompt with its placeholders expanded, and what goes there.
pub(super) struct Expanded<'a> {
    pub(super) ids: Vec<u32>,
    pub(super) features: Features<'a>,
}

impl Pending {
    /// Ids of the prompt before media take their places.
    pub fn prompt_length(&self) -> usize {
        self.ids.len()
    }

    /// Put the tokens of what is `ready` in the places of the media.
    pub(super) fn expand<'a>(&self, token: u32, ready: &[ReadyMedia<'a>]) -> Result<Expanded<'a>> {
        if ready.len() != self.media.len() {
            let message = format!("{} of {} media are ready", ready.len(), self.media.len());
            return Err(Error::Internal { message });
        }
        let tokens = vec![token; ready.iter().map(|medium| medium.tokens).max().unwrap_or(0)];
        let slots: Vec<(usize, &[u32])> =
            self.slots.iter().zip(ready).map(|(slot, medium)| (*slot, &tokens[..medium.tokens])).collect();
        let (ids, ranges) = expand(&self.ids, &slots);
        let features = self.media.iter().zip(ready).zip(ranges).map(|((medium, ready), range)| Feature {
            modality: medium.modality,
            hash: ready.hash,
            range,
            processed: ready.processed,
        });
        Ok(Expanded { ids, features: Features { items: features.collect(), omit_payload: self.options.omit_payload } })
    }
}

/// A template's text with the media that it has places for, and which of the placeholders in it are such places.
pub(super) struct Placed {
    pub(super) text: RenderedText,
    /// For each placeholder in the text, whether the template made it.
    made: Vec<bool>,
}

impl Renderer {
    /// Find out which placeholders in a text the template made. `again` renders another body, one in which those that the
    /// client typed are spelled otherwise; where none were typed, it is not called.
    pub(super) fn place(
        &self,
        body: &Map<'_>,
        rendered: RenderedText,
        again: impl FnOnce(&Map<'_>) -> Result<RenderedText>,
    ) -> Result<Placed> {
        let placeholder = match (
            &self.model.image_placeholder,
            rendered.media.iter().find(|medium| medium.modality != Modality::Image),
        ) {
            (Some(placeholder), None) => placeholder,
            (_, other) => {
                let name = other.map_or(Modality::Image, |medium| medium.modality).name();
                return Err(Error::bad_request(format!("this server does not process {name} items")));
            }
        };
        if self.escapes.is_some() {
            // What a client typed is plain text.
            let outside = |at: usize| !rendered.plain.iter().any(|range| range.contains(&at));
            let made = rendered.text.match_indices(placeholder.as_str()).filter(|(at, _)| outside(*at)).map(|_| true);
            return Ok(Placed { made: made.collect(), text: rendered });
        }
        let mut hidden = body.clone();
        let typed = TypedPlaceholders::hide(placeholder, &mut hidden, &CLIENT_FIELDS);
        let rendered = if typed.is_empty() { rendered } else { again(&hidden)? };
        let (text, made) = typed.reveal(rendered.text);
        Ok(Placed { text: RenderedText { text, ..rendered }, made })
    }

    /// The place of each medium among `ids`, those of `placed`.
    pub(super) fn slots(&self, ids: &[u32], placed: &Placed, truncated: bool) -> Result<Vec<usize>> {
        let target = self.image_token()?;
        let found: Vec<usize> = (0..ids.len()).filter(|place| ids[*place] == target).collect();
        if found.len() != placed.made.len() {
            if truncated {
                return Err(Error::bad_param(
                    "truncate_prompt_tokens",
                    "the places of media were cut off; keep more of the prompt",
                ));
            }
            return Err(Error::bad_request("the chat template puts media where no place for them can be found"));
        }
        let made = found.into_iter().zip(&placed.made).filter(|(_, made)| **made).map(|(place, _)| place);
        let slots: Vec<usize> = made.take(placed.text.media.len()).collect();
        if slots.len() < placed.text.media.len() {
            return Err(Error::bad_request(format!(
                "the chat template has places for {} of {} media items",
                slots.len(),
                placed.text.media.len()
            )));
        }
        Ok(slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_media_is_told_from_text() {
        let body = r#"{"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "image_url", "image_url": "data:,x"},
            {"type": "image_url", "image_url": "http://a/;base64,AA"},
            {"type": "text", "text": "data:image/png;base64,AAAAA"}]}]}"#;
        assert_eq!(likely_data_bytes(body.as_bytes()), 4 + 2 + 5);
        let Json::Object(map) = Json::parse(body).unwrap() else { panic!("no object") };
        assert_eq!(data_bytes(&map), 26 + 7);
        assert_eq!(likely_data_bytes(b";base64,;base64,AA"), 10);
    }
}
