"""Selections: meaning against Python's stable sort, definition against meaning, exactly."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_cases import CASES, Case, Draw, array, case, check, kinds, shapes, thorough

from tilewright.expr.dtypes import bool_
from tilewright.graph.op import REGISTRY
from tilewright.report.errors import RuntimeFault


@case("top_k")
def top_ks(draw: Draw) -> Case:
    dtype = draw(st.sampled_from(kinds("biuf")))
    x = array(draw, shapes(draw, 1), dtype, small=draw(st.booleans()))
    axis, largest = draw(st.integers(0, x.ndim - 1)), draw(st.booleans())
    return sorted_case(x, axis, draw(st.integers(0, x.shape[axis])), largest)


def sorted_case(x: Any, axis: int, k: int, largest: bool) -> Case:
    def order(a: tuple[int, Any], b: tuple[int, Any]) -> int:
        """NaN last, then by value, ties in the order they come (Python's sort is stable)."""
        (_, av), (_, bv) = a, b
        if av != av or bv != bv:
            return int(av != av) - int(bv != bv)
        return (int(av < bv) - int(av > bv)) * (1 if largest else -1)

    lines = np.moveaxis(x, axis, -1)
    values, places = np.empty((*lines.shape[:-1], k), x.dtype), np.empty((*lines.shape[:-1], k), np.int64)
    for at in np.ndindex(lines.shape[:-1]):
        line = [v if x.dtype.kind in "biu" else float(v) for v in lines[at]]
        ranked = sorted(enumerate(line), key=functools.cmp_to_key(order))[:k]
        places[at] = [n for n, _ in ranked]
        values[at] = lines[at][places[at]]
    expected = [np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)]
    return Case([x], {"axis": axis, "k": k, "largest": largest}, expected)


@case("compact")
def compactions(draw: Draw) -> Case:
    mask = array(draw, shapes(draw), bool_)
    places = [at for at in np.ndindex(mask.shape) if mask[at]]
    expected = np.array(places, np.int64).reshape(len(places), mask.ndim)
    return Case([mask], {"size": len(places)}, [expected])


@pytest.mark.parametrize("name", ["top_k", "compact"])
@given(data=st.data())
@thorough
def test_meaning_and_definition(name: str, data: st.DataObject) -> None:
    check(name, CASES[name](data.draw))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 2, 50, 99, 100])
def test_long_lines_with_many_ties_are_sorted_stably(k: int, largest: bool) -> None:
    x = np.random.default_rng(k).integers(0, 12, 100).astype(np.float32)
    x[::17] = math.nan
    check("top_k", sorted_case(x, 0, k, largest))


def test_a_mask_with_another_count_than_promised_is_a_fault() -> None:
    op = REGISTRY["compact"]
    with pytest.raises(RuntimeFault, match="the mask has 2 true elements, not 1"):
        op.meaning((np.array([True, True]),), op.attributes(size=1))
