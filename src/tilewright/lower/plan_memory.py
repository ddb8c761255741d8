"""Where each buffer of a call lies in the arena: buffers that are not alive at the same time share memory.

Sizes may be expressions. Those that follow from the inputs are laid out first; those that depend on a size bound later
come behind them, in stages, so that each offset is known when it is needed.

    constant sizes    where a search finds least memory to be needed (place_buffers.py)
    symbolic sizes    slots: buffers whose lives do not overlap take turns in one, as large as the largest
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.analysis.arena import LINE
from tilewright.core.walk import preorder
from tilewright.expr.nodes import Const, Expr, FloorDiv, Var, const, maximum
from tilewright.expr.simplify import simplify
from tilewright.loops.nodes import Buffer
from tilewright.lower.place_buffers import Span, place_buffers

ALIGNMENT = LINE


@dataclass(frozen=True, slots=True)
class Life:
    """A buffer and the first and last statement (by position) that touches it, inclusive."""

    buffer: Buffer
    first: int
    last: int

    def overlaps(self, other: Life) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class Layout:
    """The offset of each buffer, and the arena's total size up to and including each stage."""

    offsets: Mapping[Buffer, Expr]
    totals: tuple[Expr, ...]


def size_in_bytes(buffer: Buffer) -> Expr:
    """The size of a buffer, rounded up to whole cache lines."""
    total: Expr = const(buffer.dtype.bytes)
    for extent in buffer.shape:
        total = total * extent
    total = simplify(total)
    if isinstance(total, Const):
        return const(-(-int(total.value) // ALIGNMENT) * ALIGNMENT)
    return simplify(FloorDiv(total + (ALIGNMENT - 1), const(ALIGNMENT)) * ALIGNMENT)


def plan_memory(lives: Sequence[Life], bound_at: Mapping[Var, int]) -> Layout:
    """The layout for buffers whose symbols are bound at stages `bound_at` (0, the call's start, where not named)."""
    stages = max(bound_at.values(), default=0) + 1
    grouped: list[list[Life]] = [[] for _ in range(stages)]
    for life in lives:
        grouped[_stage(life.buffer, bound_at)].append(life)
    offsets: dict[Buffer, Expr] = {}
    totals: list[Expr] = []
    end: Expr = const(0)
    for group in grouped:
        fixed = [life for life in group if isinstance(size_in_bytes(life.buffer), Const)]
        end = end + _place_fixed(fixed, end, offsets)
        symbolic = [life for life in group if life not in fixed]
        end = _slots(symbolic, end, offsets)
        totals.append(end)
    return Layout(offsets, tuple(totals))


def _stage(buffer: Buffer, bound_at: Mapping[Var, int]) -> int:
    return max((bound_at.get(v, 0) for d in buffer.shape for v in preorder(d) if isinstance(v, Var)), default=0)


def _bytes(life: Life) -> int:
    size = size_in_bytes(life.buffer)
    assert isinstance(size, Const)
    return int(size.value)


def _place_fixed(lives: list[Life], start: Expr, offsets: dict[Buffer, Expr]) -> int:
    """Places buffers of constant size from `start` on; returns the bytes they take together."""
    spans = [Span(_bytes(life), life.first, life.last) for life in lives]
    places = place_buffers(spans)
    offsets.update((life.buffer, start + at) for life, at in zip(lives, places, strict=True))
    return max((at + span.bytes for at, span in zip(places, spans, strict=True)), default=0)


def _slots(lives: list[Life], start: Expr, offsets: dict[Buffer, Expr]) -> Expr:
    """Places buffers of symbolic size from `start` on; returns the end. A free slot of its own size is preferred."""
    slots: list[tuple[Expr, list[Life]]] = []
    for life in sorted(lives, key=lambda x: x.first):
        size = size_in_bytes(life.buffer)
        free = [n for n, (_, held) in enumerate(slots) if not any(h.overlaps(life) for h in held)]
        best = next((n for n in free if slots[n][0] is size), free[0] if free else None)
        if best is None:
            slots.append((size, [life]))
        else:
            largest, held = slots[best]
            slots[best] = (largest if largest is size else simplify(maximum(largest, size)), [*held, life])
    for size, held in slots:
        for life in held:
            offsets[life.buffer] = start
        start = start + size
    return start
