"""inline, reverse_inline, inline_all, pull_producers: a local buffer disappears, or is computed where it is read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import takewhile

from tilewright.analysis.accesses import is_read_again, loads_from
from tilewright.analysis.domains import Domain, fills_all, inverse, nest_of
from tilewright.analysis.elements import touches, unwritten
from tilewright.analysis.memory import Memory, own_loads, readers_of, writers_of
from tilewright.analysis.regions import reads
from tilewright.core.walk import preorder, substitute
from tilewright.expr.nodes import Call, Div, Expr, Var
from tilewright.loops import edit
from tilewright.loops.edit import (
    allocations,
    blocks,
    loaded_buffers,
    loops_around,
    path_to,
    plain_nest,
    statements,
    stored_buffers,
)
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Load, LoopKind, Prefetch, Seq, Stmt, Store, seq
from tilewright.loops.sizes import bytes_of, fits_stack
from tilewright.loops.text import word_of
from tilewright.report.errors import UserError
from tilewright.report.quantities import counted
from tilewright.schedule import facts
from tilewright.schedule.blocks.compute_at import compute_at, computed_after
from tilewright.schedule.buffers.copies import compact
from tilewright.schedule.buffers.layout import set_scope
from tilewright.schedule.find import find_buffer, local_buffers, nests, primitive
from tilewright.schedule.step import Obstacle, Step


@primitive("cannot inline {block}")
def inline(function: Function, block: Block) -> Step:
    """Each reader of the block's buffer computes the elements that it reads itself; block and buffer disappear.

    for i: block e(vi = i): e[vi] = exp(x[vi]); for j: block y(vj = j): y[vj] = e[vj] * 2.0
              =>      for j: block y(vj = j): y[vj] = exp(x[vj]) * 2.0

    Legal if the block computes one expression for each element, nothing else stores to its buffer, and the values that
    the expression reads are unchanged at all readers.
    """
    if block.reduce or block.init is not None:
        why = f"{block.name} adds up: its result is complete only at its end"
        raise Obstacle(block, why, fix=f'move it instead: compute_at("{block.name}", …)')
    alloc = facts.filled_by(function, block, "only local buffers disappear; move what reads it: reverse_inline")
    buffer, nest = alloc.buffer, nest_of(function, block)
    facts.require_reached(path_to(function.body, nest)[-2:-1], f"block {block.name}")
    domain = facts.domain_in(nest, block)
    store, box = domain.store, domain.box
    axes_at = inverse(store.indices, box)
    told = axes_at(store.indices)
    for untold in (axis for axis in box if axis not in told):
        raise Obstacle(block.body, f"no index of {buffer.name} says what {untold.name} is")
    readers = readers_of(function.body, buffer)
    _require_readable(function, block, domain, readers)
    _require_lasting(function, block, nest, alloc, readers)

    def change(load: Load) -> Expr:
        return substitute(store.value, axes_at(load.indices)) if load.buffer is buffer else load

    def stays(stmt: Stmt) -> bool:
        return not isinstance(stmt, Seq) and buffer not in loaded_buffers(stmt)

    kept = edit.replace(edit.replace(function.body, nest, Seq(())), alloc, Seq(()))
    evidence = f"{counted(len(readers), 'statement')} compute it instead, from what {block.name} read"
    return Step(function.replace(body=edit.map_loads(kept, change, stays=stays)), None, (evidence,))


def _require_readable(function: Function, block: Block, domain: Domain, readers: Sequence[Stmt]) -> None:
    """Readers load single elements that the block stored, after it did."""
    buffer = domain.store.buffer
    order = {s: n for n, s in enumerate(statements(function.body))}
    for s in readers:
        if order[s] < order[block]:
            raise Obstacle(s, f"{buffer.name} is read before {block.name} stores it")
        if isinstance(s, Prefetch):
            raise Obstacle(s, f"{buffer.name} is prefetched here")
        if any(i.lanes != 1 for load in own_loads(s) if load.buffer is buffer for i in load.indices):
            raise Obstacle(s, "a vector is read at once", fix="inline before it is a vector")
    missing = None if fills_all(domain) else unwritten(touches(function.body, buffer))
    if missing is not None:
        why = f"block {block.name} may not have stored all that is read of {buffer.name} here"
        raise Obstacle(missing.access.statement, why)


def _require_lasting(function: Function, block: Block, nest: Stmt, alloc: Alloc, readers: Sequence[Stmt]) -> None:
    """Readers are inside all that the nest is inside of since its buffer is there, so that they know what the block
    knows, and nothing that it reads changes meanwhile."""
    holder = path_to(function.body, alloc)[-2]
    for around in path_to(holder, nest)[1:-1]:
        within = set(statements(around))
        for late in (s for s in readers if s not in within):
            raise Obstacle(late, f"{block.name} is inside {word_of(around)}, this is not")
    after = list(statements(holder))
    facts.require_unchanged(function, block, Memory(function.body).loaded(block), after[after.index(block) + 1 :])


@primitive("cannot inline {block} into its producer")
def reverse_inline(function: Function, block: Block) -> Step:
    """The block's expression is applied where its producer computes what it reads, in the producer's loops. The
    producer and its buffer disappear.

    for i: block e(vi = i): e[vi] = exp(x[vi]); for j: block y(vj = j): y[vj] = e[vj] * 2.0
              =>      for i: block y(vj = i): y[vj] = exp(x[vi]) * 2.0

    Legal where reverse_compute_at moves the block into the innermost of these loops, and inline the producer into it.
    """
    read = [b for b in allocations(function.body) if b in loaded_buffers(block) - stored_buffers(block)]
    faults: list[Exception] = []
    for producer in [writers[0] for b in read if (writers := writers_of(function, b))]:
        around = loops_around(function.body, producer)
        try:
            moved = computed_after(function, block, around[-1], (LoopKind.INSTRUCTION,)) if around else Step(function)
            made = inline(moved.function, producer.name).function
            return Step(made, None, (*moved.evidence, f"{block.name} computes {producer.name} itself"))
        except (Obstacle, UserError) as error:
            faults.append(error)
    raise faults[0] if faults else Obstacle(block, f"{block.name} reads no local buffer that a block fills")


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
    made, staying = _defined_inlined(function, once)
    for buffer in local_buffers(made):
        block = _producer(made, buffer) if buffer not in staying else None
        if block is None or block.init is not None or block.reduce or not isinstance(block.body, Store):
            continue
        several = sum(buffer in loaded_buffers(nest) for nest in nests(made)) > 1
        if not (several or (once and is_read_again(made.body, buffer))) or not _is_expensive(block.body.value):
            with suppress(UserError):
                made = inline(made, block.name).function
    return Step(made, None, () if made is function else ("inline allows each of them",))


def _defined_inlined(function: Function, once: bool) -> tuple[Function, set[Buffer]]:
    """The function with what inline_all inlines of it, as far as that is plain from definitions: a block in loops of
    its own stores each element of a local buffer, those who read it come later, and what it reads is stored before, by
    one statement of the function. Such values never change, so that all are put into their readers in one walk. Beside
    it the buffers that stay, since they cost more to compute than to load."""
    parts = function.body.body if isinstance(function.body, Seq) else (function.body,)
    inside = {type(s) for part in parts for s in statements(part)}
    if not inside <= {Alloc, For, Block, Store, Seq}:
        return function, set()
    stored = {b: n for n, part in enumerate(parts) for b in stored_buffers(part)}
    final = {b for b in stored if sum(b in stored_buffers(part) for part in parts) == 1}
    local = {s.buffer for s in parts if isinstance(s, Alloc)} & final
    readers: dict[Buffer, list[int]] = {}
    for n, part in enumerate(parts):
        for b in loaded_buffers(part):
            readers.setdefault(b, []).append(n)
    known: dict[Buffer, tuple[tuple[Expr, ...], Expr]] = {}
    staying: set[Buffer] = set()
    kept: list[Stmt] = []

    def change(load: Load) -> Expr:
        if load.buffer not in known:
            return load
        axes, value = known[load.buffer]
        return substitute(value, dict(zip(axes, load.indices, strict=True)))

    def stays(stmt: Stmt) -> bool:
        return loaded_buffers(stmt).isdisjoint(known)

    for n, part in enumerate(parts):
        made = part if not known or stays(part) else edit.map_loads(part, change, stays=stays)
        store = _defining(made)
        if store is not None and store.buffer in local and min(readers.get(store.buffer, [n])) > n:
            fixed = all(b in final and stored[b] < n for b in loaded_buffers(part) if b in stored)
            several = len(readers[store.buffer]) > 1 or (once and is_read_again(function.body, store.buffer))
            if several and _is_expensive(store.value):
                staying.add(store.buffer)
            elif fixed:
                known[store.buffer] = store.indices, store.value
                continue
        kept.append(made)
    if not known:
        return function, staying
    left = [s for s in kept if not (isinstance(s, Alloc) and s.buffer in known)]
    return function.replace(body=seq(*left)), staying


def _defining(stmt: Stmt) -> Store | None:
    """The store of a nest that stores each element of a buffer by an iteration of its own, and sums nothing up."""
    nest = plain_nest(stmt)
    if nest is None or nest[1].reduce or nest[1].init is not None or not isinstance(nest[1].body, Store):
        return None
    store, ends = nest[1].body, {axis.var: loop.end for axis, loop in zip(nest[1].axes, nest[0], strict=True)}
    each = len(store.indices) == len(ends) and set(store.indices) == set(ends)
    whole = each and [ends[i] for i in store.indices if isinstance(i, Var)] == list(store.buffer.shape)
    return store if whole else None


def _producer(function: Function, buffer: Buffer) -> Block | None:
    """The only block, which does one store, of the only nest that fills a buffer."""
    writers = [n for n in nests(function) if buffer in stored_buffers(n)]
    inside = blocks(writers[0]) if len(writers) == 1 else []
    return inside[0] if len(inside) == 1 and isinstance(inside[0].body, Store) else None


def _is_expensive(value: Expr) -> bool:
    """Whether an expression calls a function or divides."""
    return any(isinstance(e, Div) or (isinstance(e, Call) and e.fn.name not in ("neg", "abs")) for e in preorder(value))


def pull_producers(function: Function) -> Step:
    """Each local buffer is computed in the innermost loop that all its readers share and that it varies with, as it
    does with all loops around that one, where that is legal: not further in, where it would be computed again and
    again. There it is as small as it can be, and in a register or on the stack where it is small enough for that.

    alloc t: f32[n, 1]; for i: block t(vi = i): t[vi, 0] = …; for i, j: block y(vi = i, vj = j): y[vi, vj] = t[vi, 0]
              =>      for i: alloc t: f32[1, 1] in register; block t: t[0, 0] = …; for j: block y: y[i, vj] = t[0, 0]

    Each is moved by compute_at and shrunk by compact, which prove what they need; what they refuse stays as it is.
    """
    made = function
    for buffer in reversed(local_buffers(function)):
        readers = [n for n in nests(made) if buffer not in stored_buffers(n) and buffer in loaded_buffers(n)]
        producer = _producer(made, buffer) if len(readers) == 1 else None
        loop = _place_for(readers[0], buffer) if producer is not None else None
        if producer is not None and loop is not None:
            with suppress(UserError):
                made = _pulled(made, producer.name, buffer.name, loop.var)
    return Step(made, None, () if made is function else ("compute_at and compact allow each move",))


def _place_for(nest: Stmt, buffer: Buffer) -> For | None:
    """The innermost loop around every block that reads `buffer` which some index of it varies with, as with all loops
    of several iterations around that one, if an iteration reads every element of a box."""
    found = loads_from(nest, buffer)
    used = frozenset[Var]().union(*(load.variables for load in found))
    varying = takewhile(lambda loop: loop.var in used or loop.size == 1, found[0].loops)
    shared = [loop for loop in varying if loop.var in used and all(loop in load.loops for load in found)]
    loop = shared[-1] if shared else None
    box = reads(loop.body).get(buffer) if loop is not None else None
    return loop if box is not None and box.exact else None


def _pulled(function: Function, producer: str, buffer: str, loop: Var) -> Function:
    """The function with the buffer computed in the loop, and as small as it can be."""
    made = compact(compute_at(function, producer, loop).function, buffer).function
    small = find_buffer(made, buffer)
    if not fits_stack(small):
        return made
    return set_scope(made, buffer, "register" if bytes_of(small) == small.dtype.bytes else "stack").function
