"""The template of every kernel: loop nest by loop nest.

inline_all             every local value that is defined point by point
cache_write            accumulations into an argument run in a local buffer
pull_producers         local buffers shrink into the loop that reads them
sum_in_parts           long sums to one place, for threads to share
decompose_reductions   sums begin in blocks of their own
join_sums              sums that read the same run in one loop
then, for each loop nest: tiles of sums, sums in lanes or points in vectors; and merge_loops

The parts of long sums, and how each nest runs, are the choice. The parts depend on sizes alone, so that a result is the
same for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial

from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import blocks, loops_around
from tilewright.loops.nodes import For, Function, Store
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.nests.nest import Nest, apply_nest, choose_nest, merge, named_nests, or_as_it_is
from tilewright.plan.nests.price import nest_seconds
from tilewright.plan.price.sizes import FEW, USUAL
from tilewright.plan.template import Template
from tilewright.report.errors import UserError
from tilewright.schedule.facts.iterations import size_of
from tilewright.schedule.find import find_block, nests, stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

PART = 1 << 14
"""The fewest terms of a part: a few microseconds, several times what a fork costs."""

MOST_PARTS = 64
"""The most parts of a sum whose size is known: enough for threads to end at the same time."""


@dataclass(frozen=True, slots=True)
class Part:
    """A sum in parts: the block, the loop around it that is cut, by its number, and how many iterations are a part."""

    block: str
    loop: int
    terms: int


@dataclass(frozen=True, slots=True)
class NestsChoice:
    """The sums that run in parts, and how each nest runs, in program order."""

    parts: tuple[Part, ...]
    nests: tuple[Nest, ...]


@dataclass
class Kernel:
    """A kernel before a way is chosen to run its nests."""

    function: Function
    _prepared: dict[tuple[Part, ...], Schedule] = field(default_factory=dict)

    @cached_property
    def pulled(self) -> Schedule:
        """With its producers where they are read."""
        s = Schedule(self.function)
        s.inline_all(once=any(b.reduce for b in blocks(s.func.body)))
        _accumulate_locally(s)
        s.pull_producers()
        return s

    def prepared(self, parts: tuple[Part, ...]) -> Schedule:
        """With these sums in parts, and nests that are ready to be scheduled."""
        if parts not in self._prepared:
            s = self._prepared[parts] = self.pulled.copy()
            for part in parts:
                around = loops_around(s.func.body, find_block(s.func, part.block))
                s.sum_in_parts(part.block, around[part.loop].var, part.terms)
            s.decompose_reductions()
            s.join_sums()
        return self._prepared[parts].copy()


class Nests(Template[Kernel, NestsChoice]):
    """Any kernel, nest by nest."""

    name = "nests"
    choice = NestsChoice
    whole = True
    turn = 2

    def recognise(self, facts: Facts) -> Kernel | None:
        return Kernel(facts.function)

    def choices(self, shape: Kernel, target: Target) -> Iterator[NestsChoice]:
        parts = choose_parts(shape.pulled)
        found = nests(shape.prepared(parts).func)
        yield NestsChoice(parts, tuple([choose_nest(n, target) for n in found if isinstance(n, For)]))

    def price(self, choice: NestsChoice, shape: Kernel, target: Target) -> float:
        found = [n for n in nests(shape.prepared(choice.parts).func) if isinstance(n, For)]
        return sum(nest_seconds(nest, chosen, target) for nest, chosen in zip(found, choice.nests, strict=True))

    def apply(self, s: Schedule, shape: Kernel, choice: NestsChoice) -> Schedule:
        s = shape.prepared(choice.parts)
        found = zip(named_nests(s), choice.nests, strict=True)
        merge(s, [or_as_it_is(s, v, partial(apply_nest, s, nest, chosen)) for (v, nest), chosen in found])
        return s


def _accumulate_locally(s: Schedule) -> None:
    """Accumulations straight into an argument get a local buffer."""
    for nest in nests(s.func):
        inside = blocks(nest)
        if len(inside) == 1 and inside[0].reduce and isinstance(inside[0].body, Store):
            buffer, points = inside[0].body.buffer, tuple(a.var for a in inside[0].spatial)
            if buffer.scope is Scope.ARGUMENT and stored_buffers(nest) == {buffer} and inside[0].body.indices == points:
                with suppress(UserError):
                    s.cache_write(inside[0].name)


def choose_parts(s: Schedule) -> tuple[Part, ...]:
    """The parts of long sums to one place. What cannot be proved to be one has none."""
    found: list[Part] = []
    trial = s.copy()
    for block in blocks(s.func.body):
        around = loops_around(s.func.body, block) if block.reduce else []
        summed = [loop for loop in around if loop.var in summed_loops(block)]
        if summed and all(loop in summed or size_of(loop) == 1 for loop in around):
            chosen = _cut_at(summed)
            if chosen is not None:
                loop, terms = chosen
                if trial.attempt(trial.sum_in_parts, block.name, loop.var, terms) is not None:
                    found.append(Part(block.name, around.index(loop), terms))
    return tuple(found)


def _cut_at(loops: list[For]) -> tuple[For, int] | None:
    """The loop that is cut, and how many of its iterations are a part; None for a sum that is too short."""
    sizes = [size_of(loop) for loop in loops]
    first = next((n for n, size in enumerate(sizes) if size is None or size >= FEW), None)
    if first is None:
        return None
    size, each = sizes[first], math.prod(USUAL if s is None else s for s in sizes) // (sizes[first] or USUAL)
    least = math.ceil(PART / max(each, 1))
    if size is None:
        return loops[first], least
    parts = min(size * each // PART, size, MOST_PARTS)
    if parts < 2:
        return None
    part = math.ceil(size / parts)
    return loops[first], next((p for p in range(part, min(2 * part, size // 2 + 1)) if size % p == 0), part)
