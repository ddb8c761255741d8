"""Loops functions and expressions print and parse to the same program."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from strategies import expressions, functions
from tilewright.expr import dtypes, nodes
from tilewright.expr.build import less, minimum, select
from tilewright.expr.dtypes import DTYPES
from tilewright.expr.intrinsics import INTRINSICS
from tilewright.expr.nodes import Broadcast, Call, Cast, Const, Not, Ramp, Shuffle, Var, call, const
from tilewright.expr.parse import parse as parse_expression
from tilewright.expr.text import show as show_expression
from tilewright.loops.nodes import Alloc, Buffer, For, Function, LoopKind, Seq, Store
from tilewright.loops.parse import parse, parse_all
from tilewright.loops.same import same
from tilewright.loops.text import show
from tilewright.loops.verify import verify
from tilewright.types.scopes import Scope

I, N = Var("i"), Var("n")  # noqa: E741
X = Var("x", dtypes.f32)
LEAVES = {"i": I, "n": N, "x": X, "d": Var("d", dtypes.f64), "h": Var("h", dtypes.f16), "p": Var("p", dtypes.bool_)}

PRINTED = [
    (I * 4 + N, "i*4 + n"),
    ((I + N) * 4, "(i + n) * 4"),
    (I - (N - 1), "i - (n - 1)"),
    (I // 4 % N, "i//4%n"),
    (I // (N * 2), "i//(n*2)"),
    (-(I + N), "-(i + n)"),
    (Call(INTRINSICS["neg"], (const(5),)), "-(5)"),
    (nodes.Sub(I, const(-5)), "i - -5"),
    (X * 2 + call("exp", X), "x*2.0 + exp(x)"),
    (select(less(I, N), X, 0), "select(i < n, x, 0.0)"),
    (Cast(Const(5, dtypes.i64), dtypes.f32), "f32(i64(5))"),
    (const(0.5, dtypes.f64), "f64(0.5)"),
    (nodes.Add(const(0.5, dtypes.f64), const(0.25, dtypes.f64)), "f64(0.5) + 0.25"),
    (nodes.Eq(const(1, dtypes.i8), const(2, dtypes.i8)), "i8(1) == 2"),
    (const(-8, dtypes.i4), "i4(-8)"),
    (const(0.3, dtypes.f8e4m3fn), "f8e4m3fn(0.3)"),
    (const(math.inf, dtypes.f8e5m2), "f8e5m2(inf)"),
    (const(math.nan, dtypes.f8e4m3fnuz), "f8e4m3fnuz(nan)"),
    (const(0.0, dtypes.f8e8m0), "f8e8m0(6e-39)"),
    (Cast(X, dtypes.f4e2m1), "f4e2m1(x)"),
    (call("from_bits.i4", call("bits", Cast(X, dtypes.i4))), "from_bits.i4(bits(i4(x)))"),
    (const(0.1, dtypes.bf16), "bf16(0.1)"),
    (const(65504, dtypes.f16), "f16(65504.0)"),
    (const(1e-45, dtypes.f32), "1e-45"),
    (nodes.And(Not(less(I, N)), LEAVES["p"]), "not i < n and p"),
    (Not(nodes.And(LEAVES["p"], LEAVES["p"])), "not (p and p)"),
    (nodes.Shl(nodes.BitOr(I, N), const(2)), "(i | n) << 2"),
    (minimum(N, 8) - 1, "min(n, 8) - 1"),
    (Ramp(I * 2, const(3), 8), "ramp(i*2, 3, 8)"),
    (nodes.Add(Broadcast(X, 4), Broadcast(const(0.5, dtypes.f32), 4)), "broadcast(x, 4) + broadcast(0.5, 4)"),
    (
        Shuffle(Ramp(I, const(3), 2), Broadcast(N, 2), (0, 2, 1, 3)),
        "shuffle(ramp(i, 3, 2), broadcast(n, 2), 0, 2, 1, 3)",
    ),
]


@pytest.mark.parametrize(("e", "text"), PRINTED, ids=[t for _, t in PRINTED])
def test_expression_text(e: nodes.Expr, text: str) -> None:
    assert str(e) == text
    assert parse_expression(text, LEAVES) is e


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_every_expression_reads_back(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(list(DTYPES.values())))
    e = data.draw(expressions(dtype, list(LEAVES.values())))
    assert parse_expression(str(e), LEAVES) is e
    assert parse_expression(show_expression(e, expected=dtype), LEAVES, dtype) is e


@given(functions())
@settings(max_examples=150, deadline=None)
def test_every_function_reads_back(f: Function) -> None:
    verify(f)
    text = str(f)
    again = parse(text)
    assert same(f, again)
    assert str(again) == text


SCHEDULED = """\
func linear(x: f32[512, 768], wp: f32[8, 768, 64], b: f32[512], y: f32[512, 512]):
  parallel jo in 0..8:
    for io in 0..86:
      alloc t: f32[6, 64] in register
      unroll ii in 0..6:
        vectorize jj in 0..64:
          block dot.init(vi = io*6 + ii, vj = jo*64 + jj):
            t[ii, jj] = 0.0
      for k in 0..768:
        unroll ii in 0..6:
          vectorize jj in 0..64:
            block dot(vi = io*6 + ii, vj = jo*64 + jj, reduce vk = k) where io*6 + ii < 512:
              t[ii, jj] += x[vi, vk] * wp[jo, vk, jj]
      unroll ii in 0..6:
        vectorize jj in 0..64:
          block relu(vi = io*6 + ii, vj = jo*64 + jj) where io*6 + ii < 512:
            y[vi, vj] = max(t[ii, jj] + b[vj], 0.0)"""

EVERYTHING = """\
func "model/all:0"[n >= 1, m](x: f32[n, m], state: i64[] in arena, out y: f32[n]):
  source "Conv_1", "a \\"quoted\\" name"
  constant @w.packed: f32[8, 768, 64]
  constant @"w/0": f64[3]
  reserve n*4096 + 64
  alloc h: f32[n, 64] in arena at n*4096
  view v: f32[n, 8, 8] = h
  view u: f64[3, 1] = @"w/0"
  assert m < 8, "m is {0}, not below {1}", m, 8
  let j = state[]
  let k >= 0 = max(j, 0)
  let half = 0.5 * @"w/0"[0]
  bind blockIdx.x = io in 0..32:
    bind threadIdx.x = ii in 0..128:
      alloc tile: f32[32, 32] in shared
      tile[0, 0:16] = fma(broadcast(x[io, 0], 16), @w.packed[0, ii, 0:16], tile[0, io:io + 16])
  for i >= -3 in -3..n, c >= -inf in i..n:
    if c < 0:
      pass
    else:
      block "a b"() where c < n:
        y[c] = 0.0
  while 0 < state[]:
    state[] = state[] - 1
    call linear[n, 3](x, @w.packed, y)
  scope:
    let half_1 = 1.5
    y[0] = half_1
  publish h as argument 3, sizes 2
  prefetch x[n, 3] into 2
  fence
  for i in 0..n, k_1 in 0..4:
    block s(vi = i, reduce vk = k_1):
      init:
        y[vi] = 0.0
        y[vi] = -inf
      y[vi] += x[vi, vk]"""


@pytest.mark.parametrize("text", [SCHEDULED, EVERYTHING], ids=["scheduled", "everything"])
def test_canonical_text_is_kept(text: str) -> None:
    assert str(parse(text)) == text


def test_several_functions_and_comments() -> None:
    text = "# first\nfunc f(x: f32[2]):  # a comment\n\n  x[0] = 1\n\nfunc g(x: f32[2]): x[1] = 2\n"
    assert [str(f) for f in parse_all(text)] == ["func f(x: f32[2]):\n  x[0] = 1.0", "func g(x: f32[2]):\n  x[1] = 2.0"]


def test_long_parameter_lists_are_broken() -> None:
    params = tuple(Buffer(f"parameter_{k}", dtypes.f32, (N, const(k))) for k in range(9))
    f = Function("f", (N,), params, Store(params[-1], (const(0), const(0)), const(0, dtypes.f32)))
    assert str(f).split("\n")[:3] == ["func f[n](", "    parameter_0: f32[n, 0],", "    parameter_1: f32[n, 1],"]
    assert same(parse(str(f)), f)


def test_what_is_known_of_constants_reads_back() -> None:
    text = "func f(x: f32[8], w: f32[8] in constant finite shared, y: f32[8]):\n  for i in 0..8: y[i] = x[i] * w[i]\n"
    found = parse(text)
    assert isinstance(found, Function)
    assert (found.params[1].finite, found.params[1].shared) == (True, True) and show(found) == show(parse(show(found)))
    assert "in constant finite shared" in show(found) and not same(found, parse(text.replace(" shared", "")))


@pytest.mark.parametrize("outputs", [0, 1, 2, 3])
def test_outputs_read_back(outputs: int) -> None:
    x, y, z = (Buffer(name, dtypes.f32, ()) for name in "xyz")
    f = Function("f", (), (x, y, z), Store(z, (), const(0, dtypes.f32)), outputs)
    head = {0: "x: f32[], y: f32[], inout z", 1: "x: f32[], y: f32[], z", 2: "x: f32[], out y: f32[], out z"}
    expected = head.get(outputs, "out x: f32[], out y: f32[], out z")
    assert str(f).startswith(f"func f({expected}: f32[]):")
    assert parse(str(f)).outputs == outputs


def test_names_are_unique_only_among_the_visible() -> None:
    y = Buffer("y", dtypes.f32, (N,))
    inner = For(Var("i"), const(0), N, LoopKind.PARALLEL, Seq(()))
    body = Seq(
        (For(Var("i"), const(0), N, LoopKind.SERIAL, inner), For(Var("y"), const(0), N, LoopKind.SERIAL, Seq(())))
    )
    lines = str(Function("f", (N,), (y,), body, 0)).split("\n")[1:]
    assert lines == [
        "  for i in 0..n:",
        "    parallel i_1 in 0..n:",
        "      pass",
        "  for y_1 in 0..n:",
        "    pass",
    ]


def test_a_sequence_that_ends_a_life_is_kept() -> None:
    t, y = Buffer("t", dtypes.f32, (), Scope.STACK), Buffer("y", dtypes.f32, ())
    store = Store(y, (), const(0, dtypes.f32))
    f = Function("f", (), (y,), Seq((Seq((Alloc(t), store)), Seq((store, store)))))
    assert str(f).split("\n")[1:] == [
        "  scope:",
        "    alloc t: f32[] in stack",
        "    y[] = 0.0",
        "  y[] = 0.0",
        "  y[] = 0.0",
    ]
    assert same(parse(str(f)), f)


def test_same_tells_programs_apart() -> None:
    text = "func f[n](x: f32[n], y: f32[n]):\n  for i in 0..n:\n    y[i] = x[i]"
    f = parse(text)
    assert same(f, parse(text.replace("i", "k").replace("k in", "k in").replace("kn 0", "in 0")))
    for other in (("y[i] =", "x[i] ="), ("0..n", "1..n"), ("for", "parallel"), ("f32[n], y", "f32[n, 2], y")):
        changed = text.replace(*other).replace("= x[i]", "= x[i, 0]") if "2" in other[1] else text.replace(*other)
        assert not same(f, parse(changed))
