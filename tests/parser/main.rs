//! Reasoning, content and tool calls in models' answers.

mod formats;
mod known_bugs;
mod properties;
mod structural_tags;
mod support;
