"""Selection by order and by truth: the k first elements of a sorted axis, and the places where a mask holds.

    values, indices = top_k(x: f32[n, m], axis=1, k=5, largest=True)
    places = compact(mask: bool[n, m], size=c)                   i64[c, 2]

`top_k` sorts stably: of equal elements the one with the lower index comes first; NaN comes last, whichever end is
sought.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.build import less, select
from tilewright.expr.nodes import And, Eq, Expr, Le, Lt, Not, Or, Var, call, const
from tilewright.expr.work import Work
from tilewright.graph.op import Arrays, Attributes, Op, TypeContext, register
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer, If, Let, Stmt, Store, While
from tilewright.ops.blocks import Cell, add_block, loop, loops, then
from tilewright.ops.checks import ZERO, check_axis, check_count, check_kind, check_sizes, number
from tilewright.report.errors import RuntimeFault
from tilewright.types.tensor import TensorType

Types = tuple[TensorType, ...]


class TopKAttributes(Attributes):
    """`axis`: the dimension that is sorted; `k`: how many elements stay, at most all; `largest`: from the greatest
    down, else from the least up."""

    axis: int
    k: Expr
    largest: bool = True


class TopK(Op):
    """The first k elements of the sorted axis, and their i64 indices. In time n*log(k), in the memory of the
    outputs."""

    name = "top_k"
    rereads = True
    cost = Work(steps=6)
    attributes = TopKAttributes

    def infer(self, context: TypeContext, inputs: Types, attrs: TopKAttributes) -> Types:
        check_count(context, inputs, 1)
        (x,) = inputs
        check_kind(context, x, "biuf")
        check_axis(context, x, attrs.axis)
        extent, k = x.shape[attrs.axis], attrs.k
        if k is not extent:
            context.require(Le(k, extent), f"the first {k} elements of axis {attrs.axis} of {x} are more than it has")
            context.require(Le(ZERO, k), f"top_k of {k} elements")
        shape = (*x.shape[: attrs.axis], k, *x.shape[attrs.axis + 1 :])
        return TensorType(x.dtype, shape), TensorType(dtypes.index, shape)

    def meaning(self, inputs: Arrays, attrs: TopKAttributes) -> Arrays:
        (x,) = inputs
        key: np.ndarray[Any, Any] = x if x.dtype.kind in "biu" or x.dtype.itemsize > 2 else x.astype(np.float32)
        if attrs.largest:
            # For integers ~x reverses the order without overflow, as -x does for floats.
            key = np.invert(key) if key.dtype.kind in "biu" else np.negative(key)
        order = np.argsort(key, axis=attrs.axis, kind="stable")
        order = np.take(order, np.arange(number(attrs.k) or 0), axis=attrs.axis)
        return np.take_along_axis(x, order, attrs.axis), order.astype(np.int64)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x,), (values, indices) = inputs, outputs
        others = [extent for d, extent in enumerate(x.shape) if d != attrs.axis]
        add_block(build, "top_k", others, lambda *rest: _Heap(x, values, indices, attrs, rest).select())


class _Heap:
    """The statements that select along one line of x: the outputs hold a heap whose root is the last of the elements in
    the sought order, so that each further element need only be compared with the root; at the end the heap is sorted in
    place.
    """

    def __init__(
        self, x: Buffer, values: Buffer, indices: Buffer, attrs: TopKAttributes, rest: tuple[Expr, ...]
    ) -> None:
        self.x, self.values, self.indices = x, values, indices
        self.axis, self.largest, self.rest = attrs.axis, attrs.largest, rest
        self.count, self.extent = values.shape[attrs.axis], x.shape[attrs.axis]
        self.hole, self.child = Cell("hole"), Cell("child")

    def select(self) -> Stmt:
        fill, start, new, end = Var("k0"), Var("k1"), Var("k2"), Var("k3")
        fresh = self._input(new)
        return then(
            self.hole.alloc,
            self.child.alloc,
            loop(fill, 0, self.count, self._put(fill, self._input(fill))),
            loop(start, 0, self.count // 2, self._sift(self.count // 2 - 1 - start, self.count)),
            If(
                less(ZERO, self.count),
                loop(
                    new,
                    self.count,
                    self.extent,
                    If(self._before(fresh, self._at(ZERO)), self._sift(ZERO, self.count, fresh)),
                ),
            ),
            loop(end, 0, self.count, self._retire(self.count - 1 - end)),
        )

    def _retire(self, end: Expr) -> Stmt:
        """Moves the root to place `end`, and the element of that place into the heap of those before it."""
        value, index = self._names("last")
        kept = self._at(end)
        return then(
            Let(value, kept[0]),
            Let(index, kept[1]),
            self._put(end, self._at(ZERO)),
            self._sift(ZERO, end, (value, index)),
        )

    def _sift(self, start: Expr, end: Expr, item: tuple[Expr, Expr] | None = None) -> Stmt:
        """Puts `item` (default: the element there) at `start` or below it, so that places start … end - 1 are a
        heap."""
        value, index = self._names("item")
        given = item or self._at(start)
        worst = Var("worst")
        left, right = self.child.value, select(less(self.child.value + 1, end), self.child.value + 1, self.child.value)
        down = then(
            self._put(self.hole.value, self._at(worst)),
            self.hole.set(worst),
            self.child.set(worst * 2 + 1),
        )
        step = then(
            Let(worst, select(self._before(self._at(left), self._at(right)), right, left)),
            If(self._before((value, index), self._at(worst)), down, self.child.set(end)),
        )
        return then(
            Let(value, given[0]),
            Let(index, given[1]),
            self.hole.set(start),
            self.child.set(start * 2 + 1),
            While(less(self.child.value, end), step),
            self._put(self.hole.value, (value, index)),
        )

    def _before(self, a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> Expr:
        """Whether the element a = (value, index) comes before b in the sought order."""
        (av, ai), (bv, bi) = a, b
        ahead: Expr = Lt(bv, av) if self.largest else Lt(av, bv)
        same: Expr = Eq(av, bv)
        if av.dtype.is_float:
            a_last, b_last = call("isnan", av), call("isnan", bv)
            ahead = Or(ahead, And(b_last, Not(a_last)))
            same = Or(same, And(a_last, b_last))
        return Or(ahead, And(same, Lt(ai, bi)))

    def _names(self, name: str) -> tuple[Var, Var]:
        return Var(name, self.values.dtype, None), Var(f"{name}_index")

    def _place(self, place: Expr) -> tuple[Expr, ...]:
        return (*self.rest[: self.axis], place, *self.rest[self.axis :])

    def _input(self, place: Expr) -> tuple[Expr, Expr]:
        return load(self.x, *self._place(place)), place

    def _at(self, place: Expr) -> tuple[Expr, Expr]:
        at = self._place(place)
        return load(self.values, *at), load(self.indices, *at)

    def _put(self, place: Expr, item: tuple[Expr, Expr]) -> Stmt:
        at = self._place(place)
        return then(Store(self.values, at, item[0]), Store(self.indices, at, item[1]))


class CompactAttributes(Attributes):
    """`size`: the number of true elements, which the program has counted."""

    size: Expr


class Compact(Op):
    """The coordinates of the true elements of a mask in row-major order: i64[size, rank]."""

    name = "compact"
    rereads = True
    cost = Work(steps=1)
    attributes = CompactAttributes

    def infer(self, context: TypeContext, inputs: Types, attrs: CompactAttributes) -> Types:
        check_count(context, inputs, 1)
        check_kind(context, inputs[0], "b")
        out = TensorType(dtypes.index, (attrs.size, const(inputs[0].rank)))
        check_sizes(context, out)
        return (out,)

    def meaning(self, inputs: Arrays, attrs: CompactAttributes) -> Arrays:
        places = np.argwhere(inputs[0])
        if len(places) != number(attrs.size):
            raise RuntimeFault(f"compact: the mask has {len(places)} true elements, not {attrs.size}")
        return (places.astype(np.int64),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (mask,), (out,) = inputs, outputs
        position = Cell("position")

        def place(*at: Expr) -> Stmt:
            next_place = Var("next")
            stores = [Store(out, (next_place, const(d)), i) for d, i in enumerate(at)]
            return then(
                Let(next_place, position.value),
                If(
                    And(load(mask, *at), less(next_place, out.shape[0])),
                    then(*stores, position.set(next_place + 1)),
                ),
            )

        add_block(build, "compact", (), lambda: then(position.alloc, position.set(0), loops("k", mask.shape, place)))


for _op in (TopK(), Compact()):
    register(_op)
