"""Fifty training steps of compiled networks follow eager's, in losses and in parameters."""

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
