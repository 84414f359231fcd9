//! Base64 with SIMD: encoded from consecutive pieces, decoded from a range of a request's body.
//!
//! The standard alphabet with padding. Decoding refuses what vLLM refuses (`pybase64`, `validate=True`), which lets
//! set bits below the last byte pass. Lines may be wrapped where the caller asks for it, which vLLM does not take.

use std::fmt;

use base64_simd::STANDARD_NO_PAD;

use crate::error::Error;

/// Bytes of text that `length` bytes become.
pub fn encoded_length(length: usize) -> usize {
    length.div_ceil(3) * 4
}

/// Appends the base64 of pieces that follow each other, as if they were one.
///
/// ```
/// use fastrender_core::wire::base64::Encoder;
///
/// let mut out = Vec::new();
/// let mut encoder = Encoder::new(&mut out);
/// encoder.push(b"hel");
/// encoder.push(b"lo");
/// encoder.finish();
/// assert_eq!(out, b"aGVsbG8=");
/// ```
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    /// Bytes that do not fill a group of three yet.
    left: [u8; 3],
    count: usize,
}

impl<'a> Encoder<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, left: [0; 3], count: 0 }
    }

    /// Append a piece, all but its last one or two bytes.
    pub fn push(&mut self, mut piece: &[u8]) {
        while self.count > 0 && !piece.is_empty() {
            self.left[self.count] = piece[0];
            piece = &piece[1..];
            self.count = (self.count + 1) % 3;
            if self.count == 0 {
                STANDARD_NO_PAD.encode_append(self.left, self.out);
            }
        }
        let (whole, rest) = piece.split_at(piece.len() - piece.len() % 3);
        // The encoder reserves exactly what it needs; growth by doubling is what pieces want.
        self.out.reserve(encoded_length(piece.len()));
        STANDARD_NO_PAD.encode_append(whole, self.out);
        if !rest.is_empty() {
            self.left[..rest.len()].copy_from_slice(rest);
            self.count = rest.len();
        }
    }

    /// Append what is left, and the padding.
    pub fn finish(self) {
        if self.count > 0 {
            STANDARD_NO_PAD.encode_append(&self.left[..self.count], self.out);
            self.out.extend_from_slice(&b"=="[..3 - self.count]);
        }
    }
}

/// Append the base64 of consecutive pieces.
pub fn encode(pieces: &[&[u8]], out: &mut Vec<u8>) {
    out.reserve(encoded_length(pieces.iter().map(|piece| piece.len()).sum()));
    let mut encoder = Encoder::new(out);
    for piece in pieces {
        encoder.push(piece);
    }
    encoder.finish();
}

/// What may stand between the letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrapping {
    /// Nothing, as vLLM has it.
    Refused,
    /// ASCII whitespace, anywhere.
    Allowed,
}

/// Why and where a text is not base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeError {
    /// In bytes from the start of the text.
    pub position: usize,
    pub message: &'static str,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "base64: {} at byte {}", self.message, self.position)
    }
}

impl std::error::Error for DecodeError {}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        Error::bad_request(error.to_string())
    }
}

/// Append the bytes that `text` stands for. On failure `out` is as it was.
pub fn decode(text: &[u8], wrapping: Wrapping, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let start = out.len();
    out.reserve(text.len() / 4 * 3 + 3);
    if decode_unwrapped(text, out).is_some() {
        return Ok(());
    }
    out.truncate(start);
    if wrapping == Wrapping::Allowed && text.iter().any(u8::is_ascii_whitespace) {
        let mut letters = Vec::with_capacity(text.len());
        for line in text.split(u8::is_ascii_whitespace) {
            letters.extend_from_slice(line);
        }
        if decode_unwrapped(&letters, out).is_some() {
            return Ok(());
        }
        out.truncate(start);
    }
    Err(fault(text, wrapping))
}

fn decode_unwrapped(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (groups, rest) = text.as_chunks::<4>();
    let Some((last, groups)) = groups.split_last().filter(|_| rest.is_empty()) else {
        return text.is_empty().then_some(());
    };
    STANDARD_NO_PAD.decode_append(groups.as_flattened(), out).ok()?;
    let padding = last.iter().rev().take_while(|letter| **letter == b'=').count();
    let mut bits = 0;
    for letter in &last[..4 - padding] {
        bits = bits << 6 | u32::from(value(*letter)?);
    }
    let bytes = (bits << (6 * padding)).to_be_bytes();
    match padding {
        0..=2 => out.extend_from_slice(&bytes[1..4 - padding]),
        _ => return None,
    }
    Some(())
}

fn value(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// Find what is wrong with a text that did not decode.
fn fault(text: &[u8], wrapping: Wrapping) -> DecodeError {
    let mut letters = 0;
    let mut padding = None;
    for (position, letter) in text.iter().enumerate() {
        match letter {
            b'=' if padding.is_none() => padding = Some(position),
            b'=' => {}
            _ if wrapping == Wrapping::Allowed && letter.is_ascii_whitespace() => continue,
            _ if padding.is_some() => return DecodeError { position, message: "text after the padding" },
            _ if value(*letter).is_none() => {
                return DecodeError { position, message: "a character that is not of its alphabet" };
            }
            _ => {}
        }
        letters += 1;
    }
    let message = match padding {
        Some(_) => "padding that does not fit the text",
        None if letters % 4 == 1 => "a letter that stands for nothing",
        None => "missing padding",
    };
    DecodeError { position: padding.unwrap_or(text.len()), message }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(text: &str, wrapping: Wrapping) -> Result<String, usize> {
        let mut out = Vec::new();
        decode(text.as_bytes(), wrapping, &mut out).map_err(|error| error.position)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn what_vllm_refuses_is_refused() {
        for (text, want) in [
            ("", Ok("")),
            ("YQ==", Ok("a")),
            ("YR==", Ok("a")),
            ("YWI=", Ok("ab")),
            ("YWJj", Ok("abc")),
            ("YWI==", Err(3)),
            ("YWI", Err(3)),
            ("YQ=", Err(2)),
            ("Y===", Err(1)),
            ("====", Err(0)),
            ("YWJj=", Err(4)),
            ("YWJj====", Err(4)),
            ("YQ==YQ==", Err(4)),
            ("YW=j", Err(3)),
            ("YW-j", Err(2)),
            ("YWJj\n", Err(4)),
            ("YW\nJj", Err(2)),
        ] {
            assert_eq!(decoded(text, Wrapping::Refused), want.map(str::to_owned), "{text:?}");
        }
    }

    #[test]
    fn lines_may_be_wrapped_where_allowed() {
        assert_eq!(decoded("YW\r\nJj\n", Wrapping::Allowed), Ok("abc".to_owned()));
        assert_eq!(decoded(" Y Q = = ", Wrapping::Allowed), Ok("a".to_owned()));
        assert_eq!(decoded("YW\nJ*", Wrapping::Allowed), Err(4));
        assert_eq!(decoded("YW\nJ", Wrapping::Allowed), Err(4));
    }

    #[test]
    fn a_failure_leaves_the_buffer_alone() {
        let mut out = b"kept".to_vec();
        assert!(decode(b"YWJjYWJjYWJj*WJj", Wrapping::Allowed, &mut out).is_err());
        assert_eq!(out, b"kept");
    }

    proptest! {
        #[test]
        fn pieces_are_as_one(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..70), 0..6)) {
            let views: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let mut text = Vec::new();
            encode(&views, &mut text);
            let whole = pieces.concat();
            let want = base64_simd::STANDARD.encode_to_string(&whole);
            prop_assert_eq!(&text, want.as_bytes());
            let mut back = Vec::new();
            decode(&text, Wrapping::Refused, &mut back).unwrap();
            prop_assert_eq!(back, whole);
        }

        #[test]
        fn any_text_is_decoded_or_refused(text in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut out = Vec::new();
            if let Err(error) = decode(&text, Wrapping::Allowed, &mut out) {
                prop_assert!(error.position <= text.len());
                prop_assert!(out.is_empty());
            }
        }
    }
}
