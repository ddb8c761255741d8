"""Kernels that turn their data: what they compute, in what blocks, and with whole vectors."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compiler import compile_module, lower
from tilewright.expr.nodes import Const, const
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.loops.edit import statements
from tilewright.loops.nodes import For, Function, LoopKind
from tilewright.schedule.nests import extent_of
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
    by_kind = [(loop.kind, extent_of(loop)) for loop in loops(module)]
    unrolled = [extent for kind, extent in by_kind if kind is LoopKind.UNROLL]
    assert [int(e.value) for e in unrolled if isinstance(e, Const)] == [4]


@pytest.mark.parametrize("sizes", [(96, 14, 14), (10, 7, 7), (33, 5, 9), (64, 16, 16)])
def test_norms_over_channels(sizes: tuple[int, int, int]) -> None:
    agrees(parse_module(NORM.format(c=sizes[0], h=sizes[1], w=sizes[2])))


def test_rows_and_columns_of_an_image_are_one_axis_of_a_norm() -> None:
    """Vectors would else end where each row of fourteen ends; and strips of 196 positions keep several threads busy."""
    outer = next(loop for loop in loops(parse_module(NORM.format(c=96, h=14, w=14))) if extent_of(loop) is not const(1))
    extent = extent_of(outer)
    assert isinstance(extent, Const) and extent.value == 6 and outer.kind is LoopKind.PARALLEL
