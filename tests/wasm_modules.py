"""Modules of WebAssembly in tests: run by wasmtime, where its wheel is installed, and by Node, where that is."""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import math
import shutil
import struct
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libraries import PROGRAMS
from tilewright.codegen.abi import ARENA_TOO_SMALL, CALL, ROOM_TOO_SMALL
from tilewright.expr.dtypes import DTYPES
from tilewright.runtime.library.codes import ARRAY_WORDS, DIMS

Arrays = Mapping[str, np.ndarray[Any, Any]]
PAGE = 1 << 16


def run_node(folder: Path, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """What model.wasm of a folder makes of arrays, by its JavaScript, model.mjs. Raises RuntimeError with what Node
    says of an exception."""
    if shutil.which("node") is None:
        pytest.skip("there is no Node")
    head = {name: [str(a.dtype), list(a.shape), a.nbytes] for name, a in feeds.items()}
    given = json.dumps(head).encode() + b"\n" + b"".join(a.tobytes() for a in feeds.values())
    command = ["node", str(PROGRAMS / "call.mjs"), str(folder)]
    ran = subprocess.run(command, input=given, capture_output=True, timeout=600)
    if ran.returncode:
        raise RuntimeError(ran.stderr.decode())
    first, _, content = ran.stdout.partition(b"\n")
    found, at = {}, 0
    for name, kind, dims, size in json.loads(first):
        found[name] = np.frombuffer(content, DTYPES[kind].numpy, offset=at, count=math.prod(dims)).reshape(dims)
        at += size
    return found


def run_wasmtime(path: Path, feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """What a module makes of arrays, called as codegen/abi.py says."""
    wasmtime = pytest.importorskip("wasmtime")
    engine = wasmtime.Engine()
    module, store, linker = (
        wasmtime.Module.from_file(engine, str(path)),
        wasmtime.Store(engine),
        wasmtime.Linker(engine),
    )
    for wanted in module.imports:
        linker.define_func("env", wanted.name, wanted.type, _function(wanted.name, len(wanted.type.params)))
    exports = linker.instantiate(store, module).exports(store)
    note = json.loads(_section(path.read_bytes(), b"tilewright"))
    return _Call(store, exports, note).run([np.asarray(feeds[name], order="C") for name, _, _ in note["inputs"]])


def _function(name: str, arguments: int) -> Callable[..., float]:
    """A function of the C library in double precision, as JavaScript's are: outside of its domain it is NaN."""
    library = ctypes.CDLL(ctypes.util.find_library("m"))
    function = library[name.removesuffix("f")]
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double] * arguments
    return lambda *values: float(function(*values))


class _Call:
    """One call of a module: its records and arrays lie behind the module's own data."""

    def __init__(self, store: Any, exports: Any, note: Any) -> None:
        self._store, self._exports, self._note = store, exports, note
        self._memory, self._end = exports["memory"], exports["tilewright_heap"].value(store)

    def _room(self, size: int) -> int:
        at = -(-self._end // 64) * 64
        self._end = at + size
        missing = self._end - self._memory.data_len(self._store)
        self._memory.grow(self._store, max(-(-missing // PAGE), 0))
        return at

    def _write(self, at: int, kind: str, *values: int) -> None:
        self._memory.write(self._store, struct.pack(f"<{len(values)}{kind}", *values), at)

    def _read(self, at: int, kind: str, count: int) -> tuple[int, ...]:
        size = struct.calcsize(f"<{count}{kind}")
        return struct.unpack(f"<{count}{kind}", self._memory.read(self._store, at, at + size))

    def run(self, arrays: Sequence[np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        note, outputs = self._note, self._note["outputs"]
        symbols, rooms, late = note["symbols"], note["rooms"], note["late"]
        record, fault, words = self._room(8 * len(CALL)), self._room(64), 8 * ARRAY_WORDS
        takes, gives = self._room(words * len(arrays)), self._room(words * len(outputs))
        sizes = self._room(8 * (symbols + len(rooms) + sum(len(outputs[n][2]) for n in late)))
        count, bytes_ = len(arrays) + len(outputs), self._room(8 * (len(arrays) + len(outputs)))
        for n, array in enumerate(arrays):
            self._write(takes + words * n, "q", 0, array.nbytes, array.ndim, *array.shape)
        checked = self._exports["k.tilewright_sizes"](self._store, takes, sizes, bytes_, gives, fault, 0)
        assert checked == 0, note["checks"][checked - 1]
        rooms_at, pointers = sizes + 8 * symbols, self._room(4 * count)
        self._write(rooms_at, "q", *rooms)
        wanted = self._read(bytes_, "q", count)
        results = [self._room(size) for size in wanted[: len(outputs)]]
        inputs = [self._room(size) for size in wanted[len(outputs) :]]
        self._write(pointers, "I", *inputs, *results)
        for array, at in zip(arrays, inputs, strict=True):
            self._memory.write(self._store, array.tobytes(), at)
        self._enter(record, [pointers, sizes, fault])
        found, dims_at = {}, rooms_at + 8 * len(rooms)
        for n, (name, kind, dims) in enumerate(outputs):
            at = dims_at if n in late else gives + words * n + 8 * DIMS
            dims_at += 8 * len(dims) * (n in late)
            shape, dtype = self._read(at, "q", len(dims)), np.dtype(DTYPES[kind].numpy)
            (place,) = self._read(pointers + 4 * (len(arrays) + n), "I", 1)
            content = self._memory.read(self._store, place, place + dtype.itemsize * math.prod(shape))
            found[name] = np.frombuffer(bytes(content), dtype).reshape(shape)
        return found

    def _enter(self, record: int, places: Sequence[int]) -> None:
        """Enters the program until it has the room that it asks for."""
        (pointers, sizes, fault), arena, arena_bytes = places, self._room(0), 0
        constants = self._exports["tilewright_constants"].value(self._store)
        while True:
            words = [pointers, constants, sizes, arena, arena_bytes, fault, 1, 0, 0, 0, 0]
            self._write(record, "q", *words)
            status = self._exports["tilewright_entry"](self._store, record)
            if status == 0:
                return
            assert status < 0, self._note["faults"][status - 1]
            (needed,) = self._read(fault, "q", 1)
            if status == ARENA_TOO_SMALL:
                arena_bytes = needed
                self._room(needed)
            else:
                self._write(sizes + 8 * (ROOM_TOO_SMALL - status), "q", needed)


def _section(data: bytes, name: bytes) -> bytes:
    """The content of the last section, which is a custom one of this name."""
    at = data.rindex(bytes([len(name)]) + name)
    return data[at + 1 + len(name) :]
