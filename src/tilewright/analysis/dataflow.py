"""The maker and the readers of each value of a graph function, and the sizes that values are assumed to have."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable
from functools import cache
from typing import NamedTuple

from tilewright.analysis.sizes import Sizes
from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.graph.op import Pattern
from tilewright.graph.symbolic import Constant
from tilewright.ops.reduce import ReduceAttributes


class Reference(NamedTuple):
    """A value that one of its readers may compute itself."""

    value: Value
    reader: Node


class Dataflow:
    """The values of a graph function with their makers and readers; a reader is listed once, however often it reads.
    Nodes in `aside` are planned elsewhere: they recompute the values of maps without inputs. `sizes` are those of a
    call, where they are known.

    place       the position of each node
    shaping     the places of nodes that bind or check sizes: no node may be moved across them
    depths      the most reductions (`reduce` only) on a path of the graph that ends in a value
    alike       a key of each reduction, the same for those that one kernel may hold: points, axes and depth
    extent      a size as a number that prices may divide by: 1 for an empty dimension
    elements    those of a value
    """

    def __init__(
        self, function: GraphFunction, aside: frozenset[Node] = frozenset(), sizes: Sizes | None = None
    ) -> None:
        nodes, self.function, self.aside = function.nodes, function, aside
        self.sizes = (sizes or Sizes()).within(function)
        self.extent = cache(self.sizes.extent)
        self.elements = cache(self._elements)
        self.makers = {v: node for node in nodes for v in node.outputs}
        self.results = frozenset(function.results)
        self.constants = frozenset(v for node in nodes if isinstance(node.attrs, Constant) for v in node.outputs)
        self.place = {node: n for n, node in enumerate(nodes)}
        self.shaping = tuple([n for n, node in enumerate(nodes) if node.op.pattern is Pattern.SHAPE])
        self.depths = dict.fromkeys(function.params, 0)
        self.alike: dict[Node, Hashable] = {}
        readers: defaultdict[Value, dict[Node, None]] = defaultdict(dict)
        for node in nodes:
            for v in node.inputs:
                if node not in aside or v not in self.makers or not is_free(self.makers[v]):
                    readers[v][node] = None
            depth = max((self.depths[v] for v in node.inputs), default=0)
            if isinstance(node.attrs, ReduceAttributes):
                depth += 1
                if node.attrs.axes:
                    self.alike[node] = node.inputs[0].type.shape, frozenset(node.attrs.axes), depth
            self.depths.update(dict.fromkeys(node.outputs, depth))
        self._readers = {v: list(found) for v, found in readers.items()}

    def readers_of(self, value: Value) -> list[Node]:
        return self._readers.get(value, [])

    def _elements(self, value: Value) -> int:
        return math.prod(map(self.extent, value.type.shape))

    def bytes(self, value: Value) -> int:
        return self.elements(value) * value.type.dtype.bytes

    def stored(self, value: Value) -> Value:
        """The value that owns this one's memory: itself, or the value it is a view of."""
        while (maker := self.makers.get(value)) is not None and maker.op.pattern is Pattern.VIEW:
            (value,) = maker.inputs
        return value


def is_free(node: Node) -> bool:
    """Whether a node is a map without inputs. Its value is recomputed wherever it is used, so it joins no
    partitions."""
    return node.op.pattern is Pattern.MAP and not node.inputs


def makes_kernels(node: Node) -> bool:
    """Whether a node computes something: views, and nodes that name or bind values, do not."""
    return node.op.pattern not in (Pattern.VIEW, Pattern.SHAPE)
