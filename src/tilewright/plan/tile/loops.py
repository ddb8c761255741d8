"""The loops of a block: those that an axis runs over; loops cut in parts, at places or where an image ends; and those
of a tiled contraction: splits, order, kinds, and its edges, where vectors that lie beyond them altogether go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tilewright.analysis.contractions import Contraction
from tilewright.analysis.known import resolved
from tilewright.analysis.sizes import known
from tilewright.analysis.zero_terms import Edges
from tilewright.core.walk import substitute
from tilewright.expr.build import conjuncts
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import blocks, loops_around
from tilewright.loops.nodes import LoopKind
from tilewright.plan.price.contraction import RegisterTile
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.schedule import Schedule

MANY = 8
"""Iterations that several threads can share evenly."""

WRITTEN_OUT = 128
"""The most vector multiply-adds in the body of an innermost loop: longer bodies take more time to compile than they
save, which is no rate of a core."""


def loops_of(s: Schedule, block: str, axis: int) -> list[Var]:
    """The loops that a spatial axis is bound to, innermost first: none where it has one value."""
    used = variables_of(find_block(s.func, block).spatial[axis].binding)
    return [v for v in reversed(s.get_loops(block)) if v in used]


def loop_of(s: Schedule, block: str, axis: int) -> Var:
    """The innermost loop that a spatial axis, of several values, is bound to."""
    return loops_of(s, block, axis)[0]


def inside_of(s: Schedule, block: str, loop: Var) -> list[Var]:
    """The loops around a block that are inside a loop, outermost first."""
    loops: tuple[Var, ...] = s.get_loops(block)
    return list(loops[loops.index(loop) + 1 :])


def extent(s: Schedule, loop: Var) -> int:
    """The iterations of a loop, as a number."""
    return known(find_loop(s.func, loop).extent)


def cut_at(s: Schedule, loop: Var, places: Sequence[int]) -> list[Var]:
    """The loop cut at those of the places, in order, that lie inside it."""
    made: list[Var] = []
    end = extent(s, loop)
    for place in places:
        if 0 < place < end:
            first, loop = s.partition(loop, place)
            made.append(first)
    return [*made, loop]


def between(s: Schedule, loop: Var, places: tuple[int, int]) -> Var:
    """The loop cut at two places, where they lie inside it. Returns the part between them."""
    return cut_at(s, loop, places)[int(places[0] > 0)]


def in_vectors(s: Schedule, loop: Var, lanes: int) -> tuple[Var, Var]:
    """The loop split into vectors of at most so many lanes, halved until they fit it; the last one is moved back to
    where the loop ends."""
    while lanes > extent(s, loop):
        lanes //= 2
    vectors, lane = s.split(loop, lanes, tail="shift")
    return vectors, lane


def with_copies(s: Schedule, block: str) -> list[str]:
    """The block, and its copies in loops behind a cut, as they were made."""
    return [block, *(copy for copy, original in s.copies.items() if original == block)]


def split_columns(s: Schedule, columns: Var, tile: RegisterTile) -> tuple[Var, Var, Var]:
    """Splits the loop over columns into those over panels, and over the vectors and the lanes of a tile."""
    panels, inside = s.split(columns, tile.columns, tail="mask")
    vectors, lane = s.split(inside, tile.lanes)
    return panels, vectors, lane


def split_tile(s: Schedule, rows: Var, columns: Var, tile: RegisterTile) -> tuple[Var, Var, Var, Var, Var]:
    """Splits the loops over rows and columns into those over column panels and tiles of rows, and those over the rows,
    the vectors and the lanes of a tile."""
    panels, vectors, lane = split_columns(s, columns, tile)
    tiles, row = s.split(rows, tile.rows, tail="mask")
    return panels, tiles, row, vectors, lane


def order_tile(s: Schedule, outer: Sequence[Var], inner: Sequence[Var | None], together: Var | None = None) -> None:
    """Puts the loops in order: those of a tile, `inner` with the lanes last, are written out, in vectors or as terms
    that an instruction takes `together`."""
    *tile, lane = [v for v in inner if v is not None]
    s.reorder(*outer, *tile, lane, *([together] if together is not None else []))
    if together is None:
        s.vectorize(lane)
    for loop in reversed(tile):
        s.unroll(loop)


def ordered(outer: Mapping[Var, int]) -> list[Var]:
    """The outer loops, the first with enough iterations for several threads, or else the longest, before the others."""
    first = next((loop for loop, extent in outer.items() if extent >= MANY), max(outer, key=lambda v: outer[v]))
    return [first, *(loop for loop in outer if loop is not first)]


def write_out_terms(s: Schedule, terms: Sequence[Var], tile: RegisterTile, some: int) -> None:
    """Short inner reduce loops, the taps of a window, are written out; or else a few terms, as many as divide them."""
    size = tile.rows * tile.vectors
    for n, loop in reversed(list(enumerate(terms))):
        count = find_loop(s.func, loop).size
        if count is None:
            return
        if n == 0 or size * count > WRITTEN_OUT:
            most = some * tile.rows * tile.vectors // size
            few = next((m for m in range(most, 1, -1) if count % m == 0 and count > m), None)
            if few is not None:
                s.unroll(s.split(loop, few)[1])
            return
        size *= count
        s.unroll(loop)


def write_out(
    s: Schedule, block: str, tile: Var, lane: Var, kept: Collection[Var] = (), *, singles: bool = False
) -> None:
    """A block's part of an iteration of `tile` without loops but those `kept`: `lane` becomes vectors, all others are
    unrolled; loops of one iteration, too, where `singles` are."""
    loops = inside_of(s, block, tile)
    s.vectorize(lane)
    for loop in loops:
        if loop is not lane and loop not in kept and (singles or extent(s, loop) > 1):
            s.unroll(loop)


def write_out_columns(s: Schedule, block: str, io: Var, tile: RegisterTile) -> Var:
    """The loops of an epilogue over the tile, written out: vectors along the columns. Returns the loop over them."""
    vectors: Var
    vectors, lane = s.split(inside_of(s, block, io)[-1], tile.lanes)
    write_out(s, block, io, lane, singles=True)
    return vectors


def edges_alone(s: Schedule, loop: Var, shared: bool = False) -> list[Var]:
    """The first and the last iteration of a loop by themselves: those between need no masks. Returns the loops that
    there are then. Two iterations are unrolled, but those of a loop that threads have `shared`."""
    count = extent(s, loop)
    if count > 2 or shared:
        return cut_at(s, loop, sorted({1, count - 1}))
    s.unroll(loop)
    return [loop]


def leave_out_zeros(s: Schedule, dot: str, edges: Sequence[Edges]) -> None:
    """Terms of a sum, and of its copies in loops behind a cut, that are zero for all of a tile are not computed."""
    for block in [b for b in blocks(s.func.body) if edges and b.init is not None and b.name in with_copies(s, dot)]:
        bound = [v for e in edges if isinstance(v := block.axes[e.axis].binding, Var)]
        loops = [v for v in bound if find_loop(s.func, v).kind is LoopKind.SERIAL]
        for loop in loops:
            s.attempt(s.trim_sum, block.name, loop)
        if any(is_bounded(s, block.name, v) for v in loops):
            s.decompose_reduction(block.name, loops[0])
        for loop in loops:
            for _ in ("those before the first", "those after the last"):
                s.attempt(s.partition, loop, dead=True)
            if is_bounded(s, block.name, loop):
                s.pad_sum(block.name, loop)


def panel_over_the_edge(
    s: Schedule,
    found: Contraction,
    tile: RegisterTile,
    panels: Var,
    vectors: dict[str, Var],
    apart: bool,
    packing: str | None = None,
) -> list[str]:
    """The last column panel, in a loop of its own where it lacks vectors, or is to be `apart` in any case. `vectors`
    has the loops over the vectors of a panel, by block; of the block that is `packing` the panel, if there is one, the
    last vector with columns beyond the edge is apart as well. Returns the copies of the contraction's block."""
    columns = found.extents[found.columns]
    if not isinstance(columns, Const):
        return []
    whole, rest = divmod(int(columns.value), tile.columns)
    alive = -(-rest // tile.lanes)
    if not rest or (alive == tile.vectors and not apart):
        return []
    tails = dict(vectors)
    if whole:
        place = {block: s.get_loops(block).index(loop) for block, loop in vectors.items()}
        s.partition(panels, whole)
        tails = {name: s.get_loops(name)[place[block]] for name, block in s.copies.items() if block in vectors}
    for name, loop in tails.items():
        plain = [rest // tile.lanes] if packing is not None and name in with_copies(s, packing) else []
        cut_at(s, loop, sorted({*plain, alive}))
    return [name for name in tails if s.copies.get(name) == found.block.name]


def settle_edges(
    s: Schedule, found: Contraction, tile: RegisterTile, row: Var | None, lane: Var, block: str, packed: bool
) -> None:
    """Tiles over the edge are computed whole, where their operands have something to load there: panels that are
    `packed` do. Only what is stored is looked at element by element. The loops are those of a tile, which the block has
    by their names."""
    mine = {loop.var.name: loop.var for loop in loops_around(s.func.body, find_block(s.func, block))}
    for loop in [mine[v.name] for v in (row, lane) if v is not None and v.name in mine]:
        is_row = row is not None and loop.name == row.name
        if is_bounded(s, block, loop) and (is_row or packed or has_room(found, tile)):
            s.pad(block, loop)


def is_bounded(s: Schedule, block: str, loop: Var) -> bool:
    """Whether a condition of the block is about the loop."""
    found = find_block(s.func, block)
    return any(loop in variables_of(resolved(found, c)) for c in conjuncts(found.where))


def has_room(found: Contraction, tile: RegisterTile) -> bool:
    """Whether the vector operand has something to load for every lane of the last vector."""
    last = found.vector.last
    index, extent = found.vector.load.indices[last], found.vector.buffer.shape[last]
    furthest: dict[Var, Expr] = {a.var: e - 1 for a, e in zip(found.block.axes, found.extents, strict=True)}
    positions = known(found.extents[found.columns])
    furthest[found.block.axes[found.columns].var] = const(-(-positions // tile.lanes) * tile.lanes - 1)
    reached = simplify(substitute(index, furthest))
    return isinstance(reached, Const) and isinstance(extent, Const) and reached.value < extent.value
