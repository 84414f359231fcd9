//! The part of MessagePack that items use: appended to a buffer in the shortest form, and read without trust.
//!
//! Source: the MessagePack specification; protocol.md §4.3 for which forms occur.

use crate::error::{Error, Result};

pub fn write_nil(out: &mut Vec<u8>) {
    out.push(0xc0);
}

pub fn write_bool(out: &mut Vec<u8>, value: bool) {
    out.push(if value { 0xc3 } else { 0xc2 });
}

pub fn write_int(out: &mut Vec<u8>, value: i64) {
    if let Ok(value) = u64::try_from(value) {
        write_uint(out, value);
    } else if let Ok(value) = i8::try_from(value) {
        if value < -32 {
            out.push(0xd0);
        }
        out.extend_from_slice(&value.to_be_bytes());
    } else if let Ok(value) = i16::try_from(value) {
        out.push(0xd1);
        out.extend_from_slice(&value.to_be_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(0xd2);
        out.extend_from_slice(&value.to_be_bytes());
    } else {
        out.push(0xd3);
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub fn write_uint(out: &mut Vec<u8>, value: u64) {
    match u8::try_from(value) {
        Ok(value @ 0..0x80) => out.push(value),
        _ => write_sized(out, value, [Some(0xcc), Some(0xcd), Some(0xce), Some(0xcf)]),
    }
}

pub fn write_float(out: &mut Vec<u8>, value: f64) {
    out.push(0xcb);
    out.extend_from_slice(&value.to_be_bytes());
}

pub fn write_str(out: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()) {
        Ok(length @ 0..32) => out.push(0xa0 | length),
        _ => write_sized(out, text.len() as u64, [Some(0xd9), Some(0xda), Some(0xdb), None]),
    }
    out.extend_from_slice(text.as_bytes());
}

pub fn write_array_head(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(length @ 0..16) => out.push(0x90 | length),
        _ => write_sized(out, length as u64, [None, Some(0xdc), Some(0xdd), None]),
    }
}

pub fn write_map_head(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(length @ 0..16) => out.push(0x80 | length),
        _ => write_sized(out, length as u64, [None, Some(0xde), Some(0xdf), None]),
    }
}

/// What precedes `length` bytes of an extension.
pub fn write_ext_head(out: &mut Vec<u8>, code: u8, length: usize) {
    match length {
        1 | 2 | 4 | 8 | 16 => out.push(0xd4 + u8::try_from(length.trailing_zeros()).expect("at most 4")),
        _ => write_sized(out, length as u64, [Some(0xc7), Some(0xc8), Some(0xc9), None]),
    }
    out.push(code);
}

/// A marker and a big-endian number in the fewest bytes that have a marker: 1, 2, 4 or 8.
fn write_sized(out: &mut Vec<u8>, value: u64, markers: [Option<u8>; 4]) {
    let bytes = value.to_be_bytes();
    for (exponent, marker) in markers.into_iter().enumerate() {
        let width = 1 << exponent;
        if let Some(marker) = marker
            && bytes[..8 - width].iter().all(|byte| *byte == 0)
        {
            out.push(marker);
            out.extend_from_slice(&bytes[8 - width..]);
            return;
        }
    }
    // Buffers of more than 4 GiB cannot be asked for: pixels are bounded long before.
    panic!("{value} does not fit into MessagePack's length");
}

/// One value, or the head of a container whose contents follow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Token<'a> {
    Nil,
    Bool(bool),
    Uint(u64),
    /// Below zero.
    Int(i64),
    Float(f64),
    Str(&'a str),
    Bin(&'a [u8]),
    Ext(u8, &'a [u8]),
    Array(usize),
    Map(usize),
}

/// Tokens that one reader gives. What a token becomes may take a hundred bytes; real items have some dozens of them.
pub const MAX_TOKENS: usize = 1_000_000;

/// Reads tokens from bytes that nobody vouches for.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    tokens: usize,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, tokens: 0 }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn is_done(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// An error that names this place.
    pub fn fault(&self, message: &str) -> Error {
        Error::bad_request(format!("item: {message} at byte {}", self.at))
    }

    /// The next token. A container's length never exceeds the number of bytes that are left, so that it bounds what
    /// a caller may allocate.
    pub fn token(&mut self) -> Result<Token<'a>> {
        if self.tokens == MAX_TOKENS {
            return Err(self.fault("too many values"));
        }
        self.tokens += 1;
        let marker = self.take(1)?[0];
        Ok(match marker {
            0x00..=0x7f => Token::Uint(u64::from(marker)),
            0xe0..=0xff => Token::Int(i64::from(i8::from_be_bytes([marker]))),
            0x80..=0x8f => Token::Map(self.bounded(u64::from(marker & 15), 2)?),
            0x90..=0x9f => Token::Array(self.bounded(u64::from(marker & 15), 1)?),
            0xa0..=0xbf => self.text(usize::from(marker & 31))?,
            0xc0 => Token::Nil,
            0xc2 => Token::Bool(false),
            0xc3 => Token::Bool(true),
            0xc4..=0xc6 => {
                let length = self.length(1 << (marker - 0xc4))?;
                Token::Bin(self.take(length)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(1 << (marker - 0xc7))?;
                self.ext(length)?
            }
            0xca => Token::Float(f64::from(f32::from_be_bytes(self.array()?))),
            0xcb => Token::Float(f64::from_be_bytes(self.array()?)),
            0xcc..=0xcf => Token::Uint(self.unsigned(1 << (marker - 0xcc))?),
            0xd0 => signed(i64::from(i8::from_be_bytes(self.array()?))),
            0xd1 => signed(i64::from(i16::from_be_bytes(self.array()?))),
            0xd2 => signed(i64::from(i32::from_be_bytes(self.array()?))),
            0xd3 => signed(i64::from_be_bytes(self.array()?)),
            0xd4..=0xd8 => self.ext(1 << (marker - 0xd4))?,
            0xd9..=0xdb => {
                let length = self.length(1 << (marker - 0xd9))?;
                self.text(length)?
            }
            0xdc | 0xdd => {
                let length = self.unsigned(2 << (marker - 0xdc))?;
                Token::Array(self.bounded(length, 1)?)
            }
            0xde | 0xdf => {
                let length = self.unsigned(2 << (marker - 0xde))?;
                Token::Map(self.bounded(length, 2)?)
            }
            0xc1 => return Err(self.fault("a byte that MessagePack does not use")),
        })
    }

    pub fn str(&mut self) -> Result<&'a str> {
        match self.token()? {
            Token::Str(text) => Ok(text),
            _ => Err(self.fault("a string was expected")),
        }
    }

    pub fn map(&mut self) -> Result<usize> {
        match self.token()? {
            Token::Map(length) => Ok(length),
            _ => Err(self.fault("a map was expected")),
        }
    }

    pub fn array_head(&mut self) -> Result<usize> {
        match self.token()? {
            Token::Array(length) => Ok(length),
            _ => Err(self.fault("an array was expected")),
        }
    }

    pub fn uint(&mut self) -> Result<u64> {
        match self.token()? {
            Token::Uint(value) => Ok(value),
            _ => Err(self.fault("an unsigned integer was expected")),
        }
    }

    pub fn bool(&mut self) -> Result<bool> {
        match self.token()? {
            Token::Bool(value) => Ok(value),
            _ => Err(self.fault("a bool was expected")),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let taken = self.bytes[self.at..].get(..length).ok_or_else(|| self.fault("the bytes end too early"))?;
        self.at += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(*self.take(N)?.first_chunk().expect("as many bytes as were asked for"))
    }

    fn unsigned(&mut self, width: usize) -> Result<u64> {
        Ok(self.take(width)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn length(&mut self, width: usize) -> Result<usize> {
        let length = self.unsigned(width)?;
        self.bounded(length, 1)
    }

    /// A length of things that take at least `least` bytes each.
    fn bounded(&self, length: u64, least: usize) -> Result<usize> {
        let room = (self.bytes.len() - self.at) / least;
        let length = usize::try_from(length).ok().filter(|length| *length <= room);
        length.ok_or_else(|| self.fault("a length beyond the end"))
    }

    fn text(&mut self, length: usize) -> Result<Token<'a>> {
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(Token::Str).map_err(|_| self.fault("a string that is not UTF-8"))
    }

    fn ext(&mut self, length: usize) -> Result<Token<'a>> {
        let code = self.take(1)?[0];
        Ok(Token::Ext(code, self.take(length)?))
    }
}

fn signed<'a>(value: i64) -> Token<'a> {
    u64::try_from(value).map_or(Token::Int(value), Token::Uint)
}

#[cfg(test)]
#[path = "msgpack_tests.rs"]
mod tests;
