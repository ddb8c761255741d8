"""Contractions in registers of two dimensions (target/instructions.py): sums in whole tiles, and the epilogue on what
these store to the stack.

    for jo, io: in panels of columns and tiles of rows
      for m, n: t[i, j, 16, 16] = 0                                     whole tiles, cleared
      for k: t[i, j] += x[io*R + i*16 .., k] * w[jo, k, j*16 ..]        all in registers
      s[R, V*16] = t                                                    stored by rows
      y[..] = f(s)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.expr.nodes import Var
from tilewright.loops.nodes import Store
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.choice import Choice, of_dot
from tilewright.plan.gemm.schedule import Contractions, results_apart, tile_loops
from tilewright.plan.gemm.shape import Product
from tilewright.plan.price.contraction import Dot, choose_tiles
from tilewright.plan.template import Candidate
from tilewright.plan.tile import loops as tiling
from tilewright.plan.tile import packing
from tilewright.plan.tile.registers import compute_near, hold_sums, lay_out, sums_apart
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.instructions import INSTRUCTIONS
from tilewright.types.scopes import MOST_BYTES, Scope


class TiledContractions(Contractions):
    """A kernel whose work is one product of matrices, its sums in tiles of the machine."""

    name = "contraction-in-tiles"

    def candidates(self, facts: Facts, target: Target) -> Iterator[Candidate]:
        has_tiles = any(row.has_tiles and row.runs_on(target) for row in INSTRUCTIONS.values())
        return super().candidates(facts, target) if has_tiles else iter(())

    def choices(self, shape: Product, target: Target) -> Iterator[Choice]:
        size = shape.size
        dot = choose_tiles(size.element.dtype, size.vector.dtype, size.sums, target)
        is_product = size.vector.plain and size.element.plain and size.axes == 1 and not size.edges
        known = size.rows and size.summed and not (size.any_rows or size.any_columns)
        if dot is None or not is_product or not known or len(_places(shape.found)) < 2:
            return
        plain = (replace(c, prefetch=0, prefetch_tiles=None) for c in of_dot(size.taken(dot), target))
        for choice in dict.fromkeys(plain):
            ready = size.is_ready(dot) and size.rows % choice.tile.rows == 0
            if choice.tile.rows * choice.tile.columns * size.sums.bytes <= MOST_BYTES[Scope.REGISTER]:
                yield replace(choice, dot=dot, pack_broadcast=not ready)

    def apply(self, s: Schedule, shape: Product, choice: Choice) -> Schedule:
        found, block, dot = shape.found, shape.found.block.name, choice.dot
        assert dot is not None
        assert found.rows is not None
        results, sums = results_apart(s, found)
        moved, own = sums_apart(s, block)
        panel = packing.pack(s, found, found.vector, found.columns, choice.tile.columns, dot)
        if choice.pack_broadcast:
            copy = packing.pack(s, found, found.broadcast, found.rows, choice.tile.rows, dot, of_rows=True)
            s.vectorize(s.get_loops(copy)[-1])
            s.parallel(s.get_loops(copy)[0])
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
        _in_whole_tiles(s, found, dot, own, moved, nest.row, nest.together)
        for name in results:
            s.vectorize(s.split(s.get_loops(name)[-1], choice.tile.lanes, tail="mask")[1])
        s.parallel(nest.outer)
        return s


def _places(found: Contraction) -> list[int]:
    """The dimensions of the result that rows and columns index by themselves; fewer where one does not."""
    axes, body = found.block.axes, found.block.body
    indices = body.indices if isinstance(body, Store) else ()
    wanted = [axes[n].var for n in (found.rows, found.columns) if n is not None]
    return [indices.index(var) for var in wanted if var in indices]


def _in_whole_tiles(s: Schedule, found: Contraction, dot: Dot, own: str, moved: str, row: Var, together: Var) -> None:
    """The sums, `own`, lie tile by tile; the nests that clear them, add to them and store them are instructions."""
    block, high, wide = found.block.name, dot.rows, dot.lanes
    loops = s.get_loops(block)
    s.decompose_reduction(block, loops[loops.index(row) - 1])
    s.split(s.get_loops(moved)[-1], wide)
    sizes = dict(zip(_places(found), (high, wide), strict=True))

    def layout(d: list[str]) -> list[str]:
        rest = [word for n, word in enumerate(d) if n not in sizes]
        cut = [(d[n], size) for n, size in sizes.items()]
        return [*rest, *(f"{word} // {size}" for word, size in cut), *(f"{word} % {size}" for word, size in cut)]

    lay_out(s, own, layout)
    terms = s.split(together, dot.beside)
    row_of = INSTRUCTIONS[dot.instruction]
    for name, instruction, inner in (
        (f"{block}.init", row_of.clears, ()),
        (block, row_of.name, terms),
        (moved, row_of.moves, ()),
    ):
        loops = s.get_loops(name)
        rows, vectors, lane = loops[len(loops) - len(inner) - 3 : len(loops) - len(inner)]
        some, each = s.split(rows, high)
        s.reorder(some, vectors, each, lane, *inner)
        s.tensorize(each, instruction)
        s.unroll(some)
        s.unroll(vectors)
