"""prefetch: fetches data into cache before it is used. It changes no result.

for k in 0..n: … b[k, 0] …                 prefetch("b", k, 2)     =>   for k in 0..n: prefetch b[k + 2, 0]; …

for j in 0..n:                             prefetch("b", j, 1, k)  =>   for j in 0..n:
  for i in 0..4, k in 0..32:                                              for i in 0..4, k in 0..32:
    … b[j, k, 0..16] …                                                      prefetch b[j + 1, 0, (i*32 + k) * 4]; …
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.analysis.accesses import accesses, mentions
from tilewright.analysis.intervals import Range, interval
from tilewright.analysis.regions import Region, access_region, cover, ranges_of, reads, writes
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Expr, Min, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import allocations, loops_around, replace
from tilewright.loops.nodes import Buffer, For, Function, Load, LoopKind, Prefetch, seq
from tilewright.report.errors import UserError
from tilewright.schedule.find import find_buffer, find_loop
from tilewright.schedule.step import Step, refusal
from tilewright.types.scopes import Scope


def prefetch(
    function: Function, buffer: str, loop: Var, distance: int = 1, inner: Var | None = None, *, apart: int | None = None
) -> Step:
    """Each iteration of the loop begins by prefetching the first element of the buffer that the iteration `distance`
    later touches. The element may be beyond the buffer's end: nothing is read there.

    With `inner`, a loop inside it, all that the later iteration touches is prefetched. If that is contiguous, the
    iterations of the inner loop share it evenly, and each prefetches one element. Otherwise each iteration of the inner
    loop prefetches the first element that it will touch itself in the later iteration.

    With `apart`, every `apart`-th element of the touched data is prefetched. The data must be contiguous, at least for
    each access by itself. As many elements as a cache line holds fetch all of it.

    for k in 0..n: … b[k, 0] …       prefetch("b", k, 2)  =>       for k in 0..n: prefetch b[k + 2, 0]; … b[k, 0] …
    """
    found, target = find_loop(function, loop), find_buffer(function, buffer)
    what = f"cannot prefetch {target.name} in loop {found.var.name}"
    if type(distance) is not int or distance < 1:
        raise refusal(function, what, found, why=f"{distance!r} is no number of iterations", fix="give it 1 or more")
    if apart is not None and (type(apart) is not int or apart < 1):
        raise refusal(function, what, found, why=f"{apart!r} is no number of elements", fix="give it 1 or more")
    _require_iterations(function, found, what)
    if target.scope is Scope.REGISTER or target in allocations(found.body):
        where = "in registers" if target.scope is Scope.REGISTER else "made anew in each iteration"
        raise refusal(function, what, found, why=f"{target.name} is {where}", fix="prefetch what it is filled from")
    box = _touched(function, found, target)
    if box is None or not any(mentions(r.begin, (found.var,)) for r in box.ranges):
        why = "no iteration touches it" if box is None else "every iteration begins at the same element of it"
        raise refusal(function, what, found, why=why, fix="take another loop")
    place = found if inner is None else find_loop(function, inner)
    inside = [] if inner is None else _loops_between(function, found, place, what)
    later = {found.var: simplify(found.var + distance)}
    asked = []
    for begins, parts in _elements(function, found, inside, target, box, apart, what):
        *outer, last = (simplify(substitute(begin, later)) for begin in begins)
        asked += [Prefetch(Load(target, (*outer, simplify(last + part)))) for part in parts]
    made = place.replace(body=seq(*asked, place.body))
    return Step(function.replace(body=replace(function.body, place, made)), None, ("it changes no result",))


Elements = tuple[Sequence[Expr], Sequence[Expr]]
"""The indices of an element, and the offsets from it, within its row, of the elements to prefetch."""


def _elements(
    function: Function, loop: For, inside: Sequence[For], buffer: Buffer, box: Region, apart: int | None, what: str
) -> list[Elements]:
    """The elements that an iteration of the innermost loop prefetches."""
    pieces = [box] if _is_one_piece(box, buffer) else _pieces(function, loop, buffer)
    if (inside or apart is not None) and all(_is_one_piece(piece, buffer) for piece in pieces):
        moving = [piece for piece in pieces if any(mentions(r.begin, (loop.var,)) for r in piece.ranges)]
        return [([r.begin for r in p.ranges], _parts(function, loop, inside, p, apart, what)) for p in moving]
    if apart is not None:
        raise _no_piece(function, loop, buffer, box, what)
    begins = _own_begins(function, inside[-1], buffer, box, what) if inside else [r.begin for r in box.ranges]
    return [(begins, [const(0)])]


def _require_iterations(function: Function, loop: For, what: str, *further: LoopKind) -> None:
    if loop.kind not in (LoopKind.SERIAL, LoopKind.PARALLEL, *further):
        why = f"a {loop.kind.value} loop has no iterations that come later"
        raise refusal(function, what, loop, why=why, fix="take a for loop around it")


def _touched(function: Function, loop: For, buffer: Buffer) -> Region | None:
    """The box of the buffer that one iteration touches, over the loops around it."""
    fixed = {loop.var, *(s.var for s in loops_around(function.body, loop))}
    boxes = [regions[buffer] for regions in (reads(loop.body, fixed), writes(loop.body, fixed)) if buffer in regions]
    if not boxes:
        return None
    return _inside(boxes[0] if len(boxes) == 1 else cover(*boxes), buffer)


def _inside(box: Region, buffer: Buffer) -> Region:
    """The part of a box inside the buffer, where both are known numbers; conditions exclude what is beyond."""
    ranges = [_clip(r, extent) for r, extent in zip(box.ranges, buffer.shape, strict=True)]
    return Region(tuple(ranges), box.exact)


def _clip(r: Range, extent: Expr) -> Range:
    """The part of a range between 0 and an extent, where all are known numbers."""
    if not (isinstance(r.begin, Const) and isinstance(r.extent, Const) and isinstance(extent, Const)):
        return r
    begin, end = max(int(r.begin.value), 0), min(int(r.begin.value + r.extent.value), int(extent.value))
    return Range(const(begin), const(max(end - begin, 0)))


def _pieces(function: Function, loop: For, buffer: Buffer) -> list[Region]:
    """The boxes that the accesses of the buffer touch in one iteration, without duplicates."""
    fixed = {loop.var, *(s.var for s in loops_around(function.body, loop))}
    boxes = [_inside(access_region(a, fixed), buffer) for a in accesses(loop.body) if a.buffer is buffer]
    return list({box.ranges: box for box in boxes}.values())


def _loops_between(function: Function, loop: For, inner: For, what: str) -> list[For]:
    """The loops inside `loop`, down to `inner`, which must be inside it."""
    if inner is loop or loop not in (around := loops_around(function.body, inner)):
        raise refusal(function, what, inner, why=f"it is not inside loop {loop.var.name}", fix="take a loop inside")
    return [*around[around.index(loop) + 1 :], inner]


def _own_begins(function: Function, inner: For, buffer: Buffer, box: Region, what: str) -> list[Expr]:
    """The first indices of the buffer that an iteration of the inner loop touches; they must vary with that loop."""
    own = _touched(function, inner, buffer)
    if own is None or not any(mentions(r.begin, (inner.var,)) for r in own.ranges):
        raise _no_piece(function, inner, buffer, box, what, f", and loop {inner.var.name} does not go through it")
    return [r.begin for r in own.ranges]


def _no_piece(function: Function, loop: For, buffer: Buffer, box: Region, what: str, further: str = "") -> UserError:
    why = f"what an iteration touches of {buffer.name}, {box}, is not contiguous with a known size{further}"
    fix = f"pack {buffer.name} first, so that it is contiguous, or take a loop that goes through it"
    return refusal(function, what, loop, why=why, fix=fix)


def _parts(
    function: Function, loop: For, inside: Sequence[For], box: Region, apart: int | None, what: str
) -> list[Expr]:
    """The offsets in a contiguous box of the elements that an iteration of the innermost loop prefetches."""
    around = [*loops_around(function.body, loop), loop]
    counts = []
    for n, each in enumerate(inside):
        _require_iterations(function, each, what, LoopKind.UNROLL)
        most = _most(each, [*around, *inside[:n]])
        if most is None:
            raise refusal(function, what, each, why="its extent has no known bound", fix="split it by a number first")
        counts.append(most)
    turn: Expr = const(0)
    for each, most in zip(inside, counts, strict=True):
        turn = turn * most + (each.var - each.begin)
    assert isinstance(box.size, Const)
    share = max(-(-int(box.size.value) // math.prod(counts)), 1)
    return [turn * share + n for n in range(0, share, apart or share)]


def _most(loop: For, around: Sequence[For]) -> int | None:
    """The most iterations of a loop, as a number; None where no bound is known."""
    bounds = interval(simplify(loop.end - loop.begin), ranges_of(around))
    if bounds is None:
        return None
    sides = (bounds.high.a, bounds.high.b) if isinstance(bounds.high, Min) else (bounds.high,)
    known = [int(side.value) for side in sides if isinstance(side, Const)]
    return max(min(known), 1) if known else None


def _is_one_piece(box: Region, buffer: Buffer) -> bool:
    """Whether the box is contiguous in row-major order and of known size: extents of 1, then a part of one dimension,
    then whole dimensions."""
    whole = [simplify(r.extent - extent) is const(0) for r, extent in zip(box.ranges, buffer.shape, strict=True)]
    first = next((n for n, r in enumerate(box.ranges) if r.extent is not const(1)), len(whole))
    return isinstance(box.size, Const) and all(whole[first + 1 :])
