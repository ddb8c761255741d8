"""Builds branches: a node that runs one of two functions, and these functions.

    choice = IfBuilder(g, "short", cond)
    a, b = choice.then, choice.otherwise                                builders of the branches
    (y,) = choice.finish([a.op("relu", x)], [b.op("tanh", x)])          both see the values of g

The branches have the symbols of the function around them. Extents that they give differently become symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.core.walk import preorder
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.graph.attributes import expressions_in
from tilewright.graph.build import GraphBuilder
from tilewright.graph.nodes import Value
from tilewright.graph.symbolic import If, given_fields
from tilewright.types.tensor import TensorType


class IfBuilder:
    """A choice while its branches are built, by `then` and `otherwise`. What these read of the function around them
    becomes a parameter of both."""

    def __init__(self, graph: GraphBuilder, name: str, cond: Value) -> None:
        self.graph, self.cond = graph, graph.known(cond)
        self.then, self.otherwise = graph.branch(f"{name}.then"), graph.branch(f"{name}.else")
        self._params: tuple[dict[Value, Value], ...] = ({}, {})
        for branch, own in zip((self.then, self.otherwise), self._params, strict=True):
            branch.outside = lambda value, branch=branch, own=own: self._param(value, branch, own)

    def _param(self, value: Value, branch: GraphBuilder, own: dict[Value, Value]) -> Value:
        """The parameter of a branch for a value from outside."""
        value = self.graph.known(value)
        if value not in own:
            own[value] = branch.param(f"{value.name}.{len(branch.params)}", value.type)
        return own[value]

    def graft(self, side: int) -> dict[Value, Value]:
        """Adds the nodes of one branch (0 for `then`) to the function around it instead of a node that chooses. The
        values that the branch's parameters stand for, by these."""
        becomes = {param: value for value, param in self._params[side].items()}
        self.graph.adopt((self.then, self.otherwise)[side], becomes)
        return becomes

    def move(self, graph: GraphBuilder, becomes: Mapping[Value, Value]) -> None:
        """Continues in another function, to which the nodes of the one around it were added, with `becomes` for values
        of that one."""
        self.graph, self.cond = graph, becomes.get(self.cond, self.cond)
        for own in self._params:
            kept = {becomes.get(value, value): param for value, param in own.items()}
            own.clear()
            own.update(kept)

    def finish(self, then: Sequence[Value], otherwise: Sequence[Value]) -> tuple[Value, ...]:
        """Adds the node for these results of the branches, of the same element types and ranks; its results."""
        results = [[b.known(v) for v in vs] for b, vs in ((self.then, then), (self.otherwise, otherwise))]
        inputs = tuple(dict.fromkeys(v for own in self._params for v in own))
        branches = (self.then, self.otherwise)
        for branch, own in zip(branches, self._params, strict=True):
            branch.params = [self._param(v, branch, own) for v in inputs]
        binds: list[Var] = []
        types = tuple([self._joined(a.type, b.type, binds) for a, b in zip(*results, strict=True)])
        symbols = sorted(set[Var]().union(*[free_symbols(b) for b in branches]), key=lambda s: s.serial)
        for branch, values in zip(branches, results, strict=True):
            branch.symbols = symbols
            names = [f"{v.name}.{n}" for n, v in enumerate(values)]
            self.graph.bodies[branch.name] = branch.function(dict(zip(names, values, strict=True)))
        attrs = If(self.then.name, self.otherwise.name, types, tuple(symbols))
        return self.graph.bind("if", (self.cond, *inputs), attrs, tuple(binds))

    def _joined(self, a: TensorType, b: TensorType, binds: list[Var]) -> TensorType:
        """The type of a result: what both branches agree upon outside of them, and symbols."""
        inner = self.then.late | self.otherwise.late
        shape: list[Expr] = []
        for d, e in zip(a.shape, b.shape, strict=True):
            if d is not e or (variables(d) & inner) - self.graph.late:
                binds.append(Var(f"chosen{len(self.graph.late) + len(binds)}"))
                d = binds[-1]
            shape.append(d)
        return TensorType.of(a.dtype, shape)


def variables(*exprs: Expr) -> set[Var]:
    """The symbols of expressions."""
    return {v for e in exprs if not isinstance(e, Const) for v in preorder(e) if isinstance(v, Var)}


def free_symbols(body: GraphBuilder) -> set[Var]:
    """The symbols of a function that none of its nodes binds."""
    used: list[Expr] = [d for p in body.params for d in p.type.shape]
    bound: set[Var] = set()
    for node in body.nodes:
        used += [*expressions_in(given_fields(node.attrs)), *(d for v in node.outputs for d in v.type.shape)]
        bound.update(node.binds)
    return variables(*used) - bound
