"""inline_all, pull_producers: local buffers disappear, or are computed where they are read.

inline_all         those that are defined point by point are computed by their readers
pull_producers     others are computed in the innermost loop that needs no point of them twice; there they shrink to
                   what one iteration needs, and live in registers or on the stack where they fit
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from tilewright.analysis.regions import reads
from tilewright.core.walk import preorder
from tilewright.expr.nodes import Call, Div, Expr, Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, loaded_buffers, loads, loops_around, substitute_buffers
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Load, Stmt, Store
from tilewright.loops.sizes import bytes_of
from tilewright.report.errors import UserError
from tilewright.schedule.blocks.compute_at import computed_at
from tilewright.schedule.blocks.inline import inlined
from tilewright.schedule.buffers.copies import compacted
from tilewright.schedule.facts.iterations import is_single
from tilewright.schedule.find import nests, stored_buffers
from tilewright.schedule.step import Step
from tilewright.types.scopes import MOST_BYTES, Scope


@lru_cache(maxsize=1 << 4)
def inline_all(function: Function, *, once: bool = False) -> Step:
    """Inlines every local buffer that is defined point by point into its readers. Buffers that cost more to compute
    than to load stay if several nests read them. With `once`, they stay also if a nest reads an element of them several
    times, such as a value per row at each point of the row.

    block e(vi = i): e[vi] = x[vi] + 1.0; block y(vi = i): y[vi] = e[vi] * 2.0
              =>      block y(vi = i): y[vi] = (x[vi] + 1.0) * 2.0

    Each is inlined as by inline, which proves what it needs; what it refuses stays. Answers are kept: several templates
    for a kernel begin with this step.
    """
    made = function
    for buffer in _local_buffers(function):
        block = _producer(made, buffer)
        if block is None or block.init is not None or block.reduce or not isinstance(block.body, Store):
            continue
        several = sum(buffer in loaded_buffers(nest) for nest in nests(made)) > 1
        if not (several or (once and _is_read_again(made, buffer))) or not _is_expensive(block.body.value):
            with suppress(UserError):
                made, _ = inlined(made, block)
    return Step(made, None, () if made is function else ("inline allows each of them",))


def _local_buffers(function: Function) -> list[Buffer]:
    return [s.buffer for s in nests(function) if isinstance(s, Alloc)]


def _producer(function: Function, buffer: Buffer) -> Block | None:
    """The only block, which does one store, of the only nest that fills a buffer."""
    writers = [n for n in nests(function) if buffer in stored_buffers(n)]
    inside = blocks(writers[0]) if len(writers) == 1 else []
    return inside[0] if len(inside) == 1 and isinstance(inside[0].body, Store) else None


def _is_expensive(value: Expr) -> bool:
    """Whether an expression calls a function or divides."""
    return any(isinstance(e, Div) or (isinstance(e, Call) and e.fn.name not in ("neg", "abs")) for e in preorder(value))


def _is_read_again(function: Function, buffer: Buffer) -> bool:
    """Whether a block reads an element of a buffer in several iterations of a loop around it."""
    for block, load in _loads_of(function.body, buffer):
        used = _moving(block, load)
        if any(loop.var not in used and not is_single(loop) for loop in loops_around(function.body, block)):
            return True
    return False


def _loads_of(root: Stmt, buffer: Buffer) -> list[tuple[Block, Load]]:
    """The loads of a buffer, with the blocks that they are in."""
    return [(block, load) for block in blocks(root) for load in loads(block) if load.buffer is buffer]


def _moving(block: Block, load: Load) -> set[Var]:
    """The variables that the place of a load in a block depends on, without the block's axes."""
    bound = block.bindings
    return {v for i in load.indices for axis in variables_of(i) for v in variables_of(bound.get(axis, axis))}


def pull_producers(function: Function) -> Step:
    """Each local buffer is computed in the innermost loop that all its readers share and that it varies with, where
    that is legal: not further in, where it would be computed again and again. There it is as small as it can be, and in
    a register or on the stack where it is small enough for that.

    alloc t: f32[n, 1]; for i: block t(vi = i): t[vi, 0] = …; for i, j: block y(vi = i, vj = j): y[vi, vj] = t[vi, 0]
              =>      for i: alloc t: f32[1, 1] in register; block t: t[0, 0] = …; for j: block y: y[i, vj] = t[0, 0]

    Each is moved by compute_at and shrunk by compact, which prove what they need; what they refuse stays as it is.
    """
    made = function
    for buffer in reversed(_local_buffers(function)):
        readers = [n for n in nests(made) if buffer not in stored_buffers(n) and buffer in loaded_buffers(n)]
        producer = _producer(made, buffer)
        loop = _place_for(readers[0], buffer) if len(readers) == 1 and producer is not None else None
        if loop is not None and producer is not None:
            made = _pulled(made, producer, buffer, loop)
    return Step(made, None, () if made is function else ("compute_at and compact allow each move",))


def _place_for(nest: Stmt, buffer: Buffer) -> For | None:
    """The innermost loop around every block that reads `buffer` which some index of it varies with, if an iteration
    reads every element of a box."""
    found = _loads_of(nest, buffer)
    used = set[Var]().union(*(_moving(block, load) for block, load in found))
    paths = [loops_around(nest, block) for block, _ in found]
    shared = [loop for loop in paths[0] if all(loop in path for path in paths)] if paths else []
    loop = next((loop for loop in reversed(shared) if loop.var in used), None)
    box = reads(loop.body).get(buffer) if loop is not None else None
    return loop if box is not None and box.exact else None


def _pulled(function: Function, producer: Block, buffer: Buffer, loop: For) -> Function:
    """The function with the buffer computed in the loop, and as small as it can be; as it was where that is illegal."""
    try:
        step, small = compacted(computed_at(function, producer, loop).function, buffer)
    except UserError:
        return function
    size = bytes_of(small)
    if size is None or size > MOST_BYTES[Scope.STACK]:
        return step.function
    placed = small.replace(scope=Scope.REGISTER if size == small.dtype.bytes else Scope.STACK)
    return function.replace(body=substitute_buffers(step.function.body, {small: placed}))
