"""tw.torch.explain: graphs, breaks, kernels and what PyTorch runs; graphs as files, for those that fail."""

from __future__ import annotations

import io
import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch_compiled import compiled, fresh  # noqa: E402, F401

import tilewright as tw  # noqa: E402
from tilewright.frontends.torch.compiling import Compiler  # noqa: E402
from tilewright.report.errors import UserError  # noqa: E402

ONE = {"threads": 1}


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def explain(model: Any, *args: Any, **more: Any) -> tw.torch.Explanation:
    return tw.torch.explain(model, args, options=ONE, seconds=0.01, **more)


def test_kernels_have_times_and_operators() -> None:
    with torch.no_grad():
        found = explain(perceptron(), torch.randn(4, 6))
    assert (len(found.graphs), found.breaks, found.eager, found.threads) == (1, (), (), 1)
    assert sum(k.operators.count("contract") for k in found.kernels) == 2
    assert all(k.calls == 1 and k.seconds > 0 and (k.predicted or 0) > 0 for k in found.kernels)
    assert 0 < sum(k.seconds for k in found.kernels) + found.elsewhere <= found.seconds * 1.01


def test_breaks_and_operators_of_pytorch_have_places_and_reasons() -> None:
    def broken(x: Any) -> Any:
        y = x * 2
        torch._dynamo.graph_break()
        return torch.histc(y + 1)

    found = explain(broken, torch.rand(9))
    (one,), (eager,) = found.breaks, found.eager
    assert "graph_break" in one.reason
    assert "test_torch_explain.py" in one.place
    assert (eager.operator, eager.why) == ("aten.histc.default", "there is no handler for it")
    assert "test_torch_explain.py" in eager.place
    assert len(found.graphs) == 2


def test_gradients_are_explained_with_a_loss() -> None:
    model, x = perceptron(), torch.randn(4, 6)
    forward, both = explain(model, x), explain(model, x, loss=lambda y: y.square().mean())
    assert len(both.graphs) == len(forward.graphs) + 1
    assert all(p.grad is not None for p in model.parameters())


def test_it_prints_as_tables_and_is_json() -> None:
    found = explain(lambda x: torch.histc(x.sin()) + 1, torch.rand(9))
    text = str(found)
    assert text.startswith("1 graph, 0 breaks, 2 kernels; a call takes ")
    assert "aten.histc.default" in text
    assert "predicted" in text
    record = json.loads(json.dumps(found.record()))
    assert [e["operator"] for e in record["graphs"][0]["eager"]] == ["aten.histc.default"]
    assert {k["name"] for k in record["graphs"][0]["kernels"]} == {k.name for k in found.kernels}
    from rich.console import Console

    console = Console(file=io.StringIO(), width=140)
    console.print(found)
    assert "aten.histc.default" in console.file.getvalue()  # type: ignore[attr-defined]


def test_arguments_are_checked() -> None:
    with pytest.raises(UserError, match="args"):
        tw.torch.explain(perceptron(), torch.ones(3))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="has no option thread"):
        tw.torch.explain(perceptron(), (torch.ones(1, 6),), options={"thread": 1})


# Graphs as files


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pieces with a sigmoid are not compiled, and files of graphs come into a folder of their own."""
    made = Compiler._executable

    def refused(self: Compiler, module: Any) -> Any:
        if any(node.op.name == "sigmoid" for node in module.graph.nodes):
            raise ZeroDivisionError("a defect")
        return made(self, module)

    monkeypatch.setattr(Compiler, "_executable", refused)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def written(model: Any, *inputs: Any, **options: Any) -> Path:
    """The file of a model's graph, which fails."""
    with torch.no_grad(), pytest.raises(Exception, match="ZeroDivisionError: a defect") as error:
        compiled(model, **options)(*inputs)
    (place,) = [line.split()[1] for line in str(error.value).splitlines() if line.startswith("at: ")]
    assert f"python {place}" in str(error.value)
    return Path(place)


class Gated(nn.Module):
    """A weight, a tensor that the graph holds, and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.inner(torch.sigmoid(self.inner(x.relu()) * 2)) + torch.tensor([1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_graph_that_fails_replays_without_its_model(
    failing: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dynamic: bool | None
) -> None:
    """Of dynamic sizes also in another process."""
    place = written(Gated(), torch.randn(3, 4), dynamic=dynamic)
    monkeypatch.setattr(sys, "argv", [str(place)])
    with pytest.raises(ZeroDivisionError):
        runpy.run_path(str(place), run_name="__main__")
    monkeypatch.undo()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", [str(place)])
        runpy.run_path(str(place), run_name="__main__")
    said = [capsys.readouterr().out]
    if dynamic:
        said += [subprocess.run([sys.executable, str(place)], capture_output=True, text=True, check=True).stdout]
    assert set(said) == {"graph.py: compiled, and the results agree with PyTorch's\n"}


def test_a_graph_that_fails_becomes_smaller(
    failing: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = written(Gated(), torch.randn(3, 4))
    monkeypatch.setattr(sys, "argv", [str(place), "--minify"])
    runpy.run_path(str(place), run_name="__main__")
    small = place.with_stem("graph_small")
    assert capsys.readouterr().out == f"{small}: 3 nodes\n"
    assert "sigmoid" in small.read_text()
    assert "addmm" not in small.read_text()
    monkeypatch.setattr(sys, "argv", [str(small)])
    with pytest.raises(ZeroDivisionError):
        runpy.run_path(str(small), run_name="__main__")


def test_what_users_can_mend_is_written_to_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(Exception, match="histc"):
        compiled(torch.histc, fallback="error")(torch.ones(3))
    assert not list(tmp_path.iterdir())
