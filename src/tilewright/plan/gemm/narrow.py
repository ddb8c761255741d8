"""Contractions of few columns over an image of the kernel's own: its rows lie along the lanes.

    y[i, l, o] += p[i, l + b, c] * w[b, c, o]       3 columns o fill 3 of 16 lanes, 32 places l of a row two vectors
      =>      q[i, c, l] = p[i, l, c];   t[i, o, l] += q[i, c, l + b] * w[b, c, o];   y[i, l, o] = t[i, o, l]

What fills the image stores it with the rows of the product innermost; sums lie so, too. The rest is a contraction like
any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.analysis.contractions import Contraction
from tilewright.expr.nodes import Const, Var
from tilewright.expr.variables import variables_of
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.choice import Choice
from tilewright.plan.gemm.schedule import Contractions, results_apart
from tilewright.plan.gemm.shape import Product, recognise
from tilewright.plan.price.points import transpose_cycles
from tilewright.plan.tile.registers import lay_out
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope


class NarrowContractions(Contractions):
    """A kernel whose work is one contraction of known sizes, of a constant of few columns and an image that the kernel
    fills itself."""

    name = "narrow contraction"

    def recognise(self, facts: Facts) -> Product | None:
        """The contraction with rows and columns exchanged."""
        kernel = recognise(facts)
        if kernel is None or not _is_narrow(kernel):
            return None
        exchanged = recognise(Facts(self.begin(facts).func))
        return exchanged if exchanged is not None and exchanged.size.rows == kernel.size.columns else None

    def choices(self, shape: Product, target: Target) -> Iterator[Choice]:
        if shape.size.rows < shape.size.lanes(target):
            yield from super().choices(shape, target)

    def price(self, choice: Choice, shape: Product, target: Target) -> float:
        size = shape.size
        moved = size.vector.held // size.vector.bytes + size.rows * size.columns * size.batch
        lanes = size.lanes(target)
        return super().price(choice, shape, target) + transpose_cycles(moved, lanes, target) / target.core.hertz

    def begin(self, facts: Facts) -> Schedule:
        s, found = facts.begin_inlined(), facts.contraction
        if found is not None:
            s.attempt(_exchange, s, found)
        return s


def _is_narrow(kernel: Product) -> bool:
    """Whether fewer columns than rows meet an image that the kernel fills."""
    found, size = kernel.found, kernel.size
    local = found.is_product and found.vector.is_constant and found.broadcast.buffer.scope is Scope.ARENA
    return local and 1 < size.columns < size.rows and all(isinstance(e, Const) for e in found.extents)


def _exchange(s: Schedule, found: Contraction) -> None:
    """Sums with rows in the place of columns, and an image that has rows innermost."""
    assert found.rows is not None
    results, sums = results_apart(s, found)
    row, axes = found.block.axes[found.rows].var, range(len(found.broadcast.load.indices))
    along = [n for n in axes if row in variables_of(found.broadcast.load.indices[n])]
    lay_out(s, found.broadcast.buffer.name, lambda d: [*(d[n] for n in axes if n not in along), *(d[n] for n in along)])
    order = list(range(len(found.block.spatial)))
    order[found.rows], order[found.columns] = found.columns, found.rows
    lay_out(s, sums, lambda d: [d[n] for n in order])
    for name in (found.block.name, *results):
        bound = [find_block(s.func, name).spatial[n].binding for n in order]
        s.reorder(*(v for v in bound if isinstance(v, Var)))
        s.order_axes(name)
