"""Memory of training steps: what is saved, and when it goes."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_compiled import compiled, fresh  # noqa: E402, F401

from tilewright.frontends.torch import call as calls  # noqa: E402
from tilewright.runtime.parted import PartedCall  # noqa: E402


def block(size: int) -> Any:
    """Layers whose activations are half a megabyte each."""
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(size, size), nn.GELU())))


def test_saved_tensors_go_as_the_backward_pass_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = block(256), torch.randn(512, 256)
    saved: list[weakref.ref[Any]] = []
    alive: list[int] = []
    run, allocate = PartedCall.run, torch.empty

    def noted(*sizes: Any, **named: Any) -> Any:
        made = allocate(*sizes, **named)
        saved.append(weakref.ref(made))
        return made

    def running(self: PartedCall, behind: int) -> None:
        alive.append(sum(tensor is not None and tensor.shape == (512, 256) for tensor in [ref() for ref in saved]))
        run(self, behind)

    monkeypatch.setattr(PartedCall, "run", running)
    monkeypatch.setattr(calls.torch, "empty", noted)
    loss = compiled(model)(x).square().mean()
    loss.backward()
    assert len(alive) > 2
    assert alive == sorted(alive, reverse=True)
    assert alive[-1] < alive[0]
    wanted = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_what_follows_from_saved_tensors_is_computed_again() -> None:
    model, x = block(256), torch.randn(512, 256)
    kept: list[Any] = []

    def pack(tensor: Any) -> Any:
        kept.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compiled(model)(x)
    assert kept.count((512, 256)) <= 5, "the argument, and one tensor of each layer"
