"""Steps that all templates of windows share. Blocks are given by name, a tile by the loop that an iteration of is one.

final_block, padded_rows     the blocks that a tile ends and begins with
window_loops, trim_rows      the loops over a window
place, relayout, lay_in_vectors  where a block stores what it makes, and in which order
hold                         what a tile reads of rows, in registers
write_out                    the loops of a tile unrolled around a vector
edges_alone                  loops of their own for tiles at the edges of an image
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from tilewright.expr.nodes import Var
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import loads
from tilewright.plan.facts.windows import Side, Windows
from tilewright.plan.tile.loops import cut_at, extent, inside, loop_of
from tilewright.schedule.find import find_block, find_buffer, stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.step import Refused
from tilewright.types.scopes import Scope

Layout = Callable[[list[str]], Sequence[str]]
"""The dimensions of a layout, in terms of the names of a buffer's dimensions."""


def final_block(s: Schedule, w: Windows) -> str:
    """The block that tiles end in: of a kernel that stores its sums as they are, a new one that does."""
    return str(s.cache_write(w.block)) if w.out.scope is Scope.ARGUMENT else w.last


def padded_rows(s: Schedule, w: Windows) -> str:
    """The only block that makes the rows that windows read: padding and image or, without padding, a copy."""
    return str(s.unite(w.source.name) if w.padded else s.cache_read(w.block, w.source.name))


def window_loops(s: Schedule, w: Windows) -> tuple[list[Var], list[Var], list[Var]]:
    """The loops over a window: those of one iteration, those over its rows, those over its columns."""
    block = find_block(s.func, w.block)
    used = () if w.columns.term is None else variables_of(block.axes[w.columns.term].binding)
    loops = [v for axis in block.reduce for v in s.get_loops(w.block) if v in variables_of(axis.binding)]
    columns = [v for v in loops if v in used]
    single = [v for v in loops if v not in columns and extent(s, v) == 1]
    return single, [v for v in loops if v not in (*single, *columns)], columns


def trim_rows(s: Schedule, w: Windows) -> None:
    """Leaves rows of zeros out of sums, where all weights are finite: a tile that is the whole image knows the place of
    each. There are none where something else is around the image."""
    for loop in window_loops(s, w)[1] if w.finite else ():
        with suppress(Refused):
            s.trim_sum(w.block, loop)


def read_by(s: Schedule, block: str) -> set[str]:
    """The names of the buffers that a block reads."""
    return {ld.buffer.name for ld in loads(find_block(s.func, block))}


def place(s: Schedule, block: str, layout: Layout | None = None, scope: Scope = Scope.REGISTER) -> str:
    """What a block makes is as large as an iteration around it needs, and lies in `scope`, in a layout. Returns the
    buffer's name."""
    (made,) = stored_buffers(find_block(s.func, block))
    s.compact(made.name)
    s.set_scope(made.name, scope.value)
    if layout is not None:
        relayout(s, made.name, layout)
    return made.name


def relayout(s: Schedule, name: str, layout: Layout, pad: float | None = None) -> None:
    """A buffer in another layout, whose further elements are `pad`."""
    names = [f"d{n}" for n in range(len(find_buffer(s.func, name).shape))]
    text = f"{', '.join(names)} -> {', '.join(layout(names))}"
    s.transform_layout(name, text, **({} if pad is None else {"pad": pad}))


def lay_in_vectors(s: Schedule, block: str, lanes: int, fill: bool = True) -> Var:
    """What a block makes lies in registers, its rows as whole vectors, which it fills beyond the last column, too, if
    `fill`. Returns the loop over lanes."""
    lane = loop_of(s, block, -1)
    beyond, whole = extent(s, lane) % lanes, extent(s, lane) == lanes
    if not whole:
        _, lane = s.split(lane, lanes, tail="mask")
    place(s, block, None if whole else lambda d: [*d[:-1], f"{d[-1]} // {lanes}", f"{d[-1]} % {lanes}"])
    if beyond and fill:
        s.pad(block, lane)
    return lane


def hold(s: Schedule, block: str, tile: Var, lanes: int) -> None:
    """What an iteration of `tile` reads of a block's rows is loaded into registers as it lies, in whole vectors."""
    s.compute_at(block, tile)
    write_out(s, block, tile, lay_in_vectors(s, block, lanes))


def write_out(s: Schedule, block: str, tile: Var, lane: Var, kept: Collection[Var] = ()) -> None:
    """A block's part of a tile without loops but those `kept`: `lane` becomes vectors, all others are unrolled."""
    loops = s.get_loops(block)
    s.vectorize(lane)
    for loop in loops[loops.index(tile) + 1 :]:
        if loop is not lane and loop not in kept and extent(s, loop) > 1:
            s.unroll(loop)


def rows_inside(s: Schedule, block: str, side: Side, axis: int, rows: int) -> tuple[int, int]:
    """The rows of a tile that lie inside the image for every tile of so many `rows`."""
    found = find_block(s.func, block)
    first, end = inside(found.where, found.spatial[axis].var)
    return first, max(end - (side.size - rows) * side.stride, first)


def edges_alone(s: Schedule, loop: Var) -> None:
    """The first and the last iteration of a loop by themselves: those between need no masks."""
    count = extent(s, loop)
    if count > 2:
        cut_at(s, loop, (1, count - 1))
    else:
        s.unroll(loop)
