"""Fourier transforms, and Col2Im. Complex numbers are pairs in the last
dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.expr import dtypes
from tilewright.expr.build import equal, less, less_equal, select
from tilewright.expr.nodes import Expr, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.composed import product
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.fourier import transform
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators.elementwise import dtype_of
from tilewright.frontends.onnx.operators.permute import permuted
from tilewright.frontends.onnx.registry import Ints, handles
from tilewright.graph.op import LARGEST
from tilewright.ops.scatter import Reduction


@handles("DFT", until=19)
def dft_by_attribute(
    b: Emit, x: Tensor, length: Tensor | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    return _dft_along(b, x, length, b.axis(axis, x.rank), inverse, onesided)


@handles("DFT", since=20)
def dft(
    b: Emit, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None, *, inverse: int = 0, onesided: int = 0
) -> Tensor:
    known = [-2] if axis is None else b.integers(axis, "the axis")
    if known is not None:
        return _dft_along(b, x, length, b.axis(known[0], x.rank), inverse, onesided)
    assert axis is not None
    chosen = b.size(axis, "the axis of DFT", -x.rank, x.rank - 2)
    chosen = select(less(chosen, 0), chosen + x.rank, chosen)
    last = x.rank - 2
    away = [select(equal(chosen, d), last, select(less(chosen, d), d - 1, d)) for d in range(last + 1)]
    back = [select(less_equal(chosen, d), d + 1, d) for d in range(last)] + [chosen]
    moved = permuted(b, x, [*away, const(x.rank - 1)])
    result = transform(b, moved, _length(b, length), bool(inverse), bool(onesided))
    return permuted(b, result, [*back, const(x.rank - 1)])


def _length(b: Emit, length: Tensor | None) -> Expr | None:
    return None if length is None else b.size(length, "the length of a Fourier transform", 1, LARGEST)


def _dft_along(b: Emit, x: Tensor, length: Tensor | None, axis: int, inverse: int, onesided: int) -> Tensor:
    if axis == x.rank - 1:
        raise b.error("a Fourier transform along the last dimension, which holds real and imaginary parts")
    order = [d for d in range(x.rank - 1) if d != axis]
    order += [axis, x.rank - 1]
    result = transform(b, b.transpose(x, order), _length(b, length), bool(inverse), bool(onesided))
    return b.transpose(result, [order.index(d) for d in range(x.rank)])


@handles("STFT")
def stft(
    b: Emit,
    x: Tensor,
    step: Tensor,
    window: Tensor | None = None,
    length: Tensor | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    """The transform of each frame of a signal [batch, n, 1 or 2], one every `step` elements: [batch, frame, k, 2]."""
    if x.rank != 3:
        raise b.error(f"the signal has {x.rank} dimensions, not 3")
    hop = b.size(step, "the step of STFT", 1, LARGEST)
    size = window.shape[0] if window is not None else _length(b, length) if length is not None else x.shape[1]
    assert size is not None
    b.require_at_most(size, x.shape[1], "a frame of {0} elements is longer than the signal of {1}")
    frames = simplify((x.shape[1] - size) // hop + 1)
    place = b.align(b.iota((frames,), 0) * b.of_size(hop), 0, 2) + b.align(b.iota((size,), 0), 1, 2)
    framed = b.take(x, place, 1)
    if window is not None:
        framed = framed * b.align(window, 2, 4)
    return transform(b, framed, None, False, bool(onesided))


@handles("MelWeightMatrix")
def mel_weight_matrix(
    b: Emit, bins: Tensor, length: Tensor, rate: Tensor, lower: Tensor, upper: Tensor, *, output_datatype: int = 1
) -> Tensor:
    """Weights [place in the spectrum, band] of triangles that overlap, equally wide on the mel scale
    2595*log10(1 + f/700) between the two frequencies; their corners are places of the spectrum."""
    count = b.size(bins, "the number of bands of MelWeightMatrix", 1, LARGEST)
    whole = b.size(length, "the length of MelWeightMatrix", 1, LARGEST)
    low, high = (_mel(b, b.cast(b.reshape(f, ()), dtypes.f64)) for f in (lower, upper))
    step = (high - low) / b.of_size(count + 2, dtypes.f64)
    mel = b.iota((simplify(count + 2),), 0, dtypes.f64) * step + low
    hertz = (b.map("pow", b.scalar(10, dtypes.f64), mel / 2595) - 1) * 700
    corner = b.map("floor", hertz * b.of_size(whole + 1, dtypes.f64) / b.cast(b.reshape(rate, ()), dtypes.f64))
    first, middle, last = (b.align(b.narrow(corner, 0, n, count), 1, 2) for n in range(3))
    place = b.align(b.iota((simplify(whole // 2 + 1),), 0, dtypes.f64), 0, 2)
    rise, fall = middle - first, last - middle
    rising = b.map("and", b.map("le", first, place), b.map("le", place, middle))
    falling = b.map("and", b.map("le", middle, place), b.map("lt", place, last))
    up = b.select(b.map("eq", rise, 0), b.scalar(1, dtypes.f64), (place - first) / b.map("max", rise, 1))
    down = (last - place) / b.map("max", fall, 1)
    zero = b.scalar(0, dtypes.f64)
    return b.cast(b.select(falling, down, b.select(rising, up, zero)), dtype_of(output_datatype))


def _mel(b: Emit, frequency: Tensor) -> Tensor:
    return b.map("log1p", frequency / 700) * (2595 / math.log(10))


@handles("Col2Im")
def col2im(
    b: Emit,
    x: Tensor,
    image: Tensor,
    block: Tensor,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """The sum of all blocks at their places in the image; elements in the padding are dropped."""
    extents = b.sizes(image, "the image shape of Col2Im", 0, LARGEST)
    kernel = b.sizes(block, "the block shape of Col2Im", 1, LARGEST)
    n = len(extents)
    if len(kernel) != n or x.rank != 3:
        raise b.error("Col2Im takes [batch, channels * block, blocks], and as many block as image dimensions")
    dilation = b.entries("dilations", dilations or (1,) * n, n, 1)
    step = b.entries("strides", strides or (1,) * n, n, 1)
    around = b.entries("pads", pads or (0,) * (2 * n), 2 * n, 0)
    channels = simplify(x.shape[1] // product(kernel))
    wide = [e + around[d] + around[d + n] for d, e in enumerate(extents)]
    rows = zip(wide, kernel, dilation, step, strict=True)
    blocks = [simplify((w - ((k - 1) * d + 1)) // s + 1) for w, k, d, s in rows]
    index = _block_places(b, wide, kernel, blocks, dilation, step)
    count = simplify(product(kernel) * product(blocks))
    flat = b.reshape(index, (1, 1, count))
    updates = b.reshape(x, (x.shape[0], channels, count))
    canvas = b.full((x.shape[0], channels, product(wide)), 0, x.dtype)
    places = b.broadcast(flat, (x.shape[0], channels, count))
    summed = b.op("scatter_elements", canvas, places, updates, axis=2, reduction=Reduction.ADD)
    whole = b.reshape(summed, (x.shape[0], channels, *wide))
    return b.slice(whole, [0, 0, *around[:n]], [x.shape[0], channels, *extents])


def _block_places(
    b: Emit, wide: Sequence[Expr], kernel: Sequence[Expr], blocks: Sequence[Expr], dilation: Ints, step: Ints
) -> Tensor:
    """For each place in a block and each block the index in the flattened, padded image."""
    n = len(wide)
    index: Tensor | None = None
    for d in range(n):
        stride = b.of_size(product(wide[d + 1 :]))
        inner = b.align(b.iota((kernel[d],), 0) * dilation[d] * stride, d, 2 * n)
        outer = b.align(b.iota((blocks[d],), 0) * step[d] * stride, n + d, 2 * n)
        index = inner + outer if index is None else index + inner + outer
    if index is None:
        raise Unsupported("Col2Im without spatial dimensions")
    return index
