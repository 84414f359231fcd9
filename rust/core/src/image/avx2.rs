//! The passes on AVX2, by way of pulp's tokens: the instructions are safe to call for whoever holds one.

#![expect(clippy::inline_always, reason = "code is compiled for AVX2 only where it is inlined into the dispatch")]

use pulp::cast;
use pulp::x86::V3;
use std::arch::x86_64::{__m128i, __m256i};

use super::kernel::{Packed, ROWS, pair};
use super::patchify::ROOM;
use super::weights::{Flavour, Weights};

/// Bytes that [`vertical`] handles at once, and the least that it takes.
pub(super) const LANE: usize = 32;

/// Bytes that a horizontal load covers: five pixels and one byte.
const LOAD: usize = 16;

/// Places where a byte becomes zero.
const ZERO: u8 = 0x80;

/// Two pixels of a load as 16-bit pairs, one pair for each channel: (r0, r1), (g0, g1), (b0, b1), nothing.
const fn two_pixels(first: u8, second: u8) -> [u8; 32] {
    let mut mask = [ZERO; 32];
    let mut channel = 0;
    while channel < 3 {
        let at = channel * 4;
        #[expect(clippy::cast_possible_truncation, reason = "below 3")]
        let offset = channel as u8;
        mask[at] = first * 3 + offset;
        mask[at + 16] = first * 3 + offset;
        if second < 5 {
            mask[at + 2] = second * 3 + offset;
            mask[at + 18] = second * 3 + offset;
        }
        channel += 1;
    }
    mask
}

const PAIRS: [[u8; 32]; 3] = [two_pixels(0, 1), two_pixels(2, 3), two_pixels(4, 5)];
const SINGLES: [[u8; 32]; 5] =
    [two_pixels(0, 5), two_pixels(1, 5), two_pixels(2, 5), two_pixels(3, 5), two_pixels(4, 5)];

/// See `Kernel::horizontal`.
pub(super) fn horizontal(v3: V3, across: &Packed<'_>, rows: [&[u8]; ROWS], out: [&mut [u8]; ROWS]) {
    match (across.weights.flavour, across.words) {
        (Flavour::Aten, 3) => v3.vectorize(|| rows_at_once::<3, true>(v3, across, rows, out)),
        (Flavour::Aten, _) => v3.vectorize(|| rows_at_once::<2, true>(v3, across, rows, out)),
        (Flavour::Pillow, _) => v3.vectorize(|| rows_at_once::<5, false>(v3, across, rows, out)),
    }
}

/// A load feeds `GROUP` words of weights, each of two taps (`PAIRED`) or one.
#[inline(always)]
fn rows_at_once<const GROUP: usize, const PAIRED: bool>(
    v3: V3,
    across: &Packed<'_>,
    rows: [&[u8]; ROWS],
    out: [&mut [u8]; ROWS],
) {
    let avx = v3.avx2;
    let weights = across.weights;
    let half = v3.avx._mm256_set1_epi32(1i32 << (weights.precision - 1));
    let shift: __m128i = cast([u64::from(weights.precision), 0]);
    let step = if PAIRED { 12 } else { 15 };
    let masks: [__m256i; GROUP] =
        std::array::from_fn(|k| cast(if PAIRED { PAIRS[k.min(2)] } else { SINGLES[k.min(4)] }));
    let [out0, out1, out2, out3] = out;
    let width = weights.first.len() * 3;
    let (out0, out1, out2, out3) = (&mut out0[..width], &mut out1[..width], &mut out2[..width], &mut out3[..width]);
    for (i, (first, words)) in weights.first.iter().zip(across.values.chunks_exact(across.words)).enumerate() {
        let (mut upper, mut lower) = (half, half);
        let mut at = first * 3;
        for words in words.as_chunks::<GROUP>().0 {
            let (above, below) = (load_two(v3, rows[0], rows[1], at), load_two(v3, rows[2], rows[3], at));
            for (mask, word) in masks.iter().zip(words) {
                let word = v3.avx._mm256_set1_epi32(*word);
                let (a, b) = (avx._mm256_shuffle_epi8(above, *mask), avx._mm256_shuffle_epi8(below, *mask));
                let (a, b) = if PAIRED {
                    (avx._mm256_madd_epi16(a, word), avx._mm256_madd_epi16(b, word))
                } else {
                    (avx._mm256_mullo_epi32(a, word), avx._mm256_mullo_epi32(b, word))
                };
                upper = avx._mm256_add_epi32(upper, a);
                lower = avx._mm256_add_epi32(lower, b);
            }
            at += step;
        }
        let (upper, lower) = (avx._mm256_sra_epi32(upper, shift), avx._mm256_sra_epi32(lower, shift));
        let words = avx._mm256_packs_epi32(upper, lower);
        // Rows 0 and 2 in the low half, 1 and 3 in the high one, four bytes each.
        let bytes: [[u8; 4]; 8] = cast(avx._mm256_packus_epi16(words, words));
        store(out0, i * 3, bytes[0]);
        store(out1, i * 3, bytes[4]);
        store(out2, i * 3, bytes[1]);
        store(out3, i * 3, bytes[5]);
    }
}

#[inline(always)]
fn load_two(v3: V3, low: &[u8], high: &[u8], at: usize) -> __m256i {
    let low: __m128i = cast(chunk::<LOAD>(low, at));
    let high: __m128i = cast(chunk::<LOAD>(high, at));
    v3.avx2._mm256_inserti128_si256::<1>(v3.avx._mm256_castsi128_si256(low), high)
}

#[inline(always)]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("rows are padded to the last load")
}

/// Write a pixel; its fourth byte lies where the next pixel will be written, and is left out at the row's end.
#[inline(always)]
fn store(row: &mut [u8], at: usize, pixel: [u8; 4]) {
    let rest = &mut row[at..];
    match rest.first_chunk_mut::<4>() {
        Some(place) => *place = pixel,
        None => rest.copy_from_slice(&pixel[..3]),
    }
}

/// See `Kernel::vertical`. `out` is at least [`LANE`] bytes long, and the weights are ATen's.
pub(super) fn vertical(v3: V3, down: &Weights, i: usize, source: &[u8], stride: usize, out: &mut [u8]) {
    v3.vectorize(|| vertical_row(v3, down, i, source, stride, out));
}

#[inline(always)]
fn vertical_row(v3: V3, down: &Weights, i: usize, source: &[u8], stride: usize, out: &mut [u8]) {
    let weights = down.of(i);
    let last = out.len() - LANE;
    let mut at = 0;
    loop {
        let bytes = vertical_lane(v3, down.precision, weights, source, stride, at);
        out[at..at + LANE].copy_from_slice(&bytes);
        if at == last {
            return;
        }
        // The last lane overlaps the one before it.
        at = (at + LANE).min(last);
    }
}

#[inline(always)]
fn vertical_lane(v3: V3, precision: u32, weights: &[i32], source: &[u8], stride: usize, at: usize) -> [u8; LANE] {
    let avx = v3.avx2;
    let zero: __m256i = cast([0u8; 32]);
    let mut sums = [v3.avx._mm256_set1_epi32(1i32 << (precision - 1)); 4];
    let mut from = at;
    for two in weights.chunks(2) {
        let upper: __m256i = cast(chunk::<LANE>(source, from));
        // An odd last row is paired with itself and a weight of zero.
        let second = if two.len() == 2 { from + stride } else { from };
        let lower: __m256i = cast(chunk::<LANE>(source, second));
        let word = v3.avx._mm256_set1_epi32(pair(two));
        let (low, high) = (avx._mm256_unpacklo_epi8(upper, lower), avx._mm256_unpackhi_epi8(upper, lower));
        let quarters = [
            avx._mm256_unpacklo_epi8(low, zero),
            avx._mm256_unpackhi_epi8(low, zero),
            avx._mm256_unpacklo_epi8(high, zero),
            avx._mm256_unpackhi_epi8(high, zero),
        ];
        for (sum, quarter) in sums.iter_mut().zip(quarters) {
            *sum = avx._mm256_add_epi32(*sum, avx._mm256_madd_epi16(quarter, word));
        }
        from += 2 * stride;
    }
    let shift: __m128i = cast([u64::from(precision), 0]);
    let [a, b, c, d] = sums.map(|sum| avx._mm256_sra_epi32(sum, shift));
    cast(avx._mm256_packus_epi16(avx._mm256_packs_epi32(a, b), avx._mm256_packs_epi32(c, d)))
}

/// Splits patches of interleaved pixels into planes, a line of 11 to 16 pixels at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Splitter {
    v3: V3,
    patch: usize,
    /// By channel: what each of the three loads of a line contributes.
    masks: [[__m128i; 3]; 3],
}

impl Splitter {
    pub(super) fn new(v3: V3, patch: usize) -> Option<Self> {
        // Three loads of 16 bytes, the last ending with the line.
        if !(11..=16).contains(&patch) {
            return None;
        }
        let tail = patch * 3 - LOAD;
        let mask = |channel: usize, load: usize| {
            let mut mask = [ZERO; LOAD];
            for (x, place) in mask[..patch].iter_mut().enumerate() {
                let byte = x * 3 + channel;
                let (from, offset) = if byte >= 2 * LOAD { (2, tail) } else { (byte / LOAD, byte / LOAD * LOAD) };
                if from == load {
                    *place = u8::try_from(byte - offset).expect("below 16");
                }
            }
            cast(mask)
        };
        let masks = std::array::from_fn(|channel| std::array::from_fn(|load| mask(channel, load)));
        Some(Self { v3, patch, masks })
    }

    /// Split the patch at the beginning of `rows` into planes, each followed by [`ROOM`] bytes.
    #[inline(always)]
    pub(super) fn split(&self, rows: &[u8], stride: usize, planes: &mut [u8]) {
        let Self { v3, patch, masks } = *self;
        let (red, rest) = planes.split_at_mut(patch * patch + ROOM);
        let (green, blue) = rest.split_at_mut(patch * patch + ROOM);
        for y in 0..patch {
            let line = &rows[y * stride..][..patch * 3];
            let loads: [__m128i; 3] = [0, LOAD, patch * 3 - LOAD].map(|at| cast(chunk::<LOAD>(line, at)));
            for (plane, masks) in [&mut *red, &mut *green, &mut *blue].into_iter().zip(&masks) {
                let [a, b, c]: [__m128i; 3] = std::array::from_fn(|k| v3.ssse3._mm_shuffle_epi8(loads[k], masks[k]));
                let bytes: [u8; LOAD] = cast(v3.sse2._mm_or_si128(v3.sse2._mm_or_si128(a, b), c));
                // Beyond the line are zeros, which the next line or nobody reads over.
                plane[y * patch..][..LOAD].copy_from_slice(&bytes);
            }
        }
    }
}
