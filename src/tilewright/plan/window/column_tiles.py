"""Windows with the columns of a row along the lanes: a tile is some rows by a vector of columns.

    for images and channels:
      q = the channel's rows with what is around them             not where nothing is: then they are read as they lie
      for tiles of R rows, vectors of columns:
        t[R, lanes] = 0
        for b, a, r: t[r] += q[row of r at a, columns at b] * w[c, a, b]      a row is loaded once for all sums it is in
        y[…] = f(t)

Where padded rows lie (`Held`) is the choice that matters most: copied to the stack, a channel at a time or a row of
tiles; in registers, all rows that a tile meets, columns shuffled out of them; or in registers, a column of the kernel
at a time. Where columns are several positions apart, a copy has those next to each other that a vector meets.

Where f calls functions like exp, the sums of a channel may go to the stack, and f runs over them as one row afterwards:
then each vector is full but for the last, and several run an instruction of each at a time.

The last tile of a loop is moved back where it would pass the end: what it does again, it does alike.
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
    """Where a tile finds the rows it meets."""

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
    """`rows` x `lanes` sums are a tile, whose rows are `held` somewhere. A copy is made `copied` elements of a row at a
    time and, if `deinterleaved`, in planes of the columns that a position meets. The columns of the kernel are
    written out (`unrolled`) or a loop. The epilogue runs inside a tile or, over `epilogue` vectors at a time, after the
    sums of a channel. Rows shorter than a vector are stored under a mask (`masked`) or in parts that overlap. With
    `prefetch`, what comes next of the image is asked for, an element of each cache `line`."""

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
    """The loops around an image's rows and columns, the one that threads share first: with weights, the longest."""
    image = loop_of(s, block, -2), loop_of(s, block, -1)
    around = [v for v in s.get_loops(block) if v not in image]
    outer = max(around, key=lambda v: extent(s, v)) if w.products else None
    return [*([] if outer is None else [outer]), *(v for v in around if v is not outer)]


def _tiles(s: Schedule, w: Windows, choice: ColumnsChoice, block: str) -> tuple[list[Var], list[Var]]:
    """The nest that is stored last, in tiles: the loops that threads share, none of a single plane, and those over
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
    """A tile's sums in registers: columns of the window outermost, so that a row is loaded once for all its rows; where
    the rows that they meet are held, one row of sums after the other."""
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
    """The loops over the rows of a window in an order in which neighbours of a tile meet the same rows of the image one
    after the other: those that are a stride apart. Of few rows there are registers for all."""
    if stride == 1 or not rows or extent(s, rows[-1]) <= 2 * stride:
        return rows
    *others, last = rows
    return [*others, *reversed(s.split(last, stride, tail="mask"))]


def _epilogue_later(s: Schedule, w: Windows, sums: str) -> None:
    """The epilogue runs over a channel, whose sums lie on the stack."""
    around = _planes(s, w, sums)
    s.reorder(*around[:1], *(v for v in s.get_loops(sums) if v is not around[0]))
    s.reverse_compute_at(w.last, around[0])
    s.compact(w.out.name)
    s.set_scope(w.out.name, Scope.STACK.value)


def _in_one_row(s: Schedule, block: str, choice: ColumnsChoice) -> None:
    """The epilogue of a channel, in vectors that go on where a row of the image ends."""
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
    """The epilogue over a tile, written out, in vectors along the columns: a row shorter than one is stored under a
    mask or in parts that overlap."""
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
    """What comes next of an image is brought to the first cache: while a copied channel is summed up, the next one of
    `planes`; when a tile is stored, its share of what the next row of `tiles` meets."""
    if choice.held.is_copied:
        s.prefetch(image, planes, 1, window_loops(s, w)[2][0], apart=choice.line)
    else:
        row, lane = loop_of(s, last, -2), loop_of(s, last, -1)
        s.reorder(row, lane)
        s.prefetch(image, tiles, 1, row)


def _deinterleave(s: Schedule, w: Windows) -> None:
    """The columns that one position of the window meets lie side by side."""
    stride, rank = w.columns.stride, len(w.source.shape)
    relayout(s, w.source.name, rank, {-1: (f"d % {stride}", f"d // {stride}")}, pad=0)


def _copy(s: Schedule, w: Windows, choice: ColumnsChoice, pad: str, copy: str) -> None:
    """The rows are copied in vectors, through a register with what is around them: no masks where nothing is."""
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
    """What is between memory and its planes lies as in memory, so that it is loaded in whole vectors."""
    rank = len(made_by(s, pad).shape)
    relayout(s, between, rank, {}, [*range(rank - 2), rank - 1, rank - 2])
    plane, column = s.get_loops(pad)[-2:]
    s.reorder(column, plane)
    s.unroll(s.split(s.fuse(column, plane), choice.lanes)[0])
