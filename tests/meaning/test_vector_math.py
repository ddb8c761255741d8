"""Expanded functions against the true value: within 2 ulp for f32 and 4 for f64, and exact at the ends of the range."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from machine import Array, Machine, compute, elementwise, legal, listing
from scipy import special

from tilewright.core.walk import preorder, substitute
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.evaluate import evaluate
from tilewright.expr.functions.expansions import IN_DOUBLE, NATIVE
from tilewright.expr.nodes import Call, Expr, Var, call, const
from tilewright.loops.nodes import Function, Load, Store
from tilewright.lower.loops.expand_math import expand_math
from tilewright.lower.loops.fuse_multiply_add import fuse_multiply_add

NAMES = [*NATIVE, *IN_DOUBLE]
BOUND = {dtypes.f32: 2.0, dtypes.f64: 4.0}
LANES = {dtypes.f32: 8, dtypes.f64: 4}
NUMPY = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}

V = Var("v", dtypes.f32, None)

needs_longdouble = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 60, reason="the true value of an f64 needs a longdouble of more bits"
)


def true_value(name: str, x: Array) -> Array:
    """The function in the next wider type."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.longdouble if x.dtype == np.float64 else np.float64)
        if name == "erf":
            return np.array([math.erf(v) for v in wide]).astype(wide.dtype)
        if name == "sigmoid":
            return 1 / (1 + np.exp(-wide))
        result: Array = getattr(np, NUMPY.get(name, name))(wide)
        return result


def ulps(got: Array, want: Array) -> Array:
    """How far `got` is from the true value, in units in its last place; infinite where infinities or NaN differ."""
    with np.errstate(all="ignore"):
        near = want.astype(got.dtype)
        finite = np.isfinite(near) & np.isfinite(got)
        unit = np.spacing(np.abs(np.where(finite, near, 1))).astype(want.dtype)
        error = np.abs(got.astype(want.dtype) - want) / unit
    same = (got == near) | (np.isnan(got) & np.isnan(near))
    return np.where(finite, error, np.where(same, 0.0, np.inf)).astype(np.float64)


def samples(dtype: DType, seed: int, count: int = 6000) -> Array:
    """Arguments of every size, the edges of the type among them."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype.numpy)
    ends = [
        info.max,
        info.tiny,
        info.smallest_subnormal,
        info.eps,
        1 + info.eps,
        1 - info.epsneg,
        0.0,
        0.5,
        1,
        2,
        np.inf,
    ]
    ends += [0.3465, 0.3466, 0.41421357, 2.41421357, 0.55, 1.5707964, 0.7853982, 823549.0, 823550.0, 1e6, 1e22]
    ends += [
        87.33,
        88.72283,
        88.72284,
        89.0,
        103.97,
        103.98,
        104.0,
        707.7,
        709.782712893384,
        709.79,
        710.4758,
        745.13,
        745.14,
    ]
    spread = 10.0 ** rng.uniform(math.log10(info.smallest_subnormal), math.log10(info.max), count)
    parts = [rng.uniform(0, top, count) for top in (1, 10, 110, 750)]
    parts += [spread, 10.0 ** rng.uniform(-8, 6, count), 1 + rng.uniform(-1e-3, 1e-3, count)]
    positive = np.concatenate([np.array(ends), *parts]).astype(dtype.numpy)
    return np.concatenate([positive, -positive, np.array([np.nan], dtype.numpy)])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [dtypes.f32, pytest.param(dtypes.f64, marks=needs_longdouble)], ids=str)
def test_accuracy(name: str, dtype: DType) -> None:
    x = samples(dtype, 1)
    got = compute(lambda v: call(name, v), [x], dtype, LANES[dtype])
    want = true_value(name, x)
    error = ulps(got, want)
    bound = BOUND[dtype] + (1 if name == "erf" and dtype is dtypes.f64 else 0)  # math.erf itself is within 1 ulp
    worst = int(np.argmax(error))
    assert error[worst] <= bound, f"{name}({x[worst]!r}) = {got[worst]!r}, not {want[worst]!r}: {error[worst]:.2f} ulp"
    zero = want == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("name", NATIVE)
def test_accuracy_all_over(name: str) -> None:
    """Every 8191st f32 of either sign: 524,000 of them."""
    positive = np.arange(0, 0x7F800000, 8191, dtype=np.uint32).view(np.float32)
    x = np.concatenate([positive, -positive])
    got = compute(lambda v: call(name, v), [x], dtypes.f32, LANES[dtypes.f32])
    with np.errstate(all="ignore"):
        want = special.erf(x.astype(np.float64)) if name == "erf" else true_value(name, x)
    error = ulps(got, want)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUND[dtypes.f32], f"{name}({x[worst]!r}) = {got[worst]!r}: {error[worst]:.2f} ulp"


@pytest.mark.parametrize("name", ["exp", "expm1", "log", "log1p", "tanh", "erf", "sin", "cos", "sinh", "atan"])
@pytest.mark.parametrize("dtype", [dtypes.f32, pytest.param(dtypes.f64, marks=needs_longdouble)], ids=str)
def test_accuracy_without_fused_operations(name: str, dtype: DType) -> None:
    """Products and sums rounded one by one, in the evaluator."""
    x = samples(dtype, 2, 1000)
    x = x[~(np.abs(x) > 1e6)]
    v = Var("v", dtype, None)
    function = expand_math(elementwise(lambda a: call(name, a), [dtype], dtype, 1, 1), fused=False)
    value = value_of(function, v)
    assert not [e for e in preorder(value) if isinstance(e, Call) and e.fn.name == "fma"]
    got = np.asarray(evaluate(value, {v: x})).astype(dtype.numpy)
    error = ulps(got, true_value(name, x))
    assert error.max() <= BOUND[dtype] + 0.5, f"{name}({x[int(np.argmax(error))]!r}): {error.max():.2f} ulp"


def value_of(function: Function, x: Var) -> Expr:
    """The value that the store in the loop of a function stores, `x` standing for what it loads."""
    stmt: Any = function.body
    while not isinstance(stmt, Store):
        stmt = stmt.body
    value: Expr = stmt.value
    return substitute(value, {e: x for e in preorder(value) if isinstance(e, Load)})


def test_the_evaluator_computes_what_the_machine_does() -> None:
    x, v = samples(dtypes.f32, 3, 300), Var("v", dtypes.f32, None)
    for name in ("exp", "log", "tanh", "erf"):
        function = expand_math(elementwise(lambda a, name=name: call(name, a), [dtypes.f32], dtypes.f32, 1, 1))
        got = compute(lambda a, name=name: call(name, a), [x], dtypes.f32, 8)
        evaluated = np.asarray(evaluate(value_of(function, v), {v: x}))
        assert np.array_equal(got, evaluated, equal_nan=True), name


@pytest.mark.parametrize("name", ["exp", "tanh", "log", "erf", "sin"])
@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.bf16], ids=str)
def test_halves(name: str, dtype: DType) -> None:
    """All of the 16-bit floats, to the rounding of the f32 value."""
    x = np.arange(0x10000, dtype=np.uint32).astype(np.uint16).view(dtype.numpy)
    x = x[~(np.abs(x.astype(np.float32)) > 1e6) | ~np.isfinite(x.astype(np.float32))]
    got = compute(lambda v: call(name, v), [x], dtype, 8).astype(np.float64)
    want = true_value(name, x.astype(np.float32))
    step = np.abs(want) * 2.0 ** (-8 if dtype is dtypes.bf16 else -11) * 1.0001
    least = 2.0 ** (-134 if dtype is dtypes.bf16 else -25)
    finite = np.isfinite(want) & (np.abs(want) < float(np.finfo(np.float16).max if dtype is dtypes.f16 else 3e38))
    assert np.all(np.abs(got[finite] - want[finite]) <= np.maximum(step, least)[finite])
    assert np.array_equal(np.isnan(got), np.isnan(want))


def sum_errors(got: Array, x: Array) -> Array:
    """How far erf(x) + 1 is from the truth, in units of 2^-24."""
    want = special.erfc(-x.astype(np.float64))
    error: Array = np.abs(got.astype(np.float64) - want) * 2.0**24
    return error


@pytest.mark.parametrize("fused", [True, False])
def test_erf_plus_one_is_as_near_as_the_sum_of_the_rounded_erf(fused: bool) -> None:
    """Over dense arguments of either sign: no greater error than that of a sum of an erf within its bound."""
    x = np.concatenate([np.linspace(0, 4.5, 600_001), 10.0 ** np.linspace(-45, 38, 20_001)]).astype(np.float32)
    x = np.concatenate([x, -x])
    whole, apart = (
        value_of(expand_math(elementwise(value, [dtypes.f32], dtypes.f32, 1, 1), fused), V)
        for value in (lambda a: 1.0 + call("erf", a), lambda a: call("erf", a))
    )
    got, in_steps = np.asarray(evaluate(whole, {V: x})), np.asarray(evaluate(apart, {V: x})) + np.float32(1)
    assert not np.array_equal(got, in_steps), "the sum has an expansion of its own"
    if fused:
        assert np.array_equal(got, compute(lambda a: call("erf", a) + 1.0, [x], dtypes.f32, 8))
    for side in (x > 0, x < 0):
        error, usual = sum_errors(got[side], x[side]), sum_errors(in_steps[side], x[side])
        assert error.max() <= usual.max()
        assert error.mean() <= usual.mean()


def test_erf_plus_one_at_the_ends() -> None:
    x = np.array([0.0, 4.0, 5.0, 3e38, np.inf, np.nan, 1e-45, 1e-38, 1e-9], np.float32)
    x = np.concatenate([x, -x])
    got = compute(lambda a: call("erf", a) + 1.0, [x], dtypes.f32, 8)
    want = [1, 2, 2, 2, 2, np.nan, 1, 1, 1, 1, 0, 0, 0, 0, np.nan, 1, 1, 1]
    assert np.array_equal(got, np.array(want, np.float32), equal_nan=True)


@pytest.mark.parametrize("scale", [2.0**-0.5, 1.0])
def test_gelu_is_no_less_accurate_than_its_graph(scale: float) -> None:
    """x * 0.5 * (erf(x*scale) + 1), the rounding of x*scale taken as given."""
    x = np.random.default_rng(6).normal(0, 2, 400_000).astype(np.float32)
    z = x * np.float32(scale)
    half = x * np.float32(0.5)
    want = half.astype(np.float64) * special.erfc(-z.astype(np.float64))
    got = compute(lambda a: a * 0.5 * (call("erf", a * scale) + 1.0), [x], dtypes.f32, 8)
    usual = half * (compute(lambda a: call("erf", a), [z], dtypes.f32, 8) + np.float32(1))
    for side in (x > 0, x < 0):
        error, before = np.abs(got - want)[side], np.abs(usual - want)[side]
        assert error.max() <= before.max()
        assert error.mean() <= before.mean()


@pytest.mark.parametrize("dtype", [dtypes.f64, dtypes.f16], ids=str)
def test_other_sums_with_erf_keep_their_meaning(dtype: DType) -> None:
    x = np.random.default_rng(7).uniform(-7, 7, 2000).astype(dtype.numpy)
    got = compute(lambda a: call("erf", a) + 1.0, [x], dtype, 8).astype(np.float64)
    want = np.array([math.erfc(-v) for v in x.astype(np.float64)])
    assert np.all(np.abs(got - want) <= 4 * np.finfo(dtype.numpy).eps)


def powers(dtype: DType) -> tuple[Array, Array]:
    rng = np.random.default_rng(4)
    special = [0.0, 1.0, 2.0, 3.0, 0.5, 2.5, 1e30, 16777216.0, 16777217.0, np.inf, np.finfo(dtype.numpy).tiny, 3e38]
    special = [*special, *(-s for s in special), np.nan]
    a, b = (v.ravel() for v in np.meshgrid(special, special))
    x = np.concatenate([a, rng.uniform(0, 3, 4000), 10.0 ** rng.uniform(-40, 38, 4000), rng.uniform(-3, 3, 2000)])
    y = np.concatenate([b, rng.uniform(-80, 80, 4000), rng.uniform(-3, 3, 4000), rng.integers(-30, 30, 2000)])
    return x.astype(dtype.numpy), y.astype(dtype.numpy)


def test_powers() -> None:
    x, y = powers(dtypes.f32)
    got = compute(lambda a, b: call("pow", a, b), [x, y], dtypes.f32, 8)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
    error = ulps(got, want)
    worst = int(np.argmax(error))
    assert error[worst] <= 1.0, f"pow({x[worst]!r}, {y[worst]!r}) = {got[worst]!r}, not {want[worst]!r}"
    zero = want == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("exponent", [2.0, 3.0, 4.0])
@pytest.mark.parametrize("dtype", [dtypes.f32, pytest.param(dtypes.f64, marks=needs_longdouble)], ids=str)
def test_known_powers_are_products(exponent: float, dtype: DType) -> None:
    x = samples(dtype, 5)
    got = compute(lambda a: call("pow", a, const(exponent, dtype)), [x], dtype, LANES[dtype])
    with np.errstate(all="ignore"):
        want = x.astype(np.longdouble if dtype is dtypes.f64 else np.float64) ** int(exponent)
    assert ulps(got, want).max() <= BOUND[dtype]
    assert np.array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))
    function = expand_math(elementwise(lambda a: call("pow", a, const(exponent, dtype)), [dtype], dtype, 1, 1))
    assert not [e for e in preorder(value_of(function, Var("v", dtype, None))) if isinstance(e, Call)]


def test_powers_of_doubles_are_those_of_the_library() -> None:
    x, y = powers(dtypes.f64)
    got = compute(lambda a, b: call("pow", a, b), [x, y], dtypes.f64, 4)
    with np.errstate(all="ignore"):
        assert ulps(got, np.power(x, y)).max() <= 1


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "atan"])
def test_no_calls_and_no_scalars(name: str, dtype: DType) -> None:
    """The loop of an expansion is vector instructions: the only scalar ones count, compare and branch."""
    whole = listing(legal(elementwise(lambda v: call(name, v), [dtype], dtype, 4096, LANES[dtype])))
    found = re.search(r"^program:.*?^\.Lfunc_end", whole, re.MULTILINE | re.DOTALL)
    assert found is not None
    text = found[0]
    assert not re.findall(r"\bcall", text), "nothing calls a library"
    scalar = re.findall(r"\t(v?(?:add|sub|mul|div)s[sd]|vfn?m(?:add|sub)\d+s[sd])\b", text)
    assert scalar == []


@pytest.mark.parametrize("form", ["sum", "difference", "two products", "reversed", "term"])
def test_accumulations_are_fused(form: str) -> None:
    def value(a: Expr, b: Expr, t: Expr) -> Expr:
        match form:
            case "sum":
                return t + a * b
            case "difference":
                return t - a * b
            case "reversed":
                return a * b + t
            case "term":
                return t + (a * b + b * b)
        return t + a * b + b * b

    rng = np.random.default_rng(5)
    a, b, t = (rng.standard_normal(64).astype(np.float32) for _ in range(3))
    function = elementwise(lambda p, q: p, [dtypes.f32, dtypes.f32], dtypes.f32, 64, 1)
    *inputs, out = function.params
    loop: Any = function.body
    place = loop.body.indices
    store = Store(out, place, value(Load(inputs[0], place), Load(inputs[1], place), Load(out, place)))
    function = function.replace(body=loop.replace(body=store))
    fused = fuse_multiply_add(function)
    products = 2 if form == "two products" else 1
    assert str(fused).count("fma(") == products
    wide = [v.astype(np.float64) for v in (a, b, t)]
    sign = -1 if form == "difference" else 1
    want = (wide[2] + sign * wide[0] * wide[1]).astype(np.float32)
    if products == 2:
        want = (want.astype(np.float64) + wide[1] * wide[1]).astype(np.float32)
    if form == "term":
        want = t + (wide[1] * wide[1] + (a * b).astype(np.float64)).astype(np.float32)
    got = t.copy()
    Machine(legal(fused))(a, b, got)
    assert np.array_equal(got, want)


def test_other_stores_keep_their_roundings() -> None:
    function = elementwise(lambda a, b: a * b + a, [dtypes.f32, dtypes.f32], dtypes.f32, 8, 1)
    assert fuse_multiply_add(function) is function
