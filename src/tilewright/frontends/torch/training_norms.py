"""Normalizations of training graphs, taken apart: what is normalised follows from its moments element by element.

    y, mean, inverse = native_layer_norm(x, …)   =>   _, mean, inverse = native_layer_norm(x, …)
                                                      y = (x - mean) * inverse * weight + bias

So the backward pass may compute `y` again of `x` and of moments that it reads anyway (saved.py), as the handlers of the
normalizations do. Those of 16-bit floats stay whole, for they round once, behind all of it; so do those whose result
lies in memory in another way than `x`.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from tilewright.frontends.torch.ports import Layout, Node
from tilewright.frontends.torch.stages import is_item

aten = torch.ops.aten

CHANNELS = (aten._native_batch_norm_legit_functional.default, aten._native_batch_norm_legit.no_stats)
"""Those whose moments are one number a channel."""

WIDE = (torch.float32, torch.float64)


def take_apart(graph: Any) -> None:
    """Changes a graph in place. Its nodes carry fake tensors, and so do those that it gets."""
    for node in list(graph.nodes):
        if node.target is aten.native_layer_norm.default or (node.target in CHANNELS and _is_training(node)):
            results = [user for user in node.users if is_item(user) and user.args[1] == 0]
            x, y = node.args[0].meta["val"], node.meta["val"][0]
            if results and x.dtype is y.dtype in WIDE and Layout.of(x) == Layout.of(y):
                _take_apart(graph, node, results)


def _is_training(node: Node) -> bool:
    """Whether a batch is normalised by its own moments: the argument behind weight, bias and what is moved."""
    return bool(node.args[5 if node.target is CHANNELS[0] else 3])


def _take_apart(graph: Any, node: Node, results: list[Node]) -> None:
    x = node.args[0]
    is_layer = node.target is aten.native_layer_norm.default
    weight, bias = node.args[2:4] if is_layer else node.args[1:3]
    rank = x.meta["val"].dim()

    def made(target: Any, *arguments: Any) -> Node:
        found = graph.call_function(target, arguments)
        values = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in arguments]
        found.meta = {**results[0].meta, "val": target(*values)}
        found.meta.pop("tensor_meta", None)
        return found

    def item(n: int) -> Node:
        return made(operator.getitem, node, n)

    def aligned(value: Node) -> Node:
        """One number a channel, along the second dimension."""
        return value if is_layer else made(aten.view.default, value, [1, -1, *[1] * (rank - 2)])

    with graph.inserting_before(node.next):
        mean, inverse = item(1), item(2)
        y = made(aten.sub.Tensor, x, aligned(mean))
        if is_layer:
            y = made(aten.mul.Tensor, y, inverse)
            y = y if weight is None else made(aten.mul.Tensor, y, weight)
        else:
            scale = inverse if weight is None else made(aten.mul.Tensor, inverse, weight)
            y = made(aten.mul.Tensor, y, aligned(scale))
        y = y if bias is None else made(aten.add.Tensor, y, aligned(bias))
    for result in results:
        result.replace_all_uses_with(y)
        graph.erase_node(result)
