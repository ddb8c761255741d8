"""The kernels of a module as the planner makes them: nothing is scheduled, and no code is generated."""

from __future__ import annotations

from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import pipeline
from tilewright.core.passes import run_passes
from tilewright.graph.nodes import Module
from tilewright.loops.nodes import Function
from tilewright.target import Target


def planned_kernels(module: Module, target: Target) -> list[Function]:
    """The kernels before they are scheduled."""
    passes = pipeline(target)
    behind = [p.name for p in passes].index("plan") + 1
    plan = run_passes(module, passes[:behind], level=GRAPH)
    return [f for f in plan.functions.values() if isinstance(f, Function)]
