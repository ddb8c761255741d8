"""Index maps: no two elements share a place, all places are inside, and a place tells which element it holds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.expr.index_map import read_map
from tilewright.expr.nodes import const
from tilewright.expr.simplify import simplify

MAPS = [
    "i, j -> j, i",
    "i, j -> j // 4, i, j % 4",
    "i, j -> i // 6, j // 8, i % 6, j // 2 % 4, j % 2",
    "i, j -> j // 2 // 2, i, j % 4",
    "i, j -> j // 8, i, j % 8 // 2, j % 2",
    "i, j -> j // 1, i, j % 1",
]


@pytest.mark.parametrize("text", MAPS)
@pytest.mark.parametrize("extents", [(1, 1), (6, 8), (7, 13)])
def test_elements_lie_apart_and_inside(text: str, extents: tuple[int, int]) -> None:
    layout = read_map(text, 2)
    shape = [int(str(e)) for e in layout.shape([const(e) for e in extents])]
    seen = set()
    for point in itertools.product(*map(range, extents)):
        places = [simplify(e) for e in layout.places([const(p) for p in point])]
        assert [str(simplify(e)) for e in layout.elements(places)] == [str(p) for p in point]
        seen.add(tuple(int(str(p)) for p in places))
        assert all(0 <= int(str(p)) < e for p, e in zip(places, shape, strict=True))
    assert len(seen) == extents[0] * extents[1]
    assert len(set(layout.labels())) == len(shape)
    assert (len(seen) < np.prod(shape)) == bool(layout.padded([const(e) for e in extents]))
