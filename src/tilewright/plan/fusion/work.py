"""The flops and bytes of a plan's kernels, as expressions over the sizes of the graph. Reports compare measured times
with them.

Each operator counts once at the points of its own results, however often a kernel recomputes it. Flops are counted as
in `analysis/cost.py`: an arithmetic operation on floats is 1, a multiply-add 2, a function FUNCTION_FLOPS. Bytes are
those of all values that the kernel reads or writes, each once.
"""

from __future__ import annotations

import math

from tilewright.analysis.cost import FUNCTION_FLOPS, total_of
from tilewright.expr.build import minimum
from tilewright.expr.intrinsics import INTRINSICS
from tilewright.expr.nodes import Expr, const
from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern, TypeContext
from tilewright.ops.contract import Contract
from tilewright.ops.elementwise import Elementwise
from tilewright.ops.window import WindowReduceAttributes
from tilewright.plan.fusion.kernel import Kernel

_PLAIN = frozenset({"sqrt", "floor", "ceil", "trunc", "round", "neg", "abs", "sign", "fma"})
"""Functions that count as one operation."""


def flops_of(kernel: Kernel) -> Expr:
    """The floating-point operations of a call."""
    return total_of([_flops(node) for node in kernel.nodes])


def bytes_of(kernel: Kernel) -> Expr:
    """The bytes that a call reads and writes at least."""
    written = [v.type.size * v.type.dtype.bytes for v in kernel.root.outputs]
    return total_of([*(_read(kernel, v) * v.type.dtype.bytes for v in kernel.reads()), *written])


def _read(kernel: Kernel, value: Value) -> Expr:
    """The elements of a value that a kernel reads. From a table, at most the rows that it gathers."""
    readers = [node for node in kernel.nodes if value in node.inputs]
    if any(not node.op.reads_part or value in node.inputs[1:] for node in readers):
        return value.type.size
    return minimum(value.type.size, total_of([_largest(node.outputs) for node in readers]))


def _flops(node: Node) -> Expr:
    if not any(v.type.dtype.is_float for v in (*node.inputs, *node.outputs)):
        return const(0)
    if isinstance(node.op, Contract):
        return _products(node.op, node)
    if isinstance(node.op, Elementwise):
        return _largest(node.outputs) * _weight(node.op.name)
    if isinstance(node.attrs, WindowReduceAttributes):
        return _largest(node.outputs) * math.prod(node.attrs.window)
    return _largest(node.inputs[:1]) if node.op.pattern is Pattern.REDUCE else const(0)


def _largest(values: tuple[Value, ...]) -> Expr:
    """The elements of the first of some values; all outputs of an operator have one size."""
    return values[0].type.size if values else const(0)


def _products(op: Contract, node: Node) -> Expr:
    """A multiply-add for each point of all axes."""
    context = TypeContext(op.name, node.source)
    total: Expr = const(2)
    for extent in op.index_maps(context, [v.type for v in node.inputs], node.attrs).extents:  # type: ignore[arg-type]
        total = total * extent
    return total


def _weight(name: str) -> int:
    return FUNCTION_FLOPS if name in INTRINSICS and name not in _PLAIN else 1
