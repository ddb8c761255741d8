"""Loop nests in vectors of points: those beside the tiles that a template made.

In: a schedule whose main nest is tiled. Out: its other nests vectorized, merged where they are one loop, with no more
of a buffer than an iteration needs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from tilewright.expr.nodes import Var
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Alloc, For, LoopKind
from tilewright.plan.nests.points import apply_points, choose_points, holds_points
from tilewright.report.errors import UserError
from tilewright.schedule.find import nests
from tilewright.schedule.loops.merge import merge_neighbours
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def schedule_beside(s: Schedule, target: Target) -> None:
    """The nests beside a tiled one: vectors of points, in its outermost loop where each iteration keeps to itself, with
    no more of a buffer than an iteration needs."""
    beside = [nest for nest in nests(s.func) if not isinstance(nest, Alloc)]
    if not any(isinstance(n, For) and _is_plain(n) for n in beside) and len(merge_neighbours(beside)) == len(beside):
        return
    made: list[Var | None] = []
    for loop, nest in named_nests(s):
        plain = _is_plain(nest)
        made.append(or_as_it_is(s, loop, partial(points, s, nest, target)) if plain else loop)
    before = s.func
    merge(s, made, locals_first=True)
    if s.func is not before:
        for name in [nest.buffer.name for nest in nests(s.func) if isinstance(nest, Alloc)]:
            with suppress(UserError):
                s.compact(name)


def points(s: Schedule, nest: For, target: Target) -> Var | None:
    """A nest of points in vectors."""
    return apply_points(s, nest, choose_points(nest, target))


def named_nests(s: Schedule) -> list[tuple[Var, For]]:
    """The nests of a program, which the trace then knows by their outermost loops."""
    found = [nest for nest in nests(s.func) if isinstance(nest, For)]
    if found:
        s.get_nests()
    return [(nest.var, nest) for nest in found]


def merge(s: Schedule, made: list[Var | None], locals_first: bool = False) -> None:
    """Neighbouring nests become one, those that are one loop."""
    loops = [loop for loop in made if loop is not None]
    if len(loops) > 1:
        s.merge_loops(*loops, **({"locals_first": True} if locals_first else {}))


def or_as_it_is(s: Schedule, loop: Var, steps: Callable[[], Var | None]) -> Var | None:
    """The outermost loop of a nest after some steps, where it holds all of the nest. A nest stays as it is whose
    iterations are not known to be independent, and the schedule remembers why."""
    refused = len(s.refused)
    made: Var | None = s.attempt(steps)
    return loop if len(s.refused) > refused else made


def _is_plain(nest: For) -> bool:
    """Whether a nest is points in loops that nothing was said of."""
    return all(s.kind is LoopKind.SERIAL for s in statements(nest) if isinstance(s, For)) and holds_points(nest)
