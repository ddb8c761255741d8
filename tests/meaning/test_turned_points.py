"""Kernels that turn their data: what they compute, in what blocks, and with whole vectors."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.compiler import compile_module
from tilewright.compiler.pipeline import lower
from tilewright.expr.nodes import Const, const
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.loops.edit import statements
from tilewright.loops.nodes import For, Function, LoopKind
from tilewright.target import Target

V3 = Target.parse("x86-64-v3")
TURNED = """
graph main(x: f32[2, {r}, {c}], a: f32[2, {c}, {r}]) -> y:
  t: f32[2, {c}, {r}] = transpose(x, perm=(0, 2, 1))
  y: f32[2, {c}, {r}] = add(t, a)
"""
NORM = """
graph main(x: f32[1, {c}, {h}, {w}], g: f32[{c}]) -> y:
  t: f32[1, {h}, {w}, {c}] = transpose(x, perm=(0, 2, 3, 1))
  n: f32[] = full(value={c}.0, shape=())
  s: f32[1, {h}, {w}, 1] = reduce(t, kind=sum, axes=(3,), keepdims=true)
  m: f32[1, {h}, {w}, 1] = div(s, n)
  d: f32[1, {h}, {w}, {c}] = sub(t, m)
  q: f32[1, {h}, {w}, {c}] = mul(d, d)
  v: f32[1, {h}, {w}, 1] = reduce(q, kind=sum, axes=(3,), keepdims=true)
  y0: f32[1, {h}, {w}, {c}] = div(d, v)
  y: f32[1, {h}, {w}, {c}] = mul(y0, g)
"""


def agrees(module: Module) -> str:
    """Compares the compiled module with the evaluator; returns its LLVM IR."""
    rng = np.random.default_rng(0)
    shapes = [[int(e.value) for e in v.type.shape if isinstance(e, Const)] for v in module.graph.params]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    (want,) = evaluate(module, dict(zip([v.name for v in module.graph.params], arrays, strict=True))).values()
    executable = compile_module(module, V3)
    (got,) = executable(*arrays)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    return executable.show("llvm")


def loops(module: Module) -> list[For]:
    """The loops of the only kernel of a module."""
    functions = lower(module, V3).record.after("schedule").program.functions
    (found,) = (f for f in functions.values() if isinstance(f, Function))
    return [s for s in statements(found.body) if isinstance(s, For)]


@pytest.mark.parametrize("sizes", [(64, 48), (37, 20), (8, 3), (5, 19), (33, 4), (16, 16), (1, 40), (9, 17)])
def test_turned_points_are_what_the_graph_says(sizes: tuple[int, int]) -> None:
    agrees(parse_module(TURNED.format(r=sizes[0], c=sizes[1])))


def test_turned_points_run_in_blocks_of_a_cache_line_and_load_whole_vectors() -> None:
    module = parse_module(TURNED.format(r=64, c=48))
    llvm = agrees(module)
    assert "insertelement" not in llvm and "shufflevector" in llvm
    by_kind = [(loop.kind, loop.extent) for loop in loops(module)]
    unrolled = [extent for kind, extent in by_kind if kind is LoopKind.UNROLL]
    assert [int(e.value) for e in unrolled if isinstance(e, Const)] == [4]


@pytest.mark.parametrize("sizes", [(96, 14, 14), (10, 7, 7), (33, 5, 9), (64, 16, 16)])
def test_norms_over_channels(sizes: tuple[int, int, int]) -> None:
    agrees(parse_module(NORM.format(c=sizes[0], h=sizes[1], w=sizes[2])))


def test_rows_and_columns_of_an_image_are_one_axis_of_a_norm() -> None:
    """Vectors would else end where each row of fourteen ends; and strips of 196 positions keep several threads busy."""
    outer = next(loop for loop in loops(parse_module(NORM.format(c=96, h=14, w=14))) if loop.extent is not const(1))
    extent = outer.extent
    assert isinstance(extent, Const) and extent.value == 6


SHAPES = [(1, 1), (3, 5), (16, 16), (17, 40), (40, 17), (49, 96), (196, 33), (7, 1000), (1000, 7)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8"])
def test_a_transpose_with_a_map_after_it(shape: tuple[int, int], dtype: str) -> None:
    n, m = shape
    text = f"""
graph main(x: {dtype}[2, {n}, {m}], r: {dtype}[2, {m}, {n}]) -> y:
  t: {dtype}[2, {m}, {n}] = transpose(x, perm=(0, 2, 1))
  y: {dtype}[2, {m}, {n}] = add(t, r)
"""
    rng = np.random.default_rng(n)
    x, r = (
        rng.integers(-50, 50, s).astype({"f32": "f4", "f64": "f8", "i8": "i1"}[dtype]) for s in ((2, n, m), (2, m, n))
    )
    (got,) = tw.compile(tw.parse(text), threads=2)(x, r)
    np.testing.assert_array_equal(got, x.transpose(0, 2, 1) + r)


@pytest.mark.parametrize("n", [1, 7, 16, 33, 200])
def test_a_transpose_of_sizes_that_only_a_call_knows(n: int) -> None:
    exe = tw.compile(tw.parse("graph main[n, m](x: f32[n, m]) -> t:\n  t: f32[m, n] = transpose(x, perm=(1, 0))\n"))
    x = np.arange(n * 37, dtype=np.float32).reshape(n, 37)
    np.testing.assert_array_equal(exe(x)[0], x.T)


@pytest.mark.parametrize("side", [7, 14, 16, 20])
def test_rows_that_lie_turned(side: int) -> None:
    """Softmax over channels of an image that is stored channel by channel."""
    of, one = f"f32[2, {side}, {side}, 24]", f"f32[2, {side}, {side}, 1]"
    text = f"""
graph main(x: f32[2, 24, {side}, {side}]) -> y:
  t: {of} = transpose(x, perm=(0, 2, 3, 1))
  m: {one} = reduce(t, kind=max, axes=(3,), keepdims=true)
  d: {of} = sub(t, m)
  e: {of} = exp(d)
  s: {one} = reduce(e, kind=sum, axes=(3,), keepdims=true)
  y: {of} = div(e, s)
"""
    x = np.random.default_rng(side).standard_normal((2, 24, side, side)).astype(np.float32)
    exe = tw.compile(tw.parse(text), target="x86-64-v3", threads=2)
    e = np.exp(x - x.max(1, keepdims=True)).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(exe(x)[0], e / e.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)
