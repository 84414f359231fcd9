//! The renderer's core: from OpenAI request bytes to token ids and response bytes.
//!
//! In: request schemas, conversations, chat templates, tokenization, pixels once decoded, media hashes, the wire's JSON
//! and MessagePack. Out of scope: Python, async, network, files, and decoding (Pillow does it); those live in `python/fastrender`.
#![forbid(unsafe_code)]

pub mod conversation;
pub mod derender;
pub mod detokenizer;
pub mod error;
pub mod escape;
pub mod hash;
pub mod image;
pub mod json;
pub mod parser;
pub mod placeholder;
pub mod plain_request;
pub mod prompt;
pub mod protocol;
pub mod renderer;
pub mod spec;
pub mod template;
pub mod templates;
pub mod tokenizer;
pub mod wire;

pub use error::{Error, Result};
pub use renderer::{Begun, Effort, Pending, PendingMedia, ReadyMedia, Renderer, Route};
