"""Fifty training steps of compiled networks follow eager's, in losses and in parameters; who compiles their graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_compiled import compiled, fresh  # noqa: E402, F401
from torch_networks import WORDS, Gpt, gpt2, resnet  # noqa: E402

from drawn import LONG  # noqa: E402
from tilewright.compiler import apart, processes  # noqa: E402
from tilewright.frontends.torch.backend import TorchWarning  # noqa: E402

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "held_out.npz"


def follows(model: Any, loss: Callable[[Any, int], Any], rate: float = 0.05, steps: int = 50) -> None:
    """Steps of a compiled copy have the losses of eager's within 1e-3, and lead to its parameters and buffers. What
    drops out is the same."""
    twin = copy.deepcopy(model)
    pairs = [(model, model), (twin, compiled(twin))]
    optimizers = [torch.optim.SGD(own.parameters(), lr=rate, momentum=0.9) for own, _ in pairs]
    first = 0.0
    for step in range(steps):
        losses = []
        for (_, called), optimizer in zip(pairs, optimizers, strict=True):
            optimizer.zero_grad()
            torch.manual_seed(step)
            found = loss(called, step)
            found.backward()
            optimizer.step()
            losses.append(float(found.detach()))
        first = first or losses[0]
        assert losses[1] == pytest.approx(losses[0], rel=1e-3, abs=1e-4)
    assert losses[0] < 0.7 * first, "it learns nothing, and so tells nothing"
    for (name, a), b in zip(model.state_dict().items(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-3, atol=1e-3, msg=lambda text, name=name: f"{name}: {text}")


def test_a_perceptron_of_digits() -> None:
    with np.load(DIGITS) as data:
        x, y = torch.from_numpy(data["pixels"]).flatten(1) / 16, torch.from_numpy(data["labels"]).long()
    model = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 10))

    def loss(model: Any, step: int) -> Any:
        rows = torch.arange(32) + 32 * step
        return nn.functional.cross_entropy(model(x[rows % len(x)]), y[rows % len(x)])

    follows(model, loss)


def test_a_language_model() -> None:
    words = torch.randint(30, (4, 9))
    follows(Gpt(), lambda model, _: model(words[:, :-1], words[:, 1:]))


@pytest.mark.skipif(not LONG, reason="make long")
def test_a_language_model_that_drops_out() -> None:
    pytest.importorskip("transformers")
    words = torch.randint(WORDS, (4, 9))
    follows(gpt2().train(), lambda model, _: model(input_ids=words, labels=words).loss)


def test_a_convolutional_network_with_batch_norm() -> None:
    x, y = torch.randn(8, 3, 32, 32), torch.randint(5, (8,))
    follows(resnet().train(), lambda model, _: nn.functional.cross_entropy(model(x), y))


class Deep(nn.Module):
    """Enough operators, forward and backward, that several processes are worth their start; the last one has `end`."""

    def __init__(self, end: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.end = end

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.nn.functional.layer_norm(torch.tanh(layer(x)), (16,)) + x
        return self.end(x)


class Strange(torch.autograd.Function):
    """An exponential whose gradient takes an operator that is not supported."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return torch.exp(x)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        (x,) = ctx.saved_tensors
        return torch.linalg.svdvals(slopes[0]).sum() * 0 + slopes[0] * torch.exp(x)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """The modules that this process plans, of large models and with a store of its own."""
    found: list[object] = []

    def plan(module: Any, *how: Any) -> Any:
        found.append(module)
        return apart_plan(module, *how)

    apart_plan = apart._plan
    monkeypatch.setattr(apart, "_plan", plan)
    monkeypatch.setattr(processes, "LARGE_MODEL", 8)
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return found


def has_gradients(model: Any, called: Any, x: Any) -> None:
    """Two calls of a compiled model give the gradients of eager's."""
    for _ in range(2):
        wanted = torch.autograd.grad(model(x).sum(), list(model.parameters()))
        found = torch.autograd.grad(called(x).sum(), list(model.parameters()))
        for a, b in zip(wanted, found, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-4)


def test_a_backward_graph_is_planned_by_another_process_beside_its_forward_one(planned: list[object]) -> None:
    model = Deep(torch.exp)
    has_gradients(model, compiled(model), torch.randn(8, 16))
    assert len(planned) == 1


def test_a_backward_graph_of_any_sizes_is_planned_beside_its_forward_one(planned: list[object]) -> None:
    model = Deep(torch.exp)
    called = compiled(model, dynamic=True)
    has_gradients(model, called, torch.randn(8, 16))
    has_gradients(model, called, torch.randn(5, 16))
    assert len(planned) == 1


def test_a_backward_graph_with_an_operator_that_is_not_supported_is_compiled_when_it_is_asked_for(
    planned: list[object],
) -> None:
    model = Deep(Strange.apply)
    with pytest.warns(TorchWarning, match="svd"):
        has_gradients(model, compiled(model), torch.randn(8, 16))
    assert len(planned) == 3, "the forward graph, and what is before and behind the operator"


def test_what_is_compiled_beside_is_found_in_the_store(planned: list[object]) -> None:
    model = Deep(torch.exp)
    for _ in range(2):
        torch._dynamo.reset()
        has_gradients(model, compiled(model), torch.randn(8, 16))
    assert len(planned) == 1
