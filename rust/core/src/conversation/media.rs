//! Media that a conversation refers to, and their places in a string-format prompt.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::json::{Json, Map};
use crate::spec::{ModelSpec, RenderSettings};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modality {
    Image,
    Audio,
    Video,
}

impl Modality {
    /// The wire's name.
    pub fn name(self) -> &'static str {
        match self {
            Modality::Image => "image",
            Modality::Audio => "audio",
            Modality::Video => "video",
        }
    }

    /// The text that marks an item's place when strings are interleaved.
    fn sentinel(self) -> &'static str {
        match self {
            Modality::Image => "<##IMAGE##>",
            Modality::Audio => "<##AUDIO##>",
            Modality::Video => "<##VIDEO##>",
        }
    }
}

/// One medium of a request, in request order.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaItem<'a> {
    pub modality: Modality,
    /// The part's kind: `image_url`, `input_audio`, …
    pub kind: &'static str,
    /// A URL, or base64 data of `input_audio`; absent for a part that names only a uuid.
    pub source: Option<Cow<'a, str>>,
    pub uuid: Option<Cow<'a, str>>,
}

/// Collects media while a conversation is read, and holds them to the model's and the server's limits.
pub(super) struct MediaCollector<'a, 's> {
    model: &'s ModelSpec,
    settings: &'s RenderSettings,
    pub(super) items: Vec<MediaItem<'a>>,
}

impl<'a, 's> MediaCollector<'a, 's> {
    pub(super) fn new(model: &'s ModelSpec, settings: &'s RenderSettings) -> Self {
        Self { model, settings, items: Vec::new() }
    }

    /// Take one item; the text that stands for it in a string-format prompt.
    pub(super) fn add(&mut self, item: MediaItem<'a>) -> Result<String> {
        let modality = item.modality;
        let name = modality.name();
        let index = 1 + self.items.iter().filter(|other| other.modality == modality).count();
        let placeholder = self.model.media_placeholders.get(name).and_then(serde_json::Value::as_str);
        let most = if placeholder.is_none() { 0 } else { self.limit(name) };
        if index > most {
            return Err(Error::bad_param(name, format!("a prompt may hold at most {most} {name} items here")));
        }
        self.items.push(item);
        Ok(placeholder.unwrap_or_default().replace("{i}", itoa::Buffer::new().format(index)))
    }

    fn limit(&self, modality: &str) -> usize {
        const UNSET: usize = 999;
        let limit = match self.settings.limit_mm_per_prompt.get(modality) {
            Some(serde_json::Value::Object(options)) => options.get("count"),
            limit => limit,
        };
        limit.and_then(serde_json::Value::as_u64).map_or(UNSET, |limit| usize::try_from(limit).unwrap_or(UNSET))
    }
}

/// Texts and media of one message in string format: the places of its media, by default before all text.
#[derive(Default)]
pub(super) struct StringContent<'a> {
    texts: Vec<Cow<'a, str>>,
    /// Placeholder text and sentinel of each medium, in order.
    media: Vec<(String, Modality)>,
    interleave: bool,
}

impl<'a> StringContent<'a> {
    pub(super) fn new(interleave: bool) -> Self {
        Self { interleave, ..Self::default() }
    }

    pub(super) fn push_text(&mut self, text: impl Into<Cow<'a, str>>) {
        let text = text.into();
        if !text.is_empty() {
            self.texts.push(text);
        }
    }

    pub(super) fn push_media(&mut self, placeholder: String, modality: Modality) {
        self.media.push((placeholder, modality));
        if self.interleave {
            self.texts.push(Cow::Borrowed(modality.sentinel()));
        }
    }

    /// Join all with newlines. A placeholder that the text already holds is not added again, as in vLLM.
    pub(super) fn join(mut self) -> Result<Cow<'a, str>> {
        if self.media.is_empty() {
            return Ok(match self.texts.len() {
                0 => Cow::Borrowed(""),
                1 => self.texts.remove(0),
                _ => Cow::Owned(self.texts.join("\n")),
            });
        }
        if self.interleave {
            self.fill_sentinels()?;
        }
        let text = self.texts.join("\n");
        let mut missing: Vec<&str> = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for (placeholder, _) in &self.media {
            if placeholder.is_empty() || seen.contains(&placeholder.as_str()) {
                continue;
            }
            seen.push(placeholder);
            let wanted = self.media.iter().filter(|(other, _)| other == placeholder).count();
            let found = text.matches(placeholder.as_str()).count();
            if found > wanted {
                return Err(Error::bad_param(
                    "messages",
                    format!("the text holds `{placeholder}` {found} times, and there are {wanted} items for it"),
                ));
            }
            missing.extend(std::iter::repeat_n(placeholder.as_str(), wanted - found));
        }
        if !text.is_empty() {
            missing.push(&text);
        }
        Ok(Cow::Owned(missing.join("\n")))
    }

    fn fill_sentinels(&mut self) -> Result<()> {
        let mut media = std::mem::take(&mut self.media);
        let all = media.clone();
        for text in &mut self.texts {
            let is_sentinel = |(_, modality): &(String, Modality)| text.as_ref() == modality.sentinel();
            if let Some(place) = media.iter().position(is_sentinel) {
                *text = Cow::Owned(media.remove(place).0);
            } else if all.iter().any(is_sentinel) {
                return Err(Error::bad_request(format!(
                    "the text `{text}` is reserved for media, and no item is left for it"
                )));
            }
        }
        self.media = all;
        Ok(())
    }
}

/// The keys by which a part without a `type`, or with a `uuid`, shows its kind, in vLLM's order.
pub(super) const KIND_BY_KEY: [(&str, Modality); 7] = [
    ("image_url", Modality::Image),
    ("image_embeds", Modality::Image),
    ("audio_embeds", Modality::Audio),
    ("video_embeds", Modality::Video),
    ("audio_url", Modality::Audio),
    ("input_audio", Modality::Audio),
    ("video_url", Modality::Video),
];

/// Read a media part of a known kind. `inferred` parts may hold the URL as a plain string.
pub(super) fn read_media<'a>(
    part: &'a Map<'a>,
    kind: &'static str,
    modality: Modality,
    inferred: bool,
) -> Result<MediaItem<'a>> {
    let uuid = part.present("uuid").map(|uuid| match uuid {
        Json::Str(text) => Cow::Borrowed(text.as_ref()),
        other => {
            let mut out = Vec::new();
            other.write(&mut out);
            Cow::Owned(String::from_utf8_lossy(&out).into_owned())
        }
    });
    let text = |value: &'a Json<'a>| value.as_str().map(Cow::Borrowed);
    let value = part.present(kind);
    let malformed =
        || Error::bad_request(format!("a part of type `{kind}` must hold `{kind}` as an object with a `url`"));
    let source = match (kind, value) {
        ("image_embeds" | "audio_embeds" | "video_embeds", _) => {
            return Err(Error::bad_param(kind, format!("`{kind}` parts are not accepted by this server")));
        }
        ("input_audio", Some(Json::Object(audio))) => audio.get("data").and_then(text),
        (_, Some(Json::Object(url))) => match url.get("url") {
            Some(url) => Some(text(url).ok_or_else(malformed)?),
            None if inferred => None,
            None => return Err(malformed()),
        },
        (_, Some(value)) if inferred || kind == "input_image" => Some(text(value).ok_or_else(malformed)?),
        (_, None) if inferred => None,
        _ => return Err(malformed()),
    };
    if source.is_none() && uuid.is_none() {
        return Err(malformed());
    }
    Ok(MediaItem { modality, kind, source, uuid })
}
