"""Machine code is loaded without LLVM: it runs, from threads, in memory that is never writable and executable."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright as tw
from linked import TABLE, objects
from tilewright.codegen.abi import ENTRY
from tilewright.codegen.image import AARCH64, X86_64, Image, decode
from tilewright.codegen.link import link
from tilewright.report.errors import InternalError
from tilewright.runtime.loader import Loaded, LoadedImage, find_function, load_code
from tilewright.target import code_pages, native
from tilewright.target.code_pages import CodePages


@pytest.fixture(scope="module")
def image() -> Image:
    return link(objects(native()), ["main"])


@pytest.fixture(autouse=True)
def _own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path_factory.mktemp("store")))


def call(loaded: Loaded, x: int) -> int:
    result: int = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("main"))(x)
    return result


def no_pool(code: bytes | None) -> dict[str, int]:
    raise AssertionError("the pool was asked for")


# --- running ------------------------------------------------------------------------------------------------------


def test_linked_objects_run(image: Image) -> None:
    """Calls between objects and to the system, constants, a jump table and data that keeps its values."""
    loaded = LoadedImage(decode(image.encode()), {})
    assert list(image.imports) == ["memset"] and image.room >= 64
    found = [call(loaded, x) for x in range(6)]
    wanted = [250, 100000 // 2, 3 ^ 77, 16, -5, 0]
    assert found == [3 * (value + TABLE[x]) for x, value in enumerate(wanted)]
    assert call(LoadedImage(image, {}), 3) == 3 * (1 + TABLE[3]), "each loading has data of its own"


def test_the_loader_of_other_systems_runs_the_same_objects() -> None:
    """LLVM's, which object files that are not ELF need."""
    elsewhere = dataclasses.replace(native(), triple="x86_64-apple-macosx")
    loaded = load_code(objects(native()), elsewhere, no_pool)
    assert [call(loaded, x) for x in (0, 3)] == [3 * (250 + TABLE[0]), 3 * (4 + TABLE[3])]
    with pytest.raises(InternalError, match="has no function other"):
        loaded.address("other")


def test_functions_given_come_before_those_of_the_system(image: Image) -> None:
    fill = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    calls: list[int] = []

    def seen(place: int, value: int, size: int) -> int:
        calls.append(size)
        ctypes.memset(place, value, size)
        return place

    given = fill(seen)
    loaded = LoadedImage(image, {"memset": ctypes.cast(given, ctypes.c_void_p).value or 0})
    assert call(loaded, 2) == 3 * ((1 ^ 77) + TABLE[2]) and calls == [4096]


def test_threads_call_what_others_load_and_drop(image: Image) -> None:
    wrong: list[int] = []

    def work() -> None:
        for _ in range(50):
            loaded = LoadedImage(image, {})
            wrong.extend(x for x in (0, 5) if call(loaded, x) != 3 * (TABLE[x] + (250 if x == 0 else 0)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_function_that_is_nowhere_is_named(image: Image) -> None:
    with pytest.raises(InternalError, match="generated code calls no_such_function"):
        find_function("no_such_function")
    with pytest.raises(InternalError, match="has no function other"):
        LoadedImage(image, {}).address("other")


def test_code_of_another_architecture_is_not_loaded(image: Image) -> None:
    other = AARCH64 if image.machine == X86_64 else X86_64
    strange = Image(other, image.code, image.constants, 0, image.exports, image.imports, image.stubs)
    with pytest.raises(InternalError, match="another architecture"):
        LoadedImage(strange, {})


# --- memory -------------------------------------------------------------------------------------------------------


def mappings() -> Iterator[tuple[int, int, str]]:
    """(first address, the one behind the last, permissions) of this process's memory."""
    for line in (
        Path("/proc/self/maps").read_bytes().split(b"\n")[:-1]
    ):  # a name may hold what Python calls a line's end
        words = line.split()
        first, last = (int(word, 16) for word in words[0].split(b"-"))
        yield first, last, words[1].decode()


def open_pages() -> set[tuple[int, int]]:
    """Memory that can be written and executed."""
    return {(first, last) for first, last, rights in mappings() if "w" in rights and "x" in rights}


def permissions(address: int) -> str:
    return next((rights for first, last, rights in mappings() if first <= address < last), "")


def test_no_page_is_writable_and_executable(image: Image) -> None:
    before = open_pages()  # of others: a Python function that C may call is one
    loaded = LoadedImage(image, {})
    start = loaded._pages.address
    rights = [permissions(start + at) for at in (0, image.constants_at, image.data_at)]
    assert rights == ["r-xp", "r--p", "rw-p"]
    exe = tw.compile(tw.parse("graph main(x: f32[1000]) -> y:\n  y: f32[1000] = exp(x)\n"))
    exe(np.ones(1000, np.float32))
    assert open_pages() <= before


@pytest.mark.usefixtures("own_garbage")
def test_memory_is_given_back_when_an_executable_dies() -> None:
    exe = tw.compile(tw.parse("graph main(x: f32[8]) -> y:\n  y: f32[8] = exp(x)\n"))
    place = exe._native._loaded.address(ENTRY)
    exe(np.ones(8, np.float32))
    assert permissions(place) == "r-xp"
    del exe
    gc.collect()
    assert permissions(place) != "r-xp"


def test_a_system_that_refuses_is_told_in_a_fault(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """As hardened ones do, which let nothing that was written be executed."""
    library = code_pages._system()

    def refuse(address: int, size: int, rights: int) -> int:
        ctypes.set_errno(errno.EACCES)
        return -1

    system = SimpleNamespace(mmap=library.mmap, munmap=library.munmap, mprotect=refuse)
    monkeypatch.setattr(code_pages, "_system", lambda: system)
    with pytest.raises(tw.RuntimeFault, match="there is no memory for machine code\nwhy:  the system says: Permission"):
        LoadedImage(image, {})
    with pytest.raises(tw.RuntimeFault, match="Cannot allocate memory"):
        CodePages(1 << 60)


def test_writing_and_sealing_outside_is_refused() -> None:
    pages = CodePages(100)
    for offset, content in ((-1, b"x"), (100, b"xy" * 4096), (1 << 40, b"x")):
        with pytest.raises(InternalError, match="outside"):
            pages.write(offset, content)
    for offset, size in ((1, 10), (-65536, 10), (0, 1 << 40)):
        with pytest.raises(InternalError, match="not there"):
            pages.seal(offset, size, executable=False)


def test_a_start_without_the_compiler_loads_no_llvm(tmp_path: Path) -> None:
    """Of a compiled file with a loop that is shared out, where there is no store: it brings the pool along."""
    exe = tw.compile(tw.parse("graph main(x: f32[1000000]) -> y:\n  y: f32[1000000] = exp(x)\n"))
    exe.save(tmp_path / "wide.tw")
    assert "tilewright_parallel" in decode(exe.program.code[0]).imports
    program = (
        "import sys, numpy as np, tilewright as tw\n"
        "(y,) = tw.load('wide.tw', threads=2)(np.ones(1000000, np.float32))\n"
        "heavy = ('llvmlite', 'ml_dtypes', 'onnx', 'difflib', 'tilewright.codegen.link')\n"
        "print(float(y[-1]) > 2.7, [name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**environment(), "TILEWRIGHT_STORE": "off"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "True []\n", done.stderr


def test_python_ends_while_threads_are_in_compiled_code(tmp_path: Path) -> None:
    """Code that a thread is in when everything else is gone is still there."""
    tw.compile(tw.parse("graph main(x: f32[3000000]) -> y:\n  y: f32[3000000] = exp(x)\n")).save(tmp_path / "wide.tw")
    program = (
        "import threading, time, numpy as np, tilewright as tw\n"
        "exe, x = tw.load('wide.tw'), np.ones(3000000, np.float32)\n"
        "y = np.empty_like(x)\n"
        "def work():\n    while True: exe(x, out=y)\n"
        "[threading.Thread(target=work, daemon=True).start() for _ in range(3)]\n"
        "time.sleep(0.1)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
