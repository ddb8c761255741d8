"""How a nest runs: as one tile, or row by row in passes, each a tile of points or sums in lanes; and how the nests
beside another template's tiles run.

    for i in 0..n: { m = -inf; for k: m = max(m, x[i, k]); s = 0; for k: s = s + exp(x[i, k] - m); for k: y[i, k] = … }

becomes a loop over rows, in which each pass over a row is vectorized. Threads share the outermost loop of a nest
(lower/kernels/share_out.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

from tilewright.analysis.iterations import holds_points, is_schedulable, is_spatial, summed_in
from tilewright.analysis.movement import reduces_contiguously
from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks, loops_inside, perfect_nest, statements
from tilewright.loops.nodes import Alloc, For, LoopKind, Seq, Stmt
from tilewright.plan.nests.sums import join_pieces
from tilewright.plan.nests.tiles import Tile, apply_tile, choose_points, choose_sums, lanes_of
from tilewright.plan.price.points import chains
from tilewright.report.errors import UserError
from tilewright.schedule.find import find_loop, nests
from tilewright.schedule.loops.merge import merged_nests
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.abilities import SHORTEST_LANES


@dataclass(frozen=True, slots=True)
class Pass:
    """How a loop runs, which has a number among the loops of a nest: as a tile, or its sums in so many lanes."""

    loop: int
    tile: Tile | None = None
    lanes: int = 0


Nest = tuple[Pass, ...]
"""The loops of a nest that run in vectors."""


def choose_nest(nest: For, target: Target) -> Nest:
    """Tiles where an axis of points or accumulations vectorizes; else row by row; else the nest stays as it is."""
    if not is_schedulable(nest):
        return ()
    if not any(b.reduce for b in blocks(nest)):
        return (Pass(0, choose_points(nest, target)),) if holds_points(nest) else ()
    lanes = lanes_of(nest, target)
    widths = [lanes]
    if not reduces_contiguously(nest, lanes):
        least = max(min(SHORTEST_LANES, lanes // 2), 2)
        widths += [n for n in (lanes // 2, lanes // 4) if n >= least]
    tile = next((t for t in (choose_sums(nest, n, target) for n in widths) if t is not None), None)
    return _choose_rows(nest, lanes, target) if tile is None else (Pass(0, tile),)


def _choose_rows(nest: Stmt, lanes: int, target: Target) -> Nest:
    """Vectors for every pass over a row that has them."""
    loops, body = perfect_nest(nest)
    spatial = list(takewhile(is_spatial, loops))
    inner: Stmt = loops[len(spatial)] if len(spatial) < len(loops) else body
    numbers = {loop: n for n, loop in enumerate(loops_inside(nest))}
    found: list[Pass] = []
    for part in inner.body if isinstance(inner, Seq) else (inner,):
        inside = loops_inside(part)
        if not all(map(is_spatial, inside)):
            sums = {loop: len(summed_in(loop)) for loop in inside}
            chosen = [loop for loop in inside if sums[loop] and reduces_contiguously(loop, lanes)]
            found += [Pass(numbers[v], lanes=_width(v.size, lanes, sums[v], target)) for v in chosen]
        elif holds_points(part):
            found.append(Pass(numbers[inside[0]], choose_points(part, target, lanes)))
    return tuple(found)


def _width(size: int | None, lanes: int, sums: int, target: Target) -> int:
    """The partial results of each sum that take the fewest steps, one addition after the other: of vectors, of what
    does not fill them, and of halves until one is left. As many vectors as hide the latency of an addition, of all
    sums together, run side by side."""
    most = max(chains(target) // sums, 1)
    if size is None:
        return lanes * most
    offered = [lanes * n for n in {most, min(most, 2), 1} if size >= lanes * n]
    return min(offered, key=lambda width: sum(divmod(size, width)) + width.bit_length(), default=lanes)


def apply_nest(s: Schedule, nest: For, chosen: Nest) -> Var | None:
    """The steps of a choice. Returns the outermost loop, where that holds all of the nest."""
    loops = loops_inside(nest)
    whole: Var | None = nest.var
    for one in reversed(chosen):
        loop, made = find_loop(s.func, loops[one.loop].var), None
        if one.tile is None:
            s.sum_in_lanes(loop.var, one.lanes)
        else:
            made = apply_tile(s, loop, one.tile)
        whole = made if one.loop == 0 else whole
    return whole


def apply_nests(s: Schedule, chosen: Iterable[Nest]) -> list[Var]:
    """The steps of a choice for each nest. Returns the outermost loops of those that are one loop then. A nest stays as
    it is whose iterations are not known to be independent, and the schedule remembers why."""
    found = [nest for nest in nests(s.func) if isinstance(nest, For)]
    if found:
        s.get_nests()
    made: list[Var | None] = []
    for nest, choice in zip(found, chosen, strict=True):
        refused = len(s.refused)
        outermost = s.attempt(apply_nest, s, nest, choice)
        made.append(nest.var if len(s.refused) > refused else outermost)
    return [var for var in made if var is not None]


def schedule_beside(s: Schedule, target: Target) -> None:
    """The nests beside a tiled one: vectors of points, in its outermost loop where each iteration keeps to itself, with
    no more of a buffer than an iteration needs."""
    beside = [nest for nest in nests(s.func) if not isinstance(nest, Alloc)]
    if not any(map(_is_plain, beside)) and len(merged_nests(beside)) == len(beside):
        return
    for number, nest in enumerate(nests(s.func)):
        if isinstance(nest, For) and _is_plain(nest):
            s.attempt(join_pieces, s, number)
    found = [nest for nest in nests(s.func) if isinstance(nest, For)]
    loops = apply_nests(s, [choose_nest(nest, target) if _is_plain(nest) else () for nest in found])
    before = s.func
    s.merge_loops(*loops)
    if s.func is not before:
        for name in [nest.buffer.name for nest in nests(s.func) if isinstance(nest, Alloc)]:
            with suppress(UserError):
                s.compact(name)


def _is_plain(nest: Stmt) -> bool:
    """Whether a nest is points in loops that nothing was said of."""
    return all(s.kind is LoopKind.SERIAL for s in statements(nest) if isinstance(s, For)) and holds_points(nest)
