//! How a model marks its reasoning: the data of a reasoning format's file.

use serde::Deserialize;

use super::format::{check_literals, check_names};
use crate::error::{Error, Result};

/// How a model marks its reasoning.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact about a format, not a state")]
pub struct ReasoningFormat {
    /// The names that `--reasoning-parser` takes for it.
    pub names: Vec<String>,
    #[serde(default)]
    pub open: Vec<String>,
    #[serde(default)]
    pub close: Vec<String>,
    /// Openers of tool calls that end reasoning too.
    #[serde(default)]
    pub ended_by: Vec<String>,
    /// The first generated token is reasoning unless the prompt says otherwise.
    #[serde(default)]
    pub starts_open: bool,
    /// Template variables that turn it on and off.
    #[serde(default)]
    pub switch: Option<Switch>,
    #[serde(default)]
    pub prompt: PromptRule,
    /// Tokens between turns: what stands before the last one is another turn's.
    #[serde(default)]
    pub boundaries: Vec<String>,
    #[serde(default)]
    pub trim_end: bool,
    /// Taken off the front of the reasoning.
    #[serde(default)]
    pub prefix: Option<String>,
    /// A closer in content is swallowed.
    #[serde(default)]
    pub swallow_close: bool,
    /// Switched off, the answer begins in content, but its markers are still known.
    #[serde(default)]
    pub opens_when_off: bool,
    /// An opener in content opens reasoning again.
    #[serde(default)]
    pub reopens: bool,
    /// Put before the content; nothing is taken for reasoning.
    #[serde(default)]
    pub content_prefix: Option<String>,
    /// Markers around the content that are taken off.
    #[serde(default)]
    pub content_tags: Vec<String>,
    /// Reasoning becomes the content of an answer that has none, if one of these template variables says so.
    #[serde(default)]
    pub becomes_content: bool,
    /// Text that opens reasoning although the marker is missing.
    #[serde(default)]
    pub unmarked_start: Option<String>,
    /// The engine's text must keep its special tokens.
    #[serde(default)]
    pub keeps_special_tokens: bool,
    /// Harmony does the work.
    #[serde(default)]
    pub harmony: bool,
}

/// Template variables that turn reasoning on: on if one of `keys` is true, `default` if none is given.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    pub keys: Vec<String>,
    pub default: bool,
    /// `reasoning_effort: "none"` turns it off.
    #[serde(default)]
    pub effort_none: bool,
}

/// How the prompt's tokens decide whether the answer begins inside reasoning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptRule {
    /// The last opener or closer of this turn.
    #[default]
    LastMarker,
    /// Any closer, wherever.
    AnyClose,
    /// Open only if the last marker is an opener.
    OpenTail,
    /// The prompt says nothing.
    Ignored,
    /// Nor can anyone else tell from tokens whether reasoning is over: the markers are sentences.
    Untold,
}

impl ReasoningFormat {
    pub(crate) fn literals(&self) -> Vec<&String> {
        self.open.iter().chain(&self.close).chain(&self.ended_by).chain(&self.content_tags).collect()
    }

    pub(crate) fn from_toml(text: &str) -> Result<Self> {
        let format: ReasoningFormat = toml::from_str(text)
            .map_err(|error| Error::setup(format!("a reasoning format does not read as TOML: {}", error.message())))?;
        let name = check_names(&format.names)?;
        check_literals(name, &format.literals())?;
        Ok(format)
    }
}
