"""Operands of a contraction in the order in which its tiles read them."""

from __future__ import annotations

from tilewright.expr.nodes import Const, Var
from tilewright.loops.edit import allocations
from tilewright.plan.contraction import Contraction, Operand
from tilewright.plan.register_tiles import known
from tilewright.schedule.schedule import Schedule

STACK_BYTES = 256 * 1024
"""The largest panel that is kept on the stack."""


def pack(s: Schedule, found: Contraction, operand: Operand, axis: int, width: int) -> str:
    """A copy of an operand in panels of `width` along an axis: batches, panels, terms in the order they are added,
    the elements of a panel next to each other."""
    name = s.cache_read(found.block.name, operand.buffer.name)
    axes = found.block.axes
    place: dict[Var, str] = {}
    words = []
    for n, index in enumerate(operand.load.indices):
        words.append(f"d{n}")
        if isinstance(index, Var):
            place[index] = f"d{n}"
    panel = place.pop(axes[axis].var)
    terms = [place.pop(axes[n].var) for n in found.reduce if axes[n].var in place]
    rest = [w for w in words if w != panel and w not in terms]
    layout = ", ".join([*rest, f"{panel} // {width}", *terms, f"{panel} % {width}"])
    s.transform_layout(name, f"{', '.join(words)} -> {layout}", pad=0.0)
    if not operand.is_constant:
        return name
    inner = s.get_loops(name)[-1]
    s.vectorize(inner) if width % 4 == 0 else s.unroll(inner)
    return name


def panel_in_cache(s: Schedule, panel: str, panels: Var) -> None:
    """A panel of an operand that only the call knows is packed right before its tiles, and stays in cache for them."""
    s.compute_at(panel, panels)
    s.compact(panel)
    (buffer,) = (b for b in allocations(s.func.body) if b.name == panel)
    size = 1
    for extent in buffer.shape:
        size *= known(extent) if isinstance(extent, Const) else STACK_BYTES
    if size * buffer.dtype.bytes <= STACK_BYTES:
        s.set_scope(panel, "stack")
    inner = s.get_loops(panel)[-1]
    s.vectorize(inner)
