"""How a convolution that keeps channels apart is run, in closed form: its tile, and where its rows lie."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from tilewright.core.walk import preorder
from tilewright.expr.intrinsics import BRIEF
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Call, Const, Var
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import allocations, blocks, loads
from tilewright.loops.nodes import Axis, Block, Buffer, Function, Load, Store
from tilewright.plan.facts.contraction import Contraction, Operand
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.loops import extent
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.step import Refused
from tilewright.target import Target
from tilewright.types.scopes import Scope

MOST_ROWS = 7
"""The most rows of a tile for each sixteen registers: so many sums, the rows they meet and a weight fill them; and
images shrink from 224 by halves to 7."""

MOST_TERMS = 64
"""The most places of a window: beyond, its rows are better summed up by other means."""

NEAR_SHARE = 2
"""A channel takes this part of the first cache at most; of larger ones a row of tiles is brought near at a time. The
sums of a channel that wait for the epilogue take this part of the second cache at most."""

ROWS_HELD, SHORT_ROWS_HELD = 9, 17
"""So many rows of the image are held in registers for a tile, or so many that are shorter than two vectors."""

FEW_WEIGHTS = 9
"""So many weights stay in registers all the while."""

LEAST_COLUMNS = 4
"""Rows of fewer columns are not worth a vector."""

WRITTEN_OUT = 128
"""The most multiply-adds that the body of the innermost loop holds; half as many beside functions like exp, whose
chains of instructions shall be near."""

FEW_VECTORS = 2
"""Tall tiles of rows of more vectors have three programs, two of them for the edges: there the columns of a window stay
a loop, which is as fast, and compiled in two thirds of the time."""

HALVES = 2
"""Machines with masks copy so many planes in parts of a vector each: what goes to one is then permuted out of one
register. Permuting it out of two takes an instruction of three operands, which waits for stores."""

TALL = 14
"""Tiles of so many rows load few rows of the image that the next one loads again: less than copying all would take."""


@dataclass(frozen=True, slots=True)
class Windows:
    """A sum over windows: its block, the buffers it fills and slides over, and the block that its result ends in (its
    own where that is the kernel's result); `calls` says that this one calls functions like exp. Sizes of the result are
    `height` and `width`; along each of the two a place is `steps` apart from the next, and a window has `taps` places,
    `apart` from each other; `column_tap` is the place in `block.reduce` of the axis over those of a row, None where a
    row has one."""

    block: str
    out: Buffer
    source: Buffer
    last: str
    calls: bool
    height: int
    width: int
    steps: tuple[int, int]
    taps: tuple[int, int]
    apart: tuple[int, int]
    column_tap: int | None


class Held(Enum):
    """Where the rows with their zeros are when a tile is summed up: COPIED to the stack, as a whole or for a row of
    tiles; in registers, as they lie, all ROWS that the tile meets; in registers, what a COLUMN of the window meets:
    where one tile is the whole image, or tiles are tall."""

    COPIED = "copied"
    COLUMN = "column"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Choice:
    """`rows` x `lanes` sums are a tile; its padded rows are `held` somewhere: copied as a whole channel or, `by_rows`,
    for a row of tiles, and where windows move by several columns in `planes`, the columns that a place meets together;
    so many elements of a row, or of a plane, are `copied` at a time; the columns of a window are written out, or a
    loop; the epilogue runs inside a tile or, `epilogue_apart`, after the sums of a channel; rows shorter than a vector
    are stored under a mask, or in two halves. While a channel that was copied is summed up, the next one is asked for
    (`next_ahead`), an element of each cache `line`."""

    rows: int
    lanes: int
    by_rows: bool
    held: Held
    planes: bool
    copied: int
    unroll_columns: bool
    epilogue_apart: bool
    masked_stores: bool
    next_ahead: bool
    line: int


def find_windows(function: Function, found: Contraction) -> Windows | None:
    """The contraction as a sum over windows of two dimensions, all sizes known; None for any other."""
    block, index = found.block, found.vector.load.indices
    if found.rows is not None or len(block.spatial) < 3 or len(index) < 2 or found.depth > MOST_TERMS:
        return None
    if not found.out.dtype.is_float or found.vector.buffer.dtype is not found.out.dtype or found.out.dtype.bits < 32:
        return None
    if any(not isinstance(e, Const) for e in found.extents):
        return None
    extents = {a.var: known(e) for a, e in zip(block.axes, found.extents, strict=True)}
    row, column = block.spatial[-2].var, block.spatial[-1].var
    along = [side_along(found.vector.load, d, axis, extents) for d, axis in ((-2, row), (-1, column))]
    last = last_block(function, found.block, found.out)
    if (
        found.broadcast.moves(row)
        or None in along
        or last is None
        or min(extents[row], extents[column]) < LEAST_COLUMNS
    ):
        return None
    (s0, t0, a0), (s1, t1, a1) = (a for a in along if a is not None)
    if t0 * t1 != found.depth or all(extents[a.var] == 1 for a in block.spatial[:-2]):
        return None
    sizes = extents[row], extents[column]
    tap = next((n for n, a in enumerate(block.reduce) if a.var in variables_of(index[-1])), None)
    names = block.name, found.out, found.vector.buffer, last.name
    return Windows(*names, calls_functions(last), *sizes, (s0, s1), (t0, t1), (a0, a1), tap)


def side_along(load: Load, dimension: int, axis: Var, extents: dict[Var, int]) -> tuple[int, int, int] | None:
    """(step, taps, distance of taps) of a dimension indexed by axis*step + tap*distance; None where it is not."""
    factors = dict(polynomial(load.indices[dimension]))
    step = factors.pop((axis,), 0)
    moving = [i for n, i in enumerate(load.indices) if axis in variables_of(i)]
    taps = [(m[0], c) for m, c in factors.items() if len(m) == 1]
    if step < 1 or len(moving) != 1 or len(taps) != len(factors) or len(taps) > 1:
        return None
    if not taps:
        return step, 1, 1
    (tap, distance) = taps[0]
    return (step, extents[tap], distance) if tap in extents and distance > 0 else None


def last_block(function: Function, block: Block, out: Buffer) -> Block | None:
    """The block that the result ends in: the only one that reads it, at its own points and nothing else."""
    if out.scope is Scope.ARGUMENT:
        return block
    readers = [b for b in blocks(function.body) if any(ld.buffer is out for ld in loads(b)) and b is not block]
    if len(readers) != 1 or out not in allocations(function.body):
        return None
    (reader,) = readers
    points = tuple(a.var for a in reader.axes)
    if reader.reduce or reader.where is not None or not isinstance(reader.body, Store) or reader.body.indices != points:
        return None
    return reader if all(ld.indices == points for ld in loads(reader) if ld.buffer is out) else None


def calls_functions(block: Block) -> bool:
    """Whether a block calls functions that take many instructions."""
    return any(isinstance(e, Call) and e.fn.name not in BRIEF for e in preorder(block.body))


def channel_axis(found: Contraction) -> int | None:
    """The place of the axis over channels: the longest that indexes a dimension of both factors."""
    axes = [n for n in found.batch if n != len(found.block.spatial) - 2]
    both = [n for n in axes if all(f.dimension(found.block.axes[n].var) is not None for f in _factors(found))]
    return max(both, key=lambda n: known(found.extents[n]), default=None)


def _factors(found: Contraction) -> tuple[Operand, Operand]:
    return found.vector, found.broadcast


def is_the_same_all_over(function: Function, w: Windows) -> bool:
    """Whether the epilogue reads, beside the sums, nothing that differs from place to place of an image."""
    last = find_block(function, w.last)
    image = {a.var for a in last.spatial[-2:]}
    others = [ld for ld in loads(last) if ld.buffer is not w.out]
    return w.last == w.block or not any(image & variables_of(i) for ld in others for i in ld.indices)


def column_taps(s: Schedule, w: Windows) -> list[Var]:
    """The loop over the window's columns, if it has several."""
    if w.column_tap is None:
        return []
    return _loops_over(s, w, find_block(s.func, w.block).reduce[w.column_tap])


def row_taps(s: Schedule, w: Windows) -> list[Var]:
    """The loops over the rest of the sum: the window's rows, if it has several, and what has one value."""
    columns = column_taps(s, w)
    found = [v for a in find_block(s.func, w.block).reduce for v in _loops_over(s, w, a)]
    return [v for v in found if v not in columns]


def trim_rows(s: Schedule, w: Windows) -> None:
    """Rows of zeros are left out of the sums, where weights are known to be finite: of a tile that is the whole image
    the place of each is known. There are none where something else is around the image, or no row is."""
    weights = [ld.buffer for ld in loads(find_block(s.func, w.block)) if ld.buffer not in (w.out, w.source)]
    taps = [tap for tap in row_taps(s, w) if extent(s, tap) > 1]
    for tap in taps if all(buffer.finite for buffer in weights) else ():
        with suppress(Refused):
            s.trim_sum(w.block, tap)


def _loops_over(s: Schedule, w: Windows, axis: Axis) -> list[Var]:
    return [v for v in s.get_loops(w.block) if v in variables_of(axis.binding)]


def choose(windows: Windows, target: Target) -> Choice:
    """The tile and the rest."""
    lanes = target.lanes(windows.out.dtype)
    tiles = -(-windows.height // (MOST_ROWS * (target.vector_registers // 16)))
    size = windows.out.dtype.bytes
    wide = [(n - 1) * s + (t - 1) * a + 1 for n, s, t, a in _dimensions(windows)]
    near = wide[0] * (wide[1] + lanes) * size <= target.caches[0].bytes // NEAR_SHARE
    most = _rows_of_held(windows, lanes)
    in_rows = most > 1 and target.has_masks and _are_held(windows, lanes, near)
    if in_rows:
        tiles = -(-windows.height // most)
    rows = -(-windows.height // tiles)
    most_written = WRITTEN_OUT // 2 if windows.calls else WRITTEN_OUT
    planes = windows.steps[1] > 1
    direct = not planes and ((tiles == 1 and windows.width <= lanes) or (near and _are_tall(windows, rows, target)))
    unroll = in_rows or rows * windows.taps[0] * windows.taps[1] <= most_written
    if direct and windows.width > FEW_VECTORS * lanes:
        unroll = False
    held = Held.ROWS if in_rows else Held.COLUMN if direct else Held.COPIED
    sums = windows.height * windows.width * size
    apart = windows.calls and windows.width >= lanes and sums <= target.caches[1].bytes // NEAR_SHARE
    masked = target.has_masks and not windows.calls  # beside functions like exp, halves are no slower
    one_piece = sum(known(extent) > 1 for extent in windows.source.shape[:-2]) <= 1
    copied = lanes // HALVES if windows.steps[1] == HALVES and target.has_masks else lanes
    ahead = held is Held.COPIED and near and one_piece and not unroll and windows.column_tap is not None
    line = target.caches[0].line // size
    return Choice(rows, lanes, not near, held, planes, copied, unroll, apart, masked, ahead, line)


def _are_tall(windows: Windows, rows: int, target: Target) -> bool:
    """Whether tiles are tall, their weights few, and zeros at their edges cost nothing: then what a column of the
    window meets is loaded from the image."""
    few = windows.taps[0] * windows.taps[1] <= FEW_WEIGHTS and windows.steps == windows.apart == (1, 1)
    return few and rows >= TALL and target.has_masks


def _rows_of_held(windows: Windows, lanes: int) -> int:
    """The most rows of a tile whose rows of the image are held."""
    held = ROWS_HELD if windows.width >= lanes else SHORT_ROWS_HELD
    return (held - windows.taps[0]) // windows.steps[0] + 1


def _are_held(windows: Windows, lanes: int, near: bool) -> bool:
    """Whether the rows of a tile are held as they lie, and the places of a window shuffled out of them: that takes
    fewer loads than a copy where it would be one in planes, or one row of tiles after the other."""
    taps, step = windows.taps, windows.steps[1]
    if windows.apart != (1, 1) or max(windows.steps) > 2:
        return False
    if taps[0] * taps[1] <= FEW_WEIGHTS:
        return step == 2 or not near
    return step == 2 and step * windows.width <= lanes and taps[1] <= lanes


def _dimensions(w: Windows) -> list[tuple[int, int, int, int]]:
    return list(zip((w.height, w.width), w.steps, w.taps, w.apart, strict=True))
