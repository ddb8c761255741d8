"""What a kernel is but for names.

form_of(function)     equal for functions that differ in the names of buffers, blocks and variables alone
key_of(function)      a text that is the same in every process, for functions that differ in names alone
"""

from __future__ import annotations

import hashlib
from enum import Enum

from tilewright.core.node import Node
from tilewright.core.walk import nodes_in
from tilewright.expr.dtypes import DType
from tilewright.expr.intrinsics import Intrinsic
from tilewright.expr.nodes import Const, Var
from tilewright.loops.nodes import Block, Buffer, Function
from tilewright.target.instructions import Instruction

Form = tuple[object, ...]


def form_of(function: Function) -> Form:
    """What a function shares with those that are the same but for the names of buffers, blocks and variables: its
    nodes, each behind those that it holds, which stand in it by their numbers. Constants stand for themselves, zeros of
    either sign apart."""
    numbers: dict[object, object] = {}
    rows: list[object] = []
    stack: list[Node] = [function.replace(name="", source=())]
    held: dict[Node, list[Node]] = {}
    while stack:
        node = stack[-1]
        if node in numbers:
            stack.pop()
            continue
        if node not in held:
            held[node] = nodes_in(node.field_values())
            stack += [part for part in reversed(held[node]) if part not in numbers]
            continue
        stack.pop()
        fields = node.field_values()[1:] if isinstance(node, Buffer | Block | Var) else node.field_values()
        numbers[node] = ("node", len(rows))
        rows.append(node if isinstance(node, Const) else (type(node), _numbered(fields, numbers)))
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


def _write(value: object, words: list[str]) -> None:
    """A value as words that say no place in memory; each tuple with its length, so that no two forms run together."""
    if type(value) is tuple:
        words.append(f"({len(value)}")
        for part in value:
            if type(part) is str or type(part) is int:  # nearly all
                words.append(repr(part))
            else:
                _write(part, words)
        return
    match value:
        case Const():
            words.append(f"{value.type.name} {value.value!r}")
        case DType() | Instruction() | Intrinsic():
            words.append(value.name)
        case Enum():
            words.append(f"{type(value).__name__}.{value.name}")
        case type():
            words.append(value.__qualname__)
        case None | bool() | int() | float() | str():
            words.append(repr(value))
        case _:
            raise TypeError(f"a kernel holds a {type(value).__name__}, which has no text of its own")
