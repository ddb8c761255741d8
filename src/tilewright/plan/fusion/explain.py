"""A plan as a report: the operators of each kernel, its predicted time, and what else was priced.

Times are predicted seconds of one core, for the sizes that `plan/price/sizes.py` assumes. `PlanReport.predict` gives
those for the sizes of a call.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.expr.nodes import Expr, Var
from tilewright.expr.variables import variables_of
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.symbolic import Call
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.kernel import Kernel
from tilewright.plan.fusion.planner import Part, Plan
from tilewright.plan.fusion.whole import WHOLE
from tilewright.plan.fusion.work import bytes_of, flops_of
from tilewright.plan.price.kernels import CostModel, KernelCost
from tilewright.plan.price.sizes import Sizes, sizes_of_call
from tilewright.store import Json
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A call of a kernel: the function, its template, its operators in program order; the predicted seconds of reading,
    of writing, of computing and in all; the front end's operators that it was made of; its flops and bytes (`work.py`);
    and the symbols of its sizes. If there are none, its times hold for all calls."""

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
    symbols: tuple[Var, ...] = ()

    def record(self) -> dict[str, object]:
        """The row as JSON."""
        times = {"read_s": self.read, "write_s": self.write, "compute_s": self.compute, "predicted_s": self.seconds}
        return {"kernel": self.name, "template": self.template, "operators": list(self.operators), **times}


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

    def record(self) -> dict[str, Json]:
        """The row as JSON; an infinite price is null."""
        prices: dict[str, Json] = {name: None if math.isinf(price) else price for name, price in self.alternatives}
        counts: dict[str, Json] = {"points": self.points, "priced": self.priced}
        return {"kernels": list(self.kernels), **counts, "selected_s": self.seconds, "alternatives_s": prices}


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The plans of a module: a row for each call of a kernel in the order of the program, one for each decision.
    `prices` prices the same kernels for other sizes."""

    kernels: tuple[KernelRow, ...]
    parts: tuple[PartRow, ...]
    prices: Prices | None = field(default=None, compare=False)

    @property
    def seconds(self) -> float:
        """The predicted seconds of all calls; bodies of loops count once."""
        return sum(row.seconds for row in self.kernels)

    def predict(self, sizes: Mapping[str, int]) -> tuple[float | None, ...]:
        """The predicted seconds of each kernel in a call of the program with these sizes, given by the names of
        symbols; None where a kernel has sizes that are not given, or that are computed during the call."""
        if self.prices is None:
            return tuple(None if row.symbols else row.seconds for row in self.kernels)
        costs = self.prices.of_call(sizes)
        return tuple(None if cost is None else cost.seconds for cost in costs)

    def part_of(self, kernel: str) -> PartRow | None:
        """The decision that made a kernel; if it is called several times, that of the first call."""
        return next((row for row in self.parts if kernel in row.kernels), None)


class Prices:
    """The kernels of a module's plans, to be priced for the sizes of calls, in the order of the plans."""

    def __init__(self, module: Module, plans: Mapping[str, Plan], target: Target) -> None:
        self._module = module.with_constants({})
        self._plans = dict(plans)
        self._target = target

    def of_call(self, sizes: Mapping[str, int]) -> list[KernelCost | None]:
        """The cost of each kernel in a call of these sizes; None where it has sizes that these do not determine."""
        known = sizes_of_call(self._module, sizes)
        return [
            cost for name, plan in self._plans.items() for cost in self._costs(name, plan, known.get(name, Sizes()))
        ]

    def _costs(self, name: str, plan: Plan, sizes: Sizes) -> list[KernelCost | None]:
        function = self._module.functions[name]
        assert isinstance(function, GraphFunction)
        model = CostModel(Dataflow(function, aside(plan), sizes), self._target)
        return [
            model.kernel(k.nodes, k.inside, k.beside) if all(v in sizes.known for v in symbols_of(k)) else None
            for k in plan.kernels
        ]


def aside(plan: Plan) -> frozenset[Node]:
    """The nodes of kernels that were recognised as a whole: they are in no memo table."""
    return frozenset(n for p in plan.parts if WHOLE in p.selection.alternatives for n in p.partition.nodes)


def symbols_of(kernel: Kernel) -> tuple[Var, ...]:
    """The symbols in the types of the values that a kernel's nodes read and make."""
    shapes = (v.type.shape for n in kernel.nodes for v in (*n.inputs, *n.outputs))
    return tuple(dict.fromkeys(s for shape in shapes for e in shape for s in variables_of(e)))


def rows_at(sites: Sequence[str], rows: Sequence[str]) -> list[int | None]:
    """The index of the row that each site of a program calls, by the kernels' names; None where there is none. Calls
    are in the plan's order, each at one site or, where a loop alternates between two copies, at several."""
    found: dict[str, list[int]] = {}
    for n, name in enumerate(rows):
        found.setdefault(name, []).append(n)
    names = [name.partition(".")[0] for name in sites]  # functions made from a kernel have its name and a dot
    reached, met = Counter(names), Counter[str]()
    made: list[int | None] = []
    for name in names:
        mine = found.get(name, [])
        made.append(mine[met[name] * len(mine) // reached[name]] if mine else None)
        met[name] += 1
    return made


def report(plans: Mapping[str, Plan], module: Module, planned: Module, target: Target) -> PlanReport:
    """The report on the plans of a module's graph functions, by their names; `planned` is the module that calls the
    kernels."""
    names: dict[Value, str] = {}
    for function in planned.functions.values():
        if isinstance(function, GraphFunction):
            names.update((v, n.attrs.callee) for n in function.nodes if isinstance(n.attrs, Call) for v in n.outputs)
    kernels = [k for plan in plans.values() for k in plan.kernels]
    parts = [part for plan in plans.values() for part in plan.parts if part.kernels]
    rows = tuple(_kernel(k, names) for k in kernels)
    return PlanReport(rows, tuple(_part(part, names) for part in parts), Prices(module, plans, target))


def _kernel(kernel: Kernel, names: Mapping[Value, str]) -> KernelRow:
    cost = kernel.cost
    operators = tuple(node.op.name for node in kernel.nodes if node.inputs)
    times = (cost.read, cost.write, cost.compute, cost.seconds)
    source = tuple(dict.fromkeys(node.source for node in kernel.nodes if node.source))
    work = flops_of(kernel), bytes_of(kernel)
    return KernelRow(_name(kernel, names), kernel.template, operators, *times, source, *work, symbols_of(kernel))


def _part(part: Part, names: Mapping[Value, str]) -> PartRow:
    chosen = part.selection
    kernels = tuple(_name(k, names) for k in part.kernels)
    prices = tuple(chosen.alternatives.items())
    return PartRow(kernels, len(part.partition.points), chosen.priced, chosen.seconds, prices)


def _name(kernel: Kernel, names: Mapping[Value, str]) -> str:
    return names.get(kernel.root.outputs[0], "")
