//! How a template wants message content: vLLM's `auto` detection, walked over the syntax tree.

use std::collections::{HashMap, HashSet, VecDeque};

use minijinja::machinery::ast::{Call, CallArg, Expr, ForLoop, Macro, Stmt};

use super::walk::{Visitor, walk_expr, walk_stmt};
use crate::spec::ContentFormat;

/// Parts when some loop goes over the content of a message, else text.
pub(super) fn content_format(template: &Stmt<'_>) -> ContentFormat {
    let mut nodes = Nodes::default();
    nodes.stmt(template);
    if nodes.loops_over_content().unwrap_or(false) { ContentFormat::OpenAi } else { ContentFormat::String }
}

/// More names for the messages than any template has; looking for them is quadratic.
const MAX_ALIASES: usize = 256;

/// The nodes that the detection looks at.
#[derive(Default)]
struct Nodes<'t, 'a> {
    assignments: Vec<(&'t Expr<'a>, &'t Expr<'a>)>,
    loops: Vec<Loop<'t, 'a>>,
    calls: Vec<&'t Call<'a>>,
    macros: Vec<&'t Macro<'a>>,
    inside: Vec<usize>,
}

struct Loop<'t, 'a> {
    node: &'t ForLoop<'a>,
    /// The macros that it stands in, outermost first.
    macros: Vec<usize>,
}

/// The reference gives up on loops whose target is not one name.
struct GaveUp;

impl<'t, 'a> Visitor<'t, 'a> for Nodes<'t, 'a> {
    fn stmt(&mut self, stmt: &'t Stmt<'a>) {
        match stmt {
            Stmt::Set(set) => self.assignments.push((&set.target, &set.expr)),
            Stmt::ForLoop(node) => self.loops.push(Loop { node, macros: self.inside.clone() }),
            Stmt::CallBlock(block) => self.calls.push(&block.call),
            Stmt::Macro(declaration) => {
                self.macros.push(declaration);
                self.inside.push(self.macros.len() - 1);
                walk_stmt(stmt, self);
                self.inside.pop();
                return;
            }
            _ => {}
        }
        walk_stmt(stmt, self);
    }

    fn expr(&mut self, expr: &'t Expr<'a>) {
        if let Expr::Call(call) = expr {
            self.calls.push(call);
        }
        walk_expr(expr, self);
    }
}

impl<'t, 'a> Nodes<'t, 'a> {
    fn loops_over_content(&self) -> Result<bool, GaveUp> {
        let aliases = self.aliases_of_messages();
        let mut messages = Vec::new();
        for each in &self.loops {
            if aliases.iter().any(|alias| is_variable_or_part(&each.node.iter, alias)) {
                messages.push(one_name(&each.node.target)?);
            }
        }
        let is_content =
            |expr: &Expr<'_>| messages.iter().any(|message| is_attribute_or_part(expr, message, "content"));
        let parameters = self.content_parameters(&is_content);
        for each in &self.loops {
            let name = if let Expr::Var(variable) = &each.node.iter { Some(variable.id) } else { None };
            // The innermost macro that gets content decides, as the last one seen does.
            let parameter = each.macros.iter().rev().find_map(|place| parameters.get(place));
            let found = is_content(&each.node.iter)
                || name.is_some_and(|name| parameter.is_some_and(|names| names.contains(name)))
                || (each.macros.is_empty() && name == Some("content"));
            if found {
                one_name(&each.node.target)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Names that stand for the messages, dotted ones for attributes of namespaces.
    fn aliases_of_messages(&self) -> Vec<String> {
        let mut aliases = vec!["messages".to_owned()];
        let mut seen: HashSet<String> = aliases.iter().cloned().collect();
        let mut queue: VecDeque<String> = aliases.iter().cloned().collect();
        while let Some(alias) = queue.pop_front() {
            if aliases.len() > MAX_ALIASES {
                break;
            }
            for (target, value) in &self.assignments {
                for name in aliases_made(target, value, &alias) {
                    if seen.insert(name.clone()) {
                        aliases.push(name.clone());
                        queue.push_back(name);
                    }
                }
            }
        }
        aliases
    }

    /// By macro, the parameters that some call gives the content of a message.
    fn content_parameters(&self, is_content: &dyn Fn(&Expr<'_>) -> bool) -> HashMap<usize, HashSet<&'a str>> {
        let mut found: HashMap<usize, HashSet<&'a str>> = HashMap::new();
        let mut calls: HashMap<&'a str, Vec<&'t Call<'a>>> = HashMap::new();
        for call in &self.calls {
            if let Expr::Var(variable) = &call.expr {
                calls.entry(variable.id).or_default().push(call);
            }
        }
        for (place, declaration) in self.macros.iter().enumerate() {
            let names: Vec<&'a str> = declaration
                .args
                .iter()
                .filter_map(|arg| if let Expr::Var(variable) = arg { Some(variable.id) } else { None })
                .collect();
            for call in calls.get(declaration.name).into_iter().flatten() {
                let positional = call.args.iter().filter_map(|arg| match arg {
                    CallArg::Pos(expr) => Some(expr),
                    _ => None,
                });
                for (name, expr) in names.iter().zip(positional) {
                    if is_content(expr) {
                        found.entry(place).or_default().insert(name);
                    }
                }
                for arg in &call.args {
                    if let CallArg::Kwarg(key, expr) = arg
                        && names.contains(key)
                        && is_content(expr)
                    {
                        found.entry(place).or_default().insert(key);
                    }
                }
            }
        }
        found
    }
}

/// The names that one assignment makes stand for what `alias` stands for.
fn aliases_made(target: &Expr<'_>, value: &Expr<'_>, alias: &str) -> Vec<String> {
    match target {
        Expr::Var(variable) if is_variable_or_part(value, alias) => vec![variable.id.to_owned()],
        Expr::Var(variable) => match value {
            Expr::Call(call) if matches!(&call.expr, Expr::Var(callee) if callee.id == "namespace") => call
                .args
                .iter()
                .filter_map(|arg| match arg {
                    CallArg::Kwarg(key, expr) if is_variable_or_part(expr, alias) => {
                        Some(format!("{}.{key}", variable.id))
                    }
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        },
        Expr::GetAttr(_) if is_variable_or_part(value, alias) => dotted(target).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn dotted(expr: &Expr<'_>) -> Option<String> {
    match expr {
        Expr::Var(variable) => Some(variable.id.to_owned()),
        Expr::GetAttr(get) => Some(format!("{}.{}", dotted(&get.expr)?, get.name)),
        _ => None,
    }
}

fn one_name<'a>(target: &Expr<'a>) -> Result<&'a str, GaveUp> {
    if let Expr::Var(variable) = target { Ok(variable.id) } else { Err(GaveUp) }
}

/// The variable itself, through filters, tests and slices.
fn is_variable_or_part(expr: &Expr<'_>, name: &str) -> bool {
    through(expr).is_some_and(|expr| is_variable(expr, name))
}

/// An attribute of the variable, through filters, tests and slices.
fn is_attribute_or_part(expr: &Expr<'_>, name: &str, key: &str) -> bool {
    match through(expr) {
        Some(Expr::GetItem(get)) => {
            let named = matches!(&get.subscript_expr, Expr::Const(constant) if constant.value.as_str() == Some(key));
            named && is_variable(&get.expr, name)
        }
        Some(Expr::GetAttr(get)) => get.name == key && is_variable(&get.expr, name),
        _ => false,
    }
}

fn through<'t, 'a>(mut expr: &'t Expr<'a>) -> Option<&'t Expr<'a>> {
    loop {
        expr = match expr {
            Expr::Filter(filter) => filter.expr.as_ref()?,
            Expr::Test(test) => &test.expr,
            Expr::Slice(slice) => &slice.expr,
            _ => return Some(expr),
        };
    }
}

fn is_variable(expr: &Expr<'_>, name: &str) -> bool {
    match expr {
        Expr::Var(variable) => variable.id == name,
        Expr::GetAttr(get) => match name.rsplit_once('.') {
            Some((base, attribute)) => get.name == attribute && is_variable(&get.expr, base),
            None => false,
        },
        _ => false,
    }
}
