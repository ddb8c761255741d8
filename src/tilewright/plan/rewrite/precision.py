"""Which factors of a sum of f32 products are better rounded to bf16, in closed form.

If the machine has products of bf16 pairs, or of tiles of them, both factors are rounded, provided that the time saved
pays for rounding the factor that is no constant. Without such products, sums run in f32. A constant factor may still be
rounded if the other factor has few rows: the product is then bound by reading the constant, and bf16 halves its bytes.
It is widened in registers.

Convolutions with constant filters take pairs of channels (plan/gemm/transposed.py). All other factors stay f32, and so
do those where the gain is below the margin.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.analysis.dataflow import Dataflow
from tilewright.expr.dtypes import bf16, f32
from tilewright.expr.nodes import Cast, Const, Var
from tilewright.expr.work import Work, work_of
from tilewright.graph.nodes import Node
from tilewright.ops.contract import maps_of
from tilewright.plan.price.contraction import Dot, least_seconds, pays
from tilewright.plan.price.convolution import Sizes, channels_fit, direct_seconds, dot_seconds, tiles_seconds
from tilewright.plan.price.dots import choose_tiles, pairs_of
from tilewright.plan.price.kernels import CostModel, Product
from tilewright.plan.price.points import copy_cycles
from tilewright.plan.rewrite.layout import read_channels
from tilewright.target.vectors import vector_cycles


def choose_rounded(node: Node, model: CostModel) -> tuple[int, ...]:
    """The operands of a contraction that are to be rounded to bf16."""
    found, dot = find_product(node, model), pairs_of(model.target)
    if found is not None:
        dots = [d for d in (dot, choose_tiles(bf16, bf16, f32, model.target)) if d is not None]
        if any(_multiplies_better(node, found, d, model) for d in dots):
            return 0, 1
    if dot is None:
        return (found.vector,) if found is not None and _streams_better(node, found, model) else ()
    if found is not None:
        return ()
    flow, target = model.flow, model.target
    convolution, last = find_windows(node, flow)
    by = choose_tiles(bf16, bf16, f32, target) if last else dot
    if convolution is None or by is None or not channels_fit(convolution.inputs, convolution.outputs, by):
        return ()
    image = max(flow.elements(v) for v in node.inputs if v not in flow.constants)
    multiplied = (tiles_seconds if last else dot_seconds)(convolution, by, target)
    return (0, 1) if pays(direct_seconds(convolution, target), multiplied + rounding_seconds(image, model)) else ()


def rounding_seconds(elements: int, model: CostModel) -> float:
    """The time to round so many f32 to bf16, in a kernel of its own."""
    cast, target = work_of(Cast(Var("x", f32, None), bf16)), model.target
    return model.start + copy_cycles(elements, target.lanes(f32), target, cast, aligned=True) / target.core.hertz


def find_windows(node: Node, flow: Dataflow) -> tuple[Sizes | None, bool]:
    """A contraction of f32 tensors as a convolution, its rows those of all images, and whether channels are last; None
    if its filters are no constant, if it is depthwise, or if it has channels last and dynamic sizes."""
    found = read_channels(node, flow.constants)
    if found is None or found.depthwise:
        return None, False
    spec, (out,) = found.maps.spec, node.outputs
    is_last = {found.read, found.made} == {len(spec.output) - 1}
    place = -2 if is_last else -1
    steps, last = dict(spec.operands[found.image][place].terms), spec.output[place]
    filters = {index.axis for index in spec.operands[1 - found.image]}
    known = not is_last or all(isinstance(e, Const) for e in out.type.shape)
    if last not in steps or not filters.issuperset(spec.reduce) or not known:
        return None, False
    inputs, outputs = (
        flow.extent(v.type.shape[n]) for v, n in ((node.inputs[found.image], found.read), (out, found.made))
    )
    positions, terms = flow.extent(out.type.shape[place]), math.prod(map(flow.extent, found.maps.reduce_extents))
    rows = max(flow.elements(out) // (outputs * positions), 1)
    return Sizes(1, inputs, outputs, rows, positions, steps[last], terms // inputs), is_last


def find_product(node: Node, model: CostModel) -> Product | None:
    """A contraction as a product; None unless its operands are two f32 tensors, each dimension of which is one axis."""
    found = model.product(node)
    types = {v.type.dtype for v in (*node.inputs, *node.outputs)}
    if found is None or not found.depth or types != {f32} or node.inputs[0] is node.inputs[1]:
        return None
    axes = [[index.axis for index in operand] for operand in maps_of(node).spec.operands]
    return None if any(None in names or len(set(names)) != len(names) for names in axes) else found


def _streams_better(node: Node, found: Product, model: CostModel) -> bool:
    """Whether a constant that is read once for few rows is better stored in half the bytes."""
    weights, target = node.inputs[found.vector], model.target
    if weights not in model.flow.constants or found.sums.batch > 1:
        return False
    plain, lanes, bytes_in = least_seconds(found.sums, target), target.lanes(f32), model.transfer(weights)
    each = vector_cycles(Work(plain=2), target, lanes)
    widened = each * model.flow.elements(weights) / lanes / target.core.hertz
    return pays(max(plain, bytes_in), max(plain + widened, bytes_in / 2))


def _multiplies_better(node: Node, found: Product, dot: Dot, model: CostModel) -> bool:
    """Whether the machine's products of pairs save more than rounding the factors takes."""
    flow, target, vector = model.flow, model.target, node.inputs[found.vector]
    if found.sums.columns < dot.lanes // 2 or found.depth < dot.depth:
        return False
    read = sum(model.transfer(v) for v in node.inputs if v in flow.constants)
    rounding = sum(rounding_seconds(flow.elements(v), model) for v in node.inputs if v not in flow.constants)
    plain = least_seconds(found.sums, target)
    pairs = least_seconds(replace(found.sums, dot=dot), target)
    if vector not in flow.constants:
        woven = copy_cycles(flow.elements(vector), target.lanes(f32), target, Work(shuffles=1), aligned=True)
        pairs += woven / target.core.hertz
    return pays(max(plain, read), max(pairs, read / 2) + rounding)
