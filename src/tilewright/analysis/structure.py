"""What a kernel is but for names.

form_of(function)     equal for functions that differ in the names of buffers, blocks and variables alone
key_of(function)      a text that is the same in every process, for functions that differ in names alone

Both are asked of every kernel of a compilation. A form is made in one walk, of values that print alike in every
process, so that its text is what a key is made of.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from functools import cache

from tilewright.core.node import Node
from tilewright.expr.dtypes import DType
from tilewright.expr.intrinsics import Intrinsic
from tilewright.expr.nodes import Var
from tilewright.loops.nodes import Block, Buffer, Function
from tilewright.target.instructions import Instruction

Form = tuple[object, ...]

_NODE, _TUPLE = "node", "tuple"
"""What stands before the number of a node that came before, and before the length of a tuple."""

_NAMED = frozenset((Buffer, Block, Var))
"""Nodes whose first field is their name."""

_PLAIN = frozenset((type(None), bool, int, str))
"""Types of values that are equal where they print alike, and print alike in every process."""


def form_of(function: Function) -> Form:
    """What a function shares with those that are the same but for the names of buffers, blocks and variables: its
    nodes, each before what it holds, in words; a node that came before is its number. Constants stand for themselves,
    zeros of either sign apart."""
    numbers: dict[Node, int] = {}
    words: list[object] = []
    waiting: list[object] = [function.replace(name="", source=())]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind in _PLAIN:
            words.append(value)
        elif isinstance(value, tuple):
            words.append((_TUPLE, len(value)))
            waiting += value[::-1]
        elif kind is float:
            words.append(repr(value))
        elif not isinstance(value, Node):
            words.append(_word(value))
        elif value in numbers:
            words.append((_NODE, numbers[value]))
        else:
            numbers[value] = len(numbers)
            words.append(kind.__qualname__)
            waiting += value.field_values()[: 0 if kind in _NAMED else None : -1]
    return tuple(words)


def key_of(function: Function) -> str:
    """The SHA-256, in hexadecimal digits, of a function's form: sizes, types and arithmetic count, names do not."""
    return hashlib.sha256(repr(form_of(function)).encode()).hexdigest()


@cache
def _word(value: object) -> str:
    """The name of one of a few values."""
    match value:
        case DType() | Instruction() | Intrinsic():
            return f"{type(value).__name__} {value.name}"
        case Enum():
            return f"{type(value).__name__}.{value.name}"
        case type():
            return value.__qualname__
    raise TypeError(f"a kernel holds a {type(value).__name__}, which has no text of its own")
