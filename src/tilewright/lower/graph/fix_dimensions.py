"""Replaces symbolic dimensions by given sizes.

    graph main[n, m](x: f32[n, m]) -> y:            n = 1          graph main[m](x: f32[1, m]) -> y:
      y: f32[m, n] = transpose(x, perm=(1, 0))        =>             y: f32[m, 1] = transpose(x, perm=(1, 0))

Every node is typed again. A requirement that the sizes fulfil is removed; sizes that break one are an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import index
from typing import SupportsIndex

from tilewright.core.node import Node as CoreNode
from tilewright.core.walk import preorder, substitute
from tilewright.expr import dtypes
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.graph.instance import substituted
from tilewright.graph.names import FreshNames
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import MOST_ELEMENTS, REGISTRY, TypeContext
from tilewright.graph.symbolic import Require, bodies_of, given_symbols, running
from tilewright.report.errors import UserError
from tilewright.report.nearest import nearest


def fix_dimensions(module: Module, sizes: Mapping[str, int]) -> Module:
    """The module with these sizes for symbolic dimensions of its inputs, by their names; the same object where none is
    given. Raises UserError for a name that no dimension has, what is no size, and sizes that the program does not
    allow."""
    if not sizes:
        return module
    function = module.graph
    known: dict[Expr, CoreNode] = {}
    for name, size in sizes.items():
        symbols = [s for s in function.symbols if s.name == name]
        if not symbols:
            raise _unknown(name, size, function.symbols)
        known.update({symbol: const(_checked(name, size)) for symbol in symbols})
    try:
        made = module.with_function(_Instance(function, known).function())
    except UserError as error:
        given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        fix = "give other sizes, or leave dimensions as they are"
        raise UserError(f"cannot compile for {given}", where=error.where, why=error.why, fix=fix) from None
    return _without_replaced(_fix_bodies(made, made.graph, FreshNames(made.functions)), made)


def _without_replaced(module: Module, before: Module) -> Module:
    """The module without the bodies that nodes ran before and that no node runs any more."""
    unused = _bodies(before) - _bodies(module)
    return replace(module, functions={n: f for n, f in module.functions.items() if n not in unused})


def _bodies(module: Module) -> set[str]:
    """The names of the functions that nodes run."""
    graphs = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    return {name for graph in graphs for node in graph.nodes for name in bodies_of(node.attrs)}


def _fix_bodies(module: Module, function: GraphFunction, names: FreshNames) -> Module:
    """The module in which the functions that nodes of this one run have sizes for symbols, where the nodes give them
    numbers, and so on within these. A branch that does not allow the sizes stays as it is: it fails where it runs."""
    nodes: list[Node] = []
    for node in function.nodes:
        own = {name: names.fresh(name) for name in bodies_of(node.attrs)}
        given = given_symbols(node.attrs)
        fixed = [n for n, e in enumerate(given) if isinstance(e, Const)]
        try:
            bodies = [_fixed(module, name, given, own[name]) for name in own] if fixed else []
        except UserError:
            bodies = []
        for body in bodies:
            module = _fix_bodies(module.with_function(body), body, names)
        if bodies:
            left = tuple([e for n, e in enumerate(given) if n not in fixed])
            node = node.replace(attrs=running(node.attrs, own).replace(symbols=left))
        nodes.append(node)
    return module.with_function(function.replace(nodes=tuple(nodes))) if nodes != list(function.nodes) else module


def _fixed(module: Module, name: str, given: Sequence[Expr], own: str) -> GraphFunction:
    """A function that a node runs, under another name, with the numbers that the node gives to symbols."""
    body = module.functions[name]
    assert isinstance(body, GraphFunction)
    known: dict[Expr, CoreNode] = {s: e for s, e in zip(body.symbols, given, strict=False) if isinstance(e, Const)}
    return _Instance(body, known).function().replace(name=own)


def _unknown(name: str, size: int, symbols: tuple[Var, ...]) -> UserError:
    names = list(dict.fromkeys(s.name for s in symbols))
    return UserError(
        f"no dimension is called {name!r}",
        where=f"dimension {name} = {size}",
        why=f"the dimensions are {', '.join(names)}" if names else "all dimensions of the inputs are fixed",
        fix=_written(nearest(name, names) or names[0], size) if names else "leave it out",
    )


def _checked(name: str, size: object) -> int:
    """A size as a number: any type of whole numbers may say it."""
    number = index(size) if isinstance(size, SupportsIndex) and not isinstance(size, bool) else -1
    if not 0 <= number <= MOST_ELEMENTS:
        raise UserError(
            f"cannot fix the dimension {name} at {size!r}",
            why=f"a size is a whole number from 0 to {MOST_ELEMENTS:,}",
            fix=_written(name, 1),
        )
    return number


def _written(name: str, size: int) -> str:
    return f"write dims={{{name!r}: {size}}}, or --dim {name}={size}"


_SIDES = re.compile(r"\{([01])\}")
"""Where a message takes the sides of a comparison."""


class _Instance:
    """A function while its nodes are typed again."""

    def __init__(self, function: GraphFunction, known: dict[Expr, CoreNode]) -> None:
        self._old, self._known = function, known
        self._values: dict[Value, Value] = {}
        self._nodes: list[Node] = []
        self._required: set[Expr] = set()

    def function(self) -> GraphFunction:
        """The function without the symbols that are known."""
        old = self._old
        for param in old.params:
            self._values[param] = made = param.replace(type=substituted(param.type, self._known))
            self._check_extents(made)
        for node in old.nodes:
            self._add(node)
        return old.replace(
            symbols=tuple([s for s in old.symbols if s not in self._known]),
            params=tuple([self._values[p] for p in old.params]),
            nodes=tuple(self._nodes),
            results=tuple([self._values[r] for r in old.results]),
        )

    def _check_extents(self, value: Value) -> None:
        context = TypeContext("an input", f"input {value.name}")
        context.check_size(value.type)
        for extent in value.type.shape:
            if isinstance(extent, Const) and extent.value < 0:
                raise context.error(f"its shape would be {value.type}")

    def _add(self, node: Node) -> None:
        context = TypeContext(node.op.name, node.source)
        if isinstance(node.attrs, Require):
            self._require(context, substitute(node.attrs.cond, self._known), node.attrs.message)
            return
        attrs = type(node.attrs)(*[substituted(v, self._known) for v in node.attrs.field_values()])
        inputs = tuple([self._values[v] for v in node.inputs])
        types = node.op.types(context, tuple([v.type for v in inputs]), attrs)
        for cond, message in context.requirements:
            self._require(context, cond, message)
        outputs = tuple([v.replace(type=t) for v, t in zip(node.outputs, types, strict=True)])
        self._values.update(zip(node.outputs, outputs, strict=True))
        self._nodes.append(Node(node.op, inputs, attrs, outputs, node.binds, node.source))

    def _require(self, context: TypeContext, cond: Expr, message: str) -> None:
        """Asks for a condition once, unless it is decided."""
        verdict = simplify(cond)
        if not verdict.variables and any(isinstance(e, Expr) and e.dtype.is_float for e in preorder(verdict)):
            verdict = const(bool(evaluate(verdict, {})), dtypes.bool_)  # sizes by scales, and whether they are exact
        if isinstance(verdict, Const) or not verdict.variables:
            if not (isinstance(verdict, Const) and verdict.value):
                sides = [str(simplify(e)) for e in cond.children() if isinstance(e, Expr)]
                raise context.error(_SIDES.sub(lambda m: sides[int(m[1])] if len(sides) == 2 else m[0], message))
        elif verdict not in self._required:
            self._required.add(verdict)
            self._nodes.append(Node(REGISTRY["require"], (), Require(verdict, message), (), (), context.source))
