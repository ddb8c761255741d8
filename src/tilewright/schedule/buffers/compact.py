"""compact: a local buffer that lives within one iteration of a loop shrinks to what that iteration touches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import takewhile

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.intervals import Range
from tilewright.analysis.regions import cover
from tilewright.core.walk import preorder
from tilewright.expr.nodes import Expr, Max, Min, Var, const
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import blocks, loops_around, replace, statements
from tilewright.loops.nodes import Alloc, Buffer, For, Function, Let, Load, Stmt, Store, seq
from tilewright.schedule.buffers.local import LANES, allocation, rebased, whole
from tilewright.schedule.facts.domain import touched
from tilewright.schedule.facts.elements import touches, unwritten
from tilewright.schedule.facts.known import NOTHING
from tilewright.schedule.facts.place import own_loads, without
from tilewright.schedule.find import find_buffer
from tilewright.schedule.legality import access_text
from tilewright.schedule.step import Step, refusal

Box = tuple[Range, ...]


def compact(function: Function, buffer: str) -> Step:
    """The buffer shrinks to the box that one iteration of the innermost loop around all its accesses touches, and is
    allocated inside that loop. Masked elements count as touched, so the shape is that of a whole tile.

    alloc h: f32[33]                                            for io in 0..6:
    for io in 0..6:                                               alloc h: f32[6]
      for ii in 0..6: block h(vi = io*6 + ii): h[vi] = …    =>    for ii in 0..6: block h(vi = io*6 + ii): h[ii] = …
      for i in 0..6: block y(vi = io*6 + i): y[vi] = h[vi]        for i in 0..6: block y(vi = io*6 + i): y[vi] = h[i]

    Legal if no value is passed from one iteration to another: an iteration stores all elements before it reads them.
    """
    return compacted(function, find_buffer(function, buffer))[0]


def compacted(function: Function, buffer: Buffer) -> tuple[Step, Buffer]:
    """The step that makes a buffer smaller, and the buffer it becomes."""
    what = f"cannot compact {buffer.name}"
    alloc = allocation(function, buffer, what)
    loop = _innermost(function, alloc, what)
    _require_fresh(function, loop, buffer, what)
    box = _box(loop, buffer, {each.var for each in (*loops_around(function.body, loop), loop)})
    small = buffer if box == whole(buffer.shape) else buffer.replace(shape=tuple(part.extent for part in box))
    body = seq(alloc.replace(buffer=small), rebased(loop.body, buffer, small, box))
    changed = replace(function.body, loop, loop.replace(body=body))
    shape, parts = (", ".join(map(str, each)) for each in (small.shape, box))
    evidence = (
        f"an iteration of {loop.var.name} touches {buffer.name}[{parts}] alone: [{shape}]",
        f"what an iteration of {loop.var.name} reads of {buffer.name} it stored before",
    )
    return Step(function.replace(body=without(changed, alloc)), None, evidence), small


def _require_fresh(function: Function, loop: For, buffer: Buffer, what: str) -> None:
    """An iteration of the loop reads from the buffer only what it stored there before."""
    name, outside = loop.var.name, [*loops_around(function.body, loop), loop]
    found = touches(loop.body, buffer)
    missing = unwritten(found, outside)
    if missing is not None:
        read = access_text(missing.access).replace("loads", "reads", 1)
        why = f"an iteration of {name} {read} before it stores: the value is another iteration's"
        if any(touch.access.is_store for touch in found[: found.index(missing)]):
            why = f"what an iteration of {name} stores in {buffer.name} before does not cover what it {read}"
        raise refusal(function, what, missing.access.statement, why=why)
    for block in [b for touch in found if touch.access.is_store and (b := touch.init_of) is not None]:
        again = next((each for each in outside if each.var in summed_loops(block)), None)
        if again is not None:
            why = f"{block.name} goes on adding up in the next iteration of {again.var.name}"
            raise refusal(function, what, again, why=why, fix=f"move {again.var.name} inside {name}")


def _innermost(function: Function, alloc: Alloc, what: str) -> For:
    """The innermost loop around all accesses of a buffer that is not around its allocation. Loops whose iterations are
    lanes have no memory of their own."""
    name, outer = alloc.buffer.name, loops_around(function.body, alloc)
    around = [loops_around(function.body, s) for s in statements(function.body) if _touches(s, alloc.buffer)]
    if not around:
        raise refusal(function, what, alloc, why=f"nothing reads or stores {name}", part=name)
    shared = [loop for loop in around[0] if loop not in outer and all(loop in each for each in around)]
    found = list(takewhile(lambda loop: loop.kind not in LANES, shared))
    if not found:
        fix = "bring them together first: compute_at, or reverse_compute_at"
        raise refusal(function, what, alloc, why=f"no loop holds all that reads and stores {name}", fix=fix, part=name)
    return found[-1]


def _touches(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether the statement itself, not one inside it, reads or stores a buffer."""
    stores = isinstance(stmt, Store) and stmt.buffer is buffer
    return stores or any(load.buffer is buffer for load in own_loads(stmt))


def _box(loop: For, buffer: Buffer, moving: set[Var]) -> Box:
    """The box of a buffer that one iteration of a loop touches. A dimension for which no smaller range is known, of the
    same extent while the loops over `moving` run, is taken whole."""

    def is_part(found: Range, full: Range) -> bool:
        if mentions(found.extent, moving) or any(isinstance(e, Min | Max) for e in preorder(found.extent)):
            return False
        return mentions(found.begin, moving) or NOTHING.within(found, full)

    box = touched_box(loop, buffer, [a for a in accesses(loop.body) if a.buffer is buffer])
    return tuple(r if is_part(r, full) else full for r, full in zip(box, whole(buffer.shape), strict=True))


def touched_box(loop: For, buffer: Buffer, found: Sequence[Access]) -> Box:
    """The box of a buffer that accesses touch in one iteration of a loop. A dimension whose range is known only inside
    the loop is taken whole."""
    full = tuple(Range(const(0), extent) for extent in buffer.shape)
    regions = [touched(access.indices, buffer.shape, access.loops) for access in found]
    box = reduce(cover, regions).ranges if regions else full
    hidden: set[Expr] = {s.var for s in statements(loop.body) if isinstance(s, For | Let)}
    hidden |= {a.var for block in blocks(loop.body) for a in block.axes}

    def is_hidden(part: Range) -> bool:
        return any(isinstance(e, Load) or e in hidden for e in preorder((part.begin, part.extent)))

    return tuple(all_of if is_hidden(r) else r for r, all_of in zip(box, full, strict=True))
