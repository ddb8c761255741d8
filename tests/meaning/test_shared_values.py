"""Values of which each part is used many times: no pass takes them apart, so that time stays that of their nodes.

Sixty steps like x = x*x make sixty nodes. A walk that follows each use would take 2**60 steps: it would never end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from machine import Machine, legal

from tilewright.analysis.accesses import accesses
from tilewright.analysis.cost import count
from tilewright.analysis.intervals import Range, interval
from tilewright.expr import dtypes
from tilewright.expr.build import less, maximum, minimum, select
from tilewright.expr.dtypes import DType
from tilewright.expr.evaluate import evaluate as evaluate_expression
from tilewright.expr.linear import expression, polynomial
from tilewright.expr.nodes import Binary, Div, Expr, Rem, Var, const
from tilewright.expr.simplify import Facts, simplify
from tilewright.expr.source import python_source
from tilewright.loops.edit import fresh_copy
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import Axis, AxisKind, Block, Buffer, For, Function, Load, LoopKind, Store
from tilewright.loops.same import same
from tilewright.loops.verify import verify
from tilewright.lower.loops.flatten_buffers import flatten_buffers
from tilewright.lower.loops.lower_blocks import lower_blocks

COUNT = 16
I, N = Var("i"), Var("n")  # noqa: E741

Step = Callable[[Expr], Expr]

VALUES: dict[str, Step] = {
    "square": lambda e: e * e,
    "choice": lambda e: select(less(e, 3), e * e - e, e - e * 2),
    "double": lambda e: minimum(e + e, 5) - maximum(e, -2),
}

INDICES: dict[str, Step] = {
    "remainder": lambda j: (j + j % 7) % COUNT,
    "least": lambda j: minimum(j + j // 2, COUNT - 1),
    "between": lambda j: maximum(minimum(j + j // 2, COUNT - 1), j // 3),
    "choice": lambda j: select(less(j, 7), j // 2, j % 5),
    "quotient": lambda j: N // (N // (j + 1) + 1) + j // 3,
}


INSIDE = ["remainder", "least", "choice"]
"""Those that stay below COUNT."""


def repeated(step: Step, start: Expr, times: int = 64) -> Expr:
    for _ in range(times):
        start = step(start)
    return start


def elementwise(dtype: DType, step: Step, kind: LoopKind, index: Step | None = None) -> Function:
    """y[i] = step(step(… x[index(index(… i))])), in a block, with a loop of lanes where `kind` is VECTORIZE."""
    x, y = (Buffer(name, dtype, (const(COUNT),)) for name in "xy")
    i, vi = Var("i"), Var("vi")
    place = vi if index is None else repeated(index, vi)
    body = Block("b", (Axis(vi, AxisKind.SPATIAL, i),), Store(y, (vi,), repeated(step, Load(x, (place,)))))
    return Function("f", (), (x, y), For(i, const(0), const(COUNT), kind, body))


def assert_compiled_as_evaluated(f: Function) -> None:
    verify(f)
    assert same(f, f.replace(body=fresh_copy(f.body)))
    assert len(accesses(f.body)) == 2
    assert evaluate_expression(count(f).bytes_written, {}) == COUNT * f.params[0].dtype.bytes
    x = np.linspace(-1.5, 1.5, COUNT).astype(f.params[0].dtype.numpy)
    expected, y = np.zeros_like(x), np.zeros_like(x)
    evaluate(f, [x, expected])
    lowered = flatten_buffers(legal(lower_blocks(f), expand=False))
    verify(lowered)
    Machine(lowered)(x, y)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.VECTORIZE], ids=["scalars", "lanes"])
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.f16, dtypes.i64, dtypes.i32], ids=str)
@pytest.mark.parametrize("step", VALUES.values(), ids=VALUES)
def test_values(step: Step, dtype: DType, kind: LoopKind) -> None:
    assert_compiled_as_evaluated(elementwise(dtype, step, kind))


@pytest.mark.parametrize("index", [INDICES[k] for k in INSIDE], ids=INSIDE)
def test_indices(index: Step) -> None:
    assert_compiled_as_evaluated(elementwise(dtypes.f32, VALUES["choice"], LoopKind.SERIAL, index))


def test_values_of_great_depth() -> None:
    """Deeper than Python's stack."""
    f = elementwise(dtypes.f32, lambda e: repeated(lambda v: v * v - 1, e, 20), LoopKind.VECTORIZE)
    assert_compiled_as_evaluated(f)


@pytest.mark.parametrize("step", INDICES.values(), ids=INDICES)
def test_simplified_sizes(step: Step) -> None:
    size = repeated(step, N)
    better = simplify(size, Facts({N: (const(0), const(99))}))
    assert [evaluate_expression(better, {N: n}) for n in range(20)] == [
        evaluate_expression(size, {N: n}) for n in range(20)
    ]


BOUNDED = ["remainder", "least", "between"]


@pytest.mark.parametrize("depth", [6, 64])
@pytest.mark.parametrize("name", BOUNDED)
def test_bounds(name: str, depth: int) -> None:
    index = repeated(INDICES[name], I, depth)
    bounds = interval(index, {I: Range(const(0), const(8))})
    values = [evaluate_expression(index, {I: i}) for i in range(8)]
    if bounds is None:
        assert depth == 64, "atoms stand in atoms as deeply as bounds are looked for"
    else:
        assert evaluate_expression(bounds.low, {}) <= min(values)
        assert max(values) <= evaluate_expression(bounds.high, {})


@pytest.mark.parametrize("step", INDICES.values(), ids=INDICES)
def test_sizes_as_python_source(step: Step) -> None:
    size = repeated(step, N)
    scope: dict[str, Callable[[int], int]] = {}
    exec(f"def f(n): return {python_source(size, {N: 'n'})}", scope)
    assert [scope["f"](n) for n in range(20)] == [evaluate_expression(size, {N: n}) for n in range(20)]


def test_a_size_squared_sixty_times_has_an_end_as_python_source() -> None:
    scope: dict[str, Callable[[int], int]] = {}
    exec(f"def f(n): return {python_source(repeated(VALUES['square'], N, 60), {N: 'n'})}", scope)
    assert [scope["f"](n) for n in (0, 1)] == [0, 1]
    assert 2**64 < scope["f"](2) == scope["f"](10**6) < 2**70


@pytest.mark.parametrize("kind", [Div, Rem])
def test_quotients_towards_zero_as_python_source(kind: type[Binary]) -> None:
    m = Var("m", least=None)
    for divisor in (3, -3, 1, -1, 0):
        scope: dict[str, Callable[[int], int]] = {}
        exec(f"def f(m): return {python_source(kind(m, const(divisor)) + 1, {m: 'm'})}", scope)
        expected = [evaluate_expression(kind(m, const(divisor)) + 1, {m: n}) for n in range(-9, 10)]
        assert [scope["f"](n) for n in range(-9, 10)] == expected


def test_a_product_of_many_sums_is_a_polynomial_of_few_terms() -> None:
    """Forty symbols: taken apart, (a + b) (c + d) … has a million terms."""
    symbols = [Var(f"s{n}") for n in range(40)]
    product: Expr = const(1)
    for a, b in zip(symbols[::2], symbols[1::2], strict=True):
        product = product * (a + b)
    assert len(polynomial(product)) <= 256
    values = {symbol: 1 + n % 3 for n, symbol in enumerate(symbols)}
    assert evaluate_expression(expression(polynomial(product)), values) == evaluate_expression(product, values)
