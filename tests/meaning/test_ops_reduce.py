"""Reductions, windows and scans: meaning against Python's sums, definition against meaning. Integers and the order of
comparisons are exact; float sums differ in rounding only."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_cases import CASES, Array, Case, Draw, array, case, check, kinds, shapes, thorough

from tilewright.expr.dtypes import DType

NAMES = ("reduce", "arg_reduce", "window_reduce", "cumulative")
ROUNDING = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-5, "f64": 1e-13}
KINDS = {"sum": "iuf", "prod": "iuf", "max": "biuf", "min": "biuf", "any": "b", "all": "b"}


def greater(a: Any, b: Any) -> Any:
    return a if a != a or a > b else b


def lesser(a: Any, b: Any) -> Any:
    return a if a != a or a < b else b


STEP: dict[str, Any] = {
    "sum": operator.add,
    "prod": operator.mul,
    "max": greater,
    "min": lesser,
    "any": operator.or_,
    "all": operator.and_,
}


def first(kind: str, dtype: DType) -> Any:
    if kind in ("max", "min"):
        end = dtype.min if kind == "max" else dtype.max
        return bool(end) if dtype.is_bool else end
    return {"sum": 0, "prod": 1, "any": False, "all": True}[kind]


def folded(values: list[Any], kind: str, dtype: DType) -> Any:
    """The combination by Python's numbers: unbounded integers, doubles."""
    total = functools.reduce(STEP[kind], values, first(kind, dtype))
    return (total - int(dtype.min)) % (1 << dtype.bits) + int(dtype.min) if dtype.is_int else total


def numbers(x: Array) -> list[Any]:
    """The elements as Python numbers."""
    return [float(v) for v in x.flat] if x.dtype.kind not in "biu" else x.ravel().tolist()


def filled(shape: list[int], dtype: DType, value: Any) -> Array:
    out = np.empty(shape, dtype.numpy)
    with np.errstate(all="ignore"):
        for at in np.ndindex(out.shape):
            out[at] = value(at)
    return out


def operand(draw: Draw, kind: str, low: int = 0) -> tuple[Array, DType, float]:
    """Elements, their type, and how far the accumulations may lie apart. Sums of special values are exact only one by
    one, so maxima alone get them; products are of small numbers."""
    dtype = draw(st.sampled_from(kinds(KINDS[kind])))
    x = array(draw, shapes(draw, low), dtype, special=kind in ("max", "min"), small=kind == "prod")
    if dtype.is_float and kind == "prod":
        x = (1 + np.abs(x.astype(np.float64)) / 32).astype(dtype.numpy)
    return x, dtype, ROUNDING.get(dtype.name, 0.0) if kind in ("sum", "prod") else 0.0


@case("reduce")
def reductions(draw: Draw) -> Case:
    kind = draw(st.sampled_from(sorted(KINDS)))
    x, dtype, tolerance = operand(draw, kind)
    axes = draw(st.lists(st.sampled_from(range(x.ndim)), unique=True)) if x.ndim else []
    keepdims = draw(st.booleans())

    def value(at: tuple[int, ...]) -> Any:
        kept = iter(at)
        if keepdims:
            index = [slice(None) if d in axes else i for d, i in enumerate(at)]
        else:
            index = [slice(None) if d in axes else next(kept) for d in range(x.ndim)]
        return folded(numbers(np.asarray(x[tuple(index)])), kind, dtype)

    shape = [1 if d in axes else n for d, n in enumerate(x.shape) if keepdims or d not in axes]
    attrs = {"kind": kind, "axes": tuple(axes), "keepdims": keepdims}
    return Case([x], attrs, [filled(shape, dtype, value)], tolerance)


@case("arg_reduce")
def arg_reductions(draw: Draw) -> Case:
    dtype = draw(st.sampled_from(kinds("biuf")))
    shape = list(shapes(draw, 1))
    axis = draw(st.integers(0, len(shape) - 1))
    shape[axis] = max(shape[axis], 1)
    x = array(draw, shape, dtype, small=draw(st.booleans()))
    kind, last, keepdims = draw(st.sampled_from(("max", "min"))), draw(st.booleans()), draw(st.booleans())
    lines = np.moveaxis(x, axis, -1)
    expected = np.empty(lines.shape[:-1], np.int64)
    for at in np.ndindex(expected.shape):
        values = numbers(lines[at])
        best = functools.reduce(STEP[kind], values)
        places = [n for n, v in enumerate(values) if v == best or (v != v and best != best)]
        expected[at] = places[-1] if last else places[0]
    attrs = {"kind": kind, "axis": axis, "keepdims": keepdims, "last": last}
    return Case([x], attrs, [np.expand_dims(expected, axis) if keepdims else expected])


@case("window_reduce")
def windows(draw: Draw) -> Case:
    kind = draw(st.sampled_from(("max", "min", "sum")))
    x, dtype, tolerance = operand(draw, kind)
    window, strides, dilations = [], [], []
    for n in x.shape:
        dilation = draw(st.integers(1, 3))
        window.append(draw(st.integers(1, max(1, (n - 1) // dilation + 1))))
        strides.append(draw(st.integers(1, 3)))
        dilations.append(dilation)
    spans = [(w - 1) * d + 1 for w, d in zip(window, dilations, strict=True)]
    shape = [(n - span) // s + 1 for n, span, s in zip(x.shape, spans, strides, strict=True)]

    def value(at: tuple[int, ...]) -> Any:
        starts = [i * s for i, s in zip(at, strides, strict=True)]
        box = tuple(slice(b, b + span, d) for b, span, d in zip(starts, spans, dilations, strict=True))
        return folded(numbers(np.asarray(x[box])), kind, dtype)

    attrs = {"kind": kind, "window": tuple(window), "strides": tuple(strides), "dilations": tuple(dilations)}
    return Case([x], attrs, [filled(shape, dtype, value)], tolerance)


@case("cumulative")
def scans(draw: Draw) -> Case:
    kind = draw(st.sampled_from(("sum", "prod", "max", "min")))
    x, dtype, tolerance = operand(draw, kind, low=1)
    axis, exclusive, reverse = draw(st.integers(0, x.ndim - 1)), draw(st.booleans()), draw(st.booleans())
    lines = np.moveaxis(x, axis, -1)

    def value(at: tuple[int, ...]) -> Any:
        line, place = numbers(lines[at[:-1]]), at[-1]
        before = line[place + exclusive :][::-1] if reverse else line[: place + 1 - exclusive]
        return folded(before, kind, dtype)

    expected = np.moveaxis(filled(list(lines.shape), dtype, value), -1, axis)
    attrs = {"kind": kind, "axis": axis, "exclusive": exclusive, "reverse": reverse}
    return Case([x], attrs, [expected], tolerance)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@thorough
def test_meaning_and_definition(name: str, data: st.DataObject) -> None:
    check(name, CASES[name](data.draw))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_sums_of_16_bit_floats_are_rounded_once(dtype: str) -> None:
    (chosen,) = (d for d in kinds("f") if d.name == dtype)
    x = np.full(3000, 1.0).astype(chosen.numpy)
    x[0] = 2048
    expected = np.array(5047.0).astype(chosen.numpy)
    check("reduce", Case([x], {"kind": "sum", "axes": (0,)}, [expected]))
