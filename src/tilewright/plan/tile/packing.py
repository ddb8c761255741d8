"""Operands of a contraction in the order in which its tiles read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.analysis.contractions import Contraction, contraction_of
from tilewright.analysis.memory import writers_of
from tilewright.analysis.products import Operand
from tilewright.expr.dtypes import DTYPES
from tilewright.expr.linear import digits_of
from tilewright.expr.nodes import Expr, Select, Var, const
from tilewright.loops.edit import allocations
from tilewright.loops.nodes import Store
from tilewright.plan.price.contraction import Dot
from tilewright.plan.tile.loops import inside_of, order_tile, with_copies
from tilewright.plan.tile.registers import lay_out
from tilewright.schedule.find import find_block, find_buffer, find_loop
from tilewright.schedule.schedule import Schedule
from tilewright.target.abilities import SHORTEST_LANES


def own_copy(s: Schedule, found: Contraction, operand: Operand, dtype: str = "") -> str:
    """The buffer of an operand that can be laid out otherwise: where it is computed in the function, and nothing else
    reads it, that itself, else a copy, of this type where one is given."""
    readers = {reader for block in writers_of(s.func, operand.buffer) for reader in s.get_consumers(block.name)}
    if operand.buffer in allocations(s.func.body) and readers == {found.block.name}:
        return operand.buffer.name
    name: str = s.cache_read(found.block.name, operand.buffer.name)
    if dtype and operand.buffer.dtype is not DTYPES[dtype]:
        s.widen(name, dtype)
    return name


def pack(
    s: Schedule,
    found: Contraction,
    operand: Operand,
    axis: int,
    width: int,
    dot: Dot | None = None,
    *,
    of_rows: bool = False,
) -> str:
    """An operand in panels of `width` along an axis: batches, panels, terms in the order they are added, the elements
    of a panel next to each other, each with the terms that a `dot` takes together: all of them in panels `of_rows`, a
    few in those of columns. Returns the block that fills them; with a `dot`, copy_vectors says how."""
    name = own_copy(s, found, operand, "" if dot is None else dot.element if of_rows else dot.vector)
    axes, depth = found.block.axes, dot.depth if dot is not None else 1
    beside = depth if of_rows or dot is None else dot.beside
    indices: Sequence[Expr] = operand.load.indices
    digits = [digits_of(i, found.sizes) or {} for i in indices]
    if any(axes[axis].var in d and len(d) > 1 for d in digits):  # the last panel of each group may be over the edge
        lay_out(s, name, lambda d: [word for _, word in _words(indices, d, found.sizes)])
        indices = [v or const(0) for v, _ in _words(indices, [""] * len(indices), found.sizes)]

    def layout(d: list[str]) -> list[str]:
        words = _words(indices, d, found.sizes)
        place = dict(words)
        panel, moved = place[axes[axis].var], {n: place[axes[n].var] for n in found.reduce if axes[n].var in place}
        rest, inner = [w for _, w in words if w != panel and w not in moved.values()], [f"{panel} % {width}"]
        if depth > 1 and found.summed is not None:
            term = moved[found.summed]
            few = [f"{term} % {depth} // {beside}"] if beside < depth else []
            inner = [*few, *inner, f"{term} % {beside}"]
            moved[found.summed] += f" // {depth}"
        return [*rest, f"{panel} // {width}", *moved.values(), *inner]

    lay_out(s, name, layout, pad=0.0)
    filled = writers_of(s.func, find_buffer(s.func, name))[0].name
    if operand.is_constant and depth == 1:
        lane = s.get_loops(filled)[-1]
        s.vectorize(lane) if width % 4 == 0 else s.unroll(lane)
    return filled


def _words(
    indices: Sequence[Expr], dimensions: Sequence[str], extents: Mapping[Var, int]
) -> list[tuple[Var | None, str]]:
    """The axes that dimensions are indexed by, each with what is said of it in terms of the dimension: its digit."""
    found: list[tuple[Var | None, str]] = []
    for index, word in zip(indices, dimensions, strict=True):
        digits = digits_of(index, extents) or {}
        highest = next(iter(digits), None)
        for axis, weight in digits.items():
            digit = word if weight == 1 else f"{word} // {weight}"
            found.append((axis, digit if axis is highest else f"{digit} % {extents[axis]}"))
        if not digits:
            found.append((None, word))
    return found


def pack_difference(s: Schedule, found: Contraction, packed: Sequence[str], width: int) -> str:
    """The difference of two constants that are `packed`, in panels of its own. Returns the block that fills them."""
    s.bind_expression(found.block.name, packed)
    bound = contraction_of(s.func, find_block(s.func, found.block.name))
    assert bound is not None
    return pack(s, bound, bound.vector, bound.columns, width)


def copy_vectors(s: Schedule, copy: str, depth: int, lanes: int) -> Var:
    """A panel is copied in vectors, the terms of an instruction interleaved. Returns the loop over the vectors."""
    *_, column, last = s.get_loops(copy)
    vectors: Var
    if depth > 1:
        vectors, lane = s.split(column, lanes)
        lane = s.fuse(lane, last)
    else:
        vectors, lane = s.split(last, lanes)
    s.vectorize(lane)
    return vectors


def edges_apart(s: Schedule, copy: str, around: Var) -> None:
    """Vectors and terms of a copy in a loop that are whole are apart from those over an edge, which are looked at lane
    by lane."""
    for place in range(len(inside_of(s, copy, around)) - 1):
        for block in with_copies(s, copy):
            *loops, _ = inside_of(s, block, around)
            if isinstance(only_store(s, block), Select):
                s.attempt(s.partition, loops[place])


def pack_terms(s: Schedule, found: Contraction, dot: Dot) -> str:
    """A copy of the elements of rows, in their order, with the terms of an instruction next to each other; beyond the
    last one are zeros."""
    operand = found.broadcast
    name = own_copy(s, found, operand, dot.element)
    if dot.depth > 1:
        assert found.summed is not None
        term = operand.load.indices.index(found.block.axes[found.summed].var)
        by = dot.depth
        lay_out(s, name, lambda d: [*d[:term], *d[term + 1 :], f"{d[term]} // {by}", f"{d[term]} % {by}"], pad=0)
    return name


def copy_terms(s: Schedule, copy: str, depth: int, lanes: int) -> None:
    """What pack_terms made of an operand that a call brings is filled in vectors, by all threads."""
    loops = s.get_loops(copy)
    if len(loops) > 2:
        s.parallel(loops[0])
    inner = loops[-1]
    if depth > 1:
        if isinstance(only_store(s, copy), Select):
            s.partition(loops[-2])
        inner = s.fuse(loops[-2], inner)
    s.vectorize(s.split(inner, 2 * lanes, tail="mask")[1])


def fill_panels(s: Schedule, panel: str, panels: Sequence[Var]) -> None:
    """Panels are filled in vectors of their width. One over the end, which has places to be filled in, is apart from
    the others, where there is a loop over `panels`."""
    _end_apart(s, panel, panels)
    for copy in with_copies(s, panel):
        s.vectorize(s.get_loops(copy)[-1])


def fill_turned(s: Schedule, panel: str, lanes: int, panels: Sequence[Var]) -> None:
    """Panels of an operand whose columns lie apart, and terms next to each other, are filled in vectors of columns, a
    few terms at a time: they are transposed in registers. A panel over the end is apart from the others, where there is
    a loop over `panels`."""
    _end_apart(s, panel, panels)
    for copy in with_copies(s, panel):
        *_, term, lane = s.get_loops(copy)
        vectors, lane = s.split(lane, lanes, tail="mask")
        terms = find_loop(s.func, term).size
        if terms is not None and terms % SHORTEST_LANES == 0:
            term, few = s.split(term, SHORTEST_LANES)
            s.reorder(vectors, term, few)
            s.unroll(few)
        s.vectorize(lane)


def _end_apart(s: Schedule, panel: str, panels: Sequence[Var]) -> None:
    """A panel over the end, which has places to be filled in, is apart from the others."""
    if panels and isinstance(only_store(s, panel), Select):
        s.partition(panels[0])


def pack_in_first_tile(s: Schedule, panel: str, block: str, tiles: Var, row: Var, lanes: int) -> None:
    """The first tile of rows packs a panel, a term when it reads it, for the tiles that follow: so it waits for the
    operand, which lies apart, while it multiplies."""
    s.partition(tiles, 1)
    loops = s.get_loops(block)
    s.compute_at(panel, loops[loops.index(row) - 1])
    order_tile(s, [], s.split(s.get_loops(panel)[-1], lanes))


def only_store(s: Schedule, block: str) -> Expr | None:
    """What a block that is one store stores."""
    body = find_block(s.func, block).body
    return body.value if isinstance(body, Store) else None
