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

const MAX_STATES: usize = 256;

/// A byte of 1, or of 0x80, in each byte of a word.
const EACH: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x80 * EACH;

const DEAD: u8 = 0;
const START: u8 = 1;
/// In place of a kind: a byte that begins a longer character, or no kind at all.
const NO_KIND: u8 = u8::MAX;

/// What a state says of the text up to it; states are numbered in this order, so that one comparison tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// The pattern does not match here, but may later.
    Open,
    /// The last alternative matches, `\s+`.
    Spaces,
    /// The pattern matches.
    Match,
    /// It matches, and still does after any number of letters.
    Letters,
}

/// A compiled pattern. The tables have fixed sizes so that no access needs a check.
pub(super) struct Scanner {
    /// Kind of each ASCII byte.
    ascii: [u8; 256],
    /// Block of each 128 code points.
    index: Vec<u16>,
    blocks: Vec<[u8; BLOCK]>,
    /// `table[state * MAX_KINDS + kind]` is the next state.
    table: Box<[u8; MAX_STATES * MAX_KINDS]>,
    roles: Roles,
    letters: Letters,
}

/// Number of the first state of each role but the first.
struct Roles {
    spaces: u8,
    matches: u8,
    letters: u8,
}

/// The letters that are taken many at a time, by states that they lead nowhere else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Letters {
    /// `A` to `Z` and `a` to `z`.
    Both,
    /// `a` to `z`, for patterns that tell upper from lower case.
    Lower,
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
        let (index, blocks) = compress(&members.intervals);
        let mut ascii = [NO_KIND; 256];
        ascii[..BLOCK].copy_from_slice(&blocks[usize::from(index[0])]);
        let (table, roles, letters) = tabulate(&dfa, members.count, &ascii)?;
        Some(Self { ascii, index, blocks, table, roles, letters })
    }

    /// End of the match that begins at byte `start`, if the pattern matches there. `text` is UTF-8 and `start` a
    /// character's first byte.
    #[inline]
    pub(super) fn match_at(&self, text: &[u8], start: usize) -> Option<usize> {
        let mut state = START;
        let mut at = start;
        let (mut end, mut last) = (start, START);
        while let Some(&byte) = text.get(at) {
            let (mut kind, mut width) = (self.ascii[usize::from(byte)], 1);
            if kind == NO_KIND {
                (kind, width) = self.wide(text, at);
            }
            state = self.table[usize::from(state) * MAX_KINDS + usize::from(kind) % MAX_KINDS];
            if state == DEAD {
                break;
            }
            at += width;
            if state >= self.roles.letters {
                at += letter_run(&text[at..], self.letters);
            }
            if state >= self.roles.spaces {
                (end, last) = (at, state);
            }
        }
        if last < self.roles.matches && end > start && end < text.len() {
            // `\s+(?!\S)`: what follows is not white space, so all but the last character, if that leaves any.
            let mut before = end - 1;
            while text[before] & 0xC0 == 0x80 {
                before -= 1;
            }
            if before > start {
                end = before;
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
fn tabulate(
    dfa: &dense::DFA<Vec<u32>>,
    kinds: usize,
    ascii: &[u8; 256],
) -> Option<(Box<[u8; MAX_STATES * MAX_KINDS]>, Roles, Letters)> {
    let next = |state: StateID, kind: usize| dfa.next_state(state, u8::try_from(kind).unwrap_or(u8::MAX));
    let stays_on = |state: StateID, letters: std::ops::RangeInclusive<u8>| {
        letters.into_iter().all(|letter| next(state, usize::from(ascii[usize::from(letter)])) == state)
    };
    let stays = |state: StateID, letters: Letters| {
        stays_on(state, b'a'..=b'z') && (letters == Letters::Lower || stays_on(state, b'A'..=b'Z'))
    };
    let acceptance = |state: StateID| {
        let end = dfa.next_eoi_state(state);
        if !dfa.is_match_state(end) {
            Role::Open
        } else if dfa.match_pattern(end, 0).as_usize() > 0 {
            Role::Spaces
        } else {
            Role::Match
        }
    };
    // A state that only reports the match before it goes nowhere and accepts nothing new.
    let live = |state: StateID| {
        !dfa.is_dead_state(state)
            && (acceptance(state) != Role::Open || (0..kinds).any(|kind| !dfa.is_dead_state(next(state, kind))))
    };
    let first = dfa.start_state(&start::Config::new().anchored(Anchored::Yes)).ok()?;
    let mut states = vec![first];
    let mut done = 0;
    while done < states.len() {
        for kind in 0..kinds {
            let target = next(states[done], kind);
            if live(target) && !states.contains(&target) {
                states.push(target);
            }
        }
        done += 1;
    }
    if states.len() >= MAX_STATES - 1 || acceptance(first) != Role::Open {
        return None;
    }
    let letters = if states.iter().any(|&state| stays(state, Letters::Both)) { Letters::Both } else { Letters::Lower };
    let role = |state: StateID| match acceptance(state) {
        Role::Match if stays(state, letters) => Role::Letters,
        role => role,
    };
    states[1..].sort_by_key(|&state| role(state));
    let number = |position: usize| u8::try_from(position).unwrap_or(u8::MAX) + START;
    let mut table = Box::new([DEAD; MAX_STATES * MAX_KINDS]);
    for (row, &state) in states.iter().enumerate() {
        for kind in 0..kinds {
            if let Some(target) = states.iter().position(|&other| other == next(state, kind)) {
                table[(row + usize::from(START)) * MAX_KINDS + kind] = number(target);
            }
        }
    }
    let first_of = |least: Role| number(states.partition_point(|&state| role(state) < least));
    let roles =
        Roles { spaces: first_of(Role::Spaces), matches: first_of(Role::Match), letters: first_of(Role::Letters) };
    Some((table, roles, letters))
}

/// Letters that `text` begins with, eight at a time.
#[inline]
fn letter_run(text: &[u8], letters: Letters) -> usize {
    // What makes every letter a lower-case one.
    let fold = match letters {
        Letters::Both => 0x20,
        Letters::Lower => 0,
    };
    let (chunks, rest) = text.as_chunks::<8>();
    let mut length = 0;
    for chunk in chunks {
        let bytes = u64::from_le_bytes(*chunk);
        let low = (bytes | (u64::from(fold) * EACH)) & !HIGH;
        // The sums stay below 0x100 in each byte, so none disturbs its neighbour.
        let is_letter =
            (low + (0x80 - u64::from(b'a')) * EACH) & !(low + (0x7F - u64::from(b'z')) * EACH) & !bytes & HIGH;
        if is_letter != HIGH {
            return length + ((is_letter ^ HIGH).trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    length + rest.iter().take_while(|&&byte| (byte | fold).is_ascii_lowercase()).count()
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
    fn runs_of_letters_end_where_bytes_say() {
        for letters in [Letters::Both, Letters::Lower] {
            for byte in 0..=255_u8 {
                for length in 0..20 {
                    let mut text = vec![b'q'; length];
                    text.push(byte);
                    text.extend(b"zz!");
                    let is_letter = |&&byte: &&u8| {
                        byte.is_ascii_lowercase() || (letters == Letters::Both && byte.is_ascii_uppercase())
                    };
                    assert_eq!(letter_run(&text, letters), text.iter().take_while(is_letter).count(), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn a_lookaround_elsewhere_is_refused() {
        assert!(Scanner::new(r"a(?!b)|\s+(?!\S)|\s+").is_none());
        assert!(Scanner::new(r"^a|\s+(?!\S)|\s+").is_none());
    }
}
