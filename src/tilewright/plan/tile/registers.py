"""What a tile keeps near, in registers or on the stack: where it is made, for how long, in which order it lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from tilewright.expr.nodes import Var
from tilewright.loops.edit import loads, stored_buffers
from tilewright.loops.sizes import fits_stack
from tilewright.plan.tile.loops import extent, inside_of, loop_of
from tilewright.schedule.find import find_block, find_buffer
from tilewright.schedule.schedule import Schedule

Layout = Callable[[list[str]], Sequence[str]]
"""The dimensions of a layout, in terms of the names of a buffer's dimensions."""


def lay_out(s: Schedule, name: str, layout: Layout, pad: float | None = None) -> None:
    """The buffer of this name in another layout, whose further elements are `pad`."""
    d = [f"d{n}" for n in range(len(find_buffer(s.func, name).shape))]
    s.transform_layout(name, f"{', '.join(d)} -> {', '.join(layout(d))}", **({} if pad is None else {"pad": pad}))


def sums_apart(s: Schedule, block: str) -> tuple[str, str]:
    """Gives the sums of a block a buffer of their own. Returns the block that copies them to their places, and it."""
    write = str(s.cache_write(block))
    return write, next(loads(find_block(s.func, write))).buffer.name


def hold_sums(s: Schedule, sums: str, readers: Sequence[str], loop: Var, scope: str = "register") -> None:
    """What an iteration of a loop sums up is read in it, and held for no longer."""
    for block in readers:
        s.reverse_compute_at(block, loop)
    keep_near(s, sums, scope)


def compute_near(s: Schedule, block: str, loop: Var, scope: str = "") -> list[Var]:
    """Computes what a block makes in a loop, where it is kept near. Returns the block's loops inside that."""
    s.compute_at(block, loop)
    keep_near(s, made_by(s, block), scope)
    return inside_of(s, block, loop)


def keep_near(s: Schedule, name: str, scope: str = "") -> str:
    """A buffer that an iteration fills and reads takes no more room than it needs, in memory of this scope or, where
    none is given, on the stack if that is small. Returns its name."""
    s.compact(name)
    if scope or fits_stack(find_buffer(s.func, name)):
        s.set_scope(name, scope or "stack")
    return name


def made_by(s: Schedule, block: str) -> str:
    """The buffer that a block stores to."""
    (made,) = stored_buffers(find_block(s.func, block))
    return made.name


@dataclass(frozen=True, slots=True)
class Lanes:
    """What a vector holds: so many `columns` of a row, of each of `channels`, which a block's axis `channel` counts.
    `beside` of the columns are neighbours, then the next channel's follow."""

    columns: int
    beside: int
    channels: int = 1
    channel: int = 0

    @property
    def in_parts(self) -> bool:
        """Whether the columns of a channel are apart, part by part."""
        return self.beside < self.columns

    def layout(self, d: list[str]) -> list[str]:
        """Rows as vectors, in terms of the dimensions of a buffer."""
        *rest, column = d
        own = [rest.pop(self.channel)] if self.channels > 1 else []
        part = [f"{column} % {self.columns} // {self.beside}"] if self.in_parts else []
        return [*rest, f"{column} // {self.columns}", *part, *own, f"{column} % {self.beside}"]


def lay_in_lanes(s: Schedule, block: str, lanes: Lanes, around: Sequence[Var] = (), fill: bool = True) -> Var:
    """What a block makes lies in registers, its rows as vectors, which it fills beyond the last column, too, if `fill`.
    Returns the loop over a vector, which is inside all loops of a tile, those `around` it in this order."""
    column = loop_of(s, block, -1)
    beyond = extent(s, column) % lanes.columns
    vectors, column = s.split(column, lanes.columns, tail="mask")
    loops = [*s.split(column, lanes.beside)] if lanes.in_parts else [column]
    loops[-1:-1] = [loop_of(s, block, lanes.channel)] if lanes.channels > 1 else []
    if around:
        s.reorder(*around, vectors, *loops)
    lay_out(s, keep_near(s, made_by(s, block), "register"), lanes.layout)
    if beyond and fill:
        s.pad(block, loops[-1])
    lane: Var = reduce(s.fuse, loops)
    return lane
