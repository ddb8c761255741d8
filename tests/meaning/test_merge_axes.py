"""Axes of kernels that lie one behind the other become one, and what is computed stays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import tilewright as tw
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const
from tilewright.graph.parse import parse_module
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Buffer, Function
from tilewright.loops.parse import parse
from tilewright.loops.verify import verify
from tilewright.lower.kernels.make_kernels import make_kernels
from tilewright.lower.kernels.merge_axes import merge_axes
from tilewright.plan.fusion.planner import choose
from tilewright.target import Target

TARGET = Target.parse("x86-64-v3")
LANES = TARGET.lanes(f32)

ALL = "i in 0..2, j in 0..3, k in 0..4, l in 0..5"
IMAGE = "x: f32[2, 3, 4, 5]"
RESULT = "out y: f32[2, 3, 4, 5]"

CASES = {
    "a map": ((IMAGE, RESULT), ALL, "y[vi, vj, vk, vl] = x[vi, vj, vk, vl] + 1.0", "[120] [120]"),
    "a number for each channel": (
        (IMAGE, "b: f32[1, 3, 1, 1]", RESULT),
        ALL,
        "y[vi, vj, vk, vl] = x[vi, vj, vk, vl]*b[0, vj, 0, 0]",
        "[2, 3, 20] [3] [2, 3, 20]",
    ),
    "a number for each image": (
        (IMAGE, "b: f32[2, 1, 1, 1]", RESULT),
        ALL,
        "y[vi, vj, vk, vl] = x[vi, vj, vk, vl]*b[vi, 0, 0, 0]",
        "[2, 60] [2] [2, 60]",
    ),
    "axes of one element": (
        ("x: f32[1, 3, 1, 4]", "out y: f32[3, 1, 4, 1]"),
        "i in 0..1, j in 0..3, k in 0..1, l in 0..4",
        "y[vj, vk, vl, vi] = x[vi, vj, vk, vl + vi]",
        "[12] [12]",
    ),
    "channels innermost": (
        (IMAGE, "out y: f32[2, 4, 5, 3]"),
        "i in 0..2, k in 0..4, l in 0..5, j in 0..3",
        "y[vi, vk, vl, vj] = x[vi, vj, vk, vl]",
        "[2, 3, 20] [2, 20, 3]",
    ),
    "rows turned round": (
        (IMAGE, RESULT),
        ALL,
        "y[vi, vj, vk, vl] = x[vi, vj, vk, 4 - vl]",
        "[24, 5] [24, 5]",
    ),
    "a part of the rows": (
        (IMAGE, "out y: f32[2, 3, 3, 5]"),
        "i in 0..2, j in 0..3, k in 0..3, l in 0..5",
        "y[vi, vj, vk, vl] = x[vi, vj, vk, vl]",
        "[6, 4, 5] [6, 3, 5]",
    ),
    "a diagonal": (
        ("x: f32[4, 4]", "out y: f32[4, 4]"),
        "i in 0..4, j in 0..4",
        "y[vi, vj] = x[vi, vi] + x[vi, vj]",
        "[4, 4] [4, 4]",
    ),
    "values of axes": (("out y: f32[3, 4]",), "i in 0..3, j in 0..4", "y[vi, vj] = f32(vi*8 + vj)", "[3, 4]"),
    "two ways to read": (
        ("x: f32[3, 3]", "out y: f32[3, 3]"),
        "i in 0..3, j in 0..3",
        "y[vi, vj] = x[vi, vj] + x[vj, vi]",
        "[3, 3] [3, 3]",
    ),
    "one value for all": (("x: f32[1]", "out y: f32[2, 6]"), "i in 0..2, j in 0..6", "y[vi, vj] = x[0]", "[] [12]"),
    "an element that memory tells": (
        ("p: i64[3, 4]", "x: f32[9, 4]", "out y: f32[3, 4]"),
        "i in 0..3, j in 0..4",
        "y[vi, vj] = x[p[vi, vj]%9, vj]",
        "[3, 4] [9, 4] [3, 4]",
    ),
}


def function(params: Sequence[str], loops: str, statement: str) -> Function:
    """A function of one block."""
    axes = ", ".join(f"v{part[0]} = {part[0]}" for part in loops.split(", "))
    return parse(f"func f({', '.join(params)}):\n  for {loops}:\n    block b({axes}): {statement}\n")


def shapes(made: Function) -> str:
    return " ".join(f"[{', '.join(map(str, b.shape))}]" for b in made.params)


def agree(before: Function, after: Function) -> None:
    """Both compute the same of the same memory."""
    verify(after)
    draw = np.random.default_rng(2)
    given = [draw.integers(0, 9, sizes(b)).astype(b.dtype.numpy) for b in before.params]
    found = []
    for made in (before, after):
        own = [a.copy().reshape(sizes(b)) for a, b in zip(given, made.params, strict=True)]
        evaluate(made, own)
        found.append([a.ravel() for a in own])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def sizes(buffer: Buffer) -> list[int]:
    return [int(d.value) for d in buffer.shape if isinstance(d, Const)]


@pytest.mark.parametrize(("params", "loops", "statement", "wanted"), CASES.values(), ids=CASES)
def test_axes_become_one(params: Sequence[str], loops: str, statement: str, wanted: str) -> None:
    before = function(params, loops, statement)
    after = merge_axes(before)
    assert shapes(after) == wanted
    agree(before, after)


def test_sums() -> None:
    """The terms of a sum are one axis, and its results another."""
    before = parse(
        "func f(x: f32[2, 3, 4, 5], m: f32[1, 3, 1, 1], out s: f32[1, 3, 1, 1]):\n"
        "  alloc t: f32[2, 3, 4, 5] in arena\n"
        "  for i in 0..2, j in 0..3, k in 0..4, l in 0..5:\n"
        "    block t(vi = i, vj = j, vk = k, vl = l): t[vi, vj, vk, vl] = x[vi, vj, vk, vl] - m[0, vj, 0, 0]\n"
        "  for i in 0..1, j in 0..3, k in 0..1, l in 0..1, p in 0..2, q in 0..4, r in 0..5:\n"
        "    block s(vi = i, vj = j, vk = k, vl = l, reduce vp = p, reduce vq = q, reduce vr = r):\n"
        "      init: s[vi, vj, vk, vl] = 0.0\n"
        "      s[vi, vj, vk, vl] += t[vp, vj, vq, vr]\n"
    )
    after = merge_axes(before)
    assert shapes(after) == "[2, 3, 20] [3] [3]"
    assert "for j in 0..3, p in 0..2, qr in 0..20" in str(after)
    agree(before, after)


def test_a_sum_of_one_term_keeps_an_axis() -> None:
    before = parse(
        "func f(x: f32[6, 1], out s: f32[6]):\n  for i in 0..6, k in 0..1:\n    block s(vi = i, reduce vk = k):\n"
        "      init: s[vi] = 0.0\n      s[vi] += x[vi, vk]\n"
    )
    agree(before, merge_axes(before))


def test_symbols_and_constants_keep_their_axes() -> None:
    sized = parse("""
func f[n](x: f32[n, 4], out y: f32[n, 4]):
  for i in 0..n, j in 0..4:
    block y(vi = i, vj = j): y[vi, vj] = x[vi, vj]
""")
    assert merge_axes(sized) is sized
    params = ("x: f32[1, 3, 8]", "w: f32[1, 3, 8] in constant", "out y: f32[1, 3, 8]")
    loops = "i in 0..1, j in 0..3, k in 0..8"
    constant = function(params, loops, "y[vi, vj, vk] = x[vi, vj, vk]*w[vi, vj, vk]")
    assert shapes(merge_axes(constant)) == "[3, 8] [1, 3, 8] [3, 8]"
    agree(constant, merge_axes(constant))


TEXT = """
graph main(x: f32[4, 32, 6, 6], b: f32[1, 32, 1, 1], u: f32[4, 32, 36], c: f32[32, 1]) -> y, z:
  a: f32[4, 32, 6, 6] = add(x, b)
  y: f32[4, 32, 6, 6] = relu(a)
  d: f32[4, 32, 36] = add(u, c)
  z: f32[4, 32, 36] = relu(d)
"""


def test_products_and_windows_are_known_by_their_axes() -> None:
    text = """
graph main(x: f32[2, 3, 4], w: f32[4, 5], u: f32[1, 3, 8, 8]) -> y, z:
  y: f32[2, 3, 5] = contract(x, w, spec="bik,kj->bij")
  z: f32[1, 3, 7, 7] = window_reduce(u, kind=max, window=(1, 1, 2, 2), strides=(1, 1, 1, 1), dilations=(1, 1, 1, 1))
"""
    made = make_kernels(parse_module(text), lambda graph: choose(graph, TARGET), LANES)
    assert {name: shapes(f) for name, f in made.functions.items() if isinstance(f, Function)} == {
        "contract": "[2, 3, 4] [4, 5] [2, 3, 5]",
        "window_reduce": "[1, 3, 8, 8] [1, 3, 7, 7]",
    }


def test_kernels_that_differ_in_such_shapes_alone_share_a_program() -> None:
    module = parse_module(TEXT)
    made = make_kernels(module, lambda graph: choose(graph, TARGET), LANES)
    assert [name for name in made.functions if name != "main"] == ["add_relu"]
    draw = np.random.default_rng(3)
    x, b = (draw.standard_normal(s, np.float32) for s in ((4, 32, 6, 6), (1, 32, 1, 1)))
    u, c = (draw.standard_normal(s, np.float32) for s in ((4, 32, 36), (32, 1)))
    y, z = tw.compile(parse_module(TEXT))(x, b, u, c)
    np.testing.assert_array_equal(y, np.maximum(x + b, 0))
    np.testing.assert_array_equal(z, np.maximum(u + c, 0))
