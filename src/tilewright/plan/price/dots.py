"""Which instruction adds up products of narrow numbers: the one with the fewest cycles for a product, in its best tile.

    choose_dot(u8, i8, i32, target)      a row of the table, in vectors; None where there is none for these
    choose_tiles(bf16, bf16, f32, …)     the same in registers of two dimensions

What a tile of such products takes says `contraction.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const
from tilewright.ops.index_maps import IndexMaps
from tilewright.plan.price.contraction import Dot, Sums, pays, term_cycles, tiles
from tilewright.target import Target
from tilewright.target.instructions import INSTRUCTIONS


def choose_tiles(element: DType, vector: DType, sums: DType, target: Target) -> Dot | None:
    """The product of tiles for rows of one type and columns of the other; None where the machine has none."""
    able = _able(element, vector, sums, target, tiles=True)
    return min(able, key=lambda d: dot_cycles(d, target), default=None)


def choose_dot(element: DType, vector: DType, sums: DType, target: Target) -> Dot | None:
    """How to add up products of these types: by the instruction with the fewest cycles for a product, in the tile that
    is best for it, of those whose registers hold all values of both; of 16-bit floats without one, products in f32.
    None where the machine has nothing for them."""
    halves = (dtypes.bf16, dtypes.f16)
    fastest = min(_able(element, vector, sums, target), key=lambda d: dot_cycles(d, target), default=None)
    if fastest is None and element in halves and vector in halves and sums is dtypes.f32:
        return Dot("", sums.name, sums.name)
    return fastest


def dot_of(maps: IndexMaps, first: DType, second: DType, sums: DType, target: Target) -> Dot | None:
    """How an instruction adds up the products of a contraction's factors of these two types, either of them along the
    lanes; None where none does, or where there are fewer terms than it takes."""
    summed = summed_axis(maps)
    return None if summed is None else _first_dot(first, second, sums, target, summed[1])


def summed_axis(maps: IndexMaps) -> tuple[str, int] | None:
    """The axis of which an instruction takes several terms, and its extent, where that is known."""
    summed = maps.spec.summed
    extent = None if summed is None else maps.extent(summed)
    return (summed, int(extent.value)) if summed is not None and isinstance(extent, Const) else None


def _first_dot(first: DType, second: DType, sums: DType, target: Target, terms: int | None) -> Dot | None:
    found = (choose_dot(*pair, sums, target) for pair in ((first, second), (second, first)))
    return next((d for d in found if d is not None and d.instruction and (terms is None or d.depth <= terms)), None)


def lacking_terms(maps: IndexMaps, first: DType, second: DType, sums: DType, target: Target) -> int | None:
    """How many zeros the summed axis needs so that an instruction has terms enough; None where none adds up such
    products, or where products of f32 are as fast as those with zeros."""
    summed = summed_axis(maps)
    dot = None if summed is None or not summed[1] else _first_dot(first, second, sums, target, None)
    if summed is None or dot is None or summed[1] >= dot.depth:
        return None if dot is None else 0
    lacking = dot.depth - summed[1]
    return lacking if pays(dot_cycles(None, target), dot_cycles(dot, target) * dot.depth / summed[1]) else None


def pairs_of(target: Target) -> Dot | None:
    """The machine's products of bf16 pairs; None where it has none."""
    dot = choose_dot(dtypes.bf16, dtypes.bf16, dtypes.f32, target)
    return dot if dot is not None and dot.instruction else None


@lru_cache(maxsize=1 << 8)
def dot_cycles(dot: Dot | None, target: Target) -> float:
    """Cycles of a product, of f32 without an instruction, in the best tile of many, of vectors that come from the third
    cache."""
    sums, depth = Sums(0, 1 << 16, 1, dot=dot, panel=3), 1 if dot is None else dot.depth
    return min(term_cycles(sums, t, target) / (t.rows * t.columns * depth) for t in tiles(sums, target))


def _able(element: DType, vector: DType, sums: DType, target: Target, *, tiles: bool = False) -> Iterator[Dot]:
    """The instructions that have room for operands of these types, either way; or `tiles`, which take rows first."""
    for row in INSTRUCTIONS.values():
        is_dot = len(row.registers[0].shape) == (3 if tiles else 2) and row.has_tiles == tiles
        if is_dot and row.accumulator.dtype is sums and row.runs_on(target):
            for one, other in (row.registers[:2], *(() if tiles else (row.registers[1::-1],))):
                if one.dtype.holds(element) and other.dtype.holds(vector):
                    yield Dot(row.name, one.dtype.name, other.dtype.name)
