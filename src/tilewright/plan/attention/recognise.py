"""Attentions in a graph: which nodes are one kernel that never holds all scores.

    q, k, v = transpose(…), transpose(…), slice(…)      movement of data up to where the values are needed elsewhere
    s = contract(q, k)                                  the first product: scores
    p = softmax(s * scale + mask)                       maps of scores, and reductions over the keys
    o = contract(p, v)                                  the second product
    y = transpose(o)                                    movement of data behind it, a division by the row's sum, a cast

Any maps of scores may stand between the products, as long as an exponential and a sum over the keys are among them.
Nodes whose values others need stay outside, with all that they are made of; so do maps that can end the kernel before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr
from tilewright.graph.nodes import GraphFunction, Node, Value
from tilewright.graph.op import Pattern
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.reduce import ReduceAttributes
from tilewright.plan.fusion.dataflow import Dataflow

LEAST = 8
"""Fewer rows or keys than this leave a tile or a vector empty: such products run as they do elsewhere."""

LEAST_KEYS = 48
"""All scores of fewer keys than this stay in cache, and rows side by side are faster for them than rows in lanes."""

MOST_NODES = 40
"""The most nodes between the products."""


def attentions(function: GraphFunction) -> list[tuple[Node, ...]]:
    """The nodes of each attention of a graph, in program order. The last node of each is the only one whose value is
    needed outside."""
    if not any(node.op.name == "exp" for node in function.nodes):
        return []
    flow = Dataflow(function)
    taken: set[Node] = set()
    found: list[tuple[Node, ...]] = []
    for node in function.nodes:
        if node not in taken and _is_product(node) and _has_keys(node):
            nodes = _Attention(flow, node).nodes()
            if nodes and not taken & set(nodes):
                taken.update(nodes)
                found.append(nodes)
    return found


def _is_product(node: Node) -> bool:
    """Whether a node is a product of two tensors over rows and columns enough for tiles."""
    if not isinstance(node.attrs, ContractAttributes) or len(node.inputs) != 2 or node.inputs[0] is node.inputs[1]:
        return False
    type = node.outputs[0].type
    kinds = {v.type.dtype for v in (*node.inputs, *node.outputs)}
    return kinds == {dtypes.f32} and len(type.shape) >= 2 and all(_is_enough(n) for n in type.shape[-2:])


def _has_keys(first: Node) -> bool:
    keys = first.outputs[0].type.shape[-1]
    return not isinstance(keys, Const) or int(keys.value) >= LEAST_KEYS


def _is_enough(extent: Expr) -> bool:
    return not isinstance(extent, Const) or int(extent.value) >= LEAST


class _Attention:
    """The nodes of the attention that begins with a product, as they are found."""

    def __init__(self, flow: Dataflow, first: Node) -> None:
        self._flow, self._first = flow, first
        self._between: list[Node] = []
        self._second: Node | None = None

    def nodes(self) -> tuple[Node, ...]:
        """All of them in program order; none where the product begins no attention."""
        if not self._follow_scores() or self._second is None or not self._is_softmax():
            return ()
        inside = [self._first, *self._between, self._second]
        inside += self._behind({*inside})
        if any(user not in inside for node in self._between for user in self._readers(node)):
            return ()
        operands = [*self._first.inputs, *(v for v in self._second.inputs if self._flow.makers.get(v) not in inside)]
        inside += self._before(operands, {*inside})
        return tuple(sorted(inside, key=lambda n: self._flow.place[n]))

    def _readers(self, node: Node) -> list[Node]:
        return [reader for value in node.outputs for reader in self._flow.readers_of(value)]

    def _is_result(self, node: Node) -> bool:
        return any(value in self._flow.results for value in node.outputs)

    def _follow_scores(self) -> bool:
        """Whether all that depends on scores is maps of them and reductions over keys, up to one product."""
        shape = self._first.outputs[0].type.shape
        pending = self._readers(self._first)
        if self._is_result(self._first):
            return False
        while pending:
            node = pending.pop()
            if node in self._between or node is self._second:
                continue
            if _is_product(node) and self._second is None:
                self._second = node
                continue
            if node.op.name == "div" and self._is_behind(node):
                continue
            if not _keeps_rows(node, shape) or self._is_result(node) or len(self._between) >= MOST_NODES:
                return False
            self._between.append(node)
            pending += self._readers(node)
        return self._second is not None

    def _is_behind(self, node: Node) -> bool:
        """Whether a division is of the second product by what rows come to."""
        maker = self._flow.makers.get(node.inputs[0])
        while maker is not None and maker.op.moves:
            maker = self._flow.makers.get(maker.inputs[0])
        return maker is not None and _is_product(maker) and maker is not self._first

    def _is_softmax(self) -> bool:
        """Whether an exponential and a sum are between the products."""
        sums = [n for n in self._between if isinstance(n.attrs, ReduceAttributes) and n.attrs.kind.value == "sum"]
        return bool(sums) and any(n.op.name == "exp" for n in self._between)

    def _behind(self, inside: set[Node]) -> list[Node]:
        """The nodes behind the second product that move or convert its elements, or divide them by what rows come to.
        Views at the end stay outside: they are no work."""
        made: list[Node] = []
        assert self._second is not None
        node = self._second
        while not self._is_result(node) and len(self._readers(node)) == 1:
            value, (node,) = node.outputs[0], self._readers(node)
            others = [v for v in node.inputs if self._flow.makers.get(v) not in {*inside, *made}]
            if not (node.op.moves or node.op.name in ("div", "cast")) or others or node.inputs.count(value) > 1:
                break
            made.append(node)
        while made and made[-1].op.pattern is Pattern.VIEW:
            made.pop()
        return made

    def _before(self, operands: Iterable[Value], inside: set[Node]) -> list[Node]:
        """The nodes before the products that move elements of their operands, and scale them on the way, where nobody
        else needs these."""
        made: set[Node] = set()
        chains = [list(self._chain(value)) for value in operands]
        grown = True
        while grown:
            grown = False
            for chain in chains:
                for node in chain:
                    known = inside | made
                    if node in known:
                        continue
                    if self._is_result(node) or any(user not in known for user in self._readers(node)):
                        break
                    made.add(node)
                    grown = True
        for chain in chains:
            self._leave_out_top([n for n in chain if n in made], made)
        return list(made)

    def _chain(self, value: Value) -> Iterator[Node]:
        """The nodes that an operand comes through, from the product upwards."""
        node = self._flow.makers.get(value)
        while node is not None and (node.op.moves or self._is_scaling(node)):
            yield node
            node = self._flow.makers.get(node.inputs[0])

    def _is_scaling(self, node: Node) -> bool:
        """Whether a node multiplies or divides by one number."""
        if node.op.name not in ("mul", "div") or len(node.inputs) != 2:
            return False
        other = self._flow.makers.get(node.inputs[1])
        return other is not None and other.op.name == "full"

    def _leave_out_top(self, chain: list[Node], made: set[Node]) -> None:
        """Views and maps at the top of a chain stay outside, where they are part of what comes before."""
        for node in reversed(chain):
            others = [v for v in node.inputs if self._flow.makers.get(v) in made]
            if others or (node.op.moves and node.op.pattern is not Pattern.VIEW):
                return
            made.discard(node)


def _keeps_rows(node: Node, shape: tuple[Expr, ...]) -> bool:
    """Whether a node is a map of scores, or what rows come to, point by point; or a reduction over keys."""
    if isinstance(node.attrs, ReduceAttributes):
        rank = len(node.inputs[0].type.shape)
        return node.attrs.axes == (rank - 1,) and node.attrs.keepdims
    if node.op.name == "reshape":
        return all(v.type.shape[-2:-1] == shape[-2:-1] for v in (*node.inputs, *node.outputs))
    return node.op.elementwise and len(node.outputs) == 1 and all(v.type.dtype in _TYPES for v in node.inputs)


_TYPES = (dtypes.f32, dtypes.bool_)
