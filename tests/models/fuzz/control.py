"""Recipes of control flow: branches by conditions from data, loops, scans; their graphs capture values from around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper

from fuzz.drawing import BOOLS, Array, Draw
from fuzz.recipes import recipe

KINDS = ("float32", "float32", "float64", "int64", "int32")


def inside(d: Draw, body: Callable[[], list[str]], inputs: list[str] | None = None) -> GraphProto:
    """The graph that a function draws: what it adds is inside, and may read what is around. Its results are those
    that the function names."""
    before, made, known = d.nodes, d.made, set(d.values)
    d.nodes, d.made = [], []
    try:
        results = body()
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(d.values[n].dtype), None)
            for n in inputs or []
        ]
        outputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(d.values[n].dtype), None) for n in results
        ]
        inner: list[NodeProto] = d.nodes
        graph = helper.make_graph(inner, d.name(), infos, outputs)
    finally:
        d.nodes, d.made = before, made
    fresh = d.feeds.keys() | d.constants.keys()
    for name in set(d.values) - known - fresh:
        d.inner[name] = d.values.pop(name)
    return graph


def step(d: Draw, x: str) -> str:
    """A value of the type and shape of x, by operators that are defined for all elements."""
    kind = d.chance.randrange(7)
    whole = d.values[x].dtype.kind != "f"
    if kind == 0:
        return d.node("Add", [x, d.like(x, d.values[x].shape)])[0]
    if kind == 1:
        return d.node("Mul", [x, d.like(x, [])])[0]
    if kind == 2:
        return d.node("Neg" if whole else d.pick(("Tanh", "Neg", "Sigmoid", "Relu", "Abs")), [x])[0]
    if kind == 3:
        return d.node("Max", [x, d.like(x, d.values[x].shape)])[0]
    if kind == 4:
        return d.node("Where", [d.new(BOOLS, d.values[x].shape), x, d.like(x, [])])[0]
    if kind == 5:
        reduced = d.node("ReduceSum", [x])[0]
        return d.node("Sub", [x, reduced])[0]
    return d.node("Sub", [x, d.like(x, d.values[x].shape[1:])])[0]


def steps(d: Draw, x: str) -> str:
    for _ in range(d.chance.choice((1, 1, 2, 3))):
        x = step(d, x)
    return x


def another(d: Draw, x: str) -> str:
    """Something of the type of x, of the same rank, often of other sizes."""
    rank = d.values[x].ndim
    if rank and d.maybe():
        y = d.node("Concat", [x, x], {"axis": d.axis(rank)})[0]
        return steps(d, y) if d.maybe() else y
    return steps(d, x)


def condition(d: Draw) -> str:
    """A truth value: an input, a constant, or what a comparison of elements says."""
    if d.maybe(0.4):
        return d.give(np.array(d.maybe()), 0.3)
    x = d.take(("float32", "int64"), (0, 3))
    total = d.node("ReduceSum", [x], {"keepdims": 0})[0]
    return d.node("Greater", [total, d.like(total, [])])[0]


@recipe(2)
def branch(d: Draw) -> None:
    test = condition(d)
    x = d.take(KINDS, (0, 4))
    count = d.chance.choice((1, 1, 2))

    def body() -> list[str]:
        results = []
        for _ in range(count):
            results.append(another(d, x))
            if d.maybe(0.2):  # a result that is a value from around, as it is
                results[-1] = d.node("Identity", [x])[0]
        return results

    graphs = {"then_branch": inside(d, body), "else_branch": inside(d, body)}
    d.node("If", [test], graphs, count)


def parameter(d: Draw, array: Array) -> str:
    name = d.name()
    d.values[name] = d.inner[name] = array
    return name


@recipe(2)
def loop(d: Draw) -> None:
    states = [d.take(KINDS, (0, 3)) for _ in range(d.chance.choice((1, 1, 2)))]
    trips = d.chance.choice((0, 1, 2, 3, 5, 12))
    i, keep = parameter(d, np.array(0, np.int64)), parameter(d, np.array(True))
    inner = [parameter(d, d.values[s]) for s in states]
    scans = d.chance.choice((0, 1, 1, 2))
    ends = d.maybe(0.3)
    grows = d.maybe(0.15)

    def body() -> list[str]:
        going = d.node("Identity", [keep])[0]
        after = [steps(d, s) for s in inner]
        if grows and d.values[after[0]].ndim:
            after[0] = d.node("Concat", [after[0], inner[0][:0] or inner[0]], {"axis": 0})[0]
        elif d.maybe(0.4):
            counted = d.node("Cast", [i], {"to": int(helper.np_dtype_to_tensor_dtype(d.values[inner[0]].dtype))})[0]
            after[0] = d.node("Add", [after[0], counted])[0]
        if ends:
            limit = d.give(np.array(d.chance.randint(0, 6), np.int64), 0.5)
            going = d.node("Less", [i, limit])[0]
        outs = [d.pick((after[0], *inner[:1])) for _ in range(0 if grows else scans)]
        row = d.integers([-1], constant=1.0)  # the evaluator stacks other ranks along their first dimension
        outs = [d.node("Reshape", [o, row])[0] for o in outs]
        return [going, *after, *outs]

    graph = inside(d, body, [i, keep, *inner])
    for n in (i, keep, *inner):
        d.values.pop(n, None)
    count = len(graph.output) - 1
    most = d.integers(trips, constant=0.5) if not ends or d.maybe(0.7) else ""
    start = d.give(np.array(d.maybe(0.9)), 0.5) if d.maybe(0.4) else ""
    if ends and not most and not start:
        start = d.give(np.array(True), 0.5)
    d.node("Loop", [most, start, *states], {"body": graph}, count)


@recipe(2)
def scan(d: Draw) -> None:
    states = [d.take(KINDS, (0, 2)) for _ in range(d.chance.choice((0, 1, 1, 2)))]
    length = d.chance.choice((1, 2, 3, 5, 12))
    kinds = [d.pick(KINDS) for _ in range(d.chance.choice((1, 1, 2)))]
    ranks = [d.chance.choice((1, 2, 3)) for _ in kinds]
    axes = [d.chance.choice((0, 0, d.axis(r))) for r in ranks]
    given = []
    for kind, rank, axis in zip(kinds, ranks, axes, strict=True):
        shape = d.shape(rank)
        shape[axis] = length
        given.append(d.new((kind,), shape))
    inner = [parameter(d, d.values[s]) for s in states]
    slices = [parameter(d, np.take(d.values[g], 0, a)) for g, a in zip(given, axes, strict=True)]

    def body() -> list[str]:
        after = [steps(d, s) for s in inner]
        if after and d.values[after[0]].dtype == d.values[slices[0]].dtype and d.maybe(0.8):
            total = d.node("ReduceSum", [slices[0]], {"keepdims": 0})[0]
            after[0] = d.node("Add", [after[0], total])[0]
        outs = [steps(d, s) for s in slices[: d.chance.choice((0, 1, 1, 2))]]
        if inner and d.maybe(0.4):
            outs.append(d.node("Identity", [d.pick((after[0], inner[0]))])[0])
        if not after and not outs:
            outs.append(d.node("Identity", [slices[0]])[0])
        return [*after, *outs]

    graph = inside(d, body, [*inner, *slices])
    for n in (*inner, *slices):
        d.values.pop(n, None)
    outs = len(graph.output) - len(states)
    attributes: dict[str, Any] = {"body": graph, "num_scan_inputs": len(given)}
    if any(axes) or d.maybe(0.3):
        attributes["scan_input_axes"] = axes
    attributes |= {} if d.maybe() else {"scan_input_directions": [d.pick((0, 1)) for _ in given]}
    if outs and d.maybe(0.4):
        attributes["scan_output_directions"] = [d.pick((0, 1)) for _ in range(outs)]
    d.node("Scan", [*states, *given], attributes, len(graph.output))
