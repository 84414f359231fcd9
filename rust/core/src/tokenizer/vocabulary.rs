//! Vocabulary pieces by id and by text, in one arena.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Ids this far above the number of pieces are not worth a table by id.
const MAX_SPARSENESS: usize = 1 << 20;

/// Byte strings by id.
#[derive(Default)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    /// Start and end in `bytes`; `ABSENT` for an id without a piece.
    spans: Vec<(u32, u32)>,
}

const ABSENT: (u32, u32) = (u32::MAX, u32::MAX);

impl Pieces {
    /// Set the piece of an id. `None` if there is one already, or if the ids are too far apart.
    pub(super) fn insert(&mut self, id: u32, piece: &[u8]) -> Option<()> {
        let at = id as usize;
        if at >= self.spans.len() {
            if at > 4 * self.spans.len() + MAX_SPARSENESS {
                return None;
            }
            self.spans.resize(at + 1, ABSENT);
        }
        let span = &mut self.spans[at];
        if *span != ABSENT {
            return None;
        }
        let start = u32::try_from(self.bytes.len()).ok()?;
        self.bytes.extend_from_slice(piece);
        *span = (start, u32::try_from(self.bytes.len()).ok()?);
        Some(())
    }

    #[inline]
    pub(super) fn get(&self, id: u32) -> Option<&[u8]> {
        let &(start, end) = self.spans.get(id as usize)?;
        self.bytes.get(start as usize..end as usize)
    }

    /// One more than the largest id.
    pub(super) fn limit(&self) -> usize {
        self.spans.len()
    }

    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.spans.shrink_to_fit();
    }
}

/// Ids by byte string; the strings stay with their owner.
#[derive(Default)]
pub(super) struct Index {
    hasher: DefaultHashBuilder,
    table: HashTable<u32>,
}

impl Index {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { hasher: DefaultHashBuilder::default(), table: HashTable::with_capacity(capacity) }
    }

    /// Enter an id under its piece. `None` if the piece is there already.
    pub(super) fn insert(&mut self, pieces: &Pieces, id: u32) -> Option<()> {
        let piece = pieces.get(id)?;
        if self.get(pieces, piece).is_some() {
            return None;
        }
        let hash = |id: &u32| self.hasher.hash_one(pieces.get(*id).unwrap_or_default());
        self.table.insert_unique(hash(&id), id, hash);
        Some(())
    }

    #[inline]
    pub(super) fn get(&self, pieces: &Pieces, piece: &[u8]) -> Option<u32> {
        self.table.find(self.hasher.hash_one(piece), |&id| pieces.get(id) == Some(piece)).copied()
    }
}

/// The model's vocabulary as tokenizer.json spells it.
pub(super) struct Vocabulary {
    pieces: Pieces,
    index: Index,
    count: usize,
    longest: usize,
}

impl Vocabulary {
    /// `None` if two pieces share an id, if a piece comes twice, or if ids are wildly apart.
    pub(super) fn new<'a>(entries: impl ExactSizeIterator<Item = (&'a str, u32)>) -> Option<Self> {
        let count = entries.len();
        let mut pieces = Pieces::default();
        let mut index = Index::with_capacity(count);
        let mut longest = 0;
        for (piece, id) in entries {
            pieces.insert(id, piece.as_bytes())?;
            index.insert(&pieces, id)?;
            longest = longest.max(piece.chars().count());
        }
        pieces.shrink();
        Some(Self { pieces, index, count, longest })
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn id(&self, piece: &str) -> Option<u32> {
        self.index.get(&self.pieces, piece.as_bytes())
    }

    pub(super) fn piece(&self, id: u32) -> Option<&str> {
        std::str::from_utf8(self.pieces.get(id)?).ok()
    }

    /// One more than the largest id.
    pub(super) fn limit(&self) -> usize {
        self.pieces.limit()
    }

    /// Characters of the longest piece.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }
}
