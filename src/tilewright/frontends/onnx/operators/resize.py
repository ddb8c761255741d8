"""Resize: each dimension by itself, the elements of the result gathered and weighted, or, with antialias, contracted.

Coordinates in the result are mapped to coordinates in the input in f64, over one dimension at a time, so that only
vectors as long as a dimension are computed twice as wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.expr import dtypes
from tilewright.expr.build import less_equal
from tilewright.expr.nodes import Expr, const
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.registry import Floats, Ints, handles
from tilewright.graph.op import LARGEST

_POLICIES = ("stretch", "not_larger", "not_smaller")
_MODES = ("nearest", "linear", "cubic")


@dataclass(frozen=True, slots=True)
class Options:
    """The attributes of Resize that say how elements are computed."""

    mode: str
    coordinates: str
    nearest: str
    cubic_a: float
    exclude_outside: bool
    extrapolation: float
    antialias: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One resized dimension: its extents, the scale as an f64 scalar, and the region for tf_crop_and_resize."""

    axis: int
    extent: Expr
    target: Expr
    scale: Tensor
    roi: tuple[Tensor, Tensor] | None


def _plain(mode: str) -> Options:
    """What Upsample and the first Resize do."""
    return Options(mode, "asymmetric", "floor", -0.75, False, 0.0, False)


@handles("Upsample", since=7, until=8)
def upsample_by_attribute(b: Emit, x: Tensor, *, scales: Floats, mode: str = "nearest") -> Tensor:
    factors = b.of_array(np.array(scales, np.float32), "scales")
    return _resize(b, x, None, factors, None, None, "stretch", _plain(mode))


@handles("Upsample", since=9)
def upsample(b: Emit, x: Tensor, scales: Tensor, *, mode: str = "nearest") -> Tensor:
    return _resize(b, x, None, scales, None, None, "stretch", _plain(mode))


@handles("Resize", until=10)
def resize_by_scales(b: Emit, x: Tensor, scales: Tensor, *, mode: str = "nearest") -> Tensor:
    return _resize(b, x, None, scales, None, None, "stretch", _plain(mode))


@handles("Resize", since=11)
def resize(
    b: Emit,
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    *,
    antialias: int = 0,
    axes: Ints | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    options = Options(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(exclude_outside),
        extrapolation_value,
        bool(antialias),
    )
    return _resize(b, x, roi, _given(scales), _given(sizes), axes, keep_aspect_ratio_policy, options)


def _given(x: Tensor | None) -> Tensor | None:
    """Older opsets leave an input out by giving an empty tensor."""
    return None if x is None or x.shape == (const(0),) else x


def _resize(
    b: Emit,
    x: Tensor,
    roi: Tensor | None,
    scales: Tensor | None,
    sizes: Tensor | None,
    axes: Sequence[int] | None,
    policy: str,
    options: Options,
) -> Tensor:
    if options.mode not in _MODES:
        raise Unsupported(f"the mode {options.mode!r} is not supported, only {', '.join(_MODES)}")
    if policy not in _POLICIES:
        raise Unsupported(f"keep_aspect_ratio_policy is {policy!r}, not one of {', '.join(_POLICIES)}")
    along = list(range(x.rank)) if axes is None else b.axes(axes, x.rank)
    source = x if x.dtype.is_float or options.mode == "nearest" else b.cast(x, dtypes.f32)
    outside: Tensor | None = None
    for side in _sides(b, x, roi, scales, sizes, along, policy, options):
        place = _places(b, side, options)
        if place is None:
            continue
        source, beyond = _along(b, source, side, place, options)
        if beyond is not None:
            outside = beyond if outside is None else b.map("or", outside, beyond)
    if outside is not None:
        source = b.select(outside, b.scalar(options.extrapolation, source.dtype), source)
    return b.cast(source, x.dtype)


def _sides(
    b: Emit,
    x: Tensor,
    roi: Tensor | None,
    scales: Tensor | None,
    sizes: Tensor | None,
    along: Sequence[int],
    policy: str,
    options: Options,
) -> list[Side]:
    """The resized dimensions; those with a known scale of one are left out."""
    count = len(along)
    regions = _regions(b, roi, count, options)
    if sizes is not None:
        targets = b.sizes(sizes, "the sizes of Resize", 0, LARGEST)
        if len(targets) != count:
            raise b.error(f"sizes has {len(targets)} entries for {count} dimensions")
        factors = [
            b.of_size(t, dtypes.f64) / b.of_size(x.shape[a], dtypes.f64) for t, a in zip(targets, along, strict=True)
        ]
        if policy != "stretch":
            factors, targets = _in_proportion(b, x, along, factors, policy)
    elif scales is not None:
        wide = b.cast(scales, dtypes.f64)
        if scales.static_shape() != (count,):
            raise b.error(f"scales has not one entry for each of {count} dimensions")
        factors = [b.reshape(b.narrow(wide, 0, n, 1), ()) for n in range(count)]
        targets = [_scaled(b, x.shape[a], f, r, options) for a, f, r in zip(along, factors, regions, strict=True)]
    else:
        raise b.error("Resize has neither scales nor sizes")
    return [
        Side(a, x.shape[a], t, f, r)
        for a, t, f, r in zip(along, targets, factors, regions, strict=True)
        if r is not None or not (t is x.shape[a] and (sizes is not None or _is_one(f)))
    ]


def _is_one(x: Tensor) -> bool:
    return x.array is not None and bool(np.all(x.array == 1))


def _scaled(b: Emit, extent: Expr, scale: Tensor, region: tuple[Tensor, Tensor] | None, options: Options) -> Expr:
    """floor(extent * scale), of the region's part of the extent where there is one."""
    if scale.array is not None and not 0 < float(scale.array.reshape(-1)[0]) <= LARGEST:
        raise b.error(f"a scale of Resize is {float(scale.array.reshape(-1)[0])}", "scales are numbers above 0")
    size = b.of_size(extent, dtypes.f64) * scale
    if region is not None:
        size = size * (region[1] - region[0])
    whole = b.select(b.map("lt", b.scalar(0, scale.dtype), scale), b.map("floor", size), -1)
    return b.size(b.cast(whole, dtypes.i64), "a size of Resize (-1 for a scale that is not positive)", 0, LARGEST)


def _in_proportion(
    b: Emit, x: Tensor, along: Sequence[int], factors: Sequence[Tensor], policy: str
) -> tuple[list[Tensor], list[Expr]]:
    """One scale for all dimensions: the least of the factors (not_larger), or the greatest."""
    scale = factors[0]
    for factor in factors[1:]:
        scale = b.map("min" if policy == "not_larger" else "max", scale, factor)
    targets = []
    for a in along:
        size = b.map("floor", b.of_size(x.shape[a], dtypes.f64) * scale + 0.5)
        targets.append(b.size(b.cast(size, dtypes.i64), "a size of Resize", 0, LARGEST))
    return [scale] * len(along), targets


def _regions(b: Emit, roi: Tensor | None, count: int, options: Options) -> Sequence[tuple[Tensor, Tensor] | None]:
    if options.coordinates != "tf_crop_and_resize":
        return [None] * count
    if roi is None or roi.static_shape() != (2 * count,):
        raise b.error(f"tf_crop_and_resize needs roi, with a start and an end for each of {count} dimensions")
    wide = b.cast(roi, dtypes.f64)
    ends = [b.reshape(b.narrow(wide, 0, n, 1), ()) for n in range(2 * count)]
    return list(zip(ends[:count], ends[count:], strict=True))


def _places(b: Emit, side: Side, options: Options) -> Tensor | None:
    """For each place in the result the place in the input, as f64."""
    place = b.iota((side.target,), 0, dtypes.f64)
    extent, target = b.of_size(side.extent, dtypes.f64), b.of_size(side.target, dtypes.f64)
    match options.coordinates:
        case "half_pixel":
            return (place + 0.5) / side.scale - 0.5
        case "half_pixel_symmetric":
            centre = extent / 2
            exact = extent * side.scale
            return centre * (1 - target / exact) + (place + 0.5) / side.scale - 0.5
        case "pytorch_half_pixel":
            single = b.map("le", target, 1)
            return b.select(single, b.scalar(0, dtypes.f64), (place + 0.5) / side.scale - 0.5)
        case "align_corners":
            exact = extent * side.scale
            return b.select(b.map("eq", exact, 1), b.scalar(0, dtypes.f64), place * ((extent - 1) / (exact - 1)))
        case "asymmetric":
            return place / side.scale
        case "tf_half_pixel_for_nn":
            return (place + 0.5) / side.scale
        case "tf_crop_and_resize":
            assert side.roi is not None
            start, end = side.roi
            step = (end - start) * (extent - 1) / b.map("max", target - 1, 1)
            middle = (start + end) * 0.5 * (extent - 1)
            return b.select(b.map("le", target, 1), middle, start * (extent - 1) + place * step)
    raise Unsupported(f"coordinate_transformation_mode {options.coordinates!r} is not supported")


def _along(b: Emit, x: Tensor, side: Side, place: Tensor, options: Options) -> tuple[Tensor, Tensor | None]:
    """`x` resized along one dimension, and where the result is outside of the input (tf_crop_and_resize)."""
    beyond = None
    if side.roi is not None:
        last = b.of_size(side.extent - 1, dtypes.f64)
        out = b.map("or", b.map("lt", place, 0), b.map("lt", last, place))
        beyond = b.align(out, side.axis, x.rank)
    if options.mode == "nearest":
        index = _bounded(b, _nearest(b, place, options.nearest), side.extent)
        return b.take(x, index, side.axis), beyond
    if options.antialias:
        return _filtered(b, x, side, place, options), beyond
    return _weighted(b, x, side, place, options), beyond


def _bounded(b: Emit, place: Tensor, extent: Expr) -> Tensor:
    """Whole places as indices inside the dimension, which must have an element."""
    b.require(less_equal(1, extent), "a dimension without elements cannot be resized")
    index = b.cast(place, dtypes.i64)
    return b.map("max", b.map("min", index, b.of_size(extent - 1)), 0)


def _nearest(b: Emit, place: Tensor, how: str) -> Tensor:
    match how:
        case "round_prefer_floor":
            return b.map("ceil", place - 0.5)
        case "round_prefer_ceil":
            return b.map("floor", place + 0.5)
        case "floor":
            return b.map("floor", place)
        case "ceil":
            return b.map("ceil", place)
    raise Unsupported(f"nearest_mode {how!r} is not supported")


def _weighted(b: Emit, x: Tensor, side: Side, place: Tensor, options: Options) -> Tensor:
    """The sum of the neighbours' elements (2 for linear, 4 for cubic) times their weights."""
    base = b.map("floor", place)
    fraction = place - base
    offsets = (0, 1) if options.mode == "linear" else (-1, 0, 1, 2)
    weights = [_weight(b, b.map("abs", fraction - o), options) for o in offsets]
    if options.exclude_outside:
        last = b.of_size(side.extent - 1, dtypes.f64)
        weights = [
            b.select(b.map("and", b.map("le", b.scalar(0, dtypes.f64), base + o), b.map("le", base + o, last)), w, 0)
            for w, o in zip(weights, offsets, strict=True)
        ]
        total = weights[0]
        for w in weights[1:]:
            total = total + w
        weights = [w / total for w in weights]
    result: Tensor | None = None
    for weight, offset in zip(weights, offsets, strict=True):
        taken = b.take(x, _bounded(b, base + offset, side.extent), side.axis)
        part = taken * b.align(b.cast(weight, x.dtype), side.axis, x.rank)
        result = part if result is None else result + part
    assert result is not None
    return result


def _weight(b: Emit, distance: Tensor, options: Options) -> Tensor:
    """The weight of an element at this distance: a triangle of width 2, or Keys' cubic of width 4."""
    zero = b.scalar(0, dtypes.f64)
    if options.mode == "linear":
        return b.map("max", 1 - distance, 0)
    a = options.cubic_a
    near = ((distance * (a + 2) - (a + 3)) * distance) * distance + 1
    far = ((distance * a - 5 * a) * distance + 8 * a) * distance - 4 * a
    return b.select(b.map("le", distance, 1), near, b.select(b.map("lt", distance, 2), far, zero))


def _filtered(b: Emit, x: Tensor, side: Side, place: Tensor, options: Options) -> Tensor:
    """The dimension contracted with a matrix of weights: the filter is as much wider as the result is smaller. Without
    exclude_outside it reaches over the border, where the outermost elements repeat."""
    shrink = b.map("min", side.scale, 1)
    margin: Expr = const(0)
    if not options.exclude_outside:
        reach = b.map("ceil", b.scalar(1 if options.mode == "linear" else 2, dtypes.f64) / shrink)
        margin = b.size(b.cast(reach, dtypes.i64), "the reach of a filter of Resize", 0, LARGEST)
    rest: list[Expr | int] = [0] * x.rank
    rest[side.axis] = margin
    wide = b.pad(x, rest, rest, mode="edge")
    source = b.iota((wide.shape[side.axis],), 0, dtypes.f64) - b.of_size(margin, dtypes.f64)
    distance = b.map("abs", b.align(source, 1, 2) - b.align(place, 0, 2)) * shrink
    weights = _weight(b, distance, options)
    matrix = b.cast(weights / b.reduce("sum", weights, [1], keepdims=True), x.dtype)
    letters = "abcdefghijklmnop"[: x.rank]
    into = letters[: side.axis] + "z" + letters[side.axis + 1 :]
    return b.contract(f"{letters},z{letters[side.axis]}->{into}", wide, matrix)
