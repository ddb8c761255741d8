"""Results whose innermost axes are the places of a window get these outermost: vectors along three places are nearly
empty. The gradients of a convolution's weights are such results.

    w: f32[64, 32, 3, 3] = contract(d, x, spec="n o s t, n c s+k t+l -> o c k l", …)
    =>
    q: f32[2, 18, 18, 32] = transpose(x, perm=(0, 2, 3, 1))
    v: f32[3, 3, 64, 32] = contract(d, q, spec="n o s t, n s+k t+l c -> k l o c", …)
    w: f32[64, 32, 3, 3] = transpose(v, perm=(2, 3, 0, 1))

Vectors run along an axis beside the windows that fills them. It is a matter of price: both transposes take time, and
multiply-adds are fewer by what was empty. Contractions with constants are left to other passes, which pack them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.analysis.dataflow import Dataflow
from tilewright.analysis.sizes import sizes_of_images
from tilewright.expr.dtypes import f32
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.ops.contract import ContractAttributes, maps_of
from tilewright.ops.index_maps import IndexMaps, Spec
from tilewright.plan.price.points import transpose_cycles
from tilewright.target import Target
from tilewright.target.transfer import reread_seconds, rewrite_seconds


def turn_places(module: Module, target: Target) -> Module:
    """The module with such results turned where that is cheaper."""
    return over_graphs(module, lambda m, f: _Turns(m, f, target).rewrite())


@dataclass(frozen=True, slots=True)
class _Turn:
    """The order of a result's axes, with the axis `lane` at the end, and the operand that has that axis."""

    order: tuple[str, ...]
    lane: str
    operand: int


class _Turns(Edit):
    """A function while its results are turned."""

    def __init__(self, module: Module, function: GraphFunction, target: Target) -> None:
        super().__init__(module, function)
        self.target, self.lanes = target, target.lanes(f32)
        self.flow = Dataflow(function, sizes=sizes_of_images(function))

    def rewrite(self) -> Module:
        for node in self.function.nodes:
            made = self._turned(node) if isinstance(node.attrs, ContractAttributes) else None
            if made is None or not self.replace(node, (made,)):
                self.keep(node)
        return self.finish()

    def _turned(self, node: Node) -> Value | None:
        """The value of a contraction whose result is turned; None where it stays."""
        maps, inputs = maps_of(node), list(self.inputs(node))
        turn = None if any(self.held(v) is not None for v in inputs) else self._find(maps)
        if turn is None or not self._pays(node, maps, turn):
            return None
        self.source = node.source
        assert isinstance(node.attrs, ContractAttributes)
        spec = maps.spec
        indices = spec.operands[turn.operand]
        place = next(n for n, index in enumerate(indices) if index.axis == turn.lane)
        perm = (*[n for n in range(len(indices)) if n != place], place)
        operands = list(spec.operands)
        operands[turn.operand] = tuple([indices[n] for n in perm])
        moved = self.typed("transpose", (inputs[turn.operand],), {"perm": perm}, "turned")
        assert moved is not None, "a transpose can always be typed"
        inputs[turn.operand] = moved.outputs[0]
        text = str(Spec(tuple(operands), turn.order, spec.reduce))
        fields = {"spec": text, "sizes": node.attrs.sizes, "dtype": node.attrs.dtype}
        product = self.typed("contract", tuple(inputs), fields, node.outputs[0].name)
        if product is None:
            return None
        back = tuple([turn.order.index(axis) for axis in spec.output])
        result = self.typed("transpose", product.outputs, {"perm": back}, node.outputs[0].name)
        assert result is not None, "a transpose can always be typed"
        for made in (moved, product, result):
            self.add(made)
        return result.outputs[0]

    def _find(self, maps: IndexMaps) -> _Turn | None:
        """How to turn a result; None where its last axis is no place of a window, or no axis beside fills a vector."""
        spec = maps.spec
        if len(spec.operands) != 2:
            return None
        alone = [{index.axis for index in indices} - {None} for indices in spec.operands]
        places = [axis for axis in spec.output if not any(axis in own for own in alone)]
        if not places or spec.output[-1] != places[-1] or self._extent(maps, places[-1]) >= self.lanes:
            return None
        ends = [any(places[-1] in dict(i.terms) for i in indices) for indices in spec.operands]
        windowed = ends.index(True)
        beside = [a for a in spec.output if a in alone[windowed] and a not in alone[1 - windowed]]
        lane = max(beside, key=lambda axis: self._extent(maps, axis), default=None)
        if lane is None or self._extent(maps, lane) < self.lanes:
            return None
        both = [axis for axis in spec.output if all(axis in own for own in alone)]
        rest = [axis for axis in spec.output if axis not in (*both, *places, lane)]
        return _Turn((*both, *places, *rest, lane), lane, windowed)

    def _pays(self, node: Node, maps: IndexMaps, turn: _Turn) -> bool:
        """Whether the multiply-adds in full vectors, and the transposes, take less than those in vectors along places:
        the operand is moved from and to the cache that holds both copies of it, and so is the result."""
        (out,), core = node.outputs, self.target.core
        terms = 1
        for axis in maps.spec.reduce:
            terms *= self._extent(maps, axis)
        last = self._extent(maps, maps.spec.output[-1])
        saved = self.flow.elements(out) * terms * core.fma_cycles * (1 / last - 1 / self.lanes)
        return sum(map(self._moved, (node.inputs[turn.operand], out))) < saved

    def _moved(self, value: Value) -> float:
        """Cycles to transpose a value in a kernel of its own."""
        size = self.flow.bytes(value)
        seconds = reread_seconds(size, 2 * size, self.target) + rewrite_seconds(size, 2 * size, self.target)
        least = transpose_cycles(self.flow.elements(value), self.lanes, self.target)
        return max(least, (seconds + self.target.core.kernel_seconds) * self.target.core.hertz)

    def _extent(self, maps: IndexMaps, axis: str) -> int:
        """The extent of an axis, of a dynamic one what is assumed."""
        return self.flow.extent(maps.extent(axis))
