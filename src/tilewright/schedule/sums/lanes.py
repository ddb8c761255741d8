"""sum_in_lanes, sum_in_blocks: the sums of a loop in partial sums, side by side or one after the other.

Partial sums change the order of a sum, as any vector code does; for minima, maxima and integers the result is the same.
Several accumulations in one loop stay in one loop, each with partial sums of its own.
"""

from __future__ import annotations

from typing import cast

from tilewright.analysis.iterations import Summed, summed_in
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Expr, Lt, Var, const
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import blocks, loads_of, replace
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Load, LoopKind, Stmt, Store, seq
from tilewright.schedule.find import find_loop, primitive
from tilewright.schedule.loops.rearrange import split
from tilewright.schedule.step import Obstacle, Step, rewritten

TAILS = ("peel", "mask")

ANY_ORDER = "its sums may be added up in any order"
"""Why partial sums are the same."""


@primitive("cannot sum loop {loop} in {lanes} lanes")
def sum_in_lanes(function: Function, loop: For, lanes: int, *, tail: str = "peel") -> Step:
    """The sums of a loop run in `lanes` partial sums, which are the lanes of registers. At the end the upper half of
    the lanes is added to the lower half, and so on. The tail is added term by term, or with tail="mask" to the lanes
    that it has terms for. Returns the loop over vectors, and that over the tail, None if there is none.

    for k in 0..n: block s(reduce vk = k): t[] += x[vk]
              =>      for ko in 0..n//8: vectorize l in 0..8: block s.lanes: t.lanes[l] += x[ko*8 + l]
                      block s.halve4, s.halve2, s.halve1, s.join; for k in n//8*8..n: block s.tail: t[] += x[vk]

    Legal where the loop holds accumulations by operators that may be applied in any order, and nothing else.
    """
    if tail not in TAILS:
        raise Obstacle(loop, f'there is no tail "{tail}" of a sum', fix=f"take one of {', '.join(TAILS)}")
    parted, (outer, _, rest), main, inner = _parted(function, loop, lanes)
    own = [s.partial(f"{s.buffer.name}.lanes", (const(lanes),)) for s in summed_in(inner)]
    both = list(zip(summed_in(inner), own, strict=True))
    starts = [step for s, p in both for step in _begun(s, p, lanes)]
    ends = [step for s, p in both for step in _joined(s, p, lanes)]
    terms = main.replace(body=seq(*(_terms(s, p, inner, lanes) for s, p in both)))
    if rest is not None and tail == "mask":
        few = find_loop(parted, rest)
        masked = (_terms(s, p, few, lanes, few.extent) for s, p in zip(summed_in(few), own, strict=True))
        parted = parted.replace(body=replace(parted.body, few, seq(*masked, *ends)))
        rest, ends = None, []
    return rewritten(parted, main, seq(*starts, terms, *ends), (outer, rest), ANY_ORDER)


def _begun(s: Summed, own: Buffer, lanes: int) -> tuple[Stmt, Stmt]:
    """What begins the partial sums of an accumulation."""
    lane = Var("l")
    return Alloc(own), _over(lanes, lane, s.leaf("start", Store(own, (lane,), s.start)))


def _terms(s: Summed, own: Buffer, loop: For, lanes: int, count: Expr | None = None) -> Stmt:
    """The terms of an accumulation in so many iterations of a loop, or in the first `count` of these, a lane for
    each."""
    lane = Var("l")
    made = s.leaf("lanes", s.added(own, (lane,), substitute(s.term, {loop.var: loop.begin + lane})))
    return _over(lanes, lane, made if count is None else made.replace(where=Lt(lane, count)))


def _joined(s: Summed, own: Buffer, lanes: int) -> list[Stmt]:
    """What ends the partial sums of an accumulation: the upper half of the lanes is added to the lower half while their
    number is even, then lane by lane."""
    end: list[Stmt] = []
    while lanes % 2 == 0:
        lanes, lane = lanes // 2, Var("l")
        end.append(_over(lanes, lane, s.leaf(f"halve{lanes}", s.added(own, (lane,), Load(own, (lane + lanes,))))))
    lane = Var("l")
    join = s.leaf("join", s.added(s.buffer, s.target, Load(own, (lane,))))
    return [*end, For(lane, const(0), const(lanes), LoopKind.UNROLL, join)]


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
