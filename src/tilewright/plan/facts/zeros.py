"""Terms of a contraction that are zero because they read the padding of an image.

    for i, j, a, b, c:  t[i, j] += p[i + a, j + b, c] * w[a, b, c]        p is zero but where 1 <= i + a < 8, …

The loops around a register tile know `i`: the values of `a` that read a row of the image are a range of it. Along `j`,
of which a tile has several, they are what any of these reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.analysis.fillings import is_finite, zeros_of
from tilewright.analysis.known import bound
from tilewright.expr.linear import Polynomial
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.variables import variables_of
from tilewright.loops.nodes import Function
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.price.contraction import pays


@dataclass(frozen=True, slots=True)
class Edges:
    """The terms of a reduce axis, `axis` of the block's, that may be other than zero: a set of them, as bits, for each
    place along another axis, which are the rows of tiles (`of_rows`) or outside of tiles."""

    axis: int
    terms: int
    lives: tuple[int, ...]
    of_rows: bool

    def share(self, rows: int) -> float:
        """The share of terms that tiles of so many rows have to compute."""
        each = rows if self.of_rows else 1
        tiles = [self.lives[n : n + each] for n in range(0, len(self.lives), each)]
        return sum(_union(tile).bit_count() for tile in tiles) / (len(tiles) * self.terms)


def _union(sets: Sequence[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found


def left_out(edges: Sequence[Edges], rows: int) -> float:
    """The share of terms that tiles of so many rows compute, where none is that is zero along these axes."""
    return math.prod(e.share(rows) for e in edges)


def edges_first(function: Function, found: Contraction) -> tuple[Contraction, tuple[Edges, ...]]:
    """The reduce axes with terms to leave out, where that pays, and the contraction that adds up terms along these
    outermost: the loops inside have bounds of their own."""
    edges = tuple(e for e in _edges(function, found) if pays(1.0, e.share(1)))
    first = tuple(e.axis for e in edges)
    return replace(found, reduce=(*first, *(n for n in found.reduce if n not in first))), edges


def _edges(function: Function, found: Contraction) -> list[Edges]:
    axes = found.block.axes
    sizes = {n: int(e.value) for n, e in enumerate(found.extents) if isinstance(e, Const)}
    around = [n for n in (*found.batch, *([] if found.rows is None else [found.rows])) if n in sizes]
    conditions = _conditions(function, found)
    made: list[Edges] = []
    for term in (n for n in found.reduce if n in sizes):
        about = [c for c in conditions if axes[term].var in variables_of(c)]
        used = frozenset[Var]().union(*map(variables_of, about))
        places = [n for n in around if used == {axes[n].var, axes[term].var}]
        if places:
            gaps = [p for c in about if (p := bound(c)) is not None]
            (by,) = places
            lives = (
                sum(1 << t for t in range(sizes[term]) if _holds(gaps, {axes[by].var: place, axes[term].var: t}))
                for place in range(sizes[by])
            )
            made.append(Edges(term, sizes[term], tuple(lives), by == found.rows))
    return made


def _conditions(function: Function, found: Contraction) -> list[Expr]:
    """Where one of them fails, a factor is zero and the other one a finite number."""
    conditions: list[Expr] = []
    for one, other in ((found.vector, found.broadcast), (found.broadcast, found.vector)):
        zeros = zeros_of(function, one.load) if one.minus is None else None
        if zeros is not None and is_finite(function, other.load):
            conditions += zeros[1]
    return conditions


def _holds(gaps: Sequence[Polynomial], point: Mapping[Var, int]) -> bool:
    """Whether no gap is negative at a point."""
    return all(sum(c * math.prod(point[v] for v in m if isinstance(v, Var)) for m, c in p.items()) >= 0 for p in gaps)
