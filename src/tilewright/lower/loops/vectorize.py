"""Makes vector lanes explicit: a `vectorize` loop of constant extent becomes statements over vectors.

    vectorize j in 0..8:                    y[i, ramp(0, 1, 8)] = x[i, ramp(0, 1, 8)] * broadcast(s[i], 8)
      y[i, j] = x[i, j] * s[i]      =>

An index that is linear in the loop variable becomes a ramp; any other expression of it is computed lane by lane in a
vector. What does not depend on the variable stays scalar until it meets a vector. A branch on the variable becomes a
branch in lanes, a mask:

    vectorize j in 0..8:                    if i < m:
      if i < m and j + jo*8 < n:      =>      if ramp(0, 1, 8) < broadcast(i32(min(max(n - jo*8, 0), 8)), 8):
        y[i, j + jo*8] = 0.0                    y[i, jo*8:jo*8 + 8] = broadcast(0.0, 8)

A small buffer that each iteration has for itself becomes one with room for all lanes (see private_lanes.py).
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.build import conjunction, conjuncts
from tilewright.expr.linear import affine_in, expression, plus, polynomial, times
from tilewright.expr.nodes import Broadcast, Const, Expr, Ramp, Var
from tilewright.loops.edit import statements, substitute_expressions, transform_statements
from tilewright.loops.nodes import Alloc, For, Function, If, Let, Load, LoopKind, Prefetch, Seq, Stmt, Store, seq
from tilewright.lower.loops.mask_loads import loads_outside
from tilewright.lower.loops.masks import compare_lanes, decided, is_pure, lane_type
from tilewright.lower.loops.private_lanes import is_private, with_private_lanes


def vectorize(function: Function, registers: int) -> Function:
    """The function without `vectorize` loops, for so many vector registers. A loop whose body cannot run in
    lanes (it has no constant extent, stores to one place, calls a function) runs serially: that is never wrong."""

    def change(node: Node) -> Node:
        if isinstance(node, For):
            return _mask_outside(_widen_loop(node, registers) if node.kind is LoopKind.VECTORIZE else node)
        return _joined(node) if isinstance(node, Seq) else node

    body = loads_outside(transform_statements(function.body, change))
    return function if body is function.body else function.replace(body=body)


def _widen_loop(loop: For, registers: int) -> Stmt:
    serial = loop.replace(kind=LoopKind.SERIAL)
    if not (isinstance(loop.end, Const) and isinstance(loop.begin, Const)):
        return serial
    widths = (s.buffer.dtype.bits for s in statements(loop.body) if isinstance(s, Store))
    widen = _Widener(loop.var, loop.begin, int(loop.end.value) - int(loop.begin.value), next(widths, 32))
    return widen.statement(with_private_lanes(loop, registers)) or serial


def _masked(masks: list[Expr], then: Stmt, otherwise: Stmt | None) -> Stmt:
    """A branch in lanes where all of the masks hold, or what is left of it when all lanes agree."""
    known = [decided(m) for m in masks]
    if any(k is False for k in known):
        return otherwise if otherwise is not None else Seq(())
    mask = conjunction([m for m, k in zip(masks, known, strict=True) if k is None])
    return then if mask is None else If(mask, then, otherwise)


def _mask_outside(loop: Stmt) -> Stmt:
    """for k: if MASK: …   =>   if MASK: for k: …       the same mask in every iteration is made once"""
    match loop:
        case For(var, _, _, kind, If(mask, body, None)) if kind in _IN_ORDER and mask.lanes > 1 and is_pure(mask):
            return If(mask, loop.replace(body=body)) if var not in set(preorder(mask)) else loop
    return loop


def _joined(statement: Seq) -> Stmt:
    """if MASK: a; if MASK: b   =>   if MASK: a; b"""
    found: list[Stmt] = []
    for s in statement.body:
        match found[-1] if found else None, s:
            case If(mask, a, None), If(again, b, None) if mask is again and mask.lanes > 1 and is_pure(mask):
                found[-1] = If(mask, seq(a, b))
            case _:
                found.append(s)
    return statement if len(found) == len(statement.body) else seq(*found)


_IN_ORDER = (LoopKind.SERIAL, LoopKind.UNROLL)


class _Widener:
    """Replaces one loop variable by all its values at once."""

    def __init__(self, var: Var, begin: Const, count: int, width: int) -> None:
        self.var = var
        self.begin = begin
        self.count = count
        self.memo: dict[Expr, Expr] = {}
        self.lane = lane_type(width, count)

    def statement(self, stmt: Stmt) -> Stmt | None:
        """The widened statement, or None when it cannot run in lanes."""
        match stmt:
            case Seq(body):
                return self.sequence(body)
            case Store(buffer, indices, value) if value.lanes == 1:
                wide_indices = tuple(self.expression(i) for i in indices)
                wide = self.expression(value)
                if all(i.lanes == 1 for i in wide_indices):
                    return None
                return Store(buffer, wide_indices, self.vector(wide))
            case Let(_, value) if not self.uses((value,)):
                return stmt
            case Prefetch():
                return Seq(())
            case Alloc(buffer) if is_private(buffer):
                return stmt
            case For(_, _, _, kind, body) if kind in _IN_ORDER and not self.uses(loop_bounds(stmt)):
                inner = self.statement(body)
                return None if inner is None else _mask_outside(stmt.replace(body=inner))
            case If() if stmt.cond.lanes == 1:
                return self.branch(stmt)
        return None

    def sequence(self, body: tuple[Stmt, ...]) -> Stmt | None:
        """The statements one after the other. What names a value of the variable is replaced by it."""
        named: dict[Expr, Expr] = {}
        parts: list[Stmt] = []
        for s in body:
            s = substitute_expressions(s, named) if named else s
            if isinstance(s, Let) and self.uses((s.value,)) and is_pure(s.value):
                named[s.var] = s.value
                continue
            part = self.statement(s)
            if part is None:
                return None
            parts.append(part)
        made = seq(*parts)
        return _joined(made) if isinstance(made, Seq) else made

    def branch(self, stmt: If) -> Stmt | None:
        """A branch; on conditions of the variable in lanes, inside one on the others."""
        then = self.statement(stmt.then)
        otherwise = self.statement(stmt.otherwise) if stmt.otherwise is not None else None
        if then is None or (stmt.otherwise is not None and otherwise is None):
            return None
        parts = conjuncts(stmt.cond)
        if otherwise is not None:
            parts = [stmt.cond]
        outer = conjunction([p for p in parts if not self.uses((p,))])
        inner = [self.vector(self.expression(p)) for p in parts if self.uses((p,))]
        made = _masked(inner, then, otherwise) if inner else then
        return made if outer is None else If(outer, made, None if inner else otherwise)

    def uses(self, roots: tuple[Expr, ...]) -> bool:
        return any(self._contains(r) for r in roots)

    def _contains(self, root: Expr) -> bool:
        return self.var in root.variables

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
        if e.dtype.is_bool:
            return compare_lanes(e, self.var, int(self.begin.value), self.count, self.lane)
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
