"""What a forward pass saves: the cheapest choice by the machine's prices, and what must not be computed again."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from torch._functorch.aot_autograd import aot_function  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tilewright.frontends.torch import backend, saved  # noqa: E402
from tilewright.frontends.torch.decompositions import decompositions  # noqa: E402
from tilewright.frontends.torch.ports import VIEWS  # noqa: E402
from tilewright.frontends.torch.saved import FIRST, SINK, SOURCE, Edges, _cut  # noqa: E402
from tilewright.frontends.torch.training_norms import take_apart  # noqa: E402
from tilewright.target import Target  # noqa: E402

functional = torch.nn.functional


@pytest.fixture(autouse=True)
def one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices are those for a model of a machine, wherever the tests run."""
    chosen = Target.parse("x86-64-v3")
    monkeypatch.setattr(saved, "Target", SimpleNamespace(parse=lambda _: chosen))


def saved_of(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[str]:
    """The operators whose results a function saves, without those of one number a row or a channel, and without inputs.
    Its gradients are checked to be eager's."""
    torch.manual_seed(0)
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    kept: list[Any] = []

    def chosen(*arguments: Any, **named: Any) -> Any:
        kept.extend(saved.choose(*arguments, **named))
        return kept

    def run(graph: Any, _: Any) -> Any:
        return graph.forward

    monkeypatch.setattr(backend, "choose", chosen)
    made = aot_function(function, run, run, partition_fn=backend.partition, decompositions=decompositions())
    found = torch.autograd.grad(made(*inputs).square().sum(), inputs)
    for one, wanted in zip(found, torch.autograd.grad(function(*inputs).square().sum(), inputs), strict=True):
        torch.testing.assert_close(one, wanted)
    bases = [viewed(node) for node in kept]
    return sorted(str(n.target).split(".")[1] for n in bases if n.op == "call_function" and saved.elements_of(n) > 4096)


def viewed(node: Any) -> Any:
    """What a value is a view of."""
    return viewed(node.args[0]) if str(node.target) in VIEWS else node


def cost(edges: Edges, side: frozenset[int]) -> float:
    """What the cut with this side of the sink takes."""
    crossed = [seconds for (a, b), seconds in edges.items() if a not in side and b in side]
    return sum(math.inf if seconds is None else seconds for seconds in crossed)


@pytest.mark.parametrize("seed", range(40))
def test_the_cut_is_the_cheapest_of_all(seed: int) -> None:
    """Of four values, of which each may read those before, all sides of the sink are tried."""
    chance = random.Random(seed)
    edges: Edges = {}
    for n in range(4):
        entrance = FIRST + 2 * n
        edges[SOURCE, entrance] = None if n == 0 or chance.random() < 0.3 else chance.choice((0, 1, 2, 5, 9))
        edges[entrance, entrance + 1] = chance.choice((1, 3, 4, 8))
        for before in range(n):
            if chance.random() < 0.6:
                edges[FIRST + 2 * before + 1, entrance] = None
        if n == 3 or chance.random() < 0.4:
            edges[entrance + 1, SINK] = None
    found = _cut(edges)
    assert found is not None
    sides = product((False, True), repeat=8)
    each = [frozenset((SINK, *(FIRST + n for n, late in enumerate(side) if late))) for side in sides]
    assert cost(edges, frozenset(found)) == pytest.approx(min(cost(edges, side) for side in each))


def test_what_can_neither_be_saved_nor_computed_has_no_cut() -> None:
    assert _cut({(SOURCE, FIRST): None, (FIRST, FIRST + 1): None, (FIRST + 1, SINK): None}) is None


def test_an_activation_follows_from_what_its_slope_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slope of a GELU computes its function of the same number."""

    def function(x: Any, w: Any, v: Any) -> Any:
        return functional.gelu(x @ w) @ v

    assert saved_of(monkeypatch, function, (512, 16), (16, 512), (512, 16)) == ["mm"]


def test_a_normalised_layer_follows_from_its_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any, w: Any, scale: Any, shift: Any, v: Any) -> Any:
        return functional.layer_norm(x @ w, (512,), scale, shift) @ v

    assert saved_of(monkeypatch, function, (512, 16), (16, 512), (512,), (512,), (512, 16)) == ["mm"]


def test_a_normalised_image_follows_from_its_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any, w: Any, scale: Any, shift: Any, v: Any) -> Any:
        y = functional.batch_norm(functional.conv2d(x, w), None, None, scale, shift, training=True)
        return functional.conv2d(y.relu(), v)

    assert saved_of(monkeypatch, function, (2, 4, 64, 64), (8, 4, 3, 3), (8,), (8,), (6, 8, 3, 3)) == ["convolution"]


def test_16_bit_floats_stay_whole() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(4, 8, dtype=torch.bfloat16, device="meta")
    norm = graph.call_function(torch.ops.aten.native_layer_norm.default, (x, [8], None, None, 1e-5))
    norm.meta["val"] = tuple(torch.empty(shape, device="meta").bfloat16() for shape in ((4, 8), (4, 1), (4, 1)))
    graph.output(graph.call_function(operator.getitem, (norm, 0)))
    before = str(graph)
    take_apart(graph)
    assert str(graph) == before


def test_skip_connections_are_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each follows from the one before: to compute the last again would be to compute all, and to keep them."""

    def function(x: Any, *weights: Any) -> Any:
        for w in weights:
            x = x + (x @ w).relu()
        return x

    found = saved_of(monkeypatch, function, (512, 64), *[(64, 64)] * 5)
    assert found == ["add"] * 4 + ["le"] * 5


def test_random_numbers_are_drawn_once() -> None:
    """Which `saved_of` would notice: eager's and ours would differ."""

    def function(x: Any, w: Any) -> Any:
        torch.manual_seed(1)
        return (functional.dropout(x @ w, 0.5, training=True) * 2).tanh()

    made = torch.compile(function, backend="tilewright")
    x, w = (torch.randn(shape, requires_grad=True) for shape in ((32, 16), (16, 24)))
    y = made(x, w)
    (slope,) = torch.autograd.grad(y.sum(), x)
    kept = (y != 0).float()
    torch.testing.assert_close(slope, (kept * 4 * (1 - y * y)) @ w.t())


def test_what_a_person_marks_is_computed_again() -> None:
    def function(x: Any, w: Any, v: Any) -> Any:
        return checkpoint(lambda a: (a @ w).tanh() @ v, x, use_reentrant=False)

    x, w, v = (torch.randn(shape, requires_grad=True) for shape in ((64, 32), (32, 48), (48, 16)))
    made = torch.compile(function, backend="tilewright", fullgraph=True)
    wanted = torch.autograd.grad(function(x, w, v).square().sum(), (x, w, v))
    found = torch.autograd.grad(made(x, w, v).square().sum(), (x, w, v))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_budget_of_memory_is_pytorch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any, w: Any, v: Any) -> Any:
        return (x @ w).tanh() @ v

    with torch._functorch.config.patch(activation_memory_budget=0.0):
        assert not saved_of(monkeypatch, function, (512, 16), (16, 512), (512, 16))
    assert saved_of(monkeypatch, function, (512, 16), (16, 512), (512, 16))
