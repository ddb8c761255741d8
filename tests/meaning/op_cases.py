"""What the differential tests of operators share: cases drawn by hypothesis, and the check of one case.

A case is inputs, attributes, and what plain NumPy (or Python) says the result is. The check types the operator, with
constant sizes and with a symbol for every size; compares its meaning with the expectation; runs its definition through
the evaluator of loops and compares that with the meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import tilewright.ops  # noqa: F401  fills the registry
from drawn import LONG
from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DTYPES, DType
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.graph.attributes import field_kinds
from tilewright.graph.op import REGISTRY, Op, Pattern, TypeContext
from tilewright.loops.build import Builder
from tilewright.loops.evaluate import evaluate as run
from tilewright.loops.nodes import AxisKind, Block, Buffer, Function, Store
from tilewright.loops.verify import verify
from tilewright.types.tensor import TensorType

Array = np.ndarray[Any, Any]
SIZES = (0, 1, 2, 3, 5, 7)
MOST = 36
quick = settings(
    max_examples=200 if LONG else 12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
thorough = settings(quick, max_examples=500 if LONG else 30)


@dataclass
class Case:
    """One use of an operator. `tolerance` (relative to the largest magnitude) is for accumulations of floats only; the
    dimensions `constant`, as (input, dimension), and the attributes `plain` are numbers where all others are
    symbols."""

    inputs: Sequence[Array]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    expected: Sequence[Array] | None = None
    tolerance: float = 0.0
    symbolic: bool = True
    constant: tuple[tuple[int, int], ...] = ()
    plain: tuple[str, ...] = ()


Draw = Callable[[Any], Any]
CASES: dict[str, Callable[[Draw], Case]] = {}
"""How to draw a case of each operator."""


def case(*names: str) -> Callable[[Callable[..., Case]], Callable[..., Case]]:
    """Registers the function as the source of cases for these operators; it gets `draw`, and the name if there are
    several."""

    def keep(make: Callable[..., Case]) -> Callable[..., Case]:
        for name in names:
            assert name not in CASES, f"two sources of cases for {name}"
            CASES[name] = make if len(names) == 1 else lambda draw, name=name: make(draw, name)
        return make

    return keep


def shapes(draw: Draw, low: int = 0, high: int = 3) -> tuple[int, ...]:
    """A shape of at most `MOST` elements."""
    shape = draw(st.lists(st.sampled_from(SIZES), min_size=low, max_size=high))
    while math.prod(shape) > MOST:
        shape[shape.index(max(shape))] = 2
    return tuple(shape)


def kinds(text: str) -> list[DType]:
    return [d for d in DTYPES.values() if d.kind in text]


def array(draw: Draw, shape: Sequence[int], dtype: DType, *, special: bool = True, small: bool = False) -> Array:
    """Random elements; `special` mixes in the ends of the range, NaN and zeros; `small` keeps integers and floats in
    -4 … 4, so that sums are exact."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = math.prod(shape)
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_int:
        low, high = (max(-4, int(dtype.min)), 4) if small else (int(dtype.min), int(dtype.max))
        flat = rng.integers(low, high, count, dtype.numpy, endpoint=True)
        corners = [dtype.min, dtype.max, 0, 1, 2, -1 if dtype.kind == "i" else 3]
    else:
        flat = (rng.integers(-4, 5, count) if small else rng.normal(0, 3, count)).astype(dtype.numpy)
        corners = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0]
    if special and not small and count:
        places = rng.random(count) < 0.3
        flat[places] = np.array(corners, dtype.numpy)[rng.integers(0, len(corners), int(places.sum()))]
    return flat.reshape(tuple(shape))


def check(name: str, given: Case) -> None:
    """The case holds with constant sizes, and with symbolic ones."""
    for symbolic in (False, True) if given.symbolic else (False,):
        _check(REGISTRY[name], given, symbolic)


def typed(op: Op, given: Case, symbolic: bool) -> tuple[list[TensorType], dict[str, Any], dict[Var, int]]:
    """The types of the inputs, the fields of the attributes, and the value of each symbol in them."""
    symbols: dict[int, Var] = {}
    types = [
        _type(x, symbols if symbolic else None, [d for i, d in given.constant if i == n])
        for n, x in enumerate(given.inputs)
    ]
    attrs = dict(given.attrs)
    if symbolic:
        fields = field_kinds(op.attributes)
        attrs = {
            f: _symbolic(v, symbols) if _holds_sizes(fields[f]) and f not in given.plain else v
            for f, v in attrs.items()
        }
    return types, attrs, {var: size for size, var in symbols.items()}


def _check(op: Op, given: Case, symbolic: bool) -> None:
    types, attrs, values = typed(op, given, symbolic)
    record = op.attributes(**attrs)
    context = TypeContext(op.name)
    outputs = op.infer(context, tuple(types), record)
    for cond, message in context.requirements:
        assert evaluate(cond, values), message
    meant = op.meaning(tuple(given.inputs), record.evaluated(values))
    assert len(meant) == len(outputs)
    for type, result in zip(outputs, meant, strict=True):
        assert result.dtype == type.dtype.numpy
        assert result.shape == tuple(int(evaluate(d, values)) for d in type.shape)
    if given.expected is not None:
        for result, wanted in zip(meant, given.expected, strict=True):
            same(result, wanted, given.tolerance)
    function = definition(op, types, outputs, record, tuple(values))
    verify(function)
    if pattern_of(op, record) is Pattern.MAP:
        check_map(function)
    results = [np.zeros(r.shape, r.dtype) for r in meant]
    run(function, [*given.inputs, *results], {var.name: size for var, size in values.items()})
    for result, wanted in zip(results, meant, strict=True):
        same(result, wanted, given.tolerance)


def pattern_of(op: Op, attrs: Any) -> Pattern:
    """The pattern of this use of the operator."""
    narrow = getattr(op, "pattern_of", None)
    return narrow(attrs) if narrow else op.pattern


def definition(
    op: Op, inputs: Sequence[TensorType], outputs: Sequence[TensorType], attrs: Any, symbols: tuple[Var, ...]
) -> Function:
    build = Builder()
    ins = tuple(Buffer(f"x{n}", t.dtype, t.shape) for n, t in enumerate(inputs))
    outs = tuple(Buffer(f"y{n}", t.dtype, t.shape) for n, t in enumerate(outputs))
    op.define(build, ins, outs, attrs)
    return Function(op.name, symbols, ins + outs, build.body(), len(outs))


def check_map(function: Function) -> None:
    """One block, whose store indices are exactly its spatial axes: what fusion inlines."""
    (block,) = [s for s in preorder(function.body) if isinstance(s, Block)]
    assert isinstance(block.body, Store)
    assert block.init is None
    assert block.body.indices == tuple(a.var for a in block.axes)
    assert all(a.kind is AxisKind.SPATIAL for a in block.axes)


def same(result: Array, wanted: Array, tolerance: float) -> None:
    wanted = np.asarray(wanted)
    assert result.dtype == wanted.dtype
    assert result.shape == wanted.shape
    if result.dtype.kind not in "biuf":
        result, wanted = result.astype(np.float64), wanted.astype(np.float64)
    if not tolerance:
        np.testing.assert_array_equal(result, wanted)
        return
    a, b = result.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite])
    scale = np.abs(b[finite]).max(initial=1.0)
    np.testing.assert_allclose(a[finite], b[finite], rtol=tolerance, atol=tolerance * scale)


def _type(x: Array, symbols: dict[int, Var] | None, constant: Sequence[int]) -> TensorType:
    """The type of an array; with `symbols`, every size but 1 (which broadcasts) is the symbol of that number."""
    dtype = dtypes.from_numpy(x.dtype)
    assert dtype is not None
    if symbols is None:
        return TensorType.of(dtype, x.shape)
    dims = [n if n == 1 or d in constant else symbols.setdefault(n, Var(f"n{n}")) for d, n in enumerate(x.shape)]
    return TensorType.of(dtype, dims)


def _holds_sizes(kind: Any) -> bool:
    return kind.leaf is Expr or any(_holds_sizes(part) for part in kind.parts)


def _symbolic(value: Any, symbols: Mapping[int, Var]) -> Any:
    """Numbers replaced by expressions over the symbols with the same value."""
    if isinstance(value, tuple | list):
        return tuple(_symbolic(v, symbols) for v in value)
    if not isinstance(value, int | Const) or isinstance(value, bool) or not symbols:
        return value
    number = int(value.value) if isinstance(value, Const) else value
    if number in (0, 1):
        return number
    if number in symbols:
        return symbols[number]
    size, var = next(iter(symbols.items()))
    return var + const(number - size)
