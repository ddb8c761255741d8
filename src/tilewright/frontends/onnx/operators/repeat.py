"""Scans over tensors of the model: what the handlers of loops build with, and sub-graphs as their bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tilewright.expr.nodes import Const
from tilewright.frontends.onnx.emit import Emit
from tilewright.frontends.onnx.reading import Size, static_of
from tilewright.frontends.onnx.values import AlreadyReported, Tensor, Unsupported
from tilewright.graph.build_scan import ScanBuilder
from tilewright.graph.symbolic import Direction
from tilewright.graph.symbolic import Size as Bound
from tilewright.report.errors import TilewrightError
from tilewright.types.tensor import dim

if TYPE_CHECKING:
    from onnx import GraphProto

    from tilewright.frontends.onnx.importer import Importer

Results = tuple[list[Tensor], list[Tensor]]
"""The states after the last step; the stacked outputs, the steps along their leading axis."""


class Loop:
    """A loop while its body is built with `b`, from `states` and `slices` of the scanned tensors."""

    def __init__(
        self,
        outside: Emit,
        name: str,
        steps: Size,
        initial: Sequence[Tensor],
        scanned: Sequence[Tensor],
        reverse: Sequence[bool],
    ) -> None:
        operands = [(t.value, _direction(back)) for t, back in zip(scanned, reverse, strict=True)]
        self._scan = ScanBuilder(outside.graph, name, dim(steps), [t.value for t in initial], operands)
        self._outside = outside
        self.b = Emit(self._scan.body, outside.importer)
        self.b.opset = outside.opset
        self.states = [self.b.of_value(v) for v in self._scan.states]
        self.slices = [self.b.of_value(v) for v in self._scan.slices]

    def whole(self, tensor: Tensor) -> Tensor:
        """A tensor from outside, as every step sees it."""
        return self.b.of_value(self._scan.whole(tensor.value), tensor.name)

    def inside(self, tensor: Tensor) -> Tensor:
        """A tensor from outside with what is known of it; a parameter of the body when it is used as data."""
        return Tensor(
            self.b,
            tensor.dtype,
            tensor.shape,
            make=lambda: tensor.value,
            content=tensor.content,
            array=tensor.array,
            name=tensor.name,
        )

    def finish(self, states: Sequence[Tensor], stacked: Sequence[Tensor], reverse: Sequence[bool]) -> Results:
        slices = [(t.value, _direction(back)) for t, back in zip(stacked, reverse, strict=True)]
        last, stacks = self._scan.finish([t.value for t in states], slices)
        return [self._outside.of_value(v) for v in last], [self._outside.of_value(v) for v in stacks]


def _direction(reverse: bool) -> Direction:
    return Direction.REVERSE if reverse else Direction.FORWARD


def scan_graph(
    outside: Emit,
    graph: GraphProto,
    steps: Size,
    initial: Sequence[Tensor],
    scanned: Sequence[Tensor],
    reverse: Sequence[bool],
    stacked: Sequence[bool],
    before: Sequence[Tensor] = (),
) -> Results | None:
    """A scan that runs a sub-graph, whose inputs are the slices when there is something `before` the states, and else
    follow the states. In the first case it is the body of a Loop: its first output says whether to go on.

    None where a size within a step is no number, or known to each step alone, or changes from step to step, and where
    steps may end early: such loops are unrolled. So are those that cannot be read here at all, which tells why.
    """
    captured = _visible(outside.importer, names_used(graph))
    inner = [d for t in scanned for d in t.shape[1:]]
    sizes = [*inner, *(d for t in (*initial, *captured.values()) for d in t.shape)]
    if static_of(sizes) is None:
        return None
    loop = Loop(outside, "step", steps, initial, scanned, reverse)
    inputs = [*loop.slices, *(loop.inside(t) for t in before), *loop.states] if before else [*loop.states, *loop.slices]
    within = {name: loop.inside(t) for name, t in captured.items()}
    results = _attempt(outside.importer, graph, inputs, loop.b, within)
    if results is not None and before:
        proceed, *results = results
        results = results if truth(proceed) else None
    if results is None or not _repeats(loop, results, initial):
        return None
    return loop.finish(results[: len(initial)], results[len(initial) :], stacked)


def _visible(importer: Importer, names: Sequence[str]) -> dict[str, Tensor]:
    """Those of the names that are values here."""
    found: dict[str, Tensor] = {}
    for scope in importer.scopes:
        found.update({n: known for n in names if isinstance(known := scope.get(n), Tensor)})
    return found


def _attempt(
    importer: Importer, graph: GraphProto, inputs: Sequence[Tensor], emit: Emit, values: Mapping[str, Tensor]
) -> list[Tensor] | None:
    """The outputs of a sub-graph in another function, where `values` stand for those around it; None where it cannot be
    read there."""
    before = importer.emit, importer.problems
    importer.emit, importer.problems = emit, []
    importer.scopes.append(dict(values))
    try:
        results = importer.body(graph, inputs)
        for tensor in results:
            tensor.value  # noqa: B018  makes its nodes while this is the function
        return None if importer.problems else results
    except (TilewrightError, Unsupported, AlreadyReported):
        return None
    finally:
        importer.scopes.pop()
        importer.emit, importer.problems = before


def _repeats(loop: Loop, results: Sequence[Tensor], initial: Sequence[Tensor]) -> bool:
    """Whether each step gives what the next one takes, and no step has sizes of its own."""
    if any(t.static_shape() is None for t in results):
        return False
    nodes = loop.b.graph.nodes
    alike = all((a.dtype, a.shape) == (b.dtype, b.shape) for a, b in zip(results, initial, strict=False))
    return alike and not any(isinstance(node.attrs, Bound) for node in nodes)


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
