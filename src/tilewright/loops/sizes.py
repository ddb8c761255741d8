"""How large a buffer is, and may be: the address of an element, and the number of bytes, stay far from 64 bits."""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import postorder
from tilewright.expr.nodes import Const
from tilewright.expr.simplify import product_of, simplify
from tilewright.loops.faults import Fault
from tilewright.loops.nodes import Buffer
from tilewright.types.scopes import MOST_BYTES, Scope

MOST_ELEMENTS = 1 << 40
"""The most elements of a buffer by its constant dimensions, and the largest number that a size is computed with."""


def bytes_of(buffer: Buffer) -> int | None:
    """The bytes of a buffer; None of one with a dynamic dimension."""
    count = product_of(buffer.shape)
    return int(count.value) * buffer.dtype.bytes if isinstance(count, Const) else None


def fits_stack(buffer: Buffer) -> bool:
    """Whether a buffer may be on the stack: its size is known, and no more than there is room for."""
    size = bytes_of(buffer)
    return size is not None and size <= MOST_BYTES[Scope.STACK]


def check_size(at: Node, buffer: Buffer) -> None:
    """Raises Fault, at the line of `at`, for a buffer whose constant dimensions are too many or too large."""
    count = 1
    for extent in buffer.shape:
        known = simplify(extent)
        numbers = [abs(int(e.value)) for e in postorder(known) if isinstance(e, Const) and e.dtype.is_int]
        if isinstance(known, Const):
            count *= max(int(known.value), 1)
        largest = max([count, *numbers])
        if largest > MOST_ELEMENTS:
            why = f"its dimensions take {largest:,}, alone or multiplied, and the most is {MOST_ELEMENTS:,}"
            raise Fault(at, f"{buffer.name} is too large", part=extent, why=why, fix="take a smaller size")
