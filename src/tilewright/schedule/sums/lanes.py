"""sum_in_lanes, sum_in_blocks: the sums of a loop in partial sums, side by side or one after the other.

    for k in 0..n: t += f(k)       =>       vectorize l in 0..4: p[l] = 0                           sum_in_lanes(k, 4)
                                            for ko in 0..n//4: vectorize l in 0..4: p[l] += f(ko*4 + l)
                                            vectorize l in 0..2: p[l] = p[l] + p[l + 2]
                                            unroll l in 0..1: p[l] = p[l] + p[l + 1]
                                            unroll l in 0..1: t += p[l]
                                            for k in n//4*4..n: t += f(k)

    for k in 0..n: t += f(k)       =>       for ko in 0..n//4:                                      sum_in_blocks(k, 4)
                                              p = 0; for ki in 0..4: p += f(ko*4 + ki)
                                              t += p
                                            for k in n//4*4..n: t += f(k)

They change the order of a sum, as any vector code does; for minima, maxima and integers the result is the same. Several
accumulations in one loop stay in one loop, each with partial sums of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import blocks, fresh_copy, loads, replace
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Load, LoopKind, Stmt, Store, seq
from tilewright.schedule.facts.accumulations import Summed, summed_in
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.find import find_loop
from tilewright.schedule.names import fresh_blocks
from tilewright.schedule.step import Step, refusal


def sum_in_lanes(function: Function, loop: Var, lanes: int) -> Step:
    """The sums of a loop run in `lanes` partial sums, which are the lanes of registers. At the end the upper half of
    the lanes is added to the lower half, and so on; the tail is added term by term. Returns the loop over vectors, and
    that over the tail, None if there is none.

    for k in 0..n: block s(reduce vk = k): t[] += x[vk]
              =>      for ko in 0..n//8: vectorize l in 0..8: block s.lanes: t.lanes[l] += x[ko*8 + l]
                      block s.halve4, s.halve2, s.halve1, s.join; for k in n//8*8..n: block s.tail: t[] += x[vk]

    Legal where the loop holds accumulations by operators that may be applied in any order, and nothing else.
    """
    found = find_loop(function, loop)
    sums = _require_sums(function, found, lanes, f"cannot sum loop {found.var.name} in {lanes} lanes")
    partials = [s.partial("lanes", (const(lanes),)) for s in sums]
    both = list(zip(sums, partials, strict=True))
    outer = Var(found.var.name + "o")

    def term(s: Summed, partial: Buffer) -> Stmt:
        def at(lane: Var) -> Stmt:
            value = substitute(s.term, {found.var: found.begin + outer * lanes + lane})
            return s.leaf("lanes", s.added(partial, (lane,), value))

        return _over(lanes, at)

    starts = [x for s, p in both for x in (Alloc(p), _over(lanes, lambda lane, s=s, p=p: _start(s, p, (lane,))))]  # type: ignore[misc]
    main = For(outer, const(0), _whole(found, lanes), LoopKind.SERIAL, seq(*(term(s, p) for s, p in both)))
    joined = [x for s, p in both for x in _joined(s, p, lanes)]
    return _done(function, found, (*starts, main, *joined), (outer,), lanes)


def sum_in_blocks(function: Function, loop: Var, size: int) -> Step:
    """The sums of a loop run in blocks of `size` terms, each with a partial sum of its own; the tail is added term by
    term. Returns the loop over blocks, that inside it, and that over the tail, None if there is none.

    for k in 0..n: block s(reduce vk = k): t[] += x[vk]
              =>      for ko in 0..n//32: block s.start: p[] = 0; for ki in 0..32: block s.terms: p[] += x[ko*32 + ki]
                                          block s.join: t[] += p[]
                      for k in n//32*32..n: block s.tail: t[] += x[vk]

    The rounding error of a sum grows with B + n/B instead of n (Higham, "The accuracy of floating point summation",
    SIAM J. Sci. Comput. 14, 1993). Legal as sum_in_lanes is.
    """
    found = find_loop(function, loop)
    sums = _require_sums(function, found, size, f"cannot sum loop {found.var.name} in blocks of {size}")
    main, inner = in_blocks(found, sums, size)
    return _done(function, found, (main,), (main.var, inner), size)


def in_blocks(loop: For, sums: tuple[Summed, ...], size: int) -> tuple[For, Var]:
    """The loop over blocks of terms, and the variable of the one inside it."""
    both = [(s, s.partial("block", ())) for s in sums]
    outer, inner = Var(loop.var.name + "o"), Var(loop.var.name + "i")
    at: dict[Expr, Node] = {loop.var: loop.begin + outer * size + inner}
    terms = [s.leaf("terms", s.added(p, (), substitute(s.term, at))) for s, p in both]
    turn = seq(
        *(x for s, p in both for x in (Alloc(p), _start(s, p, ()))),
        For(inner, const(0), const(size), LoopKind.SERIAL, seq(*terms)),
        *(s.leaf("join", s.added(s.buffer, s.target, Load(p, ()))) for s, p in both),
    )
    return For(outer, const(0), _whole(loop, size), LoopKind.SERIAL, turn), inner


def _require_sums(function: Function, loop: For, least: int, what: str) -> tuple[Summed, ...]:
    """The accumulations of a loop of at least `least` terms; else the error `what`."""
    if isinstance(least, bool) or not isinstance(least, int) or least < 2:
        raise refusal(function, what, loop, why="a sum has two partial sums or more", fix="take 8")
    extent = extent_of(loop)
    if isinstance(extent, Const) and extent.value < least:
        raise refusal(function, what, loop, why=f"it has {extent} terms", fix=f"take at most {extent}")
    found = summed_in(loop)
    if not found or loop.kind is not LoopKind.SERIAL:
        begun = next((b.name for b in blocks(loop) if b.init is not None), "")
        why = "it holds something else than accumulations that do not read each other, or is not serial"
        fix = f'decompose_reduction("{begun}", {loop.var.name}) first' if begun else None
        raise refusal(function, what, loop, why=why, fix=fix)
    stored = {s.buffer for s in found}
    for s in found:
        if any(loop.var in variables_of(i) or stored & {ld.buffer for ld in loads(i)} for i in s.target):
            why = f"block {s.block.name} does not sum over it: each iteration has a place of its own"
            raise refusal(function, what, loop, why=why, fix="vectorize it")
    return found


def _whole(loop: For, size: int) -> Expr:
    return simplify(extent_of(loop) // size)


def left_over(loop: For, size: int) -> For | None:
    """The loop over the tail beyond whole parts of `size` iterations; None if there is none."""
    extent = extent_of(loop)
    if isinstance(extent, Const) and extent.value % size == 0:
        return None
    return loop.replace(begin=simplify(loop.begin + _whole(loop, size) * size))


def _over(lanes: int, body_of: Callable[[Var], Stmt]) -> For:
    lane = Var("l")
    return For(lane, const(0), const(lanes), LoopKind.VECTORIZE if lanes > 1 else LoopKind.UNROLL, body_of(lane))


def _start(s: Summed, partial: Buffer, at: tuple[Expr, ...]) -> Block:
    return s.leaf("start", Store(partial, at, s.start))


def _joined(s: Summed, partial: Buffer, lanes: int) -> list[Stmt]:
    """Adds the lanes to the sum: the upper half to the lower half while their number is even, then one by one."""
    loops: list[Stmt] = []
    while lanes % 2 == 0:
        half = lanes = lanes // 2

        def halved(lane: Var, half: int = half) -> Stmt:
            both = s.op(Load(partial, (lane,)), Load(partial, (lane + half,)))  # type: ignore[call-arg]
            return s.leaf(f"halve{half}", Store(partial, (lane,), both))

        loops.append(_over(half, halved))
    last = Var("l")
    join = s.leaf("join", s.added(s.buffer, s.target, Load(partial, (last,))))
    return [*loops, For(last, const(0), const(lanes), LoopKind.UNROLL, join)]


def _done(function: Function, loop: For, made: tuple[Stmt, ...], variables: tuple[Var, ...], size: int) -> Step:
    """The step that replaces a loop by statements, with a loop over the tail after them."""
    rest = left_over(loop, size)
    if rest is not None:
        tail = fresh_blocks(function, fresh_copy(rest), ".tail")
        assert isinstance(tail, For)
        rest, made = tail, (*made, tail)
    evidence = ("its sums may be added up in any order",)
    body = replace(function.body, loop, seq(*made))
    return Step(function.replace(body=body), (*variables, None if rest is None else rest.var), evidence)
