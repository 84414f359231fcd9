//! What goes into a parser and what comes out of it.

use crate::json::{Json, Map};
use crate::protocol::tools::ToolChoice;

/// A part of an answer, as the detokenizer hands it over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text of ordinary tokens. A piece may end anywhere between two characters.
    Text(&'a str),
    /// One added token of the tokenizer: markers that are such a token are known by it, and by nothing else.
    Token {
        text: &'a str,
        /// It is special: dropped unless the format looks for it.
        special: bool,
    },
}

/// A tool of the request.
#[derive(Debug, Clone, Copy)]
pub struct Tool<'a> {
    pub name: &'a str,
    /// Its JSON schema, if it has one.
    pub parameters: Option<&'a Json<'a>>,
    /// `strict` as the request has it.
    pub strict: Option<bool>,
}

/// What of a chat request matters to parsing its answer.
#[derive(Debug, Clone)]
pub struct ParseRequest<'a> {
    pub tools: Vec<Tool<'a>>,
    pub tool_choice: ToolChoice,
    /// With `auto`, calls are passed on although the request has no tools.
    pub any_tool: bool,
    /// Only an explicit false keeps all but the first call back.
    pub parallel_tool_calls: Option<bool>,
    pub include_reasoning: bool,
    /// The variables that the prompt was rendered with.
    pub chat_template_kwargs: Option<&'a Map<'a>>,
    /// Tool calls in earlier messages of the conversation.
    pub history_tool_calls: u32,
    /// What ids are made from: the same seed gives the same ids.
    pub id_seed: &'a [u8],
    /// The ids of the prompt, where known.
    pub prompt_ids: Option<&'a [u32]>,
}

impl Default for ParseRequest<'_> {
    fn default() -> Self {
        ParseRequest {
            tools: Vec::new(),
            tool_choice: ToolChoice::None,
            any_tool: false,
            parallel_tool_calls: None,
            include_reasoning: true,
            chat_template_kwargs: None,
            history_tool_calls: 0,
            id_seed: &[],
            prompt_ids: None,
        }
    }
}

impl<'a> ParseRequest<'a> {
    /// The tools of a request, as `protocol::tools::read_tools` returns them.
    pub fn tools_of(tools: &'a [Json<'a>]) -> Vec<Tool<'a>> {
        let tool = |tool: &'a Json<'a>| {
            let function = tool.as_object()?.get("function")?.as_object()?;
            Some(Tool {
                name: function.get("name")?.as_str()?,
                parameters: function.present("parameters"),
                strict: match function.get("strict") {
                    Some(Json::Bool(strict)) => Some(*strict),
                    _ => None,
                },
            })
        };
        tools.iter().filter_map(tool).collect()
    }

    pub(crate) fn forces_calls(&self) -> bool {
        matches!(self.tool_choice, ToolChoice::Required | ToolChoice::Named(_))
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Tool<'a>> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The `properties` of a tool's schema; none if it has no such tool or schema.
    pub(crate) fn properties(&self, name: &str) -> Option<&'a Map<'a>> {
        let schema = self.tool(name)?.parameters?.as_object()?;
        schema.get("properties")?.as_object().filter(|properties| !properties.is_empty())
    }
}

/// What one step of a stream gives the client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deltas {
    pub reasoning: String,
    pub content: String,
    /// In order, at most one for a call.
    pub calls: Vec<CallDelta>,
}

impl Deltas {
    pub fn is_empty(&self) -> bool {
        self.reasoning.is_empty() && self.content.is_empty() && self.calls.is_empty()
    }
}

/// A fragment of a tool call. The first of a call has its id and name; arguments add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDelta {
    pub index: u32,
    pub id: Option<String>,
    pub name: Option<String>,
    pub arguments: Option<String>,
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    pub reasoning: Option<String>,
    pub content: Option<String>,
    pub tool_calls: Vec<ToolCall>,
    pub finish_reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON, unless the model wrote something else.
    pub arguments: String,
}
