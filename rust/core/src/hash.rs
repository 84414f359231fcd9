//! `mm_hashes`: digests of a framed stream in which no two different inputs look alike.
//!
//! Source: protocol.md §4.5. Every chunk is preceded by its length, every container by its kind; arguments are sorted
//! by name. The stream is fed to the digest as it arises, so an image's bytes are never copied.

use std::borrow::Cow;

use serde::Deserialize;
use sha2::Digest;

use crate::error::{Error, Result};
use crate::json::{Json, Map};

const NONE: u8 = 0;
const SEQUENCE: u8 = 1;
const MAPPING: u8 = 2;
const LEAF: u8 = 3;

/// Arguments of the Hugging Face processor that concern one modality only.
const SCOPES: [(&str, &str); 3] = [("image", "images_kwargs"), ("video", "videos_kwargs"), ("audio", "audio_kwargs")];

/// Which digest (`--mm-hasher-algorithm`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MmHasher {
    #[default]
    Blake3,
    Sha256,
    Sha512,
}

/// What can be hashed.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Cow<'a, str>),
    Bytes(&'a [u8]),
    /// A Python list or tuple.
    Sequence(Vec<Value<'a>>),
    /// A dict, in insertion order.
    Mapping(Vec<(Cow<'a, str>, Value<'a>)>),
    /// A value that is named by its kind (`image`, `video`, `ndarray`, `tensor`).
    Tagged(&'a str, Box<Value<'a>>),
}

/// How the decoder changed an image; part of its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoConfig<'a> {
    pub image_mode: &'a str,
    pub rgba_background_color: [u8; 3],
}

/// What an item's identity depends on beside the item.
#[derive(Debug, Clone, Copy, Default)]
pub struct Factors<'a> {
    /// The literal `--model`.
    pub model_id: &'a str,
    /// The server's and the request's, by modality.
    pub media_io_kwargs: Option<&'a Map<'a>>,
    /// The request's.
    pub mm_processor_kwargs: Option<&'a Map<'a>>,
}

impl MmHasher {
    /// The hash of an image: hexadecimal digits of its encoded bytes and all that bears on what becomes of them.
    pub fn image(self, bytes: &[u8], io_config: Option<IoConfig<'_>>, factors: Factors<'_>) -> Result<String> {
        let content = match io_config {
            None => Value::Bytes(bytes),
            Some(IoConfig { image_mode, rgba_background_color }) => {
                let colour = rgba_background_color.map(|part| Value::Int(i64::from(part))).to_vec();
                let config = vec![
                    ("image_mode".into(), Value::Str(image_mode.into())),
                    ("rgba_background_color".into(), Value::Sequence(colour)),
                ];
                Value::Mapping(vec![("io_config".into(), Value::Mapping(config)), ("data".into(), Value::Bytes(bytes))])
            }
        };
        self.item("image", Value::Tagged("image", Box::new(content)), factors)
    }

    /// The hash of an item that the client named: the name itself, unless settings of the request bear on it.
    pub fn uuid(self, modality: &str, uuid: &str, factors: Factors<'_>) -> Result<String> {
        if factors.relevant(modality)?.is_empty() {
            return Ok(uuid.to_owned());
        }
        self.item(modality, Value::Str(uuid.into()), factors)
    }

    /// The hash of any item of a modality.
    pub fn item(self, modality: &str, item: Value<'_>, factors: Factors<'_>) -> Result<String> {
        let mut arguments = factors.relevant(modality)?;
        arguments.push(("model_id", Value::Str(factors.model_id.into())));
        arguments.push((modality, item));
        Ok(self.digest(arguments))
    }

    /// The hash of named arguments.
    pub fn digest(self, mut arguments: Vec<(&str, Value<'_>)>) -> String {
        arguments.sort_by_key(|(name, _)| *name);
        let mut stream = match self {
            MmHasher::Blake3 => Stream::Blake3(Box::default()),
            MmHasher::Sha256 => Stream::Sha256(sha2::Sha256::new()),
            MmHasher::Sha512 => Stream::Sha512(sha2::Sha512::new()),
        };
        for (name, value) in &arguments {
            stream.framed(name.as_bytes());
            stream.value(value);
        }
        stream.finish()
    }
}

impl<'a> Factors<'a> {
    /// What there is to hash, reduced to a modality.
    fn relevant(&self, modality: &str) -> Result<Vec<(&'static str, Value<'a>)>> {
        let own_scope = SCOPES.iter().find(|(name, _)| *name == modality).map(|(_, scope)| *scope);
        let foreign = |key: &str| own_scope.is_some_and(|own| key != own && SCOPES.iter().any(|(_, s)| *s == key));
        let mut found = Vec::new();
        let media_io = match self.media_io_kwargs {
            None => Vec::new(),
            Some(map) if own_scope.is_some() => match map.iter().find(|(key, _)| *key == modality) {
                Some((key, value)) if value.truthy() => vec![(key.into(), Value::try_from(value)?)],
                _ => Vec::new(),
            },
            Some(map) => entries(map, |_| true)?,
        };
        if !media_io.is_empty() {
            found.push(("media_io_kwargs", Value::Mapping(media_io)));
        }
        if let Some(map) = self.mm_processor_kwargs {
            let kept = entries(map, |key| !foreign(key))?;
            if !kept.is_empty() {
                found.push(("mm_processor_kwargs", Value::Mapping(kept)));
            }
        }
        Ok(found)
    }
}

fn entries<'a>(map: &'a Map<'_>, keep: impl Fn(&str) -> bool) -> Result<Vec<(Cow<'a, str>, Value<'a>)>> {
    let kept = map.iter().filter(|(key, _)| keep(key));
    kept.map(|(key, value)| Ok((Cow::Borrowed(key), Value::try_from(value)?))).collect()
}

impl<'a> TryFrom<&'a Json<'_>> for Value<'a> {
    type Error = Error;

    /// 400 for what Python's hasher cannot take either: integers beyond 64 bits, strings with lone surrogates.
    fn try_from(json: &'a Json<'_>) -> Result<Self> {
        Ok(match json {
            Json::Null => Value::None,
            Json::Bool(value) => Value::Bool(*value),
            Json::Int(value) => Value::Int(*value),
            // numpy makes a `uint64` of it; the bytes are the same.
            Json::BigInt(text) => match text.parse::<u64>() {
                Ok(value) => Value::Int(value.cast_signed()),
                Err(_) => return Err(Error::bad_request(format!("the integer `{text}` is too large to be hashed"))),
            },
            Json::Float(value) => Value::Float(*value),
            Json::Str(text) => Value::Str(Cow::Borrowed(text)),
            Json::BrokenStr(_) => return Err(Error::bad_request("a string with a lone surrogate cannot be hashed")),
            Json::Array(items) => Value::Sequence(items.iter().map(Value::try_from).collect::<Result<_>>()?),
            Json::Object(map) => Value::Mapping(entries(map, |_| true)?),
        })
    }
}

enum Stream {
    Blake3(Box<blake3::Hasher>),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

impl Stream {
    fn push(&mut self, bytes: &[u8]) {
        match self {
            Stream::Blake3(hasher) => drop(hasher.update(bytes)),
            Stream::Sha256(hasher) => hasher.update(bytes),
            Stream::Sha512(hasher) => hasher.update(bytes),
        }
    }

    fn length(&mut self, length: usize) {
        self.push(&(length as u64).to_le_bytes());
    }

    fn framed(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.push(bytes);
    }

    fn leaf(&mut self, bytes: &[u8]) {
        self.push(&[LEAF]);
        self.framed(bytes);
    }

    fn value(&mut self, value: &Value<'_>) {
        match value {
            Value::None => self.push(&[NONE]),
            Value::Bool(value) => self.leaf(&[u8::from(*value)]),
            Value::Int(value) => self.leaf(&value.to_le_bytes()),
            Value::Float(value) => self.leaf(&value.to_le_bytes()),
            Value::Str(text) => self.leaf(text.as_bytes()),
            Value::Bytes(bytes) => self.leaf(bytes),
            Value::Sequence(items) => {
                self.push(&[SEQUENCE]);
                self.length(items.len());
                for item in items {
                    self.value(item);
                }
            }
            Value::Mapping(entries) => {
                self.push(&[MAPPING]);
                self.length(entries.len());
                for (key, value) in entries {
                    self.framed(key.as_bytes());
                    self.value(value);
                }
            }
            Value::Tagged(tag, value) => {
                self.leaf(tag.as_bytes());
                self.value(value);
            }
        }
    }

    fn finish(self) -> String {
        match self {
            Stream::Blake3(hasher) => hasher.finalize().to_hex().to_string(),
            Stream::Sha256(hasher) => hex(&hasher.finalize()),
            Stream::Sha512(hasher) => hex(&hasher.finalize()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
#[path = "hash_tests.rs"]
mod tests;
