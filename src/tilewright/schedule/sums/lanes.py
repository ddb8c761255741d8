"""sum_in_lanes, sum_in_blocks: the sums of a loop in partial sums, side by side or one after the other.

Partial sums change the order of a sum, as any vector code does; for minima, maxima and integers the result is the same.
Several accumulations in one loop stay in one loop, each with partial sums of its own.
"""

from __future__ import annotations

from itertools import chain
from typing import cast

from tilewright.analysis.iterations import Summed, summed_in
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Var, const
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import blocks, loads_of
from tilewright.loops.nodes import Alloc, Block, For, Function, Load, LoopKind, Stmt, Store, seq
from tilewright.schedule.find import find_loop, primitive
from tilewright.schedule.loops.rearrange import split
from tilewright.schedule.step import Obstacle, Step, rewritten

ANY_ORDER = "its sums may be added up in any order"
"""Why partial sums are the same."""


@primitive("cannot sum loop {loop} in {lanes} lanes")
def sum_in_lanes(function: Function, loop: For, lanes: int) -> Step:
    """The sums of a loop run in `lanes` partial sums, which are the lanes of registers. At the end the upper half of
    the lanes is added to the lower half, and so on; the tail is added term by term. Returns the loop over vectors, and
    that over the tail, None if there is none.

    for k in 0..n: block s(reduce vk = k): t[] += x[vk]
              =>      for ko in 0..n//8: vectorize l in 0..8: block s.lanes: t.lanes[l] += x[ko*8 + l]
                      block s.halve4, s.halve2, s.halve1, s.join; for k in n//8*8..n: block s.tail: t[] += x[vk]

    Legal where the loop holds accumulations by operators that may be applied in any order, and nothing else.
    """
    parted, (outer, _, rest), main, inner = _parted(function, loop, lanes)
    starts, terms, ends = zip(*(_in_lanes(s, inner.var, lanes) for s in summed_in(inner)), strict=True)
    nests = seq(*chain(*starts), main.replace(body=seq(*terms)), *chain(*ends))
    return rewritten(parted, main, nests, (outer, rest), ANY_ORDER)


def _in_lanes(s: Summed, inner: Var, lanes: int) -> tuple[list[Stmt], Stmt, list[Stmt]]:
    """(what begins the partial sums of an accumulation, its terms for all iterations of the inner loop, what ends it:
    the upper half of the lanes is added to the lower half while their number is even, then lane by lane)."""
    own = s.partial(f"{s.buffer.name}.lanes", (const(lanes),))
    lane = Var("l")
    start = [Alloc(own), _over(lanes, lane, s.leaf("start", Store(own, (lane,), s.start)))]
    lane = Var("l")
    terms = _over(lanes, lane, s.leaf("lanes", s.added(own, (lane,), substitute(s.term, {inner: lane}))))
    end: list[Stmt] = []
    while lanes % 2 == 0:
        lanes, lane = lanes // 2, Var("l")
        end.append(_over(lanes, lane, s.leaf(f"halve{lanes}", s.added(own, (lane,), Load(own, (lane + lanes,))))))
    lane = Var("l")
    join = s.leaf("join", s.added(s.buffer, s.target, Load(own, (lane,))))
    return start, terms, [*end, For(lane, const(0), const(lanes), LoopKind.UNROLL, join)]


def _over(lanes: int, lane: Var, block: Block) -> For:
    return For(lane, const(0), const(lanes), LoopKind.VECTORIZE if lanes > 1 else LoopKind.UNROLL, block)


@primitive("cannot sum loop {loop} in blocks of {size}")
def sum_in_blocks(function: Function, loop: For, size: int) -> Step:
    """The sums of a loop run in blocks of `size` terms, each with a partial sum of its own; the tail is added term by
    term. Returns the loop over blocks, that inside it, and that over the tail, None if there is none.

    for k in 0..n: block s(reduce vk = k): t[] += x[vk]
              =>      for ko in 0..n//32: block s.start: p[] = 0; for ki in 0..32: block s.terms: p[] += x[ko*32 + ki]
                                          block s.join: t[] += p[]
                      for k in n//32*32..n: block s.tail: t[] += x[vk]

    The rounding error of a sum grows with B + n/B instead of n (Higham, "The accuracy of floating point summation",
    SIAM J. Sci. Comput. 14, 1993). Legal as sum_in_lanes is.
    """
    parted, handles, _, inner = _parted(function, loop, size)
    both = [(s, s.partial(f"{s.buffer.name}.block", ())) for s in summed_in(inner)]
    turn = seq(
        *(x for s, p in both for x in (Alloc(p), s.leaf("start", Store(p, (), s.start)))),
        inner.replace(body=seq(*(s.leaf("terms", s.added(p, (), s.term)) for s, p in both))),
        *(s.leaf("join", s.added(s.buffer, s.target, Load(p, ()))) for s, p in both),
    )
    return rewritten(parted, inner, turn, handles, ANY_ORDER)


def _parted(function: Function, loop: For, size: int) -> tuple[Function, tuple[Var, Var, Var | None], For, For]:
    """(the function with a loop of sums split into parts of `size` terms and a tail, what split returns, the loop over
    parts, the loop inside it)."""
    _require_sums(loop, size)
    parted = split(function, loop.var, size, tail="peel")
    made = cast(tuple[Var, Var, Var | None], parted.made)
    return parted.function, made, find_loop(parted.function, made[0]), find_loop(parted.function, made[1])


def _require_sums(loop: For, least: int) -> None:
    """Refuses unless a loop of at least `least` terms holds accumulations that run over it."""
    if isinstance(least, bool) or not isinstance(least, int) or least < 2:
        raise Obstacle(loop, "a sum has two partial sums or more", fix="take 8")
    extent = loop.extent
    if isinstance(extent, Const) and extent.value < least:
        raise Obstacle(loop, f"it has {extent} terms", fix=f"take at most {extent}")
    found = summed_in(loop)
    if not found or loop.kind is not LoopKind.SERIAL:
        begun = next((b.name for b in blocks(loop) if b.init is not None), "")
        why = "it holds something else than accumulations that do not read each other, or is not serial"
        raise Obstacle(loop, why, fix=f'decompose_reduction("{begun}", {loop.name}) first' if begun else None)
    stored = {s.buffer for s in found}
    for s in found:
        if any(loop.var in variables_of(i) or stored & {ld.buffer for ld in loads_of(i)} for i in s.target):
            why = f"block {s.block.name} does not sum over it: each iteration has a place of its own"
            raise Obstacle(loop, why, fix="vectorize it")
