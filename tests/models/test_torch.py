"""torch.compile(model, backend="tilewright"): networks, dynamic sizes, memory, training and what runs in PyTorch."""

from __future__ import annotations

import copy
import ctypes
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_compiled import compiled, fresh  # noqa: E402, F401
from torch_networks import Gpt  # noqa: E402

import tilewright as tw  # noqa: E402
from lender import Lender  # noqa: E402
from tilewright.api.torch_backend import tilewright  # noqa: E402
from tilewright.codegen.pool import PATIENCE  # noqa: E402
from tilewright.frontends.torch import call as calls  # noqa: E402
from tilewright.frontends.torch.backend import TorchWarning  # noqa: E402
from tilewright.report.errors import RuntimeFault, UserError  # noqa: E402

ROOT = Path(__file__).parents[2]


def agree(model: Callable[..., Any], *inputs: Any, tolerance: float = 1e-4, dynamic: bool | None = None) -> None:
    """A compiled call gives what eager does, with the same strides and types."""
    wanted, given = model(*inputs), compiled(model, dynamic=dynamic)(*inputs)
    for a, b in zip(_listed(given), _listed(wanted), strict=True):
        assert (a.dtype, a.stride()) == (b.dtype, b.stride())
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def _listed(results: Any) -> list[Any]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


class Residual(nn.Module):
    """A block of ResNet, with batch norm and a classifier behind a pool."""

    def __init__(self, channels: int = 8, classes: int = 5) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.inner = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        self.last = nn.Linear(channels, classes)

    def forward(self, x: Any) -> Any:
        x = self.pool(torch.relu(self.first(x)))
        x = torch.relu(x + self.inner(x))
        return self.last(x.mean((2, 3)))


class Tagger(nn.Module):
    """An LSTM cell over a few words, and a label for each."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell, self.labels = nn.Embedding(20, 8), nn.LSTMCell(8, 12), nn.Linear(12, 4)

    def forward(self, words: Any) -> Any:
        x = self.words(words)
        h, c = x.new_zeros(len(x), 12), x.new_zeros(len(x), 12)
        found = []
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
            found.append(self.labels(h))
        return torch.stack(found, 1).log_softmax(-1)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


# Networks


def test_a_residual_block() -> None:
    with torch.no_grad():
        agree(Residual().eval(), torch.randn(2, 3, 12, 12))


def test_a_residual_block_of_images_with_channels_last() -> None:
    model = Residual().eval().to(memory_format=torch.channels_last)
    with torch.no_grad():
        agree(model.inner, torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last))


def test_a_transformer_block() -> None:
    block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    agree(block.train(), torch.randn(2, 5, 16))


def test_a_tagger() -> None:
    with torch.no_grad():
        agree(Tagger(), torch.randint(20, (2, 4)))


def test_a_language_model() -> None:
    with torch.no_grad():
        agree(Gpt(), torch.randint(30, (2, 7)))


def test_queries_that_see_no_key_get_zeros() -> None:
    q = torch.randn(1, 2, 3, 8, requires_grad=True)
    mask = torch.tensor([[True, False, True], [False] * 3, [True] * 3])

    def attended(x: Any, kept: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=kept)

    fast = compiled(attended)
    torch.testing.assert_close(fast(q, mask), attended(q, mask))
    wanted, given = (torch.autograd.grad(f(q, mask).sum(), q)[0] for f in (attended, fast))
    torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "order",
    [
        lambda x: x.sort(), lambda x: x.sort(descending=True, stable=True), lambda x: x.topk(3),
        lambda x: x.topk(2, largest=False), lambda x: (x.max(0), x.min(0)), lambda x: (x.cummax(0), x.cummin(0)),
        lambda x: nn.functional.max_pool2d_with_indices(x[:6].reshape(1, 2, 3), 2),
    ],
)  # fmt: skip
def test_nan_is_greater_than_all(order: Callable[[Any], Any]) -> None:
    x = torch.tensor([1.0, float("nan"), -2.0, float("inf"), float("nan"), 0.0, -0.0])
    wanted, given = (torch.utils._pytree.tree_leaves(f(x)) for f in (order, compiled(order)))
    for a, b in zip(given, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_powers_of_16_bit_floats_round_as_in_eager(dtype: Any) -> None:
    x = (torch.rand(200) * 8 + 0.1).to(dtype)
    fast = compiled(lambda x: [x**-2, x**-1, x**0.5, x**2, x**3])
    for given, wanted in zip(fast(x), (x**-2, x**-1, x**0.5, x**2, x**3), strict=True):
        torch.testing.assert_close(given, wanted, rtol=0, atol=0)


# Dynamic sizes


def test_one_compilation_serves_all_batches() -> None:
    model, before = perceptron(), torch._dynamo.utils.counters["stats"]["unique_graphs"]
    fast = compiled(model, dynamic=True)
    with torch.no_grad():
        for batch in (3, 2, 7, 19, 64):
            x = torch.randn(batch, 6)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 1


def test_a_marked_dimension_gets_no_guard() -> None:
    """A backend that asks a symbolic size for a truth value specialises it, which is an error where it is marked."""
    model = Gpt()
    fast = compiled(model)
    with torch.no_grad():
        for batch in (3, 5, 9):
            words = torch.randint(30, (batch, 6))
            torch._dynamo.mark_dynamic(words, 0)
            torch.testing.assert_close(fast(words), model(words), rtol=1e-4, atol=1e-4)


def test_sizes_that_are_computed_with() -> None:
    def halves(x: Any) -> Any:
        return x[: x.shape[0] // 2] * x.shape[0], x.reshape(x.shape[0] * x.shape[1])

    fast = compiled(halves, dynamic=True)
    for rows in (4, 6, 9):
        x = torch.randn(rows, 3)
        for a, b in zip(fast(x), halves(x), strict=True):
            torch.testing.assert_close(a, b)


def test_training_with_a_dynamic_batch() -> None:
    model = perceptron()
    fast = compiled(model, dynamic=True)
    for batch in (4, 7, 11):
        x = torch.randn(batch, 6)
        wanted = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
        given = torch.autograd.grad(fast(x).square().sum(), list(model.parameters()))
        for a, b in zip(given, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


class Normalized(nn.Module):
    """A convolution that is normalized, and added to what it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        return torch.relu(x + self.norm(self.convolution(x)))


def test_training_of_normalized_images_of_any_size() -> None:
    """Of which a forward pass saves a number that is computed of sizes."""
    model = nn.Sequential(Normalized(), Normalized())
    twin = copy.deepcopy(model)
    fast = compiled(twin)
    for images in (torch.randn(4, 4, 12, 12), torch.randn(3, 4, 8, 9), torch.randn(2, 4, 16, 5)):
        for own, called in ((model, model), (twin, fast)):
            own.zero_grad()
            called(images).square().mean().backward()
        for a, b in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(b.grad, a.grad, rtol=1e-4, atol=1e-5)
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(b, a)


# Memory


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(24.0).reshape(4, 6).T,
        torch.arange(48.0).reshape(4, 12)[:, ::2],
        torch.arange(6.0).expand(4, 6),
        torch.arange(24.0)[3:].reshape(3, 7),
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.tensor([True, False]),
        torch.arange(5),
        torch.arange(5).to(torch.uint8),
        torch.linspace(-2, 2, 7).to(torch.bfloat16),
        torch.linspace(-2, 2, 7).to(torch.float16),
        torch.linspace(-2, 2, 7).double(),
    ],
    ids=str,
)
def test_inputs_of_any_kind(x: Any) -> None:
    agree(lambda t: (t * 2 + 1, t == 0), x)


def test_a_layout_that_changes_is_seen() -> None:
    def scaled(x: Any) -> Any:
        return x * 3

    fast, x = compiled(scaled), torch.randn(4, 4)
    for given in (x, x.T, x[:, ::2], x[::2].T):
        torch.testing.assert_close(fast(given), given * 3)


def test_inputs_that_are_written() -> None:
    def moved(x: Any, total: Any) -> Any:
        total.add_(x.sum(0))
        x[0] = 0
        return x * 2

    given = [torch.ones(3, 4), torch.zeros(4)]
    wanted = [t.clone() for t in given]
    torch.testing.assert_close(compiled(moved)(*given), moved(*wanted))
    torch.testing.assert_close(given, wanted)


def test_results_that_are_views_of_inputs() -> None:
    x = torch.randn(4, 3)
    view, row, total = compiled(lambda t: (t.T, t[1], t + 1))(x)
    assert view.data_ptr() == x.data_ptr() and row.data_ptr() == x[1].data_ptr()
    x.fill_(5)
    assert view.eq(5).all() and row.eq(5).all() and not total.eq(6).all()


def test_results_that_share_an_intermediate() -> None:
    def shared(t: Any) -> Any:
        y, z = t * 2, t + 1
        return y, y.view(-1), z.T, z[0]

    whole, flat, turned, row = compiled(shared)(torch.ones(2, 2))
    whole.zero_()
    turned.zero_()
    assert flat.eq(0).all() and row.eq(0).all()


def test_results_belong_to_the_caller() -> None:
    fast, x = compiled(lambda t: t + 1), torch.zeros(1000)
    first = fast(x)
    second = fast(x + 1)
    assert first.eq(1).all() and second.eq(2).all()


def test_tensors_that_a_graph_holds() -> None:
    table = torch.tensor([1.0, 2.0, 3.0])
    agree(lambda x: x * table + torch.tensor(2.0), torch.randn(2, 3))


def test_parameters_that_change_in_place_are_seen() -> None:
    model, x = perceptron(), torch.randn(2, 6)
    fast = compiled(model)
    with torch.no_grad():
        fast(x)
        model[0].weight.mul_(2)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
        model[0].weight.data = model[0].weight.data * 0.5
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)


# Training


def test_dropout_draws_as_pytorch_does() -> None:
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 2))
    fast, x = compiled(model), torch.randn(3, 4)
    found = []
    for each in (model, fast, fast):
        torch.manual_seed(7)
        found.append(torch.autograd.grad(each(x).sum(), list(model.parameters())))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_autocast() -> None:
    model, x = perceptron(), torch.randn(4, 6)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        wanted, given = model(x), compiled(model)(x)
    assert given.dtype == torch.bfloat16
    torch.testing.assert_close(given, wanted, rtol=2e-2, atol=2e-2)


# What has no handler


def _mixed(x: Any) -> Any:
    return torch.histc(x * 2, 5) + torch.linalg.matrix_exp(x[:, None, None])[:, 0, 0] * torch.histc(x, 5)


def test_operators_without_a_handler_run_in_pytorch() -> None:
    x = torch.rand(5)
    with pytest.warns(TorchWarning) as found:
        torch.testing.assert_close(compiled(_mixed)(x), _mixed(x))
    (warning,) = [w for w in found if isinstance(w.message, TorchWarning)]
    text = str(warning.message)
    assert text.startswith("PyTorch runs 3 of")
    assert "aten.histc.default" in text and "aten.linalg_matrix_exp.default" in text and "test_torch.py" in text


def test_operators_without_a_handler_may_be_an_error() -> None:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as found:
        compiled(_mixed, fallback="error")(torch.rand(5))
    error = found.value.inner_exception
    assert isinstance(error, UserError)
    assert "the graph uses what is not supported: 2 errors" in str(error)
    assert 'fix:  options={"fallback": "eager"} lets PyTorch run it' in str(error)


def test_draws_keep_their_order_around_what_is_compiled() -> None:
    def drawn(x: Any) -> Any:
        first = torch.rand_like(torch.histc(x, 4) + 1)
        return first - torch.rand_like(x) * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TorchWarning)
        x, fast = torch.rand(4), compiled(drawn)
        torch.manual_seed(3)
        wanted = drawn(x)
        torch.manual_seed(3)
        torch.testing.assert_close(fast(x), wanted)


def _spectrum(x: Any) -> Any:
    return torch.fft.rfft(x * 2).abs() + 1


def test_long_transforms_run_in_pytorch() -> None:
    x = torch.randn(600)
    with pytest.warns(TorchWarning, match="_fft_r2c"):
        torch.testing.assert_close(compiled(_spectrum)(x), _spectrum(x), rtol=1e-4, atol=1e-5)


def test_complex_numbers_are_compiled() -> None:
    def turned(x: Any, z: Any) -> Any:
        return (torch.fft.fft(z) * x + torch.complex(x, -x)).conj().transpose(0, 1), torch.fft.irfft(z[:, :5])

    x, z = torch.randn(3, 8), torch.randn(3, 8, dtype=torch.complex64)
    for given in (z, z.conj(), z.T.contiguous().T):
        torch.testing.assert_close(compiled(turned, fallback="error")(x, given), turned(x, given), rtol=1e-4, atol=1e-5)


def test_real_numbers_that_become_complex_have_imaginary_parts_of_zero() -> None:
    x = torch.tensor([1.0, float("inf"), float("nan"), -3.0])
    fast = torch.compile(lambda x: x.to(torch.complex64), backend=tilewright, options={"fallback": "error"})
    torch.testing.assert_close(torch.view_as_real(fast(x)), torch.view_as_real(x.to(torch.complex64)), equal_nan=True)


def test_gradients_of_complex_numbers() -> None:
    x, weight = torch.randn(8, requires_grad=True), torch.linspace(0, 1, 5)
    (wanted,) = torch.autograd.grad((_spectrum(x) * weight).sum(), x)
    (given,) = torch.autograd.grad((compiled(_spectrum, fallback="error")(x) * weight).sum(), x)
    torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)


def test_an_index_outside_is_a_fault() -> None:
    fast = compiled(lambda table, place: table[place])
    with pytest.raises(RuntimeFault, match="index"):
        fast(torch.rand(3), torch.tensor([1, 5]))


# Exported programs


def test_a_module_becomes_an_executable(tmp_path: Path) -> None:
    model, x = Gpt().eval(), torch.randint(30, (2, 7))
    exe = tw.from_torch(model, (x,), dynamic_shapes=({0: torch.export.Dim("b", min=2, max=64)},), threads=1)
    exe.save(tmp_path / "gpt.tw")
    again = tw.load(tmp_path / "gpt.tw")
    assert [p.name for p in again.inputs] == ["words"]
    for rows in (2, 5):
        words = torch.randint(30, (rows, 7))
        torch.testing.assert_close(torch.from_numpy(again(words.numpy())[0]), model(words), rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeFault, match="outside of the range"):
        again(torch.randint(30, (1, 7)).numpy())


def test_a_stored_program_becomes_an_executable(tmp_path: Path) -> None:
    model, x = Residual().eval(), torch.randn(1, 3, 8, 8)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "model.pt2")
    (y,) = tw.from_torch(tmp_path / "model.pt2", threads=1)(x.numpy())
    torch.testing.assert_close(torch.from_numpy(y), model(x).detach(), rtol=1e-4, atol=1e-4)


def test_all_that_an_executable_cannot_be_made_of_is_one_error() -> None:
    class Mixed(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.histc(x, 3)[0] + torch.linalg.matrix_exp(x[:, None, None])

    with pytest.raises(UserError, match="the model uses what is not supported: 2 errors"):
        tw.from_torch(Mixed(), (torch.rand(3),))


# Options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"thread": 2}, "the backend has no option thread"),
        ({"dynamic": True}, "dynamic is no option of the backend"),
        ({"fallback": "never"}, "fallback='never' says nothing"),
        ({"fallback": 3}, "fallback"),
        ({"precision": "f99"}, "there is no precision 'f99'"),
        ({"precision": 3}, "cannot use 3 as precision"),
        ({"threads": 0}, "cannot use 0 threads"),
    ],
)
@pytest.mark.parametrize("trained", [False, True])
def test_wrong_options(options: dict[str, Any], text: str, trained: bool) -> None:
    with torch.set_grad_enabled(trained), pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as found:
        torch.compile(perceptron(), backend=tilewright, options=options)(torch.randn(1, 6))
    assert text in str(found.value.inner_exception)


def test_wrong_modes() -> None:
    with pytest.raises(UserError, match="the backend has no mode fastest"):
        tilewright(None, [], mode="fastest")


def test_pytorch_finds_the_backend() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    place = project["entry-points"]["torch_dynamo_backends"]["tilewright"]
    assert EntryPoint("tilewright", place, "torch_dynamo_backends").load() is tilewright


def test_importing_tilewright_does_not_import_pytorch() -> None:
    program = "import sys, tilewright, tilewright.api.compile; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "src", capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "False", run.stderr


def test_the_table_of_decompositions_is_that_of_pytorch_without_composite_operators() -> None:
    from torch._decomp import core_aten_decompositions, decomposition_table

    from tilewright.frontends.torch.decompositions import decompositions
    from tilewright.frontends.torch.operators import HANDLERS

    whole = {**decomposition_table, **core_aten_decompositions()}
    table = decompositions()
    assert all(whole[op] is function for op, function in table.items())
    left_out = [op for op in whole if op not in table and str(op) not in {name for _, name in HANDLERS.table}]
    composite = torch._C._dispatch_has_kernel_for_dispatch_key
    kept = [op for op in left_out if hasattr(op, "_schema") and not composite(op.name(), "CompositeImplicitAutograd")]
    assert not [op for op in kept if "scaled_dot" not in str(op) and not _stays_whole(op)]


def _stays_whole(op: Any) -> bool:
    from tilewright.frontends.torch.decompositions import KEPT

    return op._schema.name.partition("::")[2] in KEPT or torch.Tag.nondeterministic_seeded in op.tags


def test_loops_run_on_the_threads_that_pytorch_lends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product, as large as is worth waking them for, on as many as the options say."""
    lender, x = Lender(lambda n: n), torch.randn(512, 512)
    monkeypatch.setattr(calls, "lent", lambda: ctypes.addressof(lender.record))
    fast = compiled(lambda x: torch.relu(x @ x), threads=2)
    with torch.no_grad():
        for _ in range(PATIENCE):  # an earlier test may have refused workers to a caller, who is waited for
            torch.testing.assert_close(fast(x), torch.relu(x @ x), rtol=1e-4, atol=1e-4)
            if lender.asked:
                break
    assert set(lender.asked) == {2}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere OpenMP is another one")
def test_pytorch_lends_the_threads_of_openmp() -> None:
    assert torch.backends.openmp.is_available()
    assert calls.lent() != 0
    x = torch.randn(512, 512)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(lambda x: x @ x, threads=2)(x), x @ x, rtol=1e-4, atol=1e-3)
