"""Which terms of a sum of products are zero because a factor is read from padding, and the other one is finite.

for i, a:  t[i] += p[i + a] * w[a]                  p is zero but where 1 <= i + a < 8
                                                    live_terms over a, along i in 0..7: {1, 2}, {0, 1, 2}, …, {0, 1}
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from tilewright.analysis.fillings import is_finite, zeros_of
from tilewright.analysis.known import bound
from tilewright.expr.linear import Polynomial
from tilewright.expr.nodes import Expr, Var
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
