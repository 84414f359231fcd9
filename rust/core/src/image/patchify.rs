//! Cutting an image into patches, in the order of Qwen's vision towers.
//!
//! Source: multimodal.md §2.7. Blocks of `merge × merge` patches follow each other in rows; inside a block its patches
//! follow each other in rows. A patch is `[channel][frame][y][x]`, and a still image shows the same frame each time: here
//! it is written once, `[channel][y][x]`.

#![expect(clippy::inline_always, reason = "code is compiled for AVX2 only where it is inlined into the dispatch")]

use super::kernel::Kernel;
use super::lookup::LookupTable;

/// How an image is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patches {
    /// Side of a patch, in pixels.
    pub patch: usize,
    /// Side of a block, in patches.
    pub merge: usize,
    /// Times that the image is repeated.
    pub frames: usize,
}

/// Appends the patches of strips of [`Patches::strip_rows`] rows to a buffer.
#[derive(Debug)]
pub struct Patchifier<'a> {
    patches: Patches,
    table: Option<&'a LookupTable>,
    kernel: Kernel,
    /// One patch: three planes of bytes, each with room behind it.
    planes: Vec<u8>,
    /// One plane as it goes out.
    wide: Vec<u8>,
}

/// Bytes behind a plane that a vector may spill into.
pub(super) const ROOM: usize = 16;

impl Patches {
    /// Rows of pixels that make a row of blocks.
    pub fn strip_rows(self) -> usize {
        self.patch * self.merge
    }

    /// Elements of one patch, its frames included.
    pub fn elements(self) -> usize {
        3 * self.frames * self.patch * self.patch
    }
}

impl<'a> Patchifier<'a> {
    /// Bytes go through `table`, or stay as they are without one.
    pub fn new(patches: Patches, table: Option<&'a LookupTable>) -> Self {
        let plane = patches.patch * patches.patch;
        let element = table.map_or(0, |table| table.as_bytes().len() / (3 * 256));
        let (planes, wide) = (vec![0; 3 * (plane + ROOM)], vec![0; plane * element]);
        Self { patches, table, kernel: Kernel::new(), planes, wide }
    }

    /// Append the patches of rows of `width` pixels: whole rows of blocks, `width` a multiple of a block's side.
    pub fn append(&mut self, rows: &[u8], width: usize, out: &mut Vec<u8>) {
        let (kernel, stride, patch) = (self.kernel, width * 3, self.patches.patch);
        #[cfg(target_arch = "x86_64")]
        if let Some(splitter) = kernel.splitter(patch) {
            return kernel
                .widest(|| self.blocks(rows, width, out, |rows, planes| splitter.split(rows, stride, planes)));
        }
        kernel.widest(|| self.blocks(rows, width, out, |rows, planes| split(rows, stride, patch, planes)));
    }

    #[inline(always)]
    fn blocks(&mut self, rows: &[u8], width: usize, out: &mut Vec<u8>, split: impl Fn(&[u8], &mut [u8])) {
        let Patches { patch, merge, .. } = self.patches;
        let stride = width * 3;
        for rows in rows.chunks_exact(stride * patch * merge) {
            for block in 0..width / (patch * merge) {
                for (y, x) in (0..merge).flat_map(|y| (0..merge).map(move |x| (y, x))) {
                    let at = y * patch * stride + (block * merge + x) * patch * 3;
                    split(&rows[at..], &mut self.planes);
                    self.one_patch(out);
                }
            }
        }
    }

    /// Append the patch whose planes have been split.
    #[inline(always)]
    fn one_patch(&mut self, out: &mut Vec<u8>) {
        let Self { patches, table, planes, wide, .. } = self;
        let plane = patches.patch * patches.patch;
        for (channel, bytes) in planes.chunks_exact(plane + ROOM).enumerate() {
            let bytes = &bytes[..plane];
            let elements = match table {
                None => bytes,
                Some(LookupTable::Wide16(table)) => through(&table[channel], bytes, wide),
                Some(LookupTable::Wide32(table)) => through(&table[channel], bytes, wide),
            };
            out.extend_from_slice(elements);
        }
    }
}

#[inline(always)]
fn through<'a, const N: usize>(table: &[[u8; N]; 256], bytes: &[u8], wide: &'a mut [u8]) -> &'a [u8] {
    for (element, byte) in wide.as_chunks_mut::<N>().0.iter_mut().zip(bytes) {
        *element = table[usize::from(*byte)];
    }
    wide
}

/// Split the patch at the beginning of `rows` into its planes.
fn split(rows: &[u8], stride: usize, patch: usize, planes: &mut [u8]) {
    for (channel, plane) in planes.chunks_exact_mut(patch * patch + ROOM).enumerate() {
        for (y, line) in plane.chunks_exact_mut(patch).take(patch).enumerate() {
            for (byte, pixel) in line.iter_mut().zip(rows[y * stride..].chunks_exact(3)) {
                *byte = pixel[channel];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition, one element after another.
    fn slowly(pixels: &[u8], width: usize, height: usize, patches: Patches) -> Vec<u8> {
        let Patches { patch, merge, .. } = patches;
        let mut out = Vec::new();
        let (down, across) = (height / patch / merge, width / patch / merge);
        let plane = patch * patch;
        for index in 0..down * across * merge * merge {
            let (block, inside) = (index / (merge * merge), index % (merge * merge));
            let top = (block / across * merge + inside / merge) * patch;
            let left = (block % across * merge + inside % merge) * patch;
            for element in 0..3 * plane {
                let (channel, at) = (element / plane, element % plane);
                out.push(pixels[((top + at / patch) * width + left + at % patch) * 3 + channel]);
            }
        }
        out
    }

    #[test]
    fn patches_follow_the_order_of_blocks() {
        for (patch, merge, frames) in [(11, 2, 2), (16, 2, 2), (14, 2, 2), (3, 2, 1), (5, 1, 3), (2, 3, 2)] {
            let patches = Patches { patch, merge, frames };
            let (width, height) = (patch * merge * 3, patch * merge * 2);
            let pixels: Vec<u8> = (0..=250).cycle().take(width * height * 3).collect();
            let mut out = Vec::new();
            Patchifier::new(patches, None).append(&pixels, width, &mut out);
            assert_eq!(out, slowly(&pixels, width, height, patches), "{patches:?}");
        }
    }
}
