"""prefetch: fetches data into cache before it is used. It changes no result."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tilewright.analysis.accesses import mentions
from tilewright.analysis.domains import greatest
from tilewright.analysis.elements import box_of, elements, touches
from tilewright.analysis.regions import Region, clipped
from tilewright.core.walk import substitute
from tilewright.expr.build import less, maximum, minimum
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

Shared = tuple[int, int] | None
"""How many first iterations of a loop share what is prefetched, and the fewest that prefetch all of it."""

Part = tuple[Expr, Expr | None]
"""The offset of an element from the first one of a box, within the row of that; the condition under which it is one
that an iteration prefetches, if there is any."""


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
    least: int | None = None,
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

    With `first`, only so many first iterations of the loop right inside the outer one prefetch, and share all of it; of
    a loop of dynamic length that has fewer, all of them. Where there are not even `least` (by default, as many as
    `first`), they prefetch a part of it.

    for j in 0..n: for i in 0..4, k in 0..32: … b[j, k, 0..16] …                        prefetch("b", j, 1, k)
              =>      for j in 0..n: for i in 0..4, k in 0..32: prefetch b[j + 1, 0, (i*32 + k) * 4]; … b[j, k, 0..16] …
    """
    for number, word in ((distance, "iterations"), (apart, "elements"), (first, "iterations"), (least, "iterations")):
        if number is not None and (type(number) is not int or number < 1):
            raise Obstacle(loop, f"{number!r} is no number of {word}", fix="give it 1 or more")
    if level not in PREFETCHED:
        raise Obstacle(loop, f"nothing is prefetched into {level!r}", fix="take 1 or 2")
    _require_iterations(loop)
    if buffer.scope is Scope.REGISTER or buffer in allocations(loop.body):
        where = "in registers" if buffer.scope is Scope.REGISTER else "made anew in each iteration"
        raise Obstacle(loop, f"{buffer.name} is {where}", fix="prefetch what it is filled from")
    boxes = _touched(loop, buffer)
    if not boxes or not _moves(boxes[0], loop):
        why = "every iteration begins at the same element of it" if boxes else "no iteration touches it"
        raise Obstacle(loop, why, fix="take another loop")
    place = inner or loop
    path = pairwise(path_to(function.body, place))
    for begun in (b for b, s in path if isinstance(b, Block) and b.init is s):
        why = f"loop {place.name} is part of the init of block {begun.name}, which stores and does nothing else"
        raise Obstacle(place, why, fix="decompose_reductions() first")
    around = [*loops_around(function.body, place), place]
    if loop not in around or inner is loop or (first is not None and inner is None):
        raise Obstacle(place, f"it is not inside loop {loop.name}", fix="take a loop inside")
    if least is not None and least > (first or 0):
        raise Obstacle(loop, f"{least} iterations are more than the first {first}", fix="give `first` as many, or more")
    later = {loop.var: simplify(loop.var + distance)}
    asked: list[Stmt] = []
    shared = None if first is None else (first, least or first)
    for box, parts in _elements(around, loop, buffer, boxes, apart, shared):
        *outer, last = (simplify(substitute(r.begin, later)) for r in box.ranges)
        for part, needed in parts:
            one = Prefetch(Load(buffer, (*outer, simplify(last + part))), level)
            asked.append(one if needed is None else If(needed, one))
    if first is not None:
        sharing = around[around.index(loop) + 1]
        asked = [If(less(simplify(sharing.var - sharing.begin), const(first)), seq(*asked))]
    return rewritten(function, place, place.replace(body=seq(*asked, place.body)), None, "it changes no result")


def _elements(
    around: Sequence[For], loop: For, buffer: Buffer, boxes: Sequence[Region], apart: int | None, shared: Shared
) -> list[tuple[Region, Sequence[Part]]]:
    """The boxes, each with the parts that an iteration of the innermost of the loops `around` prefetches. `boxes` are
    what an iteration of the loop touches, first as a whole."""
    (whole, *parts), place = boxes, around[-1]
    pieces = [whole] if whole.is_contiguous_in(buffer.shape) else parts
    if (place is not loop or apart is not None) and all(piece.is_contiguous_in(buffer.shape) for piece in pieces):
        return [(piece, _parts(around, loop, piece, apart, shared)) for piece in pieces if _moves(piece, loop)]
    own = _touched(place, buffer)[:1]
    if apart is not None or shared is not None or not own or not _moves(own[0], place):
        why = f"what an iteration touches of {buffer.name}, {whole}, is not contiguous with a known size"
        why += f", and loop {place.name} does not go through it" if apart is None else ""
        fix = f"pack {buffer.name} first, so that it is contiguous, or take a loop that goes through it"
        raise Obstacle(place if apart is None else loop, why, fix)
    return [(own[0], [(const(0), None)])]


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


def _parts(around: Sequence[For], loop: For, box: Region, apart: int | None, shared: Shared) -> list[Part]:
    """The parts of a contiguous box that an iteration of the innermost loop prefetches."""
    turn: Expr = const(0)
    others, fewest = 1, 1
    sharing: Expr = const(1)
    for n in range(around.index(loop) + 1, len(around)):
        each = around[n]
        _require_iterations(each, LoopKind.UNROLL)
        extent = greatest(each.extent, around[:n])
        if shared is not None and n == around.index(loop) + 1:
            most, fewest = shared
            begin = substitute(each.extent, {o.var: o.begin for o in reversed(around[:n])})  # many in each, or one loop
            sharing = simplify(minimum(begin, most)) if most > 1 else const(1)
            turn = each.var - each.begin
            continue
        if not isinstance(extent, Const):
            raise Obstacle(each, "its extent has no known bound", fix="split it by a number first")
        most = max(int(extent.value), 1)
        turn, others = turn * most + (each.var - each.begin), others * most
    assert isinstance(box.size, Const)
    share = simplify(maximum(-(-box.size // (sharing * others)), 1))
    if isinstance(share, Const):
        return [(turn * share + n, None) for n in range(0, int(share.value), apart or int(share.value))]
    most = -(-int(box.size.value) // (fewest * others))
    asked = range(0, most, apart or most)
    return [(turn * share + n, less(n, share) if n else None) for n in asked]
