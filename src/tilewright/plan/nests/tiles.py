"""Which tile of accumulators a nest of sums has in registers, where an axis of its output vectorizes; `tile_registers`
(schedule/tiles.py) makes it."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.analysis.accesses import Access
from tilewright.analysis.movement import moving_accesses, step, vector_cost
from tilewright.expr.nodes import Const, Expr
from tilewright.loops.edit import blocks, statements
from tilewright.loops.nodes import For, Stmt
from tilewright.plan.facts.windows import calls_functions
from tilewright.schedule.nests import extent_of
from tilewright.schedule.reduce import accumulation
from tilewright.schedule.rows import reduces_contiguously
from tilewright.schedule.tiles import NARROWEST, flat_sums
from tilewright.schedule.tiles import Tile as Placed


@dataclass(frozen=True, slots=True)
class Tile:
    """A tile of accumulators: `vectors` vectors of `lanes` columns, which loop `along` counts, by `count` rows, which
    loop `across` counts; long sums in blocks of so many terms, where not 0."""

    lanes: int
    along: int
    vectors: int
    across: int | None = None
    count: int = 1
    blocks_of: int = 0


def tile_for(nest: Stmt, lanes: int, registers: int, block: int) -> Tile | None:
    """The tile of a nest of sums. None where no tile suits it."""
    flat = flat_sums(nest)
    tile = None if flat is None else choose_tile(*flat, lanes, registers)
    if flat is None or tile is None:
        return None
    loops, _ = flat
    across = None if tile.rows is None else loops.index(tile.rows)
    return Tile(lanes, loops.index(tile.columns), tile.vectors, across, tile.count, block)


def narrower(lanes: int) -> list[int]:
    """The widths of vectors that are worth trying where axes may be shorter than `lanes`: these, halves, quarters."""
    return [lanes, *(n for n in (lanes // 2, lanes // 4) if n >= max(min(NARROWEST, lanes // 2), 2))]


def choose_tile(loops: list[For], body: Stmt, lanes: int, registers: int) -> Placed | None:
    """The tile for spatial loops around an accumulation; None when no loop vectorizes well."""
    summing = {b.body for b in blocks(body) if accumulation(b) is not None}
    found = moving_accesses(body)
    inner = [a for a in found if a.statement in summing and not a.is_store]
    outer = [a for a in found if a.statement not in summing]
    depth = _depth(body)
    best: tuple[float, For] | None = None
    for loop in reversed(loops):
        extent = extent_of(loop)
        if isinstance(extent, Const) and extent.value < lanes:
            continue
        cost = vector_cost(inner, loop.var, lanes) + vector_cost(outer, loop.var, lanes) / depth
        cost *= _waste(extent, lanes)
        if best is None or cost < best[0]:
            best = cost, loop
    if best is None or best[0] >= lanes * len(inner):
        return None
    repeated = [a for a in found if a.loops]
    if any(step(a, best[1].var) not in (0, 1) for a in repeated) and reduces_contiguously(body, lanes):
        return None
    columns = best[1]
    rows = _row_loop(loops, columns, inner)
    any_number = not isinstance(extent_of(columns), Const)
    few = rows is not None or (any_number and any(calls_functions(b) for b in blocks(body)))
    vectors = _vectors(columns, lanes, most=2 if few else 8)
    if all(_is_one(loop) for loop in loops if loop is not columns):
        vectors = _shared_vectors(columns, lanes, vectors)
    budget = (registers - 1 - vectors) // vectors
    return Placed(columns, vectors, rows, _row_count(rows, budget) if rows is not None else 1)


def _waste(extent: Expr, lanes: int) -> float:
    """How many times longer a loop takes because what does not fill a vector runs as single elements."""
    if not isinstance(extent, Const):
        return 1.0
    whole, rest = divmod(int(extent.value), lanes)
    half, single = divmod(rest, lanes // 2) if lanes > NARROWEST else (0, rest)
    return (whole + half + single) * lanes / int(extent.value)


def _depth(body: Stmt) -> int:
    """How many terms one output accumulates, as far as it is known."""
    total = 1
    for s in statements(body):
        if isinstance(s, For):
            extent = extent_of(s)
            total *= max(int(extent.value), 1) if isinstance(extent, Const) else 64
    return max(total, 1)


def _row_loop(loops: list[For], columns: For, inner: list[Access]) -> For | None:
    """The loop along which most vectors are reused; the innermost of equals."""

    def reuse(loop: For) -> int:
        return sum(1 for a in inner if step(a, columns.var) == 1 and step(a, loop.var) == 0)

    others = [loop for loop in reversed(loops) if loop is not columns]
    useful = [loop for loop in others if reuse(loop) and not _is_one(loop)]
    return max(useful, key=reuse) if useful else None


def _is_one(loop: For) -> bool:
    extent = extent_of(loop)
    return isinstance(extent, Const) and extent.value <= 1


def _vectors(columns: For, lanes: int, most: int) -> int:
    """How many vectors of columns a tile has: at most two beside rows, or where only a call knows how many columns are
    there and functions like exp take many instructions for each; up to `most` where they are all there is."""
    extent = extent_of(columns)
    if not isinstance(extent, Const):
        return most
    fits = [v for v in (8, 4, 2) if v <= most and (extent.value % (v * lanes) == 0 or extent.value >= 2 * v * lanes)]
    return fits[0] if fits else 1


STRIPS = 6
"""Threads share strips of columns evenly where there are at least so many."""


def _shared_vectors(columns: For, lanes: int, vectors: int) -> int:
    """How many vectors a strip of the only loop has: fewer where strips would be few, but enough to hide additions."""
    extent = extent_of(columns)
    while vectors > ENOUGH and isinstance(extent, Const) and extent.value < STRIPS * vectors * lanes:
        vectors //= 2
    return vectors


ENOUGH = 4
"""So many vectors of sums at least are added to in turn."""


def _row_count(rows: For, budget: int) -> int:
    """The most rows the registers hold; fewer where that divides a known extent without a rest."""
    extent = extent_of(rows)
    most = max(min(budget, 8), 1)
    if not isinstance(extent, Const):
        return most
    if extent.value <= most:
        return int(extent.value)
    exact = [r for r in range(most, most // 2, -1) if extent.value % r == 0]
    return exact[0] if exact else most
