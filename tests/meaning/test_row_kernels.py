"""Kernels of rows (softmax, layer norm): what they compute, and how they run through a row."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compiler import compile_module
from tilewright.compiler.pipeline import lower
from tilewright.core.walk import preorder
from tilewright.expr.nodes import Call, Const, Div
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Module
from tilewright.graph.parse import parse_module
from tilewright.loops.edit import allocations, expressions, statements
from tilewright.loops.nodes import For, Function, LoopKind
from tilewright.target import Target

V3 = Target.parse("x86-64-v3")
SOFTMAX = """
graph main(x: f32[3, 64, {k}], mask: f32[1, 1, {k}]) -> p:
  root: f32[] = full(value=7.0, shape=())
  a: f32[3, 64, {k}] = div(x, root)
  s: f32[3, 64, {k}] = add(a, mask)
  top: f32[3, 64, 1] = reduce(s, kind=max, axes=(2,), keepdims=true)
  d: f32[3, 64, {k}] = sub(s, top)
  e: f32[3, 64, {k}] = exp(d)
  t: f32[3, 64, 1] = reduce(e, kind=sum, axes=(2,), keepdims=true)
  p: f32[3, 64, {k}] = div(e, t)
"""
NORM = """
graph main(x: f32[64, {k}], g: f32[{k}]) -> y:
  n: f32[] = full(value={k}.0, shape=())
  s: f32[64, 1] = reduce(x, kind=sum, axes=(1,), keepdims=true)
  m: f32[64, 1] = div(s, n)
  c: f32[64, {k}] = sub(x, m)
  q: f32[64, {k}] = mul(c, c)
  v: f32[64, 1] = reduce(q, kind=sum, axes=(1,), keepdims=true)
  w: f32[64, 1] = div(v, n)
  tiny: f32[] = full(value=1e-05, shape=())
  w1: f32[64, 1] = add(w, tiny)
  root: f32[64, 1] = sqrt(w1)
  one: f32[] = full(value=1.0, shape=())
  inverse: f32[64, 1] = div(one, root)
  u: f32[64, {k}] = mul(c, inverse)
  y: f32[64, {k}] = mul(u, g)
"""


def kernel(module: Module) -> Function:
    """The only kernel of a module, scheduled."""
    functions = lower(module, V3).record.after("schedule").program.functions
    (found,) = (f for f in functions.values() if isinstance(f, Function))
    return found


@pytest.mark.parametrize("text", [SOFTMAX, NORM], ids=["softmax", "norm"])
@pytest.mark.parametrize("size", [5, 64, 100])
def test_rows_compute_what_the_graph_does(text: str, size: int) -> None:
    module = parse_module(text.format(k=size))
    rng = np.random.default_rng(size)
    shapes = [[int(e.value) for e in v.type.shape if isinstance(e, Const)] for v in module.graph.params]
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    (want,) = evaluate(module, dict(zip([v.name for v in module.graph.params], arrays, strict=True))).values()
    (got,) = compile_module(module, V3)(*arrays)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_a_softmax_of_scaled_scores_goes_along_its_rows() -> None:
    """Several rows side by side would be gathered from memory, and hold a buffer of their own."""
    sizes = [
        int(np.prod([int(e.value) for e in b.shape if isinstance(e, Const)]))
        for b in allocations(kernel(parse_module(SOFTMAX.format(k=128))).body)
    ]
    assert max(sizes) == 128


def test_what_a_row_comes_to_is_computed_once_for_it() -> None:
    function = kernel(parse_module(NORM.format(k=128)))
    inside = [s for s in statements(function.body) if isinstance(s, For) and s.kind is LoopKind.VECTORIZE]
    vectors = [e for loop in inside for root in expressions(loop) for e in preorder(root)]
    whole = [e for root in expressions(function.body) for e in preorder(root)]
    assert any(isinstance(e, Div) for e in whole) and any(isinstance(e, Call) and e.fn.name == "sqrt" for e in whole)
    assert not any(isinstance(e, Div) or (isinstance(e, Call) and e.fn.name == "sqrt") for e in vectors)


@pytest.mark.parametrize("columns", ["m", "8"])
def test_a_sum_of_products_by_one_number_is_a_sum(columns: str) -> None:
    text = f"""
graph main[n, m](x: f32[n, {columns}], s: f32[], w: f32[m]) -> y, w:
  p: f32[n, {columns}] = mul(x, s)
  y: f32[n] = reduce(p, kind=sum, axes=(1,))
"""
    executable = compile_module(parse_module(text), V3)
    x, w = np.arange(24, dtype=np.float32).reshape(3, 8), np.zeros(8, np.float32)
    assert (executable(x, np.float32(2), w)[0] == (2 * x).sum(1)).all()
