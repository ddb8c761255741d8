"""What is refused of modules in memory, whoever has them compiled: a caller of `compile`, or PyTorch."""

from __future__ import annotations

from tilewright.compiler.pipeline import read_pass_switches
from tilewright.core.switches import Switches
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.graph.verify import verify
from tilewright.report.errors import UserError


def check_modules(switches: Switches, *modules: Module) -> None:
    """UserError for passes, levels and precisions that there are none of, for modules that are not valid, and for those
    whose entry is no graph."""
    read_pass_switches(switches.level, switches.off, switches.precision)
    for module in modules:
        verify(module)
        if not isinstance(module.main, GraphFunction):
            raise UserError(
                f"cannot compile the loops function {module.entry}",
                why="compile takes a module whose entry is a graph",
                fix="build it: tilewright.build(function)",
            )
