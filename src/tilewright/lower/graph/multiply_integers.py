"""Products of dequantized factors become products of their integers, where the machine adds up products of bytes.

    f: f32[n, k] = mul(cast(sub(cast(x, i32), 7), f32), 0.1)                  x: u8[n, k]
    g: f32[k, m] = mul(cast(w, f32), t)                                       w: i8[k, m], t: f32[m], constants
    y: f32[n, m] = contract(f, g, spec="ik,kj->ij")
    =>
    s: i32[n, m] = contract(x, w, spec="ik,kj->ij", dtype=i32)
    y: f32[n, m] = mul(cast(sub(s, c), f32), u)               c[0, j] = 7 * the sums of w[k, j] over k, u = 0.1 * t

A bias that is integers times the same u is subtracted from c, and a quotient of y by a number is one of u: then what
runs on each sum is one sum of integers and one product of floats.

Products of integers less their zero point are of this kind, too: contract(sub(cast(x, i16), 7), w, dtype=i32) becomes
sub(s, c).

What moves elements between a factor and its product moves the bytes instead; padding is of the zero point then, the
integer that stands for 0. Sums of integers are exact, as long as they fit i32, which is checked; those of floats are
rounded in each step. So results differ by these roundings, and from those of a runtime of quantized models by none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DTYPES, DType
from tilewright.expr.nodes import const
from tilewright.graph.edit import Array, Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.lower.graph.constant_operands import same_over, sums_over
from tilewright.lower.graph.dequantized import BYTES, Factor, Weights, find_factor, find_weights, known, number_of
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.shift_signs import SHIFT, shifted, unsigned_is_faster
from tilewright.ops.contract import ContractAttributes, maps_of
from tilewright.ops.index_maps import IndexMaps, parse
from tilewright.ops.pad import PadAttributes
from tilewright.plan.price.dots import choose_dot, lacking_terms, summed_axis
from tilewright.target import Target

Taken = Mapping[DType, DType]


def multiply_integers(module: Module, target: Target) -> Module:
    """The module with such products of bytes, where the target has an instruction that adds them up."""
    graphs = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    if not any(v.type.dtype in BYTES for f in graphs for node in f.nodes for v in node.inputs):
        return module
    taken = _taken(target)
    return over_graphs(module, lambda m, f: _rewrite(m, f, taken, target)) if taken else module


def _taken(target: Target) -> Taken:
    """What each type of bytes is multiplied as, by signed ones. Products of wider copies take as long as those of
    floats, for which there are Winograd's tiles, too: they are none of these."""
    found = {t: choose_dot(t, dtypes.i8, dtypes.i32, target) for t in BYTES}
    able = {t: t for t, dot in found.items() if dot is not None and DTYPES[dot.element] in BYTES}
    return able | {dtypes.i8: dtypes.u8} if dtypes.u8 in able and unsigned_is_faster(target) else able


def _rewrite(module: Module, function: GraphFunction, taken: Taken, target: Target) -> Module:
    def product(edit: Products, node: Node) -> Value | None:
        lacking = _lacking(node, taken, target)
        return None if lacking is None else _on_bytes(edit, node, taken, lacking)

    return with_products(module, function, product)


def with_products(module: Module, function: GraphFunction, product: Callable[[Products, Node], Value | None]) -> Module:
    """The module with what `product` makes of contractions of the function; it gives None for one that stays. Biases
    and quotients after them become part of their constants."""
    edit = Products(module, function)
    for node in function.nodes:
        made = None
        if isinstance(node.attrs, ContractAttributes):
            made = product(edit, node)
        elif node.op.name in ("add", "div"):
            made = edit.after(node)
        if made is None or not edit.replace(node, (made,)):
            edit.keep(node)
    made_of = edit.finish()
    return made_of if made_of is module else eliminate_dead(made_of)


@dataclass(frozen=True, slots=True)
class Scaled:
    """(total - excess) * scale as f32: sums of products of bytes, of at most `most`, and what broadcasts to them. The
    total is an i32, or an f32 of whole numbers."""

    total: Value
    excess: Array
    scale: Array
    most: Array


class Products(Edit):
    """A function while it is rewritten; `scaled` says what made values are."""

    def __init__(self, module: Module, function: GraphFunction) -> None:
        super().__init__(module, function)
        self.scaled: dict[Value, Scaled] = {}

    def value_of(self, scaled: Scaled, name: str) -> Value:
        """Adds the operators that compute it."""
        total = less(self, scaled.total, scaled.excess, name)
        whole = total if total.type.dtype is dtypes.f32 else made(self, "cast", (total,), {"dtype": dtypes.f32}, name)
        value = made(self, "mul", (whole, self.constant(scaled.scale, "scales")), {}, name)
        self.scaled[value] = scaled
        return value

    def after(self, node: Node) -> Value | None:
        """What takes the place of a sum with a bias, or of a quotient; None where it stays."""
        self.source = node.source
        x, y = self.inputs(node)
        found = self._divided(x, y) if node.op.name == "div" else self._biased(x, y) or self._biased(y, x)
        return None if found is None else self.value_of(found, node.outputs[0].name)

    def _divided(self, x: Value, y: Value) -> Scaled | None:
        found, number = self.scaled.get(x), number_of(self, y)
        if found is None or not number:
            return None
        return replace(found, scale=found.scale / np.float32(number))

    def _biased(self, x: Value, y: Value) -> Scaled | None:
        """With a constant y that is integers times the scale of x."""
        found = self.scaled.get(x)
        bias = None if found is None else known(self, y)
        if found is None or bias is None or bias.ndim != found.total.type.rank:
            return None
        with np.errstate(all="ignore"):
            numbers = np.rint(bias / found.scale)
            exact = np.array_equal(numbers * found.scale, np.broadcast_to(bias, numbers.shape))
        if not exact or (found.most + np.abs(numbers)).max(initial=0) > dtypes.i32.max:
            return None
        return replace(found, excess=found.excess - numbers.astype(np.int64), most=found.most + np.abs(numbers))


def _lacking(node: Node, taken: Taken, target: Target) -> int | None:
    """How many terms a contraction of two factors in f32 or i32 lacks for the instructions; None where they do not
    pay."""
    wide = {v.type.dtype for v in node.outputs} <= {dtypes.f32, dtypes.i32} and len(node.inputs) == 2
    if not wide:
        return None
    found = [lacking_terms(maps_of(node), t, dtypes.i8, dtypes.i32, target) for t in taken.values()]
    return None if None in found else max(n for n in found if n is not None)


def _on_bytes(edit: Products, node: Node, taken: Taken, lacking: int) -> Value | None:
    """What takes the place of a contraction's output; None where it stays."""
    inputs = edit.inputs(node)
    floats = node.outputs[0].type.dtype is dtypes.f32
    if floats and any(v.type.dtype is not dtypes.f32 for v in inputs):
        return None
    for place in (0, 1):
        factor = find_factor(edit, inputs[place])
        if factor is None or factor.bytes.type.dtype not in taken or (factor.scale is not None) != floats:
            continue
        weights = find_weights(edit, inputs[1 - place]) if _has_columns(maps_of(node), 1 - place) else None
        if weights is None:
            continue
        if taken[factor.bytes.type.dtype] is not factor.bytes.type.dtype:
            edit.source = node.source
            factor = replace(factor, bytes=shifted(edit, factor.bytes), zero=factor.zero + int(SHIFT))
        return _product(edit, node, factor, weights, place, lacking)
    return None


def _has_columns(maps: IndexMaps, operand: int) -> bool:
    """Whether an operand has an axis of the output that the other one has not, as in products and convolutions over
    channels. Each element of the other one is read several times then."""
    spec = maps.spec
    other = {axis for index in spec.operands[1 - operand] for axis, _ in index.terms}
    return any(index.axis in spec.output and index.axis not in other for index in spec.operands[operand])


def _product(edit: Products, node: Node, factor: Factor, weights: Weights, place: int, lacking: int) -> Value | None:
    """The product of the bytes, less what the zero point adds to it, times the scales; of so many terms more as the
    instruction lacks, whose weights are 0."""
    attrs, name = node.attrs, node.outputs[0].name
    assert isinstance(attrs, ContractAttributes)
    spec = parse(attrs.spec)
    sums, sizes = (sums_over(w, spec, 1 - place) for w in (weights.numbers, np.abs(weights.numbers)))
    scales = same_over(weights.scales, spec, 1 - place)
    if sums is None or sizes is None or scales is None or sizes.max(initial=0) * int(dtypes.u8.max) > dtypes.i32.max:
        return None
    edit.source = node.source
    value, numbers = moved(edit, factor), weights.numbers.astype(np.int8)
    if value is not None and lacking:
        summed = summed_axis(maps_of(node))
        assert summed is not None
        places = [[i.axis for i in spec.operands[n]].index(summed[0]) for n in (place, 1 - place)]
        value = _with_zeros(edit, value, factor, places[0], lacking)
        numbers = np.pad(numbers, [(0, lacking if d == places[1] else 0) for d in range(numbers.ndim)])
    if value is None:
        return None
    held = edit.constant(numbers, "integers")
    operands = (value, held) if place == 0 else (held, value)
    product = edit.typed("contract", operands, {"spec": attrs.spec, "sizes": attrs.sizes, "dtype": dtypes.i32}, name)
    if product is None:
        return None
    total = edit.add(product).outputs[0]
    if factor.scale is None:
        return less(edit, total, sums * factor.zero, name)
    scale = scales * np.float32(factor.scale)
    return edit.value_of(Scaled(total, sums * factor.zero, scale, sizes * int(dtypes.u8.max)), name)


def less(edit: Edit, total: Value, excess: Array, name: str) -> Value:
    """Adds a total less what broadcasts to it, where that is not zero."""
    if not excess.any():
        return total
    return made(edit, "sub", (total, edit.constant(excess.astype(total.type.dtype.numpy), "excess")), {}, name)


def made(edit: Edit, op: str, inputs: tuple[Value, ...], attrs: dict[str, object], name: str) -> Value:
    """Adds an operator of operands that broadcast. Returns what it makes."""
    node = edit.typed(op, inputs, attrs, name)
    assert node is not None, f"{op} takes operands of any shape that broadcast"
    return edit.add(node).outputs[0]


def moved(edit: Edit, factor: Factor) -> Value | None:
    """The bytes, moved; padded by their zero point."""
    value = factor.bytes
    for move in factor.moves:
        inputs: tuple[Value, ...] = (value,)
        if isinstance(move.attrs, PadAttributes):
            zero = {"value": const(factor.zero, value.type.dtype), "shape": ()}
            inputs = (value, made(edit, "full", (), zero, "zero"))
        fields = dict(zip(type(move.attrs)._fields, move.attrs.field_values(), strict=True))
        node = edit.typed(move.op.name, inputs, fields, move.outputs[0].name)
        if node is None:
            return None
        value = edit.add(node).outputs[0]
    return value


def _with_zeros(edit: Edit, value: Value, factor: Factor, dimension: int, count: int) -> Value | None:
    """The bytes with `count` places more at the end of a dimension, before the image is padded."""
    last = edit.producer(value)
    if factor.moves and last is not None and isinstance(last.attrs, PadAttributes):
        inner = _with_zeros(edit, last.inputs[0], replace(factor, moves=()), dimension, count)
        fields = dict(zip(type(last.attrs)._fields, last.attrs.field_values(), strict=True))
        node = None if inner is None else edit.typed("pad", (inner, *last.inputs[1:]), fields, value.name)
    else:
        zero = made(edit, "full", (), {"value": const(factor.zero, value.type.dtype), "shape": ()}, "zero")
        ends = tuple([const(count if d == dimension else 0) for d in range(value.type.rank)])
        low = (const(0),) * value.type.rank
        node = edit.typed("pad", (value, zero), {"low": low, "high": ends}, value.name)
    return None if node is None else edit.add(node).outputs[0]
