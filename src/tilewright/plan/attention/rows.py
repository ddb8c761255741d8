"""Steps of rows, in lanes: maps in vectors, reductions as vectors of partial results, which are halved at the end.

    for r in 0..4, k in 0..n: t[r] = max(t[r], s[r, k])   =>   for ko: for r: p[r, 0..8] = max(p[r], s[r, ko*8 ..])
                                                               p4[r] = max(p[r, 0..4], p[r, 4..8]), p2 = …, t = …

Rows side by side hide what a reduction of one waits for; of one alone several vectors do.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr.nodes import Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import allocations, blocks
from tilewright.loops.nodes import LoopKind
from tilewright.plan.price.sizes import known
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.facts.predicates import conjuncts, resolved
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.schedule import Schedule


def in_lanes(s: Schedule, names: Sequence[str], lanes: int, chains: int) -> None:
    """The innermost loops of blocks of a few rows each, in vectors. Reductions have so many `chains` of vectors, which
    hide the cycles of an addition."""
    for name in names:
        own = [v for v in s.get_loops(name) if [b.name for b in blocks(find_loop(s.func, v))] == [name]]
        if find_block(s.func, name).reduce:
            _partial(s, name, own, lanes, chains)
        elif own:
            vectors, lane = s.split(own[-1], lanes, tail="mask")
            s.vectorize(lane)
            _whole_apart(s, name, vectors)


def _partial(s: Schedule, name: str, own: Sequence[Var], lanes: int, chains: int) -> None:
    """A reduction of rows, in loops of its own over these and its terms, as one of vectors."""
    *rows, loop = own
    outside = [v for v in s.get_loops(name) if v not in own]
    beside = [v for v in rows if known(extent_of(find_loop(s.func, v))) <= chains]
    width, terms = lanes, known(extent_of(find_loop(s.func, loop)))
    while not beside and width < chains * lanes and 2 * width <= terms:
        width *= 2
    outer, inner = s.split(loop, width, tail="mask")
    part = _factor(s, name, inner, width, lanes)
    if beside:
        s.reorder(outer, *beside)
    _write_out(s, part, [*outside, *(v for v in rows if v not in beside), outer])
    _whole_apart(s, part, outer)
    while width > 2:
        width //= 2
        _, inner = s.split(s.get_loops(name)[-1], width)
        _write_out(s, _factor(s, name, inner, width, lanes), outside)
    _write_out(s, name, outside)


def _factor(s: Schedule, name: str, loop: Var, width: int, lanes: int) -> str:
    """Partial results for each iteration of a loop, in registers and in vectors. Returns the block's name."""
    before = {b.name for b in allocations(s.func.body)}
    part: str = s.rfactor(name, loop, axis=len(find_block(s.func, name).spatial))[0]
    (made,) = (b.name for b in allocations(s.func.body) if b.name not in before)
    inner = s.get_loops(part)[-1]
    if width > lanes:
        _, inner = s.split(inner, lanes)
    s.vectorize(inner)
    s.set_scope(made, "register")
    return part


def _write_out(s: Schedule, name: str, outside: Sequence[Var]) -> None:
    """The loops around a block but for those `outside`, and for lanes, written out."""
    for loop in s.get_loops(name):
        if loop not in outside and find_loop(s.func, loop).kind is LoopKind.SERIAL:
            s.unroll(loop)


def _whole_apart(s: Schedule, name: str, loop: Var) -> None:
    """Iterations in which no condition on their own number fails, in a loop of their own."""
    block = find_block(s.func, name)
    about = [c for c in conjuncts(block.where) if loop in variables_of(resolved(block, c) or c)]
    if about and known(extent_of(find_loop(s.func, loop))) > 1:
        if block.init is not None:
            s.decompose_reduction(name, loop)
        s.partition(loop)
