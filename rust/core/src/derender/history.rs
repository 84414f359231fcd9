//! Parses of outputs whose client carries only the output: kept here, so that a chunk need not begin anew.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::progress::Progress;

/// Parses in each of two generations, and their bytes; a full one takes the older one's place.
const MOST: usize = 512;
const MOST_BYTES: usize = 32 << 20;

/// A bounded cache; what was used last stays longest.
#[derive(Default)]
pub(super) struct Parses(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<[u8; 32], Progress>,
    young_bytes: usize,
    old: HashMap<[u8; 32], Progress>,
}

impl Parses {
    /// The parse stays where it is: a chunk may be sent once more.
    pub(super) fn get(&self, key: &[u8; 32]) -> Option<Progress> {
        let generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        generations.young.get(key).or_else(|| generations.old.get(key)).cloned()
    }

    pub(super) fn put(&self, key: [u8; 32], progress: Progress) {
        let bytes = progress.size();
        if bytes > MOST_BYTES {
            return;
        }
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if generations.young.len() >= MOST || generations.young_bytes + bytes > MOST_BYTES {
            generations.old = std::mem::take(&mut generations.young);
            generations.young_bytes = 0;
        }
        generations.young.insert(key, progress);
        generations.young_bytes += bytes;
    }
}
