"""Products of matrices and constants: which contractions they are, and their extents."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr
from tilewright.graph.edit import Edit
from tilewright.graph.nodes import Node, Value
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import Spec, parse
from tilewright.ops.movement import sizes
from tilewright.plan.price.contraction import Sums

Array = np.ndarray[Any, Any]

Order = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Product:
    """y[…, m, n] = the sum of x[…, m, k] * factor[k, n] over k, where the factor is the constant's array with its
    dimensions in this order. `key` is the constant's name, and the order."""

    node: Node
    x: Value
    array: Array
    key: tuple[str, Order]

    @property
    def factor(self) -> Array:
        """The constant as [k, n]."""
        return self.array.transpose(self.key[1])

    @property
    def rows(self) -> Expr:
        """The number of rows, the only extent that may be dynamic."""
        return self.x.type.shape[-2]

    def sums(self, rows: int) -> Sums:
        """Its extents, with so many rows."""
        terms, columns = self.factor.shape
        return Sums(rows, columns, terms, math.prod(sizes(self.x.type.shape[:-2])))


def find_product(edit: Edit, node: Node) -> Product | None:
    """The product of f32 matrices and a constant that a contraction is; None where it is another one."""
    attrs = node.attrs
    assert isinstance(attrs, ContractAttributes)
    types = [v.type for v in (*node.inputs, *node.outputs)]
    if len(types) != 3 or any(t.dtype is not dtypes.f32 or t.rank < 2 or 0 in sizes(t.shape) for t in types):
        return None
    x, w = edit.inputs(node)
    name, order = edit.constant_name(w), _order(parse(attrs.spec))
    if order is None or name is None:
        return None
    if any(not isinstance(extent, Const) for n, extent in enumerate(x.type.shape) if n != x.type.rank - 2):
        return None
    array = edit.array(w)
    return None if array is None else Product(node, x, array, (name, order))


def _order(spec: Spec) -> Order | None:
    """The order of the second operand's dimensions that makes a specification "…mk,kn->…mn"; None where none does."""
    x, w = ([index.axis for index in operand] for operand in spec.operands)
    *outer, n = spec.output
    k = x[-1]
    if x[:-1] != outer or not outer or k in spec.output or len({*x}) != len(x):
        return None
    return next((order for order in ((0, 1), (1, 0)) if len(w) == 2 and [w[p] for p in order] == [k, n]), None)
