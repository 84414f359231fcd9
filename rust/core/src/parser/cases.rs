//! Cases in, answers out: what the parsers make of a text, whole and in chunks, as JSON a line each.
//!
//! A stand-in for a tokenizer: every `special` or `added` text of the case is one token, every other character is one.

use aho_corasick::{AhoCorasick, MatchKind};

use super::engine::{Parser, ParserOptions};
use super::request::{CallDelta, Deltas, Message, ParseRequest, Piece};
use crate::error::{Error, Result};
use crate::json::{Json, Map};
use crate::protocol::fields::Fields;
use crate::protocol::tools::{read_tool_choice, read_tools};

const FIRST_MARKER: u32 = 1000;

/// What all cases of a run have in common.
#[derive(Debug, Clone, Default)]
pub struct CaseDefaults<'a> {
    pub tool_parser: Option<&'a str>,
    pub reasoning_parser: Option<&'a str>,
    pub tool_formats: &'a [String],
}

/// Answer one case, a JSON object. Unknown keys are ignored.
pub fn answer(case: &str, defaults: &CaseDefaults<'_>) -> Result<String> {
    let parsed =
        Json::parse(case).map_err(|error| Error::bad_request(format!("the case is not valid JSON: {error}")))?;
    let case = parsed.as_object().ok_or_else(|| Error::bad_request("a case must be a JSON object"))?;
    let fields = Fields::new(case, "case");
    let text = fields.str("text")?.ok_or_else(|| Error::bad_param("text", "a case needs `text`"))?;
    let special = strings(case, "special")?;
    let added = strings(case, "added")?;
    let vocabulary = Vocabulary::new(&special, &added)?;
    let options = ParserOptions {
        tool_parser: fields.str("tool_parser")?.or(defaults.tool_parser),
        reasoning_parser: fields.str("reasoning_parser")?.or(defaults.reasoning_parser),
        tool_formats: defaults.tool_formats,
        model_type: fields.str("model_type")?,
        reference_streams: true,
        ..ParserOptions::default()
    };
    let parser = Parser::new(&options, &|text| vocabulary.id(text))?;
    let tools = read_tools(fields)?.unwrap_or_default();
    let prompt = vocabulary.prompt_ids(fields.str("prompt")?.unwrap_or("q"));
    let parallel_tool_calls = fields.bool("parallel_tool_calls")?;
    let request = ParseRequest {
        tools: ParseRequest::tools_of(&tools),
        tool_choice: read_tool_choice(case)?,
        any_tool: false,
        parallel_tool_calls,
        include_reasoning: fields.bool("include_reasoning")?.unwrap_or(true),
        chat_template_kwargs: case.present("chat_template_kwargs").and_then(Json::as_object),
        history_tool_calls: history(case),
        id_seed: text.as_bytes(),
        prompt_ids: Some(&prompt),
    };
    let finish_reason =
        fields.str("finish_reason")?.or_else(|| (!case.contains_key("finish_reason")).then_some("stop"));
    let run = Run { parser: &parser, request: &request, vocabulary: &vocabulary, finish_reason };
    let mut out = Map::new();
    out.push("whole", run.whole(text)?);
    for size in [1, 3, 7] {
        out.push(format!("every_{size}"), run.stream_every(text, size)?);
    }
    if case.present("chunks").is_some() {
        let chunks = strings(case, "chunks")?;
        out.push("chunks", run.chunks(&chunks)?);
    }
    let mut bytes = Vec::new();
    Json::Object(out).write(&mut bytes);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Read the text of a person who wants to see what a parser makes of it: a message as JSON. Calls of any tool count.
pub fn read(text: &str, defaults: &CaseDefaults<'_>) -> Result<String> {
    let options = ParserOptions {
        tool_parser: defaults.tool_parser,
        reasoning_parser: defaults.reasoning_parser,
        tool_formats: defaults.tool_formats,
        ..ParserOptions::default()
    };
    let parser = Parser::new(&options, &|_| None)?;
    let tool_choice = crate::protocol::tools::ToolChoice::Auto;
    let request = ParseRequest { tool_choice, any_tool: true, id_seed: text.as_bytes(), ..ParseRequest::default() };
    let message = parser.whole(&request, [Piece::Text(text)], Some("stop"))?;
    let mut bytes = Vec::new();
    message_json(&message).write(&mut bytes);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

struct Vocabulary<'a> {
    markers: Vec<&'a str>,
    specials: usize,
    searcher: Option<AhoCorasick>,
}

impl<'a> Vocabulary<'a> {
    fn new(special: &[&'a str], added: &[&'a str]) -> Result<Self> {
        let markers: Vec<&str> = special.iter().chain(added).copied().collect();
        if markers.iter().any(|marker| marker.is_empty()) {
            return Err(Error::bad_request("a token cannot be empty"));
        }
        let build = || AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&markers);
        let searcher = (!markers.is_empty()).then(build).transpose();
        let searcher = searcher.map_err(|_| Error::bad_request("the case has too many tokens"))?;
        Ok(Vocabulary { specials: special.len(), markers, searcher })
    }

    fn id(&self, text: &str) -> Option<u32> {
        let place = self.markers.iter().position(|marker| *marker == text)?;
        u32::try_from(place).ok().map(|place| FIRST_MARKER + place)
    }

    /// The tokens of a text.
    fn pieces<'t>(&self, text: &'t str) -> Vec<Piece<'t>> {
        let mut pieces = Vec::new();
        let mut at = 0;
        let characters = |pieces: &mut Vec<Piece<'t>>, text: &'t str| {
            pieces.extend(text.char_indices().map(|(i, c)| Piece::Text(&text[i..i + c.len_utf8()])));
        };
        for found in self.searcher.iter().flat_map(|searcher| searcher.find_iter(text)) {
            characters(&mut pieces, &text[at..found.start()]);
            let special = found.pattern().as_usize() < self.specials;
            pieces.push(Piece::Token { text: &text[found.range()], special });
            at = found.end();
        }
        characters(&mut pieces, &text[at..]);
        pieces
    }

    fn prompt_ids(&self, prompt: &str) -> Vec<u32> {
        let id = |piece: Piece<'_>| match piece {
            Piece::Text(text) => text.chars().next().map_or(0, |c| 100_000 + u32::from(c)),
            Piece::Token { text, .. } => self.id(text).unwrap_or(0),
        };
        self.pieces(prompt).into_iter().map(id).collect()
    }
}

struct Run<'a> {
    parser: &'a Parser,
    request: &'a ParseRequest<'a>,
    vocabulary: &'a Vocabulary<'a>,
    finish_reason: Option<&'a str>,
}

impl Run<'_> {
    fn whole(&self, text: &str) -> Result<Json<'static>> {
        self.parser
            .whole(self.request, self.vocabulary.pieces(text), self.finish_reason)
            .map(|message| message_json(&message))
    }

    /// The deltas of each chunk.
    fn stream(&self, chunks: &[&[Piece<'_>]]) -> Result<Vec<Deltas>> {
        let mut state = self.parser.start(self.request);
        let mut all = Vec::with_capacity(chunks.len());
        for (number, chunk) in chunks.iter().enumerate() {
            let mut deltas = Deltas::default();
            self.parser.push(&mut state, self.request, chunk.iter().copied(), &mut deltas)?;
            if number + 1 == chunks.len() && self.finish_reason.is_some() {
                self.parser.finish(&mut state, self.request, &mut deltas)?;
            }
            all.push(deltas);
        }
        Ok(all)
    }

    fn reason(&self, deltas: &[Deltas]) -> Json<'static> {
        let called = deltas.iter().any(|deltas| !deltas.calls.is_empty());
        let reason = self.finish_reason.map(|reason| self.parser.finish_reason(self.request, Some(reason), called));
        reason.map_or(Json::Null, |reason| reason.to_owned().into())
    }

    fn stream_every(&self, text: &str, size: usize) -> Result<Json<'static>> {
        let pieces = self.vocabulary.pieces(text);
        let mut chunks: Vec<&[Piece<'_>]> = pieces.chunks(size).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let deltas = self.stream(&chunks)?;
        let mut out = joined(&deltas);
        out.push("finish_reason", self.reason(&deltas));
        Ok(Json::Object(out))
    }

    fn chunks(&self, texts: &[&str]) -> Result<Json<'static>> {
        let pieces: Vec<Vec<Piece<'_>>> = texts.iter().map(|text| self.vocabulary.pieces(text)).collect();
        let chunks: Vec<&[Piece<'_>]> = pieces.iter().map(Vec::as_slice).collect();
        let deltas = self.stream(&chunks)?;
        let mut out = Map::new();
        out.push("deltas", Json::Array(deltas.iter().map(delta_json).collect()));
        out.push("finish_reason", self.reason(&deltas));
        Ok(Json::Object(out))
    }
}

fn strings<'a>(case: &'a Map<'_>, key: &'static str) -> Result<Vec<&'a str>> {
    let Some(value) = case.present(key) else { return Ok(Vec::new()) };
    let texts = value.as_array().map(|items| items.iter().map(Json::as_str).collect::<Option<Vec<_>>>());
    texts.flatten().ok_or_else(|| Error::bad_param(key, format!("`{key}` must be a list of strings")))
}

/// Tool calls of assistant messages.
fn history(case: &Map<'_>) -> u32 {
    let messages = case.get("messages").and_then(Json::as_array).unwrap_or_default().iter().filter_map(Json::as_object);
    let assistant = messages.filter(|message| message.get("role").and_then(Json::as_str) == Some("assistant"));
    let calls = assistant.filter_map(|message| message.get("tool_calls")?.as_array()).map(<[_]>::len).sum::<usize>();
    u32::try_from(calls).unwrap_or(u32::MAX)
}

fn text_or_null(text: Option<&String>) -> Json<'static> {
    text.map_or(Json::Null, |text| text.clone().into())
}

fn call_json(id: Option<&String>, name: &str, arguments: &str) -> Json<'static> {
    let mut call = Map::new();
    call.push("id", text_or_null(id));
    call.push("name", name.to_owned().into());
    call.push("arguments", arguments.to_owned().into());
    Json::Object(call)
}

fn message_json(message: &Message) -> Json<'static> {
    let mut out = Map::new();
    out.push("reasoning", text_or_null(message.reasoning.as_ref()));
    out.push("content", text_or_null(message.content.as_ref()));
    let calls = message.tool_calls.iter().map(|call| call_json(Some(&call.id), &call.name, &call.arguments));
    out.push("tool_calls", Json::Array(calls.collect()));
    out.push("finish_reason", message.finish_reason.clone().into());
    Json::Object(out)
}

/// The message that a client assembles from the deltas.
fn joined(deltas: &[Deltas]) -> Map<'static> {
    let (mut reasoning, mut content) = (String::new(), String::new());
    let mut calls: Vec<CallDelta> = Vec::new();
    for delta in deltas {
        reasoning.push_str(&delta.reasoning);
        content.push_str(&delta.content);
        for part in &delta.calls {
            match calls.iter_mut().find(|call| call.index == part.index) {
                Some(call) => {
                    let arguments = call.arguments.get_or_insert_default();
                    arguments.push_str(part.arguments.as_deref().unwrap_or_default());
                }
                None => calls.push(part.clone()),
            }
        }
    }
    let mut out = Map::new();
    out.push("reasoning", reasoning.into());
    out.push("content", content.into());
    let call = |call: &CallDelta| {
        let (name, arguments) =
            (call.name.as_deref().unwrap_or_default(), call.arguments.as_deref().unwrap_or_default());
        call_json(call.id.as_ref(), name, arguments)
    };
    out.push("tool_calls", Json::Array(calls.iter().map(call).collect()));
    out
}

fn delta_json(deltas: &Deltas) -> Json<'static> {
    if deltas.is_empty() {
        return Json::Null;
    }
    let mut out = Map::new();
    for (key, text) in [("content", &deltas.content), ("reasoning", &deltas.reasoning)] {
        if !text.is_empty() {
            out.push(key, text.clone().into());
        }
    }
    let call = |call: &CallDelta| {
        let mut function = Map::new();
        for (key, text) in [("name", &call.name), ("arguments", &call.arguments)] {
            if let Some(text) = text {
                function.push(key, text.clone().into());
            }
        }
        let mut out = Map::new();
        if let Some(id) = &call.id {
            out.push("id", id.clone().into());
            out.push("type", "function".into());
        }
        out.push("index", Json::Int(i64::from(call.index)));
        out.push("function", Json::Object(function));
        Json::Object(out)
    };
    if !deltas.calls.is_empty() {
        out.push("tool_calls", Json::Array(deltas.calls.iter().map(call).collect()));
    }
    Json::Object(out)
}
