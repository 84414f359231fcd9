//! From ids to text, for the decoders that generating models have: a table of what each id stands for.

use hashbrown::HashSet;
use serde_json::Value;

use super::added::AddedTokens;
use super::byte_level::{alphabet_to_bytes, bytes_to_alphabet};
use super::normalize::{Normalizer, SPACE_MARK};
use super::vocabulary::{Pieces, Vocabulary};

/// How pieces become text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Pieces spell bytes; the bytes of all ids together are read as UTF-8.
    ByteLevel,
    /// Pieces are text with marks for spaces; `<0x0A>` is a byte. `strips_first` drops one space from the front.
    ByteFallback { strips_first: bool },
    /// Pieces are text with marks for spaces; `strips_first` drops all marks of the first.
    Metaspace { strips_first: bool },
}

/// What an id stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Bytes of text, whole characters but for byte-level pieces; spaces are spaces, but for those of
    /// [`Kind::Metaspace`], which are marked still.
    Text(&'a [u8]),
    /// One byte of a character that the vocabulary lacks.
    Byte(u8),
}

/// A table from ids to what they stand for.
pub(crate) struct Decoder {
    kind: Kind,
    pieces: Pieces,
    /// Ids of [`Piece::Byte`].
    bytes: HashSet<u32>,
    special: HashSet<u32>,
    /// How an added token that is matched on normalized text is spelled, where normalizing changes it.
    respelled: Vec<(u32, String)>,
}

impl Decoder {
    /// `None` if `decoder` of tokenizer.json is an unknown one.
    pub(super) fn new(
        config: &Value,
        vocabulary: &Vocabulary,
        added: &AddedTokens,
        normalizer: &Normalizer,
    ) -> Option<Self> {
        let kind = kind(config)?;
        let specials: HashSet<&str> =
            added.iter().filter(|token| token.special).map(|token| token.content.as_str()).collect();
        let mut respelled = Vec::new();
        let mut by_id: Vec<(u32, String)> = added
            .iter()
            .map(|token| {
                let spelling =
                    if token.normalized { normalizer.normalize(&token.content) } else { (&token.content).into() };
                if spelling != token.content {
                    respelled.push((token.id, spelling.clone().into_owned()));
                }
                (token.id, spelling.into_owned())
            })
            .collect();
        by_id.sort_unstable();
        let limit = by_id.last().map_or(0, |(id, _)| *id as usize + 1).max(vocabulary.limit());
        let piece = |id: u32| {
            let own = by_id.binary_search_by_key(&id, |(id, _)| *id).ok();
            own.map(|at| by_id[at].1.as_str()).or_else(|| vocabulary.piece(id))
        };
        let special = |piece: &str| specials.contains(piece);
        Some(Self { respelled, ..Self::table(kind, u32::try_from(limit).ok()?, piece, special)? })
    }

    /// A table of the ids below `limit`. `None` if `config`, a decoder of tokenizer.json, is an unknown one.
    pub(super) fn of_pieces(
        config: &Value,
        limit: u32,
        piece: impl Fn(u32) -> Option<String>,
        special: impl Fn(&str) -> bool,
    ) -> Option<Self> {
        Self::table(kind(config)?, limit, piece, special)
    }

    fn table<T: AsRef<str>>(
        kind: Kind,
        limit: u32,
        piece: impl Fn(u32) -> Option<T>,
        is_special: impl Fn(&str) -> bool,
    ) -> Option<Self> {
        let (mut pieces, mut special, mut byte_ids) = (Pieces::default(), HashSet::new(), HashSet::new());
        let mut bytes = Vec::new();
        for id in 0..limit {
            let Some(piece) = piece(id) else { continue };
            let piece = piece.as_ref();
            if is_special(piece) {
                special.insert(id);
            }
            match kind {
                Kind::ByteLevel => level_bytes(piece, &mut bytes),
                Kind::Metaspace { .. } => piece.as_bytes().clone_into(&mut bytes),
                Kind::ByteFallback { .. } => {
                    bytes.clear();
                    if let Some(byte) = fallback_byte(piece.as_bytes()) {
                        byte_ids.insert(id);
                        bytes.push(byte);
                    } else {
                        push_spaced(piece.as_bytes(), &mut bytes);
                    }
                }
            }
            pieces.insert(id, &bytes)?;
        }
        pieces.shrink();
        Some(Self { kind, pieces, bytes: byte_ids, special, respelled: Vec::new() })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// `None` for an id outside of the vocabulary.
    #[inline]
    pub(crate) fn piece(&self, id: u32) -> Option<Piece<'_>> {
        let bytes = self.pieces.get(id)?;
        if !self.bytes.is_empty() && self.bytes.contains(&id) {
            return Some(Piece::Byte(bytes[0]));
        }
        Some(Piece::Text(bytes))
    }

    /// What an id stands for, as bytes; none outside of the vocabulary.
    #[inline]
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        self.pieces.get(id).unwrap_or_default()
    }

    /// As [`super::Tokenizer::decode`].
    pub(super) fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> String {
        let mut bytes = Vec::with_capacity(ids.len() * 5);
        let kept = ids.iter().filter(|&id| !(skip_special_tokens && self.special.contains(id)));
        match self.kind {
            Kind::ByteLevel => kept.for_each(|&id| bytes.extend_from_slice(self.bytes(id))),
            Kind::ByteFallback { strips_first } => {
                let mut run = Vec::new();
                for piece in kept.filter_map(|&id| self.piece(id)) {
                    match piece {
                        Piece::Byte(byte) => run.push(byte),
                        Piece::Text(text) => {
                            flush(&mut run, &mut bytes);
                            bytes.extend_from_slice(text);
                        }
                    }
                }
                flush(&mut run, &mut bytes);
                if strips_first && bytes.first() == Some(&b' ') {
                    bytes.remove(0);
                }
            }
            Kind::Metaspace { strips_first } => {
                for (i, piece) in kept.filter_map(|&id| self.pieces.get(id)).enumerate() {
                    push_metaspace(piece, strips_first && i == 0, &mut bytes);
                }
            }
        }
        match String::from_utf8_lossy(&bytes) {
            std::borrow::Cow::Borrowed(_) => String::from_utf8(bytes).unwrap_or_default(),
            std::borrow::Cow::Owned(text) => text,
        }
    }

    /// How an added token is spelled as a piece, where that is not its content.
    pub(super) fn respelled(&self, id: u32) -> Option<&str> {
        self.respelled.iter().find(|(other, _)| *other == id).map(|(_, spelling)| spelling.as_str())
    }
}

fn kind(config: &Value) -> Option<Kind> {
    match config["type"].as_str()? {
        "ByteLevel" => Some(Kind::ByteLevel),
        "Metaspace" if config["replacement"] == SPACE_MARK => match config["prepend_scheme"].as_str() {
            Some("never") => Some(Kind::Metaspace { strips_first: false }),
            Some("first" | "always") => Some(Kind::Metaspace { strips_first: true }),
            _ => None,
        },
        "Sequence" => sequence_kind(config),
        _ => None,
    }
}

fn sequence_kind(config: &Value) -> Option<Kind> {
    let (first, rest) = config["decoders"].as_array()?.split_first_chunk::<3>()?;
    let [replace, fallback, fuse] = first;
    let known = replace["type"] == "Replace"
        && replace["pattern"]["String"] == SPACE_MARK
        && replace["content"] == " "
        && fallback["type"] == "ByteFallback"
        && fuse["type"] == "Fuse";
    match rest {
        [] if known => Some(Kind::ByteFallback { strips_first: false }),
        [strip]
            if known
                && strip["type"] == "Strip"
                && strip["content"] == " "
                && strip["start"] == 1
                && strip["stop"] == 0 =>
        {
            Some(Kind::ByteFallback { strips_first: true })
        }
        _ => None,
    }
}

/// The bytes that a byte-level piece spells: its own, if it is not all in the alphabet of bytes.
pub(crate) fn level_bytes(piece: &str, bytes: &mut Vec<u8>) {
    if !alphabet_to_bytes(piece, bytes) {
        piece.as_bytes().clone_into(bytes);
    }
}

/// A byte-level piece that spells these bytes.
pub(crate) fn level_piece(bytes: &[u8]) -> String {
    bytes_to_alphabet(bytes)
}

/// The byte that a piece such as `<0x0A>` names.
pub(crate) fn fallback_byte(piece: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(piece.strip_prefix(b"<0x")?.strip_suffix(b">")?).ok()?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// A run of bytes as text, or a replacement character for each if they are not UTF-8.
fn flush(run: &mut Vec<u8>, text: &mut Vec<u8>) {
    if std::str::from_utf8(run).is_ok() {
        text.extend_from_slice(run);
    } else {
        text.extend_from_slice("\u{FFFD}".repeat(run.len()).as_bytes());
    }
    run.clear();
}

/// Append a piece with spaces for marks.
pub(crate) fn push_spaced(piece: &[u8], text: &mut Vec<u8>) {
    push_metaspace(piece, false, text);
}

/// Append a piece with spaces for marks, or with nothing for them.
pub(crate) fn push_metaspace(piece: &[u8], drops_marks: bool, text: &mut Vec<u8>) {
    let mark = SPACE_MARK.as_bytes();
    let mut rest = piece;
    while let Some(at) = memchr::memmem::find(rest, mark) {
        text.extend_from_slice(&rest[..at]);
        if !drops_marks {
            text.push(b' ');
        }
        rest = &rest[at + mark.len()..];
    }
    text.extend_from_slice(rest);
}
