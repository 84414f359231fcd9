//! A walk over the engine's syntax tree, in source order.

use minijinja::machinery::ast::{CallArg, Expr, Macro, Stmt};

/// What looks at every node; the defaults go on to the children.
pub(super) trait Visitor<'t, 'a> {
    fn stmt(&mut self, stmt: &'t Stmt<'a>) {
        walk_stmt(stmt, self);
    }

    fn expr(&mut self, expr: &'t Expr<'a>) {
        walk_expr(expr, self);
    }

    /// The target of an assignment or a loop.
    fn target(&mut self, _target: &'t Expr<'a>) {}

    fn body(&mut self, body: &'t [Stmt<'a>]) {
        for stmt in body {
            self.stmt(stmt);
        }
    }
}

pub(super) fn walk_stmt<'t, 'a, V: Visitor<'t, 'a> + ?Sized>(stmt: &'t Stmt<'a>, visitor: &mut V) {
    match stmt {
        Stmt::Template(template) => visitor.body(&template.children),
        Stmt::EmitExpr(emit) => visitor.expr(&emit.expr),
        Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => {}
        Stmt::ForLoop(for_loop) => {
            visitor.expr(&for_loop.iter);
            visitor.target(&for_loop.target);
            if let Some(filter) = &for_loop.filter_expr {
                visitor.expr(filter);
            }
            visitor.body(&for_loop.body);
            visitor.body(&for_loop.else_body);
        }
        Stmt::IfCond(condition) => {
            visitor.expr(&condition.expr);
            visitor.body(&condition.true_body);
            visitor.body(&condition.false_body);
        }
        Stmt::WithBlock(with) => {
            for (target, value) in &with.assignments {
                visitor.expr(value);
                visitor.target(target);
            }
            visitor.body(&with.body);
        }
        Stmt::Set(set) => {
            visitor.expr(&set.expr);
            visitor.target(&set.target);
        }
        Stmt::SetBlock(set) => {
            visitor.body(&set.body);
            if let Some(filter) = &set.filter {
                visitor.expr(filter);
            }
            visitor.target(&set.target);
        }
        Stmt::AutoEscape(escape) => {
            visitor.expr(&escape.enabled);
            visitor.body(&escape.body);
        }
        Stmt::FilterBlock(block) => {
            visitor.body(&block.body);
            visitor.expr(&block.filter);
        }
        Stmt::Macro(declaration) => walk_macro(declaration, visitor),
        Stmt::CallBlock(block) => {
            walk_call_args(&block.call.args, visitor);
            visitor.expr(&block.call.expr);
            walk_macro(&block.macro_decl, visitor);
        }
        Stmt::Do(call) => {
            walk_call_args(&call.call.args, visitor);
            visitor.expr(&call.call.expr);
        }
    }
}

fn walk_macro<'t, 'a, V: Visitor<'t, 'a> + ?Sized>(declaration: &'t Macro<'a>, visitor: &mut V) {
    for default in &declaration.defaults {
        visitor.expr(default);
    }
    visitor.body(&declaration.body);
}

pub(super) fn walk_call_args<'t, 'a, V: Visitor<'t, 'a> + ?Sized>(args: &'t [CallArg<'a>], visitor: &mut V) {
    for arg in args {
        let (CallArg::Pos(expr) | CallArg::Kwarg(_, expr) | CallArg::PosSplat(expr) | CallArg::KwargSplat(expr)) = arg;
        visitor.expr(expr);
    }
}

pub(super) fn walk_expr<'t, 'a, V: Visitor<'t, 'a> + ?Sized>(expr: &'t Expr<'a>, visitor: &mut V) {
    match expr {
        Expr::Var(_) | Expr::Const(_) => {}
        Expr::Slice(slice) => {
            visitor.expr(&slice.expr);
            for bound in [&slice.start, &slice.stop, &slice.step].into_iter().flatten() {
                visitor.expr(bound);
            }
        }
        Expr::UnaryOp(operation) => visitor.expr(&operation.expr),
        Expr::BinOp(operation) => {
            visitor.expr(&operation.left);
            visitor.expr(&operation.right);
        }
        Expr::Compare(compare) => {
            visitor.expr(&compare.expr);
            for operation in &compare.ops {
                visitor.expr(&operation.expr);
            }
        }
        Expr::IfExpr(condition) => {
            visitor.expr(&condition.test_expr);
            visitor.expr(&condition.true_expr);
            if let Some(otherwise) = &condition.false_expr {
                visitor.expr(otherwise);
            }
        }
        Expr::Filter(filter) => {
            if let Some(inner) = &filter.expr {
                visitor.expr(inner);
            }
            walk_call_args(&filter.args, visitor);
        }
        Expr::Test(test) => {
            visitor.expr(&test.expr);
            walk_call_args(&test.args, visitor);
        }
        Expr::GetAttr(get) => visitor.expr(&get.expr),
        Expr::GetItem(get) => {
            visitor.expr(&get.expr);
            visitor.expr(&get.subscript_expr);
        }
        Expr::Call(call) => {
            visitor.expr(&call.expr);
            walk_call_args(&call.args, visitor);
        }
        Expr::List(list) => list.items.iter().for_each(|item| visitor.expr(item)),
        Expr::Tuple(tuple) => tuple.items.iter().for_each(|item| visitor.expr(item)),
        Expr::Map(map) => {
            for (key, value) in map.keys.iter().zip(&map.values) {
                visitor.expr(key);
                visitor.expr(value);
            }
        }
    }
}
