"""The offset of each buffer of a call in the arena: buffers that are not alive at the same time share memory.

Sizes may be expressions. Of two buffers that are alive at the same time, one is above the other; a search decides which
one, for usual sizes (place_buffers.py). A buffer begins where the highest buffer below it ends, for all sizes:

    a: 0                        a and b are alive together, b and c, and d with both of these
    b: size(a)
    c: 0
    d: max(size(a) + size(b), size(c))

Sizes that follow from the inputs are laid out first. Buffers that depend on a size bound later come in stages, each
above all that is alive with it and was laid out before, so that an offset is known when it is needed. An end that
depends on sizes of several later stages gets a name there; without names, each stage would add to all sums after it:

    c: f32[k]     k bound behind m       0 + size(b: f32[m]) + size(c)    =>      end = size(b) + size(c)
    d: f32[j]     j bound behind k       size(b) + size(c)                        end
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from tilewright.analysis.sizes import Sizes
from tilewright.core.walk import preorder
from tilewright.expr.build import maximum
from tilewright.expr.nodes import Const, Expr, FloorDiv, Var, const
from tilewright.expr.simplify import Facts, simplify
from tilewright.loops.nodes import Buffer
from tilewright.lower.memory.place_buffers import Span, alive_together, place_buffers
from tilewright.types.room import LINE

ALIGNMENT = LINE


@dataclass(frozen=True, slots=True)
class Life:
    """A buffer and the first and last statement (by position) that touches it, inclusive."""

    buffer: Buffer
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The offset of each buffer, the arena's total size up to and including each stage, and what is named when the
    symbols of a stage are bound and its memory is there."""

    offsets: Mapping[Buffer, Expr]
    totals: tuple[Expr, ...]
    names: tuple[tuple[tuple[Var, Expr], ...], ...] = ()

    def least_total(self, changing: Container[Var]) -> int:
        """The total where symbols that grow are as small as sizes of something are."""
        known: dict[Var, int] = {}
        for name, end in (each for stage in self.names for each in stage):
            known[name] = Sizes(known).least(end, changing)
        return Sizes(known).least(self.totals[-1], changing)


def size_in_bytes(buffer: Buffer) -> Expr:
    """The size of a buffer, rounded up to whole cache lines; none where an extent is negative."""
    total: Expr = const(buffer.dtype.bytes)
    for extent in buffer.shape:
        total = total * extent
    total = simplify(maximum(total, const(0)))
    if isinstance(total, Const):
        return const(-(-int(total.value) // ALIGNMENT) * ALIGNMENT)
    return simplify(FloorDiv(total + (ALIGNMENT - 1), const(ALIGNMENT)) * ALIGNMENT)


def plan_memory(lives: Sequence[Life], bound_at: Mapping[Var, int]) -> Layout:
    """The layout for buffers whose symbols are bound at stages `bound_at` (0, the call's start, where not named)."""
    stages = max(bound_at.values(), default=0) + 1
    grouped: list[list[Life]] = [[] for _ in range(stages)]
    for life in lives:
        grouped[_stage(life.buffer, bound_at)].append(life)
    arena = _Arena(bound_at)
    totals: list[Expr] = []
    for group in grouped:
        arena.add(group)
        totals.append(arena.total)
    names = tuple([tuple(of_stage) for of_stage in arena.names])
    return Layout({place.life.buffer: place.begin for place in arena.places}, tuple(totals), names)


@dataclass(frozen=True, slots=True)
class _Place:
    """The offset of a buffer: for all sizes, and for usual ones. `under` are the buffers that are surely below it."""

    life: Life
    begin: Expr
    end: Expr
    span: Span
    at: int
    under: frozenset[Life]


class _Arena:
    """The buffers that have a place, and the size of the arena that holds them."""

    def __init__(self, bound_at: Mapping[Var, int]) -> None:
        self.places: list[_Place] = []
        self.total: Expr = const(0)
        self.names: list[list[tuple[Var, Expr]]] = []
        self._bound_at = dict(bound_at)
        self._named: dict[Expr, Var] = {}
        self._facts = Facts()  # what was proved of the sizes of some buffers serves for sums of them

    def add(self, lives: Sequence[Life]) -> None:
        """Gives places to buffers, those of the next stage, above those alive with them that have one."""
        self.names.append([])
        sizes = [size_in_bytes(life.buffer) for life in lives]
        spans = [Span(_usual(size), life.first, life.last) for life, size in zip(lives, sizes, strict=True)]
        before = [place.span for place in self.places]
        found = place_buffers(spans, [(place.span, place.at) for place in self.places])
        together = alive_together([*before, *spans])[len(before) :]
        rank = {n: n for n in range(len(before))}
        for n in sorted(range(len(lives)), key=lambda n: (found[n], n)):
            below = [self.places[k] for k in sorted(rank[m] for m in together[n] if m in rank)]
            rank[len(before) + n] = len(self.places)
            self._put(lives[n], sizes[n], spans[n], found[n], below)
        above = frozenset[Life]().union(*[place.under for place in self.places])
        tops = [self._short(place.end) for place in self.places if place.life not in above]
        self.total = self._largest([self._short(self.total), *tops])

    def _put(self, life: Life, size: Expr, span: Span, at: int, below: Sequence[_Place]) -> None:
        """Gives a buffer the place above those `below`, which are alive with it."""
        under = frozenset[Life]().union(*[place.under for place in below])
        begin = self._largest([self._short(place.end) for place in below if place.life not in under])
        lower = under | {place.life for place in below}
        self.places.append(_Place(life, begin, simplify(begin + size, self._facts), span, at, lower))

    def _short(self, end: Expr) -> Expr:
        """An end; by a name where it depends on sizes of several later stages, all of them before this one."""
        if end in self._named:
            return self._named[end]
        stages = {self._bound_at.get(v, 0) for v in end.variables if isinstance(v, Var)} - {0}
        if len(stages) < 2 or max(stages) == len(self.names) - 1:
            return end
        name = self._named[end] = Var("end", least=0)
        self._bound_at[name] = max(stages)
        self.names[max(stages)].append((name, end))
        return name

    def _largest(self, ends: Sequence[Expr]) -> Expr:
        """The largest of some ends, 0 where there are none. What can be proved never to be the largest is left out."""
        known = max((int(e.value) for e in ends if isinstance(e, Const)), default=0)
        found: Expr = const(known)
        for end in dict.fromkeys(e for e in ends if not isinstance(e, Const)):
            found = end if found is const(0) else simplify(maximum(found, end), self._facts)
        return found


def _stage(buffer: Buffer, bound_at: Mapping[Var, int]) -> int:
    return max((bound_at.get(v, 0) for d in buffer.shape for v in preorder(d) if isinstance(v, Var)), default=0)


def _usual(size: Expr) -> int:
    """A size in bytes, dynamic ones as `analysis/sizes.py` assumes them."""
    return int(size.value) if isinstance(size, Const) else max(Sizes().value(size), ALIGNMENT)
