"""Recipes of element-wise operators, casts, and operators of the Softmax family."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from fuzz.drawing import ANY, BOOLS, FLOATS, INTEGERS, NARROW, Array, Draw, Skip, numpy_type
from fuzz.recipes import recipe

UNARY = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "IsInf"),
    *("IsNaN", "Log", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus"),
    *("Softsign", "Sqrt", "Tan", "Tanh", "Identity", "BitwiseNot", "HardSwish", "Mish"),
)
BINARY = (
    *("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less", "GreaterOrEqual"),
    *("LessOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "PRelu"),
)


def finite(a: Array) -> bool:
    return a.dtype.kind in "iub" or bool(np.isfinite(a.astype(np.float64)).all())


def nonzero(a: Array) -> bool:
    """Whether integers may be divided by these elements."""
    return a.dtype.kind not in "iu" or bool((a != 0).all())


def beside(d: Draw, x: str, ok: Any = lambda a: True, **options: Any) -> str:
    """A second operand of the type of the first, that broadcasts with it."""
    shape = d.fitting(d.values[x].shape)
    for _ in range(4):
        y = d.like(x, shape, **options)
        if ok(d.values[y]):
            return y
    raise Skip


@recipe(6)
def unary(d: Draw) -> None:
    operator = d.pick(UNARY)
    attributes = d.some(detect_negative=d.pick((0, 1)), detect_positive=d.pick((0, 1))) if operator == "IsInf" else {}
    d.node(operator, [d.take(d.types(operator))], attributes)


@recipe(6)
def binary(d: Draw) -> None:
    operator = d.pick(BINARY)
    x = d.take(d.types(operator))
    if operator == "PRelu":
        shape = [n if d.maybe(0.7) else 1 for n in d.values[x].shape]
        d.node(operator, [x, d.like(x, shape[d.chance.randint(0, len(shape)) :])])
        return
    y = beside(d, x, nonzero if operator == "Div" else lambda a: True)
    if operator == "Pow" and d.values[x].dtype.kind != "f" and (d.values[y].astype(np.float64) < 0).any():
        raise Skip
    d.node(operator, [x, y] if operator in ("Div", "Pow") or d.maybe(0.6) else [y, x])


@recipe()
def power_of_another_type(d: Draw) -> None:
    x = d.take(d.types("Pow"))
    y = d.new(d.types("Pow", 1), d.fitting(d.values[x].shape))
    if d.values[x].dtype.kind != "f" and not (d.values[y].astype(np.float64) >= 0).all():
        raise Skip
    d.node("Pow", [x, y])


@recipe()
def mod(d: Draw) -> None:
    fmod = d.pick((0, 1))
    x = d.take(d.types("Mod") if fmod else INTEGERS)
    attributes = {"fmod": 1} if fmod else d.some(fmod=0)
    d.node("Mod", [x, beside(d, x, nonzero)], attributes)


@recipe()
def bit_shift(d: Draw) -> None:
    x = d.take(d.types("BitShift"))
    bits = d.values[x].dtype.itemsize * 8
    y = d.give(d.numbers.integers(0, bits, d.fitting(d.values[x].shape)).astype(d.values[x].dtype))
    d.node("BitShift", [x, y], {"direction": d.pick(("LEFT", "RIGHT"))})


@recipe(2)
def variadic(d: Draw) -> None:
    operator = d.pick(("Max", "Min", "Sum", "Mean"))
    x = d.take(d.types(operator))
    d.node(operator, [x, *(beside(d, x) for _ in range(d.chance.choice((0, 1, 1, 2, 3))))])


@recipe(2)
def activation(d: Draw) -> None:
    f = lambda *options: d.pick(options)  # noqa: E731
    operator, attributes = d.pick(
        (
            ("Celu", d.some(alpha=f(1.0, 0.5, 2.0))),
            ("Elu", d.some(alpha=f(1.0, 0.5, 2.0, -0.5))),
            ("Gelu", d.some(approximate=f("none", "tanh"))),
            ("HardSigmoid", d.some(alpha=f(0.2, 0.5, -0.3), beta=f(0.5, 0.6, 0.0))),
            ("LeakyRelu", d.some(alpha=f(0.01, 0.2, -1.0, 2.0))),
            ("Selu", d.some(alpha=f(1.67326, 0.5), gamma=f(1.0507, 2.0))),
            ("Shrink", d.some(bias=f(0.0, 0.5, -1.0), lambd=f(0.5, 0.0, 2.0))),
            ("ThresholdedRelu", d.some(alpha=f(1.0, 0.0, -1.0))),
            ("Swish", d.some(alpha=f(1.0, 0.5, -2.0))),
        )
    )
    d.node(operator, [d.take(d.types(operator))], attributes)


@recipe(2)
def where(d: Draw) -> None:
    x = d.take(d.types("Where", 1))
    y = beside(d, x)
    shape = d.fitting(d.values[x].shape)
    conditions = [n for n, a in d.values.items() if a.dtype == bool and a.shape == tuple(shape)]
    c = d.pick(conditions) if conditions and d.maybe() else d.new(BOOLS, shape)
    d.node("Where", [c, x, y])


@recipe()
def clip(d: Draw) -> None:
    x = d.take(d.types("Clip"))
    dtype = d.values[x].dtype
    low, high = sorted((d.pick((0, 1, 2, 5)), d.pick((0, 1, 3, 6))))
    if d.maybe(0.1):
        low, high = high, low
    bounds = [d.number(low, dtype) if d.maybe(0.8) else "", d.number(high, dtype) if d.maybe(0.8) else ""]
    while bounds and not bounds[-1]:
        bounds.pop()
    d.node("Clip", [x, *bounds])


def fits(dtype: np.dtype[Any], to: np.dtype[Any]) -> Any:
    """Which arrays have only elements that the other type can hold once their fraction is gone."""

    def ok(a: Array) -> bool:
        if to.kind not in "iu" or a.dtype.kind not in "fV":
            return True
        values, info = a.astype(np.float64), np.iinfo(to)
        return bool((np.isfinite(values) & (np.trunc(values) >= info.min) & (np.trunc(values) < info.max)).all())

    return ok


@recipe(4)
def cast(d: Draw) -> None:
    to = numpy_type(d.pick(ANY))
    narrow = [n for n in d.values if d.values[n].dtype.name in NARROW]
    if narrow and d.maybe(0.6):
        x = d.pick(narrow)
    else:
        x = d.take(ANY, ok=fits(to, to))
    if not fits(to, to)(d.values[x]):
        raise Skip
    if d.maybe(0.2):
        d.node("CastLike", [x, d.new((to.name,), d.shape(d.pick((0, 1))))])
    else:
        d.node("Cast", [x], {"to": int(helper.np_dtype_to_tensor_dtype(to))})


@recipe(2)
def cast_to_narrow(d: Draw) -> None:
    to = numpy_type(d.pick(NARROW))
    if to.name.startswith("float"):
        x = d.take(FLOATS)
        attributes = d.some(saturate=d.pick((0, 1))) if "float8" in to.name else {}
    else:
        low, high = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}[to.name]
        source = d.pick(("int8", "int32", "float32", "uint8"))
        values = d.numbers.integers(max(low, 0) if source == "uint8" else low, high + 1, d.shape(d.pick((0, 1, 2, 3))))
        x, attributes = d.give(values.astype(numpy_type(source))), {}
    d.node("Cast", [x], {"to": int(helper.np_dtype_to_tensor_dtype(to)), **attributes})


@recipe()
def bit_cast(d: Draw) -> None:
    x = d.take([t for t in ANY if t != "bool"], exact=True)
    size = d.values[x].dtype.itemsize
    to = numpy_type(d.pick([t for t in (*FLOATS, *INTEGERS) if numpy_type(t).itemsize == size]))
    d.node("BitCast", [x], {"to": int(helper.np_dtype_to_tensor_dtype(to))})


@recipe(2)
def softmax(d: Draw) -> None:
    operator = d.pick(("Softmax", "LogSoftmax", "Hardmax"))
    x = d.take(d.types(operator), (1, 5), finite)
    d.node(operator, [x], d.some(axis=d.axis(d.values[x].ndim)))
