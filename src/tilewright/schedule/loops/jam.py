"""jam: moves a loop inward, over sequences and other loops, to where the work is: unroll-and-jam without unrolling.

for j in 0..4:                                   alloc t: f32[4] in register
  alloc t: f32[] in register                     for j in 0..4: block t.init: t[j] = 0
  block t.init: t[] = 0                          for k in 0..n:
  for k in 0..n:                          =>       for j2 in 0..4:
    block t: t[] += x[k] * w[k, j]                   block t: t[j2] += x[k] * w[k, j2]
  block y: y[j] = t[]                            for j3 in 0..4: block y: y[j3] = t[j3]

Unrolled or vectorized, the copies are a register tile: values that do not depend on j are loaded once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.node import Node
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import map_loads, replace, statements, substitute_expressions, transform_statements
from tilewright.loops.nodes import (
    Alloc,
    Buffer,
    CallFunction,
    For,
    Function,
    Let,
    Load,
    LoopKind,
    Prefetch,
    Publish,
    Reserve,
    Seq,
    Stmt,
    Store,
    View,
    seq,
)
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.find import find_loop
from tilewright.schedule.legality import require_independent
from tilewright.schedule.step import Step, refusal

BOUND = Let | View | Reserve | CallFunction | Publish | Prefetch
"""Statements that name something for what comes after them, or take buffers as they are."""


def jam(function: Function, loop: Var, *, front: bool = False) -> Step:
    """Moves a loop inward as far as possible: into each statement of a sequence, and into loops whose bounds do not
    depend on it. It stays around loops that are unrolled or vectorized. Returns its copies, in program order. Buffers
    allocated by an iteration get one more dimension, indexed by the loop: the last, or with `front` the first.

    for j: alloc t; block a: t[] = …; for k: block b: t[] += …
              =>      alloc t[…]; for j: block a: t[j] = …; for k: for j2: block b: t[j2] += …

    Legal if no iteration touches what another one stores, and no statement in between names a value or memory.
    """
    found = find_loop(function, loop)
    what = f"cannot jam loop {found.var.name}"
    evidence = require_independent(function, found, what, "jam a loop inside or outside it")
    _require_parts(function, found, what)
    copies: list[For] = []
    made = _jammed(found, found.body, front, copies)
    if len(copies) == 1 and copies[0].body is found.body:
        raise refusal(function, what, found, why="it holds no sequence and no loop that it could move into")
    return Step(function.replace(body=replace(function.body, found, made)), tuple(c.var for c in copies), evidence)


def _require_parts(function: Function, loop: For, what: str) -> None:
    """Raises the error `what` if the loop would separate a statement from its scope, or if memory has no fixed size."""
    dynamic = not isinstance(extent_of(loop), Const)
    for s in statements(loop.body):
        if isinstance(s, BOUND) or (isinstance(s, Alloc) and s.offset is not None):
            why = f"a statement {type(s).__name__.lower()} inside it belongs to all that stands around it"
            raise refusal(function, what, s, why=why, fix="take this step before memory is planned and calls are made")
        if isinstance(s, Alloc) and dynamic:
            why = f"{s.buffer.name} would get a dimension of {extent_of(loop)}, which is dynamic"
            raise refusal(
                function, what, s, why=why, fix=f'split({loop.var.name}, 8, tail="peel"), and jam the inner one'
            )


def _jammed(loop: For, body: Stmt, front: bool, copies: list[For]) -> Stmt:
    """The statement that replaces a loop around `body`; appends the loop's copies to `copies`."""
    if isinstance(body, For) and _lets_in(body, loop.var):
        return body.replace(body=_jammed(loop, body.body, front, copies))
    if not isinstance(body, Seq):
        var = loop.var if not copies else loop.var.replace()
        copies.append(
            loop.replace(var=var, body=body if var is loop.var else substitute_expressions(body, {loop.var: var}))
        )
        return copies[-1]
    extent, place = extent_of(loop), simplify(loop.var - loop.begin)
    larger = {b: b.replace(shape=_with(b.shape, extent, front)) for b in _allocated(body)}
    made: list[Stmt] = []
    for part in body.body:
        if isinstance(part, Alloc):
            made.append(Alloc(larger[part.buffer]))
        else:
            made.append(_jammed(loop, _with_place(part, larger, place, front), front, copies))
    return seq(*made)


def _allocated(body: Seq) -> list[Buffer]:
    return [s.buffer for s in body.body if isinstance(s, Alloc)]


def _with(parts: tuple[Expr, ...], more: Expr, front: bool) -> tuple[Expr, ...]:
    return (more, *parts) if front else (*parts, more)


def _lets_in(inner: For, var: Var) -> bool:
    """Whether a loop may change places with the one inside it."""
    decided = inner.kind in (LoopKind.UNROLL, LoopKind.VECTORIZE) or inner.instruction is not None
    return not decided and var not in variables_of(inner.begin) | variables_of(inner.end)


def _with_place(stmt: Stmt, larger: Mapping[Buffer, Buffer], place: Expr, front: bool) -> Stmt:
    """The statement with accesses of these buffers moved to the larger ones, at a further index."""
    if not larger:
        return stmt

    def of_load(e: Load) -> Expr:
        return Load(larger[e.buffer], _with(e.indices, place, front)) if e.buffer in larger else e

    def of_statement(node: Node) -> Node:
        if isinstance(node, Store) and node.buffer in larger:
            return Store(larger[node.buffer], _with(node.indices, place, front), node.value)
        return node

    return transform_statements(map_loads(stmt, of_load), of_statement)
