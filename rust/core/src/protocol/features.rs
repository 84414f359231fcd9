//! `features` of a `GenerateRequest`: hashes, places and tensors of a prompt's media.
//!
//! Source: vLLM's `entrypoints/scale_out/token_in_token_out/mm_features.py`.

use std::ops::Range;

use super::generate::Nulls;
use super::sampling::ObjectWriter;
use crate::conversation::Modality;
use crate::image::Processed;
use crate::json::write_str;
use crate::placeholder::PlaceholderRange;
use crate::wire::base64::{Encoder, encoded_length};

/// One medium.
#[derive(Debug, Clone, Copy)]
pub struct Feature<'r> {
    pub modality: Modality,
    pub hash: &'r str,
    pub range: PlaceholderRange,
    pub processed: Option<&'r Processed>,
}

/// The media of a prompt, in request order.
#[derive(Debug, Clone)]
pub struct Features<'r> {
    pub items: Vec<Feature<'r>>,
    /// `mm_payload: "none"`: both data fields are null, which says that there are no tensors in this answer, and not
    /// (as null says elsewhere) that the engine has them. `payload_omitted` marks the difference.
    pub omit_payload: bool,
}

impl Features<'_> {
    /// Move the places for a prompt that keeps only these of its ids; false if a medium would be cut.
    pub fn shift(&mut self, kept: &Range<usize>) -> bool {
        self.items.iter_mut().all(|item| {
            let range = &mut item.range;
            let inside = range.offset >= kept.start && range.offset + range.length <= kept.end;
            range.offset = range.offset.saturating_sub(kept.start);
            inside
        })
    }

    fn processed(&self) -> impl Iterator<Item = &Processed> {
        self.items.iter().filter_map(|item| item.processed)
    }

    /// Bytes that [`Self::write`] needs at most.
    pub fn size(&self) -> usize {
        let item = |item: &Feature<'_>| 1024 + item.processed.map_or(0, |image| encoded_length(image.head_bytes()));
        self.items.iter().map(item).sum()
    }

    /// Append as JSON.
    pub fn write(&self, out: &mut Vec<u8>, nulls: Nulls) {
        let mut object = ObjectWriter::new(out);
        self.write_lists(object.key("mm_hashes"), |out, item| write_str(out, item.hash));
        self.write_lists(object.key("mm_placeholders"), |out, item| {
            let mut range = ObjectWriter::new(out);
            range.int("offset", i128::try_from(item.range.offset).unwrap_or(i128::MAX));
            range.int("length", i128::try_from(item.range.length).unwrap_or(i128::MAX));
            range.end();
        });
        if self.omit_payload {
            if nulls == Nulls::Write {
                object.key("kwargs_data").extend_from_slice(b"null");
                object.key("mm_metadata").extend_from_slice(b"null");
            }
            object.key("payload_omitted").extend_from_slice(b"{}");
        } else {
            // A flat tensor's ranges name all images of the request.
            let rows: Vec<i64> = self.processed().map(|image| image.plan().rows()).collect();
            let mut rest = Vec::new();
            self.write_lists(object.key("kwargs_data"), |out, item| {
                rest.clear();
                write_base64(out, |encoder| {
                    if let Some(image) = item.processed {
                        image.encode_head(encoder);
                        image.tail(rows.iter().copied(), &mut rest);
                    }
                    encoder.push(&rest);
                });
            });
            self.write_lists(object.key("mm_metadata"), |out, item| {
                rest.clear();
                item.processed.inspect(|image| image.metadata(&mut rest));
                write_base64(out, |encoder| encoder.push(&rest));
            });
        }
        object.end();
    }

    /// An object with a list for each modality.
    fn write_lists(&self, out: &mut Vec<u8>, mut write: impl FnMut(&mut Vec<u8>, &Feature<'_>)) {
        let mut object = ObjectWriter::new(out);
        for modality in [Modality::Image, Modality::Audio, Modality::Video] {
            let mut items = self.items.iter().filter(|item| item.modality == modality).peekable();
            if items.peek().is_none() {
                continue;
            }
            let out = object.key(modality.name());
            for (i, item) in items.enumerate() {
                out.push(if i > 0 { b',' } else { b'[' });
                write(out, item);
            }
            out.push(b']');
        }
        object.end();
    }
}

fn write_base64(out: &mut Vec<u8>, push: impl FnOnce(&mut Encoder<'_>)) {
    out.push(b'"');
    let mut encoder = Encoder::new(out);
    push(&mut encoder);
    encoder.finish();
    out.push(b'"');
}
