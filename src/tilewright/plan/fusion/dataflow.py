"""The maker and the readers of each value of a graph function, and the sizes that values are assumed to have."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from tilewright.expr.nodes import Const, Expr
from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.graph.op import Pattern
from tilewright.graph.symbolic import Constant
from tilewright.ops.reduce import ReduceAttributes
from tilewright.plan.price.sizes import Sizes


class Reference(NamedTuple):
    """A value that one of its readers may compute itself."""

    value: Value
    reader: Node


@dataclass(slots=True)
class Dataflow:
    """The values of a graph function with their makers and readers; a reader is listed once, however often it reads.
    Nodes in `aside` are planned elsewhere: they recompute the values of maps without inputs. `sizes` are those of a
    call, where they are known."""

    function: GraphFunction
    aside: frozenset[Node] = frozenset()
    sizes: Sizes = field(default_factory=Sizes)
    makers: dict[Value, Node] = field(init=False)
    readers: dict[Value, list[Node]] = field(init=False)
    results: frozenset[Value] = field(init=False)
    constants: frozenset[Value] = field(init=False)
    place: dict[Node, int] = field(init=False)
    shaping: tuple[int, ...] = field(init=False)
    """The places of nodes that bind or check sizes: no node may be moved across them."""
    depths: dict[Value, int] = field(init=False)
    """The most reductions (`reduce` only) on a path of the graph that ends in a value."""
    alike: dict[Node, Hashable] = field(init=False)
    """A key of each reduction, the same for those that one kernel may hold: points, axes and depth."""
    _extents: dict[Expr, int] = field(init=False, default_factory=dict)
    _elements: dict[Value, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        nodes = self.function.nodes
        self.sizes = self.sizes.within(self.function)
        self.makers = {v: node for node in nodes for v in node.outputs}
        self.depths, self.alike = dict.fromkeys(self.function.params, 0), {}
        readers: defaultdict[Value, dict[Node, None]] = defaultdict(dict)
        for node in nodes:
            for v in node.inputs:
                if node not in self.aside or v not in self.makers or not is_free(self.makers[v]):
                    readers[v][node] = None
            depth = max((self.depths.get(v, 0) for v in node.inputs), default=0) + (node.op.name == "reduce")
            self.depths.update(dict.fromkeys(node.outputs, depth))
            if isinstance(node.attrs, ReduceAttributes) and node.attrs.axes:
                self.alike[node] = node.inputs[0].type.shape, frozenset(node.attrs.axes), depth
        self.readers = {v: list(found) for v, found in readers.items()}
        self.results = frozenset(self.function.results)
        self.constants = frozenset(v for node in nodes if isinstance(node.attrs, Constant) for v in node.outputs)
        self.place = {node: n for n, node in enumerate(nodes)}
        self.shaping = tuple([n for n, node in enumerate(nodes) if node.op.pattern is Pattern.SHAPE])

    def readers_of(self, value: Value) -> list[Node]:
        return self.readers.get(value, [])

    def extent(self, e: Expr) -> int:
        """A size as a number that prices may divide by: 1 for an empty dimension."""
        if isinstance(e, Const):
            return max(int(e.value), 1)
        if e not in self._extents:
            self._extents[e] = self.sizes.extent(e)
        return self._extents[e]

    def elements(self, value: Value) -> int:
        if value not in self._elements:
            self._elements[value] = math.prod(self.extent(e) for e in value.type.shape)
        return self._elements[value]

    def bytes(self, value: Value) -> int:
        return self.elements(value) * value.type.dtype.bytes

    def stored(self, value: Value) -> Value:
        """The value that owns this one's memory: itself, or the value it is a view of."""
        maker = self.makers.get(value)
        while maker is not None and maker.op.pattern is Pattern.VIEW:
            value = maker.inputs[0]
            maker = self.makers.get(value)
        return value


def is_free(node: Node) -> bool:
    """Whether a node is a map without inputs. Its value is recomputed wherever it is used, so it joins no
    partitions."""
    return node.op.pattern is Pattern.MAP and not node.inputs


def makes_kernels(node: Node) -> bool:
    """Whether a node computes something: views, and nodes that name or bind values, do not."""
    return node.op.pattern not in (Pattern.VIEW, Pattern.SHAPE)
