"""Operands of a contraction in the order in which its tiles read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, Select, Var
from tilewright.loops.edit import allocations, blocks
from tilewright.loops.nodes import LoopKind, Store
from tilewright.plan.facts.contraction import Contraction, Operand
from tilewright.plan.price.sizes import known
from tilewright.schedule.find import find_block, find_loop, stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.types.scopes import MOST_BYTES, Scope


@dataclass(frozen=True, slots=True)
class Together:
    """What an instruction takes: so many terms of an axis, the `summed` of a contraction, as one element of a type, for
    so many lanes at a time."""

    depth: int
    dtype: DType
    lanes: int


def pack(
    s: Schedule, found: Contraction, operand: Operand, axis: int, width: int, together: Together | None = None
) -> str:
    """A copy of an operand in panels of `width` along an axis: batches, panels, terms in the order they are added,
    the elements of a panel next to each other, each with the terms that are taken `together`: these copies are filled
    by copy_vectors."""
    name: str = s.cache_read(found.block.name, operand.buffer.name)
    if together is not None and operand.buffer.dtype is not together.dtype:
        s.widen(name, together.dtype.name)
    _lay_in_panels(s, name, found, operand, axis, width, together.depth if together is not None else 1)
    if not operand.is_constant or (together is not None and together.depth > 1):
        return name
    inner = s.get_loops(name)[-1]
    s.vectorize(inner) if width % 4 == 0 else s.unroll(inner)
    return name


def copy_vectors(s: Schedule, copy: str, together: Together) -> Var:
    """A panel is copied in vectors, the terms of an instruction interleaved. Returns the loop over the vectors."""
    *_, column, last = s.get_loops(copy)
    if together.depth > 1:
        s.unroll(last)
        last = column
    vectors: Var
    vectors, lane = s.split(last, together.lanes)
    s.vectorize(lane)
    return vectors


def pack_terms(s: Schedule, found: Contraction, operand: Operand, together: Together) -> str:
    """A copy of the elements of rows, in their order, with the terms of an instruction next to each other; beyond the
    last one are zeros."""
    name: str = s.cache_read(found.block.name, operand.buffer.name)
    if operand.buffer.dtype is not together.dtype:
        s.widen(name, together.dtype.name)
    if together.depth > 1:
        assert found.summed is not None
        words = [f"d{n}" for n in range(len(operand.load.indices))]
        term = words[operand.load.indices.index(found.block.axes[found.summed].var)]
        layout = [*(w for w in words if w != term), f"{term} // {together.depth}", f"{term} % {together.depth}"]
        s.transform_layout(name, f"{', '.join(words)} -> {', '.join(layout)}", pad=0)
    return name


def copy_terms(s: Schedule, found: Contraction, copy: str, together: Together) -> None:
    """What pack_terms made of an operand that a call brings is filled in vectors, by all threads."""
    loops = s.get_loops(copy)
    if len(loops) > 2:
        s.parallel(loops[0])
    inner = loops[-1]
    if together.depth > 1:
        if isinstance(only_store(s, copy), Select):
            s.partition(loops[-2])
        inner = s.fuse(loops[-2], inner)
    s.vectorize(s.split(inner, 2 * together.lanes, tail="mask")[1])


def panels_of(s: Schedule, found: Contraction, operand: Operand, axis: int, width: int) -> str:
    """The block that fills panels of an operand as in `pack`: the one that computes it, where that is in the function,
    or else a copy."""
    local = operand.buffer in allocations(s.func.body)
    name = operand.buffer.name if local else s.cache_read(found.block.name, operand.buffer.name)
    _lay_in_panels(s, name, found, operand, axis, width)
    return next(b.name for b in blocks(s.func.body) if name in {made.name for made in stored_buffers(b)})


def _lay_in_panels(
    s: Schedule, name: str, found: Contraction, operand: Operand, axis: int, width: int, depth: int = 1
) -> None:
    """The buffer of this name, which holds an operand, in panels, so many terms of the summed axis together."""
    axes = found.block.axes
    place: dict[Var, str] = {}
    words = []
    for n, index in enumerate(operand.load.indices):
        words.append(f"d{n}")
        if isinstance(index, Var):
            place[index] = f"d{n}"
    panel = place.pop(axes[axis].var)
    moved = {n: place.pop(axes[n].var) for n in found.reduce if axes[n].var in place}
    rest = [w for w in words if w != panel and w not in moved.values()]
    inner = [f"{panel} % {width}"]
    if depth > 1 and found.summed is not None:
        inner.append(f"{moved[found.summed]} % {depth}")
        moved[found.summed] += f" // {depth}"
    layout = ", ".join([*rest, f"{panel} // {width}", *moved.values(), *inner])
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
        size *= known(extent) if isinstance(extent, Const) else MOST_BYTES[Scope.STACK]
    if size * buffer.dtype.bytes <= MOST_BYTES[Scope.STACK]:
        s.set_scope(name, "stack")


def only_store(s: Schedule, block: str) -> Expr | None:
    """What a block that is one store stores."""
    body = find_block(s.func, block).body
    return body.value if isinstance(body, Store) else None
