"""Which images are stored with channels innermost, by price: the cycles of partly empty vectors, and of moving data.

Vectors along the positions of an image of 7x7 or 14x14 are partly empty. With channels along the lanes instead, a
kernel transposes what it reads and writes. If channels are innermost in memory, neither is needed; but where an island
ends, a kernel of its own transposes the image, unless the program transposes it there anyway.
"""

from __future__ import annotations

import math

from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const, Expr
from tilewright.graph.nodes import Node, Value
from tilewright.ops.movement import TransposeAttributes
from tilewright.plan.price.contraction import Sums, least_cycles
from tilewright.plan.price.points import transpose_cycles
from tilewright.plan.price.transfer import reread_seconds, rewrite_seconds
from tilewright.plan.rewrite.islands import Images, Island, is_last, order
from tilewright.target import Target


def choose_islands(images: Images, target: Target) -> list[Island]:
    """The islands to store with channels innermost. Two searches start from none and from all of them, and flip one
    island at a time as long as that pays; the cheaper result is taken."""
    prices = _Prices(images, target)
    found = [prices.improved(start) for start in (frozenset[Island](), frozenset(prices.islands))]
    chosen = min(found, key=prices.total)
    return [island for island in prices.islands if island in chosen]


class _Prices:
    """The cycles of a function, as far as they depend on which islands are stored with channels innermost."""

    def __init__(self, images: Images, target: Target) -> None:
        self.images, self.target = images, target
        self.islands = images.islands()
        self.of = {value: island for island in self.islands for value in island.axes}
        self.nodes: dict[Island, list[Node]] = {island: [] for island in self.islands}
        for node, channels in images.contractions.items():
            around = {self.of.get(v) for v in (node.inputs[channels.image], node.outputs[0])}
            for island in around - {None}:
                self.nodes[island].append(node)  # type: ignore[index]
        self.ends = {island: self._ends(island) for island in self.islands}

    def improved(self, chosen: frozenset[Island]) -> frozenset[Island]:
        """A choice that flipping no single island makes cheaper."""
        waiting = list(self.islands)
        while waiting:
            island = waiting.pop()
            other = chosen ^ {island}
            if self._around(island, other) < self._around(island, chosen):
                chosen = other
                near = {self.of.get(v) for n in self.nodes[island] for v in (*n.inputs, *n.outputs)}
                waiting += [i for i in self.islands if i in near and i is not island and i not in waiting]
        return chosen

    def total(self, chosen: frozenset[Island]) -> float:
        nodes = sum(self._contraction(node, chosen) for node in self.images.contractions)
        return nodes + sum(self.ends[island][island in chosen] for island in self.islands)

    def _around(self, island: Island, chosen: frozenset[Island]) -> float:
        return sum(self._contraction(n, chosen) for n in self.nodes[island]) + self.ends[island][island in chosen]

    def _ends(self, island: Island) -> tuple[float, float]:
        """Cycles of transposing where an island ends: in the program's layout, and with channels innermost."""
        ends = {(value, _transposes(node, value, island)) for node, value in island.borders}
        ends |= {(v, False) for v in island.axes if v in self.images.results or v not in self.images.makers}
        moved = [0.0, 0.0]
        for value, turns in ends:
            moved[not turns] += _transposed(math.prod(map(_number, value.type.shape)), self.target)
        return moved[0], moved[1]

    def _contraction(self, node: Node, chosen: frozenset[Island]) -> float:
        channels = self.images.contractions[node]
        image, out = node.inputs[channels.image], node.outputs[0]
        made, read = _number(out.type.shape[channels.made]), _number(image.type.shape[channels.read])
        points = math.prod(map(_number, out.type.shape)) // made
        ends = [self._is_last(image, channels.read, chosen), self._is_last(out, channels.made, chosen)]
        if channels.depthwise:
            terms = math.prod(_number(channels.maps.extent(a)) for a in channels.maps.spec.reduce)
            columns = [_number(e) for n, e in enumerate(out.type.shape) if n != channels.made]
            width = next((e for e in reversed(columns) if e > 1), 1)
            return _depthwise(points, width, made, terms, self.target, ends[1])
        return _pointwise(points, made, read, self.target, ends[0], ends[1])

    def _is_last(self, value: Value, axis: int, chosen: frozenset[Island]) -> bool:
        return is_last(value, axis) or self.of.get(value) in chosen


def _transposes(node: Node, value: Value, island: Island) -> bool:
    """Whether a node transposes a value to where channels are innermost, or from there."""
    if not isinstance(node.attrs, TransposeAttributes):
        return False
    last = order(value.type.rank, island.axes[value])
    perm = node.attrs.perm
    return perm == last if value in node.inputs else tuple([perm.index(n) for n in range(len(perm))]) == last


def _transposed(elements: int, target: Target) -> float:
    """Cycles of transposing an image in a kernel of its own, from and to the cache that holds both copies."""
    size = elements * f32.bytes
    moved = reread_seconds(size, 2 * size, target) + rewrite_seconds(size, 2 * size, target)
    return max(
        transpose_cycles(elements, target.lanes(f32), target), (moved + target.core.kernel_seconds) * target.core.hertz
    )


def _pointwise(points: int, made: int, read: int, target: Target, image: bool, out: bool) -> float:
    """Cycles of a contraction at each point, of `read` channels to `made`, by whether channels are innermost in its
    `image` and in its result, `out`. Positions or channels are along the lanes; other layouts are transposed."""
    packed, back = (transpose_cycles(points * channels, target.lanes(f32), target) for channels in (read, made))
    by_channels, by_points = (Sums(*extents, read) for extents in ((points, made), (made, points)))
    transposed = least_cycles(by_channels, target) + (0 if image else packed)
    if out:
        return transposed
    return min(transposed + back, least_cycles(by_points, target) + (packed if image else 0))


def _depthwise(points: int, width: int, made: int, terms: int, target: Target, last: bool) -> float:
    """Cycles of a depthwise convolution: with channels along the lanes (`last`), or with positions of a row."""
    each, lanes = terms * target.core.fma_cycles, target.lanes(f32)
    by_channels = points * -(-made // lanes) * each
    if last:
        return by_channels
    moved = 2 * transpose_cycles(points * made, lanes, target)
    return min(by_channels + moved, made * points // width * -(-width // lanes) * each)


def _number(extent: Expr) -> int:
    """A size, at least 1. A dynamic batch counts as 1."""
    return max(int(extent.value), 1) if isinstance(extent, Const) else 1
