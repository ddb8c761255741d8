"""The template of every kernel: loop nest by loop nest.

inline_all             every local value that is defined point by point
cache_write            accumulations into an argument run in a local buffer
pull_producers         local buffers shrink into the loop that reads them
sum_in_parts           long sums to one place, for threads to share
decompose_reductions   sums begin in blocks of their own
join_sums              sums that read the same run in one loop
then, for each loop nest: tiles of sums, sums in lanes or points in vectors; and merge_loops

The parts of long sums, and how each nest runs, are the choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial

from tilewright.loops.edit import blocks, loops_around
from tilewright.loops.nodes import For, Function, Store
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.nests.beside import merge, named_nests, or_as_it_is
from tilewright.plan.nests.nest import Nest, apply_nest, choose_nest
from tilewright.plan.nests.partial_sums import Part, choose_parts
from tilewright.plan.nests.price import nest_seconds
from tilewright.plan.template import Template
from tilewright.report.errors import UserError
from tilewright.schedule.find import find_block, nests, stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope


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
