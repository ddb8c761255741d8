"""The schedule of convolutions that keep channels apart, where channels are the innermost axis: a vector is channels of
one column, and a tile of columns is summed up in registers.

    for vectors of channels:
      for rows, tiles of C columns:
        t[C, lanes] = 0
        for rows a of the window:
          q[columns, lanes] = what the tile meets of a row of the image, zeros around it      in registers
          for c, b: t[c] += q[column of c at b] * w[a, b]
        y[…] = f(t)

The image is read where it lies: a vector is loaded once for all columns that meet it in a row of the window, and the
first cache holds the rows that the next tiles meet again. A padded copy would take as many stores as the image has
vectors, and the sums would wait for it. Where columns lie so far apart that the sets of the cache do not hold these
rows, the loop over channels is inside the loops over tiles, and what is next to what was read is read next.

Tiles at the edges are written out or have loops of their own: which of their columns are zeros is known then.

Functions like exp are long chains of instructions, and processors do not look far enough ahead to begin many of them:
where an epilogue calls such, two vectors of a tile are one of twice the length, which the instructions of both are
printed for side by side. What the epilogue reads is brought to registers before, what it makes stored from there.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.expr.nodes import Expr, Var
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import loads
from tilewright.loops.nodes import Function
from tilewright.plan.facts.contraction import begun
from tilewright.plan.tile.loops import extent, inside, loop_of, parts
from tilewright.plan.window.channels_last_choice import (
    InnerChoice,
    InnerWindows,
    Order,
    choose_inner,
    find_inner_windows,
)
from tilewright.schedule.find import find_block, stored_buffers
from tilewright.schedule.inline import all_inlined
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

ENOUGH_SHARES = 8
"""So many iterations of the outermost loop are shared evenly by a few threads."""

SHARES_OF_ROWS = 4
"""So many blocks of rows are made at least, where there are fewer vectors of channels than that."""

LEAST_ROWS = 7
"""Blocks of fewer rows would load most rows of the image again, or meet its edges all over."""


def schedule_depthwise_inner(function: Function, target: Target) -> Schedule | None:
    """The schedule of a kernel with one such convolution, of sizes known to the compiler; None for any other."""
    plain = all_inlined(function)
    windows = find_inner_windows(plain)
    choice = None if windows is None else choose_inner(windows, target)
    return None if windows is None or choice is None else apply_inner(begun(function, plain), windows, choice)


def apply_inner(s: Schedule, w: InnerWindows, choice: InnerChoice) -> Schedule:
    """The steps that a choice stands for."""
    last = s.cache_write(w.block) if w.out.scope is Scope.ARGUMENT else w.last
    made, last = (last, s.cache_write(last)) if choice.in_pairs else (None, last)
    pad = s.unite(w.source.name) if w.source.scope is not Scope.ARGUMENT else None
    loops = _tiles(s, w, choice, last)
    if made is not None:
        s.compute_at(made, loops.tile)
    s.compute_at(w.block, loops.tile)
    tap = _sum(s, w, choice)
    if made is not None:
        _in_pairs(s, w, choice, made, loops.tile)
    column = loop_of(s, last, w.image[1])
    _in_vectors(s, loop_of(s, last, -1), choice, together=w.calls)
    s.unroll(column)
    if pad is not None:
        rows = _hold(s, w, choice, pad, loops.tile if tap is None else tap)
        _apart_at_edges(s, w, choice, loops, rows)
    s.parallel(loops.shared)
    return s


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops over tiles: the one that threads share, those over `rows` and over the `columns` of tiles, and the
    innermost, an iteration of which is a tile."""

    shared: Var
    rows: Var
    columns: Var
    tile: Var


def _tiles(s: Schedule, w: InnerWindows, choice: InnerChoice, block: str) -> Loops:
    """The nest that is stored last, in tiles. Threads share channels or images or, where both are few, blocks of
    rows."""
    width = choice.vectors * choice.lanes
    channels, lane = s.split(loop_of(s, block, -1), width, **({"tail": "mask"} if w.channels % width else {}))
    row, column = (loop_of(s, block, n) for n in w.image)
    others = [v for v in s.get_loops(block) if v not in (channels, lane, row, column)]
    columns, column = s.split(column, choice.columns, tail="shift")
    if choice.order is Order.ROWS:
        s.reorder(*others, row, columns, channels, column, lane)
        return Loops(row, row, columns, channels)
    around = sorted([channels, *others], key=lambda v: -extent(s, v))
    if extent(s, around[0]) < ENOUGH_SHARES:
        size = next((n for n in range(w.height // SHARES_OF_ROWS, 0, -1) if w.height % n == 0), 0)
        if size >= LEAST_ROWS:
            some, row = s.split(row, size)
            around = [some, *around]
    s.reorder(*around, row, columns, column, lane)
    return Loops(around[0], row, columns, columns)


def _in_pairs(s: Schedule, w: InnerWindows, choice: InnerChoice, block: str, tiles: Var) -> None:
    """The epilogue of a tile over vectors of two columns, from registers to registers."""
    others = dict.fromkeys(ld.buffer.name for ld in loads(find_block(s.func, block)) if ld.buffer.name != w.out.name)
    read = [s.cache_read(block, name) for name in others]
    for name in read:
        s.compute_at(name, tiles)
    for name in (block, *read):
        (buffer,) = stored_buffers(find_block(s.func, name))
        s.compact(buffer.name)
        s.set_scope(buffer.name, "register")
    for name in read:
        loops = s.get_loops(name)
        several = [v for v in loops[loops.index(tiles) + 1 :] if extent(s, v) > 1]
        for loop in several:
            s.vectorize(loop) if loop is several[-1] else s.unroll(loop)
    pairs, lanes = s.split(s.fuse(loop_of(s, block, w.image[1]), loop_of(s, block, -1)), 2 * choice.lanes)
    s.vectorize(lanes)
    s.unroll(pairs)


def _sum(s: Schedule, w: InnerWindows, choice: InnerChoice) -> Var | None:
    """A tile's sums in registers, a row of the window written out; the loop over its rows, if it has several."""
    found = find_block(s.func, w.block)
    loops = s.get_loops(w.block)
    taps = [v for a in found.reduce for v in loops if v in variables_of(a.binding)]
    rows, places = (None if n is None else _bound(s, w.block, found.reduce[n].binding) for n in w.tap_axes)
    named = [v for v in (rows, places) if v is not None]
    column, lane = (loop_of(s, w.block, n) for n in (w.image[1], -1))
    order = [*(v for v in taps if v not in named), rows, column, places, lane]
    s.reorder(*(v for v in order if v is not None))
    (sums,) = stored_buffers(found)
    s.compact(sums.name)
    s.set_scope(sums.name, "register")
    _in_vectors(s, lane, choice)
    s.unroll(column)
    if places is not None:
        s.unroll(places)
    return rows


def _bound(s: Schedule, block: str, binding: Expr) -> Var:
    """The loop around a block that an axis is bound to."""
    return next(v for v in s.get_loops(block) if v in variables_of(binding))


def _in_vectors(s: Schedule, lane: Var, choice: InnerChoice, together: bool = False) -> None:
    """The channels of an iteration as one vector or, where each register is a vector of its own, written out."""
    if choice.vectors > 1 and not together:
        vectors, lane = s.split(lane, choice.lanes)
        s.unroll(vectors)
    s.vectorize(lane)


def _hold(s: Schedule, w: InnerWindows, choice: InnerChoice, pad: str, loop: Var) -> tuple[int, int]:
    """What a tile meets of a row of the image is loaded into registers, with the zeros around it. The rows of tiles
    that meet no zeros but at the sides."""
    s.compute_at(pad, loop)
    s.compact(w.source.name)
    s.set_scope(w.source.name, "register")
    row, column = w.source_image
    _in_vectors(s, loop_of(s, pad, -1), choice)
    s.unroll(loop_of(s, pad, column))
    s.guard(pad)
    found = find_block(s.func, pad)
    first, end = inside(found, found.spatial[row].var, 1)
    reach = (w.taps[0] - 1) * w.apart[0]
    return -(-first // w.steps[0]), (end - 1 - reach) // w.steps[0] + 1


def _apart_at_edges(s: Schedule, w: InnerWindows, choice: InnerChoice, loops: Loops, rows: tuple[int, int]) -> None:
    """The tiles at the edges of the image by themselves: those between meet no zeros. Masks are programs of their own,
    for tiles at each edge again: there tiles ask which of their columns are zeros."""
    count = extent(s, loops.columns)
    if count > 1 and w.channels % choice.lanes == 0:
        if count > 2:
            parts(s, loops.columns, (1, count - 1))
        else:
            s.unroll(loops.columns)
    if choice.rows_apart and loops.shared is not loops.rows and extent(s, loops.rows) == w.height and rows[0] < rows[1]:
        parts(s, loops.rows, rows)
