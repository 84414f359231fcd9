//! A pre-tokenizer's regular expression as a table over classes of characters.
//!
//! The patterns in use distinguish a handful of kinds of characters (letters, digits, line ends, …). Each code point is
//! mapped to its kind, and the pattern, rewritten over kinds, becomes an automaton of some dozens of states that stays
//! in the first-level cache. Backtracking engines spend most of a tokenizer's time here.

use hashbrown::HashMap;
use regex_automata::Anchored;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, ClassUnicode, Hir, HirKind, Repetition};

/// How nearly all patterns end: a run of white space leaves its last character to the word behind it.
const SPACE_TAIL: &str = r"|\s+(?!\S)|\s+";

const CODE_POINTS: u32 = 0x11_0000;
const BLOCK_BITS: u32 = 7;
const BLOCK: usize = 1 << BLOCK_BITS;
/// Distinct classes that a pattern may mention; more than any known pattern has.
const MAX_SETS: usize = 64;
/// Kinds of characters, thus columns of the table, that a pattern may tell apart.
const MAX_KINDS: usize = 64;

const DEAD: u8 = 0;
const START: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accept {
    No,
    Yes,
    /// By the last alternative, `\s+`.
    Spaces,
}

/// A compiled pattern.
pub(super) struct Scanner {
    ascii: [u8; 128],
    /// Block of each 128 code points.
    index: Vec<u16>,
    blocks: Vec<[u8; BLOCK]>,
    /// `table[state << shift | kind]` is the next state.
    table: Vec<u8>,
    shift: u32,
    accept: Vec<Accept>,
}

impl Scanner {
    /// Compile a pattern in the syntax of Oniguruma; `None` if it has something that the table cannot say.
    pub(super) fn new(pattern: &str) -> Option<Self> {
        let (head, tail) = match pattern.strip_suffix(SPACE_TAIL) {
            Some(head) => (head, Some(r"\s+")),
            None => (pattern, None),
        };
        let trees: Vec<Hir> =
            std::iter::once(head).chain(tail).map(|part| regex_syntax::parse(part).ok()).collect::<Option<_>>()?;
        let mut kinds = Kinds::default();
        trees.iter().try_for_each(|tree| kinds.collect(tree))?;
        let members = kinds.partition()?;
        let trees: Vec<Hir> = trees.iter().map(|tree| kinds.rewrite(tree, &members.sets)).collect::<Option<_>>()?;
        let dfa = compile(&trees)?;
        let shift = members.count.next_power_of_two().trailing_zeros();
        let (table, accept) = tabulate(&dfa, members.count, shift)?;
        let (index, blocks) = compress(&members.intervals);
        let mut ascii = [0; 128];
        ascii.copy_from_slice(&blocks[usize::from(index[0])]);
        Some(Self { ascii, index, blocks, table, shift, accept })
    }

    /// End of the match that begins at byte `start`, if the pattern matches there. `text` is UTF-8 and `start` a
    /// character's first byte.
    pub(super) fn match_at(&self, text: &[u8], start: usize) -> Option<usize> {
        let mut state = START;
        let mut at = start;
        let (mut end, mut accept) = (start, Accept::No);
        while let Some(&byte) = text.get(at) {
            let (kind, width) = if byte < 0x80 { (self.ascii[usize::from(byte)], 1) } else { self.wide(text, at) };
            state = self.table[usize::from(state) << self.shift | usize::from(kind)];
            if state == DEAD {
                break;
            }
            at += width;
            match self.accept[usize::from(state)] {
                Accept::No => {}
                found => (end, accept) = (at, found),
            }
        }
        if accept == Accept::Spaces && end < text.len() {
            // `\s+(?!\S)`: what follows is not white space, so all but the last character, if that leaves any.
            let mut last = end - 1;
            while text[last] & 0xC0 == 0x80 {
                last -= 1;
            }
            if last > start {
                end = last;
            }
        }
        (end > start).then_some(end)
    }

    /// Kind and length in bytes of the character at `at`, which is not ASCII.
    fn wide(&self, text: &[u8], at: usize) -> (u8, usize) {
        let byte = |offset: usize| text.get(at + offset).map_or(0, |&byte| u32::from(byte & 0x3F));
        let first = u32::from(text[at]);
        let (code, width) = if first < 0xE0 {
            ((first & 0x1F) << 6 | byte(1), 2)
        } else if first < 0xF0 {
            ((first & 0x0F) << 12 | byte(1) << 6 | byte(2), 3)
        } else {
            ((first & 0x07) << 18 | byte(1) << 12 | byte(2) << 6 | byte(3), 4)
        };
        let block = self.index[(code >> BLOCK_BITS) as usize];
        (self.blocks[usize::from(block)][code as usize % BLOCK], width)
    }
}

/// The classes that a pattern mentions.
#[derive(Default)]
struct Kinds {
    sets: Vec<ClassUnicode>,
}

/// All code points, told apart by which of the classes they are in.
struct Partition {
    /// First code point and kind of each stretch, in order.
    intervals: Vec<(u32, u8)>,
    count: usize,
    /// For each class, its kinds.
    sets: Vec<ClassBytes>,
}

impl Kinds {
    fn find(&self, class: &ClassUnicode) -> Option<usize> {
        self.sets.iter().position(|set| set == class)
    }

    fn collect(&mut self, tree: &Hir) -> Option<()> {
        for class in classes(tree)? {
            if self.find(&class).is_none() {
                self.sets.push(class);
            }
        }
        match tree.kind() {
            HirKind::Repetition(repetition) => self.collect(&repetition.sub),
            HirKind::Capture(capture) => self.collect(&capture.sub),
            HirKind::Concat(parts) | HirKind::Alternation(parts) => {
                parts.iter().try_for_each(|part| self.collect(part))
            }
            HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) => Some(()),
            HirKind::Look(_) => None,
        }
    }

    fn partition(&self) -> Option<Partition> {
        if self.sets.len() > MAX_SETS {
            return None;
        }
        let ends = |class: &ClassUnicode| -> Vec<(u32, u32)> {
            class.iter().map(|range| (u32::from(range.start()), u32::from(range.end()) + 1)).collect()
        };
        let mut bounds: Vec<u32> = self.sets.iter().flat_map(ends).flat_map(|(start, end)| [start, end]).collect();
        bounds.push(0);
        bounds.sort_unstable();
        bounds.dedup();
        bounds.retain(|&bound| bound < CODE_POINTS);
        let mut signatures = vec![0_u64; bounds.len()];
        for (bit, class) in self.sets.iter().enumerate() {
            for (start, end) in ends(class) {
                let from = bounds.partition_point(|&bound| bound < start);
                let to = bounds.partition_point(|&bound| bound < end);
                signatures[from..to].iter_mut().for_each(|signature| *signature |= 1 << bit);
            }
        }
        let mut kinds: Vec<u64> = Vec::new();
        let mut intervals = Vec::with_capacity(bounds.len());
        for (bound, signature) in bounds.into_iter().zip(signatures) {
            let kind = kinds.iter().position(|&known| known == signature).unwrap_or_else(|| {
                kinds.push(signature);
                kinds.len() - 1
            });
            intervals.push((bound, u8::try_from(kind).ok()?));
        }
        if kinds.len() > MAX_KINDS {
            return None;
        }
        let members = |bit: usize| {
            let kinds = kinds.iter().zip(0_u8..).filter(|(signature, _)| *signature >> bit & 1 == 1);
            ClassBytes::new(kinds.map(|(_, kind)| ClassBytesRange::new(kind, kind)))
        };
        let sets = (0..self.sets.len()).map(members).collect();
        Some(Partition { intervals, count: kinds.len(), sets })
    }

    /// The same pattern over kinds instead of characters.
    fn rewrite(&self, tree: &Hir, sets: &[ClassBytes]) -> Option<Hir> {
        let class = |class: &ClassUnicode| Some(Hir::class(Class::Bytes(sets[self.find(class)?].clone())));
        Some(match tree.kind() {
            HirKind::Empty => Hir::empty(),
            HirKind::Literal(_) | HirKind::Class(_) => {
                Hir::concat(classes(tree)?.iter().map(class).collect::<Option<_>>()?)
            }
            HirKind::Repetition(repetition) => {
                let sub = Box::new(self.rewrite(&repetition.sub, sets)?);
                Hir::repetition(Repetition { sub, ..repetition.clone() })
            }
            HirKind::Capture(capture) => self.rewrite(&capture.sub, sets)?,
            HirKind::Concat(parts) => Hir::concat(self.rewrite_all(parts, sets)?),
            HirKind::Alternation(parts) => Hir::alternation(self.rewrite_all(parts, sets)?),
            HirKind::Look(_) => return None,
        })
    }

    fn rewrite_all(&self, parts: &[Hir], sets: &[ClassBytes]) -> Option<Vec<Hir>> {
        parts.iter().map(|part| self.rewrite(part, sets)).collect()
    }
}

/// The class of each character that a leaf of the tree matches.
fn classes(leaf: &Hir) -> Option<Vec<ClassUnicode>> {
    use regex_syntax::hir::ClassUnicodeRange;
    match leaf.kind() {
        HirKind::Class(Class::Unicode(class)) => Some(vec![class.clone()]),
        HirKind::Class(Class::Bytes(class)) => Some(vec![class.to_unicode_class()?]),
        HirKind::Literal(literal) => {
            let single = |c| ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
            Some(std::str::from_utf8(&literal.0).ok()?.chars().map(single).collect())
        }
        _ => Some(Vec::new()),
    }
}

fn compile(trees: &[Hir]) -> Option<dense::DFA<Vec<u32>>> {
    let nfa = thompson::Compiler::new()
        .configure(thompson::Config::new().utf8(false).shrink(false))
        .build_many_from_hir(trees)
        .ok()?;
    dense::Builder::new().configure(dense::Config::new().start_kind(StartKind::Anchored)).build_from_nfa(&nfa).ok()
}

/// The automaton as a table of bytes, without the delay by one character with which the engine reports a match.
fn tabulate(dfa: &dense::DFA<Vec<u32>>, kinds: usize, shift: u32) -> Option<(Vec<u8>, Vec<Accept>)> {
    let accept = |state: StateID| {
        let end = dfa.next_eoi_state(state);
        if !dfa.is_match_state(end) {
            return Accept::No;
        }
        if dfa.match_pattern(end, 0).as_usize() == 0 { Accept::Yes } else { Accept::Spaces }
    };
    let next = |state: StateID, kind: usize| dfa.next_state(state, u8::try_from(kind).unwrap_or(u8::MAX));
    // A state that only reports the match before it goes nowhere and accepts nothing new.
    let live = |state: StateID| {
        !dfa.is_dead_state(state)
            && (accept(state) != Accept::No || (0..kinds).any(|kind| !dfa.is_dead_state(next(state, kind))))
    };
    let first = dfa.start_state(&start::Config::new().anchored(Anchored::Yes)).ok()?;
    let mut states = vec![first];
    let mut numbers: HashMap<StateID, u8> = HashMap::from_iter([(first, START)]);
    let mut table = vec![DEAD; 2 << shift];
    let mut done = 0;
    while done < states.len() {
        for kind in 0..kinds {
            let target = next(states[done], kind);
            if !live(target) {
                continue;
            }
            let number = match numbers.get(&target) {
                Some(&number) => number,
                None => {
                    states.push(target);
                    let number = u8::try_from(states.len()).ok()?;
                    numbers.insert(target, number);
                    table.resize(table.len() + (1 << shift), DEAD);
                    number
                }
            };
            table[(done + 1) << shift | kind] = number;
        }
        done += 1;
    }
    let accepting = std::iter::once(Accept::No).chain(states.into_iter().map(accept)).collect();
    Some((table, accepting))
}

/// Kinds of all code points as blocks of 128, each distinct block once.
fn compress(intervals: &[(u32, u8)]) -> (Vec<u16>, Vec<[u8; BLOCK]>) {
    let mut kinds = vec![0; CODE_POINTS as usize];
    let ends = intervals.iter().skip(1).map(|&(start, _)| start).chain([CODE_POINTS]);
    for (&(start, kind), end) in intervals.iter().zip(ends) {
        kinds[start as usize..end as usize].fill(kind);
    }
    let mut known: HashMap<[u8; BLOCK], u16> = HashMap::new();
    let mut blocks = Vec::new();
    let mut index = Vec::with_capacity(kinds.len() / BLOCK);
    for block in kinds.as_chunks::<BLOCK>().0 {
        let number = *known.entry(*block).or_insert_with(|| {
            blocks.push(*block);
            u16::try_from(blocks.len() - 1).expect("there are fewer blocks than 65,536")
        });
        index.push(number);
    }
    (index, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split<'t>(scanner: &Scanner, text: &'t str) -> Vec<&'t str> {
        let mut pieces = Vec::new();
        let mut at = 0;
        while let Some(end) = scanner.match_at(text.as_bytes(), at) {
            pieces.push(&text[at..end]);
            at = end;
        }
        assert_eq!(at, text.len(), "the pattern covers every text");
        pieces
    }

    #[test]
    fn splits_words_numbers_and_spaces() {
        let scanner = Scanner::new(r" ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+").unwrap();
        assert_eq!(
            split(&scanner, "Ab  é1234 \n\n  x!\u{3000} "),
            ["Ab", " ", " é", "123", "4", " \n\n", " ", " x", "!", "\u{3000} "]
        );
    }

    #[test]
    fn a_lookaround_elsewhere_is_refused() {
        assert!(Scanner::new(r"a(?!b)|\s+(?!\S)|\s+").is_none());
        assert!(Scanner::new(r"^a|\s+(?!\S)|\s+").is_none());
    }
}
