//! Special tokens around a text, and the bound on its length.

use serde_json::Value;

use super::{Truncation, TruncationSide};

/// What a post-processor puts around the model's ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub before: Vec<u32>,
    pub after: Vec<u32>,
    /// Whether offsets lose the white space at their ends, which is left to `tokenizers`.
    pub trims_offsets: bool,
}

impl Frame {
    /// Read `post_processor` of tokenizer.json; the reason if it is an unknown one.
    pub(super) fn new(config: &Value) -> Result<Self, String> {
        let steps = match config["type"].as_str() {
            Some("Sequence") => config["processors"].as_array().map_or(&[][..], Vec::as_slice),
            Some(_) => std::slice::from_ref(config),
            None if config.is_null() => &[],
            None => return Err("the post-processor has no type".to_owned()),
        };
        let mut frame = Self::default();
        let mut templates = 0;
        for step in steps {
            match step["type"].as_str() {
                Some("ByteLevel") => frame.trims_offsets |= step["trim_offsets"] != false,
                Some("TemplateProcessing") if templates == 0 => {
                    templates += 1;
                    (frame.before, frame.after) =
                        template(step).ok_or("the template of the post-processor is not a known one")?;
                }
                _ => return Err("the post-processor is not a known one".to_owned()),
            }
        }
        Ok(frame)
    }

    /// Ids that [`Self::close`] adds.
    pub(super) fn len(&self) -> usize {
        self.before.len() + self.after.len()
    }
}

/// Ids before and after the text in a template for one text.
fn template(step: &Value) -> Option<(Vec<u32>, Vec<u32>)> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut is_behind = false;
    for piece in step["single"].as_array()? {
        if let Some(special) = piece.get("SpecialToken") {
            let ids = step["special_tokens"][special["id"].as_str()?]["ids"].as_array()?;
            let side = if is_behind { &mut after } else { &mut before };
            for id in ids {
                side.push(u32::try_from(id.as_u64()?).ok()?);
            }
        } else if piece["Sequence"]["id"] == "A" && !is_behind {
            is_behind = true;
        } else {
            return None;
        }
    }
    is_behind.then_some((before, after))
}

/// What of `length` ids a bound keeps, when `added` more will be put around them. A bound below `added` keeps all:
/// `tokenizers` computes the room without looking for an underflow, and its answers are what is compared with.
pub(super) fn kept(length: usize, added: usize, truncation: Option<Truncation>) -> std::ops::Range<usize> {
    let Some(Truncation { max_length, side }) = truncation else {
        return 0..length;
    };
    let room = max_length.wrapping_sub(added).min(length);
    match side {
        TruncationSide::Left => length - room..length,
        TruncationSide::Right => 0..room,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_template_frames_the_text() {
        let config = json!({"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
            {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": "</s>", "type_id": 0}}],
             "pair": [],
             "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]},
                                "</s>": {"id": "</s>", "ids": [2, 3], "tokens": ["</s>", "."]}}},
        ]});
        assert_eq!(Frame::new(&config), Ok(Frame { before: vec![1], after: vec![2, 3], trims_offsets: false }));
        assert_eq!(Frame::new(&Value::Null), Ok(Frame::default()));
        assert!(Frame::new(&json!({"type": "RobertaProcessing"})).is_err());
    }

    #[test]
    fn a_bound_counts_what_is_put_around() {
        let bound = |max_length, side| Some(Truncation { max_length, side });
        assert_eq!(kept(5, 1, bound(3, TruncationSide::Left)), 3..5);
        assert_eq!(kept(5, 1, bound(3, TruncationSide::Right)), 0..2);
        assert_eq!(kept(5, 1, bound(1, TruncationSide::Right)), 0..0);
        assert_eq!(kept(5, 1, bound(0, TruncationSide::Left)), 0..5);
        assert_eq!(kept(5, 0, bound(9, TruncationSide::Left)), 0..5);
    }
}
