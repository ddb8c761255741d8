"""Large products by constants become seven products of half the size in each dimension, if fast and accurate enough.

    y: f32[128, 3072] = contract(x, w, spec="mk,kn->mn")                        w: f32[768, 3072], a constant
    =>
    s: f32[7, 64, 384] = strassen_input(x)
    d: f32[4, 64, 1536] = contract(slice(s, 0..4), u, spec="pmk,pkn->pmn")      u: f32[4, 384, 1536], sums of w's blocks
    v: f32[3, 384, 1536] = sub(slice(u, 0..3), slice(u, 3..4))
    e: f32[3, 64, 1536] = contract(slice(s, 4..7), v, spec="pmk,pkn->pmn")
    y: f32[128, 3072] = strassen_output(d, e, shape=(128, 3072))

Seven products replace eight (see ops/strassen.py). The differences are computed when they are packed for a product, so
that the constants take no more memory than before; small ones are stored. An infinity or NaN of x also reaches the
results of the row that its row is paired with: 0 and 1, 2 and 3, and so on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.graph.constants import Pending, held
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.ops.accuracy import PRODUCT_ERROR, product_error
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import Spec, parse
from tilewright.ops.strassen import DERIVED, PARTS, STORED, half_shape, transform_factor
from tilewright.plan.fusion.dataflow import Dataflow
from tilewright.plan.price.contraction import Sums
from tilewright.plan.price.kernels import CostModel
from tilewright.plan.rewrite.precision import choose_rounded
from tilewright.plan.rewrite.strassen import half_columns, keeps_all, pays
from tilewright.report import settings
from tilewright.store.pages import release
from tilewright.target import Target
from tilewright.types.room import Room

Array = np.ndarray[Any, Any]


def strassen(module: Module, target: Target, halves: bool = False) -> Module:
    """The module with those products rewritten that become faster; none if TILEWRIGHT_STRASSEN is 0. With `halves`
    (factors may be rounded to bf16), those whose factors are better rounded stay: the sums would amplify the rounding
    errors too much."""
    if not settings.STRASSEN.read():
        return module
    stored = sum(array.nbytes for array in held(module.constants).values())
    return over_graphs(module, lambda m, f: _rewrite(m, f, target, keeps_all(stored, target), halves))


def _rewrite(module: Module, function: GraphFunction, target: Target, stored: bool, halves: bool) -> Module:
    edit = _Products(module, function, target, stored)
    model = CostModel(Dataflow(function), target) if halves else None
    for node in function.nodes:
        rounds = model is not None and isinstance(node.attrs, ContractAttributes) and choose_rounded(node, model)
        found = find_product(edit, node) if isinstance(node.attrs, ContractAttributes) and not rounds else None
        made = edit.made(found) if found is not None and pays(found.sums, target, stored) else None
        if made is None or not edit.replace(node, (made,)):
            edit.keep(node)
    return edit.finish()


@dataclass(frozen=True, slots=True)
class Product:
    """y[…, m, n] = the sum of x[…, m, k] * factor[k, n] over k, where the factor is the constant's array with its
    dimensions in this order."""

    node: Node
    x: Value
    constant: Value
    array: Array
    order: tuple[int, int]

    @property
    def factor(self) -> Array:
        """The constant as [k, n]."""
        return self.array.transpose(self.order)

    @property
    def sums(self) -> Sums:
        """Its extents."""
        *outer, rows, terms = self.x.type.static_shape() or (0, 0)
        return Sums(rows, self.factor.shape[1], terms, math.prod(outer))


def find_product(edit: Edit, node: Node) -> Product | None:
    """The product of matrices and a constant that a contraction is; None where it is another one."""
    attrs = node.attrs
    assert isinstance(attrs, ContractAttributes)
    types = [v.type for v in (*node.inputs, *node.outputs)]
    if len(types) != 3 or any(t.dtype is not dtypes.f32 or not t.static_shape() or t.rank < 2 for t in types):
        return None
    x, w = edit.inputs(node)
    order = _order(parse(attrs.spec))
    array = None if order is None else edit.array(w)
    if array is None or order is None:
        return None
    return Product(node, x, w, array, order)


def _transformed(found: Product, half: int, room: Room) -> Array:
    """The sums of the blocks of a product's factor that are stored. The factor's pages are not needed afterwards."""
    made = transform_factor(found.factor, half, room)
    release(found.array)
    return made


def _order(spec: Spec) -> tuple[int, int] | None:
    """The order of the second operand's dimensions that makes a specification "…mk,kn->…mn"; None where none does."""
    x, w = ([index.axis for index in operand] for operand in spec.operands)
    *outer, n = spec.output
    k = x[-1]
    if x[:-1] != outer or not outer or k in spec.output or len({*x}) != len(x):
        return None
    return next((order for order in ((0, 1), (1, 0)) if len(w) == 2 and [w[p] for p in order] == [k, n]), None)


class _Products(Edit):
    """A function while its products are rewritten: what was made of each constant, None where that is not accurate
    enough; whether differences are stored."""

    def __init__(self, module: Module, function: GraphFunction, target: Target, stored: bool) -> None:
        super().__init__(module, function)
        self._target = target
        self._stored = stored
        self._factors: dict[tuple[Value, tuple[int, int]], tuple[Value, ...] | None] = {}
        self._sums: dict[Value, Value] = {}

    def made(self, found: Product) -> Value | None:
        """Adds the operators that compute a product; None where their error would be too large."""
        self.source = found.node.source
        factors = self._of_constant(found)
        if factors is None:
            return None
        if found.x not in self._sums:
            self._sums[found.x] = self._op("strassen_input", found.x)
        sums = self._sums[found.x]
        shape = sums.type.static_shape() or ()
        outer = " ".join(["p", *(f"a{n}" for n in range(len(shape) - 3)), "m"])
        products, first = [], 0
        for count, factor in zip(PARTS, factors, strict=True):
            part = self._slice(sums, first, count)
            products.append(self._op("contract", part, factor, spec=f"{outer} k, p k n -> {outer} n"))
            first += count
        whole = found.node.outputs[0].type.static_shape() or ()
        return self._op("strassen_output", *products, shape=whole[-2:])

    def _of_constant(self, found: Product) -> tuple[Value, ...] | None:
        """The second factors of the products, as many as PARTS says."""
        key = found.constant, found.order
        if key not in self._factors:
            half = half_columns(found.sums.columns, self._target)
            accurate = product_error(found.factor, half) <= PRODUCT_ERROR
            self._factors[key] = self._constants(found, half) if accurate else None
            release(found.array)
        return self._factors[key]

    def _constants(self, found: Product, half: int) -> tuple[Value, ...]:
        if self._stored:
            u = transform_factor(found.factor, half)
            return self.constant(u, "factors"), self.constant(u[:DERIVED] - u[DERIVED:], "differences")
        shape = (STORED, *half_shape(found.factor, half))
        factors = self.constant(
            Pending(found.array.dtype, shape, lambda room: _transformed(found, half, room)), "factors"
        )
        return factors, self._op("sub", self._slice(factors, 0, DERIVED), self._slice(factors, DERIVED, 1))

    def _slice(self, value: Value, first: int, count: int) -> Value:
        """So many entries of the first dimension."""
        _, *inner = value.type.static_shape() or ()
        starts, sizes = (first, *(0 for _ in inner)), (count, *inner)
        return self._op("slice", value, starts=starts, sizes=sizes, steps=(1,) * len(sizes))

    def _op(self, op: str, *inputs: Value, **attrs: object) -> Value:
        made = self.typed(op, inputs, attrs, op)
        assert made is not None, f"{op} of a product can always be typed"
        return self.add(made).outputs[0]
