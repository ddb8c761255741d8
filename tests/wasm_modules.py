"""Modules of WebAssembly in tests: run by wasmtime, where its wheel is installed, and by Node, where that is."""

from __future__ import annotations

import json
import math
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libraries import PROGRAMS
from tilewright.codegen.abi import ARENA_TOO_SMALL, CALL
from tilewright.expr.dtypes import DTYPES

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
    """What a module makes of arrays, called as codegen/abi.py says; no results with sizes of more than symbols."""
    wasmtime = pytest.importorskip("wasmtime")
    engine = wasmtime.Engine()
    module, store, linker = (
        wasmtime.Module.from_file(engine, str(path)),
        wasmtime.Store(engine),
        wasmtime.Linker(engine),
    )
    for wanted in module.imports:
        plain = getattr(math, wanted.name, None) or getattr(math, wanted.name.removesuffix("f"))
        linker.define_func("env", wanted.name, wanted.type, plain)
    exports = linker.instantiate(store, module).exports(store)
    note = json.loads(_section(path.read_bytes(), b"tilewright"))
    sizes = [0] * note["symbols"]
    for name, _, dims in note["inputs"]:
        for dim, size in zip(dims, feeds[name].shape, strict=True):
            if isinstance(dim, str):
                sizes[int(dim)] = size
    return _call(store, exports, note, sizes, feeds)


def _call(store: Any, exports: Any, note: Any, sizes: list[int], feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    memory, end = exports["memory"], exports["tilewright_heap"].value(store)

    def room(size: int) -> int:
        nonlocal end
        at = -(-end // 64) * 64
        end = at + size
        return at

    arrays = [np.ascontiguousarray(feeds[name]) for name, _, _ in note["inputs"]]
    results = [
        (n, DTYPES[t].numpy, [sizes[int(d)] if isinstance(d, str) else d for d in dims])
        for n, t, dims in note["outputs"]
    ]
    record, fault, symbols = room(8 * len(CALL)), room(64), room(8 * len(sizes))
    pointers = room(4 * (len(arrays) + len(results)))
    inputs = [room(a.nbytes) for a in arrays]
    outputs = [room(np.dtype(t).itemsize * math.prod(dims)) for _, t, dims in results]
    arena, arena_bytes = room(0), 0
    while True:
        missing = arena + arena_bytes - memory.data_len(store)
        memory.grow(store, max(-(-missing // PAGE), 0))
        words = [pointers, exports["tilewright_constants"].value(store), symbols, arena, arena_bytes, fault, 1, 0, 0, 0]
        memory.write(store, struct.pack("<10q", *words), record)
        memory.write(store, struct.pack(f"<{len(sizes)}q", *sizes), symbols)
        memory.write(store, struct.pack(f"<{len(inputs + outputs)}I", *inputs, *outputs), pointers)
        for array, at in zip(arrays, inputs, strict=True):
            memory.write(store, array.tobytes(), at)
        status = exports["tilewright_entry"](store, record)
        if status != ARENA_TOO_SMALL:
            assert status == 0, status
            break
        (arena_bytes,) = struct.unpack("<q", memory.read(store, fault, fault + 8))
    found = {}
    for (name, kind, dims), at in zip(results, outputs, strict=True):
        content = bytes(memory.read(store, at, at + np.dtype(kind).itemsize * math.prod(dims)))
        found[name] = np.frombuffer(content, kind).reshape(dims)
    return found


def _section(data: bytes, name: bytes) -> bytes:
    """The content of the last section, which is a custom one of this name."""
    at = data.rindex(bytes([len(name)]) + name)
    return data[at + 1 + len(name) :]
