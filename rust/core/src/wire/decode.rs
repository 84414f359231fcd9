//! Reading an item that anybody may have written.
//!
//! Nothing is allocated for a length that the bytes left do not cover, and nesting is bounded.

use std::borrow::Cow;

use super::item::{Data, Element, Field, Item, Kind, RAW, Slice, Slices, Tensor};
use super::msgpack::{Reader, Token};
use crate::error::Result;

/// Lists inside lists.
const MAX_DEPTH: usize = 16;

/// Fields of an item; real ones have up to a dozen. Names are compared with each other.
const MAX_FIELDS: usize = 256;

pub(super) fn item(bytes: &[u8]) -> Result<Item<'_>> {
    let mut reader = Reader::new(bytes);
    let count = reader.map()?;
    if count > MAX_FIELDS {
        return Err(reader.fault("more fields than any model has"));
    }
    let mut elements: Vec<Element<'_>> = Vec::new();
    for _ in 0..count {
        let name = reader.str()?;
        if elements.iter().any(|element| element.name == name) {
            return Err(reader.fault("a field that occurs twice"));
        }
        elements.push(element(name, &mut reader)?);
    }
    if reader.is_done() { Ok(Item { elements }) } else { Err(reader.fault("bytes after the end")) }
}

fn element<'a>(name: &'a str, reader: &mut Reader<'a>) -> Result<Element<'a>> {
    let (mut found_data, mut found_field) = (None, None);
    for _ in 0..reader.map()? {
        match reader.str()? {
            "data" if found_data.is_none() => found_data = Some(data(reader, 0)?),
            "field" if found_field.is_none() => found_field = Some(field(reader)?),
            _ => return Err(reader.fault("a key that an element does not have")),
        }
    }
    match (found_data, found_field) {
        (Some(data), Some(field)) => Ok(Element { name: Cow::Borrowed(name), data, field }),
        _ => Err(reader.fault("an element without data or field")),
    }
}

fn data<'a>(reader: &mut Reader<'a>, depth: usize) -> Result<Data<'a>> {
    match reader.token()? {
        Token::Nil => Ok(Data::Nil),
        Token::Int(value) => Ok(Data::Int(value)),
        Token::Uint(value) => Ok(i64::try_from(value).map_or(Data::Uint(value), Data::Int)),
        Token::Float(value) => Ok(Data::Float(value)),
        Token::Array(length) => list(reader, length, depth),
        _ => Err(reader.fault("data of a kind that items do not hold")),
    }
}

/// A tensor if it starts with a string, else a list.
fn list<'a>(reader: &mut Reader<'a>, length: usize, depth: usize) -> Result<Data<'a>> {
    let mut ahead = reader.clone();
    if length > 0
        && let Token::Str(dtype) = ahead.token()?
    {
        *reader = ahead;
        return if length == 3 { tensor(reader, dtype) } else { Err(reader.fault("a tensor has three parts")) };
    }
    if depth == MAX_DEPTH {
        return Err(reader.fault("lists nested too deeply"));
    }
    // Grown as elements arrive: an element takes more memory here than on the wire.
    let mut list = Vec::new();
    for _ in 0..length {
        list.push(data(reader, depth + 1)?);
    }
    Ok(Data::List(list))
}

fn tensor<'a>(reader: &mut Reader<'a>, dtype: &'a str) -> Result<Data<'a>> {
    let mut shape = Vec::new();
    for _ in 0..reader.array_head()? {
        shape.push(reader.uint()?);
    }
    let Token::Ext(RAW, bytes) = reader.token()? else {
        return Err(reader.fault("a tensor whose bytes are not inline"));
    };
    let Some(width) = element_bytes(dtype) else {
        return Err(reader.fault("a tensor of an unknown dtype"));
    };
    let zero = shape.contains(&0);
    let expected = shape.iter().try_fold(width, |bytes, side| bytes.checked_mul(*side));
    if (if zero { Some(0) } else { expected }) != Some(bytes.len() as u64) {
        return Err(reader.fault("a tensor whose bytes do not fit its shape"));
    }
    Ok(Data::Tensor(Tensor { dtype: Cow::Borrowed(dtype), shape, bytes: Cow::Borrowed(bytes) }))
}

/// Bytes of an element: torch's names, and numpy's (`<f4`).
fn element_bytes(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "bool" | "uint8" | "int8" | "float8_e4m3fn" | "float8_e4m3fnuz" | "float8_e5m2" | "float8_e5m2fnuz"
        | "float8_e8m0fnu" => 1,
        "float16" | "bfloat16" | "int16" | "uint16" => 2,
        "float32" | "int32" | "uint32" => 4,
        "float64" | "int64" | "uint64" | "complex64" => 8,
        "complex128" => 16,
        _ => {
            let digits = dtype.strip_prefix(['<', '|', '='])?.strip_prefix(['f', 'i', 'u', 'b', 'c'])?;
            match digits {
                "1" => 1,
                "2" => 2,
                "4" => 4,
                "8" => 8,
                "16" => 16,
                _ => return None,
            }
        }
    })
}

fn field(reader: &mut Reader<'_>) -> Result<Field> {
    if reader.array_head()? != 2 {
        return Err(reader.fault("a field has a kind and its arguments"));
    }
    let name = reader.str()?;
    let (mut keep_on_cpu, mut batch_size, mut found_slices, mut dim) = (None, None, None, None);
    for _ in 0..reader.map()? {
        match (reader.str()?, name) {
            ("keep_on_cpu", _) if keep_on_cpu.is_none() => keep_on_cpu = Some(reader.bool()?),
            ("batch_size", "shared") if batch_size.is_none() => batch_size = Some(reader.uint()?),
            ("slices", "flat") if found_slices.is_none() => found_slices = Some(all_slices(reader)?),
            ("dim", "flat") if dim.is_none() => dim = Some(int(reader)?),
            _ => return Err(reader.fault("an argument that the field does not have")),
        }
    }
    let kind = match (name, batch_size, found_slices) {
        ("batched", ..) => Kind::Batched,
        ("shared", Some(batch_size), _) => Kind::Shared { batch_size },
        ("flat", _, Some(slices)) => Kind::Flat { slices, dim: dim.unwrap_or(0) },
        ("shared" | "flat", ..) => return Err(reader.fault("a field without its arguments")),
        _ => return Err(reader.fault("an unknown kind of field")),
    };
    Ok(Field { keep_on_cpu: keep_on_cpu.unwrap_or(false), kind })
}

fn int(reader: &mut Reader<'_>) -> Result<i64> {
    bound(reader)?.ok_or_else(|| reader.fault("an integer was expected"))
}

/// An integer or nil.
fn bound(reader: &mut Reader<'_>) -> Result<Option<i64>> {
    let value = match reader.token()? {
        Token::Nil => return Ok(None),
        Token::Int(value) => Some(value),
        Token::Uint(value) => i64::try_from(value).ok(),
        _ => None,
    };
    value.map(Some).ok_or_else(|| reader.fault("an integer or nil was expected"))
}

fn all_slices(reader: &mut Reader<'_>) -> Result<Vec<Slices>> {
    let mut all = Vec::new();
    for _ in 0..reader.array_head()? {
        all.push(slices(reader)?);
    }
    Ok(all)
}

fn slices(reader: &mut Reader<'_>) -> Result<Slices> {
    let length = reader.array_head()?;
    // A slice holds bounds, a list of slices holds arrays.
    if length == 3 && !matches!(reader.clone().token()?, Token::Array(_)) {
        return Ok(Slices::One(bounds(reader)?));
    }
    let mut each = Vec::new();
    for _ in 0..length {
        if reader.array_head()? != 3 {
            return Err(reader.fault("a slice has three bounds"));
        }
        each.push(bounds(reader)?);
    }
    Ok(Slices::Each(each))
}

fn bounds(reader: &mut Reader<'_>) -> Result<Slice> {
    Ok(Slice { start: bound(reader)?, stop: bound(reader)?, step: bound(reader)? })
}
