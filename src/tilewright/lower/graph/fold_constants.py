"""Computes values that depend on constants alone at compile time.

    w: f32[2] = constant(name=@w)                     v: f32[2] = constant(name=@v)
    v: f32[2] = mul(w, w)                      =>

A node is evaluated if every input is known and the result is small, or not larger than the inputs that are constants of
the module: a program never grows by more than `limit` elements per node. Equal results of several nodes are one
constant, so weights that a model uses in many places are packed and stored once. Results of a single element become
`full`, whose value later passes can read. A node that would fail stays, and fails when it is run, if it is reached.
"""

from __future__ import annotations

import math

from tilewright.core.walk import preorder
from tilewright.expr.dtypes import from_numpy
from tilewright.expr.nodes import Var, const
from tilewright.graph.attributes import expressions_in
from tilewright.graph.constants import Held, Pending, varies
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.later import evaluated, later, results_of
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import Op, Pattern
from tilewright.report.errors import RuntimeFault

SMALL = 4096
"""Elements that a result may have whatever its inputs are."""


def fold_constants(module: Module, limit: int = SMALL) -> Module:
    """The module with known nodes replaced by constants; results of up to `limit` elements always count as small."""
    return over_graphs(module, lambda m, f: _fold(m, f, limit))


def _fold(module: Module, function: GraphFunction, limit: int) -> Module:
    edit = Edit(module, function)
    known: dict[Value, Held] = {}
    first: dict[tuple[Op, tuple[Value, ...], object], tuple[Value, ...]] = {}
    for node in function.nodes:
        key = node.op, edit.inputs(node), node.attrs
        if key in first and edit.replace(node, first[key]):
            continue
        results = _compute(edit, known, node, limit)
        if results is None:
            _note(edit, known, edit.keep(node), limit)
            continue
        edit.source = node.source
        name = _moved_constant(edit, node)
        values = tuple([_constant(edit, name or old.name, a) for old, a in zip(node.outputs, results, strict=True)])
        known.update(zip(values, results, strict=True))
        if edit.replace(node, values):
            first.setdefault(key, values)
        else:
            edit.keep(node)
    return edit.finish()


def _note(edit: Edit, known: dict[Value, Held], node: Node, limit: int) -> None:
    """Remembers the values of nodes that are known as they stand: constants, and small tensors without inputs."""
    if len(node.outputs) != 1:
        return
    (value,) = node.outputs
    array = edit.held(value)
    if array is not None:
        known[value] = array
    elif not node.inputs and node.op.pattern is not Pattern.SHAPE and _elements(node) <= limit and _is_static(node):
        known[value] = results_of(node, ())[0]


def _compute(edit: Edit, known: dict[Value, Held], node: Node, limit: int) -> tuple[Held, ...] | None:
    """The results of a node whose inputs are all known, when they are not too large and can be computed."""
    inputs = edit.inputs(node)
    if not inputs and node.op.name != "index_values":
        return None
    if node.op.pattern is Pattern.SHAPE or not all(v in known for v in inputs) or not _is_static(node):
        return None
    if _elements(node) > max(limit, sum(_module_elements(edit, v) for v in inputs)):
        return None
    given = tuple([known[v] for v in inputs])
    try:
        return later(node, given) if any(map(varies, given)) else evaluated(node, given)
    except RuntimeFault:
        return None


def _is_static(node: Node) -> bool:
    """Whether no symbol occurs in the fields and the types of the outputs."""
    exprs = [*expressions_in(node.attrs.field_values()), *(d for v in node.outputs for d in v.type.shape)]
    return not any(isinstance(e, Var) for e in preorder(exprs))


def _elements(node: Node) -> float:
    """The number of elements of all outputs; infinite where it depends on symbols."""
    shapes = [v.type.static_shape() for v in node.outputs]
    return sum(math.inf if s is None else math.prod(s) for s in shapes)


def _module_elements(edit: Edit, value: Value) -> int:
    array = edit.held(value)
    return 0 if array is None else math.prod(array.shape)


def _moved_constant(edit: Edit, node: Node) -> str | None:
    """The name of the constant whose elements, and no others, a node moves: people know it by that."""
    inputs = edit.inputs(node)
    moves = node.op.moves or node.op.pattern is Pattern.VIEW
    return edit.constant_name(inputs[0]) if moves and len(inputs) == 1 else None


def _constant(edit: Edit, name: str, array: Held) -> Value:
    """The value of a new node for a result: `full` for a single element, else a constant of the module."""
    if isinstance(array, Pending) or array.size != 1:
        return edit.constant(array, name)
    dtype = from_numpy(array.dtype)
    assert dtype is not None
    node = edit.typed("full", (), {"value": const(array.item(), dtype), "shape": array.shape}, name)
    assert node is not None
    return edit.add(node).outputs[0]
