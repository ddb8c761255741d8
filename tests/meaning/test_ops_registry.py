"""Every operator kind that computes has a docstring, a meaning, a definition, and a case that compares them."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import test_ops_contract
import test_ops_elementwise
import test_ops_gather
import test_ops_movement
import test_ops_quantized
import test_ops_reduce
import test_ops_sort
import test_ops_strassen
import test_ops_winograd
from hypothesis import assume, given
from hypothesis import strategies as st
from op_cases import CASES, Case, Draw, case, check, quick, same, shapes

from tilewright.expr.dtypes import DTYPES, i64
from tilewright.expr.nodes import const
from tilewright.graph.op import REGISTRY, Op, Pattern

FAMILIES = (
    test_ops_contract,
    test_ops_elementwise,
    test_ops_gather,
    test_ops_movement,
    test_ops_quantized,
    test_ops_reduce,
    test_ops_sort,
    test_ops_strassen,
    test_ops_winograd,
)
COMPUTING = sorted(name for name, op in REGISTRY.items() if op.pattern is not Pattern.SHAPE)


@case("full")
def fills(draw: Draw) -> Case:
    dtype = draw(st.sampled_from([d for d in DTYPES.values() if d.is_int or d.is_bool]))
    value, shape = draw(st.integers(int(dtype.min), int(dtype.max))), shapes(draw)
    expected = np.zeros(shape, dtype.numpy) + dtype.numpy.type(value)
    return Case([], {"value": const(value, dtype), "shape": shape}, [expected.astype(dtype.numpy)])


@case("index_values")
def index_values(draw: Draw) -> Case:
    shape = shapes(draw, 0, 2)
    values = draw(st.lists(st.integers(0, 99), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    return Case([], {"values": tuple(values), "shape": shape}, [np.array(values, np.int64).reshape(shape)])


@case("iota")
def iotas(draw: Draw) -> Case:
    shape = shapes(draw, 1)
    axis = draw(st.integers(0, len(shape) - 1))
    expected = np.indices(shape)[axis]
    return Case([], {"shape": shape, "axis": axis, "dtype": i64}, [expected])


@pytest.mark.parametrize("name", ["full", "index_values", "iota"])
@given(data=st.data())
@quick
def test_meaning_and_definition(name: str, data: st.DataObject) -> None:
    check(name, CASES[name](data.draw))


def test_every_family_has_cases() -> None:
    for family in FAMILIES:
        assert any(make.__module__ == family.__name__ for make in CASES.values()), family.__name__


@pytest.mark.parametrize("name", COMPUTING)
def test_every_operator_is_complete(name: str) -> None:
    op = REGISTRY[name]
    assert op.name == name
    assert inspect.cleandoc(op.__doc__ or "")
    assert op.__doc__ != Op.__doc__
    assert type(op).define is not Op.define
    assert not getattr(type(op).meaning, "__isabstractmethod__", False)
    assert name in CASES, f"no differential test draws a case of {name}: see tests/meaning/op_cases.py"


REORDERED = sorted(name for name in COMPUTING if type(REGISTRY[name]).reordered is not Op.reordered)


@pytest.mark.parametrize("name", [*REORDERED, "add", "sigmoid"])
@given(data=st.data())
@quick
def test_dimensions_in_another_order(name: str, data: st.DataObject) -> None:
    """With the attributes of `reordered`, an operator makes the transposed result of transposed inputs."""
    made, op = CASES[name](data.draw), REGISTRY[name]
    record = op.attributes(**made.attrs)
    (wanted,) = op.meaning(tuple(made.inputs), record)
    ranks = {x.ndim for x in made.inputs}
    assume(made.inputs[0].ndim == wanted.ndim and (not op.elementwise or len(ranks) == 1))
    order = tuple(data.draw(st.permutations(range(wanted.ndim))))
    other = op.reordered(record, order)
    assert other is not None
    (found,) = op.meaning(tuple([x.transpose(order) if x.ndim == len(order) else x for x in made.inputs]), other)
    same(np.asarray(found), wanted.transpose(order), 0.0)


def test_operators_that_have_no_other_order() -> None:
    attrs = REGISTRY["transpose"].attributes(perm=(1, 0))
    assert REORDERED == ["concat", "pad", "slice", "take", "window_reduce"]
    assert REGISTRY["transpose"].reordered(attrs, (1, 0)) is None


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_attribute_records_say_what_their_fields_mean(name: str) -> None:
    record = REGISTRY[name].attributes
    if record._fields:
        assert record.__doc__
