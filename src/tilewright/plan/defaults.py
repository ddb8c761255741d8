"""The default schedule of a kernel.

inline_all             every local value that is defined point by point
cache_write            accumulations into an argument run in a local buffer
pull_producers         local buffers shrink into the loop that reads them
sum_in_parts           long sums to one place, for threads to share
decompose_reductions   sums begin in blocks of their own
join_sums              sums that read the same run in one loop
then, for each loop nest: tile_registers, sum_in_lanes or vectorize_points; and merge_loops

Kernels of some shapes have templates instead (schedules of contractions, attentions, …). Whatever made it, a schedule
is the trace of its steps: replayed on the kernel it gives the same program."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewright.expr import dtypes
from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks, statements
from tilewright.loops.nodes import Alloc, For, Function, LoopKind, Stmt, Store
from tilewright.plan.attention.pieces import in_pieces
from tilewright.plan.attention.schedule import schedule_attention
from tilewright.plan.decision import Attempts, Decision
from tilewright.plan.dot.products import schedule_dots
from tilewright.plan.dot.windows import schedule_dot_windows
from tilewright.plan.gemm.schedule import schedule_contraction
from tilewright.plan.nests.partial_sums import sum_long_in_parts
from tilewright.plan.nests.tiles import narrower, tile_for
from tilewright.plan.transforms.strassen import schedule_strassen
from tilewright.plan.transforms.winograd import schedule_winograd
from tilewright.plan.window.channels_last import schedule_depthwise_inner
from tilewright.plan.window.depthwise import schedule_depthwise
from tilewright.plan.window.pool import schedule_pool
from tilewright.report.errors import UserError
from tilewright.schedule.find import nests, stored_buffers
from tilewright.schedule.merge import merge_neighbours
from tilewright.schedule.nests import has_branches
from tilewright.schedule.points import holds_points
from tilewright.schedule.reduce import accumulation
from tilewright.schedule.rows import prepared, reduces_contiguously
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

NESTS = "nests"
"""What decisions call kernels that are scheduled nest by nest."""

SUM_BLOCK = 32
"""Terms that are added up by themselves in a long sum: few enough that rounding errors stay small."""


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
    return schedule(function, target)[0].func


def scheduled(function: Function, target: Target) -> tuple[Function, Decision]:
    """The function scheduled for `target`, and how it came to its schedule."""
    made, decision = schedule(function, target)
    return made.func, decision


def schedule(function: Function, target: Target) -> tuple[Schedule, Decision]:
    """The schedule of a function for `target`, whose trace makes it of the function again, and how it was chosen."""
    attempts = Attempts()
    for template in (
        _Template("attention", lambda: schedule_attention(function, target), whole=True, alone=True),
        _Template("winograd", lambda: schedule_winograd(function, target), whole=True),
        _Template("strassen", lambda: schedule_strassen(function, target), whole=True),
        _Template("depthwise", lambda: schedule_depthwise(function, target)),
        _Template("depthwise inner", lambda: schedule_depthwise_inner(function, target)),
        _Template("pool", lambda: schedule_pool(function, target)),
        _Template("dot windows", lambda: schedule_dot_windows(function, target)),
        _Template("dots", lambda: schedule_dots(function, target)),
        _Template("contraction", lambda: schedule_contraction(function, target, attempts)),
    ):
        made = attempts.schedule(template.name, template.schedule)
        if made is not None:
            if not template.whole:
                _around_tiles(made, target, attempts)
            return made, attempts.decision(NESTS)
        if template.alone and attempts.refusals:
            return in_pieces(function, attempts.refusals, lambda piece: schedule(piece, target))
    return _by_nests(function, target, attempts), attempts.decision(NESTS)


def _by_nests(function: Function, target: Target, attempts: Attempts) -> Schedule:
    """The schedule of kernels that no template is for."""
    s = Schedule(function)
    s.inline_all(once=any(b.reduce for b in blocks(function.body)))
    _accumulate_locally(s)
    s.pull_producers()
    sum_long_in_parts(s)
    s.decompose_reductions()
    s.join_sums()
    made = [_or_as_it_is(attempts, v, partial(_schedule_nest, s, v, nest, target)) for v, nest in _nests(s)]
    _merge(s, made)
    return s


def _nests(s: Schedule) -> list[tuple[Var, For]]:
    """The nests of a program, which the trace then knows by their outermost loops."""
    found = [nest for nest in nests(s.func) if isinstance(nest, For)]
    if found:
        s.get_nests()
    return [(nest.var, nest) for nest in found]


def _merge(s: Schedule, made: list[Var | None], locals_first: bool = False) -> None:
    """Neighbouring nests become one, those that are one loop."""
    loops = [loop for loop in made if loop is not None]
    if len(loops) > 1:
        s.merge_loops(*loops, **({"locals_first": True} if locals_first else {}))


def _around_tiles(s: Schedule, target: Target, attempts: Attempts) -> None:
    """The nests beside a tiled contraction: vectors of points, in its outermost loop where each iteration keeps to
    itself, with no more of a buffer than an iteration needs."""
    beside = [nest for nest in nests(s.func) if not isinstance(nest, Alloc)]
    if not any(isinstance(n, For) and _is_plain(n) for n in beside) and len(merge_neighbours(beside)) == len(beside):
        return
    made: list[Var | None] = []
    for loop, nest in _nests(s):
        step = partial(s.vectorize_points, loop, lanes=_lanes(nest, target))
        made.append(_or_as_it_is(attempts, loop, step) if _is_plain(nest) else loop)
    before = s.func
    _merge(s, made, locals_first=True)
    if s.func is not before:
        for name in [nest.buffer.name for nest in nests(s.func) if isinstance(nest, Alloc)]:
            with suppress(UserError):
                s.compact(name)


def _is_plain(nest: For) -> bool:
    """Whether a nest is points in loops that nothing was said of."""
    return all(s.kind is LoopKind.SERIAL for s in statements(nest) if isinstance(s, For)) and holds_points(nest)


def _accumulate_locally(s: Schedule) -> None:
    """Accumulations straight into an argument get a local buffer."""
    for nest in nests(s.func):
        inside = blocks(nest)
        if len(inside) == 1 and inside[0].reduce and isinstance(inside[0].body, Store):
            buffer, points = inside[0].body.buffer, tuple(a.var for a in inside[0].spatial)
            if buffer.scope is Scope.ARGUMENT and stored_buffers(nest) == {buffer} and inside[0].body.indices == points:
                with suppress(UserError):
                    s.cache_write(inside[0].name)


def _or_as_it_is(attempts: Attempts, loop: Var, step: Callable[[], Var | None]) -> Var | None:
    """The outermost loop of a nest after a step, where it holds all of the nest. A nest stays as it is whose iterations
    are not known to be independent, and that is written down."""
    try:
        return step()
    except UserError as error:
        attempts.refuse(NESTS, error)
        return loop


def _schedule_nest(s: Schedule, loop: Var, nest: For, target: Target) -> Any:
    """Register tiles where an output axis of an accumulation vectorizes; else row by row, or point by point."""
    lanes = _lanes(nest, target)
    if has_branches(nest) or any(not isinstance(b.body, Store) for b in blocks(nest)):
        return loop
    reducing = [b for b in blocks(nest) if b.reduce]
    if any(accumulation(b) is None for b in reducing):
        return loop
    if not reducing:
        return s.vectorize_points(loop, lanes=lanes) if holds_points(nest) else loop
    block = 0 if reduces_contiguously(prepared(nest, 0), lanes) else SUM_BLOCK
    long = {"blocks_of": block} if block else {}
    for width in narrower(lanes) if long else (lanes,):
        tile = tile_for(prepared(nest, block), width, target)
        if tile is not None:
            return s.tile_registers(loop, lanes=width, **tile, **long)
    return s.sum_in_lanes(loop, lanes=lanes, **long)


def _lanes(nest: Stmt, target: Target) -> int:
    """Lanes for the widest element type that the nest stores, at most those of f32."""
    widest = max((s.buffer.dtype.bits for s in statements(nest) if isinstance(s, Store)), default=32)
    return max(target.vector_bits // max(widest, dtypes.f32.bits), 2)
