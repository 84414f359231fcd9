//! The markers of each phase, from the formats and from what the request leaves of them.

use super::format::{Body, Opens, ToolFormat};
use super::reasoning_format::ReasoningFormat;
use super::scan::{MarkerSet, Role};
use super::state::{Phase, Tools};

/// What of the formats is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) reasoning: bool,
    pub(crate) tools: Tools,
    pub(crate) whole: bool,
}

impl Variant {
    pub(crate) const COUNT: usize = 16;

    pub(crate) fn all() -> impl Iterator<Item = Variant> {
        (0..Self::COUNT).map(|number| Variant {
            reasoning: number & 1 != 0,
            whole: number & 2 != 0,
            tools: [Tools::Off, Tools::Native, Tools::Required, Tools::Named][number >> 2],
        })
    }

    pub(crate) fn number(self) -> usize {
        let tools = match self.tools {
            Tools::Off => 0,
            Tools::Native => 1,
            Tools::Required => 2,
            Tools::Named => 3,
        };
        usize::from(self.reasoning) | usize::from(self.whole) << 1 | tools << 2
    }
}

/// The sets of markers of one variant.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Grammar {
    reasoning: MarkerSet,
    content: MarkerSet,
    preamble: MarkerSet,
    name: MarkerSet,
    arguments: MarkerSet,
    between: MarkerSet,
    key: MarkerSet,
    value_open: MarkerSet,
    value: MarkerSet,
    trailer: MarkerSet,
    pub(crate) harmony: MarkerSet,
    /// A call opens only where nothing but blanks came before.
    pub(crate) opens_at_start: bool,
    /// The same for a call that opens by itself.
    pub(crate) bare_at_start: bool,
    /// … which it does only where `tool_choice` forces one.
    pub(crate) bare_needs_force: bool,
    /// Nothing goes out before the end.
    pub(crate) held: bool,
}

/// The answers are messages of gpt-oss.
pub(crate) fn is_harmony(tools: Option<&ToolFormat>, reasoning: Option<&ReasoningFormat>) -> bool {
    let body = tools.is_some_and(|format| matches!(format.body, Body::Harmony));
    body || reasoning.is_some_and(|format| format.harmony)
}

struct Builder<'a> {
    has_token: &'a dyn Fn(&str) -> bool,
    role: Vec<(&'a str, Role)>,
}

impl<'a> Builder<'a> {
    fn set(&self, groups: &[(&'a [String], Role)]) -> MarkerSet {
        let mut set = MarkerSet::default();
        for (texts, role) in groups {
            texts.iter().for_each(|text| set.add(text, *role, (self.has_token)(text)));
        }
        set
    }

    /// Markers that mean what they mean elsewhere in the format.
    fn add_known(&self, set: &mut MarkerSet, texts: &'a [String]) {
        for text in texts {
            if let Some((_, role)) = self.role.iter().find(|(known, _)| known == text) {
                set.add(text, *role, (self.has_token)(text));
            }
        }
    }
}

impl Grammar {
    pub(crate) fn new(
        variant: Variant,
        tools: Option<&ToolFormat>,
        reasoning: Option<&ReasoningFormat>,
        reference_streams: bool,
        has_token: &dyn Fn(&str) -> bool,
    ) -> Self {
        let builder = Builder { has_token, role: Vec::new() };
        let mut grammar = Grammar::default();
        if is_harmony(tools, reasoning) {
            grammar.harmony = super::body::harmony_markers(has_token);
        }
        if let Some(format) = reasoning {
            let swallows =
                variant.tools == Tools::Native && tools.is_some_and(|format| format.content.swallow_thinking);
            grammar.add_reasoning(variant, format, swallows, &builder);
        }
        match (variant.tools, tools) {
            (Tools::Native, Some(format)) => grammar.add_tools(variant, format, reference_streams, builder),
            (Tools::Required, _) => {
                grammar.content.add("[", Role::Bare, false);
                grammar.bare_at_start = true;
            }
            _ => {}
        }
        grammar
    }

    /// `swallows`: closers in content are no text although reasoning is off.
    fn add_reasoning(&mut self, variant: Variant, format: &ReasoningFormat, swallows: bool, builder: &Builder<'_>) {
        if variant.reasoning {
            self.reasoning = builder.set(&[
                (&format.close, Role::ThinkClose),
                (&format.open, Role::ThinkOpen),
                (&format.ended_by, Role::CallOpen),
            ]);
            if format.reopens || !format.starts_open {
                format.open.iter().for_each(|text| self.content.add(text, Role::ThinkOpen, (builder.has_token)(text)));
            }
        }
        let swallowed = if (variant.reasoning || swallows) && format.swallow_close { &format.close[..] } else { &[] };
        let tags = if variant.reasoning { &format.content_tags[..] } else { &[] };
        for text in swallowed.iter().chain(tags) {
            self.content.add(text, Role::Swallow, (builder.has_token)(text));
        }
    }

    fn add_tools<'a>(
        &mut self,
        variant: Variant,
        format: &'a ToolFormat,
        reference_streams: bool,
        mut builder: Builder<'a>,
    ) {
        self.opens_at_start = match format.opens {
            Opens::AtStart => true,
            Opens::AtStartOfStream => !variant.whole,
            Opens::Anywhere | Opens::HeldInStream => false,
        };
        self.bare_at_start = self.opens_at_start;
        self.held = format.opens == Opens::HeldInStream && !variant.whole && reference_streams;
        let openers = [(&format.section.open[..], Role::SectionOpen), (&format.call.open[..], Role::CallOpen)];
        let closers = [(&format.section.close[..], Role::SectionClose), (&format.call.close[..], Role::CallClose)];
        let [section_close, call_close] = closers;
        let [section_open, call_open] = openers;
        for (texts, role) in openers.into_iter().chain([(&format.content.swallow[..], Role::Swallow)]) {
            for text in texts {
                self.content.add(text, role, (builder.has_token)(text));
            }
        }
        self.preamble = builder.set(&[call_open, section_close, section_open]);
        self.trailer = builder.set(&[call_close, call_open, section_close, section_open]);
        match &format.body {
            Body::Json { list, bare, bare_at_start, bare_when_forced, restart, .. } => {
                self.bare_needs_force = *bare_when_forced && !*bare;
                self.bare_at_start |= *bare_at_start || self.bare_needs_force;
                if *bare || *bare_when_forced {
                    self.content.add(if *list { "[" } else { "{" }, Role::Bare, false);
                }
                for text in restart {
                    self.content.add(text, Role::Restart, (builder.has_token)(text));
                }
            }
            Body::Header { before_name, name_end, brace_ends_name, .. } => {
                let before = before_name.as_slice();
                self.name =
                    builder.set(&[(name_end, Role::NameEnd), (before, Role::BeforeName), call_close, section_close]);
                if *brace_ends_name {
                    self.name.add("{", Role::NameEnd, false);
                }
                self.arguments = builder.set(&[call_close, section_close, call_open]);
            }
            Body::Tagged {
                name_end,
                name_ends_at_key,
                key_open,
                key_end,
                value_open,
                value_close,
                value_ends_at,
                ..
            } => {
                let key_open = (&key_open[..], Role::KeyOpen);
                let call = [call_close, section_close, call_open, section_open];
                self.name = builder.set(&[&[(&name_end[..], Role::NameEnd)], &call[..]].concat());
                if *name_ends_at_key {
                    key_open.0.iter().for_each(|text| self.name.add(text, Role::KeyOpen, (builder.has_token)(text)));
                }
                let between = [&[key_open], &call[..]].concat();
                self.between = builder.set(&between);
                let broken = (&value_close[..], Role::ValueClose);
                self.key = builder.set(&[&[(&key_end[..], Role::KeyEnd), broken], &between[..]].concat());
                self.value_open = builder.set(&[&[(&value_open[..], Role::ValueOpen), broken], &between[..]].concat());
                self.value = builder.set(&[broken]);
                builder.role =
                    between.iter().flat_map(|(texts, role)| texts.iter().map(|text| (text.as_str(), *role))).collect();
                builder.add_known(&mut self.value, value_ends_at);
            }
            Body::Python { bare, .. } => {
                if *bare {
                    self.content.add("[", Role::Bare, false);
                }
            }
            Body::Literal { .. } | Body::Harmony => {}
        }
    }

    /// The markers that count in a phase of running text.
    pub(crate) fn set(&self, phase: Phase) -> Option<&MarkerSet> {
        match phase {
            Phase::Reasoning => Some(&self.reasoning),
            Phase::Content => Some(&self.content),
            Phase::Preamble => Some(&self.preamble),
            Phase::Name => Some(&self.name),
            Phase::Arguments => Some(&self.arguments),
            Phase::Between => Some(&self.between),
            Phase::Key => Some(&self.key),
            Phase::ValueOpen => Some(&self.value_open),
            Phase::Value => Some(&self.value),
            // A closer by token ends these whatever they hold.
            Phase::Trailer
            | Phase::List
            | Phase::Object
            | Phase::AfterBare
            | Phase::Python
            | Phase::Literal
            | Phase::Echo => Some(&self.trailer),
            Phase::Harmony | Phase::Named | Phase::Held => None,
        }
    }
}
