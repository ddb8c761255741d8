"""What sums are made of becomes operands as templates know them: an element of a tensor each.

    y[vi, vj] += w[vk] * x[vk, vi] * x[vk, vj]      =>      t[vk, vi] = w[vk] * x[vk, vi]
                                                            y[vi, vj] += t[vk, vi] * x[vk, vj]

    y[vi, vj] += x[vk, vi] * x[vk, vj]              =>      y[vi, vj] += x[vk, vi] * x.view[vk, vj]

Templates pack one operand, and read the other where it lies.
"""

from __future__ import annotations

from math import prod

from tilewright.analysis.accesses import mentions
from tilewright.analysis.iterations import accumulation, product_in
from tilewright.analysis.products import operand_of
from tilewright.analysis.sizes import known
from tilewright.expr.nodes import Expr
from tilewright.loops.edit import blocks, loads_of, loops_around
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target.abilities import SHORTEST_LANES


def separate_operands(s: Schedule) -> None:
    """The steps for every sum: a factor that is part of many sums is computed once for them, and where terms are made
    of two different elements of a tensor, each has a name of its own."""
    for name in [b.name for b in blocks(s.func.body) if b.reduce]:
        for factor in (0, 1):
            product = product_in(find_block(s.func, name))
            if product is not None and _is_reused(s, name, (product.a, product.b)[factor]):
                s.attempt(s.bind_factor, name, factor)
        found = accumulation(find_block(s.func, name).replace(init=None, where=None))
        loaded = [] if found is None else list(dict.fromkeys(loads_of(found.term)))
        if len(loaded) == 2 and loaded[0].buffer is loaded[1].buffer:
            s.attempt(s.view, name, loaded[0].buffer.name)


def _is_reused(s: Schedule, name: str, factor: Expr) -> bool:
    """Whether a factor that has to be computed is the same for as many sums as the shortest vector has, or more."""
    if operand_of(factor) is not None or not loads_of(factor):
        return False
    block = find_block(s.func, name)
    loops = {loop.var: loop for loop in loops_around(s.func.body, block)}
    extents = {a.var: known(loops[a.binding].extent) for a in block.axes if a.binding in loops}
    own = prod(n for v, n in extents.items() if mentions(factor, {v}))
    return prod(extents.values()) >= SHORTEST_LANES * own
