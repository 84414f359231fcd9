//! Parsers of every pair of formats that a byte or two pick.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use fastrender_core::parser::{ParseRequest, Parser, ParserOptions, Tool};
use fastrender_core::protocol::tools::ToolChoice;

/// Texts that are tokens in half of the runs.
pub const TOKENS: [&str; 12] = [
    "<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]", "<|tool_call>", "<tool_call|>",
    "<|\"|>", "<|channel|>", "<|message|>", "<|call|>",
];

type Known = Mutex<HashMap<[u8; 3], Arc<Parser>>>;

/// A parser that is made once.
pub fn parser(tool: u8, reasoning: u8, tokens: bool) -> Arc<Parser> {
    static KNOWN: LazyLock<Known> = LazyLock::new(Mutex::default);
    let (tools, reasonings) = (Parser::tool_names(), Parser::reasoning_names());
    let key = [tool % tools.len() as u8, reasoning % (reasonings.len() as u8 + 1), u8::from(tokens)];
    let make = || {
        let options = ParserOptions {
            tool_parser: Some(tools[usize::from(key[0])]),
            reasoning_parser: reasonings.get(usize::from(key[1])).copied(),
            ..ParserOptions::default()
        };
        let id = |text: &str| TOKENS.iter().position(|token| *token == text).filter(|_| tokens).map(|at| at as u32);
        Arc::new(Parser::new(&options, &id).expect("every built-in format can be used"))
    };
    Arc::clone(KNOWN.lock().expect("nobody panics here").entry(key).or_insert_with(make))
}

/// A request with a tool, called as the byte says.
pub fn request(choice: u8) -> ParseRequest<'static> {
    ParseRequest {
        tools: vec![Tool { name: "now", parameters: None, strict: None }],
        tool_choice: match choice % 5 {
            0 => ToolChoice::None,
            1 => ToolChoice::Required,
            2 => ToolChoice::Named("now".to_owned()),
            3 => ToolChoice::Null,
            _ => ToolChoice::Auto,
        },
        ..ParseRequest::default()
    }
}
