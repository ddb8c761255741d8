"""What a kernel is but for names.

form_of(function)     equal for functions that differ in the names of buffers, blocks and variables alone
key_of(function)      a text that is the same in every process, for functions that differ in names alone
"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Any

from tilewright.core.node import Node
from tilewright.core.walk import nodes_in
from tilewright.expr.dtypes import DType
from tilewright.expr.intrinsics import Intrinsic
from tilewright.expr.nodes import Const, Var
from tilewright.loops.nodes import Block, Buffer, Function
from tilewright.target.instructions import Instruction

Form = tuple[object, ...]

_NODE = "node"
"""What stands before the number of a node."""

_NAMED = frozenset((Buffer, Block, Var))
"""Nodes whose first field is their name."""

_PLAIN = frozenset((type(None), bool, int, float, str))
"""Types of values that print alike in every process."""


def form_of(function: Function) -> Form:
    """What a function shares with those that are the same but for the names of buffers, blocks and variables: its
    nodes, each behind those that it holds, which stand in it by their numbers. Constants stand for themselves, zeros of
    either sign apart."""
    numbers: dict[object, object] = {}
    rows: list[object] = []
    stack: list[Node] = [function.replace(name="", source=())]
    held: dict[Node, tuple[object, ...]] = {}
    while stack:
        node = stack[-1]
        if node in numbers:
            stack.pop()
            continue
        fields = held.get(node)
        if fields is None:
            held[node] = fields = node.field_values()
            waiting = [part for part in nodes_in(fields) if part not in numbers]
            if waiting:
                waiting.reverse()
                stack += waiting
                continue
        stack.pop()
        kind = type(node)
        numbers[node] = (_NODE, len(rows))
        rows.append(node if kind is Const else (kind, _numbered(fields[1:] if kind in _NAMED else fields, numbers)))
    return tuple(rows)


def _numbered(values: tuple[object, ...], numbers: dict[object, object]) -> tuple[object, ...]:
    """The fields with numbers in the places of nodes."""
    return tuple(
        [_numbered(v, numbers) if type(v) is tuple else numbers[v] if isinstance(v, Node) else v for v in values]
    )


def key_of(function: Function) -> str:
    """The SHA-256, in hexadecimal digits, of a function's form: sizes, types and arithmetic count, names do not."""
    words: list[str] = []
    _write(form_of(function), words)
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def _write(values: tuple[Any, ...], words: list[str]) -> None:
    """Values as words that say no place in memory; each tuple with its length, so that no two forms run together."""
    words.append(f"({len(values)}")
    for value in values:
        kind = type(value)
        if kind is tuple:
            if len(value) == 2 and value[0] == _NODE:  # nearly all
                words.append(f"#{value[1]}")
            else:
                _write(value, words)
        elif kind in _PLAIN:
            words.append(repr(value))
        else:
            words.append(_word(value))


def _word(value: object) -> str:
    match value:
        case Const():
            return f"{value.type.name} {value.value!r}"
        case DType() | Instruction() | Intrinsic():
            return value.name
        case Enum():
            return f"{type(value).__name__}.{value.name}"
        case type():
            return value.__qualname__
    raise TypeError(f"a kernel holds a {type(value).__name__}, which has no text of its own")
