"""The first versions of operators whose attributes or inputs later versions changed.

    Pad(x, paddings=[1, 1])      as Pad(x, pads=[1, 1])
    Tile(x, tiles, axis)         along one axis, where later ones have repeats for each

What `registry.HINTS` lists is dropped before: it says nothing of what is computed.
"""

from __future__ import annotations

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.nodes import const
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators.activation import selu
from tilewright.frontends.onnx.operators.elementwise import cast
from tilewright.frontends.onnx.operators.movement import concat, pad_by_attributes, split_by_attribute, split_into, tile
from tilewright.frontends.onnx.operators.pooling import global_lp_norm, lp_norm
from tilewright.frontends.onnx.operators.resize import upsample_by_attribute
from tilewright.frontends.onnx.registry import Floats, Ints, handles
from tilewright.graph.op import LARGEST


@handles("Cast", until=5)
def cast_by_name(b: Emit, x: Tensor, *, to: str) -> Tensor:
    """The element type is the name of one of TensorProto.DataType."""
    from onnx import TensorProto

    number = dict(TensorProto.DataType.items()).get(to)
    if number is None:
        raise Unsupported(f"the element type {to!r} is not supported")
    return cast(b, x, to=number)


@handles("Concat", until=3)
def concat_channels(b: Emit, first: Tensor, *rest: Tensor, axis: int = 1) -> Tensor:
    """The axis may be left out."""
    return concat(b, first, *rest, axis=axis)


@handles("Split", until=1)
def split_by_input(
    b: Emit, x: Tensor, sizes: Tensor | None = None, *, axis: int = 0, split: Ints | None = None
) -> tuple[Tensor, ...]:
    """The sizes are an attribute, or an input of the element type of what is split."""
    if sizes is None:
        return split_by_attribute(b, x, axis=axis, split=split)
    whole = b.sizes(b.cast(sizes, dtypes.i64), "the sizes of Split", 0, LARGEST)
    return split_into(b, x, b.axis(axis, x.rank), whole)


@handles("Pad", until=1)
def pad_by_paddings(b: Emit, x: Tensor, *, paddings: Ints, mode: str = "constant", value: float = 0.0) -> Tensor:
    """The attribute has another name."""
    return pad_by_attributes(b, x, pads=paddings, mode=mode, value=value)


@handles("Tile", until=5)
def tile_axis(b: Emit, x: Tensor, tiles: Tensor, axis: Tensor) -> Tensor:
    """Copies along one axis; both numbers are tensors of one element, of any type."""
    (count,), (along,) = (
        b.sizes(b.reshape(b.cast(t, dtypes.i64), (1,)), what, low, LARGEST)
        for t, what, low in ((tiles, "the tiles of Tile", 0), (axis, "the axis of Tile", -x.rank))
    )
    number = getattr(along, "value", None)
    if number is None:
        raise Unsupported("the axis comes from data of the call")
    place = b.axis(int(number), x.rank)
    return tile(b, x, b.of_sizes([count if n == place else const(1) for n in range(x.rank)]))


@handles("LpPool", until=1)
def lp_pool_by_real(
    b: Emit,
    x: Tensor,
    *,
    kernel_shape: Ints | None = None,
    auto_pad: str = "NOTSET",
    p: float = 2.0,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """The exponent is any real number."""
    if kernel_shape is None:
        raise b.error("LpPool needs the attribute 'kernel_shape'")
    return lp_norm(b, x, p, kernel_shape, strides, None, pads, auto_pad, 0)


@handles("GlobalLpPool", until=1)
def global_lp_pool_by_real(b: Emit, x: Tensor, *, p: float = 2.0) -> Tensor:
    """The exponent is any real number."""
    return global_lp_norm(b, x, p)


@handles("Selu", until=5)
def selu_rounded(b: Emit, x: Tensor, *, alpha: float = 1.6732, gamma: float = 1.0507) -> Tensor:
    """The constants have fewer digits."""
    return selu(b, x, alpha=alpha, gamma=gamma)


@handles("Upsample", until=6)
def upsample_image(b: Emit, x: Tensor, *, height_scale: float, width_scale: float, mode: str = "nearest") -> Tensor:
    """The scales are those of height and width."""
    if x.rank != 4:
        raise b.error(f"Upsample takes images of 4 dimensions, not {x.rank}")
    scales: Floats = tuple(float(np.float32(s)) for s in (1.0, 1.0, height_scale, width_scale))
    return upsample_by_attribute(b, x, scales=scales, mode="linear" if mode == "bilinear" else mode)
