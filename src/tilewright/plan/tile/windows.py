"""Steps that all schedules of windows share: the loops over a window, and what tiles read held in registers.

Blocks are given by name, tiles by the loop that an iteration of is one. Names of steps: `in_registers` places what a
block makes, `in_vectors` lays its rows out as vectors, `transposed` its channels innermost; `hold` loads what a tile
reads, with what is around the image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from tilewright.expr.nodes import Var
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import loads
from tilewright.loops.nodes import Buffer
from tilewright.plan.facts.windows import Side, Windows
from tilewright.plan.tile.loops import extent, inside, loop_of, parts
from tilewright.schedule.find import find_block, stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.step import Refused
from tilewright.types.scopes import Scope


def window_loops(s: Schedule, w: Windows) -> tuple[list[Var], list[Var], list[Var]]:
    """The loops over a window: those of one iteration, those over its rows, those over its columns."""
    block, terms = find_block(s.func, w.block), []
    columns = None if w.columns.term is None else block.axes[w.columns.term]
    for axis in block.reduce:
        found = [v for v in s.get_loops(w.block) if v in variables_of(axis.binding)]
        terms.append((axis is columns, found))
    across = [v for is_column, found in terms if is_column for v in found]
    others = [v for is_column, found in terms if not is_column for v in found]
    single = [v for v in others if extent(s, v) == 1]
    return single, [v for v in others if v not in single], across


def final_block(s: Schedule, w: Windows) -> str:
    """The block that tiles end in: of a kernel that stores its sums as they are, a new one that does."""
    return str(s.cache_write(w.block)) if w.out.scope is Scope.ARGUMENT else w.last


def trim_rows(s: Schedule, w: Windows) -> None:
    """Leaves rows of zeros out of sums, where all weights are finite: a tile that is the whole image knows the place of
    each. There are none where something else is around the image."""
    for loop in window_loops(s, w)[1] if w.finite else ():
        with suppress(Refused):
            s.trim_sum(w.block, loop)


def made_by(s: Schedule, block: str) -> Buffer:
    """The buffer that a block fills."""
    (made,) = stored_buffers(find_block(s.func, block))
    return made


def in_scope(s: Schedule, block: str, scope: Scope) -> Buffer:
    """What a block makes is as large as an iteration around it needs, and lies in `scope`."""
    name = made_by(s, block).name
    s.compact(name)
    s.set_scope(name, scope.value)
    return made_by(s, block)


def in_registers(s: Schedule, block: str) -> Buffer:
    """What a block makes lies in registers."""
    return in_scope(s, block, Scope.REGISTER)


def relayout(
    s: Schedule,
    name: str,
    rank: int,
    places: Mapping[int, Sequence[str]],
    order: Sequence[int] = (),
    pad: float | None = None,
) -> None:
    """Dimensions of a buffer, in an `order` or as they are, each by itself or as the `places` that are given of it,
    counted from behind, where `d` is what indexes it. Further elements are `pad`."""
    names = [f"d{n}" for n in range(rank)]
    made = [text.replace("d", names[n]) for n in order or range(rank) for text in places.get(n - rank, ("d",))]
    s.transform_layout(name, f"{', '.join(names)} -> {', '.join(made)}", **({} if pad is None else {"pad": pad}))


def in_vectors(s: Schedule, block: str, lane: Var | None, lanes: int) -> None:
    """What a block makes lies in registers, its rows as vectors, which it fills beyond the last column where `lane`
    is the loop over lanes."""
    made = in_registers(s, block)
    relayout(s, made.name, len(made.shape), {-1: (f"d // {lanes}", f"d % {lanes}")})
    if lane is not None:
        s.pad(block, lane)


def transposed(s: Schedule, block: str, axis: int, scope: Scope) -> None:
    """What a block makes is as large as an iteration needs it, with the channels of dimension `axis` innermost."""
    made = in_scope(s, block, scope)
    rank = len(made.shape)
    relayout(s, made.name, rank, {}, [*(n for n in range(rank) if n != axis), axis])


def hold(s: Schedule, block: str, tile: Var, lanes: int, row: int = -2, others: Sequence[int] = ()) -> None:
    """What an iteration of `tile` reads of a block's rows is loaded into registers as it lies, in whole vectors,
    written out along the axis `row` and the `others`."""
    s.compute_at(block, tile)
    column = loop_of(s, block, -1)
    vectors, beyond = None, extent(s, column) % lanes
    if extent(s, column) == lanes:
        in_registers(s, block)
    else:
        vectors, column = s.split(column, lanes, tail="mask")
        in_vectors(s, block, column if beyond else None, lanes)
    s.vectorize(column)
    for loop in (vectors, *(loop_of(s, block, axis) for axis in (row, *others))):
        if loop is not None:
            s.unroll(loop)


def rows_inside(s: Schedule, block: str, side: Side, axis: int, rows: int) -> tuple[int, int]:
    """The rows of a tile that lie inside the image for every tile of so many `rows`."""
    found = find_block(s.func, block)
    first, end = inside(found, found.spatial[axis].var, 1)
    return first, max(end - (side.size - rows) * side.stride, first)


def edges_alone(s: Schedule, loop: Var) -> None:
    """The first and the last iteration of a loop by themselves: those between need no masks."""
    count = extent(s, loop)
    if count > 2:
        parts(s, loop, (1, count - 1))
    else:
        s.unroll(loop)


def read_by(s: Schedule, block: str) -> set[str]:
    """The names of the buffers that a block reads."""
    return {ld.buffer.name for ld in loads(find_block(s.func, block))}
