//! Structural tags (filled in below).
use serde::Deserialize;

/// How a format's calls are written down for xgrammar.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TagTemplate {}
