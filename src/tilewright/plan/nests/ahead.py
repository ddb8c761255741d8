"""Constants that nests read once, in pieces: what the tiles of other templates do with panels (plan/gemm/).

    for j, k: y[j] += w[j, k, 0..512] · x[k]   =>   for j, k: prefetch w[j, k + 2, 0], w[j, k + 2, 16], …; y[j] += …

The hardware follows such a stream, too, but not as far ahead as memory is away where each piece takes few instructions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from tilewright.analysis.accesses import accesses
from tilewright.analysis.elements import box_of
from tilewright.analysis.regions import Region
from tilewright.expr.nodes import Const, Expr
from tilewright.loops.nodes import Buffer, For, Function, LoopKind
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.transfer import fits
from tilewright.types.scopes import Scope


def bytes_ahead(function: Function, target: Target) -> int:
    """How far ahead a kernel's constants are prefetched: a page, or not at all (0) where they stay in the caches of a
    core."""
    constants = [b for b in function.params if b.scope is Scope.CONSTANT]
    return target.page if fits(sum(_bytes(b.shape, b) for b in constants), target) > 2 else 0


def fetch_ahead(s: Schedule, ahead: int, line: int) -> None:
    """Each constant that is read once, by a nest of its own pieces, is prefetched so many bytes ahead, line by line."""
    for buffer in [b for b in s.func.params if b.scope is Scope.CONSTANT]:
        found = _pieces(s.func, buffer, ahead)
        if found is not None:
            loop, inner, size = found
            within = {} if inner is None else {"inner": inner.var}
            s.attempt(s.prefetch, buffer.name, loop.var, -(-ahead // size), apart=line // buffer.dtype.bytes, **within)


def _pieces(function: Function, buffer: Buffer, most: int) -> tuple[For, For | None, int] | None:
    """The outermost loop whose iterations each read a piece of at most so many bytes, which no other one reads; the
    loop inside that the piece is shared by; and its bytes. None where there is no such loop."""
    read = [a.loops for a in accesses(function.body) if a.buffer is buffer]
    around = [loop for loop in read[0] if all(loop in each for each in read)] if read else []
    serial = list(takewhile(lambda loop: loop.kind in (LoopKind.SERIAL, LoopKind.PARALLEL), around))
    times = 1
    for n, loop in enumerate(serial):
        box = box_of(loop.body, buffer)
        times *= loop.size or 0
        size = _bytes([r.extent for r in box], buffer) if box is not None else 0
        if box is not None and 0 < size <= most and Region(box, True).is_contiguous_in(buffer.shape):
            is_once = times * size == _bytes(buffer.shape, buffer)
            return (loop, next(iter(serial[n + 1 :]), None), size) if is_once else None
    return None


def _bytes(extents: Sequence[Expr], buffer: Buffer) -> int:
    """The bytes of so many elements of a buffer; 0 where that is not known."""
    known = [int(e.value) if isinstance(e, Const) else 0 for e in extents]
    return math.prod(known) * buffer.dtype.bytes
