"""Libraries for tests: written from executables, read as ELF files, and called by programs in C."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.target.host import current_host

PROGRAMS = Path(__file__).parent / "library_programs"
EXAMPLES = Path(__file__).parents[1] / "examples" / "library"
STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1")

linux = pytest.mark.skipif("linux" not in current_host().triple, reason="libraries are ELF files")
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@dataclass(frozen=True)
class Segment:
    kind: int
    rights: int
    offset: int
    address: int
    stored: int
    size: int
    alignment: int

    @property
    def letters(self) -> str:
        return "".join(letter for bit, letter in ((4, "R"), (2, "W"), (1, "X")) if self.rights & bit)


LOAD, DYNAMIC, STACK, RELRO = 1, 2, 0x6474E551, 0x6474E552


class Elf:
    """What the loader reads of a shared object, by the System V ABI."""

    def __init__(self, path: Path) -> None:
        self.data = data = path.read_bytes()
        assert data[:6] == b"\x7fELF\x02\x01"
        self.kind, self.machine = struct.unpack_from("<HH", data, 16)
        (at,) = struct.unpack_from("<Q", data, 32)
        row, count = struct.unpack_from("<HH", data, 54)
        assert row == 56
        rows = [struct.unpack_from("<IIQQQQQQ", data, at + n * row) for n in range(count)]
        self.segments = [Segment(k, r, o, a, s, m, p) for k, r, o, a, _, s, m, p in rows if k]
        (dynamic,) = (s for s in self.segments if s.kind == DYNAMIC)
        tags = struct.iter_unpack("<qQ", data[dynamic.offset : dynamic.offset + dynamic.stored])
        self.tags: dict[int, list[int]] = {}
        for tag, value in tags:
            self.tags.setdefault(tag, []).append(value)
        self.strings = self.tags[5][0]

    def loads(self) -> list[Segment]:
        return [s for s in self.segments if s.kind == LOAD]

    def place(self, address: int) -> int:
        """Where an address is in the file."""
        for s in self.loads():
            if s.address <= address < s.address + s.stored:
                return s.offset + address - s.address
        raise AssertionError(f"{address:#x} is not in the file")

    def string(self, offset: int) -> str:
        at = self.place(self.strings + offset)
        return self.data[at : self.data.index(b"\0", at)].decode()

    def needed(self) -> list[str]:
        return [self.string(n) for n in self.tags[1]]

    def symbols(self) -> dict[str, tuple[int, int]]:
        """The section and the address of each name."""
        (count,) = struct.unpack_from("<I", self.data, self.place(self.tags[4][0]) + 4)
        at, found = self.place(self.tags[6][0]), {}
        for n in range(1, count):
            name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", self.data, at + 24 * n)
            found[self.string(name)] = section, value
        return found

    def relocated(self) -> list[tuple[int, int]]:
        """The kind and the place of each relocation."""
        at, size = self.place(self.tags[7][0]), self.tags[8][0]
        rows = struct.iter_unpack("<QQq", self.data[at : at + size])
        return [(info & 0xFFFFFFFF, place) for place, info, _ in rows]


def compile_c(source: Path, folder: Path, *libraries: Path, options: Sequence[str] = STRICT) -> Path:
    """The program of a file, linked with libraries in `folder`, where their headers are, too."""
    program = folder / source.stem
    command = ["cc", *options, str(source), "-I", str(folder), "-o", str(program), "-L", str(folder)]
    command += [f"-l:{library.name}" for library in libraries]
    command += [f"-Wl,-rpath,{folder}", "-lpthread", "-ldl"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    return program


def run_program(program: Path, *arguments: str, timeout: float = 60) -> str:
    """What a program prints that ends well."""
    environment = {"PATH": os.environ["PATH"]}
    command = [str(program), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    assert ran.returncode == 0, f"{ran.returncode}: {ran.stdout}{ran.stderr}"
    return ran.stdout


def same_bits(first: Sequence[np.ndarray[Any, Any]], second: Sequence[np.ndarray[Any, Any]]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


def digits(**given: Any) -> tw.Executable:
    return tw.compile("examples/digits/digits.onnx", **given)
