"""join_sums: sums over the same points, which read something in common, in one loop: each element is loaded once for
all of them.

a = 0                                       a = 0
for k in 0..n: a = a + x[k] * y[k]          b = 0
b = 0                               =>      for k in 0..n:
for k in 0..n: b = b + x[k] * z[k]            a = a + x[k] * y[k]
                                              b = b + x[k] * z[k]
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.loops.edit import blocks, loads, statements
from tilewright.loops.nodes import Alloc, Buffer, For, Function, Seq, Stmt, seq
from tilewright.schedule.find import nests, stored_buffers
from tilewright.schedule.loops.merge import merge_neighbours
from tilewright.schedule.step import Step


def join_sums(function: Function) -> Step:
    """Loops at the top level that hold sums, and read something in common, become one, where neither needs what the
    other makes. What the later loop needs comes before the earlier one.

    for k: block a: a[] += x[k] * y[k]; for k: block b: b[] += x[k] * z[k]
              =>      for k: block a: a[] += x[k] * y[k]; block b: b[] += x[k] * z[k]
    """
    parts = list(nests(function))
    made = joined_sums(parts)
    if len(made) == len(parts):
        return Step(function)
    return Step(function.replace(body=seq(*made)), None, ("none of the sums needs what another one makes",))


def joined_sums(parts: Sequence[Stmt]) -> list[Stmt]:
    """The statements, which run one after the other, with such loops joined where neither needs what the other makes.
    What the later loop needs comes before the earlier one."""
    made = list(parts)
    n = 0
    while n < len(made):
        joined = next((j for m in range(n + 1, len(made)) if (j := _joined(made, n, m)) is not None), None)
        if joined is None:
            n += 1
        else:
            made = joined
    return made


def _joined(parts: list[Stmt], n: int, m: int) -> list[Stmt] | None:
    """The statements with loops n and m as one; None where they may not be joined."""
    first, second = parts[n], parts[m]
    if not isinstance(first, For) or not isinstance(second, For) or not _read_alike(first, second):
        return None
    needed: list[Stmt] = []
    later: list[Stmt] = []
    for s in reversed(parts[n + 1 : m]):
        (needed if any(_depend(s, t) for t in (second, *needed)) else later).insert(0, s)
    if any(_depend(s, t) for s in (first, *later) for t in needed) or any(_depend(t, second) for t in later):
        return None
    merged = merge_neighbours([first, second])
    if len(merged) > 1 or not isinstance(merged[0], For):
        return None
    inside = merged[0].body
    body = seq(*joined_sums(inside.body)) if isinstance(inside, Seq) else inside
    return [*parts[:n], *needed, merged[0].replace(body=body), *later, *parts[m + 1 :]]


def _read_alike(first: For, second: For) -> bool:
    """Whether both loops hold sums, and load from one buffer that neither stores to."""
    if not all(any(b.reduce for b in blocks(loop)) for loop in (first, second)):
        return False
    read = {ld.buffer for ld in loads(first)} & {ld.buffer for ld in loads(second)}
    return bool(read - stored_buffers(first) - stored_buffers(second))


def _depend(one: Stmt, other: Stmt) -> bool:
    """Whether two statements may not change places."""
    return bool(_made(one) & _touched(other) or _touched(one) & _made(other))


def _made(stmt: Stmt) -> frozenset[Buffer]:
    return stored_buffers(stmt) | {s.buffer for s in statements(stmt) if isinstance(s, Alloc)}


def _touched(stmt: Stmt) -> frozenset[Buffer]:
    return _made(stmt) | {ld.buffer for ld in loads(stmt)}
