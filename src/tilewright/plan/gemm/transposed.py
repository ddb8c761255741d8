"""Contractions whose rows lie along the lanes: where the columns of the result would leave many lanes empty.

    for jo in panels of rows:                                    y[o, p]: o along the lanes, p = 49 positions
      for io in tiles of columns:
        t[R, V*lanes] = 0
        for k: t += broadcast(x[k, io*R + r]) * w[jo, k, 0 .. V*lanes]
        s[io*R + r, …] = t                                       a panel of results on the stack, transposed
      y[o, p] = f(s[p, o])                                       the epilogue, transposed back

49 columns fill six vectors and one lane of a seventh; as rows of tiles they waste nothing. The operand that lies along
the lanes is a constant, so it is packed beforehand.

Convolutions of narrow numbers run so, too: an instruction adds several channels of the input to each lane. Those of a
point lie next to each other and meet all lanes, so windows may move by any number of elements, and no row needs room
for whole vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.expr.dtypes import DTYPES
from tilewright.expr.nodes import Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import allocations, blocks, loads
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.gemm.choice import written_out
from tilewright.plan.gemm.price import where
from tilewright.plan.gemm.shape import Size
from tilewright.plan.price.contraction import cycles, tiles
from tilewright.plan.price.dots import Dot, choose_dot
from tilewright.plan.price.points import copy_cycles, transpose_cycles
from tilewright.plan.price.sizes import known
from tilewright.plan.price.transfer import byte_cycles, fits, move_cycles, room_in
from tilewright.plan.tile.edges import settle_edges
from tilewright.plan.tile.nest import Nest, ordered, write_out, write_out_taps, write_out_terms
from tilewright.plan.tile.packing import Together, copy_vectors, pack
from tilewright.plan.tile.prefetch import prefetch_constant
from tilewright.plan.tile.registers import RegisterTile, free_places, tallest, tile_registers
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.find import find_block, find_loop, stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.target import SHORTEST_LANES
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class TransposedChoice:
    """The register tile, rows of the result along its lanes. The constant is prefetched `distance` terms before its
    use, `prefetch` elements (a line of a cache) at a time, or not at all (0). `terms` of a tile are written out. The
    whole kernel of a window is, `shared`, where what its elements share fits into registers. What a call packs is
    copied in vectors under masks (`masked`), or in shorter and shorter ones. With a `dot`, the next panel of the
    constant is prefetched while tiles use one, and the channels that it takes lie next to each other."""

    tile: RegisterTile
    prefetch: int
    distance: int
    terms: int
    shared: bool
    masked: bool
    dot: Dot | None = None


def can_transpose(size: Size) -> bool:
    """Whether the elements of the rows are a constant, the same for all batches, and all sizes are known."""
    return (
        min(size.rows, size.columns) >= 2
        and size.element.constant
        and size.element.plain
        and not (size.batched_elements or size.any_rows or size.any_columns)
    )


def choices(size: Size, target: Target) -> Iterator[TransposedChoice]:
    """Every register tile whose panel stays in the second cache, where rows fill a vector."""
    lanes = size.lanes(target)
    if size.rows < lanes:
        return
    line = target.caches[0].line // size.element.bytes if size.axes == 1 else 0
    most = max(int(room_in(target.cache(2).bytes)) // (size.terms * lanes * size.element.bytes), 1)
    for tile in tiles(
        size.turned.tile_sums(size.columns, size.rows, size.terms, target), target, tallest(target), most
    ):
        shared = tile.rows * (tile.vectors + 1) + tile.vectors + 1 <= tile_registers(target)
        terms = written_out(size, tile, target)
        yield TransposedChoice(tile, line, target.page // target.caches[0].line, terms, shared, target.has_masks)
    dot = choose_dot(size.vector.dtype, size.element.dtype, size.sums, target)
    if dot is not None and dot.depth > 1 and size.summed and size.even % dot.depth == 0 and size.rows >= dot.lanes:
        if size.vector.dtype.name == dot.element:
            yield from _of_dot(size.turned.taken(dot), target)


def _of_dot(size: Size, target: Target) -> Iterator[TransposedChoice]:
    """The tiles of an instruction. What all tiles of a row read is asked for where it comes from beyond the second
    cache."""
    far = fits(size.columns * size.terms * size.vector.bytes, target) > 2
    sums = size.tile_sums(size.rows, size.columns, size.terms, target)
    for tile in tiles(sums, target, registers=size.registers(target)):
        again = size.rows * size.batch > tile.rows and tile.rows <= free_places(target)
        line = target.caches[0].line // size.vector.bytes if far and again else 0
        yield TransposedChoice(tile, line, 0, 1, True, target.has_masks, size.dot)


@lru_cache(maxsize=1 << 12)
def seconds(choice: TransposedChoice, size: Size, target: Target) -> float:
    """Seconds of one core for all batches: the tiles, what is transposed back, what a call packs."""
    tile, turned = choice.tile, size.turned.taken(choice.dot)
    whole = -(-size.rows // tile.columns) * tile.columns
    panel = tile.columns * turned.terms * turned.vector.bytes
    image = turned.element.whole
    across = 0.0  # parts of lines beside the rows of a tile, which lie in lines of their own for each term
    if choice.dot is not None:
        across = (target.caches[0].line - turned.element.bytes) / tile.rows
    sums = replace(
        turned.tile_sums(size.columns, whole, turned.terms, target),
        brought=turned.element.bytes + across,
        panel=fits(panel + tile.rows * turned.terms * turned.element.bytes, target),
        elements=fits(panel + image, target),
    )
    found = cycles(sums, tile, target) + transpose_cycles(size.rows * size.columns, tile.lanes, target)
    if choice.dot is not None or size.vector.plain:
        copied = -(-size.columns // tile.rows) * tile.rows * size.terms
        if choice.dot is None:
            found += copy_cycles(copied, min(tile.rows, tile.lanes), target)
        else:
            found += transpose_cycles(image / size.vector.bytes, tile.lanes, target)
        found += move_cycles(image, fits(2 * image, target), fits(2 * image, target), target)
    constant = whole * turned.terms * turned.vector.bytes
    source = where(size.element, constant, target)
    found = max(found, constant * byte_cycles(source, target) / size.batch)
    return size.batch * found / target.core.hertz


def results_apart(s: Schedule, found: Contraction) -> tuple[list[str], str]:
    """The blocks that read a contraction's sums, and the buffer of the sums: a result that is the caller's array
    becomes a copy of them."""
    if found.out.scope is Scope.ARGUMENT:
        write = s.cache_write(found.block.name)
        return [write], read_by(s, write)
    return list(s.get_consumers(found.block.name)), found.out.name


def apply_choice(s: Schedule, plain: Contraction, choice: TransposedChoice) -> Schedule:
    """The steps that a choice stands for."""
    tile = choice.tile
    assert plain.rows is not None
    found = replace(plain, vector=plain.broadcast, broadcast=plain.vector, columns=plain.rows, rows=plain.columns)
    dot = found.block.name
    results, sums = results_apart(s, found)
    write = s.cache_write(dot)
    tile_sums = read_by(s, write)
    panel, points = _pack_operands(s, found, choice)
    nest, panels = _loops(s, found, choice)
    if choice.prefetch and choice.distance:
        loops = s.get_loops(dot)
        terms = loops[loops.index(nest.tiles) + 1]
        written = known(found.extents[found.reduce[0]]) // known(extent_of(find_loop(s.func, terms)))
        s.prefetch(panel, terms, choice.distance // written, apart=choice.prefetch)
    layout = exchanged(found)
    s.reverse_compute_at(write, nest.tiles)
    s.transform_layout(tile_sums, layout)
    s.compact(tile_sums)
    s.set_scope(tile_sums, "register")
    loops = s.get_loops(write)
    own = loops[loops.index(nest.tiles) + 1 :]
    moving = variables_of(find_block(s.func, write).axes[found.columns].binding)
    s.reorder(*(v for v in own if v not in moving), *(v for v in own if v in moving))
    write_out(s, write, nest.tiles, tile)
    for block in results:
        s.reverse_compute_at(block, nest.panels)
    s.transform_layout(sums, layout)
    s.compact(sums)
    s.set_scope(sums, "stack")
    for block in results:
        store_transposed(s, block, nest.panels, tile.lanes)
    settle_edges(s, found, tile, nest, dot, packed=True)
    if choice.dot is not None:
        s.tensorize(nest.lane, choice.dot.instruction)
        for block in points:
            _interleave(s, found, block, choice)
        if choice.prefetch:
            prefetch_constant(s, dot, panel, panels, nest.tiles, choice.prefetch)
    s.parallel(nest.outer)
    return s


def read_by(s: Schedule, block: str) -> str:
    """The name of the buffer that a block loads first."""
    return next(loads(find_block(s.func, block))).buffer.name


def exchanged(found: Contraction) -> str:
    """The layout of results with rows and columns exchanged."""
    names = [f"d{n}" for n in range(len(found.block.spatial))]
    order = list(names)
    assert found.rows is not None
    order[found.rows], order[found.columns] = order[found.columns], order[found.rows]
    return f"{', '.join(names)} -> {', '.join(order)}"


def _pack_operands(s: Schedule, found: Contraction, choice: TransposedChoice) -> tuple[str, list[str]]:
    """Packs the constant, and the other operand where it is no window. Returns the panels; and, where an instruction
    takes channels of the other operand, the blocks that fill it from elsewhere."""
    if choice.dot is None:
        panel = pack(s, found, found.vector, found.columns, choice.tile.columns)
        if found.broadcast.is_plain():
            _pack_rows(s, found, choice)
        return panel, []
    together = Together(choice.dot.depth, DTYPES[choice.dot.vector], choice.tile.lanes)
    panel = pack(s, found, found.vector, found.columns, choice.tile.columns, together)
    copy_vectors(s, panel, together)
    return panel, _lay_out_points(s, found, choice.dot.depth)


def _lay_out_points(s: Schedule, found: Contraction, depth: int) -> list[str]:
    """The channels that an instruction takes lie next to each other: where the operand is computed in the kernel, or
    in a copy. Returns the blocks that fill it from elsewhere."""
    operand, dimension = found.broadcast.buffer, _channels(found)
    name = operand.name if operand in allocations(s.func.body) else s.cache_read(found.block.name, operand.name)
    words = [f"d{n}" for n in range(len(operand.shape))]
    layout = [f"{w} // {depth}" if n == dimension else w for n, w in enumerate(words)]
    s.transform_layout(name, f"{', '.join(words)} -> {', '.join(layout)}, d{dimension} % {depth}")
    filling = [b for b in blocks(s.func.body) if name in {made.name for made in stored_buffers(b)}]
    return [b.name for b in filling if any(True for _ in loads(b))]


def _channels(found: Contraction) -> int:
    """The dimension of the operand's channels."""
    assert found.summed is not None
    dimension = found.broadcast.dimension(found.block.axes[found.summed].var)
    assert dimension is not None
    return dimension


def _interleave(s: Schedule, found: Contraction, block: str, choice: TransposedChoice) -> None:
    """The channels of an instruction are copied together, in vectors of points."""
    assert choice.dot is not None
    dimension, loops = _channels(found), s.get_loops(block)
    if len(loops) == len(found.broadcast.load.indices):
        channels, term = s.split(loops[dimension], choice.dot.depth)
        s.reorder(*loops[dimension + 1 :], term)
    else:
        channels, term = loops[dimension], loops[-1]
    s.unroll(term)
    _vectorize(s, s.get_loops(block)[-2], choice.tile.lanes)
    s.parallel(channels)


def _pack_rows(s: Schedule, found: Contraction, choice: TransposedChoice) -> None:
    """The operand that a call brings, in panels of the rows of a tile, copied in vectors: the whole panels, and
    what there is of the last one."""
    assert found.rows is not None
    extent, rows = found.extents[found.rows], choice.tile.rows
    before = {b.name for b in blocks(s.func.body)}
    name = pack(s, found, found.broadcast, found.rows, rows)
    whole, left = divmod(known(extent), rows)
    terms = len([n for n in found.reduce if found.broadcast.moves(found.block.axes[n].var)])
    if left and whole:
        s.partition(s.get_loops(name)[-2 - terms], whole)
        (last,) = {b.name for b in blocks(s.func.body)} - before - {name}
        s.partition(s.get_loops(last)[-1], left)
    for copy in [b.name for b in blocks(s.func.body) if b.name not in before]:
        _copy_in_vectors(s, copy, choice.tile.lanes, choice.masked)


def _copy_in_vectors(s: Schedule, copy: str, most: int, masked: bool) -> None:
    """The last loop of a copy in vectors of at most so many lanes: in one under a mask where the machine has masks, or
    in shorter and shorter ones."""
    loop: Var | None = s.get_loops(copy)[-1]
    extent = known(extent_of(find_loop(s.func, s.get_loops(copy)[-1])))
    if masked and extent > 1:
        lanes = min(1 << (extent - 1).bit_length(), most)
        s.vectorize(s.split(loop, lanes, tail="mask")[1])
        return
    for lanes in (8, 4, 2):
        if loop is None or known(extent_of(find_loop(s.func, loop))) < lanes:
            continue
        _, inner, loop = s.split(loop, lanes, tail="peel")
        s.vectorize(inner)


def _loops(s: Schedule, found: Contraction, choice: TransposedChoice) -> tuple[Nest, Var]:
    """Splits and orders the loops: panels outermost where threads can share them, since a panel of the constant stays
    in cache for all positions. Taps along a row share elements: they are written out where these fit into registers,
    too; otherwise the taps down a column are. Returns the nest, and the loop over panels."""
    assert found.rows is not None
    tile, shared = choice.tile, choice.shared
    loops = s.get_loops(found.block.name)
    panels, inside = s.split(loops[found.columns], tile.columns, tail="mask")
    vectors, lane = s.split(inside, tile.lanes)
    tiles, row = s.split(loops[found.rows], tile.rows, tail="mask")
    terms = [loops[n] for n in found.reduce]
    together: Var | None = None
    if choice.dot is not None and found.summed is not None:
        place = found.reduce.index(found.summed)
        terms[place], together = s.split(terms[place], choice.dot.depth)
    if not shared:
        terms[1:] = reversed(terms[1:])
    outer = {panels: -(-known(found.extents[found.columns]) // tile.columns)}
    order = ordered(outer | {loops[n]: known(found.extents[n]) for n in found.batch})
    s.reorder(*order, tiles, *terms, row, vectors, lane, *([together] if together is not None else []))
    if together is None:
        s.vectorize(lane)
    for loop in (vectors, row):
        s.unroll(loop)
    if shared or len(terms) < 3:
        write_out_terms(s, terms, tile, choice.terms)
    else:
        write_out_taps(s, terms[-1], tile, choice.terms)
    return Nest(order[0], None, None, None, order[-1], tiles, row, vectors, lane, together), panels


def store_transposed(s: Schedule, block: str, panels: Var, lanes: int) -> None:
    """The epilogue along the columns of the result, a few rows at a time: what these read of the sums lies side by
    side, and is transposed in registers."""
    _vectorize(s, s.get_loops(block)[-1], lanes)
    loops = s.get_loops(block)
    row, *inner = loops[loops.index(panels) + 1 :]
    if known(extent_of(find_loop(s.func, row))) % SHORTEST_LANES == 0:
        _, few = s.split(row, SHORTEST_LANES)
        s.reorder(*inner[:-1], few, inner[-1])
        s.unroll(few)


def _vectorize(s: Schedule, loop: Var, lanes: int) -> None:
    """A loop in vectors, the last of them moved back to where the loop ends."""
    extent = known(extent_of(find_loop(s.func, loop)))
    while lanes > extent:
        lanes //= 2
    s.vectorize(s.split(loop, lanes, tail="shift")[1])
