"""What a contraction brings near before its tiles need it: a constant operand, and where results are stored."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.accesses import accesses
from tilewright.expr.nodes import Var
from tilewright.expr.variables import variables_of
from tilewright.plan.facts.contraction import Contraction
from tilewright.schedule.find import find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.types.scopes import Scope

LEAST_TERMS = 32
"""Tiles of fewer terms are done before what they ask for is there."""


def prefetch_constant(s: Schedule, block: str, constant: str, loop: Var, tiles: Var, line: int) -> None:
    """What the next iteration of the loop over panels, or over tiles of rows, reads of a constant is brought near while
    this one is computed, a few lines with each few terms."""
    loops = s.get_loops(block)
    s.prefetch(constant, loop, 1, loops[loops.index(tiles) + 1], apart=line)


def prefetch_results(s: Schedule, found: Contraction, results: Sequence[str], tiles: Var) -> None:
    """When a tile is stored, the rows of the next one are brought near, and those of what epilogues read there, a
    cache line of each: the stores of a tile would else wait for memory that was last used long ago."""
    if found.rows is None or found.depth < LEAST_TERMS:
        return
    asked: set[str] = set()
    for block in results:
        loops = s.get_loops(block)
        row = loops[loops.index(tiles) + 1]
        for name in _rows_in_memory(s, tiles, row):
            if name not in asked:
                asked.add(name)
                s.prefetch(name, tiles, 1, row)


def _rows_in_memory(s: Schedule, tiles: Var, row: Var) -> list[str]:
    """The buffers in memory of which each iteration of a loop over the rows of a tile touches a row of its own."""
    names: dict[str, None] = {}
    for access in accesses(find_loop(s.func, row).body):
        used = frozenset[Var]().union(*(variables_of(index) for index in access.indices))
        inside = {loop.var for loop in access.loops}
        if access.buffer.scope is not Scope.REGISTER and {row, tiles} <= used and used & inside:
            names[access.buffer.name] = None
    return list(names)
