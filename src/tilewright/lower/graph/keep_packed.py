"""Products of a few rows by numbers of a few bits read these packed, where that is faster.

    w: f32[4096, 512] = dequantize(q, s, axis=0, block=32)                 q: i4[4096, 512], s: f32[128, 512], constants
    y: f32[3, 512] = contract(x, w, spec="mk,kn->mn")                      x: f32[3, 4096]
    =>
    t: f32[3, 8, 64] = packed_product(x, p, t, bits=4, zero=8)             p: u32[8, 128, 4, 64], t: f32[8, 128, 64]
    y: f32[3, 512] = reshape(t, shape=(3, 512))

Signed numbers become unsigned ones, and so do their zero points. Columns beyond the last panel are filled with zeros.
What this pass leaves is computed when the module is folded: then the weights are floats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.dtypes import from_numpy
from tilewright.graph.constants import Held, held
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import parse
from tilewright.ops.quantized import DIGITS, WORD, DequantizeAttributes, largest_whole
from tilewright.ops.reduce import ReduceKind
from tilewright.plan.rewrite.packed import Rows, as_digits, panel, pays
from tilewright.target import Target

Array = np.ndarray[Any, Any]


def keep_packed(module: Module, target: Target) -> Module:
    """The module with the products of a few rows that are faster by packed weights rewritten."""
    if not any(n.op.name == "dequantize" for f in _graphs(module) for n in f.nodes):
        return module
    floats, packed = (sum(_bytes(a, whole) for a in held(module.constants).values()) for whole in (True, False))
    made = over_graphs(module, lambda m, f: _rewrite(m, f, floats, packed, target))
    return module if made is module else eliminate_dead(made)


def _graphs(module: Module) -> list[GraphFunction]:
    return [f for f in module.functions.values() if isinstance(f, GraphFunction)]


def _bytes(array: Held, as_floats: bool) -> float:
    """What a constant takes: numbers of narrow types as floats, or packed."""
    dtype = from_numpy(array.dtype)
    if dtype is None or dtype.code is None:
        return array.nbytes
    return math.prod(array.shape) * (dtypes.f32.bytes if as_floats else dtype.width / 8)


def _rewrite(module: Module, function: GraphFunction, floats: float, packed: float, target: Target) -> Module:
    edit, digits = Edit(module, function), _AllDigits()
    for node in function.nodes:
        found = find_packable(edit, node)
        pay = found is not None and pays(found.rows, floats, packed, target)
        made = _made(edit, found, digits, target) if found is not None and pay else None
        if made is None or not edit.replace(node, (made,)):
            edit.keep(node)
    return edit.finish()


_AllDigits = dict[tuple[Value, int, int, int], tuple[Value, Value, Value]]
"""What `_digits` made of values, by these, their rows, and the bits and the block that they are multiplied by."""


@dataclass(frozen=True, slots=True)
class Packable:
    """y[m, n] = the sum of x[m, k] * (codes[k, n] - zero[k // block, n]) * scale[k // block, n] over k: codes and zero
    points are unsigned bytes."""

    node: Node
    x: Value
    codes: Array
    scale: Array
    zero: Array
    rows: Rows


def find_packable(edit: Edit, node: Node) -> Packable | None:
    """The product of rows by dequantized constants that a contraction is; None where it is another one."""
    attrs = node.attrs
    if not isinstance(attrs, ContractAttributes) or attrs.dtype is not None or len(node.inputs) != 2:
        return None
    x, w = edit.inputs(node)
    maker = edit.made_by(w, "dequantize")
    order = None if maker is None else _order(attrs.spec, maker)
    if maker is None or order is None or x.type.dtype is not dtypes.f32 or w.type.dtype is not dtypes.f32:
        return None
    assert isinstance(maker.attrs, DequantizeAttributes)
    arrays = [edit.array(v) for v in edit.inputs(maker)]
    dtype, size = maker.inputs[0].type.dtype, x.type.static_shape()
    if any(a is None for a in arrays) or dtype.bits > 8 or size is None:
        return None
    q, scale, *zeros = (a.transpose(order) for a in arrays if a is not None)
    if 0 in (*q.shape, *size):
        return None
    rows = Rows(math.prod(size) // q.shape[0], q.shape[1], q.shape[0], dtype.width, maker.attrs.block)
    if (rows.rows > 1 and not _in_rows(attrs.spec)) or rows.block * rows.bits % WORD:
        return None
    half = 1 << (dtype.width - 1) if dtype.signed else 0
    zero = zeros[0].view(np.uint8) if zeros else np.zeros(scale.shape, np.uint8)
    mask = (1 << dtype.width) - 1
    return Packable(node, x, q.view(np.uint8) & mask ^ half, scale, zero & mask ^ half, rows)


def _order(spec: str, maker: Node) -> tuple[int, int] | None:
    """The order of the weights' dimensions in which the one that is summed over, along which they are quantized, is the
    first; None where the other is not the last of the result, or the spec is none of a product of one matrix."""
    assert isinstance(maker.attrs, DequantizeAttributes)
    parsed = parse(spec)
    x, w = ([index.axis for index in operand] for operand in parsed.operands)
    if len(w) != 2 or None in (*x, *w) or len({*x}) != len(x):
        return None
    k, n = w[maker.attrs.axis], w[1 - maker.attrs.axis]
    fits = k in x and k not in parsed.output and n not in x and n in parsed.output and {*x, n} - {k} == {*parsed.output}
    return (maker.attrs.axis, 1 - maker.attrs.axis) if fits else None


def _in_rows(spec: str) -> bool:
    """Whether terms are the last dimension of rows, and columns the last of the result, whose others are the rows'."""
    parsed = parse(spec)
    x, w = ([index.axis for index in operand] for operand in parsed.operands)
    return x[-1] in w and [*parsed.output[:-1]] == x[:-1] and parsed.output[-1] in w


def _made(edit: Edit, found: Packable, digits: _AllDigits, target: Target) -> Value | None:
    """Adds the operators that compute the product."""
    edit.source = found.node.source
    rows, (out,) = found.rows, found.node.outputs
    width = panel(target)
    padded = -(-rows.columns // width) * width
    codes, scale, zero = (_in_panels(_filled(a, padded), width) for a in (found.codes, found.scale, found.zero))
    blocks = [edit.constant(_packed(codes, rows), "packed"), edit.constant(scale, "scales")]
    attrs = {"bits": rows.bits, "zero": 0}
    if found.zero.min() == found.zero.max():
        attrs["zero"] = int(found.zero.flat[0])
    else:
        blocks.append(edit.constant(zero, "zeros"))
    flat = _add(edit, "reshape", (found.x,), {"shape": (rows.rows, rows.terms)}, out.name)
    if as_digits(rows, target):
        key = (found.x, rows.rows, rows.bits, rows.block)
        parts = digits.get(key) or digits.setdefault(key, _digits(edit, flat, rows))
        product = _add(edit, "digit_product", (*parts, *blocks), attrs, out.name)
    else:
        product = _add(edit, "packed_product", (flat, *blocks), attrs, out.name)
    whole = _add(edit, "reshape", (product,), {"shape": (rows.rows, padded)}, out.name)
    if padded != rows.columns:
        cut = {"starts": (0, 0), "sizes": (rows.rows, rows.columns), "steps": (1, 1)}
        whole = _add(edit, "slice", (whole,), cut, out.name)
    return _add(edit, "reshape", (whole,), {"shape": out.type.shape}, out.name)


def _digits(edit: Edit, x: Value, rows: Rows) -> tuple[Value, Value, Value]:
    """The rows as whole numbers of a step for each block, x = step * whole: the digits of these, the steps, and the
    sums over blocks. A block with an infinity or NaN has a step that is NaN."""
    name, count = x.name, rows.terms // rows.block

    def op(operator: str, *inputs: Value, **attrs: Any) -> Value:
        return _add(edit, operator, inputs, attrs, name)

    def number(value: object, dtype: type[np.generic], *shape: int) -> Value:
        return edit.constant(np.asarray(value, dtype).reshape(shape or (1, 1, 1)), "number")

    cube = op("reshape", x, shape=(rows.rows, count, rows.block))
    size = op("reduce", op("abs", cube), kind=ReduceKind.MAX, axes=(2,), keepdims=True)
    largest = largest_whole(rows.bits, rows.block) - 2  # what rounding adds fits, too
    least = np.finfo(np.float32).tiny * largest  # the step is a normal number, and so is its reciprocal
    safe = op("max", size, number(least, np.float32))
    whole = op("mul", cube, op("div", number(largest, np.float32), safe))
    whole = op("cast", op("round", whole), dtype=dtypes.i32)
    step = op("add", op("div", safe, number(largest, np.float32)), op("sub", size, size))
    total = op("reduce", whole, kind=ReduceKind.SUM, axes=(2,), keepdims=False)
    places = 8 // rows.bits
    shape = (rows.rows, rows.terms // (4 * places), 4, places, 1)
    parts = op("reshape", op("cast", whole, dtype=dtypes.u32), shape=shape)
    parts = op("shr", parts, number([8 * s for s in range(DIGITS)], np.uint32, 1, 1, 1, 1, DIGITS))
    parts = op("bit_and", parts, number(255, np.uint32, 1, 1, 1, 1, 1))
    parts = op("shl", parts, number([8 * n for n in range(4)], np.uint32, 1, 1, 4, 1, 1))
    digits = op("reduce", parts, kind=ReduceKind.SUM, axes=(2,), keepdims=False)
    return digits, op("reshape", step, shape=(rows.rows, count)), total


def _add(edit: Edit, op: str, inputs: tuple[Value, ...], attrs: dict[str, Any], name: str) -> Value:
    node = edit.typed(op, inputs, attrs, name)
    assert node is not None
    return edit.add(node).outputs[0]


def _filled(array: Array, columns: int) -> Array:
    """[k, n] with zeros behind the last column."""
    return np.pad(array, ((0, 0), (0, columns - array.shape[1])))


def _in_panels(array: Array, width: int) -> Array:
    """[k, n] as [panels, k, columns of a panel]."""
    return np.ascontiguousarray(array.reshape(array.shape[0], -1, width).transpose(1, 0, 2))


def _packed(codes: Array, rows: Rows) -> Array:
    """[panels, k, n] as [panels, blocks, words, n], the first number of a word in its low bits."""
    each = WORD // rows.bits
    split = codes.reshape(codes.shape[0], -1, rows.block // each, each, codes.shape[2]).astype(np.uint32)
    places = np.arange(0, WORD, rows.bits, dtype=np.uint32)[:, None]
    return np.asarray(np.bitwise_or.reduce(split << places, axis=3))
