"""Numbers of a few bits with scales: their values and their products, against loops written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_cases import Case, Draw, array, case, check, kinds, quick

from tilewright.expr.dtypes import NARROW, f16, f32, f64
from tilewright.ops.quantized import largest_whole


@case("dequantize")
def values(draw: Draw) -> Case:
    dtype = draw(st.sampled_from([*(d for d in NARROW if d.is_int), *kinds("iu")]))
    axis, block = draw(st.integers(0, 1)), draw(st.integers(1, 3))
    parts = [draw(st.integers(0, 3)), draw(st.integers(0, 3))]
    sizes = [n * block if d == axis else n for d, n in enumerate(parts)]
    q = np.random.default_rng(draw(st.integers(0, 99))).integers(-128, 128, sizes).astype(np.int8)
    q = q.view(np.uint8).view(dtype.numpy) if dtype.bits == 8 else q.astype(dtype.numpy)
    scale = array(draw, parts, draw(st.sampled_from((f32, f64))), small=True)
    inputs, zero = [q, scale], np.zeros(parts, np.int64)
    if draw(st.booleans()):
        inputs.append(np.ones(parts).astype(dtype.numpy))
        zero += 1
    expected = np.zeros(sizes, scale.dtype)
    for at in np.ndindex(*sizes):
        place = tuple(i // block if d == axis else i for d, i in enumerate(at))
        whole = (int(q[at]) - int(zero[place]) + (1 << 31)) % (1 << 32) - (1 << 31)
        expected[at] = scale.dtype.type(whole) * scale[place]
    return Case(inputs, {"axis": axis, "block": block}, [expected], 1e-6)


@case("packed_product")
def products(draw: Draw) -> Case:
    bits = draw(st.sampled_from((1, 2, 4, 8)))
    rows, panels, blocks, count, columns = (draw(st.integers(low, 3)) for low in (0, 0, 0, 1, 0))
    each = 32 // bits
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    q = rng.integers(0, 1 << 32, (panels, blocks, count, columns), np.uint32)
    x = array(draw, (rows, blocks * count * each), draw(st.sampled_from((f16, f32, f64))), small=True)
    scale = rng.integers(-2, 3, (panels, blocks, columns)).astype(x.dtype)
    inputs, zero = [x, q, scale], np.full(scale.shape, draw(st.integers(0, 9)))
    attrs = {"bits": bits, "zero": int(zero.flat[0]) if zero.size else 0}
    if draw(st.booleans()):
        zero = rng.integers(0, 9, scale.shape)
        inputs.append(zero.astype(np.uint8))
    expected = np.zeros((rows, panels, columns))
    for m, p, b, k, j in np.ndindex(rows, *q.shape):
        for n in range(each):
            number = int(q[p, b, k, j]) >> n * bits & (1 << bits) - 1
            term = float(x[m, (b * count + k) * each + n]) * (number - int(zero[p, b, j]))
            expected[m, p, j] += term * float(scale[p, b, j])
    with np.errstate(over="ignore"):
        return Case(inputs, attrs, [expected.astype(x.dtype)], 1e-5 if x.dtype != np.float16 else 1e-3)


@case("digit_product")
def digit_products(draw: Draw) -> Case:
    bits = draw(st.sampled_from((1, 2, 4)))
    rows, panels, blocks, count, columns = (draw(st.integers(low, 3)) for low in (0, 0, 0, 1, 0))
    each, places = 32 // bits, 8 // bits
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    q = rng.integers(0, 1 << 32, (panels, blocks, count, columns), np.uint32)
    most = largest_whole(bits, count * each)
    whole = rng.integers(-most, most + 1, (rows, blocks, count * each))
    quads = whole.reshape(rows, blocks * count, 4, places, 1) >> [0, 8, 16] & 255
    digits = (quads << np.array([0, 8, 16, 24])[:, None, None]).sum(2).astype(np.uint32)
    step = rng.uniform(0.5, 2, (rows, blocks)).astype(draw(st.sampled_from((np.float32, np.float64))))
    scale = rng.integers(-2, 3, (panels, blocks, columns)).astype(step.dtype)
    zero = np.full(scale.shape, draw(st.integers(0, (1 << bits) - 1)))
    attrs = {"bits": bits, "zero": int(zero.flat[0]) if zero.size else 0}
    inputs = [digits, step, whole.sum(2).astype(np.int32), q, scale]
    if draw(st.booleans()):
        zero = rng.integers(0, 1 << bits, scale.shape)
        inputs.append(zero.astype(np.uint8))
    expected = np.zeros((rows, panels, columns))
    for m, p, b, k, j in np.ndindex(rows, *q.shape):
        for n in range(each):
            number = int(q[p, b, k, j]) >> n * bits & (1 << bits) - 1
            term = float(whole[m, b, k * each + n]) * (number - int(zero[p, b, j]))
            expected[m, p, j] += term * float(scale[p, b, j]) * float(step[m, b])
    return Case(inputs, attrs, [expected.astype(step.dtype)], 1e-5)


@pytest.mark.parametrize("name", ["dequantize", "packed_product", "digit_product"])
@given(data=st.data())
@quick
def test_meaning_and_definition(name: str, data: st.DataObject) -> None:
    check(name, {"dequantize": values, "packed_product": products, "digit_product": digit_products}[name](data.draw))
