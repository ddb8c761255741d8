"""Axes of one element go from contractions with windows: groups of one, windows of one point.

    y: f32[4, 1, 8, 6, 6] = contract(x, w, spec="n g c i+a j+b, g o c a b -> n g o i j")          g, a and b have size 1
    =>
    s: f32[4, 16, 6, 6] = reshape(x)
    v: f32[8, 16] = reshape(w)
    z: f32[4, 8, 6, 6] = contract(s, v, spec="n c i j, o c -> n o i j")
    y = reshape(z)

Gradients of convolutions are then of the form that convolutions have, and of few axes where they are matrix products.
Axes of the output that one operand alone has, a batch of one image, stay: they are rows as others are. Contractions
with constants are left to the passes that pack these.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr.nodes import Expr
from tilewright.graph.nodes import Module, Node, Value
from tilewright.lower.graph.graph_rules import Graph
from tilewright.lower.graph.merge_positions import read_contraction, viewed_as
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.ops.checks import ONE
from tilewright.ops.index_maps import Affine, IndexMaps, Spec


def drop_units(module: Module) -> Module:
    """The module with contractions of windows over as few axes as they need."""
    return simplify_graph(module, ((without_units, ("contract",)),))


def without_units(node: Node, graph: Graph) -> Value | None:
    """contract(x, w, "n g c i+a, g o c a -> n g o i")
    =>  reshape(contract(reshape(x), reshape(w), "n c i, o c -> n o i"))         where g and a have size 1"""
    attrs, maps = read_contraction(node)
    spec, units = maps.spec, _units(node)
    if not units or any(graph.made_by(v, "constant") for v in node.inputs):
        return None
    inputs, operands = [], []
    for value, indices in zip(node.inputs, spec.operands, strict=True):
        kept = [(_rest(i, units), extent) for i, extent in zip(indices, value.type.shape, strict=True)]
        operands.append(tuple([i for i, _ in kept if i is not None]))
        inputs.append(viewed_as(value, tuple([extent for i, extent in kept if i is not None]), graph))
    left = Spec(tuple(operands), _others(spec.output, units), _others(spec.reduce, units))
    sizes = tuple([(axis, extent) for axis, extent in attrs.sizes if axis not in units])
    given = [v for v in inputs if v is not None]
    if len(given) < len(inputs):
        return None
    made = graph.make("contract", *given, spec=str(left), sizes=sizes, dtype=attrs.dtype)
    return None if made is None else viewed_as(made, node.outputs[0].type.shape, graph)


def _units(node: Node) -> set[str]:
    """The axes that go: of one element, of several operands or of windows. An operand keeps a dimension, the output an
    axis, a sum one; and where a dimension of windows stays, so do the others, which templates know them by."""
    _, maps = read_contraction(node)
    spec = maps.spec
    if not spec.has_windows:
        return set()
    single = [axis for axis in spec.axes if maps.extent(axis) is ONE]
    summed = {axis for indices in spec.operands for i in indices if len(i.terms) > 1 for axis, _ in i.terms}
    units = _idle(single, node, maps)
    rests = [_rest(i, units) for indices in spec.operands for i in indices]
    windows = any(i is not None and i.axis is None for i in rests)
    return _idle([axis for axis in single if axis not in summed], node, maps) if windows else units


def _idle(axes: Sequence[str], node: Node, maps: IndexMaps) -> set[str]:
    gone: set[str] = set()
    for axis in axes:
        if _is_idle(axis, node, maps, gone):
            gone.add(axis)
    return gone


def _is_idle(axis: str, node: Node, maps: IndexMaps, gone: set[str]) -> bool:
    """Whether a contraction without this axis, and those that are `gone`, is of one form with it."""
    spec, without = maps.spec, {axis, *gone}
    own = [any(axis in dict(i.terms) for i in indices) for indices in spec.operands]
    summed = any(axis in dict(i.terms) for indices in spec.operands for i in indices if len(i.terms) > 1)
    if sum(own) < 2 and not summed:
        return False
    if not _others(spec.output, without) or (axis in spec.reduce and not _others(spec.reduce, without)):
        return False
    for indices, value in zip(spec.operands, node.inputs, strict=True):
        kept = [(_rest(i, without), extent) for i, extent in zip(indices, value.type.shape, strict=True)]
        if not any(i is not None for i, _ in kept):
            return False
        if not all(_fits(before, i, extent, maps) for before, (i, extent) in zip(indices, kept, strict=True)):
            return False
    return True


def _fits(before: Affine, after: Affine | None, extent: Expr, maps: IndexMaps) -> bool:
    """Whether a dimension may have the index that is left: all of it where that is one axis, one element where that is
    none."""
    if after is before:
        return True
    if after is None:
        return extent is ONE
    return after.axis is None or maps.extent(after.axis) is extent


def _rest(index: Affine, units: set[str]) -> Affine | None:
    """The index without these axes; None where there is none."""
    terms = tuple([t for t in index.terms if t[0] not in units])
    return index if len(terms) == len(index.terms) else Affine(terms) if terms else None


def _others(axes: Sequence[str], units: set[str]) -> tuple[str, ...]:
    return tuple([a for a in axes if a not in units])
