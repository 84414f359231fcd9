//! Answers of models: what of their text is reasoning, content, and tool calls.
//!
//! One incremental machine for all formats, which are data (`formats/`). A whole answer is one push and a finish of it.
//! In: pieces of text and added tokens, as the detokenizer hands them over. Out: deltas or a message. Decoding, stop
//! strings and the wire are elsewhere.

mod adjust;
pub mod auto;
mod body;
pub mod cases;
mod engine;
mod format;
mod formats;
mod grammar;
mod ids;
mod machine;
mod reasoning;
mod reasoning_format;
mod request;
mod scan;
mod schema;
mod sink;
mod state;
mod stream;
mod structural_tag;
mod unescape;
mod whole;

pub use adjust::Adjustment;
pub use engine::{DEFAULT_VALUE_LIMIT, Parser, ParserOptions};
pub use format::ToolFormat;
pub use reasoning_format::ReasoningFormat;
pub use request::{CallDelta, Deltas, Message, ParseRequest, Piece, Tool, ToolCall};
pub use state::State;
pub use structural_tag::{Constraint, Requested, StrictLevel};
