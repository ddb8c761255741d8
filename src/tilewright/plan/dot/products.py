"""The schedule of contractions of narrow numbers: sums of products that the machine adds up several at a time.

    for jo in panels of columns: for io in tiles of rows:
      t[R, V*lanes] = 0
      for ko: t[r, v] = dot(x[io*R + r, ko*q .. ko*q + q], w[jo, ko, v, 0 .. lanes, 0 .. q], t[r, v])
      y[…] = f(t)

An instruction adds q products to each of its lanes: 2 of 16 bits, or 4 of 8 bits. One operand lies packed, q terms of a
lane next to each other; of the other one, q terms meet all lanes. Beyond the last term both hold zeros. Where the
instruction takes wider numbers than there are, the copy that is packed holds wider ones; 16-bit floats on machines
without products of them are copied as f32. Integers are exact: sums of products modulo 2**32, as they are defined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, Mod, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, loads
from tilewright.loops.nodes import Block, Function, Store
from tilewright.plan.dot.instruction import Dot, choose_dot
from tilewright.plan.facts.contraction import Contraction, Operand, begun, plain_contraction
from tilewright.plan.gemm.choice import FREE_PLACES as MOST_PLACES
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.edges import panel_over_the_edge
from tilewright.plan.tile.nest import MANY, ordered, write_out
from tilewright.plan.tile.packing import STACK_BYTES
from tilewright.plan.tile.prefetch import prefetch_constant
from tilewright.plan.tile.registers import TALLEST, RegisterTile, choose_register_tile
from tilewright.schedule.facts.predicates import conjuncts, resolved
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

LEAST_ROWS = 16
"""From so many rows on it pays to pack an operand that only the call knows, or to copy halves as f32."""

COPIED = 32
"""Elements that are copied at a time."""

ROWS_SHARE, FEW_ROWS, LEAST_TOGETHER, DEEP_ROWS = 0.3, 144, 32, 96
"""Of more rows than the second number, those whose operand takes this part of the second cache while panels stream by.
Where these would be fewer than the third, as many as the fourth for each panel."""

FAR_SHARE = 1 / 2
"""Panels that together take more than this part of the second cache come from beyond it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A contraction and how it is run: the reduce axis whose terms are taken several at a time, the tile, the tiles of
    rows that are worked on before the next panel is. That panel is brought near meanwhile, `ahead` elements at a time,
    which are a line of a cache; or (0) comes when it is read."""

    found: Contraction
    dot: Dot
    axis: int
    tile: RegisterTile
    together: int
    ahead: int

    @property
    def is_even(self) -> bool:
        """Whether the terms are a multiple of those that are taken at a time."""
        rest = simplify(Mod(self.found.extents[self.axis], const(self.dot.depth)))
        return self.dot.depth == 1 or (isinstance(rest, Const) and rest.value == 0)


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of the tiled contraction: the outermost one, those over panels and tiles, over the rows, vectors, lanes
    and terms of an instruction."""

    outer: Var
    panels: Var
    tiles: Var
    row: Var | None
    vectors: Var
    lane: Var
    term: Var | None


def schedule_dots(function: Function, target: Target) -> Schedule | None:
    """The schedule of a kernel with one contraction of integers of at most 16 bits, or of 16-bit floats; None where it
    is none, or where the machine has nothing better for it than for other contractions."""
    start = plain_contraction(function)
    if start is None:
        return None
    plain, found = start
    if not all(_is_epilogue(b, found) for b in blocks(plain.body) if b is not found.block):
        return None
    plan = _plan(found, target)
    return None if plan is None else _apply(begun(function, plain), plan)


def _is_epilogue(block: Block, found: Contraction) -> bool:
    """Whether a block computes point by point, from the contraction's result at its own point, if at all."""
    points = tuple(a.var for a in block.axes)
    own = [ld for ld in loads(block) if ld.buffer is found.out]
    plain = isinstance(block.body, Store) and not block.reduce and block.where is None
    return plain and all(ld.indices == points for ld in own)


def _plan(found: Contraction, target: Target) -> Plan | None:
    """The plan in closed form."""
    dot = choose_dot(found.broadcast.buffer.dtype, found.vector.buffer.dtype, found.out.dtype, target)
    if dot is None or not found.vector.is_plain():
        return None
    axes = [n for n in found.reduce if _counts(found, n)]
    rows = known(found.extents[found.rows]) if found.rows is not None else 1
    columns = known(found.extents[found.columns])
    if not axes or columns < dot.lanes // 2 or known(found.extents[axes[-1]]) < dot.depth:
        return None
    if rows < LEAST_ROWS and not (found.vector.is_constant and dot.instruction is not None):
        return None
    axis = axes[-1]
    depth = -(-found.depth // dot.depth)
    tallest = MOST_PLACES if panels_come_from_afar(found, target) else TALLEST
    tile = choose_register_tile(rows, columns, depth, target.vector_registers - dot.registers, dot.lanes, tallest)
    together = -(-rows // tile.rows)
    if found.vector.is_constant:
        together = rows_in_cache(tile, rows, depth, dot.depth * dot.broadcast.bytes, target)
    ahead = line_ahead(found, dot, tile, _outer(found, tile, together), together, target)
    return Plan(found, dot, axis, tile, together, ahead)


def line_ahead(
    found: Contraction, dot: Dot, tile: RegisterTile, outer: Mapping[Var, int], tiles: int, target: Target
) -> int:
    """The elements of a line that are asked for at a time of a panel that comes from beyond the second cache, while
    several tiles use the one before; 0 of others, and where the rows of a tile leave no register for its place. Loops
    over parts of axes run so often around `tiles` tiles of rows (`outer`)."""
    order = ordered(outer)
    inside = order[order.index(found.block.axes[found.columns].var) + 1 :]
    uses = tiles * math.prod(outer[axis] for axis in inside)
    if uses == 1 or tile.rows > MOST_PLACES or not panels_come_from_afar(found, target):
        return 0
    return target.caches[0].line // dot.vector.bytes


def _outer(found: Contraction, tile: RegisterTile, together: int) -> dict[Var, int]:
    """How often the loops around the tiles that are worked on together run, by the axis that they go along."""
    axes = found.block.axes
    outer = {axes[n].var: known(found.extents[n]) for n in found.batch}
    if found.rows is not None:
        outer[axes[found.rows].var] = -(-known(found.extents[found.rows]) // (tile.rows * together))
    outer[axes[found.columns].var] = -(-known(found.extents[found.columns]) // tile.columns)
    return outer


def _counts(found: Contraction, axis: int) -> bool:
    """Whether a reduce axis moves one dimension of each operand, and that by itself."""
    var = found.block.axes[axis].var
    return found.vector.dimension(var) is not None and found.broadcast.dimension(var) is not None


def _apply(s: Schedule, plan: Plan) -> Schedule:
    """The steps."""
    found = plan.found
    dot, sums = found.block.name, found.out.name
    if found.out.scope is Scope.ARGUMENT:
        write = s.cache_write(dot)
        sums = next(loads(find_block(s.func, write))).buffer.name
        results = [write]
    else:
        results = list(s.get_consumers(dot))
    panel = _pack_panels(s, plan)
    rows = None if _is_ready(plan) else _copy_terms(s, plan)
    nest = _tile(s, plan)
    for block in results:
        s.reverse_compute_at(block, nest.tiles)
    s.compact(sums)
    s.set_scope(sums, "register")
    if nest.term is not None and not plan.is_even:
        s.pad_sum(dot, nest.term)
    vectors = {dot: nest.vectors}
    if found.vector.is_constant:
        _write_in_vectors(s, plan, panel)
    else:
        vectors[panel] = _panel_in_cache(s, plan, panel, nest.panels)
    if rows is not None and not found.broadcast.is_constant:
        _copy_in_vectors(s, plan, rows)
    for block in results:
        vectors[block] = write_out(s, block, nest.tiles, plan.tile)
    before = s.get_loops(dot)
    by_call = not found.vector.is_constant
    tails = panel_over_the_edge(s, found, plan.tile, nest.panels, vectors, by_call, panel if by_call else None)
    for block in (dot, *tails):
        _instruct(s, plan, nest, block, before)
    if plan.ahead > 0:
        prefetch_constant(s, dot, panel, nest.panels, nest.tiles, plan.ahead)
    _share(s, plan, nest, tails)
    return s


def _instruct(s: Schedule, plan: Plan, nest: Nest, block: str, before: Sequence[Var]) -> None:
    """The loops of a tile become instructions, over the edge as well: nothing beyond it is stored. `before` has the
    loops around the block that this one is, or is a copy of."""
    mine = dict(zip(before, s.get_loops(block), strict=True))
    row = mine[nest.row] if nest.row is not None else None
    lane = mine[nest.lane]
    for loop in (row, lane):
        if loop is not None and is_bounded(s, block, loop):
            s.pad(block, loop)
    if plan.dot.instruction is None:
        s.vectorize(lane)
    else:
        s.tensorize(lane, plan.dot.instruction.name)
    for loop in (row, mine[nest.vectors]):
        if loop is not None:
            s.unroll(loop)


def _share(s: Schedule, plan: Plan, nest: Nest, tails: list[str]) -> None:
    """Threads share the outermost loop, or the tiles of each panel where panels are few and one is apart."""
    loops = s.get_loops(plan.found.block.name)
    few = known(plan.found.extents[plan.found.columns]) < MANY * plan.tile.columns
    tiles = [plan.found.block.name] if few and nest.outer is nest.panels else []
    for block in (*tiles, *tails) if tails and nest.row is not None else ():
        s.parallel(s.get_loops(block)[loops.index(nest.tiles)])
    if nest.outer is not nest.tiles and not (tiles and tails):
        s.parallel(nest.outer)


def is_bounded(s: Schedule, block: str, loop: Var) -> bool:
    """Whether a condition of the block is about the loop."""
    found = find_block(s.func, block)
    return any(loop in variables_of(resolved(found, c) or c) for c in conjuncts(found.where))


def _is_ready(plan: Plan) -> bool:
    """Whether the instruction can take its terms from the broadcast operand as it lies."""
    operand = plan.found.broadcast
    last = operand.load.indices[-1] is plan.found.block.axes[plan.axis].var
    return operand.buffer.dtype is plan.dot.broadcast and (plan.dot.depth == 1 or (last and plan.is_even))


def words_of(found: Contraction, operand: Operand) -> tuple[list[str], dict[Var, str]]:
    """A name for each dimension of an operand, and the names by axis."""
    words = [f"d{n}" for n in range(len(operand.load.indices))]
    moved = {i: w for i, w in zip(operand.load.indices, words, strict=True) if isinstance(i, Var)}
    return words, moved


def _pack_panels(s: Schedule, plan: Plan) -> str:
    """The vector operand in panels: batches, panels, terms, the columns of a panel, the terms of an instruction."""
    found, axes, depth = plan.found, plan.found.block.axes, plan.dot.depth
    words, moved = words_of(found, found.vector)
    column, term = moved[axes[found.columns].var], moved[axes[plan.axis].var]
    others = [moved[axes[n].var] for n in found.reduce if n != plan.axis and axes[n].var in moved]
    rest = [w for w in words if w not in (column, term, *others)]
    width = plan.tile.columns
    layout = [*rest, f"{column} // {width}", *others, f"{term} // {depth}", f"{column} % {width}", f"{term} % {depth}"]
    return copy_as(s, found, found.vector, plan.dot.vector, words, layout)


def _copy_terms(s: Schedule, plan: Plan) -> str:
    """A copy of the broadcast operand with the terms of an instruction next to each other."""
    found, depth = plan.found, plan.dot.depth
    words, moved = words_of(found, found.broadcast)
    term = moved[found.block.axes[plan.axis].var]
    rest = [w for w in words if w != term]
    return copy_as(
        s, found, found.broadcast, plan.dot.broadcast, words, [*rest, f"{term} // {depth}", f"{term} % {depth}"]
    )


def copy_as(
    s: Schedule, found: Contraction, operand: Operand, dtype: DType, words: list[str], layout: list[str]
) -> str:
    """A copy of an operand in a type that holds its values and in a layout, over these names of its dimensions; beyond
    its ends it holds zeros."""
    name: str = s.cache_read(found.block.name, operand.buffer.name)
    if operand.buffer.dtype is not dtype:
        s.widen(name, dtype.name)
    kept = [piece.removesuffix(" // 1") for piece in layout if not piece.endswith(" % 1")]
    s.transform_layout(name, f"{', '.join(words)} -> {', '.join(kept)}", pad=0)
    return name


def _tile(s: Schedule, plan: Plan) -> Nest:
    """Splits and orders the loops of the contraction."""
    found, tile, axes = plan.found, plan.tile, plan.found.block.axes
    loops = s.get_loops(found.block.name)
    jo, ji = s.split(loops[found.columns], tile.columns, tail="mask")
    jv, jl = s.split(ji, tile.lanes)
    terms = [loops[n] for n in found.reduce if n != plan.axis]
    ko, kq = loops[plan.axis], None
    if plan.dot.depth > 1:
        ko, kq = s.split(ko, plan.dot.depth, tail="mask")
    outer = {axes[n].var: loops[n] for n in found.batch} | {axes[found.columns].var: jo}
    rows: list[Var] = []
    io = jo
    if found.rows is not None:
        tiles, ii = s.split(loops[found.rows], tile.rows, tail="mask")
        outer[axes[found.rows].var], io = s.split(tiles, plan.together, tail="clip")
        rows = [ii]
    order = [outer[axis] for axis in ordered(_outer(found, tile, plan.together))]
    lanes = [jl] if kq is None else [jl, kq]
    s.reorder(*order, *([io] if rows else []), *terms, ko, *rows, jv, *lanes)
    return Nest(order[0], jo, io, rows[0] if rows else None, jv, jl, kq)


def _panel_in_cache(s: Schedule, plan: Plan, panel: str, panels: Var) -> Var:
    """A panel of an operand that only the call knows is packed right before its tiles, and stays in cache for them.
    Returns the loop over its vectors."""
    s.compute_at(panel, panels)
    s.compact(panel)
    (store,) = (b.body for b in blocks(s.func.body) if b.name == panel and isinstance(b.body, Store))
    if _bytes(store.buffer.shape) * store.buffer.dtype.bytes <= STACK_BYTES:
        s.set_scope(panel, "stack")
    return _write_in_vectors(s, plan, panel)


def _write_in_vectors(s: Schedule, plan: Plan, panel: str) -> Var:
    """A panel is packed column by column of vectors, the terms of an instruction woven together."""
    *_, column, last = s.get_loops(panel)
    if plan.dot.depth > 1:
        s.unroll(last)
        last = column
    vectors: Var
    vectors, lane = s.split(last, plan.tile.lanes)
    s.vectorize(lane)
    return vectors


def _bytes(shape: tuple[Expr, ...]) -> int:
    count = 1
    for extent in shape:
        count *= int(extent.value) if isinstance(extent, Const) else STACK_BYTES
    return count


def _copy_in_vectors(s: Schedule, plan: Plan, copy: str) -> None:
    """The copy of the broadcast operand is made in vectors, of rows that several threads share."""
    loops = s.get_loops(copy)
    if len(loops) > 2:
        s.parallel(loops[0])
    inner = loops[-1]
    if plan.dot.depth > 1:
        if not plan.is_even:
            s.partition(loops[-2])
        inner = s.fuse(loops[-2], inner)
    _, lane = s.split(inner, COPIED, tail="mask")
    s.vectorize(lane)


def panels_come_from_afar(found: Contraction, target: Target) -> bool:
    """Whether panels of a constant come from beyond the second cache. The first tile that reads one would wait for it:
    what the processor fetches ahead by itself ends with each page."""
    batches = math.prod(known(found.extents[n]) for n in found.batch if found.vector.moves(found.block.axes[n].var))
    size = batches * known(found.extents[found.columns]) * found.depth * found.vector.buffer.dtype.bytes
    far = size > target.cache(2).bytes * FAR_SHARE
    return far and found.vector.is_constant and found.rows is not None


def rows_in_cache(tile: RegisterTile, rows: int, depth: int, bytes_each: int, target: Target) -> int:
    """How many tiles of rows are worked on before the next column panel is: all of few; of many as many as stay in the
    second cache while panels stream by, or repay a panel, in an even number of blocks of about equal size."""
    tiles = -(-rows // tile.rows)
    if rows <= FEW_ROWS:
        return tiles
    fitting = int(target.cache(2).bytes * ROWS_SHARE / max(depth * bytes_each, 1))
    most = (fitting if fitting >= LEAST_TOGETHER else DEEP_ROWS) // tile.rows
    return -(-tiles // _even(-(-tiles // max(most, 1))))


def _even(parts: int) -> int:
    """As many parts or one more, so that two threads have as many each; one stays one."""
    return parts + parts % 2 if parts > 1 else parts
