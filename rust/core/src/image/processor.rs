//! From an RGB image to the item that goes out: resized, cut, normalised, written once.

use std::cell::RefCell;

use serde::Deserialize;

use super::lookup::{Dtype, LookupTable, Normalisation};
use super::patchify::{Patches, Patchifier};
use super::resize::Resizer;
use super::size::SizeRule;
use super::weights::{Filter, Flavour};
use super::{Rgb, Size};
use crate::error::{Error, Result};
use crate::wire::base64;
use crate::wire::item::{Data, Field, Tensor, write_data, write_element_head, write_field, write_tensor_head};
use crate::wire::msgpack::write_map_head;

thread_local! {
    /// Buffers that the images of one thread use in turn.
    static RESIZER: RefCell<Resizer> = RefCell::new(Resizer::new());
}

/// What an image processor does, as plain data.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageProcessorSpec {
    pub size: SizeRule,
    pub filter: Filter,
    pub flavour: Flavour,
    /// Of the pixels on the wire.
    pub dtype: Dtype,
    /// Absent for [`Dtype::Uint8`] (the worker normalises), present for the others.
    #[serde(default)]
    pub normalisation: Option<Normalisation>,
    pub layout: Layout,
    pub fields: FieldNames,
}

/// How pixels are arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// `[patches, 3 * frames * patch * patch]`, see [`super::patchify`].
    QwenPatches,
}

/// Names of the item's fields, in the order in which they are written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldNames {
    /// Flat by number of patches.
    pub pixels: String,
    /// Batched, kept on the CPU: frames, rows and columns of patches.
    pub grid: String,
}

/// An [`ImageProcessorSpec`] that has been checked, with its tables. Shared by threads.
#[derive(Debug)]
pub struct ImageProcessor {
    spec: ImageProcessorSpec,
    table: Option<LookupTable>,
    patches: Patches,
}

/// What is known of an image from its size alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub resized: Size,
    /// Frames, rows and columns of patches.
    pub grid: [i64; 3],
    /// Placeholder tokens of the image.
    pub tokens: usize,
}

/// A finished image: its item, all but the part that depends on the other images of the request.
///
/// The item is what [`Self::encode_head`] gives, followed by [`Self::tail`]. A still image's frames are all the same, so
/// one of them is kept, and repeated as it goes out.
#[derive(Debug, Clone)]
pub struct Processed {
    plan: Plan,
    /// The item up to its first pixel.
    opening: Vec<u8>,
    /// One frame of each patch and channel after the other.
    planes: Vec<u8>,
    /// Bytes of one frame of one channel of a patch.
    plane: usize,
    /// Times that each goes out.
    frames: usize,
    grid_name: String,
}

/// Bytes of pixels that are repeated at once: small enough to stay in the nearest cache.
const REPEATED_BYTES: usize = 12 << 10;

impl Plan {
    /// Rows of the pixel tensor: patches.
    pub fn rows(&self) -> i64 {
        self.grid.iter().product()
    }
}

impl ImageProcessor {
    pub fn new(spec: ImageProcessorSpec) -> Result<Self> {
        spec.size.check()?;
        let SizeRule::Smart { patch_size, merge_size, temporal_patch_size, .. } = spec.size;
        let table = match &spec.normalisation {
            None if spec.dtype != Dtype::Uint8 => {
                return Err(Error::setup(format!("image processor: {} needs a normalisation", spec.dtype.name())));
            }
            Some(_) if spec.dtype == Dtype::Uint8 => {
                return Err(Error::setup("image processor: uint8 pixels are not normalised"));
            }
            None => None,
            Some(normalisation) => LookupTable::new(normalisation, spec.dtype),
        };
        let patches = Patches { patch: patch_size, merge: merge_size, frames: temporal_patch_size };
        Ok(Self { spec, table, patches })
    }

    pub fn spec(&self) -> &ImageProcessorSpec {
        &self.spec
    }

    /// What becomes of an image of this size in pixels. 400 if the size rule refuses it.
    pub fn plan(&self, width: usize, height: usize) -> Result<Plan> {
        let resized = self.spec.size.apply(Size::new(width, height))?;
        let (rows, columns) = (resized.height / self.patches.patch, resized.width / self.patches.patch);
        let side = |side: usize| i64::try_from(side).map_err(|_| Error::bad_request("an image beyond measure"));
        let grid = [1, side(rows)?, side(columns)?];
        let tokens = rows * columns / (self.patches.merge * self.patches.merge);
        Ok(Plan { resized, grid, tokens })
    }

    /// Process `height` rows of `width` pixels of 3 bytes. 400 if the size rule refuses the image.
    pub fn process(&self, rgb: &[u8], width: usize, height: usize) -> Result<Processed> {
        let image = Rgb::new(rgb, Size::new(width, height))?;
        let plan = self.plan(width, height)?;
        let (rows, elements) = (plan.rows().unsigned_abs(), self.patches.elements());
        let bytes = usize::try_from(rows).ok().and_then(|rows| rows.checked_mul(elements * self.spec.dtype.bytes()));
        let bytes = bytes.filter(|bytes| u32::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or_else(|| Error::bad_request(format!("an image of {rows} patches is too large")))?;

        let mut opening = Vec::with_capacity(128);
        write_map_head(&mut opening, 2);
        write_element_head(&self.spec.fields.pixels, &mut opening);
        write_tensor_head(self.spec.dtype.name(), &[rows, elements as u64], bytes, &mut opening);
        let Patches { patch, frames, .. } = self.patches;
        let mut planes = Vec::with_capacity(bytes / frames);
        let mut patchifier = Patchifier::new(self.patches, self.table.as_ref());
        let method = (self.spec.filter, self.spec.flavour);
        RESIZER.with_borrow_mut(|resizer| {
            resizer.strips(image, plan.resized, method, self.patches.strip_rows(), |strip| {
                patchifier.append(strip, plan.resized.width, &mut planes);
            });
        });
        debug_assert_eq!(planes.len() * frames, bytes);
        let plane = patch * patch * self.spec.dtype.bytes();
        Ok(Processed { plan, opening, planes, plane, frames, grid_name: self.spec.fields.grid.clone() })
    }
}

impl Processed {
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// The pixel tensor: `[rows, elements]`, little-endian.
    pub fn pixels(&self) -> Vec<u8> {
        let mut pixels = Vec::with_capacity(self.planes.len() * self.frames);
        self.repeat(&self.planes, &mut pixels);
        pixels
    }

    /// Bytes of memory that this holds.
    pub fn held_bytes(&self) -> usize {
        self.opening.len() + self.planes.len()
    }

    /// Bytes of the item from its beginning to its last pixel.
    pub fn head_bytes(&self) -> usize {
        self.opening.len() + self.planes.len() * self.frames
    }

    /// Append the base64 of the item from its beginning to its last pixel.
    pub fn encode_head(&self, encoder: &mut base64::Encoder<'_>) {
        encoder.push(&self.opening);
        let at_once = (REPEATED_BYTES / (self.plane * self.frames)).max(1) * self.plane;
        let mut repeated = Vec::with_capacity(at_once * self.frames);
        for planes in self.planes.chunks(at_once) {
            repeated.clear();
            self.repeat(planes, &mut repeated);
            encoder.push(&repeated);
        }
    }

    fn repeat(&self, planes: &[u8], out: &mut Vec<u8>) {
        for plane in planes.chunks_exact(self.plane) {
            for _ in 0..self.frames {
                out.extend_from_slice(plane);
            }
        }
    }

    /// Append the rest of the item. `rows` are those of each image of the batch ([`Plan::rows`]), this one's included.
    pub fn tail(&self, rows: impl IntoIterator<Item = i64>, out: &mut Vec<u8>) {
        write_field(&Field::flat_from_sizes(rows, 0), out);
        self.write_grid(out);
    }

    /// Append the item's metadata: its grid.
    pub fn metadata(&self, out: &mut Vec<u8>) {
        metadata(&self.grid_name, &self.plan, out);
    }

    fn write_grid(&self, out: &mut Vec<u8>) {
        write_grid(&self.grid_name, &self.plan, out);
    }
}

/// Append the metadata of an image that was only planned.
pub fn metadata(grid_name: &str, plan: &Plan, out: &mut Vec<u8>) {
    write_map_head(out, 1);
    write_grid(grid_name, plan, out);
}

fn write_grid(name: &str, plan: &Plan, out: &mut Vec<u8>) {
    write_element_head(name, out);
    write_data(&Data::Tensor(Tensor::int64(&[3], &plan.grid)), out);
    write_field(&Field::BATCHED_ON_CPU, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::item::Item;

    fn spec(extra: &str) -> ImageProcessorSpec {
        let text = format!(
            r#"{{"size": {{"kind": "smart", "patch_size": 16, "merge_size": 2, "temporal_patch_size": 2,
            "min_pixels": 4096, "max_pixels": 1048576}}, "filter": "bicubic", "flavour": "aten",
            "layout": "qwen_patches", "fields": {{"pixels": "pixel_values", "grid": "image_grid_thw"}}, {extra}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn an_item_is_its_head_and_its_tail() {
        let processor = ImageProcessor::new(spec(r#""dtype": "uint8""#)).unwrap();
        let processed = processor.process(&[9; 90 * 50 * 3], 90, 50).unwrap();
        let plan = Plan { resized: Size::new(96, 64), grid: [1, 4, 6], tokens: 6 };
        assert_eq!(processed.plan(), plan);
        assert_eq!(processed.pixels(), vec![9; 24 * 1536]);
        let mut text = Vec::new();
        let mut encoder = base64::Encoder::new(&mut text);
        processed.encode_head(&mut encoder);
        encoder.finish();
        let mut bytes = Vec::new();
        base64::decode(&text, base64::Wrapping::Refused, &mut bytes).unwrap();
        assert_eq!(bytes.len(), processed.head_bytes());
        processed.tail([8, 24], &mut bytes);
        let item = Item::parse(&bytes).unwrap();
        assert_eq!(item.elements[0].field, Field::flat_from_sizes([8, 24], 0));
        assert_eq!(item.elements[1].data, Data::Tensor(Tensor::int64(&[3], &[1, 4, 6])));
        let (mut want, mut got) = (Vec::new(), Vec::new());
        assert!(item.write_metadata(&[], &mut want));
        processed.metadata(&mut got);
        assert_eq!(got, want);
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        assert!(ImageProcessor::new(spec(r#""dtype": "bfloat16""#)).is_err());
        let normalised = r#""dtype": "uint8", "normalisation": {"rescale_factor": 1, "arithmetic": "rescale"}"#;
        assert!(ImageProcessor::new(spec(normalised)).is_err());
    }

    #[test]
    fn faulty_images_are_errors() {
        let processor = ImageProcessor::new(spec(r#""dtype": "uint8""#)).unwrap();
        assert_eq!(processor.process(&[0; 603], 1, 201).unwrap_err().status(), 400);
        assert_eq!(processor.process(&[0; 5], 1, 2).unwrap_err().status(), 500);
        assert_eq!(processor.plan(0, 2).unwrap_err().status(), 400);
    }
}
