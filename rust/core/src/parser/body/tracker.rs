//! Where a JSON value ends, without reading more of it than its brackets and quotes.

use memchr::memchr2;

use crate::parser::state::{Tracker, ValueShape};

impl Tracker {
    pub(crate) fn is_done(self) -> bool {
        self.kind == ValueShape::Done
    }

    /// Go on through `bytes`, from the value's first byte on; how many of them are the value's.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.is_done() {
            if self.kind == ValueShape::Scalar && ends_scalar(bytes[at]) {
                self.kind = ValueShape::Done;
            } else {
                at += self.step(&bytes[at..]);
            }
        }
        at
    }

    /// Go on by one byte, or to the end of a run in a string.
    pub(super) fn step(&mut self, bytes: &[u8]) -> usize {
        let Some(&byte) = bytes.first() else { return 0 };
        if self.kind == ValueShape::NotBegun {
            self.kind = match byte {
                b'{' | b'[' => ValueShape::Container,
                b'"' => ValueShape::Text,
                _ => ValueShape::Scalar,
            };
            self.string = self.kind == ValueShape::Text;
            self.depth = u32::from(self.kind == ValueShape::Container);
            return 1;
        }
        if self.string {
            if std::mem::take(&mut self.escape) {
                return 1;
            }
            let run = memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
            if run > 0 {
                return run;
            }
            self.escape = byte == b'\\';
            if byte == b'"' {
                self.string = false;
                if self.kind == ValueShape::Text {
                    self.kind = ValueShape::Done;
                }
            }
            return 1;
        }
        match byte {
            b'"' if self.kind == ValueShape::Container => self.string = true,
            b'{' | b'[' if self.kind == ValueShape::Container => self.depth = self.depth.saturating_add(1),
            b'}' | b']' if self.kind == ValueShape::Container => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.kind = ValueShape::Done;
                }
            }
            _ => {}
        }
        1
    }
}

fn ends_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_where_its_bracket_closes() {
        for (text, want) in [
            (r#"{"a": "}\"]", "b": [1]} rest"#, r#"{"a": "}\"]", "b": [1]}"#),
            (r#""a\\" x"#, r#""a\\""#),
            ("12.5, x", "12.5"),
            ("null}", "null"),
        ] {
            let mut tracker = Tracker::default();
            assert_eq!(&text[..tracker.advance(text.as_bytes())], want);
            assert!(tracker.is_done());
            for cut in 1..=want.len() {
                let mut tracker = Tracker::default();
                let first = tracker.advance(&text.as_bytes()[..cut]);
                let second = tracker.advance(&text.as_bytes()[first..]);
                assert_eq!(first + second, want.len(), "{text} cut at {cut}");
            }
        }
    }
}
