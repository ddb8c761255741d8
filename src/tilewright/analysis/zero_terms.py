"""Which terms of a sum of products are zero because a factor is read from padding, and the other one is finite.

for i, a:  t[i] += p[i + a] * w[a]                  p is zero but where 1 <= i + a < 8
                                                    live_terms over a, along i in 0..7: {1, 2}, {0, 1, 2}, …, {0, 1}

for i, j, a, b, c:  t[i, j] += p[i + a, j + b, c] * w[a, b, c]        p is zero but where 1 <= i + a < 8, …

The loops around a register tile know `i`: the values of `a` that read a row of the image are a range of it. Along `j`,
of which a tile has several, they are what any of these reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from tilewright.analysis.contractions import Contraction
from tilewright.analysis.fillings import is_finite, zeros_of
from tilewright.analysis.known import bound
from tilewright.analysis.sizes import LARGE
from tilewright.expr.linear import Polynomial
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.variables import variables_of
from tilewright.loops.nodes import Function


@dataclass(frozen=True, slots=True)
class Edges:
    """The terms of a reduce axis, `axis` of the block's, that may be other than zero: a set of them, as bits, for each
    place along another axis, which are the rows of tiles (`of_rows`) or outside of tiles."""

    axis: int
    terms: int
    live: tuple[int, ...]
    of_rows: bool

    def share(self, rows: int) -> float:
        """The share of terms that tiles of so many rows have to compute."""
        each = rows if self.of_rows else 1
        tiles = [self.live[n : n + each] for n in range(0, len(self.live), each)]
        return sum(reduce(or_, tile).bit_count() for tile in tiles) / (len(tiles) * self.terms)


def left_out(edges: Sequence[Edges], rows: int) -> float:
    """The share of terms that tiles of so many rows compute, where none is that is zero along these axes."""
    return math.prod(e.share(rows) for e in edges)


def edges_of(function: Function, found: Contraction) -> list[Edges]:
    """The reduce axes of a contraction with terms that are zero."""
    axes = found.block.axes
    sizes = {n: int(e.value) for n, e in enumerate(found.extents) if isinstance(e, Const)}
    around = [n for n in (*found.batch, found.rows) if n in sizes]
    plain = found.vector.minus is None and found.broadcast.minus is None
    conditions = conditions_of_terms(function, found.vector.load, found.broadcast.load) if plain else []
    edges: list[Edges] = []
    for term in (n for n in found.reduce if n in sizes):
        about = [c for c in conditions if axes[term].var in variables_of(c)]
        used = frozenset[Var]().union(*map(variables_of, about))
        for by in [n for n in around if n is not None and used == {axes[n].var, axes[term].var}]:
            if not 0 < sizes[term] * sizes[by] <= LARGE:  # nothing, or so much that the edge counts for nothing
                continue
            live = live_terms(about, (axes[term].var, sizes[term]), (axes[by].var, sizes[by]))
            edges.append(Edges(term, sizes[term], live, by == found.rows))
    return edges


def conditions_of_terms(function: Function, a: Expr, b: Expr) -> list[Expr]:
    """Conditions, where one of which fails a product of two factors is zero: one is, and the other one is finite."""
    found: list[Expr] = []
    for one, other in ((a, b), (b, a)):
        zeros = zeros_of(function, one)
        if zeros is not None and is_finite(function, other):
            found += zeros[1]
    return found


def live_terms(conditions: Sequence[Expr], term: tuple[Var, int], place: tuple[Var, int]) -> tuple[int, ...]:
    """For each value of a place, the values of a term for which all conditions hold, which are in these two variables
    alone: sets of numbers, as bits. Variables come with how many values they have, from 0 on."""
    gaps = [p for c in conditions if (p := bound(c)) is not None]
    return tuple(
        sum(1 << t for t in range(term[1]) if _holds(gaps, {place[0]: at, term[0]: t})) for at in range(place[1])
    )


def _holds(gaps: Sequence[Polynomial], point: Mapping[Var, int]) -> bool:
    """Whether no gap is negative at a point."""
    return all(sum(c * math.prod(point[v] for v in m if isinstance(v, Var)) for m, c in p.items()) >= 0 for p in gaps)
