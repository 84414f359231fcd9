//! BPE of words of bytes.

use super::merges::{Merge, Merges, NO_MERGE, Scratch, Symbol};
use super::vocabulary::{Pieces, Vocabulary};
use super::whole_words::WholeWords;
use super::word_cache::{Key, MAX_WORD, WordCache};

/// Byte-level BPE: symbols are bytes.
pub(super) struct ByteLevelBpe {
    merges: Merges,
    /// Ids of the single bytes, as far as they have one. A byte that has none is left out, as the library does.
    bytes: [Option<u32>; 256],
    /// Merges of two single bytes, by both: where every word's merging begins.
    byte_pairs: Vec<Merge>,
    /// Bytes that an id stands for; absent if its piece is not in the byte alphabet.
    pieces: Pieces,
    /// Pieces that, standing alone as a word, are one id.
    whole: WholeWords,
    cache: WordCache,
}

impl ByteLevelBpe {
    /// The reason if the vocabulary is not one of byte-level BPE.
    pub(super) fn new(vocabulary: &Vocabulary, merges: Merges, ignore_merges: bool) -> Result<Self, String> {
        let mut pieces = Pieces::default();
        let mut bytes = [None; 256];
        let mut raw = Vec::new();
        for id in 0..u32::try_from(vocabulary.limit()).unwrap_or(u32::MAX) {
            let Some(piece) = vocabulary.piece(id) else { continue };
            if !alphabet_to_bytes(piece, &mut raw) {
                continue;
            }
            if let [byte] = raw[..] {
                bytes[usize::from(byte)] = Some(id);
            }
            pieces.insert(id, &raw).ok_or("ids of the vocabulary are too far apart")?;
        }
        pieces.shrink();
        let pair = |left: Option<u32>, right: Option<u32>| match (left, right) {
            (Some(left), Some(right)) => merges.of(left, right),
            _ => NO_MERGE,
        };
        let byte_pairs = bytes.iter().flat_map(|&left| bytes.iter().map(move |&right| pair(left, right))).collect();
        let whole = WholeWords::with_capacity(vocabulary.len());
        let mut bpe = Self { merges, bytes, byte_pairs, pieces, whole, cache: WordCache::new() };
        let (mut scratch, mut found) = (Scratch::default(), Vec::new());
        for id in 0..u32::try_from(bpe.pieces.limit()).unwrap_or(u32::MAX) {
            let Some(piece) = bpe.pieces.get(id).filter(|piece| piece.len() > 1) else { continue };
            if !ignore_merges {
                found.clear();
                bpe.merge(piece, &mut scratch, &mut found);
                if found != [id] {
                    continue;
                }
            }
            bpe.whole.insert(&bpe.pieces, id);
        }
        Ok(bpe)
    }

    /// Append the ids of the word `text[start..end]`, which is not empty.
    #[inline]
    pub(super) fn encode(&self, text: &[u8], start: usize, end: usize, scratch: &mut Scratch, out: &mut Vec<u32>) {
        if end - start > MAX_WORD {
            return self.encode_new(&text[start..end], scratch, out);
        }
        let key = Key::new(text, start, end);
        if !self.cache.get(&key, out) {
            let before = out.len();
            self.encode_new(&text[start..end], scratch, out);
            self.cache.insert(&key, &out[before..]);
        }
    }

    /// The bytes that an id stands for.
    pub(super) fn piece(&self, id: u32) -> Option<&[u8]> {
        self.pieces.get(id)
    }

    fn encode_new(&self, word: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        match self.whole.get(&self.pieces, word) {
            Some(id) => out.push(id),
            None => self.merge(word, scratch, out),
        }
    }

    fn merge(&self, word: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        let symbols = &mut scratch.symbols;
        symbols.clear();
        for (at, &byte) in word.iter().enumerate() {
            let Some(id) = self.bytes[usize::from(byte)] else {
                return self.merge_known(word, scratch, out);
            };
            let next = word.get(at + 1).map(|&next| self.byte_pairs[usize::from(byte) << 8 | usize::from(next)]);
            symbols.push(Symbol { id, merge: next.unwrap_or(NO_MERGE) });
        }
        self.merges.apply(symbols, out);
    }

    /// As [`Self::merge`], without the bytes that have no token.
    fn merge_known(&self, word: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        scratch.ids.clear();
        scratch.ids.extend(word.iter().filter_map(|&byte| self.bytes[usize::from(byte)]));
        self.merges.begin(&scratch.ids, &mut scratch.symbols);
        self.merges.apply(&mut scratch.symbols, out);
    }
}

/// Bytes of a piece in the alphabet of byte-level BPE, which spells each byte as one printable character; false if the
/// piece has other characters.
pub(super) fn alphabet_to_bytes(piece: &str, bytes: &mut Vec<u8>) -> bool {
    bytes.clear();
    for c in piece.chars() {
        let Some(byte) = alphabet_byte(c) else { return false };
        bytes.push(byte);
    }
    true
}

/// A piece in that alphabet that spells these bytes.
pub(super) fn bytes_to_alphabet(bytes: &[u8]) -> String {
    let spelled = bytes.iter().map(|&byte| {
        let code = match byte {
            0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => u32::from(byte),
            0x00..=0x20 => u32::from(byte) + 0x100,
            0x7F..=0xA0 => u32::from(byte) - 0x7F + 0x121,
            0xAD => 0x143,
        };
        char::from_u32(code).expect("the alphabet is below U+0144")
    });
    spelled.collect()
}

/// The printable bytes stand for themselves; the others, in order, for U+0100 and up.
fn alphabet_byte(c: char) -> Option<u8> {
    let code = u32::from(c);
    let byte = match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_names_every_byte_once() {
        let mut bytes: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(alphabet_byte).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        let mut again = Vec::new();
        assert!(alphabet_to_bytes(&bytes_to_alphabet(&bytes), &mut again));
        assert_eq!(again, bytes);
        assert_eq!(
            ["Ġ", "Ċ", "Ń", "ł", "ġ"].map(|name| alphabet_byte(name.chars().next().unwrap())),
            [Some(0x20), Some(0x0A), Some(0xAD), Some(0xA0), Some(0x7F)]
        );
    }
}
