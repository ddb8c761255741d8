"""The programs of a kernel at every level, from operators to assembly; and those of the whole.

LLVM IR and assembly are those of the kernel's own unit (codegen/units.py): the functions of its parallel loops are in
them, other kernels are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.codegen.assemble import assembly
from tilewright.codegen.module import generate_unit, module_of
from tilewright.codegen.units import units_of
from tilewright.graph.nodes import GraphFunction
from tilewright.loops.nodes import Function
from tilewright.runtime.executable import Executable
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Level:
    """A program at one level: what the level is called, what it shows, and the text."""

    name: str
    about: str
    text: str


def kernel_programs(
    exe: Executable, operators: Mapping[str, GraphFunction], steps: Mapping[str, str]
) -> dict[str, tuple[Level, ...]]:
    """For each kernel, by its name, its levels; `operators` are the graph functions of what each holds, `steps` the
    schedules as Python, empty where a kernel was not scheduled by steps."""
    final = exe.module
    functions = {name: f for name, f in final.functions.items() if isinstance(f, Function)}
    units = {f.name: unit for unit in units_of(functions, final.entry)[1:] for f in unit}
    planned, scheduled = exe.after("plan").functions, exe.after("schedule").functions
    found: dict[str, tuple[Level, ...]] = {}
    for name, graph in operators.items():
        levels = [
            Level("graph", "the operators that the plan put together", str(graph)),
            Level("plan", "their definitions as loops, not scheduled yet", str(planned[name])),
        ]
        if steps[name]:
            levels.append(Level("steps", "the schedule, as Python that makes it of these loops", steps[name]))
        levels.append(Level("schedule", "the same loops, made fast", str(scheduled[name])))
        found[name] = (*levels, *(_legal(units[name], exe.program.target) if name in units else ()))
    return found


def _legal(unit: tuple[Function, ...], target: Target) -> tuple[Level, ...]:
    """The levels after the last pass."""
    llvm = module_of([generate_unit(unit, target)], target)
    return (
        Level("legal", "after the last pass: nothing left to decide", "\n\n".join(map(str, unit))),
        Level("llvm", "what is printed of it for LLVM", llvm),
        Level("assembly", "what LLVM makes of that", assembly(llvm, target)),
    )


def whole_programs(exe: Executable) -> tuple[Level, ...]:
    """The program around the kernels: the graph as it was planned, the graph of kernels, the order of calls."""
    stages = exe.stages
    before, after = exe.after(stages[stages.index("plan") - 1]), exe.after("plan")
    graphs = [
        "\n\n".join(str(f) for f in m.functions.values() if isinstance(f, GraphFunction)) for m in (before, after)
    ]
    called = exe.after("bufferize")
    return (
        Level("operators", "the graph that was planned", graphs[0]),
        Level("kernels", "the graph after the plan: calls of kernels", graphs[1]),
        Level("memory", "the order of calls, with places in the arena", str(called.functions[called.entry])),
    )
