"""Operands of a contraction in the order in which its tiles read them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr.nodes import Const, Expr, Select, Var
from tilewright.loops.edit import allocations, blocks
from tilewright.loops.nodes import LoopKind, Store
from tilewright.plan.facts.contraction import Contraction, Operand
from tilewright.plan.price.sizes import known
from tilewright.schedule.find import find_block, find_loop, stored_buffers
from tilewright.schedule.schedule import Schedule

STACK_BYTES = 256 * 1024
"""The largest panel that is kept on the stack."""


def pack(s: Schedule, found: Contraction, operand: Operand, axis: int, width: int) -> str:
    """A copy of an operand in panels of `width` along an axis: batches, panels, terms in the order they are added,
    the elements of a panel next to each other."""
    name: str = s.cache_read(found.block.name, operand.buffer.name)
    _lay_in_panels(s, name, found, operand, axis, width)
    if not operand.is_constant:
        return name
    inner = s.get_loops(name)[-1]
    s.vectorize(inner) if width % 4 == 0 else s.unroll(inner)
    return name


def panels_of(s: Schedule, found: Contraction, operand: Operand, axis: int, width: int) -> str:
    """The block that fills panels of an operand as in `pack`: the one that computes it, where that is in the function,
    or else a copy."""
    local = operand.buffer in allocations(s.func.body)
    name = operand.buffer.name if local else s.cache_read(found.block.name, operand.buffer.name)
    _lay_in_panels(s, name, found, operand, axis, width)
    return next(b.name for b in blocks(s.func.body) if name in {made.name for made in stored_buffers(b)})


def _lay_in_panels(s: Schedule, name: str, found: Contraction, operand: Operand, axis: int, width: int) -> None:
    """The buffer of this name, which holds an operand, in panels."""
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


def panels_in_cache(s: Schedule, panel: str, loop: Var) -> list[str]:
    """Panels of an operand that only the call knows are packed right before their tiles, and stay in cache for them.
    Returns the blocks that pack them."""
    s.compute_at(panel, loop)
    keep_near(s, panel)
    panels, terms = (_loop_of(s, panel, n, loop) for n in (-3, -2))
    if panels is not None and terms is not None:
        s.reorder(terms, panels)
    copies = [panel]
    if isinstance(only_store(s, panel), Select) and panels is not None:
        before = {b.name for b in blocks(s.func.body)}
        s.partition(panels)
        copies += [b.name for b in blocks(s.func.body) if b.name not in before]
    for copy in copies:
        s.vectorize(s.get_loops(copy)[-1])
    return copies


def _loop_of(s: Schedule, block: str, axis: int, around: Var) -> Var | None:
    """The loop inside `around` that an axis of a block runs with; None where there is one point of it, and no loop."""
    loops = s.get_loops(block)
    used = find_block(s.func, block).axes[axis].binding.variables
    return next((v for v in loops[loops.index(around) + 1 :] if v in used), None)


def share_packing(s: Schedule, copies: Sequence[str], loop: Var) -> None:
    """Threads share what is packed in an iteration of a loop that they do not share, unless that is a single row."""
    for copy in copies:
        loops = s.get_loops(copy)
        rows = loops[loops.index(loop) + 1 : -1]
        if rows and not any(find_loop(s.func, v).kind is LoopKind.PARALLEL for v in loops):
            s.parallel(rows[0])


def pack_in_first_tile(s: Schedule, panel: str, block: str, tiles: Var, row: Var, lanes: int) -> None:
    """The first tile of rows packs a panel, a term when it reads it, for the tiles that follow: so it waits for the
    operand, which lies apart, while it multiplies."""
    s.partition(tiles, 1)
    loops = s.get_loops(block)
    s.compute_at(panel, loops[loops.index(row) - 1])
    vectors, lane = s.split(s.get_loops(panel)[-1], lanes)
    s.unroll(vectors)
    s.vectorize(lane)


def keep_near(s: Schedule, name: str) -> None:
    """A buffer that an iteration fills and reads takes no more room than it needs, on the stack if that is small."""
    s.compact(name)
    (buffer,) = (b for b in allocations(s.func.body) if b.name == name)
    size = 1
    for extent in buffer.shape:
        size *= known(extent) if isinstance(extent, Const) else STACK_BYTES
    if size * buffer.dtype.bytes <= STACK_BYTES:
        s.set_scope(name, "stack")


def only_store(s: Schedule, block: str) -> Expr | None:
    """What a block that is one store stores."""
    body = find_block(s.func, block).body
    return body.value if isinstance(body, Store) else None
