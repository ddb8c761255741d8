"""The edges of a tiled contraction: vectors that lie beyond them altogether go, tiles over them are computed whole
where that is possible, and only what is stored is looked at element by element."""

from __future__ import annotations

from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, loops_around
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.loops import cut_at
from tilewright.plan.tile.nest import Nest
from tilewright.plan.tile.registers import RegisterTile
from tilewright.schedule.facts.predicates import conjuncts, resolved
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
    tails = _last_panel_apart(s, panels, whole, vectors) if whole else vectors
    for block, loop in tails.items():
        plain = [rest // tile.lanes] if packing is not None and block.startswith(packing) else []
        cut_at(s, loop, sorted({*plain, alive}))
    return [name for name in tails if name.startswith(f"{found.block.name}.tail")]


def _last_panel_apart(s: Schedule, panels: Var, whole: int, vectors: dict[str, Var]) -> dict[str, Var]:
    """Puts the panels after so many into a loop of their own. Returns the copies of the blocks with these loops over
    their vectors, and the loops of the copies."""
    before = {b.name for b in blocks(s.func.body)}
    s.partition(panels, whole)
    tails = {}
    for name in [b.name for b in blocks(s.func.body) if b.name not in before]:
        original = next((b for b in vectors if name.startswith(f"{b}.tail")), None)
        if original is not None:
            around = loops_around(s.func.body, find_block(s.func, original))
            place = [loop.var for loop in around].index(vectors[original])
            tails[name] = s.get_loops(name)[place]
    return tails


def whole_panels_apart(s: Schedule, found: Contraction, tile: RegisterTile, nest: Nest) -> list[str]:
    """Panels of an operand as it lies, where no column is beyond the edge, in a loop of their own: only the others look
    at each. Returns the name of the further copy of the contraction's block."""
    extent = found.extents[found.columns]
    if not isinstance(extent, Const) or extent.value % tile.columns == 0:
        return []
    before = {b.name for b in blocks(s.func.body)}
    s.partition(nest.panels)
    tails = [b for b in blocks(s.func.body) if b.name not in before]
    alive = -(-(int(extent.value) % tile.columns) // tile.lanes)
    for block in tails if alive < tile.vectors else []:
        s.partition(s.get_loops(block.name)[-2], alive)
    return [b.name for b in tails if b.reduce]


def settle_edges(
    s: Schedule, contraction: Contraction, tile: RegisterTile, nest: Nest, block: str, packed: bool
) -> None:
    """Tiles over the edge are computed whole, where their operands have something to load there: panels that are
    `packed` do."""
    mine = {loop.var.name: loop.var for loop in loops_around(s.func.body, find_block(s.func, block))}
    for loop in (nest.row, nest.lane):
        variable = mine.get(loop.name) if loop is not None else None
        if variable is not None and is_bounded(s, block, variable):
            if loop is nest.row or packed or has_room(contraction, tile):
                s.pad(block, variable)


def is_bounded(s: Schedule, block: str, loop: Var) -> bool:
    """Whether a condition of the block is about the loop."""
    found = find_block(s.func, block)
    return any(loop in variables_of(resolved(found, c) or c) for c in conjuncts(found.where))


def has_room(found: Contraction, tile: RegisterTile) -> bool:
    """Whether the vector operand has something to load for every lane of the last vector."""
    last = found.vector.last
    index, extent = found.vector.load.indices[last], found.vector.buffer.shape[last]
    furthest: dict[Var, Expr] = {a.var: e - 1 for a, e in zip(found.block.axes, found.extents, strict=True)}
    positions = known(found.extents[found.columns])
    furthest[found.block.axes[found.columns].var] = const(-(-positions // tile.lanes) * tile.lanes - 1)
    reached = simplify(substitute(index, furthest))
    return isinstance(reached, Const) and isinstance(extent, Const) and reached.value < extent.value
