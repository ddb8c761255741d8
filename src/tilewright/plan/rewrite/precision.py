"""Which factors of a sum of f32 products are better rounded to bf16, in closed form.

If the machine has products of bf16 pairs, both factors are rounded, provided that the time saved pays for rounding the
factor that is no constant. Without such products, sums run in f32. A constant factor may still be rounded if the other
factor has few rows: the product is then bound by reading the constant, and bf16 halves its bytes. It is widened in
registers.

Convolutions with constant filters take pairs of channels (plan/gemm/transposed.py). All other factors stay f32, and so
do those where the gain is below the margin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tilewright.expr import dtypes
from tilewright.expr.nodes import Cast, Var
from tilewright.expr.work import Work, work_of
from tilewright.graph.nodes import Node
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import parse
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.price.contraction import Dot, Sums, choose_dot, least_seconds
from tilewright.plan.price.convolution import Sizes, direct_seconds, dot_seconds
from tilewright.plan.price.kernels import CostModel
from tilewright.plan.price.margin import pays
from tilewright.plan.price.points import copy_cycles, vector_cycles
from tilewright.target import Target


@dataclass(frozen=True, slots=True)
class Product:
    """A contraction of two tensors without windows: the operand along the lanes (`vector`), the extents, and that of
    the reduction axis whose terms an instruction adds up (`depth`)."""

    vector: int
    sums: Sums
    depth: int


def pairs_of(target: Target) -> Dot | None:
    """The machine's products of bf16 pairs; None where it has none."""
    dot = choose_dot(dtypes.bf16, dtypes.bf16, dtypes.f32, target)
    return dot if dot is not None and dot.instruction else None


def choose_rounded(node: Node, flow: Dataflow, model: CostModel, target: Target) -> tuple[int, ...]:
    """The operands of a contraction that are to be rounded to bf16."""
    found, dot = find_product(node, flow), pairs_of(target)
    if dot is None:
        return (found.vector,) if found is not None and _streams_better(node, found, flow, model, target) else ()
    if found is not None:
        return (0, 1) if _multiplies_better(node, found, dot, flow, model, target) else ()
    convolution = find_windows(node, flow)
    if convolution is None or not fits(convolution, dot):
        return ()
    image = max(flow.elements(v) for v in node.inputs if v not in flow.constants)
    pairs = dot_seconds(convolution, dot.instruction, target) + rounding_seconds(image, model, target)
    return (0, 1) if pays(direct_seconds(convolution, target), pairs) else ()


def rounding_seconds(elements: int, model: CostModel, target: Target) -> float:
    """The time to round so many f32 to bf16, in a kernel of its own."""
    cast = work_of(Cast(Var("x", dtypes.f32, None), dtypes.bf16))
    return model.start + copy_cycles(elements, target.lanes(dtypes.f32), target, cast, aligned=True) / target.core.hertz


def find_windows(node: Node, flow: Dataflow) -> Sizes | None:
    """A contraction of f32 tensors as a convolution; None if its filters are no constant, or if it is depthwise."""
    attrs, out = node.attrs, node.outputs[0].type
    assert isinstance(attrs, ContractAttributes)
    spec = parse(attrs.spec)
    if len(node.inputs) != 2 or {out.dtype, *(v.type.dtype for v in node.inputs)} != {dtypes.f32} or not spec.output:
        return None
    filters = [n for n, v in enumerate(node.inputs) if v in flow.constants]
    if len(filters) != 1:
        return None
    own = [index.axis for index in spec.operands[filters[0]]]
    image = spec.operands[1 - filters[0]]
    alone = [index.axis for index in image if index.axis in spec.reduce and index.axis in own]
    channels = [axis for axis in spec.output if axis in own]
    moved = {axis for index in image for axis, _ in index.terms}
    if None in own or len(set(own)) != len(own) or len(alone) != 1 or len(channels) != 1 or channels[0] in moved:
        return None
    if spec.output[-1] not in {axis for axis, _ in image[-1].terms} or not set(spec.reduce) <= set(own):
        return None
    sizes = dict(zip(own, map(flow.extent, node.inputs[filters[0]].type.shape), strict=True))
    points, positions = flow.elements(node.outputs[0]), flow.extent(out.shape[-1])
    inputs, terms = sizes[alone[0]], math.prod(sizes[axis] for axis in spec.reduce)
    rows = max(points // (sizes[channels[0]] * positions), 1)
    stride = next((by for axis, by in image[-1].terms if axis == spec.output[-1]), 1)
    return Sizes(1, inputs, sizes[channels[0]], rows, positions, stride, terms // inputs)


def fits(convolution: Sizes, dot: Dot) -> bool:
    """Whether the channels of a convolution fill the lanes of the machine's products."""
    return convolution.inputs % dot.depth == 0 and convolution.outputs >= dot.lanes


def find_product(node: Node, flow: Dataflow) -> Product | None:
    """A contraction as a product; None unless its operands are two f32 tensors, each dimension of which is one axis,
    and its last axis indexes exactly one of them."""
    attrs, out = node.attrs, node.outputs[0].type
    assert isinstance(attrs, ContractAttributes)
    spec = parse(attrs.spec)
    types = [out.dtype, *(v.type.dtype for v in node.inputs)]
    if len(types) != 3 or set(types) != {dtypes.f32} or node.inputs[0] is node.inputs[1] or not spec.output:
        return None
    axes = [[index.axis for index in operand] for operand in spec.operands]
    if any(None in names or len(set(names)) != len(names) for names in axes):
        return None
    inner = [n for n, names in enumerate(axes) if spec.output[-1] in names]
    together = [axis for axis in spec.reduce if all(axis in names for names in axes)]
    if len(inner) != 1 or not together:
        return None
    extents: dict[str | None, int] = {}
    for names, value in zip(axes, node.inputs, strict=True):
        extents.update(zip(names, map(flow.extent, value.type.shape), strict=True))
    rows = max((extents[a] for a in spec.output if a not in axes[inner[0]]), default=1)
    columns, points = extents[spec.output[-1]], math.prod(extents[a] for a in spec.output)
    terms, batch = math.prod(extents[a] for a in spec.reduce), max(points // max(rows * columns, 1), 1)
    return Product(inner[0], Sums(rows, columns, terms, batch), extents[together[-1]])


def _streams_better(node: Node, found: Product, flow: Dataflow, model: CostModel, target: Target) -> bool:
    """Whether a constant that is read once for few rows is better stored in half the bytes."""
    weights = node.inputs[found.vector]
    if weights not in flow.constants or found.sums.batch > 1:
        return False
    plain, lanes, elements = least_seconds(found.sums, target), target.lanes(dtypes.f32), flow.elements(weights)
    widened = vector_cycles(Work(plain=2), target, lanes) * elements / lanes / target.core.hertz
    bytes_in = model.transfer(weights)
    return pays(max(plain, bytes_in), max(plain + widened, bytes_in / 2))


def _multiplies_better(node: Node, found: Product, dot: Dot, flow: Dataflow, model: CostModel, target: Target) -> bool:
    """Whether the machine's products of pairs save more than rounding the factors takes."""
    constant = [v in flow.constants for v in node.inputs]
    if found.sums.columns < dot.lanes // 2 or found.depth < dot.depth:
        return False
    read = sum(model.transfer(v) for v, known in zip(node.inputs, constant, strict=True) if known)
    plain = least_seconds(found.sums, target)
    pairs = least_seconds(replace(found.sums, instruction=dot.instruction), target)
    rounded = [v for v, known in zip(node.inputs, constant, strict=True) if not known]
    rounding = sum(rounding_seconds(flow.elements(v), model, target) for v in rounded)
    if not constant[found.vector]:
        elements, lanes = flow.elements(node.inputs[found.vector]), target.lanes(dtypes.f32)
        pairs += copy_cycles(elements, lanes, target, Work(shuffles=1), aligned=True) / target.core.hertz
    return pays(max(plain, read), max(pairs, read / 2) + rounding)
