"""Loops around several statements: merge_loops makes one loop of neighbours, join_sums of loops that sum up what they
read alike; jam moves one loop into each statement.

Merged, what A leaves of a row is still in cache when B comes to it, and threads are forked once. Jammed, a loop is
where the work is: unrolled or vectorized there, its copies are a register tile, unroll-and-jam without unrolling, and
values that do not depend on it are loaded once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.analysis.accesses import accesses
from tilewright.analysis.dependences import meeting
from tilewright.expr.nodes import Const, Expr
from tilewright.expr.simplify import simplify
from tilewright.loops import nodes
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import (
    allocations,
    blocks,
    loaded_buffers,
    statements,
    stored_buffers,
    substitute_buffers,
    substitute_expressions,
)
from tilewright.loops.nodes import Alloc, Block, For, Function, LoopKind, Seq, Stmt, seq
from tilewright.schedule.facts import LANES, ORDERED, require_independent
from tilewright.schedule.find import nests, primitive
from tilewright.schedule.step import Obstacle, Step, rewritten

BOUND = nodes.Let | nodes.View | nodes.Reserve | nodes.Enlarge | nodes.CallFunction | nodes.Publish
"""Statements that name something for what comes after them, or take buffers as they are: no loop is moved past them."""

Wanted = Callable[[For, Sequence[Stmt], For], bool]
"""Whether a loop, statements after it, and a loop after these are wanted with the loops as one."""


@primitive("cannot merge loops {loops}")
def merge_loops(function: Function, *loops: For) -> Step:
    """Those of these loops of the top level that are neighbours, with allocations alone in between, become one, where
    they have the same bounds and kind and each iteration keeps to itself.

    for i in 0..n: block a(vi = i): a[vi] = x[vi]; for j in 0..n: block b(vj = j): b[vj] = a[vj]
              =>      for i in 0..n: block a(vi = i): a[vi] = x[vi]; block b(vj = i): b[vj] = a[vj]
    """
    for inner in (loop for loop in loops if loop not in nests(function)):
        raise Obstacle(inner, f"loop {inner.name} is inside another statement", "name one of the loops of get_nests()")
    merged = {loop.var for loop in loops}
    evidence = "what two of them touch, and one stores, they touch in the same iteration"

    def wanted(first: For, between: Sequence[Stmt], second: For) -> bool:
        return {first.var, second.var} <= merged and are_neighbours(first, between, second)

    return _step(function, wanted, evidence)


def are_neighbours(_first: For, between: Sequence[Stmt], _second: For) -> bool:
    """Whether nothing but allocations is between two loops."""
    return all(isinstance(s, Alloc) for s in between)


def join_sums(function: Function) -> Step:
    """Loops at the top level that hold sums, and read something in common, become one, where neither needs what the
    other makes: each element is loaded once for all of them. What the later loop needs comes before the earlier one.

    for k: block a: a[] += x[k] * y[k]; for k: block b: b[] += x[k] * z[k]
              =>      for k: block a: a[] += x[k] * y[k]; block b: b[] += x[k] * z[k]
    """
    return _step(function, _read_alike, "none of the sums needs what another one makes")


def _step(function: Function, wanted: Wanted, evidence: str) -> Step:
    """The step that merges loops that are wanted together."""
    made = merged_nests(nests(function), wanted)
    if len(made) == len(nests(function)):
        return Step(function)
    return Step(function.replace(body=seq(*made)), None, (evidence,))


def merged_nests(parts: Sequence[Stmt], wanted: Wanted = are_neighbours) -> list[Stmt]:
    """The statements, which run one after the other, with loops that are wanted together as one, and those inside them,
    where they may be."""
    made, n = list(parts), 0
    while n < len(made):
        joined = next((j for m in range(n + 1, len(made)) if (j := _joined(made, n, m, wanted)) is not None), None)
        made, n = (made, n + 1) if joined is None else (joined, n)
    return made


def _joined(parts: list[Stmt], n: int, m: int, wanted: Wanted) -> list[Stmt] | None:
    """The statements with loops n and m as one; None where they may not be joined."""
    first, second = parts[n], parts[m]
    if not isinstance(first, For) or not isinstance(second, For) or not wanted(first, parts[n + 1 : m], second):
        return None
    needed: list[Stmt] = []
    later: list[Stmt] = []
    for s in reversed(parts[n + 1 : m]):
        (needed if any(_depend(s, t) for t in (second, *needed)) else later).insert(0, s)
    if any(_depend(s, t) for s in (first, *later) for t in needed):
        return None
    merged = _merged(first, second)
    if merged is None:
        return None
    body = seq(*merged_nests(merged.body.body, wanted)) if isinstance(merged.body, Seq) else merged.body
    return [*parts[:n], *needed, merged.replace(body=body), *later, *parts[m + 1 :]]


def _read_alike(first: For, _between: Sequence[Stmt], second: For) -> bool:
    """Whether both loops hold sums, and load from one buffer that neither stores to."""
    if not all(any(isinstance(s, Block) and s.reduce for s in statements(loop)) for loop in (first, second)):
        return False
    return bool((loaded_buffers(first) & loaded_buffers(second)) - stored_buffers(first) - stored_buffers(second))


def _depend(one: Stmt, other: Stmt) -> bool:
    """Whether two statements may not change places."""
    made, theirs = (stored_buffers(s) | set(allocations(s)) for s in (one, other))
    return bool(made & theirs or made & loaded_buffers(other) or loaded_buffers(one) & theirs)


def _merged(first: For, second: For) -> For | None:
    """Two loops as one; None where they may not be."""
    alike = all(getattr(first, f) is getattr(second, f) for f in ("kind", "begin", "end", "grain", "backward"))
    inside = (*statements(first), *statements(second))
    placed = any(isinstance(s, Alloc) and s.offset is not None for s in inside)
    if not alike or placed or any(isinstance(s, ORDERED | nodes.View) for s in inside):
        return None
    body = substitute_expressions(second.body, {second.var: first.var})
    merged = first.replace(body=seq(first.body, body))
    own = {*allocations(first), *allocations(second)}
    one, two = ([a for a in accesses(part) if a.buffer not in own] for part in (first.body, body))
    pairs = [(a, b) for a in one for b in two if a.buffer is b.buffer and (a.is_store or b.is_store)]
    return None if any(meeting(merged, (), a, b) is not None for a, b in pairs) else merged


@primitive("cannot jam loop {loop}")
def jam(function: Function, loop: For, *, front: bool = False) -> Step:
    """Moves a loop inward as far as possible: into each statement of a sequence, and into loops whose bounds do not
    depend on it. It stays around loops that are vectorized, or unrolled and no sum over them. Returns its copies, in
    program order. Buffers allocated by an iteration get one more dimension, indexed by the loop: the last, or with
    `front` the first.

    for j: alloc t; block a: t[] = …; for k: block b: t[] += …
              =>      alloc t[…]; for j: block a: t[j] = …; for k: for j2: block b: t[j2] += …

    Legal if no iteration touches what another one stores, and no statement in between names a value or memory.
    """
    evidence = require_independent(function, loop, "jam a loop inside or outside it")
    _require_parts(loop)
    copies: list[For] = []
    made = _jammed(loop, loop.body, front, copies)
    if len(copies) == 1 and copies[0].body is loop.body:
        raise Obstacle(loop, "it holds no sequence and no loop that it could move into")
    return rewritten(function, loop, made, tuple(c.var for c in copies), *evidence)


def _require_parts(loop: For) -> None:
    """Refuses if the loop would separate a statement from its scope, or if memory has no fixed size."""
    extent = loop.extent
    for s in statements(loop.body):
        if isinstance(s, BOUND) or (isinstance(s, Alloc) and s.offset is not None):
            why = f"a statement {type(s).__name__.lower()} inside it belongs to all that stands around it"
            raise Obstacle(s, why, fix="take this step before memory is planned and calls are made")
        if isinstance(s, Alloc) and not isinstance(extent, Const):
            why = f"{s.buffer.name} would get a dimension of {extent}, which is dynamic"
            raise Obstacle(s, why, fix=f'split({loop.name}, 8, tail="peel"), and jam the inner one')


def _is_written_out(loop: For) -> bool:
    """Whether a loop's copies are statements side by side: of one that a block sums over, they follow each other."""
    summed = loop.kind is LoopKind.UNROLL and any(loop.var in summed_loops(block) for block in blocks(loop))
    return loop.kind in (LoopKind.UNROLL, *LANES) and not summed


def _jammed(loop: For, body: Stmt, front: bool, copies: list[For]) -> Stmt:
    """The statement that replaces a loop around `body`, which goes into loops that it may change places with; appends
    the loop's copies to `copies`."""
    if isinstance(body, For) and not _is_written_out(body) and loop.var not in body.bounded_by:
        return body.replace(body=_jammed(loop, body.body, front, copies))
    if not isinstance(body, Seq):
        var = loop.var.replace() if copies else loop.var
        copies.append(loop.replace(var=var, body=substitute_expressions(body, {loop.var: var}) if copies else body))
        return copies[-1]

    def with_one(parts: tuple[Expr, ...], more: Expr) -> tuple[Expr, ...]:
        return (more, *parts) if front else (*parts, more)

    own = [s.buffer for s in body.body if isinstance(s, Alloc)]
    larger = {b: b.replace(shape=with_one(b.shape, loop.extent)) for b in own}
    place = simplify(loop.var - loop.begin)
    moved = substitute_buffers(body, larger, lambda at: with_one(at, place)) if own else body
    return seq(*(s if isinstance(s, Alloc) else _jammed(loop, s, front, copies) for s in moved.held()))
