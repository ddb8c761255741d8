"""Branches of an If that end with a call of one function: it is called once, with the inputs that the branches give it.

    y = If(c) {f(a, w)} else {b = g(a); f(b, w)}            =>      x = If(c) {a} else {b = g(a); b}
                                                                    y = f(x, w)

Functions whose branches call the next function would otherwise double what is read at each level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


@dataclass(frozen=True, slots=True)
class SharedCall:
    """A call behind an If; the names in it for what the branches give, and the branches without it."""

    call: NodeProto
    chosen: list[str]
    branches: tuple[GraphProto, GraphProto]


def shared_call(then: GraphProto, otherwise: GraphProto, is_function: Callable[[NodeProto], bool]) -> SharedCall | None:
    """The call that both branches end with, if there is one."""
    if not (then.node and otherwise.node):
        return None
    first, second = then.node[-1], otherwise.node[-1]
    same = _callee(first) == _callee(second) and list(first.attribute) == list(second.attribute)
    sides = ((then, first), (otherwise, second))
    if (
        not same
        or not first.output
        or not is_function(first)
        or not all(_gives_all(graph, call) for graph, call in sides)
    ):
        return None
    pairs = list(zip(first.input, second.input, strict=False))
    if len(first.input) != len(second.input) or any(bool(a) != bool(b) for a, b in pairs):
        return None
    own = _defined(then) | _defined(otherwise)
    differ = [n for n, (a, b) in enumerate(pairs) if a != b or a in own]
    free = max((len(name) for name in first.input), default=0)  # longer names than these are others
    chosen = [f"{n}".rjust(free + 1 + n) for n in differ]
    call = type(first)()
    call.CopyFrom(first)
    for n, name in zip(differ, chosen, strict=True):
        call.input[n] = name
    return SharedCall(call, chosen, (_before(then, differ), _before(otherwise, differ)))


def _callee(node: NodeProto) -> tuple[str, str, str]:
    return node.domain, node.op_type, node.overload


def _gives_all(graph: GraphProto, call: NodeProto) -> bool:
    """Whether a graph gives what a call does, in this order."""
    return [o.name for o in graph.output] == list(call.output)


def _defined(graph: GraphProto) -> set[str]:
    """The names that a graph defines."""
    tensors = [*graph.initializer, *(s.values for s in graph.sparse_initializer)]
    return {t.name for t in tensors} | {name for node in graph.node for name in node.output}


def _before(graph: GraphProto, inputs: Sequence[int]) -> GraphProto:
    """A graph without the call at its end, which gives these inputs of it."""
    before = type(graph)()
    before.CopyFrom(graph)
    call = before.node.pop()
    del before.output[:]
    for n in inputs:
        before.output.add().name = call.input[n]
    return before
