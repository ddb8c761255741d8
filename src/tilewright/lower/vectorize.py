"""Makes vector lanes explicit: a `vectorize` loop of constant extent becomes statements over vectors.

    vectorize j in 0..8:                    y[i, ramp(0, 1, 8)] = x[i, ramp(0, 1, 8)] * broadcast(s[i], 8)
      y[i, j] = x[i, j] * s[i]      =>

An index that is linear in the loop variable becomes a ramp; any other expression of it is computed lane by lane in a
vector. What does not depend on the variable stays scalar until it meets a vector.
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import postorder
from tilewright.expr import dtypes
from tilewright.expr.linear import affine_in, expression, plus, polynomial, times
from tilewright.expr.nodes import Broadcast, Const, Expr, Ramp, Var
from tilewright.loops.edit import transform_statements
from tilewright.loops.nodes import For, Function, If, Load, LoopKind, Seq, Stmt, Store, seq


def vectorize(function: Function) -> Function:
    """The function without `vectorize` loops. A loop whose body cannot run in lanes (an inner loop, a branch on the
    variable) runs serially instead: that is never wrong."""

    def change(node: Node) -> Node:
        if isinstance(node, For) and node.kind is LoopKind.VECTORIZE:
            return _widen_loop(node)
        return node

    body = transform_statements(function.body, change)
    return function if body is function.body else function.replace(body=body)


def _widen_loop(loop: For) -> Stmt:
    serial = loop.replace(kind=LoopKind.SERIAL)
    if not (isinstance(loop.end, Const) and isinstance(loop.begin, Const)):
        return serial
    widen = _Widener(loop.var, loop.begin, int(loop.end.value) - int(loop.begin.value))
    return widen.statement(loop.body) or serial


class _Widener:
    """Replaces one loop variable by all its values at once."""

    def __init__(self, var: Var, begin: Const, count: int) -> None:
        self.var = var
        self.begin = begin
        self.count = count
        self.memo: dict[Expr, Expr] = {}
        self.depends: dict[Expr, bool] = {}

    def statement(self, stmt: Stmt) -> Stmt | None:
        """The widened statement, or None when it cannot run in lanes."""
        match stmt:
            case Seq(body):
                parts = [self.statement(s) for s in body]
                return None if any(p is None for p in parts) else seq(*[p for p in parts if p is not None])
            case Store(buffer, indices, value):
                wide_indices = tuple(self.expression(i) for i in indices)
                wide = self.expression(value)
                if all(i.lanes == 1 for i in wide_indices):
                    return None
                return Store(buffer, wide_indices, self.vector(wide))
            case For() if not self.uses(loop_bounds(stmt)):
                inner = self.statement(stmt.body)
                return None if inner is None else stmt.replace(body=inner)
            case If(cond, then, otherwise) if not self.uses((cond,)):
                yes = self.statement(then)
                no = self.statement(otherwise) if otherwise is not None else None
                return None if yes is None or (otherwise is not None and no is None) else If(cond, yes, no)
        return None

    def uses(self, roots: tuple[Expr, ...]) -> bool:
        return any(self._contains(r) for r in roots)

    def _contains(self, root: Expr) -> bool:
        if root not in self.depends:
            for node in postorder(root):
                if isinstance(node, Expr):
                    parts = [self.depends[c] for c in node.children() if isinstance(c, Expr)]
                    self.depends[node] = node is self.var or any(parts)
        return self.depends[root]

    def vector(self, e: Expr) -> Expr:
        return e if e.lanes > 1 else Broadcast(e, self.count)

    def expression(self, root: Expr) -> Expr:
        """The widened expression: still scalar where it does not depend on the variable."""
        stack: list[Expr] = [root]
        opened: set[Expr] = set()
        while stack:
            node = stack[-1]
            if node not in self.memo and node not in opened:
                opened.add(node)
                whole = self._whole(node)
                if whole is not None:
                    self.memo[node] = whole
            if node not in self.memo:
                waiting = [c for c in node.children() if isinstance(c, Expr) and c not in self.memo]
                if waiting:
                    stack.extend(reversed(waiting))
                    continue
                self.memo[node] = self._of_parts(node)
            stack.pop()
        return self.memo[root]

    def _whole(self, e: Expr) -> Expr | None:
        """What becomes of an expression without a look at its parts: nothing, or a ramp; else None."""
        if not self._contains(e):
            return e
        return self._ramp(e) if e.dtype is dtypes.index and not isinstance(e, Load) else None

    def _of_parts(self, e: Expr) -> Expr:
        """The expression of its widened parts."""
        parts = [self.memo[c] for c in e.children() if isinstance(c, Expr)]
        return e.rebuild(tuple(parts if isinstance(e, Load) else [self.vector(p) for p in parts]))

    def _ramp(self, e: Expr) -> Expr | None:
        """e = coefficient*var + rest, with neither part depending on the variable, as a ramp."""
        parts = affine_in(polynomial(e), self.var)
        if parts is None:
            return None
        coefficient, rest = expression(parts[0]), expression(parts[1])
        if self.uses((coefficient, rest)):
            return None
        base = expression(plus(polynomial(rest), times(polynomial(coefficient), polynomial(self.begin))))
        return Ramp(base, coefficient, self.count)


def loop_bounds(loop: For) -> tuple[Expr, ...]:
    return loop.begin, loop.end
