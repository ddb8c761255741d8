"""`--import MODULE`: commands compile models with operators that a module registers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from added_operators import model, node
from cli_models import invoke
from tilewright.core import extensions

MODULE = """
import tilewright as tw
from tilewright.expr.nodes import call
from tilewright.loops.build import load
from tilewright.types.tensor import TensorType


@tw.elementwise("snake")
def snake(x, a):
    s = call("sin", a * x)
    return x + s * s / a


class Total(tw.Operator):
    name = "total"
    pattern = tw.Pattern.REDUCE

    def infer(self, context, inputs, attrs):
        return (TensorType(inputs[0].dtype, inputs[0].shape[:-1]),)

    def meaning(self, inputs, attrs):
        return (inputs[0].sum(-1),)

    def define(self, build, inputs, outputs, attrs):
        (x,), (y,) = inputs, outputs
        build.accumulate("total", y, [x.shape[-1]], init=0, update=lambda total, *at: total + load(x, *at))


total = Total()
tw.register(total)


@tw.onnx_operator("com.example", "Snake")
def read_snake(b: tw.Emit, x: tw.Tensor, *, alpha: float = 1.0) -> tw.Tensor:
    return b.map("snake", x, alpha)


@tw.onnx_operator("com.example", "Total")
def read_total(b: tw.Emit, x: tw.Tensor) -> tw.Tensor:
    return b.op("total", x)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a model and the module that it needs, which is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_operators.py").write_text(MODULE)
    nodes = [node("Snake", ["x"], ["a"], alpha=0.5), node("Total", ["a"], ["y"], "com.example")]
    onnx.save(model(nodes, x=["n", 37], y=["n"]), tmp_path / "m.onnx")
    yield tmp_path
    own = sys.modules.pop("own_operators", None)
    for name in ("snake", "total", "read_snake", "read_total") if own is not None else ():
        tw.unregister(getattr(own, name))
    assert extensions.stamp() == ""


@pytest.mark.parametrize("module", ["own_operators", "own_operators.py", "./own_operators.py"])
def test_a_model_runs_and_agrees_with_the_meanings(module: str) -> None:
    words = ("run", "m.onnx", "--random", "--size", "n=300", "--compare", "--import", module)
    found = invoke(*words, "--save-output", "y.npz")
    assert (found.code, found.err) == (0, "note: y.npz holds the outputs\n")
    assert found.out.rstrip().endswith("agrees")
    assert np.load("y.npz")["y"].shape == (300,)


def test_other_commands_take_it() -> None:
    assert "snake total" in invoke("show", "m.onnx", "--plan", "--import", "own_operators").out
    assert "total" in invoke("why", "m.onnx", "--import", "own_operators").out
    assert invoke("compile", "m.onnx", "--import", "own_operators").code == 0
    assert invoke("run", "m.tw", "--random", "--size", "n=2").code == 0
    refused = invoke("run", "m.tw", "--random", "--import", "own_operators")
    assert refused.err.startswith("--import does not go with a compiled file\n")


def test_a_module_that_there_is_not() -> None:
    form = "name a module that Python finds from here, as my_operators, or its file, as path/to/my_operators.py"
    for name, kind in (("no_operators", "module"), ("no_operators.py", "file")):
        found = invoke("run", "m.onnx", "--random", "--import", name)
        assert (found.code, found.out) == (2, "")
        assert found.err == f"cannot import {name}\nat:   --import\nwhy:  there is no such {kind}\nfix:  {form}\n"


def test_a_module_that_fails(folder: Path) -> None:
    (folder / "broken_operators.py").write_text("import tilewright\n\nvalue = 1 / 0\n")
    for name in ("broken_operators", "broken_operators.py"):
        found = invoke("run", "m.onnx", "--random", "--import", name)
        assert (found.code, found.out) == (2, "")
        assert found.err == (
            f"importing {name} failed\n"
            "at:   broken_operators.py, line 3, in <module>: value = 1 / 0\n"
            "why:  ZeroDivisionError: division by zero\n"
        )


def test_a_file_with_the_name_of_another_module(folder: Path) -> None:
    (folder / "json.py").write_text("")
    found = invoke("run", "m.onnx", "--random", "--import", "json.py")
    assert found.err.splitlines()[2] == "why:  there is another module of the name json"
