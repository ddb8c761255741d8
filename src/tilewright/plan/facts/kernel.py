"""Facts of a kernel that templates need, each computed once: its blocks, its only sum, that sum as a contraction.

facts = Facts(function)
facts.contraction        the only sum as a contraction, maps inlined into it; None where it is none
facts.windows            the only reduction as one over windows of an image's channels; None where it is none
facts.begin_inlined()    a schedule that begins with that inlining
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from tilewright.analysis.contractions import Contraction, contraction_of, find_contraction
from tilewright.analysis.windows import Windows, find_pool, find_windows
from tilewright.loops.edit import blocks
from tilewright.loops.nodes import Block, Function
from tilewright.plan.facts.digits import separate_digits
from tilewright.plan.facts.operands import separate_operands
from tilewright.schedule.blocks.inline import inline_all
from tilewright.schedule.schedule import Schedule, Taken


class Facts:
    """A kernel, and what is known of it. Where the steps that were taken are kept, `taken`, choices share them."""

    def __init__(self, function: Function, taken: Taken | None = None) -> None:
        self.function, self.taken = function, taken
        self.shapes: dict[object, Any] = {}
        """What the kernel is to each template that was asked."""

    @cached_property
    def begun(self) -> Schedule:
        """The schedule that templates of sums begin with: what the kernel writes with quotients is axes there."""
        s = Schedule(self.function, self.taken)
        separate_digits(s)
        return s

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, in program order."""
        return tuple(blocks(self.function.body))

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all blocks."""
        return frozenset(b.name for b in self.blocks)

    @cached_property
    def sums(self) -> tuple[Block, ...]:
        """The blocks that reduce."""
        return tuple([b for b in self.blocks if b.reduce])

    @cached_property
    def contractions(self) -> Mapping[str, Contraction]:
        """The blocks that are contractions of two tensors, by name."""
        s = Schedule(self.function, self.taken)
        separate_operands(s)
        found = {b.name: contraction_of(s.func, b) for b in blocks(s.func.body) if b.reduce}
        return {name: made for name, made in found.items() if made is not None}

    @property
    def products(self) -> tuple[str, ...]:
        """Those whose terms are products."""
        return tuple([name for name, found in self.contractions.items() if found.is_product])

    @cached_property
    def inlined(self) -> Function:
        """The kernel with what is defined point by point inlined where it is read."""
        return self._inlined.func

    @cached_property
    def _inlined(self) -> Schedule:
        s = self.begun.copy()
        s.inline_all()
        separate_operands(s)
        return s

    @cached_property
    def inlined_once(self) -> Function:
        """The same, except for values that several blocks, or several terms of a sum, would compute again."""
        return inline_all(self.begun.func, once=True).function

    @cached_property
    def contraction(self) -> Contraction | None:
        """The only sum of the inlined kernel, where that is a contraction with columns to vectorize."""
        return find_contraction(self.inlined) if len(self.sums) == 1 else None

    @cached_property
    def windows(self) -> Windows | None:
        """The only reduction, where windows slide over each channel of an image by itself. It is found in `inlined` if
        it sums products, else in `inlined_once`, which takes time to make."""
        if len(self.sums) != 1:
            return None
        found = find_windows(self.inlined, self.contraction)
        return found if found is not None or self.contraction is not None else find_pool(self.inlined_once)

    def begin_inlined(self, **how: bool) -> Schedule:
        """The schedule whose first steps made `inlined` or, with once=True, `inlined_once`."""
        if not how:
            return self._inlined.copy()
        s = self.begun.copy()
        s.inline_all(**how)
        return s
