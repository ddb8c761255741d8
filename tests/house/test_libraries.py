"""Libraries for programs without Python: what is in the file, and what programs in C get from it."""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from cli_models import invoke
from libraries import (
    EXAMPLES,
    PROGRAMS,
    RELRO,
    STACK,
    STRICT,
    Elf,
    compile_c,
    digits,
    linux,
    needs_cc,
    run_program,
    same_bits,
)
from tilewright.codegen.elf import read_object
from tilewright.codegen.library.dynamic import hash_of
from tilewright.codegen.library.places import WEIGHTS_AT
from tilewright.graph.parse import parse_module
from tilewright.report.errors import RuntimeFault, UserError
from tilewright.runtime.library import load
from tilewright.runtime.library.weights import Stamp, Weights
from tilewright.target import Target, native
from tilewright.target.host import current_host

pytestmark = linux


def pick(**given: Any) -> tw.Executable:
    """Rows of exp(x) by indices, which are checked in the call."""
    nodes = [helper.make_node("Exp", ["x"], ["h"]), helper.make_node("Gather", ["h", "i"], ["y"], name="pick")]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
        helper.make_tensor_value_info("i", TensorProto.INT64, ["k"]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return tw.compile(model, **given)


_LINKED = ("-L", "FOLDER", "-ldigits", "-Wl,-rpath,FOLDER")
PLAIN = "x86-64-v3" if Target.parse("x86-64-v3").is_runnable_on(current_host()) else "native"
"""A machine that valgrind knows: it has no AVX-512."""

_RUST = ("-C", "link-args=-Wl,-rpath,FOLDER")
BUILDS = {
    "c": ("classify.c", "cc", *STRICT, "SOURCE", "-I", "FOLDER", "-o", "PROGRAM", *_LINKED),
    "c++": ("classify.cpp", "c++", "-std=c++17", *STRICT[1:], "SOURCE", "-I", "FOLDER", "-o", "PROGRAM", *_LINKED),
    "rust": ("classify.rs", "rustc", "SOURCE", "-o", "PROGRAM", "-L", "FOLDER", "-l", "digits", *_RUST),
    "go": ("classify.go", "go", "build", "-o", "PROGRAM", "SOURCE"),
}
"""The examples by their languages: source, compiler, and how it is called."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("libraries")


@pytest.fixture(scope="module")
def made(folder: Path) -> Elf:
    for header in ("digits.hpp", "digits.h"):
        digits().save_library(folder / "libdigits.so", header=folder / header, name="digits")
    return Elf(folder / "libdigits.so")


# --- the file -----------------------------------------------------------------------------------------------------


def test_nothing_is_written_and_executed(made: Elf) -> None:
    loads = made.loads()
    assert all(s.letters in ("R", "RX", "RW") for s in loads)
    assert [s.letters for s in made.segments if s.kind == STACK] == ["RW"]
    assert [s.address for s in loads] == sorted(s.address for s in loads)
    for before, after in itertools.pairwise(loads):
        assert before.address + before.size <= after.address // after.alignment * after.alignment
    assert all((s.offset - s.address) % s.alignment == 0 for s in loads)


def test_all_that_is_relocated_is_sealed(made: Elf) -> None:
    (sealed,) = (s for s in made.segments if s.kind == RELRO)
    relocated = made.relocated()
    assert relocated
    assert all(sealed.address <= place < sealed.address + sealed.size for _, place in relocated)
    assert sealed.address % 4096 == 0 and sealed.size % 4096 == 0
    written = [s for s in made.loads() if s.letters == "RW" and s.stored]
    assert [s.address for s in written] == [sealed.address], "all other data are zeros"
    assert made.tags[30][0] & 8, "names are bound when it is loaded"


def test_it_needs_libc_and_libm_alone(made: Elf) -> None:
    assert made.needed() == ["libc.so.6", "libm.so.6"]
    own = {name for name, (section, _) in made.symbols().items() if section}
    assert own and all(name.startswith("digits_") for name in own)


def test_weights_are_read_only_pages_of_their_own(made: Elf) -> None:
    weights = made.loads()[-1]
    assert weights.letters == "R" and weights.stored == weights.size and weights.address % 65536 == 0
    for constant in digits().program.constants:
        assert constant.tobytes() in made.data[weights.offset : weights.offset + weights.stored]


def holding(*constants: np.ndarray[Any, Any]) -> tw.Executable:
    """A program that returns what it holds, added to what comes."""
    names = [f"w{n}" for n in range(len(constants))]
    nodes = [helper.make_node("Add", ["x", name], [f"y{name}"]) for name in names]
    held = [numpy_helper.from_array(constant, name) for constant, name in zip(constants, names, strict=True)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    outputs = [helper.make_empty_tensor_value_info(f"y{name}") for name in names]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return tw.compile(model)


def test_large_weights_can_be_mapped_in_large_pages(tmp_path: Path) -> None:
    """The file and memory agree in large pages, and the file has no hole as large as one for it."""
    exe = holding(np.random.default_rng(0).random(3 << 20, np.float32))
    exe.save_library(tmp_path / "large.so")
    weights = Elf(tmp_path / "large.so").loads()[-1]
    assert weights.letters == "R" and weights.alignment == 1 << 21 and weights.stored >= 12 << 20
    assert (weights.address - weights.offset) % weights.alignment == 0 and weights.offset == WEIGHTS_AT
    assert (tmp_path / "large.so").stat().st_size - weights.stored < WEIGHTS_AT + 8192
    x = np.ones(1, np.float32)
    assert same_bits(load(tmp_path / "large.so")(x), exe(x))


def test_weights_are_there_once_where_they_are_equal(tmp_path: Path) -> None:
    """Those that differ in their middle alone are two."""
    one = np.arange(1 << 16, dtype=np.float32)
    other = one.copy()
    other[1 << 15] = -1
    exe = holding(one, other, one[::-1].copy(), one.copy(), other.copy())
    exe.save_library(tmp_path / "x.so")
    exe.save_library(tmp_path / "y.so", weights=tmp_path / "y.bin")
    content = (tmp_path / "y.bin").read_bytes()
    assert 3 * one.nbytes <= len(content) < 3 * one.nbytes + 1000
    x = np.ones(1, np.float32)
    assert same_bits(load(tmp_path / "x.so")(x), exe(x))
    assert same_bits(load(tmp_path / "y.so", weights=tmp_path / "y.bin")(x), exe(x))


def test_names_are_found_by_their_hashes(made: Elf) -> None:
    """As the loader finds them: by bucket and chain."""
    at = made.place(made.tags[4][0])
    words = np.frombuffer(made.data, np.uint32, offset=at, count=(made.place(made.tags[6][0]) - at) // 4)
    buckets = int(words[0])
    names = ["", *made.symbols()]
    for name, (section, _) in made.symbols().items():
        number, seen = int(words[2 + hash_of(name) % buckets]), []
        while number:
            seen.append(names[number])
            number = int(words[2 + buckets + number])
        assert (name in seen) == bool(section)
    assert hash_of("printf") == 0x077905A6, "the example of the System V ABI's documents"


def test_equal_programs_give_equal_bytes(made: Elf, tmp_path: Path) -> None:
    digits().save_library(tmp_path / "again.so", header=tmp_path / "again.h", name="digits")
    assert (tmp_path / "again.so").read_bytes() == made.data


def test_it_is_written_from_a_compiled_file(made: Elf, tmp_path: Path) -> None:
    digits().save(tmp_path / "digits.tw")
    tw.load(tmp_path / "digits.tw").save_library(tmp_path / "again.so", name="digits")
    assert (tmp_path / "again.so").read_bytes() == made.data


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a-b", "2x", "é", "a b"])
def test_names_that_are_none_in_c(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot make a library of the name"):
        digits().save_library(tmp_path / "x.so", name=name)
    assert not list(tmp_path.iterdir())


def test_too_many_dimensions(tmp_path: Path) -> None:
    exe = tw.compile(
        tw.parse(f"graph main(x: f32[{', '.join(['2'] * 9)}]) -> y:\n  y: f32[{', '.join(['2'] * 9)}] = exp(x)")
    )
    with pytest.raises(UserError, match="cannot make a library with x"):
        exe.save_library(tmp_path / "x.so")


def test_nothing_is_written_over_the_model(tmp_path: Path) -> None:
    model = tmp_path / "digits.onnx"
    shutil.copy("examples/digits/digits.onnx", model)
    with pytest.raises(UserError, match="from which this is made"):
        tw.compile(model).save_library(model)
    with pytest.raises(UserError, match="from which this is made"):
        tw.compile(model).save_library(tmp_path / "x.so", header=model)
    assert [p.name for p in tmp_path.iterdir()] == ["digits.onnx"]


# --- from C ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", sorted(BUILDS))
def test_examples_get_the_same_bits(made: Elf, folder: Path, language: str) -> None:
    """The same program in each language whose compiler is here."""
    source, compiler, *options = BUILDS[language]
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    program = folder / f"{language}-classify"
    paths = {"FOLDER": str(folder), "SOURCE": str(EXAMPLES / source), "PROGRAM": str(program)}
    command = [compiler, *(paths.get(o, o.replace("FOLDER", str(folder))) for o in options)]
    flags = {"CGO_CFLAGS": f"-I{folder}", "CGO_LDFLAGS": f"-L{folder} -ldigits -Wl,-rpath,{folder}"}
    built = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **flags})
    assert built.returncode == 0, built.stderr
    exe = digits()
    for n, threads in ((1, "1"), (3, "2"), (200, "1"), (200, "2")):
        x = np.random.default_rng(n).random((n, 1, 8, 8), np.float32)
        ran = subprocess.run([program, str(n), threads], input=x.tobytes(), capture_output=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == exe(x)[0].tobytes()
    ran = subprocess.run([program, "1", "0"], input=bytes(256), capture_output=True, timeout=60)
    assert ran.returncode == 1 and b"cannot use 0 threads" in ran.stderr and not ran.stdout


@needs_cc
def test_wrong_calls_have_codes_and_texts(tmp_path: Path) -> None:
    exe = pick(target=PLAIN)
    exe.save_library(tmp_path / "libmodel.so", header=tmp_path / "model.h")
    program = compile_c(PROGRAMS / "wrong.c", tmp_path, tmp_path / "libmodel.so")
    said = run_program(program)
    assert said == (PROGRAMS / "wrong.txt").read_text()
    if shutil.which("valgrind"):
        checked = run_program(
            Path(shutil.which("valgrind") or ""), "-q", "--error-exitcode=9", "--leak-check=full", str(program)
        )
        assert checked == said


@needs_cc
def test_threads_processes_and_loops_of_the_caller(tmp_path: Path) -> None:
    graph = "graph main[n](x: f32[n, 64]) -> y:\n  e: f32[n, 64] = exp(x)\n  y: f32[n, 64] = tanh(e)\n"
    tw.compile(tw.parse(graph)).save_library(tmp_path / "libmodel.so", header=tmp_path / "model.h")
    program = compile_c(PROGRAMS / "threads.c", tmp_path, tmp_path / "libmodel.so", options=("-std=gnu99", *STRICT[1:]))
    expected = "one 0 two 0\ncallers 0 0 0 0\nchild 0 parent 0\nbackwards 0 several 1\nthreads of its own 0\n"
    assert run_program(program) == expected


@needs_cc
@pytest.mark.skipif(current_host().cores < 2, reason="a call on one core has no workers")
def test_workers_end_with_the_library(tmp_path: Path) -> None:
    graph = "graph main[n](x: f32[n, 64]) -> y:\n  e: f32[n, 64] = exp(x)\n  y: f32[n, 64] = tanh(e)\n"
    tw.compile(tw.parse(graph)).save_library(tmp_path / "libmodel.so", header=tmp_path / "model.h")
    program = compile_c(PROGRAMS / "unload.c", tmp_path, options=("-std=gnu99", "-Wall", "-Wextra", "-Werror"))
    assert run_program(program, str(tmp_path / "libmodel.so")) == "threads at most 2\n"


LARGE_PAGES = """
import sys
import numpy as np
from tilewright.runtime.library import load

def asked():
    mappings = open("/proc/self/smaps").read().split("VmFlags:")
    return sum("hg" in flags.split("\\n")[0].split() for flags in mappings[1:])

library, x = load(sys.argv[1]), np.load(sys.argv[2])
before = asked()
few = library(x[:100])[0]
between = asked()
np.save(sys.argv[3], library(x)[0])
print(np.isfinite(few).all(), between - before, asked() - before)
"""


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="there are no large pages")
def test_large_arenas_ask_for_large_pages(tmp_path: Path) -> None:
    """An arena of 400 kB does not; the one of 4 MB that the second call grows does."""
    graph = """
graph main[n](x: f32[n, 4]) -> y:
  a: f32[4, 1000] = constant(name=@a)
  b: f32[1000, 2] = constant(name=@b)
  t: f32[n, 1000] = contract(x, a, spec="ij,jk->ik")
  y: f32[n, 2] = contract(t, b, spec="ij,jk->ik")
"""
    rng = np.random.default_rng(0)
    given = {"a": rng.random((4, 1000), np.float32), "b": rng.random((1000, 2), np.float32)}
    exe = tw.compile(parse_module(graph, given))
    exe.save_library(tmp_path / "x.so")
    x = rng.random((1000, 4), np.float32)
    np.save(tmp_path / "x.npy", x)
    command = [sys.executable, "-c", LARGE_PAGES, *(str(tmp_path / name) for name in ("x.so", "x.npy", "y.npy"))]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "True 0 1\n", ran.stdout + ran.stderr
    assert same_bits([np.load(tmp_path / "y.npy")], exe(x))


@needs_cc
def test_two_libraries_in_one_process(tmp_path: Path) -> None:
    for name, op in (("first", "mul"), ("second", "add")):
        exe = tw.compile(tw.parse(f"graph main[n](x: f32[n]) -> y:\n  y: f32[n] = {op}(x, x)\n"))
        exe.save_library(tmp_path / f"lib{name}.so", header=tmp_path / f"{name}.h", name=name)
    shutil.copy(tmp_path / "libfirst.so", tmp_path / "copy.so")
    libraries = tmp_path / "libfirst.so", tmp_path / "libsecond.so"
    program = compile_c(PROGRAMS / "two.c", tmp_path, *libraries, options=("-std=gnu99", "-Wall", "-Wextra"))
    assert run_program(program, str(tmp_path / "copy.so")) == "1 4 9, 2 4 6\nagain 0\nagain 0\nagain 0\n"


@needs_cc
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_the_header_is_one_of_c_plus_plus(made: Elf, folder: Path) -> None:
    command = ["c++", "-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++", "-"]
    text = '#include "digits.h"\nint main() { digits_context *c; return digits_open(&c); }\n'
    ran = subprocess.run([*command, "-I", str(folder)], input=text, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


# --- linked statically -----------------------------------------------------------------------------------------------


@needs_cc
@pytest.mark.parametrize("form", ["object", "archive", "static"])
def test_a_program_that_holds_the_library(form: str, folder: Path, made: Elf) -> None:
    """Linked from the object file or the static library, also without any shared one."""
    place = folder / ("digits.o" if form == "object" else "libdigits.a")
    digits().save_library(place, name="digits")
    program = folder / f"{form}-classify"
    linked = [str(place)] if form == "object" else ["-L", str(folder), "-l:libdigits.a"]
    options = [*STRICT, "-static"] if form == "static" else STRICT
    command = ["cc", *options, str(EXAMPLES / "classify.c"), "-I", str(folder), *linked, "-lm", "-lpthread"]
    built = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, timeout=60)
    if form == "static" and built.returncode and "cannot find" in built.stderr:
        pytest.skip("there is no static C library")
    assert (built.returncode, built.stderr) == (0, "")
    classifies(program)


def classifies(program: Path) -> None:
    """The program gives the executable's results, with one thread and with two."""
    exe = digits()
    for n, threads in ((1, "1"), (200, "2")):
        x = np.random.default_rng(n).random((n, 1, 8, 8), np.float32)
        ran = subprocess.run([program, str(n), threads], input=x.tobytes(), capture_output=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == exe(x)[0].tobytes()


@pytest.mark.skipif(shutil.which("musl-gcc") is None, reason="there is no musl")
@pytest.mark.parametrize("form", ["shared", "archive", "static"])
def test_a_program_with_another_c_library(form: str, folder: Path, made: Elf) -> None:
    """Of musl, as Alpine Linux has: its loader takes the names of libc and libm for itself, and no versions."""
    digits().save_library(folder / "libdigits.a", name="digits")
    program = folder / f"musl-{form}"
    linked = ["-l:libdigits.a"] if form != "shared" else ["-ldigits", f"-Wl,-rpath,{folder}"]
    options = [*STRICT, "-static"] if form == "static" else STRICT
    command = ["musl-gcc", *options, str(EXAMPLES / "classify.c"), "-I", str(folder), "-L", str(folder), *linked]
    built = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True, timeout=60)
    assert (built.returncode, built.stderr) == (0, "")
    classifies(program)


@needs_cc
def test_object_files_of_two_models_in_one_program(tmp_path: Path) -> None:
    for name, op in (("first", "mul"), ("second", "add")):
        exe = tw.compile(tw.parse(f"graph main[n](x: f32[n]) -> y:\n  y: f32[n] = {op}(x, x)\n"))
        exe.save_library(tmp_path / f"{name}.o", header=tmp_path / f"{name}.h", name=name)
        exe.save_library(tmp_path / f"lib{name}.so", name=name)
    program, paths = tmp_path / "two", [str(tmp_path / f"{name}.o") for name in ("first", "second")]
    command = ["cc", "-std=gnu99", str(PROGRAMS / "two.c"), *paths, "-I", str(tmp_path), "-o", str(program)]
    built = subprocess.run([*command, "-lm", "-ldl"], capture_output=True, text=True, timeout=60)
    assert (built.returncode, built.stderr) == (0, "")
    said = run_program(program, str(tmp_path / "libfirst.so"))
    assert said == "1 4 9, 2 4 6\nagain 0\nagain 0\nagain 0\n"


def test_an_object_file_shows_its_own_names_alone(tmp_path: Path) -> None:
    exe = tw.compile(tw.parse("graph main[n](x: f32[n]) -> y:\n  y: f32[n] = exp(x)\n"))
    exe.save_library(tmp_path / "model.o")
    exe.save_library(tmp_path / "again.o")
    exe.save_library(tmp_path / "model.a")
    assert (tmp_path / "model.o").read_bytes() == (tmp_path / "again.o").read_bytes()
    assert (tmp_path / "model.o").read_bytes() in (tmp_path / "model.a").read_bytes()
    read = read_object((tmp_path / "model.o").read_bytes())
    own = {s.name for s in read.symbols if s.is_global and s.section is not None}
    assert own and all(name.startswith("model_") for name in own)
    outside = {s.name for s in read.symbols if s.is_global and s.section is None}
    assert "calloc" in outside and not any(name.startswith(("tilewright", "k.")) for name in outside)
    assert not any(section.is_code and section.is_writable for section in read.sections.values())


# --- weights in a file ------------------------------------------------------------------------------------------------


@needs_cc
def test_weights_in_a_file_are_checked(tmp_path: Path) -> None:
    exe = digits(target=PLAIN)
    weights = tmp_path / "digits.bin"
    exe.save_library(tmp_path / "libdigits.so", header=tmp_path / "digits.h", weights=weights, name="digits")
    content = weights.read_bytes()
    assert all(constant.tobytes() in content for constant in exe.program.constants)
    assert (tmp_path / "libdigits.so").stat().st_size < 120_000
    wrong = [tmp_path / name for name in ("none", "short", "long", "bit", "swapped")]
    wrong[1].write_bytes(content[:-1])
    wrong[2].write_bytes(content + b"\0")
    damaged = bytearray(content)
    damaged[len(content) // 3] ^= 16
    wrong[3].write_bytes(damaged)
    wrong[4].write_bytes(content[64:128] + content[:64] + content[128:])
    program = compile_c(PROGRAMS / "beside.c", tmp_path, tmp_path / "libdigits.so")
    said = run_program(program, *map(str, [weights, *wrong]))
    size = len(content)
    assert (
        said.replace(str(size), "SIZE").replace(str(size - 1), "SHORT").replace(str(size + 1), "LONG")
        == (PROGRAMS / "beside.txt").read_text()
    )
    valgrind = shutil.which("valgrind")
    if valgrind:
        options = ("-q", "--error-exitcode=9", "--leak-check=full", str(program))
        assert run_program(Path(valgrind), *options, *map(str, [weights, *wrong])) == said


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    """200 files with a byte, a run of bytes or two places altered."""
    digits().save_library(tmp_path / "digits.so", weights=tmp_path / "digits.bin", name="digits")
    content = (tmp_path / "digits.bin").read_bytes()
    choose = random.Random(7)
    load(tmp_path / "digits.so", weights=tmp_path / "digits.bin")
    for turn in range(200):
        damaged = bytearray(content)
        start = choose.randrange(len(content))
        if turn % 3 == 0:
            damaged[start] ^= 1 << choose.randrange(8)
        elif turn % 3 == 1:
            damaged[start : start + 100] = choose.randbytes(len(damaged[start : start + 100]))
        else:
            other = choose.randrange(len(content))
            damaged[start] ^= 255
            damaged[other] ^= 255
        (tmp_path / "damaged.bin").write_bytes(damaged)
        if bytes(damaged) != content:
            with pytest.raises(UserError, match="damaged"):
                load(tmp_path / "digits.so", weights=tmp_path / "damaged.bin")


@pytest.mark.parametrize("sizes", [(), (1, 7, 8, 64, 4096), (1 << 19, 3, (1 << 18) + 8, 5)])
def test_sums_of_weights_are_what_they_say(sizes: tuple[int, ...]) -> None:
    held, choose = Weights(), np.random.default_rng(0)
    for size in sizes:
        held.place(choose.integers(0, 256, size, np.uint8))
    held.close()
    first = second = 0
    for word in np.frombuffer(b"".join(held.parts), np.uint64).tolist():
        first = (first + word) % (1 << 64)
        second = (second + first) % (1 << 64)
    assert held.stamp() == Stamp(held.size, first, second)


def test_libraries_that_end_too_soon_are_refused(made: Elf, tmp_path: Path) -> None:
    """200 of them, before the system's loader sees them: it would map what is not there."""
    choose = random.Random(3)
    for size in [0, 1, 63, 64, *(choose.randrange(len(made.data) - 200) for _ in range(196))]:
        (tmp_path / "short.so").write_bytes(made.data[:size])
        with pytest.raises(UserError, match="no shared library"):
            load(tmp_path / "short.so")


def test_a_library_for_another_architecture(tmp_path: Path) -> None:
    other = "aarch64" if current_host().architecture != "aarch64" else "riscv64"
    digits(target=other).save_library(tmp_path / "other.so")
    with pytest.raises(UserError, match=f"its code is for {other}, and this machine is {current_host().architecture}"):
        load(tmp_path / "other.so")


def test_weights_are_not_forgotten(tmp_path: Path) -> None:
    digits().save_library(tmp_path / "digits.so", weights=tmp_path / "digits.bin", name="digits")
    with pytest.raises(UserError, match="there are no weights"):
        load(tmp_path / "digits.so")
    x = np.ones((2, 1, 8, 8), np.float32)
    library = load(tmp_path / "digits.so", weights=tmp_path / "digits.bin")
    assert same_bits(library(x), digits()(x))
    digits().save_library(tmp_path / "whole.so", name="digits")
    with pytest.raises(UserError, match="holds its weights"):
        load(tmp_path / "whole.so", weights=tmp_path / "digits.bin")
    with pytest.raises(UserError, match="twice"):
        digits().save_library(tmp_path / "x.so", weights=tmp_path / "x.so")


# --- several machines -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(native().architecture != "x86_64", reason="x86-64 programs")
def test_the_best_program_runs(tmp_path: Path) -> None:
    names = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
    made = {name: digits(target=name) for name in names}
    runs = [name for name in names if Target.parse(name).is_runnable_on(current_host())]
    x = np.random.default_rng(1).random((50, 1, 8, 8), np.float32)
    for some in (names, names[::-1], names[:2], names[1:3]):
        place = tmp_path / f"{'-'.join(some)}.so"
        tw.save_library(place, *(made[name] for name in some), name="digits")
        best = [name for name in runs if name in some][-1]
        assert same_bits(load(place)(x), made[best](x))


@pytest.mark.skipif(native().architecture != "x86_64", reason="x86-64 programs")
def test_what_the_machine_lacks_is_said(tmp_path: Path) -> None:
    lacking = next(f for f in ("xop", "sm4", "sha512", "amx-fp16") if f not in native().features)
    strange = digits(target=f"x86-64-v2 +{lacking}")
    strange.save_library(tmp_path / "strange.so", name="digits")
    with pytest.raises(UserError, match="this machine lacks"):
        load(tmp_path / "strange.so")
    tw.save_library(tmp_path / "both.so", strange, digits(target="x86-64"), name="digits")
    x = np.ones((2, 1, 8, 8), np.float32)
    assert same_bits(load(tmp_path / "both.so")(x), digits(target="x86-64")(x))


@pytest.mark.skipif(native().architecture != "x86_64", reason="x86-64 programs")
def test_a_library_with_tiles_asks_the_system_for_them(tmp_path: Path) -> None:
    """A machine that has none, or a system that refuses, runs the other program."""
    tiles, plain = digits(target="x86-64-v3 +amx-tile"), digits(target="x86-64")
    tw.save_library(tmp_path / "both.so", tiles, plain, name="digits")
    tw.save_library(tmp_path / "plain.so", plain, name="digits")
    names = [b"\0syscall\0" in (tmp_path / name).read_bytes() for name in ("both.so", "plain.so")]
    assert names == [True, False]
    x = np.ones((2, 1, 8, 8), np.float32)
    best = tiles if {"amx-tile", "avx2"} <= native().features else plain
    assert same_bits(load(tmp_path / "both.so")(x), best(x))


@needs_cc
@pytest.mark.skipif(native().architecture != "x86_64", reason="x86-64 programs")
def test_what_c_is_told_of_a_machine_that_lacks_something(tmp_path: Path) -> None:
    lacking = next(f for f in ("xop", "sm4", "sha512", "amx-fp16") if f not in native().features)
    strange = digits(target=f"x86-64-v2 +{lacking}")
    strange.save_library(tmp_path / "libdigits.so", header=tmp_path / "digits.h", name="digits")
    said = run_program(compile_c(PROGRAMS / "lacking.c", tmp_path, tmp_path / "libdigits.so")).splitlines()
    assert said[:4] == ["open 6", "sizes 6 run 6", "arena 6 6 limit 6 threads 6", "inputs 1 result 0"]
    assert re.fullmatch(r"this machine lacks \S+, which the code for \S+ \S+ needs", said[4])


def test_names_of_libraries(tmp_path: Path) -> None:
    """One with a version is a shared library; those of other systems are refused, whoever asks."""
    model, numbered = Path("examples/digits/digits.onnx"), tmp_path / "libmodel.so.1.2"
    assert invoke("compile", model, "-o", numbered, "--header", tmp_path / "model.h").code == 0
    digits().save_library(tmp_path / "libmodel.so")
    assert numbered.read_bytes() == (tmp_path / "libmodel.so").read_bytes()
    for name in ("model.dll", "libmodel.dylib"):
        with pytest.raises(UserError, match=f"a name that ends in {Path(name).suffix} is that of another system's"):
            digits().save_library(tmp_path / name)
        ran = invoke("compile", model, "-o", tmp_path / name)
        assert ran.code == 2 and f"call it {Path(name).stem}.so" in ran.err
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("-o", "x.so", "--target", "x86-64-v3", "--target", "aarch64"), "for aarch64 and x86_64"),
        (("-o", "x.a", "--target", "wasm"), "the target's system is wasm32"),
        (("-o", "x.wasm", "--target", "x86-64-v3"), "for one kind of machine"),
        (("-o", "x.wasm", "--weights", "x.bin"), "x.wasm holds its weights"),
    ],
)
def test_what_no_library_is_for_is_told_before_compiling(
    options: Sequence[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiles(*_: object, **__: object) -> None:
        raise AssertionError("it compiles")

    model = Path("examples/digits/digits.onnx").absolute()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tilewright.cli.compile.compile_model", compiles)
    ran = invoke("compile", model, *options)
    assert ran.code == 2 and why in ran.err, ran.err
    assert not list(tmp_path.iterdir())


def test_what_does_not_belong_together(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="several architectures"):
        tw.save_library(tmp_path / "x.so", digits(target="x86-64"), digits(target="aarch64"))
    with pytest.raises(UserError, match="different interfaces"):
        tw.save_library(tmp_path / "x.so", digits(target="x86-64"), pick(target="x86-64-v2"))
    with pytest.raises(UserError, match="nothing to save"):
        tw.save_library(tmp_path / "x.so")
    assert not list(tmp_path.iterdir())


# --- from Python ----------------------------------------------------------------------------------------------------


def test_it_runs_without_the_compiler(made: Elf, folder: Path) -> None:
    text = f"""
import sys
from tilewright.runtime.library import load
from tilewright.runtime.library.weights import Stamp, Weights
library = load({str(folder / "libdigits.so")!r})
import numpy as np
print(library(np.zeros((1, 1, 8, 8), np.float32))[0].shape)
print([n for n in sys.modules if n.startswith(("llvmlite", "tilewright.plan", "tilewright.runtime.executable"))])
"""
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "(1, 10)\n[]\n", ran.stderr


def test_what_python_is_told(tmp_path: Path) -> None:
    pick().save_library(tmp_path / "m.so")
    library = load(tmp_path / "m.so")
    assert [str(p) for p in (*library.inputs, *library.outputs)] == ["x: f32[n, 4]", "i: i64[k]", "y: f32[k, 4]"]
    x, i = np.ones((3, 4), np.float32), np.array([2, 0])
    assert same_bits(tuple(library.run({"i": i, "x": x}).values()), pick()(x, i))
    with pytest.raises(UserError, match="no input is called z"):
        library.run({"x": x, "i": i, "z": i})
    with pytest.raises(UserError, match="missing input: i"):
        library.run({"x": x})
    with pytest.raises(UserError, match="wrong element type"):
        library(x, x)
    with pytest.raises(RuntimeFault, match="index"):
        library(x, i + 9)
    with pytest.raises(UserError, match="cannot use 0 threads"):
        load(tmp_path / "m.so", threads=0)
    with pytest.raises(UserError, match="no shared library"):
        load(PROGRAMS / "two.c")
    shutil.copy(tmp_path / "m.so", tmp_path / "new.so")
    (tmp_path / "new.so").replace(tmp_path / "m.so")
    with pytest.raises(UserError, match="another library of that path"):
        load(tmp_path / "m.so")
    with pytest.raises(UserError, match="it has model"):
        load(tmp_path / "m.so", name="other")


# --- on the command line ----------------------------------------------------------------------------------------------


def test_the_command_writes_the_same_files(made: Elf, folder: Path, tmp_path: Path) -> None:
    library, header = tmp_path / "libdigits.so", tmp_path / "digits.h"
    model = "examples/digits/digits.onnx"
    ran = invoke("compile", model, "-o", library, "--header", header, "--name", "digits")
    assert ran.code == 0 and "holds 1 program" in ran.out, ran.err
    assert library.read_bytes() == made.data and header.read_bytes() == (folder / "digits.h").read_bytes()
    ran = invoke("compile", model, "-o", tmp_path / "small.so", "--weights", tmp_path / "small.bin")
    assert ran.code == 0, ran.err
    x = np.ones((1, 1, 8, 8), np.float32)
    assert same_bits(load(tmp_path / "small.so", weights=tmp_path / "small.bin")(x), digits()(x))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "x.tw", "--header", "x.h"], "--header belongs to a library, and x.tw is none"),
        (["--weights", "x.bin"], "--weights belongs to a library"),
        (["-o", "x.tw", "--name", "x"], "--name belongs to a library"),
        (["-o", "x.so", "--name", "a-b"], "cannot make a library of the name 'a-b'"),
        (["-o", "x.so", "--header", "digits.onnx"], "from which this is made"),
    ],
)
def test_commands_that_are_refused(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy("examples/digits/digits.onnx", tmp_path / "digits.onnx")
    monkeypatch.chdir(tmp_path)
    ran = invoke("compile", "digits.onnx", *options)
    assert ran.code == 2 and said in ran.err, ran.err
    assert [p.name for p in tmp_path.iterdir()] == ["digits.onnx"]
