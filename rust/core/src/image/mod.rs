//! Pixels: the arithmetic of the reference's image processors, bit for bit.
//!
//! In: 8-bit RGB, three interleaved bytes a pixel, rows from the top; resizing, normalising and cutting into patches.
//! Out of scope: decoding (Pillow does it, in Python), hashing and the wire (`crate::hash`, `crate::wire`).

#[cfg(target_arch = "x86_64")]
mod avx2;
mod kernel;
pub mod lookup;
pub mod patchify;
pub mod processor;
pub mod resize;
pub mod size;
mod weights;

pub use lookup::{Arithmetic, Dtype, LookupTable, Normalisation};
pub use processor::{ImageProcessor, ImageProcessorSpec, Plan, Processed};
pub use resize::{Resizer, resize};
pub use size::SizeRule;
pub use weights::{Filter, Flavour};

use crate::error::{Error, Result};

/// In pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    pub width: usize,
    pub height: usize,
}

impl Size {
    pub fn new(width: usize, height: usize) -> Self {
        Self { width, height }
    }

    /// Bytes of an RGB image of this size; `None` where that overflows.
    pub fn rgb_bytes(self) -> Option<usize> {
        self.width.checked_mul(self.height)?.checked_mul(3)
    }
}

/// An RGB image that somebody else owns: `height` rows of `width` pixels of 3 bytes, without gaps, at least one pixel.
#[derive(Debug, Clone, Copy)]
pub struct Rgb<'a> {
    pub(crate) pixels: &'a [u8],
    pub(crate) size: Size,
}

impl<'a> Rgb<'a> {
    /// Fails if `pixels` is not `height * width * 3` bytes long, or if there are none.
    pub fn new(pixels: &'a [u8], size: Size) -> Result<Self> {
        if pixels.is_empty() || size.rgb_bytes() != Some(pixels.len()) {
            let (Size { width, height }, bytes) = (size, pixels.len());
            return Err(Error::Internal {
                message: format!("{bytes} bytes are no RGB image of {width}x{height} pixels"),
            });
        }
        Ok(Self { pixels, size })
    }

    pub fn size(self) -> Size {
        self.size
    }
}
