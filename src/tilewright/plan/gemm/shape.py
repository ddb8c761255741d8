"""What a contraction is to the templates that run it in tiles: numbers, and how its operands lie. No machine."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.expr.nodes import Const
from tilewright.loops.edit import blocks, loads
from tilewright.loops.nodes import Store
from tilewright.plan.facts.contraction import Contraction, Operand
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.price.sizes import known


@dataclass(frozen=True, slots=True)
class Lies:
    """How an operand lies in memory: whether it is a constant; whether it is a tensor, each dimension indexed by one
    axis, or a window; bytes of an element, from one row to the next, and of all that a batch reads; elements from one
    column (of the elements: from one row of the result) to the next, None where they lie unevenly."""

    constant: bool
    plain: bool
    bytes: int
    apart: int
    whole: int
    step: int | None


@dataclass(frozen=True, slots=True)
class Size:
    """A contraction in numbers. Dynamic extents are large ones (`known`).

    rows            of the result that read the same panel; 0 where there is no such axis
    batch, own      how many products there are, and how many of them have a constant of their own along the lanes
    any_rows        whether rows, or columns, are dynamic
    bits            of a sum
    parts           tensors that vectors are the difference of, at most: kernels whose batches have constants of their
                    own are priced like those beside them that take differences, so that all read the same panels
    axes            reduce axes
    """

    rows: int
    columns: int
    terms: int
    batch: int
    own: int
    any_rows: bool
    any_columns: bool
    bits: int
    is_float: bool
    parts: int
    axes: int
    vector: Lies
    element: Lies
    batched_elements: bool

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return max(self.rows, 1) * self.columns * self.terms * self.batch


@dataclass(frozen=True, slots=True)
class Product:
    """A kernel whose work is one contraction."""

    found: Contraction
    size: Size


def recognise(facts: Facts) -> Product | None:
    """The contraction of a kernel, where all other blocks read its result at their own points, if at all. Windows of
    each channel, of known sizes, are none: no factor of theirs serves two sums."""
    found, windows = facts.contraction, facts.windows
    if found is None:
        return None
    if found.rows is None and windows is not None and not (windows.rows.dynamic or windows.columns.dynamic):
        return None
    for block in blocks(facts.inlined.body):
        if block is found.block:
            continue
        if block.reduce or block.where is not None or not isinstance(block.body, Store):
            return None
        points = tuple(a.var for a in block.axes)
        if any(ld.buffer is found.out and ld.indices != points for ld in loads(block)):
            return None
    return Product(found, measure(found))


def measure(found: Contraction) -> Size:
    """A contraction in numbers."""
    extents = [known(e) for e in found.extents]
    axes = found.block.axes
    moving = [n for n in found.batch if found.broadcast.moves(axes[n].var) and extents[n] > 1]
    return Size(
        rows=extents[found.rows] if found.rows is not None else 0,
        columns=extents[found.columns],
        terms=found.depth,
        batch=math.prod(extents[n] for n in found.batch),
        own=math.prod(extents[n] for n in found.own_batches),
        any_rows=found.rows is not None and not isinstance(found.extents[found.rows], Const),
        any_columns=not isinstance(found.extents[found.columns], Const),
        bits=max(found.out.dtype.bits, 32),
        is_float=found.out.dtype.is_float and found.out.dtype is found.vector.buffer.dtype,
        parts=2 if found.own_batches else 1,
        axes=len(found.reduce),
        vector=_lies(found, found.vector, found.columns, extents),
        element=_lies(found, found.broadcast, found.rows, extents),
        batched_elements=bool(moving),
    )


def _lies(found: Contraction, operand: Operand, axis: int | None, extents: list[int]) -> Lies:
    size = operand.buffer.dtype.bytes
    own = extents[axis] if axis is not None else 1
    held = math.prod(known(e) for e in operand.buffer.shape)
    step = operand.step(found.block.axes[axis].var) if axis is not None else None
    return Lies(
        constant=operand.is_constant,
        plain=operand.is_plain(),
        bytes=size,
        apart=known(operand.buffer.shape[operand.last]) * size,
        whole=min(own * found.depth, held) * size,
        step=step,
    )
