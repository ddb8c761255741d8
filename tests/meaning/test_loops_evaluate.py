"""The evaluator of loops functions against NumPy, and against the evaluator of expressions."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from strategies import COMPUTED, expressions, functions
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.evaluate import evaluate as evaluate_expression
from tilewright.expr.meaning import convert
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.loops.decompose import decompose
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Buffer, Function, Load, Store
from tilewright.loops.parse import parse
from tilewright.loops.scalar_meaning import CONVERSIONS
from tilewright.loops.verify import verify
from tilewright.report.errors import InternalError, RuntimeFault, UserError

RANDOM = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


CONV = parse("""
func conv[h, w](x: f32[1, 4, h, w], f: f32[5, 4, 3, 3], y: f32[1, 5, h - 2, w - 2]):
  for o in 0..5, i in 0..h - 2, j in 0..w - 2, c in 0..4, a in 0..3, b in 0..3:
    block conv(vo = o, vi = i, vj = j, reduce vc = c, reduce va = a, reduce vb = b):
      init: y[0, vo, vi, vj] = 0
      y[0, vo, vi, vj] += x[0, vc, vi + va, vj + vb] * f[vo, vc, va, vb]
""")

SOFTMAX = parse("""
func softmax[n, m](x: f32[n, m], y: f32[n, m]):
  alloc top: f32[n], e: f32[n, m], s: f32[n] in arena
  for i in 0..n, j in 0..m:
    block top(vi = i, reduce vj = j):
      init: top[vi] = -inf
      top[vi] = max(top[vi], x[vi, vj])
  for i in 0..n, j in 0..m:
    block e(vi = i, vj = j):
      e[vi, vj] = exp(x[vi, vj] - top[vi])
  for i in 0..n, j in 0..m:
    block s(vi = i, reduce vj = j):
      init: s[vi] = 0
      s[vi] += e[vi, vj]
  for i in 0..n, j in 0..m:
    block y(vi = i, vj = j):
      y[vi, vj] = e[vi, vj] / s[vi]
""")

LINEAR = parse("""
func linear(x: f32[8, 16], wp: f32[2, 16, 4], b: f32[8], y: f32[8, 8]):
  parallel jo in 0..2:
    for io in 0..3:
      alloc t: f32[3, 4] in register
      unroll ii in 0..3:
        vectorize jj in 0..4:
          block dot.init(vi = io*3 + ii, vj = jo*4 + jj):
            t[ii, jj] = 0
      for k in 0..16:
        unroll ii in 0..3:
          vectorize jj in 0..4:
            block dot(vi = io*3 + ii, vj = jo*4 + jj, reduce vk = k) where io*3 + ii < 8:
              t[ii, jj] += x[vi, vk] * wp[jo, vk, jj]
      unroll ii in 0..3:
        vectorize jj in 0..4:
          block relu(vi = io*3 + ii, vj = jo*4 + jj) where io*3 + ii < 8:
            y[vi, vj] = max(t[ii, jj] + b[vj], 0)
""")


@pytest.mark.parametrize(("h", "w"), [(3, 3), (5, 4), (3, 7)])
def test_convolution(h: int, w: int) -> None:
    x, f, y = normal(1, 4, h, w), normal(5, 4, 3, 3), np.full((1, 5, h - 2, w - 2), np.nan, np.float32)
    evaluate(CONV, {"x": x, "f": f, "y": y})
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    np.testing.assert_allclose(y, np.einsum("zcijab,ocab->zoij", windows, f), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 5), (0, 4), (4, 0)])
def test_softmax(n: int, m: int) -> None:
    x, y = normal(n, m), np.full((n, m), np.nan, np.float32)
    evaluate(SOFTMAX, [x, y])
    e = np.exp(x - x.max(1, keepdims=True, initial=-np.inf))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-6)


def test_scheduled_linear() -> None:
    x, w, b, y = normal(8, 16), normal(16, 8), normal(8), np.full((8, 8), np.nan, np.float32)
    packed = np.ascontiguousarray(w.reshape(16, 2, 4).transpose(1, 0, 2))
    evaluate(LINEAR, [x, packed, b, y])
    np.testing.assert_allclose(y, np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-5)


def test_an_empty_sum_is_its_initial_value() -> None:
    f = parse("""
func total[n, m](x: f32[n, m], y: f32[n]):
  for i in 0..n, j in 0..m:
    block s(vi = i, reduce vj = j):
      init: y[vi] = 5
      y[vi] += x[vi, vj]
""")
    y = np.zeros(3, np.float32)
    evaluate(f, [np.zeros((3, 0), np.float32), y])
    assert y.tolist() == [5, 5, 5]


def test_vectors() -> None:
    f = parse("""
func f[n](x: f32[n, 8], k: i64[4], y: f32[n, 8]):
  for i in 0..n:
    y[i, 0:8] = fma(broadcast(x[i, 0], 8), x[i, 0:8], broadcast(0.5, 8))
    y[i, ramp(1, 2, 4)] = select(x[i, 0:4] < broadcast(0.0, 4), broadcast(-1.0, 4), x[i, ramp(7, -1, 4)])
    y[i, k[0:4]] = f32(ramp(i, 1, 4))
""")
    x, k, y = normal(3, 8), np.array([0, 2, 2, 0]), np.zeros((3, 8), np.float32)
    evaluate(f, [x, k, y])
    expected = x[:, :1] * x + np.float32(0.5)
    expected[:, 1::2] = np.where(x[:, :4] < 0, -1, x[:, 7:3:-1])
    expected[:, 2], expected[:, 0] = np.arange(3) + 2, np.arange(3) + 3
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_calls_constants_values_and_loops_until() -> None:
    double = parse("func double[k](a: f32[k], b: f32[k]):\n  for i in 0..k: b[i] = a[i] * 2")
    main = parse("""
func main[n](x: f32[n], y: f32[n]):
  constant @w: f32[2]
  reserve n*4
  alloc t: f32[n] in arena at 0
  alloc count: i64[] in stack
  call double[n](x, t)
  count[] = 0
  while count[] < 3:
    count[] += 1
    let scale = @w[count[] % 2]
    for i in 0..n:
      if i % 2 == 0:
        t[i] = t[i] * scale
      else:
        t[i] += 1
  for i in 0..n: y[i] = t[i]
""")
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    evaluate(main, {"x": x, "y": y}, None, {"double": double}, {"w": np.array([3, 5], np.float32)})
    assert y.tolist() == [0, 5, 4 * 75, 9, 8 * 75]


def test_reading_what_nobody_wrote_shows() -> None:
    f = parse("func f(y: f32[2], k: i32[2]):\n  alloc t: f32[2], u: i32[2]\n  y[0] = t[0]\n  k[0] = u[0]")
    y, k = np.zeros(2, np.float32), np.zeros(2, np.int32)
    evaluate(f, [y, k])
    assert np.isnan(y[0]) and k[0] == np.int32(-0x5A5A5A5B)


def test_deep_nests() -> None:
    names = [f"i{k}" for k in range(26)]
    heads = ", ".join(f"{name} in 0..{2 if k % 9 == 0 else 1}" for k, name in enumerate(names))
    f = parse(f"func f(y: i64[]):\n  y[] = 0\n  for {heads}:\n    y[] += 1 + i9 + i18")
    y = np.zeros((), np.int64)
    evaluate(f, [y])
    assert y == 8 + 4 + 4


WRONG = [
    ("y[n] = 1", InternalError, "index [3] is outside y"),
    ("y[i64(x[0]) - 1] = 1", InternalError, "index [-1] is outside y"),
    ("y[0] = select(n < 0, x[n], 0.0)", InternalError, "index [3] is outside x"),
    ("y[0:4] = broadcast(0.0, 4)", InternalError, "index [[0, 1, 2, 3]] is outside y"),
    ('assert n < 3, "n is {0}, and x[0] {1}", n, x[0]', RuntimeFault, "n is 3, and x[0] 0.0"),
    ("call nobody(x)", InternalError, "call of nobody, which the module does not hold"),
    ("alloc t: f32[n - 4] in stack", InternalError, "t allocated with the shape [-1]"),
]


@pytest.mark.parametrize(("statement", "family", "message"), WRONG, ids=[w[0] for w in WRONG])
def test_faults(statement: str, family: type[Exception], message: str) -> None:
    f = parse(f"func f[n](x: f32[n], y: f32[n]):\n  {statement}")
    with pytest.raises(family) as caught:
        evaluate(f, [np.zeros(3, np.float32), np.zeros(3, np.float32)])
    assert message in str(caught.value)


def test_arrays_that_do_not_fit() -> None:
    f = parse("func f[n, k](x: f32[n, n*2], y: f32[n]):\n  y[0] = 1")
    x, y = np.zeros((2, 4), np.float32), np.zeros(2, np.float32)
    evaluate(f, [x, y], {"k": 1})
    for arrays, message in (
        ([x], "f takes 2 arrays, not 1"),
        ([x, y.astype(np.float64)], "y of f is float64[2]"),
        ([x, np.zeros(3, np.float32)], "y of f has the shape [3]"),
        ([np.zeros((2, 5), np.float32), y], "x of f has the shape [2, 5]"),
        ({"x": x}, "no array for y"),
    ):
        with pytest.raises(UserError) as caught:
            evaluate(f, arrays, {"k": 1})
        assert message in str(caught.value)
    with pytest.raises(UserError, match="no shape says what k is"):
        evaluate(f, [x, y])


LEAVES = {d: Buffer(f"x_{d}", d, ()) for d in COMPUTED}


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_scalars_mean_what_expressions_mean(data: st.DataObject) -> None:
    """One statement y[] = e, for every operator and type that has arithmetic, against the evaluator of expressions."""
    dtype = data.draw(st.sampled_from(COMPUTED))
    loads: list[Expr] = [Load(b, ()) for b in LEAVES.values()]
    e = data.draw(expressions(dtype, loads, 3))
    y = Buffer("y", dtype, ())
    f = Function("f", (), (*LEAVES.values(), y), Store(y, (), e))
    values = [np.asarray(data.draw(st.sampled_from(_VALUES[d.kind])), d.numpy) for d in COMPUTED]
    out = np.zeros((), dtype.numpy)
    evaluate(f, [*values, out])
    given_values = dict(zip(COMPUTED, values, strict=True))
    expected = evaluate_expression(e, {}, lambda node, _: given_values[node.dtype][()])
    assert np.array_equal(np.asarray(expected).astype(dtype.numpy), out, equal_nan=dtype.is_float), str(e)


_VALUES: dict[str, list[Any]] = {
    "b": [False, True],
    "i": [0, 1, -1, 5, -7, 100, -128, 127],
    "u": [0, 1, 5, 7, 100, 255],
    "f": [0.0, -0.0, 1.5, -2.25, 0.1, 100.0, float("inf"), float("nan")],
}


def test_sums_of_products_wrap_as_their_parts_do() -> None:
    """Also where a part is read twice, and where what it wraps to is divided or compared."""
    f = parse("""
func f(x: i32[8], y: i32[8], z: i32[8]):
  for i in 0..8:
    y[i] = (x[i]*x[i] + x[i])*x[i] - (x[i]*x[i] + x[i]) // 3
    z[i] = select(x[i]*x[i] + x[i] < x[i]*7, x[i]*x[i]*x[i] % 11, x[i] - 2147483647 - 5)
""")
    x = np.array([0, 1, -1, 46341, -46341, 65536, 2**31 - 1, -(2**31)], np.int32)
    y, z = np.zeros((2, 8), np.int32)
    evaluate(f, [x, y, z])
    with np.errstate(over="ignore"):
        square = x * x + x
        np.testing.assert_array_equal(y, square * x - square // np.int32(3))
        other = x - np.int32(2**31 - 1) - np.int32(5)
        np.testing.assert_array_equal(z, np.where(square < x * np.int32(7), x * x * x % np.int32(11), other))


PLAIN = [d for d in dtypes.DTYPES.values() if d.code is None]


@pytest.mark.parametrize("to", PLAIN, ids=str)
@pytest.mark.parametrize("source", PLAIN, ids=str)
def test_casts_of_scalars_are_those_of_arrays(source: DType, to: DType) -> None:
    """Of numbers at random, of those at and beside the ends of all types, and of those between two narrow floats."""
    ends = [float(e) + n for d in PLAIN if d.is_int for e in (d.min, d.max) for n in (-1, -0.5, 0, 0.5, 1)]
    ties = [
        sign * (1 + n / 2**bits) * 2.0**p
        for bits in (8, 11, 24)
        for n in (1, 3)
        for p in (0, 15, 127)
        for sign in (1, -1)
    ]
    near = [t * (1 + n * 2.0**-40) for t in ties for n in (-1, 1)]
    wide = np.array([*ends, *ties, *near, 0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, 3e38, 65520.0, 1e-7])
    bits = RANDOM.bytes(64 * source.numpy.itemsize)
    with np.errstate(all="ignore"):
        drawn = np.frombuffer(bits, np.uint8) % 2 if source.is_bool else np.frombuffer(bits, source.numpy)
        array = np.concatenate([convert(wide, source), drawn.astype(source.numpy)])
        expected, cast = convert(array, to), CONVERSIONS.cast(source, to, 1)
        found = [cast(a if source.is_float else a.item()) for a in array]
    assert all(isinstance(a, to.numpy.type if to.is_float else bool if to.is_bool else int) for a in found)
    if to.is_float:
        with np.errstate(all="ignore"):
            got, want = np.array(found, to.numpy).astype(np.float64), expected.astype(np.float64)
        np.testing.assert_array_equal(got, want)
        assert (np.isnan(want) | (np.signbit(got) == np.signbit(want))).all()
    else:
        assert found == expected.tolist()


@given(functions(), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_programs_run_and_their_text_runs_alike(f: Function, n: int, m: int) -> None:
    """No access of a random valid program is out of bounds, and what is read back computes the same."""
    shapes = [tuple(_size(d, n, m) for d in p.shape) for p in f.params]
    arrays = [np.asarray(RANDOM.integers(-4, 5, s), p.dtype.numpy) for p, s in zip(f.params, shapes, strict=True)]
    copies = [a.copy() for a in arrays]
    sizes = {"n": n, "m": m}
    evaluate(f, arrays, sizes)
    evaluate(parse(str(f)), copies, sizes)
    for a, b in zip(arrays, copies, strict=True):
        assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _size(extent: Expr, n: int, m: int) -> int:
    if isinstance(extent, Const):
        return int(extent.value)
    assert isinstance(extent, Var)
    return {"n": n, "m": m}[extent.name]


def test_constants_of_all_types_are_told_apart() -> None:
    text = "func f(y: f64[3]):\n  y[0] = 1 / -0.0\n  y[1] = 1 / 0.0\n  y[2] = f64(f32(0.1)) - 0.1"
    out = np.zeros(3)
    evaluate(parse(text), [out])
    assert out.tolist() == [-np.inf, np.inf, float(np.float32(0.1)) - 0.1]


MATRIX = parse("""
func matrix[n](x: f32[n, 6], y: f32[n]):
  for i in 0..n, k in 0..6:
    block s(vi = i, reduce vk = k) where vi < 3 and vk < 4:
      init: y[vi] = 5
      y[vi] += x[vi, vk]
""")


def test_a_predicate_over_reduce_axes_guards_the_terms_alone() -> None:
    """The initial value is stored where the conjuncts without reduce axes hold."""
    x, y = np.ones((5, 6), np.float32), np.full(5, -1, np.float32)
    evaluate(MATRIX, [x, y])
    assert y.tolist() == [9, 9, 9, -1, -1]
    plain = decompose(MATRIX)
    verify(plain)
    again = np.full(5, -1, np.float32)
    evaluate(plain, [x, again])
    assert again.tolist() == y.tolist()


def test_views_share_memory() -> None:
    f = parse("""
func f[n](x: f32[n, 6], y: f32[n, 6]):
  view flat: f32[n*6] = y
  view wide: f32[n*3, 2] = flat
  for i in 0..n*6: flat[i] = f32(i)
  for i in 0..n*3: wide[i, 0] = x[i//3, 0]
""")
    x, y = normal(4, 6), np.zeros((4, 6), np.float32)
    evaluate(f, [x, y])
    expected = np.arange(24, dtype=np.float32).reshape(4, 6)
    expected[:, ::2] = x[:, :1]
    np.testing.assert_array_equal(y, expected)


ARENA = """
func main[n](x: f32[n], y: f32[n]):
  reserve {bytes}
  alloc a: f32[n] in arena at 0
  for i in 0..n: a[i] = x[i] * 2
  alloc b: f32[n] in arena at {place}
  for i in 0..n: b[i] = x[i] * 3
  for i in 0..n: y[i] = a[i] + b[i]
"""


@pytest.mark.parametrize(("place", "right"), [("n*4", True), ("0", False), ("n*2", False)])
def test_buffers_lie_where_the_arena_has_them(place: str, right: bool) -> None:
    """Of two buffers of an arena that overlap, the second lies over the first."""
    x, y = np.arange(1, 5, dtype=np.float32), np.zeros(4, np.float32)
    evaluate(parse(ARENA.format(bytes="n*8", place=place)), [x, y])
    assert (y.tolist() == [5, 10, 15, 20]) is right


def test_a_buffer_must_lie_in_the_arena() -> None:
    arrays = [np.zeros(4, np.float32), np.zeros(4, np.float32)]
    with pytest.raises(InternalError, match=r"b is at 16\.\.32 of an arena of 20 bytes"):
        evaluate(parse(ARENA.format(bytes="n*5", place="n*4")), arrays)


def test_results_that_only_the_call_can_size_are_published() -> None:
    """The number of elements comes out of memory; then there is more to reserve, and the call starts again."""
    f = parse("""
func main[n](x: i64[n], count: i64[]):
  reserve 64
  alloc total: i64[] in arena at 0
  total[] = 0
  for i in 0..n:
    if 0 < x[i]:
      total[] += 1
  let k >= 0 = total[]
  assert k <= n, "k is {0} @ Some 'place'", k
  reserve 64 + k*8
  alloc found: i64[k] in arena at 64
  total[] = 0
  for i in 0..n:
    if 0 < x[i]:
      found[total[]] = x[i]
      total[] += 1
  count[] = k
  publish found as argument 1, sizes 1
""")
    count = np.zeros((), np.int64)
    published = evaluate(f, [np.array([3, -1, 5, 0, 7]), count])
    assert count == 3
    assert {place: found.tolist() for place, found in published.items()} == {1: [3, 5, 7]}
    assert evaluate(f, [np.zeros(0, np.int64), count])[1].shape == (0,)


def test_a_flat_parameter_takes_any_shape() -> None:
    double = parse("func double[k](a: f32[k], b: f32[k]):\n  for i in 0..k: b[i] = a[i] * 2")
    main = parse("func main[n](x: f32[n, 3], y: f32[n, 3]):\n  call double[n*3](x, y)")
    verify(main, {"double": double})
    x, y = normal(5, 3), np.zeros((5, 3), np.float32)
    evaluate(main, [x, y], None, {"double": double})
    np.testing.assert_array_equal(y, x * 2)


def test_a_fault_names_the_place_behind_the_at_sign() -> None:
    f = parse("""func f[n](x: f32[n], y: f32[n]):\n  assert n < 3, "n is {0} @ Reshape 'r'", n""")
    with pytest.raises(RuntimeFault) as caught:
        evaluate(f, [np.zeros(3, np.float32), np.zeros(3, np.float32)])
    assert (caught.value.what, str(caught.value.where)) == ("n is 3", "Reshape 'r'")
