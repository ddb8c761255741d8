"""What of libraries is made while the compiler works: the same bytes, and nothing where it fails."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from cli_models import invoke
from drawn import drawn
from libraries import linux
from tilewright.codegen.library.places import WEIGHTS_AT
from tilewright.report.errors import InternalError
from tilewright.runtime.library import ahead, glue, write
from tilewright.runtime.library.ahead import Ahead, tell_program
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


def places_of_code(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each time that the code beside a program is made, whether a thread of its own does it."""
    found: list[bool] = []
    made = glue.glue_object

    def counted(parts: glue.Parts) -> bytes:
        found.append(threading.current_thread() is not threading.main_thread())
        return made(parts)

    for module in (glue, write):
        monkeypatch.setattr(module, "glue_object", counted)
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
        told.append(tell_program)
        raise InternalError("the code cannot be made")

    place = tmp_path / "out" / "a.so"
    place.parent.mkdir()
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store"))
    monkeypatch.setattr("tilewright.compiler.apart.assemble", fails)
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


@pytest.mark.parametrize(
    ("ending", "options", "denormals"),
    drawn(["so", "o", "a"], [(), ("--weights", "w.bin")], ["keep", "flush"]),
    ids=lambda value: ("beside" if value else "inside") if isinstance(value, tuple) else value,
)
def test_the_code_beside_a_program_is_made_with_it(
    ending: str, options: tuple[str, ...], denormals: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, by a thread; again where the program calls for other code after all, as one does that flushes."""
    monkeypatch.chdir(tmp_path)
    found = places_of_code(monkeypatch)
    library = compiled(model, tmp_path / f"a.{ending}", monkeypatch, 1, *options, "--denormals", denormals)
    assert found == ([True] if denormals == "flush" else [True, False])
    beside = {"weights": tmp_path / "w2.bin"} if options else {}
    tw.compile(model, denormals=denormals).save_library(tmp_path / f"b.{ending}", **beside)
    assert library == (tmp_path / f"b.{ending}").read_bytes()


def test_the_code_beside_a_small_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = places_of_code(monkeypatch)
    library = compiled(Path("examples/digits/digits.onnx"), tmp_path / "a.so", monkeypatch, 1)
    assert found == [True]
    tw.compile("examples/digits/digits.onnx").save_library(tmp_path / "b.so")
    assert library == (tmp_path / "b.so").read_bytes()


def test_what_no_library_holds_is_told_by_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = helper.make_tensor_value_info
    x, y = made("x", TensorProto.FLOAT, [1] * 9), made("y", TensorProto.FLOAT, [1] * 9)
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "g", [x], [y])
    place = tmp_path / "model.onnx"
    place.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    )
    ran = invoke("compile", place, "-o", tmp_path / "a.so")
    assert ran.code == 2 and "has 9 dimensions" in ran.err and "Traceback" not in ran.err


def test_a_second_program_makes_both_nobodys(tmp_path: Path) -> None:
    exe = tw.compile(tw.parse("graph main[n](x: f32[n]) -> y:\n  y: f32[n] = relu(x)\n"))
    program = replace(exe.program, constants=(np.ones(LARGE_PAGE, np.uint8),))

    def prepare(*_: object) -> tuple[object, bytes]:
        return 1, b"code"

    with Ahead(tmp_path / "x.so", prepare) as once:
        tell_program(lambda: program, False)
        assert once.weights_of([exe.program]) is None  # it takes other ones
        assert once.weights_of([program]) is not None
        assert (once.code_for(1), once.code_for(2)) == (b"code", None)
    with Ahead(tmp_path / "x.so", prepare) as twice:
        tell_program(lambda: program, False)
        tell_program(lambda: exe.program, False)
        assert twice.weights_of([program]) is None
    assert os.listdir(tmp_path) == []
