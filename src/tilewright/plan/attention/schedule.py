"""The schedule of attentions: scores of a block of rows lie in the near caches, and all that rows need is done to them.

    parallel for b, h:
      kp, vp = panels of the head's keys and values
      for blocks of R rows:
        s[R, keys] = f(q · kp)            a tile in registers at a time; f is what is done to scores point by point
        for r in R: row r of p = softmax(row r of s)
        y = g(p · vp)                     a tile in registers at a time, stored to its place

Both products are tiled like any other contraction, inside a block of rows. Steps in between are whatever maps and
reductions of rows stand between two products: a kernel is an attention by its shape, not by what it computes. Maps are
in vectors, reductions are vectors of partial results, which are halved at the end:

    for r in 0..4, k in 0..n: t[r] = max(t[r], s[r, k])   =>   for ko: for r: p[r, 0..8] = max(p[r], s[r, ko*8 ..])
                                                               p4[r] = max(p[r, 0..4], p[r, 4..8]), p2 = …, t = …

Rows side by side hide what a reduction of one waits for; of one alone several vectors do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr.nodes import Var
from tilewright.loops.edit import allocations, blocks
from tilewright.loops.nodes import LoopKind, Store
from tilewright.plan.attention.shape import Attention
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.price.contraction import RegisterTile
from tilewright.plan.tile.loops import (
    extent,
    hold_sums,
    is_bounded,
    loops_of,
    order_tile,
    ordered,
    panel_over_the_edge,
    split_tile,
    write_out,
    write_out_terms,
)
from tilewright.plan.tile.packing import fill_panels, local_bytes, pack
from tilewright.schedule.find import find_block, find_loop, stored_buffers, writers_of
from tilewright.schedule.schedule import Schedule
from tilewright.types.scopes import MOST_BYTES, Scope


@dataclass(frozen=True, slots=True)
class Choice:
    """The register tiles of the scores and of the second product; the rows of a block; and whether blocks may overlap,
    so that only heads are shared by threads: rows left over then make a block together with rows of the one before.
    Reductions of so many rows, or of one row in so many vectors, run side by side (`together`, `chains`). Of both
    products so many `terms` are written out."""

    scores: RegisterTile
    sums: RegisterTile
    rows: int
    overlap: bool
    together: int
    chains: int
    terms: tuple[int, int] = (1, 1)


def apply_choice(s: Schedule, found: Attention, choice: Choice) -> Schedule:
    """The steps that a choice stands for."""
    batch = [v for v in s.get_loops(found.write) if v not in (found.row, found.column)]
    s.reorder(*batch, found.row, found.column)
    rows, _ = s.split(found.row, choice.rows, tail="shift" if choice.overlap else "mask")
    tiles = ((found.first, choice.scores), (found.second, choice.sums))
    panels = [pack(s, dot, dot.vector, dot.columns, tile.columns) for dot, tile in tiles]
    _gather(s, found, rows, choice.together)
    _place_operands(s, found, batch, rows, panels, choice.scores.lanes)
    whole = set() if batch else {b.name for panel in panels for b in stored_buffers(find_block(s.func, panel))}
    for name in [b.name for b in allocations(s.func.body) if b.scope is Scope.ARENA and b.name not in whole]:
        s.compact(name)
    for panel in panels:
        fill_panels(s, panel, loops_of(s, panel, -3))
    _tile(s, found.first, found.scores, choice.scores, choice.terms[0])
    _tile(s, found.second, found.write, choice.sums, choice.terms[1])
    for name in found.between:
        _in_lanes(s, name, choice.scores.lanes, choice.chains)
    for buffer in allocations(s.func.body):
        if buffer.scope is Scope.ARENA and local_bytes(buffer) <= MOST_BYTES[Scope.STACK]:
            s.set_scope(buffer.name, "stack" if local_bytes(buffer) > buffer.dtype.bytes else "register")
    shared = batch if choice.overlap else [*batch, rows]
    if shared:
        s.parallel(ordered({v: extent(s, v) for v in shared})[0])
    return s


def _gather(s: Schedule, found: Attention, rows: Var, together: int) -> None:
    """Everything is computed for a block of rows. Steps of rows that feed one map share its loop over rows, a few of
    them at a time, and so do reductions of what it stores."""
    s.compute_at(found.dots[1], rows)
    place: dict[str, Var] = {}
    for block in reversed(found.between):
        readers = s.get_consumers(block)
        near = {place.get(r) for r in readers}
        loop = near.pop() if len(near) == 1 else None
        s.compute_at(block, loop if loop is not None else rows)
        if loop is None and not find_block(s.func, block).reduce:
            inside = s.get_loops(block)
            place[block], _ = s.split(inside[inside.index(rows) + 1], together)
        elif loop is not None:
            place[block] = loop
    for block in [b for b in found.between if b not in place]:
        made = {place[p] for p in s.get_producers(block) if p in place}
        if len(made) == 1:
            s.reverse_compute_at(block, made.pop())
    for block in (found.scores, found.dots[0]):
        s.compute_at(block, rows)


def _place_operands(s: Schedule, found: Attention, batch: list[Var], rows: Var, panels: list[str], lanes: int) -> None:
    """Panels of keys and values are made once for each head; rows that are scaled, once for each block."""
    for panel in panels if batch else []:
        s.compute_at(panel, batch[-1])
    for block in [b.name for b in writers_of(s.func, found.first.broadcast.buffer) if isinstance(b.body, Store)]:
        s.compute_at(block, rows)
        s.vectorize(s.split(s.get_loops(block)[-1], lanes, tail="mask")[1])


def _tile(s: Schedule, found: Contraction, write: str, tile: RegisterTile, terms: int) -> None:
    """A tile of a product is summed up in registers, and what is stored of it is computed from these."""
    dot = found.block.name
    *_, row, column, term = s.get_loops(dot)
    panels, tiles, inner, vectors, lane = split_tile(s, row, column, tile)
    order_tile(s, [panels, tiles, term], [inner, vectors, lane])
    (sums,) = stored_buffers(find_block(s.func, dot))
    hold_sums(s, sums.name, [write], tiles)
    write_out_terms(s, [term], tile, terms)
    along = {write: write_out(s, write, tiles, tile), dot: vectors}
    for name in (dot, *panel_over_the_edge(s, found, tile, panels, along, not found.vector.is_constant)):
        block = find_block(s.func, name)
        if block.reduce and block.where is not None:
            s.pad(name)


def _in_lanes(s: Schedule, name: str, lanes: int, chains: int) -> None:
    """The innermost loop of a block of a few rows in vectors. A reduction has so many `chains` of vectors, which hide
    the cycles of an addition."""
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
    beside = [v for v in rows if extent(s, v) <= chains]
    width, terms = lanes, extent(s, loop)
    while not beside and width < chains * lanes and 2 * width <= terms:
        width *= 2
    outer, inner = s.split(loop, width, tail="mask")
    part = _factor(s, name, inner, width, lanes)
    if beside:
        s.reorder(outer, *beside)
    _unroll(s, part, [*outside, *(v for v in rows if v not in beside), outer])
    _whole_apart(s, part, outer)
    while width > 2:
        width //= 2
        _, inner = s.split(s.get_loops(name)[-1], width)
        _unroll(s, _factor(s, name, inner, width, lanes), outside)
    _unroll(s, name, outside)


def _factor(s: Schedule, name: str, loop: Var, width: int, lanes: int) -> str:
    """Partial results for each iteration of a loop, in registers and in vectors. Returns the block's name."""
    part: str = s.rfactor(name, loop, axis=len(find_block(s.func, name).spatial))[0]
    (made,) = stored_buffers(find_block(s.func, part))
    inner = s.get_loops(part)[-1]
    if width > lanes:
        _, inner = s.split(inner, lanes)
    s.vectorize(inner)
    s.set_scope(made.name, "register")
    return part


def _unroll(s: Schedule, name: str, outside: Sequence[Var]) -> None:
    """The loops around a block but for those `outside`, and for lanes, written out."""
    for loop in s.get_loops(name):
        if loop not in outside and find_loop(s.func, loop).kind is LoopKind.SERIAL:
            s.unroll(loop)


def _whole_apart(s: Schedule, name: str, loop: Var) -> None:
    """Iterations in which no condition on their own number fails, in a loop of their own."""
    if is_bounded(s, name, loop) and extent(s, loop) > 1:
        if find_block(s.func, name).init is not None:
            s.decompose_reduction(name, loop)
        s.partition(loop)
