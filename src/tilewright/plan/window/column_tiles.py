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
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import reduce

from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks
from tilewright.plan.facts.windows import Windows
from tilewright.plan.price.sizes import LARGE
from tilewright.plan.tile.loops import extent, inside, loop_of, loops_of, parts
from tilewright.plan.tile.windows import (
    edges_alone,
    final_block,
    hold,
    in_registers,
    in_scope,
    in_vectors,
    made_by,
    read_by,
    relayout,
    rows_inside,
    trim_rows,
    window_loops,
)
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.types.scopes import Scope


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


def apply_columns(s: Schedule, w: Windows, choice: ColumnsChoice) -> Schedule:
    """The steps that a choice stands for."""
    last = str(s.cache_write(w.block)) if choice.epilogue else final_block(s, w)
    whole, short = None, w.columns.size < choice.lanes
    if choice.epilogue:
        _epilogue_later(s, w, last)
    elif short and last == w.last and w.epilogue.same_columns and w.products:
        whole, last = last, str(s.cache_write(last))
    pad, copy, images = None, None, set[str]()
    if choice.held is not Held.AS_THEY_LIE:
        pad = str(s.unite(w.source.name) if w.padded else s.cache_read(w.block, w.source.name))
        if choice.held is Held.COLUMN and choice.rows >= w.rows.size:
            trim_rows(s, w)
        images = read_by(s, pad)
        if choice.held.is_copied:
            if choice.deinterleaved:
                _deinterleave(s, w)
            copy = str(s.cache_write(pad))
    shared, tiles = _tiles(s, w, choice, last)
    outer = shared[-1] if shared else None
    for block in (whole, w.block):
        if block is not None:
            s.compute_at(block, tiles[-1])
    _sum(s, w, choice)
    if whole is not None:
        _whole_vectors(s, whole, choice)
    if pad is not None and copy is not None:
        s.compute_at(copy, tiles[0] if outer is None or choice.held is Held.ROW_OF_TILES else outer)
        _copy(s, w, choice, pad, copy)
    elif pad is not None:
        hold(s, pad, tiles[-1] if choice.held is Held.TILE else window_loops(s, w)[2][0], choice.lanes)
        if w.padded:
            s.guard(pad)
            parts(s, loop_of(s, pad, -2), rows_inside(s, pad, w.rows, -2, choice.rows))
    _store(s, last, choice)
    if choice.epilogue:
        _in_one_row(s, w.last, choice)
    if choice.prefetch and outer is not None:
        for image in images:
            _prefetch(s, w, choice, image, last, outer, tiles[0])
    if w.padded and choice.held in (Held.TILE, Held.COLUMN) and len(tiles) > 1:
        edges_alone(s, tiles[-1])
    if shared:
        s.parallel(reduce(s.fuse, shared))
    return s


def _planes(s: Schedule, w: Windows, block: str) -> list[Var]:
    """The loops around an image's rows and columns. The first is parallel: with weights, the longest."""
    image = loop_of(s, block, -2), loop_of(s, block, -1)
    around = [v for v in s.get_loops(block) if v not in image]
    outer = max(around, key=lambda v: extent(s, v)) if w.products else None
    return [*([] if outer is None else [outer]), *(v for v in around if v is not outer)]


def _tiles(s: Schedule, w: Windows, choice: ColumnsChoice, block: str) -> tuple[list[Var], list[Var]]:
    """Tiles the nest that stores the result. Returns the parallel loops (none for a single plane) and those over
    tiles."""
    m, n = loop_of(s, block, -2), loop_of(s, block, -1)
    around = _planes(s, w, block)
    mo, mi = s.split(m, choice.rows, tail="shift")
    s.reorder(*(around[1:] if choice.epilogue else around), mo, n, mi)
    shared = around[:1] if w.products else around
    short = w.columns.size < choice.lanes
    return shared, [mo] if short and w.products else [
        mo,
        s.split(n, choice.lanes, tail="mask" if short else "shift")[0],
    ]


def _sum(s: Schedule, w: Windows, choice: ColumnsChoice) -> None:
    """Keeps a tile's sums in registers. The loop over columns of the window is outermost, so that a row of the image is
    loaded once for all rows of the tile. If those rows are held in registers, rows of sums run one after the other."""
    r, lane = loop_of(s, w.block, -2), loop_of(s, w.block, -1)
    single, rows, columns = window_loops(s, w)
    short = w.columns.size < choice.lanes
    if short:
        _, lane = s.split(lane, choice.lanes, tail="mask")
    if choice.held is Held.TILE:
        s.reorder(*single, r, *rows, *columns, lane)
    else:
        rows = _by_strides(s, rows, w.rows.stride)
        s.reorder(*single, *columns, *rows, r, lane)
    if short:
        in_vectors(s, w.block, lane if w.products else None, choice.lanes)
    else:
        in_registers(s, w.block)
    s.vectorize(lane)
    for loop in (*rows, r, *(columns if choice.unrolled else ())):
        s.unroll(loop)


def _by_strides(s: Schedule, rows: list[Var], stride: int) -> list[Var]:
    """Orders the loops over the rows of a window by their remainder modulo the stride: rows of the window that differ
    by a stride read the same row of the image, for neighbouring rows of the tile. Few rows all fit the registers."""
    if stride == 1 or not rows or extent(s, rows[-1]) <= 2 * stride:
        return rows
    *others, last = rows
    return [*others, *reversed(s.split(last, stride, tail="mask"))]


def _epilogue_later(s: Schedule, w: Windows, sums: str) -> None:
    """The epilogue runs over a channel, whose sums are on the stack."""
    around = _planes(s, w, sums)
    s.reorder(*around[:1], *(v for v in s.get_loops(sums) if v is not around[0]))
    s.reverse_compute_at(w.last, around[0])
    s.compact(w.out.name)
    s.set_scope(w.out.name, Scope.STACK.value)


def _in_one_row(s: Schedule, block: str, choice: ColumnsChoice) -> None:
    """The epilogue of a channel as one row: vectors continue across the ends of the image's rows."""
    places = s.fuse(loop_of(s, block, -2), loop_of(s, block, -1))
    s.vectorize(s.split(places, choice.epilogue * choice.lanes, tail="shift")[1])


def _whole_vectors(s: Schedule, block: str, choice: ColumnsChoice) -> None:
    """The epilogue of rows shorter than a vector: on whole vectors, in registers."""
    row, column = loop_of(s, block, -2), loop_of(s, block, -1)
    _, lane = s.split(column, choice.lanes, tail="mask")
    in_vectors(s, block, lane, choice.lanes)
    s.vectorize(lane)
    s.unroll(row)


def _store(s: Schedule, block: str, choice: ColumnsChoice) -> None:
    """The epilogue over a tile, unrolled, in vectors along the columns. A row shorter than a vector is stored masked or
    in parts that overlap."""
    row, lane = loop_of(s, block, -2), loop_of(s, block, -1)
    lanes, columns = choice.lanes, extent(s, lane)
    while lanes > columns:
        lanes //= 2
    if choice.masked and lanes < columns < choice.lanes:
        _, lane = s.split(lane, choice.lanes, tail="mask")
    elif lanes < columns:
        vectors, lane = s.split(lane, lanes, tail="shift")
        s.unroll(vectors)
    s.vectorize(lane)
    s.unroll(row)


def _prefetch(s: Schedule, w: Windows, choice: ColumnsChoice, image: str, last: str, planes: Var, tiles: Var) -> None:
    """Prefetches the next part of an image: while a copied channel is summed up, the next iteration of `planes`; when
    a tile is stored, its share of what the next row of `tiles` reads."""
    if choice.held.is_copied:
        s.prefetch(image, planes, 1, window_loops(s, w)[2][0], apart=choice.line)
    else:
        row, lane = loop_of(s, last, -2), loop_of(s, last, -1)
        s.reorder(row, lane)
        s.prefetch(image, tiles, 1, row)


def _deinterleave(s: Schedule, w: Windows) -> None:
    """Stores columns by their remainder modulo the stride, so that each position of the window reads contiguously."""
    stride, rank = w.columns.stride, len(w.source.shape)
    relayout(s, w.source.name, rank, {-1: (f"d % {stride}", f"d // {stride}")}, pad=0)


def _copy(s: Schedule, w: Windows, choice: ColumnsChoice, pad: str, copy: str) -> None:
    """Copies the rows with their padding in vectors, through a register. Vectors without padding need no masks."""
    s.compact(w.source.name)
    s.set_scope(w.source.name, Scope.STACK.value)
    if choice.deinterleaved:  # rows begin where cache lines do
        s.storage_align(w.source.name, len(w.source.shape) - 1, choice.line, 0)
    axis, width = -3 if choice.deinterleaved else -2, choice.copied
    row, column = loop_of(s, copy, axis), loop_of(s, copy, -1)
    columns = extent(s, column)
    planes = loops_of(s, copy, -2) if choice.deinterleaved else []
    vectors, lane = s.split(column, width, tail="shift")
    if planes:
        s.reorder(vectors, *planes, lane)
    s.compute_at(pad, vectors)
    between = in_scope(s, pad, Scope.REGISTER).name
    s.vectorize(lane)
    if planes:
        _in_order(s, between, pad, choice)
    s.vectorize(loop_of(s, pad, -1))
    s.guard(pad)
    found = find_block(s.func, pad)
    first, end = inside(found, found.spatial[-1].var, w.columns.stride if planes else 1)
    count = -(-columns // width)
    starts = [min(n * width, columns - width) for n in range(count)]
    full = [n for n, at in enumerate(starts) if first <= at and at + width <= end]
    written_out = len(full) <= 2  # between those that meet the border: hardly a loop
    for loop in (*([vectors] if written_out else []), *planes):
        s.unroll(loop)
    rows = rows_inside(s, pad, w.rows, axis, w.rows.size)
    if choice.held is Held.ROW_OF_TILES:
        rows = rows_inside(s, pad, w.rows, axis, choice.rows) if planes else (0, LARGE)
    middle = parts(s, row, rows)[1]
    if full and not written_out:
        name = blocks(find_loop(s.func, middle))[-1].name
        parts(s, s.get_loops(name)[-2 - len(planes)], (full[0], full[-1] + 1))


def _in_order(s: Schedule, between: str, pad: str, choice: ColumnsChoice) -> None:
    """Stores the intermediate of a deinterleaved copy in the order of memory, so that it is loaded in whole vectors."""
    rank = len(made_by(s, pad).shape)
    relayout(s, between, rank, {}, [*range(rank - 2), rank - 1, rank - 2])
    plane, column = s.get_loops(pad)[-2:]
    s.reorder(column, plane)
    s.unroll(s.split(s.fuse(column, plane), choice.lanes)[0])
