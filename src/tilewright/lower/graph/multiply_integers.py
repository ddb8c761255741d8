"""Products of dequantized factors become products of their integers, where the machine adds up products of bytes.

    f: f32[n, k] = mul(cast(sub(cast(x, i32), 7), f32), 0.1)                  x: u8[n, k]
    g: f32[k, m] = mul(cast(w, f32), t)                                       w: i8[k, m], t: f32[m], constants
    y: f32[n, m] = contract(f, g, spec="ik,kj->ij")
    =>
    s: i32[n, m] = contract(x, w, spec="ik,kj->ij", dtype=i32)
    y: f32[n, m] = mul(cast(sub(s, c), f32), u)               c[0, j] = 7 * the sums of w[k, j] over k, u = 0.1 * t

So do products of integers less their zero point: contract(sub(cast(x, i16), 7), w, dtype=i32) becomes sub(s, c).

What moves elements between a factor and its product moves the bytes instead; padding is of the zero point then, the
integer that stands for 0. Sums of integers are exact, as long as they fit i32, which is checked; those of floats are
rounded in each step. So results differ by these roundings, and from those of a runtime of quantized models by none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tilewright.core.records import dataclass
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DTYPES, DType
from tilewright.expr.nodes import Const, const
from tilewright.graph.edit import Array, Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.lower.graph.constant_operands import same_over, sums_over
from tilewright.lower.graph.shift_signs import SHIFT, shifted, unsigned_is_faster
from tilewright.ops.contract import ContractAttributes, maps_of
from tilewright.ops.index_maps import IndexMaps, parse
from tilewright.ops.movement import PadAttributes, PadMode
from tilewright.ops.symbolic import Full
from tilewright.plan.price.contraction import choose_dot, dot_of
from tilewright.target import Target

BYTES = (dtypes.u8, dtypes.i8)
INTEGERS = (*BYTES, dtypes.i16, dtypes.i32)
MOVES = frozenset({"transpose", "reshape", "slice", "broadcast", "pad"})
"""Operators that only move elements of their first operand."""
KNOWN = frozenset({"cast", "sub", "mul", "reshape", "transpose", "broadcast"})
"""Operators that dequantized constants are made by."""
LARGEST_BYTE = 255

Taken = Mapping[DType, DType]


def multiply_integers(module: Module, target: Target) -> Module:
    """The module with such products of bytes, where the target has an instruction that adds them up."""
    taken = _taken(target)
    return over_graphs(module, lambda m, f: _rewrite(m, f, taken, target)) if taken else module


def _taken(target: Target) -> Taken:
    """What each type of bytes is multiplied as, by signed ones. Products of wider copies take as long as those of
    floats, for which there are Winograd's tiles, too: they are none of these."""
    found = {t: choose_dot(t, dtypes.i8, dtypes.i32, target) for t in BYTES}
    able = {t: t for t, dot in found.items() if dot is not None and DTYPES[dot.element] in BYTES}
    return able | {dtypes.i8: dtypes.u8} if dtypes.u8 in able and unsigned_is_faster(target) else able


def _rewrite(module: Module, function: GraphFunction, taken: Taken, target: Target) -> Module:
    edit = Edit(module, function)
    for node in function.nodes:
        made = None
        if isinstance(node.attrs, ContractAttributes) and _has_room(node, taken, target):
            made = _on_bytes(edit, node, taken)
        if made is None or not edit.replace(node, (made,)):
            edit.keep(node)
    return edit.finish()


def _has_room(node: Node, taken: Taken, target: Target) -> bool:
    """Whether a contraction of two factors in f32 or i32 has terms enough for the instructions."""
    wide = {v.type.dtype for v in node.outputs} <= {dtypes.f32, dtypes.i32} and len(node.inputs) == 2
    return wide and all(dot_of(maps_of(node), t, dtypes.i8, dtypes.i32, target) for t in taken.values())


@dataclass(frozen=True, slots=True)
class Factor:
    """(bytes - zero) * scale, without a scale where it is an integer; moved by `moves`, the first of them first."""

    bytes: Value
    zero: int
    scale: float | None
    moves: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Weights:
    """numbers * scales of a constant factor: integers that fit i8, and their scales, of the same shape."""

    numbers: Array
    scales: Array


def _on_bytes(edit: Edit, node: Node, taken: Taken) -> Value | None:
    """What takes the place of a contraction's output; None where it stays."""
    inputs = edit.inputs(node)
    floats = node.outputs[0].type.dtype is dtypes.f32
    if floats and any(v.type.dtype is not dtypes.f32 for v in inputs):
        return None
    for place in (0, 1):
        factor = find_factor(edit, inputs[place])
        if factor is None or factor.bytes.type.dtype not in taken or (factor.scale is not None) != floats:
            continue
        weights = find_weights(edit, inputs[1 - place]) if _has_columns(maps_of(node), 1 - place) else None
        if weights is not None:
            return _product(edit, node, factor, weights, place, taken)
    return None


def _has_columns(maps: IndexMaps, operand: int) -> bool:
    """Whether an operand has an axis of the output that the other one has not, as in products and convolutions over
    channels. Each element of the other one is read several times then."""
    spec = maps.spec
    other = {axis for index in spec.operands[1 - operand] for axis, _ in index.terms}
    return any(index.axis in spec.output and index.axis not in other for index in spec.operands[operand])


def _product(edit: Edit, node: Node, factor: Factor, weights: Weights, place: int, taken: Taken) -> Value | None:
    """The product of the bytes, less what the zero point adds to it, times the scales. Signed ones become unsigned
    before they are moved, where these are faster."""
    attrs, name = node.attrs, node.outputs[0].name
    assert isinstance(attrs, ContractAttributes)
    spec = parse(attrs.spec)
    sums, sizes = (sums_over(w, spec, 1 - place) for w in (weights.numbers, np.abs(weights.numbers)))
    scales = same_over(weights.scales, spec, 1 - place)
    if sums is None or sizes is None or scales is None or sizes.max(initial=0) * LARGEST_BYTE > dtypes.i32.max:
        return None
    edit.source = node.source
    if taken[factor.bytes.type.dtype] is not factor.bytes.type.dtype:
        factor = replace(factor, bytes=shifted(edit, factor.bytes), zero=factor.zero + int(SHIFT))
    moved = _moved(edit, factor)
    if moved is None:
        return None
    held = edit.constant(weights.numbers.astype(np.int8), "integers")
    operands = (moved, held) if place == 0 else (held, moved)
    product = edit.typed("contract", operands, {"spec": attrs.spec, "sizes": attrs.sizes, "dtype": dtypes.i32}, name)
    if product is None:
        return None
    total = edit.add(product).outputs[0]
    if factor.zero:
        total = _op(edit, "sub", (total, edit.constant((sums * factor.zero).astype(np.int32), "excess")), {}, name)
    if factor.scale is None:
        return total
    scale = edit.constant(scales * np.float32(factor.scale), "scales")
    return _op(edit, "mul", (_op(edit, "cast", (total,), {"dtype": dtypes.f32}, name), scale), {}, name)


def _op(edit: Edit, op: str, inputs: tuple[Value, ...], attrs: dict[str, object], name: str) -> Value:
    node = edit.typed(op, inputs, attrs, name)
    assert node is not None, f"{op} takes operands of any shape that broadcast"
    return edit.add(node).outputs[0]


def find_factor(edit: Edit, value: Value) -> Factor | None:
    """The bytes that a value is made from, less one zero point, by one scale or none; None where it is made otherwise,
    and of bytes as they are."""
    moves: list[Node] = []
    node = edit.producer(value)
    while node is not None and _moves_zeros(edit, node):
        moves.append(node)
        value = node.inputs[0]
        node = edit.producer(value)
    scale = None
    if node is not None and node.op.name == "mul":
        scale, whole = number_of(edit, node.inputs[1]), edit.made_by(node.inputs[0], "cast")
        if scale is None or whole is None:
            return None
        value = whole.inputs[0]
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
    return Factor(value, zero, scale, tuple(reversed(moves)))


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


def _moved(edit: Edit, factor: Factor) -> Value | None:
    """The bytes, moved; padded by their zero point."""
    value = factor.bytes
    for move in factor.moves:
        inputs: tuple[Value, ...] = (value,)
        if isinstance(move.attrs, PadAttributes):
            zero = {"value": const(factor.zero, value.type.dtype), "shape": ()}
            inputs = (value, _op(edit, "full", (), zero, "zero"))
        fields = dict(zip(type(move.attrs)._fields, move.attrs.field_values(), strict=True))
        made = edit.typed(move.op.name, inputs, fields, move.outputs[0].name)
        if made is None:
            return None
        value = edit.add(made).outputs[0]
    return value
