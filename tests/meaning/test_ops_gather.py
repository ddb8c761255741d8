"""Gathers and scatters: meaning against an element-by-element account, definition against meaning; faults alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_cases import CASES, SIZES, Array, Case, Draw, array, case, check, definition, kinds, shapes, thorough

from tilewright.expr.dtypes import i64
from tilewright.graph.op import REGISTRY, TypeContext
from tilewright.loops.evaluate import evaluate as run
from tilewright.report.errors import RuntimeFault
from tilewright.types.tensor import TensorType

ANY = kinds("biuf")
NAMES = ("checked_indices", "take", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd")


def indices(draw: Draw, shape: tuple[int, ...], limit: int) -> Array:
    """Indices in [0, limit); no elements where the limit is 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.integers(0, max(limit, 1), shape)


def some(draw: Draw, limit: int) -> int:
    """An extent for indices below `limit`."""
    return draw(st.sampled_from(SIZES)) if limit else 0


@case("checked_indices")
def checks(draw: Draw) -> Case:
    limit = draw(st.sampled_from((1, 2, 5, 7)))
    wrapped = indices(draw, shapes(draw), limit)
    given_indices = np.where(array(draw, wrapped.shape, kinds("b")[0]), wrapped - limit, wrapped)
    return Case([given_indices], {"limit": limit, "what": "Gather 'x'"}, [wrapped])


@case("take")
def takes(draw: Draw) -> Case:
    x = array(draw, shapes(draw, 1), draw(st.sampled_from(ANY)))
    axis = draw(st.integers(0, x.ndim - 1))
    index = indices(draw, shapes(draw, 0 if x.shape[axis] else 1, 2) if x.shape[axis] else (0,), x.shape[axis])
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    expected = np.empty(before + index.shape + after, x.dtype)
    for at in np.ndindex(expected.shape):
        picked = index[at[axis : axis + index.ndim]]
        expected[at] = x[(*at[:axis], picked, *at[axis + index.ndim :])]
    return Case([x, index], {"axis": axis}, [expected])


@case("gather_elements")
def element_gathers(draw: Draw) -> Case:
    x = array(draw, shapes(draw, 1), draw(st.sampled_from(ANY)))
    axis = draw(st.integers(0, x.ndim - 1))
    shape = [some(draw, n) if d == axis else draw(st.integers(0, n)) for d, n in enumerate(x.shape)]
    index = indices(draw, tuple(shape), x.shape[axis])
    expected = np.empty(index.shape, x.dtype)
    for at in np.ndindex(index.shape):
        expected[at] = x[(*at[:axis], index[at], *at[axis + 1 :])]
    return Case([x, index], {"axis": axis}, [expected])


def tuples(draw: Draw, rows: tuple[int, ...], limits: tuple[int, ...]) -> Array:
    """One index below each limit, for each row."""
    parts = [indices(draw, rows, n) for n in limits]
    return np.stack(parts, axis=-1) if parts else np.zeros((*rows, 0), np.int64)


@case("gather_nd")
def nd_gathers(draw: Draw) -> Case:
    x = array(draw, shapes(draw), draw(st.sampled_from(ANY)))
    batch = draw(st.integers(0, x.ndim))
    depth = draw(st.integers(0, x.ndim - batch))
    limits = x.shape[batch : batch + depth]
    free = shapes(draw, 0, 1) if 0 not in limits else (0,)
    index = tuples(draw, x.shape[:batch] + free, limits)
    expected = np.empty(index.shape[:-1] + x.shape[batch + depth :], x.dtype)
    for row in np.ndindex(index.shape[:-1]):
        expected[row] = x[(*row[:batch], *index[row])]
    return Case([x, index], {"batch_dims": batch}, [expected], constant=((1, index.ndim - 1),))


COMBINE: dict[str, Any] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old | new if old.dtype == bool else old + new,
    "mul": lambda old, new: old & new if old.dtype == bool else old * new,
    "max": np.maximum,
    "min": np.minimum,
}


@case("scatter_elements")
def element_scatters(draw: Draw) -> Case:
    x = array(draw, shapes(draw, 1), draw(st.sampled_from(ANY)), special=False)
    axis = draw(st.integers(0, x.ndim - 1))
    shape = tuple(some(draw, n) if d == axis else draw(st.integers(0, n)) for d, n in enumerate(x.shape))
    index = indices(draw, shape, x.shape[axis])
    updates = array(draw, shape, next(d for d in ANY if d.numpy == x.dtype))
    kind = draw(st.sampled_from(sorted(COMBINE)))
    expected = x.copy()
    with np.errstate(all="ignore"):
        for at in np.ndindex(shape):
            place = (*at[:axis], index[at], *at[axis + 1 :])
            expected[place] = COMBINE[kind](expected[place], updates[at])
    return Case([x, index, updates], {"axis": axis, "reduction": kind}, [expected])


@case("scatter_nd")
def nd_scatters(draw: Draw) -> Case:
    x = array(draw, shapes(draw), draw(st.sampled_from(ANY)), special=False)
    depth = draw(st.integers(0, x.ndim))
    rows = shapes(draw, 0, 2) if 0 not in x.shape[:depth] else (0,)
    index = tuples(draw, rows, x.shape[:depth])
    updates = array(draw, rows + x.shape[depth:], next(d for d in ANY if d.numpy == x.dtype))
    kind = draw(st.sampled_from(sorted(COMBINE)))
    expected = x.copy()
    with np.errstate(all="ignore"):
        for at in np.ndindex(updates.shape):
            place = (*index[at[: len(rows)]], *at[len(rows) :])
            expected[place] = COMBINE[kind](expected[place], updates[at])
    return Case([x, index, updates], {"reduction": kind}, [expected], constant=((1, index.ndim - 1),))


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@thorough
def test_meaning_and_definition(name: str, data: st.DataObject) -> None:
    check(name, CASES[name](data.draw))


@pytest.mark.parametrize(
    ("wrong", "limit", "from_end"),
    [
        *((3, 3, True), (-4, 3, True), (0, 0, True), (2**63 - 1, 7, True), (-(2**63), 7, True)),
        *((3, 3, False), (-1, 3, False), (-(2**63), 7, False)),
    ],
)
def test_an_index_out_of_range_is_the_same_fault_at_both_levels(wrong: int, limit: int, from_end: bool) -> None:
    op = REGISTRY["checked_indices"]
    record = op.attributes(limit=limit, what="Gather 'e{0}'", from_end=from_end)
    index = np.array([min(limit - 1, 1)] * (limit > 0) + [wrong, -(2**62)])
    type = TensorType.of(i64, index.shape)
    shown = f"index {wrong} is outside [-{limit}, {limit})" if from_end else f"{wrong} is outside [0, {limit})"
    wanted = f"Gather 'e(0)': {shown}"
    with pytest.raises(RuntimeFault) as meaning:
        op.meaning((index,), record)
    function = definition(op, [type], op.infer(TypeContext(op.name), (type,), record), record, ())
    with pytest.raises(RuntimeFault) as defined:
        run(function, [index, np.zeros_like(index)])
    assert str(meaning.value) == wanted
    assert str(defined.value) == wanted


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reduction", sorted(COMBINE))
def test_scatters_and_gathers_along_each_axis(axis: int, reduction: str) -> None:
    rng = np.random.default_rng(axis)
    x, shape = rng.integers(0, 99, (2, 3, 5)), [2, 3, 5]
    shape[axis] = 7
    index, updates = rng.integers(0, x.shape[axis], shape), rng.integers(0, 99, shape)
    scattered, gathered = x.copy(), np.empty(shape, x.dtype)
    for at in np.ndindex(*shape):
        place = (*at[:axis], index[at], *at[axis + 1 :])
        scattered[place] = COMBINE[reduction](scattered[place], updates[at])
        gathered[at] = x[place]
    check("scatter_elements", Case([x, index, updates], {"axis": axis, "reduction": reduction}, [scattered]))
    check("gather_elements", Case([x, index], {"axis": axis}, [gathered]))
