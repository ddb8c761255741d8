"""From a Module to an Executable.

Promises to the floors above: the same module, target and switches give the same bytes of code, in whatever process and
on however many; what is compiled says how it came about (`Compiled.record`, `Compiled.choices`).
"""

from __future__ import annotations

import time

from tilewright.core.switches import ALL_ON, Switches
from tilewright.graph.nodes import Module
from tilewright.runtime.executable import Executable
from tilewright.target import Target, native

from .apart import produce
from .compiled import link

__all__ = ["compile_module"]


def compile_module(
    module: Module, target: Target | None = None, threads: int | None = None, switches: Switches = ALL_ON
) -> Executable:
    """Compiles a module whose entry is a graph function. No program is read from or written to the store."""
    target = target or native()
    start = time.perf_counter()
    compiled = produce(module, target, switches)
    return link(compiled, target, time.perf_counter() - start, threads)
