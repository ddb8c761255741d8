"""The order of a graph's nodes: every value defined once, and before it is used.

ONNX asks for that order. In the main graph ONNX Runtime puts nodes in order itself, and so does `in_order`; in
sub-graphs and functions it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tilewright.frontends.build.names import clip
from tilewright.frontends.build.remarks import Remarks
from tilewright.frontends.onnx.kinds import UNSORTED
from tilewright.frontends.onnx.structure import initializer_names
from tilewright.report.errors import UserError

if TYPE_CHECKING:
    from onnx import NodeProto


def check_order(nodes: Sequence[NodeProto], inputs: Iterable[str], initializers: Iterable[str]) -> None:
    """UserError unless each name is defined once and no node uses what a later one defines."""
    makers = _makers(nodes, inputs, initializers)
    late = next(_late(nodes, [node.input for node in nodes], makers), None)
    if late is None:
        return
    _check_acyclic(nodes, [node.input for node in nodes], makers)
    user, name = late
    why, fix = _defined_later(nodes, makers, name), UNSORTED.fix
    raise UserError(UNSORTED.what, where=_shown(nodes[user]), why=why, fix=fix)


def in_order(
    nodes: Sequence[NodeProto], inputs: Iterable[str], initializers: Iterable[str], remarks: Remarks
) -> Sequence[NodeProto]:
    """The nodes so that none uses what a later one defines, sub-graphs included: in their own order where that is so
    already, else each after what it needs, with a remark. UserError for a name that is defined twice, or a cycle."""
    makers = _makers(nodes, inputs, initializers)
    used = [names_taken(node) for node in nodes]
    late = list(_late(nodes, used, makers))
    if not late:
        return nodes
    _check_acyclic(nodes, used, makers)
    for user, name in late:
        remarks.add(UNSORTED, _shown(nodes[user]), _defined_later(nodes, makers, name))
    done: set[int] = set()
    order: list[NodeProto] = []
    for root in range(len(nodes)):
        stack = [root]
        while stack:
            needed = [m for name in used[stack[-1]] if (m := makers.get(name)) is not None and m not in done]
            if stack[-1] in done or not needed:
                node = stack.pop()
                if node not in done:
                    done.add(node)
                    order.append(nodes[node])
            else:
                stack += needed
    return order


def _makers(nodes: Sequence[NodeProto], inputs: Iterable[str], initializers: Iterable[str]) -> dict[str, int]:
    """The place of the node that makes each value."""
    names = list(inputs)
    repeated = _first_repeated(names)
    if repeated is not None:
        raise UserError("two inputs have the same name", why=f"{clip(repeated)} is listed twice")
    given = {*names, *initializers}
    makers: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in node.output:
            if not name:
                continue
            if name in given or name in makers:
                first = _shown(nodes[makers[name]]) if name in makers else "an input or initializer"
                why = f"{clip(name)} is already defined by {first}"
                raise UserError("a value is defined twice", where=_shown(node), why=why, fix="rename one of them")
            makers[name] = position
    return makers


def names_taken(node: NodeProto) -> list[str]:
    """The names of the values that a node takes, those that its sub-graphs take from around them included."""
    return [*node.input, *_captured(node)]


def _captured(node: NodeProto) -> Iterator[str]:
    """The names that a node's sub-graphs take from around them."""
    for attribute in node.attribute:
        for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            own = {i.name for i in graph.input} | set(initializer_names(graph))
            own.update(name for inner in graph.node for name in inner.output)
            for inner in graph.node:
                yield from (name for name in (*inner.input, *_captured(inner)) if name not in own)
            yield from (o.name for o in graph.output if o.name not in own)


def _late(
    nodes: Sequence[NodeProto], used: Sequence[Iterable[str]], makers: dict[str, int]
) -> Iterator[tuple[int, str]]:
    """The places of nodes that use what they, or later ones, make, and what that is."""
    for position in range(len(nodes)):
        yield from ((position, name) for name in used[position] if makers.get(name, -1) >= position)


def _defined_later(nodes: Sequence[NodeProto], makers: dict[str, int], name: str) -> str:
    return f"it uses {clip(name)}, which {_shown(nodes[makers[name]])} defines later"


def _check_acyclic(nodes: Sequence[NodeProto], used: Sequence[Iterable[str]], makers: dict[str, int]) -> None:
    cycle = _cycle(nodes, used, makers)
    if cycle is not None:
        shown = " → ".join(_shown(nodes[n]) for n in cycle[:8])
        raise UserError("the nodes of a graph form a cycle", where=shown, fix="use the operator Loop for repetition")


def _cycle(nodes: Sequence[NodeProto], used: Sequence[Iterable[str]], makers: dict[str, int]) -> list[int] | None:
    """The nodes of a cycle, its first one repeated at the end; depth-first with a stack of its own."""
    done: set[int] = set()
    for root in range(len(nodes)):
        path: list[int] = []
        on_path: set[int] = set()
        stack = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                on_path.discard(path.pop())
                done.add(node)
            elif node in on_path:
                return [*path[path.index(node) :], node]
            elif node not in done:
                path.append(node)
                on_path.add(node)
                stack.append((node, True))
                stack += [(makers[i], False) for i in used[node] if i in makers]
    return None


def _first_repeated(names: list[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _shown(node: NodeProto) -> str:
    name = node.name or next((o for o in node.output if o), "")
    return f"{node.op_type} {clip(name)}"
