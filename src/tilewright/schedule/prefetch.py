"""prefetch: asks for data before it is touched. It changes no result.

for k in 0..n: … b[k, 0] …                 prefetch("b", k, 2)     =>   for k in 0..n: prefetch b[k + 2, 0]; …

for j in 0..n:                             prefetch("b", j, 1, k)  =>   for j in 0..n:
  for i in 0..4, k in 0..32:                                              for i in 0..4, k in 0..32:
    … b[j, k, 0..16] …                                                      prefetch b[j + 1, 0, (i*32 + k) * 4]; …
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.analysis.accesses import mentions
from tilewright.analysis.intervals import interval
from tilewright.analysis.regions import Region, cover, ranges_of, reads, writes
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Expr, Min, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import allocations, loops_around, replace
from tilewright.loops.nodes import Buffer, For, Function, Load, LoopKind, Prefetch, seq
from tilewright.schedule.find import find_buffer, find_loop
from tilewright.schedule.step import Step, refusal
from tilewright.types.scopes import Scope


def prefetch(function: Function, buffer: str, loop: Var, distance: int = 1, inner: Var | None = None) -> Step:
    """Each iteration of the loop begins by asking for the first element of the buffer that the iteration `distance`
    after it touches. The place may lie beyond the buffer's end: nothing is read there.

    With a loop inside it, `inner`, it asks for all that the later iteration touches, which must lie in one piece: an
    element in each iteration of the inner loop, as far apart as these iterations need.

    for k in 0..n: … b[k, 0] …       prefetch("b", k, 2)  =>       for k in 0..n: prefetch b[k + 2, 0]; … b[k, 0] …
    """
    found, target = find_loop(function, loop), find_buffer(function, buffer)
    what = f"cannot prefetch {target.name} in loop {found.var.name}"
    if type(distance) is not int or distance < 1:
        raise refusal(function, what, found, why=f"{distance!r} is no number of iterations", mend="give it 1 or more")
    _require_iterations(function, found, what)
    if target.scope is Scope.REGISTER or target in allocations(found.body):
        where = "in registers" if target.scope is Scope.REGISTER else "made anew in each iteration"
        raise refusal(function, what, found, why=f"{target.name} is {where}", mend="prefetch what it is filled from")
    box = _touched(function, found, target)
    if box is None or not any(mentions(r.begin, (found.var,)) for r in box.ranges):
        why = "no iteration touches it" if box is None else "every iteration begins at the same element of it"
        raise refusal(function, what, found, why=why, mend="take another loop")
    later = simplify(found.var + distance)
    indices = [simplify(substitute(r.begin, {found.var: later})) for r in box.ranges]
    place = found
    if inner is not None:
        place = find_loop(function, inner)
        indices[-1] = simplify(indices[-1] + _part(function, found, place, target, box, what))
    made = place.replace(body=seq(Prefetch(Load(target, tuple(indices))), place.body))
    return Step(function.replace(body=replace(function.body, place, made)), None, ("it changes no result",))


def _require_iterations(function: Function, loop: For, what: str) -> None:
    if loop.kind not in (LoopKind.SERIAL, LoopKind.PARALLEL):
        why = f"a {loop.kind.value} loop has no iterations that come later"
        raise refusal(function, what, loop, why=why, mend="take a for loop around it")


def _touched(function: Function, loop: For, buffer: Buffer) -> Region | None:
    """The box of the buffer that one iteration touches, over the loops around it."""
    fixed = {loop.var, *(s.var for s in loops_around(function.body, loop))}
    boxes = [regions[buffer] for regions in (reads(loop.body, fixed), writes(loop.body, fixed)) if buffer in regions]
    return boxes[0] if len(boxes) == 1 else cover(*boxes) if boxes else None


def _part(function: Function, loop: For, inner: For, buffer: Buffer, box: Region, what: str) -> Expr:
    """Which element of its piece an iteration of the inner loop asks for, counted from the first."""
    if inner is loop or loop not in (around := loops_around(function.body, inner)):
        raise refusal(function, what, inner, why=f"it is not inside loop {loop.var.name}", mend="take a loop inside")
    inside = [*around[around.index(loop) + 1 :], inner]
    counts = []
    for each in inside:
        _require_iterations(function, each, what)
        most = _most(each, around)
        if most is None:
            raise refusal(function, what, each, why="nobody knows how often it runs", mend="split it by a number first")
        counts.append(most)
    if not isinstance(box.size, Const) or not _is_one_piece(box, buffer):
        why = f"what an iteration touches of {buffer.name}, {box}, is no piece of known size"
        raise refusal(function, what, loop, why=why, mend=f"pack {buffer.name} first, so that it lies in one piece")
    turn: Expr = const(0)
    for each, most in zip(inside, counts, strict=True):
        turn = turn * most + (each.var - each.begin)
    return turn * -(-int(box.size.value) // math.prod(counts))


def _most(loop: For, around: Sequence[For]) -> int | None:
    """How often a loop runs at most, as a number."""
    bounds = interval(simplify(loop.end - loop.begin), ranges_of(around))
    if bounds is None:
        return None
    sides = (bounds.high.a, bounds.high.b) if isinstance(bounds.high, Min) else (bounds.high,)
    known = [int(side.value) for side in sides if isinstance(side, Const)]
    return max(min(known), 1) if known else None


def _is_one_piece(box: Region, buffer: Buffer) -> bool:
    """Whether the box lies row-major without a gap: single places, then a part of one dimension, then whole ones."""
    whole = [simplify(r.extent - extent) is const(0) for r, extent in zip(box.ranges, buffer.shape, strict=True)]
    first = next((n for n, r in enumerate(box.ranges) if r.extent is not const(1)), len(whole))
    return all(whole[first + 1 :])
