"""join_sums, sum_in_lanes, sum_in_blocks: the sums of loops in one loop, and those of one loop in partial sums, side by
side or one after the other.

Partial sums change the order of a sum, as any vector code does; for minima, maxima and integers the result is the same.
Several accumulations in one loop stay in one loop, each with partial sums of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import allocations, blocks, fresh_copy, loaded_buffers, loads_of
from tilewright.loops.nodes import Alloc, Block, For, Function, Load, LoopKind, Seq, Stmt, Store, seq
from tilewright.schedule.facts.iterations import Summed, extent_of, summed_in
from tilewright.schedule.find import find_loop, nests, stored_buffers
from tilewright.schedule.loops.merge import merge_neighbours
from tilewright.schedule.step import Step, fresh_blocks, refusal, rewritten


def join_sums(function: Function) -> Step:
    """Loops at the top level that hold sums, and read something in common, become one, where neither needs what the
    other makes: each element is loaded once for all of them. What the later loop needs comes before the earlier one.

    for k: block a: a[] += x[k] * y[k]; for k: block b: b[] += x[k] * z[k]
              =>      for k: block a: a[] += x[k] * y[k]; block b: b[] += x[k] * z[k]
    """
    parts = list(nests(function))
    made = _joined_sums(parts)
    if len(made) == len(parts):
        return Step(function)
    return Step(function.replace(body=seq(*made)), None, ("none of the sums needs what another one makes",))


def _joined_sums(parts: Sequence[Stmt]) -> list[Stmt]:
    """The statements, which run one after the other, with such loops joined."""
    made = list(parts)
    n = 0
    while n < len(made):
        joined = next((j for m in range(n + 1, len(made)) if (j := _joined(made, n, m)) is not None), None)
        if joined is None:
            n += 1
        else:
            made = joined
    return made


def _joined(parts: list[Stmt], n: int, m: int) -> list[Stmt] | None:
    """The statements with loops n and m as one; None where they may not be joined."""
    first, second = parts[n], parts[m]
    if not isinstance(first, For) or not isinstance(second, For) or not _read_alike(first, second):
        return None
    needed: list[Stmt] = []
    later: list[Stmt] = []
    for s in reversed(parts[n + 1 : m]):
        (needed if any(_depend(s, t) for t in (second, *needed)) else later).insert(0, s)
    if any(_depend(s, t) for s in (first, *later) for t in needed):
        return None
    merged = merge_neighbours([first, second])
    if len(merged) > 1 or not isinstance(merged[0], For):
        return None
    inside = merged[0].body
    body = seq(*_joined_sums(inside.body)) if isinstance(inside, Seq) else inside
    return [*parts[:n], *needed, merged[0].replace(body=body), *later, *parts[m + 1 :]]


def _read_alike(first: For, second: For) -> bool:
    """Whether both loops hold sums, and load from one buffer that neither stores to."""
    if not all(any(b.reduce for b in blocks(loop)) for loop in (first, second)):
        return False
    return bool((loaded_buffers(first) & loaded_buffers(second)) - stored_buffers(first) - stored_buffers(second))


def _depend(one: Stmt, other: Stmt) -> bool:
    """Whether two statements may not change places."""
    made, theirs = (stored_buffers(s) | set(allocations(s)) for s in (one, other))
    return bool(made & theirs or made & loaded_buffers(other) or loaded_buffers(one) & theirs)


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
    outer = Var(found.var.name + "o")
    starts, terms, ends = zip(*(_in_lanes(s, found, outer, lanes) for s in sums), strict=True)
    main = For(outer, const(0), _whole(found, lanes), LoopKind.SERIAL, seq(*terms))
    return _done(function, found, (*chain(*starts), main, *chain(*ends)), (outer,), lanes)


def _in_lanes(s: Summed, loop: For, outer: Var, lanes: int) -> tuple[list[Stmt], Stmt, list[Stmt]]:
    """(what begins the partial sums of an accumulation, its terms of one iteration of `outer`, what ends it: the upper
    half of the lanes is added to the lower half while their number is even, then lane by lane)."""
    own = s.partial(f"{s.buffer.name}.lanes", (const(lanes),))
    lane = Var("l")
    start = [Alloc(own), _over(lanes, lane, s.leaf("start", Store(own, (lane,), s.start)))]
    lane = Var("l")
    value = substitute(s.term, {loop.var: loop.begin + outer * lanes + lane})
    terms = _over(lanes, lane, s.leaf("lanes", s.added(own, (lane,), value)))
    end: list[Stmt] = []
    while lanes % 2 == 0:
        lanes, lane = lanes // 2, Var("l")
        end.append(_over(lanes, lane, s.leaf(f"halve{lanes}", s.added(own, (lane,), Load(own, (lane + lanes,))))))
    lane = Var("l")
    join = s.leaf("join", s.added(s.buffer, s.target, Load(own, (lane,))))
    return start, terms, [*end, For(lane, const(0), const(lanes), LoopKind.UNROLL, join)]


def _over(lanes: int, lane: Var, block: Block) -> For:
    return For(lane, const(0), const(lanes), LoopKind.VECTORIZE if lanes > 1 else LoopKind.UNROLL, block)


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
    main, inner = _in_blocks(found, sums, size)
    return _done(function, found, (main,), (main.var, inner), size)


def _in_blocks(loop: For, sums: tuple[Summed, ...], size: int) -> tuple[For, Var]:
    """The loop over blocks of terms, and the variable of the one inside it."""
    both = [(s, s.partial(f"{s.buffer.name}.block", ())) for s in sums]
    outer, inner = Var(loop.var.name + "o"), Var(loop.var.name + "i")
    at: dict[Expr, Node] = {loop.var: loop.begin + outer * size + inner}
    terms = [s.leaf("terms", s.added(p, (), substitute(s.term, at))) for s, p in both]
    turn = seq(
        *(x for s, p in both for x in (Alloc(p), s.leaf("start", Store(p, (), s.start)))),
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
        if any(loop.var in variables_of(i) or stored & {ld.buffer for ld in loads_of(i)} for i in s.target):
            why = f"block {s.block.name} does not sum over it: each iteration has a place of its own"
            raise refusal(function, what, loop, why=why, fix="vectorize it")
    return found


def _whole(loop: For, size: int) -> Expr:
    return simplify(extent_of(loop) // size)


def _left_over(loop: For, size: int) -> For | None:
    """The loop over the tail beyond whole parts of `size` iterations; None if there is none."""
    extent = extent_of(loop)
    if isinstance(extent, Const) and extent.value % size == 0:
        return None
    return loop.replace(begin=simplify(loop.begin + _whole(loop, size) * size))


def _done(function: Function, loop: For, made: tuple[Stmt, ...], variables: tuple[Var, ...], size: int) -> Step:
    """The step that replaces a loop by statements, with a loop over the tail after them."""
    rest = _left_over(loop, size)
    if rest is not None:
        tail = fresh_blocks(function, fresh_copy(rest), ".tail")
        assert isinstance(tail, For)
        rest, made = tail, (*made, tail)
    handles = (*variables, None if rest is None else rest.var)
    return rewritten(function, loop, seq(*made), handles, "its sums may be added up in any order")
