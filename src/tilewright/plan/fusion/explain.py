"""A plan as a report: what each kernel holds and is expected to take, and what else was priced.

Times are predictions for one core, in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.expr.nodes import Expr
from tilewright.graph.nodes import GraphFunction, Module, Value
from tilewright.graph.symbolic import Call
from tilewright.plan.fusion.kernel import Kernel
from tilewright.plan.fusion.planner import Part, Plan
from tilewright.plan.fusion.work import bytes_of, flops_of
from tilewright.store import Json


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A call of a kernel: the function it calls, its template, its operators in program order, the seconds that it is
    expected to read, to write, to compute and to take in all, the front end's operators that it was made of, and what
    it does and moves (`work.py`)."""

    name: str
    template: str
    operators: tuple[str, ...]
    read: float
    write: float
    compute: float
    seconds: float
    source: tuple[str, ...]
    flops: Expr
    bytes: Expr

    def record(self) -> dict[str, object]:
        """The row as JSON says it."""
        times = {"read_s": self.read, "write_s": self.write, "compute_s": self.compute, "predicted_s": self.seconds}
        return {"kernel": self.name, "template": self.template, "operators": list(self.operators), **times}


@dataclass(frozen=True, slots=True)
class PartRow:
    """Kernels that were decided together: how many interesting points there were, how many assignments were priced, the
    seconds of the plan that was selected and of each alternative by its name. An alternative that is infinite has a
    kernel of no template."""

    kernels: tuple[str, ...]
    points: int
    priced: int
    seconds: float
    alternatives: tuple[tuple[str, float], ...]

    def record(self) -> dict[str, Json]:
        """The row as JSON says it; an infinite price is null."""
        prices: dict[str, Json] = {name: None if math.isinf(price) else price for name, price in self.alternatives}
        counts: dict[str, Json] = {"points": self.points, "priced": self.priced}
        return {"kernels": list(self.kernels), **counts, "selected_s": self.seconds, "alternatives_s": prices}


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The plans of a module: a row for each call of a kernel in the order of the program, one for each decision."""

    kernels: tuple[KernelRow, ...]
    parts: tuple[PartRow, ...]

    @property
    def seconds(self) -> float:
        """What all calls are expected to take, bodies of loops counted once."""
        return sum(row.seconds for row in self.kernels)

    def part_of(self, kernel: str) -> PartRow | None:
        """The decision that made a kernel; of several calls, that of the first."""
        return next((row for row in self.parts if kernel in row.kernels), None)


def report(plans: Mapping[str, Plan], planned: Module) -> PlanReport:
    """The report on the plans of graph functions, by their names; `planned` is the module that calls the kernels."""
    names: dict[Value, str] = {}
    for function in planned.functions.values():
        if isinstance(function, GraphFunction):
            names.update((v, n.attrs.callee) for n in function.nodes if isinstance(n.attrs, Call) for v in n.outputs)
    kernels = [k for plan in plans.values() for k in plan.kernels]
    parts = [part for plan in plans.values() for part in plan.parts if part.kernels]
    return PlanReport(tuple(_kernel(k, names) for k in kernels), tuple(_part(part, names) for part in parts))


def _kernel(kernel: Kernel, names: Mapping[Value, str]) -> KernelRow:
    cost = kernel.cost
    operators = tuple(node.op.name for node in kernel.nodes if node.inputs)
    times = (cost.read, cost.write, cost.compute, cost.seconds)
    source = tuple(dict.fromkeys(node.source for node in kernel.nodes if node.source))
    return KernelRow(
        _name(kernel, names), kernel.template, operators, *times, source, flops_of(kernel), bytes_of(kernel)
    )


def _part(part: Part, names: Mapping[Value, str]) -> PartRow:
    chosen = part.selection
    kernels = tuple(_name(k, names) for k in part.kernels)
    prices = tuple(chosen.alternatives.items())
    return PartRow(kernels, len(part.partition.points), chosen.priced, chosen.seconds, prices)


def _name(kernel: Kernel, names: Mapping[Value, str]) -> str:
    return names.get(kernel.root.outputs[0], "")
