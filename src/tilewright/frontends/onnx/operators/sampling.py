"""Elements at fractional places: GridSample and RoiAlign. Layout: batch, channels, spatial dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilewright.expr import dtypes
from tilewright.expr.build import less_equal
from tilewright.expr.nodes import Const, Expr, const
from tilewright.frontends.build.composed import product
from tilewright.frontends.build.emit import Emit, Shape
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.reading import Size
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.emit import OnnxEmit
from tilewright.frontends.onnx.registry import Ints, handles
from tilewright.graph.op import LARGEST

_MODES = {"bilinear": "linear", "bicubic": "cubic", "linear": "linear", "cubic": "cubic", "nearest": "nearest"}
_CUBIC = -0.75


@handles("GridSample")
def grid_sample(
    b: Emit, x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    """The input at the places of the grid, whose last dimension holds one coordinate in [-1, 1] for each spatial
    dimension, the last one's first."""
    n = x.rank - 2
    if mode not in _MODES or padding_mode not in ("zeros", "border", "reflection"):
        raise Unsupported(f"the mode {mode!r} with the padding {padding_mode!r} is not supported")
    if n < 1 or grid.rank != x.rank or not isinstance(grid.shape[-1], Const) or grid.shape[-1].value != n:
        raise b.error(f"the grid must have {x.rank} dimensions, the last of extent {n}")
    out = grid.shape[1:-1]
    places = []
    for d in range(n):
        part = b.reshape(b.narrow(grid, grid.rank - 1, n - 1 - d, 1), (x.shape[0], product(out)))
        places.append(_Line(b, x.shape[2 + d], part, _MODES[mode], padding_mode, bool(align_corners)))
    return b.reshape(_weighted(b, x, [line.samples for line in places]), (*x.shape[:2], *out))


class _Line:
    """The neighbours along one spatial dimension of each place: pairs of (index inside, weight)."""

    def __init__(self, b: Emit, extent: Expr, place: Tensor, mode: str, padding: str, corners: bool) -> None:
        self.b, self.extent, self.padding = b, extent, padding
        b.require(less_equal(1, extent), "an image without elements cannot be sampled")
        length = b.of_size(extent, place.dtype)
        if corners:
            self.low, self.high = b.scalar(0, place.dtype), length - 1
            where = (place + 1) / 2 * (length - 1)
        else:
            self.low, self.high = b.scalar(-0.5, place.dtype), length - 0.5
            where = ((place + 1) * length - 1) / 2
        if mode == "nearest":
            where = b.map("round", where)
        where = self._brought_inside(where, mode)
        if mode == "nearest":
            self.samples = [self._sample(where, None)]
            return
        base = b.map("floor", where)
        offsets = (0, 1) if mode == "linear" else (-1, 0, 1, 2)
        weigh = _triangle if mode == "linear" else _cubic
        self.samples = [self._sample(base + o, weigh(b, b.map("abs", where - base - o))) for o in offsets]

    def _brought_inside(self, place: Tensor, mode: str) -> Tensor:
        """Places beyond the image moved to its border or reflected. A cubic's place in the outer half of a pixel at the
        border is inside: only its neighbours are not."""
        b = self.b
        if self.padding == "border":
            moved = b.map("max", b.map("min", place, b.of_size(self.extent - 1, place.dtype)), 0)
            if mode != "cubic":
                return moved
            return b.select(b.map("and", b.map("le", self.low, place), b.map("le", place, self.high)), place, moved)
        return self._reflected(place) if self.padding == "reflection" else place

    def _reflected(self, place: Tensor) -> Tensor:
        """Places beyond the borders mirrored at them, as often as needed."""
        b = self.b
        span = self.high - self.low
        safe = b.map("max", span, 0.5)
        turn = b.map("mod", place - self.low, safe * 2)
        inside = self.low + b.select(b.map("le", turn, span), turn, span * 2 - turn)
        return b.select(b.map("le", span, 0), self.low, inside)

    def _sample(self, place: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The index of a whole place, and its weight: zero where padding with zeros puts the place outside."""
        b = self.b
        last = b.of_size(self.extent - 1, place.dtype)
        if self.padding == "zeros":
            inside = b.map("and", b.map("le", b.scalar(0, place.dtype), place), b.map("le", place, last))
            one = b.scalar(1, place.dtype) if weight is None else weight
            weight = b.select(inside, one, b.scalar(0, place.dtype))
        elif self.padding == "reflection":
            place = self._reflected(place)
        index = b.cast(b.map("max", b.map("min", place, last), 0), dtypes.i64)
        limit = b.of_size(self.extent - 1)
        return b.map("max", b.map("min", index, limit), 0), weight


def _triangle(b: Emit, distance: Tensor) -> Tensor:
    return 1 - distance


def _cubic(b: Emit, distance: Tensor) -> Tensor:
    """Keys' cubic."""
    near = ((distance * (_CUBIC + 2) - (_CUBIC + 3)) * distance) * distance + 1
    far = ((distance * _CUBIC - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC
    return b.select(b.map("le", distance, 1), near, far)


Samples = Sequence[tuple[Tensor, Tensor | None]]
"""The neighbours along one spatial dimension of each place: pairs of (index inside, weight)."""


def _weighted(b: Emit, x: Tensor, sides: Sequence[Samples]) -> Tensor:
    """The weighted sum over all combinations of neighbours: [batch, channels, places]."""
    space = x.shape[2:]
    flat = b.reshape(x, (*x.shape[:2], product(space)))
    result: Tensor | None = None
    for samples in itertools.product(*sides):
        index, weight = samples[0]
        for (more, factor), extent in zip(samples[1:], space[1:], strict=True):
            index = index * b.of_size(extent) + more
            weight = factor if weight is None else weight if factor is None else weight * factor
        shape = (*x.shape[:2], index.shape[1])
        part = b.gather_elements(flat, b.broadcast(b.unsqueeze(index, [1]), shape), 2)
        if weight is not None:
            part = part * b.cast(b.unsqueeze(weight, [1]), x.dtype)
        result = part if result is None else result + part
    assert result is not None
    return result


@handles("AffineGrid")
def affine_grid(b: Emit, theta: Tensor, size: Tensor, *, align_corners: int = 0) -> Tensor:
    """The places [batch, …, dimension] that matrices [batch, n, n + 1] give the elements of an image of this size."""
    n = theta.rank and theta.shape[1]
    if theta.rank != 3 or not isinstance(n, Const):
        raise b.error("AffineGrid takes matrices [batch, n, n + 1]")
    extents = b.sizes(size, "the size of AffineGrid", 0, LARGEST)[2:]
    if len(extents) != n.value:
        raise b.error(f"the size has {len(extents)} spatial dimensions, and the matrices are for {n}")
    lines = []
    for extent in extents:
        place, count = b.iota((extent,), 0, theta.dtype), b.of_size(extent, theta.dtype)
        lines.append(place * 2 / b.map("max", count - 1, 1) - 1 if align_corners else (place * 2 + 1) / count - 1)
    shape: Shape = (*extents, const(1))
    parts = [b.broadcast(b.align(line, d, len(shape)), shape) for d, line in enumerate(lines)]
    ones = b.broadcast(b.reshape(b.scalar(1, theta.dtype), (1,) * len(shape)), shape)
    flat = b.reshape(b.concat([*reversed(parts), ones], len(extents)), (product(extents), int(n.value) + 1))
    return b.reshape(b.contract("pk,bnk->bpn", flat, theta), (theta.shape[0], *extents, n))


@handles("DeformConv")
def deform_conv(
    b: Emit,
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    offset_group: int = 1,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Tensor:
    """A convolution whose taps are read beside their places, by offsets [batch, offset group * taps * 2, y, x] in y and
    x, interpolated linearly between four elements, zero outside; `mask` weighs the taps."""
    if x.rank != 4:
        raise Unsupported(f"DeformConv of {x.rank - 2} spatial dimensions is not supported")
    kernel, channels = w.static_shape(), x.shape[1]
    if kernel is None or not isinstance(channels, Const) or channels.value % (group * offset_group):
        raise b.error("DeformConv takes constant weights, and channels that its groups divide")
    step, dilation = b.entries("strides", strides or (1, 1), 2, 1), b.entries("dilations", dilations or (1, 1), 2, 1)
    around = b.entries("pads", pads or (0,) * 4, 4, 0)
    taps, out = kernel[2] * kernel[3], offset.shape[2:]
    moved = b.reshape(offset, (x.shape[0], offset_group, taps, 2, *out))
    sides = []
    for d in range(2):
        shift = b.reshape(b.narrow(moved, 3, d, 1), (x.shape[0] * offset_group, taps, *out))
        tap = b.iota((kernel[2], kernel[3]), d, x.dtype) * dilation[d]
        place = b.align(b.iota((out[d],), 0, x.dtype), 2 + d, 4) * step[d] - around[d]
        where = shift + b.reshape(tap, (1, taps, 1, 1)) + place
        sides.append(_linear_side(b, x.shape[2 + d], b.reshape(where, (where.shape[0], product(where.shape[1:])))))
    each = int(channels.value) // offset_group
    source = b.reshape(x, (x.shape[0] * offset_group, each, *x.shape[2:]))
    read = _weighted(b, source, sides)
    values = b.reshape(read, (x.shape[0], offset_group, each, taps, *out))
    if mask is not None:
        values = values * b.reshape(mask, (x.shape[0], offset_group, 1, taps, *out))
    grouped = b.reshape(values, (x.shape[0], group, int(channels.value) // group, taps, *out))
    weights = b.reshape(w, (group, kernel[0] // group, kernel[1], taps))
    result = b.reshape(b.contract("bgctyx,gmct->bgmyx", grouped, weights), (x.shape[0], kernel[0], *out))
    return result if bias is None else result + b.align(bias, 1, 4)


def _linear_side(b: Emit, extent: Expr, place: Tensor) -> list[tuple[Tensor, Tensor]]:
    """(index, weight) of the two neighbours of each place; the weight of one outside is zero."""
    b.require(less_equal(1, extent), "an image without elements cannot be sampled")
    last, low = b.of_size(extent - 1, place.dtype), b.map("floor", place)
    pairs = []
    for near, weight in ((low, low + 1 - place), (low + 1, place - low)):
        inside = b.map("and", b.map("le", b.scalar(0, place.dtype), near), b.map("le", near, last))
        index = b.cast(b.map("max", b.map("min", near, last), 0), dtypes.i64)
        limit = b.of_size(extent - 1)
        kept = b.select(inside, weight, b.scalar(0, weight.dtype))
        pairs.append((b.map("max", b.map("min", index, limit), 0), kept))
    return pairs


@handles("RoiAlign")
def roi_align(
    b: OnnxEmit,
    x: Tensor,
    rois: Tensor,
    batch: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Regions pooled from points that are interpolated linearly, `sampling_ratio` in each direction of a bin."""
    if sampling_ratio < 1:
        raise Unsupported("RoiAlign whose number of points depends on the data (sampling_ratio=0) is not supported")
    if mode not in ("avg", "max"):
        raise Unsupported(f"the mode {mode!r} is not supported")
    half = b.opset >= 16 and coordinate_transformation_mode == "half_pixel"
    sides: list[list[tuple[Tensor, Tensor]]] = []
    for d, count in ((1, output_height), (0, output_width)):
        ends = [b.narrow(rois, 1, n, 1) * spatial_scale - (0.5 if half else 0.0) for n in (d, d + 2)]
        length = ends[1] - ends[0]
        if not half:
            length = b.map("max", length, 1)
        points = b.align((b.iota((count * sampling_ratio,), 0, x.dtype) + 0.5) / sampling_ratio, 1, 2)
        sides.append(_bilinear_side(b, x.shape[2 + len(sides)], ends[0] + points * (length / count)))
    joined: Tensor | None = None
    for part in _points(b, x, b.checked(batch, x.shape[0]), sides):
        joined = part if joined is None else b.map("max", joined, part) if mode == "max" else joined + part
    assert joined is not None
    shape: list[Size] = [rois.shape[0], output_height, sampling_ratio, output_width, sampling_ratio, x.shape[1]]
    bins = b.reduce("max" if mode == "max" else "sum", b.reshape(joined, shape), [2, 4])
    return b.transpose(bins if mode == "max" else bins / sampling_ratio**2, (0, 3, 1, 2))


def _bilinear_side(b: Emit, extent: Expr, place: Tensor) -> list[tuple[Tensor, Tensor]]:
    """(index, weight) of the two neighbours of each point; both weights are zero for points far outside."""
    b.require(less_equal(1, extent), "an image without elements cannot be sampled")
    length = b.of_size(extent, place.dtype)
    inside = b.map("and", b.map("le", b.scalar(-1, place.dtype), place), b.map("le", place, length))
    near = b.map("min", b.map("max", place, 0), length - 1)
    low = b.map("floor", near)
    part = near - low
    index = b.cast(low, dtypes.i64)
    limit = b.of_size(extent - 1)
    pairs = [(index, 1 - part), (index + 1, part)]
    return [(b.map("max", b.map("min", i, limit), 0), b.select(inside, w, b.scalar(0, w.dtype))) for i, w in pairs]


def _points(b: Emit, x: Tensor, images: Tensor, sides: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> list[Tensor]:
    """The weighted elements of each of the four neighbours: [region, points down, points across, channel]. Channels lie
    last, so that those of a point are read side by side."""
    rows = b.reshape(b.transpose(x, (0, 2, 3, 1)), (x.shape[0] * x.shape[2] * x.shape[3], x.shape[1]))
    first = b.reshape(images, (images.shape[0], 1, 1)) * b.of_size(x.shape[2])
    found = []
    for (row, down), (column, across) in itertools.product(*sides):
        index = (first + b.unsqueeze(row, [2])) * b.of_size(x.shape[3]) + b.unsqueeze(column, [1])
        weight = b.unsqueeze(down, [2]) * b.unsqueeze(across, [1])
        found.append(b.take(rows, index, 0) * b.unsqueeze(weight, [3]))
    return found
