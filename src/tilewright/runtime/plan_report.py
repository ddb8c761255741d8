"""A plan as a report: the operators of each kernel, its predicted time, its flops and bytes, and what else was priced.

Times are predicted seconds of one core, for the sizes that `analysis/sizes.py` assumes. `PlanReport.predict` gives
those for the sizes of a call. Flops and bytes are expressions over the sizes of the graph, with which reports compare
measured times. Each operator counts once at the points of its own results, however often a kernel recomputes it. Bytes
are those of all values that the kernel reads or writes, each once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.analysis.cost import count_flops
from tilewright.analysis.dataflow import Dataflow
from tilewright.analysis.sizes import Sizes, sizes_of_call
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Expr
from tilewright.expr.simplify import simplify
from tilewright.graph.nodes import GraphFunction, Module, Value
from tilewright.graph.symbolic import Call
from tilewright.loops.nodes import Function
from tilewright.plan.decision import Decision
from tilewright.plan.fusion.kernels import Kernel
from tilewright.plan.fusion.planner import Part, Plan
from tilewright.plan.price.kernels import CostModel
from tilewright.store import Json
from tilewright.target import Target


@dataclass(slots=True)
class Choices:
    """What was chosen while a module was compiled: what shares a kernel, where there was a graph, and how each kernel
    came to its schedule, by name."""

    plan: PlanReport | None = None
    decisions: dict[str, Decision] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class KernelRow(Kernel):
    """A call of a kernel: the function that it is, and its flops."""

    name: str = field(kw_only=True)
    flops: Expr = field(kw_only=True)

    def record(self) -> dict[str, Json]:
        """The row as JSON."""
        return {"kernel": self.name, "template": self.template, "operators": [*self.operators], **self.cost.record()}


@dataclass(frozen=True, slots=True)
class PartRow:
    """Kernels that were decided together: the number of interesting points, the number of assignments priced, the
    seconds of the selected plan and of each alternative by name. An alternative is infinite if one of its kernels fits
    no template."""

    kernels: tuple[str, ...]
    points: int
    priced: int
    seconds: float
    alternatives: tuple[tuple[str, float], ...]

    @staticmethod
    def of(part: Part, callees: Mapping[Value, str]) -> PartRow:
        """The row of a partition, with the names of the functions that make values."""
        names, made = tuple(callees[k.outputs[0]] for k in part.kernels), part.selection
        points = len(part.partition.points)
        return PartRow(names, points, made.priced, made.seconds, tuple(made.alternatives.items()))

    def record(self) -> dict[str, Json]:
        """The row as JSON; an infinite price is null."""
        prices: dict[str, Json] = {name: None if math.isinf(price) else price for name, price in self.alternatives}
        counts: dict[str, Json] = {"points": self.points, "priced": self.priced}
        return {"kernels": list(self.kernels), **counts, "selected_s": self.seconds, "alternatives_s": prices}


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The plans of a module: a row for each call of a kernel in the order of the program, one for each decision; and
    what they were made of, to price the same kernels for other sizes."""

    kernels: tuple[KernelRow, ...]
    parts: tuple[PartRow, ...]
    module: Module = field(compare=False, repr=False)
    plans: Mapping[str, Plan] = field(compare=False, repr=False)
    target: Target = field(compare=False, repr=False)

    @property
    def seconds(self) -> float:
        """The predicted seconds of all calls; bodies of loops count once."""
        return sum(row.seconds for row in self.kernels)

    def predict(self, sizes: Mapping[str, int]) -> tuple[float | None, ...]:
        """The predicted seconds of each kernel in a call of the program with these sizes, given by the names of
        symbols; None where a kernel has sizes that are not given, or that are computed during the call."""
        found: list[float | None] = []
        known = sizes_of_call(self.module, sizes)
        for name, plan in self.plans.items():
            function, own = self.module.functions[name], known.get(name, Sizes())
            assert isinstance(function, GraphFunction)
            model = CostModel(Dataflow(function, sizes=own), self.target)
            for k in plan.kernels:
                is_known = own.known.keys() >= {*k.symbols}
                found.append(model.kernel(k.nodes, k.inside, k.beside).seconds if is_known else None)
        return tuple(found)

    def part_of(self, kernel: str) -> PartRow | None:
        """The decision that made a kernel; if it is called several times, that of the first call."""
        return next((row for row in self.parts if kernel in row.kernels), None)


def calls_of(planned: Module) -> dict[Value, Call]:
    """The call that makes each value, in a module that calls kernels."""
    graphs = (f for f in planned.functions.values() if isinstance(f, GraphFunction))
    return {v: n.attrs for graph in graphs for n in graph.nodes if isinstance(n.attrs, Call) for v in n.outputs}


def callees_of(planned: Module) -> dict[Value, str]:
    """The function that makes each value, in a module that calls kernels."""
    return {v: call.callee for v, call in calls_of(planned).items()}


def report(plans: Mapping[str, Plan], module: Module, planned: Module, target: Target) -> PlanReport:
    """The report on the plans of a module's graph functions, by their names; `planned` is the module that calls the
    kernels."""
    made, names = calls_of(planned), callees_of(planned)
    counted = {f: count_flops(f) for f in planned.functions.values() if isinstance(f, Function)}

    def flops(call: Call) -> Expr:
        callee = planned.functions[call.callee]
        assert isinstance(callee, Function)
        return simplify(substitute(counted[callee], dict(zip(callee.symbols, call.symbols, strict=True))))

    calls = [(k, made[k.outputs[0]]) for plan in plans.values() for k in plan.kernels]
    rows = tuple(
        [
            KernelRow(k.nodes, k.inside, k.template, k.cost, k.beside, name=call.callee, flops=flops(call))
            for k, call in calls
        ]
    )
    parts = tuple(PartRow.of(part, names) for plan in plans.values() for part in plan.parts if part.kernels)
    return PlanReport(rows, parts, module.with_constants({}), dict(plans), target)
