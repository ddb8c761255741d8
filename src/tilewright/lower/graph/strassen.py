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
results of the row that its row is paired with: 0 and 1, 2 and 3, and so on. Where the number of rows is dynamic, a call
decides between two functions (split_by_rows.py): with few rows each row stands by itself, over the same sums.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.analysis.dataflow import Dataflow
from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const
from tilewright.graph.constants import Pending, held
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.lower.graph.constant_products import Order, Product, find_product
from tilewright.lower.graph.split_by_rows import split_by_rows
from tilewright.ops.accuracy import PRODUCT_ERROR, product_error
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.strassen import DERIVED, STORED, half_shape, parts_of, transform_factor
from tilewright.plan.price.kernels import CostModel
from tilewright.plan.rewrite.precision import choose_rounded
from tilewright.plan.rewrite.strassen import keeps_all, pays
from tilewright.report import settings
from tilewright.store.pages import release
from tilewright.target import Target
from tilewright.types.room import Room


def strassen(module: Module, target: Target, halves: bool = False) -> Module:
    """The module with those products rewritten that become faster; none if TILEWRIGHT_STRASSEN is 0. With `halves`
    (factors may be rounded to bf16), those whose factors are better rounded stay: the sums would amplify the rounding
    errors too much."""
    if not settings.STRASSEN.read():
        return module
    bytes_held = sum(array.nbytes for array in held(module.constants).values())
    sums = _Sums(target, keeps_all(bytes_held, target))
    split = split_by_rows(module, target, sums.stored, sums.are_accurate) if not halves else None
    together: Mapping[Node, int] = {} if split is None else split.together
    return over_graphs(
        module if split is None else split.module,
        lambda m, f: _rewrite(m, f, target, sums, together, halves),
    )


def _rewrite(
    module: Module, function: GraphFunction, target: Target, sums: _Sums, together: Mapping[Node, int], halves: bool
) -> Module:
    edit = _Products(module, function, sums)
    model = CostModel(Dataflow(function), target) if halves else None
    for node in function.nodes:
        rounds = model is not None and isinstance(node.attrs, ContractAttributes) and choose_rounded(node, model)
        found = find_product(edit, node) if isinstance(node.attrs, ContractAttributes) and not rounds else None
        rows = 0 if found is None else _rows_together(found, target, sums.stored, together)
        made = edit.made(found, rows) if found is not None and rows else None
        if made is None or not edit.replace(node, (made,)):
            edit.keep(node)
    return edit.finish()


def _rows_together(found: Product, target: Target, stored: bool, together: Mapping[Node, int]) -> int:
    """How many rows of a product are summed with each other; 0 where it stays as it is."""
    if isinstance(found.rows, Const):
        return 2 if pays(found.sums(int(found.rows.value)), target, stored) else 0
    return together.get(found.node, 0)


def _transformed(found: Product, half: int, room: Room) -> np.ndarray:
    """The sums of the blocks of a product's factor that are stored. The factor's pages are not needed afterwards."""
    made = transform_factor(found.factor, half, room)
    release(found.array)
    return made


def half_columns(columns: int, target: Target) -> int:
    """The columns of a half-size block: whole vectors, padded to the width that is cheapest for its register tiles: the
    one that leaves the fewest vectors beyond whole panels of two and of three."""
    lanes = target.lanes(f32)
    few = -(-columns // (2 * lanes))
    wider = range(few, few + few // 64 + 1)
    return lanes * min(wider, key=lambda n: (n % 2 + n % 3, n))


class _Sums:
    """What was made of the constant factors of a module: whether sums are accurate enough, and the constants of their
    sums. `stored` says whether differences are stored, too."""

    def __init__(self, target: Target, stored: bool) -> None:
        self.stored = stored
        self._target = target
        self._accurate: dict[tuple[str, Order], bool] = {}
        self.names: dict[tuple[str, Order], tuple[str, ...]] = {}
        """The names of the constants that were made."""

    def are_accurate(self, found: Product) -> bool:
        """Whether the error of a product over sums is small enough."""
        if found.key not in self._accurate:
            self._accurate[found.key] = product_error(found.factor, self.half(found)) <= PRODUCT_ERROR
            release(found.array)
        return self._accurate[found.key]

    def half(self, found: Product) -> int:
        """The columns of a block."""
        return half_columns(found.factor.shape[1], self._target)


class _Products(Edit):
    """A function while its products are rewritten: the values of constants and of sums that it has."""

    def __init__(self, module: Module, function: GraphFunction, sums: _Sums) -> None:
        super().__init__(module, function)
        self._sums = sums
        self._factors: dict[tuple[str, Order], tuple[Value, ...]] = {}
        self._inputs: dict[tuple[Value, int], Value] = {}

    def made(self, found: Product, together: int) -> Value | None:
        """Adds the operators that compute a product; None where their error would be too large."""
        self.source = found.node.source
        if not self._sums.are_accurate(found):
            return None
        factors = self._of_constant(found, together)
        if (found.x, together) not in self._inputs:
            self._inputs[found.x, together] = self._op("strassen_input", found.x, together=together)
        sums = self._inputs[found.x, together]
        outer = " ".join(["p", *(f"a{n}" for n in range(len(sums.type.shape) - 3)), "m"])
        products, first, parts = [], 0, parts_of(together)
        for count, factor in zip(parts, factors, strict=True):
            part = self._slice(sums, first, count)
            products.append(self._op("contract", part, factor, spec=f"{outer} k, p k n -> {outer} n"))
            first += count
        shape = found.node.outputs[0].type.shape[-2:]
        return self._op("strassen_output", *products, shape=shape, together=together)

    def _of_constant(self, found: Product, together: int) -> tuple[Value, ...]:
        """The second factors of the products, as many as `parts_of` says."""
        if found.key not in self._factors:
            self._factors[found.key] = self._constants(found)
            release(found.array)
        factors = self._factors[found.key]
        if len(factors) == len(parts_of(together)):
            return factors
        if together == 1:
            return factors[:1]
        differences = self._op("sub", self._slice(factors[0], 0, DERIVED), self._slice(factors[0], DERIVED, 1))
        self._factors[found.key] = (factors[0], differences)
        return self._factors[found.key]

    def _constants(self, found: Product) -> tuple[Value, ...]:
        """The sums that are stored; the constants are made once, for all functions."""
        names = self._sums.names
        if found.key in names:
            return tuple(map(self.read_constant, names[found.key]))
        half = self._sums.half(found)
        made: tuple[Value, ...]
        if self._sums.stored:
            u = transform_factor(found.factor, half)
            made = (self.constant(u, "factors"), self.constant(u[:DERIVED] - u[DERIVED:], "differences"))
        else:
            shape = (STORED, *half_shape(found.factor, half))
            pending = Pending(found.array.dtype, shape, lambda room: _transformed(found, half, room))
            made = (self.constant(pending, "factors"),)
        names[found.key] = tuple([name for value in made if (name := self.constant_name(value)) is not None])
        return made

    def _slice(self, value: Value, first: int, count: int) -> Value:
        """So many entries of the first dimension."""
        total, *inner = value.type.shape
        if first == 0 and isinstance(total, Const) and total.value == count:
            return value
        starts, sizes = (first, *(0 for _ in inner)), (count, *inner)
        return self._op("slice", value, starts=starts, sizes=sizes, steps=(1,) * len(sizes))

    def _op(self, op: str, *inputs: Value, **attrs: object) -> Value:
        made = self.typed(op, inputs, attrs, op)
        assert made is not None, f"{op} of a product can always be typed"
        return self.add(made).outputs[0]
