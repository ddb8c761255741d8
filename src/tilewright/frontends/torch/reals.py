"""Real numbers computed of sizes (`torch.SymFloat`, such as the scale of an image that is made larger): each is a
tensor of one number, f64, as Python computes it."""

from __future__ import annotations

from functools import reduce
from typing import Any

from tilewright.expr import dtypes
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.torch.emit import TorchEmit
from tilewright.frontends.torch.sizes import Symbols

_FUNCTIONS = {
    f"OpaqueUnaryFn_{name}": name
    for name in (
        "sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
    )
}  # fmt: skip
"""Operators that are functions of one number, by the names of the classes of torch.utils._sympy."""

_OPERATORS = {"Add": "add", "Mul": "mul", "IntTrueDiv": "div", "FloatTrueDiv": "div", "FloatPow": "pow"}
"""The same of those that join numbers."""


def real(b: TorchEmit, symbols: Symbols, e: Any) -> Tensor:
    """The number that an expression of SymPy's stands for. Unsupported for a function that we do not have."""
    if e.is_Float or (e.is_Rational and not e.is_Integer):
        return b.scalar(float(e), dtypes.f64)
    name = type(e).__name__
    if name in _OPERATORS and not e.is_integer:
        return reduce(lambda x, y: b.map(_OPERATORS[name], x, y), [real(b, symbols, a) for a in e.args])
    if name in _FUNCTIONS:
        return b.map(_FUNCTIONS[name], real(b, symbols, e.args[0]))
    if name == "ToFloat":
        return real(b, symbols, e.args[0])
    if e.is_integer:
        return b.of_size(symbols.expression(e), dtypes.f64)
    raise Unsupported(f"a number is {e}, and {name} is not supported")
