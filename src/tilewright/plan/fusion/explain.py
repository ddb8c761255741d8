"""A plan as a report: the operators of each kernel, its predicted time, its flops and bytes, and what else was priced.

Times are predicted seconds of one core, for the sizes that `plan/price/sizes.py` assumes. `PlanReport.predict` gives
those for the sizes of a call. Flops and bytes are expressions over the sizes of the graph, with which reports compare
measured times. Each operator counts once at the points of its own results, however often a kernel recomputes it. Bytes
are those of all values that the kernel reads or writes, each once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.analysis.cost import count_flops, total_of
from tilewright.expr.build import minimum
from tilewright.expr.nodes import Expr, Var
from tilewright.expr.variables import variables_of
from tilewright.graph.nodes import GraphFunction, Module, Value
from tilewright.graph.symbolic import Call
from tilewright.loops.nodes import Function
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.kernels import Kernel
from tilewright.plan.fusion.planner import Plan
from tilewright.plan.price.kernels import CostModel, KernelCost
from tilewright.plan.price.sizes import Sizes, sizes_of_call
from tilewright.store import Json
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A call of a kernel: the function, its template, its operators in program order; the predicted seconds of reading,
    of writing, of computing and in all; the front end's operators that it was made of; its flops and bytes; and the
    symbols of its sizes. If there are none, its times hold for all calls."""

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


@dataclass(frozen=True, slots=True)
class Prices:
    """The kernels of a module's plans, to be priced for the sizes of calls, in the order of the plans."""

    module: Module
    plans: Mapping[str, Plan]
    target: Target

    def of_call(self, sizes: Mapping[str, int]) -> list[KernelCost | None]:
        """The cost of each kernel in a call of these sizes; None where it has sizes that these do not determine."""
        found: list[KernelCost | None] = []
        known = sizes_of_call(self.module, sizes)
        for name, plan in self.plans.items():
            function, own = self.module.functions[name], known.get(name, Sizes())
            assert isinstance(function, GraphFunction)
            model = CostModel(Dataflow(function, plan.aside, own), self.target)
            for k in plan.kernels:
                is_known = all(v in own.known for v in symbols_of(k))
                found.append(model.kernel(k.nodes, k.inside, k.beside) if is_known else None)
        return found


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
    flops = {name: count_flops(f) for name, f in planned.functions.items() if isinstance(f, Function)}
    rows = tuple(_kernel(k, names[k.outputs[0]], flops) for plan in plans.values() for k in plan.kernels)
    parts = tuple(
        PartRow(
            tuple(names[k.outputs[0]] for k in part.kernels),
            len(part.partition.points),
            part.selection.priced,
            part.selection.seconds,
            tuple(part.selection.alternatives.items()),
        )
        for plan in plans.values()
        for part in plan.parts
        if part.kernels
    )
    return PlanReport(rows, parts, Prices(module.with_constants({}), dict(plans), target))


def _kernel(kernel: Kernel, name: str, flops: Mapping[str, Expr]) -> KernelRow:
    cost = kernel.cost
    operators = tuple(node.op.name for node in kernel.nodes if node.inputs)
    source = tuple(dict.fromkeys(node.source for node in kernel.nodes if node.source))
    written = [v.type.size * v.type.dtype.bytes for v in kernel.outputs]
    moved = total_of([*(_read(kernel, v) * v.type.dtype.bytes for v in kernel.reads()), *written])
    times = (cost.read, cost.write, cost.compute, cost.seconds)
    return KernelRow(name, kernel.template, operators, *times, source, flops[name], moved, symbols_of(kernel))


def _read(kernel: Kernel, value: Value) -> Expr:
    """The elements of a value that a kernel reads. From a table, at most the rows that it gathers."""
    readers = [node for node in kernel.nodes if value in node.inputs]
    if any(not node.op.reads_part or value in node.inputs[1:] for node in readers):
        return value.type.size
    return minimum(value.type.size, total_of([node.outputs[0].type.size for node in readers]))
