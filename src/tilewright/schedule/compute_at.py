"""compute_at: a producer's points are computed where a consumer's loop needs them, and its buffer shrinks to that.

for i, k: block s(vi = i, reduce vk = k): s[vi] += x[vi, vk]          for i:
for i: block y(vi = i): y[vi] = sqrt(s[vi])                    =>       alloc s: f32[1]
                                                                        for k: block s(vi = i, …): s[0] += x[vi, vk]
                                                                        block y(vi = i): y[vi] = sqrt(s[0])
"""

from __future__ import annotations

from tilewright.analysis.accesses import accesses
from tilewright.analysis.intervals import Range
from tilewright.analysis.regions import ranges_of, region
from tilewright.core.node import Node
from tilewright.core.walk import substitute, transform
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, fresh_copy, loads, map_expressions, replace, statements, transform_statements
from tilewright.loops.nodes import Alloc, Axis, AxisKind, Block, Buffer, For, Function, Load, LoopKind, Stmt, Store, seq
from tilewright.schedule.find import nests, stored_buffers
from tilewright.types.scopes import Scope

STACK_BYTES = 16 * 1024
"""Buffers up to this size live on the stack; larger ones, and those of symbolic size, in the arena."""

Box = tuple[Range, ...]
"""Begin and extent in each dimension."""


def compute_at(function: Function, buffer: Buffer, loop: For) -> Function | None:
    """The function with the nest that produces `buffer` moved into `loop`; None where that is not legal here: another
    nest reads the buffer, the producer has several blocks, or the part that an iteration needs is not a box."""
    producers = [n for n in nests(function) if buffer in stored_buffers(n)]
    readers = [n for n in nests(function) if any(ld.buffer is buffer for ld in loads(n))]
    if len(producers) != 1 or (any(r is producers[0] for r in readers) and not _accumulates(producers[0], buffer)):
        return None
    consumers = [r for r in readers if r is not producers[0]]
    inside = blocks(producers[0])
    if len(consumers) != 1 or loop not in set(statements(consumers[0])) or len(inside) != 1:
        return None
    if not _writes_its_points(inside[0], buffer):
        return None
    box = _needed(loop, consumers[0], buffer)
    if box is None:
        return None
    small = _shrunk(buffer, box)
    producer = _produce(producers[0], inside[0], box)
    body = _rebase(seq(producer, loop.body), buffer, small, box)
    moved = loop.replace(body=seq(Alloc(small), body))
    kept = [s for s in nests(function) if s is not producers[0] and not (isinstance(s, Alloc) and s.buffer is buffer)]
    return function.replace(body=replace(seq(*kept), loop, moved) if kept != [loop] else moved)


def _writes_its_points(block: Block, buffer: Buffer) -> bool:
    """Whether a block's only store goes to the buffer at the block's spatial axes in order."""
    store = block.body
    points = tuple(a.var for a in block.spatial)
    return isinstance(store, Store) and store.buffer is buffer and store.indices == points


def _accumulates(nest: Stmt, buffer: Buffer) -> bool:
    """Whether the only reads of the buffer in its own nest are those of its accumulation."""
    (block, *more) = blocks(nest)
    store = block.body
    if more or not isinstance(store, Store) or store.buffer is not buffer:
        return False
    return all(ld.indices == store.indices for ld in loads(nest) if ld.buffer is buffer)


def _needed(loop: For, consumer: Stmt, buffer: Buffer) -> Box | None:
    """The box of `buffer` that one iteration of `loop` reads: the same for every load of it, or None."""
    reading = [a for a in accesses(consumer) if a.buffer is buffer and not a.is_store]
    if not reading or any(loop not in a.loops for a in reading):
        return None
    boxes = []
    for access in reading:
        inner = access.loops[access.loops.index(loop) + 1 :]
        boxes.append(region(access.indices, buffer.shape, ranges_of(inner)))
    same = all(box.exact and box.ranges == boxes[0].ranges for box in boxes)
    return boxes[0].ranges if same else None


def _shrunk(buffer: Buffer, box: Box) -> Buffer:
    shape = tuple(r.extent for r in box)
    size = 1
    for extent in shape:
        if not isinstance(extent, Const):
            return buffer.replace(shape=shape, scope=Scope.ARENA)
        size *= int(extent.value)
    scope = Scope.REGISTER if size == 1 else Scope.STACK if size * buffer.dtype.bytes <= STACK_BYTES else Scope.ARENA
    return buffer.replace(shape=shape, scope=scope)


def _produce(nest: Stmt, block: Block, box: Box) -> Stmt:
    """The producer's block over the box alone, under fresh loops: spatial ones over the box, reduce as they were."""
    copy = fresh_copy(nest)
    (fresh,) = blocks(copy)
    around = [s for s in statements(copy) if isinstance(s, For)]
    reduce_vars = set().union(*(variables_of(a.binding) for a in fresh.reduce))
    axes: list[Axis] = []
    loops: list[For] = []
    dims = iter(box)
    for axis in fresh.axes:
        if axis.kind is AxisKind.REDUCE:
            axes.append(axis)
            continue
        part = next(dims)
        begin, extent = part.begin, part.extent
        if isinstance(extent, Const) and extent.value == 1:
            axes.append(axis.replace(binding=begin))
            continue
        var = Var(axis.var.name.removeprefix("v"))
        axes.append(axis.replace(binding=begin + var))
        loops.append(For(var, const(0), extent, LoopKind.SERIAL, fresh))
    made: Stmt = fresh.replace(axes=tuple(axes))
    for loop in reversed([*loops, *(s for s in around if s.var in reduce_vars)]):
        made = loop.replace(body=made)
    return made


def _rebase(stmt: Stmt, buffer: Buffer, small: Buffer, box: Box) -> Stmt:
    """Accesses of `buffer` as accesses of `small`, relative to where the box begins.

    Inside a block an index is an expression over axes, so the begin must be subtracted from what the axes are bound to:
    axes are replaced by their bindings in the indices of this buffer alone.
    """

    def of_block(node: Node) -> Node:
        if not isinstance(node, Block):
            return node
        bindings: dict[Expr, Node] = {a.var: a.binding for a in node.axes}

        def local(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
            bound = [substitute(i, bindings) for i in indices]
            return tuple(simplify(i - part.begin) for i, part in zip(bound, box, strict=True))

        def of_expression(e: Node) -> Node:
            return Load(small, local(e.indices)) if isinstance(e, Load) and e.buffer is buffer else e

        def of_store(s: Node) -> Node:
            return Store(small, local(s.indices), s.value) if isinstance(s, Store) and s.buffer is buffer else s

        memo: dict[Node, Node] = {}
        body = map_expressions(node.body, lambda e: transform(e, of_expression, memo))
        body = transform_statements(body, of_store)
        init = transform_statements(node.init, of_store) if node.init is not None else None
        return node.replace(body=body, init=init)

    return transform_statements(stmt, of_block)
