"""Operator graphs: values, nodes, functions; and the Module, which holds functions of both levels.

    graph main[n](x: f32[n, 784]) -> y:
      w: f32[784, 10] = constant(name=@w)
      h: f32[n, 10] = contract(x, w, spec="ik,kj->ij")
      y: f32[n, 10] = relu(h)

A graph is pure: every value is defined once, by a parameter or a node, before it is used. Nodes and values are equal by
identity. A node may bind a symbol (`m = size(count)`), whose value is known from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tilewright.core.node import Node as CoreNode
from tilewright.expr.nodes import Var
from tilewright.graph.constants import Held, as_constants
from tilewright.graph.op import Attributes, Op
from tilewright.loops.nodes import Function
from tilewright.types.tensor import TensorType


class Value(CoreNode):
    """A tensor that a parameter or a node defines. The name is for people; printing makes names unique."""

    name: str
    type: TensorType


class Node(CoreNode):
    """One use of an operator: `outputs = op(inputs, attrs)`. `binds` is the symbol that it gives a value, if any;
    `source` names the front-end operator (`Conv 'conv1/conv'`) for errors and reports."""

    op: Op
    inputs: tuple[Value, ...]
    attrs: Attributes
    outputs: tuple[Value, ...]
    binds: tuple[Var, ...] = ()
    source: str = ""

    def sized_here(self) -> list[int]:
        """The places of outputs with an extent that the node itself binds."""
        return [n for n, v in enumerate(self.outputs) if any(d in self.binds for d in v.type.shape)]


class GraphFunction(CoreNode):
    """A graph function: symbols (dimensions bound by the parameters' shapes), parameters, nodes in order, results with
    their public names."""

    name: str
    symbols: tuple[Var, ...]
    params: tuple[Value, ...]
    nodes: tuple[Node, ...]
    results: tuple[Value, ...]
    result_names: tuple[str, ...]

    def __str__(self) -> str:
        return printer[0](self)


AnyFunction = GraphFunction | Function


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """Functions of both levels by name, and the constants they name. `main` is the entry. Its parameters of the names
    in `spent` may be written over: whoever calls it has no use for them afterwards."""

    functions: Mapping[str, AnyFunction]
    constants: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    entry: str = "main"
    spent: frozenset[str] = frozenset()

    @property
    def main(self) -> AnyFunction:
        return self.functions[self.entry]

    @property
    def graph(self) -> GraphFunction:
        """The entry function while it is still a graph."""
        main = self.main
        assert isinstance(main, GraphFunction), "the entry function has been lowered to loops"
        return main

    def with_function(self, function: AnyFunction) -> Module:
        """The module with this function added, or put in place of the one of the same name."""
        return replace(self, functions={**self.functions, function.name: function})

    def with_constants(self, constants: Mapping[str, Held]) -> Module:
        """The module with these constants in place of its own."""
        return replace(self, constants=as_constants(constants))

    def __str__(self) -> str:
        return "\n\n".join(str(f) for f in self.functions.values())


printer: list[Callable[[GraphFunction], str]] = []
"""The function that prints a graph function: text.py, which needs the nodes, puts itself here."""
