"""Contractions whose rows lie along the lanes: where the columns of the result would leave many lanes empty.

    for jo in panels of rows:                                    y[o, p]: o along the lanes, p = 49 positions
      for io in tiles of columns:
        t[R, V*lanes] = 0
        for k: t += broadcast(x[k, io*R + r]) * w[jo, k, 0 .. V*lanes]
        s[io*R + r, …] = t                                       a panel of results on the stack, turned
      y[o, p] = f(s[p, o])                                       the epilogue, turned back

49 columns fill six vectors and one lane of a seventh; as rows of tiles they waste nothing. The operand that lies along
the lanes is a constant, so it is packed beforehand. Turning a panel costs about a cycle for each of its elements.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.expr.nodes import Const, Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, loads
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.gemm.choice import Choice, terms_at_once
from tilewright.plan.gemm.operands import line_elements
from tilewright.plan.gemm.phases import MOST_PHASES
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.edges import settle_edges
from tilewright.plan.tile.nest import Nest, ordered, write_out, write_out_taps, write_out_terms
from tilewright.plan.tile.packing import pack
from tilewright.plan.tile.registers import RegisterTile, candidates, choose_register_tile, tile_cycles, tile_registers
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.nests import extent_of
from tilewright.schedule.points import SIDE
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

TURN_CYCLES, PACK_CYCLES = 0.5, 0.5
"""Cycles to turn an element of the result back, and to pack an element of the operand that only a call knows."""

STREAM_CYCLES = 0.25
"""What bringing a vector of a panel costs for each term, beyond what register tiles count: panels of many terms come
from the second cache."""

AHEAD = 64
"""Terms between asking for vectors of a panel and using them: four kilobytes, so that the first tile of a panel finds
it in cache."""

PANEL_SHARE = 5 / 8
"""A panel may take this part of the second cache."""

LEAST_GAIN = 1.05
"""How much faster the turned contraction must be."""


def turn(found: Contraction, target: Target) -> tuple[Contraction, RegisterTile] | None:
    """The contraction with rows and columns changed, and its register tile; None where it is better as it is."""
    if found.rows is None or not (found.broadcast.is_constant and found.broadcast.is_plain()):
        return None
    if any(found.broadcast.moves(found.block.axes[n].var) and known(found.extents[n]) > 1 for n in found.batch):
        return None  # each batch has panels of its own, which nothing reads again
    if not all(isinstance(found.extents[axis], Const) for axis in (found.rows, found.columns)):
        return None
    lanes, registers = target.lanes(found.out.dtype), tile_registers(target)
    rows, columns, depth = known(found.extents[found.rows]), known(found.extents[found.columns]), found.depth
    if rows < lanes or columns < 2:
        return None
    widest = _widest(depth * lanes * found.out.dtype.bytes, target)

    def cost(tile: RegisterTile) -> float:
        whole = -(-rows // tile.columns) * tile.columns
        return tile_cycles(tile, columns, whole, depth, STREAM_CYCLES)

    tile = min((t for t in candidates(registers, lanes) if t.vectors <= widest), key=cost)
    usual = choose_register_tile(rows, columns, depth, registers, lanes)
    as_it_lies = tile_cycles(usual, rows, columns, depth, STREAM_CYCLES)
    if _has_vectors(found) and not turning_pays(found, cost(tile), as_it_lies):
        return None
    return replace(found, vector=found.broadcast, broadcast=found.vector, columns=found.rows, rows=found.columns), tile


def turning_pays(found: Contraction, turned: float, as_it_lies: float) -> bool:
    """Whether a contraction with known rows and columns is faster turned, its tiles taking so many cycles either way:
    results are turned back, and an operand that only the call knows is packed."""
    assert found.rows is not None
    rows, columns = known(found.extents[found.rows]), known(found.extents[found.columns])
    turning = columns * (rows * TURN_CYCLES + (found.depth * PACK_CYCLES if found.vector.is_plain() else 0))
    return (turned + turning) * LEAST_GAIN <= as_it_lies


def _has_vectors(found: Contraction) -> bool:
    """Whether there is a way to read the vector operand in vectors: packed, or where its columns are close together."""
    step = found.vector.step(found.block.axes[found.columns].var)
    return found.vector.is_plain() or (step is not None and 1 <= step <= MOST_PHASES)


def _widest(size: int, target: Target) -> int:
    """How many vectors, each of so many bytes for all its terms, a panel may have to stay in the second cache: all
    tiles of a panel read it again."""
    return max(int(target.cache(2).bytes * PANEL_SHARE) // size, 1)


def results_apart(s: Schedule, found: Contraction) -> tuple[list[str], str]:
    """The blocks that read a contraction's sums, and the buffer of the sums: a result that is the caller's array
    becomes a copy of them."""
    if found.out.scope is Scope.ARGUMENT:
        write = s.cache_write(found.block.name)
        return [write], read_by(s, write)
    return list(s.get_consumers(found.block.name)), found.out.name


def schedule_turned(s: Schedule, found: Contraction, tile: RegisterTile, target: Target) -> Schedule:
    """The steps for a contraction that `turn` gave."""
    dot = found.block.name
    results, sums = results_apart(s, found)
    write = s.cache_write(dot)
    tile_sums = read_by(s, write)
    panel = pack(s, found, found.vector, found.columns, tile.columns)
    if found.broadcast.is_plain():
        _pack_rows(s, found, tile.rows, target)
    nest = _loops(s, found, tile, target)
    if len(found.reduce) == 1:
        loops = s.get_loops(dot)
        terms = loops[loops.index(nest.tiles) + 1]
        written = known(found.extents[found.reduce[0]]) // known(extent_of(find_loop(s.func, terms)))
        s.prefetch(panel, terms, AHEAD // written, apart=line_elements(found, target))
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
        store_turned(s, block, nest.panels, tile.lanes)
    settle_edges(s, found, Choice(tile, 1, None, pack_vector=True, pack_broadcast=True), nest, dot)
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


def _pack_rows(s: Schedule, found: Contraction, rows: int, target: Target) -> None:
    """The operand that only a call knows, in panels of the rows of a tile, copied in vectors: the whole panels, and
    what there is of the last one."""
    assert found.rows is not None
    extent = found.extents[found.rows]
    before = {b.name for b in blocks(s.func.body)}
    name = pack(s, found, found.broadcast, found.rows, rows)
    whole, left = divmod(known(extent), rows)
    terms = len([n for n in found.reduce if found.broadcast.moves(found.block.axes[n].var)])
    if left and whole:
        s.partition(s.get_loops(name)[-2 - terms], whole)
        (last,) = {b.name for b in blocks(s.func.body)} - before - {name}
        s.partition(s.get_loops(last)[-1], left)
    for copy in [b.name for b in blocks(s.func.body) if b.name not in before]:
        _copy_in_vectors(s, copy, target.lanes(found.out.dtype), target)


def _copy_in_vectors(s: Schedule, copy: str, most: int, target: Target) -> None:
    """The last loop of a copy in vectors of at most so many lanes: in one under a mask where the machine has masks, or
    in shorter and shorter ones."""
    loop: Var | None = s.get_loops(copy)[-1]
    extent = known(extent_of(find_loop(s.func, s.get_loops(copy)[-1])))
    if target.has_masks and extent > 1:
        lanes = min(1 << (extent - 1).bit_length(), most)
        s.vectorize(s.split(loop, lanes, tail="mask")[1])
        return
    for lanes in (8, 4, 2):
        if loop is None or known(extent_of(find_loop(s.func, loop))) < lanes:
            continue
        _, inner, loop = s.split(loop, lanes, tail="peel")
        s.vectorize(inner)


def _loops(s: Schedule, found: Contraction, tile: RegisterTile, target: Target) -> Nest:
    """Splits and orders the loops: panels outermost where threads can share them, since a panel of the constant stays
    in cache for all positions. Taps along a row share elements: they are written out where these fit into registers,
    too; otherwise the taps down a column are."""
    assert found.rows is not None
    loops = s.get_loops(found.block.name)
    panels, inside = s.split(loops[found.columns], tile.columns, tail="mask")
    vectors, lane = s.split(inside, tile.lanes)
    tiles, row = s.split(loops[found.rows], tile.rows, tail="mask")
    terms = [loops[n] for n in found.reduce]
    shared = tile.rows * (tile.vectors + 1) + tile.vectors + 1 <= tile_registers(target)
    if not shared:
        terms[1:] = reversed(terms[1:])
    outer = {panels: -(-known(found.extents[found.columns]) // tile.columns)}
    order = ordered(outer | {loops[n]: known(found.extents[n]) for n in found.batch})
    s.reorder(*order, tiles, *terms, row, vectors, lane)
    s.vectorize(lane)
    for loop in (vectors, row):
        s.unroll(loop)
    some = terms_at_once(found, tile, target)
    if shared or len(terms) < 3:
        write_out_terms(s, terms, tile, some)
    else:
        write_out_taps(s, terms[-1], tile, some)
    return Nest(order[0], None, None, None, order[-1], tiles, row, vectors, lane)


def store_turned(s: Schedule, block: str, panels: Var, lanes: int) -> None:
    """The epilogue along the columns of the result, a few rows at a time: what these read of the turned sums lies side
    by side, and is turned in registers."""
    _vectorize_last(s, block, lanes)
    loops = s.get_loops(block)
    row, *inner = loops[loops.index(panels) + 1 :]
    if known(extent_of(find_loop(s.func, row))) % SIDE == 0:
        _, few = s.split(row, SIDE)
        s.reorder(*inner[:-1], few, inner[-1])
        s.unroll(few)


def _vectorize_last(s: Schedule, block: str, lanes: int) -> None:
    """The last loop of a block in vectors, the last of them moved back to where the loop ends."""
    loop = s.get_loops(block)[-1]
    extent = known(extent_of(find_loop(s.func, loop)))
    while lanes > extent:
        lanes //= 2
    s.vectorize(s.split(loop, lanes, tail="shift")[1])
