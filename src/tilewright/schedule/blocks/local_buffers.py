"""pull_producers: local buffers are computed in the innermost loop that needs no point of them twice. There they shrink
to what one iteration needs, and live in registers or on the stack where they fit."""

from __future__ import annotations

from tilewright.analysis.regions import reads
from tilewright.expr.nodes import Const, Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, loads, loops_around, substitute_buffers
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Stmt, Store
from tilewright.report.errors import UserError
from tilewright.schedule.blocks.compute_at import computed_at
from tilewright.schedule.buffers.compact import compacted
from tilewright.schedule.find import nests, stored_buffers
from tilewright.schedule.step import Step
from tilewright.types.scopes import MOST_BYTES, Scope


def pull_producers(function: Function) -> Step:
    """Each local buffer is computed in the innermost loop that all its readers share and that it varies with, where
    that is legal: not further in, where it would be computed again and again. There it is as small as it can be, and in
    a register or on the stack where it is small enough for that.

    alloc t: f32[n, 1]; for i: block t(vi = i): t[vi, 0] = …; for i, j: block y(vi = i, vj = j): y[vi, vj] = t[vi, 0]
              =>      for i: alloc t: f32[1, 1] in register; block t: t[0, 0] = …; for j: block y: y[i, vj] = t[0, 0]

    Each is moved by compute_at and shrunk by compact, which prove what they need; what they refuse stays as it is.
    """
    made = _all_pulled(function)
    return Step(made, None, () if made is function else ("compute_at and compact allow each move",))


def _all_pulled(function: Function) -> Function:
    for buffer in reversed([s.buffer for s in nests(function) if isinstance(s, Alloc)]):
        readers = [n for n in nests(function) if buffer not in stored_buffers(n) and _reads(n, buffer)]
        producer = _producer(function, buffer)
        if len(readers) != 1 or producer is None:
            continue
        loop = _place_for(readers[0], buffer)
        if loop is not None and _needs_each_once(loop, buffer):
            function = _pulled(function, producer, buffer, loop)
    return function


def _producer(function: Function, buffer: Buffer) -> Block | None:
    """The only block of the only nest that fills a buffer."""
    writers = [n for n in nests(function) if buffer in stored_buffers(n)]
    inside = blocks(writers[0]) if len(writers) == 1 else []
    return inside[0] if len(inside) == 1 and isinstance(inside[0].body, Store) else None


def _reads(stmt: Stmt, buffer: Buffer) -> bool:
    return any(load.buffer is buffer for load in loads(stmt))


def _place_for(nest: Stmt, buffer: Buffer) -> For | None:
    """The innermost loop around every block that reads `buffer` which some index of it varies with."""
    around: list[For] | None = None
    used: set[Var] = set()
    for block in blocks(nest):
        bound = {a.var: a.binding for a in block.axes}
        for load in loads(block):
            if load.buffer is buffer:
                path = loops_around(nest, block)
                around = path if around is None else [loop for loop in around if loop in path]
                axes = set().union(*(variables_of(i) for i in load.indices))
                used |= set().union(*(variables_of(bound.get(v, v)) for v in axes))
    return next((loop for loop in reversed(around or []) if loop.var in used), None)


def _needs_each_once(loop: For, buffer: Buffer) -> bool:
    """Whether an iteration reads a box of a buffer, and every element of it."""
    box = reads(loop.body).get(buffer)
    return box is not None and box.exact


def _pulled(function: Function, producer: Block, buffer: Buffer, loop: For) -> Function:
    """The function with the buffer computed in the loop, and as small as it can be; as it was where that is illegal."""
    try:
        moved = computed_at(function, producer, loop).function
        step, small = compacted(moved, buffer)
    except UserError:
        return function
    size = 1
    for extent in small.shape:
        if not isinstance(extent, Const):
            return step.function
        size *= int(extent.value)
    if size * small.dtype.bytes > MOST_BYTES[Scope.STACK]:
        return step.function
    placed = small.replace(scope=Scope.REGISTER if size == 1 else Scope.STACK)
    return function.replace(body=substitute_buffers(step.function.body, {small: placed}))
