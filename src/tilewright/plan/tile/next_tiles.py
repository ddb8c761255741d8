"""What later tiles store, and what their epilogues read, prefetched when a tile is stored.

    y[i, j] = f(t[i, j], b[i, j])          the rows of b and of y that a tile later reaches

Nothing has followed these pieces of rows; a tile's stores and loads would else wait for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.accesses import accesses
from tilewright.expr.nodes import Var
from tilewright.loops.edit import allocations, stored_buffers
from tilewright.plan.tile import loops as tiling
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.types.scopes import Scope


def prefetch_next_tile(s: Schedule, results: Sequence[str], tiles: Var) -> None:
    """Each row of a tile asks for a line of the same row of the next one, of all that `results`, the blocks that store
    a tile, read and store there: the stores of a tile would else wait for memory that was last used long ago."""
    if tiling.extent(s, tiles) == 1:
        return
    asked: dict[str, Var] = {}
    for block in results:
        row = tiling.inside_of(s, block, tiles)[0]
        for access in accesses(find_loop(s.func, row).body):
            one_row = {row, tiles} <= access.variables and access.variables & {loop.var for loop in access.loops}
            if one_row and access.buffer.scope is not Scope.REGISTER:
                asked.setdefault(access.buffer.name, row)
    for name, row in asked.items():
        s.prefetch(name, tiles, 1, row)


def prefetch_read_later(s: Schedule, result: str, tiles: Var, later: Var) -> None:
    """Each vector of a tile asks for what the same tile reads in the next iteration of `later`, a loop around all
    tiles, of what the kernel is given: `result` is the block that stores a tile."""
    inside = tiling.inside_of(s, result, tiles)
    own = {*allocations(s.func.body)}
    found = [a for a in accesses(find_loop(s.func, inside[0]).body) if not a.is_store and a.buffer not in own]
    for name in dict.fromkeys(a.buffer.name for a in found if {tiles, later, inside[-1]} <= a.variables):
        s.attempt(s.prefetch, name, later, 1, inside[-2])


def prefetch_stored_later(s: Schedule, result: str, later: Var, inner: Var) -> None:
    """Each iteration of the `inner` loop asks for the place where the same iteration stores in the next one of `later`,
    a loop around it: memory that was last used long ago. `result` is the block that stores."""
    (stored,) = stored_buffers(find_block(s.func, result))
    s.attempt(s.prefetch, stored.name, later, 1, inner)
