"""What an attention is, seen in a loops function: two products, the second of what rows of the first one come to.

    s = q · k                 the first product
    s' = f(s)                 what is done to scores point by point
    … = rows of s'            steps of rows: maps and reductions, softmax say
    y = g(p · v)              the second product, and what stores the result

A kernel is an attention by its shape, not by what it computes in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr.nodes import Const, Expr, Var
from tilewright.loops.edit import blocks, loads
from tilewright.loops.nodes import Block, Function, Load, Store
from tilewright.plan.facts.contraction import Contraction, contraction_of
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.packing import only_store
from tilewright.schedule.find import find_block, stored_buffers
from tilewright.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """An attention in a function: its products, the block that stores scores, those that make of them what the second
    product reads, in order, and the block that stores the result, with its loops over rows and columns. `begun` is the
    schedule that it was found after, which inlined what only moves elements."""

    begun: Schedule
    first: Contraction
    second: Contraction
    scores: str
    between: tuple[str, ...]
    write: str
    row: Var
    column: Var

    @property
    def dots(self) -> tuple[str, str]:
        """The blocks of both products."""
        return self.first.block.name, self.second.block.name


def find_attention(function: Function, dots: Sequence[str]) -> Attention | None:
    """The attention of a function, of which these blocks are products; None where it is none."""
    if len(dots) != 2:
        return None
    s = Schedule(function)
    _inline_maps(s, dots)
    return _find(s, *(_product(s, dot) for dot in dots))


def _inline_maps(s: Schedule, dots: Sequence[str]) -> None:
    """What only moves elements, or is one number, is computed where it is read; so are maps that one other map reads.
    What products read stays as it is."""
    for name in [b.name for b in blocks(s.func.body)]:
        block = find_block(s.func, name)
        readers = s.get_consumers(name)
        if not _is_local_map(s, block) or set(dots) & set(readers):
            continue
        one = len(readers) == 1 and not find_block(s.func, readers[0]).reduce
        if one or isinstance(only_store(s, name), Load | Const):
            s.inline(name)


def _is_local_map(s: Schedule, block: Block) -> bool:
    """Whether a block fills a local buffer point by point."""
    plain = not block.reduce and block.where is None and isinstance(block.body, Store)
    return plain and not stored_buffers(block) & {*s.func.params}


def _product(s: Schedule, dot: str) -> Contraction | None:
    """A product as a contraction that reads its rows where they lie: what moves them only is inlined into it."""
    found = contraction_of(s.func, find_block(s.func, dot))
    if found is None:
        return None
    rows = [b for b in blocks(s.func.body) if found.broadcast.buffer in stored_buffers(b) and _is_local_map(s, b)]
    for block in rows:
        if isinstance(only_store(s, block.name), Load) and s.get_consumers(block.name) == (dot,):
            s.inline(block.name)
    return contraction_of(s.func, find_block(s.func, dot))


def _find(s: Schedule, first: Contraction | None, second: Contraction | None) -> Attention | None:
    """The attention of a function whose maps are inlined."""
    if first is None or second is None or first.rows is None or second.rows is None:
        return None
    if min(first.depth, second.depth, *(known(first.extents[n]) for n in (first.rows, first.columns))) < 2:
        return None
    between = _between(s, first, second)
    if between is None:
        return None
    scores = _at_its_points(s, first)
    if scores is None:
        scores = s.cache_write(first.block.name)
    else:
        between.remove(scores)
    if second.out in s.func.params:
        results = [s.cache_write(second.block.name)]
    else:
        results = [b for b in s.get_consumers(second.block.name) if b not in between]
    if len(results) != 1 or s.get_consumers(results[0]):
        return None
    loops = _result_loops(s, second, results[0])
    return None if loops is None else Attention(s, first, second, scores, tuple(between), results[0], *loops)


def _between(s: Schedule, first: Contraction, second: Contraction) -> list[str] | None:
    """The blocks that make what the second product reads of the first one's result; None where it reads something else,
    or they reduce nothing."""
    derived, between = {first.out}, []
    for block in blocks(s.func.body):
        if block not in (first.block, second.block) and derived & {ld.buffer for ld in loads(block)}:
            if isinstance(block.body, Store) and block.body.buffer not in s.func.params:
                derived.add(block.body.buffer)
                between.append(block.name)
    reduces = any(find_block(s.func, b).reduce for b in between)
    return between if reduces and second.broadcast.buffer in derived else None


def _result_loops(s: Schedule, second: Contraction, write: str) -> tuple[Var, Var] | None:
    """The loops of the result over rows and columns; None where it mixes these with other positions."""
    block = find_block(s.func, write)
    bound: dict[Expr, Expr] = {a.var: a.binding for a in block.axes}
    read = next(ld for ld in loads(block) if ld.buffer in stored_buffers(find_block(s.func, second.block.name)))
    assert second.rows is not None
    row, column = (bound.get(read.indices[n]) for n in (second.rows, second.columns))
    return (row, column) if isinstance(row, Var) and isinstance(column, Var) else None


def _at_its_points(s: Schedule, found: Contraction) -> str | None:
    """The only reader of a product, where it is a map of each of its points."""
    readers = s.get_consumers(found.block.name)
    block = find_block(s.func, readers[0])
    points = tuple(a.var for a in block.axes)
    read = {ld.indices for ld in loads(block) if ld.buffer is found.out}
    is_map = not block.reduce and isinstance(block.body, Store) and block.body.indices == points
    return readers[0] if len(readers) == 1 and is_map and read == {points} else None
