//! The two passes of a resize, on whichever instructions the machine has.
//!
//! Sums are of integers, so the order of addition does not matter and every path gives the same bytes.

#![expect(clippy::inline_always, reason = "code is compiled for AVX2 only where it is inlined into the dispatch")]

use super::weights::{Flavour, Weights};

/// Rows that the horizontal pass takes at once.
pub(super) const ROWS: usize = 4;

/// How the passes are carried out. Cheap to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    #[cfg(target_arch = "x86_64")]
    v3: Option<pulp::x86::V3>,
}

impl Kernel {
    pub(super) fn new() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            v3: pulp::x86::V3::try_new(),
        }
    }

    /// The plain loops, whatever the machine has.
    #[cfg(test)]
    pub(super) fn portable() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            v3: None,
        }
    }

    /// Run with the widest instructions that the compiler may use for it. Mark what `work` calls `#[inline(always)]`.
    #[inline]
    pub(super) fn widest<R>(self, work: impl FnOnce() -> R) -> R {
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = self.v3 {
            return v3.vectorize(work);
        }
        work()
    }

    /// Splits patches of a side that it suits.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn splitter(self, patch: usize) -> Option<super::avx2::Splitter> {
        super::avx2::Splitter::new(self.v3?, patch)
    }

    /// Bytes that a row must have for [`Self::horizontal`], its padding included (the padding's content is not used).
    pub(super) fn row_bytes(across: &Weights) -> usize {
        // The widest group reads 16 bytes; groups of 4 or 5 taps go on until all taps are covered.
        let last = across.first.last().copied().unwrap_or(0);
        (last + across.taps.div_ceil(4) * 4 + across.taps.div_ceil(5)) * 3 + 16
    }

    /// Filter four rows, each of [`Self::row_bytes`] bytes, into four rows of `across.first.len() * 3` bytes.
    pub(super) fn horizontal(self, across: &Packed<'_>, rows: [&[u8]; ROWS], out: [&mut [u8]; ROWS]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = self.v3 {
            return super::avx2::horizontal(v3, across, rows, out);
        }
        for (row, out) in rows.into_iter().zip(out) {
            horizontal_row(across.weights, row, out);
        }
    }

    /// Filter the rows that output row `i` takes into `out`. `source` begins with the row `down.first[i]`; rows are
    /// `stride` bytes apart, and `out.len()` bytes of each count.
    pub(super) fn vertical(self, down: &Weights, i: usize, source: &[u8], stride: usize, out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = self.v3
            && down.flavour == Flavour::Aten
            && out.len() >= super::avx2::LANE
        {
            return super::avx2::vertical(v3, down, i, source, stride, out);
        }
        self.widest(|| vertical_row(down, i, source, stride, out));
    }
}

/// Weights of the horizontal pass, laid out for groups of taps that one load of 16 bytes covers.
#[derive(Debug)]
pub(super) struct Packed<'a> {
    pub(super) weights: &'a Weights,
    /// For ATen two 16-bit weights in one word, for Pillow one weight a word; `words` for each output position.
    pub(super) values: Vec<i32>,
    pub(super) words: usize,
}

impl<'a> Packed<'a> {
    pub(super) fn new(weights: &'a Weights) -> Self {
        let words = match weights.flavour {
            // Two words for 4 taps, or three for the 5 taps that 16 bytes hold.
            Flavour::Aten if weights.taps == 5 => 3,
            Flavour::Aten => weights.taps.div_ceil(4) * 2,
            Flavour::Pillow => weights.taps.div_ceil(5) * 5,
        };
        let mut values = Vec::with_capacity(words * weights.first.len());
        for row in weights.values.chunks_exact(weights.taps) {
            let end = values.len() + words;
            match weights.flavour {
                Flavour::Aten => values.extend(row.chunks(2).map(pair)),
                Flavour::Pillow => values.extend_from_slice(row),
            }
            values.resize(end, 0);
        }
        Self { weights, values, words }
    }
}

/// Two weights of 16 bits in one word, the first in the low half.
pub(super) fn pair(weights: &[i32]) -> i32 {
    let second = weights.get(1).copied().unwrap_or(0);
    (weights[0] & 0xffff) | (second << 16)
}

fn horizontal_row(across: &Weights, row: &[u8], out: &mut [u8]) {
    let half = 1i32 << (across.precision - 1);
    for (i, pixel) in out.chunks_exact_mut(3).enumerate() {
        let mut sums = [half; 3];
        for (weight, from) in across.of(i).iter().zip(row[across.first[i] * 3..].chunks_exact(3)) {
            for (sum, byte) in sums.iter_mut().zip(from) {
                *sum += weight * i32::from(*byte);
            }
        }
        for (byte, sum) in pixel.iter_mut().zip(sums) {
            *byte = clamped(sum >> across.precision);
        }
    }
}

#[inline(always)]
fn vertical_row(down: &Weights, i: usize, source: &[u8], stride: usize, out: &mut [u8]) {
    const LANE: usize = 32;
    let half = 1i32 << (down.precision - 1);
    let weights = down.of(i);
    let mut at = 0;
    let mut lanes = out.chunks_exact_mut(LANE);
    for lane in &mut lanes {
        let mut sums = [half; LANE];
        for (j, weight) in weights.iter().enumerate() {
            let from: &[u8] = &source[j * stride + at..][..LANE];
            for (sum, byte) in sums.iter_mut().zip(from) {
                *sum += weight * i32::from(*byte);
            }
        }
        for (byte, sum) in lane.iter_mut().zip(sums) {
            *byte = clamped(sum >> down.precision);
        }
        at += LANE;
    }
    for (x, byte) in lanes.into_remainder().iter_mut().enumerate() {
        let taps = weights.iter().enumerate();
        let sum: i32 = taps.map(|(j, weight)| weight * i32::from(source[j * stride + at + x])).sum();
        *byte = clamped((sum + half) >> down.precision);
    }
}

#[inline(always)]
#[expect(clippy::cast_sign_loss, reason = "clamped to a byte")]
fn clamped(value: i32) -> u8 {
    value.clamp(0, 255) as u8
}
