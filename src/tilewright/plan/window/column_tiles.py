"""Windows with the columns of a row along the lanes: a tile is some rows by a vector of columns.

    for images and channels:
      q = the channel's padded rows                               without padding, rows are read in place
      for tiles of R rows, vectors of columns:
        t[R, lanes] = 0
        for b, a, r: t[r] += q[row of r at a, columns at b] * w[c, a, b]      a row is loaded once for all sums it is in
        y[…] = f(t)

The choice that matters most is where padded rows are held (`Held`): copied to the stack, for a channel or for a row of
tiles at a time; in registers, all rows that a tile reads, with columns shuffled out of them; or in registers, for one
column of the kernel at a time. If the stride is more than 1, a copy is deinterleaved, so that vectors are contiguous.

If f calls functions like exp, the sums of a channel may go to the stack, and f runs over them as one row afterwards:
then all vectors but the last are full, and the instructions of several are interleaved.

The last tile of a loop is moved back where it would pass the end. It computes some results twice, with equal values.

Of images of dynamic sizes, a channel is copied with its padding before its tiles run, and tiles read it in place. A
tile that passes the last row is computed whole: it reads existing rows only, and stores only rows of the result.
Columns beyond the last one are masked. Tiles over an edge have loops of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce

from tilewright.analysis.known import limits
from tilewright.analysis.memory import writers_of
from tilewright.analysis.sizes import LARGE
from tilewright.analysis.windows import Windows
from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks, loads
from tilewright.plan.tile.loops import between, cut_at, edges_alone, extent, in_vectors, loop_of, loops_of, write_out
from tilewright.plan.tile.registers import Lanes, compute_near, hold_sums, keep_near, lay_in_lanes, lay_out, made_by
from tilewright.plan.window import family
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.schedule import Schedule


class Held(Enum):
    """Where a tile reads its rows from."""

    AS_THEY_LIE = "as they lie"
    CHANNEL = "a channel on the stack"
    ROW_OF_TILES = "a row of tiles on the stack"
    TILE = "a tile in registers"
    COLUMN = "a column of the kernel in registers"

    @property
    def is_copied(self) -> bool:
        """Whether rows are copied to the stack."""
        return self in (Held.CHANNEL, Held.ROW_OF_TILES)


@dataclass(frozen=True, slots=True)
class ColumnsChoice:
    """A tile is `rows` x `lanes` sums; `held` says where the rows are that it reads. A copy moves `copied` elements of
    a row at a time and, if `deinterleaved`, stores the columns of each phase of the stride in a plane. The columns of
    the kernel are `unrolled` or a loop. The epilogue runs inside a tile or, over `epilogue` vectors at a time, after
    the sums of a channel. Rows shorter than a vector are stored `masked` or in parts that overlap. With `prefetch`, the
    next part of the image is prefetched, an element of each cache `line`."""

    rows: int
    lanes: int
    held: Held
    deinterleaved: bool
    copied: int
    unrolled: bool
    epilogue: int
    masked: bool
    prefetch: bool
    line: int


@dataclass(frozen=True, slots=True)
class DynamicChoice:
    """A tile is `rows` x `lanes` sums. The columns of the kernel are `unrolled` or a loop."""

    rows: int
    lanes: int
    unrolled: bool


def apply_columns(s: Schedule, w: Windows, c: ColumnsChoice) -> Schedule:
    """The steps that a choice stands for."""
    last = str(s.cache_write(w.block)) if c.epilogue else family.final_block(s, w)
    whole, pad, copy, images = None, "", "", dict[str, None]()
    if c.epilogue:
        _epilogue_later(s, w, last)
    elif c.lanes > w.columns.size and last == w.last and w.epilogue.same_columns and w.products:
        whole, last = last, str(s.cache_write(last))
    if c.held is not Held.AS_THEY_LIE:
        pad = family.padded_rows(s, w)
        if c.held is Held.COLUMN and c.rows >= w.rows.size:
            family.trim_rows(s, w)
        images = dict.fromkeys(ld.buffer.name for ld in loads(find_block(s.func, pad)))
        if c.deinterleaved:  # columns by their remainder modulo the stride: each position of the window is contiguous
            by = w.columns.stride
            lay_out(s, w.source.name, lambda d: [*d[:-1], f"{d[-1]} % {by}", f"{d[-1]} // {by}"], pad=0)
        copy = str(s.cache_write(pad)) if c.held.is_copied else ""
    shared, tiles = _tiles(s, w, c, last)
    for block in (w.block,) if whole is None else (whole, w.block):
        s.compute_at(block, tiles[-1])
    _sum_rows(s, w, c.lanes, tiles[-1], c.unrolled, by_rows=c.held is Held.TILE)
    if whole is not None:  # the epilogue of rows shorter than a vector, on whole vectors
        write_out(s, whole, tiles[-1], lay_in_lanes(s, whole, Lanes(c.lanes, c.lanes)))
    if copy:
        s.compute_at(copy, shared[-1] if shared and c.held is Held.CHANNEL else tiles[0])
        _copy(s, w, c, pad, copy)
    elif pad:
        family.hold(s, w, pad, tiles[-1] if c.held is Held.TILE else family.window_loops(s, w)[2][0], c.rows, c.lanes)
    _store(s, last, c)
    if c.epilogue:  # a channel as one row: vectors continue across the ends of the image's rows
        places = s.fuse(loop_of(s, w.last, -2), loop_of(s, w.last, -1))
        s.vectorize(s.split(places, c.epilogue * c.lanes, tail="shift")[1])
    for image in images if c.prefetch and shared else ():
        _prefetch(s, w, c, image, last, shared[-1], tiles[0])
    if w.padded and pad and not copy and len(tiles) > 1:
        edges_alone(s, tiles[-1])
    if shared:
        s.parallel(reduce(s.fuse, shared))
    return s


def _planes(s: Schedule, w: Windows, block: str) -> list[Var]:
    """The loops around an image's rows and columns; with weights, the longest first: that is parallel."""
    image = loop_of(s, block, -2), loop_of(s, block, -1)
    around = [v for v in s.get_loops(block) if v not in image]
    return sorted(around, key=lambda v: -extent(s, v)) if w.products else around


def _tiles(s: Schedule, w: Windows, c: ColumnsChoice, block: str) -> tuple[list[Var], list[Var]]:
    """Tiles the nest that stores the result. Returns the parallel loops (none for a single plane) and those over
    tiles."""
    around, short = _planes(s, w, block), w.columns.size < c.lanes
    column = loop_of(s, block, -1)
    rows, row = s.split(loop_of(s, block, -2), c.rows, tail="shift")
    s.reorder(*(around[1:] if c.epilogue else around), rows, column, row)
    tiles = [rows]
    if not (short and w.products):
        tiles.append(s.split(column, c.lanes, tail="mask" if short else "shift")[0])
    return around[:1] if w.products else around, tiles


def _sum_rows(s: Schedule, w: Windows, lanes: int, tile: Var, unrolled: bool, *, by_rows: bool = False) -> None:
    """Keeps a tile's sums in registers. The loop over columns of the window is outermost, so that a row of the image is
    loaded once for all rows of the tile. If those rows are held in registers, sums run `by_rows`, one after the
    other."""
    row, (single, rows, columns) = loop_of(s, w.block, -2), family.window_loops(s, w)
    rows = rows if by_rows else _by_strides(s, rows, w.rows.stride)
    sums = [*single, *((row, *rows, *columns) if by_rows else (*columns, *rows, row))]
    lane = lay_in_lanes(s, w.block, Lanes(lanes, lanes), sums, fill=w.products)
    write_out(s, w.block, tile, lane, kept=() if unrolled else columns)


def _by_strides(s: Schedule, rows: list[Var], stride: int) -> list[Var]:
    """Orders the loops over the rows of a window by their remainder modulo the stride: rows of the window that differ
    by a stride read the same row of the image, for neighbouring rows of the tile. Few rows all fit the registers."""
    if stride == 1 or not rows or extent(s, rows[-1]) <= 2 * stride:
        return rows
    return [*rows[:-1], *reversed(s.split(rows[-1], stride, tail="mask"))]


def _epilogue_later(s: Schedule, w: Windows, sums: str) -> None:
    """The epilogue runs over a channel, whose sums are on the stack."""
    outer = _planes(s, w, sums)[0]
    s.reorder(outer, *(v for v in s.get_loops(sums) if v is not outer))
    hold_sums(s, w.out.name, [w.last], outer, "stack")


def _store(s: Schedule, block: str, c: ColumnsChoice) -> None:
    """The last block of a tile, unrolled, in vectors along the columns. A row shorter than a vector is stored masked or
    in parts that overlap."""
    row, lane = loop_of(s, block, -2), loop_of(s, block, -1)
    columns = extent(s, lane)
    if c.masked and columns < c.lanes and columns.bit_count() > 1:  # a power of two fills a shorter vector
        _, lane = s.split(lane, c.lanes, tail="mask")
    else:
        vectors, lane = in_vectors(s, lane, c.lanes)
        s.unroll(vectors)
    s.vectorize(lane)
    s.unroll(row)


def _prefetch(s: Schedule, w: Windows, c: ColumnsChoice, image: str, last: str, planes: Var, tiles: Var) -> None:
    """Prefetches the next part of an image: while a copied channel is summed up, the next iteration of `planes`; when
    a tile is stored, its share of what the next row of `tiles` reads."""
    if c.held.is_copied:
        s.prefetch(image, planes, 1, family.window_loops(s, w)[2][0], apart=c.line)
    else:
        row, lane = loop_of(s, last, -2), loop_of(s, last, -1)
        s.reorder(row, lane)
        s.prefetch(image, tiles, 1, row)


def _copy(s: Schedule, w: Windows, c: ColumnsChoice, pad: str, copy: str) -> None:
    """Copies the rows with their padding in vectors, through a register. Vectors without padding need no masks. Of
    deinterleaved rows, the register holds the elements in the order of memory: they are loaded in whole vectors."""
    keep_near(s, w.source.name, "stack")
    if c.deinterleaved:  # rows begin where cache lines do
        s.storage_align(w.source.name, len(w.source.shape) - 1, c.line, 0)
    axis, planes = (-3, loops_of(s, copy, -2)) if c.deinterleaved else (-2, [])
    row, column = loop_of(s, copy, axis), loop_of(s, copy, -1)
    columns = extent(s, column)
    vectors, lane = s.split(column, c.copied, tail="shift")
    s.reorder(vectors, *planes, lane)
    compute_near(s, pad, vectors, "register")
    s.vectorize(lane)
    if planes:
        lay_out(s, made_by(s, pad), lambda d: [*d[:-2], d[-1], d[-2]])
        plane, place_in_plane = s.get_loops(pad)[-2:]
        s.reorder(place_in_plane, plane)
        s.unroll(s.split(s.fuse(place_in_plane, plane), c.lanes)[0])
    s.vectorize(loop_of(s, pad, -1))
    s.guard(pad)
    found = find_block(s.func, pad)
    first, end = limits(found.where, found.spatial[-1].var, w.columns.stride if planes else 1)
    starts = [min(at, columns - c.copied) for at in range(0, columns, c.copied)]
    full = [n for n, at in enumerate(starts) if first <= at and at + c.copied <= end]
    few = len(full) <= 2  # between those that meet the border: hardly a loop
    for loop in (vectors, *planes) if few else planes:
        s.unroll(loop)
    rows = family.rows_inside(s, pad, w.rows, axis, w.rows.size)
    if c.held is Held.ROW_OF_TILES:
        rows = family.rows_inside(s, pad, w.rows, axis, c.rows) if planes else (0, LARGE)
    middle = between(s, row, rows)
    if not few:
        name = blocks(find_loop(s.func, middle))[-1].name
        cut_at(s, s.get_loops(name)[-2 - len(planes)], (full[0], full[-1] + 1))


def apply_dynamic(s: Schedule, w: Windows, c: DynamicChoice) -> Schedule:
    """The steps that a choice for dynamic sizes stands for."""
    last = family.final_block(s, w)
    filling = [b.name for b in writers_of(s.func, w.source)] if w.padded else []
    channels = _channel_by_channel(s, w, [*filling, w.block, last])
    rows, row = s.split(loop_of(s, last, -2), c.rows, tail="mask")
    columns, column = s.split(loop_of(s, last, -1), c.lanes, tail="mask")
    s.reorder(rows, columns, row, column)
    s.compute_at(w.block, columns)
    _sum_rows(s, w, c.lanes, columns, c.unrolled)
    if w.rows.has_tail(c.rows):  # beyond the last row, a tile reads the last one again
        s.pad(w.block, loop_of(s, w.block, -2))
    write_out(s, last, columns, column)
    for tiles, side, size in ((rows, w.rows, c.rows), (columns, w.columns, c.lanes)):
        if side.has_tail(size):
            s.partition(tiles)
    s.parallel(channels)
    for block in filling:
        s.vectorize(s.split(loop_of(s, block, -1), c.lanes, tail="mask")[1])
    return s


def _channel_by_channel(s: Schedule, w: Windows, blocks: Sequence[str]) -> Var:
    """The loop over channels, which holds the whole kernel; the padded copy is then as large as one channel."""
    channels: list[Var] = []
    for block in blocks:
        loops = s.get_loops(block)
        channels.append(reduce(s.fuse, loops[: loops.index(loop_of(s, block, -2))]))
    s.merge_loops(*channels)
    if w.padded:
        s.compact(w.source.name)
    return channels[0]
