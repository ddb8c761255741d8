"""Compiles a model file, and keeps what was made for the next time."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from tilewright.artifact.stored import MadeFrom, Stored
from tilewright.compiler.apart import produce
from tilewright.compiler.compiled import Compiled, link
from tilewright.compiler.pipeline import lower, plan_of
from tilewright.frontends.onnx import open_model, read, value_names
from tilewright.lower.graph.fix_dimensions import fix_dimensions
from tilewright.runtime.bundle import Source, encode
from tilewright.runtime.executable import Executable
from tilewright.runtime.inside import Origin
from tilewright.store.pages import release


def compile_file(stored: Stored, threads: int, start: float) -> Executable:
    """The executable of the model in a file; the code is the same for any number of threads. It counts as
    compiled since `start`."""
    file = open_model(stored.path)
    compiled = produce(fix_dimensions(read(file, stored.reading), stored.sizes), stored.target, stored.switches)
    files = file.files()
    for source in files:
        release(source.data)
    compiled.origin = origin_of(stored)
    executable = link(compiled, stored.target, time.perf_counter() - start, threads, MadeFrom(stored))
    folder = os.path.dirname(os.path.abspath(stored.path))
    digest = stored.sha256 if stored.store.is_on else ""
    sources = [Source(_relative(f.path, folder, n), f.data, "" if n else digest) for n, f in enumerate(files)]
    executable.program = replace(executable.program, files=stored.files_of(sources))
    if not stored.store.is_on:
        return executable
    parts = encode([executable.program], sources, executable.program.provenance, in_place=True)
    entry = stored.store.put_mapped(stored.key, *parts)
    kept = None if entry is None else stored.program_in(entry)
    if kept is not None:
        executable.refer_to(kept.constants)
        compiled.let_go()
    return executable


def compile_again(stored: Stored) -> Compiled:
    """The same in this process alone, with every stage kept."""
    return lower(origin_of(stored).read(), stored.target, stored.switches)


def origin_of(stored: Stored) -> Origin:
    """The model that a stored program was compiled from, and how."""
    return Origin(
        lambda: fix_dimensions(read(stored.path, stored.reading, warn=False), stored.sizes),
        stored.target,
        stored.switches,
        lambda: value_names(open_model(stored.path)),
        plan_of,
    )


def _relative(path: str | None, folder: str, n: int) -> str:
    return "" if n == 0 or path is None else os.path.relpath(path, folder)
