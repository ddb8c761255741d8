"""Operators that a graph repeats are called once, but for those whose results may differ or must be apart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tilewright.frontends.torch.repeated import call_once  # noqa: E402


def calls(function: Callable[..., Any], *inputs: Any) -> list[str]:
    """The operators of a function's graph afterwards, which computes the same."""
    torch.manual_seed(0)
    graph = make_fx(function, tracing_mode="fake")(*inputs)
    call_once(graph.graph)
    graph.graph.eliminate_dead_code()
    graph.graph.lint()
    graph.recompile()
    for seed in range(2):
        torch.manual_seed(seed)
        wanted = function(*(x.clone() for x in inputs))
        torch.manual_seed(seed)
        torch.testing.assert_close(graph(*(x.clone() for x in inputs)), wanted)
    return [n.target.__name__.split(".")[0] for n in graph.graph.nodes if n.op == "call_function"]


X = torch.arange(6.0).reshape(2, 3)


def test_what_is_repeated_is_called_once() -> None:
    assert calls(lambda x: (x - x.mean()).exp() * (x - x.mean()).exp(), X) == ["mean", "sub", "exp", "mul"]


def test_parts_of_a_repeated_tuple_are_taken_once() -> None:
    def both(x: Any) -> Any:
        return torch.aminmax(x).min + 2 * torch.aminmax(x).min

    assert calls(both, X) == ["aminmax", "getitem", "mul", "add"]


def test_numbers_of_other_types_and_signs_are_others() -> None:
    assert calls(lambda x: x * 0.0 + x * -0.0, X) == ["mul", "mul", "add"]
    assert calls(lambda x: (x.int() * 1).sum() + (x.int() * True).sum(), X).count("mul") == 2


def test_drawn_numbers_are_drawn_again() -> None:
    assert calls(lambda x: torch.rand_like(x) - torch.rand_like(x), X) == ["rand_like", "rand_like", "sub"]


def test_what_is_read_before_and_after_a_write_is_read_twice() -> None:
    def moved(x: Any) -> Any:
        before = x.sum()
        x.add_(1)
        return before - x.sum()

    assert calls(moved, X) == ["sum", "add_", "sum", "sub"]


def test_sizes_that_depend_on_numbers_have_symbols_of_their_own() -> None:
    assert calls(lambda x: x.sum().item() * x + x.sum().item(), X).count("_local_scalar_dense") == 2


def test_results_are_as_many_tensors_as_there_were() -> None:
    graph = make_fx(lambda x: (x + 1, x + 1, torch.aminmax(x).min, torch.aminmax(x).min), tracing_mode="fake")(X)
    call_once(graph.graph)
    graph.recompile()
    assert len({result.data_ptr() for result in graph(X)}) == 4


FIRST = """
import sys, torch
from torch import nn
model, x = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)), torch.randn(3, 8)
torch.compile(model, backend="tilewright", options={"threads": 1})(x).sum().backward()
print([name for name in ("lowering", "pattern_matcher", "debug") if f"torch._inductor.{name}" in sys.modules])
"""


def test_a_training_step_brings_no_part_of_inductor_that_compiles(tmp_path: Path) -> None:
    environment = {**os.environ, "TILEWRIGHT_STORE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["[]"]
