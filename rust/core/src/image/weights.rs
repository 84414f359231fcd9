//! Filter weights of one axis, in the fixed point of ATen and of Pillow.
//!
//! Source: multimodal.md §2.1 (ATen, uint8 with antialias) and §2.4 (Pillow 13).

use std::f64::consts::PI;

use serde::Deserialize;

/// The filter that a resize interpolates by; always antialiased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    Bilinear,
    /// Keys' cubic with a = -1/2.
    Bicubic,
    /// Three lobes.
    Lanczos,
}

/// Whose arithmetic a resize reproduces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// torch's `interpolate` on uint8 (what torchvision calls): 16-bit weights.
    Aten,
    /// Pillow 13: 22-bit weights, and the vertical pass first where it shrinks more.
    Pillow,
}

/// What each output position of one axis takes from the input.
#[derive(Debug)]
pub(super) struct Weights {
    pub(super) flavour: Flavour,
    /// Input positions.
    pub(super) input: usize,
    /// First input position of each output position; never falls.
    pub(super) first: Vec<usize>,
    /// Input positions that each output position takes, at least one.
    pub(super) count: Vec<usize>,
    /// Room for one output position in `values`: the largest count.
    pub(super) taps: usize,
    /// Fixed-point weights, `taps` for each output position; zero beyond its count.
    pub(super) values: Vec<i32>,
    /// Fraction bits of `values`.
    pub(super) precision: u32,
}

impl Filter {
    fn support(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    fn at(self, x: f64) -> f64 {
        const A: f64 = -0.5;
        let distance = x.abs();
        match self {
            Filter::Bilinear if distance < 1.0 => 1.0 - distance,
            Filter::Bicubic if distance < 1.0 => ((A + 2.0) * distance - (A + 3.0)) * distance * distance + 1.0,
            Filter::Bicubic if distance < 2.0 => ((A * distance - 5.0 * A) * distance + 8.0 * A) * distance - 4.0 * A,
            Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) }
}

impl Weights {
    /// Weights that bring `input` positions to `output` ones; both are at least 1.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the \
        reference's arithmetic: sides are far below 2^52, and Rust's casts saturate"
    )]
    pub(super) fn new(input: usize, output: usize, filter: Filter, flavour: Flavour) -> Self {
        let scale = input as f64 / output as f64;
        let stretch = scale.max(1.0);
        let support = filter.support() * stretch;
        let inverse = 1.0 / stretch;
        let room = 2 * (support.ceil() as usize) + 1;
        let (mut first, mut count) = (Vec::with_capacity(output), Vec::with_capacity(output));
        let mut exact = vec![0.0; room * output];
        for (i, row) in exact.chunks_exact_mut(room).enumerate() {
            let centre = scale * (i as f64 + 0.5);
            let low = ((centre - support + 0.5) as i64).max(0) as usize;
            let high = ((centre + support + 0.5) as usize).min(input);
            let row = &mut row[..high.saturating_sub(low).min(room)];
            let mut sum = 0.0;
            for (j, weight) in row.iter_mut().enumerate() {
                *weight = filter.at(((j + low) as f64 - centre + 0.5) * inverse);
                sum += *weight;
            }
            if sum != 0.0 {
                match flavour {
                    Flavour::Aten => row.iter_mut().for_each(|weight| *weight /= sum),
                    Flavour::Pillow => row.iter_mut().for_each(|weight| *weight *= 1.0 / sum),
                }
            }
            first.push(low.min(input - 1));
            count.push(row.len());
        }
        let precision = match flavour {
            Flavour::Aten => precision(exact.iter().copied().fold(0.0, f64::max)),
            Flavour::Pillow => 22,
        };
        let one = f64::from(1u32 << precision);
        let taps = count.iter().copied().max().unwrap_or(1).max(1);
        let fixed = |weight: &f64| (weight * one + if *weight < 0.0 { -0.5 } else { 0.5 }) as i32;
        let values = exact.chunks_exact(room).flat_map(|row| row[..taps.min(room)].iter().map(fixed)).collect();
        Self { flavour, input, first, count, taps, values, precision }
    }

    /// One past the last input position that output position `i` takes.
    pub(super) fn end(&self, i: usize) -> usize {
        self.first[i] + self.count[i]
    }

    pub(super) fn of(&self, i: usize) -> &[i32] {
        &self.values[i * self.taps..][..self.count[i]]
    }
}

/// The most fraction bits, up to 22, with which `largest` still fits into a signed 16-bit integer.
fn precision(largest: f64) -> u32 {
    (0..22).find(|bits| (0.5 + largest * f64::from(1u32 << (bits + 1))).trunc() >= 32768.0).unwrap_or(22)
}
