"""Products of dequantized factors that stay in floats become products of whole numbers, scaled afterwards.

    f: f32[n, k] = mul(x, 0.1)                          x: f32[n, k], bytes less their zero point
    g: f32[k, m] = mul(w, t)                            w: f32[k, m], whole numbers; t: f32[m], constants
    y: f32[n, m] = contract(f, g, spec="ik,kj->ij")
    =>
    s: f32[n, m] = contract(x, w, spec="ik,kj->ij")
    y: f32[n, m] = mul(s, u)                            u = 0.1 * t

Floats add up whole numbers exactly below 2^24, which sums of products of two bytes rarely exceed. So a quantized model
has the same results on machines that add up products of bytes by an instruction and on others, and for convolutions
that have none for them, as depthwise ones. A bias and a quotient become part of the constants, as for products of
bytes (multiply_integers.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.expr import dtypes
from tilewright.graph.edit import over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.lower.graph.constant_operands import same_over, sums_over
from tilewright.lower.graph.dequantized import BYTES, find_factor, find_weights
from tilewright.lower.graph.multiply_integers import Products, Scaled, moved, with_products
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import parse


def multiply_whole(module: Module) -> Module:
    """The module with such products of whole numbers."""
    graphs = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    if not any(v.type.dtype in BYTES for f in graphs for node in f.nodes for v in node.inputs):
        return module
    return over_graphs(module, lambda m, f: with_products(m, f, _product))


def _product(edit: Products, node: Node) -> Value | None:
    """What takes the place of a contraction's output; None where it stays."""
    attrs = node.attrs
    assert isinstance(attrs, ContractAttributes)
    inputs, name = edit.inputs(node), node.outputs[0].name
    if len(inputs) != 2 or any(v.type.dtype is not dtypes.f32 for v in (*inputs, *node.outputs)):
        return None
    spec = parse(attrs.spec)
    for place in (0, 1):
        factor, weights = find_factor(edit, inputs[place]), find_weights(edit, inputs[1 - place])
        if factor is None or factor.scale is None or weights is None:
            continue
        scales, sizes = same_over(weights.scales, spec, 1 - place), sums_over(np.abs(weights.numbers), spec, 1 - place)
        if scales is None or sizes is None:
            continue
        edit.source = node.source
        value = moved(edit, replace(factor, bytes=factor.whole, zero=0))
        if value is None:
            continue
        held = edit.constant(weights.numbers.astype(np.float32), "whole")
        operands = (value, held) if place == 0 else (held, value)
        fields = {"spec": attrs.spec, "sizes": attrs.sizes, "dtype": attrs.dtype}
        product = edit.typed("contract", operands, fields, name)
        if product is None:
            continue
        total, excess = edit.add(product).outputs[0], np.zeros((1,) * node.outputs[0].type.rank, np.int64)
        scale = scales * np.float32(factor.scale)
        return edit.value_of(Scaled(total, excess, scale, sizes * int(dtypes.u8.max)), name)
    return None
