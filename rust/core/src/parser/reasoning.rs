//! Reasoning: whether it is on, whether the answer begins in it, and its text.

use super::machine::Machine;
use super::reasoning_format::{PromptRule, ReasoningFormat};
use super::request::ParseRequest;
use super::scan::Role;
use super::state::Phase;
use crate::error::Result;
use crate::json::Json;

/// The ids of a reasoning format's markers, as far as the tokenizer has them.
#[derive(Debug, Clone, Default)]
pub(crate) struct MarkerIds {
    open: Vec<u32>,
    /// Closers, and what else ends reasoning.
    end: Vec<u32>,
    boundaries: Vec<u32>,
}

impl MarkerIds {
    pub(crate) fn new(format: &ReasoningFormat, id: &dyn Fn(&str) -> Option<u32>) -> Self {
        let ids = |texts: &[String]| texts.iter().filter_map(|text| id(text)).collect::<Vec<_>>();
        let end = [ids(&format.close), ids(&format.ended_by)].concat();
        MarkerIds { open: ids(&format.open), end, boundaries: ids(&format.boundaries) }
    }
}

/// The request's template variables leave reasoning on.
pub(crate) fn is_on(format: &ReasoningFormat, request: &ParseRequest<'_>) -> bool {
    let Some(switch) = &format.switch else { return true };
    let value = |key: &str| request.chat_template_kwargs.and_then(|kwargs| kwargs.present(key));
    let given: Vec<&Json<'_>> = switch.keys.iter().filter_map(|key| value(key)).collect();
    let on = if given.is_empty() { switch.default } else { given.iter().any(|value| value.truthy()) };
    on && !(switch.effort_none && value("reasoning_effort").and_then(Json::as_str) == Some("none"))
}

/// The prompt shows that reasoning is over before the answer begins.
pub(crate) fn ended_in_prompt(format: &ReasoningFormat, ids: &MarkerIds, prompt: &[u32]) -> bool {
    match format.prompt {
        PromptRule::Ignored | PromptRule::Untold => false,
        PromptRule::AnyClose => prompt.iter().any(|id| ids.end.contains(id)),
        PromptRule::LastMarker | PromptRule::OpenTail => {
            let marker = |id: &&u32| ids.end.contains(id) || ids.open.contains(id) || ids.boundaries.contains(id);
            prompt.iter().rev().find(marker).is_some_and(|id| ids.end.contains(id))
        }
    }
}

/// The prompt ends in reasoning that it opened itself.
pub(crate) fn open_in_prompt(format: &ReasoningFormat, ids: &MarkerIds, prompt: &[u32]) -> bool {
    let marker = |id: &&u32| ids.end.contains(id) || ids.open.contains(id) || ids.boundaries.contains(id);
    let last = prompt.iter().rev().find(marker);
    format.prompt == PromptRule::OpenTail && last.is_some_and(|id| ids.open.contains(id))
}

impl Machine<'_> {
    /// What is due before the answer's first text; false if more of it must be seen.
    pub(super) fn first_text(&mut self, text: &str, last: bool) -> bool {
        let Some(format) = self.reasoning else {
            self.state.untouched = false;
            return true;
        };
        if let Some(start) =
            format.unmarked_start.as_ref().filter(|_| self.state.reasoning && self.state.phase == Phase::Content)
        {
            if text.starts_with(start.as_str()) {
                self.state.phase = Phase::Reasoning;
            } else if !last && start.starts_with(text) {
                return false;
            }
        }
        self.state.untouched = false;
        if let Some(prefix) = &format.content_prefix {
            self.sink.content(prefix);
        }
        true
    }

    pub(super) fn reasoning_text(&mut self, text: &str) {
        let prefix = self.reasoning.and_then(|format| format.prefix.as_deref()).unwrap_or_default();
        if self.state.prefix_done || prefix.is_empty() {
            self.sink.reasoning(text);
            return;
        }
        let seen = usize::try_from(self.state.prefix).unwrap_or(0).min(prefix.len());
        let due = &prefix.as_bytes()[seen..];
        let same = due.iter().zip(text.as_bytes()).take_while(|(a, b)| a == b).count();
        if same == text.len() && same < due.len() {
            self.state.prefix = u32::try_from(seen + same).unwrap_or(u32::MAX);
            return;
        }
        self.state.prefix_done = true;
        if same == due.len() {
            self.sink.reasoning(&text[same..]);
        } else {
            self.sink.reasoning(prefix.get(..seen).unwrap_or_default());
            self.sink.reasoning(text);
        }
    }

    /// Reasoning ends within its prefix: the bare word is no reasoning either.
    pub(super) fn finish_prefix(&mut self) {
        let prefix = self.reasoning.and_then(|format| format.prefix.as_deref()).unwrap_or_default();
        let seen = usize::try_from(self.state.prefix).unwrap_or(0);
        if seen > 0 && seen < prefix.trim_end().len() {
            self.sink.reasoning(prefix.get(..seen).unwrap_or_default());
        }
        self.state.prefix_done = true;
    }

    pub(super) fn reasoning_marker(&mut self, role: Role, text: &str) -> Result<()> {
        if role == Role::ThinkOpen {
            return Ok(());
        }
        if !self.state.prefix_done {
            self.finish_prefix();
        }
        self.sink.reasoning_end();
        self.state.reasoned = true;
        self.state.phase = self.content_phase();
        if role == Role::ThinkClose {
            return Ok(());
        }
        // What ends it is the beginning of something else.
        match self.grammar.set(self.state.phase).and_then(|set| set.role(text)) {
            Some(role) => {
                self.content_marker(role, text);
                Ok(())
            }
            None => self.text_of_content(text),
        }
    }

    /// The phase of text that is not reasoning.
    pub(super) fn content_phase(&self) -> Phase {
        use super::state::Tools;
        match self.state.tools {
            Tools::Named => Phase::Named,
            _ if self.grammar.held => Phase::Held,
            _ => Phase::Content,
        }
    }

    fn text_of_content(&mut self, text: &str) -> Result<()> {
        match self.state.phase {
            Phase::Named => self.named(text).map(drop),
            Phase::Content => {
                self.content(text);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
