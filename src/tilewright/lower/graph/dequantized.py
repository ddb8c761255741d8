"""What was dequantized: the integers that a factor of a product is made from, and their scales.

mul(cast(sub(cast(x, i32), 7), f32), 0.1)           x: u8[n, k]                             a factor
mul(cast(w, f32), t)                                w: i8[k, m], t: f32[m], constants       weights
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const
from tilewright.graph.edit import Array, Edit
from tilewright.graph.nodes import Node, Value
from tilewright.ops.pad import PadAttributes, PadMode
from tilewright.ops.symbolic import Full

BYTES = (dtypes.u8, dtypes.i8)
INTEGERS = (*BYTES, dtypes.i16, dtypes.i32)
MOVES = frozenset({"transpose", "reshape", "slice", "broadcast", "pad"})
"""Operators that only move elements of their first operand."""
KNOWN = frozenset({"cast", "sub", "mul", "reshape", "transpose", "broadcast"})
"""Operators that dequantized constants are made by."""


@dataclass(frozen=True, slots=True)
class Factor:
    """(bytes - zero) * scale, without a scale where it is an integer; moved by `moves`, the first of them first.
    `whole` is bytes - zero, as f32 where there is a scale."""

    bytes: Value
    zero: int
    scale: float | None
    moves: tuple[Node, ...]
    whole: Value


@dataclass(frozen=True, slots=True)
class Weights:
    """numbers * scales of a constant factor: integers that fit i8, and their scales, of the same shape."""

    numbers: Array
    scales: Array


def find_factor(edit: Edit, value: Value) -> Factor | None:
    """The bytes that a value is made from, less one zero point, by one scale or none; None where it is made otherwise,
    and of bytes as they are."""
    moves: list[Node] = []
    node = edit.producer(value)
    while node is not None and _moves_zeros(edit, node):
        moves.append(node)
        value = node.inputs[0]
        node = edit.producer(value)
    scale, whole = None, value
    if node is not None and node.op.name == "mul":
        scale, cast = number_of(edit, node.inputs[1]), edit.made_by(node.inputs[0], "cast")
        if scale is None or cast is None:
            return None
        value, whole = cast.inputs[0], node.inputs[0]
    difference, zero = edit.made_by(value, "sub"), 0
    if difference is not None:
        shift, wide = number_of(edit, difference.inputs[1]), edit.made_by(difference.inputs[0], "cast")
        if shift is None or wide is None or value.type.dtype not in (dtypes.i16, dtypes.i32):
            return None
        value, zero = wide.inputs[0], int(shift)
    elif scale is None:
        return None
    if value.type.dtype not in BYTES or not value.type.dtype.min <= zero <= value.type.dtype.max:
        return None
    return Factor(value, zero, scale, tuple(reversed(moves)), whole)


def _moves_zeros(edit: Edit, node: Node) -> bool:
    """Whether a node moves elements, and adds none but zeros."""
    if isinstance(node.attrs, PadAttributes):
        return node.attrs.mode is PadMode.CONSTANT and number_of(edit, node.inputs[1]) == 0
    return node.op.name in MOVES


def number_of(edit: Edit, value: Value) -> float | None:
    """The number that a constant of one element is."""
    array = known(edit, value)
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def known(edit: Edit, value: Value) -> Array | None:
    """The elements of a value that follows from constants by what dequantizes them."""
    array = edit.array(value)
    node = edit.producer(value)
    if array is not None or node is None:
        return array
    if isinstance(node.attrs, Full):
        shape = value.type.static_shape()
        return None if shape is None else np.full(shape, node.attrs.value.value, value.type.dtype.numpy)
    if node.op.name not in KNOWN or not all(isinstance(d, Const) for d in value.type.shape):
        return None
    inputs = [known(edit, v) for v in node.inputs]
    if any(x is None for x in inputs):
        return None
    return node.op.meaning(tuple([x for x in inputs if x is not None]), node.attrs.evaluated({}))[0]


def find_weights(edit: Edit, value: Value) -> Weights | None:
    """The integers and scales of a constant factor, whose scales are 1 where it is of integers; None of others, and of
    integers that i8 has not."""
    node = edit.producer(value)
    if node is None or not all(isinstance(d, Const) for d in value.type.shape):
        return None
    if value.type.dtype in INTEGERS:
        return _weights(known(edit, value), np.ones((), np.float32))
    if node.op.name in MOVES and node.op.name != "pad":
        before = find_weights(edit, node.inputs[0])
        if before is None:
            return None
        moved = (node.op.meaning((x,), node.attrs.evaluated({}))[0] for x in (before.numbers, before.scales))
        return Weights(*moved)
    whole = edit.made_by(node.inputs[0], "cast") if node.op.name == "mul" else None
    if whole is None or whole.inputs[0].type.dtype not in INTEGERS or whole.inputs[0].type.shape != value.type.shape:
        return None
    return _weights(known(edit, whole.inputs[0]), known(edit, node.inputs[1]))


def _weights(numbers: Array | None, scales: Array | None) -> Weights | None:
    if numbers is None or scales is None or not numbers.size:
        return None
    if numbers.min() < dtypes.i8.min or numbers.max() > dtypes.i8.max:
        return None
    return Weights(numbers.astype(np.int32), np.broadcast_to(scales, numbers.shape))
