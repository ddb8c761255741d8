"""Operators that a joint graph of forward and backward pass repeats are called once.

Backward passes name parts of their forward pass again: `x - mean` of a normalisation, masks. Called once, such a value
is one that may be saved (saved.py). PyTorch's own pass for that brings Inductor's lowerings along, half a second of a
first call. Left alone are operators that draw numbers, write to operands or leave memory as it is, those whose sizes
depend on numbers, each of which has symbols of its own, and all that shares memory with a result: results are as many
tensors as in eager mode.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tilewright.frontends.torch.ports import Node
from tilewright.frontends.torch.stages import is_item

_UNLIKE = frozenset(("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty"))
_TAGS = (torch.Tag.nondeterministic_seeded, torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


def call_once(graph: Any) -> None:
    """Changes a graph in place. Its nodes carry fake tensors."""
    *nodes, output = graph.nodes
    kept = _memory([node.meta.get("val") for node in output.all_input_nodes])
    found: dict[Hashable, Node] = {}
    written = 0
    for node in nodes:
        if node.op != "call_function":
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is not None and schema.is_mutable:
            written += 1  # what is read on both sides of it may differ
        elif (is_item(node) or _is_plain(node.target, schema)) and kept.isdisjoint(_memory([node.meta.get("val")])):
            named = sorted(node.kwargs.items())
            key = _key((written, node.meta.get("recompute"), node.target, node.args, named))
            first = node if key is None else found.setdefault(key, node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph.erase_node(node)


def _is_plain(target: Any, schema: Any) -> bool:
    """Whether what an operator gives follows from its operands, and its sizes from theirs."""
    return schema is not None and schema.name not in _UNLIKE and not any(tag in target.tags for tag in _TAGS)


def _memory(values: Iterable[Any]) -> set[StorageWeakRef]:
    """The memory of tensors, those in tuples among them."""
    tensors = [v for value in values for v in (value if isinstance(value, list | tuple) else [value])]
    dense = [v for v in tensors if isinstance(v, torch.Tensor) and v.layout is torch.strided]
    return {StorageWeakRef(v.untyped_storage()) for v in dense}


def _key(value: Any) -> Hashable | None:
    """What two calls share that give the same; None where that cannot be told, as of sizes that are symbols."""
    if isinstance(value, list | tuple):
        parts = [_key(part) for part in value]
        return None if None in parts else (type(value), *parts)
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | dict | slice):
        return None
    return (type(value), repr(value) if isinstance(value, float | complex) else value)
