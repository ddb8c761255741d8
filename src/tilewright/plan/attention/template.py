"""The template of attentions: the register tiles of both products, and how many rows are worked on together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.expr.nodes import Const
from tilewright.expr.work import Work, work_of
from tilewright.loops.edit import loops_around
from tilewright.loops.nodes import Store
from tilewright.plan.attention.schedule import Choice, apply_choice
from tilewright.plan.facts.attention import Attention
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.choice import written_out
from tilewright.plan.price.attention import Size, best_tiles, seconds
from tilewright.plan.price.sizes import Sizes
from tilewright.plan.template import Template
from tilewright.plan.tile.loops import MANY
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Shape:
    """An attention in a function, and in numbers."""

    found: Attention
    size: Size


class Attentions(Template[Shape, Choice]):
    """Two products with a softmax between them: scores are never all in memory."""

    name = "attention"
    choice = Choice
    whole = True

    def recognise(self, facts: Facts) -> Shape | None:
        found = facts.attention
        return None if found is None else Shape(found, measure(found))

    def choices(self, shape: Shape, target: Target) -> Iterator[Choice]:
        size, seen = shape.size, set()
        chains = max(round(target.core.fma_latency / target.core.add_cycles) // 2, 1)
        overlap = not size.any_rows and not _shares_rows(size, target)
        for rows in _row_blocks(size, target):
            tiles = best_tiles(size, rows, target)
            if size.any_rows:
                step = math.lcm(*(tile.rows for tile in tiles))
                rows = -(-rows // step) * step
            together = max(n for n in range(1, chains + 1) if rows % n == 0)
            terms = written_out(tiles[0], target), written_out(tiles[1], target)
            choice = Choice(*tiles, rows, overlap, together, chains, terms)
            if choice not in seen:
                seen.add(choice)
                yield choice

    def price(self, choice: Choice, shape: Shape, target: Target) -> float:
        return seconds(shape.size, choice.scores, choice.sums, choice.rows, choice.together, target)

    def begin(self, facts: Facts) -> Schedule:
        assert facts.attention is not None
        return facts.attention.begun.copy()

    def apply(self, s: Schedule, shape: Shape, choice: Choice) -> Schedule:
        return apply_choice(s, shape.found, choice)


def _row_blocks(size: Size, target: Target) -> Iterator[int]:
    """The rows of blocks: of blocks of about equal size; few enough for threads to share where heads are few."""
    if size.any_rows:
        yield from range(1, 2 * target.vector_registers + 1)
        return
    most = max(-(-size.rows * size.heads // MANY), 1) if _shares_rows(size, target) else size.rows
    yield from (rows for rows in range(1, most + 1) if rows == -(-size.rows // -(-size.rows // rows)))


def _shares_rows(size: Size, target: Target) -> bool:
    """Whether threads share the blocks of a head: heads are few, and each share takes longer than to hand it out."""
    if size.heads >= MANY or size.any_rows:
        return size.any_rows
    tiles = best_tiles(size, size.rows, target)
    return seconds(size, *tiles, size.rows, 1, target) > MANY * target.core.fork_seconds


def measure(found: Attention) -> Size:
    """An attention in numbers."""
    first, second, value = found.first, found.second, Sizes().value
    assert first.rows is not None
    heads = math.prod(value(first.extents[n]) for n in first.batch)
    rows, keys = first.extents[first.rows], value(first.extents[first.columns])
    work, reads, stores = _between(found, heads * max(value(rows), 1) * max(keys, 1))
    return Size(
        heads=heads,
        rows=value(rows),
        keys=keys,
        depth=first.depth,
        columns=value(second.extents[second.columns]),
        any_rows=not isinstance(rows, Const),
        bytes=first.out.dtype.bytes,
        apart=(_lies_apart(first), _lies_apart(second)),
        work=work,
        reads=reads,
        stores=stores,
        reductions=sum(bool(find_block(found.begun.func, name).reduce) for name in found.between),
    )


def _lies_apart(found: Contraction) -> bool:
    """Whether neighbouring columns of the vector operand do not lie side by side."""
    return found.vector.step(found.block.axes[found.columns].var) != 1


def _between(found: Attention, scores: int) -> tuple[Work, int, int]:
    """What each score takes in all steps of rows, and how often these read and store it. The first product's tiles do
    what is done to scores before they are stored."""
    function, work, reads, stores = found.begun.func, Work(), 0, 0
    for name in (found.scores, *found.between):
        block = find_block(function, name)
        points = math.prod(Sizes().value(extent_of(loop)) for loop in loops_around(function.body, block))
        if points >= scores and isinstance(block.body, Store):
            work += work_of(block.body.value)
            reads += name != found.scores
            stores += name != found.scores and not block.reduce
    return work, reads, stores
