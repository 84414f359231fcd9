//! The renderer's core: from OpenAI request bytes to token ids and response bytes.
//!
//! In: request schemas, conversations, chat templates, tokenization, the wire's JSON. Out of scope: Python, async,
//! network, files, and pixels that Pillow must decode; those live in `python/fastrender`.
#![forbid(unsafe_code)]

pub mod conversation;
pub mod error;
pub mod json;
pub mod plain_request;
pub mod prompt;
pub mod protocol;
pub mod renderer;
pub mod spec;
pub mod template;
pub mod templates;
pub mod tokenizer;

pub use error::{Error, Result};
pub use renderer::{Begun, Effort, Renderer, Route};
