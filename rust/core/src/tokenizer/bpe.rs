//! Byte-pair encoding of one word: the merge that comes first in the list is applied first, the leftmost of several.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::{HashMap, HashSet};

use super::vocabulary::{Index, Pieces, Vocabulary};
use super::word_cache::{Key, MAX_WORD, WordCache, fold, high, low};

/// Up to this many symbols, looking through all of them for the next merge is faster than a heap.
const SCAN_LIMIT: usize = 48;

const NO_RANK: u32 = u32::MAX;

/// What two adjacent symbols become, and how early.
#[derive(Clone, Copy)]
struct Merge {
    rank: u32,
    product: u32,
}

#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    /// The merge with the symbol behind; `NO_RANK` if there is none.
    merge: Merge,
}

/// Buffers of one call.
#[derive(Default)]
pub(super) struct Scratch {
    symbols: Vec<Symbol>,
    ids: Vec<u32>,
}

pub(super) struct Merges {
    by_pair: HashMap<u64, Merge, BuildHasherDefault<PairHasher>>,
}

/// A pair of ids is two small numbers: one multiplication spreads them well enough, and this is the innermost loop.
#[derive(Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 << 8 | u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, pair: u64) {
        self.0 = fold(pair, 0x9E37_79B9_7F4A_7C15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[inline]
fn pair(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

impl Merges {
    /// Pairs in order; a pair that comes twice counts where it comes last. `None` if a piece is unknown.
    pub(super) fn new<'a>(
        pairs: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
        vocabulary: &Vocabulary,
    ) -> Option<Self> {
        let mut by_pair = HashMap::with_capacity_and_hasher(pairs.len(), BuildHasherDefault::default());
        let mut joined = String::new();
        for (rank, (left, right)) in (0_u32..NO_RANK).zip(pairs) {
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            let product = vocabulary.id(&joined)?;
            by_pair.insert(pair(vocabulary.id(left)?, vocabulary.id(right)?), Merge { rank, product });
        }
        Some(Self { by_pair })
    }

    /// Ids that a merge makes or takes.
    pub(super) fn ids(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        self.by_pair.iter().map(|(&pair, merge)| (high(pair), low(pair), merge.product))
    }

    #[inline]
    fn of(&self, left: u32, right: u32) -> Merge {
        self.by_pair.get(&pair(left, right)).copied().unwrap_or(Merge { rank: NO_RANK, product: 0 })
    }

    /// Append what the symbols in `scratch.ids` become.
    fn apply(&self, scratch: &mut Scratch, out: &mut Vec<u32>) {
        if scratch.ids.len() > SCAN_LIMIT {
            return self.apply_by_heap(&mut scratch.ids, out);
        }
        let symbols = &mut scratch.symbols;
        symbols.clear();
        let ids = &scratch.ids;
        symbols.extend(ids.iter().enumerate().map(|(at, &id)| Symbol { id, merge: self.behind(ids.get(at + 1), id) }));
        loop {
            let mut first = (NO_RANK, 0);
            for (at, symbol) in symbols.iter().enumerate() {
                if symbol.merge.rank < first.0 {
                    first = (symbol.merge.rank, at);
                }
            }
            let (rank, at) = first;
            if rank == NO_RANK {
                break;
            }
            let id = symbols[at].merge.product;
            symbols.remove(at + 1);
            let merge = self.behind(symbols.get(at + 1).map(|next| &next.id), id);
            symbols[at] = Symbol { id, merge };
            if at > 0 {
                symbols[at - 1].merge = self.of(symbols[at - 1].id, id);
            }
        }
        out.extend(symbols.iter().map(|symbol| symbol.id));
    }

    fn behind(&self, next: Option<&u32>, id: u32) -> Merge {
        next.map_or(Merge { rank: NO_RANK, product: 0 }, |&next| self.of(id, next))
    }

    /// As [`Self::apply`], in `n log n`.
    fn apply_by_heap(&self, ids: &mut [u32], out: &mut Vec<u32>) {
        const GONE: u32 = u32::MAX;
        // Places are counted in 32 bits: a text of 4 GiB is refused long before.
        let last = ids.len() - 1;
        let mut next: Vec<usize> = (1..=ids.len()).collect();
        let mut previous: Vec<usize> = (0..ids.len()).map(|at| at.wrapping_sub(1)).collect();
        let mut queue = BinaryHeap::with_capacity(ids.len());
        let push = |queue: &mut BinaryHeap<_>, at: usize, left: u32, right: u32| {
            let merge = self.of(left, right);
            if merge.rank != NO_RANK {
                queue.push(Reverse((merge.rank, at)));
            }
        };
        for at in 0..last {
            push(&mut queue, at, ids[at], ids[at + 1]);
        }
        while let Some(Reverse((rank, at))) = queue.pop() {
            let right = next[at];
            if ids[at] == GONE || right > last {
                continue;
            }
            let merge = self.of(ids[at], ids[right]);
            if merge.rank != rank {
                continue;
            }
            ids[at] = merge.product;
            ids[right] = GONE;
            next[at] = next[right];
            if next[at] <= last {
                previous[next[at]] = at;
                push(&mut queue, at, ids[at], ids[next[at]]);
            }
            if at > 0 {
                let before = previous[at];
                push(&mut queue, before, ids[before], ids[at]);
            }
        }
        out.extend(ids.iter().copied().filter(|&id| id != GONE));
    }
}

/// Byte-level BPE: symbols are bytes.
pub(super) struct ByteLevelBpe {
    merges: Merges,
    /// Ids of the single bytes, as far as they have one. A byte that has none is left out, as the library does.
    bytes: [Option<u32>; 256],
    /// Bytes that an id stands for; absent if its piece is not in the byte alphabet.
    pieces: Pieces,
    /// Pieces that, standing alone as a word, are one id.
    whole: Index,
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
        let whole = Index::with_capacity(vocabulary.len());
        let mut bpe = Self { merges, bytes, pieces, whole, cache: WordCache::new() };
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
            bpe.whole.insert(&bpe.pieces, id).ok_or("two pieces stand for the same bytes")?;
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
        scratch.ids.clear();
        scratch.ids.extend(word.iter().filter_map(|&byte| self.bytes[usize::from(byte)]));
        self.merges.apply(scratch, out);
    }
}

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
        self.merges.apply(scratch, out);
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
        assert_eq!(
            ["Ġ", "Ċ", "Ń", "ł", "ġ"].map(|name| alphabet_byte(name.chars().next().unwrap())),
            [Some(0x20), Some(0x0A), Some(0xAD), Some(0xA0), Some(0x7F)]
        );
    }

    #[test]
    fn a_heap_merges_as_scanning_does() {
        let pieces = ["a", "b", "c", "ab", "bc", "abc", "aa", "aaaa", "cab"];
        let vocabulary = Vocabulary::new(pieces.into_iter().zip(0..9)).unwrap();
        let pairs = [("a", "b"), ("b", "c"), ("ab", "c"), ("a", "a"), ("aa", "aa"), ("c", "ab")];
        let merges = Merges::new(pairs.into_iter(), &vocabulary).unwrap();
        let mut random = 1_u32;
        for length in 2..=SCAN_LIMIT {
            let ids: Vec<u32> = std::iter::repeat_with(|| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                random >> 16 & 0xFF
            })
            .map(|number| number % 3)
            .take(length)
            .collect();
            let mut scratch = Scratch { ids: ids.clone(), ..Scratch::default() };
            let (mut scanned, mut heaped) = (Vec::new(), Vec::new());
            merges.apply(&mut scratch, &mut scanned);
            merges.apply_by_heap(&mut ids.clone(), &mut heaped);
            assert_eq!(scanned, heaped, "{ids:?}");
        }
    }
}
