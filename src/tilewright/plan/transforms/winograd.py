"""The templates of Winograd's transforms: the input's with tiles along the lanes, the output's with channels.

The result of a transform's first stage is kept on the stack for its second stage.

    for n, c:                                               input; also in groups of channels, c innermost
      padded = the channel with its padding
      half = Bᵀ d                                           for all rows of tiles, or for one
      for p, rows of tiles, vectors of tiles: v[p, …] = half B

    for n, vectors of channels, rows of tiles:              output
      for tiles of the row:
        half = Aᵀ m
        whole = half A                                      the pixels of the tile
      y = f(whole)                                          the epilogue, in vectors along rows, transposed in registers

If a loop is no multiple of the lanes, its last vector is moved back: it computes some results twice, with equal values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tilewright.expr.build import conjuncts
from tilewright.expr.dtypes import f32
from tilewright.expr.linear import affine_in, plus, polynomial
from tilewright.expr.nodes import Const, Expr, Le, Lt, Select, Var
from tilewright.loops.edit import loads, loops_around
from tilewright.loops.nodes import Block, Store
from tilewright.plan.facts.kernel import Facts
from tilewright.plan.gemm.transposed import store_transposed
from tilewright.plan.price.sizes import known
from tilewright.plan.price.transforms import Tiling, winograd_input_seconds, winograd_output_seconds
from tilewright.plan.template import Template
from tilewright.plan.tile.loops import cut_at, extent
from tilewright.plan.tile.nest import MANY
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import MOST_BYTES, Scope


class Held(Enum):
    """What the first stage transforms before the second one begins: a whole channel; a row of tiles of a channel that
    was padded before; or a row of tiles that is padded by itself."""

    CHANNEL = "channel"
    ROW = "row of a padded channel"
    PADDED_ROW = "padded row"


@dataclass(frozen=True, slots=True)
class InputChoice:
    """Vectors of `lanes`; what is `held` between the stages; and how many channels a group has. A group writes its
    planes of factors together, a few planes at a time, so that they do not compete for the same cache sets."""

    lanes: int
    held: Held
    together: int = 1


@dataclass(frozen=True, slots=True)
class OutputChoice:
    """Vectors of `lanes` channels, and of positions when the result is stored."""

    lanes: int


@dataclass(frozen=True, slots=True)
class InputTiles:
    """The tiles of an input transform, and whether the number of channels is known."""

    tiles: Tiling
    any_channels: bool = False


class WinogradInput(Template[InputTiles, InputChoice]):
    """Kernels with an input transform."""

    name = "winograd input"
    choice = InputChoice
    whole = True

    def recognise(self, facts: Facts) -> InputTiles | None:
        if "winograd_input" not in facts.names or not _has_points(facts):
            return None
        block = find_block(facts.function, "winograd_input")
        n, c, rows, columns, edge, _, *woven = _extents(facts, block)
        (padded,) = {ld.buffer for ld in loads(find_block(facts.function, "winograd_rows"))}
        step = known(padded.shape[-1]) // (known(columns) + 1)
        assert isinstance(block.body, Store)
        size, stride = next((step // n, n) for n in (1, 2) if (step // n - 1) * n + 3 == known(edge))
        channels = known(c) * (known(woven[0]) if woven else 1)
        made = block.body.buffer.dtype.bytes
        tiles = Tiling(size, stride, known(n), channels, known(rows), known(columns), made)
        return InputTiles(tiles, not isinstance(c, Const))

    def choices(self, shape: InputTiles, target: Target) -> Iterator[InputChoice]:
        return _input_choices(shape, target)

    def price(self, choice: InputChoice, shape: InputTiles, target: Target) -> float:
        return _input_seconds(choice, shape.tiles, target)

    def apply(self, s: Schedule, shape: InputTiles, choice: InputChoice) -> Schedule:
        _, c, i, j, p, q, *woven = s.get_loops("winograd_input")
        jo, ji = s.split(j, _lanes(s, j, choice.lanes), tail="shift")
        if choice.together > 1:
            c, inner = s.split(c, choice.together, tail="clip")
            s.reorder(p, inner, i, jo, q, *woven, ji)
        else:
            s.reorder(p, *([i] if choice.held is Held.CHANNEL else []), jo, q, *woven, ji)
        s.vectorize(ji)
        for loop in (q, *woven):
            s.unroll(loop)
        s.compute_at("winograd_rows", c if choice.held is Held.CHANNEL else i)
        channel = s.get_loops("winograd_rows")[-4] if choice.held is Held.CHANNEL else c
        s.compute_at("winograd_pad", i if choice.held is Held.PADDED_ROW else channel)
        for buffer in ("half", "padded"):
            s.compact(buffer)
            s.set_scope(buffer, "stack")
        row, column = s.get_loops("winograd_rows")[-2:]
        wo, wi = s.split(column, _lanes(s, column, choice.lanes), tail="shift")
        s.reorder(wo, row, wi)
        s.vectorize(wi)
        s.unroll(row)
        _pad(s, choice.lanes)
        return s


def _input_choices(shape: InputTiles, target: Target) -> Iterator[InputChoice]:
    """The ways to run an input transform. Groups of 1, 2, 4, … channels, as long as they fit the stack and threads can
    share them evenly."""
    t, lanes, room = shape.tiles, target.lanes(f32), MOST_BYTES[Scope.STACK]
    together = 1
    while together * t.half <= room and (together == 1 or t.channels // together >= MANY):
        yield InputChoice(lanes, Held.CHANNEL, together)
        together *= 2
        if shape.any_channels:
            break
    if t.padded <= room:
        yield InputChoice(lanes, Held.ROW)
    yield InputChoice(lanes, Held.PADDED_ROW)


def _input_seconds(choice: InputChoice, tiles: Tiling, target: Target) -> float:
    together = choice.together if choice.held is Held.CHANNEL else 0
    return winograd_input_seconds(tiles, choice.lanes, together, choice.held is not Held.PADDED_ROW, target)


def transform_seconds(before: Tiling, behind: Tiling, target: Target) -> float:
    """Seconds of both transforms around the products, each in its cheapest way."""
    read = min(_input_seconds(c, before, target) for c in _input_choices(InputTiles(before), target))
    return read + winograd_output_seconds(behind, target.lanes(f32), target)


def _pad(s: Schedule, lanes: int) -> None:
    """Copies the image in vectors; its padding has loops of its own."""
    block = find_block(s.func, "winograd_pad")
    row, column = s.get_loops("winograd_pad")[-2:]
    rows, columns = (_edges(block, axis.var) for axis in block.axes[-2:])
    for part in cut_at(s, column, columns):
        width = _lanes(s, part, lanes)
        if width > 1:
            s.vectorize(s.split(part, width, tail="shift")[1])
    cut_at(s, row, rows)


def _edges(block: Block, axis: Var) -> list[int]:
    """Where the image begins and ends along an axis of the padded copy."""
    assert isinstance(block.body, Store)
    if not isinstance(block.body.value, Select):
        return []
    places = set()
    for cond in conjuncts(block.body.value.cond):
        assert isinstance(cond, Le | Lt)
        parts = affine_in(plus(polynomial(cond.a), polynomial(cond.b), -1), axis)
        if parts is not None and parts[0]:
            places.add(abs(parts[1].get((), 0)))
    return sorted(places - {0})


class WinogradOutput(Template[Tiling, OutputChoice]):
    """Kernels with an output transform whose result is at least a tile high and wide."""

    name = "winograd output"
    choice = OutputChoice
    whole = True

    def recognise(self, facts: Facts) -> Tiling | None:
        if "winograd_output" not in facts.names or not _has_points(facts):
            return None
        n, size, edge, tiles, channels = map(known, _extents(facts, find_block(facts.function, "winograd_columns")))
        *_, height, width = map(known, facts.function.params[-1].shape)
        if min(height, width) < size or min(tiles, channels) < 2:
            return None  # loops of a single iteration have been removed
        return Tiling(size, 1 if edge == size + 2 else 2, n, channels, 1, tiles)

    def choices(self, shape: Tiling, target: Target) -> Iterator[OutputChoice]:
        yield OutputChoice(target.lanes(f32))

    def price(self, choice: OutputChoice, shape: Tiling, target: Target) -> float:
        return winograd_output_seconds(shape, choice.lanes, target)

    def apply(self, s: Schedule, shape: Tiling, choice: OutputChoice) -> Schedule:
        block = _with_epilogue(s)
        _, o, h, _ = loops = s.get_loops(block)
        vectors, o = s.split(o, _lanes(s, o, choice.lanes), tail="shift")
        rows, a = s.split(h, shape.size, tail="mask")
        s.reorder(vectors, rows, o, a, loops[-1])
        s.compute_at("winograd_tiles", rows)
        s.compact("whole")
        *_, a, t, b, lane = s.get_loops("winograd_tiles")
        s.reorder(t, a, b, lane)
        s.vectorize(lane)
        s.unroll(b)
        s.compute_at("winograd_columns", t)
        *_, a, q, lane = s.get_loops("winograd_columns")
        s.reorder(q, a)
        s.vectorize(lane)
        s.unroll(a)
        s.compact("half")
        for buffer in ("half", "whole"):
            s.set_scope(buffer, "stack")
        store_transposed(s, block, rows, choice.lanes)
        return s


def _with_epilogue(s: Schedule) -> str:
    """Inlines the output into what follows it, and so on to the end; returns the last block's name."""
    pending, last = ["winograd_output"], "winograd_output"
    while pending:
        block = pending.pop(0)
        readers = s.get_consumers(block)
        if readers:
            s.inline(block)
            pending += [r for r in readers if r not in pending]
        else:
            last = block
    return last


def _has_points(facts: Facts) -> bool:
    """Whether no dimension is known to be 0."""
    return not any(isinstance(e, Const) and e.value == 0 for b in facts.function.params for e in b.shape)


def _extents(facts: Facts, block: Block) -> list[Expr]:
    """The extents of the loops around a block."""
    return [extent_of(loop) for loop in loops_around(facts.function.body, block)]


def _lanes(s: Schedule, loop: Var, lanes: int) -> int:
    """The lanes for a loop: `lanes`, halved until they fit its extent."""
    while lanes > extent(s, loop):
        lanes //= 2
    return lanes
