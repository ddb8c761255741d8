"""Builds graph functions: every node typed when it is added, undecided requirements turned into nodes.

g = GraphBuilder("main")
n = g.symbol("n")
x = g.param("x", TensorType.of(f32, (n, 784)))
w = g.constant("w", array)
y = g.op("relu", g.op("contract", x, w, spec="ik,kj->ij"))
module = g.module({"y": y})
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.nodes import Cast, Const, Expr, Le, Mul, Var, as_expr, const
from tilewright.expr.overflow import fits
from tilewright.graph.constants import Held, as_constants
from tilewright.graph.names import FreshNames
from tilewright.graph.nodes import AnyFunction, GraphFunction, Module, Node, Value
from tilewright.graph.op import MOST_FROM_DATA, NO_ATTRIBUTES, REGISTRY, Attributes, TypeContext
from tilewright.graph.symbolic import If, Require, Size, While, functions_of
from tilewright.report.errors import InternalError, UserError
from tilewright.report.nearest import suggest
from tilewright.types.tensor import TensorType


class GraphBuilder:
    """Collects nodes of one function. `source` names the front-end operator the nodes added now come from."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.symbols: list[Var] = []
        self.params: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[str, Held] = {}
        self.source = ""
        self.bodies: dict[str, AnyFunction] = {}
        self.outside: Callable[[Value], Value] | None = None
        self._own: set[Value] = set()
        self._required: set[Expr] = set()
        self.late: set[Var] = set()
        self._guarded: set[tuple[Expr, ...]] = set()
        self._names = FreshNames()
        self._functions = FreshNames((name,))

    @contextmanager
    def at(self, source: str) -> Iterator[None]:
        """Nodes added inside come from the front-end operator `source`."""
        before, self.source = self.source, source
        try:
            yield
        finally:
            self.source = before

    def symbol(self, name: str) -> Var:
        """A dimension that the parameters' shapes bind."""
        var = Var(name)
        self.symbols.append(var)
        return var

    def param(self, name: str, type: TensorType) -> Value:
        TypeContext(f"the input {name}", self.source).check_size(type)
        value = Value(name, type)
        self.params.append(value)
        self._own.add(value)
        return value

    def known(self, value: Value) -> Value:
        """The value in this function; in a body, the parameter for a value from outside, where the builder knows it."""
        return value if self.outside is None or value in self._own else self.outside(value)

    def constant(self, name: str, array: Held) -> Value:
        """The module constant `name` (made unique), held without a copy: an array, or what is held of a weight."""
        from_array = dtypes.from_numpy(array.dtype)
        if from_array is None:
            raise InternalError(f"constant {name} has the element type {array.dtype}, which has no counterpart")
        type = TensorType.of(from_array, array.shape)
        return self.op("constant", name=self.hold(name, array), type=type, value_name=name)

    def hold(self, name: str, array: Held) -> str:
        """What a constant of the module is called, for nodes to name it."""
        unique = self._names.fresh(name)
        self.constants[unique] = array
        return unique

    def scalar(self, value: float | bool, dtype: dtypes.DType) -> Value:
        """A constant of no dimensions."""
        return self.op("full", value=const(value, dtype), shape=())

    def op(self, op: str, *inputs: Value, value_name: str = "", **attrs: Any) -> Value:
        """Adds a node with one result and returns it."""
        (result,) = self.ops(op, *inputs, value_name=value_name, **attrs)
        return result

    def ops(self, op: str, *inputs: Value, value_name: str = "", **attrs: Any) -> tuple[Value, ...]:
        """Adds a node and returns its results."""
        kind = REGISTRY.get(op)
        if kind is None:
            raise UserError(
                f"there is no operator {op}", where=self.source or None, fix=suggest(op, [*REGISTRY], "operators")
            )
        record = kind.attributes(**attrs) if attrs else _default(kind.attributes)
        context = TypeContext(op, self.source)
        inputs = tuple([self.known(v) for v in inputs])
        types = kind.types(context, tuple(v.type for v in inputs), record)
        for type in types:
            if type.shape not in self._guarded:
                self._guard(type)
        for cond, message in context.requirements:
            self.require(cond, message)
        outputs = tuple(Value(value_name or op, t) for t in types)
        self.nodes.append(Node(kind, inputs, record, outputs, (), self.source))
        self._own.update(outputs)
        return outputs

    def _guard(self, type: TensorType) -> None:
        """Checks that sizes do not overflow, and that dynamic sizes make no more elements than a tensor may have: a
        product that wraps around would look small."""
        self._guarded.add(type.shape)
        parts = list(preorder([d for d in type.shape if not isinstance(d, Const)]))
        from_data = any(v in self.late or isinstance(v, Cast) for v in parts)
        if not from_data and not any(isinstance(p, Mul) and not isinstance(p.b, Const) for p in parts):
            return
        for extent in type.shape:
            exact = fits(extent)
            if not isinstance(exact, Const):
                self.require(exact, "a size of the result is too large to compute with")
        if from_data:
            few = Le(type.size, const(MOST_FROM_DATA))
            self.require(few, f"a tensor of a size from data has more than {MOST_FROM_DATA:,} elements")

    def require(self, cond: Expr, message: str) -> None:
        """The call fails with `message` unless `cond` holds; asked once for each condition."""
        if cond not in self._required:
            self._required.add(cond)
            self.nodes.append(Node(REGISTRY["require"], (), Require(cond, message), (), (), self.source))

    def size(self, scalar: Value, name: str, low: Expr | int, high: Expr | int, what: str) -> Var:
        """A symbol with the run-time value of an i64 scalar, which the call checks to be in [low, high]."""
        scalar = self.known(scalar)
        attrs = Size(as_expr(low), as_expr(high), what)
        symbol = attrs.symbol(name)
        self.late.add(symbol)
        self.nodes.append(Node(REGISTRY["size"], (scalar,), attrs, (), (symbol,), self.source))
        return symbol

    def adopt(self, inner: GraphBuilder, becomes: Mapping[Value, Value]) -> None:
        """Takes the nodes of a function that is built inside of this one, with `becomes` for its parameters."""
        self.late |= inner.late
        self._guarded |= inner._guarded
        for node in inner.nodes:
            if isinstance(node.attrs, Require):
                with self.at(node.source):
                    self.require(node.attrs.cond, node.attrs.message)
                continue
            self.nodes.append(node.replace(inputs=tuple([becomes.get(v, v) for v in node.inputs])))
            self._own.update(node.outputs)

    def forget(self, known: Collection[str]) -> None:
        """Drops the functions for nodes to run that are not among the known ones: nothing came of them."""
        for name in [name for name in self.bodies if name not in known]:
            del self.bodies[name]

    def body(self, name: str) -> GraphBuilder:
        """A builder of another function of the module (its name made unique), for nodes to run."""
        inner = GraphBuilder(self._functions.fresh(name))
        inner.constants, inner.bodies, inner.source = self.constants, self.bodies, self.source
        inner._names, inner._functions = self._names, self._functions
        return inner

    def branch(self, name: str) -> GraphBuilder:
        """A builder of a function that an `if` or a `while` runs: with the symbols that are known here."""
        inner = self.body(name)
        inner.late = set(self.late)
        return inner

    def bind(self, op: str, inputs: tuple[Value, ...], attrs: If | While, binds: tuple[Var, ...]) -> tuple[Value, ...]:
        """Adds a node that binds extents of its results; these. What it runs has checked the sizes of results, but for
        those of stacked outputs."""
        inputs = tuple([self.known(v) for v in inputs])
        types = REGISTRY[op].types(TypeContext(op, self.source), tuple([v.type for v in inputs]), attrs)
        self.late.update(binds)
        stacked = types[attrs.states :] if isinstance(attrs, While) else ()
        self._guarded.update(t.shape for t in types if t not in stacked)
        outputs = tuple([Value(op, t) for t in types])
        self.nodes.append(Node(REGISTRY[op], inputs, attrs, outputs, binds, self.source))
        for type in stacked:
            self._guard(type)
        self._own.update(outputs)
        return outputs

    def function(self, results: Mapping[str, Value]) -> GraphFunction:
        return GraphFunction(
            self.name,
            tuple(self.symbols),
            tuple(self.params),
            tuple(self.nodes),
            tuple(results.values()),
            tuple(results),
        )

    def module(self, results: Mapping[str, Value] | Sequence[Value]) -> Module:
        """A module of this function and those that its nodes, and theirs, run; unnamed results are called by their
        values' names."""
        if not isinstance(results, Mapping):
            results = {f"{v.name}{n}" if n else v.name: v for n, v in enumerate(results)}
        function = self.function(results)
        run: dict[str, AnyFunction] = {function.name: function}
        waiting: list[AnyFunction] = [function]
        while waiting:
            of = waiting.pop()
            nodes = of.nodes if isinstance(of, GraphFunction) else ()
            names = [name for node in nodes for name in functions_of(node.attrs) if name not in run]
            run.update((name, self.bodies[name]) for name in names)
            waiting += [run[name] for name in dict.fromkeys(names)]
        bodies = {name: body for name, body in self.bodies.items() if name in run}
        return Module({function.name: function, **bodies}, as_constants(self.constants), function.name)


def _default(attributes: type[Attributes]) -> Attributes:
    return NO_ATTRIBUTES if attributes is Attributes else attributes()
