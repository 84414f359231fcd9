//! The engine's instructions with Python's meaning.
//!
//! Those whose meaning differs from Jinja2's (operators, subscripts, loops' iterables, macro arguments) become calls of
//! filters of our own; jumps move along with what they lead to.

use std::collections::{BTreeSet, HashMap, HashSet};

use minijinja::Value;
use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::ValueKind;

use super::compile::NAME;
use super::environment::{self, MAX_CACHED_FILTERS, MAX_RECURSIVE_FRAMES};
use super::value::{self, Py, py};
use super::{calls, methods};

/// The engine's mark of a loop that may call itself.
const LOOP_RECURSIVE: u8 = 2;

/// Scopes that a variable is looked for in at no charge.
const FREE_FRAMES: usize = 12;

/// Different constant keys that are looked for in the source.
const MAX_NAMES: usize = 2000;

/// Rewrite a program. `assigned` are the names that the template gives a value somewhere, `hidden` those that are
/// undefined at its start whatever is given from outside.
pub(super) fn rewrite<'a>(
    instructions: &Instructions<'a>,
    assigned: &HashSet<&'a str>,
    hidden: &BTreeSet<&'a str>,
) -> Instructions<'a> {
    Rewriter::new(instructions, assigned).run(hidden)
}

/// The filter for an operator of two values.
fn binary(instruction: &Instruction<'_>) -> Option<&'static str> {
    Some(match instruction {
        Instruction::Add => environment::ADD,
        Instruction::Mul => environment::MULTIPLY,
        Instruction::Rem => environment::MODULO,
        Instruction::StringConcat => environment::CONCAT,
        Instruction::Eq => environment::EQUAL,
        Instruction::Ne => environment::NOT_EQUAL,
        Instruction::Lt => environment::LESS,
        Instruction::Lte => environment::LESS_EQUAL,
        Instruction::Gt => environment::GREATER,
        Instruction::Gte => environment::GREATER_EQUAL,
        Instruction::In => environment::IN,
        _ => return None,
    })
}

/// A part of the program that instructions stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    /// The old instruction that each round begins with, and the one behind the last round.
    Loop {
        start: u32,
        end: u32,
        recursive: bool,
    },
    Macro {
        end: u32,
    },
    Frame,
    Capture,
}

/// Replaces instructions, and moves the targets of jumps along.
struct Rewriter<'i, 'a> {
    old: &'i Instructions<'a>,
    assigned: &'i HashSet<&'a str>,
    out: Vec<(Instruction<'a>, u32)>,
    /// For each old instruction, where its replacement begins.
    places: Vec<u32>,
    filter_ids: HashMap<&'a str, u8>,
    /// Old instructions that store a parameter without a default.
    plain_parameters: HashSet<u32>,
    /// Old instructions where a macro with `varargs` or `kwargs` begins.
    rest_starts: HashMap<u32, [bool; 2]>,
    /// Old instructions that some jump leads to.
    targets: HashSet<u32>,
    /// Strings of the source that constants hold, as the engine wants names to borrow from it.
    names: HashMap<String, Option<&'a str>>,
    /// What is open around the current instruction, outermost first.
    open: Vec<Open>,
}

impl<'i, 'a> Rewriter<'i, 'a> {
    fn new(old: &'i Instructions<'a>, assigned: &'i HashSet<&'a str>) -> Self {
        Self {
            old,
            assigned,
            out: Vec::new(),
            places: Vec::new(),
            filter_ids: HashMap::new(),
            plain_parameters: HashSet::new(),
            rest_starts: HashMap::new(),
            targets: HashSet::new(),
            names: HashMap::new(),
            open: Vec::new(),
        }
    }

    fn run(mut self, hidden: &BTreeSet<&'a str>) -> Instructions<'a> {
        let mut place = 0;
        while let Some(instruction) = self.old.get(place) {
            match instruction {
                Instruction::BuildMacro(_, offset, _) => self.note_parameters(*offset, place),
                Instruction::Jump(target)
                | Instruction::JumpIfFalse(target)
                | Instruction::JumpIfFalseOrPop(target)
                | Instruction::JumpIfTrueOrPop(target)
                | Instruction::Iterate(target) => {
                    self.targets.insert(*target);
                }
                _ => {}
            }
            place += 1;
        }
        let count = place;
        for name in hidden {
            self.constant(0, Value::UNDEFINED);
            self.push(0, Instruction::StoreLocal(name));
        }
        for place in 0..count {
            self.places.push(u32::try_from(self.out.len()).unwrap_or(u32::MAX));
            self.replace(place);
        }
        self.places.push(u32::try_from(self.out.len()).unwrap_or(u32::MAX));
        let mut instructions = Instructions::new(NAME, self.old.source());
        let places = std::mem::take(&mut self.places);
        let moved = |target: &u32| places.get(*target as usize).copied().unwrap_or(*target);
        for (instruction, old_place) in &self.out {
            let instruction = match instruction {
                Instruction::Jump(target) => Instruction::Jump(moved(target)),
                Instruction::JumpIfFalse(target) => Instruction::JumpIfFalse(moved(target)),
                Instruction::JumpIfFalseOrPop(target) => Instruction::JumpIfFalseOrPop(moved(target)),
                Instruction::JumpIfTrueOrPop(target) => Instruction::JumpIfTrueOrPop(moved(target)),
                Instruction::Iterate(target) => Instruction::Iterate(moved(target)),
                Instruction::BuildMacro(name, offset, flags) => Instruction::BuildMacro(name, moved(offset), *flags),
                other => other.clone(),
            };
            let line = self.old.get_line(*old_place).and_then(|line| u16::try_from(line).ok()).unwrap_or(1);
            instructions.add_with_line(instruction, line);
        }
        instructions
    }

    /// Walk over the head of a macro's body, where its parameters are stored, last one first.
    fn note_parameters(&mut self, offset: u32, build: u32) {
        let Some(Instruction::LoadConst(spec)) = build.checked_sub(1).and_then(|place| self.old.get(place)) else {
            return;
        };
        let parameters: Vec<Value> = spec.try_iter().map(Iterator::collect).unwrap_or_default();
        let mut place = offset;
        for _ in &parameters {
            if let Some(Instruction::StoreLocal(_)) = self.old.get(place) {
                self.plain_parameters.insert(place);
            } else if let Some(Instruction::JumpIfFalse(store)) = self.old.get(place + 2) {
                place = *store;
            }
            place += 1;
        }
        let uses = |wanted: &str| {
            let named = parameters.iter().any(|parameter| parameter.as_str() == Some(wanted));
            let reads = |place| matches!(self.old.get(place), Some(Instruction::Lookup(name)) if *name == wanted);
            !named && (offset..build).any(reads)
        };
        let rest = [uses(calls::REST_POSITIONAL), uses(calls::REST_NAMED)];
        if rest != [false, false] {
            self.rest_starts.insert(offset, rest);
        }
    }

    fn push(&mut self, place: u32, instruction: Instruction<'a>) {
        self.out.push((instruction, place));
    }

    fn apply(&mut self, place: u32, filter: &'a str, count: usize) {
        let next = self.filter_ids.len();
        let id = match self.filter_ids.get(filter) {
            Some(id) => *id,
            None if next < MAX_CACHED_FILTERS => {
                let id = u8::try_from(next).unwrap_or(u8::MAX);
                self.filter_ids.insert(filter, id);
                id
            }
            None => u8::MAX,
        };
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        self.push(place, Instruction::ApplyFilter(filter, Some(count), id));
    }

    fn constant(&mut self, place: u32, value: impl Into<Value>) {
        self.push(place, Instruction::LoadConst(value.into()));
    }

    fn replace(&mut self, place: u32) {
        if let Some([positional, named]) = self.rest_starts.get(&place).copied() {
            if named {
                self.push(place, Instruction::StoreLocal(calls::REST_NAMED));
            }
            if positional {
                self.push(place, Instruction::StoreLocal(calls::REST_POSITIONAL));
            }
        }
        while let Some(Open::Loop { end, .. } | Open::Macro { end }) = self.open.last()
            && *end <= place
        {
            self.open.pop();
        }
        let instruction = self.old.get(place).expect("the place is one of the old instructions").clone();
        if let Some(filter) = binary(&instruction) {
            self.apply(place, filter, 2);
            return;
        }
        match instruction {
            Instruction::CompareAndPreserve(_) => {
                self.apply(place, environment::preserving(&instruction), 2);
                self.push(place, Instruction::UnpackList(2));
            }
            Instruction::Slice => self.apply(place, environment::SLICE, 4),
            Instruction::GetItem => self.get_item(place),
            Instruction::GetAttr(name) if methods::is_python_name(name) => {
                self.constant(place, name);
                self.apply(place, environment::ATTRIBUTE, 2);
            }
            Instruction::SetAttr(name) => {
                self.constant(place, name);
                self.apply(place, environment::SET_ATTRIBUTE, 3);
                self.push(place, Instruction::DiscardTop);
            }
            Instruction::BuildMap(count) => self.apply(place, environment::DICT, count * 2),
            Instruction::BuildList(count) => self.build(place, environment::LIST, count),
            Instruction::BuildTuple(count) => self.build(place, environment::TUPLE, count),
            Instruction::LoadConst(value) => self.constant(place, normalized(value)),
            Instruction::FastRecurse => {
                self.recurse(place);
                self.push(place, instruction);
            }
            Instruction::Lookup(_) => {
                let frames = self.frames();
                if frames > FREE_FRAMES {
                    self.constant(place, frames);
                    self.apply(place, environment::PAY, 1);
                    self.push(place, Instruction::DiscardTop);
                }
                self.push(place, instruction);
            }
            Instruction::PushLoop(_) | Instruction::UnpackList(_) => {
                self.apply(place, environment::ITERATE, 1);
                self.push(place, instruction);
            }
            Instruction::StoreLocal(_) if self.plain_parameters.contains(&place) => {
                self.apply(place, environment::GIVEN, 1);
                self.push(place, instruction);
            }
            Instruction::IsUndefined => self.apply(place, environment::MISSING, 1),
            // The engine would compare what is given by its own rules, and whatever the values hold.
            Instruction::CallMethod("changed", Some(count)) if count > 1 => {
                self.apply(place, environment::LIST, usize::from(count) - 1);
                self.push(place, Instruction::CallMethod("changed", Some(2)));
            }
            Instruction::CallFunction(name, Some(count)) => self.call(place, name, count),
            Instruction::CallObject(Some(count)) => self.apply(place, environment::CALL, usize::from(count)),
            Instruction::ApplyFilter(name, Some(1), _) => {
                self.apply(place, environment::plain(name).unwrap_or(name), 1);
            }
            Instruction::ApplyFilter(name, count, _) => self.apply(place, name, count.map_or(0, usize::from)),
            Instruction::PerformTest(name, Some(1), id) => {
                self.push(place, Instruction::PerformTest(environment::plain(name).unwrap_or(name), Some(1), id));
            }
            // Text in loops is counted, so that the size of what is written is bounded.
            Instruction::EmitRaw(text) if self.repeats() => {
                self.constant(place, text);
                self.push(place, Instruction::Emit);
            }
            Instruction::BuildMacro(name, offset, flags) => {
                if let Some([positional, named]) = self.rest_starts.get(&offset).copied() {
                    self.extend_parameters(positional, named);
                }
                if self.repeats() {
                    self.constant(place, Value::from(()));
                    self.apply(place, environment::DECLARE, 1);
                    self.push(place, Instruction::DiscardTop);
                }
                self.push(place, Instruction::BuildMacro(name, offset, flags));
            }
            other => self.replace_flow(place, other),
        }
    }

    /// Instructions that open, close or leave a part of the program.
    fn replace_flow(&mut self, place: u32, instruction: Instruction<'a>) {
        match instruction {
            Instruction::Iterate(end) => {
                let before = place.checked_sub(1).and_then(|before| self.old.get(before));
                let recursive = matches!(before, Some(Instruction::PushLoop(flags)) if flags & LOOP_RECURSIVE != 0);
                self.open.push(Open::Loop { start: place, end, recursive });
                self.push(place, instruction);
            }
            Instruction::Jump(end) => {
                // The body of a macro stands behind a jump over it.
                if matches!(end.checked_sub(1).and_then(|last| self.old.get(last)), Some(Instruction::Return)) {
                    self.open.push(Open::Macro { end });
                }
                self.leave(place, end);
                self.push(place, instruction);
            }
            Instruction::PushWith => {
                self.open.push(Open::Frame);
                self.push(place, instruction);
            }
            Instruction::PopFrame => {
                self.open.pop();
                self.push(place, instruction);
            }
            // What is captured is a scope of its own.
            Instruction::BeginCapture(_) => {
                self.open.push(Open::Capture);
                self.push(place, instruction);
                self.push(place, Instruction::PushWith);
            }
            Instruction::EndCapture => {
                self.open.pop();
                self.push(place, Instruction::PopFrame);
                self.push(place, instruction);
            }
            other => self.push(place, other),
        }
    }

    /// Scopes that may be walked over to find a variable here.
    fn frames(&self) -> usize {
        let inside = self.open.iter().rposition(|open| matches!(open, Open::Macro { .. })).map_or(0, |place| place + 1);
        let open = &self.open[inside..];
        let recursive = open.iter().any(|open| matches!(open, Open::Loop { recursive: true, .. }));
        open.len() + if recursive { MAX_RECURSIVE_FRAMES } else { 0 }
    }

    /// What a loop is called with, by itself.
    fn recurse(&mut self, place: u32) {
        let around = self.open.iter().rposition(|open| matches!(open, Open::Loop { recursive: true, .. }));
        self.constant(place, self.open.len() - around.unwrap_or(0));
        self.apply(place, environment::RECURSE, 2);
    }

    /// Whether the current instruction may run more than once.
    fn repeats(&self) -> bool {
        self.open.iter().any(|open| matches!(open, Open::Loop { .. } | Open::Macro { .. }))
    }

    /// Close what a `break` or a `continue` jumps out of; the engine would leave it open.
    fn leave(&mut self, place: u32, target: u32) {
        let around = self.open.iter().rposition(|open| matches!(open, Open::Loop { .. } | Open::Macro { .. }));
        let Some(around) = around else { return };
        if !matches!(self.open[around], Open::Loop { start, end, .. } if target == start || target == end) {
            return;
        }
        for inner in (around + 1..self.open.len()).rev() {
            self.push(place, Instruction::PopFrame);
            if self.open[inner] == Open::Capture {
                self.push(place, Instruction::EndCapture);
                self.push(place, Instruction::DiscardTop);
            }
        }
    }

    fn build(&mut self, place: u32, filter: &'a str, count: Option<usize>) {
        self.apply(place, filter, count.unwrap_or(0));
        // Without a count it is on the stack, where the engine takes it from.
        if let (None, Some((Instruction::ApplyFilter(_, taken, _), _))) = (count, self.out.last_mut()) {
            *taken = None;
        }
    }

    /// A constant name that no Python type has is an attribute to the engine, which is quicker.
    fn get_item(&mut self, place: u32) {
        if !self.targets.contains(&place)
            && let Some((Instruction::LoadConst(key), _)) = self.out.last()
            && let Some(key) = key.as_str().map(str::to_owned)
            && let Some(name) = self.borrowed(key)
        {
            self.out.pop();
            self.push(place, Instruction::GetAttr(name));
            return;
        }
        self.apply(place, environment::ITEM, 2);
    }

    /// The name as a part of the source.
    fn borrowed(&mut self, name: String) -> Option<&'a str> {
        if methods::is_python_name(&name) || self.names.len() > MAX_NAMES {
            return None;
        }
        let source = self.old.source();
        *self.names.entry(name).or_insert_with_key(|name| {
            let start = memchr::memmem::find(source.as_bytes(), name.as_bytes())?;
            source.get(start..start + name.len())
        })
    }

    fn call(&mut self, place: u32, name: &'a str, count: u16) {
        let is_global = environment::is_global(name) && !self.assigned.contains(name);
        if name == "loop" {
            self.recurse(place);
        } else if !is_global {
            self.constant(place, name);
            self.apply(place, environment::ARRANGE, usize::from(count) + 1);
            self.push(place, Instruction::UnpackLists(1));
            self.push(place, Instruction::CallFunction(name, None));
            return;
        }
        self.push(place, Instruction::CallFunction(name, Some(count)));
    }

    fn extend_parameters(&mut self, positional: bool, named: bool) {
        if let Some((Instruction::LoadConst(spec), _)) = self.out.last_mut() {
            let mut parameters: Vec<Value> = spec.try_iter().map(Iterator::collect).unwrap_or_default();
            parameters.extend(positional.then(|| Value::from(calls::REST_POSITIONAL)));
            parameters.extend(named.then(|| Value::from(calls::REST_NAMED)));
            *spec = Value::from(parameters);
        }
    }
}

/// A constant as our own types; the engine folds literals to its own.
pub(super) fn normalized(constant: Value) -> Value {
    if constant.is_kwargs() || !matches!(py(&constant), Py::Object(_)) {
        return constant;
    }
    let items = || constant.try_iter().map(|items| items.map(normalized).collect::<Vec<_>>()).unwrap_or_default();
    let made = match constant.kind() {
        ValueKind::Map => {
            let pairs = constant.as_object().and_then(minijinja::value::DynObject::try_iter_pairs);
            let pairs = pairs.into_iter().flatten().map(|(key, value)| (key, normalized(value)));
            value::Dict::from_pairs(pairs).map(Value::from_object)
        }
        ValueKind::Seq | ValueKind::Iterable if constant.is_tuple() => value::tuple(items()),
        ValueKind::Seq | ValueKind::Iterable => value::list(items()),
        _ => return constant,
    };
    made.unwrap_or(constant)
}
