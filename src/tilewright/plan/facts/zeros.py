"""Terms of a contraction that are zero because they read the padding of an image.

    for i, j, a, b, c:  t[i, j] += p[i + a, j + b, c] * w[a, b, c]        p is zero but where 1 <= i + a < 8, …

The loops around a register tile know `i`: the values of `a` that read a row of the image are a range of it. Along `j`,
of which a tile has several, they are what any of these reads.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.analysis.contractions import Contraction
from tilewright.analysis.sizes import LARGE
from tilewright.analysis.zero_terms import Edges, conditions_of_terms, live_terms
from tilewright.expr.nodes import Const, Var
from tilewright.expr.variables import variables_of
from tilewright.loops.nodes import Function
from tilewright.plan.price.contraction import pays


def edges_first(function: Function, found: Contraction) -> tuple[Contraction, tuple[Edges, ...]]:
    """The reduce axes with terms to leave out, where that pays, and the contraction that adds up terms along these
    outermost: the loops inside have bounds of their own."""
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
    paying = tuple(e for e in edges if pays(1.0, e.share(1)))
    first = tuple(e.axis for e in paying)
    return replace(found, reduce=(*first, *(n for n in found.reduce if n not in first))), paying
