"""The template of attentions: scores of a block of rows lie in the near caches, and all that rows need is done to them.

    parallel for b, h:
      kp, vp = panels of the head's keys and values
      for blocks of R rows:
        s[R, keys] = f(q · kp)            a tile in registers at a time; f is what is done to scores point by point
        for r in R: row r of p = softmax(row r of s)
        y = g(p · vp)                     a tile in registers at a time, stored to its place

Both products are tiled like any other contraction, inside a block of rows. Steps in between are whatever maps and
reductions of rows stand between two products: a kernel is an attention by its shape, not by what it computes. Maps are
in vectors, reductions are vectors of partial results, which are halved at the end. A few rows run side by side, so that
each hides what the reductions of another one wait for.

The time is that of both products by their best tiles, of what is done to scores, and of panels of keys and values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.analysis.contractions import Contraction
from tilewright.analysis.memory import writers_of
from tilewright.analysis.sizes import FEW, USUAL, rows_of_calls
from tilewright.expr.nodes import Expr, Var
from tilewright.loops.edit import allocations, blocks, stored_buffers
from tilewright.loops.nodes import Store
from tilewright.loops.sizes import bytes_of, fits_stack
from tilewright.plan.attention.shape import Attention, Size, recognise
from tilewright.plan.by_rows import ByRows, OfRows
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.choice import written_out
from tilewright.plan.gemm.price import lies
from tilewright.plan.price.contraction import RegisterTile, Sums, cycles, tiles
from tilewright.plan.price.points import additions, copy_cycles, transpose_cycles
from tilewright.plan.tile import loops as tiling
from tilewright.plan.tile.next_tiles import prefetch_read_later
from tilewright.plan.tile.packing import fill_panels, fill_turned, pack
from tilewright.plan.tile.registers import hold_sums, made_by
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.transfer import byte_cycles, fits, panel_cycles, wait_cycles
from tilewright.target.vectors import vector_cycles
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class Choice:
    """The register tiles of the scores and of the second product; the rows of a block; and whether blocks may overlap,
    so that only heads are shared by threads: rows left over then make a block together with rows of the one before.
    Steps of so many rows run side by side (`together`). Of both products so many `terms` are written out. What is read
    with each score is prefetched, if it is far, a block of rows `ahead`, or a head if one block is all of its rows."""

    scores: RegisterTile
    sums: RegisterTile
    rows: int
    overlap: bool
    together: int
    terms: tuple[int, int] = (1, 1)
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class AttentionsByRows(ByRows):
    """Ways to run an attention with a dynamic number of rows."""

    ways: tuple[Choice, ...]


class Attentions(OfRows[Attention, Choice]):
    """Two products with a softmax between them: scores are never all in memory."""

    name = "attention"
    choice = Choice
    whole = True
    listed = frozenset({"scores.lanes", "sums.lanes"})

    def recognise(self, facts: Facts) -> Attention | None:
        return recognise(facts)

    def choices(self, shape: Attention, target: Target) -> Iterator[Choice]:
        size, seen = shape.size, set()
        overlap = not size.any_rows and not _shares_rows(size, target)
        calls = [(shape.of_rows(rows), rows) for rows in rows_of_calls() if size.any_rows and rows <= FEW]
        for sizes, rows in (*((size, rows) for rows in _row_blocks(size, target)), *calls):
            tiles = best_tiles(sizes, rows, target)
            if size.any_rows:
                step = math.lcm(*(tile.rows for tile in tiles))
                rows = -(-rows // step) * step
            terms = written_out(tiles[0], target), written_out(tiles[1], target)
            together = max(n for n in range(1, additions(target) // 2 + 1) if rows % n == 0)
            ahead = size.source(target) > 2 and (rows < size.rows or size.heads > 1)
            choice = Choice(*tiles, rows, overlap, together, terms, ahead)
            if choice not in seen:
                seen.add(choice)
                yield choice

    def price(self, choice: Choice, shape: Attention, target: Target) -> float:
        size, found = shape.size, seconds(shape.size, choice.scores, choice.sums, choice.rows, choice.together, target)
        source = size.source(target)
        if source < 3:
            return found
        if not choice.ahead:  # a tile waits for all of its rows at a time
            tiles = size.heads * -(-max(size.rows, 1) // choice.scores.rows) * -(-size.keys // choice.scores.columns)
            return found + tiles * wait_cycles(source, target) / target.core.hertz
        brought = size.beside * panel_cycles(source, target, asked=True) / target.core.hertz
        return target.core.together(found, brought)

    def rows(self, shape: Attention) -> Expr | None:
        return shape.row_count if shape.size.any_rows else None

    def of_call(self, shape: Attention, rows: int) -> Attention:
        return replace(shape, size=shape.of_rows(rows))

    def are_alike(self, few: Choice, many: Choice) -> bool:
        return True

    def apply(self, s: Schedule, shape: Attention, choice: Choice) -> Schedule:
        found, s = shape, shape.begun.copy()
        batch = [v for v in s.get_loops(found.write) if v not in (found.row, found.column)]
        s.reorder(*batch, found.row, found.column)
        rows, _ = s.split(found.row, choice.rows, tail="shift" if choice.overlap else "mask")
        later = rows if tiling.extent(s, rows) > 1 or not batch else batch[-1]
        products = (
            (found.first, found.scores, choice.scores, choice.terms[0], later if choice.ahead else None),
            (found.second, found.write, choice.sums, choice.terms[1], None),
        )
        panels = [pack(s, dot, dot.vector, dot.columns, tile.columns) for dot, _, tile, *_ in products]
        _gather(s, found, rows)
        _place_operands(s, found, batch, rows, panels, choice.scores.lanes)
        whole = set() if batch else {b.name for panel in panels for b in stored_buffers(find_block(s.func, panel))}
        for name in [b.name for b in allocations(s.func.body) if b.scope is Scope.ARENA and b.name not in whole]:
            s.compact(name)
        for name in [b for b in found.between if find_block(s.func, b).where is not None]:
            s.pad(name)  # what rows beyond the last one come to is stored by nobody
        for panel, turned in zip(panels, shape.size.apart, strict=True):
            places = tiling.loops_of(s, panel, -3)
            if turned:
                fill_turned(s, panel, choice.scores.lanes, places)
            else:
                fill_panels(s, panel, places)
        for product in products:
            _tile(s, *product)
        steps = [s.get_loops(name) for name in found.between]
        for name in found.between:
            _in_lanes(s, name, choice.scores.lanes)
        for buffer in allocations(s.func.body):
            if buffer.scope is Scope.ARENA and fits_stack(buffer):
                s.set_scope(buffer.name, "stack" if bytes_of(buffer) != buffer.dtype.bytes else "register")
        if choice.together > 1:
            for row in dict.fromkeys(loops[loops.index(rows) + 1] for loops in steps):
                _, few = s.split(row, choice.together)
                s.unroll(few)
                s.jam(few, front=True)
        shared = batch if choice.overlap else [*batch, rows]
        if shared:
            s.parallel(tiling.ordered({v: tiling.extent(s, v) for v in shared})[0])
        return s


def _row_blocks(size: Size, target: Target) -> Iterator[int]:
    """The rows of blocks: of blocks of about equal size; few enough for threads to share where heads are few."""
    if size.any_rows:
        yield from range(1, 2 * target.vector_registers + 1)
        return
    most = max(-(-size.rows * size.heads // tiling.MANY), 1) if _shares_rows(size, target) else size.rows
    yield from (rows for rows in range(1, most + 1) if rows == -(-size.rows // -(-size.rows // rows)))


def _shares_rows(size: Size, target: Target) -> bool:
    """Whether threads share the blocks of a head: heads are few, and each share takes longer than to hand it out."""
    if size.heads >= tiling.MANY or size.any_rows:
        return size.any_rows
    tiles = best_tiles(size, size.rows, target)
    return seconds(size, *tiles, size.rows, 1, target) > tiling.MANY * target.core.fork_seconds


def seconds(size: Size, first: RegisterTile, second: RegisterTile, rows: int, together: int, target: Target) -> float:
    """Seconds of one core, in blocks of so many rows, with register tiles for both products; so many rows are reduced
    together. Of a dynamic number of rows the last block is half full in the mean; the price is the mean of that of
    usual ones and of very many, in which the last block counts for nothing."""
    blocks: float = USUAL / rows + (1 - 1 / rows) / 4 if size.any_rows else -(-size.rows // rows)
    block = _product(size, size.scores, first, rows, target) + _product(size, size.sums, second, rows, target)
    block += _between(size, first.lanes, rows, together, target)
    held = 2 * rows * size.keys * size.bytes  # what a block keeps comes as constants do, from its last use by another
    begun = held * byte_cycles(lies(held, True, target), target, stores=True)
    return (size.heads * (_panels(size, first, target) + blocks * block) + begun) / target.core.hertz


@lru_cache(maxsize=1 << 10)
def best_tiles(size: Size, rows: int, target: Target) -> tuple[RegisterTile, RegisterTile]:
    """The register tiles that take the least time for blocks of so many rows."""
    found = []
    for sums in (size.scores, size.sums):
        fitting = sorted(tiles(replace(sums, rows=rows), target), key=lambda t: -t.rows * t.vectors)
        found.append(min(fitting, key=lambda t: _product(size, sums, t, rows, target)))
    return found[0], found[1]


def _product(size: Size, sums: Sums, tile: RegisterTile, rows: int, target: Target) -> float:
    """Cycles of a product of a block of rows. Of each panel, the first tile of rows reads it from where all panels of
    the head stay beside the scores of the block, the others from the nearest cache that keeps it beside their rows."""
    panel = tile.columns * sums.terms * size.bytes
    own = rows * sums.terms * size.bytes
    near = fits(panel + tile.rows * sums.terms * size.bytes, target)
    first, elements = max(size.level(rows, target), near), fits(own + panel, target)
    columns = size.keys_in_panels(tile) if sums == size.scores else sums.columns
    return cycles(replace(sums, rows=rows, columns=columns, panel=near, first=first, elements=elements), tile, target)


def _between(size: Size, lanes: int, rows: int, together: int, target: Target) -> float:
    """Cycles of what is done to the scores of a block, in the cache that keeps them. Vectors of partial results are
    halved until one number is left, each time after the one before."""
    core, level = target.core, size.level(rows, target)
    each = vector_cycles(size.work, target, lanes) + size.reads * core.load_cycles + size.stores * core.store_cycles
    moved = (
        (size.reads + size.stores) * rows * size.keys * size.bytes * byte_cycles(level, target) if level > 1 else 0.0
    )
    halvings = (lanes - 1).bit_length() * size.reductions * -(-rows // together)
    return max(rows * -(-size.keys // lanes) * each, moved) + halvings * core.fma_latency


def _panels(size: Size, tile: RegisterTile, target: Target) -> float:
    """Cycles to lay out the keys and the values of a head in panels, those of scores in such tiles."""
    counts = zip((size.keys_in_panels(tile) * size.depth, size.keys * size.columns), size.apart, strict=True)
    return sum((transpose_cycles if apart else copy_cycles)(numbers, tile.lanes, target) for numbers, apart in counts)


def _gather(s: Schedule, found: Attention, rows: Var) -> None:
    """Everything is computed for a block of rows. Steps of rows that feed one map share its loop over rows, and so
    do reductions of what it stores."""
    s.compute_at(found.second.block.name, rows)
    place: dict[str, Var] = {}
    for block in reversed(found.between):
        readers = s.get_consumers(block)
        near = {place.get(r) for r in readers}
        loop = near.pop() if len(near) == 1 else None
        s.compute_at(block, loop if loop is not None else rows)
        if loop is None and not find_block(s.func, block).reduce:
            place[block] = tiling.inside_of(s, block, rows)[0]
        elif loop is not None:
            place[block] = loop
    for block in [b for b in found.between if b not in place]:
        made = {place[p] for p in s.get_producers(block) if p in place}
        if len(made) == 1:
            s.reverse_compute_at(block, made.pop())
    for block in (found.scores, found.first.block.name):
        s.compute_at(block, rows)


def _place_operands(s: Schedule, found: Attention, batch: list[Var], rows: Var, panels: list[str], lanes: int) -> None:
    """Panels of keys and values are made once for each head; rows that are scaled, once for each block."""
    for panel in panels if batch else []:
        s.compute_at(panel, batch[-1])
    for block in [b.name for b in writers_of(s.func, found.first.broadcast.buffer) if isinstance(b.body, Store)]:
        s.compute_at(block, rows)
        s.vectorize(s.split(s.get_loops(block)[-1], lanes, tail="mask")[1])


def _tile(s: Schedule, found: Contraction, write: str, tile: RegisterTile, terms: int, later: Var | None) -> None:
    """A tile of a product is summed up in registers, and what is stored of it is computed from these."""
    dot = found.block.name
    *_, row, column, term = s.get_loops(dot)
    panels, tiles, inner, vectors, lane = tiling.split_tile(s, row, column, tile)
    tiling.order_tile(s, [panels, tiles, term], [inner, vectors, lane])
    hold_sums(s, made_by(s, dot), [write], tiles)
    tiling.write_out_terms(s, [term], tile, terms)
    along = {write: tiling.write_out_columns(s, write, tiles, tile), dot: vectors}
    for name in (dot, *tiling.panel_over_the_edge(s, found, tile, panels, along, not found.vector.is_constant)):
        tiling.settle_edges(s, found, tile, inner, lane, name, packed=True)
    if later is not None:
        prefetch_read_later(s, write, tiles, later)


def _in_lanes(s: Schedule, name: str, lanes: int) -> None:
    """A step of a row over its keys in vectors; of numbers that rows come to, each by itself."""
    *_, keys = s.get_loops(name)
    if find_block(s.func, name).reduce:
        s.decompose_reduction(name, keys)
        s.sum_in_lanes(keys, lanes, tail="mask")
    elif [b.name for b in blocks(find_loop(s.func, keys))] == [name]:
        vectors, lane = s.split(keys, lanes, tail="mask")
        s.vectorize(lane)
        if tiling.is_bounded(s, name, vectors) and tiling.extent(s, vectors) > 1:
            s.partition(vectors)
