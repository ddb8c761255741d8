"""Two modules, wanted one after the other, compiled together: forward and backward graphs of torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.api.compile import switches_for, tell_summary
from tilewright.core.collection import rare_collections
from tilewright.core.frames import with_room
from tilewright.core.processes import Workers
from tilewright.runtime.executable import Executable
from tilewright.runtime.machine import measured
from tilewright.runtime.threads import count_threads
from tilewright.target import Target

if TYPE_CHECKING:
    from tilewright.graph.nodes import Module


class CompileBoth:
    """`compile`, of two modules for this machine."""

    def __init__(self) -> None:
        self._workers: Workers | None = None

    def begin(self, operators: int) -> None:
        """Begins with what takes a while and needs no module: other processes, where each of two graphs of so many
        operators is worth them."""
        from tilewright.compiler.processes import LARGE_MODEL, begin_workers, processes_for_modules

        if operators >= LARGE_MODEL and processes_for_modules() > 1:
            self._workers = begin_workers(processes_for_modules())

    def end(self) -> None:
        """Ends what was begun, where no modules are given to it."""
        workers, self._workers = self._workers, None
        if workers is not None:
            with workers:
                pass

    @with_room
    def __call__(
        self, first: Module, second: Module, *, threads: int | None, precision: str, denormals: str
    ) -> tuple[Executable, Callable[[], Executable]]:
        """The executable of the first module, and what waits for that of the second."""
        machine = measured(Target.parse("native"))
        try:
            with rare_collections():
                from tilewright.compiler import compile_both
                from tilewright.graph.verify import verify

                verify(first)
                verify(second)
                count, switches = count_threads(threads), switches_for(machine, precision)
                workers, self._workers = self._workers, None
                made, rest = compile_both(first, second, machine, count, switches, workers)
        finally:
            self.end()

        def told(executable: Executable) -> Executable:
            executable.denormals = denormals
            tell_summary(executable)
            return executable

        return told(made), with_room(lambda: told(rest()))
