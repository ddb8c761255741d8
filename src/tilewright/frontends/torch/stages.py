"""Which nodes of a graph run compiled, and which one by one in PyTorch: an order of both without circles.

Nodes that are not supported part the others into stages: a node is in the stage after those of the unsupported nodes
that it depends on. What is supported of a stage is one piece, compiled as a whole; it runs before the stage's other
nodes, none of which it depends on.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import torch

from tilewright.frontends.torch.ports import VIEWS, Node, is_size

SILENT = frozenset(("aten._assert_tensor_metadata.default",))
"""Operators that check what fake tensors have checked already: they are left out."""


@dataclass(frozen=True)
class Piece:
    """Nodes that are compiled as a whole, what they take, and what others take of them."""

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


def is_called(node: Node) -> bool:
    """Whether a node computes something that is no size."""
    return node.op == "call_function" and not is_size(node) and str(node.target) not in SILENT


def is_item(node: Node) -> bool:
    """Whether a node picks one of several results."""
    return node.target is operator.getitem


def draws(node: Node) -> bool:
    """Whether a node draws from PyTorch's generator."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def has_effect(node: Node) -> bool:
    """Whether a node does more than give a result: draws random numbers, writes into an operand, or checks something.
    Such nodes keep their order."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return draws(node) or target._schema.is_mutable or not node.users


def split_views(results: Collection[Node]) -> tuple[set[Node], set[Node]]:
    """(the results that are views, with the views that they are made of; the other results, and what those are views
    of). Views are made of what they view after all else has run, so that results share memory where eager's do."""
    views: set[Node] = set()
    whole: set[Node] = set()
    waiting = list(results)
    while waiting:
        node = waiting.pop()
        if str(node.target) not in VIEWS:
            whole.add(node)
        elif node not in views:
            views.add(node)
            waiting.append(node.args[0])
    return views, whole


def part(nodes: Sequence[Node], eager: Collection[Node], results: Collection[Node]) -> list[Piece | Node]:
    """Pieces and nodes in an order in which they can run. `eager` nodes run in PyTorch; `results` are wanted."""
    after: dict[Node, int] = {}
    effects = 0
    compiled: dict[int, list[Node]] = {}
    alone: dict[int, list[Node]] = {}
    for node in nodes:
        if not is_called(node):
            continue
        stage = max((after.get(a, 0) for a in _operands(node)), default=0)
        if node in eager:
            if is_item(node):
                stage = after[node.args[0]] - 1  # it is there as soon as the results are that it is one of
            elif has_effect(node):
                effects = stage = max(stage, effects)
            alone.setdefault(stage, []).append(node)
            after[node] = stage + 1
        else:
            compiled.setdefault(stage, []).append(node)
            after[node] = stage
    found: list[Piece | Node] = []
    for stage in sorted({*compiled, *alone}):
        if stage in compiled and (piece := _piece(compiled[stage], results)) is not None:
            found.append(piece)
        found += alone.get(stage, [])
    return found


def _operands(node: Node) -> Iterable[Node]:
    """The nodes that a node takes, those behind sizes among them."""
    waiting, seen = list(node.all_input_nodes), set[Node]()
    while waiting:
        operand = waiting.pop()
        if operand in seen:
            continue
        seen.add(operand)
        if is_size(operand):
            waiting += operand.all_input_nodes
        else:
            yield operand


def _piece(nodes: Sequence[Node], results: Collection[Node]) -> Piece | None:
    """The piece of these nodes, without those that nothing takes; None where none is left. Sizes are expressions of
    what is outside."""
    own, kept = set(nodes), set[Node]()
    for node in reversed(nodes):
        if node in results or any(u in kept or (u not in own and is_called(u)) for u in node.users):
            kept.add(node)
    ordered = [n for n in nodes if n in kept]
    taken = dict.fromkeys(a for n in ordered for a in n.all_input_nodes if a not in kept and not is_size(a))
    constants = [a for a in taken if a.op == "get_attr"]
    outputs = [n for n in ordered if _is_tensor(n) and (n in results or any(_takes(u, kept) for u in n.users))]
    if not outputs:
        return None
    return Piece((*constants, *ordered), tuple([a for a in taken if a.op != "get_attr"]), tuple(outputs))


def _takes(user: Node, kept: Collection[Node]) -> bool:
    return user not in kept and is_called(user)


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
