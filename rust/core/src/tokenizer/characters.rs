//! BPE of whole texts of characters, with bytes where a character has no token.

use hashbrown::{HashMap, HashSet};

use super::merges::{Merges, Scratch};
use super::vocabulary::Vocabulary;
use super::word_cache::{Key, MAX_WORD, WordCache};

/// BPE with byte fallback over a whole text: symbols are characters, or their bytes where a character has no token.
pub(super) struct CharacterBpe {
    merges: Merges,
    /// Ids of the bytes' own tokens, `<0x00>` to `<0xFF>`.
    bytes: [u32; 256],
    characters: HashMap<char, u32>,
    adjacent: AdjacentPairs,
    cache: WordCache,
}

impl CharacterBpe {
    /// The reason if a character might be unknown, or if bytes' tokens take part in merges.
    pub(super) fn new(vocabulary: &Vocabulary, merges: Merges) -> Result<Self, String> {
        let mut bytes = [0; 256];
        for (byte, place) in bytes.iter_mut().enumerate() {
            *place = vocabulary.id(&format!("<0x{byte:02X}>")).ok_or("a byte has no token of its own")?;
        }
        let mut characters = HashMap::new();
        for id in 0..u32::try_from(vocabulary.limit()).unwrap_or(u32::MAX) {
            let mut piece = vocabulary.piece(id).unwrap_or_default().chars();
            if let (Some(c), None) = (piece.next(), piece.next()) {
                characters.insert(c, id);
            }
        }
        let mut pairs = HashSet::new();
        for (left, right, product) in merges.ids() {
            if bytes.contains(&left) || bytes.contains(&right) {
                return Err("a merge takes the token of a byte".to_owned());
            }
            let piece = vocabulary.piece(product).unwrap_or_default();
            pairs.extend(piece.chars().zip(piece.chars().skip(1)));
        }
        let adjacent = AdjacentPairs::new(&pairs);
        Ok(Self { merges, bytes, characters, adjacent, cache: WordCache::new() })
    }

    /// Append the ids of a text.
    ///
    /// The text is cut between characters that no merge ever joins: no merge reaches across such a place, so the parts are
    /// independent, and short enough to be remembered.
    pub(super) fn encode(&self, text: &str, scratch: &mut Scratch, out: &mut Vec<u32>) {
        let bytes = text.as_bytes();
        let mut start = 0;
        let mut before = None;
        for (at, c) in text.char_indices() {
            if before.is_some_and(|before| !self.adjacent.may_contain(before, c)) {
                self.encode_part(bytes, start, at, scratch, out);
                start = at;
            }
            before = Some(c);
        }
        if start < bytes.len() {
            self.encode_part(bytes, start, bytes.len(), scratch, out);
        }
    }

    fn encode_part(&self, text: &[u8], start: usize, end: usize, scratch: &mut Scratch, out: &mut Vec<u32>) {
        if end - start > MAX_WORD {
            return self.merge(&text[start..end], scratch, out);
        }
        let key = Key::new(text, start, end);
        if !self.cache.get(&key, out) {
            let before = out.len();
            self.merge(&text[start..end], scratch, out);
            self.cache.insert(&key, &out[before..]);
        }
    }

    fn merge(&self, part: &[u8], scratch: &mut Scratch, out: &mut Vec<u32>) {
        scratch.ids.clear();
        for c in std::str::from_utf8(part).expect("parts are cut between characters").chars() {
            if let Some(&id) = self.characters.get(&c) {
                scratch.ids.push(id);
            } else {
                let mut buffer = [0; 4];
                let bytes = c.encode_utf8(&mut buffer).as_bytes();
                scratch.ids.extend(bytes.iter().map(|&byte| self.bytes[usize::from(byte)]));
            }
        }
        self.merges.begin(&scratch.ids, &mut scratch.symbols);
        self.merges.apply(&mut scratch.symbols, out);
    }
}

/// Pairs of characters that stand side by side in some merged token; may name others too, but misses none.
struct AdjacentPairs {
    bits: Vec<u64>,
}

impl AdjacentPairs {
    fn new(pairs: &HashSet<(char, char)>) -> Self {
        // 32 bits a pair: one in thirty of the others is mistaken for one.
        let mut adjacent = Self { bits: vec![0; (pairs.len() / 2).next_power_of_two()] };
        for &(left, right) in pairs {
            let (word, bit) = adjacent.place(left, right);
            adjacent.bits[word] |= bit;
        }
        adjacent
    }

    #[inline]
    fn may_contain(&self, left: char, right: char) -> bool {
        let (word, bit) = self.place(left, right);
        self.bits[word] & bit != 0
    }

    #[inline]
    fn place(&self, left: char, right: char) -> (usize, u64) {
        let pair = u64::from(u32::from(left)) << 32 | u64::from(u32::from(right));
        let hash = pair.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (pair >> 21).wrapping_mul(0xA409_3822_299F_31D1);
        ((hash >> 20) as usize & (self.bits.len() - 1), 1 << (hash >> 58))
    }
}
