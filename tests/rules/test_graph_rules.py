"""Every law of graph simplification against the evaluator: it applies, and results are the same bit by bit.

Each rule runs alone over graphs made for it, one for each operator it looks at, for all element types that the operator
takes, shapes with sizes 0, 1 and primes, and elements with NaN, infinities, both zeros and the ends of integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from graph_strategies import Array, Program, agree
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DTYPES, DType
from tilewright.expr.nodes import const
from tilewright.graph.build import GraphBuilder
from tilewright.graph.nodes import Module, Value
from tilewright.lower.graph.eliminate_dead import eliminate_dead
from tilewright.lower.graph.graph_rules import RULES, Rule, names_of
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.ops.elementwise import ROWS
from tilewright.types.tensor import TensorType

SHAPES = ((), (0,), (1,), (7,), (2, 3), (5, 0), (1, 3, 2), (2, 3, 5), (3, 1, 1))
KINDS = {row.name: row.kinds for row in ROWS} | {"cast": "biuf", "select": "biuf"}

Make = Callable[[GraphBuilder, str, Value], "Value | None"]
CASES: dict[str, Make] = {}


def case(make: Make) -> Make:
    """Registers a graph to which the rule of the same name applies: from the operator and a parameter to the value that
    is to become simpler, or None where the law does not speak of such a parameter."""
    CASES[make.__name__] = make
    return make


def number(g: GraphBuilder, like: Value, value: float) -> Value:
    return g.scalar(bool(value) if like.type.dtype.is_bool else value, like.type.dtype)


@case
def add_zero(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, number(g, x, -0.0), x)


@case
def subtract_zero(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, x, number(g, x, 0.0))


@case
def multiply_one(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, number(g, x, 1), x)


@case
def multiply_zero(g: GraphBuilder, op: str, x: Value) -> Value | None:
    return None if x.type.dtype.is_float else g.op(op, number(g, x, 0), x)


@case
def divide_by_one(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, x, number(g, x, 1))


@case
def power_of_one(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, x, number(g, x, 1))


@case
def power_of_two(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, x, number(g, x, 2))


@case
def and_constant(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, g.op(op, x, number(g, x, 1)), number(g, x, 0))


@case
def or_constant(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, g.op(op, x, number(g, x, 0)), number(g, x, 1))


@case
def same_operands(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, x, x)


@case
def undone(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, g.op(op, x))


@case
def repeated(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, g.op(op, x))


@case
def not_of_equality(g: GraphBuilder, op: str, x: Value) -> Value:
    other = g.param("other", x.type)
    return g.op("and", g.op(op, g.op("eq", x, other)), g.op(op, g.op("ne", x, other)))


@case
def not_of_order(g: GraphBuilder, op: str, x: Value) -> Value | None:
    if x.type.dtype.is_float:
        return None
    other = g.param("other", x.type)
    return g.op("and", g.op(op, g.op("lt", x, other)), g.op(op, g.op("le", x, other)))


@case
def cast_to_same(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, x, dtype=x.type.dtype)


@case
def cast_of_clamped(g: GraphBuilder, op: str, x: Value) -> Value | None:
    if not x.type.dtype.is_float or x.type.dtype.code is not None:
        return None
    clamped = g.op("min", g.op("max", number(g, x, 0), x), number(g, x, 255))
    return g.op(op, clamped, dtype=dtypes.u8)


@case
def cast_of_exact_cast(g: GraphBuilder, op: str, x: Value) -> Value | None:
    wider = {"bool": "u8", "i8": "i16", "u8": "f16", "i16": "f32", "u16": "i32", "f16": "f32", "bf16": "f64"}
    wider |= {"i2": "i4", "u4": "f8e4m3fn", "f4e2m1": "bf16", "f8e5m2": "f16", "f8e4m3fnuz": "f32", "f8e8m0": "bf16"}
    if x.type.dtype.name not in wider:
        return None
    wide = g.op(op, x, dtype=DTYPES[wider[x.type.dtype.name]])
    back, other = g.op(op, wide, dtype=x.type.dtype), g.op(op, wide, dtype=dtypes.i8)
    return g.op("sub", g.op(op, back, dtype=dtypes.i8), other)


@case
def select_decided(g: GraphBuilder, op: str, x: Value) -> Value:
    other = g.param("other", x.type)
    yes, no = g.scalar(True, dtypes.bool_), g.scalar(False, dtypes.bool_)
    cond = g.op("eq", x, other)
    return g.op(op, cond, g.op(op, yes, x, other), g.op(op, no, other, x))


@case
def operand_repeated(g: GraphBuilder, op: str, x: Value) -> Value | None:
    if op == "select":
        wide = g.op("broadcast", x, shape=(2, *x.type.shape))
        return g.op(op, g.op("eq", x, x), g.param("other", wide.type), wide)
    if (op == "pow" and x.type.dtype.kind == "i") or (op == "random_bits" and x.type.dtype is not dtypes.u64):
        return None
    wide = g.op("broadcast", x, shape=(2, *x.type.shape))
    others = [g.param(f"other{k}", wide.type) for k in range(2 if op == "fma" else 1)]
    return g.op(op, wide, *others)


@case
def transpose_to_same(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, x, perm=range_of(x))


def range_of(x: Value) -> tuple[int, ...]:
    return tuple(range(x.type.rank))


@case
def transpose_of_transpose(g: GraphBuilder, op: str, x: Value) -> Value:
    """A rotation, then the last two dimensions exchanged: the order of the two matters."""
    axes = range_of(x)
    rotated = g.op(op, x, perm=(*axes[1:], *axes[:1]))
    return g.op(op, rotated, perm=(*axes[:-2], *reversed(axes[-2:])))


@case
def transpose_of_units(g: GraphBuilder, op: str, x: Value) -> Value | None:
    units = [d for d in range_of(x) if str(x.type.shape[d]) == "1"]
    return g.op(op, x, perm=(*units, *(d for d in range_of(x) if d not in units))) if units else None


@case
def reshape_to_same(g: GraphBuilder, op: str, x: Value) -> Value:
    return g.op(op, x, shape=x.type.shape)


@case
def reshape_of_reshape(g: GraphBuilder, op: str, x: Value) -> Value:
    if op == "broadcast":
        return g.op(op, g.op(op, x, shape=(3, *x.type.shape)), shape=(2, 3, *x.type.shape))
    return g.op(op, g.op(op, x, shape=(1, *x.type.shape, 1)), shape=(x.type.size,))


@case
def moved_constant(g: GraphBuilder, op: str, x: Value) -> Value:
    shape = x.type.shape
    filled = g.op("full", value=const(1, x.type.dtype), shape=shape)
    zeros, ones = (0,) * len(shape), (1,) * len(shape)
    fields = {
        "transpose": {"perm": tuple(reversed(range_of(x)))},
        "reshape": {"shape": (x.type.size,)},
        "broadcast": {"shape": (2, *shape)},
        "slice": {"starts": zeros, "sizes": zeros, "steps": ones},
    }
    return g.op(op, filled, **fields[op])


@case
def slice_everything(g: GraphBuilder, op: str, x: Value) -> Value:
    shape = x.type.shape
    return g.op(op, x, starts=(0,) * len(shape), sizes=shape, steps=tuple(-1 if str(n) == "1" else 1 for n in shape))


@case
def slice_of_slice(g: GraphBuilder, op: str, x: Value) -> Value:
    """Every second element backwards, then all of those but the first."""
    sizes = [int(str(n)) for n in x.type.shape]
    half = [(n + 1) // 2 for n in sizes]
    inner = g.op(op, x, starts=[max(n - 1, 0) for n in sizes], sizes=half, steps=[-2] * len(half))
    rest = [max(n - 1, 0) for n in half]
    return g.op(op, inner, starts=[min(1, n) for n in half], sizes=rest, steps=[1] * len(half))


@case
def concat_of_one(g: GraphBuilder, op: str, x: Value) -> Value | None:
    return g.op(op, x, axis=0) if x.type.rank else None


@case
def concat_without_empty(g: GraphBuilder, op: str, x: Value) -> Value | None:
    if not x.type.rank or str(x.type.shape[0]) == "0":
        return None
    empty = g.param("empty", TensorType.of(x.type.dtype, (0, *x.type.shape[1:])))
    return g.op(op, empty, x, empty, x, axis=0)


@case
def concat_of_concat(g: GraphBuilder, op: str, x: Value) -> Value | None:
    if not x.type.rank:
        return None
    return g.op(op, x, g.op(op, g.param("other", x.type), x, axis=x.type.rank - 1), axis=x.type.rank - 1)


@case
def pad_by_nothing(g: GraphBuilder, op: str, x: Value) -> Value:
    nothing = (0,) * x.type.rank
    return g.op(op, x, number(g, x, 1), low=nothing, high=nothing)


@case
def reduce_units(g: GraphBuilder, op: str, x: Value) -> Value:
    axes = tuple(d for d in range_of(x) if str(x.type.shape[d]) == "1")
    return g.op(op, x, kind="max", axes=axes)


def elements(dtype: DType, shape: Sequence[int], seed: int) -> Array:
    """Numbers among which are all that arithmetic treats in a way of its own."""
    if dtype.is_float:
        special = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e4, np.inf, -np.inf, np.nan]
    else:
        special = [0, 1] if dtype.is_bool else [0, 1, 2, 3, dtype.min, dtype.max]
    return np.random.default_rng(seed).choice(np.array(special, dtype.numpy), tuple(shape))


PAIRS = [(rule, op) for rule, ops in RULES for op in names_of(ops)]


@pytest.mark.parametrize(("rule", "op"), PAIRS, ids=[f"{rule.__name__}-{op}" for rule, op in PAIRS])
def test_law(rule: Rule, op: str) -> None:
    applied = 0
    for dtype in DTYPES.values():
        takes = dtype.kind in KINDS.get(op, "biuf") or rule.__name__.startswith("not_of")
        if op != "cast" if dtype.code is not None else not takes:
            continue
        applied += sum(check(rule, op, dtype, shape) for shape in SHAPES)
    assert applied >= 3, f"{rule.__name__} was tried on {applied} graphs only"


def check(rule: Rule, op: str, dtype: DType, shape: tuple[int, ...]) -> bool:
    """Builds the rule's graph, lets the rule run alone, and compares. Whether there was a graph."""
    g = GraphBuilder()
    x = g.param("x", TensorType.of(dtype, shape))
    y = CASES[rule.__name__](g, op, x)
    if y is None:
        return False
    module = g.module({"y": y})
    after = simplify_graph(module, ((rule, (op,)),))
    assert after is not module, f"{rule.__name__} does not apply to\n{module}"
    arrays = [elements(p.type.dtype, p.type.static_shape() or (), seed) for seed, p in enumerate(module.graph.params)]
    agree(Program(module, arrays), after)
    assert size(after) <= size(module), f"larger:\n{module}\n{after}"
    return True


def size(module: Module) -> int:
    """How many nodes and inputs of nodes the result needs."""
    return sum(1 + len(node.inputs) for node in eliminate_dead(module).graph.nodes)


def test_every_rule_has_a_case_and_a_law() -> None:
    rules = {rule.__name__: rule for rule, _ in RULES}
    assert set(rules) == set(CASES)
    assert len(rules) == len(RULES)
    for rule in rules.values():
        assert "=>" in (rule.__doc__ or ""), rule.__name__


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_sums_and_differences_with_the_wrong_zero_stay(zero: float) -> None:
    g = GraphBuilder()
    x = g.param("x", TensorType.of(dtypes.f32, (3,)))
    op = "sub" if str(zero).startswith("-") else "add"
    module = g.module({"y": g.op(op, x, g.scalar(zero, dtypes.f32))})
    assert simplify_graph(module) is module


def test_a_float_times_zero_stays() -> None:
    g = GraphBuilder()
    x = g.param("x", TensorType.of(dtypes.f32, (3,)))
    module = g.module({"y": g.op("mul", x, g.scalar(0.0, dtypes.f32))})
    assert simplify_graph(module) is module


def test_a_narrowing_cast_and_back_stays() -> None:
    g = GraphBuilder()
    x = g.param("x", TensorType.of(dtypes.f32, (3,)))
    module = g.module({"y": g.op("cast", g.op("cast", x, dtype=dtypes.f16), dtype=dtypes.f32)})
    assert simplify_graph(module) is module


def test_saturating_casts_do_not_become_wrapping_ones() -> None:
    g = GraphBuilder()
    x = g.param("x", TensorType.of(dtypes.i16, (3,)))
    module = g.module({"y": g.op("cast", g.op("cast", x, dtype=dtypes.f32), dtype=dtypes.i8)})
    assert simplify_graph(module) is module


def test_a_sum_of_one_float_stays() -> None:
    g = GraphBuilder()
    x = g.param("x", TensorType.of(dtypes.f32, (3, 1)))
    module = g.module({"y": g.op("reduce", x, kind="sum", axes=(1,))})
    assert simplify_graph(module) is module


def test_what_makes_the_result_larger_stays() -> None:
    g = GraphBuilder()
    x = g.param("x", TensorType.of(dtypes.f32, (3,)))
    ones = g.constant("ones", np.ones((2, 3), np.float32))
    module = g.module({"y": g.op("mul", x, ones)})
    assert simplify_graph(module) is module
