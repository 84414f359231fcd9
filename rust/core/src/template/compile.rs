//! From source to the engine's instructions, with Python's semantics put in where the engine has its own.
//!
//! The engine parses and generates code; here the syntax tree is checked in between, and [`super::rewrite`] goes over the
//! code before it is run.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use minijinja::Value;
use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Macro, Stmt};
use minijinja::machinery::{self, CodeGenerator, Instructions};
use minijinja::syntax::SyntaxConfig;

use super::rewrite::{normalized, rewrite};
use super::walk::{Visitor, walk_expr, walk_stmt};
use super::{detect, filters, functions, operators, predicates, source, text, variables};
use crate::error::{Error, Result};
use crate::spec::ContentFormat;

/// Stack for the parser, which recurses over tags of at most 16 kB.
const STACK: usize = 64 << 20;

/// What the engine calls every template.
pub(super) const NAME: &str = "chat template";

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
    let instructions = rewrite(&instructions, &check.assigned, &names.hidden);
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
                // The engine would divide by their number.
                if matches!(&call.expr, Expr::GetAttr(get) if get.name == "cycle") && call.args.is_empty() {
                    self.fail(line, "`cycle` wants arguments".to_owned());
                }
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
