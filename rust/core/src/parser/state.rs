//! Where a parse stands: plain data, so that a stream can go on in another process.

use serde::{Deserialize, Serialize};

use super::engine::Parser;
use crate::error::{Error, Result};

/// Bytes of a saved state: the longest value that is held back, escaped, and what else there is.
const MAX_SAVED_BYTES: usize = 4 << 20;
const VERSION: u32 = 1;

/// The state of one answer's parse. Made by `Parser::start`, saved between two chunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Of this layout.
    version: u32,
    /// Of the formats that it was made for.
    formats: u64,
    pub(crate) machine: MachineState,
    pub(crate) stream: StreamState,
}

/// What the text is at this point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    Reasoning,
    #[default]
    Content,
    /// In a section, outside of calls.
    Preamble,
    /// A call's name or header.
    Name,
    /// A call's arguments, as JSON.
    Arguments,
    /// In a call, between its parameters.
    Between,
    Key,
    ValueOpen,
    Value,
    /// Behind a call's body, before its closer.
    Trailer,
    /// Before or between the objects of a list.
    List,
    /// In an object with name and arguments.
    Object,
    /// Behind an object that no marker closes.
    AfterBare,
    Python,
    Literal,
    Harmony,
    /// All text is the arguments of the tool that the request names.
    Named,
    /// Behind a closed call: it may be written once more.
    Echo,
    /// Held to the end.
    Held,
}

/// What is done with tool calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Tools {
    #[default]
    Off,
    /// In the format's own way.
    Native,
    /// A list of plain JSON objects.
    Required,
    /// The arguments alone.
    Named,
}

/// What the machine of phases remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct MachineState {
    pub(crate) phase: Phase,
    pub(crate) tools: Tools,
    /// Reasoning is looked for.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) reasoning: bool,
    /// There was reasoning.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) reasoned: bool,
    /// This is a whole text, not a stream.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) whole: bool,
    /// The end of the text so far, which may be the beginning of a marker.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) held: String,
    /// There was content that is not blank.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) begun: bool,
    /// There was a call.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) called: bool,
    /// A call is open: it was begun towards the client.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) in_call: bool,
    /// Text that is a call or, if it goes on otherwise, content.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) raw: String,
    /// The name, key or value that is being read.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) text: String,
    /// In a list of calls.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) list: bool,
    /// The body opened by itself, without a marker.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) bare: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) tracker: Tracker,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) value: ValueState,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) object: ObjectState,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) python: PythonState,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) literal: LiteralState,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) harmony: HarmonyState,
    /// Nothing of the answer was seen yet.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) untouched: bool,
    /// So much of the reasoning's prefix was seen.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) prefix: u32,
    /// The prefix is dealt with.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) prefix_done: bool,
}

/// How far into a JSON value the text is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Tracker {
    pub(crate) kind: ValueShape,
    pub(crate) depth: u32,
    pub(crate) string: bool,
    pub(crate) escape: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ValueShape {
    #[default]
    NotBegun,
    Container,
    Text,
    Scalar,
    Done,
}

/// The value of a tagged parameter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ValueState {
    pub(crate) begun: bool,
    /// A newline that is data only if more follows.
    pub(crate) newline: bool,
    /// The parameter is broken: what it holds is dropped.
    pub(crate) broken: bool,
}

/// An object with name and arguments.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ObjectState {
    pub(crate) at: ObjectAt,
    pub(crate) member: Member,
    pub(crate) escape: bool,
    pub(crate) name: Option<String>,
    /// Arguments that came before the name, or that are a string.
    pub(crate) arguments: String,
    pub(crate) arguments_seen: bool,
    /// There is a member that is neither.
    pub(crate) others: bool,
    /// The value that is being read is a string.
    pub(crate) string: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ObjectAt {
    #[default]
    Start,
    BeforeKey,
    Key,
    AfterKey,
    Value,
    AfterValue,
}

/// What a member of such an object is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Member {
    #[default]
    Other,
    Name,
    Arguments,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PythonState {
    pub(crate) at: PythonAt,
    /// The call's name is known, but not yet that it is a call.
    pub(crate) name: String,
    pub(crate) key: String,
    /// Open brackets in the value.
    pub(crate) depth: u32,
    /// The quote of the string that the text is in.
    pub(crate) quote: Option<char>,
    pub(crate) escape: String,
    /// The value is a string that is passed on as it comes.
    pub(crate) streams: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PythonAt {
    #[default]
    Start,
    Name,
    Key,
    Value,
    /// Behind a string that was passed on.
    AfterText,
    AfterCall,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LiteralState {
    pub(crate) at: LiteralAt,
    pub(crate) key: String,
    pub(crate) depth: u32,
    /// In a string of a nested value.
    pub(crate) quoted: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LiteralAt {
    #[default]
    Prefix,
    Name,
    Key,
    BeforeValue,
    /// A string that is passed on as it comes.
    Text,
    Value,
    AfterValue,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HarmonyState {
    pub(crate) at: HarmonyAt,
    pub(crate) kind: HarmonyKind,
    /// A message began or ended since the answer's beginning.
    pub(crate) started: bool,
    /// Header parts: before `<|channel|>`, behind it, behind `<|constrain|>`.
    pub(crate) part: u8,
    pub(crate) role: String,
    pub(crate) channel: String,
    pub(crate) constrain: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HarmonyAt {
    /// Between two messages.
    Outside,
    #[default]
    Header,
    Text,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HarmonyKind {
    #[default]
    Ignored,
    Reasoning,
    Content,
    Call,
}

/// What the assembly of deltas remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct StreamState {
    /// Index of the next call.
    pub(crate) calls: u32,
    /// Calls that were given an id.
    pub(crate) ids: u32,
    /// The open call is not passed on.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) dropped: bool,
    /// Blank content that counts only if text follows.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) blank: String,
    /// Content that is not blank was sent.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) begun: bool,
    /// The opener of a call was seen.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) opened: bool,
    /// Blank reasoning that counts only if more follows.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) reasoning_blank: String,
    /// Reasoning that may become the content.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) reasoning: String,
    /// The name of the open call, whose schema types its arguments.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) name: String,
    /// Keys of the open call, as far as they were sent.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) keys: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) open: OpenValue,
    /// The value that cannot be sent before it is complete.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) value: String,
    /// A lone argument that may turn out to hold all of them: its key and value.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) wrapper: Option<(String, String)>,
    /// The beginning of an escape.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) escape: String,
    /// A call was passed on.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) sent: bool,
    /// Arguments are written by us, key by key.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) by_key: bool,
}

/// What is open of a value towards the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OpenValue {
    #[default]
    None,
    /// A string, which goes out as it comes.
    Text,
    /// Something that goes out when it is complete; text, or JSON.
    Held(super::sink::Kind),
    /// A key's second value, which is dropped.
    Duplicate,
    /// Perhaps all the arguments in one.
    Wrapper(super::sink::Kind),
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl State {
    pub(crate) fn new(parser: &Parser, machine: MachineState) -> Self {
        State { version: VERSION, formats: parser.fingerprint(), machine, stream: StreamState::default() }
    }

    /// A call was sent to the client.
    pub fn calls_sent(&self) -> bool {
        self.stream.sent
    }

    /// The state as bytes, for `Parser::load`.
    pub fn save(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a state is plain data")
    }

    pub(crate) fn load(parser: &Parser, bytes: &[u8]) -> Result<State> {
        let refuse = |why: &str| Error::bad_request(format!("the state of the stream cannot be used: {why}"));
        if bytes.len() > MAX_SAVED_BYTES {
            return Err(refuse("it is too long"));
        }
        let state: State = serde_json::from_slice(bytes).map_err(|_| refuse("it is damaged"))?;
        if state.version != VERSION || state.formats != parser.fingerprint() {
            return Err(refuse("it was made by another version or for other formats"));
        }
        if !state.is_plausible(parser.value_limit()) {
            return Err(refuse("it is damaged"));
        }
        Ok(state)
    }

    /// Every size is one that a stream can lead to.
    fn is_plausible(&self, limit: usize) -> bool {
        let (machine, stream) = (&self.machine, &self.stream);
        let long = [&machine.held, &machine.raw, &machine.text, &machine.object.arguments, &stream.value];
        let short = [
            machine.python.name.len(),
            machine.python.key.len(),
            machine.literal.key.len(),
            machine.python.escape.len(),
            machine.harmony.role.len(),
            machine.harmony.channel.len(),
            machine.harmony.constrain.as_ref().map_or(0, String::len),
            machine.object.name.as_ref().map_or(0, String::len),
            stream.name.len(),
            stream.escape.len(),
        ];
        let keys: usize = stream.keys.iter().map(String::len).sum();
        let wrapper = stream.wrapper.as_ref().map_or(0, |(key, value)| key.len() + value.len());
        let depth = machine.tracker.depth.max(machine.python.depth).max(machine.literal.depth);
        !machine.whole
            && long.iter().all(|text| text.len() <= 2 * limit + 4096)
            && short.iter().all(|length| *length <= super::machine::MAX_NAME_BYTES + 4)
            && keys <= limit + 4096
            && stream.keys.len() <= super::sink::MAX_KEYS
            && wrapper <= 2 * limit + 4096
            && stream.blank.len() <= limit
            && stream.reasoning_blank.len() <= limit
            && stream.reasoning.len() <= super::stream::MAX_KEPT_REASONING
            && usize::try_from(depth).is_ok_and(|depth| depth <= 1 << 24)
            && stream.ids <= stream.calls
            && stream.calls < u32::MAX
    }
}
