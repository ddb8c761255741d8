"""A module as nodes of a function that is being built: what a call of its entry would compute.

Constants and the functions that its nodes run come along, under names of their own in the module being built.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr.build import equal
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.simplify import simplify
from tilewright.graph.build import GraphBuilder
from tilewright.graph.instance import instance
from tilewright.graph.nodes import AnyFunction, GraphFunction, Module, Node, Value
from tilewright.graph.op import Attributes
from tilewright.graph.symbolic import Constant, functions_of, running
from tilewright.report.errors import UserError


def inline(b: GraphBuilder, module: Module, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """The results of the module's entry for these inputs, in order. Sizes that a call has to compare become
    requirements. UserError for inputs of other types, and for sizes that cannot be the same."""
    entry = module.graph
    known = _bound(entry, inputs)
    own = instance(entry, [known[s] for s in entry.symbols])
    becomes: dict[Value, Value] = {}
    for param, value in zip(own.params, inputs, strict=True):
        becomes[param] = _fitted(b, entry, param, value)
    names = _Names(b, module)
    inner = b.branch(entry.name)
    for node in own.nodes:
        inner.late.update(node.binds)
        inner.nodes.append(names.renamed(node))
    b.adopt(inner, becomes)
    return tuple([becomes.get(v, v) for v in own.results])


def _bound(entry: GraphFunction, inputs: Sequence[Value]) -> dict[Var, Expr]:
    """What the inputs' shapes say the symbols are. UserError where an input is of another type or rank."""
    known: dict[Var, Expr] = {}
    for param, value in zip(entry.params, inputs, strict=True):
        if (param.type.dtype, param.type.rank) != (value.type.dtype, value.type.rank):
            raise UserError(f"{entry.name} takes {param.name}: {param.type}", why=f"{value.type} came")
        for wanted, given in zip(param.type.shape, value.type.shape, strict=True):
            if isinstance(wanted, Var):
                known.setdefault(wanted, given)
    return known


def _fitted(b: GraphBuilder, entry: GraphFunction, param: Value, value: Value) -> Value:
    """The value with the type that the parameter has here, which a call of the program makes sure of."""
    if value.type is param.type:
        return value
    for n, (wanted, given) in enumerate(zip(param.type.shape, value.type.shape, strict=True)):
        verdict = simplify(equal(wanted, given))
        message = f"dimension {n} of {param.name} is not what {entry.name} takes"
        if isinstance(verdict, Const) and not verdict.value:
            raise UserError(message, why=f"it is {given}, and has to be {wanted}")
        if not isinstance(verdict, Const):
            b.require(verdict, message)
    return b.op("reshape", value, shape=param.type.shape)


class _Names:
    """What constants and functions of a module are called in the one that is being built."""

    def __init__(self, b: GraphBuilder, module: Module) -> None:
        self._b, self._module = b, module
        self._constants: dict[str, str] = {}
        self._functions: dict[str, str] = {}

    def renamed(self, node: Node) -> Node:
        """The node with names of its own for what it refers to."""
        return node.replace(attrs=self._attributes(node.attrs))

    def _attributes(self, attrs: Attributes) -> Attributes:
        if isinstance(attrs, Constant):
            if attrs.name not in self._constants:
                self._constants[attrs.name] = self._b.hold(attrs.name, self._module.constants[attrs.name])
            return attrs.replace(name=self._constants[attrs.name])
        return running(attrs, {name: self._function(name) for name in functions_of(attrs)})

    def _function(self, name: str) -> str:
        """The name of a function that nodes run, which is added where it is first met."""
        if name not in self._functions:
            own = self._functions[name] = self._b.body(name).name
            self._b.bodies[own] = self._copied(self._module.functions[name], own)
        return self._functions[name]

    def _copied(self, function: AnyFunction, name: str) -> AnyFunction:
        if not isinstance(function, GraphFunction):
            return function.replace(name=name)
        return function.replace(name=name, nodes=tuple([self.renamed(n) for n in function.nodes]))
