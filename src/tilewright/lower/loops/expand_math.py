"""Rewrites functions like exp and sin into basic operations, which run in vector lanes.

    y[i] = tanh(x[i])     =>     y[i] = copysign(select(abs(x[i]) < 0.55, fma(…), 1 - …), x[i])

The formulas are in expand_exponential.py and expand_circular.py.

Within 2 units in the last place for f32 and 4 for f64, and exact for zeros, infinities, NaN, and at the ends of the
range. f32 has expansions of its own where they are common; the rare functions are computed in f64 and rounded. f16 and
bf16 are computed in f32. The power of two f64 stays a call of the C library. Integer powers become products, and so do
powers of floats by an exponent that is known to be 2, 3 or 4.

The sum erf(x) + 1 of f32, most of a GELU, is expanded as one: what is left of erf's digits after the sum is less than
what erf by itself has to have.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr import dtypes
from tilewright.expr.build import cast, equal, less, select
from tilewright.expr.nodes import Add, BitAnd, Call, Const, Expr, Shr, binary, const
from tilewright.loops.edit import map_expressions
from tilewright.loops.nodes import Function
from tilewright.lower.loops import expand_circular as circular
from tilewright.lower.loops import expand_exponential as exponential
from tilewright.lower.loops.real import Real

Expansion = Callable[..., Expr]

NATIVE: dict[str, Expansion] = {
    "exp": exponential.expand_exp,
    "expm1": exponential.expand_expm1,
    "log": exponential.expand_log,
    "log1p": exponential.expand_log1p,
    "tanh": exponential.expand_tanh,
    "erf": exponential.expand_erf,
    "sigmoid": exponential.expand_sigmoid,
    "sin": circular.expand_sin,
    "cos": circular.expand_cos,
}
"""Expansions in the type of the argument."""

IN_DOUBLE: dict[str, Expansion] = {
    "sinh": exponential.expand_sinh,
    "cosh": exponential.expand_cosh,
    "asinh": exponential.expand_asinh,
    "acosh": exponential.expand_acosh,
    "atanh": exponential.expand_atanh,
    "tan": circular.expand_tan,
    "asin": circular.expand_asin,
    "acos": circular.expand_acos,
    "atan": circular.expand_atan,
}
"""Expansions in f64, for f32, too."""

RAISED: dict[str, Expansion] = {"erf": exponential.expand_erf_plus_one}
"""Expansions of a function of f32 plus 1, no further from the truth than the rounded function's rounded sum."""

HALVES = (dtypes.f16, dtypes.bf16)


def expand_math(function: Function, fused: bool = True) -> Function:
    """The function without calls that have an expansion. `fused` says that the target has fused multiply-adds."""
    if not function.body.kinds() & Call.bit:
        return function
    sums: dict[Node, Node] = {}
    memo: dict[Node, Node] = {}

    def change_sum(node: Node) -> Node:
        return _expand_sum(node, fused) if isinstance(node, Add) else node

    def change(node: Node) -> Node:
        return _expand(node, fused) if isinstance(node, Call) else node

    def calls_nothing(node: Node) -> bool:
        return isinstance(node, Expr) and not node.kinds & Call.bit

    def expanded(e: Expr) -> Expr:
        return transform(transform(e, change_sum, sums, calls_nothing), change, memo, calls_nothing)

    body = map_expressions(function.body, expanded, lambda stmt: not stmt.kinds() & Call.bit)
    return function if body is function.body else function.replace(body=body)


def _expand_sum(e: Add, fused: bool) -> Expr:
    """f(x) + 1 expanded where that is cheaper than f(x) and a sum."""
    match e:
        case Add(Call(fn, (x,)), Const(1.0)) | Add(Const(1.0), Call(fn, (x,))) if fn.name in RAISED:
            if e.lanes == 1 and e.dtype is dtypes.f32:
                return RAISED[fn.name](Real(dtypes.f32, fused), x)
    return e


def _expand(e: Call, fused: bool) -> Expr:
    name, dtype = e.fn.name, e.args[0].dtype
    if e.lanes != 1:
        return e
    if name == "pow":
        return _expand_pow(e, fused)
    if name not in NATIVE and name not in IN_DOUBLE:
        return e
    (x,) = e.args
    if dtype in HALVES:
        wide = Call(e.fn, (cast(x, dtypes.f32),))
        return cast(_expand(wide, fused), dtype)
    if name in NATIVE:
        return NATIVE[name](Real(dtype, fused), x)
    return cast(IN_DOUBLE[name](Real(dtypes.f64, fused), cast(x, dtypes.f64)), dtype)


def _expand_pow(e: Call, fused: bool) -> Expr:
    x, y = e.args
    if e.dtype.is_int:
        return _integer_power(x, y)
    if isinstance(y, Const) and y.value in (2, 3, 4):
        wide = cast(x, dtypes.f32) if e.dtype in HALVES else x
        square = wide * wide
        return cast(square if y.value == 2 else square * wide if y.value == 3 else square * square, e.dtype)
    if e.dtype is dtypes.f64:
        return e
    double = Real(dtypes.f64, fused)
    return cast(exponential.expand_pow(double, cast(x, dtypes.f64), cast(y, dtypes.f64)), e.dtype)


def _integer_power(x: Expr, y: Expr) -> Expr:
    """Repeated squaring, a bit of the exponent at a time, wrapping around. For a negative exponent 1 and -1 have their
    powers, and all others 0."""
    dtype = x.dtype
    bits = dtype.bits - (dtype.kind == "i")
    if isinstance(y, Const):
        bits = max(int(y.value), 1).bit_length()
    one = const(1, dtype)
    result: Expr = one
    square = x
    for bit in range(bits):
        chosen = binary(BitAnd, binary(Shr, y, const(bit, dtype)), one)
        factor = select(equal(chosen, 1), square, one)
        result = result * factor
        if bit + 1 < bits:
            square = square * square
    if dtype.kind == "u":
        return result
    alternating = select(equal(binary(BitAnd, y, one), 1), const(-1, dtype), one)
    unit = select(equal(x, 1), one, select(equal(x, -1), alternating, const(0, dtype)))
    return select(less(y, 0), unit, result)
