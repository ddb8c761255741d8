"""The schedule of attentions: scores of a block of rows lie in the near caches, and all that rows need is done to them.

    parallel for b, h:
      kp, vp = panels of the head's keys and values
      for blocks of R rows:
        s[R, keys] = f(q · kp)            a tile in registers at a time; f is what is done to scores point by point
        for r in R: row r of p = softmax(row r of s)
        y = g(p · vp)                     a tile in registers at a time, stored to its place

Both products are tiled like any other contraction, inside a block of rows. Steps in between are whatever maps and
reductions of rows stand between two products: a kernel is an attention by its shape, not by what it computes.
"""

from __future__ import annotations

from tilewright.expr.nodes import Const, Select, Var
from tilewright.loops.edit import allocations, blocks
from tilewright.loops.nodes import Buffer, Store
from tilewright.plan.attention.choice import Choice
from tilewright.plan.attention.rows import in_lanes
from tilewright.plan.facts.attention import Attention
from tilewright.plan.facts.contraction import Contraction
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.edges import panel_over_the_edge
from tilewright.plan.tile.nest import MANY, write_out, write_out_terms
from tilewright.plan.tile.packing import only_store, panels_of
from tilewright.plan.tile.registers import RegisterTile
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.find import find_block, find_loop, stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.types.scopes import MOST_BYTES, Scope


def apply_choice(s: Schedule, found: Attention, choice: Choice) -> Schedule:
    """The steps that a choice stands for."""
    batch, rows = _outer_loops(s, found, choice)
    tiles = ((found.first, choice.scores), (found.second, choice.sums))
    panels = [panels_of(s, dot, dot.vector, dot.columns, tile.columns) for dot, tile in tiles]
    _gather(s, found, rows, choice.together)
    _operands(s, found, batch, rows, panels, choice)
    whole = set() if batch else {b.name for panel in panels for b in stored_buffers(find_block(s.func, panel))}
    for name in [b.name for b in allocations(s.func.body) if b.scope is Scope.ARENA and b.name not in whole]:
        s.compact(name)
    for panel in panels:
        _fill_panels(s, panel)
    _tile(s, found.first, found.scores, choice.scores, choice.terms[0])
    _tile(s, found.second, found.write, choice.sums, choice.terms[1])
    in_lanes(s, found.between, choice.scores.lanes, choice.chains)
    _keep_near(s)
    shared = batch if choice.overlap else [*batch, rows]
    if shared:
        s.parallel(_shared(s, shared))
    return s


def _outer_loops(s: Schedule, found: Attention, choice: Choice) -> tuple[list[Var], Var]:
    """The loops of the result in order: over batches, over blocks of rows, then those of a block."""
    batch = [v for v in s.get_loops(found.write) if v not in (found.row, found.column)]
    s.reorder(*batch, found.row, found.column)
    outer, _ = s.split(found.row, choice.rows, tail="shift" if choice.overlap else "mask")
    return batch, outer


def _gather(s: Schedule, found: Attention, rows: Var, together: int) -> None:
    """Everything is computed for a block of rows. Steps of rows that feed one map share its loop over rows, a few of
    them at a time, and so do reductions of what it stores."""
    s.compute_at(found.dots[1], rows)
    place: dict[str, Var] = {}
    for block in reversed(found.between):
        readers = s.get_consumers(block)
        near = {place.get(r) for r in readers}
        loop = near.pop() if len(near) == 1 else None
        s.compute_at(block, loop if loop is not None else rows)
        if loop is None and not find_block(s.func, block).reduce:
            inside = s.get_loops(block)
            place[block], _ = s.split(inside[inside.index(rows) + 1], together)
        elif loop is not None:
            place[block] = loop
    for block in [b for b in found.between if b not in place]:
        made = {place[p] for p in s.get_producers(block) if p in place}
        if len(made) == 1:
            s.reverse_compute_at(block, made.pop())
    for block in (found.scores, found.dots[0]):
        s.compute_at(block, rows)


def _operands(s: Schedule, found: Attention, batch: list[Var], rows: Var, panels: list[str], choice: Choice) -> None:
    """Panels of keys and values are made once for each head; rows that are scaled, once for each block."""
    for panel in panels if batch else []:
        s.compute_at(panel, batch[-1])
    queries = found.first.broadcast.buffer
    made = [b.name for b in blocks(s.func.body) if isinstance(b.body, Store) and b.body.buffer is queries]
    for block in made:
        s.compute_at(block, rows)
        _vectorize_last(s, block, choice.scores.lanes)


def _fill_panels(s: Schedule, panel: str) -> None:
    """Panels are filled in vectors; one over the end, which has places to be filled in, apart from the others."""
    *_, panels, _, lane = (a.binding for a in find_block(s.func, panel).axes)
    before = {b.name for b in blocks(s.func.body)}
    if isinstance(only_store(s, panel), Select) and isinstance(panels, Var) and panels in s.get_loops(panel):
        s.partition(panels)
    s.vectorize(lane)
    for tail in [b.name for b in blocks(s.func.body) if b.name not in before]:
        s.vectorize(s.get_loops(tail)[-1])


def _tile(s: Schedule, found: Contraction, write: str, tile: RegisterTile, terms: int) -> None:
    """A tile of a product is summed up in registers, and what is stored of it is computed from these."""
    dot = found.block.name
    *_, row, column, term = s.get_loops(dot)
    panel, inside = s.split(column, tile.columns, tail="mask")
    vector, lane = s.split(inside, tile.lanes)
    tiles, row = s.split(row, tile.rows, tail="mask")
    s.reorder(panel, tiles, term, row, vector, lane)
    s.reverse_compute_at(write, tiles)
    (sums,) = stored_buffers(find_block(s.func, dot))
    s.compact(sums.name)
    s.set_scope(sums.name, "register")
    s.vectorize(lane)
    s.unroll(vector)
    s.unroll(row)
    write_out_terms(s, [term], tile, terms)
    vectors = {write: write_out(s, write, tiles, tile), dot: vector}
    for name in (dot, *panel_over_the_edge(s, found, tile, panel, vectors, apart=not found.vector.is_constant)):
        block = find_block(s.func, name)
        if block.reduce and block.where is not None:
            s.pad(name)


def _vectorize_last(s: Schedule, block: str, lanes: int) -> None:
    """The last loop of a block in vectors."""
    _, inner = s.split(s.get_loops(block)[-1], lanes, tail="mask")
    s.vectorize(inner)


def _keep_near(s: Schedule) -> None:
    """Small buffers are on the stack, single elements in registers."""
    for buffer in allocations(s.func.body):
        size = _size(buffer)
        if buffer.scope is Scope.ARENA and size <= MOST_BYTES[Scope.STACK]:
            s.set_scope(buffer.name, "stack" if size > buffer.dtype.bytes else "register")


def _size(buffer: Buffer) -> int:
    """The bytes of a buffer; those of one that only a call knows have no room on the stack."""
    size = buffer.dtype.bytes
    for extent in buffer.shape:
        size *= known(extent) if isinstance(extent, Const) else MOST_BYTES[Scope.STACK]
    return size


def _shared(s: Schedule, loops: list[Var]) -> Var:
    """The loop that threads share: the outermost with enough iterations, or else the one with most."""
    extents = {v: _count(s, v) for v in loops}
    return next((v for v, n in extents.items() if n >= MANY), max(extents, key=lambda v: extents[v]))


def _count(s: Schedule, loop: Var) -> int:
    return known(extent_of(find_loop(s.func, loop)))
