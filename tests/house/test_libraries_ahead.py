"""Weights of libraries that are written while the compiler works: the same bytes, and nothing where it fails."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from cli_models import invoke
from libraries import linux
from tilewright.codegen.library.places import WEIGHTS_AT
from tilewright.report.errors import InternalError
from tilewright.runtime.library import ahead, write
from tilewright.runtime.library.ahead import Ahead, tell_constants
from tilewright.store.blocks import LARGE_PAGE

pytestmark = linux

SIZE = 384


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """70 operators, some of them products by weights of 3.5 MiB in all."""
    nodes, weights, value = [], [], "x"
    for n in range(35):
        source = n % 6
        nodes += [helper.make_node("MatMul", [value, f"w{source}"], [f"h{n}"])]
        nodes += [helper.make_node("Tanh", [f"h{n}"], [f"y{n}"])]
        value = f"y{n}"
    for n in range(6):
        array = np.random.default_rng(n).random((SIZE, SIZE), np.float32) - 0.5
        weights.append(numpy_helper.from_array(array, f"w{n}"))
    made = helper.make_tensor_value_info
    x, y = made("x", TensorProto.FLOAT, [4, SIZE]), made(value, TensorProto.FLOAT, [4, SIZE])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    place = tmp_path / "model.onnx"
    place.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    )
    return place


def counted_writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that writing libraries finds in their files already."""
    found: list[int] = []

    class Counted(Ahead):
        def take(self):  # type: ignore[no-untyped-def]
            file, inside = super().take()
            found.append(os.fstat(file.fileno()).st_size)
            return file, inside

    monkeypatch.setattr("tilewright.cli.library.Ahead", Counted)
    return found


def compiled(model: Path, place: Path, monkeypatch: pytest.MonkeyPatch, processes: int, *options: object) -> bytes:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(place.parent / f"store {place.name}"))
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", str(processes))
    ran = invoke("compile", model, "-o", place, *options)
    assert ran.code == 0, ran.err
    return place.read_bytes()


@pytest.mark.parametrize("processes", [1, 2])
def test_the_bytes_are_those_of_a_program_in_memory(
    processes: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = counted_writes(monkeypatch)
    library = compiled(model, tmp_path / "a.so", monkeypatch, processes)
    assert len(found) == 1 and found[0] > WEIGHTS_AT + LARGE_PAGE
    exe = tw.compile(model)
    assert exe.cached
    exe.save_library(tmp_path / "b.so")
    assert library == (tmp_path / "b.so").read_bytes()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


@pytest.mark.parametrize("ending", ["so", "o"])
def test_weights_in_a_file_of_their_own(
    ending: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = counted_writes(monkeypatch)
    weights = tmp_path / "a.bin"
    library = compiled(model, tmp_path / f"a.{ending}", monkeypatch, 1, "--weights", weights)
    assert found == [weights.stat().st_size] and found[0] > LARGE_PAGE
    tw.compile(model).save_library(tmp_path / f"b.{ending}", weights=tmp_path / "b.bin")
    assert library == (tmp_path / f"b.{ending}").read_bytes()
    assert weights.read_bytes() == (tmp_path / "b.bin").read_bytes()


def test_code_that_reaches_into_the_weights(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that were written where the library does not have them are written again."""
    expected = compiled(model, tmp_path / "a.so", monkeypatch, 1)
    found = counted_writes(monkeypatch)
    monkeypatch.setattr(ahead, "WEIGHTS_AT", 1 << 13)
    assert compiled(model, tmp_path / "b.so", monkeypatch, 1) == expected
    assert len(found) == 1


def test_a_compilation_that_fails_leaves_nothing(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def fails(*_: object) -> None:
        told.append(tell_constants)
        raise InternalError("the code cannot be made")

    place = tmp_path / "out" / "a.so"
    place.parent.mkdir()
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setattr("tilewright.compiler.apart.join", fails)
    place.write_bytes(b"what was there")
    assert invoke("compile", model, "-o", place).code == 70
    assert told and os.listdir(place.parent) == ["a.so"] and place.read_bytes() == b"what was there"
    place.unlink()
    assert invoke("compile", model, "-o", place).code == 70
    assert os.listdir(place.parent) == []


def test_a_full_disk_is_told_by_the_library(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    place = tmp_path / "out" / "a.so"
    place.parent.mkdir()
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(ahead, "write_parts", full)
    monkeypatch.setattr(write, "write_parts", full)
    ran = invoke("compile", model, "-o", place)
    assert ran.code == 2 and "No space left on device" in ran.err
    assert os.listdir(place.parent) == []


def test_constants_of_two_programs_are_nobodys(tmp_path: Path) -> None:
    exe = tw.compile(tw.parse("graph main[n](x: f32[n]) -> y:\n  y: f32[n] = relu(x)\n"))
    arrays = [np.ones(LARGE_PAGE, np.uint8)]
    with Ahead(tmp_path / "x.so") as once:
        tell_constants(arrays)
        assert once.weights_of([exe.program]) is None  # it takes other ones
    with Ahead(tmp_path / "x.so") as twice:
        tell_constants(arrays)
        tell_constants([])
        assert twice.weights_of([exe.program]) is None
    assert os.listdir(tmp_path) == []
