"""How much memory a call may take: checked before any is allocated, so that absurd sizes are errors, not swapping."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tilewright.report import settings
from tilewright.report.errors import RuntimeFault
from tilewright.types.room import at_line

Array = np.ndarray[Any, Any]

UNCOUNTABLE = 2**62
"""Sizes from here on are what overflowing arithmetic is reported as: see codegen's Reserve."""


def check_memory(size: int, what: str) -> None:
    """`what` (buffers, results) of one call may take `size` bytes. Raises RuntimeFault where that is too much."""
    limit = settings.MEMORY_LIMIT.read() or _machine_memory()
    if size > limit:
        amount = f"{size:,} bytes" if size < UNCOUNTABLE else "more bytes than can be counted"
        raise RuntimeFault(
            "the call needs more memory than it may take",
            why=f"its {what} take {amount}, and the limit is {limit:,}",
            fix=f"call it with smaller inputs, or set {settings.MEMORY_LIMIT.name}",
        )


def allocate(size: int) -> Array:
    """That many bytes, aligned to a cache line. Raises RuntimeFault where limit or machine do not allow it."""
    check_memory(size, "buffers")
    try:
        return at_line((size,), np.dtype(np.uint8))
    except MemoryError:
        raise RuntimeFault(
            "there is not enough memory for the call",
            why=f"the system gives no {size:,} bytes for its buffers",
            fix="call it with smaller inputs",
        ) from None


def _machine_memory() -> int:
    """The machine's memory in bytes; a huge number where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 1 << 46
