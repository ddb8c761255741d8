"""Parallel loops of default schedules get work for the threads: enough iterations, each share worth a fork.

    parallel n in 0..N:                      =>      parallel no in 0..N*8 grain 3:
      for o in 0..8: S                                 S[n := no // 8, o := no % 8]

    parallel n in 0..N:                      =>      parallel part in 0..parts:
      for y in 0..H: S                                 for n in 0..N, y in H*part//parts..H*(part + 1)//parts: S

A loop of few iterations, or of nobody knows how many, leaves it to the loop inside it: that one is cut into parts where
it is large, and fused with the outer one otherwise. The outermost loop of a nest whose iterations are independent
becomes parallel where no schedule said so; a loop that has a grain stays as it is. The grain is the number of
iterations whose work comes to SHARE; sizes that are not known are what `plan/price/sizes.py` assumes.
"""

from __future__ import annotations

import math

from tilewright.analysis.cost import value_flops
from tilewright.expr.build import maximum, minimum
from tilewright.expr.nodes import Const, Expr, FloorDiv, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import loads, statements
from tilewright.loops.nodes import (
    Block,
    CallFunction,
    For,
    Function,
    If,
    Let,
    LoopKind,
    Seq,
    Stmt,
    Store,
    While,
    seq,
)
from tilewright.plan.price.sizes import FEW, Sizes
from tilewright.schedule.facts.iterations import extent_of, is_spatial
from tilewright.schedule.facts.known import NOTHING
from tilewright.schedule.loops.rearrange import fused

SHARE = 60_000
"""The least work of a share, in units that take about 1/30 of a nanosecond: two microseconds, twice what a fork and a
join cost. A floating-point operation is one unit."""

ACCESS = 4
REUSED_ACCESS = 0.5
"""Units of a load or store: of a point, whose data may come from afar, and of a term of a sum, whose data is reused."""

ODD = 50
"""Fewer iterations than this that are oddly many give one of two threads at least a fiftieth more than the other."""

LARGE = 8
"""Shares of work in one iteration that make it worth cutting up, whatever is around it."""

PARTS = 32
"""The most parts that the iterations of a loop are cut into."""

FUSED = 0.05
"""The least part of a share that an iteration of a fused loop holds: its divisions must not count."""


def share_out(function: Function) -> Function:
    """The function with its outermost independent loops parallel, where they may be worth it, and their grains."""
    body = _statement(function.body)
    return function if body is function.body else function.replace(body=body)


def _statement(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For) and (stmt.kind is LoopKind.PARALLEL or _may_be_parallel(stmt)):
        return _share(stmt) if stmt.grain == 1 else stmt
    if isinstance(stmt, For) and stmt.kind is LoopKind.SERIAL:
        inner = _statement(stmt.body)
        return stmt if inner is stmt.body else stmt.replace(body=inner)
    if isinstance(stmt, Seq):
        made = tuple(_statement(s) for s in stmt.body)
        return stmt if made == stmt.body else seq(*made)
    return stmt


def _share(loop: For) -> Stmt:
    """A parallel loop with its grain, or the loop inside it in its place."""
    extent, inner = extent_of(loop), loop.body
    few = not isinstance(extent, Const) or extent.value < FEW
    uneven = isinstance(extent, Const) and extent.value % 2 == 1 and extent.value < ODD
    if (few or uneven) and isinstance(inner, For) and _is_independent(inner):
        if extent is const(1):
            return loop.replace(kind=LoopKind.SERIAL, grain=1, body=_share(inner))
        count = extent_of(inner)
        still = loop.var not in variables_of(inner.begin) | variables_of(inner.end)
        many = not isinstance(count, Const) or count.value >= FEW
        if few and still and many and _work(inner) >= LARGE and _may_be_parallel(inner):
            return _in_parts(loop, inner)
        if still and isinstance(count, Const) and _work(inner.body) >= FUSED:
            return _share(fused(loop.replace(kind=LoopKind.PARALLEL), inner))
    work = _work(loop.body)
    grain = max(math.ceil(1 / work), 1) if work > 0 else 1
    if extent is const(1):
        return loop.replace(kind=LoopKind.SERIAL, grain=1, body=_statement(loop.body))
    if NOTHING.at_least(const(2 * grain - 1), extent):
        return loop.replace(kind=LoopKind.SERIAL, grain=1)
    return loop.replace(kind=LoopKind.PARALLEL, grain=grain)


def _in_parts(loop: For, inner: For) -> Stmt:
    """Two loops with the inner one in parts, which run in parallel."""
    count, work = extent_of(inner), _work(inner.body)
    least = max(math.ceil(1 / work), 1) if work > 0 else 1
    parts = simplify(maximum(minimum(FloorDiv(count, const(least)), const(PARTS)), const(1)))
    part = Var("part")
    begin, end = (simplify(inner.begin + FloorDiv(count * p, parts)) for p in (part, part + 1))
    body = loop.replace(kind=LoopKind.SERIAL, grain=1, body=inner.replace(begin=begin, end=end))
    return For(part, const(0), parts, LoopKind.PARALLEL, body)


def _may_be_parallel(loop: For) -> bool:
    """Whether the iterations of a serial loop over blocks are independent, and nothing in them is a sum."""
    inside = list(statements(loop.body))
    points = {s.body for s in inside if isinstance(s, Block) and isinstance(s.body, Store)}
    return all(s in points for s in inside if isinstance(s, Store)) and _is_independent(loop)


def _is_independent(loop: For) -> bool:
    """Whether the iterations of a serial loop over blocks are independent."""
    if loop.kind is not LoopKind.SERIAL:
        return False
    return not any(isinstance(s, If | CallFunction) for s in statements(loop.body)) and is_spatial(loop)


def _work(stmt: Stmt, reused: bool = False) -> float:
    """About how many shares a statement is worth. Sizes are numbers here: closed forms over symbols would take longer
    than the rest of the compiler."""
    match stmt:
        case Seq(body):
            return sum(_work(s) for s in body)
        case For():
            return _guess(extent_of(stmt)) * _work(stmt.body)
        case Block():
            return _work(stmt.body, reused=bool(stmt.reduce))
        case If(_, then, otherwise):
            return max(_work(then), _work(otherwise) if otherwise is not None else 0.0)
        case While(_, body):
            return _work(body)
        case Store(_, _, value) | Let(_, value):
            touched = 1 + sum(1 for _ in loads(value))
            return (value_flops(value) + touched * (REUSED_ACCESS if reused else ACCESS)) / SHARE
        case CallFunction():
            return 1.0
    return 0.0


def _guess(e: Expr) -> float:
    return float(max(Sizes().value(e), 0))
