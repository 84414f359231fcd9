//! Rescaling and normalising: a function of one byte and its channel, hence a table.
//!
//! Source: multimodal.md §2.6. The tables repeat the reference's arithmetic step by step in its precision.

use half::{bf16, f16};
use serde::Deserialize;

/// Element type of the pixels on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    Uint8,
    Bfloat16,
    Float16,
    Float32,
}

impl Dtype {
    /// As torch and the wire spell it.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::Uint8 => "uint8",
            Dtype::Bfloat16 => "bfloat16",
            Dtype::Float16 => "float16",
            Dtype::Float32 => "float32",
        }
    }

    /// Bytes of one element.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::Uint8 => 1,
            Dtype::Bfloat16 | Dtype::Float16 => 2,
            Dtype::Float32 => 4,
        }
    }
}

/// Whose order of operations a normalisation follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arithmetic {
    /// torchvision backend: the rescale factor folded into mean and std, everything in f32.
    Fused,
    /// torchvision backend without `do_normalize`: a multiplication in f32.
    Rescale,
    /// PIL backend: rescaled in f64, rounded to f32, then normalised in f32.
    Pillow,
}

/// How bytes become numbers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalisation {
    /// By channel; not used by [`Arithmetic::Rescale`].
    #[serde(default)]
    pub mean: [f64; 3],
    #[serde(default = "ones")]
    pub std: [f64; 3],
    pub rescale_factor: f64,
    pub arithmetic: Arithmetic,
}

fn ones() -> [f64; 3] {
    [1.0; 3]
}

/// Every byte of every channel, as little-endian elements.
#[derive(Debug, Clone, PartialEq)]
pub enum LookupTable {
    Wide16(Box<[[[u8; 2]; 256]; 3]>),
    Wide32(Box<[[[u8; 4]; 256]; 3]>),
}

impl LookupTable {
    /// `None` for [`Dtype::Uint8`], whose bytes stay as they are.
    pub fn new(normalisation: &Normalisation, dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::Uint8 => None,
            Dtype::Bfloat16 => Some(Self::wide16(normalisation, |value| bf16::from_f32(value).to_le_bytes())),
            Dtype::Float16 => Some(Self::wide16(normalisation, |value| f16::from_f32(value).to_le_bytes())),
            Dtype::Float32 => {
                let mut table = Box::new([[[0; 4]; 256]; 3]);
                fill(normalisation, |channel, byte, value| table[channel][byte] = value.to_le_bytes());
                Some(LookupTable::Wide32(table))
            }
        }
    }

    fn wide16(normalisation: &Normalisation, round: impl Fn(f32) -> [u8; 2]) -> Self {
        let mut table = Box::new([[[0; 2]; 256]; 3]);
        fill(normalisation, |channel, byte, value| table[channel][byte] = round(value));
        LookupTable::Wide16(table)
    }

    /// All elements, channel after channel: 768 of them.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            LookupTable::Wide16(table) => table.as_flattened().as_flattened(),
            LookupTable::Wide32(table) => table.as_flattened().as_flattened(),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the reference's roundings to f32")]
fn fill(normalisation: &Normalisation, mut set: impl FnMut(usize, usize, f32)) {
    let factor = normalisation.rescale_factor;
    for channel in 0..3 {
        let (mean, std) = (normalisation.mean[channel], normalisation.std[channel]);
        let scale = (1.0 / factor) as f32;
        for byte in 0..=u8::MAX {
            let value = match normalisation.arithmetic {
                Arithmetic::Fused => (f32::from(byte) - mean as f32 * scale) / (std as f32 * scale),
                Arithmetic::Rescale => f32::from(byte) * factor as f32,
                Arithmetic::Pillow => ((f64::from(byte) * factor) as f32 - mean as f32) / std as f32,
            };
            set(channel, usize::from(byte), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_stats_span_minus_one_to_one() {
        let half =
            Normalisation { mean: [0.5; 3], std: [0.5; 3], rescale_factor: 1.0 / 255.0, arithmetic: Arithmetic::Fused };
        let Some(LookupTable::Wide16(table)) = LookupTable::new(&half, Dtype::Bfloat16) else {
            panic!("bfloat16 has a table")
        };
        assert_eq!(table[0][0], [0x80, 0xbf]);
        assert_eq!(table[2][255], [0x80, 0x3f]);
        assert_eq!(LookupTable::new(&half, Dtype::Uint8), None);
    }
}
