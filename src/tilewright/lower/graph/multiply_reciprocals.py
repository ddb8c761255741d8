"""Quotients by numbers known at compile time become products with their reciprocals.

    c: f32[] = full(value=1.4142135)                  r: f32[] = full(value=0.70710677)
    y: f32[m, n] = div(x, c)                =>        y: f32[m, n] = mul(x, r)

A division keeps a core's divider busy for the time of about ten multiply-adds. The reciprocal is rounded once and the
product once more, so a result is off by less than 1.5 units in the last place instead of 0.5. For powers of two it is
exact. One number alone is divided: that takes no time, and the number may be a scale, by which all elements of a tensor
are quantized: a unit in its last place then changes some of them by a whole step.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.functions.real import Real
from tilewright.expr.nodes import const
from tilewright.graph.nodes import Module, Node, Value
from tilewright.lower.graph.graph_rules import Graph
from tilewright.lower.graph.simplify_graph import simplify_graph

WIDE = (dtypes.f32, dtypes.f64)


def multiply_reciprocals(module: Module) -> Module:
    """The module with such quotients of f32 and f64 replaced."""
    return simplify_graph(module, ((divide_by_number, ("div",)),))


def divide_by_number(node: Node, graph: Graph) -> Value | None:
    """x / c  =>  x * (1 / c)        of finite c whose reciprocal is a normal number, and more than one element"""
    x, divisor = node.inputs
    c = graph.uniform(divisor)
    if not node.outputs[0].type.rank or c is None or c.dtype not in WIDE or not math.isfinite(c.value) or c.value == 0:
        return None
    with np.errstate(over="ignore"):
        reciprocal = float(np.reciprocal(np.array(c.value, c.dtype.numpy)))
    if not math.isfinite(reciprocal) or abs(reciprocal) < Real(c.dtype, True).least_normal:  # would lose digits
        return None
    factor = graph.make("full", value=const(reciprocal, c.dtype), shape=divisor.type.shape)
    return None if factor is None else graph.make("mul", x, factor)
