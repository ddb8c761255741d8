"""Rounds factors of f32 products to bf16 where that is faster; sums and everything else stay f32.

    y: f32[n, m] = contract(x, w, spec="ik,kj->ij")                      x: f32[n, k], w: f32[k, m] a constant
    =>
    h: bf16[n, k] = cast(x, dtype=bf16)
    y: f32[n, m] = contract(h, v, spec="ik,kj->ij", dtype=f32)           v: bf16[k, m], w rounded

Roundings are ordinary casts to nearest even, so the graph after the pass defines the result exactly: products of bf16
numbers are exact in f32, and sums are in f32. A cast is placed where the factor is computed, before nodes that move its
elements or take the greatest of some, unless another node reads these. Then the kernel that stores the factor can round
it, and half as many bytes are moved. Where element-wise operators alone read it beside products, such as the sum behind
a residual connection, they read the rounded numbers, too, so that no others are stored. plan/rewrite/precision.py
chooses the factors. Winograd's and Strassen's products are excluded: factors of the former are rounded when tiles are
chosen, and all others amplify errors too much. Those of attentions are excluded, for they stay in registers and caches.
"""

from __future__ import annotations

from collections import defaultdict

import ml_dtypes

from tilewright.analysis.dataflow import Dataflow
from tilewright.expr import dtypes
from tilewright.expr.nodes import const
from tilewright.graph.constants import Held, read, varies
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.later import later
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.pad import PadAttributes, PadMode
from tilewright.ops.reduce import ReduceKind
from tilewright.ops.symbolic import Full
from tilewright.ops.window import WindowReduceAttributes
from tilewright.plan.attention.recognise import attentions
from tilewright.plan.price.kernels import CostModel
from tilewright.plan.rewrite.precision import choose_rounded
from tilewright.target import Target

MOVES = frozenset({"transpose", "reshape", "slice", "broadcast", "pad", "concat", "window_reduce"})
"""Operators that only move elements, or take the greatest or least of some: a cast, which keeps their order, moves
through them."""


def reduce_precision(module: Module, target: Target) -> Module:
    """The module with factors rounded where the target computes their products faster then."""
    alive = eliminate_dead(module)
    made = over_graphs(alive, lambda m, f: _reduce(m, f, target))
    return module if made is alive else made


def _reduce(module: Module, function: GraphFunction, target: Target) -> Module:
    chosen = _choose(function, target)
    if not chosen:
        return module
    moved = _movements(function, chosen)
    edit, shared = _Rounding(module, function), _shared(function, chosen, moved)
    for node in function.nodes:
        places = chosen.get(node, ())
        made = edit.rounded(node, places) if places else edit.of_rounded(node, shared)
        if made is None or not edit.replace(node, edit.add(made).outputs):
            edit.keep(node)
        if node in moved:
            edit.move(node)
    return edit.finish()


def _choose(function: GraphFunction, target: Target) -> dict[Node, tuple[int, ...]]:
    """The contractions whose factors are rounded, and which of these."""
    flow = Dataflow(function)
    model = CostModel(flow, target)
    attended = {node for nodes in attentions(flow) for node in nodes}
    chosen: dict[Node, tuple[int, ...]] = {}
    for node in function.nodes:
        if isinstance(node.attrs, ContractAttributes) and node not in attended and not _is_of_transforms(node, flow):
            places = choose_rounded(node, model)
            if places:
                chosen[node] = places
    return chosen


def _is_of_transforms(node: Node, flow: Dataflow) -> bool:
    """Whether a contraction is a product of Winograd's tiles, or one of Strassen's half-size products."""
    makers = [flow.makers[v] for v in node.inputs if v in flow.makers]
    return any(m.op.transforms or (m.op.moves and _is_of_transforms(m, flow)) for m in makers)


def _movements(function: GraphFunction, chosen: dict[Node, tuple[int, ...]]) -> frozenset[Node]:
    """The nodes that move elements of rounded factors and of nothing else: they are rounded before."""
    readers: defaultdict[Value, list[tuple[Node, int]]] = defaultdict(list)
    for node in function.nodes:
        for place, value in enumerate(node.inputs):
            readers[value].append((node, place))
    moved: set[Node] = set()
    for node in reversed(function.nodes):
        if not _moves(node) or node.outputs[0] in function.results:
            continue
        uses = readers[node.outputs[0]]
        if uses and all((r in moved and place < _count_moved(r)) or place in chosen.get(r, ()) for r, place in uses):
            moved.add(node)
    return frozenset(moved)


def _count_moved(node: Node) -> int:
    """How many of the first inputs of a node that moves elements have these."""
    return len(node.inputs) if node.op.name == "concat" else 1


def _shared(function: GraphFunction, chosen: dict[Node, tuple[int, ...]], moved: frozenset[Node]) -> frozenset[Value]:
    """The rounded factors that nothing reads but products, movements of them, and element-wise operators."""
    rounded = {node.inputs[n] for node, places in chosen.items() for n in places}
    rounded |= {v for node in moved for v in node.inputs[: _count_moved(node)]}
    other = {v for n in function.nodes if n not in chosen and n not in moved and not n.op.elementwise for v in n.inputs}
    other |= {v for node, places in chosen.items() for n, v in enumerate(node.inputs) if n not in places}
    made = {v for n in function.nodes if n not in moved for v in n.outputs}
    return frozenset((rounded & made) - other - set(function.results))


def _moves(node: Node) -> bool:
    if isinstance(node.attrs, PadAttributes):
        return node.attrs.mode is PadMode.CONSTANT
    if isinstance(node.attrs, WindowReduceAttributes):
        return node.attrs.kind in (ReduceKind.MAX, ReduceKind.MIN)
    return node.op.name in MOVES


class _Rounding(Edit):
    """A function while its factors are rounded."""

    def __init__(self, module: Module, function: GraphFunction) -> None:
        super().__init__(module, function)
        self._rounded: dict[Value, Value] = {}

    def rounded(self, node: Node, places: tuple[int, ...]) -> Node | None:
        """The contraction over rounded operands, which are added before it."""
        attrs = node.attrs
        assert isinstance(attrs, ContractAttributes)
        self.source = node.source
        inputs = [self._cast(v) if n in places else self.resolve(v) for n, v in enumerate(node.inputs)]
        fields = {"spec": attrs.spec, "sizes": attrs.sizes, "dtype": node.outputs[0].type.dtype}
        return self.typed("contract", tuple(inputs), fields, node.outputs[0].name)

    def of_rounded(self, node: Node, shared: frozenset[Value]) -> Node | None:
        """An element-wise node over the rounded numbers of those inputs that are `shared` with products; None where it
        has none of them."""
        if not node.op.elementwise or shared.isdisjoint(node.inputs):
            return None
        self.source = node.source
        inputs = [self._widened(v) if v in shared else self.resolve(v) for v in node.inputs]
        fields = dict(zip(type(node.attrs)._fields, node.attrs.field_values(), strict=True))
        return self.typed(node.op.name, tuple(inputs), fields, node.outputs[0].name)

    def _widened(self, value: Value) -> Value:
        return self._made("cast", (self._cast(value),), {"dtype": value.type.dtype}, value.name)

    def move(self, node: Node) -> None:
        """Adds the node that moves elements, for rounded ones."""
        (out,) = node.outputs
        self.source = node.source
        fields = dict(zip(type(node.attrs)._fields, node.attrs.field_values(), strict=True))
        made = self.typed(node.op.name, tuple([self._cast(v) for v in node.inputs]), fields, out.name)
        if made is not None:
            self._rounded[out] = self.add(made).outputs[0]

    def _cast(self, old: Value) -> Value:
        """A value of the old function, rounded where it is made: constants at compile time, others by a cast."""
        if old not in self._rounded:
            value = self.resolve(old)
            array, node = self.held(value), self.producer(value)
            if array is not None:
                self._rounded[old] = self.constant(self._rounded_constant(value, array), old.name)
            elif node is not None and isinstance(node.attrs, Full):
                number = ml_dtypes.bfloat16(node.attrs.value.value)
                fields = {"value": const(float(number), dtypes.bf16), "shape": node.attrs.shape}
                self._rounded[old] = self._made("full", (), fields, old.name)
            else:
                self._rounded[old] = self._made("cast", (value,), {"dtype": dtypes.bf16}, old.name)
        return self._rounded[old]

    def _rounded_constant(self, value: Value, array: Held) -> Held:
        """A constant rounded, now or when its weights are known."""
        if not varies(array):
            return read(array).astype(ml_dtypes.bfloat16)
        node = self.typed("cast", (value,), {"dtype": dtypes.bf16}, value.name)
        assert node is not None, "numbers can always be cast"
        return later(node, (array,))[0]

    def _made(self, op: str, inputs: tuple[Value, ...], fields: dict[str, object], name: str) -> Value:
        node = self.typed(op, inputs, fields, name)
        assert node is not None, f"{op} can always be typed"
        return self.add(node).outputs[0]
