"""Element-wise operators: meaning against Python's own arithmetic, definition against meaning, exactly."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_cases import CASES, Array, Case, Draw, array, case, check, kinds, quick, shapes

from tilewright.expr.dtypes import DType, bool_, u64
from tilewright.graph.op import NO_ATTRIBUTES, REGISTRY
from tilewright.ops.elementwise import ROWS

TABLE = {row.name: row for row in ROWS}


def operands(draw: Draw, dtypes: list[DType]) -> list[Array]:
    """Arrays that broadcast against each other."""
    shape = shapes(draw)
    made = []
    for dtype in dtypes:
        own = [1 if draw(st.booleans()) and draw(st.booleans()) else n for n in shape]
        made.append(array(draw, own[draw(st.integers(0, len(own))) if draw(st.booleans()) else 0 :], dtype))
    return made


def wrapped(value: int, dtype: DType) -> int:
    low, span = int(dtype.min), 1 << dtype.bits
    return (value - low) % span + low


def toward_zero(a: int, b: int) -> int:
    return math.trunc(Fraction(a, b)) if b else 0


INTEGERS: dict[str, Any] = {
    "add": lambda a, b, t: a + b,
    "sub": lambda a, b, t: a - b,
    "mul": lambda a, b, t: a * b,
    "div": lambda a, b, t: toward_zero(a, b),
    "floordiv": lambda a, b, t: a // b if b else 0,
    "mod": lambda a, b, t: a % b if b else 0,
    "rem": lambda a, b, t: a - b * toward_zero(a, b) if b else 0,
    "min": lambda a, b, t: min(a, b),
    "max": lambda a, b, t: max(a, b),
    "bit_and": lambda a, b, t: a & b,
    "bit_or": lambda a, b, t: a | b,
    "bit_xor": lambda a, b, t: a ^ b,
    "shl": lambda a, b, t: a << b if 0 <= b < t.bits else 0,
    "shr": lambda a, b, t: a >> b if 0 <= b < t.bits else -(a < 0),
    "eq": lambda a, b, t: a == b,
    "ne": lambda a, b, t: a != b,
    "lt": lambda a, b, t: a < b,
    "le": lambda a, b, t: a <= b,
    "neg": lambda a, t: -a,
    "abs": lambda a, t: abs(a),
    "sign": lambda a, t: (a > 0) - (a < 0),
    "invert": lambda a, t: ~a,
    "popcount": lambda a, t: abs(a).bit_count(),
    "relu": lambda a, t: max(a, 0),
    "and": lambda a, b, t: a and b,
    "or": lambda a, b, t: a or b,
    "xor": lambda a, b, t: a != b,
    "not": lambda a, t: not a,
}
"""What Python's unbounded integers say, before wrapping to the type; of truth values, where `add` is either and `mul`
both."""

FLOATS: dict[str, Any] = {
    "relu": lambda a: np.where(a <= 0, a.dtype.type(0), a),
    "min": lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a < b, a, b)).astype(a.dtype),
    "max": lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a > b, a, b)).astype(a.dtype),
    "eq": lambda a, b: a.astype(np.float64) == b.astype(np.float64),
    "lt": lambda a, b: a.astype(np.float64) < b.astype(np.float64),
    "le": lambda a, b: a.astype(np.float64) <= b.astype(np.float64),
    "ne": lambda a, b: a.astype(np.float64) != b.astype(np.float64),
    "isnan": lambda a: a != a,
    "isinf": lambda a: np.abs(a.astype(np.float64)) == np.inf,
    "add": lambda a, b: (a.astype(np.float64) + b.astype(np.float64)).astype(a.dtype),
    "sub": lambda a, b: (a.astype(np.float64) - b.astype(np.float64)).astype(a.dtype),
    "mul": lambda a, b: (a.astype(np.float64) * b.astype(np.float64)).astype(a.dtype),
}


def by_python(name: str, arrays: list[Array], dtype: DType) -> Array:
    """INTEGERS applied element by element."""
    result_type = bool_ if TABLE[name].truth else dtype
    spread = np.broadcast_arrays(*arrays)
    out = np.empty(spread[0].shape, result_type.numpy)
    for at in np.ndindex(out.shape):
        value = INTEGERS[name](*[x[at].item() for x in spread], dtype)
        out[at] = wrapped(int(value), dtype) if dtype.is_int and result_type is dtype else value
    return out


@case(*TABLE)
def element_wise(draw: Draw, name: str) -> Case:
    row = TABLE[name]
    dtype = draw(st.sampled_from(kinds(row.kinds)))
    inputs = operands(draw, [dtype] * row.arity)
    if name in ("shl", "shr") and draw(st.booleans()):
        inputs[1] = (inputs[1] % dtype.numpy.type(dtype.bits + 2)).astype(dtype.numpy)
    if name == "pow" and dtype.is_int:
        inputs[1] = np.abs(inputs[1] % dtype.numpy.type(5)).astype(dtype.numpy)
    expected = None
    with np.errstate(all="ignore"):
        if not dtype.is_float and name in INTEGERS:
            expected = [by_python(name, inputs, dtype)]
        elif dtype.is_float and name in FLOATS:
            expected = [FLOATS[name](*np.broadcast_arrays(*inputs))]
    return Case(inputs, expected=expected)


@case("select")
def selections(draw: Draw) -> Case:
    dtype = draw(st.sampled_from(kinds("biuf")))
    cond, a, b = operands(draw, [bool_, dtype, dtype])
    spread = np.broadcast_arrays(cond, a, b)
    expected = np.empty(spread[0].shape, dtype.numpy)
    for at in np.ndindex(expected.shape):
        expected[at] = spread[1][at] if spread[0][at] else spread[2][at]
    return Case([cond, a, b], expected=[expected])


@case("cast")
def casts(draw: Draw) -> Case:
    source, target = draw(st.sampled_from(kinds("biuf"))), draw(st.sampled_from(kinds("biuf")))
    x = array(draw, shapes(draw), source)
    expected = np.empty(x.shape, target.numpy)
    for at in np.ndindex(x.shape):
        expected[at] = cast_by_python(x[at].item() if source.name != "bf16" else float(x[at]), target)
    return Case([x], {"dtype": target}, [expected])


def cast_by_python(value: Any, target: DType) -> Any:
    if target.is_bool:
        return value != 0
    if target.is_float:
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(target.numpy)
    if not isinstance(value, float):
        return wrapped(int(value), target)
    if math.isnan(value):
        return 0
    ends = int(target.min), int(target.max)
    if math.isinf(value):
        return ends[value > 0]
    return min(max(math.trunc(value), ends[0]), ends[1])


@case("bitcast")
def same_bits(draw: Draw) -> Case:
    source = draw(st.sampled_from(kinds("biuf")))
    wide = [d for d in kinds("iuf") if d.bits == source.bits]
    target = draw(st.sampled_from(wide))
    x = array(draw, shapes(draw), source)
    return Case([x], {"dtype": target}, [x.view(target.numpy)])


def threefry(counter: int, key: int) -> int:
    """Threefry-2x32 of twenty rounds, as its authors write it."""
    mask = 2**32 - 1
    x, y = counter & mask, counter >> 32
    keys = [key & mask, key >> 32]
    keys.append(keys[0] ^ keys[1] ^ 0x1BD11BDA)
    x, y = (x + keys[0]) & mask, (y + keys[1]) & mask
    for n in range(20):
        turn = (13, 15, 26, 6, 17, 29, 16, 24)[n % 8]
        x = (x + y) & mask
        y = ((y << turn | y >> (32 - turn)) & mask) ^ x
        if n % 4 == 3:
            group = n // 4 + 1
            x = (x + keys[group % 3]) & mask
            y = (y + keys[(group + 1) % 3] + group) & mask
    return y << 32 | x


@case("random_bits")
def random_bits(draw: Draw) -> Case:
    counter, key = operands(draw, [u64, u64])
    spread = np.broadcast_arrays(counter, key)
    expected = np.empty(spread[0].shape, np.uint64)
    for at in np.ndindex(expected.shape):
        expected[at] = threefry(spread[0][at].item(), spread[1][at].item())
    return Case([counter, key], expected=[expected])


KNOWN_ANSWERS = (
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
)
"""Counters, keys and results of Random123's table for twenty rounds, the first word first."""


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_known_answers_of_random_bits(counter: Any, key: Any, result: Any) -> None:
    a, b, expected = (low | high << 32 for low, high in (counter, key, result))
    assert threefry(a, b) == expected
    op = REGISTRY["random_bits"]
    (found,) = op.meaning((np.array([a], np.uint64), np.array([b], np.uint64)), NO_ATTRIBUTES)
    assert int(found[0]) == expected


@pytest.mark.parametrize("name", [*TABLE, "select", "cast", "bitcast", "random_bits"])
@given(data=st.data())
@quick
def test_meaning_and_definition(name: str, data: st.DataObject) -> None:
    check(name, CASES[name](data.draw))


def test_sigmoid_is_accurate_where_exp_overflows() -> None:
    x = np.array([-1e4, -88.9, -20.0, -1.5, 0.0, 2.0, 90.0, 1e4, np.nan])
    with np.errstate(over="ignore"):
        exact = np.array([1 / (1 + math.exp(min(-v, 700.0))) if v > -700 else 0.0 for v in x])
    exact[-1] = np.nan
    for dtype, tolerance in ((np.float64, 1e-15), (np.float32, 3e-7), (np.float16, 2e-3)):
        (result,) = REGISTRY["sigmoid"].meaning((x.astype(dtype),), NO_ATTRIBUTES)
        wanted = exact
        if dtype is np.float32:
            wanted = np.where(x == -88.9, 1 / (1 + math.exp(float(np.float32(88.9)))), exact)
        np.testing.assert_allclose(result.astype(np.float64), wanted, rtol=tolerance, atol=float(np.finfo(dtype).tiny))
