"""A program on its way from the front end to its schedules: what explanations are made from.

front end ──▶ … ──▶ own-results ──plan──▶ kernels ──▶ own-states ──▶ each kernel scheduled, when asked for
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tilewright.analysis.dataflow import Dataflow
from tilewright.analysis.sizes import Sizes, sizes_of_call
from tilewright.compiler.legalise import GRAPH
from tilewright.compiler.pipeline import PLANNED, SCHEDULED, own_symbols, pipeline, plan_kernels, schedule_kernel
from tilewright.core.forced import forced_in
from tilewright.core.passes import Record, run_passes
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import Pattern
from tilewright.graph.symbolic import Constant
from tilewright.graph.text import describe
from tilewright.loops.nodes import Function
from tilewright.plan.decision import Decision
from tilewright.plan.fusion.kernels import Kernel, Kernels
from tilewright.plan.fusion.planner import Part, Plan
from tilewright.plan.fusion.templates import Memo, explore
from tilewright.plan.price.kernels import CostModel, KernelCost
from tilewright.report.errors import UserError
from tilewright.runtime.inside import Origin
from tilewright.runtime.plan_report import Choices, callees_of
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A kernel where a graph calls it: the kernel of the plan, the graph, the function it is, its number among these,
    and how many kernels that are the same function are called before it."""

    kernel: Kernel
    graph: PlannedGraph
    name: str
    number: int
    turn: int


class PlannedGraph:
    """A graph function with its plan, and what the plan was priced by."""

    def __init__(self, function: GraphFunction, plan: Plan, target: Target) -> None:
        self.function = function
        self.plan = plan
        self.flow = Dataflow(function, plan.aside)
        self.model = CostModel(self.flow, target)
        self._priced: dict[int, Kernels] = {}
        self._name = describe(function).printer.name

    @cached_property
    def memo(self) -> Memo:
        """Which values their readers may compute themselves."""
        return explore(self.flow)

    def name(self, value: Value) -> str:
        """What the value is called in the graph's text."""
        return self._name(value)

    def part_of(self, kernel: Kernel) -> Part | None:
        """The partition that a kernel came from; None where nothing was decided."""
        return next((p for p in self.plan.parts if any(k is kernel for k in p.kernels)), None)

    def priced(self, part: Part) -> Kernels:
        """What any assignment of a partition's references costs."""
        if id(part) not in self._priced:
            self._priced[id(part)] = Kernels(part.partition, self.model)
        return self._priced[id(part)]


class ProgramFacts:
    """The program of an origin, planned; kernels are scheduled when they are asked for."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.first = origin.read()
        self.record: Record[Module] = Record()
        choices, plans = Choices(), dict[str, Plan]()
        passes = pipeline(origin.target, choices, origin.switches)
        names = [p.name for p in passes]
        at, end = names.index("plan"), names.index("own-states") + 1
        self.before = run_passes(self.first, passes[:at], level=GRAPH, record=self.record)
        self.fuses = origin.switches.wants("plan", PLANNED)
        self.planned = plan_kernels(self.before, origin.target, choices, self.fuses, plans)
        self.callees = callees_of(self.planned)
        self.kernels = run_passes(self.planned, passes[at + 1 : end], level=GRAPH)
        self.report = choices.plan
        self.graphs = {
            name: PlannedGraph(_graph(self.before, name), plan, origin.target) for name, plan in plans.items()
        }
        self.names = [name for name, f in self.kernels.functions.items() if isinstance(f, Function)]
        self.places = self._places()
        self._scheduled: dict[str, tuple[Function, Schedule, Decision | None]] = {}

    def cost(self, place: Place, sizes: Mapping[str, int]) -> tuple[KernelCost, tuple[tuple[str, int], ...]]:
        """What a kernel is expected to cost in a call of these sizes, by the names of the symbols, and what is assumed
        of those of its sizes that these do not tell."""
        known = sizes_of_call(self.before, sizes).get(place.graph.function.name, Sizes())
        flow = Dataflow(place.graph.function, place.graph.flow.aside, known)
        kernel = place.kernel
        guessed = tuple(sorted((v.name, flow.sizes.of(v)) for v in kernel.symbols if v not in known.known))
        if not known.known:
            return kernel.cost, guessed
        return CostModel(flow, self.origin.target).kernel(kernel.nodes, kernel.inside, kernel.beside), guessed

    def _places(self) -> list[Place]:
        """The kernels of all graphs, in the order of the plans."""
        turns: dict[str, int] = {}
        found: list[Place] = []
        for graph in self.graphs.values():
            for kernel in graph.plan.kernels:
                name = self.callees[kernel.root.outputs[0]]
                turns[name] = turns.get(name, -1) + 1
                found.append(Place(kernel, graph, name, self.names.index(name), turns[name]))
        return found

    def schedule(self, name: str) -> tuple[Function, Schedule, Decision | None]:
        """A kernel as the plan defines it, its schedule, and how it came to that; no decision where schedules are
        switched off."""
        if name not in self._scheduled:
            kernel = self.kernels.functions[name]
            assert isinstance(kernel, Function)
            defined = own_symbols(kernel)
            if self.origin.switches.wants("schedule", SCHEDULED):
                switches, target = self.origin.switches, self.origin.target
                asked = forced_in(switches.choices).get(name)
                self._scheduled[name] = (defined, *schedule_kernel(defined, target, asked, switches.tuned))
            else:
                self._scheduled[name] = defined, Schedule(defined), None
        return self._scheduled[name]

    @cached_property
    def constants(self) -> Mapping[str, str]:
        """The pass that made each constant of the planned program; no pass for those of the front end."""
        made = dict.fromkeys(self.first.constants, "")
        for stage in self.record:
            made.update((name, stage.name) for name in stage.program.constants if name not in made)
        return made

    def last_pass_with(self, source: str) -> str | None:
        """The pass after which no operator says that it comes from `source`; None where some operator of the plan
        does."""
        for stage in self.record:
            if not any(n.source == source for n in nodes_of(stage.program)):
                return stage.name
        return None


def nodes_of(module: Module) -> list[Node]:
    """The nodes of all graph functions."""
    return [n for f in module.functions.values() if isinstance(f, GraphFunction) for n in f.nodes]


def is_constant(node: Node) -> bool:
    """Whether a node names a constant of the module."""
    return isinstance(node.attrs, Constant)


def is_view(node: Node) -> bool:
    """Whether the result of a node is a view of its input."""
    return node.op.pattern is Pattern.VIEW


def _graph(module: Module, name: str) -> GraphFunction:
    found = module.functions[name]
    assert isinstance(found, GraphFunction)
    return found


def facts_of(origin: Origin | None) -> ProgramFacts:
    """The program of an origin. UserError where there is none."""
    if origin is None:
        raise UserError(
            "there is no plan to explain",
            why="a loops function is one kernel already, and who built it scheduled it",
            fix="print the trace of its schedule: s.trace.explain()",
        )
    return ProgramFacts(origin)
