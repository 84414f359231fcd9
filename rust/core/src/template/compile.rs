//! From source to the engine's instructions, with Python's semantics put in where the engine has its own.
//!
//! The engine parses, generates code and runs it. Between the last two we replace the instructions whose meaning
//! differs from Jinja2's (operators, subscripts, loops' iterables, macro arguments) by calls of our own filters.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use minijinja::Value;
use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Macro, Stmt};
use minijinja::machinery::{self, CodeGenerator, Instruction, Instructions};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;

use super::environment::{self, MAX_CACHED_FILTERS};
use super::functions;
use super::value::{self, Py, py};
use super::walk::{Visitor, walk_expr, walk_stmt};
use super::{calls, detect, filters, methods, operators, predicates, source, text, variables};
use crate::error::{Error, Result};
use crate::spec::ContentFormat;

/// Stack for the parser, which recurses over tags of at most 64 kB.
const STACK: usize = 256 << 20;

const NAME: &str = "chat template";

/// Different constant keys that are looked for in the source.
const MAX_NAMES: usize = 2000;

/// A template as the engine runs it.
pub(super) struct Program<'a> {
    pub(super) instructions: Instructions<'a>,
    /// Always empty: blocks belong to template inheritance, which chat templates do not have.
    pub(super) blocks: BTreeMap<&'a str, Instructions<'a>>,
}

self_cell::self_cell!(
    /// A program beside the source that it borrows from.
    pub(super) struct Compiled {
        owner: String,

        #[covariant]
        dependent: Program,
    }
);

/// What is known of a template from its syntax tree.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) content_format: ContentFormat,
    pub(super) undeclared: BTreeSet<String>,
}

/// Compile a template.
pub(super) fn compile(source: &str) -> Result<(Compiled, Facts)> {
    let mut facts = None;
    let compiled = Compiled::try_new(source::prepare(source)?, |source| -> Result<Program<'_>> {
        // On a thread of its own, for its stack.
        let (program, found) = std::thread::scope(|scope| {
            let worker = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, || build(source));
            let worker = worker.map_err(|error| Error::Internal { message: format!("no thread: {error}") })?;
            worker.join().unwrap_or_else(|_| Err(Error::template("the template cannot be compiled")))
        })?;
        facts = Some(found);
        Ok(program)
    })?;
    let facts = facts.ok_or_else(|| Error::Internal { message: "a template without facts".to_owned() })?;
    Ok((compiled, facts))
}

fn build(source: &str) -> Result<(Program<'_>, Facts)> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|e| syntax_error(&e))?;
    let tree = machinery::parse(source, NAME, syntax).map_err(|error| syntax_error(&error))?;
    let mut check = Check::default();
    check.stmt(&tree);
    if let Some((line, message)) = check.fault {
        return Err(Error::template(format!("line {line}: {message}")));
    }
    let names = variables::variables(&tree);
    let facts = Facts { content_format: detect::content_format(&tree), undeclared: names.undeclared };
    let mut generator = CodeGenerator::new(NAME, source);
    generator.compile_stmt(&tree);
    let (instructions, _) = generator.finish();
    let instructions = Rewriter::new(&instructions, &check).run(source, &names.hidden);
    Ok((Program { instructions, blocks: BTreeMap::new() }, facts))
}

fn syntax_error(error: &minijinja::Error) -> Error {
    let message = error.detail().unwrap_or("the template cannot be parsed");
    let message = message
        .strip_prefix("unknown statement ")
        .map_or_else(|| message.to_owned(), |tag| format!("the tag `{tag}` is not supported"));
    Error::template(format!("line {}: {message}", error.line().unwrap_or(1)))
}

/// Looks for what we do not support, and collects what the rewriter needs.
#[derive(Default)]
struct Check<'a> {
    fault: Option<(u16, String)>,
    /// Inside a condition Jinja2 forgives unknown filters and tests until they are reached.
    conditional: usize,
    /// For each open loop, whether it has an `else`; none inside what Jinja2 makes a function of.
    loops: Vec<bool>,
    /// Names that the template itself gives a value somewhere.
    assigned: HashSet<&'a str>,
}

impl<'a> Check<'a> {
    fn fail(&mut self, line: u16, message: String) {
        self.fault.get_or_insert((line, message));
    }

    fn filter(&mut self, line: u16, name: &str) {
        if filters::UNSUPPORTED.contains(&name) {
            self.fail(line, format!("the filter `{name}` is not supported"));
        } else if filters::find(name).is_none() && self.conditional == 0 {
            self.fail(line, format!("there is no filter `{name}`"));
        }
    }

    fn call_args(&mut self, line: u16, args: &[CallArg<'_>]) {
        if args.iter().any(|arg| matches!(arg, CallArg::PosSplat(_) | CallArg::KwargSplat(_))) {
            self.fail(line, "unpacking arguments with `*` is not supported".to_owned());
        }
    }

    fn loop_control(&mut self, line: u16, tag: &str) {
        match self.loops.last() {
            None => self.fail(line, format!("`{tag}` stands outside of a loop")),
            // Jinja2 runs the `else` when no round came to its end; nobody can mean that.
            Some(true) => self.fail(line, format!("`{tag}` in a loop with an `else` is not supported")),
            Some(false) => {}
        }
    }

    fn declaration(&mut self, line: u16, declaration: &Macro<'a>) {
        let mut names: Vec<&'a str> = Vec::new();
        for arg in &declaration.args {
            if let Expr::Var(variable) = arg {
                names.push(variable.id);
                self.assigned.insert(variable.id);
            }
        }
        let mut used = Uses::default();
        declaration.defaults.iter().for_each(|default| used.expr(default));
        if let Some(name) = used.0.iter().find(|name| names.contains(*name)) {
            self.fail(line, format!("a default that refers to the parameter `{name}` is not supported"));
        }
    }
}

/// Names that are read somewhere in an expression.
#[derive(Default)]
struct Uses<'a>(HashSet<&'a str>);

impl<'t, 'a> Visitor<'t, 'a> for Uses<'a> {
    fn expr(&mut self, expr: &'t Expr<'a>) {
        if let Expr::Var(variable) = expr {
            self.0.insert(variable.id);
        }
        walk_expr(expr, self);
    }
}

impl<'t, 'a> Visitor<'t, 'a> for Check<'a> {
    fn stmt(&mut self, stmt: &'t Stmt<'a>) {
        match stmt {
            Stmt::IfCond(condition) => {
                self.conditional += 1;
                self.expr(&condition.expr);
                self.body(&condition.true_body);
                self.body(&condition.false_body);
                self.conditional -= 1;
                return;
            }
            Stmt::ForLoop(each) => {
                self.expr(&each.iter);
                self.target(&each.target);
                if let Some(filter) = &each.filter_expr {
                    self.expr(filter);
                }
                self.loops.push(!each.else_body.is_empty());
                self.body(&each.body);
                self.loops.pop();
                self.body(&each.else_body);
                return;
            }
            Stmt::Break(control) => self.loop_control(control.span().start_line, "break"),
            Stmt::Continue(control) => self.loop_control(control.span().start_line, "continue"),
            Stmt::WithBlock(with) if matches!(with.assignments.first(), Some((Expr::Var(name), _)) if name.id == source::GENERATION) =>
            {
                let loops = std::mem::take(&mut self.loops);
                walk_stmt(stmt, self);
                self.loops = loops;
                return;
            }
            Stmt::Macro(declaration) => {
                self.assigned.insert(declaration.name);
                self.declaration(declaration.span().start_line, declaration);
            }
            Stmt::CallBlock(block) => {
                self.assigned.insert("caller");
                self.declaration(block.macro_decl.span().start_line, &block.macro_decl);
                self.call_args(block.call.span().start_line, &block.call.args);
            }
            _ => {}
        }
        walk_stmt(stmt, self);
    }

    fn expr(&mut self, expr: &'t Expr<'a>) {
        let line = expr.span().start_line;
        match expr {
            Expr::Filter(filter) => {
                self.filter(line, filter.name);
                self.call_args(line, &filter.args);
            }
            Expr::Test(test) => {
                match predicates::find(test.name) {
                    Some((count, _)) if count != test.args.len() => {
                        self.fail(line, format!("the test `{}` takes {count} arguments", test.name));
                    }
                    None if self.conditional == 0 => self.fail(line, format!("there is no test `{}`", test.name)),
                    _ => {}
                }
                self.call_args(line, &test.args);
            }
            Expr::Call(call) => {
                self.call_args(line, &call.args);
                if let Expr::Var(variable) = &call.expr
                    && functions::UNSUPPORTED.contains(&variable.id)
                {
                    self.fail(line, format!("the function `{}` is not supported", variable.id));
                }
            }
            Expr::BinOp(operation) => {
                if let (Some(left), Some(right)) = (operation.left.as_const(), operation.right.as_const())
                    && !folds_alike(operation.op, expr, &left, &right)
                {
                    self.fail(line, "a constant expression of these types is not supported".to_owned());
                }
            }
            Expr::Compare(_) if expr.as_const().is_some() => {
                self.fail(line, "a chain of comparisons of constants is not supported".to_owned());
            }
            Expr::IfExpr(_) => {
                self.conditional += 1;
                walk_expr(expr, self);
                self.conditional -= 1;
                return;
            }
            _ => {}
        }
        walk_expr(expr, self);
    }

    fn target(&mut self, target: &'t Expr<'a>) {
        match target {
            Expr::Var(variable) => {
                self.assigned.insert(variable.id);
            }
            Expr::List(list) => list.items.iter().for_each(|item| self.target(item)),
            Expr::GetAttr(get) if !matches!(get.expr, Expr::Var(_)) => {
                self.fail(get.span().start_line, "only an attribute of a namespace can be set".to_owned());
            }
            _ => {}
        }
    }
}

/// A part of the program that instructions stand in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    /// The old instruction that each round begins with, and the one behind the last round.
    Loop {
        start: u32,
        end: u32,
    },
    Macro {
        end: u32,
    },
    Frame,
    Capture,
}

/// Replaces instructions, and moves the targets of jumps along.
struct Rewriter<'i, 'c, 'a> {
    old: &'i Instructions<'a>,
    check: &'c Check<'a>,
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

impl<'i, 'c, 'a> Rewriter<'i, 'c, 'a> {
    fn new(old: &'i Instructions<'a>, check: &'c Check<'a>) -> Self {
        Self {
            old,
            check,
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

    fn run(mut self, source: &'a str, hidden: &BTreeSet<&'a str>) -> Instructions<'a> {
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
            self.rewrite(place);
        }
        self.places.push(u32::try_from(self.out.len()).unwrap_or(u32::MAX));
        let mut instructions = Instructions::new(NAME, source);
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

    fn rewrite(&mut self, place: u32) {
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
        match instruction {
            Instruction::Add => self.apply(place, environment::ADD, 2),
            Instruction::Mul => self.apply(place, environment::MULTIPLY, 2),
            Instruction::Rem => self.apply(place, environment::MODULO, 2),
            Instruction::StringConcat => self.apply(place, environment::CONCAT, 2),
            Instruction::Eq => self.apply(place, environment::EQUAL, 2),
            Instruction::Ne => self.apply(place, environment::NOT_EQUAL, 2),
            Instruction::Lt => self.apply(place, environment::LESS, 2),
            Instruction::Lte => self.apply(place, environment::LESS_EQUAL, 2),
            Instruction::Gt => self.apply(place, environment::GREATER, 2),
            Instruction::Gte => self.apply(place, environment::GREATER_EQUAL, 2),
            Instruction::In => self.apply(place, environment::IN, 2),
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
            Instruction::Iterate(end) => {
                self.open.push(Open::Loop { start: place, end });
                self.push(place, instruction);
            }
            Instruction::PushLoop(_) | Instruction::FastRecurse | Instruction::UnpackList(_) => {
                self.apply(place, environment::ITERATE, 1);
                self.push(place, instruction);
            }
            Instruction::StoreLocal(_) if self.plain_parameters.contains(&place) => {
                self.apply(place, environment::GIVEN, 1);
                self.push(place, instruction);
            }
            Instruction::IsUndefined => self.apply(place, environment::MISSING, 1),
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
            Instruction::Jump(end) => {
                // The body of a macro stands behind a jump over it.
                if matches!(end.checked_sub(1).and_then(|last| self.old.get(last)), Some(Instruction::Return)) {
                    self.open.push(Open::Macro { end });
                }
                self.leave(place, end);
                self.push(place, instruction);
            }
            Instruction::PushWith | Instruction::BeginCapture(_) => {
                let frame = matches!(instruction, Instruction::PushWith);
                self.open.push(if frame { Open::Frame } else { Open::Capture });
                self.push(place, instruction);
            }
            Instruction::PopFrame | Instruction::EndCapture => {
                self.open.pop();
                self.push(place, instruction);
            }
            Instruction::BuildMacro(name, offset, flags) => {
                if let Some([positional, named]) = self.rest_starts.get(&offset).copied() {
                    self.extend_parameters(positional, named);
                }
                self.push(place, Instruction::BuildMacro(name, offset, flags));
            }
            other => self.push(place, other),
        }
    }

    /// Whether the current instruction may run more than once.
    fn repeats(&self) -> bool {
        self.open.iter().any(|open| matches!(open, Open::Loop { .. } | Open::Macro { .. }))
    }

    /// Close what a `break` or a `continue` jumps out of; the engine would leave it open.
    fn leave(&mut self, place: u32, target: u32) {
        let around = self.open.iter().rposition(|open| matches!(open, Open::Loop { .. } | Open::Macro { .. }));
        let Some(around) = around else { return };
        if !matches!(self.open[around], Open::Loop { start, end } if target == start || target == end) {
            return;
        }
        for inner in (around + 1..self.open.len()).rev() {
            if self.open[inner] == Open::Capture {
                self.push(place, Instruction::EndCapture);
                self.push(place, Instruction::DiscardTop);
            } else {
                self.push(place, Instruction::PopFrame);
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
        let is_global = environment::is_global(name) && !self.check.assigned.contains(name);
        if name == "loop" {
            self.apply(place, environment::ITERATE, 1);
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

/// Whether the engine, which computes constants by itself, comes to Python's result.
fn folds_alike(operator: BinOpKind, expr: &Expr<'_>, left: &Value, right: &Value) -> bool {
    let (left, right) = (normalized(left.clone()), normalized(right.clone()));
    let ordered =
        |holds: fn(Ordering) -> bool| operators::compare(&left, &right).ok().map(|order| order.is_some_and(holds));
    let truth = match operator {
        BinOpKind::Eq => Some(operators::equal(&left, &right)),
        BinOpKind::Ne => Some(!operators::equal(&left, &right)),
        BinOpKind::Lt => ordered(Ordering::is_lt),
        BinOpKind::Lte => ordered(Ordering::is_le),
        BinOpKind::Gt => ordered(Ordering::is_gt),
        BinOpKind::Gte => ordered(Ordering::is_ge),
        BinOpKind::In => operators::contains(&right, &left).ok(),
        BinOpKind::Concat => {
            let joined = text::to_string(&left).and_then(|head| Ok(head + &text::to_string(&right)?));
            return expr.as_const().is_none_or(|folded| joined.is_ok_and(|joined| folded.as_str() == Some(&joined)));
        }
        _ => return true,
    };
    expr.as_const().is_none_or(|folded| truth == Some(folded.is_true()))
}

/// A constant as our own types; the engine folds literals to its own.
fn normalized(constant: Value) -> Value {
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
