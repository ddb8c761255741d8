"""Casts from and to narrow types: every code, and numbers around every place where rounding changes, in the evaluators
and in machine code. The oracle is a table of each type's numbers, and `ml_dtypes`."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from machine import Array, compute

import tilewright as tw
from tilewright.expr import dtypes, meaning
from tilewright.expr.build import cast
from tilewright.expr.dtypes import NARROW, DType
from tilewright.expr.evaluate import evaluate
from tilewright.expr.functions.narrow_casts import expand_cast
from tilewright.expr.nodes import Cast, Var

FLOATS = [d for d in NARROW if d.is_float]
WHOLE = [d for d in NARROW if d.is_int]
WIDE = [dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64]
OTHERS = [d for d in dtypes.DTYPES.values() if d not in NARROW]


def codes_of(dtype: DType) -> Array:
    """Every byte as a number of a narrow type, the bits above its code set in all ways."""
    return np.arange(256, dtype=np.uint8).view(dtype.numpy)


def table(dtype: DType) -> Array:
    """The numbers of a narrow type by their codes, in f64."""
    assert dtype.code is not None
    codes = np.arange(1 << dtype.code.width, dtype=np.uint8)
    return codes.view(dtype.numpy).astype(np.float64)


def around(dtype: DType, wide: DType) -> Array:
    """Numbers of a wide type at and beside each number of a narrow one and each middle between two of them, beyond both
    ends, and what is special."""
    numbers = table(dtype)
    numbers = np.unique(np.abs(numbers[np.isfinite(numbers)]))
    ends = [numbers[-1] + (numbers[-1] - numbers[-2]) / 2, numbers[-1] * 2, numbers[0] / 2, numbers[0] / 4]
    places = np.concatenate([numbers, (numbers[1:] + numbers[:-1]) / 2, ends, [1e30, 1e-30, 2.0**-149]])
    with np.errstate(all="ignore"):
        near = places.astype(wide.numpy)
        bits = near.view(f"i{near.itemsize}")
        beside = np.concatenate([bits, bits + 1, np.maximum(bits - 1, 0)]).view(wide.numpy)
        special = np.array([0.0, np.inf, np.nan], wide.numpy)
    found = np.concatenate([beside, special])
    return np.concatenate([found, -found])


def nearest(x: Array, dtype: DType) -> Array:
    """The codes of the nearest numbers, found by the middles between two of them; in a middle the even code, or the
    greater power of two."""
    code = dtype.code
    assert code is not None
    numbers = table(dtype)[: code.sign or 256]
    numbers = numbers[np.isfinite(numbers)]
    wide = np.asarray(x, np.float64)
    size = np.abs(wide)
    middles = (numbers[1:] + numbers[:-1]) / 2
    below, above = (np.searchsorted(middles, size, side=side) for side in ("left", "right"))
    best = np.where(np.isnan(wide), 0, np.where((below & 1 == 0) & (code.sign != 0), below, above))
    negative = np.signbit(wide)
    sign = np.where(negative & ~(code.one_zero & (best == 0)), code.sign, 0)
    if not dtype.signed:
        return np.where(np.isnan(wide) | (wide < 0), code.nan, best).astype(np.uint8)
    nan = 0 if code.nan is None else code.nan | np.where(negative, code.sign, 0)
    return np.where(np.isnan(wide), nan, best | sign).astype(np.uint8)


def equal(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a.view(np.uint8), b.view(np.uint8)))


@pytest.mark.parametrize("wide", WIDE, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rounding(dtype: DType, wide: DType) -> None:
    x = around(dtype, wide)
    with np.errstate(all="ignore"):
        wanted = nearest(x, dtype)
    assert equal(meaning.convert(x, dtype), wanted)
    for lanes in (1, 16):
        assert equal(compute(lambda a: cast(a, dtype), [x], dtype, lanes), wanted)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_oracle_is_that_of_the_field(dtype: DType) -> None:
    """Within the range the rounding is that of `ml_dtypes`, but for subnormal powers of two, which it rounds up."""
    assert dtype.code is not None
    x = around(dtype, dtypes.f32)
    low = 2.0**-126 if not dtype.signed else -dtype.code.largest
    x = x[(x >= low) & (x <= dtype.code.largest)]
    assert len(x) > 100 or dtype is dtypes.f4e2m1
    assert equal(meaning.convert(x, dtype), x.astype(dtype.numpy))


@pytest.mark.parametrize("source", OTHERS, ids=str)
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_from_all_types(dtype: DType, source: DType) -> None:
    """Numbers of every other type: floats in the range of the integers and beyond, integers at their ends."""
    if source.is_float:
        steps = np.array([0.0, 0.25, 0.5, 0.75, 1, 1.5, 3, 3.99, 6, 7, 7.99, 8, 15, 15.99, 16, 127, 128, 255, 300, 1e4])
        x = np.concatenate([steps, -steps, [np.inf, -np.inf, np.nan]]).astype(source.numpy)
    elif source.is_bool:
        x = np.array([False, True])
    else:
        low, high = int(source.min), int(source.max)
        near = [n for k in range(source.bits) for n in ((1 << k) - 1, 1 << k, (1 << k) + 1, 3 << k) if n <= high]
        x = np.array([*near, *(-n for n in near if low < 0), low, low + 1, high], source.numpy)
    with np.errstate(all="ignore"):
        wanted = meaning.convert(x, dtype)
    if dtype.is_int and not source.is_float:
        assert equal(wanted, np.array([int(v) & dtype.code.mask for v in x], np.uint8))
    for lanes in (1, 16):
        assert equal(compute(lambda a: cast(a, dtype), [x], dtype, lanes), wanted)


@pytest.mark.parametrize("to", OTHERS, ids=str)
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_code(dtype: DType, to: DType) -> None:
    """The number of every code, whatever the bits above it are."""
    assert dtype.code is not None
    x = codes_of(dtype)
    numbers = table(dtype)[np.arange(256) & dtype.code.mask]
    if to.is_float:
        with np.errstate(all="ignore"):
            wanted = numbers.astype(to.numpy)
    else:
        wanted = meaning.convert(numbers if dtype.is_float else numbers.astype(np.int64), to)
    found = [meaning.convert(x, to), *(compute(lambda a: cast(a, to), [x], to, lanes) for lanes in (1, 16))]
    for result in found:
        if not to.is_float:
            np.testing.assert_array_equal(result, wanted)
        else:
            np.testing.assert_array_equal(result.astype(np.float64), wanted.astype(np.float64))
            real = ~np.isnan(wanted.astype(np.float64))
            np.testing.assert_array_equal(np.signbit(result)[real], np.signbit(wanted)[real])


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_between_narrow_types(dtype: DType) -> None:
    x = codes_of(dtype)
    for to in NARROW:
        if to is not dtype:
            wanted = meaning.convert(meaning.widened(x), to)
            assert equal(meaning.convert(x, to), wanted)
            assert equal(compute(lambda a, to=to: cast(a, to), [x], to, 16), wanted), str(to)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_expansions_in_the_evaluator(dtype: DType) -> None:
    """The evaluator computes for the expansions what it computes for the casts."""
    for other in (dtypes.f32, dtypes.f64, dtypes.i32, dtypes.bool_):
        up = Cast(Var("x", dtype, None), other)
        x = codes_of(dtype)
        np.testing.assert_array_equal(evaluate(expand_cast(up), {up.a: x}), evaluate(up, {up.a: x}))
        down = Cast(Var("x", other, None), dtype)
        y = around(dtype, other) if other in WIDE and dtype.is_float else meaning.convert(np.arange(-20.0, 20.0), other)
        assert equal(evaluate(expand_cast(down), {down.a: y}), evaluate(down, {down.a: y}))


def test_every_type_of_ml_dtypes_is_told_apart() -> None:
    for dtype in NARROW:
        assert dtype.code is not None
        assert dtypes.from_numpy(np.dtype(getattr(ml_dtypes, dtype.code.numpy))) is dtype
    assert dtypes.from_numpy(np.dtype(ml_dtypes.float8_e3m4)) is None


@pytest.mark.parametrize("dtype", [dtypes.f8e5m2, dtypes.f8e4m3fnuz, dtypes.f4e2m1], ids=str)
def test_subnormal_numbers_of_narrow_types_are_not_flushed(dtype: DType) -> None:
    """They are normal numbers of f32: calls that flush those of f32 cast them all the same."""
    exe = tw.compile(
        tw.parse(
            f"graph main(x: {dtype}[256], w: f32[256]) -> y, z:\n"
            f"  y: f32[256] = cast(x, dtype=f32)\n  z: {dtype}[256] = cast(w, dtype={dtype})\n"
        ),
        denormals="flush",
    )
    x = codes_of(dtype)
    numbers = meaning.widened(x)
    y, z = exe(x, numbers * np.float32(1.25))
    np.testing.assert_array_equal(y, numbers)
    assert equal(z, meaning.convert(numbers * np.float32(1.25), dtype))
