//! `MultiModalKwargsItem`: the tensors of one medium and how vLLM puts them back into a batch.
//!
//! Source: protocol.md §4.3. Large tensors are written in pieces ([`write_tensor_head`], the bytes, then
//! [`write_field`]), so that whoever makes the bytes writes them where they stay.

use std::borrow::Cow;

use super::decode;
use super::msgpack as mp;
use crate::error::Result;

/// Extension code of raw tensor bytes.
pub const RAW: u8 = 3;

/// One medium's fields, in the order in which they are written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Item<'a> {
    pub elements: Vec<Element<'a>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Element<'a> {
    pub name: Cow<'a, str>,
    pub data: Data<'a>,
    pub field: Field,
}

/// What a field holds. Lists may nest.
#[derive(Debug, Clone, PartialEq)]
pub enum Data<'a> {
    Nil,
    Int(i64),
    /// Beyond `i64`.
    Uint(u64),
    Float(f64),
    Tensor(Tensor<'a>),
    List(Vec<Data<'a>>),
}

/// Little-endian elements in C order.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor<'a> {
    /// As torch spells it, without a prefix.
    pub dtype: Cow<'a, str>,
    pub shape: Vec<u64>,
    pub bytes: Cow<'a, [u8]>,
}

/// How the field's data is a part of its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub keep_on_cpu: bool,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// One row of a tensor that has a row for each item.
    Batched,
    /// The same for all items.
    Shared { batch_size: u64 },
    /// A range of a tensor that concatenates all items; `slices` lists the ranges of each of them.
    Flat { slices: Vec<Slices>, dim: i64 },
}

/// Where one item lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Slices {
    One(Slice),
    /// One for each dimension, up to the one that items are concatenated in.
    Each(Vec<Slice>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slice {
    pub start: Option<i64>,
    pub stop: Option<i64>,
    pub step: Option<i64>,
}

impl Field {
    pub const BATCHED: Self = Self { keep_on_cpu: false, kind: Kind::Batched };
    pub const BATCHED_ON_CPU: Self = Self { keep_on_cpu: true, kind: Kind::Batched };

    /// Items of these sizes, concatenated in dimension `dim`.
    pub fn flat_from_sizes(sizes: impl IntoIterator<Item = i64>, dim: u8) -> Self {
        let mut start = 0;
        let ranges = sizes.into_iter().map(|size| {
            let mut each = vec![Slice::default(); usize::from(dim)];
            each.push(Slice { start: Some(start), stop: Some(start + size), step: None });
            start += size;
            Slices::Each(each)
        });
        Self { keep_on_cpu: false, kind: Kind::Flat { slices: ranges.collect(), dim: i64::from(dim) } }
    }
}

impl Tensor<'static> {
    pub fn int64(shape: &[u64], values: &[i64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { dtype: Cow::Borrowed("int64"), shape: shape.to_vec(), bytes: Cow::Owned(bytes) }
    }
}

impl<'a> Item<'a> {
    /// Read an item, its keys in any order. 400 for whatever is none; tensors borrow from `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        decode::item(bytes)
    }

    pub fn get(&self, name: &str) -> Option<&Element<'a>> {
        self.elements.iter().find(|element| element.name == name)
    }

    /// Append the item.
    pub fn write(&self, out: &mut Vec<u8>) {
        let elements: Vec<_> = self.elements.iter().collect();
        write_elements(&elements, out);
    }

    /// Append the item reduced to what a scheduler needs: fields kept on the CPU, and `declared` ones. False, and
    /// nothing written, if there are none (null on the wire).
    pub fn write_metadata(&self, declared: &[&str], out: &mut Vec<u8>) -> bool {
        let wanted = |element: &&Element<'_>| element.field.keep_on_cpu || declared.contains(&&*element.name);
        let elements: Vec<_> = self.elements.iter().filter(wanted).collect();
        if !elements.is_empty() {
            write_elements(&elements, out);
        }
        !elements.is_empty()
    }
}

fn write_elements(elements: &[&Element<'_>], out: &mut Vec<u8>) {
    mp::write_map_head(out, elements.len());
    for element in elements {
        write_element_head(&element.name, out);
        write_data(&element.data, out);
        write_field(&element.field, out);
    }
}

/// What precedes an element's data. An item begins with `msgpack::write_map_head` for its number of elements.
pub fn write_element_head(name: &str, out: &mut Vec<u8>) {
    mp::write_str(out, name);
    mp::write_map_head(out, 2);
    mp::write_str(out, "data");
}

/// What precedes the `length` bytes of a tensor.
pub fn write_tensor_head(dtype: &str, shape: &[u64], length: usize, out: &mut Vec<u8>) {
    mp::write_array_head(out, 3);
    mp::write_str(out, dtype);
    mp::write_array_head(out, shape.len());
    for side in shape {
        mp::write_uint(out, *side);
    }
    mp::write_ext_head(out, RAW, length);
}

pub fn write_data(data: &Data<'_>, out: &mut Vec<u8>) {
    match data {
        Data::Nil => mp::write_nil(out),
        Data::Int(value) => mp::write_int(out, *value),
        Data::Uint(value) => mp::write_uint(out, *value),
        Data::Float(value) => mp::write_float(out, *value),
        Data::Tensor(tensor) => {
            write_tensor_head(&tensor.dtype, &tensor.shape, tensor.bytes.len(), out);
            out.extend_from_slice(&tensor.bytes);
        }
        Data::List(list) => {
            mp::write_array_head(out, list.len());
            for data in list {
                write_data(data, out);
            }
        }
    }
}

/// What follows an element's data.
pub fn write_field(field: &Field, out: &mut Vec<u8>) {
    mp::write_str(out, "field");
    mp::write_array_head(out, 2);
    let (name, arguments) = match field.kind {
        Kind::Batched => ("batched", 1),
        Kind::Shared { .. } => ("shared", 2),
        Kind::Flat { .. } => ("flat", 3),
    };
    mp::write_str(out, name);
    mp::write_map_head(out, arguments);
    mp::write_str(out, "keep_on_cpu");
    mp::write_bool(out, field.keep_on_cpu);
    match &field.kind {
        Kind::Batched => {}
        Kind::Shared { batch_size } => {
            mp::write_str(out, "batch_size");
            mp::write_uint(out, *batch_size);
        }
        Kind::Flat { slices, dim } => {
            mp::write_str(out, "slices");
            mp::write_array_head(out, slices.len());
            for slices in slices {
                write_slices(slices, out);
            }
            mp::write_str(out, "dim");
            mp::write_int(out, *dim);
        }
    }
}

fn write_slices(slices: &Slices, out: &mut Vec<u8>) {
    match slices {
        Slices::One(slice) => write_slice(slice, out),
        Slices::Each(each) => {
            mp::write_array_head(out, each.len());
            for slice in each {
                write_slice(slice, out);
            }
        }
    }
}

fn write_slice(slice: &Slice, out: &mut Vec<u8>) {
    mp::write_array_head(out, 3);
    for bound in [slice.start, slice.stop, slice.step] {
        match bound {
            Some(bound) => mp::write_int(out, bound),
            None => mp::write_nil(out),
        }
    }
}

#[cfg(test)]
#[path = "item_tests.rs"]
mod tests;
