//! Which size a family resizes an image to.
//!
//! Each family's rule is a variant; adding a family is adding one.

use serde::Deserialize;

use super::Size;
use crate::error::{Error, Result};

/// How much longer one side may be than the other.
const MAX_ASPECT: f64 = 200.0;

/// From the size of an image to the size it is resized to.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SizeRule {
    /// Qwen's `smart_resize` (multimodal.md §3.1): sides are multiples of `patch_size * merge_size`, and the area lies
    /// between the two bounds, which are numbers of pixels.
    Smart { patch_size: usize, merge_size: usize, temporal_patch_size: usize, min_pixels: u64, max_pixels: u64 },
}

impl SizeRule {
    /// 400 if the image cannot be brought to a size, or has no pixels.
    pub fn apply(&self, size: Size) -> Result<Size> {
        let SizeRule::Smart { patch_size, merge_size, min_pixels, max_pixels, .. } = *self;
        smart_resize(size, patch_size * merge_size, min_pixels, max_pixels)
    }

    pub(super) fn check(&self) -> Result<()> {
        let SizeRule::Smart { patch_size, merge_size, temporal_patch_size, max_pixels, .. } = *self;
        let plausible = |side: usize| (1..=4096).contains(&side);
        if plausible(patch_size) && plausible(merge_size) && plausible(temporal_patch_size) && max_pixels > 0 {
            return Ok(());
        }
        Err(Error::setup(format!("image processor: sizes out of range in {self:?}")))
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the \
    reference computes in f64; numbers of pixels are far below 2^53"
)]
fn smart_resize(Size { width, height }: Size, factor: usize, min_pixels: u64, max_pixels: u64) -> Result<Size> {
    if width == 0 || height == 0 {
        return Err(Error::bad_request(format!("an image of {width}x{height} pixels has nothing to show")));
    }
    let (wide, high, step) = (width as f64, height as f64, factor as f64);
    let aspect = wide.max(high) / wide.min(high);
    if aspect > MAX_ASPECT {
        return Err(Error::bad_request(format!(
            "an image of {width}x{height} pixels is too narrow: one side is {aspect:.1} times the other, more than \
             {MAX_ASPECT}"
        )));
    }
    let nearest = |side: f64| (side / step).round_ties_even() * step;
    let area = nearest(wide) * nearest(high);
    let (wide, high) = if area > max_pixels as f64 {
        let shrink = (high * wide / max_pixels as f64).sqrt();
        let down = |side: f64| step.max((side / shrink / step).floor() * step);
        (down(wide), down(high))
    } else if area < min_pixels as f64 {
        let grow = (min_pixels as f64 / (high * wide)).sqrt();
        let up = |side: f64| (side * grow / step).ceil() * step;
        (up(wide), up(high))
    } else {
        (nearest(wide), nearest(high))
    };
    if wide < 1.0 || high < 1.0 {
        let message = format!("an image of {width}x{height} pixels is too small: its sides round to nothing");
        return Err(Error::bad_request(message));
    }
    Ok(Size::new(wide as usize, high as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qwen2(width: usize, height: usize) -> Result<Size> {
        let rule = SizeRule::Smart {
            patch_size: 14,
            merge_size: 2,
            temporal_patch_size: 2,
            min_pixels: 3136,
            max_pixels: 12_845_056,
        };
        rule.apply(Size::new(width, height))
    }

    #[test]
    fn sides_round_half_to_even() {
        assert_eq!(qwen2(98, 70), Ok(Size::new(112, 56)));
        assert_eq!(qwen2(7, 5), Ok(Size::new(84, 56)));
        assert_eq!(qwen2(27, 27), Ok(Size::new(56, 56)));
    }

    #[test]
    fn a_side_may_be_two_hundred_times_the_other() {
        assert!(qwen2(200, 1).is_ok());
        let error = qwen2(1, 201).unwrap_err();
        assert_eq!(error.status(), 400);
        assert_eq!(
            error.to_string(),
            "an image of 1x201 pixels is too narrow: one side is 201.0 times the other, more than 200"
        );
    }

    #[test]
    fn nothing_has_no_size() {
        assert_eq!(qwen2(0, 5).unwrap_err().status(), 400);
    }
}
