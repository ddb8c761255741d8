"""Modules of WebAssembly: what programs in JavaScript and under wasmtime get from them, and what is refused."""

from __future__ import annotations

import random
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from benchmarks.network_models.images import MOBILENET_V3_LARGE, mobilenet_v3_large
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from cli_models import invoke
from libraries import PROGRAMS, digits
from tilewright.codegen.assemble import assemble
from tilewright.codegen.wasm.link import link_wasm
from tilewright.codegen.wasm.objects import read_wasm
from tilewright.report.errors import InternalError, UserError
from tilewright.runtime.library import wasm
from tilewright.target import Target
from wasm_modules import Arrays, run_node, run_wasmtime

WASM = Target.parse("wasm")
RUN = {"node": run_node, "wasmtime": lambda folder, feeds: run_wasmtime(folder / "model.wasm", feeds)}


@cache
def programs(model: bytes) -> tuple[tw.Executable, tw.Executable]:
    """A model as a module of WebAssembly, and for this machine."""
    return tw.compile(model, target="wasm"), tw.compile(model)


def save(exe: tw.Executable, folder: Path) -> None:
    exe.save_library(folder / "model.wasm", header=folder / "model.mjs")


def close(found: Arrays, expected: Arrays) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        bound = 1e-5 * float(np.abs(array).max(initial=1.0))
        np.testing.assert_allclose(found[name], array, rtol=0, atol=bound)


@pytest.mark.parametrize("engine", RUN)
def test_digits(engine: str, tmp_path: Path) -> None:
    save(digits(target="wasm"), tmp_path)
    for n in (1, 50):
        feeds = {"image": np.random.default_rng(n).random((n, 1, 8, 8), np.float32)}
        close(RUN[engine](tmp_path, feeds), digits().run(feeds))


@pytest.mark.parametrize("engine", RUN)
def test_a_small_network(engine: str, tmp_path: Path) -> None:
    graph = mobilenet_v3_large(MOBILENET_V3_LARGE[:6], widths=(64, 96), size=48, classes=20)
    made, here = programs(graph.model().SerializeToString())
    save(made, tmp_path)
    close(RUN[engine](tmp_path, graph.feeds), here.run(graph.feeds))


@pytest.mark.parametrize("engine", RUN)
def test_mobilenet(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("foreign"):
        pytest.skip("a minute: make foreign")
    graph = mobilenet_v3_large()
    model = graph.model().SerializeToString()
    save(tw.compile(model, target="wasm"), tmp_path)
    close(RUN[engine](tmp_path, graph.feeds), tw.compile(model).run(graph.feeds))


def of_functions() -> bytes:
    """A model of functions that a module imports, and of a check."""
    nodes = [helper.make_node(op, ["x"], [op]) for op in ("Sinh", "Acos", "Asinh", "Tan", "Exp")]
    nodes += [helper.make_node("Mul", ["x", "billion"], ["far"]), helper.make_node("Sin", ["far"], ["Sin"])]
    nodes.append(helper.make_node("Gather", ["Exp", "i"], ["y"], name="pick"))
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 5]),
        helper.make_tensor_value_info("i", TensorProto.INT64, ["k"]),
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in ("Sinh", "Acos", "Asinh", "Tan", "Sin", "y")]
    graph = helper.make_graph(nodes, "g", inputs, results, [numpy_helper.from_array(np.float32(1e9), "billion")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("engine", RUN)
def test_functions_and_dynamic_sizes(engine: str, tmp_path: Path) -> None:
    made, here = programs(of_functions())
    save(made, tmp_path)
    for n, k in ((1, 3), (70, 2), (3, 0)):
        random_ = np.random.default_rng(n)
        feeds = {"x": random_.uniform(-1, 1, (n, 5)).astype(np.float32), "i": random_.integers(-n, n, k)}
        close(RUN[engine](tmp_path, feeds), here.run(feeds))


def test_wrong_calls_from_javascript(tmp_path: Path) -> None:
    """Each is an error with a text, and the next call is as good as if it had not been."""
    save(programs(of_functions())[0], tmp_path)
    said = printed("wrong.mjs", tmp_path)
    assert said == (PROGRAMS / "wrong-mjs.txt").read_text().splitlines()


def printed(program: str, folder: Path, *arguments: str) -> list[str]:
    """The lines that a program prints in Node."""
    if shutil.which("node") is None:
        pytest.skip("there is no Node")
    command = ["node", str(PROGRAMS / program), str(folder), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def of_dynamic_results() -> bytes:
    """A model of two results whose sizes come from data, and one between them whose size does not."""
    nodes = [helper.make_node("NonZero", ["x"], ["where"]), helper.make_node("Exp", ["x"], ["e"])]
    nodes += [helper.make_node("Range", ["zero", "end", "one"], ["counted"])]
    constants = [numpy_helper.from_array(np.int64(n), name) for n, name in ((0, "zero"), (1, "one"))]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"]),
        helper.make_tensor_value_info("end", TensorProto.INT64, []),
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in ("where", "e", "counted")]
    graph = helper.make_graph(nodes, "g", inputs, results, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("engine", RUN)
def test_results_of_sizes_from_data(engine: str, tmp_path: Path) -> None:
    made, here = programs(of_dynamic_results())
    save(made, tmp_path)
    for n, m, end in ((3, 4, 5), (300, 200, 50_000), (0, 3, 0)):
        x = np.random.default_rng(n).integers(0, 2, (n, m)).astype(np.float32)
        feeds = {"x": x, "end": np.array(end, np.int64)}
        close(RUN[engine](tmp_path, feeds), here.run(feeds))


@pytest.mark.parametrize("engine", RUN)
def test_results_larger_than_an_input(engine: str, tmp_path: Path) -> None:
    model = tw.parse("graph main[n](x: f32[n]) -> y:\n  y: f32[2*n] = concat(x, x, axis=0)\n")
    save(tw.compile(model, target="wasm"), tmp_path)
    x = np.arange(5, dtype=np.float32)
    close(RUN[engine](tmp_path, {"x": x}), {"y": np.concatenate([x, x])})


def test_calls_of_one_model_go_on_after_one_that_needs_too_much(tmp_path: Path) -> None:
    save(programs(of_dynamic_results())[0], tmp_path)
    first, large, *refused, last = printed("sizes.mjs", tmp_path, "3", "9000000", "700000000", "4000000000", "2")
    assert (first, large, last) == ("3 0 2", "9000000 0 8999999", "2 0 1")
    assert all(line.startswith("the call needs more memory than it may take: its arrays") for line in refused), refused


def test_what_no_module_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "model.wasm"
    with pytest.raises(UserError, match="of code for aarch64"):
        digits(target="aarch64").save_library(place)
    with pytest.raises(UserError, match="libraries are ELF files"):
        digits(target="wasm").save_library(tmp_path / "model.so")
    with pytest.raises(UserError, match="cannot write the weights of a module"):
        digits(target="wasm").save_library(place, weights=tmp_path / "model.bin")
    with monkeypatch.context() as patch:
        patch.setattr(wasm, "_MOST_BYTES", 1000)
        with pytest.raises(UserError, match=r"they take [\d,]+ bytes, and its code reaches 1,000"):
            digits(target="wasm").save_library(place)
    monkeypatch.setattr(wasm, "_FUNCTIONS", wasm._FUNCTIONS - {"sinf"})
    with pytest.raises(UserError, match="it calls sinf, which JavaScript does not have"):
        tw.compile(of_functions(), target="wasm").save_library(place)
    assert not list(tmp_path.iterdir())


def test_equal_programs_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.wasm", "b.wasm"):
        digits(target="wasm").save_library(tmp_path / name)
    assert (tmp_path / "a.wasm").read_bytes() == (tmp_path / "b.wasm").read_bytes()


# --- object files ---------------------------------------------------------------------------------------------------


def objects() -> list[bytes]:
    """A call to another file, a function by its address, a table, and a function of nobody."""
    head = f'target triple = "{WASM.triple}"\ntarget datalayout = "{WASM.data_layout}"\n'
    first = """
@table = internal constant [3 x i64] [i64 7, i64 8, i64 9]
@pointer = internal constant ptr @twice
declare i64 @far(i64, ptr)
define i64 @twice(i64 %x) { %y = mul i64 %x, 2  ret i64 %y }
define i64 @main(i64 %x) {
  %f = load volatile ptr, ptr @pointer
  %a = call i64 %f(i64 %x)
  %at = getelementptr i64, ptr @table, i64 %x
  %b = load i64, ptr %at
  %c = call i64 @far(i64 %b, ptr @twice)
  %d = add i64 %a, %c
  ret i64 %d
}
"""
    second = """
declare double @exp2(double)
define i64 @far(i64 %x, ptr %f) {
  %y = call i64 %f(i64 %x)
  %r = uitofp i64 %y to double
  %p = call double @exp2(double %r)
  %q = fptoui double %p to i64
  ret i64 %q
}
"""
    return [assemble(head + text, WASM) for text in (first, second)]


def test_objects_are_linked(tmp_path: Path) -> None:
    wasmtime = pytest.importorskip("wasmtime")
    (tmp_path / "m.wasm").write_bytes(link_wasm(objects(), ["main"], {}, ("note", b"")))
    engine = wasmtime.Engine()
    module, store, linker = wasmtime.Module.from_file(engine, str(tmp_path / "m.wasm")), wasmtime.Store(engine), None
    assert [(i.module, i.name) for i in module.imports] == [("env", "exp2")]
    linker = wasmtime.Linker(engine)
    linker.define_func("env", "exp2", module.imports[0].type, lambda x: 2.0**x)
    main = linker.instantiate(store, module).exports(store)["main"]
    assert [main(store, n) for n in range(3)] == [2 * n + 2 ** (2 * (7 + n)) for n in range(3)]


def test_names_that_two_objects_define() -> None:
    first, second = objects()
    with pytest.raises(InternalError, match="two object files define twice"):
        link_wasm([first, second, first], ["main"], {}, ("note", b""))
    with pytest.raises(InternalError, match="has no function other"):
        link_wasm([first, second], ["other"], {}, ("note", b""))


def test_damaged_objects_are_refused_or_harmless() -> None:
    first, second = objects()
    refused = 0
    for end in range(len(first)):
        try:
            read_wasm(first[:end])
        except InternalError:
            refused += 1
    assert refused > len(first) / 2
    choose = random.Random(0)
    for _ in range(1000):
        damaged = bytearray(first)
        damaged[choose.randrange(len(first))] ^= 1 << choose.randrange(8)
        try:
            link_wasm([bytes(damaged), second], ["main"], {}, ("note", b""))
        except InternalError:
            refused += 1


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [["--target", "wasm"], []])
def test_the_command_writes_a_module(target: list[str], tmp_path: Path) -> None:
    files = ["-o", str(tmp_path / "model.wasm"), "--header", str(tmp_path / "model.mjs")]
    done = invoke("compile", "examples/digits/digits.onnx", *target, *files)
    assert done.code == 0, done
    digits(target="wasm").save_library(tmp_path / "again.wasm")
    assert (tmp_path / "model.wasm").read_bytes() == (tmp_path / "again.wasm").read_bytes()
