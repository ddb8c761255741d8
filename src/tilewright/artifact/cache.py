"""Compiles a model file, or finds what was compiled of it before.

The key of an entry is the content of the model's file, the sizes that its dimensions are fixed at, the target, the
compiler itself and the settings it heeds; the entry names the files with external data by their content, too. So
nothing is found that would be compiled otherwise.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from tilewright.compiler.apart import produce
from tilewright.compiler.compiled import Compiled, link, stages_of
from tilewright.compiler.pipeline import lower
from tilewright.core.switches import ALL_ON, Switches
from tilewright.frontends.onnx import open_model, read
from tilewright.frontends.onnx.external import ExternalFiles
from tilewright.graph.nodes import Module
from tilewright.lower.fix_dimensions import fix_dimensions
from tilewright.report import settings
from tilewright.report.errors import UserError
from tilewright.runtime.bundle import Bundle, Source, encode
from tilewright.runtime.executable import Executable
from tilewright.runtime.inside import Inside, Stages
from tilewright.store import Damaged, Store, digest
from tilewright.store.files import map_file
from tilewright.target import Target


def compile_file(
    path: str | os.PathLike[str],
    target: Target,
    threads: int | None = None,
    switches: Switches = ALL_ON,
    dims: Mapping[str, int] | None = None,
) -> Executable:
    """The executable of the model in a file, for these sizes of its dimensions; the code is the same for any number of
    threads."""
    start = time.perf_counter()
    store = Store.default()
    name = os.fspath(path)
    model = Source("", map_file(name, "model file").data)
    key = digest(
        model=model.digest(),
        target=target.fingerprint(),
        compiler=compiler_version(),
        winograd=settings.WINOGRAD.read(),
        level=switches.level,
        off=" ".join(sorted(switches.off)),
        precision=switches.precision,
        dims=" ".join(f"{dim}={size}" for dim, size in sorted((dims or {}).items())),
    )

    def again() -> Module:
        return fix_dimensions(read(open_model(name)), dims or {})

    found = _find(store, key, name, model, target, start, threads, lambda: lower(again(), target, switches))
    if found is not None:
        return found
    file = open_model(path)
    compiled = produce(fix_dimensions(read(file), dims or {}), target, switches)
    folder = os.path.dirname(os.path.abspath(name))
    sources = [Source(_relative(f.path, folder, n), f.data) for n, f in enumerate(file.files())]
    executable = link(
        compiled, target, time.perf_counter() - start, threads, model=os.path.basename(name), sha256=model.digest()
    )
    store.put(key, *encode([executable.program], sources, executable.program.provenance))
    return executable


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
    again: Callable[[], Compiled],
) -> Executable | None:
    """The executable that the store holds, unless its external data changed or the entry does not fit. A look inside
    compiles `again`."""
    entry = store.map(key)
    if entry is None:
        return None
    try:
        bundle = Bundle(entry)
        sources = _open_sources(bundle.sources, name, model)
        if sources is None:
            return None
        program = bundle.program(0, sources)
    except (Damaged, UserError):
        return None

    def make() -> Stages:
        return stages_of(again(), target)

    seconds = time.perf_counter() - start
    return Executable(program, Inside(make), seconds=seconds, cached=True, threads=threads)


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
