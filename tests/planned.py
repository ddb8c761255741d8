"""What a compilation comes to on its way: a module as the planner makes it, before anything is scheduled, and the code
that LLVM gets, of which no object file is made."""

from __future__ import annotations

from tilewright.codegen.module import generate
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import pipeline
from tilewright.core.passes import run_passes
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function
from tilewright.target import Target


def planned(module: Module, target: Target) -> Module:
    """The module with its kernels, before they are scheduled."""
    passes = pipeline(target)
    behind = [p.name for p in passes].index("plan") + 1
    return run_passes(module, passes[:behind], level=GRAPH)


def planned_kernels(module: Module, target: Target) -> list[Function]:
    """The kernels before they are scheduled."""
    return [f for f in planned(module, target).functions.values() if isinstance(f, Function)]


def llvm_of(module: Module, target: Target) -> str:
    """The LLVM IR of a module."""
    final = run_passes(module, pipeline(target), level=GRAPH)
    functions = {name: f for name, f in final.functions.items() if isinstance(f, Function)}
    return generate(functions, final.entry, target).text
