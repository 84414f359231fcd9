//! The parser of a server: made once, from names and from the tokenizer's tokens.

use super::format::ToolFormat;
use super::formats;
use super::grammar::{Grammar, Variant, is_harmony};
use super::ids;
use super::machine::Machine;
use super::reasoning::{self, MarkerIds};
use super::reasoning_format::{PromptRule, ReasoningFormat};
use super::request::{Deltas, Message, ParseRequest, Piece};
use super::sink::Sink;
use super::state::{MachineState, Phase, State, Tools};
use super::stream::{Rules, Stream};
use super::structural_tag::StrictLevel;
use super::whole::Whole;
use crate::error::{Error, Result};
use crate::protocol::tools::ToolChoice;

/// What a value that cannot be passed on before it is complete may hold, unless the server says otherwise.
pub const DEFAULT_VALUE_LIMIT: usize = 64 << 10;

/// What a parser is made from.
#[derive(Debug, Clone)]
pub struct ParserOptions<'a> {
    /// `--tool-call-parser`; none if auto tool choice is not enabled.
    pub tool_parser: Option<&'a str>,
    /// `--reasoning-parser`.
    pub reasoning_parser: Option<&'a str>,
    /// Tool formats of the user's own, as TOML; their names come before the built-in ones.
    pub tool_formats: &'a [String],
    /// `model_type` of the model's config, which decides how ids look.
    pub model_type: Option<&'a str>,
    /// Bytes of a value that is held back.
    pub value_limit: usize,
    /// Take arguments out of a JSON string that holds them once more encoded.
    pub unwrap_string_arguments: bool,
    /// `--tool-strict-level`; none for the format's own.
    pub strict_level: Option<StrictLevel>,
    /// Stream as little as the reference does of a format that it does not stream.
    pub reference_streams: bool,
}

impl Default for ParserOptions<'_> {
    fn default() -> Self {
        ParserOptions {
            tool_parser: None,
            reasoning_parser: None,
            tool_formats: &[],
            model_type: None,
            value_limit: DEFAULT_VALUE_LIMIT,
            unwrap_string_arguments: true,
            strict_level: None,
            reference_streams: false,
        }
    }
}

/// Reads answers: reasoning, content and tool calls, whole or as they come. Immutable; a stream's place is its `State`.
#[derive(Debug, Clone)]
pub struct Parser {
    tools: Option<ToolFormat>,
    reasoning: Option<ReasoningFormat>,
    grammars: Vec<Grammar>,
    marker_ids: MarkerIds,
    /// Every literal of both formats.
    literals: Vec<String>,
    id_style: ids::Style,
    value_limit: usize,
    unwraps_strings: bool,
    strict_level: Option<StrictLevel>,
    fingerprint: u64,
}

impl Parser {
    /// A parser for these formats; `token_id` looks a text up among the tokenizer's added tokens.
    pub fn new(options: &ParserOptions<'_>, token_id: &dyn Fn(&str) -> Option<u32>) -> Result<Self> {
        let own: Vec<ToolFormat> =
            options.tool_formats.iter().map(|text| ToolFormat::from_toml(text)).collect::<Result<_>>()?;
        let has_token = |text: &str| token_id(text).is_some();
        let tools = options.tool_parser.map(|name| formats::tool_format(name, &own, &has_token)).transpose()?;
        let reasoning = options.reasoning_parser.map(formats::reasoning_format).transpose()?;
        let grammar =
            |variant| Grammar::new(variant, tools.as_ref(), reasoning.as_ref(), options.reference_streams, &has_token);
        let of_tools = tools.iter().flat_map(ToolFormat::literals);
        let literals: Vec<String> =
            of_tools.chain(reasoning.iter().flat_map(ReasoningFormat::literals)).cloned().collect();
        Ok(Parser {
            grammars: Variant::all().map(grammar).collect(),
            marker_ids: reasoning.as_ref().map(|format| MarkerIds::new(format, token_id)).unwrap_or_default(),
            literals,
            id_style: ids::style(tools.as_ref().map(|format| format.ids).unwrap_or_default(), options.model_type),
            value_limit: options.value_limit,
            unwraps_strings: options.unwrap_string_arguments,
            strict_level: options.strict_level,
            fingerprint: fingerprint(options),
            tools,
            reasoning,
        })
    }

    /// The names of the built-in tool formats.
    pub fn tool_names() -> Vec<&'static str> {
        formats::tool_names()
    }

    /// The names of the built-in reasoning formats.
    pub fn reasoning_names() -> Vec<&'static str> {
        formats::reasoning_names()
    }

    pub fn tool_format(&self) -> Option<&ToolFormat> {
        self.tools.as_ref()
    }

    pub fn reasoning_format(&self) -> Option<&ReasoningFormat> {
        self.reasoning.as_ref()
    }

    pub(crate) fn strict_level(&self) -> Option<StrictLevel> {
        self.strict_level
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(crate) fn value_limit(&self) -> usize {
        self.value_limit
    }

    /// The state before the first piece of a stream.
    pub fn start(&self, request: &ParseRequest<'_>) -> State {
        State::new(self, self.begin(request, false))
    }

    /// Go on with a stream: what the pieces give the client is added to `deltas`.
    pub fn push<'p>(
        &self,
        state: &mut State,
        request: &ParseRequest<'_>,
        pieces: impl IntoIterator<Item = Piece<'p>>,
        deltas: &mut Deltas,
    ) -> Result<()> {
        let mut sink = Stream { state: &mut state.stream, rules: self.rules(request), deltas };
        self.with_machine(&mut state.machine, request, &mut sink, |machine| {
            pieces.into_iter().try_for_each(|piece| machine.push(piece))
        })
    }

    /// End a stream: what was held goes out.
    pub fn finish(&self, state: &mut State, request: &ParseRequest<'_>, deltas: &mut Deltas) -> Result<()> {
        let mut sink = Stream { state: &mut state.stream, rules: self.rules(request), deltas };
        #[expect(clippy::redundant_closure_for_method_calls, reason = "the method is not general over lifetimes")]
        self.with_machine(&mut state.machine, request, &mut sink, |machine| machine.finish())?;
        sink.finish(state.machine.phase == Phase::Reasoning);
        Ok(())
    }

    /// Read a whole answer. `finish_reason` is the engine's.
    pub fn whole<'p>(
        &self,
        request: &ParseRequest<'_>,
        pieces: impl IntoIterator<Item = Piece<'p>>,
        finish_reason: Option<&str>,
    ) -> Result<Message> {
        let mut state = self.begin(request, true);
        let mut sink = Whole::new(self.rules(request));
        self.with_machine(&mut state, request, &mut sink, |machine| {
            pieces.into_iter().try_for_each(|piece| machine.push(piece))?;
            machine.finish()
        })?;
        Ok(sink.message(&|called| self.finish_reason(request, finish_reason, called).to_owned()))
    }

    /// A state that was saved, checked in every part.
    pub fn load(&self, bytes: &[u8]) -> Result<State> {
        State::load(self, bytes)
    }

    /// The `finish_reason` of a chat choice: calls end an answer that the engine ended by itself, unless they were
    /// the caller's choice of one tool.
    pub fn finish_reason<'r>(&self, request: &ParseRequest<'_>, engine: Option<&'r str>, called: bool) -> &'r str {
        match engine.unwrap_or("stop") {
            "stop" if called && !matches!(request.tool_choice, ToolChoice::Named(_)) => "tool_calls",
            reason => reason,
        }
    }

    /// Reasoning is over before the answer begins; none where there is no reasoning format, or one that cannot tell.
    pub fn reasoning_ended(&self, request: &ParseRequest<'_>) -> Option<bool> {
        let format = self.reasoning.as_ref().filter(|format| format.prompt != PromptRule::Untold)?;
        if format.harmony || !reasoning::is_on(format, request) {
            return Some(true);
        }
        let prompt = request.prompt_ids.unwrap_or_default();
        Some(reasoning::ended_in_prompt(format, &self.marker_ids, prompt))
    }

    fn begin(&self, request: &ParseRequest<'_>, whole: bool) -> MachineState {
        let tools = self.tools_side(request);
        let on = self.reasoning.as_ref().is_some_and(|format| reasoning::is_on(format, request));
        let known = on || self.reasoning.as_ref().is_some_and(|format| format.opens_when_off);
        let mut state = MachineState { tools, whole, reasoning: known, untouched: true, ..MachineState::default() };
        let plain = match tools {
            Tools::Named => Phase::Named,
            _ if self.grammar(&state).held => Phase::Held,
            _ => Phase::Content,
        };
        let prompt = request.prompt_ids.unwrap_or_default();
        state.phase = match &self.reasoning {
            _ if is_harmony(self.tools.as_ref(), self.reasoning.as_ref()) => Phase::Harmony,
            Some(format) if on && !reasoning::ended_in_prompt(format, &self.marker_ids, prompt) => {
                let open = format.starts_open || reasoning::open_in_prompt(format, &self.marker_ids, prompt);
                if open { Phase::Reasoning } else { plain }
            }
            _ => plain,
        };
        state
    }

    fn tools_side(&self, request: &ParseRequest<'_>) -> Tools {
        match (&self.tools, &request.tool_choice) {
            (None, _) => Tools::Off,
            (Some(format), ToolChoice::None) if !format.parsed_when_off => Tools::Off,
            (Some(format), ToolChoice::Required) if format.forced_json => Tools::Required,
            (Some(format), ToolChoice::Named(_)) if format.forced_json => Tools::Named,
            _ => Tools::Native,
        }
    }

    fn rules<'r>(&'r self, request: &'r ParseRequest<'r>) -> Rules<'r> {
        let auto = request.tool_choice == ToolChoice::Auto && (request.any_tool || !request.tools.is_empty());
        let truth = |key: &str, wanted: bool| {
            let value = request.chat_template_kwargs.and_then(|kwargs| kwargs.get(key));
            matches!(value, Some(crate::json::Json::Bool(given)) if *given == wanted)
        };
        let wants_content = truth("enable_thinking", false) || truth("force_nonempty_content", true);
        Rules {
            request,
            format: self.tools.as_ref().filter(|_| self.tools_side(request) != Tools::Off),
            keeps_calls: self.tools.is_some() && (request.forces_calls() || auto),
            ignores_calls: request.tool_choice == ToolChoice::None && !request.tools.is_empty(),
            id_style: self.id_style,
            trims_reasoning: self.reasoning.as_ref().is_some_and(|format| format.trim_end),
            reasoning_may_be_content: wants_content
                && self.reasoning.as_ref().is_some_and(|format| format.becomes_content),
            value_limit: self.value_limit,
        }
    }

    fn grammar(&self, state: &MachineState) -> &Grammar {
        &self.grammars[Variant { reasoning: state.reasoning, tools: state.tools, whole: state.whole }.number()]
    }

    fn with_machine(
        &self,
        state: &mut MachineState,
        request: &ParseRequest<'_>,
        sink: &mut dyn Sink,
        run: impl FnOnce(&mut Machine<'_>) -> Result<()>,
    ) -> Result<()> {
        let named = match &request.tool_choice {
            ToolChoice::Named(name) => Some(name.as_str()),
            _ => None,
        };
        let known = |text: &str| self.literals.iter().any(|literal| literal.contains(text));
        run(&mut Machine {
            grammar: self.grammar(state),
            format: self.tools.as_ref().filter(|_| state.tools != Tools::Off),
            reasoning: self.reasoning.as_ref(),
            forced: request.forces_calls(),
            named,
            limit: self.value_limit,
            unwraps_strings: self.unwraps_strings,
            known: &known,
            state,
            sink,
        })
    }
}

/// A number that differs where a saved state must not be used.
fn fingerprint(options: &ParserOptions<'_>) -> u64 {
    let mut hasher = blake3::Hasher::new();
    let flags = [options.unwrap_string_arguments, options.reference_streams].map(u8::from);
    let names = [options.tool_parser, options.reasoning_parser, options.model_type].map(Option::unwrap_or_default);
    for text in names.into_iter().map(str::as_bytes).chain(options.tool_formats.iter().map(String::as_bytes)) {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text);
    }
    hasher.update(&flags);
    let bytes: [u8; 8] = hasher.finalize().as_bytes()[..8].try_into().expect("a digest has 32 bytes");
    u64::from_le_bytes(bytes)
}

/// The error of a name that no format has.
pub(super) fn unknown(kind: &str, name: &str, known: &[&str]) -> Error {
    Error::setup(format!("unknown {kind} parser `{name}`; known: {}", known.join(", ")))
}
