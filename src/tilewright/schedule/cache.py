"""Caches: a block reads a buffer through a local copy of it.

for i, j, k: block dot: y[i, j] += x[i, k] * w[k, j]

cache_read("dot", "w")   =>     alloc w.cache: f32[77, 45] in arena
                                for k2, j2: block w.cache: w.cache[k2, j2] = w[k2, j2]
                                for i, j, k: block dot: y[i, j] += x[i, k] * w.cache[k, j]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import allocations, loads, map_expressions, path_to, replace, statements
from tilewright.loops.nodes import (
    Alloc,
    Axis,
    AxisKind,
    Block,
    Buffer,
    CallFunction,
    For,
    Function,
    Load,
    LoopKind,
    Seq,
    Stmt,
    Store,
    View,
    seq,
)
from tilewright.schedule.find import find_block, find_buffer
from tilewright.schedule.names import unique_buffer, unique_loops
from tilewright.schedule.place import Memory
from tilewright.schedule.step import Step, refusal
from tilewright.types.scopes import Scope

LOCAL = (Scope.ARENA, Scope.STACK, Scope.REGISTER, Scope.SHARED)
"""Where a local buffer may live."""


def cache_read(function: Function, block: str, buffer: str, *, scope: str = "arena") -> Step:
    """The block reads a local copy of the whole buffer, which a nest of loops of its own fills right before the
    top-level statement that holds the block. Returns the name of the block that copies, which is the buffer's, too:
    BUFFER.cache.

    for i: block y(vi = i): y[vi] = x[vi, 0]
              =>      alloc x.cache: f32[n, 4] in arena
                      for i2, d1: block x.cache(vi2 = i2, vd1 = d1): x.cache[vi2, vd1] = x[vi2, vd1]
                      for i: block y(vi = i): y[vi] = x.cache[vi, 0]
    """
    reader = find_block(function, block)
    what = f"cannot cache {buffer} for block {block}"
    source = _source(function, reader, buffer, what)
    place = next(s for s in path_to(function.body, reader) if not isinstance(s, Seq))
    _require_unwritten(function, place, source, what)
    where = local_scope(function, reader, source, scope, what)
    name = unique_buffer(function, f"{source.name}.cache")
    local = Buffer(name, source.dtype, source.shape, where)
    reading = _reading(reader, source, local)
    copy = _copy(function, reader, source, local)
    made = seq(Alloc(local), copy, replace(place, reader, reading))
    evidence = (f"nothing in the statement that holds {block} writes {source.name}",)
    return Step(function.replace(body=replace(function.body, place, made)), name, evidence)


def _source(function: Function, reader: Block, name: str, what: str) -> Buffer:
    """The buffer of this name that the block reads: a parameter, a local buffer or a constant of the module."""
    read = list(dict.fromkeys(load.buffer for load in loads(reader)))
    found = [b for b in read if b.name == name]
    if len(found) == 1:
        return found[0]
    if not found:
        find_buffer(function, name)
    names = ", ".join(b.name for b in read) or "nothing"
    why = f"it reads {names}" if not found else f"it reads {len(found)} buffers of this name"
    raise refusal(function, what, reader, why=why, part=reader.name)


def local_scope(function: Function, reader: Block, source: Buffer, scope: str, what: str) -> Scope:
    """The scope of this name for a local copy of `source`; refuses where it cannot live there."""
    found = [s for s in LOCAL if s.value == scope]
    if not found:
        fix = f"take one of {', '.join(s.value for s in LOCAL)}"
        raise refusal(function, what, reader, why=f'no local buffer lives in "{scope}"', fix=fix, part=reader.name)
    unknown = [e for e in source.shape if not isinstance(simplify(e), Const)]
    if found[0] in (Scope.REGISTER, Scope.STACK) and unknown:
        why = f"its dimension {unknown[0]} is known only when the program runs"
        raise refusal(function, what, reader, why=why, fix='take scope="arena"', part=reader.name)
    return found[0]


def _require_unwritten(function: Function, place: Stmt, source: Buffer, what: str) -> None:
    """Refuses where the statement makes the buffer, or may write its memory under whatever name."""
    if source in allocations(place) or any(isinstance(s, View) and s.buffer is source for s in statements(place)):
        why = f"{source.name} lives inside the statement that holds the block"
        raise refusal(function, what, place, why=why, fix="cache what it is computed from")
    memory = Memory(function)
    own = memory.of(source)
    for s in statements(place):
        if isinstance(s, Store) and memory.of(s.buffer) is own:
            why = f"the statement that holds the block writes {source.name}: a copy made before it would be out of date"
            raise refusal(function, what, s, why=why, part=s.buffer.name)
        if isinstance(s, CallFunction) and any(memory.of(b) is own for b in s.arguments):
            why = f"the call of {s.callee} may write {source.name}"
            raise refusal(function, what, s, why=why, part=s.callee)


def _reading(reader: Block, source: Buffer, local: Buffer) -> Stmt:
    """The block with its loads of the one buffer made from the other."""

    def change(node: Node) -> Node:
        return Load(local, node.indices) if isinstance(node, Load) and node.buffer is source else node

    memo: dict[Node, Node] = {}
    return map_expressions(reader, lambda e: transform(e, change, memo))


def _copy(function: Function, reader: Block, source: Buffer, local: Buffer) -> Stmt:
    """The nest that fills the copy, with a loop for each dimension named as the reader's index there."""
    names = unique_loops(function, _dimension_names(reader, source))
    loops = [Var(name) for name in names]
    return point_nest(local.name, loops, source.shape, lambda points: Store(local, points, Load(source, points)))


def point_nest(
    name: str, loops: Sequence[Var], shape: Sequence[Expr], body: Callable[[tuple[Expr, ...]], Stmt]
) -> For | Block:
    """A block that runs `body(axes)` at each point of the shape, in a serial loop for each dimension."""
    axes = tuple(Axis(Var("v" + v.name), AxisKind.SPATIAL, v) for v in loops)
    made: For | Block = Block(name, axes, body(tuple(a.var for a in axes)))
    for var, extent in zip(reversed(loops), reversed(shape), strict=True):
        made = For(var, const(0), extent, LoopKind.SERIAL, made)
    return made


def _dimension_names(reader: Block, source: Buffer) -> list[str]:
    """A name for each dimension: that of the axis that the reader's first load has there, or d0, d1 …"""
    indices = next(load.indices for load in loads(reader) if load.buffer is source)
    axes = {a.var for a in reader.axes}
    return [
        i.name.removeprefix("v") or i.name if isinstance(i, Var) and i in axes else f"d{n}"
        for n, i in enumerate(indices)
    ]
