"""What a kernel costs: start + write + max(read, compute), in seconds of one core.

Reads count each value from memory once, at the bandwidth of the nearest cache that holds it; what a kernel computes for
itself costs its operations alone. This is the model of Boehm et al., "On Optimizing Operator Fusion Plans for
Large-Scale Machine Learning in SystemML" (PVLDB 2018), with the machine's own bandwidths and peaks, and with the
register tiles of `plan/tile/registers.py` for sums of products.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tilewright.expr import dtypes
from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.ops.index_maps import Spec, parse
from tilewright.ops.window import WindowReduceAttributes
from tilewright.plan.dot.instruction import choose_dot
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.memo import Reference
from tilewright.plan.tile.registers import FMA_PORTS, choose_register_tile, hertz, tile_cycles, tile_registers
from tilewright.target import Target

START = 0.6e-6
"""Seconds that calling a kernel takes, its loops' beginnings included."""

CACHE_SHARE = 1 / 2
"""A value of at most this part of a cache is taken to be found there."""

CYCLES: dict[str, float] = {
    "div": 5,
    "floordiv": 12,
    "mod": 12,
    "rem": 12,
    "sqrt": 6,
    "pow": 45,
    "exp": 11,
    "expm1": 14,
    "log": 15,
    "log1p": 18,
    "sin": 20,
    "cos": 20,
    "tan": 25,
    "asin": 20,
    "acos": 20,
    "atan": 20,
    "sinh": 20,
    "cosh": 20,
    "tanh": 20,
    "asinh": 30,
    "acosh": 30,
    "atanh": 30,
    "erf": 24,
    "sigmoid": 15,
    "reshape": 0,
    "transpose": 3,
    "take": 3,
    "gather_elements": 8,
    "gather_nd": 8,
    "concat": 2,
    "pad": 2,
    "top_k": 100,
    "compact": 20,
    "cumulative": 8,
    "scatter_elements": 16,
    "scatter_nd": 16,
    "arg_reduce": 4,
}
"""Cycles for a vector of results, measured; of an operator that is not here, one."""

PARTIAL = frozenset({"slice", "take", "gather_elements", "gather_nd"})
"""Operators that need not read all of what they read from."""

SPREAD = 0.35
"""The share of the peak that sums reach whose products keep channels apart."""


@dataclass(frozen=True, slots=True)
class KernelCost:
    """Seconds to read, to write and to compute, and what the kernel takes in all."""

    read: float
    write: float
    compute: float

    @property
    def seconds(self) -> float:
        return START + self.write + max(self.read, self.compute)


class CostModel:
    """Prices of kernels of one graph function on one machine."""

    def __init__(self, flow: Dataflow, target: Target) -> None:
        self._flow = flow
        self._target = target
        self._hertz = hertz(target)
        weights = sum(flow.bytes(v) for v in flow.constants)
        self._weights_stay = weights <= target.caches[-1].bytes * CACHE_SHARE
        self._compute: dict[Node, float] = {}
        self._transfer: dict[Value, float] = {}
        self._results: dict[Node, int] = {}

    def kernel(self, nodes: Sequence[Node], inside: Collection[Reference], beside: Collection[Node] = ()) -> KernelCost:
        """The cost of a kernel of these nodes in program order, that computes the references inside it itself and reads
        all else. The outputs of the last node and of those beside it are written."""
        points = self._evaluated(nodes, inside)
        compute = sum(self.compute(node) * points[node] / max(self._points(node), 1) for node in nodes)
        read: dict[Value, float] = {}
        for node in nodes:
            for v in dict.fromkeys(node.inputs):
                if Reference(v, node) not in inside:
                    part = min(points[node] / max(self._flow.elements(v), 1), 1.0) if node.op.name in PARTIAL else 1.0
                    read[v] = max(read.get(v, 0.0), self.transfer(v) * part)
        written = sum(self.transfer(v) for node in (*beside, nodes[-1]) for v in node.outputs)
        return KernelCost(sum(read.values()), written, compute)

    def _evaluated(self, nodes: Sequence[Node], inside: Collection[Reference]) -> dict[Node, int]:
        """How often each node's expression is computed in a kernel: a map at every point of what reads it, or once a
        row where a row sees one value; for a contraction, which reads it from panels, once for each element."""
        reading: dict[Value, list[Node]] = {}
        for r in inside:
            reading.setdefault(r.value, []).append(r.reader)
        points: dict[Node, int] = {}
        for node in reversed(nodes):
            points[node] = own = self._points(node)
            readers = [reader for v in node.outputs for reader in reading.get(v, ())]
            if readers and node.op.pattern is Pattern.MAP:
                most = max(own if reader.op.name == "contract" else points[reader] for reader in readers)
                points[node] = min(own, most) if self._is_steady(node) else most
        return points

    def _is_steady(self, node: Node) -> bool:
        """Whether each row of readers sees one value."""
        shape = node.outputs[0].type.shape
        return not shape or self._flow.extent(shape[-1]) == 1

    def transfer(self, value: Value) -> float:
        """Seconds to bring a value in from where it lies, or to put it there."""
        if value not in self._transfer:
            self._transfer[value] = self._bring(value)
        return self._transfer[value]

    def _bring(self, value: Value) -> float:
        size = self._flow.bytes(value)
        if value in self._flow.constants and not self._weights_stay:
            return size / (self._target.peaks.memory_gbs * 1e9)
        for cache, rate in zip(self._target.caches, self._target.peaks.cache_gbs, strict=True):
            if size <= cache.bytes * CACHE_SHARE:
                return size / (rate * 1e9)
        return size / (self._target.peaks.memory_gbs * 1e9)

    def compute(self, node: Node) -> float:
        """Seconds that a node's operations take when everything they need is near."""
        if node not in self._compute:
            self._compute[node] = self._cycles(node) / self._hertz
        return self._compute[node]

    def _cycles(self, node: Node) -> float:
        if node.op.name == "contract":
            return self._products(node)
        return self._points(node) * CYCLES.get(node.op.name, 1.0) / self._lanes(node)

    def _points(self, node: Node) -> int:
        """How often a node's expression is computed: once for each result, or each term of one."""
        if node not in self._results:
            self._results[node] = self._terms(node)
        return self._results[node]

    def _terms(self, node: Node) -> int:
        if isinstance(node.attrs, WindowReduceAttributes):
            return self._flow.elements(node.outputs[0]) * math.prod(node.attrs.window)
        if node.op.pattern is Pattern.REDUCE and node.op.name != "contract":
            return self._flow.elements(node.inputs[0])
        return max((self._flow.elements(v) for v in node.outputs), default=0)

    def _lanes(self, node: Node) -> int:
        widest = max((v.type.dtype.bits for v in (*node.inputs, *node.outputs)), default=32)
        return max(self._target.vector_bits // max(widest, 32), 1)

    def _products(self, node: Node) -> float:
        """Cycles of a sum of products, by the tile that its extents get."""
        spec = parse(node.attrs.spec)  # type: ignore[attr-defined]
        extents = self._extents(spec, node)
        lanes = self._lanes(node)
        terms = math.prod(extents[a] for a in spec.reduce)
        if len(spec.operands) != 2 or not spec.reduce:
            return math.prod(extents[a] for a in spec.axes) / lanes
        moved = [{a for i in operand for a, _ in i.terms} for operand in spec.operands]
        last = spec.output[-1] if spec.output else None
        columns_of = 0 if last in moved[0] and last not in moved[1] else 1
        columns = math.prod(
            extents[a] for a in spec.output if a in moved[columns_of] and a not in moved[1 - columns_of]
        )
        rows = math.prod(extents[a] for a in spec.output if a in moved[1 - columns_of] and a not in moved[columns_of])
        batch = math.prod(extents[a] for a in spec.output) // max(rows * columns, 1)
        if (rows == 1 and batch > columns) or last in moved[0] & moved[1]:
            return batch * rows * columns * terms / (lanes * FMA_PORTS * SPREAD)
        terms = -(-terms // self._at_a_time(node))
        tile = choose_register_tile(rows, columns, terms, tile_registers(self._target), lanes)
        return batch * tile_cycles(tile, rows, columns, terms)

    def _at_a_time(self, node: Node) -> int:
        """How many products of two tensors of bf16 the machine adds to a lane at a time."""
        (out,) = node.outputs
        halves = all(v.type.dtype is dtypes.bf16 for v in node.inputs)
        dot = choose_dot(dtypes.bf16, dtypes.bf16, out.type.dtype, self._target) if halves else None
        return 1 if dot is None else dot.depth

    def _extents(self, spec: Spec, node: Node) -> dict[str, int]:
        """The extent of each axis."""
        found = dict(zip(spec.output, (self._flow.extent(e) for e in node.outputs[0].type.shape), strict=True))
        found.update((axis, self._flow.extent(e)) for axis, e in node.attrs.sizes)  # type: ignore[attr-defined]
        for indices, value in zip(spec.operands, node.inputs, strict=True):
            for index, extent in zip(indices, value.type.shape, strict=True):
                if index.axis is not None and index.axis not in found:
                    found[index.axis] = self._flow.extent(extent)
        return found
