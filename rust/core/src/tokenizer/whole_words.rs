//! Words that are one token, found by their bytes.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;

use super::vocabulary::Pieces;
use super::word_cache::low;

/// Few texts keep the table in a cache, so what is compared first lies beside the id.
#[derive(Clone, Copy)]
struct Slot {
    /// Part of the hash; `id` is `EMPTY` where there is no word.
    fingerprint: u32,
    id: u32,
}

const EMPTY: Slot = Slot { fingerprint: 0, id: u32::MAX };

/// An open table, at most half full; the bytes stay with their owner.
pub(super) struct WholeWords {
    hasher: DefaultHashBuilder,
    slots: Vec<Slot>,
}

impl WholeWords {
    pub(super) fn with_capacity(words: usize) -> Self {
        Self { hasher: DefaultHashBuilder::default(), slots: vec![EMPTY; (2 * words + 1).next_power_of_two()] }
    }

    /// Enter the piece of an id. Of two ids with the same bytes the first is found; there must be room.
    pub(super) fn insert(&mut self, pieces: &Pieces, id: u32) {
        let Some(word) = pieces.get(id) else { return };
        let hash = self.hasher.hash_one(word);
        let mut at = self.first_slot(hash);
        while self.slots[at].id != EMPTY.id {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = Slot { fingerprint: fingerprint(hash), id };
    }

    pub(super) fn get(&self, pieces: &Pieces, word: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(word);
        let mut at = self.first_slot(hash);
        loop {
            let slot = self.slots[at];
            if slot.id == EMPTY.id {
                return None;
            }
            if slot.fingerprint == fingerprint(hash) && pieces.get(slot.id) == Some(word) {
                return Some(slot.id);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn first_slot(&self, hash: u64) -> usize {
        low(hash) as usize & (self.slots.len() - 1)
    }
}

/// Bits that the place in the table does not go by.
fn fingerprint(hash: u64) -> u32 {
    low(hash >> 32)
}
