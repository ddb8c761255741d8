"""What a nest takes that runs nest by nest: its instructions in vectors, or its bytes, whichever is more."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.movement import moving_accesses, step
from tilewright.expr.nodes import Var
from tilewright.expr.work import work_of
from tilewright.loops.edit import allocations, blocks, loops_around
from tilewright.loops.nodes import Block, For, Store
from tilewright.plan.nests.passes import Nest
from tilewright.plan.price.points import vector_cycles
from tilewright.plan.price.sizes import Sizes
from tilewright.plan.price.transfer import reread_seconds, rewrite_seconds
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.find import perfect_nest
from tilewright.target import Target


def nest_seconds(nest: For, chosen: Nest, target: Target) -> float:
    """Seconds of one core: every block at each of its points, or what it touches, brought from where that lies."""
    cycles = sum(_block_cycles(nest, block, chosen, target) for block in blocks(nest))
    return max(cycles / target.core.hertz, _moved_seconds(nest, target))


def _block_cycles(nest: For, block: Block, chosen: Nest, target: Target) -> float:
    """Cycles of a block at all its points. A vector of a tile's rows serves all of them, an element all vectors."""
    around = loops_around(nest, block)
    sizes = {loop.var: max(Sizes().value(extent_of(loop)), 0) for loop in around}
    points = 1.0
    for size in sizes.values():
        points *= size
    core, work = target.core, work_of(block.body.value) if isinstance(block.body, Store) else None
    lane, row, lanes, reused, repeated = _lanes(nest, around, chosen)
    if lane is None or sizes.get(lane, 0) < 2:
        lane, lanes = None, 1
    cycles = 0.0 if work is None else vector_cycles(work, target, lanes)
    for a in moving_accesses(block):
        each = core.store_cycles if a.is_store else core.load_cycles
        apart = lane is not None and step(a, lane) not in (0, 1)
        times = 1.0
        if lane is not None and row is not None and not a.is_store:
            times = repeated if step(a, lane) == 0 else reused if step(a, row) == 0 else 1.0
        cycles += each * (lanes if apart else 1) / times
    vectors = 1.0 if lane is None else vectors_of(sizes[lane], lanes) / sizes[lane]
    return points * vectors * cycles


def vectors_of(size: int, lanes: int) -> int:
    """How many vectors and single elements so many elements are."""
    return size // lanes + size % lanes


def _lanes(nest: For, around: Sequence[For], chosen: Nest) -> tuple[Var | None, Var | None, int, float, float]:
    """(the loop that lanes lie along, the one that counts rows, lanes, the uses of a vector and of an element)."""
    one = next((p for p in chosen.passes if p.tile is not None and p.loop == 0), None)
    if one is not None and (t := one.tile) is not None and t.strips:
        loops, _ = perfect_nest(nest)
        row = None if t.across is None or t.line else _last(loops, t.fused, t.across)
        return _last(loops, t.fused, t.along), row, t.strips[0].lanes, t.rows, t.strips[0].vectors
    if one is None and chosen.passes and around:
        lanes = max(p.lanes or (p.tile.strips[0].lanes if p.tile and p.tile.strips else 1) for p in chosen.passes)
        return around[-1].var, None, lanes, 1.0, 1.0
    return None, None, 1, 1.0, 1.0


def _last(loops: Sequence[For], fused: Sequence[int], number: int) -> Var:
    """The innermost of the loops that became this one."""
    return loops[sum(fused[: number + 1]) - 1].var


def _moved_seconds(nest: For, target: Target) -> float:
    """Seconds in which what a nest reads and writes comes from where it lies, each buffer once."""
    own = set(allocations(nest))
    found: dict[object, tuple[float, bool]] = {}
    for a in moving_accesses(nest):
        if a.buffer not in own:
            size = float(a.buffer.dtype.bytes)
            for extent in a.buffer.shape:
                size *= max(Sizes().value(extent), 0)
            found[a.buffer] = size, a.is_store
    total = sum(size for size, _ in found.values())
    return sum((rewrite_seconds if store else reread_seconds)(size, total, target) for size, store in found.values())
