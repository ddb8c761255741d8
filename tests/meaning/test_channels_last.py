"""Prices of depthwise convolutions with channels innermost: what tiles bring from caches, and tests at edges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tilewright.analysis.sizes import known
from tilewright.analysis.windows import Windows
from tilewright.expr.nodes import const
from tilewright.loops.edit import statements
from tilewright.loops.evaluate import evaluate
from tilewright.loops.nodes import For, Function, LoopKind, Prefetch
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.window.channels_last import ChannelsLast, ChannelsLastChoice, Order
from tilewright.target import Target

V3, V4 = (Target.parse(name) for name in ("x86-64-v3", "x86-64-v4"))
TEMPLATE = ChannelsLast()


def depthwise(size: int, channels: int, kernel: int = 3, stride: int = 1, images: int = 1) -> Function:
    """Windows of images with zeros around them."""
    high, around = size // stride, kernel // 2
    wide = size + 2 * around
    function = tw.parse(f"""
func depthwise(x: f32[{images}, {size}, {size}, {channels}], w: f32[{kernel}, {kernel}, {channels}] in constant finite, y: f32[{images}, {high}, {high}, {channels}]):
  alloc p: f32[{images}, {wide}, {wide}, {channels}] in arena
  for n in 0..{images}, i in 0..{wide}, j in 0..{wide}, c in 0..{channels}:
    block fill(vn = n, vi = i, vj = j, vc = c):
      p[vn, vi, vj, vc] = 0.0
  for n in 0..{images}, i in 0..{size}, j in 0..{size}, c in 0..{channels}:
    block copy(vn = n, vi = i, vj = j, vc = c):
      p[vn, vi + {around}, vj + {around}, vc] = x[vn, vi, vj, vc]
  for n in 0..{images}, i in 0..{high}, j in 0..{high}, c in 0..{channels}, u in 0..{kernel}, v in 0..{kernel}:
    block sum(vn = n, vi = i, vj = j, vc = c, reduce vu = u, reduce vv = v):
      init: y[vn, vi, vj, vc] = 0.0
      y[vn, vi, vj, vc] += p[vn, vi*{stride} + vu, vj*{stride} + vv, vc] * w[vu, vv, vc]
""")  # noqa: E501
    assert isinstance(function, Function)
    return function


def windows(size: int, channels: int, kernel: int = 3, stride: int = 1, images: int = 1) -> Windows:
    """Those of some images."""
    found = TEMPLATE.recognise(Facts(depthwise(size, channels, kernel, stride, images)))
    assert found is not None
    return found


def cheapest(w: Windows, target: Target) -> ChannelsLastChoice:
    return min(TEMPLATE.choices(w, target), key=lambda c: TEMPLATE.price(c, w, target))


def price(w: Windows, target: Target, **fields: object) -> float:
    """What the cheapest choice takes with these fields in place of its own."""
    return TEMPLATE.price(replace(cheapest(w, target), **fields), w, target)  # type: ignore[arg-type]


def test_a_vector_of_half_a_line_brings_a_whole_one() -> None:
    """Where other channels are computed before its other half is read; not where they follow."""
    in_place = {"columns": 2, "edges": False, "copied": 0, "block": 0}
    for size, channels in ((28, 240), (7, 1024)):
        w = windows(size, channels)
        both, half = (price(w, V3, order=Order.CHANNELS, vectors=v, **in_place) for v in (2, 1))
        assert both < 0.8 * half
    w = windows(28, 240)
    both, half = (price(w, V3, order=Order.ROWS, vectors=v, **in_place) for v in (2, 1))
    assert both > 0.8 * half


def test_columns_that_share_sets_bring_more_the_more_there_are() -> None:
    """Columns of 4 KiB are in one set each 64 lines; those of 4 KiB and a line are in all."""
    in_place = {"columns": 7, "vectors": 1, "order": Order.CHANNELS, "edges": False, "copied": 0, "block": 0}
    crowded, apart = (price(windows(7, channels), V4, **in_place) / channels for channels in (1024, 1040))
    assert crowded > 1.5 * apart


def test_weights_are_to_stay_beside_rows() -> None:
    """With the loop over channels inside, in the first cache."""
    w, tiles = windows(14, 512, stride=2), {"columns": 2, "vectors": 1, "edges": False, "copied": 0, "block": 0}
    large = replace(V4, caches=(replace(V4.caches[0], bytes=1 << 17, ways=32), *V4.caches[1:]))
    column, row = (price(w, large, order=order, **tiles) for order in (Order.COLUMNS, Order.ROWS))
    assert column < 0.9 * row
    column, row = (price(w, V4, order=order, **tiles) for order in (Order.COLUMNS, Order.ROWS))
    assert column == pytest.approx(row)


@pytest.mark.parametrize(("size", "channels", "columns"), [(56, 144, 7), (14, 480, 14)])
def test_edges_have_loops_of_their_own_or_not(size: int, channels: int, columns: int) -> None:
    """Both are listed where they are not too much code, and tests of rows cost some cycles a tile."""
    w = windows(size, channels)
    found = {c.edges for c in TEMPLATE.choices(w, V4) if (c.columns, c.order) == (columns, Order.CHANNELS)}
    assert found == {False, True}
    fields = {"columns": columns, "vectors": 1, "order": Order.CHANNELS, "copied": 0, "block": 0}
    assert price(w, V4, edges=True, **fields) < price(w, V4, edges=False, **fields)


def test_tiles_may_have_as_many_sums_as_there_are_registers() -> None:
    """Less one for weights and one for the image; rows of seven places are read by fourteen sums."""
    most = {t: max(c.columns * c.vectors for c in TEMPLATE.choices(windows(28, 192, 7), t)) for t in (V3, V4)}
    assert most[V3] == 14 and 14 < most[V4] <= V4.vector_registers - 2
    taken = cheapest(windows(28, 192, 7), V3)
    assert taken.columns * taken.vectors == 14


def test_channels_pass_by_one_of_many_images_after_the_other() -> None:
    """So that the second cache keeps an image for all of its channels; of few, threads share the channels."""
    in_place = {"columns": 2, "vectors": 2, "order": Order.CHANNELS, "edges": False, "copied": 0, "block": 0}
    for images, count in ((1, 512 // 32), (24, 24)):
        facts = Facts(depthwise(14, 512, images=images))
        shape = TEMPLATE.recognise(facts)
        assert shape is not None
        choice = replace(cheapest(shape, V4), **in_place)  # type: ignore[arg-type]
        made = TEMPLATE.schedule(facts, shape, choice, V4).func
        (shared,) = (s for s in statements(made.body) if isinstance(s, For) and s.kind is LoopKind.PARALLEL)
        assert shared.size == count


def test_rows_that_come_next_are_asked_for_where_the_second_cache_keeps_too_little() -> None:
    """Those of the image that no row before reads, and those of the result; each line costs a tile a load."""
    near, far = (list(TEMPLATE.choices(windows(size, 256), V3)) for size in (7, 56))
    assert not any(c.ahead for c in near)
    assert all((c.ahead == 0) == (c.order is Order.CHANNELS) for c in far)
    rows = next(c for c in far if c.order is Order.ROWS)
    facts = Facts(depthwise(56, 256))
    shape = TEMPLATE.recognise(facts)
    assert shape is not None
    for choice, asked in ((rows, True), (replace(rows, ahead=0), False)):
        made = TEMPLATE.apply(TEMPLATE.begin(facts), shape, choice).func
        places = [s.place for s in statements(made.body) if isinstance(s, Prefetch)]
        assert {load.buffer.name for load in places} == ({"x", "y"} if asked else set())
        assert all(load.indices[2] is const(0) for load in places if load.buffer.name == "x")  # shares of whole rows


def test_pieces_wait_for_memory() -> None:
    """A copied image is read in pieces, rows as they lie: where the last cache keeps less of it, copies take longer. So
    do columns of tiles of far images, however early they ask for the next row."""
    w = windows(14, 512, stride=2, images=4)
    held = 4 * 512 * 4 * (14 * 14 + 7 * 7)
    assert 2 * held <= V3.caches[-1].bytes
    less = V3.with_peaks(last_share=3 / 2 * held / V3.caches[-1].bytes)
    of_copies, of_rows = (
        min(TEMPLATE.price(c, w, less) / TEMPLATE.price(c, w, V3) for c in TEMPLATE.choices(w, V3) if is_one(c))
        for is_one in (lambda c: c.copied, lambda c: c.order is Order.ROWS)
    )
    assert of_copies > 1.1 * of_rows
    assert not cheapest(w, less).copied
    far = windows(112, 32, images=16)
    rows, columns = (price(far, V3, order=o, columns=7, ahead=16) for o in (Order.ROWS, Order.COLUMNS))
    assert columns > rows


@pytest.mark.parametrize("order", [Order.ROWS, Order.COLUMNS])
@pytest.mark.parametrize(("size", "stride", "kernel"), [(9, 1, 3), (12, 2, 3), (9, 1, 5)])
def test_what_is_asked_for_changes_no_result(order: Order, size: int, stride: int, kernel: int) -> None:
    function = depthwise(size, 24, kernel, stride)
    facts = Facts(function)
    shape = TEMPLATE.recognise(facts)
    assert shape is not None
    columns = next(c.columns for c in TEMPLATE.choices(shape, V3) if c.order is order)
    choice = ChannelsLastChoice(columns, 1, 8, order, 0, False, False, 0, 16)
    made = TEMPLATE.apply(TEMPLATE.begin(facts), shape, choice).func
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal([known(e) for e in p.shape], np.float32) for p in function.params[:2])
    results = []
    for each in (function, made):
        y = np.zeros([known(e) for e in function.params[2].shape], np.float32)
        evaluate(each, [x, w, y])
        results.append(y)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)
