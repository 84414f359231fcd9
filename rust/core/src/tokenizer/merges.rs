//! Byte-pair encoding of one word: the merge that comes first in the list is applied first, the leftmost of several.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

use super::vocabulary::Vocabulary;
use super::word_cache::{fold, high, low};

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
    /// The symbols that [`Merges::apply`] begins with.
    pub ids: Vec<u32>,
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
    pub(super) fn apply(&self, scratch: &mut Scratch, out: &mut Vec<u32>) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
