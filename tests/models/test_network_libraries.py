"""Networks as libraries, called by programs in C, linked and loaded: the bits are those of the executable, with one and
two threads, and for four threads that call at once. One library is called with several sizes.

A small network of each kind is part of every run of the tests. `make libraries` takes MobileNetV3-L, and, where PyTorch
is installed, BERT and GPT-2: minutes.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.network_models import NETWORKS
from benchmarks.network_models.images import MOBILENET_V3_LARGE, mobilenet_v3_large
from benchmarks.network_models.llama import PAST, SEQUENCE, TINY, llama

import tilewright as tw
from drawn import LONG as ALL
from libraries import PROGRAMS, STRICT, compile_c, linux, needs_cc
from tilewright.target import Target
from tilewright.target.host import current_host

pytestmark = [linux, needs_cc]

Array = np.ndarray[Any, Any]

PLAIN = "x86-64-v3" if Target.parse("x86-64-v3").is_runnable_on(current_host()) else "native"
"""A machine that valgrind knows: it has no AVX-512."""
BATCHES = ((1, 1), (1, 128), (2, 17), (3, 64), (5, 33))
"""Batches and lengths of texts."""
RUNS = ((1, 1), (2, 1), (1, 4), (2, 4))
"""Threads of a call, and threads that call."""


@dataclass(frozen=True)
class Case:
    """A model, the source of a compilation, and the inputs of some calls."""

    model: Any
    calls: Sequence[Sequence[Array]]


def digits(_: Path) -> Case:
    rng = np.random.default_rng(0)
    return Case("examples/digits/digits.onnx", [[rng.random((n, 1, 8, 8), np.float32)] for n in (1, 3, 0, 100, 17)])


def small_mobilenet(_: Path) -> Case:
    return images(mobilenet_v3_large(MOBILENET_V3_LARGE[:6], widths=(64, 96), size=48, classes=20))


def mobilenet(_: Path) -> Case:
    return images(next(n for n in NETWORKS if n.name == "MobileNetV3-L").build())


def images(graph: Any) -> Case:
    """Five images of a network of a fixed size."""
    (shape,) = (array.shape for array in graph.feeds.values())
    rng = np.random.default_rng(1)
    calls = [[rng.standard_normal(shape).astype(np.float32)] for _ in range(5)]
    return Case(graph.model().SerializeToString(), calls)


def small_llama(_: Path) -> Case:
    """Prompts and tokens after others: sequence and past are symbols."""
    sizes = ((1, 0), (7, 0), (1, 7), (3, 8), (1, 100))
    graphs = [llama(TINY, sequence, past, (SEQUENCE, PAST)) for sequence, past in sizes]
    model = graphs[0].model()
    names = [port.name for port in model.graph.input]
    return Case(model.SerializeToString(), [[g.feeds[name] for name in names] for g in graphs])


def import_torch() -> Any:
    """PyTorch, where it is with what it exports models by."""
    pytest.importorskip("onnxscript")
    return pytest.importorskip("torch")


def bert(folder: Path) -> Case:
    torch = import_torch()
    from torch_transformers import BERT, Bert, export

    torch.manual_seed(0)
    export(Bert(), ("ids", "mask", "kinds"), folder / "bert.onnx")
    rng, calls = np.random.default_rng(2), []
    for shape in BATCHES:
        kept = np.arange(shape[1]) < rng.integers(1, shape[1] + 1, (shape[0], 1))
        calls.append([rng.integers(0, BERT.vocabulary, shape), kept.astype(np.int64), rng.integers(0, 2, shape)])
    return Case(folder / "bert.onnx", calls)


def gpt2(folder: Path) -> Case:
    torch = import_torch()
    from torch_transformers import GPT2, Gpt2, export

    torch.manual_seed(0)
    export(Gpt2(), ("ids",), folder / "gpt2.onnx")
    rng = np.random.default_rng(3)
    return Case(folder / "gpt2.onnx", [[rng.integers(0, GPT2.vocabulary, shape)] for shape in BATCHES])


SMALL: tuple[Callable[[Path], Case], ...] = (digits, small_mobilenet, small_llama)
LONG: tuple[Callable[[Path], Case], ...] = (mobilenet, bert, gpt2)


def encode(calls: Sequence[Sequence[Array]]) -> bytes:
    """Calls as the program reads them."""
    parts = [struct.pack("<q", len(calls))]
    for array in (array for call in calls for array in call):
        parts += [struct.pack(f"<{array.ndim + 2}q", array.ndim, *array.shape, array.nbytes), array.tobytes()]
    return b"".join(parts)


def build(folder: Path) -> tuple[Path, Path]:
    """The program, linked with the library, and the one that loads it."""
    library = folder / "libmodel.so"
    options = ("-std=gnu99", *STRICT[1:])
    linked = compile_c(PROGRAMS / "callers.c", folder, library, options=options)
    linked = linked.rename(folder / "linked")
    loaded = compile_c(PROGRAMS / "callers.c", folder, options=(*options, f'-DLOADED="{library}"'))
    return linked, loaded


def call(program: Path, threads: int, callers: int, given: bytes, *before: str) -> bytes:
    command = [*before, str(program), str(threads), str(callers)]
    ran = subprocess.run(command, input=given, capture_output=True, timeout=1800)
    assert (ran.returncode, ran.stderr) == (0, b"")
    return ran.stdout


def check(case: Case, folder: Path, most: int = 5, **options: Any) -> tuple[tuple[Path, Path], bytes, bytes]:
    """The programs of a library, what they are given, of at most so many calls, and what the executable makes of it."""
    exe = tw.compile(case.model, **options)
    exe.save_library(folder / "libmodel.so", header=folder / "model.h")
    calls = case.calls[:most]
    return build(folder), encode(calls), encode([exe(*arrays) for arrays in calls])[8:]


@pytest.mark.parametrize("make", SMALL, ids=lambda make: make.__name__)
def test_small_networks(make: Callable[[Path], Case], tmp_path: Path) -> None:
    programs, given, wanted = check(make(tmp_path), tmp_path)
    for program in programs:
        for threads, callers in RUNS:
            assert call(program, threads, callers, given) == wanted, (program.name, threads, callers)


@pytest.mark.parametrize("make", LONG, ids=lambda make: make.__name__)
def test_large_networks(make: Callable[[Path], Case], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("libraries"):
        pytest.skip("minutes: make libraries")
    programs, given, wanted = check(make(tmp_path), tmp_path)
    for program in programs:
        for threads, callers in RUNS:
            assert call(program, threads, callers, given) == wanted, (program.name, threads, callers)


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind")
@pytest.mark.parametrize("make", SMALL if ALL else (digits, small_llama), ids=lambda make: make.__name__)
def test_memory_of_calls(make: Callable[[Path], Case], tmp_path: Path) -> None:
    """Valgrind finds nothing, with one thread and with workers, for one caller and for two, in a call and in those that
    follow it with other sizes; `make long` takes the network of a fixed size, too."""
    (program, _), given, wanted = check(make(tmp_path), tmp_path, most=3, target=PLAIN)
    options = ("valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--fair-sched=yes")
    for threads, callers in ((1, 1), (2, 2)):
        assert call(program, threads, callers, given, *options) == wanted, (threads, callers)


@pytest.mark.skipif(shutil.which("ldd") is None, reason="there is no ldd")
def test_what_the_system_loads_with_it(tmp_path: Path) -> None:
    tw.compile("examples/digits/digits.onnx").save_library(tmp_path / "libmodel.so")
    said = subprocess.run(["ldd", str(tmp_path / "libmodel.so")], capture_output=True, text=True, check=True).stdout
    names = {Path(line.split()[0]).name.split(".so")[0] for line in said.splitlines()}
    assert names - {"linux-vdso"} == {"libc", "libm", *(n for n in names if n.startswith("ld-linux"))}
