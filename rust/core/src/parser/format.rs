//! What a format is: the data that a format's file holds, and the checks that make it safe to run.

use serde::Deserialize;

use super::structural_tag::TagTemplate;
use crate::error::{Error, Result};

/// Literals that one format may name; each is compared at each candidate position.
const MAX_MARKERS: usize = 64;
/// Bytes of one literal: what is held back is shorter than the longest of them.
const MAX_MARKER_BYTES: usize = 256;

/// How a model writes tool calls.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact about a format, not a state")]
pub struct ToolFormat {
    /// The names that `--tool-call-parser` takes for it.
    pub names: Vec<String>,
    /// Where two formats share a name: this one is for tokenizers that have the token …
    #[serde(default)]
    pub with_token: Option<String>,
    /// … or that lack it.
    #[serde(default)]
    pub without_token: Option<String>,
    /// Around all the calls of an answer.
    #[serde(default)]
    pub section: Delimiters,
    /// Around one call.
    #[serde(default)]
    pub call: Delimiters,
    /// Where a call may open.
    #[serde(default)]
    pub opens: Opens,
    /// What opens a call is also found in prose: an answer that ends behind it has it for its text.
    #[serde(default)]
    pub opener_is_text: bool,
    pub body: Body,
    #[serde(default)]
    pub content: ContentRules,
    #[serde(default)]
    pub whole: WholeArguments,
    /// Letters that the model escapes in its arguments are streamed as themselves.
    #[serde(default)]
    pub streams_unescaped: bool,
    #[serde(default)]
    pub ids: Ids,
    /// Drop the calls of tools that the request does not have.
    #[serde(default)]
    pub known_tools_only: bool,
    /// With `tool_choice` required or named the model writes plain JSON instead of this format.
    #[serde(default)]
    pub forced_json: bool,
    /// With `tool_choice: "none"` calls are still taken out of the text.
    #[serde(default)]
    pub parsed_when_off: bool,
    #[serde(default)]
    pub structural_tag: Option<TagTemplate>,
    #[serde(default)]
    pub request: RequestRules,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delimiters {
    #[serde(default)]
    pub open: Vec<String>,
    #[serde(default)]
    pub close: Vec<String>,
}

/// Where the opener of a call counts as one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opens {
    #[default]
    Anywhere,
    /// Only as the first that is not blank.
    AtStart,
    /// In a whole text anywhere, in a stream as the first that is not blank.
    AtStartOfStream,
    /// In a whole text anywhere; a stream of it is held back to its end.
    HeldInStream,
}

/// The syntax between a call's markers.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Body {
    /// An object with the tool's name and its arguments, or a list of them.
    Json {
        #[serde(default)]
        list: bool,
        arguments: Vec<String>,
        /// An object without arguments is no call.
        #[serde(default)]
        arguments_required: bool,
        /// The brace or bracket opens a call by itself.
        #[serde(default)]
        bare: bool,
        /// … but only as the first that is not blank.
        #[serde(default)]
        bare_at_start: bool,
        /// The same where `tool_choice` forces a call.
        #[serde(default)]
        bare_when_forced: bool,
        /// What may stand between the objects of a bare body.
        #[serde(default)]
        separators: String,
        /// Text after which a bare body may open again.
        #[serde(default)]
        restart: Vec<String>,
    },
    /// The name, a marker, the arguments as JSON.
    Header {
        /// What stands before the name, up to and with this marker.
        #[serde(default)]
        before_name: Option<String>,
        name_end: Vec<String>,
        /// A brace ends the name too, and belongs to the arguments.
        #[serde(default)]
        brace_ends_name: bool,
        /// The header is `functions.NAME:INDEX`, and the call's id.
        #[serde(default)]
        id_in_header: bool,
    },
    /// The name, then keys and values in tags.
    Tagged {
        name_end: Vec<String>,
        /// What ends the name is the first key's opener or the call's end.
        #[serde(default)]
        name_ends_at_key: bool,
        key_open: Vec<String>,
        key_end: Vec<String>,
        /// A tag of its own between key and value.
        #[serde(default)]
        value_open: Vec<String>,
        value_close: Vec<String>,
        /// What ends a value that lacks its closer: the next key's opener, or a marker of the call.
        #[serde(default)]
        value_ends_at: Vec<String>,
        #[serde(default)]
        values: Values,
    },
    /// `NAME{key:value,…}` with strings between `quote` markers.
    Literal { prefixes: Vec<String>, quote: String },
    /// Python calls: in a list, or one a line.
    Python {
        #[serde(default)]
        bare: bool,
        #[serde(default)]
        lines: bool,
    },
    /// Messages of gpt-oss: the header's channel and recipient say what the text is.
    Harmony,
}

/// How the text between a value's tags becomes a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    #[default]
    Verbatim,
    /// One newline at each end belongs to the markup.
    OneNewline,
    /// `name="…" string="true|false"` in the key's tag: text, or JSON.
    Attributed,
}

/// What becomes of the text beside calls.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact about a format, not a state")]
pub struct ContentRules {
    /// Blank text before the first call is dropped.
    #[serde(default)]
    pub drop_blank: bool,
    /// Text after the first call is dropped.
    #[serde(default)]
    pub drop_after: bool,
    /// Which text a whole answer with calls keeps.
    #[serde(default)]
    pub whole: WholeContent,
    #[serde(default)]
    pub trim: Trim,
    /// Markers that are swallowed where they make no sense.
    #[serde(default)]
    pub swallow: Vec<String>,
    /// A closer of reasoning is swallowed even where reasoning is off.
    #[serde(default)]
    pub swallow_thinking: bool,
    /// The model tends to write the calls again after their end marker.
    #[serde(default)]
    pub echoes: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WholeContent {
    #[default]
    Before,
    Around,
    /// The same without blanks around each side, on a line of its own.
    Lines,
    Nothing,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trim {
    #[default]
    No,
    Both,
    FinalNewlines,
}

/// How a whole answer spells the arguments that a stream passes on as the model wrote them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact about a format, not a state")]
pub struct WholeArguments {
    /// One complete call whose arguments are no JSON makes text of all calls.
    #[serde(default)]
    pub all_or_nothing: bool,
    /// Parsed, and written with Python's spacing.
    #[serde(default)]
    pub respelled: bool,
    /// The same, all that is not ASCII escaped.
    #[serde(default)]
    pub ascii: bool,
    /// Types corrected by the tool's schema.
    #[serde(default)]
    pub typed: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ids {
    /// `chatcmpl-tool-` and 16 hexadecimal digits, or what the model type asks for.
    #[default]
    Random,
    /// The same whatever the model type.
    AlwaysRandom,
    /// Nine letters and digits.
    Nine,
    /// `call_` and 16 hexadecimal digits.
    Call,
    /// `call_INDEX_` and 16 hexadecimal digits.
    CallIndexed,
}

/// What the format asks of the request that is rendered.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestRules {
    #[serde(default)]
    pub special_tokens: SpecialTokens,
    /// A forced call is a list of objects with `name` and a member of this name.
    #[serde(default)]
    pub forced_list_of: Option<String>,
}

/// When the engine's text must keep its special tokens, lest markers be lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpecialTokens {
    #[default]
    AsRequested,
    Kept,
    /// Only where a tool may be called.
    KeptWithTools,
}

impl ToolFormat {
    /// Read a format of a user from TOML.
    pub fn from_toml(text: &str) -> Result<Self> {
        let format: ToolFormat = toml::from_str(text)
            .map_err(|error| Error::setup(format!("a tool format does not read as TOML: {}", error.message())))?;
        format.check()?;
        Ok(format)
    }

    /// Every literal that the format looks for.
    pub(crate) fn literals(&self) -> Vec<&String> {
        let mut all: Vec<&String> = Vec::new();
        for delimiters in [&self.section, &self.call] {
            all.extend(delimiters.open.iter().chain(&delimiters.close));
        }
        all.extend(&self.content.swallow);
        match &self.body {
            Body::Json { restart, .. } => all.extend(restart),
            Body::Header { before_name, name_end, .. } => all.extend(before_name.iter().chain(name_end)),
            Body::Tagged { name_end, key_open, key_end, value_open, value_close, .. } => {
                all.extend(name_end.iter().chain(key_open).chain(key_end).chain(value_open).chain(value_close));
            }
            Body::Literal { prefixes, quote } => all.extend(prefixes.iter().chain(std::iter::once(quote))),
            Body::Python { .. } | Body::Harmony => {}
        }
        all
    }

    fn check(&self) -> Result<()> {
        let name = check_names(&self.names)?;
        check_literals(name, &self.literals())?;
        let opens_itself = match &self.body {
            Body::Json { bare, arguments, separators, .. } => {
                require(!arguments.is_empty(), name, "`body.arguments` is empty")?;
                require(separators.len() <= MAX_MARKER_BYTES, name, "`body.separators` is too long")?;
                *bare
            }
            Body::Header { name_end, brace_ends_name, .. } => {
                require(*brace_ends_name || !name_end.is_empty(), name, "`body.name_end` is empty")?;
                false
            }
            Body::Tagged { name_end, name_ends_at_key, key_open, key_end, value_close, .. } => {
                require(*name_ends_at_key || !name_end.is_empty(), name, "`body.name_end` is empty")?;
                require(
                    !key_open.is_empty() && !key_end.is_empty(),
                    name,
                    "a tagged body needs `key_open` and `key_end`",
                )?;
                require(!value_close.is_empty(), name, "`body.value_close` is empty")?;
                false
            }
            Body::Literal { prefixes, .. } => {
                require(!prefixes.is_empty(), name, "`body.prefixes` is empty")?;
                false
            }
            Body::Python { bare, .. } => *bare,
            Body::Harmony => true,
        };
        require(opens_itself || !self.call.open.is_empty(), name, "`call.open` is empty: nothing would open a call")
    }
}

fn require(holds: bool, name: &str, problem: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::setup(format!("format `{name}`: {problem}"))) }
}

pub(super) fn check_names(names: &[String]) -> Result<&str> {
    let ok =
        |name: &String| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    match names.first() {
        Some(first) if names.iter().all(ok) => Ok(first),
        _ => Err(Error::setup("a format needs `names`: letters, digits, `_` and `-`")),
    }
}

pub(super) fn check_literals(name: &str, literals: &[&String]) -> Result<()> {
    require(literals.len() <= MAX_MARKERS, name, "too many markers")?;
    let fits = |text: &&String| !text.is_empty() && text.len() <= MAX_MARKER_BYTES;
    require(literals.iter().all(fits), name, "a marker is empty or longer than 256 bytes")
}
