//! Which names a template takes from outside: Jinja2's `find_undeclared_variables`.

use std::collections::{BTreeSet, HashMap, HashSet};

use minijinja::machinery::ast::{Expr, Macro, Stmt};

use super::calls::{REST_NAMED, REST_POSITIONAL};
use super::walk::{Visitor, walk_call_args, walk_expr, walk_stmt};

/// Names that Jinja2 itself gives a value.
const GLOBALS: [&str; 7] = ["cycler", "dict", "joiner", "lipsum", "namespace", "range", "self"];

/// Parameters of transformers' `apply_chat_template`, which vLLM lets through whatever the template says.
const APPLY_PARAMETERS: [&str; 14] = [
    "add_generation_prompt",
    "chat_template",
    "continue_final_message",
    "conversation",
    "documents",
    "max_length",
    "padding",
    "return_assistant_tokens_mask",
    "return_dict",
    "return_tensors",
    "tokenize",
    "tokenizer_kwargs",
    "tools",
    "truncation",
];

/// Whether a name is a parameter of `apply_chat_template` that a request may set.
pub fn is_apply_parameter(name: &str) -> bool {
    APPLY_PARAMETERS.contains(&name) && !matches!(name, "chat_template" | "tokenize")
}

/// What the names of a template mean.
#[derive(Debug, Default)]
pub(super) struct Variables<'a> {
    /// Names that the template takes from outside.
    pub(super) undeclared: BTreeSet<String>,
    /// Names that the template sets after a scope inside it has read them. Jinja2 holds them for the template's own, so
    /// that they are undefined until then, whatever is given from outside.
    pub(super) hidden: BTreeSet<&'a str>,
}

/// Look at the names of a template.
pub(super) fn variables<'a>(template: &Stmt<'a>) -> Variables<'a> {
    let mut variables = Variables::default();
    if let Stmt::Template(template) = template {
        let mut scope = Scope::default();
        scope.body(&template.children);
        scope.close(&[], &mut variables);
    }
    variables
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Looked up outside, as nothing in the template has set it at this point.
    Resolve,
    /// Set by the template itself.
    Own,
}

/// One scope: the names seen in it in source order, and the scopes inside it, which are looked at once all its names
/// are known.
#[derive(Default)]
struct Scope<'t, 'a> {
    names: Names<'a>,
    /// What the enclosing scopes know, innermost last.
    outer: Vec<HashSet<&'a str>>,
    /// Each with the number of names that were known before it.
    inner: Vec<(usize, Inner<'t, 'a>)>,
    /// When each name was first seen here.
    first_seen: HashMap<&'a str, usize>,
    /// Names that are read here and known outside.
    free: HashSet<&'a str>,
}

#[derive(Default, Clone)]
struct Names<'a> {
    loads: HashMap<&'a str, Load>,
    stores: HashSet<&'a str>,
}

enum Inner<'t, 'a> {
    Loop { target: Option<&'t Expr<'a>>, test: Option<&'t Expr<'a>>, body: &'t [Stmt<'a>] },
    Macro(&'t Macro<'a>),
    With(Vec<&'t Expr<'a>>, &'t [Stmt<'a>]),
    Body(&'t [Stmt<'a>], Option<&'t Expr<'a>>),
}

impl<'t, 'a> Scope<'t, 'a> {
    fn knows_outside(&self, name: &str) -> bool {
        self.outer.iter().any(|names| names.contains(name))
    }

    fn see(&mut self, name: &'a str) {
        let next = self.first_seen.len();
        self.first_seen.entry(name).or_insert(next);
    }

    fn enter(&mut self, inner: Inner<'t, 'a>) {
        self.inner.push((self.first_seen.len(), inner));
    }

    fn load(&mut self, name: &'a str) {
        if self.names.loads.contains_key(name) {
            return;
        }
        if self.knows_outside(name) {
            self.free.insert(name);
        } else {
            self.see(name);
            self.names.loads.insert(name, Load::Resolve);
        }
    }

    fn store(&mut self, name: &'a str) {
        self.see(name);
        self.names.stores.insert(name);
        self.names.loads.entry(name).or_insert(Load::Own);
    }

    fn declare(&mut self, name: &'a str) {
        self.names.stores.insert(name);
        self.names.loads.insert(name, Load::Own);
    }

    fn declare_target(&mut self, target: &Expr<'a>) {
        match target {
            Expr::Var(variable) => self.declare(variable.id),
            Expr::List(list) => list.items.iter().for_each(|item| self.declare_target(item)),
            _ => {}
        }
    }

    /// Join what the branches of a condition did: a name that only they set may come from outside.
    fn join(&mut self, branches: Vec<Names<'a>>) {
        let stored: HashSet<&'a str> = branches.iter().flat_map(|branch| branch.stores.iter().copied()).collect();
        let new: Vec<&'a str> = stored.into_iter().filter(|name| !self.names.stores.contains(name)).collect();
        for branch in branches {
            self.names.loads.extend(branch.loads);
            self.names.stores.extend(branch.stores);
        }
        for name in new {
            let load = if self.knows_outside(name) { Load::Own } else { Load::Resolve };
            self.names.loads.insert(name, load);
        }
    }

    /// Report this scope's names, then those of the scopes inside it. Gives the names that it reads from outside.
    fn close(self, outer: &[HashSet<&'a str>], variables: &mut Variables<'a>) -> HashSet<&'a str> {
        for (name, load) in &self.names.loads {
            if *load == Load::Resolve && !GLOBALS.contains(name) {
                variables.undeclared.insert((*name).to_owned());
            }
        }
        let mut known = outer.to_vec();
        known.push(self.names.loads.keys().copied().collect());
        let mut free = self.free;
        for (time, inner) in self.inner {
            for scope in inner.open(&known) {
                for name in scope.close(&known, variables) {
                    let own = self.names.loads.get(name) == Some(&Load::Own);
                    let later = self.first_seen.get(name).is_some_and(|&seen| seen >= time);
                    if !self.names.loads.contains_key(name) {
                        free.insert(name);
                    } else if own && later && outer.is_empty() {
                        variables.hidden.insert(name);
                    }
                }
            }
        }
        free
    }
}

impl<'t, 'a> Inner<'t, 'a> {
    /// The scopes that it makes, with all their names.
    fn open(self, known: &[HashSet<&'a str>]) -> Vec<Scope<'t, 'a>> {
        let new = || Scope { outer: known.to_vec(), ..Scope::default() };
        let mut scope = new();
        let mut scopes = Vec::new();
        match self {
            Inner::Loop { target, test, body } => {
                if let Some(test) = test {
                    let mut judged = new();
                    if let Some(target) = target {
                        judged.declare_target(target);
                    }
                    judged.expr(test);
                    scopes.push(judged);
                }
                if let Some(target) = target {
                    scope.declare("loop");
                    scope.declare_target(target);
                }
                scope.body(body);
            }
            Inner::Macro(declaration) => {
                for name in ["caller", REST_NAMED, REST_POSITIONAL] {
                    scope.declare(name);
                }
                declaration.args.iter().for_each(|arg| scope.declare_target(arg));
                declaration.defaults.iter().for_each(|default| scope.expr(default));
                scope.body(&declaration.body);
            }
            Inner::With(targets, body) => {
                for target in targets {
                    scope.target(target);
                }
                scope.body(body);
            }
            Inner::Body(body, filter) => {
                scope.body(body);
                if let Some(filter) = filter {
                    scope.expr(filter);
                }
            }
        }
        scopes.push(scope);
        scopes
    }
}

impl<'t, 'a> Visitor<'t, 'a> for Scope<'t, 'a> {
    fn stmt(&mut self, stmt: &'t Stmt<'a>) {
        match stmt {
            Stmt::IfCond(condition) => {
                self.expr(&condition.expr);
                let before = self.names.clone();
                self.body(&condition.true_body);
                let then = std::mem::replace(&mut self.names, before.clone());
                self.body(&condition.false_body);
                let otherwise = std::mem::replace(&mut self.names, before);
                self.join(vec![then, otherwise]);
            }
            Stmt::ForLoop(each) => {
                self.expr(&each.iter);
                let target = Some(&each.target);
                self.enter(Inner::Loop { target, test: each.filter_expr.as_ref(), body: &each.body });
                self.enter(Inner::Loop { target: None, test: None, body: &each.else_body });
            }
            Stmt::Macro(declaration) => {
                self.store(declaration.name);
                self.enter(Inner::Macro(declaration));
            }
            Stmt::CallBlock(block) => {
                walk_expr(&block.call.expr, self);
                if let Expr::Var(_) = &block.call.expr {
                    self.expr(&block.call.expr);
                }
                walk_call_args(&block.call.args, self);
                self.enter(Inner::Macro(&block.macro_decl));
            }
            Stmt::WithBlock(with) => {
                with.assignments.iter().for_each(|(_, value)| self.expr(value));
                let targets = with.assignments.iter().map(|(target, _)| target).collect();
                self.enter(Inner::With(targets, &with.body));
            }
            Stmt::SetBlock(set) => {
                self.target(&set.target);
                self.enter(Inner::Body(&set.body, set.filter.as_ref()));
            }
            Stmt::FilterBlock(block) => {
                self.expr(&block.filter);
                self.enter(Inner::Body(&block.body, None));
            }
            _ => walk_stmt(stmt, self),
        }
    }

    fn expr(&mut self, expr: &'t Expr<'a>) {
        if let Expr::Var(variable) = expr {
            self.load(variable.id);
        }
        walk_expr(expr, self);
    }

    fn target(&mut self, target: &'t Expr<'a>) {
        match target {
            Expr::Var(variable) => self.store(variable.id),
            Expr::List(list) => list.items.iter().for_each(|item| self.target(item)),
            Expr::GetAttr(get) => self.expr(&get.expr),
            _ => {}
        }
    }
}
