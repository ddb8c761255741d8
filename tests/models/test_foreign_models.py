"""Networks as libraries for other processors, run under QEMU, and as modules of WebAssembly, run by wasmtime, compute
what they compute here.

`max |theirs - ours| <= 1e-5 * max |ours|` for every result. A small network is part of every run of the tests;
so are a few random models. `make foreign` takes the ONNX project's light models, MobileNetV3 and more random models:
hours. The light
models have one number in the place of all weights, and every class is as likely then, whatever is computed: they get
random weights here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from benchmarks.network_models import NETWORKS
from benchmarks.network_models.images import MOBILENET_V3_LARGE, mobilenet_v3_large
from fuzz.drawing import GROUP, Model, put_together
from fuzz.judging import wrong_results
from fuzz.outcomes import drawn, outcome
from onnx import numpy_helper

import tilewright as tw
from foreign import LONG_MACHINES, MACHINES, Machine, needs
from libraries import PROGRAMS, linux
from tilewright.target import Target
from wasm_modules import run_wasmtime

pytestmark = linux

RELATIVE = 1e-5
FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
LIGHT = sorted(path.stem for path in FOLDER.glob("*.onnx"))
SHORT = ("aarch64 +sve256", "riscv64 +v")
WASM = "wasm"
SMALL = "small MobileNetV3"
LONG = ("MobileNetV3-L", *LIGHT)

Arrays = Mapping[str, np.ndarray]


def with_random_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with random numbers for each constant that is made of one: weights by He's rule, else from 0.5 to 1.5,
    since some are variances."""
    rng = np.random.default_rng(0)
    known = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in [n for n in model.graph.node if n.op_type == "ConstantOfShape" and n.input[0] in known]:
        model.graph.node.remove(node)
        shape = tuple(int(n) for n in known[node.input[0]])
        if len(shape) > 1:
            array = rng.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5
        else:
            array = rng.uniform(0.5, 1.5, shape)
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), node.output[0]))
    used = {name for node in model.graph.node for name in node.input}
    for unused in [t for t in model.graph.initializer if t.name not in used]:
        model.graph.initializer.remove(unused)
        for entry in [i for i in model.graph.input if i.name == unused.name]:
            model.graph.input.remove(entry)
    return model


@cache
def network(name: str, target: str = "native") -> tuple[bytes, Arrays, Arrays]:
    """A model, inputs, and what it makes of them on x86-64, compiled for this target."""
    if name in LIGHT:
        model = with_random_weights(onnx.load(FOLDER / f"{name}.onnx")).SerializeToString()
        exe, rng = tw.compile(model, target=target), np.random.default_rng(1)
        feeds = {p.name: rng.random(p.type.static_shape(), np.float32) for p in exe.inputs}
        return model, feeds, exe.run(feeds)
    if name == SMALL:
        graph = mobilenet_v3_large(MOBILENET_V3_LARGE[:4], widths=(64, 96), size=32, classes=20)
    else:
        graph = next(n for n in NETWORKS if n.name == name).build()
    model = graph.model().SerializeToString()
    return model, graph.feeds, tw.compile(model, target=target).run(graph.feeds)


def call(machine: Machine, library: Path, feeds: Sequence[np.ndarray], results: Arrays) -> Arrays:
    """What a library makes of inputs; `results` have the names and types."""
    program = machine.build(PROGRAMS / "call.c", library.parent, library)
    given = b"".join(struct.pack(f"<{a.ndim + 2}q", a.ndim, *a.shape, a.nbytes) + a.tobytes() for a in feeds)
    ran = machine.run(program, "2", given=given, timeout=7200)
    assert ran.returncode == 0, ran.stderr
    found, at = {}, 0
    for name, like in results.items():
        (rank,) = struct.unpack_from("<q", ran.stdout, at)
        *shape, size = struct.unpack_from(f"<{rank + 1}q", ran.stdout, at + 8)
        at += 8 * (rank + 2)
        found[name] = np.frombuffer(ran.stdout, like.dtype, size // like.itemsize, at).reshape(shape)
        at += size
    assert at == len(ran.stdout)
    return found


def results_for(target: str, exe: tw.Executable, folder: Path, feeds: Arrays, like: Arrays) -> Arrays:
    """What an executable for a target makes of inputs, as a library or a module; `like` has names and types."""
    if target == WASM:
        exe.save_library(folder / "model.wasm")
        return run_wasmtime(folder / "model.wasm", feeds)
    exe.save_library(folder / "libmodel.so", header=folder / "model.h")
    return call(MACHINES[target], folder / "libmodel.so", [feeds[p.name] for p in exe.inputs], like)


def check(name: str, target: str, folder: Path) -> None:
    if target in MACHINES:
        needs(MACHINES[target])
    # WebAssembly has vectors of 128 bits, and no fused multiply-adds.
    model, feeds, expected = network(name, "x86-64-v2" if target == WASM else "native")
    found = results_for(target, tw.compile(model, target=target), folder, feeds, expected)
    for result, array in expected.items():
        assert np.ptp(array) > 0.1 * np.abs(array).max(), "all results are alike"
        np.testing.assert_allclose(found[result], array, rtol=0, atol=RELATIVE * float(np.abs(array).max()))


@pytest.mark.parametrize("target", SHORT)
def test_a_small_network(target: str, tmp_path: Path) -> None:
    check(SMALL, target, tmp_path)


@cache
def drawn_for(group: int, has_f16: bool) -> list[Model]:
    """The random models of a group that are right here, and whose types a target has."""
    models = [drawn(seed) for seed in range(GROUP * group, GROUP * (group + 1))]
    if not has_f16:
        models = [m for m in models if not any(a.dtype == np.float16 for a in m.values.values())]
    if outcome(models)[0] != "right":
        models = [m for m in models if outcome([m])[0] == "right"]
    assert len(models) > GROUP / 3
    return models


def check_drawn(group: int, target: str, folder: Path) -> None:
    """A group of random models gives what ONNX's reference does, by the same bounds as on x86-64."""
    if target in MACHINES:
        needs(MACHINES[target])
    models = drawn_for(group, Target.parse(target).has_f16c)
    exe = tw.compile(put_together(models), target=target, denormals="keep")  # as the reference does
    feeds = {name: array for m in models for name, array in m.feeds.items()}
    expected = {name: array for m in models for name, array in m.expected.items()}
    found = results_for(target, exe, folder, feeds, expected)
    assert [wrong for m in models if (wrong := wrong_results(m, found))] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", [*SHORT, WASM])
def test_random_models(target: str, tmp_path: Path) -> None:
    check_drawn(0, target, tmp_path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", [*MACHINES, WASM])
@pytest.mark.parametrize("group", range(100, 125))
def test_many_random_models(group: int, target: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("foreign"):
        pytest.skip("an hour: make foreign")
    check_drawn(group, target, tmp_path)


@pytest.mark.parametrize("target", [*LONG_MACHINES, WASM])
@pytest.mark.parametrize("name", LONG)
def test_networks(name: str, target: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("foreign"):
        pytest.skip("hours: make foreign")
    check(name, target, tmp_path)
