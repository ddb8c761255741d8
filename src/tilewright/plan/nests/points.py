"""How a nest of independent points runs: along which of its loops the lanes of vectors lie, in which blocks, and which
loop threads share.

    for j, l: y[j, l] = x[l, j]      =>      for jo, lo, jm: { unroll ji in 0..4, vectorize li in 0..8: y[…] = x[…] }

Loops over what lies in one piece of memory become one before. Where lanes lie apart in one array, they lie next to each
other along another loop: the nest runs in blocks of both, so that a cache line is used up while it is near, and several
vectors are loaded, or stored, together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.analysis.accesses import Access, accesses, stride
from tilewright.analysis.movement import moving_accesses, step, vector_cost
from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.intrinsics import BRIEF
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Call, Var
from tilewright.loops.edit import statements
from tilewright.loops.nodes import For, Stmt, Store
from tilewright.schedule.facts.iterations import is_spatial, size_of
from tilewright.schedule.find import find_loop, perfect_nest
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.target import SHORTEST_LANES


@dataclass(frozen=True, slots=True)
class Points:
    """A nest of points. Its loops become `fused` many, so many neighbours each, and are then known by their numbers.
    Lanes lie along loop `along`, in vectors of `widths` lanes: all but the first are of what is left over. With
    `across`, the nest runs in blocks of `line` iterations of that loop, a few vectors of which are written out.
    Threads share loop `shared`."""

    fused: tuple[int, ...]
    along: int
    widths: tuple[int, ...]
    across: int | None = None
    line: int = 0
    shared: int | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Neighbouring loops over what lies in one piece of memory: so many, which together move as the innermost one does,
    that over `var`, and have `size` iterations; None where that is dynamic."""

    count: int
    var: Var
    size: int | None


@lru_cache(maxsize=1 << 6)
def holds_points(nest: Stmt) -> bool:
    """Whether a nest is loops over independent points, with nothing between the loops."""
    loops, _ = perfect_nest(nest)
    return bool(loops) and all(is_spatial(loop) for loop in loops)


def lanes_of(nest: Stmt, target: Target) -> int:
    """Lanes for the widest element type that the nest stores, at most those of f32."""
    widest = max((s.buffer.dtype.bits for s in statements(nest) if isinstance(s, Store)), default=32)
    return max(target.vector_bits // max(widest, dtypes.f32.bits), 2)


def pieces_of(loops: Sequence[For]) -> list[Piece]:
    """The pieces that loops in each other run over, the outermost first. An inner loop of a dynamic extent stays by
    itself: that quotients and remainders by what is dynamic are one place each cannot be proved."""
    pieces = [Piece(1, loops[-1].var, size_of(loops[-1]))]
    for loop in reversed(loops[:-1]):
        size, inner = size_of(loop), pieces[0]
        if inner.size is not None and is_one_piece(accesses(loops[0]), loop.var, inner.var, inner.size):
            pieces[0] = Piece(inner.count + 1, inner.var, None if size is None else size * inner.size)
        else:
            pieces.insert(0, Piece(1, loop.var, size))
    return pieces


def is_one_piece(found: Collection[Access], outer: Var, inner: Var, size: int) -> bool:
    """Whether a step of the outer loop moves each access as far as all `size` steps of the inner one."""
    moved = [(stride(a, outer), stride(a, inner)) for a in found]
    return all(a is not None and b is not None and polynomial(a) == polynomial(b * size) for a, b in moved)


def has(size: int | None, least: int) -> bool:
    """Whether a loop has so many iterations, as far as it is known."""
    return size is None or size >= least


def choose_points(nest: Stmt, target: Target, lanes: int = 0) -> Points:
    """How a nest that holds points runs: along the loop that vectorizes cheapest, with the outermost loop of several
    iterations shared by threads; inside a nest of so many `lanes`, where not 0, no loop is shared."""
    loops, _ = perfect_nest(nest)
    pieces, group, inside = pieces_of(loops), moving_accesses(loops[-1]), lanes > 0
    lanes = lanes or lanes_of(nest, target)

    def rank(n: int) -> tuple[bool, float]:
        """A loop that is too short for a vector, or along which every access goes element by element, is the last."""
        cost = vector_cost(group, pieces[n].var, lanes)
        return not has(pieces[n].size, lanes) or cost >= lanes * len(group), cost

    inwards = range(len(pieces) - 1, -1, -1)
    along = min(inwards, key=rank)
    across = None
    if has(pieces[along].size, lanes):
        apart = [a for a in group if (step(a, pieces[along].var) or 0) >= SHORTEST_LANES]
        found = [n for n in inwards if n != along and has(pieces[n].size, SHORTEST_LANES)]
        across = next((n for n in found if any(step(a, pieces[n].var) == 1 for a in apart)), None)
    widths = _widths(pieces[along].size, lanes, is_costly(nest))
    around = [n for n, piece in enumerate(pieces) if n not in (along, across) and piece.size != 1]
    shared = next(iter(around), (along if across is None else across) if widths else None)
    line = 0 if across is None else target.cache(1).line // dtypes.f32.bytes
    return Points(tuple([p.count for p in pieces]), along, widths, across, line, None if inside else shared)


def is_costly(nest: Stmt) -> bool:
    """Whether a function is computed that becomes many instructions: of these a scalar takes as long as a vector."""
    return any(isinstance(e, Call) and e.fn.name not in BRIEF for e in preorder(nest))


def _widths(size: int | None, lanes: int, costly: bool) -> tuple[int, ...]:
    """The lanes of vectors for so many points: full ones, and where a point is costly, shorter ones for what is left
    over. Few points are one vector where they are a half or a quarter of one."""
    if size is not None and lanes > size > 1 and size in (lanes // 2, lanes // 4):
        return (size,)
    return cuts(size, [lanes, *(halves(lanes) if costly and size is not None else ())])


def halves(lanes: int) -> list[int]:
    """The lanes of shorter vectors, each half as long as the one before."""
    return [lanes >> n for n in range(1, lanes.bit_length()) if lanes >> n >= SHORTEST_LANES]


def cuts(size: int | None, widths: Sequence[int]) -> tuple[int, ...]:
    """Those of the widths that so many iterations have room for, each in what the one before leaves over."""
    found: list[int] = []
    for width in widths:
        if has(size, width):
            found.append(width)
            size = None if size is None else size % width
    return tuple(found)


def apply_points(s: Schedule, nest: For, chosen: Points) -> Var | None:
    """The steps of a choice. Returns the outermost loop, where that holds all of the nest."""
    loops = fuse_pieces(s, nest, chosen.fused)
    along, across = loops[chosen.along], None if chosen.across is None else loops[chosen.across]
    inner = [v for v in (across, along) if v is not None]
    around = [v for v in loops if v not in inner]
    if [*around, *inner] != loops:
        s.reorder(*around, *inner)
    shared = None if chosen.shared is None else loops[chosen.shared]
    if shared in around:
        s.parallel(shared)
    made = in_vectors(s, along, chosen.widths) if across is None else _in_blocks(s, across, along, chosen)
    if shared in inner and made[0] != shared:
        s.parallel(made[0])
    return around[0] if around else made[0] if len(made) == 1 else None


def fuse_pieces(s: Schedule, nest: For, counts: Sequence[int]) -> list[Var]:
    """The loops of a nest after neighbours became one, so many each."""
    loops = [loop.var for loop in perfect_nest(nest)[0]]
    made: list[Var] = []
    for count in counts:
        piece, loops = loops[:count], loops[count:]
        while len(piece) > 1:
            piece[-2:] = [s.fuse(*piece[-2:])]
        made += piece
    return made


def in_vectors(s: Schedule, line: Var, widths: Sequence[int]) -> list[Var]:
    """A loop in vectors of these widths, each for what the one before left over. Returns the loops that it became."""
    if not widths:
        return [line]
    if size_of(find_loop(s.func, line)) == widths[0]:
        s.vectorize(line)
        return [line]
    outer, vector, rest = s.split(line, widths[0], tail="peel")
    s.vectorize(vector)
    return [outer] if rest is None else [outer, *in_vectors(s, rest, widths[1:])]


def write_out(s: Schedule, loop: Var, count: int) -> Var | None:
    """So many iterations of a loop at a time written out, where it has them. Returns the loop over these."""
    if count < 2 or not has(size_of(find_loop(s.func, loop)), count):
        return None
    few: Var = s.split(loop, count, tail="peel")[1]
    s.unroll(few)
    return few


def _in_blocks(s: Schedule, across: Var, along: Var, chosen: Points) -> list[Var]:
    """A loop around one that becomes vectors, in blocks of a cache line. Returns the outermost loops."""
    if not has(size_of(find_loop(s.func, across)), chosen.line):
        return _block(s, across, along, chosen)
    outer, block, rest = s.split(across, chosen.line, tail="peel")
    _block(s, block, along, chosen)
    if rest is None:
        return [outer]
    (inner,) = perfect_nest(find_loop(s.func, rest).body)[0]
    if has(size_of(find_loop(s.func, rest)), SHORTEST_LANES):
        _block(s, rest, inner.var, chosen)
    else:
        in_vectors(s, inner.var, chosen.widths)
    return [outer, rest]


def _block(s: Schedule, across: Var, along: Var, chosen: Points) -> list[Var]:
    """A loop moved into the one inside it, around its vectors, several of which are written out."""
    s.reorder(along, across)
    outer, vector, rest = s.split(along, chosen.widths[0], tail="peel")
    s.reorder(across, vector)
    s.vectorize(vector)
    write_out(s, across, SHORTEST_LANES)
    return [outer] if rest is None else [outer, rest]
