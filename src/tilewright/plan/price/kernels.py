"""What a kernel costs: start + write + max(read, compute), in seconds of one core.

Reads count each value from memory once, at the bandwidth of the nearest cache that holds it; what a kernel computes for
itself costs its operations alone. This is the model of Boehm et al., "On Optimizing Operator Fusion Plans for
Large-Scale Machine Learning in SystemML" (PVLDB 2018), with the machine's own bandwidths and peaks, and with the
register tiles of `plan/price/contraction.py` for sums of products.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

from tilewright.expr import dtypes
from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import Spec, parse
from tilewright.ops.window import WindowReduceAttributes
from tilewright.plan.fusion.dataflow import Dataflow, Reference
from tilewright.plan.price.contraction import Sums, choose_dot, least_cycles
from tilewright.plan.price.points import vector_cycles
from tilewright.plan.price.transfer import kept, memory, read_seconds, reread_seconds
from tilewright.store import Json
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class KernelCost:
    """Seconds to start, to read, to write and to compute, and what the kernel takes in all."""

    start: float
    read: float
    write: float
    compute: float

    @property
    def seconds(self) -> float:
        return self.start + self.write + max(self.read, self.compute)

    def record(self) -> dict[str, Json]:
        """The cost as JSON."""
        parts: dict[str, Json] = {"start_s": self.start, "read_s": self.read, "write_s": self.write}
        return {**parts, "compute_s": self.compute, "predicted_s": self.seconds}


class CostModel:
    """Prices of kernels of one graph function on one machine."""

    def __init__(self, flow: Dataflow, target: Target) -> None:
        self._flow, self.target = flow, target
        self._weights_stay = kept(sum(flow.bytes(v) for v in flow.constants), target.caches[-1])
        self.transfer = cache(self._transfer)
        self.compute = cache(self._compute)
        self._points = cache(self._count_points)

    @property
    def start(self) -> float:
        """Seconds in which a kernel begins."""
        return self.target.core.kernel_seconds

    def kernel(self, nodes: Sequence[Node], inside: Collection[Reference], beside: Collection[Node] = ()) -> KernelCost:
        """The cost of a kernel of these nodes in program order, that computes the references inside it itself and reads
        all else. The outputs of the last node and of those beside it are written."""
        points = self._evaluated(nodes, inside)
        compute = sum(self.compute(node) * points[node] / max(self._points(node), 1) for node in nodes)
        read: dict[Value, float] = {}
        for node in nodes:
            for v in dict.fromkeys(node.inputs):
                if Reference(v, node) not in inside:
                    part = min(points[node] / max(self._flow.elements(v), 1), 1.0) if node.op.reads_part else 1.0
                    read[v] = max(read.get(v, 0.0), self.transfer(v) * part)
        written = sum(self.transfer(v) for node in (*beside, nodes[-1]) for v in node.outputs)
        return KernelCost(self.start, sum(read.values()), written, compute)

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
                most = max(
                    own if isinstance(reader.attrs, ContractAttributes) else points[reader] for reader in readers
                )
                points[node] = min(own, most) if self._is_steady(node) else most
        return points

    def _is_steady(self, node: Node) -> bool:
        """Whether each row of readers sees one value."""
        shape = node.outputs[0].type.shape
        return not shape or self._flow.extent(shape[-1]) == 1

    def _transfer(self, value: Value) -> float:
        """Seconds to bring a value in from where it lies, or to put it there."""
        size = self._flow.bytes(value)
        near = reread_seconds(size, size, self.target)
        if value not in self._flow.constants:
            return near
        far = read_seconds(size, memory(self.target), self.target)
        return self._weights_stay * near + (1 - self._weights_stay) * far

    def _compute(self, node: Node) -> float:
        """Seconds that a node's operations take when everything they need is near."""
        bits = max(32, *(v.type.dtype.bits for v in (*node.inputs, *node.outputs)))
        lanes = max(self.target.vector_bits // bits, 1)
        if isinstance(node.attrs, ContractAttributes):
            return self._products(node, node.attrs, bits, lanes) / self.target.core.hertz
        work = node.op.work(tuple([v.type for v in node.inputs]), node.attrs)
        return self._points(node) * vector_cycles(work, self.target, lanes) / lanes / self.target.core.hertz

    def _count_points(self, node: Node) -> int:
        """How often a node's expression is computed: once for each result, or each term of one."""
        if isinstance(node.attrs, WindowReduceAttributes):
            return self._flow.elements(node.outputs[0]) * math.prod(node.attrs.window)
        if node.op.pattern is Pattern.REDUCE and not isinstance(node.attrs, ContractAttributes):
            return self._flow.elements(node.inputs[0])
        return max((self._flow.elements(v) for v in node.outputs), default=0)

    def _products(self, node: Node, attrs: ContractAttributes, bits: int, lanes: int) -> float:
        """Cycles of a sum of products, by the tile that its extents get."""
        spec, core = parse(attrs.spec), self.target.core
        extents = self._extents(spec, node, attrs)
        if len(spec.operands) != 2 or not spec.reduce:
            return math.prod(extents[a] for a in spec.axes) * core.fma_cycles / lanes
        one, other = moved = [{a for i in operand for a, _ in i.terms} for operand in spec.operands]
        last = spec.output[-1] if spec.output else None
        if last in one and last not in other:
            one, other = other, one
        terms, points, columns, rows = (
            math.prod(extents[a] for a in axes)
            for axes in (
                spec.reduce,
                spec.output,
                [a for a in spec.output if a in other - one],
                [a for a in spec.output if a in one - other],
            )
        )
        batch = points // max(rows * columns, 1)
        if (rows == 1 and batch > columns) or last in moved[0] & moved[1]:  # both factors are loaded for each sum
            return batch * rows * columns * terms / lanes * max(core.fma_cycles, 2 * core.load_cycles)
        sums = Sums(rows, columns, terms, batch, bits=bits, instruction=self._instruction(node))
        return least_cycles(sums, self.target)

    def _instruction(self, node: Node) -> str:
        """The instruction that adds up products of two tensors of bf16, where the machine has one."""
        (out,) = node.outputs
        narrow = all(v.type.dtype is dtypes.bf16 for v in node.inputs)
        dot = choose_dot(dtypes.bf16, dtypes.bf16, out.type.dtype, self.target) if narrow else None
        return dot.instruction if dot is not None else ""

    def _extents(self, spec: Spec, node: Node, attrs: ContractAttributes) -> dict[str, int]:
        """The extent of each axis."""
        found = dict(zip(spec.output, (self._flow.extent(e) for e in node.outputs[0].type.shape), strict=True))
        found.update((axis, self._flow.extent(e)) for axis, e in attrs.sizes)
        for indices, value in zip(spec.operands, node.inputs, strict=True):
            for index, extent in zip(indices, value.type.shape, strict=True):
                if index.axis is not None and index.axis not in found:
                    found[index.axis] = self._flow.extent(extent)
        return found
