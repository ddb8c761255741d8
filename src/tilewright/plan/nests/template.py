"""The template of every kernel: loop nest by loop nest.

inline_all             every local value that is defined point by point
pull_producers         local buffers shrink into the loop that reads them
then sums are prepared (plan/nests/sums.py), each nest runs in vectors (plan/nests/passes.py), and merge_loops
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from tilewright.loops.edit import blocks
from tilewright.loops.nodes import For, Function
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.nests.ahead import bytes_ahead, fetch_ahead
from tilewright.plan.nests.passes import Nest, apply_nests, choose_nest
from tilewright.plan.nests.sums import Part, accumulate_locally, choose_parts, prepare_sums
from tilewright.plan.price.points import nest_seconds
from tilewright.plan.template import Template
from tilewright.schedule.find import nests
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class NestsChoice:
    """The sums that run in parts, and how each nest runs, in program order. Constants are prefetched so many bytes
    `ahead`, a `line` of a cache at a time, or (0) come when they are read."""

    parts: tuple[Part, ...]
    nests: tuple[Nest, ...]
    ahead: int = 0
    line: int = 0


class Kernel:
    """A kernel, and the programs on its way to a schedule, each made once: prices need the steps that `apply` takes."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.prepared, self.scheduled = cache(self._prepare), cache(self._schedule)

    @cached_property
    def pulled(self) -> Schedule:
        """With its producers where they are read."""
        s = Schedule(self.function)
        s.inline_all(once=any(b.reduce for b in blocks(s.func.body)))
        accumulate_locally(s)
        s.pull_producers()
        return s

    def _prepare(self, parts: tuple[Part, ...]) -> Schedule:
        """With these sums in parts, and nests that are ready to be scheduled."""
        s = self.pulled.copy()
        prepare_sums(s, parts)
        return s

    def _schedule(self, choice: NestsChoice) -> Schedule:
        """With each nest as it is chosen."""
        s = self.prepared(choice.parts).copy()
        s.merge_loops(*apply_nests(s, choice.nests))
        if choice.ahead:
            fetch_ahead(s, choice.ahead, choice.line)
        return s


class Nests(Template[Kernel, NestsChoice]):
    """Any kernel, nest by nest."""

    name = "nests"
    choice = NestsChoice
    whole = True
    turn = 2

    def recognise(self, facts: Facts) -> Kernel | None:
        return Kernel(facts.function)

    def choices(self, shape: Kernel, target: Target) -> Iterator[NestsChoice]:
        parts = choose_parts(shape.pulled, target)
        found = nests(shape.prepared(parts).func)
        ways = tuple([choose_nest(n, target) for n in found if isinstance(n, For)])
        yield NestsChoice(parts, ways, bytes_ahead(shape.function, target), target.caches[0].line)

    def price(self, choice: NestsChoice, shape: Kernel, target: Target) -> float:
        return sum(nest_seconds(nest, target) for nest in nests(shape.scheduled(choice).func))

    def apply(self, s: Schedule, shape: Kernel, choice: NestsChoice) -> Schedule:
        return shape.scheduled(choice).copy()
