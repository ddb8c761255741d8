"""Kernels of several operators at sizes around those of vectors and tiles: native code against the graph evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stages import close
from tilewright.compiler import compile_module
from tilewright.expr import dtypes
from tilewright.expr.nodes import Expr
from tilewright.graph.build import GraphBuilder
from tilewright.graph.evaluate import evaluate
from tilewright.graph.nodes import Value
from tilewright.types.tensor import TensorType

LONG = settings.get_current_profile_name() == "long"
some = settings(
    max_examples=300 if LONG else 4, deadline=None, derandomize=not LONG, suppress_health_check=list(HealthCheck)
)
SIZES = (0, 1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 33, 47, 64, 67)
Param = Callable[..., Value]


class Inputs:
    """Parameters of a graph under construction: each size is the number itself, or a symbol for it."""

    def __init__(self, graph: GraphBuilder, symbolic: bool, dtype: dtypes.DType, seed: int) -> None:
        self.graph = graph
        self.symbolic = symbolic
        self.dtype = dtype
        self.random = np.random.default_rng(seed)
        self.sizes: dict[int, Expr] = {}
        self.arrays: list[Any] = []

    def dim(self, size: int) -> Expr | int:
        if not self.symbolic or size == 1:
            return size
        if size not in self.sizes:
            self.sizes[size] = self.graph.symbol(f"n{size}")
        return self.sizes[size]

    def __call__(self, *shape: int, fixed: tuple[int, ...] = ()) -> Value:
        dims = [n if d in fixed else self.dim(n) for d, n in enumerate(shape)]
        value = self.graph.param(f"x{len(self.arrays)}", TensorType.of(self.dtype, dims))
        self.arrays.append(self.random.normal(0, 1, shape).astype(self.dtype.numpy))
        return value

    def special(self, *shape: int, fixed: tuple[int, ...] = ()) -> Value:
        """A parameter with an element or two that is no finite number, now and then."""
        value = self(*shape, fixed=fixed)
        array = self.arrays[-1].reshape(-1)
        for odd in (np.nan, np.inf, -np.inf) if self.random.random() < 0.5 else ():
            if array.size and self.random.random() < 0.4:
                array[self.random.integers(array.size)] = odd
        return value


def linear(g: GraphBuilder, x: Inputs, m: int, n: int, k: int) -> list[Value]:
    h = g.op("contract", x(m, k), x(k, n), spec="ik,kj->ij")
    return [g.op("relu", g.op("add", h, x(n)))]


def transposed(g: GraphBuilder, x: Inputs, m: int, n: int, k: int) -> list[Value]:
    return [g.op("contract", x(k, m), x(n, k), spec="ki,jk->ij")]


def batched(g: GraphBuilder, x: Inputs, m: int, n: int, k: int) -> list[Value]:
    return [g.op("contract", x(2, m, k), x(2, k, n), spec="bik,bkj->bij")]


def dot(g: GraphBuilder, x: Inputs, m: int, n: int, k: int) -> list[Value]:
    return [g.op("contract", x(m, k), x(k), spec="ik,k->i"), g.op("contract", x(k), x(k), spec="k,k->")]


def convolution(g: GraphBuilder, x: Inputs, m: int, n: int, k: int) -> list[Value]:
    side = min(n, 17) + 2
    image, taps = x(1, min(k, 5), side, side), x(min(m, 9), min(k, 5), 3, 3, fixed=(2, 3))
    sizes = tuple((name, image.type.shape[2 + d] - 2) for d, name in enumerate("ij"))
    spec = "n c i+a j+b, o c a b -> n o i j"
    return [g.op("relu", g.op("contract", image, taps, spec=spec, sizes=sizes))]


def softmax(g: GraphBuilder, x: Inputs, m: int, n: int, k: int) -> list[Value]:
    v = x(m, n)
    top = g.op("reduce", v, kind="max", axes=(1,), keepdims=True)
    e = g.op("exp", g.op("sub", v, top))
    return [g.op("div", e, g.op("reduce", e, kind="sum", axes=(1,), keepdims=True))]


def variance(g: GraphBuilder, x: Inputs, m: int, n: int, k: int) -> list[Value]:
    v = x(m, n)
    mean = g.op("reduce", v, kind="sum", axes=(1,), keepdims=True)
    away = g.op("sub", v, mean)
    square = g.op("reduce", g.op("mul", away, away), kind="sum", axes=(1,), keepdims=True)
    return [g.op("div", away, g.op("sqrt", g.op("add", square, g.scalar(0.5, v.type.dtype)))), mean]


def columns(g: GraphBuilder, x: Inputs, m: int, n: int, k: int) -> list[Value]:
    v = x.special(m, n, 3)
    found = [g.op("reduce", v, kind=kind, axes=axes, keepdims=False) for kind, axes in KINDS]
    return [*found, g.op("neg", found[0])]


KINDS = (("sum", (0,)), ("max", (1,)), ("min", (0, 2)), ("sum", (0, 1, 2)), ("prod", (2,)))


def pooling(g: GraphBuilder, x: Inputs, m: int, n: int, k: int) -> list[Value]:
    v = x.special(2, min(m, 5), n + 3, 11, fixed=(3,))
    ones = (1, 1, 1, 1)
    window = {"window": (1, 1, 3, 2), "strides": (1, 1, 1, 2), "dilations": ones}
    return [g.op("window_reduce", v, kind=kind, **window) for kind in ("max", "sum")]


def movement(g: GraphBuilder, x: Inputs, m: int, n: int, k: int) -> list[Value]:
    v, row = x(m, n), x(n)
    turned = g.op("transpose", v, perm=(1, 0))
    joined = g.op("concat", v, g.op("mul", v, row), axis=0)
    padded = g.op("pad", g.op("exp", v), g.scalar(0.25, v.type.dtype), low=(1, 2), high=(0, 3))
    halves = g.op("slice", joined, starts=(0, 0), sizes=(v.type.shape[0], v.type.shape[1]), steps=(2, 1))
    return [turned, joined, padded, halves]


CASES = (linear, transposed, batched, dot, convolution, softmax, variance, columns, pooling, movement)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
@given(
    sizes=st.tuples(*[st.sampled_from(SIZES)] * 3),
    symbolic=st.booleans(),
    dtype=st.sampled_from([dtypes.f32, dtypes.f32, dtypes.f64]),
    seed=st.integers(0, 99),
)
@some
def test_kernel(
    case: Callable[..., list[Value]], sizes: tuple[int, int, int], symbolic: bool, dtype: dtypes.DType, seed: int
) -> None:
    graph = GraphBuilder()
    inputs = Inputs(graph, symbolic, dtype, seed)
    results = case(graph, inputs, *sizes)
    module = graph.module({f"y{n}": v for n, v in enumerate(results)})
    expected = list(evaluate(module, inputs.arrays).values())
    close(compile_module(module)(*inputs.arrays), expected, "native")


@pytest.mark.parametrize("name", ["i64", "u64", "i32", "u8"])
def test_integers_that_wrap_around(name: str) -> None:
    """What is known of indices, which never overflow, is not assumed of data."""
    dtype = dtypes.DTYPES[name]
    graph = GraphBuilder()
    x = graph.param("x", TensorType.of(dtype, (4,)))
    one, two, six = (graph.scalar(k, dtype) for k in (1, 2, 6))
    results = {
        "next": graph.op("lt", x, graph.op("add", x, one)),
        "half": graph.op("floordiv", graph.op("mul", x, six), two),
        "rest": graph.op("mod", graph.op("add", x, six), two),
        "most": graph.op("max", x, graph.op("sub", x, six)),
    }
    module = graph.module(results)
    array = np.array([dtype.min, dtype.max, int(dtype.max) // 2 + 1, 5], dtype.numpy)
    expected = list(evaluate(module, [array]).values())
    close(compile_module(module)(array), expected, "native")
    assert not expected[0].all()
