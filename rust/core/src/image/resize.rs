//! Resizing, bit-exact with torch and with Pillow, a strip of rows at a time.
//!
//! A strip is small enough to stay in the cache between the two passes and whatever reads it next.

use std::collections::VecDeque;
use std::sync::Arc;

use super::kernel::{Kernel, Packed, ROWS};
use super::weights::{Filter, Flavour, Weights};
use super::{Rgb, Size};

/// Axes whose weights a resizer keeps.
const KEPT_AXES: usize = 16;

/// Rows of a strip where the caller has no wish of its own.
const STRIP: usize = 16;

type AxisKey = (usize, usize, Filter, Flavour);

/// Buffers and weights that resizes share, one after another. Some hundred kilobytes, whatever the images' height.
#[derive(Debug)]
pub struct Resizer {
    kernel: Kernel,
    weights: VecDeque<(AxisKey, Arc<Weights>)>,
    scratch: Scratch,
}

#[derive(Debug, Default)]
struct Scratch {
    /// The result, `STRIP` rows or as many as the caller asked for.
    strip: Vec<u8>,
    /// What the first pass made.
    between: Vec<u8>,
    /// Copies of rows at the end of the image, where loads would reach beyond it.
    padded: Vec<u8>,
}

impl Default for Resizer {
    fn default() -> Self {
        Self::new()
    }
}

/// Resize an image: `to.height * to.width * 3` bytes.
pub fn resize(image: Rgb<'_>, to: Size, filter: Filter, flavour: Flavour) -> Vec<u8> {
    Resizer::new().resize(image, to, filter, flavour)
}

impl Resizer {
    pub fn new() -> Self {
        Self { kernel: Kernel::new(), weights: VecDeque::new(), scratch: Scratch::default() }
    }

    /// Resize an image: `to.height * to.width * 3` bytes.
    pub fn resize(&mut self, image: Rgb<'_>, to: Size, filter: Filter, flavour: Flavour) -> Vec<u8> {
        let mut out = Vec::with_capacity(to.width * to.height * 3);
        self.strips(image, to, (filter, flavour), STRIP, |strip| out.extend_from_slice(strip));
        out
    }

    /// Resize an image and hand it over in strips of `rows` rows of `to.width * 3` bytes; the last may have fewer.
    pub(crate) fn strips(
        &mut self,
        image: Rgb<'_>,
        to: Size,
        (filter, flavour): (Filter, Flavour),
        rows: usize,
        mut sink: impl FnMut(&[u8]),
    ) {
        if to.width == 0 || to.height == 0 {
            return;
        }
        let from = image.size;
        let across = (from.width != to.width).then(|| self.axis((from.width, to.width, filter, flavour)));
        let down = (from.height != to.height).then(|| self.axis((from.height, to.height, filter, flavour)));
        let pass = Pass { kernel: self.kernel, image, to, rows: rows.max(1) };
        let scratch = &mut self.scratch;
        match (across, down) {
            (None, None) => image.pixels.chunks(pass.rows * to.width * 3).for_each(sink),
            (Some(across), None) => pass.across(&across, scratch, sink),
            (None, Some(down)) => pass.down(&down, scratch, &mut |strip, _| sink(strip)),
            (Some(across), Some(down)) if flavour == Flavour::Pillow && shrinks_more_downwards(from, to) => {
                let packed = Packed::new(&across);
                let mut strip = std::mem::take(&mut scratch.between);
                pass.down(&down, scratch, &mut |wide, padded| {
                    let count = wide.len() / (from.width * 3);
                    horizontal(pass.kernel, &packed, wide, 0..count, &mut strip, 0, padded);
                    sink(&strip[..count * to.width * 3]);
                });
                scratch.between = strip;
            }
            (Some(across), Some(down)) => pass.both(&across, &down, scratch, sink),
        }
    }

    fn axis(&mut self, key: AxisKey) -> Arc<Weights> {
        if let Some((_, weights)) = self.weights.iter().find(|(known, _)| *known == key) {
            return Arc::clone(weights);
        }
        let weights = Arc::new(Weights::new(key.0, key.1, key.2, key.3));
        self.weights.truncate(KEPT_AXES - 1);
        self.weights.push_front((key, Arc::clone(&weights)));
        weights
    }
}

/// Pillow 13 does the vertical pass first in this case.
fn shrinks_more_downwards(from: Size, to: Size) -> bool {
    let height = from.height.saturating_sub(to.height);
    let width = if from.width > to.width { 2 * (from.width - to.width) } else { 0 };
    height > 0 && height > width
}

/// Takes a strip, and a buffer that it may use.
type Take<'a> = &'a mut dyn FnMut(&[u8], &mut Vec<u8>);

/// One resize under way.
#[derive(Clone, Copy)]
struct Pass<'a> {
    kernel: Kernel,
    image: Rgb<'a>,
    to: Size,
    rows: usize,
}

impl Pass<'_> {
    fn stride_before(self) -> usize {
        self.image.size.width * 3
    }

    fn stride_after(self) -> usize {
        self.to.width * 3
    }

    /// First output row of each strip, and one past its last.
    fn strips(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.to.height).step_by(self.rows).map(move |from| (from, (from + self.rows).min(self.to.height)))
    }

    /// Only the width changes.
    fn across(self, across: &Weights, scratch: &mut Scratch, mut sink: impl FnMut(&[u8])) {
        let packed = Packed::new(across);
        let Scratch { strip, padded, .. } = scratch;
        for (from, to) in self.strips() {
            horizontal(self.kernel, &packed, self.image.pixels, from..to, strip, 0, padded);
            sink(&strip[..(to - from) * self.stride_after()]);
        }
    }

    /// Only the height changes, or the height first.
    fn down(self, down: &Weights, scratch: &mut Scratch, sink: Take<'_>) {
        let stride = self.stride_before();
        let Scratch { strip, padded, .. } = scratch;
        grow(strip, self.rows * stride);
        for (from, to) in self.strips() {
            for (i, out) in (from..to).zip(strip.chunks_exact_mut(stride)) {
                self.kernel.vertical(down, i, &self.image.pixels[down.first[i] * stride..], stride, out);
            }
            sink(&strip[..(to - from) * stride], padded);
        }
    }

    /// The width first, then the height: a window of finished rows slides down the image.
    fn both(self, across: &Weights, down: &Weights, scratch: &mut Scratch, mut sink: impl FnMut(&[u8])) {
        let stride = self.stride_after();
        let packed = Packed::new(across);
        let Scratch { strip, between, padded } = scratch;
        grow(strip, self.rows * stride);
        // The window holds the rows `first..end` of the image.
        let (mut first, mut end) = (0, 0);
        for (from, to) in self.strips() {
            let (need, until) = (down.first[from], (from..to).map(|i| down.end(i)).max().unwrap_or(0));
            let keep = need.min(end);
            between.copy_within((keep - first) * stride..(end - first) * stride, 0);
            first = keep;
            if end < until {
                // Whole groups of rows; what is too much now is wanted by the next strip.
                let ahead = (until - end).next_multiple_of(ROWS) + end;
                let ahead = ahead.min(self.image.size.height);
                horizontal(
                    self.kernel,
                    &packed,
                    self.image.pixels,
                    end..ahead,
                    between,
                    (end - first) * stride,
                    padded,
                );
                end = ahead;
            }
            for (i, out) in (from..to).zip(strip.chunks_exact_mut(stride)) {
                self.kernel.vertical(down, i, &between[(down.first[i] - first) * stride..], stride, out);
            }
            sink(&strip[..(to - from) * stride]);
        }
    }
}

/// Filter the rows `rows` of `source` into `out`, beginning at byte `at`, which grows as needed.
fn horizontal(
    kernel: Kernel,
    across: &Packed<'_>,
    source: &[u8],
    rows: std::ops::Range<usize>,
    out: &mut Vec<u8>,
    at: usize,
    padded: &mut Vec<u8>,
) {
    let stride = across.weights.input * 3;
    let out_stride = across.weights.first.len() * 3;
    let reach = Kernel::row_bytes(across.weights).max(stride);
    grow(out, at + rows.len().next_multiple_of(ROWS) * out_stride);
    grow(padded, ROWS * reach);
    for (group, out) in rows.clone().step_by(ROWS).zip(out[at..].chunks_exact_mut(out_stride * ROWS)) {
        // Beyond the last row the last one is repeated; nobody reads the result.
        let starts: [usize; ROWS] = std::array::from_fn(|k| (group + k).min(rows.end - 1) * stride);
        let inputs: [&[u8]; ROWS] = if starts[ROWS - 1] + reach <= source.len() {
            starts.map(|start| &source[start..start + reach])
        } else {
            for (start, copy) in starts.iter().zip(padded.chunks_exact_mut(reach)) {
                copy[..stride].copy_from_slice(&source[*start..start + stride]);
            }
            let padded: &[u8] = padded;
            std::array::from_fn(|k| &padded[k * reach..(k + 1) * reach])
        };
        let (upper, lower) = out.split_at_mut(2 * out_stride);
        let ((a, b), (c, d)) = (upper.split_at_mut(out_stride), lower.split_at_mut(out_stride));
        kernel.horizontal(across, inputs, [a, b, c, d]);
    }
}

fn grow(buffer: &mut Vec<u8>, bytes: usize) {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(count: usize) -> Vec<u8> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn every_path_gives_the_same_bytes() {
        let mut wide = Resizer::new();
        let mut portable = Resizer { kernel: Kernel::portable(), ..Resizer::new() };
        for (width, height, to_width, to_height) in
            [(1, 1, 9, 3), (40, 30, 28, 28), (64, 64, 60, 67), (100, 7, 13, 90), (5, 300, 5, 20), (300, 5, 20, 5)]
        {
            let pixels = noise(width * height * 3);
            let image = Rgb::new(&pixels, Size::new(width, height)).unwrap();
            for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
                for flavour in [Flavour::Aten, Flavour::Pillow] {
                    let to = Size::new(to_width, to_height);
                    let want = portable.resize(image, to, filter, flavour);
                    assert_eq!(want.len(), to_width * to_height * 3);
                    assert!(wide.resize(image, to, filter, flavour) == want, "{image:?} {filter:?} {flavour:?}");
                }
            }
        }
    }

    #[test]
    fn the_same_size_is_the_same_image() {
        let pixels = noise(7 * 5 * 3);
        let image = Rgb::new(&pixels, Size::new(7, 5)).unwrap();
        assert_eq!(resize(image, image.size(), Filter::Lanczos, Flavour::Aten), pixels);
    }

    #[test]
    fn a_flat_image_stays_flat() {
        let image = [200u8; 33 * 21 * 3];
        let image = Rgb::new(&image, Size::new(33, 21)).unwrap();
        assert!(resize(image, Size::new(70, 4), Filter::Bicubic, Flavour::Pillow).iter().all(|byte| *byte == 200));
    }

    #[test]
    fn weights_are_forgotten_in_turn() {
        let mut resizer = Resizer::new();
        let image = [0u8; 3];
        let image = Rgb::new(&image, Size::new(1, 1)).unwrap();
        (2..100).for_each(|side| drop(resizer.resize(image, Size::new(side, side), Filter::Bilinear, Flavour::Aten)));
        assert_eq!(resizer.weights.len(), KEPT_AXES);
    }
}
