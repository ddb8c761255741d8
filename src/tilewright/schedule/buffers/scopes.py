"""The scope of a local buffer, and the strides of its dimensions: set_scope, storage_align.

alloc t: f32[6, 16] in arena        set_scope("t", "register")         =>     alloc t: f32[6, 16] in register
alloc t: f32[6, 16] in arena        storage_align("t", 0, 16, 1)       =>     alloc t: f32[6, 17] in arena
"""

from __future__ import annotations

import math

from tilewright.expr.nodes import Const, Expr, Mod, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import loops_around, statements, substitute_buffers
from tilewright.loops.nodes import Alloc, Buffer, For, Function, LoopKind, Prefetch, Stmt
from tilewright.schedule.facts.place import Memory, require_plain
from tilewright.schedule.find import allocation_of, find_buffer
from tilewright.schedule.step import Step, refusal
from tilewright.types.scopes import MOST_BYTES, Scope

LOCAL = (Scope.ARENA, Scope.STACK, Scope.REGISTER, Scope.SHARED)
"""Where a local buffer may live."""


def set_scope(function: Function, buffer: str, scope: str) -> Step:
    """The local buffer lives in "arena", "stack", "register" or, on a GPU, "shared" memory.

    A buffer on the stack or in registers has a constant shape: at most 512 KiB, or 4096 bytes. Registers hold what is
    indexed by constants once loops are unrolled and vectorized; code that indexes it otherwise finds it on the stack.
    """
    found = find_buffer(function, buffer)
    what = f"cannot put {buffer} in {scope}"
    alloc = _allocation(function, found, what)
    known = {s.value: s for s in LOCAL}
    if scope not in known:
        fix = f"take one of {', '.join(known)}"
        raise refusal(function, what, alloc, why=f"no local buffer lives in {scope}", fix=fix, part=buffer)
    target = known[scope]
    evidence = _check_size(function, alloc, target, what)
    if target is Scope.SHARED:
        _check_shared(function, alloc, what)
    if target is Scope.REGISTER:
        require_no_prefetch(function, function.body, found, what, 'take "stack"')
    if target is not Scope.ARENA and alloc.offset is not None:
        why = "its place in the arena is planned"
        raise refusal(function, what, alloc, why=why, fix="set the scope before memory is planned")
    made = found.replace(scope=target)
    return Step(function.replace(body=substitute_buffers(function.body, {found: made})), None, evidence)


def _allocation(function: Function, buffer: Buffer, what: str) -> Alloc:
    """Where a local buffer is allocated."""
    alloc = allocation_of(function, buffer)
    if alloc is not None:
        require_plain(function, Memory(function), buffer, alloc, what)
        return alloc
    why = f"{buffer.name} is a parameter: its memory is the caller's"
    fix = "cache_read or cache_write gives a block a local copy"
    raise refusal(function, what, function, why=why, fix=fix, part=buffer.name)


def _check_size(function: Function, alloc: Alloc, scope: Scope, what: str) -> tuple[str, ...]:
    if scope not in MOST_BYTES:
        return ()
    buffer, count = alloc.buffer, 1
    for extent in buffer.shape:
        known = simplify(extent)
        if not isinstance(known, Const):
            why = f"its dimension {extent} is known only when the program runs"
            fix = f'compact("{buffer.name}") in a loop over tiles of constant size, or take "arena"'
            raise refusal(function, what, alloc, why=why, fix=fix, part=extent)
        count *= int(known.value)
    size, most = count * buffer.dtype.bytes, MOST_BYTES[scope]
    if size > most:
        why = f"it has {size} bytes; at most {most} go there"
        fix = 'take "stack"' if size <= MOST_BYTES[Scope.STACK] else 'take "arena"'
        fix += f', or compact("{buffer.name}") first'
        raise refusal(function, what, alloc, why=why, fix=fix, part=buffer.name)
    return (f"{buffer.name} has {size} bytes",)


def require_no_prefetch(function: Function, place: Stmt, buffer: Buffer, what: str, fix: str) -> None:
    """Refuses to put in registers what a statement prefetches: registers have no memory to prefetch."""
    for s in statements(place):
        if isinstance(s, Prefetch) and s.place.buffer is buffer:
            raise refusal(function, what, s, why=f"{buffer.name} is prefetched here", fix=fix)


def _check_shared(function: Function, alloc: Alloc, what: str) -> None:
    """Shared memory belongs to one block of threads."""
    around = loops_around(function.body, alloc)
    threads = [s for s in statements(function.body) if isinstance(s, For) and s.kind is LoopKind.THREAD]
    if not threads:
        why = "no loop is bound to the threads of a GPU"
        raise refusal(function, what, alloc, why=why, fix="bind loops first", part=alloc.buffer.name)
    inner = next((loop for loop in around if loop.thread.startswith("threadIdx")), None)
    if inner is not None:
        why = f"it is allocated inside {inner.var.name}, by each thread for itself"
        raise refusal(function, what, inner, why=why, fix='take "register"')


def storage_align(function: Function, buffer: str, dim: int, factor: int, offset: int) -> Step:
    """The stride of a dimension becomes `offset` more than a multiple of `factor`, in elements: the next dimension
    grows until it does. Buffers are row-major, so no index changes; the elements that are added are never touched.
    """
    found = find_buffer(function, buffer)
    what = f"cannot align dimension {dim} of {buffer}"
    alloc = _allocation(function, found, what)
    last = len(found.shape) - 1
    if not 0 <= dim < last:
        why = f"dimension {last} has the stride 1" if dim == last else f"{buffer} has dimensions 0 to {last}"
        fix = f"take a dimension from 0 to {last - 1}" if last > 0 else None
        raise refusal(function, what, alloc, why=why, fix=fix, part=buffer)
    if factor < 1 or not 0 <= offset < factor:
        why = f"no stride is {offset} more than a multiple of {factor}"
        raise refusal(function, what, alloc, why=why, fix="take a factor from 1 and an offset below it", part=buffer)
    inner = 1
    for extent in found.shape[dim + 2 :]:
        known = simplify(extent)
        if not isinstance(known, Const):
            why = f"the stride contains {extent}, which is known only when the program runs"
            raise refusal(function, what, alloc, why=why, fix=f"take dimension {last - 1}", part=extent)
        inner *= int(known.value)
    grown = _grown(found.shape[dim + 1], inner, factor, offset)
    if grown is None:
        common = math.gcd(inner, factor)
        why = f"its rows have {inner} elements: modulo {factor} a stride is a multiple of {common}, {offset} is none"
        raise refusal(function, what, alloc, why=why, fix=f"take an offset that {common} divides", part=buffer)
    shape = (*found.shape[: dim + 1], grown, *found.shape[dim + 2 :])
    made = found.replace(shape=shape)
    if found.scope in MOST_BYTES:
        _check_size(function, alloc.replace(buffer=made), found.scope, what)
    body = substitute_buffers(function.body, {found: made})
    stride = simplify(grown * inner)
    return Step(function.replace(body=body), None, (f"the stride of dimension {dim} is {stride}; no index changes",))


def _grown(extent: Expr, inner: int, factor: int, offset: int) -> Expr | None:
    """The least extent from this one on whose product with `inner` is `offset` more than a multiple of `factor`."""
    common = math.gcd(inner, factor)
    if offset % common:
        return None
    period = factor // common
    wanted = (offset // common) * pow(inner // common, -1, period) % period if period > 1 else 0
    return simplify(extent + Mod(const(wanted) - extent, const(period)))
