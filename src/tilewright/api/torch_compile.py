"""How graphs of torch.compile are compiled: with workers that begin before anything is read, a backward graph beside
its forward one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.api.compile import check_precision, switches_for, tell_summary
from tilewright.core.collection import rare_collections
from tilewright.core.frames import with_room
from tilewright.core.processes import Workers
from tilewright.core.switches import Switches
from tilewright.runtime.executable import Executable
from tilewright.runtime.machine import measured
from tilewright.runtime.threads import count_threads
from tilewright.target import Target

if TYPE_CHECKING:
    from tilewright.graph.nodes import Module


class GraphCompiler:
    """`compile`, of modules in memory for this machine."""

    def __init__(self) -> None:
        self._workers: Workers | None = None

    def begin(self, operators: int) -> None:
        """Begins with what takes a while and needs no module: other processes, where graphs of so many operators are
        worth them."""
        from tilewright.compiler.processes import LARGE_MODEL, begin_workers, processes_for_modules

        if operators >= LARGE_MODEL and processes_for_modules() > 1:
            self._workers = begin_workers(processes_for_modules())

    def end(self) -> None:
        """Ends what was begun and not used."""
        workers = self._taken()
        if workers is not None:
            with workers:
                pass

    def _taken(self) -> Workers | None:
        workers, self._workers = self._workers, None
        return workers

    @with_room
    def one(self, model: Module, *, threads: int | None, precision: str, denormals: str) -> Executable:
        """The executable of a module."""
        with rare_collections():
            from tilewright.compiler import compile_module

            machine, count, switches = _settled(threads, precision, model)
            made = compile_module(model, machine, count, switches, self._taken())
        return _told(made, denormals)

    @with_room
    def both(
        self, first: Module, second: Module, *, threads: int | None, precision: str, denormals: str
    ) -> tuple[Executable, Callable[[], Executable]]:
        """The executable of the first module, and what waits for that of the second."""
        with rare_collections():
            from tilewright.compiler import compile_both

            machine, count, switches = _settled(threads, precision, first, second)
            made, rest = compile_both(first, second, machine, count, switches, self._taken())
        return _told(made, denormals), with_room(lambda: _told(rest(), denormals))


def _settled(threads: int | None, precision: str, *modules: Module) -> tuple[Target, int, Switches]:
    """The machine, the threads and the switches that modules are compiled for. UserError for what `compile` refuses."""
    from tilewright.api.modules import check_modules

    check_precision(precision)
    machine = measured(Target.parse("native"))
    switches = switches_for(machine, precision)
    check_modules(switches, *modules)
    return machine, count_threads(threads), switches


def _told(executable: Executable, denormals: str) -> Executable:
    executable.denormals = denormals
    tell_summary(executable)
    return executable
