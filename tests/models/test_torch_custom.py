"""Programs as operators of PyTorch: eager, in graphs of any backend, with gradients; and what cannot be one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_compiled import compiled, fresh  # noqa: E402, F401

import tilewright as tw  # noqa: E402
from tilewright.api.torch_backend import tilewright  # noqa: E402
from tilewright.frontends.torch.custom import PROGRAMS  # noqa: E402
from tilewright.report.errors import RuntimeFault, UserError  # noqa: E402

SNAKE = """
func snake[n, m](x: f32[n, m], a: f32[m], y: f32[n, m]):
  for i in 0..n, j in 0..m:
    block snake(vi = i, vj = j):
      y[vi, vj] = x[vi, vj] + sin(x[vi, vj] * a[vj]) * sin(x[vi, vj] * a[vj]) / a[vj]
"""

SLOPES = """
graph slopes[n, m](x: f32[n, m], a: f32[m], grad_y: f32[n, m]) -> grad_x:
  p: f32[n, m] = mul(x, a)
  s: f32[n, m] = sin(p)
  c: f32[n, m] = cos(p)
  q: f32[n, m] = mul(s, c)
  r: f32[n, m] = add(q, q)
  one: f32[] = full(value=1.0, shape=())
  t: f32[n, m] = add(r, one)
  grad_x: f32[n, m] = mul(grad_y, t)
"""


OTHERS = ("eager", "aot_eager", tilewright)


def snake(x: Any, a: Any) -> Any:
    return x + torch.sin(x * a) ** 2 / a


def _values(rows: int = 5) -> tuple[Any, Any]:
    return torch.randn(rows, 3, requires_grad=True), torch.rand(3) + 0.5


def test_a_loops_function_is_an_operator() -> None:
    operator = tw.torch.custom_op(tw.parse(SNAKE), "tests::snake", backward=tw.parse(SLOPES), threads=1)
    x, a = _values()
    torch.testing.assert_close(operator(x, a), snake(x, a))
    torch.testing.assert_close(torch.ops.tests.snake(x.detach().T.contiguous().T, a), snake(x, a).detach())
    torch.library.opcheck(operator, (x, a))
    torch.library.opcheck(operator, (torch.empty(0, 3), a))


@pytest.mark.parametrize("backend", OTHERS, ids=lambda b: b if isinstance(b, str) else b.__name__)
@pytest.mark.parametrize("dynamic", [False, True])
def test_it_is_in_graphs_of_any_backend(backend: Any, dynamic: bool) -> None:
    operator = tw.torch.custom_op(tw.parse(SNAKE), "tests::snake", backward=tw.parse(SLOPES), threads=1)
    fast = torch.compile(lambda x, a: operator(x * 2, a).relu(), backend=backend, dynamic=dynamic, fullgraph=True)
    for rows in (5, 7):
        x, a = _values(rows)
        given, wanted = fast(x, a), snake(x * 2, a).relu()
        torch.testing.assert_close(given, wanted)
        pairs = zip(torch.autograd.grad(given.sum(), x), torch.autograd.grad(wanted.sum(), x), strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_graphs_that_are_compiled_have_the_program_inside() -> None:
    """Nothing calls back into PyTorch: what a call takes is compiled once, kernels of the program among it."""
    operator = tw.torch.custom_op(tw.parse(SNAKE), "tests::inside", threads=1)
    exe = tw.from_torch(_Called(operator), (torch.randn(4, 3), torch.rand(3) + 1), threads=1)
    x, a = torch.randn(4, 3), torch.rand(3) + 1
    torch.testing.assert_close(torch.from_numpy(exe(x.numpy(), a.numpy())[0]), snake(x, a) + 1)


class _Called(torch.nn.Module):
    def __init__(self, operator: Callable[..., Any]) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, x: Any, a: Any) -> Any:
        return self.operator(x, a) + 1


def test_gradients_by_a_function() -> None:
    def backward(ctx: Any, slope: Any) -> Any:
        x, a, y = ctx.saved_tensors
        assert y.shape == x.shape
        return slope * (1 + torch.sin(2 * x * a)), None

    operator = tw.torch.custom_op(tw.parse(SNAKE), "tests::by_function", backward=backward, threads=1)
    x, a = _values()
    for called in (operator, compiled(operator)):
        (given,) = torch.autograd.grad(called(x, a).sum(), x)
        torch.testing.assert_close(given, torch.autograd.grad(snake(x, a).sum(), x)[0], rtol=1e-4, atol=1e-5)


def test_gradients_by_a_function_that_saves_what_it_needs() -> None:
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.a = inputs[1]

    def backward(ctx: Any, slope: Any) -> Any:
        (x,) = ctx.saved_tensors
        return slope * (1 + torch.sin(2 * x * ctx.a)), None

    taken = {"backward": backward, "setup_context": setup_context}
    operator = tw.torch.custom_op(tw.parse(SNAKE), "tests::saving", threads=1, **taken)
    x, a = _values()
    (given,) = torch.autograd.grad(operator(x, a).sum(), x)
    torch.testing.assert_close(given, torch.autograd.grad(snake(x, a).sum(), x)[0], rtol=1e-4, atol=1e-5)


def test_a_module_with_constants_and_functions_of_its_own_is_an_operator() -> None:
    main = tw.parse("""
graph main[n](x: f32[n, 3]) -> z, total:
  w: f32[3, 4] = constant(name=@w)
  y: f32[n, 4] = contract(x, w, spec="ij,jk->ik")
  z: f32[n, 4] = call(y, callee="twice", symbols=(n,))
  total: f32[] = reduce(z, kind=sum, axes=(0, 1), keepdims=false)

func twice[n](x: f32[n, 4], y: f32[n, 4]):
  for i in 0..n, j in 0..4:
    block twice(vi = i, vj = j):
      y[vi, vj] = x[vi, vj] * 2.0
""")
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    operator = tw.torch.custom_op(main.with_constants({"w": w}), "tests::dense", threads=1)
    x = torch.randn(5, 3)
    wanted = 2 * x @ torch.from_numpy(w)
    torch.library.opcheck(operator, (x,))
    fast = compiled(lambda x: [operator(x + 1), operator(x)], fallback="error")
    for z, total in (operator(x), fast(x)[1]):
        torch.testing.assert_close(z, wanted)
        torch.testing.assert_close(total, wanted.sum(), rtol=1e-4, atol=1e-4)


def test_an_operator_is_another_when_its_program_is() -> None:
    """What is kept of a graph is not taken for one whose operator of the same name computes otherwise."""
    digests = set()
    for factor in (2.0, 2.0, 3.0):
        dense = tw.parse("""
graph main(x: f32[2]) -> y:
  w: f32[2] = constant(name=@w)
  y: f32[2] = mul(x, w)
""")
        module = tw.Module({"main": dense}, {"w": np.full(2, factor, np.float32)})
        operator = tw.torch.custom_op(module, "tests::scaled", threads=1)
        digests.add(PROGRAMS["tests.scaled.default"])
        torch._dynamo.reset()
        for called in (operator, compiled(operator)):
            torch.testing.assert_close(called(torch.ones(2)), torch.full((2,), factor))
    assert len(digests) == 2


def test_a_size_that_differs_is_an_error() -> None:
    operator = tw.torch.custom_op(tw.parse(SNAKE), "tests::sized", threads=1)
    with pytest.raises(UserError, match="input a has the wrong shape"):
        operator(torch.randn(2, 3), torch.randn(4))
    for backend in OTHERS:
        torch._dynamo.reset()
        with pytest.raises(Exception, match="is not what it takes"):
            torch.compile(operator, backend=backend, fullgraph=True)(torch.randn(2, 3), torch.randn(4))


def test_the_program_may_fault() -> None:
    checked = tw.parse("""
graph main(x: f32[3], n: i64[]) -> y:
  m = size(n, low=0, high=3, what="the number of rows")
  y: f32[3] = relu(x)
""")
    operator = tw.torch.custom_op(checked, "tests::checked", threads=1)
    for called in (operator, compiled(operator)):
        called(torch.randn(3), torch.tensor(3))
        with pytest.raises(RuntimeFault, match="the number of rows"):
            called(torch.randn(3), torch.tensor(5))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "snake"}, "cannot call an operator 'snake'"),
        ({"func": 3}, "tests::wrong cannot be an operator of PyTorch\nwhy:  a int came"),
        ({"func": tw.parse(SNAKE.replace("a: f32[m]", "a: f32[m] finite"))}, "a is declared finite"),
        ({"func": tw.parse(SNAKE.replace("x", "class"))}, "arguments have names, and class is none"),
        ({"backward": tw.parse(SLOPES.replace("grad_y", "grad_z"))}, "it takes grad_z: f32[n, m], which is no input"),
        (
            {"backward": tw.parse(SLOPES.replace("grad_x", "slope"))},
            "its result slope: f32[n, m] is the gradient of",
        ),
        ({"setup_context": print}, "setup_context has no use here"),
    ],
)
def test_what_cannot_be_an_operator(change: dict[str, Any], text: str) -> None:
    given = {"func": tw.parse(SNAKE), "name": "tests::wrong", "threads": 1, **change}
    with pytest.raises(UserError) as found:
        tw.torch.custom_op(given.pop("func"), given.pop("name"), **given)
    assert text in str(found.value)


def test_sizes_from_data_are_refused() -> None:
    found = tw.parse("""
graph main(x: f32[4], n: i64[]) -> y:
  m = size(n, low=0, high=4, what="the number of rows")
  y: f32[m] = slice(x, starts=(0,), sizes=(m,), steps=(1,))
""")
    with pytest.raises(UserError, match="has a size that the call computes"):
        tw.torch.custom_op(found, "tests::sliced", threads=1)
