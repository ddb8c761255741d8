"""Why two operators are in one kernel, or are not: what templates say, and what the plan would cost the other way.

A value between two kernels is asked about in the order in which the plan decides:

    does a template take both?       templates.py; the operators' own templates say why not
    was it left out of the search?   partitions.py: kernels that are too large, values that are stored anyway, …
    what would it cost?              the prices of the plan with this reference, the others as they are or chosen anew
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.analysis.dataflow import Reference, makes_kernels
from tilewright.explain.answer import (
    CHEAPER,
    CONSTANT,
    DEARER,
    INPUT,
    LEFT_OUT,
    NO_TEMPLATE,
    ONLY_WAY,
    RESULT,
    Reason,
)
from tilewright.explain.program import Place, PlannedGraph
from tilewright.graph.nodes import Node, Value
from tilewright.plan.fusion.kernels import Cut, Kernels
from tilewright.plan.fusion.partitions import KERNEL_NODES
from tilewright.plan.fusion.planner import ATTENTION, PIECES, Part
from tilewright.plan.fusion.templates import Entries, refusals, take

ROUNDS = 4
"""Rounds of changing one point after another, in search of the cheapest plan with a reference."""


def why_apart(graph: PlannedGraph, value: Value, maker: Place | None, reader: Place, node: Node) -> Reason:
    """Why `node`, in `reader`, reads a value from memory; `maker` is the kernel that stores it, if one does."""
    stored = graph.flow.stored(value)
    if stored in graph.flow.constants:
        return Reason(CONSTANT, "it is a constant: no kernel computes it at a call")
    if stored not in graph.flow.makers:
        return Reason(INPUT, "the caller gives it")
    if maker is None:
        return Reason(NO_TEMPLATE, f"{graph.flow.makers[stored].op.name} is no operator of a kernel")
    apart = _without_prices(graph, value, maker, reader, node)
    return apart if apart is not None else _by_prices(graph, Reference(value, node), maker, reader)


def _without_prices(graph: PlannedGraph, value: Value, maker: Place, reader: Place, node: Node) -> Reason | None:
    """The reason where no price is needed: no template takes both operators. None where one does."""
    made_by = graph.flow.makers[value]
    for place in (maker, reader):
        if place.kernel.template == ATTENTION:
            held = "two products, what is done to scores between them, and the movement of data around them"
            refused = ((ATTENTION, f"it holds {held}, and {_of(place, node, made_by)} is beyond that"),)
            return Reason(NO_TEMPLATE, "no template takes both operators", refused)
    if not makes_kernels(made_by):
        text = f"{made_by.op.name} is between them: it is a view of memory in another shape, so its input is stored"
        return Reason(NO_TEMPLATE, text)
    if len(made_by.outputs) != 1:
        return Reason(NO_TEMPLATE, f"{made_by.op.name} has several results: nothing follows it in its kernel")
    if Reference(value, node) in graph.memo.references:
        return None
    entries = tuple(e for e in graph.memo.entries.get(made_by, ()) if e.is_open)
    if not entries:
        return Reason(NO_TEMPLATE, f"nothing follows {made_by.op.name} in its kernel")
    said = refusals(node, {value: entries}, graph.flow)
    return Reason(NO_TEMPLATE, f"no template takes both {made_by.op.name} and {node.op.name}", said)


def _of(place: Place, node: Node, made_by: Node) -> str:
    return made_by.op.name if node in place.kernel.nodes else node.op.name


def _by_prices(graph: PlannedGraph, reference: Reference, maker: Place, reader: Place) -> Reason:
    part = graph.part_of(reader.kernel)
    if part is None or part.is_whole:
        return Reason(LEFT_OUT, "plans are switched off: each operator is a kernel")
    kernels = graph.priced(part)
    if reference not in part.partition.references:
        return _left_out(graph, reference, maker, reader)
    bit = kernels.cut([reference])
    planned = part.selection.seconds
    instead = kernels.seconds(part.selection.cut & ~bit)
    if planned <= instead < math.inf:
        return Reason(_result_or(graph, reference, DEARER), _dearer(graph, reference), (), planned, instead)
    refused = _refused(graph, kernels, part.selection.cut & ~bit, part, reference)
    best = _cheapest(kernels, part.selection.cut, lambda cut: cut & ~bit, _points(kernels, part))
    text = "with the rest of the plan as it is, no template takes the kernel that it would make"
    if best < planned:
        text += "; of so many plans, one with it that is priced lower was not found"
        return Reason(LEFT_OUT, text, refused, planned, best)
    if not math.isinf(best):
        text += "; the cheapest plan found with it computed there is dearer"
    return Reason(_result_or(graph, reference, DEARER), text, refused, planned, best)


def _dearer(graph: PlannedGraph, reference: Reference) -> str:
    if reference.value in graph.flow.results:
        return "it is a result, and stored in any case; to compute it again where it is read is dearer than to read it"
    if len(graph.flow.readers_of(reference.value)) > 1:
        return "to compute it in the kernel that reads it is dearer than to store it once for all that do"
    return "to compute it in the kernel that reads it is dearer than to store it"


def _result_or(graph: PlannedGraph, reference: Reference, kind: str) -> str:
    return RESULT if reference.value in graph.flow.results else kind


def _left_out(graph: PlannedGraph, reference: Reference, maker: Place, reader: Place) -> Reason:
    """A reference that a rule left out before plans were priced, with the price of the two kernels as one."""
    together = tuple(sorted({*maker.kernel.nodes, *reader.kernel.nodes}, key=lambda n: graph.flow.place[n]))
    if len(together) > KERNEL_NODES:
        why = f"one kernel would hold {len(together)} operators, and the most is {KERNEL_NODES}"
        return Reason(LEFT_OUT, f"it was not priced: {why}")
    inside = maker.kernel.inside | reader.kernel.inside | {reference}
    found, refused = _checked(graph, together, inside)
    stays = len(graph.flow.readers_of(reference.value)) > 1 or reference.value in graph.flow.results
    planned = maker.kernel.cost.seconds + reader.kernel.cost.seconds
    if not found:
        return Reason(NO_TEMPLATE, "no template takes the kernel that it would make", refused)
    one = graph.model.kernel(together, inside).seconds + (maker.kernel.cost.seconds if stays else 0.0)
    text = "of a part of the graph with many choices, plans that hardly pay are not priced, and those with it are such"
    return Reason(_result_or(graph, reference, LEFT_OUT), text, (), planned, one)


def _refused(
    graph: PlannedGraph, kernels: Kernels, cut: Cut, part: Part, reference: Reference
) -> tuple[tuple[str, str], ...]:
    """What templates say of the kernel that computes `reference`, under an assignment that has no price."""
    taken = [r for r in part.partition.references if not kernels.cut([r]) & cut]
    into: dict[Node, list[Reference]] = {}
    for r in taken:
        into.setdefault(r.reader, []).append(r)
    out = {r.value: r.reader for r in taken}
    root = reference.reader
    while root.outputs[0] in out:
        root = out[root.outputs[0]]
    held: dict[Node, None] = {root: None}
    waiting = [root]
    while waiting:
        for r in into.get(waiting.pop(), ()):
            made_by = graph.flow.makers[r.value]
            if made_by not in held:
                held[made_by] = None
                waiting.append(made_by)
    nodes = sorted(held, key=lambda n: graph.flow.place[n])
    return _checked(graph, nodes, frozenset(r for r in taken if r.reader in held))[1]


def _checked(
    graph: PlannedGraph, nodes: Sequence[Node], inside: frozenset[Reference]
) -> tuple[Entries, tuple[tuple[str, str], ...]]:
    """What a kernel of these nodes, in program order, is at its last one; or nothing, and what templates say of the
    first node that none of them takes."""
    at: dict[Node, Entries] = {}
    for node in nodes:
        fused = {v: at[graph.flow.makers[v]] for v in dict.fromkeys(node.inputs) if Reference(v, node) in inside}
        at[node] = take(node, fused, graph.flow)
        if not at[node]:
            return (), refusals(node, fused, graph.flow)
    return at[nodes[-1]], ()


def _points(kernels: Kernels, part: Part) -> list[Cut]:
    return [kernels.cut([p]) for p in part.partition.points]


def _cheapest(kernels: Kernels, cut: Cut, held: Callable[[Cut], Cut], points: Sequence[Cut]) -> float:
    """The price of the cheapest assignment that a greedy pass finds from a few ends, all of them as `held` makes
    them."""
    best = math.inf
    for start in dict.fromkeys(held(c) for c in (cut, 0, sum(points))):
        current, least = start, kernels.seconds(start)
        for _ in range(ROUNDS):
            turned = min(
                ((kernels.seconds(held(current ^ p)), held(current ^ p)) for p in points), default=(math.inf, 0)
            )
            if turned[0] >= least:
                break
            least, current = turned
        best = min(best, least)
    return best


def why_joined(graph: PlannedGraph, value: Value, place: Place) -> Reason:
    """Why a value that a kernel computes for itself is not stored instead."""
    part = graph.part_of(place.kernel)
    if part is None:
        return Reason(ONLY_WAY, "plans are switched off: what reads nothing is made where it is used")
    planned = part.selection.seconds
    if part.is_whole:
        best = min(s for name, s in part.selection.alternatives.items() if name == PIECES)
        return Reason(
            CHEAPER, "the whole attention in one kernel is cheaper than the best plan by templates", (), planned, best
        )
    kernels = graph.priced(part)
    bits = kernels.cut([r for r in part.partition.references if r.value is value])
    if part.selection.cut & bits == bits:
        return Reason(RESULT, "it is stored: another kernel reads it, or it is a result")
    points = _points(kernels, part)
    instead = kernels.seconds(part.selection.cut | bits)
    if math.isinf(instead):
        instead = _cheapest(kernels, part.selection.cut, lambda cut: cut | bits, points)
    if math.isinf(instead):
        return Reason(
            ONLY_WAY, "no plan was found that stores it: what makes it is no kernel of its own", (), planned, None
        )
    text = "to store it is dearer than to compute it where it is used"
    if instead < planned:
        text = "what one kernel alone reads is not stored; here the model prices that lower"
    return Reason(CHEAPER, text, (), planned, instead)
