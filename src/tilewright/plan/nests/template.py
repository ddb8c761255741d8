"""The template of every kernel: loop nest by loop nest.

inline_all             every local value that is defined point by point
cache_write            accumulations into an argument run in a local buffer
pull_producers         local buffers shrink into the loop that reads them
sum_in_parts           long sums to one place, for threads to share
decompose_reductions   sums begin in blocks of their own
join_sums              sums that read the same run in one loop
then, for each loop nest: tile_registers, sum_in_lanes or vectorize_points; and merge_loops
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks
from tilewright.loops.nodes import For, Function, Store
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.nests.beside import lanes_of, merge, named_nests
from tilewright.plan.nests.partial_sums import sum_long_in_parts
from tilewright.plan.nests.tiles import narrower, tile_for
from tilewright.plan.template import Template
from tilewright.report.errors import UserError
from tilewright.schedule.find import nests, stored_buffers
from tilewright.schedule.nests import has_branches
from tilewright.schedule.points import holds_points
from tilewright.schedule.reduce import accumulation
from tilewright.schedule.rows import prepared, reduces_contiguously
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

SUM_BLOCK = 32
"""Terms that are added up by themselves in a long sum: few enough that rounding errors stay small."""


@dataclass(frozen=True, slots=True)
class NestsChoice:
    """The vector registers that nests fill: the bits of one, and how many there are."""

    vector_bits: int
    registers: int


class Nests(Template[Function, NestsChoice]):
    """Any kernel, nest by nest."""

    name = "nests"
    choice = NestsChoice
    whole = True
    priced = False

    def recognise(self, facts: Facts) -> Function | None:
        return facts.function

    def choices(self, shape: Function, target: Target) -> Iterator[NestsChoice]:
        yield NestsChoice(target.vector_bits, target.vector_registers)

    def price(self, choice: NestsChoice, shape: Function, target: Target) -> float:
        return 1e9

    def apply(self, s: Schedule, shape: Function, choice: NestsChoice) -> Schedule:
        s.inline_all(once=any(b.reduce for b in blocks(s.func.body)))
        _accumulate_locally(s)
        s.pull_producers()
        sum_long_in_parts(s)
        s.decompose_reductions()
        s.join_sums()
        merge(s, [_or_as_it_is(s, v, partial(_schedule_nest, s, v, nest, choice)) for v, nest in named_nests(s)])
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


def _or_as_it_is(s: Schedule, loop: Var, step: Any) -> Var | None:
    """The outermost loop of a nest after a step, where it holds all of the nest. A nest stays as it is whose iterations
    are not known to be independent, and the schedule remembers why."""
    refused = len(s.refused)
    made: Var | None = s.attempt(step)
    return loop if len(s.refused) > refused else made


def _schedule_nest(s: Schedule, loop: Var, nest: For, choice: NestsChoice) -> Any:
    """Register tiles where an output axis of an accumulation vectorizes; else row by row, or point by point."""
    lanes = lanes_of(nest, choice.vector_bits)
    if has_branches(nest) or any(not isinstance(b.body, Store) for b in blocks(nest)):
        return loop
    reducing = [b for b in blocks(nest) if b.reduce]
    if any(accumulation(b) is None for b in reducing):
        return loop
    if not reducing:
        return s.vectorize_points(loop, lanes=lanes) if holds_points(nest) else loop
    block = 0 if reduces_contiguously(prepared(nest, 0), lanes) else SUM_BLOCK
    long = {"blocks_of": block} if block else {}
    for width in narrower(lanes) if long else (lanes,):
        tile = tile_for(prepared(nest, block), width, choice.registers)
        if tile is not None:
            return s.tile_registers(loop, lanes=width, **tile, **long)
    return s.sum_in_lanes(loop, lanes=lanes, **long)
