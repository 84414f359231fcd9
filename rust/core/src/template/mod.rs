//! Chat templates: compile once, render a conversation to text, as transformers does with Jinja2.

use crate::error::{Error, Result};
use crate::json::{Json, Map};
use crate::spec::ContentFormat;

/// Local time as `strftime_now` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp {
    pub year: i32,
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
    pub microsecond: u32,
}

/// Bounds on what one rendering may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Steps of the engine; 0 = no bound.
    pub fuel: u64,
    pub output_bytes: usize,
}

/// What a template is rendered with.
#[derive(Debug, Clone)]
pub struct RenderInput<'a> {
    pub messages: &'a [Json<'a>],
    pub tools: Option<&'a Json<'a>>,
    pub documents: Option<&'a Json<'a>>,
    pub add_generation_prompt: bool,
    pub continue_final_message: bool,
    /// Further variables; those named as a special token replace it.
    pub kwargs: &'a Map<'a>,
    /// Fixed time; the clock's when absent.
    pub now: Option<Timestamp>,
}

/// A compiled chat template.
pub struct ChatTemplate {}

impl ChatTemplate {
    /// Compile; a construct that is not supported is an error that names the line and the construct.
    pub fn new(_source: &str, _special_tokens: &Map<'_>, _limits: Limits) -> Result<Self> {
        Err(Error::template("not built yet"))
    }

    /// How this template wants message content (vLLM's `auto` detection); never `Auto`.
    pub fn content_format(&self) -> ContentFormat {
        ContentFormat::String
    }

    /// Free variables of the template: the names that vLLM lets through from `chat_template_kwargs`.
    pub fn accepts(&self, _name: &str) -> bool {
        false
    }

    /// Whether the source holds `"developer"` or `'developer'`.
    pub fn mentions_developer(&self) -> bool {
        false
    }

    /// Render; every failure is [`Error::Template`] or [`Error::BadRequest`].
    pub fn render(&self, _input: &RenderInput<'_>) -> Result<String> {
        Err(Error::template("not built yet"))
    }
}
