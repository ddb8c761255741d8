"""Contractions in registers of two dimensions (target/instructions.py): sums in whole tiles, and the epilogue on what
these store to the stack.

    for jo, io: in panels of columns and tiles of rows
      for m, n: t[i, j, 16, 16] = 0                                     whole tiles, cleared
      for k: t[i, j] += x[io*R + i*16 .., k] * w[jo, k, j*16 ..]        all in registers
      s[R, V*16] = t                                                    stored by rows
      y[..] = f(s)

Of many terms a block at a time is added, for all tiles of rows: they read a part of a panel from the first cache.

Windows of images with channels innermost are read as they lie, in tiles that end where rows of an image do: all images
and rows pass by a panel, two or three rows of a small image beside each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilewright.analysis.contractions import Contraction
from tilewright.analysis.sizes import even_terms
from tilewright.expr.dtypes import DTYPES
from tilewright.expr.nodes import Var
from tilewright.loops.decompose import summed_loops
from tilewright.plan.gemm.choice import Choice, of_dot
from tilewright.plan.gemm.schedule import Contractions, results_apart, tile_loops
from tilewright.plan.gemm.shape import Product, Size
from tilewright.plan.price.contraction import Dot
from tilewright.plan.price.dots import choose_tiles
from tilewright.plan.tile import loops as tiling
from tilewright.plan.tile import packing
from tilewright.plan.tile.registers import Layout, compute_near, hold_sums, lay_out, sums_apart
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.instructions import TILE_REGISTERS
from tilewright.target.transfer import room_in
from tilewright.types.scopes import MOST_BYTES, Scope


class TiledContractions(Contractions):
    """A kernel whose work is one contraction of known sizes, its sums in tiles of the machine."""

    name = "contraction-in-tiles"

    def choices(self, shape: Product, target: Target) -> Iterator[Choice]:
        size = shape.size
        whole = choose_tiles(size.element.dtype, size.vector.dtype, size.sums, target)
        known = size.rows and size.summed and not size.instructions and not (size.any_rows or size.any_columns)
        if whole is None or not (size.vector.plain and known) or len(shape.found.places) < 2:
            return
        for dot in whole.of_rows(size.rows) if size.is_ready(whole) else (whole,):
            yield from _choices(size, dot, target)
            for beside in range(2, TILE_REGISTERS // 2) if size.rows == dot.rows else ():
                if size.lines % beside == 0:
                    yield from _choices(size, dot, target, beside)

    def apply(self, s: Schedule, shape: Product, choice: Choice) -> Schedule:
        assert choice.dot is not None
        results, sums = results_apart(s, shape.found)
        summed = _whole_sums if choice.block_terms is None else _in_blocks
        outer = summed(s, shape.found, choice, choice.dot, results, sums)
        for name in results:
            s.vectorize(s.split(s.get_loops(name)[-1], choice.tile.lanes, tail="mask")[1])
        _share(s, shape.found, outer)
        return s


def _choices(size: Size, dot: Dot, target: Target, beside: int = 1) -> Iterator[Choice]:
    """The ways to run a product by one instruction. Windows are read as they lie, in tiles that end where rows do, with
    the rows of so many batches `beside` each other."""
    size = size.side_by_side(beside)
    taken = size.taken(dot)
    line = target.caches[0].line // DTYPES[dot.vector].bytes
    for choice in (replace(c, prefetch=line * (c.prefetch > 0), beside=beside) for c in of_dot(taken, target)):
        tile = choice.tile
        whole = size.rows % tile.rows == 0
        ready = size.is_ready(dot) and whole
        if beside > 1 and (tile.rows != beside * dot.rows or not ready):
            continue
        if tile.rows * tile.columns * size.sums.bytes > MOST_BYTES[Scope.REGISTER] or not (ready or size.element.plain):
            continue
        found = replace(choice, dot=dot, pack_broadcast=not ready)
        yield found
        step = tile.columns * taken.vector.bytes + tile.rows * taken.element.bytes
        most = int(room_in(target.caches[0].bytes)) // step
        even = whole and size.columns % tile.columns == 0 and size.element.plain and size.axes == 1
        if even and size.vector.constant and 1 < most < taken.terms:
            yield replace(found, block_terms=even_terms(taken.terms, most), block_panels=None, prefetch=0)


def _whole_sums(s: Schedule, found: Contraction, choice: Choice, dot: Dot, results: Sequence[str], sums: str) -> Var:
    """Tiles sum up all terms, and store them to the stack for the results. Returns the loop that threads share."""
    block = found.block.name
    moved, own = sums_apart(s, block)
    panel = _pack(s, found, choice, dot)
    nest = tile_loops(s, found, choice)
    hold_sums(s, own, [moved], nest.tiles)
    hold_sums(s, sums, results, nest.tiles, "stack")
    assert nest.row is not None
    assert nest.together is not None
    if tiling.is_bounded(s, block, nest.together):
        s.pad_sum(block, nest.together)
    tiling.settle_edges(s, found, choice.tile, nest.row, nest.lane, block, packed=True)
    for loop in s.get_loops(moved)[-2:]:
        if tiling.is_bounded(s, moved, loop):
            s.pad(moved, loop)
    if not found.vector.is_constant:
        compute_near(s, panel, nest.panels)
        packing.copy_vectors(s, panel, dot.beside, choice.tile.lanes)
        packing.edges_apart(s, panel, nest.panels)
    loops = s.get_loops(block)
    s.decompose_reduction(block, loops[loops.index(nest.tiles) + 1])
    s.split(s.get_loops(moved)[-1], dot.lanes)
    lay_out(s, own, _by_tiles(found, dot, dot.rows, dot.lanes))
    _in_whole_tiles(s, found, dot, nest.together, moved, f"{block}.init", choice.beside)
    if choice.prefetch:
        terms = tiling.inside_of(s, block, nest.tiles)[len(found.reduce) - 1]
        s.prefetch(panel, nest.panels, 1, terms, apart=choice.prefetch, level=2)
    return nest.outer


def _share(s: Schedule, found: Contraction, outer: Var) -> None:
    """The outer loop is parallel; where it has few iterations, together with those inside it."""
    block = find_block(s.func, found.block.name)
    inside, shared = tiling.inside_of(s, block.name, outer), outer
    s.parallel(outer)
    for loop in itertools.takewhile(lambda v: v not in summed_loops(block), inside):
        if shared is None or tiling.extent(s, shared) >= tiling.MANY:
            break
        shared = s.attempt(_fuse_parallel, s, shared, loop)


def _fuse_parallel(s: Schedule, outer: Var, inner: Var) -> Var:
    s.parallel(inner)
    fused: Var = s.fuse(outer, inner)
    return fused


def _pack(s: Schedule, found: Contraction, choice: Choice, dot: Dot) -> str:
    """Packs the factor of columns, and that of rows if the choice says so. Returns the block that fills the first."""
    panel = packing.pack(s, found, found.vector, found.columns, choice.tile.columns, dot)
    if choice.pack_broadcast and found.rows is not None:
        copy = packing.pack(s, found, found.broadcast, found.rows, choice.tile.rows, dot, of_rows=True)
        s.vectorize(s.get_loops(copy)[-1])
        s.parallel(s.get_loops(copy)[0])
    return panel


def _in_blocks(s: Schedule, found: Contraction, choice: Choice, dot: Dot, results: Sequence[str], sums: str) -> Var:
    """Sums in blocks of terms, so that what all tiles of rows read of a panel stays in the first cache: tiles of sums
    lie in memory tile by tile, and are taken up and put down for each block."""
    block = found.block.name
    _pack(s, found, choice, dot)
    nest = tile_loops(s, found, choice)
    assert nest.terms is not None
    assert nest.together is not None
    loops = s.get_loops(block)
    hold_sums(s, sums, results, loops[loops.index(nest.terms) - 1], "")
    lay_out(s, sums, _by_tiles(found, dot, choice.tile.rows, choice.tile.columns))
    if tiling.is_bounded(s, block, nest.together):
        s.pad_sum(block, nest.together)
    s.decompose_reduction(block, nest.terms)
    s.stage(sums, nest.tiles, scope="register")
    _in_whole_tiles(s, found, dot, nest.together)
    assert dot.row is not None
    for name in (f"{sums}.load", f"{sums}.store"):
        *outer, each, _ = s.get_loops(name)
        s.tensorize(each, dot.row.moves)
        for loop in outer[s.get_loops(name).index(nest.tiles) + 1 :]:
            s.unroll(loop)
    s.vectorize(s.get_loops(f"{block}.init")[-1])
    return nest.outer


def _by_tiles(found: Contraction, dot: Dot, rows: int, columns: int) -> Layout:
    """Sums in parts of so many rows and columns, each part tile by tile."""
    sizes = dict(zip(found.places, ((rows, dot.rows), (columns, dot.lanes)), strict=True))

    def layout(d: list[str]) -> list[str]:
        rest = [word for n, word in enumerate(d) if n not in sizes]
        parts = [f"{d[n]} // {part}" for n, (part, _) in sizes.items()]
        tiles = [f"{d[n]} % {part} // {each}" for n, (part, each) in sizes.items() if part > each]
        return [*rest, *parts, *tiles, *(f"{d[n]} % {each}" for n, (_, each) in sizes.items())]

    return layout


def _in_whole_tiles(
    s: Schedule, found: Contraction, dot: Dot, together: Var, moved: str = "", begun: str = "", beside: int = 1
) -> None:
    """The nests that add to tiles and, where they are named, store them and clear them are instructions."""
    terms, row_of = s.split(together, dot.beside), dot.row
    assert row_of is not None
    nests = ((begun, row_of.clears, ()), (found.block.name, row_of.name, terms), (moved, row_of.moves, ()))
    for name, instruction, inner in nests:
        if name:
            loops = s.get_loops(name)
            rows, vectors, lane = loops[len(loops) - len(inner) - 3 : len(loops) - len(inner)]
            some, each = s.split(rows, dot.rows)
            s.reorder(some, vectors, each, lane, *inner)
            s.tensorize(each, instruction)
            around = loops[: loops.index(rows)]
            for loop in around[len(around) - (beside > 1) :]:
                s.unroll(loop)
            s.unroll(some)
            s.unroll(vectors)
