"""The template of contractions as they lie."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm import price
from tilewright.plan.gemm.choice import Choice, choices
from tilewright.plan.gemm.schedule import apply_choice
from tilewright.plan.gemm.shape import Product, recognise
from tilewright.plan.template import Template
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


class Contractions(Template[Product, Choice]):
    """A kernel whose work is one contraction, the columns of its result along the lanes."""

    name = "contraction"
    choice = Choice

    def recognise(self, facts: Facts) -> Product | None:
        return recognise(facts)

    def choices(self, shape: Product, target: Target) -> Iterator[Choice]:
        return choices(shape.size, target)

    def price(self, choice: Choice, shape: Product, target: Target) -> float:
        return price.seconds(choice, shape.size, target)

    def begin(self, facts: Facts) -> Schedule:
        return facts.begin_inlined()

    def apply(self, s: Schedule, shape: Product, choice: Choice) -> Schedule:
        return apply_choice(s, shape.found, choice)
