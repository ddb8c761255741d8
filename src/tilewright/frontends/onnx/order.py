"""The order of a graph's nodes: every value defined once, and before it is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tilewright.frontends.build.names import clip
from tilewright.report.errors import UserError

if TYPE_CHECKING:
    from onnx import NodeProto


def check_order(nodes: Sequence[NodeProto], inputs: Iterable[str], initializers: Iterable[str]) -> None:
    """UserError unless each name is defined once and no node uses what a later one defines."""
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
    for position, node in enumerate(nodes):
        for name in node.input:
            if makers.get(name, -1) >= position:
                raise _out_of_order(nodes, makers, position, name)


def _out_of_order(nodes: Sequence[NodeProto], makers: dict[str, int], user: int, name: str) -> UserError:
    cycle = _cycle(nodes, makers)
    if cycle is not None:
        shown = " → ".join(_shown(nodes[n]) for n in cycle[:8])
        return UserError("the nodes of a graph form a cycle", where=shown, fix="use the operator Loop for repetition")
    why = f"it uses {clip(name)}, which {_shown(nodes[makers[name]])} defines later"
    return UserError(
        "the nodes of a graph are not in order", where=_shown(nodes[user]), why=why, fix="sort them topologically"
    )


def _cycle(nodes: Sequence[NodeProto], makers: dict[str, int]) -> list[int] | None:
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
                stack += [(makers[i], False) for i in nodes[node].input if i in makers]
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
