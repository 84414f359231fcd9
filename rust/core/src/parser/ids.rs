//! Ids of tool calls: a keyed hash where the reference draws them, so that a call that is made again keeps its id.

use super::format::Ids;

/// How the ids of calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Random,
    /// `functions.NAME:INDEX`, the index counted over the conversation.
    Functions,
    Nine,
    Call,
    CallIndexed,
}

/// The model types whose templates look for `functions.NAME:INDEX`.
const FUNCTION_IDS: [&str; 3] = ["kimi_k2", "kimi_k25", "kimi_k3"];

pub(crate) fn style(ids: Ids, model_type: Option<&str>) -> Style {
    match ids {
        Ids::Random if model_type.is_some_and(|kind| FUNCTION_IDS.contains(&kind)) => Style::Functions,
        Ids::Random | Ids::AlwaysRandom => Style::Random,
        Ids::Nine => Style::Nine,
        Ids::Call => Style::Call,
        Ids::CallIndexed => Style::CallIndexed,
    }
}

/// The id of the call of this index in the answer; `number` counts the calls that were given one, with the history.
pub(crate) fn make(style: Style, name: &str, index: u32, number: u32, seed: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("fastrender 2026 tool call id");
    hasher.update(seed);
    hasher.update(&index.to_le_bytes());
    let hash = hasher.finalize();
    let hex = &hash.to_hex()[..16];
    match style {
        Style::Random => format!("chatcmpl-tool-{hex}"),
        Style::Functions => format!("functions.{name}:{number}"),
        Style::Nine => {
            const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
            hash.as_bytes()[..9].iter().map(|byte| char::from(LETTERS[usize::from(*byte) % 62])).collect()
        }
        Style::Call => format!("call_{hex}"),
        Style::CallIndexed => format!("call_{index}_{hex}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_from_the_seed() {
        let id = |style, seed| make(style, "now", 1, 3, seed);
        assert_eq!(id(Style::Random, b"a"), id(Style::Random, b"a"));
        assert_ne!(id(Style::Random, b"a"), id(Style::Random, b"b"));
        assert_eq!(id(Style::Functions, b"a"), "functions.now:3");
        assert_eq!(id(Style::Nine, b"a").len(), 9);
        assert!(id(Style::CallIndexed, b"a").starts_with("call_1_"));
        assert_eq!(id(Style::Random, b"a").len(), "chatcmpl-tool-".len() + 16);
    }

    #[test]
    fn the_model_type_decides_only_where_the_format_does_not() {
        assert_eq!(style(Ids::Random, Some("kimi_k2")), Style::Functions);
        assert_eq!(style(Ids::AlwaysRandom, Some("kimi_k2")), Style::Random);
        assert_eq!(style(Ids::Random, Some("qwen3")), Style::Random);
    }
}
