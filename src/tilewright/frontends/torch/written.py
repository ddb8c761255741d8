"""Graphs of ATen operators as text: equal texts compile to equal programs.

A line for each node: its kind, its target, its arguments, nodes by their numbers, and its fake value: type, sizes,
strides and offset. Of tensors that the graph holds, the numbers count, too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tilewright.frontends.torch.captured import Captured
from tilewright.frontends.torch.ports import Node

PROGRAMS: dict[str, str] = {}
"""By the names of overloads of operators that are programs (`custom.py`), a digest of the program."""


class Unwritable(Exception):
    """A graph holds what no text says completely."""


def write_graph(captured: Captured) -> str:
    """The text of a graph. Unwritable where it holds what no text says."""
    numbers: dict[Node, int] = {node: n for n, node in enumerate(captured.nodes)}
    lines = [_line(captured, node, numbers) for node in captured.nodes]
    kinds = {"weights": captured.weights, "saved": captured.saved, "spent": captured.spent}
    return "\n".join([*lines, *(f"{kind} {sorted(numbers[n] for n in nodes)}" for kind, nodes in kinds.items())])


def _line(captured: Captured, node: Node, numbers: Mapping[Node, int]) -> str:
    if node.op == "get_attr":
        return f"held {_held(captured.constant(node.target))}"
    if node.op == "placeholder":
        return f"input {_value(node.meta.get('val'))}"
    if node.op not in ("call_function", "output"):
        raise Unwritable
    target = "" if node.op == "output" else _target(node.target)
    given = _argument((node.args, node.kwargs), numbers)
    return f"{node.op} {target} {given} {_value(node.meta.get('val'))}"


def _target(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return f"{target} {target._schema} {PROGRAMS.get(str(target), '')}"
    if isinstance(target, torch._ops.HigherOrderOperator):  # such as a check whose effect is ordered by a token
        raise Unwritable
    return f"{target.__module__}.{target.__qualname__}"


def _argument(argument: Any, numbers: Mapping[Node, int]) -> str:
    """An argument of an operator, with the kind of each part."""
    if isinstance(argument, torch.fx.Node):
        return f"%{numbers[argument]}"
    if isinstance(argument, list | tuple):
        parts = ", ".join([_argument(a, numbers) for a in argument])
        return f"[{parts}]" if isinstance(argument, list) else f"({parts})"
    if isinstance(argument, dict):
        return f"{{{', '.join([f'{name}: {_argument(a, numbers)}' for name, a in argument.items()])}}}"
    if isinstance(argument, float):
        return argument.hex()
    if argument is None or isinstance(argument, bool | int | str | complex):
        return repr(argument)
    if isinstance(argument, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return str(argument)
    if isinstance(argument, torch.SymInt | torch.SymFloat | torch.SymBool):
        return _size(argument)
    raise Unwritable


def _value(value: Any) -> str:
    """What a fake value says of the numbers that it stands for."""
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return f"({', '.join([_value(v) for v in value])})"
    if isinstance(value, torch.Tensor):
        plain = value.layout is torch.strided
        strides = _sizes([*value.stride(), value.storage_offset()]) if plain else ""
        kind = f"{value.dtype} {value.device} {value.layout} {value.is_neg()} {value.is_conj()}"
        return f"{kind} {_sizes(value.shape)} {strides}"
    if isinstance(value, bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
        return f"{type(value).__name__} {_size(value)}"
    raise Unwritable


def _sizes(sizes: Sequence[Any]) -> str:
    return f"[{', '.join([_size(s) for s in sizes])}]"


def _size(size: Any) -> str:
    return repr(size) if isinstance(size, bool | int | float) else str(size.node.expr)


def _held(tensor: Any) -> str:
    """A tensor that the graph holds, by its numbers."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise Unwritable
    state = hashlib.sha256()
    if math.prod(tensor.shape):
        dense = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        state.update(memoryview(dense.view(torch.uint8).numpy()))
    return f"{_value(tensor)} {state.hexdigest()}"
