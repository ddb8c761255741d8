"""What the cost model sees of a choice: numbers by their names, of the kernel, the machine, and the choice itself.

    seen = Features(function, sizes, target)
    seen.of(shape, choice, price, least)    {"accumulators": 0.75, "columns_left": 0.0, "field tile.rows": 3.2, …}

Nothing is scheduled, which takes as long as measuring: all numbers are closed forms, some microseconds for a choice, so
that each of thousands has them. `TABLE` says what each is. Sizes, times and counts are binary logarithms; what lies in
a cache is a logarithm of its part of that cache, so that one number stands for machines of different caches. What a
choice says is there, field by field, under "field." and its place: fields of templates that are registered later, too.
A kernel's loops follow from the type of what it is to a template (`loops_of`); where that is of another type, they are
those over its largest result.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import singledispatch
from typing import Any

from tilewright.analysis.cost import count
from tilewright.analysis.sizes import Sizes
from tilewright.analysis.windows import Windows
from tilewright.loops.nodes import Buffer, Function
from tilewright.plan.attention.shape import Attention
from tilewright.plan.gemm.shape import Product
from tilewright.target import Target
from tilewright.types.scopes import Scope

TABLE: Mapping[str, str] = {
    "flops": "arithmetic operations of a call",
    "intensity": "operations for each byte of parameters",
    "constants": "bytes of constants over the second cache",
    "bits": "of an element of the largest parameter",
    "rows": "results along a tile's rows",
    "columns": "results along the lanes",
    "terms": "terms of a sum",
    "repeats": "how often there are so many rows and columns: batches, channels, heads",
    "price": "the seconds by price over those of the cheapest choice",
    "of_peak": "the price over what the operations take at the machine's peak",
    "accumulators": "vectors of sums in a tile over the machine's registers",
    "per_load": "multiply-adds for each vector or element that a tile loads",
    "chains": "independent sums over those that hide the latency of a multiply-add",
    "lanes": "lanes of a tile's vectors over those of a register",
    "rows_left": "part of the rows of all tiles that is beyond the kernel's",
    "columns_left": "part of the columns of all tiles that is beyond the kernel's",
    "tiles": "tiles of a call",
    "written_out": "multiply-adds of vectors in the innermost loop's body",
    "panel": "bytes of a tile's columns, for all terms, over the first cache",
    "strip": "bytes of a tile's rows, for all terms, over the first cache",
    "block": "bytes of a cache block's rows, for all terms, over the second cache",
    "all": "bytes of all parameters over the second cache",
    "same_set": "rows of a panel, as it lies, over those that have room in their sets of the first cache",
}
"""What the numbers are, but for those of fields."""

FIELD = "field."
"""What the names of a choice's fields begin with."""

Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loops:
    """A kernel as tiles see it: `repeats` times `rows` x `columns` results of so many `terms`, the bytes of an element
    of what is read along the columns, and the bytes from one row of that to the next."""

    rows: int
    columns: int
    terms: int
    repeats: int
    bytes: int
    apart: int


class Features:
    """What is known of one kernel, with which each of its choices is described. `sizes` are those of symbols by
    name."""

    def __init__(self, function: Function, sizes: Mapping[str, int], target: Target) -> None:
        known = Sizes({s: sizes[s.name] for s in function.symbols if s.name in sizes})
        bytes_of = {b: b.dtype.bytes * math.prod(known.extent(e) for e in b.shape) for b in function.params}
        largest = max(function.params, key=lambda b: bytes_of[b])
        self._result = _result(function.params[function.inputs :], known)
        self._target, self._loops = target, dict[int, tuple[object, Loops]]()
        self._flops = max(known.value(count(function).flops), 1)
        self._bytes = max(sum(bytes_of.values()), 1)
        constants = sum(size for b, size in bytes_of.items() if b.scope is Scope.CONSTANT)
        near = target.cache(2).bytes
        self._kernel = {
            "flops": math.log2(self._flops),
            "intensity": math.log2(self._flops / self._bytes),
            "constants": math.log2(1 + constants / near),
            "all": math.log2(self._bytes / near),
            "bits": float(largest.dtype.bits),
        }

    def of(self, shape: object, choice: Any, price: float, least: float) -> dict[str, float]:
        """The numbers of a choice of a template to which the kernel is `shape`, of this price and the cheapest one's,
        in seconds."""
        loops = self._loops_of(shape)
        fields = dict(fields_of(choice))
        peak = self._flops / (self._target.fma_gflops * 1e9)
        found = self._kernel | {
            "rows": math.log2(loops.rows),
            "columns": math.log2(loops.columns),
            "terms": math.log2(loops.terms),
            "repeats": math.log2(loops.repeats),
            "price": math.log2(max(price, 1e-12) / max(least, 1e-12)),
            "of_peak": math.log2(max(price, 1e-12) / peak),
        }
        found |= _of_tile(loops, fields, self._target)
        return found | {f"{FIELD}{'.'.join(at)}": number for at, value in fields.items() for number in _number(value)}

    def _loops_of(self, shape: object) -> Loops:
        if id(shape) not in self._loops:  # with the shape, so that its place in memory is not another one's
            self._loops[id(shape)] = (
                shape,
                Loops(*(max(n, 1) for n in dataclasses.astuple(loops_of(shape, self._result)))),
            )
        return self._loops[id(shape)][1]


@singledispatch
def loops_of(shape: object, result: Loops) -> Loops:
    """The loops of a kernel by what it is to a template; those over its largest result, where that does not say."""
    return result


@loops_of.register
def _(shape: Product, result: Loops) -> Loops:
    size = shape.size.usually
    return Loops(size.rows, size.columns, size.terms, size.batch, size.vector.bytes, size.vector.apart)


@loops_of.register
def _(shape: Windows, result: Loops) -> Loops:
    rows, columns, each = shape.rows.size, shape.columns.size, shape.source.dtype.bytes
    if shape.channels_last:
        return Loops(columns, shape.channels, shape.terms, shape.images * rows, each, each * shape.channels)
    across = each * columns * shape.columns.stride
    return Loops(rows, columns, shape.terms, shape.images * shape.channels, each, across)


@loops_of.register
def _(shape: Attention, result: Loops) -> Loops:
    size = shape.size
    return Loops(size.rows, size.keys, size.depth, size.heads, size.bytes, size.depth * size.bytes)


def _result(outputs: tuple[Buffer, ...], known: Sizes) -> Loops:
    """The loops over the largest of some buffers."""
    shapes = [(b, [known.extent(e) for e in b.shape]) for b in outputs]
    buffer, extents = max(shapes, key=lambda found: math.prod(found[1]))
    *others, rows, columns = [1, 1, *extents]
    each = buffer.dtype.bytes
    return Loops(rows, columns, 1, math.prod(others), each, each * columns)


def _of_tile(loops: Loops, fields: Mapping[Place, Any], target: Target) -> dict[str, float]:
    """The numbers of a choice's tile: the first one in it, where it has several."""
    near, second = target.cache(1), target.cache(2)
    whole = target.vector_bits // 8 // loops.bytes
    lanes = _first(fields, "lanes", whole)
    vectors = _first(fields, "vectors", 1)
    rows = _first(fields, "rows", _first(fields, "columns", 1))
    columns, sums = vectors * lanes, rows * vectors
    down, across = -(-loops.rows // rows), -(-loops.columns // columns)
    each, wide = loops.terms * loops.bytes, max(lanes // max(whole, 1), 1)
    block = rows * min(_first(fields, "block_tiles", down), down)
    hidden = target.core.fma_latency / target.core.fma_cycles
    return {
        "accumulators": sums * wide / target.vector_registers,
        "per_load": sums * wide / (rows + vectors * wide),
        "chains": sums * wide / hidden,
        "lanes": math.log2(lanes / max(whole, 1)),
        "rows_left": 1 - loops.rows / (down * rows),
        "columns_left": 1 - loops.columns / (across * columns),
        "tiles": math.log2(down * across * loops.repeats),
        "written_out": math.log2(1 + sums * wide * _first(fields, "terms", 1)),
        "panel": math.log2(columns * each / near.bytes),
        "strip": math.log2(rows * each / near.bytes),
        "block": math.log2(block * each / second.bytes),
        "same_set": math.log2(loops.terms / max(near.room(loops.apart), 1)),
    }


def _first(fields: Mapping[Place, Any], name: str, default: int) -> int:
    """The first field of a name, a number above zero."""
    found = (v for at, v in fields.items() if at[-1] == name and type(v) is int and v > 0)
    return next(found, default)


def _number(value: Any) -> Iterator[float]:
    """A field as a number, where it is one: counts as logarithms, kinds by their places among each other."""
    if isinstance(value, bool):
        yield float(value)
    elif isinstance(value, int):
        yield math.log2(1 + value) if value >= 0 else -1.0
    elif isinstance(value, Enum):
        yield float(list(type(value)).index(value))


def fields_of(choice: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """The fields of a choice that hold numbers, flags and the like, those of records inside, and what lists hold, by
    their places."""
    if isinstance(choice, tuple):
        inside = [(str(n), value) for n, value in enumerate(choice)]
    elif dataclasses.is_dataclass(choice):
        inside = [(field.name, getattr(choice, field.name)) for field in dataclasses.fields(choice)]
    else:
        inside = []
    for name, value in inside:
        if dataclasses.is_dataclass(value) or isinstance(value, tuple):
            yield from fields_of(value, (*place, name))
        elif value is None or isinstance(value, bool | int | Enum):
            yield (*place, name), value
