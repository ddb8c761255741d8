"""Compiles a model file, or finds what was compiled of it before.

The key of an entry is the content of the model's file, the target, the compiler itself and the settings it heeds; the
entry names the files with external data by their content, too. So nothing is found that would be compiled otherwise.
"""

from __future__ import annotations

import hashlib
import os
import time
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from tilewright.artifact.bundle import Source, decode, encode, sources_of
from tilewright.compiler import Stages, link, lower, produce, stages_of
from tilewright.core.switches import ALL_ON, Switches
from tilewright.frontends.onnx import open_model, read
from tilewright.frontends.onnx.external import ExternalFiles, map_file
from tilewright.report import settings
from tilewright.report.errors import UserError
from tilewright.runtime.executable import Executable
from tilewright.runtime.inside import Inside
from tilewright.runtime.native import NativeCode
from tilewright.store import Damaged, Store, digest
from tilewright.target import Target


def compile_file(
    path: str | os.PathLike[str], target: Target, threads: int | None = None, switches: Switches = ALL_ON
) -> Executable:
    """The executable of the model in a file; the code is the same for any number of threads."""
    start = time.perf_counter()
    store = Store.default()
    name = os.fspath(path)
    model = Source("", map_file(name).data)
    key = digest(
        model=model.digest(),
        target=target.fingerprint(),
        compiler=compiler_version(),
        winograd=settings.WINOGRAD.read(),
        level=switches.level,
        off=" ".join(sorted(switches.off)),
        precision=switches.precision,
    )
    found = _find(store, key, name, model, target, start, threads, switches)
    if found is not None:
        return found
    file = open_model(path)
    compiled = produce(read(file), target, switches)
    folder = os.path.dirname(os.path.abspath(name))
    sources = [Source(_relative(f.path, folder, n), f.data) for n, f in enumerate(file.files())]
    store.put(key, encode(compiled, sources))
    return link(compiled, target, time.perf_counter() - start, threads)


def _relative(path: str | None, folder: str, n: int) -> str:
    return "" if n == 0 or path is None else os.path.relpath(path, os.path.realpath(folder))


def _find(
    store: Store,
    key: str,
    name: str,
    model: Source,
    target: Target,
    start: float,
    threads: int | None,
    switches: Switches,
) -> Executable | None:
    """The executable that the store holds, unless its external data changed or the entry does not fit."""
    entry = store.map(key)
    if entry is None:
        return None
    try:
        sources = _open_sources(sources_of(entry), name, model)
        if sources is None:
            return None
        loaded = decode(entry, sources)
    except (Damaged, UserError):
        return None

    def make() -> Stages:
        return stages_of(lower(read(open_model(name)), target, switches), target)

    native = NativeCode(loaded.code, target)
    seconds = time.perf_counter() - start
    return Executable(
        loaded.interface,
        native,
        loaded.faults,
        loaded.constants,
        Inside(make),
        seconds=seconds,
        cached=True,
        threads=threads,
    )


def _open_sources(rows: list[tuple[str, str]], name: str, model: Source) -> list[Source] | None:
    """The files an entry refers to, or None when one of them is not what it was."""
    external = ExternalFiles(os.path.dirname(os.path.abspath(name)))
    sources: list[Source] = []
    for path, expected in rows:
        source = model if not path else Source(path, external.get(path, name).data)
        if path and source.digest() != expected:
            return None
        sources.append(source)
    return sources


@cache
def compiler_version() -> str:
    """Text that differs whenever the compiler may make other code: its files and LLVM's version."""
    root = Path(__file__).parents[1]
    state = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        status = path.stat()
        state.update(f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return f"{llvm.llvm_version_info} {state.hexdigest()}"
