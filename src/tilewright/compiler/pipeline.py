"""The whole pipeline as one list.

graph     simplify · fold · share · drop · orient constants                what is computed, once each
plan      operators that share a kernel become a loops function            which operators share a kernel
schedule  loops split, jammed, vectorized, marked parallel                 how each kernel runs
memory    the graph of calls as a loops function with an arena
legal     no blocks, one-dimensional buffers, explicit lanes               nothing left to decide
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches

from tilewright.analysis.structure import key_of
from tilewright.compiler.compiled import Compiled, finish, interface_of
from tilewright.compiler.constants import run_functions
from tilewright.compiler.kernels import Kernel, KernelPass, Kernels, on_functions, on_kernels
from tilewright.compiler.legalise import GRAPH, LOOPS, legalise
from tilewright.compiler.subnormals import usual_denormals
from tilewright.core.forced import Forced, forced_in
from tilewright.core.passes import Pass, run_passes
from tilewright.core.switches import ALL_ON, HIGHEST, PLAIN, Switches, read_switches
from tilewright.core.tuned import UNTUNED, Tuned
from tilewright.expr.dtypes import f32
from tilewright.graph.nodes import GraphFunction, Module
from tilewright.loops.nodes import Alloc, Function, seq
from tilewright.loops.transport import dumps, loads
from tilewright.lower.graph.drop_units import drop_units
from tilewright.lower.graph.eliminate_common import eliminate_common
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.fold_constants import fold_constants
from tilewright.lower.graph.keep_packed import keep_packed
from tilewright.lower.graph.lay_columns import lay_columns
from tilewright.lower.graph.lay_out import lay_out
from tilewright.lower.graph.lay_rows import lay_rows
from tilewright.lower.graph.merge_positions import merge_positions
from tilewright.lower.graph.merge_products import merge_products
from tilewright.lower.graph.merge_taps import merge_taps
from tilewright.lower.graph.multiply_integers import multiply_integers
from tilewright.lower.graph.multiply_reciprocals import multiply_reciprocals
from tilewright.lower.graph.multiply_whole import multiply_whole
from tilewright.lower.graph.orient_constants import orient_constants
from tilewright.lower.graph.own_results import own_results
from tilewright.lower.graph.read_in_place import read_in_place
from tilewright.lower.graph.reduce_precision import reduce_precision
from tilewright.lower.graph.shift_signs import shift_signs
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.lower.graph.sink_constants import sink_constants
from tilewright.lower.graph.strassen import strassen
from tilewright.lower.graph.turn_places import turn_places
from tilewright.lower.graph.widen_padding import widen_padding
from tilewright.lower.graph.winograd import winograd
from tilewright.lower.kernels.alternate import alternate
from tilewright.lower.kernels.hoist_constants import hoist_constants, hoist_heads, split_head
from tilewright.lower.kernels.make_kernels import make_kernels
from tilewright.lower.kernels.overwrite import overwrite
from tilewright.lower.kernels.own_states import own_states
from tilewright.lower.kernels.run_late import run_late
from tilewright.lower.kernels.share_out import share_out
from tilewright.lower.loops.wrap import wrap
from tilewright.lower.memory.bufferize import bufferize, lift_temporaries
from tilewright.plan.choose import schedule
from tilewright.plan.decision import Decision
from tilewright.plan.fusion.planner import Plan, choose, unfused
from tilewright.report.errors import UserError
from tilewright.report.logs import debug
from tilewright.runtime.inside import Origin
from tilewright.runtime.interface import Interface, Port
from tilewright.runtime.plan_report import Choices, PlanReport, report
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target, native
from tilewright.types.tensor import TensorType

PLANNED, SCHEDULED = 1, 2
"""The levels from which on operators share kernels, and kernels are scheduled."""

UNSCHEDULED: Pass[Module] = Pass("schedule", lambda module: module, GRAPH)
"""What stands for the pass where it is switched off: later passes know it by its name."""


def pipeline(target: Target, choices: Choices | None = None, switches: Switches = ALL_ON) -> list[Pass[Module]]:
    """Every pass from a front end's module to the program that code generation prints, but for those switched off; a
    plan that is switched off has a kernel for each operator, a schedule leaves kernels as they are defined. `choices`,
    when given, takes what was chosen on the way."""
    chosen = choices or Choices()
    fuses, schedules = switches.wants("plan", PLANNED), switches.wants("schedule", SCHEDULED)
    forced = forced_in(switches.choices)
    if forced and not schedules:
        raise UserError("choices are asked for kernels, and schedules are switched off", fix="take level 2 or 3")
    rounds = switches.bf16 and switches.wants("reduce-precision", HIGHEST)
    passes: list[Pass[Module]] = [
        Pass("simplify", simplify_graph, GRAPH, since=1),
        Pass("keep-packed", lambda module: keep_packed(module, target), GRAPH, since=3),
        Pass("integers", lambda module: multiply_integers(module, target), GRAPH, since=2),
        Pass("whole-numbers", multiply_whole, GRAPH, since=2),
        Pass("fold", fold_constants, GRAPH, since=1),
        Pass("reciprocals", multiply_reciprocals, GRAPH, since=3),
        Pass("sink", sink_constants, GRAPH, since=1),
        Pass("units", drop_units, GRAPH, since=1),
        Pass("lay-columns", lambda module: lay_columns(module, target), GRAPH, since=2),
        Pass("merge", merge_positions, GRAPH, since=1),
        Pass("in-place", lambda module: read_in_place(module, target), GRAPH, since=1),
        Pass("merge-products", merge_products, GRAPH, since=3),
        Pass("turn-places", lambda module: turn_places(module, target), GRAPH, since=2),
        Pass("winograd", lambda module: winograd(module, target, rounds), GRAPH, since=3),
        Pass("merge-taps", lambda module: merge_taps(module, target) if rounds else module, GRAPH, since=HIGHEST),
        Pass("lay-out", lambda module: lay_out(module, target, rounds), GRAPH, since=2),
        Pass("orient", orient_constants, GRAPH, since=2),
        Pass("fold-oriented", fold_constants, GRAPH, since=2),
        Pass("strassen", lambda module: strassen(module, target, rounds), GRAPH, since=3),
        Pass("reduce-precision", lambda m: reduce_precision(m, target) if rounds else m, GRAPH, since=HIGHEST),
        Pass("lay-rows", lambda module: lay_rows(module, target), GRAPH, since=2),
        Pass("shift-signs", lambda module: shift_signs(module, target), GRAPH, since=2),
        Pass("widen", lambda module: widen_padding(module, target), GRAPH, since=2),
        Pass("share", eliminate_common, GRAPH, since=1),
        Pass("drop", eliminate_dead, GRAPH, since=1),
        Pass("own-results", own_results, GRAPH),
        Pass("plan", lambda module: plan_kernels(module, target, chosen, fuses), GRAPH),
        Pass("run-late", run_late, GRAPH, since=2),
        Pass("own-states", own_states, GRAPH),
        schedule_pass(target, chosen, forced, switches.tuned) if schedules else UNSCHEDULED,
        KernelPass("hoist", hoist, GRAPH, 2, alone=without_head, rest=compute_heads),
        on_functions("share-out", lambda function: share_out(function, target), GRAPH, since=2),
        on_functions("overwrite", overwrite, GRAPH, since=1),
        KernelPass("bufferize", bufferize, LOOPS, alone=with_memory_given, rest=lambda module, _: bufferize(module)),
        Pass("alternate", lambda module: alternate(module, target), LOOPS, since=2),
    ]
    return [*switches.choose(passes), *legalise(target, switches)]


def read_pass_switches(level: int, off: Iterable[str], precision: str = PLAIN) -> Switches:
    """The switches that a user asks for, as `core.switches.read_switches` reads them."""
    since = {p.name: p.since for p in pipeline(native())} | {"plan": PLANNED, "schedule": SCHEDULED}
    return read_switches(level, off, since, precision)


def plan_kernels(
    module: Module, target: Target, choices: Choices, fuses: bool = True, plans: dict[str, Plan] | None = None
) -> Module:
    """The module with calls of kernels in its graph functions, each of one operator unless `fuses`; the report on their
    plans goes into `choices`, the plans themselves, by the names of the graph functions, into `plans` where asked."""
    plans = {} if plans is None else plans

    def planned(graph: GraphFunction) -> Plan:
        plans[graph.name] = choose(graph, target) if fuses else unfused(graph, target)
        return plans[graph.name]

    made = make_kernels(module, planned, target.lanes(f32))
    choices.plan = report(plans, module, made, target)
    return made


def schedule_pass(target: Target, chosen: Choices, forced: Mapping[str, Forced], tuned: Tuned = UNTUNED) -> KernelPass:
    """Schedules every kernel, as `forced` says where it names one; what was decided for each goes into `chosen`.
    UserError where `forced` names no kernel."""

    def alone(kernel: Kernel) -> Kernel:
        (function,) = kernel.functions
        made, decision = schedule_kernel(own_symbols(function), target, forced.get(function.name), tuned)
        return replace(kernel, functions=(made.func,), decision=decision)

    def rest(module: Module, kernels: Kernels) -> Module:
        for name in forced:
            if name not in kernels:
                raise _unknown_kernel(name, list(kernels))
        chosen.decisions.update((name, k.decision) for name, k in kernels.items() if k.decision is not None)
        return module

    return on_kernels("schedule", alone, GRAPH, rest=rest)


def schedule_kernel(
    function: Function, target: Target, asked: Forced | None, tuned: Tuned = UNTUNED
) -> tuple[Schedule, Decision]:
    """The schedule of a kernel: the choice that is asked for, else the one that measuring found for it, else the
    cheapest. One that was found and is refused, since the compiler is another one, say, counts for nothing."""
    found = tuned.choices.get(key_of(function)) if tuned and asked is None else None
    if found is not None:
        try:
            made, decision = schedule(function, target, found)
            return made, replace(decision, forced=False, tuned=True)
        except UserError as error:
            debug("a tuned choice of %s is refused: %s", function.name, error.why or error.what)
    return schedule(function, target, asked)


def _unknown_kernel(name: str, kernels: list[str]) -> UserError:
    near = get_close_matches(name, kernels, n=3) or kernels
    fix = f"the kernels are {', '.join(near)}; `tilewright why MODEL` lists all"
    return UserError(f"a choice is asked for {name!r}", why="no kernel of the program is called that", fix=fix)


def hoist(module: Module) -> Module:
    """The module with what kernels compute from constants alone computed."""
    return hoist_constants(module, run_functions)


def without_head(kernel: Kernel) -> Kernel:
    """The kernel without what it computes from constants alone."""
    (function,) = kernel.functions
    head = split_head(function)
    return kernel if head is None else replace(kernel, functions=(head.kernel,), head=head)


def compute_heads(module: Module, kernels: Kernels) -> Module:
    """The module with what the kernels compute from constants alone computed."""
    heads = {name: kernel.head for name, kernel in kernels.items() if kernel.head is not None}
    return hoist_heads(module, heads, run_functions)


def with_memory_given(kernel: Kernel) -> Kernel:
    """The kernel with its buffers in the arena as parameters, and what its callers see of it."""
    (function,) = kernel.functions
    lifted, memory = lift_temporaries(function)
    outside = function.replace(body=seq(*[Alloc(buffer) for buffer in memory]))
    return replace(kernel, functions=(lifted,), outside=outside)


def own_symbols(function: Function) -> Function:
    """The function with symbols of its own. Expressions over them are made with it then, and in the same order wherever
    it is compiled, whatever other kernels have made."""
    made: Function = loads(dumps(function)) if function.symbols else function
    return made


def as_planned(origin: Origin) -> Module:
    """The graphs of an origin as planning gets them: all that is rounded otherwise than the model says is in them."""
    passes = pipeline(origin.target, switches=origin.switches)
    until = [p.name for p in passes].index("plan")
    return run_passes(origin.read(), passes[:until], level=GRAPH)


def plan_of(origin: Origin) -> PlanReport:
    """The plan of an origin; nothing is scheduled for it."""
    choices = Choices()
    plan_kernels(as_planned(origin), origin.target, choices, origin.switches.wants("plan", PLANNED))
    assert choices.plan is not None
    return choices.plan


def lower(module: Module, target: Target, switches: Switches = ALL_ON) -> Compiled:
    """Runs the pipeline and code generation."""
    choices, denormals = Choices(), usual_denormals(module, target, switches.level)
    passes = pipeline(target, choices, switches)
    compiled = finish(module, interface_of(module.graph), passes, target, denormals=denormals)
    compiled.choices, compiled.origin = choices, Origin(lambda: module, target, switches, plan=plan_of)
    return compiled


def lower_function(function: Function, target: Target) -> Compiled:
    """Runs the end of the pipeline for a function that a user wrote or scheduled: every parameter is the caller's."""
    ports = tuple(Port(b.name, TensorType(b.dtype, b.shape)) for b in function.params)
    return finish(wrap(function), Interface(ports, (), function.symbols), legalise(target), target)
