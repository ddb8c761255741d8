"""Parts of expressions that are used many times are printed once, and read back as the same shared graph."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import tilewright.ops  # noqa: F401  fills the registry
from strategies import ARITHMETIC, COMPARISONS, pick
from tilewright.core.walk import postorder, substitute
from tilewright.expr import dtypes, nodes
from tilewright.expr.build import less, maximum, minimum, select
from tilewright.expr.dtypes import DType
from tilewright.expr.functions.expansions import IN_DOUBLE, NATIVE
from tilewright.expr.intrinsics import INTRINSICS
from tilewright.expr.nodes import Call, Cast, Const, Expr, Ramp, Select, Var, const
from tilewright.expr.parse import parse as parse_expression
from tilewright.expr.simplify import simplify
from tilewright.expr.text import show as show_expression
from tilewright.graph.parse import parse as parse_graph
from tilewright.loops.nodes import Buffer, For, Function, Load, LoopKind, Seq, Stmt, Store
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.loops.expand_math import expand_math
from tilewright.report.errors import InternalError, UserError
from tilewright.types.scopes import Scope
from tilewright.types.tensor import TensorType

I, N = Var("i"), Var("n")  # noqa: E741
LEAVES = {"i": I, "n": N, "s0": Var("s0"), "x": Var("x", dtypes.f32), "p": Var("p", dtypes.bool_)}


def repeated(step: Callable[[Expr], Expr], start: Expr, count: int) -> Expr:
    for _ in range(count):
        start = step(start)
    return start


def elementwise(value: Callable[[Expr], Expr], dtype: DType = dtypes.f32) -> Function:
    """y[i] = value(x[i])."""
    x, y = Buffer("x", dtype, (N,)), Buffer("y", dtype, (N,))
    body = Store(y, (I,), value(Load(x, (I,))))
    return Function("f", (N,), (x, y), For(I, const(0), N, LoopKind.SERIAL, body))


def assert_reads_back(f: Function) -> None:
    text = str(f)
    again = parse(text)
    assert same(f, again)
    assert str(again) == text
    assert distinct(again) == distinct(f)


def distinct(f: Function) -> int:
    return sum(1 for _ in postorder(f.body))


# what it looks like

STATEMENTS = """\
func f[n](x: f32[n], s0: f32[n], y: f32[n]):
  reserve s1*s1*64
    where s1 = max(n + 4095, 4096) // 4096 * 4096 + max(n, 64)
  assert 0.0 < s1 - s1*s1, "wrong: {0}", s1
    where s1 = exp(x[0] + s0[0] * 0.25)
  let s2 = s1 / (s1 + 1.0)
    where s1 = exp(x[0] + s0[0] * 0.25)
  for i in 0..n:
    block b(vi = i) where vi < n - 1:
      init: y[vi] = s1*s1
        where s1 = log(abs(x[vi]) + abs(x[vi + 1]))
      y[vi] += s3*s3 + s2
        where s1 = abs(x[vi]) * abs(x[vi]) + s2
              s3 = (s1*s1 + s2) * (s1*s1 + s2) + s1
      y[s1*s1] = s0[s1]
        where s1 = (vi*64 + 17) // 19 % (n + 4) + (vi*64 + 17) % 19
  call g[s1, s1](x, y)
    where s1 = max(n + 4095, 4096) // 4096 * 4096 + max(n, 64)
  y[0] = x[0]"""


def test_what_statements_look_like() -> None:
    assert str(parse(STATEMENTS)) == STATEMENTS


BRACKETS = (
    "((s0*s0 + 1) * (s0*s0 + 1) + 1) * ((s0*s0 + 1) * (s0*s0 + 1) + 1) + 1"
    " where s0 = ((n*n + 1) * (n*n + 1) + 1) * ((n*n + 1) * (n*n + 1) + 1) + 1"
)


def test_what_brackets_look_like() -> None:
    large, small = (repeated(lambda d: d * d + 1, N, depth) for depth in (6, 3))
    assert str(large) == f"({BRACKETS})"
    assert str(small) == BRACKETS.split(" where s0 = ")[1]
    assert parse_expression(str(large), LEAVES) is large


def test_names_in_brackets_hide_others() -> None:
    assert parse_expression("(s0 where s0 = (s0 + 1 where s0 = i), x = 3)*2 + s0", LEAVES) is (I + 1) * 2 + LEAVES["s0"]
    assert parse_expression("1 + (n where n = f32(0.5))", {}) is nodes.Add(const(1, dtypes.f32), const(0.5, dtypes.f32))


def test_short_parts_are_written_out() -> None:
    f = elementwise(lambda v: v * v + (v * v) * (v * v) + call("exp", v) * call("exp", v))
    assert "y[i] = x[i] * x[i] + x[i] * x[i] * (x[i] * x[i]) + exp(x[i]) * exp(x[i])" in str(f)


def call(name: str, *args: Expr) -> Expr:
    return Call(INTRINSICS[name], args)


def test_long_parts_are_named_even_if_used_once() -> None:
    f = elementwise(lambda v: repeated(lambda e: call("abs", e) - v, v, 400))
    assert max(map(len, str(f).split("\n"))) < 400
    assert_reads_back(f)


def test_names_of_parts_are_unlike_all_others() -> None:
    s1, other = Var("s1"), Buffer("s0", dtypes.f32, (N, N))
    value = call("exp", Load(other, (s1, I)) + 0.5)
    body = For(s1, const(0), N, LoopKind.SERIAL, Store(other, (s1, I), value * value + value))
    f = Function("f", (N,), (other,), For(I, const(0), N, LoopKind.SERIAL, body))
    assert "s0[s1, i] = s2*s2 + s2\n      where s2 = exp(s0[s1, i] + 0.5)" in str(f)
    assert_reads_back(f)


def test_slices_share_what_they_begin_at() -> None:
    place = (I * 64 + 17) // 19 % (N + 4) + (I * 64 + 17) % 19
    x, y = (Buffer(name, dtypes.f32, (N,)) for name in "xy")
    ramp = Ramp(place, const(1), 16)
    f = Function("f", (N, I), (x, y), Store(y, (ramp,), Load(x, (ramp,)) * Load(x, (ramp,))))
    assert "y[s0:s0 + 16] = x[s0:s0 + 16] * x[s0:s0 + 16]" in str(f)
    assert_reads_back(f)


def test_errors_mark_a_part_at_its_statement() -> None:
    """The place of a fault is found, and printed at a reasonable length, however often its parts are used."""
    z = Load(Buffer("z", dtypes.f32, (N,)), (I,))
    f = elementwise(lambda v: repeated(lambda e: e * e + v, z, 64))
    with pytest.raises(InternalError, match="z is not defined here") as error:
        verify(f)
    assert len(str(error.value)) < 9000


# every shared graph reads back


@st.composite
def shared_graphs(draw: st.DrawFn, leaves: list[Expr]) -> list[Expr]:
    """Expressions of every operator over earlier ones, most used several times; the last ones last."""
    pool = list(leaves)

    def some(dtype: DType) -> Expr:
        fitting = [e for e in pool if e.dtype is dtype]
        return pick(draw, fitting[-4:] if pick(draw, (True, True, False)) else fitting)

    for _ in range(draw(st.integers(0, 40))):
        dtype = pick(draw, (dtypes.f32, dtypes.f32, dtypes.index, dtypes.bool_))
        form = pick(draw, ("operator", "operator", "select", "cast", "call"))
        if form == "select":
            pool.append(Select(some(dtypes.bool_), some(dtype), some(dtype)))
        elif form == "cast":
            pool.append(Cast(some(pick(draw, (dtypes.f32, dtypes.index))), dtype))
        elif dtype is dtypes.bool_:
            kind = pick(draw, (dtypes.f32, dtypes.index))
            both = nodes.And(some(dtype), nodes.Not(some(dtype)))
            pool.append(pick(draw, (pick(draw, COMPARISONS)(some(kind), some(kind)), both)))
        elif form == "call":
            pool.append(call("neg", some(dtype)))
        else:
            pool.append(pick(draw, ARITHMETIC[:6])(some(dtype), some(dtype)))
    return pool


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_every_shared_expression_reads_back(data: st.DataObject) -> None:
    numbers = [const(3), const(-0.5, dtypes.f32), Const(True, dtypes.bool_), const(7, dtypes.f32)]
    e = data.draw(shared_graphs([*LEAVES.values(), *numbers]))[-1]
    assert parse_expression(str(e), LEAVES) is e
    assert parse_expression(show_expression(e, expected=e.dtype), LEAVES, e.dtype) is e


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_every_shared_statement_reads_back(data: st.DataObject) -> None:
    x, y, s1 = Buffer("x", dtypes.f32, (N, N)), Buffer("y", dtypes.f32, (N,)), Buffer("s1", dtypes.index, (N,))
    loads = [Load(x, (I, I + 1)), Load(s1, (I,)), const(2), const(0.1, dtypes.f32), Const(False, dtypes.bool_)]
    pool = data.draw(shared_graphs([I, N, *loads]))
    values = [e for e in pool if e.dtype is dtypes.f32]
    indices = [e for e in pool if e.dtype is dtypes.index]
    old = Load(y, (indices[-1],))
    body: list[Stmt] = [Store(y, (indices[-1],), values[-1]), Store(y, (indices[-1],), nodes.Add(old, values[-1]))]
    nest = For(I, const(0), N, LoopKind.SERIAL, Seq(tuple(body)))
    assert_reads_back(Function("f", (N,), (x, y, s1), nest))


# text is linear in the size of the graph

STEPS: list[Callable[[Expr], Expr]] = [
    lambda d: d * d,
    lambda d: d * d + 1,
    lambda d: minimum(d // 2 + 1, d % 7) + d,
    lambda d: maximum(N // (d + 1), d),
    lambda d: select(less(d, N), d - 1, d * 3),
    lambda d: call("neg", d) - d,
    lambda d: minimum(d, N) + 1,
]


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_expressions_print_and_parse_in_linear_size(number: int) -> None:
    sizes = []
    for depth in (64, 128, 256):
        e = repeated(STEPS[number], N + 3, depth)
        text = str(e)
        assert parse_expression(text, LEAVES) is e
        sizes.append(len(text))
    assert sizes[0] < 64 * 100
    assert sizes[2] - sizes[1] < 2.3 * (sizes[1] - sizes[0])


def test_statements_print_and_parse_in_linear_size() -> None:
    sizes = []
    for depth in (64, 128, 256):
        count = depth
        f = elementwise(lambda v: repeated(lambda e: e * e, v, count))  # noqa: B023
        assert_reads_back(f)
        sizes.append(len(str(f)))
    assert sizes[0] < 64 * 60
    assert sizes[2] - sizes[1] < 2.3 * (sizes[1] - sizes[0])


def test_types_print_in_linear_size() -> None:
    d = repeated(lambda d: minimum(d // 2 + 1, d % 7) + d, N, 64)
    assert len(str(TensorType(dtypes.f32, (d, N, d)))) < 2 * 64 * 60
    x = Buffer("x", dtypes.f32, (d,))
    assert_reads_back(Function("f", (N,), (x,), Store(x, (const(0),), const(0, dtypes.f32))))


def test_graphs_print_in_linear_size() -> None:
    d = repeated(lambda d: minimum(d // 2 + 1, d % 7) + d, N, 64)
    text = f"graph main[n](x: f32[{d}]) -> y:\n  y: f32[{d}] = relu(x)"
    graph = parse_graph(text)
    assert str(parse_graph(str(graph))) == str(graph)
    assert len(str(graph)) < 2 * 64 * 60
    (symbol,) = graph.symbols
    assert graph.params[0].type.shape == (simplify(substitute(d, {N: symbol})),)


FUNCTIONS = sorted({*NATIVE, *IN_DOUBLE, "pow"})


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_expanded_functions_read_back(name: str, dtype: DType) -> None:
    args = (lambda v: (v, v + 1)) if name == "pow" else lambda v: (v,)
    f = expand_math(elementwise(lambda v: call(name, *args(v)), dtype))
    assert_reads_back(f)
    assert len(str(f)) < 100 + 40 * distinct(f)


@pytest.mark.parametrize("dtype", [dtypes.i64, dtypes.u8], ids=str)
def test_expanded_integer_powers_read_back(dtype: DType) -> None:
    f = expand_math(elementwise(lambda v: call("pow", v, v + 1), dtype))
    assert_reads_back(f)
    assert len(str(f)) < 100 + 40 * distinct(f)


def test_inlined_vectors_read_back() -> None:
    t = Buffer("t", dtypes.f32, (const(64),), Scope.REGISTER)
    wide = Load(t, (Ramp(const(16), const(1), 16),))
    value = repeated(lambda e: e * e + wide, call("exp", wide), 64)
    f = Function("f", (), (t,), Store(t, (Ramp(const(0), const(1), 16),), value))
    assert_reads_back(f)


# what cannot be read

HEAD = "func f[n](x: f32[n], y: f32[n]):\n"

WRONG = [
    (
        "  y[0] = s0\n    where s0 = s1*s1\n          s1 = x[0]\n",
        "unknown variable s1\n"
        "   2 |   y[0] = s0\n"
        "   3 |     where s0 = s1*s1\n"
        "     |                ^^\n"
        "fix:  define it before this line, or use n",
    ),
    (
        "  y[0] = s0\n    where s0 = x[0]\n          s0 = x[1]\n",
        "s0 is defined already\n"
        "   3 |     where s0 = x[0]\n"
        "   4 |           s0 = x[1]\n"
        "     |           ^^\n"
        "fix:  choose another name",
    ),
    (
        "  for i in 0..n:\n    where s0 = x[i]\n    y[i] = s0\n",
        "definitions stand under statements without a body\n"
        "   2 |   for i in 0..n:\n"
        "   3 |     where s0 = x[i]\n"
        "     |     ^^^^^\n"
        "fix:  write them in brackets: (s0*s0 where s0 = …)",
    ),
    (
        "  y[0] = s0\n    where s0 = x[0]\n  y[1] = s0\n",
        "unknown variable s0\n"
        "   3 |     where s0 = x[0]\n"
        "   4 |   y[1] = s0\n"
        "     |          ^^\n"
        "fix:  define it before this line, or use n",
    ),
    (
        "  y[0] = x[0] * (s0 * s0 where s0 = x[1], not = x[2])\n",
        "not is a word of the language\n"
        "   1 | func f[n](x: f32[n], y: f32[n]):\n"
        "   2 |   y[0] = x[0] * (s0 * s0 where s0 = x[1], not = x[2])\n"
        "     |                                           ^^^\n"
        "fix:  choose another name",
    ),
    (
        "  y[0] = (s0 x[0] where s0 = x[1])\n",
        "expected where before x\n"
        "   1 | func f[n](x: f32[n], y: f32[n]):\n"
        "   2 |   y[0] = (s0 x[0] where s0 = x[1])\n"
        "     |              ^\n"
        "fix:  remove the rest, or join it",
    ),
    (
        "  y[0] = (s0*s0 where s0 = x[1]; s1 = x[2])\n",
        "the character ';' has no meaning here\n"
        "   1 | func f[n](x: f32[n], y: f32[n]):\n"
        "   2 |   y[0] = (s0*s0 where s0 = x[1]; s1 = x[2])\n"
        "     |                                ^\n"
        "fix:  remove it",
    ),
    (
        "  y[0] = s0*s0\n    where s0\n",
        "expected = before the end of the line\n"
        "   2 |   y[0] = s0*s0\n"
        "   3 |     where s0\n"
        "     |             ^\n"
        "fix:  write s0 = value",
    ),
]


@pytest.mark.parametrize(("body", "message"), WRONG, ids=[m.split("\n")[0] for _, m in WRONG])
def test_what_is_wrong_is_said(body: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        parse(HEAD + body)
    assert str(error.value) == message


BROKEN = ["(" * 3000, "(n where " * 500, "(s0 where s0 = " * 500, "(n where s0 = n" + ", s0 = n" * 9, "(n where s0 = n"]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_broken_text_is_an_error(text: str) -> None:
    with pytest.raises(UserError):
        parse_expression(text, LEAVES)
