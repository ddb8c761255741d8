"""What steps on buffers are made of: which buffers may be held otherwise, their accesses made to others, copies.

for i, j: block w.cache: w.cache[i, j] = w[i, j]       a nest that runs a store for each element of a box
y[vi] = x[vi + io*6]    =>    y[vi] = local[vi]         the accesses of one buffer made to another, at other places
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.analysis.domains import Domain
from tilewright.analysis.elements import Elements, point
from tilewright.analysis.intervals import Range
from tilewright.analysis.known import compared, resolved
from tilewright.core.walk import substitute
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import substitute_buffers, transform_statements
from tilewright.loops.nodes import Alloc, Axis, AxisKind, Block, Buffer, Function, Load, Stmt, Store
from tilewright.loops.sizes import bytes_of
from tilewright.schedule.facts import require_plain
from tilewright.schedule.find import allocation_of
from tilewright.schedule.nests import nest_over
from tilewright.schedule.step import Obstacle
from tilewright.types.scopes import MOST_BYTES, Scope

LOCAL = (Scope.ARENA, Scope.STACK, Scope.REGISTER, Scope.SHARED)
"""Where a local buffer may live."""


def allocation(function: Function, buffer: Buffer) -> Alloc:
    """Where a local buffer is allocated that loads and stores alone touch: it may be held otherwise."""
    alloc = allocation_of(function, buffer)
    if alloc is None:
        why = f"{buffer.name} is no local buffer: its memory, and how it lies there, is the caller's"
        raise Obstacle(function, why, "cache_read or cache_write gives a block a local copy", part=buffer.name)
    require_plain(function, buffer)
    if alloc.offset is not None:
        raise Obstacle(alloc, "its place in the arena is planned", "take this step before memory is planned")
    return alloc


def placed(buffer: Buffer, scope: str, at: Stmt, fix: str = "") -> Buffer:
    """A local buffer in the scope of this name; refuses where it cannot live there. `fix` is what helps, too."""
    found = next((s for s in LOCAL if s.value == scope), None)
    if found is None:
        raise Obstacle(at, f'no local buffer lives in "{scope}"', f"take one of {', '.join(s.value for s in LOCAL)}")
    made = buffer.replace(scope=found)
    if found not in MOST_BYTES:
        return made
    size, most = bytes_of(made), MOST_BYTES[found]
    if size is None:
        extent = next(e for e in buffer.shape if not isinstance(simplify(e), Const))
        raise Obstacle(at, f"the dimension {extent} of {buffer.name} is dynamic", f'take scope="arena"{fix}')
    if size > most:
        why = f"{buffer.name} has {size} bytes; at most {most} go there"
        larger = "stack" if size <= MOST_BYTES[Scope.STACK] else "arena"
        raise Obstacle(at, why, fix=f'take scope="{larger}"{fix}')
    return made


def rebased(root: Stmt, buffer: Buffer, small: Buffer, box: Sequence[Range]) -> Stmt:
    """Accesses of `buffer` as accesses of `small`, relative to where the box begins.

    Inside a block an index is an expression over axes: where the begin is subtracted, axes are replaced by what they
    are bound to."""

    def within(s: Stmt) -> Stmt:
        def place(index: Expr, part: Range) -> Expr:
            if part.begin is const(0) and part.extent is not const(1):
                return index
            return simplify((resolved(s, index) if isinstance(s, Block) else index) - part.begin)

        return substitute_buffers(s, {buffer: small}, lambda indices: tuple(map(place, indices, box)))

    if small is buffer:
        return root
    return within(transform_statements(root, lambda s: within(s) if isinstance(s, Block) else s))


def box_nest(
    name: str, loops: Sequence[Var], part: Elements, store: Callable[[tuple[Expr, ...]], Stmt], *, singles: bool = False
) -> Stmt:
    """A block that runs store(indices) for each of some elements, in a serial loop for each dimension, called like one
    of `loops`: for dimensions of one element, too, where `singles` have loops."""
    points = tuple(Var("v" + var.name) for var in loops)
    axes = tuple(Axis(var, AxisKind.SPATIAL, var) for var in points)
    values = dict(zip(point(len(points)), points, strict=True))
    conditions = tuple(substitute(compared(polynomial(c)), values) for c in part.conditions)
    box = dict(zip(points, part.ranges, strict=True))
    return nest_over(Domain(Block(name, axes, store(points)), box, (), conditions), {}, singles=singles)


def copy_nest(
    name: str, loops: Sequence[Var], part: Elements, to: Buffer, of: Buffer, *, singles: bool = False
) -> Stmt:
    """A nest that copies some elements of one buffer to the same places of another one."""
    return box_nest(name, loops, part, lambda at: Store(to, at, Load(of, at)), singles=singles)
