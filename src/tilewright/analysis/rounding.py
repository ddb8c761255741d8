"""A graph evaluated without rounding errors, and with random ones: what its results should be, and what rounding can
make of them.

    exact = in_double(module)(feeds)                                    every operation in f64
    spread = in_double(module, Rounding(seed))(feeds)                   every operation in f64, with a random error

The errors are those that the element types of the graph allow, operation by operation; u is the unit roundoff (2^-24
for f32, 2^-8 for bf16), y the result, d a random number in -1 … 1, another for each element:

    a + b, a * b, sqrt, cast …      d*u*|y|                          none where y is a number of the type (whole: f64)
    exp, log, tanh …                4*d*u*|y|                        two units in the last place
    a sum of K terms t              d*u*sqrt(K * (y^2 + sum t^2))    none where all terms are small integers
    max, select, transpose …        none

The first is Higham's model of arithmetic, fl(a op b) = (a op b)*(1 + d) with |d| <= u ("Accuracy and Stability of
Numerical Algorithms", 2nd ed., SIAM 2002, section 2.2). A sum makes an error of at most u in each partial sum (the
running error, section 3.3), so of u*sqrt(sum of their squares) where errors are independent; over all orders of the
terms the mean of that is u*sqrt(K * (y^2/3 + sum t^2 / 6)), which the third line bounds. To evaluate with random errors
in place of bounding each is the way of the Monte Carlo methods that Higham's chapter 26 names: errors that cancel later
cancel here, too, and a decision that rounding can turn turns here.

Numbers are kept in the range of their type: what is too large for it is an infinity, and what is too small is zero.
A product of f32 that a sum adds up may be part of a fused multiply-add (lower/loops/fuse_multiply_add.py), which rounds
the sum alone: with every other seed, sums take such products beyond the range as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.graph.evaluate import Symbols, evaluate
from tilewright.graph.nodes import Module, Node, Value
from tilewright.graph.op import Op, Pattern, TypeContext
from tilewright.graph.symbolic import Call, Constant, If, Scan, While
from tilewright.graph.widen import Widened, widen
from tilewright.ops.checks import number
from tilewright.ops.checks import wide as kept_in
from tilewright.ops.contract import Contract
from tilewright.ops.elementwise import Elementwise
from tilewright.ops.quantized import Dequantize, PackedProduct
from tilewright.ops.reduce import Reduce, ReduceKind, element_type
from tilewright.ops.scan import Cumulative
from tilewright.ops.scatter import Reduction, ScatterElements, ScatterNd
from tilewright.ops.window import WindowReduce
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]
Arrays = tuple[Array, ...]

EXACT = frozenset({"neg", "abs", "sign", "floor", "ceil", "trunc", "round", "min", "max", "relu", "select", "copysign"})
"""Element-wise operators whose results are numbers of the type already."""

ROUNDED = frozenset({"add", "sub", "mul", "div", "sqrt", "fma", "cast"})
"""Element-wise operators whose results are the nearest numbers of the type."""

FUNCTION = 4.0
"""The error of other element-wise operators in units of u: their results are within two units in the last place."""

TERMS = 4.0
"""The errors of transforms are as large as errors of TERMS*u of their inputs make."""


def in_double(module: Module, rounding: Rounding | None = None) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The function from inputs to results, both by name, that a module computes in f64: floating-point results are f64,
    all others of their own types. Raises what `graph.evaluate` does."""
    return computed(widen(module), rounding)


def computed(widened: Widened, rounding: Rounding | None = None) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The function of `in_double`, of a module that was widened once for several."""
    ranges = Ranges()
    products: dict[Value, Array] = {}  # beyond the range of f32, as a fused multiply-add has them

    def change(node: Node, symbols: Symbols, inputs: Arrays, outputs: Arrays) -> Arrays:
        narrow = widened.narrow.get(node)
        if narrow is None:
            return outputs
        if rounding is not None:
            if rounding.fuses and _is_sum(node) and node.inputs[0] in products:
                inputs = (products[node.inputs[0]],)
                outputs = node.op.meaning(inputs, node.attrs.evaluated(symbols))
            outputs = rounding(narrow, node, symbols, inputs, outputs)
        elif isinstance(narrow.attrs, Constant):
            outputs = tuple(map(_in_f64, outputs))
        types = [v.type.dtype for v in narrow.outputs]
        kept = tuple([ranges.within(y, t) if t.kind == "f" else y for y, t in zip(outputs, types, strict=True)])
        if node.op.name == "mul" and types[0] is dtypes.f32:
            products.pop(node.outputs[0], None)
            if kept[0] is not outputs[0]:
                products[node.outputs[0]] = outputs[0]
        return kept

    def compute(feeds: Mapping[str, Array]) -> dict[str, Array]:
        given = {name: np.asarray(x) for name, x in feeds.items()}
        if rounding is not None:
            given = {name: rounding.given(x) for name, x in given.items()}
        return evaluate(widened.module, {name: _in_f64(x) for name, x in given.items()}, change)

    return compute


def _is_sum(node: Node) -> bool:
    """Whether a node adds elements up in accumulators."""
    attrs: Any = node.attrs
    return isinstance(node.op, Reduce | WindowReduce) and attrs.kind is ReduceKind.SUM


def _in_f64(x: Any) -> Array:
    """A tensor as the graph in f64 takes it."""
    array = np.asarray(x)
    dtype = dtypes.from_numpy(array.dtype)
    return array.astype(np.float64) if dtype is not None and dtype.kind == "f" else array


@dataclass(slots=True)
class Ranges:
    """The ends of floating-point types."""

    _ends: dict[DType, tuple[float, float]] = field(default_factory=dict)

    def within(self, y: Array, dtype: DType) -> Array:
        """Numbers of f64 in the range of a type: half of the least number and below are zero, what rounds to more than
        the greatest is infinite."""
        if dtype is dtypes.f64:
            return y
        least, most = self.ends(dtype)
        size = np.abs(y)
        if not ((size > most) | ((size <= least) & (size > 0))).any():
            return y
        return np.where(size > most, np.copysign(np.inf, y), np.where(size <= least, np.copysign(0.0, y), y))

    def ends(self, dtype: DType) -> tuple[float, float]:
        """(half of the least number above zero, the greatest number and half of what it is above the next)."""
        if dtype not in self._ends:
            info = _finfo(dtype)
            self._ends[dtype] = float(info.smallest_subnormal) / 2, float(info.max) * (1 + unit_roundoff(dtype) / 2)
        return self._ends[dtype]


def unit_roundoff(dtype: DType) -> float:
    """The greatest relative error of rounding to the nearest number of a type."""
    return float(_finfo(dtype).eps) / 2


def _finfo(dtype: DType) -> Any:
    if dtype is dtypes.bf16:
        import ml_dtypes

        return ml_dtypes.finfo(dtype.numpy)
    return np.finfo(dtype.numpy)


class Rounding:
    """Random rounding errors, the same for the same seed. `made` are the constants that were computed and rounded when
    the model was compiled: their errors are random, too. Where `flushes`, numbers below the normal ones of their type
    may be taken for zero; where it `fuses`, a product and the sum that adds it up are rounded once."""

    def __init__(self, seed: int, made: Collection[str] = (), flushes: bool = False) -> None:
        self._seed = seed
        self._random = np.random.default_rng(seed)
        self._made = frozenset(made)
        self._flushes = flushes
        self.fuses = seed % 2 == 1

    def __call__(self, narrow: Node, node: Node, symbols: Symbols, inputs: Arrays, outputs: Arrays) -> Arrays:
        """The results of a node in f64 with the errors of the one that it was made of."""
        if isinstance(narrow.attrs, Call | If | Scan | While):
            return outputs
        if isinstance(narrow.attrs, Constant):
            outputs = tuple([_in_f64(self.given(x)) for x in outputs])
            if narrow.attrs.name not in self._made:
                return outputs
            return tuple([self._with_error(y, narrow.attrs.name, narrow.outputs[0].type.dtype) for y in outputs])
        attrs: Any = node.attrs.evaluated(symbols)
        if node.op.transforms:
            u = unit_roundoff(kept_in(narrow.inputs[0].type.dtype))
            outputs = node.op.meaning((inputs[0] + self._scaled(TERMS * u * np.abs(inputs[0])), *inputs[1:]), attrs)
        if node.op.is_added:
            outputs = node.op.compute(self._near(narrow, inputs, max(y.size for y in outputs)), attrs)
        types = [v.type.dtype for v in narrow.outputs]
        return tuple(
            [
                self._rounded(y, t, node.op, attrs, inputs) if t.kind == "f" else y
                for y, t in zip(outputs, types, strict=True)
            ]
        )

    def _near(self, narrow: Node, inputs: Arrays, results: int) -> Arrays:
        """Inputs of a program's operator with errors of as many roundings as its results may have: nobody knows which
        numbers it rounds on the way."""
        near = []
        for x, value in zip(inputs, narrow.inputs, strict=True):
            if value.type.dtype.kind == "f":
                terms = max(x.size / max(results, 1), 1.0) if narrow.op.pattern is Pattern.REDUCE else 1.0
                bound = FUNCTION * math.sqrt(terms) * unit_roundoff(value.type.dtype) * np.abs(x)
                near.append(x + self._scaled(bound))
            else:
                near.append(x)
        return tuple(near)

    def _rounded(self, y: Array, dtype: DType, op: Op, attrs: Any, inputs: Arrays) -> Array:
        with np.errstate(all="ignore"):
            bound = _bound(y, dtype, op, attrs, inputs)
            if bound is None:
                return y
            info = _finfo(dtype)
            tiny = float(info.tiny)
            least = tiny if self._flushes else float(info.smallest_subnormal) / 2
            small = (np.abs(y) < tiny) & (y != 0)
            if small.any():
                bound = np.where(small, np.maximum(bound, least), bound)
            return np.where(np.isfinite(y), y + self._scaled(np.where(np.isfinite(bound), bound, 0.0)), y)

    def given(self, x: Array) -> Array:
        """An input or a constant as operations may take it: with subnormal numbers flushed, or not."""
        dtype = dtypes.from_numpy(x.dtype)
        if not self._flushes or dtype is None or dtype.kind != "f":
            return x
        small = np.abs(x) < _finfo(dtype).tiny
        return np.where(small & (self._random.random(x.shape) < 0.5), x.dtype.type(0), x) if small.any() else x

    def _with_error(self, y: Array, name: str, dtype: DType) -> Array:
        """A constant with its error, which is the same wherever it is read."""
        if dtype.kind != "f":
            return y
        random = np.random.default_rng([self._seed, *name.encode()])
        return y + _errors(random, unit_roundoff(dtype) * np.abs(y))

    def _scaled(self, bound: Array) -> Array:
        """Errors within a bound."""
        return _errors(self._random, bound)


def _errors(random: np.random.Generator, bound: Array) -> Array:
    drawn = random.random(np.shape(bound), np.float32)
    drawn *= 2
    drawn -= 1
    return np.multiply(bound, drawn)


def _bound(y: Array, dtype: DType, op: Op, attrs: Any, inputs: Arrays) -> Array | None:
    """The greatest error of each element; None where there is none."""
    u = unit_roundoff(dtype)
    if op.transforms:
        return u * np.abs(y)
    if op.is_added:
        return FUNCTION * u * np.abs(y)
    if isinstance(op, Elementwise):
        if op.name in EXACT:
            return None
        return np.where(_fits(y, dtype), 0.0, u * np.abs(y)) if op.name in ROUNDED else FUNCTION * u * np.abs(y)
    if isinstance(op, Dequantize):
        return u * np.abs(y)
    if isinstance(op, ScatterElements | ScatterNd):
        return FUNCTION * u * np.abs(y) if attrs.reduction in (Reduction.ADD, Reduction.MUL) else None
    terms = _terms(y, op, attrs, inputs)
    if terms is None:
        return None
    count, root = terms
    kept = unit_roundoff(kept_in(dtype))
    if all(_is_integral(x) for x in inputs) and count * float(np.square(np.max(root, initial=0.0))) < kept**-2:
        return np.where(_fits(y, dtype), 0.0, u * np.abs(y))
    bound = math.sqrt(count) * np.hypot(kept * y, kept * root)
    return bound if kept == u else bound + u * np.abs(y)


def _terms(y: Array, op: Op, attrs: Any, inputs: Arrays) -> tuple[float, Array] | None:
    """(how many terms each sum has, the roots of the sums of their squares); None for what sums nothing. A product of
    many factors makes as many errors as a sum of so many terms, each as large as the result."""
    match op:
        case Contract():
            types = tuple([TensorType.of(element_type(x), x.shape) for x in inputs])
            extents = op.index_maps(TypeContext(op.name), types, attrs).reduce_extents
            count = float(math.prod(number(e) or 0 for e in extents))
            return count, _roots(op, attrs, inputs)
        case PackedProduct():
            return float(inputs[0].size), np.sqrt(op.squares(inputs, attrs))
        case Reduce() | WindowReduce() | Cumulative():
            count = _combined(y, op, attrs, inputs[0])
            if attrs.kind is ReduceKind.PROD:
                return count, np.abs(y)
            if attrs.kind is not ReduceKind.SUM:
                return None
            size = np.abs(inputs[0])
            largest = float(size.max(initial=0.0, where=np.isfinite(size))) or 1.0  # squares of large numbers overflow
            root = np.sqrt(op.meaning((np.square(inputs[0] / largest),), attrs)[0]) * largest
            return count, np.minimum(root, np.finfo(np.float64).max)
    return None


def _roots(op: Contract, attrs: Any, factors: Arrays) -> Array:
    """The root of a sum of squares of products. A bound needs few digits: where the operator lets it, f32 has enough,
    for factors that are brought to the range of 1."""
    largest = [float(np.abs(x).max(initial=0.0)) or 1.0 for x in factors]
    if attrs.dtype is not None or not all(map(math.isfinite, largest)):
        return np.asarray(np.sqrt(op.meaning(tuple([np.square(x) for x in factors]), attrs)[0]))
    squares = [np.square((x / m).astype(np.float32)) for x, m in zip(factors, largest, strict=True)]
    return np.multiply(np.sqrt(op.meaning(tuple(squares), attrs)[0]), math.prod(largest), dtype=np.float64)


def _combined(y: Array, op: Op, attrs: Any, x: Array) -> float:
    """How many elements are combined to one."""
    if isinstance(op, WindowReduce):
        return float(math.prod(attrs.window))
    return float(x.shape[attrs.axis]) if isinstance(op, Cumulative) else max(x.size / max(y.size, 1), 1.0)


def _fits(y: Array, dtype: DType) -> Array:
    """Where numbers of f64 are numbers of a type, so that no error was made; of f64 itself, whole numbers are taken to
    be exact."""
    if dtype is dtypes.f64:
        return np.asarray(y == np.rint(y))
    return np.asarray(y.astype(dtype.numpy).astype(np.float64) == y)


def _is_integral(x: Array) -> bool:
    """Whether all elements are whole numbers."""
    return x.dtype.kind not in "fV" or bool((x == np.rint(x)).all())
