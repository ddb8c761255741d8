"""Machine code is linked when it is made and loaded without LLVM: what is laid out where, what memory it takes, and
what becomes of damaged bytes."""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import gc
import os
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.abi import ENTRY
from tilewright.codegen.assemble import assemble
from tilewright.codegen.elf import ObjectFile, read_object
from tilewright.codegen.image import AARCH64, ALIGNMENT, X86_64, Image, decode
from tilewright.codegen.link import link
from tilewright.codegen.relocations import KINDS, find_kind, make_stub, relocate
from tilewright.report.errors import InternalError
from tilewright.runtime.loader import Loaded, LoadedImage, find_function, load_code
from tilewright.store import Damaged
from tilewright.target import Target, code_pages, native
from tilewright.target.code_pages import CodePages
from tilewright.target.host import current_host

ARM = Target.parse("aarch64")
linux_x86 = pytest.mark.skipif(current_host().triple != "x86_64-unknown-linux-gnu", reason="runs x86-64 code")

PARTS = (
    """
    declare i64 @far(i64)
    define i64 @near(i64 %x) { %y = mul i64 %x, 3  ret i64 %y }
    define i64 @main(i64 %x) {
      %a = call i64 @far(i64 %x)
      %b = call i64 @near(i64 %a)
      ret i64 %b
    }
    """,
    """
    @table = private constant [4096 x i64] [i64 5, TABLE]
    @seen = internal global [8 x i64] zeroinitializer, align 64
    declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
    define i64 @far(i64 %x) {
    entry:
      %room = alloca [4096 x i8], align 16
      call void @llvm.memset.p0.i64(ptr %room, i8 1, i64 4096, i1 false)
      %at = getelementptr i8, ptr %room, i64 %x
      %byte = load volatile i8, ptr %at
      %one = zext i8 %byte to i64
      %i = and i64 %x, 4095
      %from = getelementptr [4096 x i64], ptr @table, i64 0, i64 %i
      %read = load i64, ptr %from
      %place = getelementptr [8 x i64], ptr @seen, i64 0, i64 3
      %before = load i64, ptr %place
      %now = add i64 %before, %one
      store i64 %now, ptr %place
      switch i64 %x, label %other [ i64 0, label %a  i64 1, label %b  i64 2, label %c
                                    i64 3, label %d  i64 4, label %e ]
    a:
      %ra = call i64 @step(i64 100)
      br label %end
    b:
      %rb = udiv i64 100000, %now
      br label %end
    c:
      %rc = xor i64 %now, 77
      br label %end
    d:
      %rd = mul i64 %now, %now
      br label %end
    e:
      %re = sub i64 0, %now
      br label %end
    other:
      br label %end
    end:
      %r = phi i64 [ %ra, %a ], [ %rb, %b ], [ %rc, %c ], [ %rd, %d ], [ %re, %e ], [ 0, %other ]
      %sum = add i64 %r, %read
      ret i64 %sum
    }
    define internal i64 @step(i64 %x) noinline { %f = uitofp i64 %x to double  %g = fmul double %f, 2.5
      %h = fptoui double %g to i64  ret i64 %h }
    """,
)
"""Two objects that call one another and the system, with a large constant, data, a jump table and a constant pool."""

TABLE = [5, *((7 * n) % 1000 for n in range(1, 4096))]


def objects(target: Target) -> list[bytes]:
    head = f'target triple = "{target.triple}"\ntarget datalayout = "{target.data_layout}"\n'
    rows = ", ".join(f"i64 {n}" for n in TABLE[1:])
    return [assemble(head + part.replace("TABLE", rows), target) for part in PARTS]


@pytest.fixture(scope="module")
def image() -> Image:
    return link(objects(native()), ["main"])


@pytest.fixture(autouse=True)
def _own_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path_factory.mktemp("store")))


def call(loaded: Loaded, x: int) -> int:
    result: int = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("main"))(x)
    return result


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
    loaded = load_code(objects(native()), elsewhere, dict)
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
    strange = Image(other, image.code, image.constants, 0, image.exports, image.imports)
    with pytest.raises(InternalError, match="another architecture"):
        LoadedImage(strange, {})


# --- memory -------------------------------------------------------------------------------------------------------


def mappings() -> Iterator[tuple[int, int, str]]:
    """(first address, the one behind the last, permissions) of this process's memory."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        words = line.split()
        first, last = (int(word, 16) for word in words[0].split("-"))
        yield first, last, words[1]


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
    """Of a compiled file with a loop that is shared out, on a machine whose pool is in the store."""
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
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60
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


# --- where things lie ---------------------------------------------------------------------------------------------


def word(part: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", part, at)[0])


def page_by_arm(image: Image, at: int) -> int:
    """The page of 4 KiB that the adrp at `at` of the code gives, by the Arm architecture reference manual."""
    adrp = word(image.code, at)
    assert adrp & 0x9F000000 == 0x90000000, "adrp"
    pages = (adrp >> 5 & 0x7FFFF) << 2 | adrp >> 29 & 3
    return (at & ~0xFFF) + (pages - ((pages & 1 << 20) << 1) << 12)


def low_by_arm(image: Image, at: int) -> int:
    """The bytes that the addition or load at `at` of the code adds."""
    then = word(image.code, at)
    immediate = then >> 10 & 0xFFF
    if then & 0xFF800000 == 0x91000000:
        return immediate
    assert then & 0x3B000000 == 0x39000000, "a load or store with an immediate"
    return immediate << (then >> 30 | (4 if then & 0x04800000 == 0x04800000 else 0))


def branched_to_by_arm(image: Image, at: int) -> int:
    bl = word(image.code, at)
    assert bl & 0x7C000000 == 0x14000000, "b or bl"
    distance = (bl & 0x03FFFFFF) - ((bl & 0x02000000) << 1)
    return at + 4 * distance


def places(parts: list[ObjectFile], image: Image) -> dict[tuple[int, int], int]:
    """Where each section of each object lies, found by its content (of code: by its length, in order)."""
    found: dict[tuple[int, int], int] = {}
    code = 0
    for n, part in enumerate(parts):
        for number, section in part.sections.items():
            if section.is_code and section.size:
                code = -(-code // section.alignment) * section.alignment
                found[n, number] = code
                code += section.size
            elif section.is_writable:
                found[n, number] = image.data_at
            elif section.size and not any(r.section == number for r in part.relocations):
                found[n, number] = image.constants_at + image.constants.index(bytes(section.content))
    return found


def test_every_field_of_arm_code_is_right() -> None:
    made = objects(ARM)
    parts, image = [read_object(data) for data in made], link(made, ["main"])
    where, kinds = places(parts, image), set()
    defined = {
        s.name: where[n, s.section] + s.offset
        for n, part in enumerate(parts)
        for s in part.symbols
        if s.is_global and s.section is not None
    }
    for n, part in enumerate(parts):
        for relocation in part.relocations:
            symbol, kind = part.symbols[relocation.symbol], find_kind(AARCH64, relocation.kind)
            place = symbol.section is None or where.get((n, symbol.section))
            if not part.sections[relocation.section].is_code or place is None:
                continue
            at = where[n, relocation.section] + relocation.offset
            wanted = defined.get(symbol.name) if symbol.section is None else place + symbol.offset + relocation.addend
            kinds.add(kind.name)
            if not kind.is_call:
                assert wanted is not None
                is_page = kind.name.endswith("PG_HI21")
                assert page_by_arm(image, at) == wanted & ~0xFFF if is_page else low_by_arm(image, at) == wanted & 0xFFF
            elif wanted is not None:
                assert branched_to_by_arm(image, at) == wanted
            else:
                stub = branched_to_by_arm(image, at)
                slot = page_by_arm(image, stub) + low_by_arm(image, stub + 4)
                assert slot == image.constants_at + image.imports[symbol.name]
                assert word(image.code, stub + 8) == 0xD61F0200, "br x16"
    assert {"R_AARCH64_CALL26", "R_AARCH64_ADR_PREL_PG_HI21", "R_AARCH64_ADD_ABS_LO12_NC"} <= kinds


@pytest.mark.parametrize(
    ("machine", "number", "before", "target", "place", "after"),
    [
        (X86_64, 2, 0, 0x1000, 0x1010, 0xFFFFFFF0),
        (X86_64, 4, 0, 0x2000, 0x1000, 0x1000),
        (X86_64, 24, 0, 0, 8, (1 << 64) - 8),
        (AARCH64, 260, 0, 0x10, 0x20, (1 << 64) - 16),
        (AARCH64, 261, 0, 0x20, 0x10, 0x10),
        (AARCH64, 283, 0x94000000, 0x1000, 0x1008, 0x97FFFFFE),  # bl -8
        (AARCH64, 282, 0x14000000, 0x1010, 0x1000, 0x14000004),  # b +16
        (AARCH64, 275, 0x90000000, 0x5123, 0x1FFC, 0x90000020),  # adrp x0, four pages on
        (AARCH64, 275, 0x90000003, 0x0FFF, 0x3000, 0xB0FFFFE3),  # adrp x3, three pages back
        (AARCH64, 277, 0x91000000, 0x5123, 0, 0x91048C00),  # add x0, x0, #0x123
        (AARCH64, 278, 0x39400000, 0x5123, 0, 0x39448C00),  # ldrb w0, [x0, #0x123]
        (AARCH64, 284, 0x79400000, 0x5122, 0, 0x79424400),  # ldrh w0, [x0, #0x122]
        (AARCH64, 285, 0xB9400000, 0x5124, 0, 0xB9412400),  # ldr w0, [x0, #0x124]
        (AARCH64, 286, 0xF9400000, 0x5128, 0, 0xF9409400),  # ldr x0, [x0, #0x128]
        (AARCH64, 299, 0x3DC00000, 0x5120, 0, 0x3DC04800),  # ldr q0, [x0, #0x120]
    ],
)
def test_fields(machine: int, number: int, before: int, target: int, place: int, after: int) -> None:
    kind = KINDS[machine, number]
    part = bytearray(b"\xee" * 4 + before.to_bytes(kind.bytes, "little") + b"\xee" * 4)
    relocate(part, 4, kind, target, place)
    assert int.from_bytes(part[4:-4], "little") == after
    assert part[:4] == part[-4:] == b"\xee" * 4


@pytest.mark.parametrize(
    ("machine", "number", "target"),
    [
        (X86_64, 2, 1 << 31),
        (X86_64, 4, -(1 << 31) - 1),
        (AARCH64, 261, 1 << 31),
        (AARCH64, 283, 1 << 27),
        (AARCH64, 283, 2),
        (AARCH64, 275, 1 << 32),
        (AARCH64, 284, 1),
        (AARCH64, 299, 8),
    ],
)
def test_what_does_not_fit_is_named(machine: int, number: int, target: int) -> None:
    kind = KINDS[machine, number]
    with pytest.raises(InternalError, match=f"does not fit: {kind.name}"):
        relocate(bytearray(8), 0, kind, target, 0)
    with pytest.raises(InternalError, match=f"does not fit: {kind.name}"):
        relocate(bytearray(kind.bytes - 1), 0, kind, 0, 0)


def test_unknown_relocations_are_named() -> None:
    with pytest.raises(InternalError, match="42 of ELF machine 62"):
        find_kind(X86_64, 42)


@linux_x86
def test_a_stub_jumps_by_its_slot() -> None:
    pages = CodePages(2 * ALIGNMENT)
    pages.write(0, make_stub(X86_64, 0, ALIGNMENT))
    pages.write(16, b"\xb8\x2a\0\0\0\xc3")  # mov eax, 42; ret
    pages.write(ALIGNMENT, (pages.address + 16).to_bytes(8, "little"))
    pages.seal(0, 64, executable=True)
    assert ctypes.CFUNCTYPE(ctypes.c_int)(pages.address)() == 42


# --- damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["native", "aarch64"])
def test_damaged_objects_are_refused_or_harmless(target: str) -> None:
    """Truncated files, and a thousand altered bits: an InternalError, or an image."""
    first, second = objects(Target.parse(target))
    table = struct.unpack_from("<Q", second, 40)[0]
    refused = 0
    for end in [*range(200), *range(200, len(second), 31), *range(table - 50, len(second))]:
        with pytest.raises(InternalError):
            link([first, second[:end]], ["main"])
    choose = random.Random(0)
    small = [*range(64), *range(table, len(second))]
    for turn in range(1000):
        damaged = bytearray(first if turn % 2 else second)
        places = range(len(damaged)) if turn % 4 < 2 or turn % 2 else small
        damaged[choose.choice(places)] ^= 1 << choose.randrange(8)
        try:
            link([damaged, second] if turn % 2 else [first, damaged], ["main"])
        except InternalError:
            refused += 1
    assert refused > 100


def test_damaged_images_are_refused_or_harmless(image: Image) -> None:
    small = Image(image.machine, image.code, bytes(64), 8, image.exports, {"memset": 8})
    whole, refused, choose = small.encode(), 0, random.Random(1)
    for end in range(len(whole)):
        with pytest.raises(Damaged):
            decode(whole[:end])
    for _ in range(1000):
        damaged = bytearray(whole)
        damaged[choose.randrange(len(whole))] ^= 1 << choose.randrange(8)
        try:
            made = decode(damaged)
            assert all(0 <= place < len(made.code) for place in made.exports.values())
            assert all(0 <= place <= len(made.constants) - 8 for place in made.imports.values())
        except Damaged:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize(
    "change",
    [
        {"exports": {"main": -1}},
        {"exports": {"main": 1 << 20}},
        {"imports": {"f": 4}},
        {"imports": {"f": 1 << 20}},
        {"imports": {"f": -8}},
        {"imports": {"f": 8, "g": 8}},
        {"room": -1},
        {"room": 1 << 40},
        {"machine": 3},
    ],
)
def test_places_outside_are_refused(image: Image, change: dict[str, object]) -> None:
    fields: dict[str, object] = {"machine": image.machine, "room": 0, "exports": {"main": 0}, "imports": {}}
    made = Image(code=image.code[:100], constants=bytes(64), **{**fields, **change})  # type: ignore[arg-type]
    with pytest.raises(Damaged, match="no machine code"):
        decode(made.encode())


def test_a_program_without_an_image_is_refused() -> None:
    for code in ((), (b"", b""), (b"\x7fELF",)):
        with pytest.raises(Damaged):
            load_code(code, native(), dict)
