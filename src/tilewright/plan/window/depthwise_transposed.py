"""The schedule of convolutions that keep channels apart, where images are small: channels lie along the lanes.

    for as many channels as a vector has lanes:
      q[rows, columns, lanes] = their rows with their zeros, turned
      for rows m:
        t[columns, lanes] = 0
        for a, b, columns n: t[n] += q[row of m at a, column of n at b] * w[a, b]      weights packed in this order
        r[m] = f(t)
      y = r, turned back

Rows of seven would leave more than half of a vector's lanes empty, in the sums and in what f computes. Four columns of
four channels are turned at a time, in registers.
"""

from __future__ import annotations

from tilewright.expr.nodes import Var
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import blocks
from tilewright.loops.nodes import Function
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.loops import extent, inside, loop_of, parts
from tilewright.plan.tile.packing import pack
from tilewright.plan.window.depthwise_choice import FEW_WEIGHTS, Windows, channel_axis, is_the_same_all_over
from tilewright.schedule.find import find_block, find_loop, stored_buffers
from tilewright.schedule.points import SIDE
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope

EMPTY = 2
"""Rows are turned that fill this part of a vector at most."""

MOST_TURNED = 0.75
"""What is turned at a time takes this part of the first cache at most."""


def are_turned(function: Function, found: Contraction, w: Windows, target: Target) -> bool:
    """Whether a convolution is run so: where lanes would be empty, enough is done with what was turned, channels fill
    vectors, and what is turned fits."""
    lanes, axis = target.lanes(w.out.dtype), channel_axis(found)
    if axis is None or EMPTY * w.width > lanes or w.width < SIDE or w.out.dtype.bits != 32:
        return False
    if not (w.calls or w.taps[0] * w.taps[1] > FEW_WEIGHTS) or not is_the_same_all_over(function, w):
        return False
    sides = zip((w.height, w.width), w.steps, w.taps, w.apart, strict=True)
    rows, columns = ((n - 1) * s + (k - 1) * a + 1 for n, s, k, a in sides)
    size = rows * columns * lanes * w.out.dtype.bytes
    fits = size <= int(MOST_TURNED * target.caches[0].bytes)
    return fits and columns >= SIDE and known(found.extents[axis]) % lanes == 0


def apply_turned(s: Schedule, found: Contraction, w: Windows, target: Target) -> Schedule:
    """The steps, for a convolution that is to be turned."""
    lanes, axis = target.lanes(w.out.dtype), channel_axis(found)
    assert axis is not None
    padded = w.source.scope is not Scope.ARGUMENT
    near = s.unite(w.source.name) if padded else s.cache_read(w.block, w.source.name)
    last = s.cache_write(w.block) if w.out.scope is Scope.ARGUMENT else w.last
    turned_back = s.cache_write(last)
    pack(s, found, found.broadcast, axis, lanes)
    outer, lane = s.split(loop_of(s, turned_back, axis), lanes)
    row, column = loop_of(s, turned_back, -2), loop_of(s, turned_back, -1)
    around = [outer, *(v for v in s.get_loops(turned_back) if v not in (outer, lane, row, column))]
    s.reorder(*around, row, column, lane)
    s.compute_at(last, around[-1])
    _lay_turned(s, last, axis, Scope.STACK)
    row, column, each = (loop_of(s, last, d) for d in (-2, -1, axis))
    s.reorder(row, column, each)
    s.compute_at(w.block, row)
    _sum(s, w, axis)
    s.unroll(column)
    s.vectorize(each)
    _in_squares(s, loop_of(s, turned_back, -1))
    s.vectorize(lane)
    s.compute_at(near, around[-1])
    dimension = found.vector.dimension(found.block.axes[axis].var)
    assert dimension is not None
    _bring_near(s, near, dimension, padded)
    s.parallel(outer)
    return s


def _lay_turned(s: Schedule, block: str, axis: int, scope: Scope) -> None:
    """The buffer that a block fills is as large as an iteration needs it, channels innermost."""
    (made,) = stored_buffers(find_block(s.func, block))
    s.compact(made.name)
    s.set_scope(made.name, scope.value)
    names = [f"d{n}" for n in range(len(made.shape))]
    turned = [*(d for n, d in enumerate(names) if n != axis), names[axis]]
    s.transform_layout(made.name, f"{', '.join(names)} -> {', '.join(turned)}")


def _sum(s: Schedule, w: Windows, axis: int) -> None:
    """A row of sums in registers: a row of the window's weights, and a row of the image, are loaded once for it."""
    found = find_block(s.func, w.block)
    lane, column = loop_of(s, w.block, axis), loop_of(s, w.block, -1)
    taps = [v for a in found.reduce for v in s.get_loops(w.block) if v in variables_of(a.binding)]
    s.reorder(*taps, column, lane)
    _lay_turned(s, w.block, axis, Scope.REGISTER)
    s.vectorize(lane)
    s.unroll(column)
    s.unroll(taps[-1])


def _in_squares(s: Schedule, column: Var) -> None:
    """Four columns at a time, written out, where there are as many: with vectors along channels they are turned in
    registers."""
    if extent(s, column) >= SIDE:
        s.unroll(s.split(column, SIDE, tail="shift")[1])


def _bring_near(s: Schedule, near: str, axis: int, padded: bool) -> None:
    """The rows of the channels with the zeros around them; the image itself in squares."""
    _lay_turned(s, near, axis, Scope.STACK)
    row, column, lane = (loop_of(s, near, d) for d in (-2, -1, axis))
    s.reorder(row, column, lane)
    s.vectorize(lane)
    if padded:
        s.guard(near)
        found = find_block(s.func, near)
        image = parts(s, row, inside(found, found.spatial[-2].var, 1))[1]
        held = blocks(find_loop(s.func, image))[-1].name
        column = parts(s, s.get_loops(held)[-2], inside(found, found.spatial[-1].var, 1))[1]
    _in_squares(s, column)
