"""Transposes constant operands of contractions so that the output's innermost axis is contiguous in them.

    h: f32[n, 10] = contract(x, w, spec="ik,jk->ij")          w: f32[10, 784], a constant
    =>
    t: f32[784, 10] = transpose(w, perm=(1, 0))               folded into a constant by fold_constants.py
    h: f32[n, 10] = contract(x, t, spec="ik,kj->ij")

Kernels run along that axis. If the operand does not have the output's innermost axis (as the filters of a convolution,
where that axis is a position), the axis that only the operand has takes its place, so that kernels can run along the
output channels. An operand stays as it is if one of its dimensions is a sum of axes, or if the order in which terms are
added would change.
"""

from __future__ import annotations

from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import Affine, Spec, parse


def orient_constants(module: Module) -> Module:
    """The module with the constant operands of all contractions transposed."""
    return over_graphs(module, _orient)


def _orient(module: Module, function: GraphFunction) -> Module:
    edit = Edit(module, function)
    for node in function.nodes:
        oriented = _oriented(edit, node) if isinstance(node.attrs, ContractAttributes) else None
        if oriented is None or not edit.replace(node, edit.add(oriented).outputs):
            edit.keep(node)
    return edit.finish()


def _oriented(edit: Edit, node: Node) -> Node | None:
    """The contraction over transposed constants, with the transposes added before it; None if there are none."""
    attrs = node.attrs
    assert isinstance(attrs, ContractAttributes)
    edit.source = node.source
    spec = parse(attrs.spec)
    inputs = list(edit.inputs(node))
    for n, value in enumerate(inputs):
        perm = None if edit.held(value) is None else _permutation(spec, n)
        if perm is None:
            continue
        oriented = _with_operand(spec, n, tuple([spec.operands[n][p] for p in perm]))
        if oriented.reduce == spec.reduce:
            spec, inputs[n] = oriented, _transposed(edit, value, perm)
    if spec is parse(attrs.spec):
        return None
    fields = {"spec": _text(spec), "sizes": attrs.sizes, "dtype": attrs.dtype}
    return edit.typed("contract", tuple(inputs), fields, node.outputs[0].name)


def _permutation(spec: Spec, operand: int) -> tuple[int, ...] | None:
    """The order of an operand's dimensions with the axis that kernels run along at the end; None if it is there
    already."""
    axes = [index.axis for index in spec.operands[operand]]
    if not spec.output or None in axes or len(set(axes)) != len(axes):
        return None
    inner = _inner_axis(spec, operand)
    if inner is None or inner not in axes[:-1]:
        return None
    place = axes.index(inner)
    return (*[d for d in range(len(axes)) if d != place], place)


def _inner_axis(spec: Spec, operand: int) -> str | None:
    """The output's last axis if the operand has it; else, if the other operand has windows, the last output axis that
    no other operand has."""
    own = {axis for index in spec.operands[operand] for axis, _ in index.terms}
    if spec.output[-1] in own:
        return spec.output[-1]
    rest = [index for n, each in enumerate(spec.operands) if n != operand for index in each]
    if all(index.axis is not None for index in rest):
        return None
    others = {axis for index in rest for axis, _ in index.terms}
    return next((axis for axis in reversed(spec.output) if axis in own and axis not in others), None)


def _with_operand(spec: Spec, operand: int, indices: tuple[Affine, ...]) -> Spec:
    """The specification with other indices for one operand; reduced axes in the order of their first appearance."""
    operands = (*spec.operands[:operand], indices, *spec.operands[operand + 1 :])
    seen = dict.fromkeys(axis for each in operands for index in each for axis, _ in index.terms)
    return Spec(operands, spec.output, tuple([axis for axis in seen if axis not in spec.output]))


def _transposed(edit: Edit, value: Value, perm: tuple[int, ...]) -> Value:
    node = edit.typed("transpose", (value,), {"perm": perm}, value.name)
    assert node is not None, "a permutation of all axes can always be typed"
    return edit.add(node).outputs[0]


def _text(spec: Spec) -> str:
    """The shortest text that means the specification: letters without blanks where every index is one letter."""
    words = [[str(index) for index in indices] for indices in spec.operands]
    if all(len(word) == 1 for each in (*words, spec.output) for word in each):
        return ",".join("".join(each) for each in words) + "->" + "".join(spec.output)
    return str(spec)
