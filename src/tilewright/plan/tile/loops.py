"""The loops of a block by the axes that they run over; loops cut in parts, at places or where an image ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.expr.build import conjuncts
from tilewright.expr.linear import affine_in
from tilewright.expr.nodes import Expr, Var
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import blocks
from tilewright.plan.price.sizes import LARGE, known
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.facts.known import bound
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.schedule import Schedule


def loops_of(s: Schedule, block: str, axis: int) -> list[Var]:
    """The loops that a spatial axis is bound to, innermost first: none where it has one value."""
    used = variables_of(find_block(s.func, block).spatial[axis].binding)
    return [v for v in reversed(s.get_loops(block)) if v in used]


def loop_of(s: Schedule, block: str, axis: int) -> Var:
    """The innermost loop that a spatial axis, of several values, is bound to."""
    return loops_of(s, block, axis)[0]


def extent(s: Schedule, loop: Var) -> int:
    """The iterations of a loop, as a number."""
    return known(extent_of(find_loop(s.func, loop)))


def inside(where: Expr | None, axis: Var, step: int = 1) -> tuple[int, int]:
    """The first value of an axis from which on a condition holds, and the first beyond for which it may not. The axis
    counts by `step`, and what is between is counted by another one."""
    first, end = 0, LARGE
    for cond in conjuncts(where):
        p = bound(cond)
        found = affine_in(p, axis) if p is not None else None
        if found is None or set(found[0]) != {()}:
            continue
        number = found[1].get((), 0)
        if found[0][()] == step:
            first = max(first, -(number // step))
        elif found[0][()] == -step:
            end = min(end, (number + 1) // step)
    return first, end


def cut_at(s: Schedule, loop: Var, places: Sequence[int]) -> list[Var]:
    """The loop cut at those of the places, in order, that lie inside it."""
    made: list[Var] = []
    end = extent(s, loop)
    for place in places:
        if 0 < place < end:
            first, loop = s.partition(loop, place)
            made.append(first)
    return [*made, loop]


def between(s: Schedule, loop: Var, places: tuple[int, int]) -> Var:
    """The loop cut at two places, where they lie inside it. Returns the part between them."""
    return cut_at(s, loop, places)[int(places[0] > 0)]


def in_vectors(s: Schedule, loop: Var, lanes: int) -> tuple[Var, Var]:
    """The loop split into vectors of at most so many lanes, halved until they fit it; the last one is moved back to
    where the loop ends."""
    while lanes > extent(s, loop):
        lanes //= 2
    vectors, lane = s.split(loop, lanes, tail="shift")
    return vectors, lane


def copied_by(s: Schedule, step: Callable[..., Any], *arguments: Any) -> list[str]:
    """Takes a step. Returns the names of the blocks that it made: the copies in the loops behind a cut."""
    before = {b.name for b in blocks(s.func.body)}
    step(*arguments)
    return [b.name for b in blocks(s.func.body) if b.name not in before]
