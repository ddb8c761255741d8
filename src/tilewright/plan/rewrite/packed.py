"""Whether a product of a few rows by numbers of a few bits reads them packed, or as the floats that they stand for.

A few rows read each weight once, so that they wait for memory, where packed numbers are a fraction of the bytes;
unpacking them takes instructions, for all rows of a tile together. Where the machine adds up products of bytes, numbers
of four bits and fewer become bytes with fewer instructions than floats, and rows become whole numbers of three digits.
Every way is priced as the longer of its instructions and of reading its constants from the cache or memory that holds
those of the module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.dtypes import f32
from tilewright.expr.intrinsics import FREE
from tilewright.expr.nodes import Call, Const, Var, const
from tilewright.ops.quantized import DIGITS, WORD, are_floats, numbers_of
from tilewright.plan.price import contraction
from tilewright.plan.price.contraction import Sums, least_seconds
from tilewright.plan.price.points import additions
from tilewright.target import Target
from tilewright.target.instructions import byte_dots
from tilewright.target.transfer import fits, read_seconds


@dataclass(frozen=True, slots=True)
class Rows:
    """A product of so many rows by weights: how many columns, how many terms each, of how many bits, with a scale for
    each `block` of them."""

    rows: int
    columns: int
    terms: int
    bits: int
    block: int


def pays(rows: Rows, floats: float, packed: float, target: Target) -> bool:
    """Whether packed weights are faster, in a module whose constants are so many bytes as `floats`, or `packed`."""
    return contraction.pays(float_seconds(rows, floats, target), packed_seconds(rows, packed, target))


def float_seconds(rows: Rows, constants: float, target: Target) -> float:
    """Seconds of one core with weights that are floats."""
    reading = read_seconds(f32.bytes * rows.columns * rows.terms, fits(constants, target, own=False), target)
    return max(least_seconds(Sums(rows.rows, rows.columns, rows.terms), target), reading)


def packed_seconds(rows: Rows, constants: float, target: Target) -> float:
    """Seconds of one core with packed weights."""
    core, numbers, codes = target.core, rows.columns * rows.terms, WORD // rows.bits
    each = min(_digit_cycles(rows, target), _float_cycles(rows, target))
    tiles = -(-rows.rows // additions(target))
    cycles = numbers / codes / target.lanes(f32) * (each + tiles * core.load_cycles)
    size = numbers * rows.bits / 8 + numbers / rows.block * f32.bytes
    return max(cycles / core.hertz, read_seconds(size, fits(constants, target, own=False), target))


def as_digits(rows: Rows, target: Target) -> bool:
    """Whether packed weights are multiplied faster by the digits of rows that are made whole numbers, by an instruction
    that adds up products of bytes, and these numbers are as good as floats."""
    return _digit_cycles(rows, target) < _float_cycles(rows, target)


def _float_cycles(rows: Rows, target: Target) -> float:
    """Cycles for a vector of words whose numbers become floats once for the rows of a tile, beside multiply-adds."""
    core, codes = target.core, numbers_of(Var("word", dtypes.u32), const(0.0, f32), rows.bits, f32)
    nodes = [e for e in dict.fromkeys(preorder(tuple(codes))) if not isinstance(e, Const | Var)]
    unpacking = sum(not (isinstance(e, Call) and e.fn.name in FREE) for e in nodes)
    unpacking *= -(-rows.rows // additions(target))
    products = rows.rows * len(codes) * core.fma_cycles
    return max(unpacking * core.add_cycles, products + unpacking * core.add_beside_cycles)


def _digit_cycles(rows: Rows, target: Target) -> float:
    """Cycles for a vector of words whose numbers become bytes, which each digit multiplies; without end where the
    machine has no instruction for that, or these numbers are not as good as floats."""
    row = byte_dots(target).get(target.lanes(f32))
    if rows.bits > 4 or row is None or not are_floats(rows.bits, rows.block):
        return math.inf
    core, places = target.core, 8 // rows.bits
    others = rows.rows * (2 * places - 1 + DIGITS)
    products = rows.rows * DIGITS * places * target.dot_cycles(row.name)
    return max(others * core.add_cycles, products + others * core.add_beside_cycles)


def panel(target: Target) -> int:
    """The columns of a panel: as many vectors of sums as hide the latency of an addition."""
    return additions(target) * target.lanes(f32)
