//! What the machine reports, one thing after the other. Two things listen: `Stream` makes deltas of it and `Whole` a
//! message; the batch-only rules of the reference are in the latter.

use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Parameters of one call.
pub(crate) const MAX_KEYS: usize = 4096;

/// What a parameter's value is, as the format writes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Text, which the schema may make another type of.
    #[default]
    Text,
    /// JSON or else text; the schema has the last word.
    Json,
    /// A string, whatever the schema says.
    ExactText,
    /// JSON, whatever the schema says.
    ExactJson,
}

/// A listener to one answer. Text comes in parts of any size.
pub(crate) trait Sink {
    fn reasoning(&mut self, text: &str);
    /// Reasoning is over, for now.
    fn reasoning_end(&mut self);
    fn content(&mut self, text: &str);
    /// All text behind the reasoning, as the model wrote it.
    fn raw(&mut self, text: &str);
    /// The opener of a call or of a section of calls was seen.
    fn opened(&mut self);
    /// A message of several begins: what follows stands apart in a whole text.
    fn message(&mut self);
    /// A call begins; its arguments come by key, or as the model writes them.
    fn call(&mut self, name: &str, id: Option<&str>, by_key: bool);
    /// Arguments as the model writes them.
    fn arguments(&mut self, text: &str) -> Result<()>;
    fn key(&mut self, key: &str, kind: Kind) -> Result<()>;
    fn value(&mut self, text: &str) -> Result<()>;
    fn value_end(&mut self) -> Result<()>;
    /// The open call, or what should have been one, goes on otherwise than a call can.
    fn broken(&mut self);
    /// The call is over; or, cut off, it never will be.
    fn call_end(&mut self, cut: bool) -> Result<()>;
}
