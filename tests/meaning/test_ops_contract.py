"""Contractions: meaning against NumPy's products and Python's loops, definition against meaning."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_cases import CASES, Array, Case, Draw, array, case, check, kinds, thorough

from tilewright.expr.dtypes import DTYPES, DType, f32, i32
from tilewright.graph.op import Pattern
from tilewright.ops.contract import Contract, ContractAttributes
from tilewright.ops.index_maps import SpecError, parse

ROUNDING = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-5, "f64": 1e-13}
SPECS = (
    "ik,kj->ij",
    "bik,bjk->bij",
    "ii->i",
    "ii->",
    ",i->i",
    "i,j->ij",
    "ij->ji",
    "ij,ij->",
    "ij,jk,kl->il",
    "i,i,i->i",
    "n c i+a, o c a -> n o i",
    "n g c i*2+a*3, g o c a -> n g o i",
    "i*2, i -> i",
    "i+i+a, a -> i",
    "i+a a, a -> i",
    "i i+a -> a",
)


@case("contract")
def contractions(draw: Draw) -> Case:
    text = draw(st.sampled_from(SPECS))
    dtype = draw(st.sampled_from(kinds("iuf")))
    spec = parse(text)
    extents = {axis: draw(st.sampled_from((0, 1, 2, 3, 5))) for axis in spec.axes}
    inputs = []
    for indices in spec.operands:
        reach = [sum((extents[a] - 1) * s for a, s in i.terms) + 1 for i in indices]
        slack = [0 if i.axis else draw(st.integers(0, 2)) for i in indices]
        shape = [
            extents[i.axis] if i.axis else max(n, 0) + more for i, n, more in zip(indices, reach, slack, strict=True)
        ]
        inputs.append(array(draw, shape, dtype, special=False))
    sizes = tuple((axis, extents[axis]) for axis in spec.axes if "+" in text or "*" in text)
    result = draw(st.sampled_from([None, dtype, *([i32] if dtype.is_int else [DTYPES["f64"]])]))
    expected = looped(spec, inputs, extents, result or dtype)
    tolerance = ROUNDING.get((result or dtype).name, 0.0)
    # An axis of no points makes every sum of axes fit; with symbols the requirement is stricter.
    attrs = {"spec": text, "sizes": sizes, "dtype": result}
    return Case(inputs, attrs, [expected], tolerance, symbolic=0 not in extents.values())


def looped(spec: Any, inputs: list[Array], extents: dict[str, int], dtype: DType) -> Array:
    """The sum of products by Python's numbers, point by point."""
    total = np.zeros([extents[a] for a in spec.output], object if dtype.is_int else np.float64)
    for point in itertools.product(*(range(extents[a]) for a in spec.axes)):
        at = dict(zip(spec.axes, point, strict=True))
        factors = [
            x[tuple(sum(at[a] * s for a, s in i.terms) for i in indices)]
            for x, indices in zip(inputs, spec.operands, strict=True)
        ]
        numbers = [int(f) if dtype.is_int else float(f) for f in factors]
        total[point[: len(spec.output)]] += math.prod(numbers)
    if not dtype.is_int:
        with np.errstate(over="ignore"):
            return total.astype(dtype.numpy)
    low, span = int(dtype.min), 1 << dtype.bits
    return (
        np.vectorize(lambda v: (v - low) % span + low, otypes=[object])(total).astype(dtype.numpy)
        if total.size
        else total.astype(dtype.numpy)
    )


@given(data=st.data())
@thorough
def test_meaning_and_definition(data: st.DataObject) -> None:
    check("contract", CASES["contract"](data.draw))


def test_matrix_products_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(3, 5, 7)).astype(np.float32), rng.normal(size=(7, 2)).astype(np.float32)
    check("contract", Case([x, w], {"spec": "bik,kj->bij"}, [x @ w], 1e-6))


def test_mixed_integers_are_exact_in_the_type_of_the_result() -> None:
    x, w = np.array([[255, 200]], np.uint8), np.array([[-128], [-127]], np.int8)
    expected = np.array([[255 * -128 + 200 * -127]], np.int32)
    check("contract", Case([x, w], {"spec": "ik,kj->ij", "dtype": i32}, [expected]))


def test_narrow_floats_are_kept_wide_and_rounded_once() -> None:
    x = np.array([2048, *[1] * 100], np.float16)
    check("contract", Case([x, np.ones_like(x)], {"spec": "i,i->"}, [np.array(2148, np.float16)]))
    wide = np.array([1 + 2**-10], np.float16)
    expected = np.array([(1 + 2**-10) ** 2], np.float32)
    check("contract", Case([wide, wide], {"spec": "i,i->i", "dtype": f32}, [expected]))


def test_a_strided_dilated_convolution_is_a_correlation() -> None:
    rng = np.random.default_rng(1)
    x, f = rng.integers(-9, 9, (2, 3, 11)), rng.integers(-9, 9, (4, 3, 3))
    expected = np.array(
        [[[(x[n, :, 2 * i : 2 * i + 7 : 3] * f[o]).sum() for i in range(3)] for o in range(4)] for n in range(2)]
    )
    attrs = {"spec": "n c i*2+a*3, o c a -> n o i", "sizes": (("i", 3),)}
    check("contract", Case([x, f], attrs, [expected]))


def test_a_contraction_that_reduces_nothing_is_a_map() -> None:
    op = Contract()
    assert op.pattern_of(ContractAttributes("i,j->ij")) is Pattern.MAP
    assert op.pattern_of(ContractAttributes("ij->i")) is Pattern.REDUCE


@pytest.mark.parametrize("text", SPECS)
def test_a_specification_prints_as_one_that_reads_the_same(text: str) -> None:
    spec = parse(text)
    printed = str(spec)
    single = all(len(part.split()) <= 1 for part in printed.replace("->", ",").split(",")) and "+" not in printed
    assert parse(printed) is spec or single


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ij,jk", '"ij,jk" has no "->" before the output\'s axes'),
        ("ij->k", 'the output axis k of "ij->k" is in no operand'),
        ("ij->ii", 'the output of "ij->ii" names an axis twice'),
        ("i*0+a -> i", '"i*0+a" in "i*0+a -> i" is no sum of axes with strides from 1, such as i*2+a'),
        ("2*i -> i", '"2*i" in "2*i -> i" is no sum of axes with strides from 1, such as i*2+a'),
        ("i+ -> i", '"i+" in "i+ -> i" is no sum of axes with strides from 1, such as i*2+a'),
        ("...i->i", '"." in "...i->i" is no sum of axes with strides from 1, such as i*2+a'),
        ("i j -> i*2", '"i*2" in the output of "i j -> i*2" is no axis'),
    ],
)
def test_what_is_no_specification_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert str(caught.value) == message
