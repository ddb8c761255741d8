"""Windows that move by several elements: their operand lies in phases, so that vectors of it are contiguous.

    y[vj] += p[vj*2 + vb] * w[vb]        =>        y[vj] += p[vb % 2, vj + vb // 2] * w[vb]

The even elements of a row lie in one place, the odd ones in another. Each tap reads one of the phases, and there the
positions are neighbours. What copies the image into its padding writes the phases one after the other.
"""

from __future__ import annotations

from tilewright.expr.linear import affine_in, polynomial
from tilewright.expr.nodes import Const
from tilewright.loops.edit import blocks, loads
from tilewright.loops.nodes import Store
from tilewright.plan.facts.contraction import Contraction, find_contraction
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.types.scopes import Scope


def in_phases(s: Schedule, found: Contraction, step: int, lanes: int) -> Contraction:
    """The contraction after its vector operand, which columns move by `step` elements, was deinterleaved: as many
    phases, written in vectors of so many lanes where that fills them."""
    buffer = found.vector.buffer
    dims = [f"d{n}" for n in range(len(buffer.shape))]
    layout = f"{', '.join(dims)} -> {', '.join(dims[:-1])}, {dims[-1]} % {step}, {dims[-1]} // {step}"
    if buffer.scope is not Scope.ARENA:
        copy = s.cache_read(found.block.name, buffer.name)
        s.transform_layout(copy, layout, pad=0.0)
        return _again(s)
    copying = [b for b in blocks(s.func.body) if isinstance(b.body, Store) and b.body.buffer is buffer and [*loads(b)]]
    cut = [_cut_by_phases(s, block.name, step, lanes) for block in copying]
    s.transform_layout(buffer.name, layout)
    for name in cut:
        if name is not None:
            outer, inner = s.get_loops(name)[-2:]
            s.reorder(inner, outer)
            s.unroll(inner)
            s.vectorize(s.split(outer, lanes, tail="shift")[1])
    return _again(s)


def _again(s: Schedule) -> Contraction:
    found = find_contraction(s.func)
    assert found is not None
    return found


def _cut_by_phases(s: Schedule, name: str, step: int, lanes: int) -> str | None:
    """Cuts the last loop of a block that fills the operand such that the inner iterations are the phases, the elements
    before the first whole set of them and behind the last one apart. Returns the name of the block in the middle; None
    where a phase would not fill a vector."""
    block = find_block(s.func, name)
    assert isinstance(block.body, Store)
    loop = s.get_loops(name)[-1]
    extent = extent_of(find_loop(s.func, loop))
    parts = affine_in(polynomial(block.body.indices[-1]), block.axes[-1].var)
    if not isinstance(extent, Const) or extent.value < step * (lanes + 1):
        return None
    if parts is None or parts[0] != {(): 1} or any(monomial for monomial in parts[1]):
        return None
    before = -parts[1].get((), 0) % step
    if before:
        _, loop = s.partition(loop, before)
        (name,) = {b.name for b in blocks(find_loop(s.func, loop))}
    s.split(loop, step, tail="peel")
    return name
