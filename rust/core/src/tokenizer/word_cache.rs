//! A small shared cache from short words to their ids, without locks.
//!
//! Texts repeat their words, and merging a word costs several times what finding it here does. Each slot is one cache
//! line under a sequence lock made of plain atomics: a reader that meets a writer sees the version change and takes it
//! for a miss. Keys are compared in full, so a hit is always right.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Longest word in bytes that has a place here.
pub(super) const MAX_WORD: usize = 32;
/// Most ids that a slot holds.
const MAX_IDS: usize = 6;

/// 4 MiB, touched only where words fall. A word may be in either of two neighbours.
const SLOTS: usize = 1 << 16;

/// The version's step; the lowest bit of the version says that a writer is at work.
const VERSION: u64 = 1 << 16;

#[repr(align(64))]
#[derive(Default)]
struct Slot {
    /// Version (48 bits), length of the word (8), number of ids (8).
    head: AtomicU64,
    key: [AtomicU64; 4],
    ids: [AtomicU64; 3],
}

pub(super) struct WordCache {
    slots: Box<[Slot]>,
}

/// A word as the cache compares it: its bytes, padded with zeros, and its length.
#[derive(Clone, Copy)]
pub(super) struct Key {
    words: [u64; 4],
    length: usize,
}

impl Key {
    /// The word at `start..end` of a text, of at most [`MAX_WORD`] bytes.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the innermost loop: a call here costs a tenth of all tokenization")]
    pub(super) fn new(text: &[u8], start: usize, end: usize) -> Self {
        let length = end - start;
        if length <= 8
            && let Some(bytes) = text.get(start..).and_then(|rest| rest.first_chunk::<8>())
        {
            return Self { words: [u64::from_le_bytes(*bytes) & mask(length), 0, 0, 0], length };
        }
        let mut copy = [0; MAX_WORD];
        let bytes = if let Some(bytes) = text.get(start..).and_then(|rest| rest.first_chunk::<MAX_WORD>()) {
            bytes
        } else {
            copy[..length].copy_from_slice(&text[start..end]);
            &copy
        };
        let (chunks, _) = bytes.as_chunks::<8>();
        let word = |at: usize| match length.saturating_sub(8 * at) {
            0 => 0,
            left => u64::from_le_bytes(chunks[at]) & mask(left.min(8)),
        };
        Self { words: [word(0), word(1), word(2), word(3)], length }
    }

    #[inline]
    fn slot(&self) -> usize {
        let [a, b, c, d] = self.words;
        let mut hash = fold(a ^ 0x243F_6A88_85A3_08D3, (self.length as u64) ^ 0x9E37_79B9_7F4A_7C15);
        if self.length > 8 {
            hash ^= fold(b ^ 0x1319_8A2E_0370_7344, 0xA409_3822_299F_31D0);
            if self.length > 16 {
                hash ^= fold(c ^ 0x082E_FA98_EC4E_6C89, d ^ 0x4528_21E6_38D0_1377);
            }
        }
        low(hash) as usize % SLOTS
    }
}

/// The lowest `length` bytes.
#[inline]
fn mask(length: usize) -> u64 {
    u64::MAX.checked_shr(64 - 8 * u32::try_from(length).unwrap_or(8)).unwrap_or(0)
}

/// A hash of two words: both halves of their product.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "takes the low half")]
pub(super) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b | 1);
    (product as u64) ^ (product >> 64) as u64
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "takes the low half")]
pub(super) fn low(pair: u64) -> u32 {
    pair as u32
}

#[inline]
pub(super) fn high(pair: u64) -> u32 {
    low(pair >> 32)
}

impl WordCache {
    pub(super) fn new() -> Self {
        Self { slots: std::iter::repeat_with(Slot::default).take(SLOTS).collect() }
    }

    /// Append the word's ids; false if it is not here.
    #[inline]
    pub(super) fn get(&self, key: &Key, ids: &mut Vec<u32>) -> bool {
        let first = key.slot();
        read(&self.slots[first], key, ids) || read(&self.slots[first ^ 1], key, ids)
    }

    /// Remember a word's ids, unless there are too many or another thread is at the slot.
    pub(super) fn insert(&self, key: &Key, ids: &[u32]) {
        if ids.is_empty() || ids.len() > MAX_IDS {
            return;
        }
        let (first, second) = (&self.slots[key.slot()], &self.slots[key.slot() ^ 1]);
        // A free place, else the one that has changed less often.
        let version = |slot: &Slot| slot.head.load(Ordering::Relaxed) / VERSION;
        write(if version(first) <= version(second) { first } else { second }, key, ids);
    }
}

/// Append the ids in a slot if they are the word's.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the innermost loop: a call here costs a tenth of all tokenization")]
fn read(slot: &Slot, key: &Key, ids: &mut Vec<u32>) -> bool {
    let head = slot.head.load(Ordering::Acquire);
    if head & VERSION != 0 || (head >> 8 & 0xFF) as usize != key.length {
        return false;
    }
    let same = |at: usize| slot.key[at].load(Ordering::Relaxed) == key.words[at];
    if !same(0) || (key.length > 8 && !(same(1) && same(2) && same(3))) {
        return false;
    }
    let count = (head & 0xFF) as usize;
    let first = slot.ids[0].load(Ordering::Relaxed);
    if count <= 2 {
        if !unchanged(slot, head) {
            return false;
        }
        ids.push(low(first));
        if count == 2 {
            ids.push(high(first));
        }
        return true;
    }
    let pairs = [first, slot.ids[1].load(Ordering::Relaxed), slot.ids[2].load(Ordering::Relaxed)];
    if !unchanged(slot, head) {
        return false;
    }
    let all: [u32; MAX_IDS] =
        std::array::from_fn(|at| if at % 2 == 0 { low(pairs[at / 2]) } else { high(pairs[at / 2]) });
    ids.extend_from_slice(&all[..count.min(MAX_IDS)]);
    true
}

fn unchanged(slot: &Slot, head: u64) -> bool {
    fence(Ordering::Acquire);
    slot.head.load(Ordering::Relaxed) == head
}

fn write(slot: &Slot, key: &Key, ids: &[u32]) {
    let old = slot.head.load(Ordering::Relaxed);
    let version = old & !0xFFFF;
    if old & VERSION != 0
        || slot.head.compare_exchange(old, version + VERSION, Ordering::Acquire, Ordering::Relaxed).is_err()
    {
        return;
    }
    fence(Ordering::Release);
    for (place, word) in slot.key.iter().zip(key.words) {
        place.store(word, Ordering::Relaxed);
    }
    for (place, pair) in slot.ids.iter().zip(ids.chunks(2)) {
        let high = pair.get(1).map_or(0, |&id| u64::from(id) << 32);
        place.store(u64::from(pair[0]) | high, Ordering::Relaxed);
    }
    let head = version.wrapping_add(2 * VERSION) | (key.length as u64) << 8 | ids.len() as u64;
    slot.head.store(head, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_every_length_come_back() {
        let cache = WordCache::new();
        let text: Vec<u8> = (1..=40).collect();
        for length in 1..=MAX_WORD {
            for start in [0, text.len() - length] {
                let key = Key::new(&text, start, start + length);
                let ids: Vec<u32> = (7..).take(length.min(MAX_IDS)).collect();
                cache.insert(&key, &ids);
                let mut found = Vec::new();
                assert!(cache.get(&key, &mut found));
                assert_eq!(found, ids);
            }
        }
        assert!(!cache.get(&Key::new(b"other", 0, 5), &mut Vec::new()));
    }

    #[test]
    fn a_word_is_not_its_prefix_with_zeros() {
        let cache = WordCache::new();
        cache.insert(&Key::new(b"a\0", 0, 1), &[1]);
        assert!(!cache.get(&Key::new(b"a\0", 0, 2), &mut Vec::new()));
    }

    #[test]
    fn threads_that_fight_for_a_slot_never_read_a_mixture() {
        let cache = WordCache::new();
        // Words that fall into one slot.
        let slot = Key::new(b"word0", 0, 5).slot();
        let words: Vec<Vec<u8>> = (0..u32::MAX)
            .map(|n| format!("word{n}").into_bytes())
            .filter(|word| Key::new(word, 0, word.len()).slot() == slot)
            .take(3)
            .collect();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..20_000 {
                        let number = round % words.len();
                        let key = Key::new(&words[number], 0, words[number].len());
                        let ids = [10, 20, 30][number..=number].repeat(2 * number + 2);
                        let mut found = Vec::new();
                        if cache.get(&key, &mut found) {
                            assert_eq!(found, ids);
                        }
                        cache.insert(&key, &ids);
                    }
                });
            }
        });
    }
}
