"""Winograd's transforms: their templates and prices. The input's has tiles along the lanes, the output's channels.

The result of a transform's first stage is kept on the stack for its second stage.

    for n, c:                                               input; also in groups of channels, c innermost
      padded = the channel with its padding
      half = Bᵀ d                                           for all rows of tiles, or for one
      for p, rows of tiles, vectors of tiles: v[p, …] = half B

    for n, vectors of channels, rows of tiles:              output
      for tiles of the row:
        half = Aᵀ m
        whole = half A                                      the pixels of the tile
      y = f(whole)                                          the epilogue, in vectors along rows, transposed in registers

If a loop is no multiple of the lanes, its last vector is moved back: it computes some results twice, with equal values.

A transform takes the instructions of its definition (ops/winograd.py), by the rates of a core, while the bytes of what
lies between the kernels are moved (`Core.together`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.analysis.known import limits
from tilewright.analysis.sizes import known
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const, Expr, Select
from tilewright.loops.edit import blocks, loads, loops_around
from tilewright.loops.nodes import Block, Store
from tilewright.ops.winograd import edge_of, input_terms, output_terms
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.transposed import store_transposed
from tilewright.plan.price.points import transpose_cycles
from tilewright.plan.template import Template
from tilewright.plan.tile.loops import MANY, cut_at, extent, in_vectors, order_tile
from tilewright.plan.tile.registers import compute_near, keep_near
from tilewright.plan.transforms.strassen import LanesChoice, count_sums
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.transfer import apart_cycles, fits, kept, reread_seconds, rewrite_seconds
from tilewright.types.scopes import MOST_BYTES, Scope


@dataclass(frozen=True, slots=True)
class InputChoice:
    """Vectors of `lanes`. The first stage transforms so many channels `together` before the second one begins; 0 for
    only a row of tiles of one. Those channels write their planes of factors together, a few planes at a time, so that
    they do not compete for the same cache sets. A whole channel is padded before or, unless `padded_once`, each row of
    tiles by itself."""

    lanes: int
    together: int = 0
    padded_once: bool = True


@dataclass(frozen=True, slots=True)
class Tiling:
    """Winograd's tiles: `size` x `size` outputs each, for windows that move by `stride`; how many images and channels
    there are, and rows and columns of tiles of each; the bytes of an element of a product, and of what else passes
    through the caches before products are read; whether the number of channels is dynamic."""

    size: int
    stride: int
    images: int
    channels: int
    rows: int
    columns: int
    bytes: int = f32.bytes
    beside: int = 0
    any_channels: bool = False

    @property
    def edge(self) -> int:
        """The rows of inputs that a tile reads, which are as many as its products along a dimension."""
        return edge_of(self.size, self.stride)

    @property
    def step(self) -> int:
        """The rows of inputs from one tile to the next."""
        return self.size * self.stride

    @property
    def padded(self) -> int:
        """The bytes of a channel with its zeros."""
        return (self.rows + 1) * (self.columns + 1) * self.step**2 * f32.bytes

    @property
    def half(self) -> int:
        """The bytes of a channel of which the rows are transformed."""
        return self.rows * self.edge * (self.columns + 1) * self.step * f32.bytes

    @property
    def plane(self) -> int:
        """The bytes of one product of each tile of an image."""
        return self.channels * self.rows * self.columns * self.bytes

    @property
    def products(self) -> int:
        """The bytes of all products."""
        return self.images * self.edge**2 * self.plane

    @property
    def between(self) -> int:
        """The bytes that pass through the caches from the input transform to the output transform."""
        return self.products + self.beside

    def input_seconds(self, target: Target) -> float:
        """Seconds in which the bytes of the input transform move: an image is read, factors are written."""
        image = reread_seconds(self._pixels(self.step), self.between, target)
        return image + rewrite_seconds(self.products, self.between, target)

    def output_seconds(self, target: Target) -> float:
        """Seconds in which those of the output transform move: products are read, an image is written."""
        image = rewrite_seconds(self._pixels(self.size), self.between, target)
        return image + reread_seconds(self.products, self.between, target)

    def _pixels(self, edge: int) -> int:
        """The bytes of the images of which each tile has so many rows and columns of its own."""
        return self.images * self.channels * self.rows * self.columns * edge**2 * f32.bytes


class WinogradInput(Template[Tiling, InputChoice]):
    """Kernels with an input transform."""

    name = "winograd input"
    choice = InputChoice
    whole = True

    def recognise(self, facts: Facts) -> Tiling | None:
        if "winograd_input" not in facts.names or not _has_points(facts):
            return None
        block = find_block(facts.function, "winograd_input")
        n, c, rows, columns, edge, _, *woven = extents_of(facts, block)
        (padded,) = {ld.buffer for ld in loads(find_block(facts.function, "winograd_rows"))}
        step = known(padded.shape[-1]) // (known(columns) + 1)
        assert isinstance(block.body, Store)
        size, stride = next((step // n, n) for n in (1, 2) if (step // n - 1) * n + 3 == known(edge))
        channels = known(c) * (known(woven[0]) if woven else 1)
        made = block.body.buffer.dtype.bytes
        dynamic = not isinstance(c, Const)
        return Tiling(size, stride, known(n), channels, known(rows), known(columns), made, any_channels=dynamic)

    def choices(self, shape: Tiling, target: Target) -> Iterator[InputChoice]:
        """Groups of 1, 2, 4, … channels, as long as they fit the stack and threads can share them evenly; rows."""
        lanes, room, together = target.lanes(f32), MOST_BYTES[Scope.STACK], 1
        while together * shape.half <= room and (together == 1 or shape.channels // together >= MANY):
            yield InputChoice(lanes, together)
            together *= 2
            if shape.any_channels:
                break
        if shape.padded <= room:
            yield InputChoice(lanes)
        yield InputChoice(lanes, padded_once=False)

    def price(self, choice: InputChoice, shape: Tiling, target: Target) -> float:
        """Vectors of tiles of a row."""
        t, core, edge, step, together = shape, target.core, shape.edge, shape.step, choice.together
        load, store, add = core.load_cycles, core.store_cycles, core.add_cycles
        taken = count_sums(input_terms, edge, t.size, t.stride)
        padding = step * step * (load + store) * (1 if choice.padded_once else edge / step)
        rows = step * (edge * (load + store) + taken * add)
        columns = edge * (edge * (load + core.shuffle2_cycles + store) + taken * add)
        channels = t.images * t.channels
        cycles = channels * -(-t.rows * t.columns // choice.lanes) * (padding + rows + columns)
        stages = 3 * channels * (1 if together else t.rows)  # each begins and ends with loads and sums in sequence
        cycles += stages * 2 * core.fma_latency + _left_cycles(t, together, target)
        staged = [(t.half, together * t.half), (t.padded, t.padded if choice.padded_once else 0)]
        between = channels * sum(_there_and_back(size, held, target) for size, held in staged)
        return core.kernel_seconds + core.together(cycles / core.hertz + between, t.input_seconds(target))

    def apply(self, s: Schedule, shape: Tiling, choice: InputChoice) -> Schedule:
        _, c, i, j, p, q, *woven = s.get_loops("winograd_input")
        jo, ji = in_vectors(s, j, choice.lanes)
        around = [i] if choice.together else []
        if choice.together > 1:
            c, inner = s.split(c, choice.together, tail="clip")
            around = [inner, i]
        order_tile(s, [p, *around, jo], [q, *woven, ji])
        s.compute_at("winograd_rows", c if choice.together else i)
        channel = s.get_loops("winograd_rows")[-4] if choice.together else c
        s.compute_at("winograd_pad", channel if choice.padded_once else i)
        for buffer in ("half", "padded"):
            keep_near(s, buffer)
        row, column = s.get_loops("winograd_rows")[-2:]
        wo, wi = in_vectors(s, column, choice.lanes)
        order_tile(s, [wo], [row, wi])
        _pad(s, choice.lanes)
        return s


def _pad(s: Schedule, lanes: int) -> None:
    """Copies the image in vectors; its padding has loops of its own."""
    block = find_block(s.func, "winograd_pad")
    assert isinstance(block.body, Store)
    cond = block.body.value.cond if isinstance(block.body.value, Select) else None
    rows, columns = (limits(cond, axis.var) for axis in block.axes[-2:])
    row, column = s.get_loops("winograd_pad")[-2:]
    for part in cut_at(s, column, columns):
        if extent(s, part) > 1:
            s.vectorize(in_vectors(s, part, lanes)[1])
    cut_at(s, row, rows)


class WinogradOutput(Template[Tiling, LanesChoice]):
    """Kernels with an output transform whose result is at least a tile high and wide."""

    name = "winograd output"
    choice = LanesChoice
    whole = True

    def recognise(self, facts: Facts) -> Tiling | None:
        if "winograd_columns" not in facts.names or not _has_points(facts):
            return None
        n, size, edge, tiles, channels = map(known, extents_of(facts, find_block(facts.function, "winograd_columns")))
        *_, height, width = map(known, facts.function.params[-1].shape)
        if min(height, width) < size or min(tiles, channels) < 2:
            return None  # loops of a single iteration have been removed
        return Tiling(size, 1 if edge == size + 2 else 2, n, channels, 1, tiles)

    def choices(self, shape: Tiling, target: Target) -> Iterator[LanesChoice]:
        yield whole_lines(shape.channels, target)

    def price(self, choice: LanesChoice, shape: Tiling, target: Target) -> float:
        """Vectors of channels: columns first, then rows, then transposed in registers."""
        t, core, edge, size, lanes = shape, target.core, shape.edge, shape.size, min(choice.lanes, target.lanes(f32))
        tiles, made = t.images * t.rows * t.columns, count_sums(output_terms, edge, size, t.stride)
        column = edge * core.load_cycles + made * core.add_cycles + size * core.store_cycles
        cycles = -(-t.channels // lanes) * tiles * (edge + size) * column
        cycles += transpose_cycles(tiles * size * size * t.channels, lanes, target)
        return core.kernel_seconds + core.together(cycles / core.hertz, t.output_seconds(target))

    def apply(self, s: Schedule, shape: Tiling, choice: LanesChoice) -> Schedule:
        block = with_epilogue(s, "winograd_columns")
        _, o, h, _ = loops = s.get_loops(block)
        vectors, o = in_vectors(s, o, choice.lanes)
        rows, a = s.split(h, shape.size, tail="mask")
        s.reorder(vectors, rows, o, a, loops[-1])
        a, tile, b, lane = compute_near(s, "winograd_tiles", rows)
        order_tile(s, [tile, a], [b, lane])
        a, q, lane = compute_near(s, "winograd_columns", tile)
        order_tile(s, [q], [a, lane])
        store_transposed(s, block, rows, choice.lanes)
        return s


def whole_lines(channels: int, target: Target) -> LanesChoice:
    """Channels by whole lines of a cache where they fill them: the elements of a tile lie so far apart that many share
    a set of the cache, which loses a line before its second half is due."""
    lanes = target.lanes(f32)
    line = max(target.caches[0].line // f32.bytes, lanes)
    return LanesChoice(line if lanes > 1 and channels % line == 0 else lanes)


def with_epilogue(s: Schedule, first: str) -> str:
    """Inlines the output into what follows it, and so on to the end; returns the last block's name. `first` is the
    block that begins the transform."""
    *others, last = [block.name for block in blocks(s.func.body) if block.name not in (first, "winograd_tiles")]
    for block in others:
        s.inline(block)
    return last


def _has_points(facts: Facts) -> bool:
    """Whether no dimension is known to be 0."""
    return not any(isinstance(e, Const) and e.value == 0 for b in facts.function.params for e in b.shape)


def extents_of(facts: Facts, block: Block) -> list[Expr]:
    """The extents of the loops around a block."""
    return [loop.extent for loop in loops_around(facts.function.body, block)]


def transform_seconds(before: Tiling, behind: Tiling, target: Target) -> float:
    """Seconds of both transforms around the products, each in its cheapest way."""
    read = min(WinogradInput().price(c, before, target) for c in WinogradInput().choices(before, target))
    return read + WinogradOutput().price(LanesChoice(target.lanes(f32)), behind, target)


def _left_cycles(t: Tiling, together: int, target: Target) -> float:
    """Cycles in which lines come again that were left before they were full: those in which the products of `together`
    channels, or (0) of a row of tiles, end. Of one of each plane the first cache keeps as many as there is room for in
    its sets."""
    left = max(t.edge**2 - target.caches[0].room(t.plane), 0)
    pieces = -(-t.channels // together) if together else t.channels * t.rows
    return t.images * left * pieces * apart_cycles(max(fits(t.between, target, own=False), 2), target)


def _there_and_back(size: int, held: int, target: Target) -> float:
    """Seconds in which bytes go to a cache behind the first, and come again, `held` of them at a time."""
    if kept(held, target.caches[0]) == 1:
        return 0.0
    return rewrite_seconds(size, held, target) + reread_seconds(size, held, target)
