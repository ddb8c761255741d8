"""prefetch: fetches data into cache before it is used. It changes no result."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tilewright.analysis.accesses import mentions
from tilewright.analysis.domains import greatest
from tilewright.analysis.elements import box_of, elements, touches
from tilewright.analysis.intervals import Range
from tilewright.analysis.regions import Region, clipped
from tilewright.core.walk import substitute
from tilewright.expr.build import less
from tilewright.expr.nodes import Const, Expr, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import allocations, loops_around, path_to
from tilewright.loops.nodes import (
    PREFETCHED,
    Block,
    Buffer,
    For,
    Function,
    If,
    Load,
    LoopKind,
    Prefetch,
    Stmt,
    seq,
)
from tilewright.schedule.find import primitive
from tilewright.schedule.step import Obstacle, Step, rewritten
from tilewright.types.scopes import Scope


@primitive("cannot prefetch {buffer} in loop {loop}")
def prefetch(
    function: Function,
    buffer: Buffer,
    loop: For,
    distance: int = 1,
    inner: For | None = None,
    *,
    apart: int | None = None,
    first: int | None = None,
    fresh: bool = False,
    level: int = 1,
) -> Step:
    """Each iteration of the loop begins by prefetching the first element of the buffer that the iteration `distance`
    later touches. The element may be beyond the buffer's end: nothing is read there.

    With `inner`, a loop inside it, all that the later iteration touches is prefetched. If that is contiguous, the
    iterations of the inner loop share it evenly, and each prefetches one element. Otherwise each iteration of the inner
    loop prefetches the first element that it will touch itself in the later iteration.

    With `apart`, every `apart`-th element of the touched data is prefetched. The data must be contiguous, at least for
    each access by itself. As many elements as a cache line holds fetch all of it.

    With `level` 2, it comes into the second cache and those behind it, for what does not stay in the first one.

    With `first`, only so many first iterations of the loop right inside the outer one prefetch, and share all of it: of
    a loop of dynamic length, nobody knows how many iterations will come.

    With `fresh`, only what the iteration before that one does not touch: windows that move by a row share all others.

    for j in 0..n: for i in 0..4, k in 0..32: … b[j, k, 0..16] …                        prefetch("b", j, 1, k)
              =>      for j in 0..n: for i in 0..4, k in 0..32: prefetch b[j + 1, 0, (i*32 + k) * 4]; … b[j, k, 0..16] …
    """
    for number, word in ((distance, "iterations"), (apart, "elements"), (first, "iterations")):
        if number is not None and (type(number) is not int or number < 1):
            raise Obstacle(loop, f"{number!r} is no number of {word}", fix="give it 1 or more")
    if level not in PREFETCHED:
        raise Obstacle(loop, f"nothing is prefetched into {level!r}", fix="take 1 or 2")
    _require_iterations(loop)
    boxes = _boxes(loop, buffer, fresh)
    place = inner or loop
    path = pairwise(path_to(function.body, place))
    for begun in (b for b, s in path if isinstance(b, Block) and b.init is s):
        why = f"loop {place.name} is part of the init of block {begun.name}, which stores and does nothing else"
        raise Obstacle(place, why, fix="decompose_reductions() first")
    around = [*loops_around(function.body, place), place]
    if loop not in around or inner is loop or (first is not None and inner is None):
        raise Obstacle(place, f"it is not inside loop {loop.name}", fix="take a loop inside")
    later = {loop.var: simplify(loop.var + distance)}
    asked: list[Stmt] = []
    for box, parts in _elements(around, loop, buffer, boxes, apart, first):
        *outer, last = (simplify(substitute(r.begin, later)) for r in box.ranges)
        asked += [Prefetch(Load(buffer, (*outer, simplify(last + part))), level) for part in parts]
    if first is not None:
        sharing = around[around.index(loop) + 1]
        asked = [If(less(simplify(sharing.var - sharing.begin), const(first)), seq(*asked))]
    return rewritten(function, place, place.replace(body=seq(*asked, place.body)), None, "it changes no result")


def _boxes(loop: For, buffer: Buffer, fresh: bool) -> list[Region]:
    """What an iteration touches of a buffer, or the part of it that the one before does not (`_further`)."""
    if buffer.scope is Scope.REGISTER or buffer in allocations(loop.body):
        where = "in registers" if buffer.scope is Scope.REGISTER else "made anew in each iteration"
        raise Obstacle(loop, f"{buffer.name} is {where}", fix="prefetch what it is filled from")
    boxes = _further(loop, buffer) if fresh else _touched(loop, buffer)
    if not boxes or not _moves(boxes[0], loop):
        why = "every iteration begins at the same element of it" if boxes else "no iteration touches it"
        raise Obstacle(loop, why, fix="take another loop")
    return boxes


def _elements(
    around: Sequence[For], loop: For, buffer: Buffer, boxes: Sequence[Region], apart: int | None, first: int | None
) -> list[tuple[Region, Sequence[Expr]]]:
    """The boxes, each with the offsets from its first element, within the row of that, of what an iteration of the
    innermost of the loops `around` prefetches. `boxes` are what an iteration of the loop touches, first as a whole."""
    (whole, *parts), place = boxes, around[-1]
    pieces = [whole] if whole.is_contiguous_in(buffer.shape) else parts
    shared = (place is not loop or apart is not None) and pieces
    if shared and all(piece.is_contiguous_in(buffer.shape) for piece in pieces):
        return [(piece, _parts(around, loop, piece, apart, first)) for piece in pieces if _moves(piece, loop)]
    own = [whole] if place is loop else _touched(place, buffer)[:1] if parts else []
    if apart is not None or first is not None or not own or not _moves(own[0], place):
        why = f"what an iteration touches of {buffer.name}, {whole}, is not contiguous with a known size"
        why += f", and loop {place.name} does not go through it" if apart is None else ""
        fix = f"pack {buffer.name} first, so that it is contiguous, or take a loop that goes through it"
        raise Obstacle(place if apart is None else loop, why, fix)
    return [(own[0], [const(0)])]


def _moves(box: Region, loop: For) -> bool:
    """Whether a box begins elsewhere in another iteration of a loop."""
    return any(mentions(r.begin, {loop.var}) for r in box.ranges)


def _require_iterations(loop: For, *further: LoopKind) -> None:
    if loop.kind not in (LoopKind.SERIAL, LoopKind.PARALLEL, *further):
        raise Obstacle(loop, f"a {loop.kind.value} loop has no iterations that come later", "take a for loop around it")


def _touched(loop: For, buffer: Buffer) -> list[Region]:
    """The boxes of the buffer that one iteration touches: of all accesses together, then of each, without duplicates.
    Only what is inside the buffer counts; conditions exclude what is beyond."""
    whole, shape = box_of(loop.body, buffer), buffer.shape
    parts = dict.fromkeys(clipped(elements(t).ranges, shape) for t in touches(loop.body, buffer))
    return [] if whole is None else [clipped(whole, shape), *parts]


def _further(loop: For, buffer: Buffer) -> list[Region]:
    """The box of the buffer that one iteration touches and the one before it does not; none where it touches none."""
    whole = box_of(loop.body, buffer)
    moving = [n for n, r in enumerate(whole or ()) if mentions(r.begin, {loop.var})]
    if whole is None or not moving:
        return _touched(loop, buffer)
    ranges, axis = list(clipped(whole, buffer.shape).ranges), moving[0]
    begin, extent = ranges[axis].begin, ranges[axis].extent
    step = simplify(substitute(begin, {loop.var: simplify(loop.var + 1)}) - begin)
    if len(moving) > 1 or not isinstance(step, Const) or not isinstance(extent, Const) or step.value < 1:
        why = f"what of {buffer.name} an iteration is the first to touch is not known to be a part of one dimension"
        raise Obstacle(loop, why, fix="prefetch all that it touches")
    left = max(int(extent.value) - int(step.value), 0)
    ranges[axis] = Range(simplify(begin + left), simplify(extent - left))
    return [Region(tuple(ranges), False)]


def _parts(around: Sequence[For], loop: For, box: Region, apart: int | None, first: int | None) -> list[Expr]:
    """The offsets in a contiguous box of the elements that an iteration of the innermost loop prefetches; where but the
    `first` iterations of the loop right inside the outer one do, these share it."""
    turn: Expr = const(0)
    count = 1
    for n in range(around.index(loop) + 1, len(around)):
        each = around[n]
        _require_iterations(each, LoopKind.UNROLL)
        extent = greatest(each.extent, around[:n])
        if first is not None and n == around.index(loop) + 1:
            extent = const(min(first, int(extent.value)) if isinstance(extent, Const) else first)
        if not isinstance(extent, Const):
            raise Obstacle(each, "its extent has no known bound", fix="split it by a number first")
        most = max(int(extent.value), 1)
        turn, count = turn * most + (each.var - each.begin), count * most
    assert isinstance(box.size, Const)
    share = max(-(-int(box.size.value) // count), 1)
    return [turn * share + n for n in range(0, share, apart or share)]
