//! Placeholders: the places of media in a prompt, found in its text and expanded in its ids.
//!
//! A slot is a placeholder that the template made. A token of the same spelling that a client typed is none: it stays
//! where it is, and no medium ever binds to it. (vLLM cannot tell them apart.)

use std::borrow::Cow;

use crate::json::{Json, Map};

/// Where a medium's tokens are in the expanded ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceholderRange {
    /// In tokens from the start of the prompt.
    pub offset: usize,
    /// In tokens.
    pub length: usize,
}

/// Put each replacement in the place of one id. `slots` are places in `ids`, ascending, with their replacements.
pub fn expand(ids: &[u32], slots: &[(usize, &[u32])]) -> (Vec<u32>, Vec<PlaceholderRange>) {
    let added: usize = slots.iter().map(|(_, replacement)| replacement.len()).sum();
    let mut expanded = Vec::with_capacity(ids.len() + added);
    let mut ranges = Vec::with_capacity(slots.len());
    let mut copied = 0;
    for (slot, replacement) in slots {
        expanded.extend_from_slice(&ids[copied..*slot]);
        ranges.push(PlaceholderRange { offset: expanded.len(), length: replacement.len() });
        expanded.extend_from_slice(replacement);
        copied = slot + 1;
    }
    expanded.extend_from_slice(&ids[copied..]);
    (expanded, ranges)
}

/// Stands in for placeholders that a client typed, while the template runs.
#[derive(Debug)]
pub struct TypedPlaceholders<'t> {
    target: &'t str,
    /// What each typed one is spelled as meanwhile; nothing when none was typed.
    stand_in: Option<String>,
}

impl<'t> TypedPlaceholders<'t> {
    /// Replace the placeholder `target` in these fields of a request.
    pub fn hide(target: &'t str, body: &mut Map<'_>, fields: &[&str]) -> Self {
        let found = |text: &str| fields.iter().filter_map(|field| body.get(field)).any(|value| value.mentions(text));
        if !found(target) {
            return Self { target, stand_in: None };
        }
        // Letters and digits pass through templates, their filters and JSON unharmed.
        let stand_in = (0..u64::MAX)
            .map(|number| format!("TypedPlaceholder{number}x"))
            .find(|candidate| !found(candidate))
            .expect("some number is not in the texts");
        for field in fields {
            if let Some(value) = body.get_mut(field) {
                replace(value, target, &stand_in);
            }
        }
        Self { target, stand_in: Some(stand_in) }
    }

    /// Whether none was typed.
    pub fn is_empty(&self) -> bool {
        self.stand_in.is_none()
    }

    /// The text as it would have been, and for each placeholder in it whether the template made it.
    pub fn reveal(&self, text: String) -> (String, Vec<bool>) {
        let Some(stand_in) = &self.stand_in else {
            let made = vec![true; text.matches(self.target).count()];
            return (text, made);
        };
        let mut made = Vec::new();
        let mut revealed = String::with_capacity(text.len());
        for (i, piece) in text.split(stand_in.as_str()).enumerate() {
            if i > 0 {
                made.push(false);
                revealed.push_str(self.target);
            }
            made.extend(std::iter::repeat_n(true, piece.matches(self.target).count()));
            revealed.push_str(piece);
        }
        (revealed, made)
    }
}

fn replace(value: &mut Json<'_>, from: &str, to: &str) {
    match value {
        Json::Str(text) | Json::BrokenStr(text) if text.contains(from) => {
            *text = Cow::Owned(text.replace(from, to));
        }
        Json::Array(items) => items.iter_mut().for_each(|item| replace(item, from, to)),
        Json::Object(map) => {
            let entries = std::mem::take(map).into_iter().map(|(key, mut value)| {
                replace(&mut value, from, to);
                (if key.contains(from) { Cow::Owned(key.replace(from, to)) } else { key }, value)
            });
            *map = entries.collect::<Map<'_>>();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_expanded_in_place() {
        let (ids, ranges) = expand(&[1, 9, 2, 9, 9], &[(1, &[7, 7]), (4, &[8, 8, 8])]);
        assert_eq!(ids, [1, 7, 7, 2, 9, 8, 8, 8]);
        let range = |offset, length| PlaceholderRange { offset, length };
        assert_eq!(ranges, [range(1, 2), range(5, 3)]);
        assert_eq!(expand(&[1, 2], &[]).0, [1, 2]);
    }

    #[test]
    fn typed_placeholders_are_told_from_made_ones() {
        let body = r#"{"a": ["<p> and <p>", {"<p>": "TypedPlaceholder0x"}], "b": "<p>"}"#;
        let Json::Object(mut body) = Json::parse(body).unwrap() else { panic!("no object") };
        let typed = TypedPlaceholders::hide("<p>", &mut body, &["a"]);
        assert!(!body.get("a").unwrap().mentions("<p>"));
        assert_eq!(body.get("b"), Some(&Json::from("<p>")));
        let text = body.get("a").unwrap().as_array().unwrap()[0].as_str().unwrap();
        let (revealed, made) = typed.reveal(format!("<p>{text}<p>"));
        assert_eq!(revealed, "<p><p> and <p><p>");
        assert_eq!(made, [true, false, false, true]);
    }

    #[test]
    fn without_typed_ones_all_are_made() {
        let Json::Object(mut body) = Json::parse(r#"{"a": "text"}"#).unwrap() else { panic!("no object") };
        let typed = TypedPlaceholders::hide("<p>", &mut body, &["a", "b"]);
        assert!(typed.is_empty());
        assert_eq!(typed.reveal("x<p>y<p>".to_owned()), ("x<p>y<p>".to_owned(), vec![true, true]));
    }
}
