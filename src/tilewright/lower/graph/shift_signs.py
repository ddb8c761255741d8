"""Signed bytes become unsigned ones where the machine multiplies unsigned by signed bytes better.

    y: i32[n, m] = contract(x, w, spec="ik,kj->ij", dtype=i32)          x: i8[n, k], w: i8[k, m] a constant
    =>
    u: u8[n, k] = add(cast(x, u8), 128)                                 x + 128, which wraps around to where it belongs
    s: i32[n, m] = contract(u, w, spec="ik,kj->ij", dtype=i32)
    y: i32[n, m] = sub(s, c)                                            c[0, j] = 128 * the sum of w[k, j], a constant

Sums in i32 wrap around, so both are the same for all numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.graph.edit import Array, Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import parse
from tilewright.plan.price.contraction import choose_dot, dot_cycles
from tilewright.target import Target

SHIFT = -dtypes.i8.min


def shift_signs(module: Module, target: Target) -> Module:
    """The module with contractions of signed bytes with constants made such of unsigned bytes, where that pays."""
    signed, unsigned = (choose_dot(t, dtypes.i8, dtypes.i32, target) for t in (dtypes.i8, dtypes.u8))
    if unsigned is None or (signed is not None and dot_cycles(signed, target) <= dot_cycles(unsigned, target)):
        return module
    return over_graphs(module, _shift)


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
    excess = _excess(weights, attrs, 1 - place)
    if excess is None:
        return None
    edit.source = node.source
    bits = _op(edit, "cast", (inputs[place],), {"dtype": dtypes.u8}, "unsigned")
    shift = edit.constant(np.asarray(SHIFT, np.uint8), "shift")
    moved = _op(edit, "add", (bits, shift), {}, "unsigned")
    operands = (moved, inputs[1]) if place == 0 else (inputs[0], moved)
    fields = {"spec": attrs.spec, "sizes": attrs.sizes, "dtype": attrs.dtype}
    sums = edit.typed("contract", operands, fields, node.outputs[0].name)
    if sums is None:
        return None
    total = edit.add(sums).outputs[0]
    return _op(edit, "sub", (total, edit.constant(excess, "excess")), {}, node.outputs[0].name)


def _op(edit: Edit, op: str, inputs: tuple[Value, ...], attrs: dict[str, object], name: str) -> Value:
    node = edit.typed(op, inputs, attrs, name)
    assert node is not None, f"{op} takes operands of any shape that broadcast"
    return edit.add(node).outputs[0]


def _excess(weights: Array, attrs: ContractAttributes, operand: int) -> Array | None:
    """128 times the sums of the constant operand over the reduced axes, to be subtracted from the output; None where
    it is not indexed by all of them, each by itself."""
    spec = parse(attrs.spec)
    axes = [index.axis for index in spec.operands[operand]]
    if None in axes or len(set(axes)) != len(axes) or not set(spec.reduce) <= set(axes):
        return None
    sums = weights.astype(np.int64).sum(tuple(n for n, a in enumerate(axes) if a in spec.reduce))
    kept = [a for a in axes if a not in spec.reduce]
    ordered = sums.transpose([kept.index(a) for a in spec.output if a in kept])
    extents = dict(zip(kept, sums.shape, strict=True))
    wide = ordered.reshape([extents.get(a, 1) for a in spec.output])
    made: np.ndarray[Any, Any] = (wide * SHIFT).astype(np.int32)
    return made
