"""Sub-graphs as the bodies of scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const
from tilewright.frontends.build.loop import Loop, Results
from tilewright.frontends.build.reading import Size, static_of
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.emit import OnnxEmit
from tilewright.graph.verify_bodies import binds_sizes

if TYPE_CHECKING:
    from onnx import GraphProto


def scan_graph(
    outside: OnnxEmit,
    graph: GraphProto,
    steps: Size,
    initial: Sequence[Tensor],
    scanned: Sequence[Tensor],
    reverse: Sequence[bool],
    stacked: Sequence[bool],
    before: Sequence[Tensor] = (),
    *,
    draws: bool = False,
) -> Results | None:
    """A scan that runs a sub-graph, whose inputs are the slices when there is something `before` the states, and else
    follow the states. In the first case it is the body of a Loop: its first output says whether to go on.

    None where a size within a step is dynamic, or changes from step to step, and where steps may end early: ending.py
    reads such loops. Where the sub-graph `draws`
    random numbers, each step has others.
    """
    known = set(outside.graph.bodies)
    captured = outside.model.visible(names_used(graph))
    inner = [d for t in scanned for d in t.shape[1:]]
    sizes = [*inner, *(d for t in (*initial, *captured.values()) for d in t.shape)]
    if static_of(sizes) is None:
        return None
    counted = [outside.iota([steps], 0, dtypes.u64)] if draws else []
    loop = Loop(outside, "step", steps, initial, [*scanned, *counted], [*reverse, *(False for _ in counted)])
    slices, drawn = loop.slices[: len(scanned)], outside.model.draws
    for step in loop.slices[len(scanned) :]:
        loop.b.step = loop.b.within_step(step)
    inputs = [*slices, *(loop.inside(t) for t in before), *loop.states] if before else [*loop.states, *slices]
    within = {name: loop.inside(t) for name, t in captured.items()}
    results = outside.model.attempt(graph, inputs, loop.b, within)
    if outside.model.draws > drawn and not draws:
        outside.model.draws = drawn
        outside.graph.forget(known)
        return scan_graph(outside, graph, steps, initial, scanned, reverse, stacked, before, draws=True)
    if results is not None and before:
        proceed, *results = results
        results = results if truth(proceed) else None
    if results is None or not _repeats(loop, results, initial):
        outside.model.draws = drawn
        outside.graph.forget(known)
        return None
    return loop.finish(results[: len(initial)], results[len(initial) :], stacked)


def _repeats(loop: Loop[OnnxEmit], results: Sequence[Tensor], initial: Sequence[Tensor]) -> bool:
    """Whether each step gives what the next one takes, and no step has sizes of its own."""
    if any(t.static_shape() is None for t in results):
        return False
    alike = all((a.dtype, a.shape) == (b.dtype, b.shape) for a, b in zip(results, initial, strict=False))
    return alike and not binds_sizes(loop.b.graph.bodies, loop.b.graph.nodes)


def truth(cond: Tensor) -> bool | None:
    """The condition, when it is a constant of the model or of its shapes."""
    if cond.content is None or cond.content.size != 1:
        return None
    element = cond.content.reshape(-1)[0]
    return bool(element.value) if isinstance(element, Const) else None


def names_used(graph: GraphProto) -> list[str]:
    """The names that the nodes and outputs of a sub-graph use, those of the sub-graphs in it included."""
    found: dict[str, None] = {}
    waiting = [graph]
    while waiting:
        each = waiting.pop()
        found.update(dict.fromkeys(o.name for o in each.output))
        for node in each.node:
            found.update(dict.fromkeys(node.input))
            for attribute in node.attribute:
                waiting += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
    return list(found)
