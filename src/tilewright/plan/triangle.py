"""Products with a triangular operand: the terms that are zero are not computed.

    for i, j, k:
      block dot(vi = i, vj = j, reduce vk = k) where vk <= vj:          w is upper triangular
        init: y[vi, vj] = 0
        y[vi, vj] += x[vi, vk] * w[vk, vj]

A register tile of R rows and C columns sums up the terms before its first column without a condition, those of the
square on the diagonal under a mask, and none of those behind it: half of them, for large matrices. With vk <= vi it is
the other operand that is triangular, lower then, and the edge moves with the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.analysis.contractions import Contraction, contraction_of
from tilewright.expr.nodes import Const, Le, Lt
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.price.contraction import RegisterTile, Sums, cycles, tiles
from tilewright.plan.template import Template
from tilewright.plan.tile.loops import order_tile, split_tile, write_out_columns
from tilewright.plan.tile.registers import hold_sums, sums_apart
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.transfer import fits


@dataclass(frozen=True, slots=True)
class Triangle:
    """A product of M x K by K x N without the terms behind an edge: the kth is there up to the row, or the column, of
    that number; `by_rows` says which."""

    found: Contraction
    rows: int
    columns: int
    terms: int
    by_rows: bool


class TriangularProducts(Template[Triangle, RegisterTile]):
    """A kernel that is one product with a triangular operand, of known sizes. The tile of registers divides its rows
    and its columns."""

    name = "triangle"
    choice = RegisterTile

    def recognise(self, facts: Facts) -> Triangle | None:
        if len(facts.blocks) != 1 or not facts.sums:
            return None
        (block,) = facts.blocks
        found = contraction_of(facts.function, block, bounded=True)
        sizes = [int(e.value) for e in found.extents if isinstance(e, Const)] if found is not None else []
        if found is None or not found.is_product or found.rows is None:
            return None
        if len(block.axes) != 3 or len(sizes) != 3 or 0 in sizes:
            return None
        edges = {block.axes[found.rows].var: True, block.axes[found.columns].var: False}
        match block.where:
            case Le(k, edge) | Lt(k, edge) if k is block.axes[found.reduce[0]].var and edge in edges:
                rows, columns, terms = (sizes[n] for n in (found.rows, found.columns, *found.reduce))
                return Triangle(found, rows, columns, terms, edges[edge])
        return None

    def choices(self, shape: Triangle, target: Target) -> Iterator[RegisterTile]:
        for tile in tiles(_sums(shape, shape.terms, 1, target), target):
            if shape.rows % tile.rows == 0 and shape.columns % tile.columns == 0:
                yield tile

    def price(self, choice: RegisterTile, shape: Triangle, target: Target) -> float:
        """The terms that a tile runs, on average; those of the square count twice, for their masks."""
        side = choice.rows if shape.by_rows else choice.columns
        ends = range(side, (shape.rows if shape.by_rows else shape.columns) + 1, side)
        terms = math.fsum(min(end + side, shape.terms) for end in ends) / len(ends)
        sums = _sums(shape, math.ceil(terms), choice.columns, target)
        return cycles(sums, choice, target) / target.core.hertz

    def apply(self, s: Schedule, shape: Triangle, choice: RegisterTile) -> Schedule:
        found, dot, tile = shape.found, shape.found.block.name, choice
        write, sums = sums_apart(s, dot)
        loops = s.get_loops(dot)
        assert found.rows is not None
        panels, bands, row, vectors, lane = split_tile(s, loops[found.rows], loops[found.columns], tile)
        term = loops[found.reduce[0]]
        order_tile(s, [panels, bands, term], [row, vectors, lane])
        hold_sums(s, sums, [write], bands)
        s.decompose_reduction(dot, term)
        _, edge = s.partition(term)
        if edge is not None:
            s.attempt(s.partition, edge)
        write_out_columns(s, write, bands, tile)
        s.parallel(panels)
        return s


def _sums(shape: Triangle, terms: int, panel: int, target: Target) -> Sums:
    """The product with so many terms, and panels of so many columns, which are read where they lie."""
    each = shape.found.out.dtype.bytes
    return Sums(
        shape.rows,
        shape.columns,
        terms,
        bits=8 * each,
        panel=fits(shape.terms * panel * each, target),
        first=fits(shape.terms * shape.columns * each, target),
        elements=fits(shape.rows * shape.terms * each, target),
    )
