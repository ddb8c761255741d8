"""Applies the laws of graph_rules.py to every node until none applies.

    t: f32[m, n] = transpose(x, perm=(1, 0))
    y: f32[n, m] = transpose(t, perm=(1, 0))          =>          y: f32[n, m] = relu(x)
    z: f32[n, m] = relu(y)

What is not used any more stays for eliminate_dead.py.
"""

from __future__ import annotations

import numpy as np

from tilewright.expr.dtypes import from_numpy
from tilewright.expr.nodes import Const, const
from tilewright.graph.constants import array_if_known
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.symbolic import Constant
from tilewright.lower.graph.graph_rules import RULES, Rule, Rules, names_of
from tilewright.ops.symbolic import Full


def simplify_graph(module: Module, rules: Rules = RULES) -> Module:
    """The module with all graph functions simplified."""
    table: dict[str, list[Rule]] = {}
    for rule, operators in rules:
        for op in names_of(operators):
            table.setdefault(op, []).append(rule)
    return over_graphs(module, lambda m, f: _simplify(m, f, table))


def _simplify(module: Module, function: GraphFunction, table: dict[str, list[Rule]]) -> Module:
    graph = Simplifier(module, function, table)
    for node in function.nodes:
        graph.settle(node)
    return graph.finish()


class Simplifier(Edit):
    """A function while it is simplified: every node that is added has been offered to the rules."""

    def __init__(self, module: Module, function: GraphFunction, table: dict[str, list[Rule]]) -> None:
        super().__init__(module, function)
        self.table = table
        self._uniform: dict[str, Const | None] = {}
        self._name = ""

    def settle(self, old: Node) -> None:
        """Adds an old node, or what the first rule that applies puts in its place."""
        inputs = self.inputs(old)
        node = old if inputs == old.inputs else old.replace(inputs=inputs)
        if len(old.outputs) == 1:
            self.source, self._name = old.source, old.outputs[0].name
            value = self.better(node)
            if value is not None and self.replace(old, (value,)):
                return
        self.keep(old)

    def better(self, node: Node) -> Value | None:
        """The value of the same type that a rule gives for the output of a node."""
        for rule in self.table.get(node.op.name, ()):
            value = rule(node, self)
            if value is not None and value.type is node.outputs[0].type:
                return value
        return None

    def make(self, op: str, *inputs: Value, **attrs: object) -> Value | None:
        """The output of a new node, itself simplified; None when the node cannot be typed here."""
        node = self.typed(op, inputs, attrs, self._name)
        if node is None or len(node.outputs) != 1:
            return None
        value = self.better(node)
        return value if value is not None else self.add(node).outputs[0]

    def uniform(self, value: Value) -> Const | None:
        """The number that all elements of a constant are, bit by bit."""
        node = self.producer(value)
        if node is None:
            return None
        if isinstance(node.attrs, Full):
            return node.attrs.value
        if not isinstance(node.attrs, Constant):
            return None
        name = node.attrs.name
        if name not in self._uniform:
            array = array_if_known(self.constants[name])
            self._uniform[name] = None if array is None else only_element(array)
        return self._uniform[name]


def only_element(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Const | None:
    """The number that all elements of an array are, told apart by their bits; None when there is none."""
    dtype = from_numpy(array.dtype)
    if dtype is None or array.size == 0:
        return None
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}")
    done = 1
    while done < bits.size:  # as many more as before, so that a second value ends the search early
        if (bits[done : 2 * done] != bits[0]).any():
            return None
        done *= 2
    return const(array.flat[0].item(), dtype)
