"""Compiled graphs in the store: found by what they are, started without the compiler, and dropped when damaged."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_compiled import compiled, fresh  # noqa: E402, F401

import tilewright as tw  # noqa: E402
import tilewright.torch  # noqa: E402
from tilewright.frontends.torch.backend import TorchWarning  # noqa: E402
from tilewright.frontends.torch.written import PROGRAMS  # noqa: E402
from tilewright.graph.constants import Weight, read  # noqa: E402
from tilewright.loops.parse import parse  # noqa: E402
from tilewright.report.errors import UserError  # noqa: E402
from tilewright.runtime import recipe  # noqa: E402
from tilewright.runtime.bundle import Bundle  # noqa: E402
from tilewright.runtime.later import Compiled, Later  # noqa: E402
from tilewright.store import Store  # noqa: E402


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store that has nothing yet."""
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    return Store.default()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "tilewright")
    return caplog


def found(log: pytest.LogCaptureFixture) -> list[bool]:
    """Whether each graph since the last question came from the store."""
    told = [r.message for r in log.records if "graph of" in r.message and "nodes" in r.message]
    log.clear()
    return ["compiled before" in text for text in told]


def again(model: Any, *inputs: Any, **options: Any) -> Any:
    """What a compilation gives that knows of no other but by the store."""
    torch._dynamo.reset()
    return compiled(model, **options)(*inputs)


def graphs_in(store: Store) -> list[str]:
    """The keys of the graphs that a store has."""
    found = []
    for entry in store.entries():
        try:
            about = Bundle(store.peek(entry.key) or b"").about
        except UserError:
            continue
        found += [entry.key] if "steps" in about else []
    return found


class Network(nn.Module):
    """A convolution with batch norm, which are folded, packed weights, and a tensor of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.last = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        return self.last(self.first(x).mean((2, 3))) + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])


def test_a_second_inference_takes_the_same_program_and_the_weights_of_its_own(log: Any) -> None:
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        one = Network().eval()
        first = again(one, x)
        assert found(log) == [False]
        assert torch.equal(again(one, x), first)
        other = Network().eval()
        torch.testing.assert_close(again(other, x), other(x))
        assert found(log) == [True, True]


def test_dynamic_sizes(log: Any) -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    for _ in range(2):
        torch._dynamo.reset()
        fast = compiled(model, dynamic=True)
        for n in (3, 7):
            x = torch.randn(n, 6)
            with torch.no_grad():
                torch.testing.assert_close(fast(x), model(x))
    assert found(log) == [False, True]


def test_a_training_step_has_two_graphs(log: Any) -> None:
    model, x = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)), torch.randn(4, 6)
    gradients = []
    for _ in range(2):
        model.zero_grad()
        again(model, x).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert found(log) == [False, False, True, True]


def test_results_that_are_views_share_memory(log: Any) -> None:
    for _ in range(2):
        a, b = again(lambda x: ((y := x + 1), y.T), torch.zeros(2, 3))
        b[0, 0] = 5
        assert a[0, 0] == 5
    assert found(log) == [False, True]


def test_what_falls_back_is_told_each_time(log: Any) -> None:
    x = torch.rand(40)
    for _ in range(2):
        with pytest.warns(TorchWarning, match="PyTorch runs 1 of 5 nodes"):
            made = again(lambda x: torch.histc(x + 1) * 2, x)
        torch.testing.assert_close(made, torch.histc(x + 1) * 2)
    assert found(log) == [False, True]
    with pytest.raises(Exception, match="histc"):
        again(lambda x: torch.histc(x + 1) * 2, x, fallback="error")


def test_numbers_that_a_graph_holds_are_part_of_its_key(log: Any) -> None:
    for number in (1.0, 2.0, 1.0):
        held = torch.tensor([number, 3.0])
        assert torch.equal(again(lambda x, held=held: x + torch.tensor(held.tolist()), torch.zeros(2)), held)
    assert found(log) == [False, False, True]


def test_the_programs_of_operators_are_part_of_the_key(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may give an operator another program under the same name."""
    tilewright.torch.custom_op(tw.parse("graph main[n](x: f32[n]) -> y:\n  y: f32[n] = neg(x)"), "tests::kept")

    def model(x: Any) -> Any:
        return torch.ops.tests.kept(x) + 1

    x = torch.arange(4.0)
    for _ in range(2):
        assert torch.equal(again(model, x), 1 - x)
    assert found(log) == [False, True]
    monkeypatch.setitem(PROGRAMS, "tests.kept.default", "another")
    again(model, x)
    assert found(log) == [False]


def test_another_graph_threads_and_a_precision(log: Any) -> None:
    x = torch.randn(3, 4)
    again(lambda x: x.sum(0), x)
    again(lambda x: x.sum(1), x)
    again(lambda x: x.sum(0), x.T.contiguous().T)
    again(lambda x: x.sum(0), x, threads=2)
    again(lambda x: x.sum(0), x, precision="bf16")
    assert found(log) == [False, False, False, True, False]


def test_a_damaged_entry_is_dropped_and_made_again(log: Any, store: Store) -> None:
    x = torch.randn(3, 4)
    again(torch.sigmoid, x)
    (key,) = graphs_in(store)
    path = Path(str(store.path)) / f"{key}.entry"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    torch.testing.assert_close(again(torch.sigmoid, x), torch.sigmoid(x))
    torch.testing.assert_close(again(torch.sigmoid, x), torch.sigmoid(x))
    assert found(log) == [False, False, True]


@pytest.mark.parametrize("about", [{}, {"steps": [99], "failed": []}, {"steps": [{"program": 3}], "failed": []}])
def test_a_foreign_entry_is_dropped_and_made_again(log: Any, store: Store, about: Any) -> None:
    from tilewright.runtime.bundle import encode

    x = torch.randn(3, 4)
    again(torch.tanh, x)
    (key,) = graphs_in(store)
    store.put(key, *encode([], (), about))
    torch.testing.assert_close(again(torch.tanh, x), torch.tanh(x))
    assert graphs_in(store) == [key]
    again(torch.tanh, x)
    assert [r for r in found(log) if r] == [True]


def test_without_a_store_all_is_compiled(log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", "off")
    for _ in range(2):
        torch.testing.assert_close(again(torch.cos, torch.ones(3)), torch.ones(3).cos())
    assert not found(log)


SECOND = """
import sys, torch
from torch import nn
torch.manual_seed(0)
model, x = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)), torch.randn(3, 8)
with torch.no_grad():
    print(torch.compile(model, backend="tilewright", options={"threads": 1})(x).tolist())
print([name for name in ("compiler", "plan", "frontends.torch.reader") if f"tilewright.{name}" in sys.modules])
print("llvmlite" in sys.modules)
"""


def test_a_second_process_imports_neither_the_compiler_nor_llvm(store: Store) -> None:
    """And PyTorch's setting for logs shows ours, those of passes where it begins with a plus."""
    first, second, third = (
        subprocess.run(
            [sys.executable, "-c", SECOND], capture_output=True, text=True, check=True,
            env={**os.environ, "TILEWRIGHT_STORE": str(store.path), **logs},
        )
        for logs in ({"TORCH_LOGS": "+tilewright"}, {}, {"TORCH_LOGS": "tilewright"})
    )  # fmt: skip
    assert first.stdout.splitlines()[0] == second.stdout.splitlines()[0] == third.stdout.splitlines()[0]
    assert second.stdout.splitlines()[1:] == ["[]", "False"]
    assert "is not in the store" in first.stderr and "2 kernels" in first.stderr and "pass " in first.stderr
    assert "taken from the store" in third.stderr and "pass " not in third.stderr


DOUBLE = """
func double(a: f32[4], out b: f32[4]):
  for i in 0..4:
    block double(v = i):
      b[v] = a[v] * 2.0
"""


def test_a_recipe_has_the_programs_of_functions_that_compute() -> None:
    from tilewright.compiler.constants import compile_alone

    weight = Weight("w", np.dtype(np.float32), (4,))
    (held,) = Later(Compiled(parse(DOUBLE), compile_alone), [weight.held]).results()
    weight.numbers = np.arange(4, dtype=np.float32)
    assert np.array_equal(read(held), 2 * weight.numbers)
    written = recipe.write([held, weight.held, held], [weight])
    assert written is not None
    assert list(written.programs) == ["f0"]
    (other,), (one, two, three) = recipe.read(written, lambda function: pytest.fail("it is compiled again"))
    other.numbers = np.array([1, 5, 2, 7], np.float32)
    assert [read(c).tolist() for c in (one, two, three)] == [[2, 10, 4, 14], [1, 5, 2, 7], [2, 10, 4, 14]]
