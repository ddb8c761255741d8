"""Whether a product of one row by numbers of a few bits reads them packed, or as the floats that they stand for.

A row reads each weight once, so that it waits for memory, where packed numbers are a fraction of the bytes; unpacking
them takes instructions for each, which a product of many rows would pay for every row. Both ways are priced as the
longer of their instructions and of reading their constants from the cache or memory that holds those of the module.
"""

from __future__ import annotations

from tilewright.core.records import dataclass
from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.work import Work
from tilewright.ops.quantized import numbers_of
from tilewright.plan.price import contraction
from tilewright.plan.price.contraction import Sums, least_seconds
from tilewright.plan.price.points import additions, vector_cycles
from tilewright.plan.price.transfer import fits, read_seconds
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Row:
    """A product of one row by weights: how many columns, how many terms each, of how many bits, with a scale for each
    `block` of them."""

    columns: int
    terms: int
    bits: int
    block: int


def pays(row: Row, floats: float, packed: float, target: Target) -> bool:
    """Whether packed weights are faster, in a module whose constants are so many bytes as `floats`, or `packed`."""
    return contraction.pays(float_seconds(row, floats, target), packed_seconds(row, packed, target))


def float_seconds(row: Row, constants: float, target: Target) -> float:
    """Seconds of one core with weights that are floats."""
    reading = read_seconds(f32.bytes * row.columns * row.terms, fits(constants, target, own=False), target)
    return max(least_seconds(Sums(1, row.columns, row.terms), target), reading)


def packed_seconds(row: Row, constants: float, target: Target) -> float:
    """Seconds of one core with packed weights. Of bytes a vector has several times as many as of floats."""
    lanes, numbers = target.lanes(f32), row.columns * row.terms
    codes = numbers_of(Var("byte", dtypes.u8), Var("zero", dtypes.u8), row.bits, f32)
    inside = [
        e for e in dict.fromkeys(preorder(tuple(codes))) if isinstance(e, Expr) and not isinstance(e, Const | Var)
    ]
    widths = [max(part.dtype.bits for part in (e, *e.children()) if isinstance(part, Expr)) for e in inside]
    work = Work(plain=len(codes) + sum(widths) / f32.bits)  # of each number the product with its sum
    cycles = numbers / len(codes) / lanes * (vector_cycles(work, target, lanes) + target.core.load_cycles)
    size = numbers * row.bits / 8 + numbers / row.block * f32.bytes
    return max(cycles / target.core.hertz, read_seconds(size, fits(constants, target, own=False), target))


def panel(target: Target) -> int:
    """The columns of a panel: as many vectors of sums as hide the latency of an addition."""
    return additions(target) * target.lanes(f32)
