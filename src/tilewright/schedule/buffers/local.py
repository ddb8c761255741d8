"""What steps on buffers are made of: which buffers may be held otherwise, their accesses made to others, copies.

for i, j: block w.cache: w.cache[i, j] = w[i, j]       a nest that runs a store for each element of a box
y[vi] = x[vi + io*6]    =>    y[vi] = local[vi]         the accesses of one buffer made to another, at other places
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.analysis.intervals import Range
from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.build import conjunction
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import loads, statements, substitute_buffers, transform_statements
from tilewright.loops.nodes import (
    Alloc,
    Axis,
    AxisKind,
    Block,
    Buffer,
    For,
    Function,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
)
from tilewright.schedule.facts.domain import is_one
from tilewright.schedule.facts.elements import Elements, as_condition, point
from tilewright.schedule.facts.place import require_plain
from tilewright.schedule.find import allocation_of, nested
from tilewright.schedule.step import refusal
from tilewright.types.scopes import MOST_BYTES, Scope

LOCAL = (Scope.ARENA, Scope.STACK, Scope.REGISTER, Scope.SHARED)
"""Where a local buffer may live."""

LANES = (LoopKind.VECTORIZE, LoopKind.INSTRUCTION)
"""The loops whose iterations are lanes: none of these has memory of its own."""


def allocation(function: Function, buffer: Buffer, what: str) -> Alloc:
    """Where a local buffer is allocated that loads and stores alone touch: it may be held otherwise."""
    alloc = allocation_of(function, buffer)
    if alloc is None:
        fix = "cache_read or cache_write gives a block a local copy"
        why = f"{buffer.name} is a parameter: its memory, and how it lies there, is the caller's"
        raise refusal(function, what, function, why=why, fix=fix, part=buffer.name)
    require_plain(function, buffer, what)
    if alloc.offset is not None:
        fix = "take this step before memory is planned"
        raise refusal(function, what, alloc, why="its place in the arena is planned", fix=fix, part=buffer.name)
    return alloc


def placed(function: Function, buffer: Buffer, scope: str, at: Stmt, what: str, fix: str = "") -> Buffer:
    """A local buffer in the scope of this name; refuses where it cannot live there. `fix` is what helps, too."""
    found = next((s for s in LOCAL if s.value == scope), None)
    part = at.name if isinstance(at, Block) else buffer.name if isinstance(at, Alloc) else None
    if found is None:
        choice = f"take one of {', '.join(s.value for s in LOCAL)}"
        raise refusal(function, what, at, why=f'no local buffer lives in "{scope}"', fix=choice, part=part)
    made = buffer.replace(scope=found)
    if found not in MOST_BYTES:
        return made
    count, most = elements_in(buffer.shape), MOST_BYTES[found]
    if isinstance(count, Expr):
        why = f"the dimension {count} of {buffer.name} is known only when the program runs"
        fix = f'take scope="arena"{fix}'
        raise refusal(function, what, at, why=why, fix=fix, part=count if isinstance(at, Alloc) else part)
    size = count * buffer.dtype.bytes
    if size > most:
        why = f"{buffer.name} has {size} bytes; at most {most} go there"
        larger = "stack" if size <= MOST_BYTES[Scope.STACK] else "arena"
        raise refusal(function, what, at, why=why, fix=f'take scope="{larger}"{fix}', part=part)
    return made


def elements_in(shape: Sequence[Expr]) -> int | Expr:
    """The number of elements of a box of this shape; of a dynamic one its first dynamic dimension."""
    count = 1
    for extent in shape:
        known = simplify(extent)
        if not isinstance(known, Const):
            return extent
        count *= int(known.value)
    return count


def require_no_prefetch(function: Function, root: Stmt, buffer: Buffer, what: str, fix: str) -> None:
    """Refuses a buffer that is prefetched in `root`, by its place in memory."""
    for s in statements(root):
        if isinstance(s, Prefetch) and s.place.buffer is buffer:
            raise refusal(function, what, s, why=f"{buffer.name} is prefetched here", fix=fix)


def require_elements(function: Function, root: Stmt, buffer: Buffer, what: str) -> None:
    """Refuses a buffer of which something in `root` takes several elements at once."""
    for s in statements(root):
        if isinstance(s, Store):
            stored = s.buffer is buffer and any(i.lanes != 1 for i in s.indices)
            if stored or any(load.buffer is buffer and load.lanes != 1 for load in loads(s)):
                why = f"this {'stores' if stored else 'loads'} vectors of {buffer.name}"
                raise refusal(function, what, s, why=why, part=buffer.name)


def rebased(root: Stmt, buffer: Buffer, small: Buffer, box: Sequence[Range]) -> Stmt:
    """Accesses of `buffer` as accesses of `small`, relative to where the box begins.

    Inside a block an index is an expression over axes: where the begin is subtracted, axes are replaced by what they
    are bound to."""

    def within(s: Stmt, axes: Sequence[Axis]) -> Stmt:
        bound: dict[Expr, Node] = {a.var: a.binding for a in axes}

        def places(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return tuple(
                i if part.begin is const(0) and not is_one(part.extent) else simplify(substitute(i, bound) - part.begin)
                for i, part in zip(indices, box, strict=True)
            )

        return substitute_buffers(s, {buffer: small}, places)

    if small is buffer:
        return root
    inside = transform_statements(root, lambda s: within(s, s.axes) if isinstance(s, Block) else s)
    return within(inside, ())


def whole(shape: Sequence[Expr]) -> tuple[Range, ...]:
    """The box of all elements of a buffer of this shape."""
    return tuple(Range(const(0), simplify(extent)) for extent in shape)


def box_nest(
    name: str, loops: Sequence[Var], part: Elements, store: Callable[[tuple[Expr, ...]], Stmt], *, singles: bool = False
) -> Stmt:
    """A block that runs store(indices) for each of some elements, in a serial loop for each dimension: for dimensions
    of one element, too, where `singles` have loops."""
    axes: list[Axis] = []
    nest: list[For] = []
    for var, r in zip(loops, part.box, strict=True):
        has_loop = singles or not is_one(r.extent)
        if has_loop:
            nest.append(For(var, const(0), r.extent, LoopKind.SERIAL, Seq(())))
        axes.append(Axis(Var("v" + var.name), AxisKind.SPATIAL, simplify(r.begin + var) if has_loop else r.begin))
    points = tuple(a.var for a in axes)
    values = dict(zip(point(len(points)), points, strict=True))
    where = conjunction([substitute(as_condition(c), values) for c in part.conditions])
    return nested(nest, Block(name, tuple(axes), store(points), None, where))
