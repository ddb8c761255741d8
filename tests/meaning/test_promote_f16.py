"""Arithmetic on 16-bit floats in f32: registers that hold nothing that has to be rounded hold f32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.expr import dtypes
from tilewright.expr.nodes import Cast
from tilewright.graph.evaluate import evaluate as evaluate_graph
from tilewright.graph.nodes import Module
from tilewright.loops.edit import allocations, expressions
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Function
from tilewright.loops.parse import parse
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.loops.promote_f16 import promote_f16

Array = np.ndarray


def reduction(dtype: str, first: str, value: str) -> Function:
    made = parse(f"""
func f(x: {dtype}[64], w: {dtype}[64], y: {dtype}[8]):
  for i in 0..8:
    alloc t: {dtype}[1] in register
    t[0] = {first}
    for k in 0..8:
      t[0] = {value}
    y[i] = t[0]
""")
    assert isinstance(made, Function)
    return made


def results(f: Function) -> Array:
    kind = f.params[0].dtype.numpy
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(64).astype(kind) for _ in range(2))
    x[::9], x[1::11], x[2::13], x[20] = np.inf, -np.inf, 1e-40, np.nan
    y = np.zeros(8, kind)
    evaluate(f, [x, w, y])
    return y


GREATEST = {
    "greatest": ("-inf", "max(t[0], x[i*8 + k])"),
    "least": ("x[i*8]", "min(t[0], x[i*8 + k])"),
    "greatest of chosen ones": ("0.0", "max(t[0], select(k < 3, x[i*8 + k], w[i*8 + k]))"),
}


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("name", GREATEST)
def test_registers_of_greatest_numbers_are_wide(name: str, dtype: str) -> None:
    first, value = GREATEST[name]
    f = reduction(dtype, first if first.startswith("x") else f"{dtype}({first})", value)
    made = promote_f16(f)
    verify(made)
    assert same(made, parse(str(made)))
    assert [b.dtype for b in allocations(made.body)] == [dtypes.f32]
    casts = [e for e in expressions(made.body) if type(e) is Cast and e.dtype is not dtypes.f32]
    assert len(casts) == 1, "one, when it is stored"
    np.testing.assert_array_equal(results(made).astype(np.float32), results(f).astype(np.float32))


@pytest.mark.parametrize("value", ["t[0] + x[i*8 + k]", "max(t[0], x[i*8 + k])*w[k]"])
def test_registers_of_rounded_numbers_stay(value: str) -> None:
    f = reduction("bf16", "bf16(0.0)", value)
    made = promote_f16(f)
    assert [b.dtype for b in allocations(made.body)] == [dtypes.bf16]
    np.testing.assert_array_equal(results(made).astype(np.float32), results(f).astype(np.float32))


def test_memory_stays() -> None:
    text = str(reduction("bf16", "bf16(0.0)", "max(t[0], x[i*8 + k])")).replace("in register", "in stack")
    f = parse(text)
    assert isinstance(f, Function)
    assert [b.dtype for b in allocations(promote_f16(f).body)] == [dtypes.bf16]


def test_a_compiled_pool_of_bf16_is_exact() -> None:
    module = tw.parse("""
graph main(x: bf16[1, 18, 18, 48]) -> y:
  y: bf16[1, 8, 8, 48] = window_reduce(x, kind=max, window=(1, 3, 3, 1), strides=(1, 2, 2, 1), dilations=(1, 1, 1, 1))
""")
    x = np.random.default_rng(0).standard_normal((1, 18, 18, 48)).astype(ml_dtypes.bfloat16)
    x[0, ::5, ::4, ::3], x[0, 1, 1, 1] = -np.inf, np.nan
    found = tw.compile(module, threads=1)(x)[0]
    right = evaluate_graph(module if isinstance(module, Module) else Module({"main": module}), {"x": x})["y"]
    np.testing.assert_array_equal(found.astype(np.float32), right.astype(np.float32))
