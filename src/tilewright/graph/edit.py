"""Rewriting graph functions in order: what a pass over nodes does and need not repeat.

    edit = Edit(module, function)
    for node in function.nodes:
        y = edit.op("relu", *edit.inputs(node))          # a node before this one; None where it cannot be typed
        edit.replace(node, (y,))                         # uses of the node's output are uses of y from here on
    module = edit.finish()                               # the same object when nothing was replaced

Types never change: a value takes the place of another only when it has the very same type. A node is added only where
everything its type rule requires is decided, or required by the function at that point already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from tilewright.core.asking import FunctionFailure
from tilewright.expr.dtypes import from_numpy
from tilewright.expr.nodes import Expr
from tilewright.graph.constants import Held, array_if_known, held
from tilewright.graph.names import FreshNames
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY, Attributes, TypeContext
from tilewright.graph.symbolic import Constant, Require
from tilewright.report.errors import UserError
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]


def over_graphs(module: Module, change: Callable[[Module, GraphFunction], Module]) -> Module:
    """The module after `change` for each of its graph functions; a change may leave out others that nothing uses."""
    for name in module.functions:
        function = module.functions.get(name)
        if isinstance(function, GraphFunction):
            module = change(module, function)
    return module


T = TypeVar("T")


def in_order(
    items: Sequence[T], reads: Callable[[T], Iterable[Value]], makes: Callable[[T], Iterable[Value]]
) -> list[T]:
    """The items in the order given, but each after those that make what it reads."""
    makers = {v: n for n, item in enumerate(items) for v in makes(item)}
    ordered: dict[int, None] = {}
    for first in range(len(items)):
        waiting = [first]
        while waiting:
            n = waiting[-1]
            before = [] if n in ordered else [m for v in reads(items[n]) if (m := makers.get(v, n)) not in ordered]
            before = [m for m in before if m != n]
            waiting += before
            if not before:
                ordered.setdefault(waiting.pop())
    return [items[n] for n in ordered]


class Edit:
    """A function while it is rewritten: the nodes so far, what defines each value, and what replaces each old value."""

    def __init__(self, module: Module, function: GraphFunction) -> None:
        self.module = module
        self.function = function
        self.constants = held(module.constants)
        self.nodes: list[Node] = []
        self.source = ""
        self.changed = False
        self._defined_by: dict[Value, Node] = {}
        self._becomes: dict[Value, Value] = {}
        self._required: set[Expr] = set()
        self._names = FreshNames(module.constants)

    def resolve(self, value: Value) -> Value:
        """The replacement of a value of the old function."""
        return self._becomes.get(value, value)

    def inputs(self, node: Node) -> tuple[Value, ...]:
        return tuple([self.resolve(v) for v in node.inputs])

    def producer(self, value: Value) -> Node | None:
        """The node that defines a value; None for a parameter."""
        return self._defined_by.get(value)

    def made_by(self, value: Value, op: str) -> Node | None:
        """The node that defines a value, if it is of this operator."""
        node = self._defined_by.get(value)
        return node if node is not None and node.op.name == op else None

    def keep(self, node: Node) -> Node:
        """Adds a node of the old function over what its inputs have become."""
        inputs = self.inputs(node)
        return self.add(node if inputs == node.inputs else node.replace(inputs=inputs))

    def add(self, node: Node) -> Node:
        self.nodes.append(node)
        for value in node.outputs:
            self._defined_by[value] = node
        if isinstance(node.attrs, Require):
            self._required.add(node.attrs.cond)
        return node

    def typed(self, op: str, inputs: tuple[Value, ...], attrs: dict[str, Any], name: str) -> Node | None:
        """A node that is not added yet; None when its type rule refuses the inputs or requires what is not known."""
        kind = REGISTRY[op]
        record: Attributes = kind.attributes(**attrs)
        context = TypeContext(op, self.source)
        try:
            types = kind.types(context, tuple([v.type for v in inputs]), record)
        except FunctionFailure:
            raise
        except UserError:
            return None
        if not all(cond in self._required for cond, _ in context.requirements):
            return None
        outputs = tuple([Value(name or op, t) for t in types])
        return Node(kind, inputs, record, outputs, (), self.source)

    def constant(self, array: Held, name: str) -> Value:
        """Adds a constant of the module, its name made unique, and the node for it."""
        unique = self._names.fresh(name)
        self.constants[unique] = array
        return self.read_constant(unique, name)

    def read_constant(self, name: str, called: str = "") -> Value:
        """Adds a node for a constant that the module has, with a value that is `called` so, or as the constant."""
        array = self.constants[name]
        dtype = from_numpy(array.dtype)
        assert dtype is not None, f"{array.dtype} is no element type"
        type = TensorType.of(dtype, array.shape)
        node = self.typed("constant", (), {"name": name, "type": type}, called or name)
        assert node is not None
        return self.add(node).outputs[0]

    def constant_name(self, value: Value) -> str | None:
        """The name of the constant that a `constant` node defines a value to be."""
        node = self._defined_by.get(value)
        return node.attrs.name if node is not None and isinstance(node.attrs, Constant) else None

    def array(self, value: Value) -> Array | None:
        """The array of a value that a `constant` node defines; None where it varies with a weight."""
        return array_if_known(self.held(value))

    def held(self, value: Value) -> Held | None:
        """The array of a value that a `constant` node defines, which may be pending, and vary with a weight."""
        name = self.constant_name(value)
        return None if name is None else self.constants[name]

    def replace(self, node: Node, values: tuple[Value, ...]) -> bool:
        """Lets `values` stand for the outputs of an old node, if they have the same types; whether they do."""
        if any(old.type is not new.type for old, new in zip(node.outputs, values, strict=True)):
            return False
        self._becomes.update(zip(node.outputs, values, strict=True))
        self.changed = True
        return True

    def finish(self) -> Module:
        """The module with the rewritten function; the same object when nothing changed."""
        if not self.changed:
            return self.module
        results = tuple([self.resolve(v) for v in self.function.results])
        function = self.function.replace(nodes=tuple(self.nodes), results=results)
        module = self.module.with_function(function)
        return module if len(self.constants) == len(module.constants) else module.with_constants(self.constants)
