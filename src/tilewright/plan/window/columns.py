"""The templates of windows with the columns of a row along the lanes: their choices and prices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.analysis.sizes import known
from tilewright.analysis.windows import Windows
from tilewright.plan.tile.loops import WRITTEN_OUT
from tilewright.plan.window import family
from tilewright.plan.window.column_tiles import ColumnsChoice, DynamicChoice, Held, apply_columns, apply_dynamic
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import MOST_BYTES, Scope


class Columns(family.WindowTemplate[ColumnsChoice]):
    """Depthwise convolutions and pools of planes: tiles of rows by a vector of columns."""

    name = "windows, columns in lanes"
    choice = ColumnsChoice
    listed = frozenset({"lanes", "copied", "line"})

    def fits(self, w: Windows) -> bool:
        few = w.products or w.columns.stride <= 2  # a vector is of columns of two vectors at most
        return few and not w.channels_last and not w.dynamic

    def choices(self, shape: Windows, target: Target) -> Iterator[ColumnsChoice]:
        for lanes in _widths(shape, target):
            for held in Held:
                for rows in family.even_sizes(shape.rows.size, _most_rows(shape, held, lanes, target)):
                    yield from _of_tile(shape, rows, lanes, held, target)

    def price(self, choice: ColumnsChoice, shape: Windows, target: Target) -> float:
        """Copies, tiles, and an epilogue that runs after them."""
        w, c = shape, choice
        tile = _tile(w, c, 1 if c.deinterleaved else w.columns.stride)
        further, room = 0.0, 0
        if c.held.is_copied:
            full, columns = target.lanes(w.out.dtype), w.columns.reach(w.columns.size)
            high = w.rows.reach(c.rows if c.held is Held.ROW_OF_TILES else w.rows.size)
            room = high * (columns + full) * w.source.dtype.bytes
            times = -(-w.rows.size // c.rows) if c.held is Held.ROW_OF_TILES else 1
            shuffles = 2 * c.deinterleaved * target.core.shuffle_cycles
            each = max(family.load_cycles(target) + target.core.store_cycles, shuffles)
            further += high * times * -(-columns // full) * (each + family.stack_cycles(room, target, stores=True))
        if c.held is Held.TILE:
            loads = w.rows.reach(c.rows) * -(-w.columns.reach(min(c.lanes, w.columns.size)) // c.lanes)
            shuffles = w.rows.met(c.rows) * (w.columns.kernel - (w.columns.stride == 1))
            beyond = max(loads + c.rows + tile.weights - target.vector_registers, 0.0)
            spills = beyond * min(beyond / target.vector_registers, 1.0)  # most of few are loaded when they are needed
            tile = replace(tile, loads=loads, shuffles=shuffles, spills=spills)
        if c.epilogue:
            each = family.load_cycles(target) + target.core.store_cycles + family.epilogue_cycles(w, c.epilogue, target)
            size = w.rows.size * w.columns.size
            to_stack = 2 * family.stack_cycles(size * w.out.dtype.bytes, target, stores=True)
            further += -(-size // (c.epilogue * c.lanes)) * c.epilogue * max(each, to_stack)
        tile = replace(
            tile,
            terms=tile.terms * _inside(w, c),
            stores=c.rows * (1 if c.masked or c.lanes <= w.columns.size else 2),
            epilogues=0 if c.epilogue else c.rows,
            filled=tile.loads if w.padded and not w.products and not c.held.is_copied else 0.0,
            branches=tile.branches * (2 if c.held is Held.COLUMN else 1),
            waits=tile.loads * family.stack_cycles(room, target),
        )
        return family.kernel_seconds(w, tile, target, _late(w, c, target), further * w.images * w.channels)

    def apply(self, s: Schedule, shape: Windows, choice: ColumnsChoice) -> Schedule:
        return apply_columns(s, shape, choice)


class DynamicWindows(family.WindowTemplate[DynamicChoice]):
    """Depthwise convolutions and pools of dynamic height or width, with stride 1 along dynamic dimensions, of several
    planes: a single one has no loop over channels that holds its padding and its tiles."""

    name = "windows, dynamic sizes"
    choice = DynamicChoice

    def fits(self, w: Windows) -> bool:
        contiguous = all(side.stride == 1 for side in (w.rows, w.columns) if side.dynamic or not w.products)
        return w.dynamic and contiguous and not w.channels_last and w.images * w.channels > 1

    def choices(self, shape: Windows, target: Target) -> Iterator[DynamicChoice]:
        most = min(target.vector_registers // 2 - 2 * shape.instructions + 1, WRITTEN_OUT // shape.rows.kernel)
        for rows in family.even_sizes(shape.rows.size, most) if target.has_masks else ():
            unrolled = 3 * rows * shape.terms <= WRITTEN_OUT  # inside an image, and over either edge
            yield DynamicChoice(rows, target.lanes(shape.out.dtype), unrolled)

    def price(self, choice: DynamicChoice, shape: Windows, target: Target) -> float:
        return family.kernel_seconds(shape, _tile(shape, choice, shape.columns.stride), target, late=1.0)

    def apply(self, s: Schedule, shape: Windows, choice: DynamicChoice) -> Schedule:
        return apply_dynamic(s, shape, choice)


def _tile(w: Windows, c: ColumnsChoice | DynamicChoice, stride: int) -> family.Tile:
    """A tile that loads a vector for each row that it reads and each column of the kernel. Where columns are a `stride`
    apart, it loads as many vectors, and shuffles the columns out of these."""
    loads = w.rows.met(c.rows) * w.columns.kernel
    return family.Tile(
        count=-(-w.rows.size // c.rows) * -(-w.columns.size // c.lanes) * w.images * w.channels,
        terms=c.rows * w.terms,
        loads=loads * stride,
        weights=w.terms if w.products else 0,
        shuffles=loads * (stride - 1),
        stores=c.rows,
        epilogues=c.rows,
        branches=0 if c.unrolled else w.columns.kernel,
    )


def _widths(w: Windows, target: Target) -> Iterator[int]:
    """The lanes of a tile, at least 128 bits: a whole vector or, if rows are shorter, a part of one that they fill.
    Shorter rows whose columns are contiguous can also be masked."""
    lanes, least = target.lanes(w.out.dtype), 128 // w.out.dtype.bits
    if w.columns.size < least:
        return
    if w.products or w.columns.size >= lanes or (target.has_masks and w.columns.stride == 1):
        yield lanes
    while not w.products and lanes > least:
        lanes //= 2
        if lanes <= w.columns.size:
            yield lanes
            return


def _most_rows(w: Windows, held: Held, lanes: int, target: Target) -> int:
    """The most rows of a tile for which the registers hold the sums and the inputs read at a time; 0 where rows cannot
    be held in this way."""
    registers = target.vector_registers
    if held is Held.TILE:
        vectors = -(-w.columns.reach(min(lanes, w.columns.size)) // lanes)
        live = (w.terms if w.products else 0) + w.rows.kernel * vectors + 2
        near = w.rows.dilation == w.columns.dilation == 1 and max(w.rows.stride, w.columns.stride) <= 2
        near = near and target.has_masks and (w.products or w.columns.size >= lanes)
        past = (w.columns.size - lanes) * w.columns.stride + vectors * lanes > known(
            w.source.shape[w.columns.dimension]
        )
        held_rows = MOST_BYTES[Scope.REGISTER] // (vectors * lanes * w.source.dtype.bytes)
        most = (held_rows - w.rows.kernel) // w.rows.stride + 1
        return min(most, WRITTEN_OUT // w.terms) if near and live <= registers and (w.padded or not past) else 0
    if (held is Held.AS_THEY_LIE) == w.padded:
        return 0
    most = min(registers // 2 - 2 * w.instructions + 1, WRITTEN_OUT // w.rows.kernel)
    if held is not Held.COLUMN:
        return most
    able = target.masks_loads(w.source.dtype) or (w.rows.size <= most and w.columns.size <= lanes)
    return most if w.columns.term is not None and w.columns.stride == 1 and able else 0


def _of_tile(w: Windows, rows: int, lanes: int, held: Held, target: Target) -> Iterator[ColumnsChoice]:
    """The choices of a tile: where the epilogue runs, and what is prefetched."""
    tall = -(-w.rows.size // rows)
    deinterleaved = w.products and w.columns.stride > 1 and held.is_copied
    copied = target.lanes(w.source.dtype)
    if deinterleaved and target.has_masks:
        copied //= w.columns.stride if copied % w.columns.stride == 0 else 1
    while copied > w.columns.reach(w.columns.size):
        copied //= 2
    programs = min(-(-w.columns.size // lanes), 3) if held in (Held.TILE, Held.COLUMN) else 1
    unrolled = held is Held.TILE or rows * w.terms * programs <= WRITTEN_OUT
    line = target.caches[0].line // w.out.dtype.bytes
    inside = ColumnsChoice(rows, lanes, held, deinterleaved, copied, unrolled, 0, target.has_masks, False, line)
    prefetch = w.products and w.columns.term is not None and not unrolled
    if held is Held.CHANNEL:
        prefetch = prefetch and w.images == 1
    else:
        prefetch = held is Held.COLUMN and w.columns.size >= lanes and tall > 1
    for one in (inside, replace(inside, prefetch=True)) if prefetch else (inside,):
        yield one
        if w.products and w.epilogue.calls and w.columns.size >= lanes:
            for beside in (1, 2, 4):  # of more, intermediate values spill
                if beside * lanes <= w.rows.size * w.columns.size:
                    yield replace(one, epilogue=beside)


def _late(w: Windows, c: ColumnsChoice, target: Target) -> float:
    """The part of an image that tiles wait for. Copies read in order, which hardware prefetchers follow. Tiles read a
    part of each of several rows; prefetchers are taken to follow as many rows as there are vector registers."""
    if c.held.is_copied:
        return 0.0 if c.prefetch else target.core.unhidden
    part = min(w.columns.reach(c.lanes) / w.columns.reach(w.columns.size), 1.0)
    late = target.core.unhidden + (1 - part) * min(w.rows.reach(c.rows) / target.vector_registers, 1.0)
    return late / -(-w.rows.size // c.rows) if c.prefetch else late  # the first tiles of an image still wait


def _inside(w: Windows, c: ColumnsChoice) -> float:
    """The share of a tile's terms that remains when rows of zeros are skipped."""
    if c.rows < w.rows.size or c.held is not Held.COLUMN or not w.finite:
        return 1.0
    outside = (w.rows.kernel - 1) * w.rows.dilation
    border = sum(-(-n // w.rows.stride) for n in range(1, outside // 2 + 1)) * 2
    return 1 - border / (w.rows.size * w.rows.kernel)
