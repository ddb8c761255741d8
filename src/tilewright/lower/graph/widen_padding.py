"""Padded operands of windows get room for whole vectors, so that the last ones need no masks.

    p: f32[1, 64, 58, 58] = pad(x, 0, low=(0, 0, 1, 1), high=(0, 0, 1, 1))       for 28 positions in vectors of 8:
    y: … = contract(p, w, spec="n c i+a j+b, …", sizes=(("i", 28), ("j", 28)))   the last dimension grows to 8*4 + 2

The contraction reads the same elements as before: its sizes are its own attributes. Only constant sizes are changed,
and only a padding that the contraction alone reads. Windows with a stride read a copy anyway (see plan/gemm/phases.py):
if their operand has no padding, it gets one after its rows. Products that an instruction adds up have channels along
the lanes, and need no room.
"""

from __future__ import annotations

from tilewright.expr.nodes import Const, const
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.ops.contract import ContractAttributes, maps_of
from tilewright.ops.pad import PadAttributes, PadMode
from tilewright.plan.price.dots import dot_of
from tilewright.target import Target


def widen_padding(module: Module, target: Target) -> Module:
    """The module with room for the target's vectors."""
    return over_graphs(module, lambda m, f: _widen(m, f, target))


def _widen(module: Module, function: GraphFunction, target: Target) -> Module:
    edit = Edit(module, function)
    users: dict[Value, int] = dict.fromkeys(function.results, 1)
    for node in function.nodes:
        for value in node.inputs:
            users[value] = users.get(value, 0) + 1
    alone = {n.outputs[0]: n for n in function.nodes if len(n.outputs) == 1 and users.get(n.outputs[0]) == 1}
    for node in function.nodes:
        wide = None
        if isinstance(node.attrs, ContractAttributes):
            wide = _with_room(edit, node, alone, target)
        if wide is None or not edit.replace(node, edit.add(wide).outputs):
            edit.keep(node)
    return edit.finish()


def _with_room(edit: Edit, node: Node, alone: dict[Value, Node], target: Target) -> Node | None:
    """The contraction over a wider padding; None where there is none, or room enough. `alone` are the nodes whose
    output one node reads, by that output."""
    attrs = node.attrs
    assert isinstance(attrs, ContractAttributes)
    maps = maps_of(node)
    if len(node.inputs) == 2:
        first, second = (v.type.dtype for v in node.inputs)
        if dot_of(maps, first, second, node.outputs[0].type.dtype, target) is not None:
            return None
    for n, (value, indices) in enumerate(zip(node.inputs, maps.spec.operands, strict=True)):
        if not indices or len(indices[-1].terms) != 2 or indices[-1].terms[0][0] not in maps.spec.output[-1:]:
            continue
        pad = _padding(value, alone)
        extents = [maps.extent(axis) for axis, _ in indices[-1].terms]
        have = value.type.shape[-1]
        if not isinstance(have, Const) or not all(isinstance(e, Const) for e in extents):
            continue
        positions, kernel = (int(e.value) for e in extents if isinstance(e, Const))
        lanes = max(target.vector_bits // value.type.dtype.bits, 1)
        steps = [factor for _, factor in indices[-1].terms]
        need = (-(-positions // lanes) * lanes - 1) * steps[0] + (kernel - 1) * steps[1] + 1
        if need <= have.value or (pad is None and steps[0] == 1):
            continue
        wide = _padded(edit, node, n, need) if pad is None else _wider(edit, pad, need - int(have.value))
        if wide is not None and pad is not None and pad.outputs[0] is not value:
            view = edit.typed("reshape", (wide,), {"shape": (*value.type.shape[:-1], const(need))}, value.name)
            wide = None if view is None else edit.add(view).outputs[0]
        if wide is None:
            continue
        inputs = [wide if m == n else v for m, v in enumerate(edit.inputs(node))]
        edit.source = node.source
        fields = {"spec": attrs.spec, "sizes": attrs.sizes, "dtype": attrs.dtype}
        return edit.typed("contract", tuple(inputs), fields, node.outputs[0].name)
    return None


def _padding(value: Value, alone: dict[Value, Node]) -> Node | None:
    """The padding that a value is, or is a view of that keeps the last dimension."""
    node = alone.get(value)
    if node is not None and node.op.name == "reshape" and node.inputs[0].type.shape[-1:] == value.type.shape[-1:]:
        node = alone.get(node.inputs[0])
    return node if node is not None and isinstance(node.attrs, PadAttributes) else None


def _wider(edit: Edit, pad: Node, more: int) -> Value | None:
    attrs = pad.attrs
    assert isinstance(attrs, PadAttributes)
    if attrs.mode is not PadMode.CONSTANT:
        return None
    high = (*attrs.high[:-1], attrs.high[-1] + const(more))
    edit.source = pad.source
    made = edit.typed(
        "pad", edit.inputs(pad), {"low": attrs.low, "high": high, "mode": attrs.mode}, pad.outputs[0].name
    )
    return None if made is None else edit.add(made).outputs[0]


def _padded(edit: Edit, node: Node, operand: int, need: int) -> Value | None:
    """An operand with zeros after its rows, up to `need` elements."""
    value = edit.inputs(node)[operand]
    edit.source = node.source
    zero = edit.typed("full", (), {"value": const(0, value.type.dtype), "shape": ()}, "zero")
    nothing = (const(0),) * value.type.rank
    high = (*nothing[1:], const(need) - value.type.shape[-1])
    if zero is None:
        return None
    operands = (value, edit.add(zero).outputs[0])
    made = edit.typed("pad", operands, {"low": nothing, "high": high, "mode": PadMode.CONSTANT}, value.name)
    return None if made is None else edit.add(made).outputs[0]
