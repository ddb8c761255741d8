"""The contraction template: a sum of products, and its epilogue: maps that run on each tile before it is stored.

    h[i, j] = sum_k x[i, k] * w[k, j]      then      y[i, j] = relu(h[i, j] + b[j])

A contraction reads each element many times, so its operands are stored in memory and not recomputed. An operand may be
read through the data movement that makes it, where that costs nothing: a transpose of the operand that the result's
last axis indexes, for it is packed anyway; or a slice of the other one, for it is loaded element by element.
"""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const
from tilewright.graph.nodes import Node, Value
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import parse
from tilewright.ops.movement import SliceAttributes, TransposeAttributes
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.fusion.template import Anchored, Entry, Fused, Refusal


class Contraction(Anchored):
    """A contraction each dimension of whose operands is indexed by one axis; at most one is read through a movement."""

    name = "contraction"

    def obstacle(self, node: Node, fused: Fused, flow: Dataflow) -> Refusal | None:
        if not isinstance(node.attrs, ContractAttributes) or has_windows(node):
            return "{op} is no product without windows"
        if not all(_is_moved(entries) for entries in fused.values()):
            return "{op} reads its operands many times, and computes none that is more than moved data"
        if not all(_reads_through(node, value, flow) for value in fused) or not _is_one_way(fused, flow):
            return "this operand of {op} is not one that is read as well before it is moved"
        return None

    def take(self, node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
        if _is_difference(node, flow):
            readers = flow.readers_of(node.outputs[0])
            found = any(_reads_through(r, node.outputs[0], flow) for r in readers)
            return Entry(self.name) if found else "no product reads the difference that {op} is"
        if isinstance(node.attrs, TransposeAttributes | SliceAttributes):
            found = not fused and any(
                _reads_through(r, node.outputs[0], flow) for r in flow.readers_of(node.outputs[0])
            )
            return Entry(self.name) if found else "no product reads what {op} moves as well where it comes from"
        return super().take(node, fused, flow)


def _is_one_way(fused: Fused, flow: Dataflow) -> bool:
    """Whether at most one operand is read through a movement, besides a difference of constants."""
    return sum(flow.makers[value].op.name != "sub" for value in fused) <= 1


def _is_moved(entries: tuple[Entry, ...]) -> bool:
    return any(e.template == Contraction.name and not e.anchors for e in entries)


def _reads_through(node: Node, value: Value, flow: Dataflow) -> bool:
    """Whether reading an operand through the movement that makes it costs a contraction nothing."""
    if (
        not isinstance(node.attrs, ContractAttributes)
        or len(node.inputs) != 2
        or node.inputs.count(value) > 1
        or has_windows(node)
    ):
        return False
    maker = flow.makers[value]
    if value.type.dtype not in (dtypes.f32, dtypes.f64) or not all(
        isinstance(e, Const) for v in (*maker.inputs, *node.inputs) for e in v.type.shape
    ):
        return False
    last = _along_last(node)
    if last is None or node.inputs.index(value) != last:
        return last is not None and isinstance(maker.attrs, SliceAttributes)
    return isinstance(maker.attrs, TransposeAttributes) or _is_difference(maker, flow)


def _is_difference(node: Node, flow: Dataflow) -> bool:
    """Whether a node is the difference of constants, or of slices of them."""
    if node.op.name != "sub":
        return False
    makers = [flow.makers.get(v) for v in node.inputs]
    sources = [
        m.inputs[0] if m is not None and isinstance(m.attrs, SliceAttributes) else v
        for m, v in zip(makers, node.inputs, strict=True)
    ]
    return all(v in flow.constants for v in sources)


def _along_last(node: Node) -> int | None:
    """The operand that the last axis of the result indexes, if it indexes only one."""
    attrs: ContractAttributes = node.attrs  # type: ignore[assignment]
    spec = parse(attrs.spec)
    if not spec.output:
        return None
    moving = [n for n, o in enumerate(spec.operands) if any(spec.output[-1] == a for i in o for a, _ in i.terms)]
    return moving[0] if len(moving) == 1 else None


def has_windows(node: Node) -> bool:
    """Whether a dimension of an operand is indexed by several axes, or by multiples of one."""
    attrs: ContractAttributes = node.attrs  # type: ignore[assignment]
    return any(len(i.terms) > 1 or any(by != 1 for _, by in i.terms) for o in parse(attrs.spec).operands for i in o)
