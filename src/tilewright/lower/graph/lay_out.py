"""Stores images of few positions with channels innermost, where that is cheaper.

    h: f32[1, 480, 196] = contract(x, w, spec="n c p, o c -> n o p")          x: f32[1, 80, 196]
    y: f32[1, 480, 196] = relu(h)
    =>
    t: f32[1, 196, 80] = transpose(x, perm=(0, 2, 1))                         where the island of x begins
    i: f32[1, 196, 480] = contract(t, w, spec="n p c, o c -> n p o")
    z: f32[1, 196, 480] = relu(i)
    y: f32[1, 480, 196] = transpose(z, perm=(0, 2, 1))                        where a reader needs the former layout

plan/rewrite/layout.py finds the values that share their layout, and chooses the images. Operators and elements stay the
same; only the order of axes changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.expr.dtypes import bf16, f32
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.ops.checks import ONE
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import Spec
from tilewright.ops.movement import ShapeAttributes
from tilewright.ops.reduce import ReduceAttributes
from tilewright.plan.price.contraction import Dot
from tilewright.plan.price.dots import choose_tiles
from tilewright.plan.rewrite.layout import Images, Island, choose_islands, is_last, order, reordered
from tilewright.target import Target


def lay_out(module: Module, target: Target, halves: bool = False) -> Module:
    """The module with such images stored so, for a target's vectors; with `halves`, factors may be rounded to bf16, and
    for the machine's tiles."""
    module, tiles = eliminate_dead(module), choose_tiles(bf16, bf16, f32, target) if halves else None
    made = over_graphs(module, lambda m, f: _lay_out(m, f, target, tiles))
    return simplify_graph(made) if made is not module else module


def _lay_out(module: Module, function: GraphFunction, target: Target, tiles: Dot | None) -> Module:
    images = Images(function, tiles)
    return store_last(module, function, images, choose_islands(images, target))


def store_last(module: Module, function: GraphFunction, images: Images, islands: Sequence[Island]) -> Module:
    """The module with these islands of a function, which `images` describes, stored with channels innermost."""
    axes = {value: axis for island in islands for value, axis in island.axes.items()}
    return _Layouts(module, function, images, axes).rewrite() if axes else module


class _Layouts(Edit):
    """A function while it is rewritten: `axes` has the axis of channels of each value that is stored with channels
    innermost, `last` the value in that layout, once it is made."""

    def __init__(self, module: Module, function: GraphFunction, images: Images, axes: dict[Value, int]) -> None:
        super().__init__(module, function)
        self.images, self.axes = images, axes
        self.last: dict[Value, Value] = {}

    def rewrite(self) -> Module:
        for value in self.function.params:
            self._turn(value, value)
        for node in self.function.nodes:
            self.source = node.source
            if any(v in self.axes for v in (*node.inputs, *node.outputs)) and self._relaid(node):
                continue
            for value in node.inputs:
                self._as_it_was(value)
            kept = self.keep(node)
            for old, made in zip(node.outputs, kept.outputs, strict=True):
                self._turn(old, made)
        for value in self.function.results:
            self._as_it_was(value)
        return self.finish()

    def _turn(self, old: Value, value: Value) -> None:
        """Transposes a value that is made in its former layout, so that channels are innermost."""
        if old in self.axes:
            self.last[old] = self._moved(value, self.axes[old])

    def _as_it_was(self, value: Value) -> None:
        """Makes a value with channels innermost readable in its former layout, too."""
        maker = self.images.flow.makers.get(value)
        if value not in self.last or maker is None or self.producer(value) is not None:
            return
        if self.resolve(value) is value:
            last = order(value.type.rank, self.axes[value])
            perm = tuple([last.index(n) for n in range(len(last))])
            self.replace(maker, (self._make("transpose", self.last[value], perm=perm),))

    def _make(self, op: str, *inputs: Value, **attrs: Any) -> Value:
        node = self.typed(op, inputs, attrs, op)
        assert node is not None, f"{op} of a value whose axes are in another order can be typed as before"
        return self.add(node).outputs[0]

    def _moved(self, value: Value, axis: int) -> Value:
        """A value with an axis moved to the end: a view if only dimensions of size 1 move."""
        perm = order(value.type.rank, axis)
        if is_last(value, axis) or value.type.shape[axis] is ONE:
            shape = tuple([value.type.shape[n] for n in perm])
            return value if shape == value.type.shape else self._make("reshape", value, shape=shape)
        return self._make("transpose", value, perm=perm)

    def _relaid(self, node: Node) -> bool:
        """Adds the node with its axes reordered, if it reads or makes such a value; whether it does."""
        made = self._contraction(node) if node in self.images.contractions else self._other(node)
        if made is None:
            return False
        (out,) = node.outputs
        if out in self.axes:
            self.last[out] = made
        else:
            self.replace(node, (made if made.type is out.type else self._make("reshape", made, shape=out.type.shape),))
        return True

    def _contraction(self, node: Node) -> Value | None:
        channels = self.images.contractions[node]
        assert isinstance(node.attrs, ContractAttributes)
        image, (out,) = node.inputs[channels.image], node.outputs
        if self.axes.get(image, channels.read) != channels.read or self.axes.get(out, channels.made) != channels.made:
            return None
        operands, output = list(channels.maps.spec.operands), channels.maps.spec.output
        inputs = list(self.inputs(node))
        if image in self.axes:
            indices = operands[channels.image]
            operands[channels.image] = tuple([indices[n] for n in order(len(indices), channels.read)])
            inputs[channels.image] = self.last[image]
        if out in self.axes:
            output = tuple([output[n] for n in order(len(output), channels.made)])
        spec = Spec(tuple(operands), output, channels.maps.spec.reduce)
        return self._make("contract", *inputs, spec=str(spec), sizes=node.attrs.sizes, dtype=node.attrs.dtype)

    def _other(self, node: Node) -> Value | None:
        """The node of an operator that passes the axis of channels on; None where it requires the former layout."""
        value = next(v for v in (*node.inputs, *node.outputs) if v in self.axes)
        axis = self.axes[value]
        if self.images.tied(node, value, axis) is None:
            return None
        attrs, x = node.attrs, node.inputs[0]
        if isinstance(attrs, ShapeAttributes):
            return self._view(node, attrs)
        if isinstance(attrs, ReduceAttributes):
            perm = order(x.type.rank, self.axes[x])
            axes = tuple(sorted(perm.index(n) for n in attrs.axes))
            return self._make("reduce", self.last[x], kind=attrs.kind, axes=axes, keepdims=attrs.keepdims)
        made = reordered(node, axis)
        assert made is not None, f"{node.op.name} passes its layout on"
        fields = dict(zip(type(made)._fields, made.field_values(), strict=True))
        return self._make(node.op.name, *[self._operand(v, node, axis) for v in node.inputs], **fields)

    def _operand(self, value: Value, node: Node, axis: int) -> Value:
        """An operand of an operator that passes its layout on: if element-wise, it may have fewer dimensions; else such
        an operand is no image."""
        if value in self.last:
            return self.last[value]
        value, rank = self.resolve(value), node.outputs[0].type.rank
        if all(e is ONE for e in value.type.shape) if node.op.elementwise else value.type.rank < rank:
            return value
        shape = (ONE,) * (rank - value.type.rank) + value.type.shape
        whole = value if shape == value.type.shape else self._make("reshape", value, shape=shape)
        return self._moved(whole, axis)

    def _view(self, node: Node, attrs: ShapeAttributes) -> Value | None:
        (x,), (out,) = node.inputs, node.outputs
        if x not in self.axes:
            return None
        shape = out.type.shape
        if out in self.axes:
            shape = tuple([shape[n] for n in order(len(shape), self.axes[out])])
        return self._make("reshape", self.last[x], shape=shape)
