"""The transforms of Winograd's convolution by windows of 3x3: tiles of the image to products and back.

    v: f32[1, 36, 64, 196] = winograd_input(x: f32[1, 64, 56, 56], size=4, shape=(56, 56), low=(1, 1))
    m: f32[1, 196, 36, 32] = contract(v, u, spec="n x c t, x c o -> n t x o")     u: transform_filter(w, 4)
    y: f32[1, 32, 56, 56]  = winograd_output(m, size=4, shape=(56, 56))

A tile of S x S outputs is Aᵀ[(G w Gᵀ) ⊙ (Bᵀ d B)]A of the (S+2) x (S+2) inputs d around it, with the matrices for S = 2
and S = 4 of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015). Tiles are numbered row by row,
the products of a tile as well. Products have the channels last: there are often more of them than tiles, so that they
fill whole vectors, and filters are read as panels of them. Those of a tile lie together, since it is transformed by
itself: planes with one product of each tile would often begin whole pages apart, in the same sets of a cache.

At stride 2, the outer elements of the kernel meet the even inputs and the middle one meets the odd inputs. The even
inputs and a kernel of two make two outputs by 3 products; with the odd ones, 5 products replace 6 along each dimension,
25 replace 36 (S = 2).

    v: bf16[1, 16, 32, 784, 2] = winograd_input(x, size=2, shape=(56, 56), low=(1, 1), depth=2, dtype=bf16)
    m: f32[1, 784, 16, 32] = contract(v, u, spec="n x c t p, x c p o -> n t x o", dtype=f32)

Factors of products may be rounded; then `depth` channels of a tile may be contiguous, as dot-product instructions of
bf16 read them.

    v: f32[n, 36, (h + 3) // 4 * ((w + 3) // 4), 64] = winograd_input(x: f32[n, h, w, 64], size=4, shape=(h, w),
                                                                      low=(1, 1), last=true)
    m: f32[n, 36, (h + 3) // 4 * ((w + 3) // 4), 32] = contract(v, u, spec="n x t c, x c o -> n x t o")
    y: f32[n, h, w, 32] = winograd_output(m, size=4, shape=(h, w), last=true)

With channels `last`, in images and in what is made of them, any number of tiles fills whole vectors. So height and
width may be dynamic; then the result has a place for each of the image, or for every second one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.expr.build import cast, less, less_equal, maximum, minimum, one_of, select
from tilewright.expr.dtypes import DType, bf16, f32, f64
from tilewright.expr.nodes import And, Expr, const
from tilewright.expr.simplify import simplify
from tilewright.graph.op import Arrays, Attributes, Op, Pattern, TypeContext, register
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer
from tilewright.ops.checks import check_count, check_rank, number
from tilewright.ops.movement import sizes
from tilewright.types.tensor import TensorType

Types = tuple[TensorType, ...]
Array = np.ndarray[Any, Any]
Terms = Sequence[Expr]

WINDOW = 3
"""The size of the kernel along each dimension."""

INPUT = {
    (2, 1): ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    (4, 1): (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    (2, 2): ((1, 0, -1, 0, 0), (0, 0, 1, 0, 0), (0, 0, -1, 0, 1), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0)),
}
"""Bᵀ for tiles of each size and stride."""

OUTPUT = {
    (2, 1): ((1, 1, 1, 0), (0, 1, -1, -1)),
    (4, 1): ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    (2, 2): ((1, 1, 0, 1, 0), (0, 1, 1, 0, 1)),
}
"""Aᵀ for tiles of each size and stride."""

FILTER = {
    (2, 1): ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    (4, 1): (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
    (2, 2): ((1, 0, 0), (1, 0, 1), (0, 0, 1), (0, 1, 0), (0, 1, 0)),
}
"""G for tiles of each size and stride."""


AT_ONCE = 1 << 18
"""The most multiply-adds of filters that are transformed at once: the result stays in the caches, and BLAS libraries
wake no threads for so few."""

F64 = np.dtype(np.float64)


def edge_of(size: int, stride: int) -> int:
    """The rows of inputs that a tile reads, which are as many as its products along a dimension."""
    return (size - 1) * stride + WINDOW


def transform_filter(w: Array, size: int, stride: int = 1, dtype: np.dtype[Any] = F64) -> Array:
    """G w Gᵀ of filters w: [o, c, 3, 3] as [edge^2, c, o], computed in f64 and rounded to `dtype`."""
    u = np.empty((edge_of(size, stride) ** 2, w.shape[1], w.shape[0]), dtype)
    for channels, part in transformed_parts(w, size, stride):
        u[:, channels] = part
    return u


def transformed_parts(w: Array, size: int, stride: int) -> Iterator[tuple[slice, Array]]:
    """`transform_filter` in f64, for a few input channels after the other."""
    outputs, inputs = w.shape[:2]
    g = np.array(FILTER[size, stride])
    gg = np.kron(g, g)
    count = max(AT_ONCE // (gg.size * max(outputs, 1)), 1)
    for first in range(0, inputs, count):
        part = w[:, first : first + count].reshape(outputs, -1, WINDOW * WINDOW)
        columns = np.ascontiguousarray(part.transpose(2, 1, 0), np.float64).reshape(WINDOW * WINDOW, -1)
        yield slice(first, first + part.shape[1]), (gg @ columns).reshape(len(gg), -1, outputs)


def input_terms(size: int, stride: int, d: Terms) -> list[Expr]:
    """Bᵀ d of one column of a tile. Sums that are used twice are written once, products stand in sums."""
    if stride == 2:
        return [d[0] - d[2], d[2], d[4] - d[2], d[1], d[3]]
    if size == 2:
        return [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]]
    even, odd = d[4] + d[2] * -4.0, d[3] + d[1] * -4.0
    far, near = d[4] - d[2], d[3] - d[1]
    first, last = (d[4] + d[2] * -5.0) + d[0] * 4.0, (d[5] + d[3] * -5.0) + d[1] * 4.0
    return [first, even + odd, even - odd, far + near * 2.0, far + near * -2.0, last]


def output_terms(size: int, stride: int, m: Terms) -> list[Expr]:
    """Aᵀ m of one column of products."""
    if stride == 2:
        return [m[0] + m[1] + m[3], m[1] + m[2] + m[4]]
    total, difference = m[1] + m[2], m[1] - m[2]
    if size == 2:
        return [m[0] + total, difference - m[3]]
    far, odd = m[3] + m[4], m[3] - m[4]
    return [m[0] + total + far, difference + odd * 2.0, total + far * 4.0, (difference + m[5]) + odd * 8.0]


class InputAttributes(Attributes):
    """`size`: 2 or 4, the rows and columns of outputs of a tile; `shape`: height and width of the outputs, which the
    last tiles may exceed; `low`: the rows and columns of zeros before the input. Behind it there are as many as the
    tiles need. `stride`: 1, or 2 for tiles of size 2: by how much the windows move from one output to the next.
    `depth`: the contiguous channels of a tile; `dtype`: bf16, to which elements are rounded to nearest even, or the
    input's. `last`: channels are the last dimension of the image and of what is made of it."""

    size: int
    shape: tuple[Expr, Expr]
    low: tuple[int, int]
    stride: int = 1
    depth: int = 1
    dtype: DType | None = None
    last: bool = False


class OutputAttributes(Attributes):
    """`size`, `shape`, `stride` and `last` as of the input."""

    size: int
    shape: tuple[Expr, Expr]
    stride: int = 1
    last: bool = False


Attributed = InputAttributes | OutputAttributes


def tiles_of(attrs: Attributed) -> tuple[Expr, Expr]:
    """The tiles along height and width."""
    rows, columns = (simplify((extent + (attrs.size - 1)) // attrs.size) for extent in attrs.shape)
    return rows, columns


def kept(extent: Expr, stride: int) -> Expr:
    """The places of a result that has one for each of an extent, or for every second one."""
    return simplify((extent + (stride - 1)) // stride)


def _check(context: TypeContext, inputs: Types, attrs: Attributed, name: str) -> TensorType:
    """The only input, a tensor of four dimensions; the attributes say what tiles there are."""
    check_count(context, inputs, 1)
    (x,) = inputs
    if x.dtype not in (f32, f64):
        raise context.error(f"{context.op} takes f32 or f64, not {x}", "cast the input: cast(dtype=f32)")
    check_rank(context, x, 4, name)
    if (attrs.size, 1) not in INPUT:
        raise context.error(f"there are no tiles of size {attrs.size}", "take size=2 or size=4")
    if (attrs.size, attrs.stride) not in INPUT:
        why = f"there are no tiles of size {attrs.size} of stride {attrs.stride}"
        raise context.error(why, "take stride=1, or stride=2 and size=2")
    known = [number(extent) for extent in attrs.shape]
    if not attrs.last and None in known:
        raise context.error("height and width of the outputs are no numbers", "take last=true, channels last")
    if any(extent is not None and extent < 1 for extent in known):
        raise context.error(f"the shape ({attrs.shape[0]}, {attrs.shape[1]}) has an entry below 1")
    return x


class WinogradInput(Op):
    """v[n, p*edge + q, c, i*columns + j] = (Bᵀ d B)[p, q] of the inputs d of channel c that tile i, j reads:
    x[n, c, i*size*stride - low + a, j*size*stride - low + b] for a, b in 0..edge, the (size - 1)*stride + 3 rows of
    inputs of a tile, zero where x has no such element. With a depth D from 2, v[n, …, c // D, …, c % D]. With channels
    last, v[n, p*edge + q, i*columns + j, c] of x[n, …, …, c]."""

    name = "winograd_input"
    transforms = True
    known_by_axes = True
    rereads = True
    attributes = InputAttributes
    pattern = Pattern.REDUCE

    def infer(self, context: TypeContext, inputs: Types, attrs: InputAttributes) -> Types:
        x = _check(context, inputs, attrs, "an image")
        if min(attrs.low) < 0:
            raise context.error(f"low {attrs.low} has an entry below 0")
        n, (c, height, width) = x.shape[0], (x.shape[3], *x.shape[1:3]) if attrs.last else x.shape[1:]
        for extent, made in zip((height, width), attrs.shape, strict=True):
            why = f"height and width of {x} are no numbers from 1"
            if number(extent) == 0:
                raise context.error(why)
            if number(extent) is None and not (attrs.last and kept(extent, attrs.stride) is made):
                raise context.error(why, "with last=true, dynamic ones over the stride may be those of the shape")
        if attrs.dtype not in (None, x.dtype, bf16):
            raise context.error(f"elements of {x} are not rounded to {attrs.dtype}", "take dtype=bf16")
        channels = number(c)
        if attrs.depth > 1 and attrs.last:
            raise context.error(f"channels that are last have no depth {attrs.depth}", "take depth=1")
        if attrs.depth < 1 or (attrs.depth > 1 and (channels is None or channels % attrs.depth)):
            why = f"the channels of {x} are not known to be a multiple of depth {attrs.depth}"
            raise context.error(why, "take depth=1, or another divisor of them")
        rows, columns = tiles_of(attrs)
        tiles, shape = simplify(rows * columns), [c]
        if channels is not None and attrs.depth > 1:
            shape = [const(channels // attrs.depth), const(attrs.depth)]
        shape.insert(0 if attrs.last else 1, tiles)
        return (TensorType.of(attrs.dtype or x.dtype, (n, edge_of(attrs.size, attrs.stride) ** 2, *shape)),)

    def meaning(self, inputs: Arrays, attrs: InputAttributes) -> Arrays:
        x, step = inputs[0].transpose(0, 3, 1, 2) if attrs.last else inputs[0], attrs.size * attrs.stride
        rows, columns = sizes(tiles_of(attrs))
        edge = edge_of(attrs.size, attrs.stride)
        padded = np.zeros((*x.shape[:2], rows * step + edge - step, columns * step + edge - step), x.dtype)
        height, width = (max(e - low, 0) for e, low in zip(padded.shape[2:], attrs.low, strict=True))
        part = x[:, :, :height, :width]
        at = [slice(low, low + extent) for low, extent in zip(attrs.low, part.shape[2:], strict=True)]
        padded[:, :, at[0], at[1]] = part
        if 0 in (rows, columns):
            windows = np.zeros((*x.shape[:2], rows, columns, edge, edge), x.dtype)
        else:
            windows = np.lib.stride_tricks.sliding_window_view(padded, (edge, edge), axis=(2, 3))
            windows = windows[:, :, ::step, ::step]
        b = np.array(INPUT[attrs.size, attrs.stride], x.dtype)
        v = np.matmul(np.matmul(b, windows), b.T)
        v = v.transpose(0, 4, 5, 1, 2, 3).reshape(x.shape[0], edge * edge, x.shape[1], rows * columns)
        if attrs.last:
            v = v.swapaxes(2, 3)
        if attrs.depth > 1:
            v = v.reshape(*v.shape[:2], x.shape[1] // attrs.depth, attrs.depth, rows * columns).swapaxes(3, 4)
        return (np.ascontiguousarray(v, None if attrs.dtype is None else attrs.dtype.numpy),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (x,), (v,) = inputs, outputs
        size, stride, (rows, columns) = attrs.size, attrs.stride, tiles_of(attrs)
        edge, step, last, depth = edge_of(size, stride), size * stride, attrs.last, attrs.depth

        def laid(n: Expr, c: Expr, *at: Expr) -> tuple[Expr, ...]:
            """Indices of an image, or its sizes, in the order of memory."""
            return (n, *at, c) if last else (n, c, *at)

        n, height, width, c = x.shape if last else (x.shape[0], *x.shape[2:], x.shape[1])
        across = (columns + 1) * step
        padded = build.temporary("padded", dtype=x.dtype, shape=laid(n, c, (rows + 1) * step, across))

        def element(*at: Expr) -> Expr:
            vn, h, w, vc = at if last else (at[0], *at[2:], at[1])
            place = [i - low for i, low in zip((h, w), attrs.low, strict=True)]
            clamped = [maximum(minimum(i, e - 1), 0) for i, e in zip(place, (height, width), strict=True)]
            inside = [And(less_equal(0, i), less(i, e)) for i, e in zip(place, (height, width), strict=True)]
            return select(And(*inside), load(x, *laid(vn, vc, *clamped)), const(0.0, x.dtype))

        build.compute("winograd_pad", padded, element)
        half = build.temporary("half", dtype=x.dtype, shape=laid(n, c, rows, const(edge), across))

        def row(vn: Expr, *at: Expr) -> Expr:
            vi, vp, w, vc = at if last else (*at[1:], at[0])
            terms = [load(padded, *laid(vn, vc, vi * step + a, w)) for a in range(edge)]
            return one_of(vp, input_terms(size, stride, terms))

        build.compute("winograd_rows", half, row)

        def product(vn: Expr, *at: Expr) -> Expr:
            vi, vj, vp, vq, vc = at if last else (*at[1:5], at[0])
            channel = vc * depth + at[5] if depth > 1 else vc
            terms = [load(half, *laid(vn, channel, vi, vp, vj * step + b)) for b in range(edge)]
            return cast(one_of(vq, input_terms(size, stride, terms)), v.dtype)

        def place(vn: Expr, *at: Expr) -> tuple[Expr, ...]:
            vi, vj, vp, vq, vc = at if last else (*at[1:5], at[0])
            tile = vi * columns + vj
            return (vn, vp * edge + vq, tile, vc) if last else (vn, vp * edge + vq, vc, tile, *at[5:])

        extents = laid(n, c if last else v.shape[2], rows, columns, const(edge), const(edge))
        build.compute(
            "winograd_input_last" if last else "winograd_input", v, product, extents=(*extents, *v.shape[4:]), at=place
        )


class WinogradOutput(Op):
    """y[n, o, i*size + a, j*size + b] = (Aᵀ m A)[a, b] of the products m[n, i*columns + j, …, o] of tile i, j; with
    channels last, y[n, …, …, o] of m[n, …, i*columns + j, o]."""

    name = "winograd_output"
    transforms = True
    known_by_axes = True
    rereads = True
    attributes = OutputAttributes
    pattern = Pattern.REDUCE

    def infer(self, context: TypeContext, inputs: Types, attrs: OutputAttributes) -> Types:
        m = _check(context, inputs, attrs, "a tensor of products")
        (rows, columns), (products, tiles) = tiles_of(attrs), (1, 2) if attrs.last else (2, 1)
        count = const(edge_of(attrs.size, attrs.stride) ** 2)
        context.require_equal(m.shape[products], count, "the numbers of products of a tile")
        context.require_equal(m.shape[tiles], simplify(rows * columns), "the numbers of tiles")
        n, o = m.shape[0], m.shape[3]
        return (TensorType.of(m.dtype, (n, *attrs.shape, o) if attrs.last else (n, o, *attrs.shape)),)

    def meaning(self, inputs: Arrays, attrs: OutputAttributes) -> Arrays:
        (m,), size = inputs, attrs.size
        rows, columns = sizes(tiles_of(attrs))
        edge, (height, width) = edge_of(size, attrs.stride), sizes(attrs.shape)
        a = np.array(OUTPUT[size, attrs.stride], m.dtype)
        m = m if attrs.last else m.swapaxes(1, 2)
        tiles = m.reshape(m.shape[0], edge, edge, rows, columns, m.shape[3]).transpose(0, 5, 3, 4, 1, 2)
        y = np.matmul(np.matmul(a, tiles), a.T).transpose(0, 1, 2, 4, 3, 5)
        y = y.reshape(m.shape[0], m.shape[3], rows * size, columns * size)[:, :, :height, :width]
        return (np.ascontiguousarray(y.transpose(0, 2, 3, 1) if attrs.last else y),)

    def define(self, build: Builder, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], attrs: Any) -> None:
        (m,), (y,) = inputs, outputs
        size, stride, last, (rows, columns) = attrs.size, attrs.stride, attrs.last, tiles_of(attrs)
        n, total, o = m.shape[0], m.shape[2 if last else 1], m.shape[3]
        edge = edge_of(size, stride)
        side, sides = const(size), const(edge)
        halves = (n, rows, columns, side, sides, o) if last else (n, side, sides, total, o)
        half = build.temporary("half", dtype=m.dtype, shape=halves)

        def column(vn: Expr, *at: Expr) -> Expr:
            vi, vj, va, vq, vo = at if last else (const(0), at[2], *at[:2], at[3])
            tile, planes = vi * columns + vj, [p * edge + vq for p in range(edge)]
            products = [load(m, vn, *((plane, tile) if last else (tile, plane)), vo) for plane in planes]
            return one_of(va, output_terms(size, stride, products))

        build.compute("winograd_columns_last" if last else "winograd_columns", half, column)
        tiles = (n, rows, columns, side, side, o) if last else (n, side, total, side, o)
        whole = build.temporary("whole", dtype=m.dtype, shape=tiles)

        def element(vn: Expr, *at: Expr) -> Expr:
            vi, vj, va, vb, vo = at if last else (const(0), at[1], at[0], *at[2:])
            before = (vn, vi, vj, va) if last else (vn, va)
            behind = (vo,) if last else (vj, vo)
            return one_of(vb, output_terms(size, stride, [load(half, *before, q, *behind) for q in range(edge)]))

        build.compute("winograd_tiles", whole, element)

        def place(vn: Expr, *at: Expr) -> Expr:
            h, w, vo = at if last else (*at[1:], at[0])
            i, j, a, b = h // size, w // size, h % size, w % size
            return load(whole, *((vn, i, j, a, b, vo) if last else (vn, a, i * columns + j, b, vo)))

        build.compute("winograd_output", y, place)


register(WinogradInput())
register(WinogradOutput())
