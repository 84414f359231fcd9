//! Runs of the parsers on texts: whole, and cut anywhere.

use fastrender_core::json::{Json, Map};
use fastrender_core::parser::{CallDelta, Deltas, Message, ParseRequest, Parser, ParserOptions, Piece};
use fastrender_core::protocol::fields::Fields;
use fastrender_core::protocol::tools::{ToolChoice, read_tools};

/// `get_weather`, `now`, `write` and `pick`, with every kind of type.
pub(crate) const TOOLS: &str = r#"{"tools": [
    {"function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "near": {"type": "array", "items": {"type": "string"}},
        "opts": {"type": "object"}}}}},
    {"function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
    {"function": {"name": "write", "parameters": {"type": "object", "properties": {
        "path": {"type": "string"}, "body": {"type": "string"}}}}},
    {"function": {"name": "pick", "parameters": {"type": "object", "properties": {
        "mode": {"enum": ["none", "fast"]}, "note": {"type": ["string", "null"]}, "lit": {"type": "string"},
        "n": {"type": "number"}}}}}
]}"#;

/// One answer of a model, and what it is read with.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) tool: &'static str,
    pub(crate) reasoning: &'static str,
    pub(crate) text: String,
    /// Texts that are one token; those in angle brackets and bars, special ones.
    pub(crate) tokens: Vec<&'static str>,
    pub(crate) special: Vec<&'static str>,
    pub(crate) choice: ToolChoice,
    pub(crate) thinking: Option<bool>,
    pub(crate) finish: &'static str,
    pub(crate) model_type: Option<&'static str>,
    pub(crate) history: u32,
    pub(crate) toml: Vec<String>,
    pub(crate) parallel: Option<bool>,
    pub(crate) include_reasoning: bool,
}

pub(crate) fn case(tool: &'static str, reasoning: &'static str, text: &str) -> Case {
    Case {
        tool,
        reasoning,
        text: text.to_owned(),
        tokens: Vec::new(),
        special: Vec::new(),
        choice: ToolChoice::Auto,
        thinking: None,
        finish: "stop",
        model_type: None,
        history: 0,
        toml: Vec::new(),
        parallel: None,
        include_reasoning: true,
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) reasoning: String,
    pub(crate) content: String,
    pub(crate) calls: Vec<(String, String)>,
    pub(crate) reason: String,
}

impl Case {
    pub(crate) fn off(mut self) -> Self {
        self.thinking = Some(false);
        self
    }

    pub(crate) fn on(mut self) -> Self {
        self.thinking = Some(true);
        self
    }

    pub(crate) fn tokens(mut self, tokens: &[&'static str]) -> Self {
        self.tokens = tokens.to_vec();
        self
    }

    pub(crate) fn cut(mut self) -> Self {
        self.finish = "length";
        self
    }

    pub(crate) fn parser(&self) -> Parser {
        let some = |name: &'static str| (!name.is_empty()).then_some(name);
        let options = ParserOptions {
            tool_parser: some(self.tool),
            reasoning_parser: some(self.reasoning),
            tool_formats: &self.toml,
            model_type: self.model_type,
            ..ParserOptions::default()
        };
        let all: Vec<&str> = self.special.iter().chain(&self.tokens).copied().collect();
        Parser::new(&options, &|text| all.iter().position(|token| *token == text).map(|i| u32::try_from(i).unwrap()))
            .unwrap()
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&ParseRequest<'_>) -> T) -> T {
        let body = Json::parse(TOOLS).unwrap();
        let tools = read_tools(Fields::new(body.as_object().unwrap(), "body")).unwrap().unwrap();
        let mut kwargs = Map::new();
        if let Some(thinking) = self.thinking {
            kwargs.push("enable_thinking", thinking.into());
        }
        work(&ParseRequest {
            tools: ParseRequest::tools_of(&tools),
            tool_choice: self.choice.clone(),
            any_tool: false,
            parallel_tool_calls: self.parallel,
            include_reasoning: self.include_reasoning,
            chat_template_kwargs: Some(&kwargs),
            history_tool_calls: self.history,
            id_seed: b"seed",
            prompt_ids: None,
        })
    }

    /// The text as tokens: one for each of `tokens` and each other character.
    pub(crate) fn pieces(&self) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        let mut rest = self.text.as_str();
        'next: while let Some(c) = rest.chars().next() {
            for (token, special) in self.special.iter().map(|t| (t, true)).chain(self.tokens.iter().map(|t| (t, false)))
            {
                if rest.starts_with(token) {
                    pieces.push(Piece::Token { text: token, special });
                    rest = &rest[token.len()..];
                    continue 'next;
                }
            }
            pieces.push(Piece::Text(&rest[..c.len_utf8()]));
            rest = &rest[c.len_utf8()..];
        }
        pieces
    }

    pub(crate) fn whole(&self) -> Answer {
        let message =
            self.with(|request| self.parser().whole(request, join(&self.pieces(), &self.text), Some(self.finish)));
        answer(&message.unwrap())
    }

    /// The stream cut before the pieces of these numbers; between two chunks the state is saved and loaded.
    pub(crate) fn streamed(&self, parser: &Parser, cuts: &[usize]) -> (Answer, Vec<Deltas>) {
        let pieces = self.pieces();
        self.with(|request| {
            let mut state = parser.start(request);
            let mut all = Vec::new();
            let ends = cuts.iter().copied().chain([pieces.len()]);
            let mut start = 0;
            for end in ends {
                let end = end.clamp(start, pieces.len());
                let mut deltas = Deltas::default();
                parser.push(&mut state, request, join(&pieces[start..end], &self.text), &mut deltas).unwrap();
                state = parser.load(&state.save()).unwrap();
                if end == pieces.len() {
                    parser.finish(&mut state, request, &mut deltas).unwrap();
                }
                all.push(deltas);
                start = end;
                if end == pieces.len() {
                    break;
                }
            }
            let called = all.iter().any(|deltas| !deltas.calls.is_empty());
            let mut answer = assembled(&all);
            parser.finish_reason(request, Some(self.finish), called).clone_into(&mut answer.reason);
            (answer, all)
        })
    }

    pub(crate) fn stream(&self) -> Answer {
        self.streamed(&self.parser(), &[]).0
    }
}

/// Neighbouring characters of `text` as one piece, as a detokenizer hands them over.
fn join<'a>(pieces: &[Piece<'a>], text: &'a str) -> Vec<Piece<'a>> {
    let mut out: Vec<Piece<'a>> = Vec::new();
    for piece in pieces {
        if let (Some(Piece::Text(before)), Piece::Text(more)) = (out.last_mut(), piece) {
            let start = before.as_ptr() as usize - text.as_ptr() as usize;
            *before = &text[start..start + before.len() + more.len()];
        } else {
            out.push(*piece);
        }
    }
    out
}

pub(crate) fn answer(message: &Message) -> Answer {
    Answer {
        reasoning: message.reasoning.clone().unwrap_or_default(),
        content: message.content.clone().unwrap_or_default(),
        calls: message.tool_calls.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect(),
        reason: message.finish_reason.clone(),
    }
}

/// What a client has after these deltas, but for the finish reason.
pub(crate) fn assembled(deltas: &[Deltas]) -> Answer {
    let mut answer = Answer::default();
    let mut calls: Vec<CallDelta> = Vec::new();
    for delta in deltas {
        answer.reasoning.push_str(&delta.reasoning);
        answer.content.push_str(&delta.content);
        for part in &delta.calls {
            if let Some(call) = calls.iter_mut().find(|call| call.index == part.index) {
                assert!(part.id.is_none() && part.name.is_none(), "a call's id and name come once");
                call.arguments.get_or_insert_default().push_str(part.arguments.as_deref().unwrap_or_default());
            } else {
                assert!(part.id.is_some() && part.name.is_some(), "a call begins with its id and name");
                calls.push(part.clone());
            }
        }
    }
    answer.calls = calls.into_iter().map(|call| (call.name.unwrap(), call.arguments.unwrap_or_default())).collect();
    answer
}

pub(crate) fn calls(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned())).collect()
}
