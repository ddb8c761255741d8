"""A function whose products by constants have a dynamic number of rows becomes two, of which a call runs one.

    graph main[b, n](x: f32[b*n, 768]) -> y: …
    =>
    graph main[b, n](x: f32[b*n, 768]) -> y:
      rows: i64[] = index_values(values=(b*n,), shape=())
      least: i64[] = full(value=64, shape=())
      many: bool[] = le(least, rows)
      y = if(many, x, then="main.many", otherwise="main.few", symbols=(b, n))

Half-size products are faster with many rows and slower with few. Both functions take the products over the same sums of
their constants (strassen.py), so that no constant is kept twice. It happens once, to the entry, where more than half of
the arithmetic of its contractions is products of the same number of rows that gain.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.analysis.sizes import Sizes
from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr
from tilewright.graph.edit import Edit
from tilewright.graph.instance import instance
from tilewright.graph.names import FreshNames
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY
from tilewright.graph.symbolic import If
from tilewright.lower.graph.constant_products import Product, find_product
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import parse
from tilewright.plan.rewrite.strassen import least_rows
from tilewright.target import Target

TOGETHER = {"many": 2, "few": 1}
"""The two functions, the one that runs where there are rows enough first, and how many rows their products sum with
each other."""


@dataclass(frozen=True, slots=True)
class Split:
    """The module with both functions, and how many rows of their products are summed with each other."""

    module: Module
    together: Mapping[Node, int]


def split_by_rows(
    module: Module, target: Target, stored: bool, are_accurate: Callable[[Product], bool]
) -> Split | None:
    """The two functions of the entry; None where they gain nothing. `are_accurate` says whether the sums of a product's
    constant are."""
    function = module.main
    if not isinstance(function, GraphFunction) or not _can_be_split(function):
        return None
    sizes = Sizes().within(function)
    work = {node: _flops(node, sizes) for node in function.nodes}

    def is_most(products: Mapping[int, Product]) -> bool:
        return 2 * sum(work[p.node] for p in products.values()) > sum(work.values())

    groups = {rows: products for rows, products in _groups(module, function).items() if is_most(products)}
    for rows, products in groups.items():  # one at most
        sums = [p.sums(1) for p in products.values()]
        least = least_rows(sums, sizes.value(rows), target, stored)
        accurate = {n: p for n, p in products.items() if are_accurate(p)} if least is not None else {}
        if least is not None and is_most(accurate):
            return _split(module, function, accurate, rows, least)
    return None


def _can_be_split(function: GraphFunction) -> bool:
    """Whether the sizes of all results are those of parameters, so that the `if` binds none."""
    extents = {v for result in function.results for e in result.type.shape for v in e.variables}
    return extents <= set(function.symbols) and not set(function.results) & set(function.params)


def _groups(module: Module, function: GraphFunction) -> dict[Expr, dict[int, Product]]:
    """The products of a dynamic number of rows, by that number and their places among the nodes."""
    edit = Edit(module, function)
    groups: dict[Expr, dict[int, Product]] = defaultdict(dict)
    for n, node in enumerate(function.nodes):
        found = find_product(edit, node) if isinstance(node.attrs, ContractAttributes) else None
        if found is not None and not isinstance(found.rows, Const) and found.rows.variables <= set(function.symbols):
            groups[found.rows][n] = found
        edit.keep(node)
    return groups


def _flops(node: Node, sizes: Sizes) -> int:
    """The multiply-adds of a contraction; 0 of any other operator."""
    if not isinstance(node.attrs, ContractAttributes):
        return 0
    extents: dict[str, Expr] = {}
    for value, operand in zip(node.inputs, parse(node.attrs.spec).operands, strict=True):
        extents.update((i.axis, e) for i, e in zip(operand, value.type.shape, strict=True) if i.axis is not None)
    return math.prod(map(sizes.value, extents.values()))


def _split(module: Module, function: GraphFunction, places: Mapping[int, Product], rows: Expr, least: int) -> Split:
    names, together = FreshNames(module.functions), dict[Node, int]()
    branches = []
    for name, count in TOGETHER.items():
        body = instance(function, ()).replace(name=names.fresh(f"{function.name}.{name}"))
        together |= {body.nodes[n]: count for n in places}
        branches.append(body)
    edit = Edit(module, function)

    def op(kind: str, *inputs: Value, **attrs: object) -> Value:
        made = edit.typed(kind, inputs, attrs, kind)
        assert made is not None, f"{kind} of sizes can always be typed"
        return edit.add(made).outputs[0]

    many = op(
        "le", op("full", value=Const(least, dtypes.index), shape=()), op("index_values", values=(rows,), shape=())
    )
    outputs = tuple([Value(result.name, result.type) for result in function.results])
    types = tuple([result.type for result in function.results])
    attrs = If(branches[0].name, branches[1].name, types, function.symbols)
    node = Node(REGISTRY["if"], (many, *function.params), attrs, outputs)
    module = module.with_function(function.replace(nodes=(*edit.nodes, node), results=outputs))
    for body in branches:
        module = module.with_function(body)
    return Split(module, together)
