"""Operators of ONNX Runtime on quantized tensors: what they do in floats, between scales; and products with weights of
a few bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators import activation
from tilewright.frontends.onnx.operators.pooling import average_pool, global_average_pool
from tilewright.frontends.onnx.operators.quantization import (
    dequantize_linear,
    matmul_integer,
    quantize_linear,
    saturated,
)
from tilewright.frontends.onnx.registry import MICROSOFT, Ints, handles

Array = np.ndarray[Any, Any]


def _wide(b: Emit, x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """(x - zero) * scale in f32, of one scale."""
    whole = b.cast(x, dtypes.i32)
    if zero is not None:
        whole = whole - b.cast(b.reshape(zero, ()), dtypes.i32)
    return b.cast(whole, dtypes.f32) * b.reshape(scale, ())


def _narrow(b: Emit, x: Tensor, scale: Tensor, zero: Tensor | None, dtype: DType) -> Tensor:
    """round(x / scale) + zero, in the range of the type."""
    return saturated(b, x / b.reshape(scale, ()), None if zero is None else b.reshape(zero, ()), dtype)


@handles("QuantizeLinear", domain=MICROSOFT)
def quantize(b: Emit, x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1) -> Tensor:
    return quantize_linear(b, x, scale, zero, axis=axis)


@handles("DequantizeLinear", domain=MICROSOFT)
def dequantize(b: Emit, x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1) -> Tensor:
    return dequantize_linear(b, x, scale, zero, axis=axis)


@handles("QLinearAdd", domain=MICROSOFT)
def qlinear_add(
    b: Emit,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
) -> Tensor:
    return _narrow(b, _wide(b, x, x_scale, x_zero) + _wide(b, y, y_scale, y_zero), scale, zero, x.dtype)


@handles("QLinearMul", domain=MICROSOFT)
def qlinear_mul(
    b: Emit,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
) -> Tensor:
    return _narrow(b, _wide(b, x, x_scale, x_zero) * _wide(b, y, y_scale, y_zero), scale, zero, x.dtype)


@handles("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(
    b: Emit, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, scale: Tensor, zero: Tensor | None = None
) -> Tensor:
    return _narrow(b, b.map("sigmoid", _wide(b, x, x_scale, x_zero)), scale, zero, x.dtype)


@handles("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(
    b: Emit,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    alpha: float = 0.01,
) -> Tensor:
    wide = activation.leaky_relu(b, _wide(b, x, x_scale, x_zero), alpha=alpha)
    return _narrow(b, wide, scale, zero, x.dtype)


@handles("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(b: Emit, scale: Tensor, zero: Tensor, *inputs: Tensor, axis: int) -> Tensor:
    """Tensors, each followed by its scale and its zero point."""
    if len(inputs) % 3 or not inputs:
        raise b.error("QLinearConcat takes a tensor, its scale and its zero point, and so on")
    parts = [_narrow(b, _wide(b, *inputs[n : n + 3]), scale, zero, zero.dtype) for n in range(0, len(inputs), 3)]
    return b.concat(parts, b.axis(axis, parts[0].rank))


@handles("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    b: Emit,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    wide = _channels(b, _wide(b, x, x_scale, x_zero), channels_last, first=True)
    pooled = average_pool(
        b, wide, kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, pads=pads, strides=strides,
    )  # fmt: skip
    return _narrow(b, _channels(b, pooled, channels_last, first=False), scale, zero, x.dtype)


@handles("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    b: Emit,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    scale: Tensor,
    zero: Tensor,
    *,
    channels_last: int = 0,
) -> Tensor:
    pooled = global_average_pool(b, _channels(b, _wide(b, x, x_scale, x_zero), channels_last, first=True))
    return _narrow(b, _channels(b, pooled, channels_last, first=False), scale, zero, x.dtype)


def _channels(b: Emit, x: Tensor, last: int, *, first: bool) -> Tensor:
    """Channels moved from the last dimension to the second, or back, where the operator has them `last`."""
    space = range(1, x.rank - 1)
    order = [0, x.rank - 1, *space] if first else [0, *range(2, x.rank), 1]
    return b.transpose(x, order) if last else x


@handles("QGemm", domain=MICROSOFT)
def qgemm(
    b: Emit,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    zero: Tensor | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """alpha * (x - x_zero) @ (y - y_zero) + bias, a sum of integers, times both scales; quantized where there is a
    scale for it."""
    left, right = (b.transpose(t, (1, 0)) if turned else t for t, turned in ((x, transA), (y, transB)))
    total = matmul_integer(b, left, right, b.reshape(x_zero, ()), y_zero)
    if bias is not None:
        total = total + bias
    result = b.cast(total, dtypes.f32) * (b.reshape(x_scale, ()) * y_scale * alpha)
    return result if scale is None else _narrow(b, result, scale, zero, x.dtype if zero is None else zero.dtype)


@handles("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(
    b: Emit,
    x: Tensor,
    y: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    places: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int,
    weight_prepacked: int = 0,
) -> Tensor:
    """x @ weights.T + bias of weights [N, K], packed in bytes with the first of several in the low bits, a scale and a
    zero point (half of the range without one) for each `block_size` along K."""
    if bits not in (2, 4, 8) or places is not None or weight_prepacked:
        raise Unsupported("MatMulNBits of 2, 4 or 8 bits in plain order is supported")
    blocks = math.ceil(K / block_size)
    letters = "abcdefgh"[: x.rank - 1]
    codes = _codes(y, (N, blocks * block_size), bits)
    points = _constant_zeros(zeros, (N, blocks), bits)
    if codes is not None and points is not None:
        factors = None if scales.array is None else scales.array.reshape(N, blocks)
        spread = b.reshape(scales, (N, blocks)) if factors is None else b.of_array(factors, scales.name)
        parameters = (b.of_array(codes, y.name), b.cast(spread, x.dtype), b.of_array(points, "zeros"))
        weights = b.narrow(b.op("dequantize", *parameters, axis=1, block=block_size), 1, 0, K)
        result = b.contract(f"{letters}k,nk->{letters}n", x, weights)
        return result if bias is None else result + bias
    whole = _unpacked(b, b.reshape(y, (N, blocks, block_size * bits // 8)), bits)
    if zeros is None:
        centred = b.cast(whole, x.dtype) - float(1 << (bits - 1))
    else:
        held = math.ceil(blocks * bits / 8)
        packed = zeros.dtype is dtypes.u8
        offset = _unpacked(b, b.reshape(zeros, (N, held)), bits) if packed else b.reshape(zeros, (N, blocks))
        centred = b.cast(whole, x.dtype) - b.unsqueeze(b.cast(b.narrow(offset, 1, 0, blocks), x.dtype), [2])
    spread = b.reshape(b.cast(scales, x.dtype), (N, blocks, 1))
    weights = b.narrow(b.reshape(centred * spread, (N, blocks * block_size)), 1, 0, K)
    letters = "abcdefgh"[: x.rank - 1]
    result = b.contract(f"{letters}k,nk->{letters}n", x, weights)
    return result if bias is None else result + bias


def _codes(packed: Tensor, shape: tuple[int, int], bits: int) -> Array | None:
    """The numbers in the bytes of a constant, of the narrow type of so many bits; None where it is none."""
    if packed.array is None or packed.dtype is not dtypes.u8:
        return None
    raw = packed.array.reshape(shape[0], -1)
    codes = np.stack([raw >> place & ((1 << bits) - 1) for place in range(0, 8, bits)], -1).reshape(shape[0], -1)
    return np.ascontiguousarray(codes[:, : shape[1]]).view(_UNSIGNED[bits].numpy)


def _constant_zeros(zeros: Tensor | None, shape: tuple[int, int], bits: int) -> Array | None:
    """The zero points as numbers of the narrow type of so many bits; None where they are no packed constants."""
    if zeros is None:
        return np.full(shape, 1 << (bits - 1), _UNSIGNED[bits].numpy)
    return _codes(zeros, shape, bits)


_UNSIGNED = {2: dtypes.u2, 4: dtypes.u4, 8: dtypes.u8}


def _unpacked(b: Emit, x: Tensor, bits: int) -> Tensor:
    """The numbers in bytes along the last dimension, the first in the low bits."""
    if bits == 8:
        return x
    parts = [b.map("bit_and", b.map("shr", x, n), (1 << bits) - 1) for n in range(0, 8, bits)]
    stacked = b.concat([b.unsqueeze(part, [x.rank]) for part in parts], x.rank)
    return b.reshape(stacked, (*x.shape[:-1], x.shape[-1] * len(parts)))
