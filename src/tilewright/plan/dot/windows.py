"""The schedule of convolutions of narrow numbers: channels of the result along the lanes, positions as rows of tiles.

    for jo in panels of channels: for i in rows of the image:      y[o, i, j]: o along the lanes
      for jt in tiles of positions:
        t[R, V*lanes] = 0
        for ko, a, b: t[r, v] = dot(x[ko, i*s + a, (jt*R + r)*s + b], w[jo, ko, a, b, v, 0 .. lanes], t[r, v])
        s[jt*R + r, …] = t                                         a panel of results on the stack, turned
      y[o, i, j] = f(s[j, o])                                      the epilogue, turned back

An instruction adds several channels of the input to each lane (target/instructions.py). Those of a point lie next to
each other and meet all lanes, so windows may move by any number of elements, and no row needs room for whole vectors.
The filters are constants: they are packed beforehand. Windows of 1x1 are computed so where positions are few.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.expr.nodes import Const, Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import allocations, blocks, loads
from tilewright.loops.nodes import Block, Function, Store
from tilewright.plan.dot.instruction import Dot, choose_dot
from tilewright.plan.dot.products import Nest, Plan, copy_as, is_bounded, line_ahead, words_of
from tilewright.plan.facts.contraction import Contraction, begun, plain_contraction
from tilewright.plan.gemm.transposed import exchanged, read_by, results_apart, store_transposed
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.nest import MOST_WRITTEN_OUT, ordered, write_out
from tilewright.plan.tile.prefetch import prefetch_constant
from tilewright.plan.tile.registers import RegisterTile, choose_register_tile, tile_cycles
from tilewright.schedule.find import find_block, find_loop, stored_buffers
from tilewright.schedule.nests import extent_of
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

TURN_CYCLES, PACK_CYCLES, LEAST_GAIN = 0.5, 0.5, 1.05
"""Cycles to turn an element of the result back, and to pack an element of the operand that only a call knows; how much
faster the turned contraction must be."""


def schedule_dot_windows(function: Function, target: Target) -> Schedule | None:
    """The schedule of a kernel with one convolution of numbers that the machine adds up several at a time; None where
    it is none, or where the machine has no instruction for it."""
    start = plain_contraction(function)
    if start is None:
        return None
    plain, found = start
    plan = _plan(found, target)
    if plan is None or not all(_is_beside(b, found) for b in blocks(plain.body)):
        return None
    return _apply(begun(function, plain), plan)


def choose_window_tile(positions: int, channels: int, terms: int, dot: Dot, target: Target) -> RegisterTile:
    """The tile of positions and channels of a convolution over so many terms."""
    deep = -(-terms // dot.depth)
    return choose_register_tile(positions, channels, deep, target.vector_registers - dot.registers, dot.lanes)


def _plan(found: Contraction, target: Target) -> Plan | None:
    """The plan in closed form, its rows and columns exchanged."""
    filters = found.broadcast
    if found.rows is None or not (filters.is_constant and filters.is_plain()):
        return None
    turned = replace(found, vector=filters, broadcast=found.vector, columns=found.rows, rows=found.columns)
    types = (turned.broadcast.buffer.dtype, turned.vector.buffer.dtype, found.out.dtype)
    dot = choose_dot(*types, target)
    sizes = [found.extents[n] for n in (found.columns, found.rows)]
    axes = [n for n in found.reduce if _counts(turned, n)]
    if dot is None or dot.instruction is None or not axes or not all(isinstance(e, Const) for e in sizes):
        return None
    positions, channels = map(known, sizes)
    if channels < dot.lanes or dot.depth < 2 or dot.broadcast is not types[0]:
        return None
    moved = [n for n in found.batch if turned.vector.moves(found.block.axes[n].var) and known(found.extents[n]) > 1]
    tile = choose_window_tile(positions, channels, found.depth, dot, target)
    ahead = line_ahead(turned, dot, tile, _outer(turned, tile), -(-positions // tile.rows), target)
    plan = Plan(turned, dot, axes[0], tile, 1, ahead)
    if not plan.is_even or moved or (found.vector.is_plain() and not _is_better_turned(found, plan, target)):
        return None
    return plan


def _outer(found: Contraction, tile: RegisterTile) -> dict[Var, int]:
    """How often the loops around the tiles of a row run, by the axis that they go along."""
    axes, panels = found.block.axes, -(-known(found.extents[found.columns]) // tile.columns)
    return {axes[found.columns].var: panels} | {axes[n].var: known(found.extents[n]) for n in found.batch}


def _is_better_turned(found: Contraction, plan: Plan, target: Target) -> bool:
    """Whether a contraction whose positions lie along the lanes as it is runs faster with channels there: that is so of
    few positions, which leave lanes empty."""
    positions, channels = known(found.extents[found.columns]), known(found.extents[plan.found.columns])
    usual = choose_window_tile(channels, positions, found.depth, plan.dot, target)
    deep = -(-found.depth // plan.dot.depth)
    as_it_lies = tile_cycles(usual, channels, positions, deep)
    return turning_pays(found, tile_cycles(plan.tile, positions, channels, deep), as_it_lies)


def _counts(found: Contraction, axis: int) -> bool:
    """Whether a reduce axis moves one dimension of each operand, and that by itself: channels do, taps do not."""
    var = found.block.axes[axis].var
    return found.vector.dimension(var) is not None and found.broadcast.dimension(var) is not None


def _is_beside(block: Block, found: Contraction) -> bool:
    """Whether a block is the contraction, or computes point by point: from its result at its own point, if at all."""
    points = tuple(a.var for a in block.axes)
    own = [ld for ld in loads(block) if ld.buffer is found.out]
    plain = isinstance(block.body, Store) and not block.reduce and block.where is None
    return block is found.block or (plain and all(ld.indices == points for ld in own))


def _apply(s: Schedule, plan: Plan) -> Schedule:
    """The steps."""
    found = plan.found
    dot = found.block.name
    results, sums = results_apart(s, found)
    write = s.cache_write(dot)
    tile_sums = read_by(s, write)
    panel = _pack_filters(s, plan)
    points = _lay_out_points(s, plan)
    nest = _loops(s, plan)
    _turn_back(s, plan, nest, write, tile_sums)
    loops = s.get_loops(dot)
    around = loops[loops.index(nest.tiles) - 1]
    for block in results:
        s.reverse_compute_at(block, around)
    s.transform_layout(sums, exchanged(found))
    s.compact(sums)
    s.set_scope(sums, "stack")
    for block in results:
        store_transposed(s, block, around, plan.tile.lanes)
    _finish(s, plan, nest, points)
    if plan.ahead > 0:
        prefetch_constant(s, dot, panel, nest.panels, nest.tiles, plan.ahead)
    s.parallel(nest.outer)
    return s


def _pack_filters(s: Schedule, plan: Plan) -> str:
    """The filters in the order in which tiles read them: panels, channels of the input, taps, the channels of a panel,
    the terms of an instruction."""
    found, axes, depth, width = plan.found, plan.found.block.axes, plan.dot.depth, plan.tile.columns
    words, moved = words_of(found, found.vector)
    column, term = moved[axes[found.columns].var], moved[axes[plan.axis].var]
    taps = [moved[axes[n].var] for n in found.reduce if n != plan.axis and axes[n].var in moved]
    rest = [w for w in words if w not in (column, term, *taps)]
    inner = [f"{column} % {width}", f"{term} % {depth}"]
    layout = [*rest, f"{column} // {width}", f"{term} // {depth}", *taps, *inner]
    return copy_as(s, found, found.vector, plan.dot.vector, words, layout)


def _lay_out_points(s: Schedule, plan: Plan) -> list[str]:
    """The channels that an instruction takes next to each other: where the operand is computed in the kernel, or in a
    copy. Returns the blocks that fill it from elsewhere."""
    found, depth = plan.found, plan.dot.depth
    operand = found.broadcast.buffer
    name = operand.name if operand in allocations(s.func.body) else s.cache_read(found.block.name, operand.name)
    dimension = found.broadcast.dimension(found.block.axes[plan.axis].var)
    words = [f"d{n}" for n in range(len(operand.shape))]
    layout = [f"{w} // {depth}" if n == dimension else w for n, w in enumerate(words)]
    s.transform_layout(name, f"{', '.join(words)} -> {', '.join(layout)}, d{dimension} % {depth}")
    filling = [b for b in blocks(s.func.body) if name in {made.name for made in stored_buffers(b)}]
    return [b.name for b in filling if any(True for _ in loads(b))]


def _weave(s: Schedule, plan: Plan, block: str) -> None:
    """The terms of an instruction are copied together, in vectors of points."""
    dimension = plan.found.broadcast.dimension(plan.found.block.axes[plan.axis].var)
    assert dimension is not None
    loops = s.get_loops(block)
    if len(loops) == len(plan.found.broadcast.load.indices):
        channels, term = s.split(loops[dimension], plan.dot.depth)
        s.reorder(*loops[dimension + 1 :], term)
    else:
        channels, term = loops[dimension], loops[-1]
    *_, column, _ = s.get_loops(block)
    s.unroll(term)
    s.vectorize(s.split(column, plan.dot.lanes, tail="mask")[1])
    s.parallel(channels)


def _loops(s: Schedule, plan: Plan) -> Nest:
    """Splits and orders the loops: panels outermost where threads can share them; taps inside channels, since all taps
    of a row read the same few lines."""
    found, tile = plan.found, plan.tile
    assert found.rows is not None
    loops = s.get_loops(found.block.name)
    panels, inside = s.split(loops[found.columns], tile.columns, tail="mask")
    vectors, lane = s.split(inside, tile.lanes)
    tiles, row = s.split(loops[found.rows], tile.rows, tail="mask")
    channels, term = s.split(loops[plan.axis], plan.dot.depth)
    taps = [loops[n] for n in found.reduce if n != plan.axis]
    axes = found.block.axes
    outer = {axes[found.columns].var: panels} | {axes[n].var: loops[n] for n in found.batch}
    order = [outer[axis] for axis in ordered(_outer(found, tile))]
    s.reorder(*order, tiles, channels, *taps, row, vectors, lane, term)
    return Nest(order[0], panels, tiles, row, vectors, lane, term)


def _turn_back(s: Schedule, plan: Plan, nest: Nest, write: str, tile_sums: str) -> None:
    """A tile of sums is in registers, and is written to the panel of results."""
    s.reverse_compute_at(write, nest.tiles)
    s.transform_layout(tile_sums, exchanged(plan.found))
    s.compact(tile_sums)
    s.set_scope(tile_sums, "register")
    loops = s.get_loops(write)
    own = loops[loops.index(nest.tiles) + 1 :]
    moving = variables_of(find_block(s.func, write).axes[plan.found.columns].binding)
    s.reorder(*(v for v in own if v not in moving), *(v for v in own if v in moving))
    write_out(s, write, nest.tiles, plan.tile)


def _finish(s: Schedule, plan: Plan, nest: Nest, points: list[str]) -> None:
    """What the loops run as."""
    dot, instruction = plan.found.block.name, plan.dot.instruction
    assert instruction is not None
    assert nest.row is not None
    for loop in (nest.row, nest.lane):
        if is_bounded(s, dot, loop):
            s.pad(dot, loop)
    s.tensorize(nest.lane, instruction.name)
    for loop in (nest.vectors, nest.row):
        s.unroll(loop)
    _write_out_taps(s, plan, nest)
    for block in points:
        _weave(s, plan, block)


def _write_out_taps(s: Schedule, plan: Plan, nest: Nest) -> None:
    """Short loops over taps are written out."""
    loops: list[Var] = s.get_loops(plan.found.block.name)
    taps = loops[loops.index(nest.tiles) + 2 : loops.index(nest.row)] if nest.row in loops else []
    size = plan.tile.rows * plan.tile.vectors
    for loop in reversed(taps):
        size *= known(extent_of(find_loop(s.func, loop)))
        if size > MOST_WRITTEN_OUT:
            return
        s.unroll(loop)


def turning_pays(found: Contraction, turned: float, as_it_lies: float) -> bool:
    """Whether a contraction with known rows and columns is faster turned, its tiles taking so many cycles either way:
    results are turned back, and an operand that only the call knows is packed."""
    assert found.rows is not None
    rows, columns = known(found.extents[found.rows]), known(found.extents[found.columns])
    turning = columns * (rows * TURN_CYCLES + (found.depth * PACK_CYCLES if found.vector.is_plain() else 0))
    return (turned + turning) * LEAST_GAIN <= as_it_lies
