"""What computing points takes: instructions on vectors by the rates of a core, and scheduled nests of these."""

from __future__ import annotations

import math
from functools import lru_cache

from tilewright.analysis.accesses import Access
from tilewright.analysis.movement import moving_accesses, step, vector_cost
from tilewright.analysis.sizes import Sizes
from tilewright.expr import dtypes
from tilewright.expr.work import Work, work_of
from tilewright.loops.edit import allocations, loads_of
from tilewright.loops.nodes import Buffer, For, LoopKind, Stmt, Store
from tilewright.target import Target
from tilewright.target.transfer import reread_seconds, rewrite_seconds
from tilewright.target.vectors import vector_cycles
from tilewright.types.scopes import Scope

_NOTHING = Work()


def transpose_cycles(elements: float, lanes: int, target: Target) -> float:
    """Cycles to transpose so many elements in squares of vectors: a shuffle of two vectors for each halving of a
    square, and both sides are stored and loaded."""
    core = target.core
    halvings = max(lanes - 1, 0).bit_length()
    return elements / max(lanes, 1) * (halvings * core.shuffle2_cycles + 2 * (core.load_cycles + core.store_cycles))


def copy_cycles(elements: float, lanes: int, target: Target, work: Work = _NOTHING, *, aligned: bool = False) -> float:
    """Cycles to load so many elements, as many at a time as `lanes`, to compute on each, and to store the results;
    where vectors are not `aligned`, both ends lie across lines."""
    core = target.core
    moved = (1 if aligned else 2) * (core.load_cycles + core.store_cycles)
    return elements / max(lanes, 1) * (moved + vector_cycles(work, target, lanes))


def additions(target: Target) -> int:
    """How many vectors are added to in turn, so that no addition waits for the one before, in half of the registers."""
    return max(min(round(target.core.fma_latency / target.core.add_cycles), target.vector_registers // 2), 1)


def chains(target: Target) -> int:
    """The same, where each addition has two loads to do meanwhile: a power of two."""
    return 1 << round(math.log2(max(target.core.fma_latency / (2 * target.core.load_cycles), 1)))


def nest_seconds(nest: Stmt, target: Target) -> float:
    """Seconds of one core for a scheduled nest: its instructions, or what it touches, each buffer brought once from
    where it lies, whichever take longer."""
    found, own = moving_accesses(nest), set(allocations(nest))
    cycles = sum(_cycles(a, target) for a in found)
    stored = {a.buffer: a.is_store for a in found if a.buffer not in own}
    total = sum(map(_bytes, stored))
    moved = ((rewrite_seconds if store else reread_seconds)(_bytes(b), total, target) for b, store in stored.items())
    return max(cycles / target.core.hertz, sum(moved))


def _cycles(access: Access, target: Target) -> float:
    """Cycles of a load, or of a store and of what it stores; what lies in registers is there. What an accumulation adds
    up waits for the sum of the turn before."""
    each = target.core.store_cycles if access.is_store else target.core.load_cycles
    moved = 0.0 if access.buffer.scope is Scope.REGISTER else each * _count(access, target)
    if not access.is_store:
        return moved
    assert isinstance(access.statement, Store)
    value, lanes, vectors, turns = access.statement.value, _lanes(access, target), 1.0, 1.0
    for loop in access.loops:
        vectors *= math.ceil(iterations(loop) / lanes) if loop.kind is LoopKind.VECTORIZE else iterations(loop)
        turns *= 1 if loop.kind in (LoopKind.VECTORIZE, LoopKind.UNROLL) else iterations(loop)
    read = loads_of(value)
    cycles = vectors * vector_cycles(work_of(value, read), target, lanes)
    if any(load.buffer is access.buffer for load in read):
        cycles = max(cycles, turns * target.core.fma_latency)
    return cycles + moved


def _count(access: Access, target: Target) -> float:
    """How many instructions an access is. It is none for loops inside all those that it moves along, nor for copies
    that access the same."""
    count, moves, moved = 1.0, access.is_store, access.variables
    for loop in reversed(access.loops):
        size = iterations(loop)
        moves = moves or loop.var in moved
        if loop.kind is LoopKind.VECTORIZE and loop.var in moved:
            count *= _vectors(access, loop, size, _lanes(access, target))
        elif loop.var in moved or (moves and loop.kind not in (LoopKind.VECTORIZE, LoopKind.UNROLL)):
            count *= size
    return count


def _vectors(access: Access, loop: For, size: int, lanes: int) -> float:
    """The instructions of an access in vectors along a loop. Lanes that lie apart come one by one, or as many together
    as are contiguous in copies."""
    vectors = math.ceil(size / lanes)
    each = vector_cost([access], loop.var, size // max(vectors, 1))
    if each > 1:
        copies = (s for s in access.loops if s.kind is LoopKind.UNROLL and step(access, s.var) == 1)
        each = max(each / max(math.prod(map(iterations, copies)), 1), 1)
    return vectors * each


def _lanes(access: Access, target: Target) -> int:
    return target.vector_bits // max(access.buffer.dtype.bits, dtypes.f32.bits)


@lru_cache(maxsize=1 << 11)
def iterations(loop: For) -> int:
    """The iterations of a loop, dynamic ones as they are assumed to be."""
    return max(Sizes().value(loop.extent), 0)


def _bytes(buffer: Buffer) -> float:
    return float(buffer.dtype.bytes) * math.prod(max(Sizes().value(extent), 0) for extent in buffer.shape)
