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
from itertools import takewhile

from tilewright.analysis.dataflow import Dataflow
from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr
from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.movement import TransposeAttributes
from tilewright.ops.reduce import ReduceAttributes
from tilewright.target.abilities import SHORTEST_LANES

LEAST_KEYS = 48
"""All scores of fewer keys than this stay in cache, and rows side by side are faster for them than rows in lanes."""


def attentions(flow: Dataflow) -> list[tuple[Node, ...]]:
    """The nodes of each attention of a graph, in program order. The last node of each is the only one whose value is
    needed outside."""
    nodes = flow.function.nodes
    if not any(node.op.name == "exp" for node in nodes):
        return []
    taken: set[Node] = set()
    found: list[tuple[Node, ...]] = []
    for node in nodes:
        if node not in taken and _is_product(node) and _is_at_least(node.outputs[0].type.shape[-1], LEAST_KEYS):
            own = _nodes(flow, node)
            if own and not taken & set(own):
                taken.update(own)
                found.append(own)
    return found


def _is_product(node: Node) -> bool:
    """Whether a node is a product of two tensors over rows and columns enough for tiles, two of the shortest vectors:
    fewer leave a tile or a vector empty, and such products run as they do elsewhere."""
    if not isinstance(node.attrs, ContractAttributes) or len(node.inputs) != 2 or node.inputs[0] is node.inputs[1]:
        return False
    shape, kinds = node.outputs[0].type.shape, {v.type.dtype for v in (*node.inputs, *node.outputs)}
    return kinds == {dtypes.f32} and len(shape) >= 2 and all(_is_at_least(n, 2 * SHORTEST_LANES) for n in shape[-2:])


def _is_at_least(extent: Expr, least: int) -> bool:
    return not isinstance(extent, Const) or int(extent.value) >= least


def _nodes(flow: Dataflow, first: Node) -> tuple[Node, ...]:
    """The nodes of the attention that begins with a product, in program order; none where it begins none."""
    between, second = _follow_scores(flow, first)
    sums = [n for n in between if isinstance(n.attrs, ReduceAttributes) and n.attrs.kind.value == "sum"]
    if second is None or not sums or not any(n.op.name == "exp" for n in between):
        return ()
    inside = {first, *between, second}
    inside |= _behind(flow, second, inside)
    if any(user not in inside for node in between for user in _readers(flow, node)):
        return ()
    operands = [*first.inputs, *(v for v in second.inputs if flow.makers.get(v) not in inside)]
    inside |= _before(flow, operands, inside)
    return tuple(sorted(inside, key=lambda n: flow.place[n]))


def _readers(flow: Dataflow, node: Node) -> list[Node]:
    return [reader for value in node.outputs for reader in flow.readers_of(value)]


def _is_result(flow: Dataflow, node: Node) -> bool:
    return any(value in flow.results for value in node.outputs)


def _follow_scores(flow: Dataflow, first: Node) -> tuple[set[Node], Node | None]:
    """All that depends on scores up to one product, and that: maps of them and reductions over keys, but for what
    divides the second product by what rows come to. No product where there is anything else, or none."""
    shape, second = first.outputs[0].type.shape, None
    between: set[Node] = set()
    pending = _readers(flow, first)
    if _is_result(flow, first):
        return between, None
    while pending:
        node = pending.pop()
        if node in between or node is second or (node.op.name == "div" and _is_behind(flow, node, first)):
            continue
        if _is_product(node) and second is None:
            second = node
            continue
        if not _keeps_rows(node, shape) or _is_result(flow, node):
            return between, None
        between.add(node)
        pending += _readers(flow, node)
    return between, second


def _is_behind(flow: Dataflow, node: Node, first: Node) -> bool:
    """Whether what a node divides is moved from another product than the first."""
    maker = flow.makers.get(node.inputs[0])
    while maker is not None and maker.op.moves:
        maker = flow.makers.get(maker.inputs[0])
    return maker is not None and _is_product(maker) and maker is not first


def _behind(flow: Dataflow, second: Node, inside: set[Node]) -> set[Node]:
    """The nodes behind the second product that move or convert its elements, or divide them by what rows come to.
    Views at the end stay outside: they are no work."""
    made: list[Node] = []
    node = second
    while not _is_result(flow, node) and len(_readers(flow, node)) == 1:
        value, (node,) = node.outputs[0], _readers(flow, node)
        others = [v for v in node.inputs if flow.makers.get(v) not in {*inside, *made}]
        if not (node.op.moves or node.op.name in ("div", "cast")) or others or node.inputs.count(value) > 1:
            break
        made.append(node)
    while made and made[-1].op.pattern is Pattern.VIEW:
        made.pop()
    return set(made)


def _before(flow: Dataflow, operands: Iterable[Value], inside: set[Node]) -> set[Node]:
    """The nodes before the products that move elements of their operands, and scale them on the way, where nobody
    else needs these. Views and maps at the top stay outside, where they are part of what comes before."""
    made: set[Node] = set()
    chains = [list(_chain(flow, value)) for value in operands]

    def is_own(node: Node) -> bool:
        known = inside | made
        return node in known or not (_is_result(flow, node) or any(r not in known for r in _readers(flow, node)))

    while found := {n for chain in chains for n in takewhile(is_own, chain)} - inside - made:
        made |= found
    for chain in chains:
        for node in reversed([n for n in chain if n in made]):
            fed = any(flow.makers.get(v) in made for v in node.inputs)
            if fed or (node.op.moves and node.op.pattern is not Pattern.VIEW):
                break
            made.discard(node)
    return made


def _chain(flow: Dataflow, value: Value) -> Iterator[Node]:
    """The nodes that an operand comes through, from the product upwards: they move its elements, or scale them all by
    one number; up to a view that cuts rows of a transpose in pieces."""
    node = flow.makers.get(value)
    while node is not None and (node.op.moves or _is_scaling(flow, node)):
        yield node
        above, before, after = flow.makers.get(node.inputs[0]), node.inputs[0].type.shape, node.outputs[0].type.shape
        cuts = node.op.pattern is Pattern.VIEW and before[-2:] != after[-2:]
        if cuts and above is not None and isinstance(above.attrs, TransposeAttributes):
            return
        node = above


def _is_scaling(flow: Dataflow, node: Node) -> bool:
    if node.op.name not in ("mul", "div") or len(node.inputs) != 2:
        return False
    other = flow.makers.get(node.inputs[1])
    return other is not None and other.op.name == "full"


def _keeps_rows(node: Node, shape: tuple[Expr, ...]) -> bool:
    """Whether a node is a map of scores, or what rows come to, point by point; or a reduction over keys."""
    if isinstance(node.attrs, ReduceAttributes):
        return node.attrs.axes == (len(node.inputs[0].type.shape) - 1,) and node.attrs.keepdims
    if node.op.name == "reshape":
        return all(v.type.shape[-2:-1] == shape[-2:-1] for v in (*node.inputs, *node.outputs))
    plain = node.op.elementwise and len(node.outputs) == 1
    return plain and all(v.type.dtype in (dtypes.f32, dtypes.bool_) for v in node.inputs)
