//! An exact cache of the texts between added tokens.
//!
//! A conversation is sent again with every turn, and added tokens cut it into the same segments each time. A segment's
//! ids depend on nothing but its text (and on whether it begins the input), so they can be kept. Texts are compared in
//! full: a hash alone is never believed. What has not been used for a while goes: each shard keeps two generations, the
//! older of which is dropped when the younger is full, and what is found in the older moves to the younger.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::CacheStats;

/// Shorter segments are encoded faster than they are looked up.
pub(super) const MIN_SEGMENT: usize = 96;

const MAX_SHARDS: usize = 16;
/// A shard with less room would refuse segments of ordinary length.
const MIN_SHARD_BYTES: usize = 4 << 20;
/// An entry, its place in the table and the headers of its two allocations.
const ENTRY_OVERHEAD: usize = 128;

struct Entry {
    hash: u64,
    begins_input: bool,
    text: Box<str>,
    ids: Arc<[u32]>,
}

impl Entry {
    fn bytes(&self) -> usize {
        cost(&self.text, self.ids.len())
    }

    fn is(&self, text: &str, begins_input: bool) -> bool {
        self.begins_input == begins_input && *self.text == *text
    }
}

fn cost(text: &str, ids: usize) -> usize {
    text.len() + ids * size_of::<u32>() + ENTRY_OVERHEAD
}

#[derive(Default)]
struct Generation {
    entries: HashTable<Entry>,
    bytes: usize,
}

impl Generation {
    fn insert(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.entries.insert_unique(entry.hash, entry, |entry| entry.hash);
    }
}

#[derive(Default)]
struct Shard {
    young: Generation,
    old: Generation,
    hits: u64,
    misses: u64,
}

impl Shard {
    /// Make the young generation the old one if `bytes` more would not fit; what drops out is freed by the caller.
    fn make_room(&mut self, bytes: usize, limit: usize) -> Option<Generation> {
        (self.young.bytes + bytes > limit).then(|| std::mem::replace(&mut self.old, std::mem::take(&mut self.young)))
    }
}

pub(super) struct SegmentCache {
    hasher: DefaultHashBuilder,
    shards: Vec<Mutex<Shard>>,
    /// Bytes of one generation of one shard.
    limit: usize,
}

impl SegmentCache {
    /// `None` if there is no room for anything.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        let shards = (bytes / MIN_SHARD_BYTES).clamp(1, MAX_SHARDS);
        let limit = bytes / shards / 2;
        (limit > ENTRY_OVERHEAD + MIN_SEGMENT).then(|| Self {
            hasher: DefaultHashBuilder::default(),
            shards: std::iter::repeat_with(Mutex::default).take(shards).collect(),
            limit,
        })
    }

    /// Append the segment's ids: those that are kept, or those that `encode` appends, which are kept then. No lock is
    /// held while it encodes.
    pub(super) fn get_or_encode(
        &self,
        text: &str,
        begins_input: bool,
        ids: &mut Vec<u32>,
        encode: impl FnOnce(&mut Vec<u32>),
    ) {
        let hash = self.hasher.hash_one((text, begins_input));
        if let Some(found) = self.get(hash, text, begins_input) {
            ids.extend_from_slice(&found);
            return;
        }
        let before = ids.len();
        encode(ids);
        let new = &ids[before..];
        if cost(text, new.len()) <= self.limit {
            self.insert(Entry { hash, begins_input, text: text.into(), ids: new.into() });
        }
    }

    fn get(&self, hash: u64, text: &str, begins_input: bool) -> Option<Arc<[u32]>> {
        let mut shard = self.shard(hash);
        let is_same = |entry: &Entry| entry.is(text, begins_input);
        if let Some(entry) = shard.young.entries.find(hash, is_same) {
            let ids = Arc::clone(&entry.ids);
            shard.hits += 1;
            return Some(ids);
        }
        let Ok(place) = shard.old.entries.find_entry(hash, is_same) else {
            shard.misses += 1;
            return None;
        };
        let (entry, _) = place.remove();
        let ids = Arc::clone(&entry.ids);
        shard.hits += 1;
        shard.old.bytes -= entry.bytes();
        let dropped = shard.make_room(entry.bytes(), self.limit);
        shard.young.insert(entry);
        drop(shard);
        drop(dropped);
        Some(ids)
    }

    fn insert(&self, entry: Entry) {
        let mut shard = self.shard(entry.hash);
        let is_same = |other: &Entry| other.is(&entry.text, entry.begins_input);
        // Another thread may have been faster.
        if shard.young.entries.find(entry.hash, is_same).is_some() {
            return;
        }
        let dropped = shard.make_room(entry.bytes(), self.limit);
        shard.young.insert(entry);
        drop(shard);
        drop(dropped);
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // Bits that the tables do not go by.
        let number = (hash >> 40) as usize % self.shards.len();
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            stats.hits += shard.hits;
            stats.misses += shard.misses;
            stats.bytes += (shard.young.bytes + shard.old.bytes) as u64;
            stats.entries += (shard.young.entries.len() + shard.old.entries.len()) as u64;
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(cache: &SegmentCache, text: &str, begins_input: bool, encode: u32) -> Vec<u32> {
        let mut ids = vec![7];
        cache.get_or_encode(text, begins_input, &mut ids, |ids| ids.push(encode));
        ids
    }

    #[test]
    fn a_text_is_encoded_once_for_each_place() {
        let cache = SegmentCache::new(1 << 20).unwrap();
        assert_eq!(ids(&cache, "text", true, 1), [7, 1]);
        assert_eq!(ids(&cache, "text", false, 2), [7, 2]);
        assert_eq!(ids(&cache, "text", true, 3), [7, 1]);
        assert_eq!(ids(&cache, "text", false, 4), [7, 2]);
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.entries), (2, 2, 2));
    }

    #[test]
    fn memory_stays_within_the_bound_and_used_entries_stay() {
        let bytes = 1 << 16;
        let cache = SegmentCache::new(bytes).unwrap();
        for number in 0..10_000 {
            ids(&cache, &format!("text number {number}"), false, number);
            assert_eq!(ids(&cache, "kept", false, 1)[1], 1);
        }
        let stats = cache.stats();
        assert!(stats.bytes <= bytes as u64, "{stats:?}");
        assert_eq!(stats.hits, 9_999);
        // Too large for a generation: encoded, not kept.
        let large = "x".repeat(bytes);
        ids(&cache, &large, false, 5);
        assert_eq!(ids(&cache, &large, false, 6), [7, 6]);
        assert!(SegmentCache::new(0).is_none());
    }
}
