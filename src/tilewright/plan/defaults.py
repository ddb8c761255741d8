"""The default schedule of a kernel.

inline        every local value that is defined point by point
cache_write   accumulations into an argument run in a local buffer
compute_at    local buffers shrink into the loop that reads them
then, for each loop nest: register tiles, lanes along a reduce axis, or plain vectors of points
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tilewright.expr import dtypes
from tilewright.loops.decompose import decompose
from tilewright.loops.edit import blocks, statements
from tilewright.loops.nodes import Alloc, For, Function, LoopKind, Stmt, Store, seq
from tilewright.plan.attention_schedule import schedule_attention
from tilewright.plan.contraction_schedule import schedule_contraction
from tilewright.plan.decision import Attempts, Decision
from tilewright.plan.depthwise_schedule import schedule_depthwise
from tilewright.plan.dot_schedule import schedule_dots
from tilewright.plan.dot_windows import schedule_dot_windows
from tilewright.plan.joint_sums import join_sums
from tilewright.plan.local_buffers import pull_producers
from tilewright.plan.partial_sums import in_parts
from tilewright.plan.pieces import in_pieces
from tilewright.plan.rows import block_long_sums, reduces_contiguously, schedule_rows, whole_rows
from tilewright.plan.spatial import schedule_points
from tilewright.plan.tiles import schedule_tile
from tilewright.plan.winograd_schedule import schedule_winograd
from tilewright.report.errors import UserError
from tilewright.schedule.cache_write import Obstacle, write_through, written_elements
from tilewright.schedule.compact import compact
from tilewright.schedule.find import nests, stored_buffers
from tilewright.schedule.inline import inline_all
from tilewright.schedule.merge import merge_neighbours
from tilewright.schedule.nests import has_branches
from tilewright.schedule.reduce import accumulation
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

NESTS = "nests"
"""What decisions call kernels that are scheduled nest by nest."""


@dataclass(frozen=True, slots=True)
class _Template:
    """A way to schedule a kernel of some shape. `whole` ones place every nest of it; the nests beside the tiles of all
    others are scheduled afterwards. Where one that is `alone` in knowing such kernels refuses, these run in pieces."""

    name: str
    schedule: Callable[[], Schedule | None]
    whole: bool = False
    alone: bool = False


def default_schedule(function: Function, target: Target) -> Function:
    """The function scheduled for `target`: it computes the same (sums may be added up in another order)."""
    return scheduled(function, target)[0]


def scheduled(function: Function, target: Target) -> tuple[Function, Decision]:
    """The function scheduled for `target`, and how it came to its schedule."""
    attempts = Attempts()
    for template in (
        _Template("attention", lambda: schedule_attention(function, target), whole=True, alone=True),
        _Template("winograd", lambda: schedule_winograd(function, target), whole=True),
        _Template("depthwise", lambda: schedule_depthwise(function, target)),
        _Template("dots", lambda: schedule_dots(function, target)),
        _Template("dot windows", lambda: schedule_dot_windows(function, target)),
        _Template("contraction", lambda: schedule_contraction(function, target, attempts)),
    ):
        made = attempts.schedule(template.name, template.schedule)
        if made is not None:
            done = made.func if template.whole else _around_tiles(made.func, target)
            return done, attempts.decision(NESTS, made.trace if done is made.func else None)
        if template.alone and attempts.refusals:
            return in_pieces(function, attempts.refusals, lambda piece: scheduled(piece, target))
    return _by_nests(function, target), attempts.decision(NESTS)


def _by_nests(function: Function, target: Target) -> Function:
    """The schedule of kernels that no template is for."""
    function = inline_all(function, once=any(b.reduce for b in blocks(function.body)))
    function = _accumulate_locally(function)
    function = pull_producers(function)
    function = in_parts(function)
    function = decompose(function)
    joined = join_sums(nests(function))
    made = [nest if isinstance(nest, Alloc) else _schedule_nest(nest, target) for nest in joined]
    return function.replace(body=seq(*merge_neighbours(made)))


def _around_tiles(function: Function, target: Target) -> Function:
    """The nests beside a tiled contraction: vectors of points, in its outermost loop where each iteration keeps to
    itself, with no more of a buffer than an iteration needs."""
    made: list[Stmt] = []
    for nest in nests(function):
        plain = isinstance(nest, For) and all(s.kind is LoopKind.SERIAL for s in statements(nest) if isinstance(s, For))
        made.append(schedule_points(nest, _lanes(nest, target)) if plain else nest)
    places = [*(s for s in made if isinstance(s, Alloc)), *(s for s in made if not isinstance(s, Alloc))]
    merged = merge_neighbours(places)
    if len(merged) == len(places):
        return function.replace(body=seq(*made))
    function = function.replace(body=seq(*merged))
    for alloc in [s for s in merged if isinstance(s, Alloc)]:
        with suppress(UserError):
            function = compact(function, alloc.buffer.name).function
    return function


def _accumulate_locally(function: Function) -> Function:
    """Accumulations straight into an argument get a local buffer."""
    for nest in nests(function):
        inside = blocks(nest)
        if len(inside) == 1 and inside[0].reduce and isinstance(inside[0].body, Store):
            buffer, points = inside[0].body.buffer, tuple(a.var for a in inside[0].spatial)
            if buffer.scope is Scope.ARGUMENT and stored_buffers(nest) == {buffer} and inside[0].body.indices == points:
                stored = written_elements(function, nest, buffer)
                if not isinstance(stored, Obstacle):
                    function, _ = write_through(function, nest, buffer, stored)
    return function


def _schedule_nest(nest: Stmt, target: Target) -> Stmt:
    """Register tiles where an output axis of an accumulation vectorizes; else row by row, or point by point."""
    lanes = _lanes(nest, target)
    if has_branches(nest) or any(not isinstance(b.body, Store) for b in blocks(nest)):
        return nest
    reducing = [b for b in blocks(nest) if b.reduce]
    if any(accumulation(b) is None for b in reducing):
        return nest
    if reducing:
        nest = whole_rows(nest)
        if reduces_contiguously(nest, lanes):
            return schedule_tile(nest, lanes, target) or schedule_rows(nest, lanes)
        nest = block_long_sums(nest)
        tiled = schedule_tile(nest, lanes, target) or schedule_tile(nest, max(lanes // 2, 2), target)
        return tiled or schedule_rows(nest, lanes)
    return schedule_points(nest, lanes)


def _lanes(nest: Stmt, target: Target) -> int:
    """Lanes for the widest element type that the nest stores, at most those of f32."""
    widest = max((s.buffer.dtype.bits for s in statements(nest) if isinstance(s, Store)), default=32)
    return max(target.vector_bits // max(widest, dtypes.f32.bits), 2)
