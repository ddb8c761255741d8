"""Signed bytes become unsigned ones where the machine multiplies unsigned by signed bytes better.

    y: i32[n, m] = contract(x, w, spec="ik,kj->ij", dtype=i32)          x: i8[n, k], w: i8[k, m] a constant
    =>
    u: u8[n, k] = add(cast(x, u8), 128)                                 x + 128, which wraps around to where it belongs
    s: i32[n, m] = contract(u, w, spec="ik,kj->ij", dtype=i32)
    y: i32[n, m] = sub(s, c)                                            c[0, j] = 128 * the sum of w[k, j], a constant

Sums in i32 wrap around, so both are the same for all numbers.
"""

from __future__ import annotations

import numpy as np

from tilewright.expr import dtypes
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.lower.graph.constant_operands import sums_over
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import parse
from tilewright.plan.price.dots import choose_dot, dot_cycles
from tilewright.target import Target

SHIFT = -dtypes.i8.min


def shift_signs(module: Module, target: Target) -> Module:
    """The module with contractions of signed bytes with constants made such of unsigned bytes, where that pays."""
    return over_graphs(module, _shift) if unsigned_is_faster(target) else module


def unsigned_is_faster(target: Target) -> bool:
    """Whether the machine multiplies unsigned by signed bytes better than signed ones."""
    signed, unsigned = (choose_dot(t, dtypes.i8, dtypes.i32, target) for t in (dtypes.i8, dtypes.u8))
    return unsigned is not None and (signed is None or dot_cycles(unsigned, target) < dot_cycles(signed, target))


def shifted(edit: Edit, value: Value) -> Value:
    """Adds x + 128 as u8 of a value x of i8."""
    bits = _op(edit, "cast", (value,), {"dtype": dtypes.u8}, "unsigned")
    return _op(edit, "add", (bits, edit.constant(np.asarray(SHIFT, np.uint8), "shift")), {}, "unsigned")


def _shift(module: Module, function: GraphFunction) -> Module:
    edit = Edit(module, function)
    for node in function.nodes:
        made = _shifted(edit, node) if isinstance(node.attrs, ContractAttributes) else None
        if made is None or not edit.replace(node, (made,)):
            edit.keep(node)
    return edit.finish()


def _shifted(edit: Edit, node: Node) -> Value | None:
    """What takes the place of a contraction's output; None where it stays."""
    attrs, inputs = node.attrs, edit.inputs(node)
    assert isinstance(attrs, ContractAttributes)
    if attrs.dtype is not dtypes.i32 or len(inputs) != 2 or any(v.type.dtype is not dtypes.i8 for v in inputs):
        return None
    arrays = [edit.array(v) for v in inputs]
    if (arrays[0] is None) == (arrays[1] is None):
        return None
    place = 0 if arrays[0] is None else 1
    weights = arrays[1 - place]
    assert weights is not None
    sums = sums_over(weights, parse(attrs.spec), 1 - place)
    if sums is None:
        return None
    edit.source = node.source
    moved = shifted(edit, inputs[place])
    operands = (moved, inputs[1]) if place == 0 else (inputs[0], moved)
    fields = {"spec": attrs.spec, "sizes": attrs.sizes, "dtype": attrs.dtype}
    product = edit.typed("contract", operands, fields, node.outputs[0].name)
    if product is None:
        return None
    total = edit.add(product).outputs[0]
    excess = edit.constant((sums * SHIFT).astype(np.int32), "excess")
    return _op(edit, "sub", (total, excess), {}, node.outputs[0].name)


def _op(edit: Edit, op: str, inputs: tuple[Value, ...], attrs: dict[str, object], name: str) -> Value:
    node = edit.typed(op, inputs, attrs, name)
    assert node is not None, f"{op} takes operands of any shape that broadcast"
    return edit.add(node).outputs[0]
