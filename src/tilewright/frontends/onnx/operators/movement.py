"""Data movement: transposes, slices, joins, padding, blocks between space and depth."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilewright.expr import dtypes
from tilewright.expr.build import equal, less, less_equal, maximum, minimum, select
from tilewright.expr.nodes import Const, Expr, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators.shape import from_data, steps_between
from tilewright.frontends.onnx.registry import AnyInts, Ints, handles
from tilewright.graph.op import LARGEST


@handles("Transpose")
def transpose(b: Emit, x: Tensor, *, perm: Ints | None = None) -> Tensor:
    order = tuple(reversed(range(x.rank))) if perm is None else tuple(b.axes(perm, x.rank))
    if len(order) != x.rank:
        raise b.error(f"perm has {len(order)} entries for a tensor of {x.rank} dimensions")
    return b.transpose(x, order)


@handles("Concat", since=4)
def concat(b: Emit, first: Tensor, *rest: Tensor, axis: int) -> Tensor:
    return b.concat([first, *rest], b.axis(axis, first.rank))


@handles("Split", since=2, until=12)
def split_by_attribute(b: Emit, x: Tensor, *, axis: int = 0, split: Ints | None = None) -> tuple[Tensor, ...]:
    along = b.axis(axis, x.rank)
    if split is None:
        return _split_evenly(b, x, along, len(b.wanted))
    return split_into(b, x, along, [const(n) for n in split])


@handles("Split", since=13)
def split(
    b: Emit, x: Tensor, sizes: Tensor | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Tensor, ...]:
    along = b.axis(axis, x.rank)
    if sizes is None:
        return _split_evenly(b, x, along, len(b.wanted) if num_outputs is None else num_outputs)
    return split_into(b, x, along, b.sizes(sizes, "the sizes of Split", 0, LARGEST))


def _split_evenly(b: Emit, x: Tensor, axis: int, count: int) -> tuple[Tensor, ...]:
    """Parts of one size, the last one smaller when that does not come out even."""
    if count < 1:
        raise b.error(f"Split into {count} parts")
    whole = x.shape[axis]
    part = simplify((whole + (count - 1)) // count)
    return split_into(b, x, axis, [*([part] * (count - 1)), simplify(whole - part * (count - 1))])


def split_into(b: Emit, x: Tensor, axis: int, sizes: Sequence[Expr]) -> tuple[Tensor, ...]:
    if len(sizes) != len(b.wanted):
        raise b.error(f"Split into {len(sizes)} parts has {len(b.wanted)} outputs")
    starts = [const(0), *itertools.accumulate(sizes)]
    b.require_equal(starts[-1], x.shape[axis], "the sizes of Split add up to {0}, not to the dimension's extent {1}")
    return tuple(b.narrow(x, axis, start, size) for start, size in zip(starts, sizes, strict=False))


@handles("Slice", until=9)
def slice_by_attributes(b: Emit, x: Tensor, *, starts: AnyInts, ends: AnyInts, axes: Ints | None = None) -> Tensor:
    count = len(starts)
    return _slice(b, x, [const(s) for s in starts], [const(e) for e in ends], axes or range(count), [const(1)] * count)


@handles("Slice", since=10)
def slice_(
    b: Emit, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    first, last = b.sizes(starts, "the starts of Slice"), b.sizes(ends, "the ends of Slice")
    step = [const(1)] * len(first) if steps is None else b.sizes(steps, "the steps of Slice")
    if axes is None:
        return _slice(b, x, first, last, range(len(first)), step)
    known = b.integers(axes, "the axes of Slice")
    if known is not None:
        return _slice(b, x, first, last, known, step)
    return _slice_unknown(b, x, first, last, b.shape(axes, "the axes of Slice", -x.rank, x.rank - 1), step)


def _slice(
    b: Emit, x: Tensor, starts: Sequence[Expr], ends: Sequence[Expr], axes: Sequence[int], steps: Sequence[Expr]
) -> Tensor:
    along = b.axes(axes, x.rank)
    if not len(starts) == len(ends) == len(along) == len(steps):
        raise b.error("starts, ends, axes and steps of Slice have different lengths")
    places: list[tuple[Expr, Expr, Expr]] = [(const(0), extent, const(1)) for extent in x.shape]
    for start, end, axis, step in zip(starts, ends, along, steps, strict=True):
        places[axis] = _clamped(b, start, end, step, x.shape[axis])
    return b.slice(x, [p[0] for p in places], [p[1] for p in places], [p[2] for p in places], clamped=True)


def _slice_unknown(
    b: Emit, x: Tensor, starts: Sequence[Expr], ends: Sequence[Expr], axes: Sequence[Expr], steps: Sequence[Expr]
) -> Tensor:
    """A slice along dynamic axes: each dimension takes the bounds that name it, or all of it."""
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise b.error("starts, ends, axes and steps of Slice have different lengths")
    starts, ends, steps = ([_near(e) for e in bounds] for bounds in (starts, ends, steps))
    places = []
    for d, extent in enumerate(x.shape):
        start: Expr = const(0)
        end: Expr = extent
        step: Expr = const(1)
        for s, e, axis, t in zip(starts, ends, axes, steps, strict=True):
            here = equal(select(less(axis, 0), axis + x.rank, axis), d)
            start, end, step = select(here, s, start), select(here, e, end), select(here, t, step)
        places.append(_clamped(b, start, end, step, extent))
    return b.slice(x, [p[0] for p in places], [p[1] for p in places], [p[2] for p in places], clamped=True)


def _clamped(b: Emit, start: Expr, end: Expr, step: Expr, extent: Expr) -> tuple[Expr, Expr, Expr]:
    """(start, size, step) within the bounds. Negative starts and ends count from the end; all are then clamped."""
    if isinstance(step, Const) and step.value == 0:
        raise b.error("a step of Slice is 0")
    step = _near(step)
    first, last = (_from_front(e, extent) for e in (start, end))
    up = (minimum(maximum(first, 0), extent), minimum(maximum(last, 0), extent))
    down = (minimum(maximum(first, -1), extent - 1), minimum(maximum(last, -1), extent - 1))
    if isinstance(step, Const):
        low, high = up if step.value > 0 else down
        return _from(simplify(low), simplify(steps_between(low, high, step)), step)
    b.require(less_equal(1, maximum(step, -step)), "a step of Slice is 0")
    upwards = less_equal(1, step)
    low, high = (simplify(select(upwards, u, d)) for u, d in zip(up, down, strict=True))
    return _from(low, steps_between(low, high, step), step)


def _from_front(e: Expr, extent: Expr) -> Expr:
    """A start or end counted from the front. Numbers beyond every dimension, as the largest integers of "to the end",
    stand for just outside it: arithmetic on them would wrap around."""
    if isinstance(e, Const) and abs(e.value) >= LARGEST:
        return extent if e.value > 0 else const(-1)
    near = _near(e)
    return simplify(select(less(near, 0), near + extent, near))


def _near(e: Expr) -> Expr:
    """A number from data or the model, no farther from 0 than any dimension."""
    if isinstance(e, Const) or from_data(e):
        return simplify(minimum(maximum(e, -LARGEST), LARGEST))
    return e


def _from(start: Expr, size: Expr, step: Expr) -> tuple[Expr, Expr, Expr]:
    """An empty slice starts at 0, so that its start is always inside."""
    return (const(0), size, step) if isinstance(size, Const) and size.value == 0 else (start, size, step)


@handles("Pad", since=2, until=10)
def pad_by_attributes(b: Emit, x: Tensor, *, pads: Ints, mode: str = "constant", value: float = 0.0) -> Tensor:
    return _pad(b, x, [const(p) for p in pads], b.scalar(value, x.dtype), mode)


@handles("Pad", since=11)
def pad(
    b: Emit,
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    amounts = b.sizes(pads, "the amounts of Pad", -LARGEST, LARGEST)
    if axes is not None:
        amounts = _on_axes(b, x, amounts, axes)
    fill = b.scalar(0, x.dtype) if value is None else b.reshape(b.cast(value, x.dtype), ())
    return _pad(b, x, amounts, fill, mode)


def _on_axes(b: Emit, x: Tensor, amounts: Sequence[Expr], axes: Tensor) -> list[Expr]:
    """The amounts of all dimensions, from those of some axes."""
    known = b.integers(axes, "the axes of Pad")
    count = len(amounts) // 2
    whole: list[Expr] = [const(0)] * (2 * x.rank)
    if known is not None:
        for n, axis in enumerate(b.axes(known, x.rank)):
            whole[axis], whole[axis + x.rank] = amounts[n], amounts[n + count]
        return whole
    for n, named in enumerate(b.shape(axes, "the axes of Pad", -x.rank, x.rank - 1)):
        for d in range(x.rank):
            here = equal(select(less(named, 0), named + x.rank, named), d)
            whole[d] = select(here, amounts[n], whole[d])
            whole[d + x.rank] = select(here, amounts[n + count], whole[d + x.rank])
    return [simplify(e) for e in whole]


def _pad(b: Emit, x: Tensor, amounts: Sequence[Expr], fill: Tensor, mode: str) -> Tensor:
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise Unsupported(f"the mode {mode!r} of Pad is not supported")
    if len(amounts) != 2 * x.rank:
        raise b.error(f"Pad of {x.rank} dimensions needs {2 * x.rank} amounts, not {len(amounts)}")
    return b.pad(x, amounts[: x.rank], amounts[x.rank :], fill, mode)


@handles("Tile", since=6)
def tile(b: Emit, x: Tensor, repeats: Tensor) -> Tensor:
    """The tensor repeated behind itself along each dimension."""
    counts = b.sizes(repeats, "the repeats of Tile", 0, LARGEST)
    if len(counts) != x.rank:
        raise b.error(f"Tile of {x.rank} dimensions has {len(counts)} repeats")
    split = b.reshape(x, [e for extent in x.shape for e in (const(1), extent)])
    wide = b.broadcast(split, [e for pair in zip(counts, x.shape, strict=True) for e in pair])
    return b.reshape(wide, [count * extent for count, extent in zip(counts, x.shape, strict=True)])


@handles("DepthToSpace")
def depth_to_space(b: Emit, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Channels become blocks of blocksize × blocksize elements."""
    n, c, h, w = _image(b, x)
    if mode not in ("DCR", "CRD"):
        raise Unsupported(f"the mode {mode!r} of DepthToSpace is not supported")
    s = blocksize
    if s < 1:
        raise b.error(f"blocksize is {s}")
    if mode == "DCR":
        split = b.transpose(b.reshape(x, (n, s, s, c // (s * s), h, w)), (0, 3, 4, 1, 5, 2))
    else:
        split = b.transpose(b.reshape(x, (n, c // (s * s), s, s, h, w)), (0, 1, 4, 2, 5, 3))
    return b.reshape(split, (n, c // (s * s), h * s, w * s))


@handles("SpaceToDepth")
def space_to_depth(b: Emit, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Blocks of blocksize × blocksize elements become channels: before the old ones (DCR), or behind them (CRD)."""
    n, c, h, w = _image(b, x)
    s = blocksize
    if mode not in ("DCR", "CRD"):
        raise Unsupported(f"the mode {mode!r} of SpaceToDepth is not supported")
    if s < 1:
        raise b.error(f"blocksize is {s}")
    split = b.reshape(x, (n, c, h // s, s, w // s, s))
    moved = b.transpose(split, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return b.reshape(moved, (n, c * (s * s), h // s, w // s))


def _image(b: Emit, x: Tensor) -> tuple[Expr, Expr, Expr, Expr]:
    if x.rank != 4:
        raise b.error(f"the input must have 4 dimensions, not {x.rank}")
    n, c, h, w = x.shape
    return n, c, h, w


@handles("Trilu")
def trilu(b: Emit, x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    """The upper (or lower) triangle of each matrix, counted from diagonal k; zeros elsewhere."""
    rows, columns = (b.align(b.iota((x.shape[a],), 0), a, x.rank) for a in (x.rank - 2, x.rank - 1))
    least, place = (rows, columns) if k is None else (b.reshape(k, ()), columns - rows)
    keep = b.map("le", least, place) if upper else b.map("le", place, least)
    return b.select(keep, x, b.full((), 0, x.dtype))


@handles("ReverseSequence")
def reverse_sequence(b: Emit, x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """The first `lengths[i]` elements along the time axis reversed, for each place i of the batch axis."""
    batch, time = b.axis(batch_axis, x.rank), b.axis(time_axis, x.rank)
    if {batch, time} != {0, 1}:
        raise b.error(f"batch_axis {batch_axis} and time_axis {time_axis} must be 0 and 1")
    step = b.align(b.iota((x.shape[time],), 0), time, x.rank)
    length = b.align(b.cast(lengths, dtypes.i64), batch, x.rank)
    source = b.select(b.map("lt", step, length), length - 1 - step, step)
    return b.gather_elements(x, b.checked(b.broadcast(source, x.shape), x.shape[time], "beyond the time axis"), time)
