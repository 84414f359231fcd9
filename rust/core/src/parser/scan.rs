//! Finding the markers of a format in text that comes in parts.

use memchr::{memchr, memchr2, memchr3};

/// What a marker means in the phase in which it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    ThinkOpen,
    ThinkClose,
    SectionOpen,
    SectionClose,
    CallOpen,
    CallClose,
    /// A brace or bracket that may begin a call by itself.
    Bare,
    /// Text after which a bare body may open again.
    Restart,
    NameEnd,
    BeforeName,
    KeyOpen,
    KeyEnd,
    ValueOpen,
    ValueClose,
    Swallow,
}

#[derive(Debug, Clone)]
struct Marker {
    text: String,
    role: Role,
    /// The tokenizer has a token for it, which alone counts.
    token: bool,
}

/// The markers of one phase.
#[derive(Debug, Clone, Default)]
pub(crate) struct MarkerSet {
    /// The longest first.
    markers: Vec<Marker>,
    firsts: Vec<u8>,
}

/// The first thing in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A marker, and where it starts and ends.
    Marker { start: usize, end: usize, role: Role },
    /// No marker begins before this offset; one might at it.
    Plain(usize),
}

impl MarkerSet {
    pub(crate) fn add(&mut self, text: &str, role: Role, token: bool) {
        if self.markers.iter().any(|marker| marker.text == text) {
            return;
        }
        self.markers.push(Marker { text: text.to_owned(), role, token });
        self.markers.sort_by_key(|marker| std::cmp::Reverse(marker.text.len()));
        let first = text.as_bytes()[0];
        if !token && !self.firsts.contains(&first) {
            self.firsts.push(first);
        }
    }

    /// What the token of this text means here.
    pub(crate) fn token(&self, text: &str) -> Option<Role> {
        self.markers.iter().find(|marker| marker.token && marker.text == text).map(|marker| marker.role)
    }

    /// What this text means here, by token or not.
    pub(crate) fn role(&self, text: &str) -> Option<Role> {
        self.markers.iter().find(|marker| marker.text == text).map(|marker| marker.role)
    }

    /// A marker may begin with this byte.
    pub(crate) fn is_first(&self, byte: u8) -> bool {
        self.firsts.contains(&byte)
    }

    /// The first marker in `text`, or how much of it certainly holds none. At the end nothing can follow.
    pub(crate) fn find(&self, text: &str, last: bool) -> Found {
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(offset) = self.next_first(&bytes[at..]) {
            let start = at + offset;
            match self.at(&bytes[start..], last) {
                At::Marker(length, role) => return Found::Marker { start, end: start + length, role },
                At::Unfinished => return Found::Plain(start),
                At::Nothing => at = start + 1,
            }
        }
        Found::Plain(bytes.len())
    }

    /// The marker at the very beginning of `bytes`.
    pub(crate) fn at(&self, bytes: &[u8], last: bool) -> At {
        let mut found = At::Nothing;
        for marker in self.markers.iter().filter(|marker| !marker.token) {
            let literal = marker.text.as_bytes();
            if bytes.starts_with(literal) {
                return if let At::Unfinished = found { found } else { At::Marker(literal.len(), marker.role) };
            }
            if !last && bytes.len() < literal.len() && literal.starts_with(bytes) {
                found = At::Unfinished;
            }
        }
        found
    }

    /// Where the next byte is that begins a marker.
    pub(crate) fn next_first(&self, bytes: &[u8]) -> Option<usize> {
        match self.firsts[..] {
            [] => None,
            [a] => memchr(a, bytes),
            [a, b] => memchr2(a, b, bytes),
            [a, b, c] => memchr3(a, b, c, bytes),
            _ => bytes.iter().position(|byte| self.firsts.contains(byte)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Marker(usize, Role),
    /// What follows decides.
    Unfinished,
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(markers: &[(&str, Role)]) -> MarkerSet {
        let mut set = MarkerSet::default();
        for (text, role) in markers {
            set.add(text, *role, false);
        }
        set
    }

    #[test]
    fn the_longest_marker_wins_once_it_is_certain() {
        let set = set(&[("<a=", Role::KeyOpen), ("<a=\"", Role::CallOpen)]);
        assert_eq!(set.find("x<a=", false), Found::Plain(1));
        assert_eq!(set.find("x<a=", true), Found::Marker { start: 1, end: 4, role: Role::KeyOpen });
        assert_eq!(set.find("x<a=\"", false), Found::Marker { start: 1, end: 5, role: Role::CallOpen });
        assert_eq!(set.find("x<a=y", false), Found::Marker { start: 1, end: 4, role: Role::KeyOpen });
    }

    #[test]
    fn only_a_suffix_that_may_become_a_marker_is_held() {
        let set = set(&[("<tool_call>", Role::CallOpen)]);
        assert_eq!(set.find("a < b <tool", false), Found::Plain(6));
        assert_eq!(set.find("a < b <tool", true), Found::Plain(11));
        assert_eq!(set.find("<<tool_kit>", false), Found::Plain(11));
    }

    #[test]
    fn a_marker_with_a_token_is_not_found_in_text() {
        let mut set = MarkerSet::default();
        set.add("</think>", Role::ThinkClose, true);
        assert_eq!(set.find("a </think> b", false), Found::Plain(12));
        assert_eq!(set.token("</think>"), Some(Role::ThinkClose));
        assert_eq!(set.token("<think>"), None);
    }
}
