"""Quantized tensors: conversions, and products and convolutions of integers. Sums of products are kept in i32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.products import matrix_product
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.build.windows import convolve
from tilewright.frontends.onnx.operators.convolution import window_of, windows
from tilewright.frontends.onnx.operators.elementwise import dtype_of
from tilewright.frontends.onnx.operators.narrow import converted
from tilewright.frontends.onnx.registry import MICROSOFT, Ints, handles


def saturated(b: Emit, x: Tensor, zero: Tensor | None, dtype: DType) -> Tensor:
    """round(x) + zero, clipped to the range of an integer type; ties round to even."""
    whole = b.map("round", x)
    if zero is not None:
        whole = whole + b.cast(zero, x.dtype)
    low, high = float(dtype.min), float(dtype.max)
    return b.cast(b.map("min", b.map("max", whole, low), high), dtype)


def laid_out(b: Emit, parameter: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point beside the tensor it is for: one for all, one for each place of the axis, or one for each
    block of `block` elements along it."""
    if block:
        along = b.axis(axis, x.rank)
        split = b.unsqueeze(parameter, [along + 1])
        wide = b.broadcast(split, [*split.shape[: along + 1], block, *split.shape[along + 2 :]])
        merged = b.reshape(
            wide, [*parameter.shape[:along], parameter.shape[along] * block, *parameter.shape[along + 1 :]]
        )
        b.require_equal(merged.shape[along], x.shape[along], "blocks of scales cover {0} elements of {1}")
        return merged
    count = parameter.static_shape()
    if parameter.rank == 0 or count == (1,):
        return b.reshape(parameter, ())
    if parameter.rank != 1:
        raise b.error(
            f"the scale has {parameter.rank} dimensions; it must be a number or one for each place of an axis"
        )
    return b.align(parameter, b.axis(axis, x.rank), x.rank)


@handles("QuantizeLinear")
def quantize_linear(
    b: Emit,
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    """round(x / scale) + zero, clipped to the type of the zero point (u8 without one); as a float x / scale + zero."""
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype) if output_dtype else dtypes.u8
    if not dtype.is_int and dtype.code is None:
        raise Unsupported(f"quantized elements of type {dtype} are not supported")
    wide = dtype_of(precision) if precision else _arithmetic(scale.dtype, x.dtype)
    spread = b.cast(laid_out(b, scale, x, axis, block_size), wide)
    offset = None if zero is None else laid_out(b, zero, x, axis, block_size)
    quotient = b.cast(x, wide) / spread
    if dtype.is_int:
        return saturated(b, quotient, offset, dtype)
    return converted(b, quotient if offset is None else quotient + b.cast(offset, wide), dtype, bool(saturate))


def _arithmetic(scale: DType, other: DType) -> DType:
    """The type that scales are multiplied and divided in: their own, or where that is narrow another one's."""
    if scale.code is None:
        return scale
    return other if other.kind == "f" else dtypes.f32


@handles("DequantizeLinear")
def dequantize_linear(
    b: Emit,
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    """(x - zero) * scale"""
    out = dtype_of(output_dtype) if output_dtype else scale.dtype
    wide = _arithmetic(scale.dtype, out)
    if block_size and x.dtype.is_int:
        parameters = [b.cast(scale, wide), *([] if zero is None else [zero])]
        return converted(b, b.op("dequantize", x, *parameters, axis=b.axis(axis, x.rank), block=block_size), out)
    exact = dtypes.f32 if x.dtype.is_float else dtypes.i32
    number = b.cast(x, exact)
    if zero is not None:
        number = number - b.cast(laid_out(b, zero, x, axis, block_size), exact)
    result = b.cast(number, wide) * b.cast(laid_out(b, scale, x, axis, block_size), wide)
    return converted(b, result, out)


@handles("DynamicQuantizeLinear")
def dynamic_quantize_linear(b: Emit, x: Tensor) -> tuple[Tensor, ...]:
    """u8 over the range of x and zero: the quantized tensor, its scale and its zero point."""
    axes = list(range(x.rank))
    high = b.map("max", b.reduce("max", x, axes), 0)
    low = b.map("min", b.reduce("min", x, axes), 0)
    scale = (high - low) / 255
    safe = b.select(b.map("eq", scale, 0), b.scalar(1, x.dtype), scale)
    zero = b.cast(b.map("round", b.map("min", b.map("max", -(low / safe), 0), 255)), dtypes.u8)
    return saturated(b, x / safe, zero, dtypes.u8), scale, zero


def _centred(b: Emit, x: Tensor, zero: Tensor | None) -> Tensor:
    """x - zero in the narrowest integers that have room for it, to be converted by the contraction."""
    if zero is None or _is_zero(zero):
        return x
    if x.array is not None and zero.array is not None:
        numbers = x.array.astype(np.int32) - zero.array.astype(np.int32)
        low, high = numbers.min(initial=0), numbers.max(initial=0)
        kept = next(d for d in (dtypes.i8, dtypes.u8, dtypes.i16, dtypes.i32) if d.min <= low and high <= d.max)
        return b.of_array(numbers.astype(kept.numpy), x.name)
    wide = dtypes.i16 if x.dtype.bits == 8 else dtypes.i32
    return b.cast(x, wide) - b.cast(zero, wide)


def _is_zero(x: Tensor) -> bool:
    return x.array is not None and not x.array.any()


def _row_scale(b: Emit, parameter: Tensor | None, x: Tensor, along: int) -> Tensor | None:
    """A parameter of a matrix: one number, or one for each row (column) of x. A constant stays one that is known here:
    what is done about a zero point depends on whether it is 0."""
    if parameter is None or parameter.rank != 1:
        return parameter
    if parameter.shape == (Const(1, dtypes.index),):
        return b.reshape(parameter, ())
    if parameter.array is not None and x.rank >= 2:
        behind = (1,) * (-1 - along)
        return b.of_array(parameter.array.reshape(-1, *behind), parameter.name)
    return b.align(parameter, x.rank + along, x.rank)


@handles("MatMulInteger")
def matmul_integer(b: Emit, x: Tensor, y: Tensor, x_zero: Tensor | None = None, y_zero: Tensor | None = None) -> Tensor:
    """(x - x_zero) @ (y - y_zero); where y is constant x @ (y - y_zero) - x_zero * the sums of its columns."""
    zero, right = _row_scale(b, x_zero, x, -2), _centred(b, y, _row_scale(b, y_zero, y, -1))
    if zero is None or _is_zero(zero) or right.array is None or x.rank < 2 or y.rank < 2:
        return matrix_product(b, _centred(b, x, zero), right, dtypes.i32)
    return _product_beside(b, x, zero, right, _column_sums(b, right))


def _column_sums(b: Emit, y: Tensor) -> Tensor:
    return b.reduce("sum", b.cast(y, dtypes.i32), [y.rank - 2], keepdims=True)


def _product_beside(b: Emit, x: Tensor, zero: Tensor, y: Tensor, sums: Tensor) -> Tensor:
    """(x - zero) @ y in i32, by the sums of the columns of y."""
    return matrix_product(b, x, y, dtypes.i32) - b.cast(zero, dtypes.i32) * sums


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """A constant matrix (y - its zero point) * scale, for products with tensors that are quantized when they come: the
    integers y - zero, the sums of their columns, and the scale, a number or one for each column."""

    whole: Tensor
    sums: Tensor
    scale: Tensor

    @staticmethod
    def of(b: Emit, y: Tensor, scale: Tensor, zero: Tensor | None) -> QuantizedMatrix:
        """From the matrix [K, N], its scale and its zero point, each a number or [N]."""
        whole = _centred(b, y, _row_scale(b, zero, y, -1))
        spread = _row_scale(b, scale, y, -1)
        assert spread is not None
        return QuantizedMatrix(whole, _column_sums(b, whole), spread)

    def inside(self, seen: Callable[[Tensor], Tensor]) -> QuantizedMatrix:
        """The matrix where `seen` says how its tensors are seen there: in the steps of a loop."""
        return QuantizedMatrix(seen(self.whole), seen(self.sums), seen(self.scale))

    def after(self, b: Emit, x: Tensor) -> Tensor:
        """x @ matrix in f32, x quantized to u8 over the range of all its elements."""
        quantized, scale, zero = dynamic_quantize_linear(b, x)
        return self.product(b, quantized, scale, zero)

    def product(self, b: Emit, x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
        """((x - zero) * scale) @ matrix in f32."""
        return b.cast(_product_beside(b, x, zero, self.whole, self.sums), dtypes.f32) * (scale * self.scale)


@handles("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    b: Emit, x: Tensor, y: Tensor, y_scale: Tensor, y_zero: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """x @ ((y - y_zero) * y_scale) + bias, x quantized to u8 over the range of all its elements."""
    quantized, scale, zero = dynamic_quantize_linear(b, x)
    return matmul_integer_to_float(b, quantized, y, scale, y_scale, zero, y_zero, bias)


@handles("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    b: Emit,
    x: Tensor,
    y: Tensor,
    x_scale: Tensor,
    y_scale: Tensor,
    x_zero: Tensor | None = None,
    y_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """((x - x_zero) * x_scale) @ ((y - y_zero) * y_scale) + bias, from a product of integers."""
    left, right = _row_scale(b, x_scale, x, -2), _row_scale(b, y_scale, y, -1)
    assert left is not None
    assert right is not None
    total = b.cast(matmul_integer(b, x, y, x_zero, y_zero), left.dtype) * (left * right)
    return total if bias is None else total + bias


@handles("QLinearMatMul")
def qlinear_matmul(
    b: Emit,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    out_scale: Tensor,
    out_zero: Tensor,
) -> Tensor:
    total = matmul_integer(b, x, y, x_zero, y_zero)
    left, right = _row_scale(b, x_scale, x, -2), _row_scale(b, y_scale, y, -1)
    assert left is not None
    assert right is not None
    scale = b.cast(left, dtypes.f32) * b.cast(right, dtypes.f32) / b.cast(b.reshape(out_scale, ()), dtypes.f32)
    return saturated(b, b.cast(total, dtypes.f32) * scale, b.reshape(out_zero, ()), out_zero.dtype)


@handles("ConvInteger")
def conv_integer(
    b: Emit,
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """The convolution of x - x_zero with w - w_zero; padding adds zeros after the subtraction."""
    kernel = window_of(b, x, w, kernel_shape, group)
    view = windows(b, x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    centre = w_zero if w_zero is None or w_zero.rank == 0 else laid_out(b, w_zero, w, 0, 0)
    source = _centred(b, x, None if x_zero is None else b.reshape(x_zero, ()))
    return convolve(b, source, _centred(b, w, centre), view, group, dtypes.i32)


@handles("QLinearConv")
def qlinear_conv(
    b: Emit,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    out_scale: Tensor,
    out_zero: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    total = conv_integer(
        b,
        x,
        w,
        x_zero,
        w_zero,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    if bias is not None:
        total = total + b.align(bias, 1, total.rank)
    scale = b.reshape(x_scale, ()) * laid_out(b, w_scale, total, 1, 0) / b.reshape(out_scale, ())
    return saturated(b, b.cast(total, dtypes.f32) * scale, b.reshape(out_zero, ()), out_zero.dtype)
