"""Rearranging loop nests as statements: split, fuse, jam, and what these need to know of a loop.

Each is a pure function from a statement or function to another that computes the same. Those here are legal where a
loop's iterations are independent of each other, which `is_spatial` proves from the blocks inside it.
"""

from __future__ import annotations

from tilewright.analysis.accesses import accesses, stride
from tilewright.core.node import Node
from tilewright.core.walk import substitute, transform
from tilewright.expr.linear import affine_in, expression, polynomial
from tilewright.expr.nodes import Const, Expr, FloorDiv, Mod, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import fresh_copy, map_expressions, statements, substitute_expressions, transform_statements
from tilewright.loops.nodes import (
    Alloc,
    Assert,
    AxisKind,
    Block,
    Buffer,
    For,
    If,
    Load,
    LoopKind,
    Seq,
    Stmt,
    Store,
    While,
    seq,
)


def is_spatial(loop: For) -> bool:
    """Whether the iterations of a loop are independent: it is bound to spatial axes only, in every block inside; what
    they store lies apart, unless it lives inside an iteration; and nothing can end them early."""
    own = {s.buffer for s in statements(loop.body) if isinstance(s, Alloc)}
    for s in statements(loop.body):
        if isinstance(s, Assert | While):
            return False
        if isinstance(s, Block):
            if any(a.kind is AxisKind.REDUCE and loop.var in variables_of(a.binding) for a in s.axes):
                return False
            if not all(_moves_apart(s, store, loop) for store in statements(s) if _stores_outside(store, own)):
                return False
    return True


def _stores_outside(stmt: Stmt, own: set[Buffer]) -> bool:
    return isinstance(stmt, Store) and stmt.buffer not in own


def _moves_apart(block: Block, store: Stmt, loop: For) -> bool:
    """Whether a store goes to another element in each iteration of a loop: some dimension of it is linear in the loop's
    variable, and no dimension is anything else but linear."""
    assert isinstance(store, Store)
    bindings: dict[Expr, Node] = {a.var: a.binding for a in block.axes}
    factors = [coefficient_of(substitute(i, bindings), loop.var) for i in store.indices]
    return all(f is not None for f in factors) and any(not (isinstance(f, Const) and f.value == 0) for f in factors)


def extent_of(loop: For) -> Expr:
    return simplify(loop.end - loop.begin)


def split(loop: For, factor: int) -> tuple[Stmt, For, For | None]:
    """(the replacement, the inner loop of `factor` iterations, the loop over the rest or None).

    for v in 0..n: S        =>      for v.o in 0..n//4, v.i in 0..4: S[v := v.o*4 + v.i]
                                    for v in n//4*4..n: S
    """
    extent = extent_of(loop)
    outer, inner = Var(loop.var.name + "o"), Var(loop.var.name + "i")
    whole = (
        simplify(FloorDiv(extent, const(factor)))
        if not isinstance(extent, Const)
        else const(int(extent.value) // factor)
    )
    place = loop.begin + outer * factor + inner
    main_body = substitute_expressions(loop.body, {loop.var: place})
    inner_loop = For(inner, const(0), const(factor), LoopKind.SERIAL, main_body)
    main = For(outer, const(0), whole, loop.kind, inner_loop)
    if isinstance(extent, Const) and int(extent.value) % factor == 0:
        return main, inner_loop, None
    rest = loop.replace(begin=simplify(loop.begin + whole * factor))
    if isinstance(whole, Const) and whole.value == 0:
        return rest, inner_loop, rest
    tail = fresh_copy(rest)
    assert isinstance(tail, For)
    return seq(main, tail), inner_loop, tail


def fuse(outer: For) -> For:
    """for i in 0..n, j in 0..m: S    =>    for f in 0..n*m: S[i := f // m, j := f % m]"""
    inner = outer.body
    assert isinstance(inner, For)
    fused = Var(f"{outer.var.name}{inner.var.name}")
    n, m = extent_of(outer), extent_of(inner)
    values: dict[Expr, Expr] = {
        outer.var: outer.begin + FloorDiv(fused, m) if not _is_one(m) else outer.begin + fused,
        inner.var: inner.begin + Mod(fused, m) if not _is_one(m) else inner.begin,
    }
    if _is_one(n):
        values = {outer.var: outer.begin, inner.var: inner.begin + fused}
    return For(fused, const(0), simplify(n * m), outer.kind, substitute_expressions(inner.body, values))


def _is_one(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 1


def jam(loop: For, front: bool = False) -> tuple[Stmt, list[For]]:
    """Moves a loop with independent iterations as far inward as it goes (unroll-and-jam without the unrolling).

    for v: { alloc t; A; for k: B; C }    =>    { alloc t[…, V]; for v: A; for k: for v: B; for v: C }

    It stops at loops that are unrolled or vectorized: those stay innermost. Returns the replacement and the copies of
    the loop in it. Buffers allocated inside get a further dimension, one place for each iteration: their last, or in
    `front` their first.
    """
    body = loop.body
    match body:
        case Seq(parts):
            extent = (extent_of(loop),)
            expanded = {
                s.buffer: s.buffer.replace(shape=extent + s.buffer.shape if front else s.buffer.shape + extent)
                for s in parts
                if isinstance(s, Alloc)
            }
            made: list[Stmt] = []
            copies: list[For] = []
            for s in parts:
                if isinstance(s, Alloc):
                    made.append(Alloc(expanded[s.buffer]))
                    continue
                widened = _add_index(s, expanded, simplify(loop.var - loop.begin), front) if expanded else s
                jammed, inner = jam(_renamed(loop.replace(body=widened)), front)
                made.append(jammed)
                copies += inner
            return seq(*made), copies
        case For() if _lets_in(body, loop.var):
            jammed, copies = jam(loop.replace(body=body.body), front)
            return body.replace(body=jammed), copies
    return loop, [loop]


def _lets_in(inner: For, var: Var) -> bool:
    """Whether a loop may change places with the one inside it: not where that is unrolled or vectorized already."""
    decided = inner.kind in (LoopKind.UNROLL, LoopKind.VECTORIZE)
    return not decided and var not in variables_of(inner.begin) | variables_of(inner.end)


def _renamed(loop: For) -> For:
    """The loop over a variable of its own: the copies that jamming makes are different loops."""
    var = loop.var.replace()
    return loop.replace(var=var, body=substitute_expressions(loop.body, {loop.var: var}))


def _add_index(stmt: Stmt, buffers: dict[Buffer, Buffer], index: Expr, front: bool) -> Stmt:
    """The statement with accesses of these buffers moved to the larger ones, at a further index."""
    memo: dict[Node, Node] = {}

    def place(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (index, *indices) if front else (*indices, index)

    def of_expression(node: Node) -> Node:
        if isinstance(node, Load) and node.buffer in buffers:
            return Load(buffers[node.buffer], place(node.indices))
        return node

    def of_statement(node: Node) -> Node:
        if isinstance(node, Store) and node.buffer in buffers:
            return Store(buffers[node.buffer], place(node.indices), node.value)
        return node

    read = map_expressions(stmt, lambda e: transform(e, of_expression, memo))
    return transform_statements(read, of_statement)


def flattens(outer: For) -> bool:
    """Whether fusing a loop with the one inside it leaves every access linear: each moves m times as far for a step of
    the outer loop as for one of the inner, m being the inner extent."""
    inner = outer.body
    assert isinstance(inner, For)
    m = extent_of(inner)
    for access in accesses(outer):
        a, b = stride(access, outer.var), stride(access, inner.var)
        if a is None or b is None or polynomial(a) != polynomial(b * m):
            return False
    return True


def coefficient_of(index: Expr, var: Var) -> Expr | None:
    """The factor of `var` in an index that is linear in it; None when it is not."""
    if var not in variables_of(index):
        return const(0)
    parts = affine_in(polynomial(index), var)
    if parts is None:
        return None
    factor, rest = (expression(p) for p in parts)
    return None if var in variables_of(factor) | variables_of(rest) else factor


def has_branches(stmt: Stmt) -> bool:
    return any(isinstance(s, If | While | Assert) for s in statements(stmt))
