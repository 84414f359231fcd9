//! From the machine's reports to a message: the rules that hold for whole answers alone.
//!
//! Source: parsers.md §3.3, §3.4, §3.6.

use super::format::{Trim, WholeContent};
use super::ids;
use super::request::{Message, ToolCall};
use super::schema::typed_members;
use super::sink::{Kind, Sink};
use super::stream::Rules;
use crate::error::Result;
use crate::json::{Json, Map, python_dumps, python_dumps_unicode};
use crate::protocol::tools::ToolChoice;

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Whole<'a> {
    rules: Rules<'a>,
    reasoning: String,
    before: String,
    after: String,
    /// All that is not reasoning, where it may have to take the place of the calls.
    raw: String,
    opened: bool,
    called: bool,
    /// A message began since text was added to the reasoning, to the content.
    apart: (bool, bool),
    calls: Vec<Call>,
    in_call: bool,
    /// Something was opened as a call and is none.
    spoilt: bool,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Call {
    name: String,
    id: Option<String>,
    index: u32,
    unknown: bool,
    raw: String,
    members: Map<'static>,
    by_key: bool,
    open: Option<(String, Kind, String)>,
    cut: bool,
    broken: bool,
}

impl<'a> Whole<'a> {
    pub(crate) fn new(rules: Rules<'a>) -> Self {
        Whole {
            rules,
            reasoning: String::new(),
            before: String::new(),
            after: String::new(),
            raw: String::new(),
            opened: false,
            called: false,
            apart: (false, false),
            calls: Vec::new(),
            in_call: false,
            spoilt: false,
        }
    }

    /// All text is the arguments of the tool that the request names: whatever the model wrote.
    fn is_named(&self) -> bool {
        let named = matches!(self.rules.request.tool_choice, ToolChoice::Named(_));
        named && self.rules.format.is_some_and(|format| format.forced_json)
    }

    fn last(&mut self) -> Option<&mut Call> {
        self.calls.last_mut()
    }

    /// The message; `finish_reason` is the engine's.
    pub(crate) fn message(mut self, finish_reason: &dyn Fn(bool) -> String) -> Message {
        let mut calls = std::mem::take(&mut self.calls);
        calls.retain(|call| !call.unknown && !self.rules.ignores_calls);
        let is_spoilt = |call: &Call| call.broken || (!call.cut && Json::parse(&call.raw).is_err());
        let spoilt = !calls.is_empty() && (self.spoilt || calls.iter().any(is_spoilt));
        let all_or_nothing = self.rules.format.is_some_and(|format| format.whole.all_or_nothing);
        let content = if all_or_nothing && spoilt && !self.is_named() {
            calls.clear();
            std::mem::take(&mut self.raw)
        } else {
            self.content(!calls.is_empty())
        };
        if !self.rules.keeps_calls {
            calls.clear();
        }
        if self.rules.request.parallel_tool_calls == Some(false) {
            calls.truncate(1);
        }
        let seed = self.rules.request.id_seed;
        let history = self.rules.request.history_tool_calls;
        let tool_calls: Vec<ToolCall> = (history..)
            .zip(&calls)
            .map(|(number, call)| {
                let made = || ids::make(self.rules.id_style, &call.name, call.index, number, seed);
                let id = call.id.clone().unwrap_or_else(made);
                ToolCall { id, name: call.name.clone(), arguments: self.arguments(call) }
            })
            .collect();
        let trimmed = if self.rules.trims_reasoning { self.reasoning.trim_end() } else { &self.reasoning };
        let mut reasoning = Some(trimmed.to_owned()).filter(|text| !text.is_empty());
        let mut content = Some(content).filter(|text| !text.is_empty());
        if self.rules.reasoning_may_be_content && content.as_ref().is_none_or(|text| text.trim().is_empty()) {
            std::mem::swap(&mut reasoning, &mut content);
        }
        if !self.rules.request.include_reasoning {
            reasoning = None;
        }
        if self.rules.request.forces_calls() && self.rules.keeps_calls {
            content = Some(content.filter(|text| !text.trim().is_empty()).unwrap_or_default());
        }
        Message { reasoning, content, finish_reason: finish_reason(!tool_calls.is_empty()), tool_calls }
    }

    fn content(&self, called: bool) -> String {
        let all = || format!("{}{}", self.before, self.after);
        let Some(rules) = self.rules.format.map(|format| &format.content) else { return all() };
        if !called {
            let text = all();
            let blank = rules.drop_blank && self.opened && text.trim().is_empty();
            return if blank { String::new() } else { text };
        }
        let text = match rules.whole {
            WholeContent::Before => self.before.clone(),
            WholeContent::Around => all(),
            WholeContent::Lines => {
                let sides = [self.before.trim(), self.after.trim()];
                sides.into_iter().filter(|side| !side.is_empty()).collect::<Vec<_>>().join("\n")
            }
            WholeContent::Nothing => return String::new(),
        };
        match rules.trim {
            _ if text.trim().is_empty() => String::new(),
            Trim::No => text,
            Trim::Both => text.trim().to_owned(),
            Trim::FinalNewlines => text.trim_end_matches('\n').to_owned(),
        }
    }

    fn arguments(&self, call: &Call) -> String {
        if call.by_key {
            let lone = call.members.iter().next().filter(|_| call.members.len() == 1);
            let wrapped = lone.filter(|(key, _)| self.rules.may_wrap(&call.name, key));
            let inner = wrapped.and_then(|(_, value)| self.rules.unwrapped(&call.name, value));
            return python_dumps_unicode(&inner.unwrap_or_else(|| Json::Object(call.members.clone())));
        }
        if self.is_named() {
            return call.raw.clone();
        }
        let spelling = self.rules.format.map(|format| format.whole.clone()).unwrap_or_default();
        let raw = call.raw.trim();
        if raw.is_empty() && (spelling.typed || !call.cut) {
            return "{}".to_owned();
        }
        let Some(value) = Json::parse(raw).ok().filter(is_sound).map(Json::into_owned) else { return raw.to_owned() };
        let corrected = match (&value, self.rules.request.properties(&call.name)) {
            (Json::Object(map), Some(properties)) if spelling.typed => {
                Some(Json::Object(typed_members(map.clone(), properties, 0))).filter(|corrected| *corrected != value)
            }
            _ => None,
        };
        match corrected {
            Some(corrected) => python_dumps_unicode(&corrected),
            None if spelling.ascii => python_dumps(&value),
            None if spelling.respelled => python_dumps_unicode(&value),
            None => raw.to_owned(),
        }
    }
}

/// No string in it has lone surrogates, which nothing but the model's own text can spell.
fn is_sound(value: &Json<'_>) -> bool {
    match value {
        Json::BrokenStr(_) => false,
        Json::Array(items) => items.iter().all(is_sound),
        Json::Object(map) => map.iter().all(|(_, value)| is_sound(value)),
        _ => true,
    }
}

impl Sink for Whole<'_> {
    fn reasoning(&mut self, text: &str) {
        if std::mem::take(&mut self.apart.0) && !self.reasoning.is_empty() {
            self.reasoning.push('\n');
        }
        self.reasoning.push_str(text);
    }

    fn reasoning_end(&mut self) {}

    fn content(&mut self, text: &str) {
        let apart = std::mem::take(&mut self.apart.1) && !(self.before.is_empty() && self.after.is_empty());
        let content = if self.called { &mut self.after } else { &mut self.before };
        if apart {
            content.push('\n');
        }
        content.push_str(text);
    }

    fn raw(&mut self, text: &str) {
        if self.rules.format.is_some_and(|format| format.whole.all_or_nothing) {
            self.raw.push_str(text);
        }
    }

    fn opened(&mut self) {
        self.opened = !self.rules.ignores_calls;
    }

    fn message(&mut self) {
        self.apart = (true, true);
    }

    fn call(&mut self, name: &str, id: Option<&str>, by_key: bool) {
        (self.called, self.in_call) = (true, true);
        self.calls.push(Call {
            name: name.to_owned(),
            id: id.map(str::to_owned),
            index: u32::try_from(self.calls.len()).unwrap_or(u32::MAX),
            by_key,
            unknown: name.is_empty() || self.rules.is_unknown(name),
            ..Call::default()
        });
    }

    fn arguments(&mut self, text: &str) -> Result<()> {
        if let Some(call) = self.last() {
            call.raw.push_str(text);
        }
        Ok(())
    }

    fn key(&mut self, key: &str, kind: Kind) -> Result<()> {
        if let Some(call) = self.last() {
            call.open = Some((key.to_owned(), kind, String::new()));
        }
        Ok(())
    }

    fn value(&mut self, text: &str) -> Result<()> {
        if let Some((_, _, value)) = self.last().and_then(|call| call.open.as_mut()) {
            value.push_str(text);
        }
        Ok(())
    }

    fn value_end(&mut self) -> Result<()> {
        let rules = self.rules;
        let Some(call) = self.last() else { return Ok(()) };
        if let Some((key, kind, text)) = call.open.take() {
            let value = rules.value(&call.name, &key, kind, &text);
            call.members.insert(key, value);
        }
        Ok(())
    }

    fn broken(&mut self) {
        match self.calls.last_mut().filter(|_| self.in_call) {
            Some(call) => call.broken = true,
            None => self.spoilt = true,
        }
    }

    fn call_end(&mut self, cut: bool) -> Result<()> {
        self.in_call = false;
        if !cut {
            self.value_end()?;
        }
        if let Some(call) = self.last() {
            call.cut = cut;
        }
        Ok(())
    }
}
