"""All there is to say of one kernel, where the program calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.analysis.dataflow import Reference, is_free
from tilewright.explain.answer import RESULT, Joined, KernelAnswer, Neighbour, Operator, Reason
from tilewright.explain.layout import layouts
from tilewright.explain.program import Place, ProgramFacts
from tilewright.explain.reasons import why_apart, why_joined
from tilewright.explain.ways import verdict, ways_of
from tilewright.graph.nodes import Node, Value
from tilewright.runtime.plan_report import PartRow

UNSCHEDULED = "nothing: schedules are switched off"


def explain_kernel(program: ProgramFacts, place: Place, sizes: Mapping[str, int]) -> KernelAnswer:
    """The facts of a kernel at a place where the program calls it; its price is that of a call of these sizes, by the
    names of the symbols."""
    kernel, graph = place.kernel, place.graph
    cost, guessed = program.cost(place, sizes)
    _, schedule, decision = program.schedule(place.name)
    part = graph.part_of(kernel)
    ways = () if decision is None else ways_of(decision)
    return KernelAnswer(
        name=place.name,
        number=place.number,
        template=kernel.template,
        operators=tuple(_operator(place, n) for n in kernel.nodes if n.inputs),
        source=sources(place),
        calls=tuple(sources(p) for p in program.places if p.name == place.name),
        price=cost,
        choice=None if part is None else PartRow.of(part, program.callees),
        joined=tuple(_joined(place)),
        neighbours=tuple(_neighbours(program, place)),
        layouts=layouts(program, place),
        scheduled_by=UNSCHEDULED if decision is None else decision.template,
        ways=ways,
        chosen=verdict(ways, decision) if decision is not None and ways else "",
        refusals=() if decision is None else tuple(map(str, decision.refusals)),
        schedule=str(schedule.trace),
        assumed=guessed,
    )


def sources(place: Place) -> tuple[str, ...]:
    """The front end's operators that a kernel was made of; those of numbers that it makes itself only where it makes
    nothing else."""
    nodes = [n for n in place.kernel.nodes if not is_free(n)] or place.kernel.nodes
    return tuple(dict.fromkeys(n.source for n in nodes if n.source))


def _operator(place: Place, node: Node) -> Operator:
    value = node.outputs[0]
    return Operator(node.op.name, place.graph.name(value), str(value.type), node.source)


def _joined(place: Place) -> Iterator[Joined]:
    """The values that a kernel computes for itself; not those that read nothing, which are made wherever they are
    used."""
    flow = place.graph.flow
    for node in place.kernel.nodes:
        for v in node.outputs:
            readers = [n for n in place.kernel.nodes if Reference(v, n) in place.kernel.inside]
            if readers and not is_free(node):
                names = tuple(dict.fromkeys(n.op.name for n in readers))
                reason = why_joined(place.graph, v, place)
                yield Joined(place.graph.name(v), str(v.type), flow.bytes(v), node.op.name, names, reason)


def _neighbours(program: ProgramFacts, place: Place) -> Iterator[Neighbour]:
    graph, flow = place.graph, place.graph.flow
    own = [p for p in program.places if p.graph is graph]
    makers = {v: p for p in own for v in p.kernel.outputs}
    for v in place.kernel.reads():
        readers = [n for n in place.kernel.nodes if v in n.inputs and Reference(v, n) not in place.kernel.inside]
        maker = makers.get(flow.stored(v))
        yield _neighbour(place, "producer", maker, v, readers, why_apart(graph, v, maker, place, readers[0]))
    for out in place.kernel.outputs:
        for other in own:
            for v in other.kernel.reads():
                if flow.stored(v) is out and other is not place:
                    readers = [
                        n for n in other.kernel.nodes if v in n.inputs and Reference(v, n) not in other.kernel.inside
                    ]
                    yield _neighbour(
                        place, "consumer", other, v, readers, why_apart(graph, v, place, other, readers[0])
                    )
        for v, name in zip(graph.function.results, graph.function.result_names, strict=True):
            if flow.stored(v) is out:
                text = f"the {'model' if graph.function.name == program.before.entry else 'loop'} gives it as {name}"
                yield _neighbour(place, "consumer", None, v, [], Reason(RESULT, text))


def _neighbour(
    place: Place, role: str, other: Place | None, value: Value, readers: list[Node], reason: Reason
) -> Neighbour:
    return Neighbour(
        role,
        "" if other is None else other.name,
        None if other is None else other.number,
        place.graph.name(value),
        str(value.type),
        place.graph.flow.bytes(value),
        tuple(dict.fromkeys(n.op.name for n in readers)),
        reason,
    )
