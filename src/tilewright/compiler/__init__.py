"""From a Module to an Executable.

Promises to the floors above: the same module, target and switches give the same bytes of code, in whatever process and
on however many; what is compiled says how it came about (`Compiled.record`, `Compiled.choices`).

The compiler is imported when it is asked for: workers (`processes.py`) begin before.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tilewright.core.processes import Workers
from tilewright.core.switches import ALL_ON, Switches
from tilewright.graph.nodes import Module
from tilewright.runtime.executable import Executable
from tilewright.target import Target, native

__all__ = ["compile_both", "compile_module"]


def compile_module(
    module: Module,
    target: Target | None = None,
    threads: int | None = None,
    switches: Switches = ALL_ON,
    workers: Workers | None = None,
) -> Executable:
    """Compiles a module whose entry is a graph function. No program is read from or written to the store. `workers` are
    those that have begun; they end with it."""
    from .apart import produce
    from .compiled import link

    target = target or native()
    start = time.perf_counter()
    compiled = produce(module, target, switches, workers)
    return link(compiled, target, time.perf_counter() - start, threads)


def compile_both(
    first: Module, second: Module, target: Target, threads: int, switches: Switches, workers: Workers | None = None
) -> tuple[Executable, Callable[[], Executable]]:
    """What `compile_module` makes of two modules, of the second when it is asked for: until then, other processes may
    work on it."""
    from .apart import produce_both
    from .compiled import link

    start = time.perf_counter()
    compiled, rest = produce_both(first, second, target, switches, workers)

    def finish() -> Executable:
        start = time.perf_counter()
        return link(rest(), target, time.perf_counter() - start, threads)

    return link(compiled, target, time.perf_counter() - start, threads), finish
