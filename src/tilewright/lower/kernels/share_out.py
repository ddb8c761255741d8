"""Parallel loops of default schedules get work for the threads: enough iterations, each share worth a fork.

    parallel n in 0..N:                      =>      parallel no in 0..N*8 grain 3:
      for o in 0..8: S                                 S[n := no // 8, o := no % 8]

    parallel n in 0..N:                      =>      parallel part in 0..N*parts:
      for y in 0..H: S                                 for n in part//parts..part//parts + 1:
                                                         for y in H*(part%parts)//parts..H*(part%parts + 1)//parts: S

A loop of few iterations, or of nobody knows how many, leaves it to the loop inside it: that one is cut into parts where
it is large, and fused with the outer one otherwise. The outermost loop of a nest whose iterations are independent
becomes parallel where no schedule said so; a loop that has a grain stays as it is. A share is the number of iterations
that take as long as a fork and a join, by the price of the nest (`plan/price/points.py`): two threads gain by a loop of
more than two shares. Sizes that are not known are what `analysis/sizes.py` assumes, FEW among them: so many shares
leave few threads without work.

A function that is built by itself goes through no pass: `share_loops` takes the steps of a schedule that say so of its
outermost loops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeGuard

from tilewright.analysis.iterations import is_spatial
from tilewright.analysis.known import NOTHING
from tilewright.analysis.sizes import FEW
from tilewright.expr.build import maximum, minimum
from tilewright.expr.nodes import FloorDiv, Mod, Var, const
from tilewright.expr.simplify import simplify
from tilewright.expr.work import Work
from tilewright.loops.edit import loops_inside, statements
from tilewright.loops.nodes import Block, CallFunction, For, Function, If, LoopKind, Prefetch, Seq, Stmt, Store, seq
from tilewright.plan.price.points import iterations, nest_seconds
from tilewright.schedule.find import nests
from tilewright.schedule.loops.rearrange import fused
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.vectors import vector_cycles


def share_out(function: Function, target: Target) -> Function:
    """The function with its outermost independent loops parallel, where they may be worth it, and their grains."""
    body = _Sharing(target).statement(function.body)
    return function if body is function.body else function.replace(body=body)


@dataclass(frozen=True, slots=True)
class _Sharing:
    """What a target's threads share."""

    target: Target

    def statement(self, stmt: Stmt) -> Stmt:
        """A statement with its outermost independent loops shared."""
        if isinstance(stmt, For) and (stmt.kind is LoopKind.PARALLEL or _may_be_parallel(stmt)):
            return self._shared(stmt, nest_seconds(stmt, self.target)) if stmt.grain == 1 else stmt
        if isinstance(stmt, For) and stmt.kind is LoopKind.SERIAL:
            inner = self.statement(stmt.body)
            return stmt if inner is stmt.body else stmt.replace(body=inner)
        if isinstance(stmt, Seq):
            made = tuple(self.statement(s) for s in stmt.body)
            return stmt if made == stmt.body else seq(*made)
        if isinstance(stmt, If) and stmt.cond.lanes == 1:
            sides = [None if s is None else self.statement(s) for s in (stmt.then, stmt.otherwise)]
            return stmt if sides == [stmt.then, stmt.otherwise] else stmt.replace(then=sides[0], otherwise=sides[1])
        return stmt

    def _shared(self, loop: For, seconds: float) -> Stmt:
        """A parallel loop of so many seconds with its grain, or the loop inside it in its place."""
        size, inner, each = loop.size, loop.body, seconds / max(iterations(loop), 1)
        if size == 1:
            body = self._shared(inner, each) if _is_independent(inner) else self.statement(inner)
            return loop.replace(kind=LoopKind.SERIAL, grain=1, body=body)
        few = size is None or size < FEW
        uneven = size is not None and size % 2 == 1
        if (few or uneven) and _is_independent(inner) and loop.var not in inner.bounded_by:
            count, turn = inner.size, each / max(iterations(inner), 1)
            large = (count is None or count >= FEW) and each >= FEW * self.target.core.fork_seconds
            if few and large and _may_be_parallel(inner):
                return self._in_parts(loop, inner, turn)
            # One of two threads has up to an iteration more than the other, of `size`: divisions must take less.
            divisions = vector_cycles(Work(divides=2), self.target, 1) / self.target.core.hertz
            if count is not None and divisions * (size or FEW) < turn:
                return self._shared(fused(loop.replace(kind=LoopKind.PARALLEL), inner), seconds)
        grain = self.grain(loop, each)
        kind, grain = (LoopKind.SERIAL, 1) if grain is None else (LoopKind.PARALLEL, grain)
        return loop.replace(kind=kind, grain=grain)

    def _in_parts(self, loop: For, inner: For, turn: float) -> Stmt:
        """Two loops with the inner one, of which a turn takes so many seconds, in parts: all parts of an iteration of
        the outer one follow each other. There are as many as are worth a share, and no more in all than leave few
        threads without work twice over: one each, where the outer loop has that many iterations."""
        count = inner.extent
        wanted = FloorDiv(const(2 * FEW - 1), loop.extent) + 1
        parts = simplify(maximum(minimum(FloorDiv(count, const(self._share(turn))), wanted), const(1)))
        part = Var("part")
        at, own = loop.begin + FloorDiv(part, parts), Mod(part, parts)
        last = inner.begin + count  # no part reaches beyond; said so that what indices are below is known
        begin, end = (simplify(minimum(inner.begin + FloorDiv(count * p, parts), last)) for p in (own, own + 1))
        body = loop.replace(begin=at, end=at + 1, kind=LoopKind.SERIAL, grain=1)
        body = body.replace(body=inner.replace(begin=begin, end=end))
        return For(part, const(0), simplify(loop.extent * parts), LoopKind.PARALLEL, body)

    def grain(self, loop: For, each: float) -> int | None:
        """The iterations of a share, of so many seconds each; None where the loop has no two shares."""
        share = self._share(each)
        return None if NOTHING.at_least(const(2 * share - 1), loop.extent) else share

    def _share(self, each: float) -> int:
        """The iterations of so many seconds that are worth a share."""
        return max(math.ceil(self.target.core.fork_seconds / each), 1) if each > 0 else 1


def share_loops(s: Schedule, target: Target) -> None:
    """The steps that make the outermost loops of a finished schedule parallel, where their iterations are independent
    and there is work for two threads, and say how many iterations a thread takes at least."""
    found = [nest for nest in nests(s.func) if isinstance(nest, For)]
    if found:
        s.get_nests()
    for nest in found:
        grain = _Sharing(target).grain(nest, nest_seconds(nest, target) / max(iterations(nest), 1))
        inside = [loop.kind for loop in loops_inside(nest.body)]
        if grain is not None and nest.kind is LoopKind.SERIAL and is_spatial(nest) and LoopKind.PARALLEL not in inside:
            s.attempt(s.parallel, nest.var)
        if grain is not None and grain > 1:
            s.attempt(s.annotate, nest.var, "grain", grain)


def _may_be_parallel(loop: For) -> bool:
    """Whether the iterations of a serial loop over blocks are independent, and nothing in them is a sum."""
    inside = list(statements(loop.body))
    points = {s.body for s in inside if isinstance(s, Block) and isinstance(s.body, Store)}
    return all(s in points for s in inside if isinstance(s, Store)) and _is_independent(loop)


def _is_independent(loop: Stmt) -> TypeGuard[For]:
    """Whether the iterations of a serial loop over blocks are independent."""
    if not isinstance(loop, For) or loop.kind is not LoopKind.SERIAL:
        return False
    return not any(map(_may_act, statements(loop.body))) and is_spatial(loop)


def _may_act(stmt: Stmt) -> bool:
    """Whether a statement outside blocks may do more than prefetch."""
    if isinstance(stmt, If):
        return any(not isinstance(s, Prefetch | Seq | If) for held in stmt.held() for s in statements(held))
    return isinstance(stmt, CallFunction)
