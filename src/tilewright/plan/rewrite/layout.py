"""Which images are stored with channels innermost, by price: the cycles of partly empty vectors, and of moving data.

Vectors along the positions of an image of 7x7 or 14x14 are partly empty. With channels along the lanes instead, a
kernel transposes what it reads and writes. If channels are innermost in memory, neither is needed; but where an island
ends, a kernel of its own transposes the image, unless the program transposes it there anyway. An island is one
decision: images that share an axis of channels, from operator to operator.

    h: f32[1, 480, 196] = contract(x, w, spec="n c p, o c -> n o p")      an island begins: channels are axis 1
    a: f32[1, 480, 196] = add(h, b)                                       element-wise operators hand it on,
    i: f32[1, 480, 14, 14] = reshape(a)                                   so do views of the other axes,
    p: f32[1, 480, 16, 16] = pad(i, …)                                    paddings and reductions of them,
    d: f32[1, 480, 14, 14] = contract(p, v, spec="n c i+k j+l, c k l -> n c i j")          windows of each channel
    y: f32[1, 80, 196] = contract(reshape(d), u, spec="n c p, o c -> n o p")               and it ends

Where sizes are dynamic, or factors are rounded for the machine's tiles, windows over all channels and operators that
can be reordered (`Op.reordered`) are part of islands, too: vectors along positions have tails of any length there, and
tiles take channels as they lie. So are windows of images that are longer another way than along their innermost axis,
videos and batches of small images: with channels innermost, tiles have as many rows.

A product with weights sums over the channels of its operand and makes those of its result. So it joins two islands,
whose layouts are chosen independently: its specification names axes in any order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from tilewright.analysis.dataflow import Dataflow
from tilewright.analysis.sizes import sizes_of_images
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const, Expr
from tilewright.expr.simplify import product_of
from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.graph.op import Attributes, Pattern
from tilewright.graph.symbolic import Constant
from tilewright.ops.checks import ONE
from tilewright.ops.contract import ContractAttributes, maps_of
from tilewright.ops.index_maps import IndexMaps
from tilewright.ops.movement import TransposeAttributes
from tilewright.ops.pad import PadAttributes
from tilewright.ops.reduce import ReduceAttributes
from tilewright.ops.symbolic import Full
from tilewright.ops.winograd import InputAttributes, OutputAttributes
from tilewright.plan.price.contraction import Dot, Sums, least_cycles
from tilewright.plan.price.convolution import channels_fit
from tilewright.plan.price.points import transpose_cycles
from tilewright.target import Target
from tilewright.target.transfer import reread_seconds, rewrite_seconds

Place = tuple[Value, int]
"""A value, and its axis of channels."""


@dataclass(frozen=True, slots=True)
class Channels:
    """A contraction of an image with weights: which operand is the image, its axis of channels and that of the result.
    If `depthwise`, each channel has weights of its own, and both axes are the same. It may sum `windows`."""

    maps: IndexMaps
    image: int
    read: int
    made: int
    depthwise: bool
    windows: bool


@dataclass(eq=False, slots=True)
class Island:
    """The axis of channels of each value, and where the island ends: at nodes that require a layout of a value."""

    axes: dict[Value, int] = field(default_factory=dict)
    borders: list[tuple[Node, Value]] = field(default_factory=list)


class Images:
    """What a graph function computes of images: who makes and who reads what, and the contractions with weights. Of
    those that sum windows over all channels, these are the ones of dynamic sizes, or longer than they are wide: others
    are as fast in either layout; and those that `tiles` multiply, an instruction of the machine for factors that may be
    rounded."""

    def __init__(self, function: GraphFunction, tiles: Dot | None = None) -> None:
        self.flow, self.tiles = Dataflow(function, sizes=sizes_of_images(function)), tiles
        self.constant: set[Value] = set()
        self.contractions: dict[Node, Channels] = {}
        for node in function.nodes:
            if isinstance(node.attrs, Constant | Full) or (node.inputs and self.constant.issuperset(node.inputs)):
                self.constant.update(node.outputs)
            found = read_channels(node, self.constant) if isinstance(node.attrs, ContractAttributes) else None
            if found is not None and (found.depthwise or not found.windows or self._by_layout(node, found)):
                self.contractions[node] = found

    def _by_layout(self, node: Node, channels: Channels) -> bool:
        """Whether sums of windows over all channels may be faster in one layout."""
        if not _is_fixed(node) or self.fit(channels):
            return True
        *outer, width = self.lengths(node, channels)
        return max(outer, default=0) > width

    def extents(self, node: Node, channels: Channels) -> list[Expr]:
        """The extents of a contraction's result but for its channels."""
        return [e for n, e in enumerate(node.outputs[0].type.shape) if n != channels.made]

    def lengths(self, node: Node, channels: Channels) -> list[int]:
        """Those of the extents that are known and no 1: where there is none, a 1."""
        known = [int(e.value) for e in self.extents(node, channels) if isinstance(e, Const)]
        return [e for e in known if e > 1] or [1]

    def fit(self, channels: Channels) -> bool:
        """Whether both channels of a contraction fill the machine's tiles."""
        axis = channels.maps.spec.operands[channels.image][channels.read].axis
        assert axis is not None
        read, made = channels.maps.extent(axis), channels.maps.shape[channels.made]
        if self.tiles is None or not (isinstance(read, Const) and isinstance(made, Const)):
            return False
        return channels_fit(int(read.value), int(made.value), self.tiles)

    def islands(self) -> list[Island]:
        """The islands around all contractions with weights, and around Winograd's tiles with channels last. Excluded
        are those whose channels are innermost already, and those where a value would have two axes of channels."""
        found: dict[Value, Island] = {}
        for place in self._places():
            if place[0] not in found and not is_last(*place):
                island = self._island(*place)
                found.update(dict.fromkeys(island.axes, island))
        return [island for island in dict.fromkeys(found.values()) if island.axes]

    def _places(self) -> Iterator[Place]:
        for node, channels in self.contractions.items():
            yield from ((node.inputs[channels.image], channels.read), (node.outputs[0], channels.made))
        for node in self.flow.function.nodes:
            if isinstance(node.attrs, InputAttributes | OutputAttributes) and node.attrs.last:
                own = *node.inputs, *node.outputs
                around = [self.flow.makers.get(own[0]), *self.flow.readers_of(own[1])]
                turned = [n for n in around if n is not None and isinstance(n.attrs, TransposeAttributes)]
                yield from ((v, 1) for n in turned for v in (*n.inputs, *n.outputs) if v not in own)

    def _island(self, value: Value, axis: int) -> Island:
        island, waiting = Island({value: axis}), [(value, axis)]
        while waiting:
            value, axis = waiting.pop()
            makers = [self.flow.makers[value]] if value in self.flow.makers else []
            for node in (*makers, *self.flow.readers_of(value)):
                places = self.tied(node, value, axis)
                if places is None:
                    island.borders.append((node, value))
                for place in places or ():
                    if place[0] not in island.axes:
                        island.axes[place[0]] = place[1]
                        waiting.append(place)
                    elif island.axes[place[0]] != place[1]:
                        return Island()
        return island

    def tied(self, node: Node, value: Value, axis: int) -> list[Place] | None:
        """The other values of a node that share this one's layout; None where the node requires the value as it is."""
        places = self._tied(node, value, axis)
        if places is None:
            return None
        return [(v, a) for v, a in places if v is not value and v not in self.constant and not is_last(v, a)]

    def _tied(self, node: Node, value: Value, axis: int) -> list[Place] | None:
        if len(node.outputs) != 1:
            return None
        (out,), attrs = node.outputs, node.attrs
        if node in self.contractions:
            channels = self.contractions[node]
            ends = {node.inputs[channels.image]: channels.read, out: channels.made}
            return None if ends.get(value) != axis else list(ends.items()) if channels.depthwise else []
        if node.op.elementwise:
            whole = [v for v in (*node.inputs, out) if v.type.shape == out.type.shape]
            return [(v, axis) for v in whole] if value in whole else None
        if node.op.pattern is Pattern.VIEW:
            return under_shape(value, axis, out if value is not out else node.inputs[0])
        if isinstance(attrs, ReduceAttributes):
            (x,) = node.inputs
            kept = [n for n in range(x.type.rank) if attrs.keepdims or n not in attrs.axes]
            read = kept[axis] if value is out else axis
            return None if read in attrs.axes else [(x, read), (out, kept.index(read))]
        whole = [v for v in (*node.inputs, out) if v.type.rank == out.type.rank]
        passes = isinstance(attrs, PadAttributes) or not _is_fixed(node) or self.tiles is not None
        passes = passes and value in whole and node.inputs[0] in whole and reordered(node, axis) is not None
        return [(v, axis) for v in whole] if passes else None


def reordered(node: Node, axis: int) -> Attributes | None:
    """The attributes of a node where the axis of channels is the last one; None where it has none."""
    return node.op.reordered(node.attrs, order(node.outputs[0].type.rank, axis))


def _is_fixed(node: Node) -> bool:
    """Whether no size of the image that a node makes is dynamic, but the batch."""
    return all(isinstance(e, Const) for e in node.outputs[0].type.shape[1:])


def read_channels(node: Node, constant: Collection[Value]) -> Channels | None:
    """The channels of a contraction of f32 with weights that sums over one axis of channels and makes one; None for
    another."""
    floats = all(v.type.dtype is f32 for v in (*node.inputs, *node.outputs))
    if not floats or [v in constant for v in node.inputs] not in ([True, False], [False, True]):
        return None
    maps, image = maps_of(node), 0 if node.inputs[1] in constant else 1
    own = {a for index in maps.spec.operands[1 - image] for a, _ in index.terms if maps.extent(a) is not ONE}
    read = [n for n, index in enumerate(maps.spec.operands[image]) if index.axis in own]
    made = [n for n, axis in enumerate(maps.spec.output) if axis in own]
    if len(read) != 1 or len(made) != 1:
        return None
    depthwise = maps.spec.operands[image][read[0]].axis == maps.spec.output[made[0]]
    windows = any(index.axis is None for index in maps.spec.operands[image])
    return Channels(maps, image, read[0], made[0], depthwise, windows)


def under_shape(value: Value, axis: int, other: Value) -> list[Place] | None:
    """The axis of channels of a view of a value: the one with the same extent, outer size and inner size."""
    shape, viewed = value.type.shape, other.type.shape
    before, behind = product_of(shape[:axis]), product_of(shape[axis + 1 :])
    for n, extent in enumerate(viewed):
        if extent is shape[axis] and product_of(viewed[:n]) is before and product_of(viewed[n + 1 :]) is behind:
            return [(other, n)]
    return None


def is_last(value: Value, axis: int) -> bool:
    """Whether channels are innermost: all dimensions after them are 1."""
    return all(e is ONE for e in value.type.shape[axis + 1 :])


def order(rank: int, axis: int) -> tuple[int, ...]:
    """The order of a value's axes with the axis of channels moved to the end."""
    return (*[n for n in range(rank) if n != axis], axis)


def choose_islands(images: Images, target: Target) -> list[Island]:
    """The islands to store with channels innermost. Two searches start from none and from all of them, and flip one
    island at a time as long as that pays; the cheaper result is taken."""
    prices = _Prices(images, target)
    found = [prices.improved(start) for start in (frozenset[Island](), frozenset(prices.islands))]
    chosen = min(found, key=lambda chosen: prices.cycles(chosen, images.contractions, prices.islands))
    return [island for island in prices.islands if island in chosen]


class _Prices:
    """The cycles of a function, as far as they depend on which islands are stored with channels innermost."""

    def __init__(self, images: Images, target: Target) -> None:
        self.images, self.target = images, target
        self.islands = images.islands()
        self.of = {value: island for island in self.islands for value in island.axes}
        self.nodes: dict[Island, list[Node]] = {island: [] for island in self.islands}
        for node, channels in images.contractions.items():
            for island in {self.of.get(v) for v in (node.inputs[channels.image], node.outputs[0])}:
                if island is not None:
                    self.nodes[island].append(node)
        self.ends = {island: self._ends(island) for island in self.islands}

    def improved(self, chosen: frozenset[Island]) -> frozenset[Island]:
        """A choice that flipping no single island makes cheaper."""
        waiting = list(self.islands)
        while waiting:
            island = waiting.pop()
            other, nodes = chosen ^ {island}, self.nodes[island]
            if self.cycles(other, nodes, [island]) < self.cycles(chosen, nodes, [island]):
                chosen = other
                near = {self.of.get(v) for n in nodes for v in (*n.inputs, *n.outputs)}
                waiting += [i for i in self.islands if i in near and i is not island and i not in waiting]
        return chosen

    def cycles(self, chosen: frozenset[Island], nodes: Iterable[Node], islands: Iterable[Island]) -> float:
        """Cycles of these contractions, and of transposing where these islands end."""
        return sum(self._contraction(n, chosen) for n in nodes) + sum(self.ends[i][i in chosen] for i in islands)

    def _ends(self, island: Island) -> tuple[float, float]:
        """Cycles of transposing where an island ends, in the program's layout and with channels innermost: in a kernel
        of its own, from and to the cache that holds both copies."""
        flow, target = self.images.flow, self.target
        ends = {(value, _transposes(node, value, island)) for node, value in island.borders}
        ends |= {(v, False) for v in island.axes if v in flow.results or v not in flow.makers}
        moved = [0.0, 0.0]
        for value, turns in ends:
            size = flow.bytes(value)
            seconds = reread_seconds(size, 2 * size, target) + rewrite_seconds(size, 2 * size, target)
            least = transpose_cycles(flow.elements(value), target.lanes(f32), target)
            moved[not turns] += max(least, (seconds + target.core.kernel_seconds) * target.core.hertz)
        return moved[0], moved[1]

    def _contraction(self, node: Node, chosen: frozenset[Island]) -> float:
        """Cycles of a contraction with channels or positions along the lanes, whichever are fewer. An image or a result
        of the other layout is transposed, for each place of a window if that has channels innermost, but none that has
        them is made with positions along them."""
        flow, channels, target = self.images.flow, self.images.contractions[node], self.target
        image, (out,), lanes = node.inputs[channels.image], node.outputs, target.lanes(f32)
        read, made = flow.extent(image.type.shape[channels.read]), flow.extent(out.type.shape[channels.made])
        points, back = flow.elements(out) // made, transpose_cycles(flow.elements(out), lanes, target)
        columns = map(flow.extent, reversed(self.images.extents(node, channels)))
        width = next((e for e in columns if e > 1), 1)
        if channels.depthwise:
            each = math.prod(map(flow.extent, channels.maps.reduce_extents)) * target.core.fma_cycles
            by_channels = points * -(-made // lanes) * each
            by_points, back = made * points // width * -(-width // lanes) * each, 2 * back
        else:
            terms = math.prod(map(flow.extent, channels.maps.reduce_extents))
            near = self._is_last(image, channels.read, chosen)
            packed = transpose_cycles(points * (terms if near else read), lanes, target)
            width = width if channels.windows else points
            turned = Sums(made, width, terms, points // width)
            last = near and self._is_last(out, channels.made, chosen)
            rows = max(self.images.lengths(node, channels)) if channels.windows and last else width
            sums = Sums(rows, made, terms, points // rows)
            by_channels = self._least(channels, sums, 0 if near else packed, not channels.windows or last)
            by_points = self._least(channels, turned, packed if near else 0, not channels.windows, packed)
        return by_channels if self._is_last(out, channels.made, chosen) else min(by_channels + back, by_points)

    def _least(self, channels: Channels, sums: Sums, packed: float, in_tiles: bool, woven: float = 0) -> float:
        """The fewest cycles of these sums, with an operand that is packed; in tiles of the machine, too, if they may
        be, whose operand along the lanes is woven where it is no constant."""
        plain, tiles = least_cycles(sums, self.target) + packed, self.images.tiles
        if tiles is None or not in_tiles or not self.images.fit(channels):
            return plain
        dots = tiles.of_rows(sums.rows, copied=not channels.windows)
        found = (least_cycles(replace(sums, dot=dot), self.target) for dot in dots)
        return min(plain, min(found, default=plain) + max(packed, woven))

    def _is_last(self, value: Value, axis: int, chosen: frozenset[Island]) -> bool:
        return is_last(value, axis) or self.of.get(value) in chosen


def _transposes(node: Node, value: Value, island: Island) -> bool:
    """Whether a node transposes a value to where channels are innermost, or from there."""
    if not isinstance(node.attrs, TransposeAttributes):
        return False
    last = order(value.type.rank, island.axes[value])
    perm = node.attrs.perm
    return perm == last if value in node.inputs else tuple([perm.index(n) for n in range(len(perm))]) == last
