"""Wrong loops programs: what the parser and the verifier say, word for word."""

from __future__ import annotations

import contextlib
from pathlib import Path

import hypothesis.strategies as st
import pytest
from golden import check
from hypothesis import given, settings

from strategies import functions
from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Var, const
from tilewright.loops.decompose import decompose
from tilewright.loops.nodes import Alloc, Axis, AxisKind, Block, Buffer, For, Function, LoopKind, Seq, Stmt, Store
from tilewright.loops.parse import parse
from tilewright.loops.verify import verify
from tilewright.report.errors import InternalError, UserError
from tilewright.types.scopes import Scope

HERE = Path(__file__).parent
CALLEE = parse("func callee[k](a: f32[k], b: f32[k]):\n  for i in 0..k:\n    b[i] = a[i]")


def test_parse_errors() -> None:
    check(HERE / "loops_parse.txt", parse)


def test_verifier_errors() -> None:
    check(HERE / "loops_verify.txt", lambda text: verify(parse(text), {"callee": CALLEE}, UserError))


OWN_LOOPS = """
func f[n](x: f32[n, n, 8], b: f32[n], w: f32[1], y: f32[n, n]):
  for i in 0..n, k in 0..8, t in 0..2, j in i..n:
    block s(vi = i, vj = j, reduce vk = k, reduce vt = t) where t < vk and vj < n - 1:
      init:
        for l in 0..1:
          y[vi, vj] = b[vj] + w[l]
      y[vi, vj] += x[vi, vj, vk]
"""


def test_an_init_may_need_what_is_defined_outside_its_sum_and_in_loops_of_its_own() -> None:
    f = parse(OWN_LOOPS)
    verify(f, None, UserError)
    verify(decompose(f))


def test_a_broken_pass_is_an_internal_error() -> None:
    f = parse("func f(x: f32[4]):\n  x[0] = 1").replace(outputs=2)
    with pytest.raises(InternalError, match="2 outputs of 1 parameters"):
        verify(f)


X = Buffer("x", dtypes.f32, (const(4),))
V = Var("v")
ONE = const(1, dtypes.f32)
LOOP = For(V, const(0), const(4), LoopKind.SERIAL, Store(X, (V,), ONE))
T = Buffer("t", dtypes.f32, (), Scope.STACK)

BUILT: list[tuple[str, Stmt, str]] = [
    ("use after the loop", Seq((LOOP, Store(X, (V,), ONE))), "v is not defined here"),
    ("use before", Store(X, (V,), ONE), "v is not defined here"),
    ("loop twice", Seq((LOOP, LOOP)), "v is defined twice"),
    ("nested loop twice", For(V, const(0), const(4), LoopKind.SERIAL, LOOP), "v is defined twice"),
    ("buffer twice", Seq((Alloc(T), Alloc(T))), "t is defined twice"),
    ("buffer after its life", Seq((Seq((Alloc(T), Store(T, (), ONE))), Store(T, (), ONE))), "t is not defined here"),
    ("axis twice", Block("b", (Axis(V, AxisKind.SPATIAL, const(0)),) * 2, LOOP), "v is defined twice"),
    ("rank", Store(X, (), ONE), "0 indices for x"),
    ("thread", For(V, const(0), const(4), LoopKind.THREAD, Seq(())), "the loop v is bound to no GPU axis"),
    ("no thread", For(V, const(0), const(4), LoopKind.SERIAL, Seq(()), "threadIdx.x"), "the loop v names a GPU axis"),
    ("constant", Store(X, (const(0),), Const(1, dtypes.f32)), "the value 1 of a constant is no float"),
]


@pytest.mark.parametrize(("body", "message"), [c[1:] for c in BUILT], ids=[c[0] for c in BUILT])
def test_programs_that_only_a_pass_can_make(body: Stmt, message: str) -> None:
    with pytest.raises(UserError) as caught:
        verify(Function("f", (), (X,), body), None, UserError)
    assert str(caught.value).split("\n")[0] == f"invalid program: {message}"


PROVABLY_FINE = [
    "for i in 0..n: y[i] = x[i]",
    "for i in 0..n:\n    if i + 1 < n:\n      y[i] = x[i + 1]",
    "for i in 0..n//4 + 1, j in 0..4:\n    block b(vi = i*4 + j) where i*4 + j < n:\n      y[vi] = x[vi]",
    "for i in 0..n, j in 0..n - i: y[i + j] = 1",
    "for i in 0..n, j in i..n - 1: y[j + 1] = 1",
    "for i in 0..0: y[n] = 1",
    "for i in 0..n: y[min(i + 1, n - 1)] = 1",
]


@pytest.mark.parametrize("body", PROVABLY_FINE)
def test_what_is_not_provably_wrong_passes(body: str) -> None:
    verify(parse(f"func f[n](x: f32[n], y: f32[n]):\n  {body}"))


@given(functions(), st.data())
@settings(max_examples=60, deadline=None)
def test_damaged_text_is_a_user_error_or_a_program(f: Function, data: st.DataObject) -> None:
    text = str(f)
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 6))
    put = data.draw(st.text('()[]:,.=+-*/<>@"# \n\tnixf019e\u00e9\x00', max_size=4))
    damaged = text[:at] + put + text[at + cut :]
    with contextlib.suppress(UserError):
        verify(parse(damaged), None, UserError)
