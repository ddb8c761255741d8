"""Boxes of objects: NonMaxSuppression, and MaxRoiPool."""

from __future__ import annotations

from tilewright.expr import dtypes
from tilewright.expr.build import minimum
from tilewright.frontends.build.emit import Emit
from tilewright.frontends.build.loop import Loop
from tilewright.frontends.build.problems import Unsupported
from tilewright.frontends.build.values import Tensor
from tilewright.frontends.onnx.operators.gather import true_places
from tilewright.frontends.onnx.registry import Ints, handles
from tilewright.graph.op import LARGEST

_NEVER = float("-inf")

Box = tuple[Tensor, Tensor, Tensor, Tensor]
"""The lower and upper end in one dimension, then in the other."""


@handles("NonMaxSuppression")
def non_max_suppression(
    b: Emit,
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | None = None,
    overlap: Tensor | None = None,
    least: Tensor | None = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    """i64[count, 3], batch, class and box: of the boxes [batch, box, 4] with scores [batch, class, box] the best one of
    each class, then the best one that no chosen one overlaps by more than `overlap` (area in common over area of both),
    and so on, up to `most` of a class; only those whose score is above `least`. Of equal scores the first box is taken.

    A step of a scan chooses one box of each class: time and memory grow with what is asked for, not with all pairs.
    """
    if boxes.rank != 3 or scores.rank != 3:
        raise b.error("NonMaxSuppression takes boxes [batch, box, 4] and scores [batch, class, box]")
    b.require_equal(boxes.shape[0], scores.shape[0], "there are {0} batches of boxes and {1} of scores")
    b.require_equal(boxes.shape[1], scores.shape[2], "there are {0} boxes and scores of {1}")
    # Sizes that have to be equal may have names of their own: from here on they have those of the scores.
    alike = (scores.shape[0], scores.shape[2], boxes.shape[2])
    boxes = b.slice(boxes, [0, 0, 0], alike, clamped=True)
    if most is None:
        return b.full((0, 3), 0, dtypes.i64)
    asked = b.map("min", b.map("max", b.cast(b.reshape(most, ()), dtypes.i64), 0), LARGEST)
    limited = b.map("min", asked, b.of_size(scores.shape[2]))
    steps = minimum(b.size(limited, "the number of boxes", 0, LARGEST), scores.shape[2])
    # one more box, which is never chosen: there is a best one of no boxes, too
    boxes = b.pad(boxes, [0, 0, 0], [0, 1, 0])
    scores = b.pad(scores, [0, 0, 0], [0, 0, 1], _NEVER)
    corners = [b.narrow(boxes, 2, n, 1) for n in range(4)]
    ends = _around_centers(corners) if center_point_box else _in_order(b, corners)
    limit = b.scalar(0, scores.dtype) if overlap is None else b.cast(b.reshape(overlap, ()), scores.dtype)
    bar = b.scalar(_NEVER, scores.dtype) if least is None else b.cast(b.reshape(least, ()), scores.dtype)
    sides = [b.reshape(end, (boxes.shape[0], 1, boxes.shape[1])) for end in ends]
    loop = Loop(b, "choose", steps, [scores], [], [])
    inner, (open_scores,) = loop.b, loop.states
    low, high, left, right = (loop.whole(side) for side in sides)
    best = inner.reduce("max", open_scores, [2], keepdims=True)
    place = inner.arg_reduce("max", open_scores, 2, keepdims=True)
    fits = inner.map(
        "and", inner.map("lt", loop.whole(bar), best), inner.map("lt", inner.scalar(_NEVER, best.dtype), best)
    )
    chosen = [inner.gather_elements(side, inner.reshape(place, (place.shape[0], 1, place.shape[1])), 2)
              for side in (low, high, left, right)]  # fmt: skip
    own = tuple(inner.reshape(c, place.shape) for c in chosen)
    covered = _overlaps(inner, own, (low, high, left, right), loop.whole(limit))
    itself = inner.map("eq", inner.align(inner.iota((open_scores.shape[2],), 0), 2, 3), place)
    gone = inner.map("or", covered, itself)
    after = inner.select(gone, inner.scalar(_NEVER, open_scores.dtype), open_scores)
    flat = place.shape[:2]
    _, (places, kept) = loop.finish([after], [inner.reshape(place, flat), inner.reshape(fits, flat)], [False, False])
    kept, places = b.transpose(kept, (1, 2, 0)), b.transpose(places, (1, 2, 0))
    found = true_places(b, kept, "the number of chosen boxes")
    picked = b.op("gather_nd", places, found, batch_dims=0)
    return b.concat([b.narrow(found, 1, 0, 2), b.unsqueeze(picked, [1])], 1)


def _in_order(b: Emit, corners: list[Tensor]) -> Box:
    """Two opposite corners, whichever."""
    y0, x0, y1, x1 = corners
    return b.map("min", y0, y1), b.map("max", y0, y1), b.map("min", x0, x1), b.map("max", x0, x1)


def _around_centers(corners: list[Tensor]) -> Box:
    """A center (x, y), and a width and a height."""
    x, y, width, height = corners
    return y - height / 2, y + height / 2, x - width / 2, x + width / 2


def _overlaps(b: Emit, one: tuple[Tensor, ...], other: Box, limit: Tensor) -> Tensor:
    """Whether the area in common is more than that part of the area of both; boxes without an area overlap nothing."""
    low, high, left, right = one
    low2, high2, left2, right2 = other
    height = b.map("max", b.map("min", high, high2) - b.map("max", low, low2), 0)
    width = b.map("max", b.map("min", right, right2) - b.map("max", left, left2), 0)
    common, first, second = height * width, (high - low) * (right - left), (high2 - low2) * (right2 - left2)
    some = b.map("and", b.map("lt", b.scalar(0, first.dtype), first), b.map("lt", b.scalar(0, second.dtype), second))
    touching = b.map("and", some, b.map("lt", b.scalar(0, common.dtype), common))
    both = b.select(touching, first + second - common, b.scalar(1, common.dtype))
    return b.map("and", touching, b.map("lt", limit, common / both))


@handles("MaxRoiPool")
def max_roi_pool(b: Emit, x: Tensor, rois: Tensor, *, pooled_shape: Ints, spatial_scale: float = 1.0) -> Tensor:
    """The greatest elements in a grid of bins of each region, which is (image, left, top, right, bottom) scaled and
    rounded, both ends within; 0 for a bin without elements."""
    if x.rank != 4 or rois.rank != 2 or len(pooled_shape) != 2:
        raise b.error("MaxRoiPool takes images [batch, channel, y, x] and regions [n, 5]")
    if min(pooled_shape) < 1:
        raise Unsupported("MaxRoiPool into no bins is not supported")
    image = b.reshape(b.cast(b.narrow(rois, 1, 0, 1), dtypes.i64), (rois.shape[0],))
    source = b.take(x, b.checked(image, x.shape[0], "the image of a region"), 0)
    inside = []
    for axis, (first, bins) in enumerate(((2, pooled_shape[0]), (1, pooled_shape[1]))):
        ends = [_rounded(b, b.narrow(rois, 1, n, 1) * spatial_scale) for n in (first, first + 2)]
        size = b.map("max", ends[1] - ends[0] + 1, 1) / bins
        bin = b.align(b.iota((bins,), 0, x.dtype), 1, 2)
        extent = b.of_size(x.shape[2 + axis], x.dtype)
        start = b.map("max", b.map("min", b.map("floor", bin * size) + ends[0], extent), 0)
        end = b.map("max", b.map("min", b.map("ceil", (bin + 1) * size) + ends[0], extent), 0)
        place = b.align(b.iota((x.shape[2 + axis],), 0, x.dtype), 2, 3)
        inside.append(
            b.map("and", b.map("le", b.unsqueeze(start, [2]), place), b.map("lt", place, b.unsqueeze(end, [2])))
        )
    down, across = inside
    lowest = b.scalar(_NEVER, x.dtype)
    rows = b.select(b.unsqueeze(down, [1, 4]), b.unsqueeze(source, [2]), lowest)
    rows = b.reduce("max", rows, [3])
    points = b.select(b.unsqueeze(across, [1, 2]), b.unsqueeze(rows, [3]), lowest)
    best = b.reduce("max", points, [4])
    return b.select(b.map("eq", best, _NEVER), b.scalar(0, x.dtype), best)


def _rounded(b: Emit, x: Tensor) -> Tensor:
    """The nearest whole number, halves away from zero."""
    return b.map("copysign", b.map("floor", b.map("abs", x) + 0.5), x)
