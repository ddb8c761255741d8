"""Memory of training steps: what is saved, and when it goes."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_compiled import compiled, fresh  # noqa: E402, F401

import tilewright as tw  # noqa: E402
from tilewright.frontends.torch import call as calls  # noqa: E402
from tilewright.frontends.torch.captured import Captured  # noqa: E402
from tilewright.frontends.torch.compiling import Step  # noqa: E402
from tilewright.frontends.torch.explain import Explainer  # noqa: E402
from tilewright.frontends.torch.options import Options  # noqa: E402
from tilewright.runtime.parted import PartedCall  # noqa: E402


def block(size: int) -> Any:
    """Layers whose activations are half a megabyte each."""
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(size, size), nn.GELU())))


def slopes(model: Any, x: Any) -> Any:
    """What eager gives."""
    return torch.autograd.grad(model(x).square().mean(), list(model.parameters()))


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
    for parameter, gradient in zip(model.parameters(), slopes(model, x), strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)


def test_forward_graphs_write_over_no_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What AOTAutograd tells of saved tensors are numbers of the backward graph's inputs. A forward graph's inputs of
    these numbers are the model's, and so are tangents autograd's."""
    found: list[tuple[bool, set[str]]] = []
    begin = Captured.__post_init__

    def noted(self: Captured) -> None:
        begin(self)
        found.append((self.is_backward, {n.name for n in self.spent}))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Captured, "__post_init__", noted)
    model, x = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)), torch.randn(16, 16)
    before = [t.detach().clone() for t in (x, *model.parameters())]
    compiled(model)(x).sin().sum().backward()
    assert all(torch.equal(t, was) for t, was in zip((x, *model.parameters()), before, strict=True))
    (forward, taken), (backward, spent), asked = found
    assert (forward, backward) == (False, True) and asked == (backward, spent), (
        "the graph is known before it is asked for"
    )
    assert not taken and spent and not any("tangent" in name or "primal" in name for name in spent)


def test_what_follows_from_saved_tensors_is_computed_again() -> None:
    model, x = block(256), torch.randn(512, 256)
    kept: list[Any] = []

    def pack(tensor: Any) -> Any:
        kept.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        compiled(model)(x)
    assert kept.count((512, 256)) <= 5, "the argument, and one tensor of each layer"


def test_a_backward_pass_writes_over_what_was_saved_for_it_alone() -> None:
    """A perceptron's gradients lie in its activations then: the pass needs no memory beside."""
    torch.manual_seed(0)
    layers = (nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))
    model, x = nn.Sequential(*layers), torch.randn(512, 256)
    told = Explainer(model, (x,), {}, lambda y: y.square().mean(), None, Options.read(None, None), tw.compile)
    told.explain(0.0)
    (step,) = told.compiled[-1].steps
    assert isinstance(step, Step)
    assert step.executable.spends
    assert step.executable.arena().reserved == 0
    found = torch.autograd.grad(compiled(model)(x).square().mean(), list(model.parameters()))
    for gradient, wanted in zip(found, slopes(model, x), strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)


def test_a_backward_pass_that_runs_twice_reads_the_same_twice() -> None:
    """Where PyTorch is told so: else it refuses to keep a graph that donates its buffers."""
    with torch._functorch.config.patch(donated_buffer=False):
        model, x = block(256), torch.randn(512, 256)
        loss = compiled(model)(x).square().mean()
        for keeps in (True, False):
            found = torch.autograd.grad(loss, list(model.parameters()), retain_graph=keeps)
            for gradient, wanted in zip(found, slopes(model, x), strict=True):
                torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)


def test_saved_tensors_that_share_memory_are_not_written_over() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)

    def f(a: Any, b: Any) -> Any:
        h = torch.mm(a, b)
        return h.exp() * torch.sin(h.t()) + torch.mm(h.t(), h)

    found = torch.autograd.grad(compiled(f)(a, b).square().sum(), (a, b))
    for gradient, wanted in zip(found, torch.autograd.grad(f(a, b).square().sum(), (a, b)), strict=True):
        torch.testing.assert_close(gradient / gradient.abs().max(), wanted / gradient.abs().max(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("turned", [False, True])
def test_a_slope_that_is_a_gradient_stays(turned: bool) -> None:
    """Itself, or a view of it."""
    model, x = block(256), torch.randn(512, 256)
    b = torch.randn(256, 512, requires_grad=True) if turned else torch.randn(512, 256, requires_grad=True)

    def f(x: Any, b: Any) -> Any:
        return model(x) + (b.t() if turned else b)

    of = [*model.parameters(), b]
    found = torch.autograd.grad(compiled(f)(x, b).square().mean(), of)
    for gradient, wanted in zip(found, torch.autograd.grad(f(x, b).square().mean(), of), strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-6)
