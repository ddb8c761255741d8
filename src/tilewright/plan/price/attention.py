"""What an attention takes: both products by their best tiles, what is done to scores, panels of keys and values.

for each head: panels; for blocks of rows: scores, steps of rows, sums
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.expr.work import Work
from tilewright.plan.price.contraction import RegisterTile, Sums, cycles, tiles
from tilewright.plan.price.points import copy_cycles, transpose_cycles, vector_cycles
from tilewright.plan.price.sizes import LARGE, USUAL
from tilewright.plan.price.transfer import byte_cycles, fits
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Size:
    """`heads` products of `rows` x `depth` by `depth` x `keys`, and of what comes of these by `keys` x `columns`.

    any_rows       whether the rows are dynamic; keys are what they are assumed to be
    bytes          of an element
    apart          whether neighbouring keys, or neighbouring columns, lie apart in memory: panels are then transposed
    work           of each score between the products
    reads, stores  how often each is read, and how often something of it is stored, in between
    reductions     of a row
    """

    heads: int
    rows: int
    keys: int
    depth: int
    columns: int
    any_rows: bool
    bytes: int
    apart: tuple[bool, bool]
    work: Work
    reads: int
    stores: int
    reductions: int

    @property
    def scores(self) -> Sums:
        """The sums of scores."""
        return Sums(self.rows, self.keys, self.depth, bits=8 * self.bytes)

    @property
    def sums(self) -> Sums:
        """The sums of the second product."""
        return Sums(self.rows, self.columns, self.keys, bits=8 * self.bytes)

    def level(self, rows: int, target: Target) -> int:
        """The nearest cache that keeps all panels of a head, the scores of a block of so many rows, and what the second
        product reads of them."""
        return fits(self.keys * (self.depth + self.columns + 2 * rows) * self.bytes, target)


def seconds(size: Size, first: RegisterTile, second: RegisterTile, rows: int, together: int, target: Target) -> float:
    """Seconds of one core, in blocks of so many rows, with register tiles for both products; so many rows are reduced
    together. A dynamic number of rows is priced as many, and as usual ones."""
    if size.any_rows:
        usual, many = replace(size, rows=USUAL, any_rows=False), replace(size, rows=LARGE, any_rows=False)
        found = [seconds(each, first, second, rows, together, target) for each in (usual, many)]
        return (found[0] + found[1] * USUAL / LARGE) / 2
    blocks = -(-size.rows // rows)
    block = _product(size, size.scores, first, rows, target) + _product(size, size.sums, second, rows, target)
    block += _between(size, first.lanes, rows, together, target)
    return size.heads * (_panels(size, first.lanes, target) + blocks * block) / target.core.hertz


@lru_cache(maxsize=1 << 10)
def best_tiles(size: Size, rows: int, target: Target) -> tuple[RegisterTile, RegisterTile]:
    """The register tiles that take the least time for blocks of so many rows."""
    found = []
    for sums in (size.scores, size.sums):
        fitting = sorted(tiles(replace(sums, rows=rows), target), key=lambda t: -t.rows * t.vectors)
        found.append(min(fitting, key=lambda t: _product(size, sums, t, rows, target)))
    return found[0], found[1]


def _product(size: Size, sums: Sums, tile: RegisterTile, rows: int, target: Target) -> float:
    """Cycles of a product of a block of rows. Of each panel, the first tile of rows reads it from where all panels of
    the head stay beside the scores of the block, the others from the nearest cache that keeps it beside their rows."""
    panel = tile.columns * sums.terms * size.bytes
    own = rows * sums.terms * size.bytes
    near = fits(panel + tile.rows * sums.terms * size.bytes, target)
    first, elements = max(size.level(rows, target), near), fits(own + panel, target)
    return cycles(replace(sums, rows=rows, panel=near, first=first, elements=elements), tile, target)


def _between(size: Size, lanes: int, rows: int, together: int, target: Target) -> float:
    """Cycles of what is done to the scores of a block, in the cache that keeps them. Vectors of partial results are
    halved until one number is left, each time after the one before."""
    core, level = target.core, size.level(rows, target)
    each = vector_cycles(size.work, target, lanes) + size.reads * core.load_cycles + size.stores * core.store_cycles
    moved = (
        (size.reads + size.stores) * rows * size.keys * size.bytes * byte_cycles(level, target) if level > 1 else 0.0
    )
    halvings = (lanes - 1).bit_length() * size.reductions * -(-rows // together)
    return max(rows * -(-size.keys // lanes) * each, moved) + halvings * core.fma_latency


def _panels(size: Size, lanes: int, target: Target) -> float:
    """Cycles to lay out the keys and the values of a head in panels."""
    counts = zip((size.keys * size.depth, size.keys * size.columns), size.apart, strict=True)
    return sum((transpose_cycles if apart else copy_cycles)(elements, lanes, target) for elements, apart in counts)
