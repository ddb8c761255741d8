"""Contractions whose rows lie along the lanes: where the columns of the result would leave many lanes empty.

    for jo in panels of rows:                                    y[o, p]: o along the lanes, p = 49 positions
      for io in tiles of columns:
        t[R, V*lanes] = 0
        for k: t += broadcast(x[k, io*R + r]) * w[jo, k, 0 .. V*lanes]
        s[io*R + r, …] = t                                       a panel of results on the stack, transposed
      y[o, p] = f(s[p, o])                                       the epilogue, transposed back

49 columns fill six vectors and one lane of a seventh; as rows of tiles they waste nothing. The operand that lies along
the lanes is a constant, so it is packed beforehand. Of a dynamic number of positions, rows and columns of an image are
one axis, and a few tiles are held on the stack, as many as fill vectors.

Convolutions of narrow numbers run so, too: an instruction adds several channels of the input to each lane. Those of a
point lie next to each other and meet all lanes, so windows may move by any number of elements, and no row needs room
for whole vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.analysis.contractions import Contraction
from tilewright.analysis.memory import writers_of
from tilewright.analysis.sizes import known
from tilewright.analysis.zero_terms import left_out
from tilewright.expr.nodes import Const, Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import loads
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.choice import written_out
from tilewright.plan.gemm.price import leave_near_caches, of_sizes, where
from tilewright.plan.gemm.schedule import results_apart, split_terms
from tilewright.plan.gemm.shape import Product, Size, recognise, with_edges
from tilewright.plan.price.contraction import Dot, RegisterTile, cycles, tiles
from tilewright.plan.price.dots import choose_dot
from tilewright.plan.price.points import transpose_cycles
from tilewright.plan.template import Template
from tilewright.plan.tile import loops as tiling
from tilewright.plan.tile.next_rows import prefetch_next_result, prefetch_next_row
from tilewright.plan.tile.packing import copy_vectors, own_copy, pack
from tilewright.plan.tile.registers import hold_sums, lay_out, sums_apart
from tilewright.schedule.find import find_block, find_buffer
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.abilities import SHORTEST_LANES
from tilewright.target.registers import free_places
from tilewright.target.transfer import fits, level_of_sets, move_cycles, panel_cycles, room_in


@dataclass(frozen=True, slots=True)
class TransposedChoice:
    """The register tile, rows of the result along its lanes. The constant is prefetched `distance` terms before its
    use, `prefetch` elements (a line of a cache) at a time, or not at all (0). `terms` of a tile are written out, or
    more, as many as divide the kernel of a window. With a `dot`, the next panel of the constant is prefetched while
    tiles use one, and the channels that it takes lie next to each other. Of a dynamic number of rows, the results of
    `held` tiles are transposed at a time; 0 for those of all rows. With `next_row`, the row of an image that windows
    reach next is prefetched meanwhile."""

    tile: RegisterTile
    prefetch: int
    distance: int
    terms: int
    dot: Dot | None = None
    held: int = 0
    next_row: bool = False


class TransposedContractions(Template[Product, TransposedChoice]):
    """A kernel whose work is one contraction, the rows of its result along the lanes: the elements of the rows are a
    constant. Of a dynamic number of columns, it is the same for all batches."""

    name = "transposed"
    choice = TransposedChoice
    listed = frozenset({"tile.lanes", "prefetch"})

    def recognise(self, facts: Facts) -> Product | None:
        """The transposed contraction: its columns are the rows of the kernel's."""
        kernel = recognise(facts)
        if kernel is None or not kernel.found.is_product or min(kernel.size.rows, kernel.size.columns) < 2:
            return None
        found, size = kernel.found, kernel.size
        if not all(known(found.extents[n]) for n in (*found.reduce, *found.batch)):  # no sums, or sums of no terms
            return None
        if size.any_rows or not size.constant_rows or (size.batched_elements and size.any_columns):
            return None
        if size.any_columns:
            kernel = recognise(Facts(self.begin(facts).func))
            if kernel is None:
                return None
            found, size = kernel.found, replace(kernel.size, batch=size.batch)  # as many results as it had
        assert found.rows is not None
        turned = replace(found, vector=found.broadcast, broadcast=found.vector, columns=found.rows, rows=found.columns)
        numbers = replace(
            size,
            rows=size.columns,
            columns=size.rows,
            own=math.prod(known(found.extents[n]) for n in turned.own_batches),
            any_rows=size.any_columns,
            any_columns=False,
            usual=size.usual[::-1],
            vector=size.element,
            element=size.vector,
        )
        product = Product(turned, replace(numbers, edges=()))
        return product if size.any_columns else with_edges(facts, product)

    def choices(self, shape: Product, target: Target) -> Iterator[TransposedChoice]:
        """Every register tile whose panel stays in the second cache, where columns fill a vector."""
        size, lanes = shape.size, shape.size.lanes(target)
        if size.columns < lanes:
            return
        line = target.caches[0].line // size.vector.bytes if size.axes == 1 else 0
        ahead = target.page // target.caches[0].line
        far = fits(size.element.image, target) > 2
        most = max(int(room_in(target.cache(2).bytes)) // (size.terms * lanes * size.vector.bytes), 1)
        for tile in tiles(size.tile_sums(size.rows, size.terms, target), target, most_vectors=most):
            offered = (1, lanes // tile.rows if lanes % tile.rows == 0 else 1) if size.any_rows else (0,)
            for held in dict.fromkeys(offered):
                terms = written_out(tile, target, any_rows=size.any_rows)
                yield TransposedChoice(tile, line, ahead, terms, held=held, next_row=far)
        dot = choose_dot(size.element.dtype, size.vector.dtype, size.sums, target)
        together = size.adds_together and not size.any_rows
        if dot is not None and dot.depth > 1 and size.even % dot.depth == 0 and together:
            if size.columns >= dot.lanes and size.element.dtype.name == dot.element:
                yield from _of_dot(size.taken(dot), target)

    def price(self, choice: TransposedChoice, shape: Product, target: Target) -> float:
        return seconds(choice, shape.size, target)

    def begin(self, facts: Facts) -> Schedule:
        s, found = facts.begin_inlined(), facts.contraction
        if found is not None and not isinstance(found.extents[found.columns], Const):
            s.attempt(flatten_positions, s, found)
        return s

    def apply(self, s: Schedule, shape: Product, choice: TransposedChoice) -> Schedule:
        found = shape.found
        assert found.rows is not None
        dot, tile = found.block.name, choice.tile
        results, sums = results_apart(s, found)
        write, tile_sums = sums_apart(s, dot)
        panel, points = _pack_operands(s, found, choice)
        axes = s.get_loops(dot) if choice.next_row else ()
        panels, tiles, row, lane, outer = _order_loops(s, found, choice)
        terms = tiling.inside_of(s, dot, tiles)[0]
        if choice.prefetch and choice.distance:
            written = known(found.extents[found.reduce[0]]) // tiling.extent(s, terms)
            s.prefetch(panel, terms, choice.distance // written, apart=choice.prefetch)
        if choice.next_row:
            prefetch_next_row(s, found, found.broadcast, axes, terms)
        _hold_transposed(s, found, [write], tiles, tile_sums, "register")
        moving = variables_of(find_block(s.func, write).axes[found.columns].binding)
        s.reorder(*sorted(tiling.inside_of(s, write, tiles), key=lambda v: v in moving))
        tiling.write_out_columns(s, write, tiles, tile)
        _hold_transposed(s, found, results, outer[-1], sums, "stack")
        for block in results:
            masked = choice.held > 0 and choice.held * tile.rows % tile.lanes == 0
            store_transposed(s, block, outer[-1], tile.lanes, masked)
            if choice.next_row:
                prefetch_next_result(s, found, found.broadcast, axes, block)
        tiling.settle_edges(s, found, tile, row, lane, dot, packed=True)
        if choice.held and find_block(s.func, write).where is not None:  # readers look at the edge
            s.pad(write)
        if choice.dot is not None:
            s.tensorize(lane, choice.dot.instruction)
            for block in points:
                _interleave(s, found, block, choice.dot.depth, tile.lanes)
            if choice.prefetch:
                s.prefetch(panel, panels, 1, terms, apart=choice.prefetch)
        if choice.dot is None:
            tiling.leave_out_zeros(s, dot, shape.size.edges)
        s.parallel(outer[0])
        for loop in outer[1:] if choice.held else ():
            s.parallel(loop)
            outer[0] = s.fuse(outer[0], loop)
        return s


def flatten_positions(s: Schedule, found: Contraction) -> None:
    """The columns of a contraction, and the axes of positions before them, become one axis: those of an image, row by
    row. Of a dynamic number of them tiles then have one edge. Axes before one that has no loop in a block stay."""
    results, sums = results_apart(s, found)
    axes, column = found.block.axes, found.columns
    blocks = (found.block.name, *results)
    while column and column - 1 in found.batch and not found.broadcast.moves(axes[column - 1].var):
        bindings = [find_block(s.func, block).axes[column - 1].binding for block in blocks]
        nests = [s.get_loops(block) for block in blocks]
        if not all(any(v is b for v in loops) for b, loops in zip(bindings, nests, strict=True)):
            break
        for outer, loops in zip(bindings, nests, strict=True):
            at = next(n for n, v in enumerate(loops) if v is outer)
            s.fuse(loops[at], loops[at + 1])
        column -= 1
        s.flatten(sums, column)


def _of_dot(size: Size, target: Target) -> Iterator[TransposedChoice]:
    """The tiles of an instruction. What all tiles of a row read is asked for where it comes from beyond the second
    cache."""
    far = fits(size.columns * size.terms * size.vector.bytes, target) > 2
    for tile in tiles(size.tile_sums(size.rows, size.terms, target), target):
        again = size.rows * size.batch > tile.rows and tile.rows <= free_places(target)
        line = target.caches[0].line // size.vector.bytes if far and again else 0
        yield TransposedChoice(tile, line, 0, 1, dot=size.dot)


@lru_cache(maxsize=1 << 12)
def seconds(choice: TransposedChoice, size: Size, target: Target) -> float:
    """Seconds of one core for all batches: tiles, what is transposed back, and what is copied for an instruction."""
    return size.batch * of_sizes(lambda numbers: _cycles(choice, numbers, target), size) / target.core.hertz


def _cycles(choice: TransposedChoice, size: Size, target: Target) -> float:
    """Cycles of one batch."""
    tile, taken = choice.tile, size.taken(choice.dot)
    whole = -(-size.columns // tile.columns) * tile.columns
    panel, image = tile.columns * taken.terms * taken.vector.bytes, taken.element.whole
    rows, level, line = size.rows, fits(panel + image, target), target.caches[0].line
    if choice.held:  # tiles beyond the end
        rows = -(-rows // (tile.rows * choice.held)) * tile.rows * choice.held
    lost = False
    across = 0.0  # parts of lines that come with an element, and are gone before they are used
    if choice.dot is not None or (size.element.plain and size.element.step == 1):  # lines of its own for each term
        across = (line - taken.element.bytes) / (tile.rows * max(choice.held, 1))
        if choice.dot is None:
            level = max(level, level_of_sets(size.element.apart, size.terms, target))
            lost = not size.any_rows and leave_near_caches(size.element, size.terms, target)
    elif size.element.plain and tile.rows > room_in(target.caches[0].room(size.element.apart)):
        across = line - taken.element.bytes
    sums = taken.tile_sums(
        rows,
        taken.terms,
        target,
        columns=whole,
        brought=taken.element.bytes + across,
        panel=fits(panel + tile.rows * taken.terms * taken.element.bytes, target),
        elements=level,
        scattered_elements=lost,
    )
    stored = tile.lanes
    while choice.held and stored > choice.held * tile.rows:
        stored //= 2
    found = cycles(sums, tile, target) * (left_out(size.edges, tile.rows) if choice.dot is None else 1.0)
    found += transpose_cycles(rows * size.columns, stored, target)
    if choice.dot is not None:
        level = fits(2 * image, target)
        found += transpose_cycles(image / size.element.bytes, tile.lanes, target)
        found += move_cycles(image, level, level, target)
    held = fits(rows * tile.columns * size.bits // 8, target)
    if held > 1 and not choice.held:  # a panel of results on the stack
        found += move_cycles(rows * size.columns * size.bits // 8, held, held, target)
    constant = whole * taken.terms * taken.vector.bytes
    source = where(size.vector, constant * size.own, target)
    share = size.own / size.batch
    read = share * constant * panel_cycles(source, target, asked=choice.prefetch > 0)
    first = share * found * min(tile.rows / rows, 1.0)  # the others find a panel in a cache
    return found - first + target.core.together(first, read)


def _order_loops(s: Schedule, found: Contraction, choice: TransposedChoice) -> tuple[Var, Var, Var, Var, list[Var]]:
    """Splits and orders the loops: panels outermost where threads can share them, since a panel of the constant stays
    in cache for all positions. Returns the loops over panels and tiles, those over the rows and the lanes of a tile,
    and those outside of tiles."""
    assert found.rows is not None
    loops = s.get_loops(found.block.name)
    rows, batch = loops[found.rows], [loops[n] for n in found.batch]
    if choice.held:
        blocks, rows = s.split(rows, choice.tile.rows * choice.held, tail="mask")
    panels, tiles, row, vectors, lane = tiling.split_tile(s, rows, loops[found.columns], choice.tile)
    terms, together = split_terms(s, found, loops, choice.dot)
    counts = {panels: -(-known(found.extents[found.columns]) // choice.tile.columns)}
    outer = tiling.ordered(counts | {loops[n]: known(found.extents[n]) for n in found.batch})
    if choice.held:
        outer = [panels, *batch, blocks]
    tiling.order_tile(s, [*outer, tiles, *terms], [row, vectors, lane], together)
    tiling.write_out_terms(s, terms, choice.tile, choice.terms)
    return panels, tiles, row, lane, outer


def _hold_transposed(s: Schedule, found: Contraction, readers: Sequence[str], loop: Var, sums: str, scope: str) -> None:
    """What an iteration of a loop sums up is read in it, and lies with rows and columns exchanged."""
    order = list(range(len(find_buffer(s.func, sums).shape)))
    assert found.rows is not None
    order[found.rows], order[found.columns] = found.columns, found.rows
    lay_out(s, sums, lambda d: [d[n] for n in order])
    hold_sums(s, sums, readers, loop, scope)


def _pack_operands(s: Schedule, found: Contraction, choice: TransposedChoice) -> tuple[str, list[str]]:
    """Packs the constant. Returns the panels; and, where an instruction takes channels of the other operand, the blocks
    that fill it from elsewhere."""
    panel = pack(s, found, found.vector, found.columns, choice.tile.columns, choice.dot)
    if choice.dot is None:
        return panel, []
    copy_vectors(s, panel, choice.dot.depth, choice.tile.lanes)
    return panel, _lay_out_points(s, found, choice.dot.depth)


def _lay_out_points(s: Schedule, found: Contraction, depth: int) -> list[str]:
    """The channels that an instruction takes lie next to each other: where the operand is computed in the kernel, or
    in a copy. Returns the blocks that fill it from elsewhere."""
    name, n = own_copy(s, found, found.broadcast), _channels(found)
    lay_out(s, name, lambda d: [*d[:n], f"{d[n]} // {depth}", *d[n + 1 :], f"{d[n]} % {depth}"])
    return [b.name for b in writers_of(s.func, find_buffer(s.func, name)) if any(True for _ in loads(b))]


def _channels(found: Contraction) -> int:
    """The dimension of the operand's channels."""
    assert found.summed is not None
    dimension = found.broadcast.dimension(found.block.axes[found.summed].var)
    assert dimension is not None
    return dimension


def _interleave(s: Schedule, found: Contraction, block: str, depth: int, lanes: int) -> None:
    """The channels of an instruction are copied together, in vectors of points."""
    dimension, loops = _channels(found), s.get_loops(block)
    if len(loops) == len(found.broadcast.load.indices):
        channels, term = s.split(loops[dimension], depth)
        s.reorder(*loops[dimension + 1 :], term)
    else:
        channels, term = loops[dimension], loops[-1]
    s.unroll(term)
    s.vectorize(tiling.in_vectors(s, s.get_loops(block)[-2], lanes)[1])
    s.parallel(channels)


def store_transposed(s: Schedule, block: str, panels: Var, lanes: int, masked: bool = False) -> None:
    """The epilogue along the columns of the result, a few rows at a time: what these read of the sums lies side by
    side, and is transposed in registers. Vectors over the end are moved back, or `masked`."""
    last = s.get_loops(block)[-1]
    s.vectorize((s.split(last, lanes, tail="mask") if masked else tiling.in_vectors(s, last, lanes))[1])
    row, *inner = tiling.inside_of(s, block, panels)
    if tiling.extent(s, row) % SHORTEST_LANES == 0:
        _, few = s.split(row, SHORTEST_LANES)
        s.reorder(*inner[:-1], few, inner[-1])
        s.unroll(few)
