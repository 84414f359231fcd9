//! Byte-pair encoding of one word: the merge that comes first in the list is applied first, the leftmost of several.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::vocabulary::Vocabulary;
use super::word_cache::{fold, high, low};

/// Up to this many symbols, looking through all of them for the next merge is faster than a heap.
const SCAN_LIMIT: usize = 48;

const NO_RANK: u32 = u32::MAX;
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// What two adjacent symbols become, and how early.
#[derive(Clone, Copy)]
pub(super) struct Merge {
    rank: u32,
    product: u32,
}

#[derive(Clone, Copy)]
pub(super) struct Symbol {
    pub id: u32,
    /// The merge with the symbol behind; `NO_MERGE` if there is none.
    pub merge: Merge,
}

/// Buffers of one call.
#[derive(Default)]
pub(super) struct Scratch {
    pub symbols: Vec<Symbol>,
    pub ids: Vec<u32>,
}

/// The merges by pair, in one open table, with a filter in front: most pairs that are asked for have no merge, and the
/// filter stays in the second-level cache where the table does not.
pub(super) struct Merges {
    slots: Vec<Slot>,
    filter: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Slot {
    pair: u64,
    merge: Merge,
}

/// No pair: no symbol has this id.
const EMPTY: u64 = u64::MAX;
pub(super) const NO_MERGE: Merge = Merge { rank: NO_RANK, product: 0 };

/// Bits of the filter for each merge: one in sixteen of the other pairs passes.
const FILTER_BITS: usize = 16;

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
        let slots = (pairs.len() * 4 / 3 + 1).next_power_of_two();
        let filter = (pairs.len() * FILTER_BITS / 64 + 1).next_power_of_two();
        let mut merges = Self { slots: vec![Slot { pair: EMPTY, merge: NO_MERGE }; slots], filter: vec![0; filter] };
        let mut joined = String::new();
        for (rank, (left, right)) in (0_u32..NO_RANK).zip(pairs) {
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            let product = vocabulary.id(&joined)?;
            merges.insert(pair(vocabulary.id(left)?, vocabulary.id(right)?), Merge { rank, product });
        }
        Some(merges)
    }

    fn insert(&mut self, pair: u64, merge: Merge) {
        let hash = fold(pair, SEED);
        let (word, bit) = self.filter_place(hash);
        self.filter[word] |= bit;
        let mut at = self.first_slot(hash);
        while self.slots[at].pair != EMPTY && self.slots[at].pair != pair {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = Slot { pair, merge };
    }

    #[inline]
    fn filter_place(&self, hash: u64) -> (usize, u64) {
        (high(hash) as usize & (self.filter.len() - 1), 1 << (hash >> 58))
    }

    #[inline]
    fn first_slot(&self, hash: u64) -> usize {
        low(hash) as usize & (self.slots.len() - 1)
    }

    /// Ids that a merge makes or takes.
    pub(super) fn ids(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        let used = self.slots.iter().filter(|slot| slot.pair != EMPTY);
        used.map(|slot| (high(slot.pair), low(slot.pair), slot.merge.product))
    }

    #[inline]
    pub(super) fn of(&self, left: u32, right: u32) -> Merge {
        let pair = pair(left, right);
        let hash = fold(pair, SEED);
        let (word, bit) = self.filter_place(hash);
        if self.filter[word] & bit == 0 {
            return NO_MERGE;
        }
        let mut at = self.first_slot(hash);
        loop {
            let slot = self.slots[at & (self.slots.len() - 1)];
            if slot.pair == pair {
                return slot.merge;
            }
            if slot.pair == EMPTY {
                return NO_MERGE;
            }
            at += 1;
        }
    }

    /// Symbols of ids, for [`Self::apply`].
    pub(super) fn begin(&self, ids: &[u32], symbols: &mut Vec<Symbol>) {
        symbols.clear();
        let merges = ids.windows(2).map(|two| self.of(two[0], two[1])).chain([NO_MERGE]);
        symbols.extend(ids.iter().zip(merges).map(|(&id, merge)| Symbol { id, merge }));
    }

    /// Append what symbols become; each comes with what it and the next one merge to, as [`Self::of`] says.
    pub(super) fn apply(&self, symbols: &mut Vec<Symbol>, out: &mut Vec<u32>) {
        if symbols.len() > SCAN_LIMIT {
            return self.apply_by_heap(symbols, out);
        }
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
            let merge = symbols.get(at + 1).map_or(NO_MERGE, |next| self.of(id, next.id));
            symbols[at] = Symbol { id, merge };
            if at > 0 {
                symbols[at - 1].merge = self.of(symbols[at - 1].id, id);
            }
        }
        out.extend(symbols.iter().map(|symbol| symbol.id));
    }

    /// As [`Self::apply`], in `n log n`.
    fn apply_by_heap(&self, symbols: &mut [Symbol], out: &mut Vec<u32>) {
        const GONE: u32 = u32::MAX;
        let last = symbols.len() - 1;
        let mut next: Vec<usize> = (1..=symbols.len()).collect();
        let mut previous: Vec<usize> = (0..symbols.len()).map(|at| at.wrapping_sub(1)).collect();
        let mut queue: BinaryHeap<_> = symbols[..last]
            .iter()
            .enumerate()
            .filter(|(_, symbol)| symbol.merge.rank != NO_RANK)
            .map(|(at, symbol)| Reverse((symbol.merge.rank, at)))
            .collect();
        while let Some(Reverse((rank, at))) = queue.pop() {
            let right = next[at];
            // An entry whose symbol has been merged since says nothing any more.
            if symbols[at].id == GONE || symbols[at].merge.rank != rank {
                continue;
            }
            symbols[at].id = symbols[at].merge.product;
            symbols[right].id = GONE;
            next[at] = next[right];
            let behind = symbols.get(next[at]).map(|next| next.id);
            let merge = behind.map_or(NO_MERGE, |behind| self.of(symbols[at].id, behind));
            symbols[at].merge = merge;
            if merge.rank != NO_RANK {
                queue.push(Reverse((merge.rank, at)));
            }
            if next[at] <= last {
                previous[next[at]] = at;
            }
            if at > 0 {
                let before = previous[at];
                let merge = self.of(symbols[before].id, symbols[at].id);
                symbols[before].merge = merge;
                if merge.rank != NO_RANK {
                    queue.push(Reverse((merge.rank, before)));
                }
            }
        }
        out.extend(symbols.iter().map(|symbol| symbol.id).filter(|&id| id != GONE));
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
            let mut symbols = Vec::new();
            merges.begin(&ids, &mut symbols);
            let (mut scanned, mut heaped) = (Vec::new(), Vec::new());
            merges.apply_by_heap(&mut symbols.clone(), &mut heaped);
            merges.apply(&mut symbols, &mut scanned);
            assert_eq!(scanned, heaped, "{ids:?}");
        }
    }
}
