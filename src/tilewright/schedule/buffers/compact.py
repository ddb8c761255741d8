"""compact: a local buffer that lives within one iteration of a loop shrinks to what that iteration touches.

alloc h: f32[33]                                            for io in 0..6:
for io in 0..6:                                               alloc h: f32[6]
  for ii in 0..6: block h(vi = io*6 + ii): h[vi] = …    =>    for ii in 0..6: block h(vi = io*6 + ii): h[ii] = …
  for i in 0..6: block y(vi = io*6 + i): y[vi] = h[vi]        for i in 0..6: block y(vi = io*6 + i): y[vi] = h[i]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import takewhile

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.intervals import Range
from tilewright.analysis.regions import cover
from tilewright.core.node import Node
from tilewright.core.walk import preorder, substitute
from tilewright.expr.nodes import Expr, Max, Min, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import loops_around, map_loads, replace, statements, transform_statements
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Let, Load, LoopKind, Stmt, Store, seq
from tilewright.schedule.facts.domain import is_one, touched
from tilewright.schedule.facts.elements import touches, unwritten
from tilewright.schedule.facts.known import NOTHING
from tilewright.schedule.facts.place import Memory, own_loads, require_plain, without
from tilewright.schedule.find import allocation_of, find_buffer
from tilewright.schedule.legality import access_text
from tilewright.schedule.step import Step, refusal
from tilewright.types.scopes import Scope

Box = tuple[Range, ...]


def compact(function: Function, buffer: str) -> Step:
    """The buffer shrinks to the box that one iteration of the innermost loop around all its accesses touches, and is
    allocated inside that loop. Masked elements count as touched, so the shape is that of a whole tile.

    Legal if no value is passed from one iteration to another: an iteration stores all elements before it reads them.
    """
    return compacted(function, find_buffer(function, buffer))[0]


def compacted(function: Function, found: Buffer) -> tuple[Step, Buffer]:
    """The step that makes a buffer smaller, and the buffer it becomes."""
    buffer = found.name
    what = f"cannot compact {buffer}"
    alloc = allocation_of(function, found)
    if alloc is None:
        why = f"{buffer} is {'an argument' if found.scope is Scope.ARGUMENT else 'no local buffer'}"
        raise refusal(function, what, function, why=f"{why}: its memory is the caller's", part=buffer)
    require_plain(function, Memory(function), found, alloc, what)
    loop = _innermost(function, alloc, what)
    inside = [a for a in accesses(loop.body) if a.buffer is found]
    _require_fresh(function, loop, found, what)
    box = _box(loop, found, inside, loops_around(function.body, loop))
    if box == tuple(Range(const(0), simplify(extent)) for extent in found.shape):
        moved = found
    else:
        moved = found.replace(shape=tuple(part.extent for part in box))
    body = rebased(loop.body, found, moved, box)
    changed = replace(function.body, loop, loop.replace(body=seq(alloc.replace(buffer=moved), body)))
    shape = f"[{', '.join(map(str, moved.shape))}]"
    evidence = (
        f"an iteration of {loop.var.name} touches {buffer}[{', '.join(map(str, box))}] alone: {shape}",
        f"what an iteration of {loop.var.name} reads of {buffer} it stored before",
    )
    return Step(function.replace(body=without(changed, alloc)), None, evidence), moved


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
    """The innermost loop around all accesses of a buffer that is not around its allocation."""
    outer = loops_around(function.body, alloc)
    shared: list[For] | None = None
    for s in statements(function.body):
        if _touches(s, alloc.buffer):
            around = [loop for loop in loops_around(function.body, s) if loop not in outer]
            shared = around if shared is None else [loop for loop in shared if loop in around]
    shared = _before_lanes(shared or []) if shared is not None else None
    if not shared:
        name = alloc.buffer.name
        why = f"nothing reads or stores {name}" if shared is None else f"no loop holds all that reads and stores {name}"
        fix = None if shared is None else "bring them together first: compute_at, or reverse_compute_at"
        raise refusal(function, what, alloc, why=why, fix=fix, part=name)
    return shared[-1]


def _before_lanes(loops: list[For]) -> list[For]:
    """The loops around the first one whose iterations are lanes: none of these has memory of its own."""
    lanes = (LoopKind.VECTORIZE, LoopKind.INSTRUCTION)
    return list(takewhile(lambda loop: loop.kind not in lanes, loops))


def _touches(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether the statement itself, not one inside it, reads or stores a buffer."""
    stores = isinstance(stmt, Store) and stmt.buffer is buffer
    return stores or any(load.buffer is buffer for load in own_loads(stmt))


def _box(loop: For, buffer: Buffer, inside: Sequence[Access], around: Sequence[For]) -> Box:
    """The box of a buffer that one iteration touches; `around` are the loops around it. A dimension for which no
    smaller range is known keeps its extent."""
    moving = {each.var for each in around} | {loop.var}
    box = touched_box(loop, buffer, inside)
    return tuple(_part(r, extent, moving) for r, extent in zip(box, buffer.shape, strict=True))


def _part(found: Range, extent: Expr, moving: set[Var]) -> Range:
    whole = Range(const(0), simplify(extent))
    if any(isinstance(e, Min | Max) for e in preorder(found.extent)):
        return whole
    if mentions(found.extent, moving):
        return whole
    return found if mentions(found.begin, moving) or NOTHING.within(found, whole) else whole


def touched_box(loop: For, buffer: Buffer, found: Sequence[Access]) -> Box:
    """The box of a buffer that accesses touch in one iteration of a loop. A dimension whose range is known only inside
    the loop is taken whole."""
    regions = [touched(access.indices, buffer.shape, access.loops) for access in found]
    box = reduce(cover, regions).ranges if regions else [Range(const(0), extent) for extent in buffer.shape]
    hidden: set[Var] = set()
    for s in statements(loop.body):
        hidden |= {s.var} if isinstance(s, For | Let) else {a.var for a in s.axes} if isinstance(s, Block) else set()

    def is_hidden(part: Range) -> bool:
        return any(isinstance(e, Load) or e in hidden for e in preorder((part.begin, part.extent)))

    return tuple(Range(const(0), e) if is_hidden(r) else r for r, e in zip(box, buffer.shape, strict=True))


def rebased(root: Stmt, buffer: Buffer, small: Buffer, box: Box) -> Stmt:
    """Accesses of `buffer` as accesses of `small`, relative to where the box begins.

    Inside a block an index is an expression over axes: where the begin is subtracted, axes are replaced by what they
    are bound to."""
    memo: dict[Node, Node] = {}

    def local(indices: tuple[Expr, ...], bound: Mapping[Expr, Node]) -> tuple[Expr, ...]:
        return tuple(
            i if part.begin is const(0) and not is_one(part.extent) else simplify(substitute(i, bound) - part.begin)
            for i, part in zip(indices, box, strict=True)
        )

    def expressions_in(s: Stmt, bound: Mapping[Expr, Node], seen: dict[Node, Node]) -> Stmt:
        def of_load(e: Load) -> Expr:
            return Load(small, local(e.indices, bound)) if e.buffer is buffer else e

        return map_loads(s, of_load, seen)

    def stores_in(s: Stmt, bound: Mapping[Expr, Node]) -> Stmt:
        def of_store(node: Node) -> Node:
            if not isinstance(node, Store) or node.buffer is not buffer:
                return node
            return Store(small, local(node.indices, bound), node.value)

        return transform_statements(s, of_store)

    def of_block(node: Node) -> Node:
        if not isinstance(node, Block):
            return node
        bound: dict[Expr, Node] = {a.var: a.binding for a in node.axes}
        return stores_in(expressions_in(node, bound, {}), bound)

    if small is buffer:
        return root
    return stores_in(expressions_in(transform_statements(root, of_block), {}, memo), {})
