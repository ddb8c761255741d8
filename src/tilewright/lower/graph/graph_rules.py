"""The laws of graph simplification: one node at a time, each law in the docstring of its rule.

A rule gets a node and the graph before it, and answers a value of the very same type that stands for the node's only
output, or None. Every law holds bit by bit for all values, NaN, infinities and the sign of zero included (x + 0.0 is
not x for x = -0.0), but for the payload of NaN. Each takes away a node, or puts a cheaper one in its place: rules end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, const
from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import REGISTRY, Op
from tilewright.ops.elementwise import CastAttributes, Elementwise
from tilewright.ops.movement import MOST_JOINED, ConcatAttributes, ShapeAttributes, SliceAttributes, TransposeAttributes
from tilewright.ops.pad import PadAttributes
from tilewright.ops.reduce import ReduceAttributes, ReduceKind


class Graph(Protocol):
    """What a rule may ask of the graph before the node, and add to it."""

    def producer(self, value: Value) -> Node | None:
        """The node that defines a value; None for a parameter."""

    def made_by(self, value: Value, op: str) -> Node | None:
        """The node that defines a value, if it is of this operator."""

    def uniform(self, value: Value) -> Const | None:
        """The number that all elements of a value are, if that is known."""

    def make(self, op: str, *inputs: Value, **attrs: object) -> Value | None:
        """A new node's output, simplified; None when the node cannot be typed here."""


Rule = Callable[[Node, Graph], Value | None]
Operators = tuple[str, ...] | Callable[[Op], bool]
"""The operators whose nodes a rule looks at: by their names, or all of which something holds."""
Rules = Sequence[tuple[Rule, Operators]]


def names_of(operators: Operators) -> tuple[str, ...]:
    """The names of the operators; of those that are registered, for a condition."""
    if isinstance(operators, tuple):
        return operators
    return tuple([name for name, op in REGISTRY.items() if operators(op)])


def _with_constant(node: Node, graph: Graph) -> Iterator[tuple[Value, Const]]:
    """The operands of a commutative node as (any, constant), for each that is a constant everywhere."""
    a, b = node.inputs
    for x, y in ((a, b), (b, a)):
        c = graph.uniform(y)
        if c is not None:
            yield x, c


def _is(c: Const | None, number: float) -> bool:
    """Whether a constant is this number; the sign of zero counts where the type has one."""
    if c is None or c.value != number:
        return False
    return not c.dtype.is_float or math.copysign(1.0, c.value) == math.copysign(1.0, number)


def add_zero(node: Node, graph: Graph) -> Value | None:
    """x + 0  =>  x of integers and truth values;  x + -0.0  =>  x of floats"""
    for x, c in _with_constant(node, graph):
        if _is(c, -0.0 if c.dtype.is_float else 0):
            return x
    return None


def subtract_zero(node: Node, graph: Graph) -> Value | None:
    """x - 0  =>  x"""
    return node.inputs[0] if _is(graph.uniform(node.inputs[1]), 0.0) else None


def multiply_one(node: Node, graph: Graph) -> Value | None:
    """x * 1  =>  x"""
    return next((x for x, c in _with_constant(node, graph) if _is(c, 1)), None)


def multiply_zero(node: Node, graph: Graph) -> Value | None:
    """x * 0  =>  0 of integers and truth values"""
    for _, c in _with_constant(node, graph):
        if not c.dtype.is_float and _is(c, 0):
            return graph.make("full", value=c, shape=node.outputs[0].type.shape)
    return None


def divide_by_one(node: Node, graph: Graph) -> Value | None:
    """x / 1  =>  x;  x // 1  =>  x"""
    return node.inputs[0] if _is(graph.uniform(node.inputs[1]), 1) else None


def power_of_one(node: Node, graph: Graph) -> Value | None:
    """x ** 1  =>  x"""
    return node.inputs[0] if _is(graph.uniform(node.inputs[1]), 1) else None


def power_of_two(node: Node, graph: Graph) -> Value | None:
    """x ** 2  =>  x * x"""
    x, exponent = node.inputs
    return graph.make("mul", x, x) if _is(graph.uniform(exponent), 2) else None


def and_constant(node: Node, graph: Graph) -> Value | None:
    """x and true  =>  x;  x and false  =>  false"""
    for x, c in _with_constant(node, graph):
        return x if c.value else graph.make("full", value=c, shape=node.outputs[0].type.shape)
    return None


def or_constant(node: Node, graph: Graph) -> Value | None:
    """x or false  =>  x;  x or true  =>  true"""
    for x, c in _with_constant(node, graph):
        return graph.make("full", value=c, shape=node.outputs[0].type.shape) if c.value else x
    return None


def same_operands(node: Node, graph: Graph) -> Value | None:
    """min(x, x)  =>  x;  so do max, and, or, and bitwise and, or"""
    a, b = node.inputs
    return a if a is b else None


def undone(node: Node, graph: Graph) -> Value | None:
    """not not x  =>  x;  -(-x)  =>  x;  ~~x  =>  x"""
    inner = graph.made_by(node.inputs[0], node.op.name)
    return inner.inputs[0] if inner is not None else None


def repeated(node: Node, graph: Graph) -> Value | None:
    """f(f(x))  =>  f(x)  for f in abs, sign, relu, floor, ceil, trunc, round"""
    inner = graph.made_by(node.inputs[0], node.op.name)
    return inner.outputs[0] if inner is not None else None


def not_of_equality(node: Node, graph: Graph) -> Value | None:
    """not (a == b)  =>  a != b;  not (a != b)  =>  a == b"""
    for op, opposite in (("eq", "ne"), ("ne", "eq")):
        inner = graph.made_by(node.inputs[0], op)
        if inner is not None:
            return graph.make(opposite, *inner.inputs)
    return None


def not_of_order(node: Node, graph: Graph) -> Value | None:
    """not (a < b)  =>  b <= a;  not (a <= b)  =>  b < a  of integers and truth values"""
    for op, opposite in (("lt", "le"), ("le", "lt")):
        inner = graph.made_by(node.inputs[0], op)
        if inner is not None and not inner.inputs[0].type.dtype.is_float:
            return graph.make(opposite, inner.inputs[1], inner.inputs[0])
    return None


def cast_to_same(node: Node, graph: Graph) -> Value | None:
    """cast(x: f32, dtype=f32)  =>  x"""
    assert isinstance(node.attrs, CastAttributes)
    (x,) = node.inputs
    return x if x.type.dtype is node.attrs.dtype else None


def cast_of_exact_cast(node: Node, graph: Graph) -> Value | None:
    """cast(cast(x, wide), t)  =>  cast(x, t)        wide holds every value of x's type; not from integers through
    floats to integers that do not: the one saturates, the other wraps around"""
    assert isinstance(node.attrs, CastAttributes)
    inner = graph.made_by(node.inputs[0], "cast")
    if inner is None:
        return None
    (x,) = inner.inputs
    wide, to = inner.outputs[0].type.dtype, node.attrs.dtype
    saturates = wide.is_float and to.is_int and not x.type.dtype.is_float and not _holds_all(to, x.type.dtype)
    if saturates or not _holds_all(wide, x.type.dtype):
        return None
    return graph.make("cast", x, dtype=to)


def cast_of_clamped(node: Node, graph: Graph) -> Value | None:
    """cast(min(x, c), i)  =>  cast(x, i)        c no number of an integer type i is above: casts of floats saturate
    cast(max(x, c), i)  =>  cast(x, i)        c no number of i is below"""
    assert isinstance(node.attrs, CastAttributes)
    to, (value,) = node.attrs.dtype, node.inputs
    inner = graph.made_by(value, "min") or graph.made_by(value, "max")
    if inner is None or not to.is_int or to.code is not None or not value.type.dtype.is_float:
        return None
    for x, c in _with_constant(inner, graph):
        free = c.value >= to.max if inner.op.name == "min" else c.value <= to.min
        if free and x.type is value.type:
            return graph.make("cast", x, dtype=to)
    return None


def _holds_all(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` has an equal value in `wide`."""
    if narrow.is_bool:
        return wide is narrow or (not wide.is_bool and (wide.code is None or wide.is_int or wide.signed))
    return wide.holds(narrow)


def select_decided(node: Node, graph: Graph) -> Value | None:
    """select(true, a, b)  =>  a;  select(false, a, b)  =>  b;  select(c, a, a)  =>  a"""
    cond, a, b = node.inputs
    c = graph.uniform(cond)
    if c is not None:
        return a if c.value else b
    return a if a is b else None


def operand_repeated(node: Node, graph: Graph) -> Value | None:
    """f(x, broadcast(y))  =>  f(x, y)        f element-wise, which repeats y by itself"""
    inputs = []
    for value in node.inputs:
        inner = graph.made_by(value, "broadcast")
        inputs.append(inner.inputs[0] if inner is not None else value)
    if tuple(inputs) == node.inputs:
        return None
    attrs = dict(zip(type(node.attrs)._fields, node.attrs.field_values(), strict=True))
    made = graph.make(node.op.name, *inputs, **attrs)
    return made if made is not None and made.type is node.outputs[0].type else None


def transpose_to_same(node: Node, graph: Graph) -> Value | None:
    """transpose(x, perm=(0, 1, 2))  =>  x"""
    assert isinstance(node.attrs, TransposeAttributes)
    return node.inputs[0] if list(node.attrs.perm) == sorted(node.attrs.perm) else None


def transpose_of_transpose(node: Node, graph: Graph) -> Value | None:
    """transpose(transpose(x, p), q)  =>  transpose(x, p[q])"""
    inner = graph.made_by(node.inputs[0], "transpose")
    if inner is None:
        return None
    assert isinstance(inner.attrs, TransposeAttributes)
    assert isinstance(node.attrs, TransposeAttributes)
    first = inner.attrs.perm
    return graph.make("transpose", inner.inputs[0], perm=tuple([first[q] for q in node.attrs.perm]))


def transpose_of_units(node: Node, graph: Graph) -> Value | None:
    """transpose(x: [1, n, m], perm=(1, 0, 2))  =>  reshape(x, shape=(n, 1, m))        only sizes of 1 change places"""
    assert isinstance(node.attrs, TransposeAttributes)
    (x,) = node.inputs
    moved = [p for p in node.attrs.perm if x.type.shape[p] is not const(1)]
    return graph.make("reshape", x, shape=node.outputs[0].type.shape) if moved == sorted(moved) else None


def reshape_to_same(node: Node, graph: Graph) -> Value | None:
    """reshape(x: [n, 4], shape=(n, 4))  =>  x;  so does broadcast"""
    (x,) = node.inputs
    return x if x.type is node.outputs[0].type else None


def reshape_of_reshape(node: Node, graph: Graph) -> Value | None:
    """reshape(reshape(x, s), t)  =>  reshape(x, t);  so does broadcast"""
    inner = graph.made_by(node.inputs[0], node.op.name)
    if inner is None:
        return None
    assert isinstance(node.attrs, ShapeAttributes)
    return graph.make(node.op.name, inner.inputs[0], shape=node.attrs.shape)


def moved_constant(node: Node, graph: Graph) -> Value | None:
    """transpose(full(c, s))  =>  full(c, t);  so do reshape, broadcast, slice"""
    inner = graph.made_by(node.inputs[0], "full")
    c = graph.uniform(node.inputs[0])
    return (
        graph.make("full", value=c, shape=node.outputs[0].type.shape) if inner is not None and c is not None else None
    )


def slice_everything(node: Node, graph: Graph) -> Value | None:
    """slice(x: [n], starts=(0,), sizes=(n,), steps=(1,))  =>  x        steps of dimensions of size 1 do not count"""
    attrs = node.attrs
    assert isinstance(attrs, SliceAttributes)
    (x,) = node.inputs
    for start, size, step, extent in zip(attrs.starts, attrs.sizes, attrs.steps, x.type.shape, strict=True):
        if start is not const(0) or size is not extent or (step is not const(1) and extent is not const(1)):
            return None
    return x


def slice_of_slice(node: Node, graph: Graph) -> Value | None:
    """slice(slice(x, s, _, p), t, n, q)  =>  slice(x, s + t*p, n, p*q)"""
    inner = graph.made_by(node.inputs[0], "slice")
    if inner is None:
        return None
    first, second = inner.attrs, node.attrs
    assert isinstance(first, SliceAttributes)
    assert isinstance(second, SliceAttributes)
    starts = [s + t * p for s, t, p in zip(first.starts, second.starts, first.steps, strict=True)]
    steps = [p * q for p, q in zip(first.steps, second.steps, strict=True)]
    return graph.make("slice", inner.inputs[0], starts=starts, sizes=second.sizes, steps=steps)


def concat_of_one(node: Node, graph: Graph) -> Value | None:
    """concat(x)  =>  x"""
    return node.inputs[0] if len(node.inputs) == 1 else None


def concat_without_empty(node: Node, graph: Graph) -> Value | None:
    """concat(x: [n], y: [0])  =>  concat(x)"""
    assert isinstance(node.attrs, ConcatAttributes)
    axis = node.attrs.axis
    kept = [v for v in node.inputs if v.type.shape[axis] is not const(0)]
    if not kept or len(kept) == len(node.inputs):
        return None
    return graph.make("concat", *kept, axis=axis)


def concat_of_concat(node: Node, graph: Graph) -> Value | None:
    """concat(concat(x, y), z)  =>  concat(x, y, z)        along the same axis, of at most MOST_JOINED parts"""
    assert isinstance(node.attrs, ConcatAttributes)
    parts: list[Value] = []
    for value in node.inputs:
        inner = graph.made_by(value, "concat")
        parts += inner.inputs if inner is not None and inner.attrs is node.attrs else [value]
    if not len(node.inputs) < len(parts) <= MOST_JOINED:
        return None
    return graph.make("concat", *parts, axis=node.attrs.axis)


def pad_by_nothing(node: Node, graph: Graph) -> Value | None:
    """pad(x, low=(0,), high=(0,))  =>  x"""
    assert isinstance(node.attrs, PadAttributes)
    return node.inputs[0] if all(n is const(0) for n in (*node.attrs.low, *node.attrs.high)) else None


def reduce_units(node: Node, graph: Graph) -> Value | None:
    """max(x: [n, 1], axes=(1,))  =>  reshape(x, shape=(n,))        axes of size 1, or none; no sum of floats (-0.0)"""
    attrs = node.attrs
    assert isinstance(attrs, ReduceAttributes)
    (x,) = node.inputs
    if any(x.type.shape[a] is not const(1) for a in attrs.axes):
        return None
    if attrs.kind is ReduceKind.SUM and x.type.dtype.is_float:
        return None
    return graph.make("reshape", x, shape=node.outputs[0].type.shape)


def of_several(op: Op) -> bool:
    """Whether an operator is an elementwise one of several operands."""
    return isinstance(op, Elementwise) and op.arity > 1


RULES: Rules = (
    (add_zero, ("add",)),
    (subtract_zero, ("sub",)),
    (multiply_one, ("mul",)),
    (multiply_zero, ("mul",)),
    (divide_by_one, ("div", "floordiv")),
    (power_of_one, ("pow",)),
    (power_of_two, ("pow",)),
    (and_constant, ("and",)),
    (or_constant, ("or",)),
    (same_operands, ("min", "max", "and", "or", "bit_and", "bit_or")),
    (undone, ("not", "neg", "invert")),
    (repeated, ("abs", "sign", "relu", "floor", "ceil", "trunc", "round")),
    (not_of_equality, ("not",)),
    (not_of_order, ("not",)),
    (cast_to_same, ("cast",)),
    (cast_of_exact_cast, ("cast",)),
    (cast_of_clamped, ("cast",)),
    (select_decided, ("select",)),
    (transpose_to_same, ("transpose",)),
    (transpose_of_transpose, ("transpose",)),
    (transpose_of_units, ("transpose",)),
    (reshape_to_same, ("reshape", "broadcast")),
    (reshape_of_reshape, ("reshape", "broadcast")),
    (moved_constant, ("transpose", "reshape", "broadcast", "slice")),
    (slice_everything, ("slice",)),
    (slice_of_slice, ("slice",)),
    (concat_of_one, ("concat",)),
    (concat_without_empty, ("concat",)),
    (concat_of_concat, ("concat",)),
    (pad_by_nothing, ("pad",)),
    (reduce_units, ("reduce",)),
    (operand_repeated, of_several),
)
"""Each rule with the operators whose nodes it looks at, in the order they are tried."""
