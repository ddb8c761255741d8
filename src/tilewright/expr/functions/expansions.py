"""Which functions are expanded, and how: in the type of their argument, or in f64.

    tanh(x)   =>   copysign(select(abs(x) < 0.55, fma(…), 1 - …), x)

Within 2 units in the last place for f32 and 4 for f64, and exact for zeros, infinities, NaN, and at the ends of the
range. f32 has expansions of its own where they are common; the rare functions are computed in f64 and rounded. f16 and
bf16 are computed in f32. The power of two f64 stays a call of the C library. Integer powers become products, and so do
powers of floats by an exponent that is known to be 2, 3 or 4.

The sum erf(x) + 1 of f32, most of a GELU, is expanded as one: what is left of erf's digits after the sum is less than
what erf by itself has to have.

The coefficients beside the expansions are what tools/fit_polynomials.py fits; expr/work.py counts the instructions.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.expr import dtypes
from tilewright.expr.build import cast
from tilewright.expr.functions import circular, error_function, exponential, inverse_circular, logarithm
from tilewright.expr.functions.power import power
from tilewright.expr.functions.real import Real
from tilewright.expr.nodes import Add, Call, Const, Expr

Expansion = Callable[[Real, Expr], Expr]

NATIVE: dict[str, Expansion] = {
    "exp": exponential.expand_exp,
    "expm1": exponential.expand_expm1,
    "log": logarithm.expand_log,
    "log1p": logarithm.expand_log1p,
    "tanh": exponential.expand_tanh,
    "erf": error_function.expand_erf,
    "sigmoid": exponential.expand_sigmoid,
    "sin": circular.expand_sin,
    "cos": circular.expand_cos,
}
"""Expansions in the type of the argument."""

IN_DOUBLE: dict[str, Expansion] = {
    "sinh": exponential.expand_sinh,
    "cosh": exponential.expand_cosh,
    "asinh": logarithm.expand_asinh,
    "acosh": logarithm.expand_acosh,
    "atanh": logarithm.expand_atanh,
    "tan": circular.expand_tan,
    "asin": inverse_circular.expand_asin,
    "acos": inverse_circular.expand_acos,
    "atan": inverse_circular.expand_atan,
}
"""Expansions in f64, for f32, too."""

RAISED: dict[str, Expansion] = {"erf": error_function.expand_erf_plus_one}
"""Expansions of a function of f32 plus 1, no further from the truth than the rounded function's rounded sum."""

F16_TYPES = (dtypes.f16, dtypes.bf16)


def expand_call(e: Call, fused: bool) -> Expr:
    """The call in basic operations, or itself where it has no expansion. `fused` says that a multiply-add is one
    instruction. Vectors are left alone."""
    name = e.fn.name
    if e.lanes != 1:
        return e
    if name == "pow":
        base, exponent = e.args
        return power(base, exponent, fused) or e
    if name not in NATIVE and name not in IN_DOUBLE:
        return e
    (x,) = e.args
    if x.dtype in F16_TYPES:
        return cast(expand_call(Call(e.fn, (cast(x, dtypes.f32),)), fused), x.dtype)
    if name in NATIVE:
        return NATIVE[name](Real(x.dtype, fused), x)
    return cast(IN_DOUBLE[name](Real(dtypes.f64, fused), cast(x, dtypes.f64)), x.dtype)


def raised_call(e: Expr) -> Call | None:
    """The call f(x) of an expression f(x) + 1 that has an expansion of its own."""
    match e:
        case Add(Call(fn) as made, Const(1.0)) | Add(Const(1.0), Call(fn) as made) if fn.name in RAISED:
            if e.lanes == 1 and e.dtype is dtypes.f32:
                return made
    return None


def expand_sum(e: Expr, fused: bool) -> Expr:
    """f(x) + 1 expanded where that is cheaper than f(x) and a sum; any other expression as it is."""
    call = raised_call(e)
    return e if call is None else RAISED[call.fn.name](Real(dtypes.f32, fused), call.args[0])
