"""Winograd's transforms of images with channels last, of any height and width: their templates and prices.

    for rows of tiles, images, tiles, vectors of channels:      input: a tile's factors, of a few channels
      half = Bᵀ d                                               d is read in place, with zeros around the image
      v[…, tile] = half B

    for rows of tiles, images, tiles, vectors of channels:      output: a tile's pixels, of a few channels
      half = Aᵀ m[…, tile]
      whole = half A
      y = f(whole)                                              the epilogue

Tiles at the edges of an image have loops of their own: those between need no tests of where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tilewright.analysis.sizes import Sizes, known
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Expr
from tilewright.loops.edit import blocks
from tilewright.ops.winograd import INPUT, edge_of, input_terms, output_terms
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.template import Template
from tilewright.plan.tile.loops import in_vectors, is_bounded, order_tile
from tilewright.plan.tile.registers import compute_near
from tilewright.plan.transforms.strassen import LanesChoice, count_sums
from tilewright.plan.transforms.winograd import Tiling, extents_of, whole_lines, with_epilogue
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


class _ChannelsLast(Template[Tiling, LanesChoice]):
    """What both transforms share. Their `block` has loops over images, rows and columns of tiles, two over a tile's
    elements, and one over channels."""

    choice = LanesChoice
    whole = True
    block: str

    def recognise(self, facts: Facts) -> Tiling | None:
        if self.block not in facts.names:
            return None
        sides = extents_of(facts, find_block(facts.function, self.block))
        n, rows, columns, channels = (Sizes().extent(sides[axis]) for axis in (0, 1, 2, 5))
        size, stride = next(kind for kind in INPUT if edge_of(*kind) == known(sides[4]))
        return Tiling(size, stride, n, channels, rows, columns) if channels > 1 else None  # one has no loop

    def choices(self, shape: Tiling, target: Target) -> Iterator[LanesChoice]:
        yield whole_lines(shape.channels, target)


class WinogradInputLast(_ChannelsLast):
    """Kernels with an input transform of images with channels last."""

    name = "winograd input, channels last"
    block = "winograd_input_last"

    def price(self, choice: LanesChoice, shape: Tiling, target: Target) -> float:
        return _seconds(shape, choice, input_terms, shape.edge, shape.input_seconds(target), target)

    def apply(self, s: Schedule, shape: Tiling, choice: LanesChoice) -> Schedule:
        images, rows, _, row, column, channels = s.get_loops(self.block)
        vectors, lane = in_vectors(s, channels, choice.lanes)
        s.reorder(rows, images)
        order_tile(s, [vectors, row], [column, lane])
        row, column, lane = compute_near(s, "winograd_rows", vectors)
        order_tile(s, [column], [row, lane])
        s.vectorize(compute_near(s, "winograd_pad", vectors)[-1])
        s.parallel(rows)
        inside = "winograd_pad"
        for axis in (0, 2):
            _, rest = s.partition(s.get_loops(inside)[axis], 1)
            s.attempt(s.partition, rest)  # tiles of two may end where the image does
            inside = blocks(find_loop(s.func, rest))[0].name
        s.inline(inside)
        return s


class WinogradOutputLast(_ChannelsLast):
    """Kernels with an output transform of images with channels last."""

    name = "winograd output, channels last"
    block = "winograd_columns_last"

    def price(self, choice: LanesChoice, shape: Tiling, target: Target) -> float:
        return _seconds(shape, choice, output_terms, shape.size, shape.output_seconds(target), target)

    def apply(self, s: Schedule, shape: Tiling, choice: LanesChoice) -> Schedule:
        block = with_epilogue(s, self.block)
        images, height, width, channels = s.get_loops(block)
        vectors, lane = in_vectors(s, channels, choice.lanes)
        rows, row = s.split(height, shape.size, tail="mask")
        columns, column = s.split(width, shape.size, tail="mask")
        order_tile(s, [rows, images, columns, vectors, row], [column, lane])
        row_of_tile, column_of_tile, lane = compute_near(s, "winograd_tiles", vectors)
        order_tile(s, [row_of_tile], [column_of_tile, lane])
        a, q, lane = compute_near(s, self.block, vectors)
        order_tile(s, [q], [a, lane])
        s.parallel(rows)
        for tiles, inside in ((rows, row), (columns, column)):
            if is_bounded(s, block, inside):
                s.partition(tiles)
        return s


def _seconds(
    t: Tiling, c: LanesChoice, terms: Callable[..., Sequence[Expr]], made: int, moving: float, target: Target
) -> float:
    """Seconds for vectors of channels of tiles: their rows or columns, `made` of each, which the stack keeps, then the
    other ones. All bytes need `moving` seconds from cache to cache."""
    core, sums = target.core, count_sums(terms, t.edge, t.size, t.stride)
    each = t.edge * core.load_cycles + sums * core.add_cycles + made * core.store_cycles
    vectors = t.images * t.rows * t.columns * -(-t.channels // min(c.lanes, target.lanes(f32)))
    return core.kernel_seconds + max(vectors * (t.edge + made) * each / core.hertz, moving)


def last_seconds(before: Tiling, behind: Tiling, target: Target) -> float:
    """Seconds of both transforms around the products."""
    lanes = LanesChoice(target.lanes(f32))
    return WinogradInputLast().price(lanes, before, target) + WinogradOutputLast().price(lanes, behind, target)
