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

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr.nodes import Const, Expr, Select, Var
from tilewright.loops.edit import allocations, blocks, loads
from tilewright.loops.nodes import Block, Buffer, Function, Load, Store
from tilewright.plan.attention.choice import Choice, choose
from tilewright.plan.attention.pieces import products
from tilewright.plan.attention.rows import in_lanes
from tilewright.plan.facts.contraction import Contraction, contraction_of
from tilewright.plan.gemm.choice import written_out
from tilewright.plan.gemm.shape import measure
from tilewright.plan.price.sizes import known
from tilewright.plan.tile.edges import panel_over_the_edge
from tilewright.plan.tile.nest import MANY, write_out, write_out_terms
from tilewright.plan.tile.packing import STACK_BYTES, only_store, panels_of
from tilewright.plan.tile.registers import RegisterTile
from tilewright.report.errors import UserError
from tilewright.schedule.find import find_block, find_loop, stored_buffers
from tilewright.schedule.nests import extent_of
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.types.scopes import Scope


@dataclass(slots=True)
class _Attention:
    """An attention in a function: its products, the block that stores scores, those that make of them what the second
    product reads, in order, and the block that stores the result."""

    first: Contraction
    second: Contraction
    scores: str
    between: list[str]
    write: str

    @property
    def dots(self) -> tuple[str, str]:
        return self.first.block.name, self.second.block.name


def schedule_attention(function: Function, target: Target) -> Schedule | None:
    """The schedule of a kernel with two products, the second of what rows of the first one come to; None for a kernel
    with fewer. Raises UserError where the two are anything else."""
    dots = products(function)
    if len(dots) < 2:
        return None
    s = Schedule(function)
    _inline_maps(s, dots)
    found = _find(s, [_product(s, dot) for dot in dots])
    return _run(s, found, choose(found.first, found.second, target), target)


def _inline_maps(s: Schedule, dots: Sequence[str]) -> None:
    """What only moves elements, or is one number, is computed where it is read; so are maps that one other map reads.
    What products read stays as it is."""
    for name in [b.name for b in blocks(s.func.body)]:
        block = find_block(s.func, name)
        readers = s.get_consumers(name)
        if not _is_local_map(s, block) or set(dots) & set(readers):
            continue
        one = len(readers) == 1 and not find_block(s.func, readers[0]).reduce
        if one or isinstance(only_store(s, name), Load | Const):
            s.inline(name)


def _is_local_map(s: Schedule, block: Block) -> bool:
    """Whether a block fills a local buffer point by point."""
    plain = not block.reduce and block.where is None and isinstance(block.body, Store)
    return plain and not stored_buffers(block) & {*s.func.params}


def _product(s: Schedule, dot: str) -> Contraction | None:
    """A product as a contraction that reads its rows where they lie: what moves them only is inlined into it."""
    found = contraction_of(s.func, find_block(s.func, dot))
    if found is None:
        return None
    rows = [b for b in blocks(s.func.body) if found.broadcast.buffer in stored_buffers(b) and _is_local_map(s, b)]
    for block in rows:
        if isinstance(only_store(s, block.name), Load) and s.get_consumers(block.name) == (dot,):
            s.inline(block.name)
    return contraction_of(s.func, find_block(s.func, dot))


def _no_attention(why: str) -> UserError:
    return UserError("the kernel is no attention", why=why)


def _find(s: Schedule, dots: Sequence[Contraction | None]) -> _Attention:
    """The attention of a function whose maps are inlined."""
    if len(dots) != 2:
        raise _no_attention(f"it has {len(dots)} products")
    first, second = dots
    if first is None or second is None or first.rows is None or second.rows is None:
        raise _no_attention("a product of it has no rows, or no columns that lie together")
    if min(first.depth, second.depth, *(known(first.extents[n]) for n in (first.rows, first.columns))) < 2:
        raise _no_attention("its rows, keys or sums have one element")
    derived, between = {first.out}, []
    for block in blocks(s.func.body):
        if block not in (first.block, second.block) and derived & {ld.buffer for ld in loads(block)}:
            if not isinstance(block.body, Store) or block.body.buffer in s.func.params:
                continue
            derived.add(block.body.buffer)
            between.append(block.name)
    if second.broadcast.buffer not in derived or not any(find_block(s.func, b).reduce for b in between):
        raise _no_attention("its second product does not sum over what rows of the first one come to")
    scores = _at_its_points(s, first)
    if scores is None:
        scores = s.cache_write(first.block.name)
    else:
        between.remove(scores)
    if second.out in s.func.params:
        return _Attention(first, second, scores, between, s.cache_write(second.block.name))
    results = [b for b in s.get_consumers(second.block.name) if b not in between]
    if len(results) != 1 or s.get_consumers(results[0]):
        raise _no_attention("more than one map follows its second product")
    return _Attention(first, second, scores, between, results[0])


def _at_its_points(s: Schedule, found: Contraction) -> str | None:
    """The only reader of a product, where it is a map of each of its points."""
    readers = s.get_consumers(found.block.name)
    block = find_block(s.func, readers[0])
    points = tuple(a.var for a in block.axes)
    read = {ld.indices for ld in loads(block) if ld.buffer is found.out}
    is_map = not block.reduce and isinstance(block.body, Store) and block.body.indices == points
    return readers[0] if len(readers) == 1 and is_map and read == {points} else None


def _run(s: Schedule, found: _Attention, choice: Choice, target: Target) -> Schedule:
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
    _tile(s, found.first, found.scores, choice.scores, target)
    _tile(s, found.second, found.write, choice.sums, target)
    in_lanes(s, found.between, choice.scores.lanes)
    _keep_near(s)
    shared = batch if choice.overlap else [*batch, rows]
    if shared:
        s.parallel(_shared(s, shared))
    return s


def _outer_loops(s: Schedule, found: _Attention, choice: Choice) -> tuple[list[Var], Var]:
    """The loops of the result in order: over batches, over blocks of rows, then those of a block."""
    block = find_block(s.func, found.write)
    bound: dict[Expr, Expr] = {a.var: a.binding for a in block.axes}
    sums = stored_buffers(find_block(s.func, found.dots[1]))
    read = next(ld for ld in loads(block) if ld.buffer in sums)
    assert found.second.rows is not None
    row, column = (bound.get(read.indices[n]) for n in (found.second.rows, found.second.columns))
    if not isinstance(row, Var) or not isinstance(column, Var):
        raise _no_attention("its result mixes rows or columns with other positions")
    batch = [v for v in s.get_loops(found.write) if v not in (row, column)]
    s.reorder(*batch, row, column)
    outer, _ = s.split(row, choice.rows, tail="shift" if choice.overlap else "mask")
    return batch, outer


def _gather(s: Schedule, found: _Attention, rows: Var, together: int) -> None:
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


def _operands(s: Schedule, found: _Attention, batch: list[Var], rows: Var, panels: list[str], choice: Choice) -> None:
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


def _tile(s: Schedule, found: Contraction, write: str, tile: RegisterTile, target: Target) -> None:
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
    write_out_terms(s, [term], tile, written_out(measure(found), tile, target))
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
        if buffer.scope is Scope.ARENA and size <= STACK_BYTES:
            s.set_scope(buffer.name, "stack" if size > buffer.dtype.bytes else "register")


def _size(buffer: Buffer) -> int:
    """The bytes of a buffer; those of one that only a call knows have no room on the stack."""
    size = buffer.dtype.bytes
    for extent in buffer.shape:
        size *= known(extent) if isinstance(extent, Const) else STACK_BYTES
    return size


def _shared(s: Schedule, loops: list[Var]) -> Var:
    """The loop that threads share: the outermost with enough iterations, or else the one with most."""
    extents = {v: _count(s, v) for v in loops}
    return next((v for v, n in extents.items() if n >= MANY), max(extents, key=lambda v: extents[v]))


def _count(s: Schedule, loop: Var) -> int:
    return known(extent_of(find_loop(s.func, loop)))
