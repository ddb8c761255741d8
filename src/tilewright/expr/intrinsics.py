"""The named scalar functions: one row each, with what they mean in NumPy.

The meaning is the oracle. How a function becomes machine code is a row in code generation's own table, or a rule of
the math-expansion pass; a function without either cannot be reached by a program, and a test holds the tables together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType


@dataclass(frozen=True, slots=True, eq=False)
class Intrinsic:
    """A scalar function: `name`, number of arguments, NumPy `meaning` and `result` type.

    `result` is "same" (the type of the first argument) or "bool". `kinds` lists the kinds of element type it takes.
    """

    name: str
    arity: int
    meaning: Callable[..., Any]
    result: str = "same"
    kinds: str = "f"

    def result_dtype(self, first: DType) -> DType:
        return dtypes.bool_ if self.result == "bool" else first


def _erf(x: Any) -> Any:
    """The error function, element by element in double precision (math.erf), rounded back to the type of x."""
    a = np.asarray(x)
    out = np.frompyfunc(math.erf, 1, 1)(a.astype(np.float64))
    return np.asarray(out, np.float64).astype(a.dtype)


def _round_even(x: Any) -> Any:
    return np.rint(x)


def _invert(x: Any) -> Any:
    return np.invert(x)


def _fma(a: Any, b: Any, c: Any) -> Any:
    """a*b + c; the oracle rounds twice, so comparisons against fused code allow the last bit."""
    return a * b + c


def _popcount(x: Any) -> Any:
    return np.bitwise_count(x).astype(np.asarray(x).dtype)


_ROWS = (
    Intrinsic("neg", 1, np.negative, kinds="iuf"),
    Intrinsic("abs", 1, np.abs, kinds="iuf"),
    Intrinsic("sign", 1, np.sign, kinds="iuf"),
    Intrinsic("invert", 1, _invert, kinds="iu"),
    Intrinsic("popcount", 1, _popcount, kinds="iu"),
    Intrinsic("floor", 1, np.floor),
    Intrinsic("ceil", 1, np.ceil),
    Intrinsic("trunc", 1, np.trunc),
    Intrinsic("round", 1, _round_even),
    Intrinsic("sqrt", 1, np.sqrt),
    Intrinsic("exp", 1, np.exp),
    Intrinsic("log", 1, np.log),
    Intrinsic("log1p", 1, np.log1p),
    Intrinsic("expm1", 1, np.expm1),
    Intrinsic("sin", 1, np.sin),
    Intrinsic("cos", 1, np.cos),
    Intrinsic("tan", 1, np.tan),
    Intrinsic("asin", 1, np.arcsin),
    Intrinsic("acos", 1, np.arccos),
    Intrinsic("atan", 1, np.arctan),
    Intrinsic("sinh", 1, np.sinh),
    Intrinsic("cosh", 1, np.cosh),
    Intrinsic("tanh", 1, np.tanh),
    Intrinsic("asinh", 1, np.arcsinh),
    Intrinsic("acosh", 1, np.arccosh),
    Intrinsic("atanh", 1, np.arctanh),
    Intrinsic("erf", 1, _erf),
    Intrinsic("isnan", 1, np.isnan, result="bool"),
    Intrinsic("isinf", 1, np.isinf, result="bool"),
    Intrinsic("pow", 2, np.power, kinds="iuf"),
    Intrinsic("copysign", 2, np.copysign),
    Intrinsic("fma", 3, _fma),
)

INTRINSICS: dict[str, Intrinsic] = {row.name: row for row in _ROWS}
