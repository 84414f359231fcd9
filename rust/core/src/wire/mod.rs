//! Media on the wire: MessagePack items and base64.
//!
//! In: bytes to bytes. Out of scope: the JSON around them, and what the tensors mean.

pub mod base64;
mod decode;
pub mod item;
pub mod msgpack;

pub use item::{Data, Element, Field, Item, Kind, Slice, Slices, Tensor};
