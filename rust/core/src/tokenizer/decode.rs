//! From ids to text, for the decoders that generating models have.

use hashbrown::HashSet;
use serde_json::Value;

use super::added::AddedTokens;
use super::byte_level::alphabet_to_bytes;
use super::normalize::{Normalizer, SPACE_MARK};
use super::vocabulary::{Pieces, Vocabulary};

/// How pieces become text.
enum Kind {
    /// Pieces spell bytes; the bytes of all ids together are read as UTF-8.
    ByteLevel,
    /// Pieces are text with marks for spaces; `<0x0A>` is a byte. `strips_first` drops one space from the front.
    ByteFallback { strips_first: bool },
}

/// A table from ids to what they stand for.
pub(super) struct Decoder {
    kind: Kind,
    /// For byte-level the bytes, else the piece.
    pieces: Pieces,
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
        let mut pieces = Pieces::default();
        let mut special = HashSet::new();
        let mut bytes = Vec::new();
        for id in 0..u32::try_from(limit).ok()? {
            let own = by_id.binary_search_by_key(&id, |(id, _)| *id).ok();
            let Some(piece) = own.map(|at| by_id[at].1.as_str()).or_else(|| vocabulary.piece(id)) else { continue };
            if specials.contains(piece) {
                special.insert(id);
            }
            let spells_bytes = matches!(kind, Kind::ByteLevel) && alphabet_to_bytes(piece, &mut bytes);
            pieces.insert(id, if spells_bytes { &bytes } else { piece.as_bytes() })?;
        }
        pieces.shrink();
        Some(Self { kind, pieces, special, respelled })
    }

    /// As [`super::Tokenizer::decode`].
    pub(super) fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> String {
        let mut bytes = Vec::with_capacity(ids.len() * 5);
        let kept = ids.iter().filter(|&id| !(skip_special_tokens && self.special.contains(id)));
        let pieces = kept.filter_map(|&id| self.pieces.get(id));
        match self.kind {
            Kind::ByteLevel => pieces.for_each(|piece| bytes.extend_from_slice(piece)),
            Kind::ByteFallback { strips_first } => {
                let mut run = Vec::new();
                for piece in pieces {
                    if let Some(byte) = fallback_byte(piece) {
                        run.push(byte);
                        continue;
                    }
                    flush(&mut run, &mut bytes);
                    push_spaced(piece, &mut bytes);
                }
                flush(&mut run, &mut bytes);
                if strips_first && bytes.first() == Some(&b' ') {
                    bytes.remove(0);
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
    if config["type"] == "ByteLevel" {
        return Some(Kind::ByteLevel);
    }
    if config["type"] != "Sequence" {
        return None;
    }
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

/// The byte that a piece such as `<0x0A>` names.
fn fallback_byte(piece: &[u8]) -> Option<u8> {
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

fn push_spaced(piece: &[u8], text: &mut Vec<u8>) {
    let mark = SPACE_MARK.as_bytes();
    let mut rest = piece;
    while let Some(at) = memchr::memmem::find(rest, mark) {
        text.extend_from_slice(&rest[..at]);
        text.push(b' ');
        rest = &rest[at + mark.len()..];
    }
    text.extend_from_slice(rest);
}
