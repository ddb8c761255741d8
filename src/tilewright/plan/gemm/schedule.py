"""The template of contractions as they lie, and its steps: packed panels, cache blocks, a tile of accumulators in
registers, the epilogue on it.

    for ic in blocks of rows (their operand stays in the second cache):
      for jo in panels of columns:                                        the panel of the vector operand is contiguous
        for io in tiles of rows:
          t[R, V*lanes] = 0
          for k: t += broadcast(x[io*R + r, k]) * w[jo, k, 0 .. V*lanes]     all in registers
          y[…] = f(t)                                                        only here are edges looked at

The loops are those of Goto's algorithm; every line of it is a primitive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.analysis.accesses import accesses
from tilewright.analysis.contractions import Contraction
from tilewright.analysis.sizes import known
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.plan.by_rows import ByRows, OfRows
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.choice import Choice, choices
from tilewright.plan.gemm.price import seconds
from tilewright.plan.gemm.shape import Product, recognise
from tilewright.plan.price.contraction import Dot
from tilewright.plan.tile import loops as tiling
from tilewright.plan.tile import packing
from tilewright.plan.tile.next_rows import prefetch_next_row
from tilewright.plan.tile.next_tiles import prefetch_next_tile
from tilewright.plan.tile.registers import compute_near, hold_sums, keep_near, sums_apart
from tilewright.schedule.find import find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class Nest:
    """The loops of a tiled contraction: `outer`, which threads share; over groups of panels, over cache blocks, over
    blocks of terms (each None where there is but one); over column panels; the innermost around a tile; over the rows,
    the vectors and the lanes of a tile; and over the terms that an instruction takes together."""

    outer: Var
    near: Var | None
    blocks: Var | None
    terms: Var | None
    panels: Var
    tiles: Var
    row: Var | None
    vectors: Var
    lane: Var
    together: Var | None = None


@dataclass(frozen=True, slots=True)
class ContractionsByRows(ByRows):
    """Ways to run a contraction with a dynamic number of rows."""

    ways: tuple[Choice, ...]


class Contractions(OfRows[Product, Choice]):
    """A kernel whose work is one contraction, the columns of its result along the lanes."""

    name = "contraction"
    choice = Choice
    listed = frozenset({"tile.lanes", "prefetch", "parts"})

    def recognise(self, facts: Facts) -> Product | None:
        return recognise(facts)

    def choices(self, shape: Product, target: Target) -> Iterator[Choice]:
        return choices(shape.size, target)

    def price(self, choice: Choice, shape: Product, target: Target) -> float:
        return seconds(choice, shape.size, target)

    def rows(self, shape: Product) -> Expr | None:
        dynamic = shape.size.any_rows and shape.found.vector.is_constant
        return shape.found.extents[shape.found.rows] if dynamic and shape.found.rows is not None else None

    def of_call(self, shape: Product, rows: int) -> Product:
        return replace(shape, size=replace(shape.size.of_rows(rows), parts=1 + (shape.found.vector.minus is not None)))

    def for_rows(self, choice: Choice, rows: int) -> Choice:
        if choice.prefetch_tiles is None:
            return choice
        return replace(choice, prefetch_tiles=max(min(choice.prefetch_tiles, rows // choice.part.rows), 1))

    def are_alike(self, one: Choice, other: Choice) -> bool:
        return one.packing == other.packing

    def begin(self, facts: Facts) -> Schedule:
        return facts.begin_inlined()

    def apply(self, s: Schedule, shape: Product, choice: Choice) -> Schedule:
        (_whole_sums if choice.block_terms is None else _sums_in_blocks)(s, shape.found, choice)
        if choice.leaves_out:
            tiling.leave_out_zeros(s, shape.found.block.name, shape.size.edges)
        return s


def results_apart(s: Schedule, found: Contraction) -> tuple[list[str], str]:
    """The blocks that read a contraction's sums, and the buffer of the sums: a result that is the caller's array
    becomes a copy of them."""
    if found.out.scope is not Scope.ARGUMENT:
        return list(s.get_consumers(found.block.name)), found.out.name
    write, sums = sums_apart(s, found.block.name)
    return [write], sums


def _whole_sums(s: Schedule, found: Contraction, choice: Choice) -> None:
    """A tile sums up all terms before it is stored: the epilogue runs on it in registers."""
    dot = found.block.name
    results, sums = results_apart(s, found)
    packed, rows = _pack_operands(s, found, choice)
    heights = [height // choice.part.rows for height in (choice.tile.rows, *(choice.parts or ()))]
    choice = choice.of_parts()
    in_first_tile = choice.packs_in_first_tile and found.rows is not None
    filled = packed[0] if packed and not (found.vector.is_constant or choice.rows_stay) else None
    if choice.first_packs and found.vector.minus is not None:
        filled = packing.pack_difference(s, found, packed, choice.panel_columns)
    axes = s.get_loops(dot) if choice.next_row else ()
    nest = tile_loops(s, found, choice)
    if choice.next_row:
        prefetch_next_row(s, found, found.vector, axes, tiling.inside_of(s, dot, nest.tiles)[0])
    hold_sums(s, sums, results, nest.tiles)
    if nest.together is not None and tiling.is_bounded(s, dot, nest.together):
        s.pad_sum(dot, nest.together)
    vectors, copied = {dot: nest.vectors}, None
    if choice.dot is not None:
        copied = _copy_for_instruction(s, found, choice, nest, packed[0], rows, vectors)
    elif packed and not found.vector.is_constant and filled is None and len(found.reduce) == 1:
        packing.fill_turned(s, packed[0], choice.tile.lanes, s.get_loops(packed[0])[-3:-2])
        for copy in tiling.with_copies(s, packed[0]):
            s.parallel(s.get_loops(copy)[0])
    elif filled is not None:
        compute_near(s, filled, nest.panels)
        if found.vector.step(found.block.axes[found.columns].var) is None:
            packing.fill_turned(s, filled, choice.tile.lanes, ())
        elif not in_first_tile:
            s.vectorize(s.get_loops(filled)[-1])
    vectors |= {block: tiling.write_out_columns(s, block, nest.tiles, choice.tile) for block in results}
    place = s.get_loops(dot).index(nest.lane)
    tails = _without_dead_vectors(s, found, choice, nest, vectors, copied)
    for block in (dot, *tails):
        tiling.settle_edges(s, found, choice.tile, nest.row, nest.lane, block, choice.pack_vector)
        if nest.together is not None and choice.dot is not None:
            s.tensorize(s.get_loops(block)[place], choice.dot.instruction)
    if choice.prefetch > 0 and not choice.distance:
        _prefetch_constants(s, found, choice, nest, packed, rows)
    if found.rows is not None:
        prefetch_next_tile(s, results, nest.tiles)
    _share(s, found, nest, tails)
    whole = [nest.tiles]
    if heights[0] > 1:
        tiles = [s.get_loops(block)[s.get_loops(dot).index(nest.tiles)] for block in (dot, *tails)]
        whole, *_ = [_jam_tiles(s, loop, heights) for loop in tiles]
    if choice.distance:
        _prefetch_own_panels(s, packed, whole, choice)
    if in_first_tile and nest.row is not None and filled is not None:
        packing.pack_in_first_tile(s, filled, dot, nest.tiles, nest.row, choice.tile.lanes)


def _pack_operands(s: Schedule, found: Contraction, choice: Choice) -> tuple[list[str], str | None]:
    """Packs what the choice says; returns the names of the vector operand's panels, two where it is a difference, and
    of the other's tiles of rows."""
    dot, parts = choice.dot, found.vector.parts if choice.pack_vector else ()
    packed = [packing.pack(s, found, part, found.columns, choice.panel_columns, dot) for part in parts]
    rows = None
    if choice.pack_broadcast and dot is not None:
        rows = packing.pack_terms(s, found, dot)
    elif choice.pack_broadcast and found.rows is not None:
        rows = packing.pack(s, found, found.broadcast, found.rows, choice.tile.rows)
    return packed, rows


def _copy_for_instruction(
    s: Schedule, found: Contraction, choice: Choice, nest: Nest, panel: str, rows: str | None, vectors: dict[str, Var]
) -> str | None:
    """Copies of what a call brings are made in vectors: of a panel before its tiles, of the elements of rows before
    all. Returns the block that copies a panel, if a call does, whose loop over vectors is added to `vectors`."""
    assert choice.dot is not None
    depth, lanes = choice.dot.depth, choice.tile.lanes
    if rows is not None and not found.broadcast.is_constant:
        packing.copy_terms(s, rows, depth, lanes)
    if found.vector.is_constant:
        if nest.together is not None:
            packing.copy_vectors(s, panel, depth, lanes)
        return None
    compute_near(s, panel, nest.panels)
    vectors[panel] = packing.copy_vectors(s, panel, depth, lanes)
    return panel


def _without_dead_vectors(
    s: Schedule, found: Contraction, choice: Choice, nest: Nest, vectors: dict[str, Var], copied: str | None
) -> list[str]:
    """The last column panel without the vectors that lie beyond the edge altogether, where that is known. It is apart,
    too, where panels are copied, or have to be looked at element by element. Returns the names of further copies of the
    contraction's block."""
    if choice.block_panels is not None or choice.streams > 1:
        return []
    apart = not found.vector.is_constant and (choice.pack_vector or not tiling.has_room(found, choice.tile))
    return tiling.panel_over_the_edge(s, found, choice.tile, nest.panels, vectors, apart, copied)


def _prefetch_constants(
    s: Schedule, found: Contraction, choice: Choice, nest: Nest, packed: Sequence[str], rows: str | None
) -> None:
    """What the next panel of a constant, or the next tile of its rows, holds is brought near while this one is
    computed, a few lines with each few terms; of a dynamic number of tiles, by the first ones."""
    ahead_of_tiles = rows is not None and choice.dot is None
    inner = tiling.inside_of(s, found.block.name, nest.tiles)[0]
    for constant in [rows] if ahead_of_tiles else packed:
        outer = nest.tiles if ahead_of_tiles else nest.panels
        first = {} if choice.prefetch_tiles is None else {"first": choice.prefetch_tiles}
        s.prefetch(constant, outer, 1, inner, apart=choice.prefetch, **first)


def _prefetch_own_panels(s: Schedule, packed: Sequence[str], tiles: Sequence[Var], choice: Choice) -> None:
    """What a tile of whole panels multiplies by is brought near some terms before."""
    for loop in tiles:
        read = {a.buffer.name: a.loops[0].var for a in accesses(find_loop(s.func, loop).body) if a.loops}
        for panel in packed:
            s.prefetch(panel, read[panel], max(choice.distance // choice.terms, 1), apart=choice.prefetch)


def _jam_tiles(s: Schedule, tiles: Var, heights: Sequence[int]) -> list[Var]:
    """As many tiles of rows as the first height says are one, term by term, in a loop over these; those left over are
    as many as the next one says, and so on down to single ones. Returns the loops that there are then."""
    left, made = tiles, list[Var]()
    for count in heights:
        if count == 1:
            break
        whole, some, left = s.split(left, count, tail="peel")
        s.unroll(some)
        s.jam(some, front=True)
        made.append(whole)
    return [*made, left]


def _share(s: Schedule, found: Contraction, nest: Nest, tails: Sequence[str]) -> None:
    """One loop is parallel; of a dynamic number of blocks of rows, the one inside will share it. Panels beside the
    parallel loop have their batches or tiles of rows shared."""
    if nest.near is not None and nest.outer is nest.near:
        s.parallel(nest.blocks)
        if found.rows is None or isinstance(found.extents[found.rows], Const):
            s.parallel(nest.near)
            s.fuse(nest.near, nest.blocks)
    else:
        _share_rows_or_panels(s, found, nest)
    if tails and nest.row is not None and nest.outer is nest.panels:
        loops = s.get_loops(found.block.name)
        inside = range(loops.index(nest.panels) + 1, loops.index(nest.tiles))
        place = next((n for n in inside if tiling.extent(s, loops[n]) > 1), inside.stop)
        for block in tails:
            s.parallel(s.get_loops(block)[place])


def _share_rows_or_panels(s: Schedule, found: Contraction, nest: Nest) -> None:
    """Threads share the outermost loop, or one inside it: groups whose last panel is over the edge are not known to
    store apart."""
    if s.attempt(_parallel, s, nest.outer) is None:
        inside = tiling.inside_of(s, found.block.name, nest.outer)
        several = (v for v in inside[: inside.index(nest.tiles) + 1] if tiling.extent(s, v) > 1)
        next((v for v in several if s.attempt(_parallel, s, v) is not None), None)


def _parallel(s: Schedule, loop: Var) -> Var:
    s.parallel(loop)
    return loop


def _sums_in_blocks(s: Schedule, found: Contraction, choice: Choice) -> None:
    """Sums over many terms are cut: the result takes up block after block, a tile of it in registers at a time."""
    dot = found.block.name
    sums, results = found.out.name, list(s.get_consumers(dot))
    _pack_operands(s, found, choice)
    nest = tile_loops(s, found, choice)
    assert nest.terms is not None
    apart = _panel_around_terms(s, found, choice, nest)
    if apart is not None and not results:
        results, sums = results_apart(s, found)
    s.decompose_reduction(dot, nest.terms)
    s.stage(sums, nest.tiles, scope="register")
    load, store = f"{sums}.load", f"{sums}.store"
    vectors = {dot: nest.vectors}
    vectors |= {block: tiling.write_out_columns(s, block, nest.tiles, choice.tile) for block in (load, store)}
    blocks = () if _passes_by(found, choice) else (nest.near, nest.blocks)
    around = apart or next((loop for loop in blocks if loop is not None), nest.outer)
    for block in results:
        s.reverse_compute_at(block, around)
        s.vectorize(s.split(s.get_loops(block)[-1], choice.tile.lanes, tail="mask")[1])
    if apart is not None:
        keep_near(s, sums)
    tails: list[str] = []
    if not choice.pack_vector:
        tails = tiling.panel_over_the_edge(s, found, choice.tile, nest.panels, vectors, apart=True)
    for block in (dot, *tails):
        tiling.settle_edges(s, found, choice.tile, nest.row, nest.lane, block, choice.pack_vector)
    if apart is None and found.rows is not None:
        prefetch_next_tile(s, [store], nest.tiles)
    s.parallel(nest.outer)


def _panel_around_terms(s: Schedule, found: Contraction, choice: Choice, nest: Nest) -> Var | None:
    """The loop right around the blocks of terms, where it goes over panels of an operand as it lies: rows of the result
    would then lie in the same few sets of the caches as those of the panel, so its sums have a place of their own."""
    loops = s.get_loops(found.block.name)
    place = loops.index(nest.terms) if nest.terms is not None else 0
    inside = found.rows is not None and not choice.pack_vector and nest.panels in loops[:place]
    return loops[place - 1] if inside else None


def split_terms(s: Schedule, found: Contraction, loops: Sequence[Var], dot: Dot | None) -> tuple[list[Var], Var | None]:
    """The loops over terms, and the one over those that an instruction takes together."""
    terms, together = [loops[n] for n in found.reduce], None
    if dot is not None and dot.depth > 1 and found.summed is not None:
        place = found.reduce.index(found.summed)
        terms[place], together = s.split(terms[place], dot.depth, tail="mask")
    return terms, together


def tile_loops(s: Schedule, found: Contraction, choice: Choice) -> Nest:
    """Splits and orders the loops of the contraction. Rows are cut into cache blocks, or panels where there are no
    rows; panels in groups where all rows pass by a few of them at a time."""
    loops = s.get_loops(found.block.name)
    panels, vectors, lane = tiling.split_columns(s, loops[found.columns], choice.tile)
    row, tiles, near, blocks, cut, beside = None, None, None, None, None, None
    outer = {loops[n]: known(found.extents[n]) for n in found.batch}
    if choice.beside > 1:
        lines = loops[found.batch[-1]]
        some, beside = s.split(lines, choice.beside)
        outer = {some if v is lines else v: n // choice.beside if v is lines else n for v, n in outer.items()}
    if found.rows is not None:
        tiles, row = s.split(loops[found.rows], choice.tile.rows // choice.beside, tail="mask")
        blocks, tiles = s.split(tiles, choice.block_tiles, tail="clip")
        outer[blocks] = -(-known(found.extents[found.rows]) // (choice.tile.rows * choice.block_tiles))
        if choice.block_panels is not None:
            near, panels = s.split(panels, choice.block_panels, tail="clip")
    elif choice.block_terms is not None:
        blocks, panels = s.split(panels, choice.block_tiles, tail="clip")
        outer[blocks] = -(-_count_panels(found, choice) // choice.block_tiles)
    inner = [beside, row, vectors, lane]
    if choice.streams > 1:
        stream, vectors = s.split(vectors, choice.tile.vectors // choice.streams)
        inner = [beside, row, stream, vectors, lane]
    terms, together = split_terms(s, found, loops, choice.dot)
    if choice.block_terms is not None:
        each = math.prod(known(found.extents[n]) for n in found.reduce[1:])  # terms of an iteration of the first loop
        cut, terms[0] = s.split(terms[0], max(choice.block_terms // each, 1), tail="clip")
    own = [loops[n] for n in found.own_batches]
    first, order = _order(found, choice, outer, own, (near, blocks, cut, panels, tiles))
    tiling.order_tile(s, [*order, *terms], inner, together)
    tiling.write_out_terms(s, terms, choice.tile, choice.terms)
    return Nest(first, near, blocks, cut, panels, order[-1], row, vectors, lane, together)


def _passes_by(found: Contraction, choice: Choice) -> bool:
    """Whether all batches of a window pass by a panel of one block of terms, which stays in a cache."""
    return choice.block_terms is not None and choice.pack_vector and len(found.reduce) > 1 and not found.own_batches


def _order(
    found: Contraction,
    choice: Choice,
    outer: dict[Var, int],
    own: list[Var],
    made: tuple[Var | None, Var | None, Var | None, Var, Var | None],
) -> tuple[Var, list[Var]]:
    """The loop that threads share, and all around the terms of a tile, in order: of those that were made, over groups
    of panels, cache blocks, blocks of terms, panels and tiles. `outer` has those outside with about how often they run.
    Where panels are asked for ahead, those of one constant follow each other: the loops of which each iteration has its
    `own` are outside."""
    near, blocks, cut, panels, tiles = made
    count, first = _count_panels(found, choice), None
    inside: tuple[Var | None, ...] = (cut, tiles)
    if cut is not None and _passes_by(found, choice):
        order = [panels, cut, *tiling.ordered(outer)]
        inside = (tiles,)
    elif near is not None and choice.block_panels is not None:
        batches = {v: n for v, n in outer.items() if v is not blocks}
        groups = {near: -(-count // choice.block_panels)}
        first = tiling.ordered({v: n for v, n in batches.items() if n > 1} | groups)[0]
        order, inside = [*batches, near], (blocks, cut, panels, tiles)
    elif cut is not None and (tiles is None or max(outer.values()) >= tiling.MANY):
        order, inside = tiling.ordered(outer), (cut, panels, tiles)
    elif choice.dot is not None and choice.dot.in_tiles and not own:
        several = {v: n for v, n in outer.items() if v is blocks and n > 1}
        rest = {v: n for v, n in outer.items() if v not in several}
        order = [*several, panels, *(tiling.ordered(rest) if rest else ())]
    elif own and choice.prefetch:
        blocks_of_rows = [v for v in outer if v not in own]
        order = [*own, *([panels, *blocks_of_rows] if choice.prefetch_tiles is None else [*blocks_of_rows, panels])]
    elif found.panels_outside:
        order = [*own, panels, *tiling.ordered({v: n for v, n in outer.items() if v not in own})]
    else:
        order = tiling.ordered(outer | {panels: count})
    return first or order[0], [*order, *(v for v in inside if v is not None)]


def _count_panels(found: Contraction, choice: Choice) -> int:
    return -(-known(found.extents[found.columns]) // choice.tile.columns)
