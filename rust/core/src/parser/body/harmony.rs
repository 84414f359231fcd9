//! Messages of gpt-oss: a header whose channel and recipient say what the text behind it is.

use crate::error::Result;
use crate::parser::machine::{MAX_NAME_BYTES, Machine};
use crate::parser::scan::{Found, MarkerSet, Role};
use crate::parser::state::{HarmonyAt, HarmonyKind, HarmonyState, Phase, Tools};

const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
const CONSTRAIN: &str = "<|constrain|>";
const MESSAGE: &str = "<|message|>";
const ENDS: [&str; 3] = ["<|end|>", "<|return|>", "<|call|>"];

/// The markers as text, for tokenizers that have no tokens for them.
pub(in crate::parser) fn markers(has_token: &dyn Fn(&str) -> bool) -> MarkerSet {
    let mut set = MarkerSet::default();
    for text in [START, CHANNEL, CONSTRAIN, MESSAGE].into_iter().chain(ENDS) {
        set.add(text, Role::Swallow, has_token(text));
    }
    set
}

impl Machine<'_> {
    pub(in crate::parser) fn harmony_token(&mut self, text: &str, special: bool) -> Result<()> {
        let marker = self.grammar.harmony.role(text).is_some();
        let held = std::mem::take(&mut self.state.held);
        self.run(&held, true)?;
        match (marker, special) {
            (true, _) => self.harmony_marker(text),
            (false, true) => Ok(()),
            (false, false) => self.harmony_plain(text),
        }
    }

    pub(in crate::parser) fn harmony(&mut self, text: &str, last: bool) -> Result<Option<usize>> {
        match self.grammar.harmony.find(text, last) {
            Found::Marker { start: 0, end, .. } => self.harmony_marker(&text[..end]).map(|()| Some(end)),
            Found::Marker { start, .. } => self.harmony_plain(&text[..start]).map(|()| Some(start)),
            Found::Plain(0) => Ok(None),
            Found::Plain(end) => self.harmony_plain(&text[..end]).map(|()| Some(end)),
        }
    }

    fn harmony_marker(&mut self, text: &str) -> Result<()> {
        match text {
            START => {
                self.end_harmony_message()?;
                self.state.harmony = HarmonyState { started: true, ..HarmonyState::default() };
            }
            CHANNEL if self.state.harmony.at == HarmonyAt::Header => self.state.harmony.part = 1,
            CONSTRAIN if self.state.harmony.at == HarmonyAt::Header => self.state.harmony.part = 2,
            MESSAGE if self.state.harmony.at == HarmonyAt::Header => self.begin_harmony_message(),
            _ if ENDS.contains(&text) => {
                self.end_harmony_message()?;
                self.state.harmony = HarmonyState { at: HarmonyAt::Outside, started: true, ..HarmonyState::default() };
            }
            // Out of place, and no text.
            _ => {}
        }
        Ok(())
    }

    fn harmony_plain(&mut self, text: &str) -> Result<()> {
        let harmony = &mut self.state.harmony;
        match harmony.at {
            HarmonyAt::Outside => {}
            HarmonyAt::Header => {
                let part = match harmony.part {
                    0 => &mut harmony.role,
                    1 => &mut harmony.channel,
                    _ => harmony.constrain.get_or_insert_default(),
                };
                part.push_str(text);
                if part.len() > MAX_NAME_BYTES {
                    // No header is so long: it is text that lacks one.
                    let text = std::mem::take(part);
                    *harmony =
                        HarmonyState { at: HarmonyAt::Text, kind: HarmonyKind::Content, ..HarmonyState::default() };
                    self.content(&text);
                }
            }
            HarmonyAt::Text => match harmony.kind {
                HarmonyKind::Ignored => {}
                HarmonyKind::Reasoning => self.sink.reasoning(text),
                HarmonyKind::Content => self.content(text),
                HarmonyKind::Call => self.sink.arguments(text)?,
            },
        }
        Ok(())
    }

    /// The header is complete: what it announces.
    fn begin_harmony_message(&mut self) {
        let harmony = &self.state.harmony;
        let recipient = recipient(&harmony.channel).or_else(|| recipient(&harmony.role)).map(str::to_owned);
        let channel = harmony.channel.split_whitespace().next().unwrap_or_default();
        let function = recipient.as_deref().and_then(|recipient| recipient.strip_prefix("functions."));
        let kind = match (channel, function) {
            (_, Some(_)) if self.state.tools == Tools::Off => HarmonyKind::Ignored,
            (_, Some(_)) => HarmonyKind::Call,
            ("analysis", None) if self.reasoning.is_some() => HarmonyKind::Reasoning,
            ("final", None) => HarmonyKind::Content,
            ("commentary", None) if recipient.is_none() => HarmonyKind::Content,
            _ => HarmonyKind::Ignored,
        };
        let name = function.map(str::to_owned);
        self.state.harmony = HarmonyState { at: HarmonyAt::Text, kind, ..HarmonyState::default() };
        self.sink.message();
        if let Some(name) = name.filter(|_| kind == HarmonyKind::Call) {
            self.begin_call(&name, None, false);
        }
    }

    fn end_harmony_message(&mut self) -> Result<()> {
        if self.state.harmony.kind == HarmonyKind::Reasoning {
            self.sink.reasoning_end();
        }
        self.end_call(false)
    }

    /// A text without any header is the answer; the beginning of a header is markup.
    pub(in crate::parser) fn finish_harmony(&mut self) {
        let harmony = std::mem::take(&mut self.state.harmony);
        let headerless = harmony.at == HarmonyAt::Header && harmony.part == 0 && !harmony.started;
        if headerless {
            self.content(&harmony.role);
        }
        self.state.phase = Phase::Harmony;
    }
}

/// Whom a header is addressed to.
fn recipient(part: &str) -> Option<&str> {
    let at = part.find("to=").filter(|at| *at == 0 || part.as_bytes()[at - 1].is_ascii_whitespace())?;
    part[at + 3..].split_whitespace().next()
}
