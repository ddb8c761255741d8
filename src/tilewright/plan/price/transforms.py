"""What the transforms around Winograd's and Strassen's products take: the instructions of their definitions
(ops/winograd.py, ops/strassen.py), by the rates of a core, or the bytes of what lies between the kernels where these
take longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.core.walk import preorder
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const, Expr, Mul, Var
from tilewright.ops import strassen, winograd
from tilewright.plan.price.points import transpose_cycles
from tilewright.plan.price.transfer import apart_cycles, fits, kept, reread_seconds, rewrite_seconds
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Tiling:
    """Winograd's tiles: `size` x `size` outputs each, for windows that move by `stride`; how many images and channels
    there are, and rows and columns of tiles of each; the bytes of an element of a product, and of what else passes
    through the caches before products are read."""

    size: int
    stride: int
    images: int
    channels: int
    rows: int
    columns: int
    bytes: int = f32.bytes
    beside: int = 0

    @property
    def edge(self) -> int:
        """The rows of inputs that a tile reads, which are as many as its products along a dimension."""
        return winograd.edge_of(self.size, self.stride)

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


def winograd_input_seconds(t: Tiling, lanes: int, together: int, padded_once: bool, target: Target) -> float:
    """The time of an input transform in vectors of tiles of a row: of all rows of `together` channels before their
    columns; or (0) of a row of tiles at a time, from a channel that is padded before, or is with each row of tiles."""
    core, edge, step = target.core, t.edge, t.step
    load, store, add = core.load_cycles, core.store_cycles, core.add_cycles
    taken = _sums(winograd.input_terms(t.size, t.stride, _variables(edge)))
    padding = step * step * (load + store) * (1 if padded_once else edge / step)
    rows = step * (edge * (load + store) + taken * add)
    columns = edge * (edge * (load + core.shuffle2_cycles + store) + taken * add)
    channels = t.images * t.channels
    cycles = channels * -(-t.rows * t.columns // lanes) * (padding + rows + columns)
    stages = 3 * channels * (1 if together else t.rows)  # each begins and ends with loads and sums that nothing hides
    cycles += stages * 2 * core.fma_latency + _left_cycles(t, together, target)
    staged = [(t.half, together * t.half), (t.padded, t.padded if padded_once else 0)]
    between = channels * sum(_there_and_back(size, held, target) for size, held in staged)
    return core.kernel_seconds + max(cycles / core.hertz + between, rewrite_seconds(t.products, t.between, target))


def _left_cycles(t: Tiling, together: int, target: Target) -> float:
    """Cycles in which lines come again that were left before they were full: those in which the products of some
    channels, or of a row of tiles, end. Of one of each plane the first cache keeps as many as there is room for in its
    sets."""
    planes = t.edge**2
    left = max(planes - target.caches[0].room(t.plane), 0)
    pieces = -(-t.channels // together) if together else t.channels * t.rows
    level = max(fits(t.between, target, own=False), 2)
    return t.images * left * pieces * apart_cycles(level, target)


def _there_and_back(size: int, held: int, target: Target) -> float:
    """Seconds in which bytes go to a cache behind the first, and come again, `held` of them at a time."""
    if kept(held, target.caches[0]) == 1:
        return 0.0
    return rewrite_seconds(size, held, target) + reread_seconds(size, held, target)


def winograd_output_seconds(t: Tiling, lanes: int, target: Target) -> float:
    """The time of an output transform in vectors of channels: columns first, then rows, then turned in registers."""
    core, edge, size, number = target.core, t.edge, t.size, t.images * t.rows * t.columns
    made = _sums(winograd.output_terms(size, t.stride, _variables(edge)))
    column = edge * core.load_cycles + made * core.add_cycles + size * core.store_cycles
    cycles = -(-t.channels // lanes) * number * (edge + size) * column
    cycles += transpose_cycles(number * size * size * t.channels, lanes, target)
    read = reread_seconds(t.products, t.between, target)
    return core.kernel_seconds + max(cycles / core.hertz, read)


@dataclass(frozen=True, slots=True)
class Halves:
    """Blocks of Strassen's: how many pairs of rows there are, and the columns of half a row."""

    pairs: int
    columns: int

    @property
    def products(self) -> int:
        """The bytes of a sum of each block, or of all products."""
        return strassen.PRODUCTS * self.pairs * self.columns * f32.bytes


def strassen_input_seconds(h: Halves, lanes: int, target: Target) -> float:
    """The time of all sums of blocks of the first factor: each block is read once."""
    core = target.core
    sums = _operations(strassen.input_terms(_variables(4)))
    each = strassen.PRODUCTS * core.store_cycles + 4 * core.load_cycles + sums * core.add_cycles
    written = rewrite_seconds(h.products, h.products, target)
    return core.kernel_seconds + max(h.pairs * -(-h.columns // lanes) * each / core.hertz, written)


def strassen_output_seconds(h: Halves, lanes: int, target: Target) -> float:
    """The time of all sums of products: each product is read once."""
    core = target.core
    sums = _operations(strassen.output_terms(_variables(strassen.PRODUCTS)))
    each = strassen.PRODUCTS * core.load_cycles + 4 * core.store_cycles + sums * core.add_cycles
    read = reread_seconds(h.products, h.products, target)
    return core.kernel_seconds + max(h.pairs * -(-h.columns // lanes) * each / core.hertz, read)


def strassen_seconds(before: Halves, behind: Halves, target: Target) -> float:
    """The time of both sums around products, in whole vectors."""
    lanes = target.lanes(f32)
    return strassen_input_seconds(before, lanes, target) + strassen_output_seconds(behind, lanes, target)


@lru_cache(maxsize=16)
def _variables(count: int) -> Sequence[Expr]:
    return [Var(f"d{n}", f32, None) for n in range(count)]


def _sums(terms: Sequence[Expr]) -> int:
    """The instructions of sums, products fused into them."""
    return sum(not isinstance(e, Const | Var | Mul) for e in {e for term in terms for e in preorder(term)})


def _operations(terms: Sequence[Expr]) -> int:
    return len({e for term in terms for e in preorder(term) if not isinstance(e, Var)})
