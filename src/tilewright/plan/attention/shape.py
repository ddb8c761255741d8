"""What an attention is in a loops function, and in numbers: two products, the second of what rows of the first one come
to.

    s = q · k                 the first product
    s' = f(s)                 what is done to scores point by point
    … = rows of s'            steps of rows: maps and reductions, softmax say
    y = g(p · v)              the second product, and what stores the result

A kernel is an attention by its shape, not by what it computes in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.analysis.accesses import mentions
from tilewright.analysis.contractions import Contraction, contraction_of
from tilewright.analysis.memory import writers_of
from tilewright.analysis.products import last_block
from tilewright.analysis.sizes import Sizes, known
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.work import Work, work_of
from tilewright.loops.edit import blocks, loads, loops_around, stored_buffers
from tilewright.loops.nodes import Block, Buffer, Load, Store
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.price import lies
from tilewright.plan.gemm.schedule import results_apart
from tilewright.plan.price.contraction import RegisterTile, Sums
from tilewright.plan.tile.packing import only_store
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.transfer import fits
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class Size:
    """`heads` products of `rows` x `depth` by `depth` x `keys`, and of what comes of these by `keys` x `columns`.

    any_rows       whether the rows are dynamic; so are the keys (`any_keys`), which are what they are assumed to be
    bytes          of an element
    apart          whether neighbouring keys, or neighbouring columns, lie apart in memory: panels are then transposed
    work           of each score between the products
    reads, stores  how often each is read, and how often something of it is stored, in between
    reductions     of a row
    beside         bytes of what the kernel is given that has an element for each score of each head
    constant       whether some of that is constant
    """

    heads: int
    rows: int
    keys: int
    depth: int
    columns: int
    any_rows: bool
    any_keys: bool
    bytes: int
    apart: tuple[bool, bool]
    work: Work
    reads: int
    stores: int
    reductions: int
    beside: int
    constant: bool

    @property
    def scores(self) -> Sums:
        """The sums of scores."""
        return Sums(self.rows, self.keys, self.depth, bits=8 * self.bytes)

    @property
    def sums(self) -> Sums:
        """The sums of the second product."""
        return Sums(self.rows, self.columns, self.keys, bits=8 * self.bytes)

    def keys_in_panels(self, tile: RegisterTile) -> int:
        """The keys that panels of so many columns hold: dynamic ones fill the last one half in the mean, those of a
        call do or leave columns of it unused."""
        if self.any_keys and not self.any_rows:
            return -(-self.keys // tile.columns) * tile.columns
        return self.keys + (tile.columns // 2 if self.any_keys else 0)

    def level(self, rows: int, target: Target) -> int:
        """The nearest cache that keeps all panels of a head, the scores of a block of so many rows, and what the second
        product reads of them."""
        return fits(self.keys * (self.depth + self.columns + 2 * rows) * self.bytes, target)

    def source(self, target: Target) -> int:
        """The level that what is read with each score comes from."""
        return lies(self.beside, self.constant, target) if self.beside else 1


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """An attention in a function: its products, the block that stores scores, those that make of them what the second
    product reads, in order, and the block that stores the result, with its loops over rows and columns. `begun` is the
    schedule that it was found after, which inlined what only moves elements; `size` is all of it in numbers."""

    begun: Schedule
    first: Contraction
    second: Contraction
    scores: str
    between: tuple[str, ...]
    write: str
    row: Var
    column: Var
    size: Size

    @property
    def row_count(self) -> Expr:
        """The rows of a head's scores."""
        assert self.first.rows is not None
        return self.first.extents[self.first.rows]

    def of_rows(self, rows: int) -> Size:
        """The numbers of a call of so many rows; of as many keys, where these are as many."""
        keys = rows if self.first.extents[self.first.columns] is self.row_count else self.size.keys
        return replace(self.size, rows=rows, keys=keys, any_rows=False)


def recognise(facts: Facts) -> Attention | None:
    """The attention of a kernel; None where it is none."""
    if len(facts.products) != 2:
        return None
    s = Schedule(facts.function, facts.taken)
    _inline_maps(s, facts.products)
    return _find(s, *(_product(s, dot) for dot in facts.products))


def _inline_maps(s: Schedule, dots: Sequence[str]) -> None:
    """What only moves elements, or is one number, is computed where it is read; so are maps that one other map reads.
    What one of the products reads stays as it is."""
    for name in [b.name for b in blocks(s.func.body)]:
        block = find_block(s.func, name)
        readers = s.get_consumers(name)
        if not _is_local_map(s, block) or len(set(dots) & set(readers)) == 1:
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
    for block in writers_of(s.func, found.broadcast.buffer):
        is_move = _is_local_map(s, block) and isinstance(only_store(s, block.name), Load)
        if is_move and s.get_consumers(block.name) == (dot,):
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
    last = last_block(s.func, first.block, first.out)
    scores: str = s.cache_write(first.block.name) if last is None else last.name
    between = [block for block in between if block != scores]
    results, _ = results_apart(s, second)
    if len(results) != 1 or results[0] in between or s.get_consumers(results[0]):
        return None
    loops = _result_loops(s, second, results[0])
    if loops is None:
        return None
    size = _measure(s, first, second, scores, between)
    return Attention(s, first, second, scores, tuple(between), results[0], *loops, size)


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


def _measure(s: Schedule, first: Contraction, second: Contraction, scores: str, between: Sequence[str]) -> Size:
    """An attention in numbers. The first product's tiles do what is done to `scores` before they are stored."""
    value = Sizes().value
    assert first.rows is not None
    heads = math.prod(value(first.extents[n]) for n in first.batch)
    rows, keys = first.extents[first.rows], value(first.extents[first.columns])
    points = heads * max(value(rows), 1) * max(keys, 1)
    found = [find_block(s.func, name) for name in (scores, *between)]
    steps = [block for block in found if _points(s, block) >= points]
    touched, beside = [block for block in steps if block.name != scores], _beside(s, scores)
    return Size(
        heads=heads,
        rows=value(rows),
        keys=keys,
        depth=first.depth,
        columns=value(second.extents[second.columns]),
        any_rows=not isinstance(rows, Const),
        any_keys=not isinstance(first.extents[first.columns], Const),
        bytes=first.out.dtype.bytes,
        apart=(_lies_apart(s, first), _lies_apart(s, second)),
        work=sum((work_of(block.body.value) for block in steps if isinstance(block.body, Store)), Work()),
        reads=len(touched),
        stores=sum(not block.reduce for block in touched),
        reductions=sum(bool(block.reduce) for block in found),
        beside=sum(math.prod(map(value, b.shape)) * b.dtype.bytes for b in beside),
        constant=any(b.scope is Scope.CONSTANT for b in beside),
    )


def _beside(s: Schedule, scores: str) -> list[Buffer]:
    """The function's parameters of which the block that stores scores reads an element for each, and that once: what
    heads share was near when the one before had read it."""
    block, value = find_block(s.func, scores), Sizes().value
    row, column = (a.var for a in block.axes[-2:])
    read = dict.fromkeys(ld.buffer for ld in loads(block) if {row, column} <= ld.variables)
    points = _points(s, block)
    return [b for b in read if b in s.func.params and math.prod(map(value, b.shape)) >= points]


def _lies_apart(s: Schedule, found: Contraction) -> bool:
    """Whether neighbouring columns of the vector operand do not lie side by side: where it is moved before the product,
    which its panels do, in what it is moved from."""
    operand = found.vector
    moved = [b for b in writers_of(s.func, operand.buffer) if _is_local_map(s, b)]
    for block in moved:
        store, value = block.body, only_store(s, block.name)
        if isinstance(store, Store) and isinstance(value, Load):
            return not mentions(value.indices[-1], store.indices[operand.last].variables)
    return operand.step(found.block.axes[found.columns].var) != 1


def _points(s: Schedule, block: Block) -> int:
    """How often a block runs."""
    return math.prod(Sizes().value(loop.extent) for loop in loops_around(s.func.body, block))
