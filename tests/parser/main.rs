//! Reasoning, content and tool calls in models' answers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod formats;
mod known_bugs;
mod properties;
mod reasoning;
mod review;
mod structural_tags;
mod support;
mod writers;
