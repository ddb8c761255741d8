"""The edges of a tiled contraction: vectors that lie beyond them altogether go, tiles over them are computed whole
where that is possible, and only what is stored is looked at element by element."""

from __future__ import annotations

from tilewright.core.walk import substitute
from tilewright.expr.build import conjuncts
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import loops_around
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.loops import copied_by, cut_at
from tilewright.plan.tile.registers import RegisterTile
from tilewright.schedule.facts.known import resolved
from tilewright.schedule.find import find_block
from tilewright.schedule.schedule import Schedule


def panel_over_the_edge(
    s: Schedule,
    found: Contraction,
    tile: RegisterTile,
    panels: Var,
    vectors: dict[str, Var],
    apart: bool,
    packing: str | None = None,
) -> list[str]:
    """The last column panel, in a loop of its own where it lacks vectors, or is to be `apart` in any case. `vectors`
    has the loops over the vectors of a panel, by block; of the block that is `packing` the panel, if there is one, the
    last vector with columns beyond the edge is apart as well. Returns the copies of the contraction's block."""
    extent = found.extents[found.columns]
    if not isinstance(extent, Const):
        return []
    whole, rest = divmod(int(extent.value), tile.columns)
    alive = -(-rest // tile.lanes)
    if not rest or (alive == tile.vectors and not apart):
        return []
    tails = dict(vectors)
    if whole:
        place = {block: s.get_loops(block).index(loop) for block, loop in vectors.items()}
        made = copied_by(s, s.partition, panels, whole)
        original = {name: block for name in made for block in vectors if name.startswith(f"{block}.tail")}
        tails = {name: s.get_loops(name)[place[block]] for name, block in original.items()}
    for name, loop in tails.items():
        plain = [rest // tile.lanes] if packing is not None and name.startswith(packing) else []
        cut_at(s, loop, sorted({*plain, alive}))
    return [name for name in tails if name.startswith(f"{found.block.name}.tail")]


def whole_panels_apart(s: Schedule, found: Contraction, tile: RegisterTile, panels: Var) -> list[str]:
    """Panels of an operand as it lies, where no column is beyond the edge, in a loop of their own: only the others look
    at each. Returns the name of the further copy of the contraction's block."""
    extent = found.extents[found.columns]
    if not isinstance(extent, Const) or extent.value % tile.columns == 0:
        return []
    tails = copied_by(s, s.partition, panels)
    alive = -(-(int(extent.value) % tile.columns) // tile.lanes)
    for name in tails if alive < tile.vectors else []:
        s.partition(s.get_loops(name)[-2], alive)
    return [name for name in tails if find_block(s.func, name).reduce]


def settle_edges(
    s: Schedule, found: Contraction, tile: RegisterTile, row: Var | None, lane: Var, block: str, packed: bool
) -> None:
    """Tiles over the edge are computed whole, where their operands have something to load there: panels that are
    `packed` do. The loops are those of a tile, which the block has by their names."""
    mine = {loop.var.name: loop.var for loop in loops_around(s.func.body, find_block(s.func, block))}
    for loop in [mine[v.name] for v in (row, lane) if v is not None and v.name in mine]:
        is_row = row is not None and loop.name == row.name
        if is_bounded(s, block, loop) and (is_row or packed or has_room(found, tile)):
            s.pad(block, loop)


def is_bounded(s: Schedule, block: str, loop: Var) -> bool:
    """Whether a condition of the block is about the loop."""
    found = find_block(s.func, block)
    return any(loop in variables_of(resolved(found, c)) for c in conjuncts(found.where))


def has_room(found: Contraction, tile: RegisterTile) -> bool:
    """Whether the vector operand has something to load for every lane of the last vector."""
    last = found.vector.last
    index, extent = found.vector.load.indices[last], found.vector.buffer.shape[last]
    furthest: dict[Var, Expr] = {a.var: e - 1 for a, e in zip(found.block.axes, found.extents, strict=True)}
    positions = known(found.extents[found.columns])
    furthest[found.block.axes[found.columns].var] = const(-(-positions // tile.lanes) * tile.lanes - 1)
    reached = simplify(substitute(index, furthest))
    return isinstance(reached, Const) and isinstance(extent, Const) and reached.value < extent.value
