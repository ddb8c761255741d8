"""Sub-graphs as the bodies of scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const
from tilewright.frontends.build.loop import Loop, Results
from tilewright.frontends.build.problems import Failed
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
) -> Results | None:
    """A scan that runs a sub-graph, whose inputs are the states, then the slices; its outputs are the next states, then
    what is stacked.

    None where a size within a step is dynamic, or changes from step to step: ending.py reads such loops. Where the
    sub-graph draws random numbers, each step has others.
    """
    known, drawn = set(outside.graph.bodies), outside.model.draws
    captured = outside.model.visible(names_used(graph))
    inner = [d for t in scanned for d in t.shape[1:]]
    sizes = [*inner, *(d for t in (*initial, *captured.values()) for d in t.shape)]
    here = "no scan", *place_of_loop(outside, graph), *(known_of(t) for t in (*initial, *scanned, *captured.values()))
    if static_of(sizes) is None or here in outside.model.decided:
        return None
    loop = Loop(outside, "step", steps, initial, scanned, reverse)
    loop.b.step = loop.b.within_step(loop.b.cast(loop.b.of_size(loop.step), dtypes.u64))
    within = {name: loop.inside(t) for name, t in captured.items()}
    results = outside.model.attempt(graph, [*loop.states, *loop.slices], loop.b, within)
    if isinstance(results, Failed) or not _repeats(loop, results, initial):
        outside.model.decided.add(here)
        outside.model.draws = drawn
        outside.graph.forget(known)
        return None
    return loop.finish(results[: len(initial)], results[len(initial) :], stacked)


def place_of_loop(outside: OnnxEmit, graph: GraphProto) -> tuple[object, ...]:
    """Which loop of the model it is that has this body."""
    return outside.graph.source, *(o.name for o in graph.output)


def known_of(tensor: Tensor) -> tuple[object, ...]:
    """How much is known of a tensor: which of its sizes, and of its elements, are numbers."""
    content = None if tensor.content is None else tuple([isinstance(e, Const) for e in tensor.content.reshape(-1)])
    return tensor.dtype, tuple([isinstance(d, Const) for d in tensor.shape]), content


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
