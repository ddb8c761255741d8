"""Tensors whose elements are known as expressions: the sizes, axes and indices that a model computes with.

A content is a NumPy array of objects: `i64` expressions for the elements of integer tensors, truth values for bool
tensors, and expressions of their own type for floats. What models do between asking for a shape and reshaping by it is
computed here while the model is read, so that the compiled program has shapes instead of arithmetic.

Only small tensors have a content: at most `MOST_INTEGERS` elements, for floats `MOST_FLOATS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.build import cast, maximum, minimum, select
from tilewright.expr.dtypes import DType
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import And, Cast, Const, Div, Eq, Expr, Le, Lt, Mul, Ne, Not, Or, binary, call, const
from tilewright.expr.simplify import Facts, simplify

Content = np.ndarray[Any, Any]

MOST_INTEGERS = 1024
MOST_FLOATS = 16


def held_type(dtype: DType) -> DType | None:
    """The type of the expressions that stand for elements of `dtype`, or None where there are never any."""
    if dtype.is_bool or dtype.kind == "f":
        return dtype
    return dtypes.i64 if dtype in (dtypes.i32, dtypes.i64) else None


def most_elements(dtype: DType) -> int:
    """How many elements a tensor of this type may have and still have a content."""
    return 0 if held_type(dtype) is None else MOST_FLOATS if dtype.is_float else MOST_INTEGERS


def of_array(array: np.ndarray[Any, Any], dtype: DType) -> Content | None:
    """The content of a constant, or None when it is too large or of a type without contents."""
    held = held_type(dtype)
    if held is None or array.size > most_elements(dtype):
        return None
    return of_elements([const(v.item(), held) for v in array.reshape(-1)], array.shape)


def of_elements(elements: Sequence[Expr], shape: Sequence[int]) -> Content:
    """The content with these elements in row-major order."""
    content = np.empty(len(elements), object)
    for position, element in enumerate(elements):
        content[position] = element
    return content.reshape(tuple(shape))


def to_array(content: Content, dtype: DType) -> np.ndarray[Any, Any] | None:
    """The elements as numbers, or None unless all are constants."""
    if not all(isinstance(e, Const) for e in content.reshape(-1)):
        return None
    values = [e.value for e in content.reshape(-1)]
    return np.array(values, dtype.numpy).reshape(content.shape)


def convert(content: Content, source: DType, to: DType) -> Content | None:
    """The cast of a content, or None where the result has none."""
    held = held_type(to)
    if held is None or content.size > most_elements(to):
        return None
    return _each(lambda e: _wrapped(_cast(e, held), to), content)


def apply(name: str, contents: Sequence[Content], dtype: DType) -> Content | None:
    """The element-wise operator `name` over contents that broadcast; `dtype` is the result's. None if not computed."""
    function = _MAPS.get(name)
    if function is None:
        return None
    try:
        arrays = np.broadcast_arrays(*contents)
    except ValueError:
        return None
    if arrays[0].size > most_elements(dtype):
        return None
    elements = [_wrapped(_normal(function(*es)), dtype) for es in zip(*(a.reshape(-1) for a in arrays), strict=True)]
    return of_elements(elements, arrays[0].shape)


def fold(kind: str, content: Content, axes: tuple[int, ...], keepdims: bool, dtype: DType) -> Content | None:
    """A reduction (sum, prod, min, max, any, all) of a content; None where there is nothing to reduce."""
    name = _REDUCTIONS[kind]
    held = held_type(dtype)
    if held is None or content.size == 0:
        return None
    kept = [a for a in range(content.ndim) if a not in axes]
    rows = np.transpose(content, (*kept, *axes)).reshape(
        [content.shape[a] for a in kept] + [-1] if content.size else [0]
    )
    if content.size == 0:
        return None
    out = np.empty(rows.shape[:-1], object)
    for at in np.ndindex(rows.shape[:-1]):
        total = rows[at][0]
        for element in rows[at][1:]:
            total = _MAPS[name](total, element)
        out[at] = _wrapped(_normal(total), dtype)
    return out.reshape([1 if a in axes else content.shape[a] for a in range(content.ndim)]) if keepdims else out


def _normal(e: Expr) -> Expr:
    """Simplified; an expression over constants only becomes its value, which wraps around as that of any data."""
    if not e.dtype.is_float:
        e = simplify(e)
        return e if isinstance(e, Const) or e.variables else const(int(evaluate(e, {})), e.dtype)
    if isinstance(e, Const) or not all(isinstance(c, Const) for c in e.children()):
        return e
    return const(float(evaluate(e, {})), e.dtype)


def _wrapped(e: Expr, dtype: DType) -> Expr:
    """A constant is wrapped to the tensor's own width; sizes and what is computed from them is taken to fit."""
    if dtype.is_int and isinstance(e, Const):
        return const(const(e.value, dtype).value, dtypes.i64)
    return e


def _cast(e: Expr, to: DType) -> Expr:
    """A cast; a size that went through a float and rounding comes back as the integer expression it was."""
    if to.is_bool and e.dtype.is_int:
        return _normal(binary(Ne, e, 0))
    if to is dtypes.i64 and e.dtype.is_bool:
        return select(e, 1, 0)
    if to is dtypes.i64 and isinstance(e, Cast) and e.a.dtype is dtypes.i64:
        return e.a
    return cast(e, to)


def _integer_part(name: str) -> Callable[[Expr], Expr]:
    """floor, ceil, round or trunc: nothing to do for an integer in a float; of n / c, an integer division."""

    def rounded(e: Expr) -> Expr:
        match e:
            case Cast(a, _) if a.dtype.is_int:
                return e
            case Div(Cast(a, _), Const(c)) if a.dtype is dtypes.i64 and _is_whole(c) and c > 0 and name == "floor":
                return Cast(simplify(a // int(c)), e.dtype)
            case Div(Cast(a, _), Const(c)) if a.dtype is dtypes.i64 and _is_whole(c) and c > 0 and name == "ceil":
                return Cast(simplify((a + (int(c) - 1)) // int(c)), e.dtype)
        return call(name, e)

    return rounded


def _mul(a: Expr, b: Expr) -> Expr:
    """a * b; an integer in a float times a whole number stays an integer in a float."""
    for x, y in ((a, b), (b, a)):
        match x, y:
            case Cast(n, _), Const(c) if n.dtype is dtypes.i64 and x.dtype.is_float and _is_whole(c):
                return Cast(simplify(n * int(c)), x.dtype)
    return binary(Mul, a, b)


def _div(a: Expr, b: Expr) -> Expr:
    """Division: of integers towards zero, as a floor division where both are known not to be negative."""
    if not a.dtype.is_int:
        return binary(Div, a, b)
    facts = Facts()
    return a // b if facts.nonnegative(a) and facts.nonnegative(b) else binary(Div, a, b)


def _abs(a: Expr) -> Expr:
    return maximum(a, -a) if a.dtype.is_int else call("abs", a)


def _add(a: Expr, b: Expr) -> Expr:
    return Or(a, b) if a.dtype.is_bool else a + b


def _times(a: Expr, b: Expr) -> Expr:
    return And(a, b) if a.dtype.is_bool else _mul(a, b)


def _intrinsic(name: str) -> Callable[[Expr], Expr]:
    return lambda a: call(name, a)


_MAPS: dict[str, Callable[..., Expr]] = {
    "add": _add,
    "sub": lambda a, b: a - b,
    "mul": _times,
    "div": _div,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": minimum,
    "max": maximum,
    "neg": lambda a: -a,
    "abs": _abs,
    "floor": _integer_part("floor"),
    "ceil": _integer_part("ceil"),
    "round": _integer_part("round"),
    "trunc": _integer_part("trunc"),
    "sqrt": _intrinsic("sqrt"),
    "eq": lambda a, b: binary(Eq, a, b),
    "ne": lambda a, b: binary(Ne, a, b),
    "lt": lambda a, b: binary(Lt, a, b),
    "le": lambda a, b: binary(Le, a, b),
    "and": And,
    "or": Or,
    "not": Not,
    "select": select,
}

_REDUCTIONS = {"sum": "add", "prod": "mul", "min": "min", "max": "max", "any": "or", "all": "and"}


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and value == int(value)


def _each(function: Callable[[Expr], Expr], content: Content) -> Content:
    return of_elements([function(e) for e in content.reshape(-1)], content.shape)
