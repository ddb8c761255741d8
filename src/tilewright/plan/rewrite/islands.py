"""Values whose layout is one decision: images that share an axis of channels, from operator to operator.

    h: f32[1, 480, 196] = contract(x, w, spec="n c p, o c -> n o p")      an island begins: channels are axis 1
    a: f32[1, 480, 196] = add(h, b)                                       element-wise operators hand it on,
    i: f32[1, 480, 14, 14] = reshape(a)                                   so do views of the other axes,
    p: f32[1, 480, 16, 16] = pad(i, …)                                    paddings and reductions of them,
    d: f32[1, 480, 14, 14] = contract(p, v, spec="n c i+k j+l, c k l -> n c i j")          windows of each channel
    y: f32[1, 80, 196] = contract(reshape(d), u, spec="n c p, o c -> n o p")               and it ends

A product with weights sums over the channels of its operand and makes those of its result. So it joins two islands,
whose layouts are chosen independently: its specification names axes in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const
from tilewright.expr.simplify import product_of
from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.graph.op import TypeContext
from tilewright.graph.symbolic import Constant
from tilewright.ops.checks import ONE, ZERO
from tilewright.ops.contract import Contract, ContractAttributes
from tilewright.ops.index_maps import IndexMaps
from tilewright.ops.movement import PadAttributes
from tilewright.ops.reduce import ReduceAttributes
from tilewright.ops.symbolic import Full

Place = tuple[Value, int]
"""A value, and its axis of channels."""


@dataclass(frozen=True, slots=True)
class Channels:
    """A contraction of an image with weights: which operand is the image, its axis of channels and that of the result.
    If `depthwise`, each channel has weights of its own, and both axes are the same."""

    maps: IndexMaps
    image: int
    read: int
    made: int
    depthwise: bool

    def tied(self, node: Node, value: Value, axis: int) -> list[Place] | None:
        """The values whose layout is that of one of them: both of a depthwise contraction, else none."""
        ends = {node.inputs[self.image]: self.read, node.outputs[0]: self.made}
        if ends.get(value) != axis:
            return None
        return list(ends.items()) if self.depthwise else []


@dataclass(eq=False, slots=True)
class Island:
    """The axis of channels of each value, and where the island ends: at nodes that require a layout of a value."""

    axes: dict[Value, int] = field(default_factory=dict)
    borders: list[tuple[Node, Value]] = field(default_factory=list)


class Images:
    """What a graph function computes of images: who makes and who reads what, and the contractions with weights."""

    def __init__(self, function: GraphFunction) -> None:
        self.nodes = function.nodes
        self.results = frozenset(function.results)
        self.constant: set[Value] = set()
        self.makers: dict[Value, Node] = {}
        self.readers: dict[Value, list[Node]] = {}
        self.contractions: dict[Node, Channels] = {}
        for node in function.nodes:
            if isinstance(node.attrs, Constant | Full) or (node.inputs and self.constant.issuperset(node.inputs)):
                self.constant.update(node.outputs)
            self.makers.update(dict.fromkeys(node.outputs, node))
            for value in dict.fromkeys(node.inputs):
                self.readers.setdefault(value, []).append(node)
            found = read_channels(node, self.constant) if isinstance(node.attrs, ContractAttributes) else None
            if found is not None:
                self.contractions[node] = found

    def islands(self) -> list[Island]:
        """The islands around all contractions with weights. Excluded are those whose channels are innermost already,
        those where a value would have two axes of channels, and those with a dynamic size besides the batch."""
        found: dict[Value, Island] = {}
        for node, channels in self.contractions.items():
            for place in ((node.inputs[channels.image], channels.read), (node.outputs[0], channels.made)):
                if place[0] not in found and not is_last(*place):
                    island = self._island(*place)
                    found.update(dict.fromkeys(island.axes, island))
        return [i for i in dict.fromkeys(found.values()) if i.axes and all(map(_is_known, i.axes))]

    def _island(self, value: Value, axis: int) -> Island:
        island, waiting = Island({value: axis}), [(value, axis)]
        while waiting:
            value, axis = waiting.pop()
            maker = self.makers.get(value)
            for node in (*([maker] if maker is not None else []), *self.readers.get(value, ())):
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
        if node in self.contractions:
            return self.contractions[node].tied(node, value, axis)
        if len(node.outputs) != 1:
            return None
        (out,), attrs = node.outputs, node.attrs
        if node.op.elementwise:
            whole = [v for v in (*node.inputs, out) if v.type.shape == out.type.shape]
            return [(v, axis) for v in whole] if value in whole else None
        if node.op.name == "reshape":
            return under_shape(value, axis, out if value is not out else node.inputs[0])
        if isinstance(attrs, PadAttributes):
            plain = attrs.low[axis] is ZERO and attrs.high[axis] is ZERO and value is not node.inputs[1]
            return [(node.inputs[0], axis), (out, axis)] if plain else None
        if isinstance(attrs, ReduceAttributes):
            (x,) = node.inputs
            kept = [n for n in range(x.type.rank) if attrs.keepdims or n not in attrs.axes]
            read = kept[axis] if value is out else axis
            return None if read in attrs.axes else [(x, read), (out, kept.index(read))]
        return None


def read_channels(node: Node, constant: set[Value]) -> Channels | None:
    """The channels of a contraction with weights, pointwise or depthwise; None for another contraction."""
    assert isinstance(node.op, Contract)
    floats = all(v.type.dtype is dtypes.f32 for v in (*node.inputs, *node.outputs))
    if not floats or [v in constant for v in node.inputs] not in ([True, False], [False, True]):
        return None
    assert isinstance(node.attrs, ContractAttributes)
    maps = node.op.index_maps(TypeContext("contract"), tuple([v.type for v in node.inputs]), node.attrs)
    image = 0 if node.inputs[1] in constant else 1
    own = {axis for index in maps.spec.operands[1 - image] for axis, _ in index.terms}
    wide = {a for a in maps.spec.axes if maps.extent(a) is not ONE}
    read = {i.axis: n for n, i in enumerate(maps.spec.operands[image]) if i.axis in own & wide}
    made = {a: n for n, a in enumerate(maps.spec.output) if a in own & wide}
    if len(read) != 1 or len(made) != 1:
        return None
    ((one, place),), ((other, target),) = read.items(), made.items()
    pointwise = all(index.axis is not None for index in maps.spec.operands[image])
    return Channels(maps, image, place, target, one == other) if one == other or pointwise else None


def under_shape(value: Value, axis: int, other: Value) -> list[Place] | None:
    """The axis of channels of a view of a value: the one with the same extent, outer size and inner size."""
    shape, viewed = value.type.shape, other.type.shape
    before, behind = product_of(shape[:axis]), product_of(shape[axis + 1 :])
    for n, extent in enumerate(viewed):
        if extent is shape[axis] and product_of(viewed[:n]) is before and product_of(viewed[n + 1 :]) is behind:
            return [(other, n)]
    return None


def _is_known(value: Value) -> bool:
    """Whether no dimension of a value but the first is dynamic."""
    return all(isinstance(e, Const) for e in value.type.shape[1:])


def is_last(value: Value, axis: int) -> bool:
    """Whether channels are innermost: all dimensions after them are 1."""
    return all(e is ONE for e in value.type.shape[axis + 1 :])


def order(rank: int, axis: int) -> tuple[int, ...]:
    """The order of a value's axes with the axis of channels moved to the end."""
    return (*[n for n in range(rank) if n != axis], axis)
