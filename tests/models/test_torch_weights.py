"""torch.compile(model, backend="tilewright"): parameters and buffers of inferences are packed once, and again when they
change."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_compiled import compiled, fresh  # noqa: E402, F401

from tilewright.api.torch_backend import tilewright  # noqa: E402
from tilewright.frontends.torch.backend import TorchWarning  # noqa: E402
from tilewright.frontends.torch.weights import Cache  # noqa: E402
from tilewright.report.errors import UserError  # noqa: E402


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tensors of each preparation from here on."""
    found: list[int] = []
    prepare = Cache._prepared

    def counted(self: Cache, key: Any, stamp: Any, tensors: Any) -> Any:
        found.append(len(tensors))
        return prepare(self, key, stamp, tensors)

    monkeypatch.setattr(Cache, "_prepared", counted)
    return found


def agree(fast: Any, model: Any, *inputs: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(fast(*inputs), model(*inputs), rtol=1e-4, atol=1e-4)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3),
        nn.Flatten(),
        nn.Linear(256, 5),
    )


def image() -> Any:
    return torch.randn(2, 3, 6, 6)


def _scaled(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)


def _loaded(model: nn.Module) -> None:
    other = network()
    other[1].running_mean.normal_()
    model.load_state_dict(other.state_dict())


def _assigned(model: nn.Module) -> None:
    model.load_state_dict(network().state_dict(), assign=True)


def _stepped(model: nn.Module) -> None:
    """A step of an optimizer, in eager; the moments of the batch norm move, too."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model.train()(image()).square().sum().backward()
    optimizer.step()
    model.eval()


def _moved(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data + 1


def _detached(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.detach().sub_(0.5)


@pytest.mark.parametrize("change", [_scaled, _loaded, _assigned, _stepped, _moved, _detached])
def test_a_change_is_seen(change: Callable[[nn.Module], None], prepared: list[int]) -> None:
    model, x = network().eval(), image()
    fast = compiled(model)
    for _ in range(3):
        agree(fast, model, x)
    assert len(prepared) == 1
    change(model)
    for _ in range(3):
        agree(fast, model, x)
    assert len(prepared) == 2


def test_training_steps_between_inferences(prepared: list[int]) -> None:
    """Compiled steps read the parameters as they are; each inference behind one prepares them once."""
    model, x = network(), image()
    fast = compiled(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(3):
        fast.train()(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        fast.eval()
        for _ in range(2):
            agree(fast, model, x)
        assert len(prepared) == step + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_writes_of_all_numbers_are_seen_though_no_version_tells(dtype: Any) -> None:
    model, x = (
        nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4, bias=False)).to(dtype).eval(),
        torch.randn(3, 6),
    )
    fast = compiled(model)
    for parameter in model.parameters():
        with torch.no_grad():
            torch.testing.assert_close(fast(x.to(dtype)), model(x.to(dtype)))
        parameter.data.mul_(2)
    with torch.no_grad():
        torch.testing.assert_close(fast(x.to(dtype)), model(x.to(dtype)))
    if dtype is not torch.bfloat16:
        model[0].weight.detach().numpy()[:] *= 2
    transposed = model[2].weight
    transposed.data = transposed.data.t().contiguous().t()
    with torch.no_grad():
        fast(x.to(dtype))
        transposed.data.mul_(-3)
        torch.testing.assert_close(fast(x.to(dtype)), model(x.to(dtype)))


def test_writes_that_no_version_tells_are_seen_where_weights_are_read() -> None:
    model, x = network().eval(), image()
    fast = compiled(model, weights="read")
    agree(fast, model, x)
    model[0].weight.data.mul_(2)
    model[5].weight.detach().numpy()[:] *= 2
    agree(fast, model, x)


class Tied(nn.Module):
    """Scores by the table of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 24)
        self.scores = nn.Linear(24, 40, bias=False)
        self.scores.weight = self.words.weight

    def forward(self, words: Any) -> Any:
        return self.scores(self.words(words).tanh())


def test_tied_weights() -> None:
    model, words = Tied(), torch.randint(40, (3, 7))
    fast = compiled(model)
    agree(fast, model, words)
    with torch.no_grad():
        model.scores.weight.add_(0.5)
    agree(fast, model, words)


def test_several_graphs_share_a_weight() -> None:
    """A graph of rows and one of columns read one matrix, in different orders."""
    weight = nn.Parameter(torch.randn(48, 48))
    first, second = compiled(lambda x: x @ weight), compiled(lambda x: (x @ weight.t()).relu())
    x = torch.randn(5, 48)
    for _ in range(2):
        agree(first, lambda x: x @ weight, x)
        agree(second, lambda x: (x @ weight.t()).relu(), x)
        with torch.no_grad():
            weight.add_(1)


def test_one_graph_serves_several_modules(prepared: list[int]) -> None:
    """Blocks that are compiled one by one share a graph; each has packed weights of its own, which go with it."""
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)) for _ in range(3)]
    graphs: list[object] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return tilewright(graph, inputs, options={"threads": 1})

    fast = torch.compile(lambda block, x: block(x), backend=backend)
    x = torch.randn(4, 32)
    with torch.no_grad():
        for _ in range(3):
            for block in blocks:
                torch.testing.assert_close(fast(block, x), block(x), rtol=1e-4, atol=1e-5)
    assert len(prepared) == len(blocks)
    assert len(graphs) == 1


@pytest.mark.usefixtures("own_garbage")
def test_packed_weights_go_with_the_module() -> None:
    """What is prepared is let go when one of the tensors is."""
    model, x = nn.Linear(64, 64), torch.randn(3, 64)
    caches = [c for c in gc.get_objects() if type(c) is Cache]
    fast = compiled(lambda layer, x: layer(x))
    with torch.no_grad():
        fast(model, x)
    (cache,) = [c for c in gc.get_objects() if type(c) is Cache and c not in caches]
    ready = weakref.ref(next(iter(cache._known.values())).memory[0])
    del model
    gc.collect()
    assert not cache._known and cache.current.stamp is None and ready() is None


def test_dynamic_sizes_share_packed_weights(prepared: list[int]) -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
    fast = compiled(model, dynamic=True)
    for rows in (2, 3, 70):
        agree(fast, model, torch.randn(rows, 16))
    assert len(prepared) == 1


def test_a_weight_that_is_a_view() -> None:
    """Rows of a larger tensor, every second column of one, and a transposed one; their base is written."""

    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = torch.randn(40, 48)
            self.register_buffer("rows", self.whole[4:36])
            self.register_buffer("columns", self.whole[:, ::2])
            self.turned = nn.Parameter(self.whole[:, 1:33].t())

        def forward(self, x: Any, y: Any) -> Any:
            return x @ self.rows + (y @ self.columns).repeat(1, 2), y @ self.turned.t()

    model, inputs = Views(), (torch.randn(3, 32), torch.randn(3, 40))
    fast = compiled(model)
    for _ in range(2):
        agree(fast, model, *inputs)
        model.whole.mul_(2)
    model.rows.add_(1)
    agree(fast, model, *inputs)


def test_weights_that_are_read_where_they_lie(prepared: list[int]) -> None:
    """A table of words and moved, halved or reshaped vectors: each write is seen, whatever number it is of, and nothing
    is prepared again until one lies elsewhere."""
    model = nn.Sequential(nn.Embedding(30, 12), nn.LayerNorm(12), nn.PReLU(7)).eval()
    fast, words = compiled(model), torch.randint(30, (2, 7))
    agree(fast, model, words)
    for parameter in model.parameters():
        parameter.data.view(-1)[-1] += 3
        agree(fast, model, words)
        parameter.detach().numpy().reshape(-1)[1] -= 2
        agree(fast, model, words)
    assert len(prepared) == 1
    model[1].bias.data = model[1].bias.data + 1
    agree(fast, model, words)
    assert len(prepared) == 2


def test_vectors_with_gaps_and_of_other_signs() -> None:
    """Tensors whose numbers are not their memory are copied, and read again when they change."""

    class Vectors(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = torch.randn(24)
            self.register_buffer("second", self.whole[::2])
            self.pairs = torch.randn(12, dtype=torch.complex64)
            self.register_buffer("negative", self.pairs.conj().imag)
            self.register_buffer("none", torch.empty(0))

        def forward(self, x: Any) -> Any:
            return x * self.second + self.negative + self.none.sum()

    model, x = Vectors(), torch.randn(3, 12)
    assert model.negative.is_neg()
    fast = compiled(model)
    for _ in range(3):
        agree(fast, model, x)
        model.second.mul_(2)
        model.negative.add_(1)


def test_weights_with_channels_last() -> None:
    model = network().eval().to(memory_format=torch.channels_last)
    fast, x = compiled(model), image().to(memory_format=torch.channels_last)
    agree(fast, model, x)
    _scaled(model)
    agree(fast, model, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int32])
def test_weights_of_other_types(dtype: Any) -> None:
    table = (torch.randn(24, 32) * 8).to(dtype)
    model = nn.Module()
    model.register_buffer("table", table)
    model.forward = lambda x: (x @ model.table.float()).relu()
    fast, x = compiled(lambda x: model.forward(x)), torch.randn(4, 24)
    for _ in range(2):
        agree(fast, model.forward, x)
        table.add_(1)


def test_buffers_that_a_graph_changes_are_no_weights(prepared: list[int]) -> None:
    """Batch norm moves its moments in each call; the convolution's weight stays."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).train()
    twin = copy.deepcopy(model)
    fast = compiled(model)
    for _ in range(3):
        agree(fast, twin, image())
        torch.testing.assert_close(model[1].running_var, twin[1].running_var)
    assert len(prepared) == 1


def test_parameters_made_in_inference_mode_are_read(prepared: list[int]) -> None:
    with torch.inference_mode():
        model, x = nn.Linear(16, 8), torch.randn(3, 16)
        fast = compiled(model)
        for _ in range(2):
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
            model.weight.mul_(2)
    assert not prepared


def test_weights_around_what_runs_in_pytorch() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))

    def called(x: Any) -> Any:
        return model[1](torch.lgamma(model[0](x).abs() + 1))

    fast, x = compiled(called), torch.randn(3, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TorchWarning)
        for _ in range(2):
            agree(fast, called, x)
            _scaled(model)


def test_a_program_with_weights_is_not_called_without() -> None:
    import numpy as np

    from tilewright.compiler import compile_module
    from tilewright.expr import dtypes
    from tilewright.graph.build import GraphBuilder
    from tilewright.graph.constants import Weight
    from tilewright.types.tensor import TensorType

    graph, weight = GraphBuilder("main"), Weight("w", np.dtype(np.float32), (8, 16))
    x = graph.param("x", TensorType.of(dtypes.f32, (4, 8)))
    w = graph.constant("w", weight.held)
    exe = compile_module(graph.module({"y": graph.op("contract", x, w, spec="ik,kj->ij")}))
    numbers = np.random.default_rng(0).standard_normal((12, 16)).astype(np.float32)
    given, result = numbers[:4, :8].copy(), np.empty((4, 16), np.float32)
    assert exe.weights is not None
    for factors in (numbers[:8], numbers[4:]):
        ready = exe.weights.prepare({weight: factors})
        exe.call_at([given.ctypes.data, result.ctypes.data], (), ready.table)
        np.testing.assert_allclose(result, given @ factors, rtol=1e-5, atol=1e-5)
    for wrong in (lambda: exe(given), lambda: exe.save("model.tw"), lambda: exe.weights.prepare({})):
        with pytest.raises(UserError, match="weight"):
            wrong()
