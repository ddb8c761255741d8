"""What a kernel costs: start + write + max(read, compute), in seconds of one core.

Reads count each value from memory once, at the bandwidth of the nearest cache that holds it; what a kernel computes for
itself costs its operations alone. This is the model of Boehm et al., "On Optimizing Operator Fusion Plans for
Large-Scale Machine Learning in SystemML" (PVLDB 2018), with the machine's own bandwidths and peaks, and with the
register tiles of `plan/price/contraction.py` for sums of products.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tilewright.analysis.dataflow import Dataflow, Reference
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const
from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.ops.contract import ContractAttributes, maps_of
from tilewright.ops.index_maps import Spec
from tilewright.ops.movement import TransposeAttributes
from tilewright.ops.pad import PadAttributes
from tilewright.ops.reduce import rows_of
from tilewright.ops.window import WindowReduceAttributes
from tilewright.plan.price.contraction import Dot, Sums, least_cycles
from tilewright.plan.price.dots import choose_dot, choose_tiles
from tilewright.store import Json
from tilewright.target import Target
from tilewright.target.transfer import kept, memory, read_seconds, reread_seconds
from tilewright.target.vectors import vector_cycles


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


@dataclass(frozen=True, slots=True)
class Product:
    """A contraction of two operands as products of f32: rows index one of them, columns, which lie along the lanes, the
    operand `vector`, and the batch both. `depth` is the extent of the reduction axis whose terms an instruction may add
    up, the last that indexes a dimension of each operand by itself; 0 if there is none."""

    vector: int
    sums: Sums
    depth: int


def in_a_row(spec: Spec, found: Product) -> bool:
    """Whether terms lie next to each other where the rows are read, and the columns where the other operand is."""
    rows, columns = spec.operands[1 - found.vector][-1], spec.operands[found.vector][-1]
    terms = [axis for axis, step in rows.terms if step == 1 and axis in spec.reduce]
    return columns.axis == spec.output[-1] and bool(terms)


def _is_gathered(node: Node, flow: Dataflow, lanes: int) -> bool:
    """Whether what reduces the rows that a transpose makes cannot load vectors: the axis that was last moves, and has
    too few elements for one."""
    perm = node.attrs.perm if isinstance(node.attrs, TransposeAttributes) else ()
    return bool(perm) and perm[-1] < len(perm) - 1 and 1 < flow.extent(node.inputs[0].type.shape[-1]) < lanes


@dataclass(frozen=True, slots=True)
class _About:
    """What a kernel's price takes of a node alone: the seconds of each of its points, what it reads, and whether it
    reduces rows, or makes rows that cannot be loaded as vectors."""

    compute: float
    references: tuple[Reference, ...]
    has_rows: bool
    is_gathered: bool


class CostModel:
    """Prices of kernels of one graph function on one machine: `start` is the seconds in which a kernel begins."""

    def __init__(self, flow: Dataflow, target: Target) -> None:
        self.flow, self.target, self._lanes = flow, target, target.lanes(f32)
        self.start = target.core.kernel_seconds
        self._weights_stay = kept(sum(flow.bytes(v) for v in flow.constants), target.kept_caches[-1])
        self.transfer = cache(self._transfer)
        self.compute = cache(self._compute)
        self._points = cache(self._count_points)
        self._about = cache(self._look_at)

    def kernel(self, nodes: Sequence[Node], inside: Collection[Reference], beside: Collection[Node] = ()) -> KernelCost:
        """The cost of a kernel of these nodes in program order, that computes the references inside it itself and reads
        all else. The outputs of the last node and of those beside it are written."""
        points = self._evaluated(nodes, inside)
        compute, in_rows, gathered = 0.0, False, 0
        read: dict[Value, float] = {}
        for node in nodes:
            about = self._about(node)
            compute += about.compute * points[node]
            in_rows, gathered = in_rows or about.has_rows, gathered + (points[node] if about.is_gathered else 0)
            for reference in about.references:
                if reference not in inside:
                    v = reference.value
                    part = min(points[node] / max(self.flow.elements(v), 1), 1.0) if node.op.reads_part else 1.0
                    read[v] = max(read.get(v, 0.0), self.transfer(v) * part)
        if in_rows:
            compute += gathered / self._lanes * self.target.core.gather_cycles / self.target.core.hertz
        written = [v for node in (*beside, nodes[-1]) for v in node.outputs]
        kept = [r.value for r in inside if self._is_kept(r)]
        moved, stored = (sum(map(self.transfer, found)) for found in (kept, [*written, *kept]))
        return KernelCost(self.start, sum(read.values()) + moved, stored, compute)

    def _look_at(self, node: Node) -> _About:
        references = tuple([Reference(v, node) for v in dict.fromkeys(node.inputs)])
        each = self.compute(node) / max(self._points(node), 1)
        return _About(each, references, rows_of(node) is not None, _is_gathered(node, self.flow, self._lanes))

    def _is_kept(self, reference: Reference) -> bool:
        """Whether a kernel stores all of a value before it reads it: a padded image that sums of all channels read,
        or a pool of channels that lie innermost."""
        maker, reader = self.flow.makers[reference.value], reference.reader
        if not isinstance(maker.attrs, PadAttributes):
            return False
        if isinstance(reader.attrs, WindowReduceAttributes):
            return reader.attrs.window[-1] == 1
        if not isinstance(reader.attrs, ContractAttributes):
            return False
        found = self.product(reader)
        return found is not None and found.sums.rows > 1

    def _evaluated(self, nodes: Sequence[Node], inside: Collection[Reference]) -> dict[Node, int]:
        """How often each node's expression is computed in a kernel: a map at every point of what reads it, or once a
        row where a row sees one value; for what reads it once, at each of its elements."""
        reading: dict[Value, list[Node]] = {}
        for r in inside:
            reading.setdefault(r.value, []).append(r.reader)
        points: dict[Node, int] = {}
        for node in reversed(nodes):
            points[node] = own = self._points(node)
            readers = [reader for v in node.outputs for reader in reading.get(v, ())]
            if readers and node.op.pattern is Pattern.MAP:
                most = max(own if reader.op.reads_once(reader.attrs) else points[reader] for reader in readers)
                shape = node.outputs[0].type.shape
                is_steady = not shape or self.flow.extent(shape[-1]) == 1  # each row of readers sees one value
                points[node] = min(own, most) if is_steady else most
        return points

    def _transfer(self, value: Value) -> float:
        """Seconds to bring a value in from where it lies, or to put it there."""
        size = self.flow.bytes(value)
        near = reread_seconds(size, size, self.target)
        if value not in self.flow.constants:
            return near
        far = read_seconds(size, memory(self.target), self.target)
        return self._weights_stay * near + (1 - self._weights_stay) * far

    def _compute(self, node: Node) -> float:
        """Seconds that a node's operations take when everything they need is near."""
        bits = max(32, *(v.type.dtype.bits for v in (*node.inputs, *node.outputs)))
        lanes = max(self.target.vector_bits // bits, 1)
        if isinstance(node.attrs, ContractAttributes):
            return self._products(node, bits, lanes) / self.target.core.hertz
        work = node.op.estimate(tuple([v.type for v in node.inputs]), node.attrs)
        return self._points(node) * vector_cycles(work, self.target, lanes) / lanes / self.target.core.hertz

    def _count_points(self, node: Node) -> int:
        """How often a node's expression is computed: once for each result, or each term of one."""
        if isinstance(node.attrs, WindowReduceAttributes):
            return self.flow.elements(node.outputs[0]) * math.prod(node.attrs.window)
        if node.op.pattern is Pattern.REDUCE and not isinstance(node.attrs, ContractAttributes):
            return self.flow.elements(node.inputs[0])
        return max((self.flow.elements(v) for v in node.outputs), default=0)

    def _products(self, node: Node, bits: int, lanes: int) -> float:
        """Cycles of a sum of products, by the tile that its extents get; or with all factors loaded for each term, but
        one for windows of each channel: those of several sums share what they read of an image."""
        core, maps, found = self.target.core, maps_of(node), self.product(node)
        window = any(len(index.terms) > 1 for operand in maps.spec.operands for index in operand)
        if found is None or (found.sums.rows == 1 and (window or found.sums.batch > found.sums.columns)):
            terms, loads = math.prod(map(self.flow.extent, maps.extents)), 1 if window else len(node.inputs)
            return terms / lanes * max(core.fma_cycles, loads * core.load_cycles)
        dots = self._dots(node, found, window)
        return min(least_cycles(replace(found.sums, bits=bits, dot=dot), self.target) for dot in dots)

    def _dots(self, node: Node, found: Product, window: bool) -> Iterator[Dot | None]:
        """The instructions that add up products of narrow numbers, where there are terms enough for them; of tiles,
        too, for matrices, and for windows whose terms lie in a row."""
        element, vector = (node.inputs[n].type.dtype for n in (1 - found.vector, found.vector))
        dot = choose_dot(element, vector, node.outputs[0].type.dtype, self.target)
        yield dot if dot is not None and dot.instruction and found.depth >= dot.depth else None
        tile = choose_tiles(element, vector, node.outputs[0].type.dtype, self.target)
        if tile is not None and window and in_a_row(maps_of(node).spec, found):
            width = node.outputs[0].type.shape[-2]
            yield from tile.of_rows(int(width.value), copied=False) if isinstance(width, Const) else ()
        elif tile is not None and not window and found.depth:
            yield from tile.of_rows(found.sums.rows)

    def product(self, node: Node) -> Product | None:
        """A contraction as a product; None unless it sums over products of two operands, and the last axis of its
        result indexes one of them alone."""
        maps, extent = maps_of(node), self.flow.extent
        spec = maps.spec
        axes = [{a for index in operand for a, _ in index.terms} for operand in spec.operands]
        along = [n for n, own in enumerate(axes) if spec.output and spec.output[-1] in own]
        if len(axes) != 2 or len(along) != 1 or not spec.reduce:
            return None
        rows = columns = batch = 1
        for axis, size in zip(spec.output, map(extent, maps.shape), strict=True):
            if axis not in axes[along[0]]:
                rows *= size
            elif axis not in axes[1 - along[0]]:
                columns *= size
            else:
                batch *= size
        sums = Sums(rows, columns, math.prod(map(extent, maps.reduce_extents)), batch)
        return Product(along[0], sums, 0 if spec.summed is None else extent(maps.extent(spec.summed)))
