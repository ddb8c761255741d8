"""How a nest of independent points runs: along which of its loops the lanes of vectors lie, in which blocks, and which
loop threads share.

    for j, l: y[j, l] = x[l, j]      =>      for jo, lo, jm: { unroll ji in 0..4, vectorize li in 0..8: y[…] = x[…] }

Loops over what lies in one piece of memory become one before. Where lanes lie apart in one array, they lie next to each
other along another loop: the nest runs in blocks of both, so that a cache line is used up while it is near, and several
vectors are loaded, or stored, together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.analysis.accesses import Access, accesses, stride
from tilewright.analysis.movement import moving_accesses, step, vector_cost
from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.intrinsics import BRIEF
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Call, Const, Expr, Var
from tilewright.loops.edit import statements
from tilewright.loops.nodes import For, Stmt, Store
from tilewright.schedule.facts.iterations import extent_of, is_spatial
from tilewright.schedule.find import find_loop, perfect_nest
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target
from tilewright.target.target import SHORTEST_LANES


@dataclass(frozen=True, slots=True)
class Points:
    """A nest of points. Its loops become `fused` many, so many neighbours each, and are then known by their numbers.
    Lanes lie along loop `along`, in vectors of `widths` lanes: all but the first are of what is left over. With
    `across`, the nest runs in blocks of `line` iterations of that loop, `side` vectors of which are written out.
    Threads share loop `shared`."""

    fused: tuple[int, ...]
    along: int
    widths: tuple[int, ...]
    across: int | None = None
    line: int = 0
    side: int = 0
    shared: int | None = None


@lru_cache(maxsize=1 << 6)
def holds_points(nest: Stmt) -> bool:
    """Whether a nest is loops over independent points, with nothing between the loops."""
    loops, _ = perfect_nest(nest)
    return bool(loops) and all(is_spatial(loop) for loop in loops)


def lanes_of(nest: Stmt, target: Target) -> int:
    """Lanes for the widest element type that the nest stores, at most those of f32."""
    widest = max((s.buffer.dtype.bits for s in statements(nest) if isinstance(s, Store)), default=32)
    return max(target.vector_bits // max(widest, dtypes.f32.bits), 2)


def choose_points(nest: Stmt, target: Target, lanes: int = 0) -> Points:
    """How a nest that holds points runs: along the loop that vectorizes cheapest, with the outermost loop of several
    iterations shared by threads; inside a nest of so many `lanes`, where not 0, no loop is shared."""
    loops, _ = perfect_nest(nest)
    parallel, side = not lanes, SHORTEST_LANES
    lanes = lanes or lanes_of(nest, target)
    fused = pieces_of(loops)
    ends = [sum(fused[: n + 1]) - 1 for n in range(len(fused))]
    sizes = [_product(loops[end - count + 1 : end + 1]) for end, count in zip(ends, fused, strict=True)]
    group = moving_accesses(loops[-1])
    along = _cheapest([loops[end] for end in ends], sizes, group, lanes)
    across = None
    if has(sizes[along], lanes):
        apart = [a for a in group if (step(a, loops[ends[along]].var) or 0) >= side]
        found = [n for n in reversed(range(len(ends))) if n != along and has(sizes[n], side)]
        across = next((n for n in found if any(step(a, loops[ends[n]].var) == 1 for a in apart)), None)
    widths = widths_of(sizes[along], lanes, side, is_costly(nest))
    around = [n for n, size in enumerate(sizes) if n not in (along, across) and size != 1]
    shared = next(iter(around), (along if across is None else across) if widths else None)
    chosen = Points(fused, along, widths, shared=shared if parallel else None)
    if across is None:
        return chosen
    line = target.cache(1).line // dtypes.f32.bytes
    return Points(fused, along, widths, across, line, side, chosen.shared)


def pieces_of(loops: Sequence[For]) -> tuple[int, ...]:
    """How many neighbouring loops, from outside, run together over what lies in one piece of memory: a step of the
    outer one moves each access as far as all of the inner one. An inner loop of a dynamic extent stays by itself: that
    quotients and remainders by what is dynamic are one place each cannot be proved."""
    found = accesses(loops[0])
    counts = [1]
    inner, extent = loops[-1], extent_of(loops[-1])
    for outer in reversed(loops[:-1]):
        if isinstance(extent, Const) and all(_continues(a, outer, inner, extent) for a in found):
            counts[0] += 1
            extent = extent * extent_of(outer)
        else:
            counts.insert(0, 1)
            inner, extent = outer, extent_of(outer)
    return tuple(counts)


def _continues(access: Access, outer: For, inner: For, extent: Expr) -> bool:
    a, b = stride(access, outer.var), stride(access, inner.var)
    return a is not None and b is not None and polynomial(a) == polynomial(b * extent)


def _product(loops: Sequence[For]) -> int | None:
    """The iterations of loops in each other; None where only a call knows."""
    size = 1
    for loop in loops:
        extent = extent_of(loop)
        if not isinstance(extent, Const):
            return None
        size *= int(extent.value)
    return size


def has(size: int | None, least: int) -> bool:
    """Whether a loop has so many iterations, as far as it is known."""
    return size is None or size >= least


def _cheapest(loops: Sequence[For], sizes: Sequence[int | None], group: list[Access], lanes: int) -> int:
    """The loop that vectorizes cheapest; the innermost of equals; one that is too short for a vector, or along which
    every access goes element by element, only at last."""

    def rank(n: int) -> tuple[bool, float]:
        cost = vector_cost(group, loops[n].var, lanes)
        return not has(sizes[n], lanes) or cost >= lanes * len(group), cost

    return min(reversed(range(len(loops))), key=rank)


def is_costly(nest: Stmt) -> bool:
    """Whether a function is computed that becomes many instructions: of these a scalar takes as long as a vector."""
    return any(isinstance(e, Call) and e.fn.name not in BRIEF for e in preorder(nest))


def widths_of(size: int | None, lanes: int, shortest: int, costly: bool) -> tuple[int, ...]:
    """The lanes of vectors for so many points: full ones, and where a point is costly, shorter ones for what is left
    over. Few points are one vector where they are a half or a quarter of one."""
    if size is None:
        return (lanes,)
    if lanes > size > 1 and size in (lanes // 2, lanes // 4):
        return (size,)
    offered = [lanes]
    while costly and offered[-1] // 2 >= shortest:
        offered.append(offered[-1] // 2)
    found: list[int] = []
    for width in offered:
        if size >= width:
            found.append(width)
            size %= width
    return tuple(found)


def apply_points(s: Schedule, nest: For, chosen: Points) -> Var | None:
    """The steps of a choice. Returns the outermost loop, where that holds all of the nest."""
    loops = fuse_pieces(s, [loop.var for loop in perfect_nest(nest)[0]], chosen.fused)
    along, across = loops[chosen.along], None if chosen.across is None else loops[chosen.across]
    around = [v for n, v in enumerate(loops) if n not in (chosen.along, chosen.across)]
    inner = [v for v in (across, along) if v is not None]
    if (order := [*around, *inner]) != loops:
        s.reorder(*order)
    shared = None if chosen.shared is None else loops[chosen.shared]
    if shared in around:
        s.parallel(shared)
    first, alone = in_vectors(s, along, chosen.widths) if across is None else _in_blocks(s, across, along, chosen)
    if shared in inner and first != shared:
        s.parallel(first)
    return around[0] if around else first if alone else None


def fuse_pieces(s: Schedule, loops: list[Var], counts: Sequence[int]) -> list[Var]:
    """The loops after neighbours became one, so many each."""
    made: list[Var] = []
    for count in counts:
        piece, loops = loops[:count], loops[count:]
        while len(piece) > 1:
            piece[-2:] = [s.fuse(*piece[-2:])]
        made += piece
    return made


def in_vectors(s: Schedule, line: Var, widths: Sequence[int]) -> tuple[Var, bool]:
    """A loop in vectors of these widths, each for what the one before left over. Returns the first of the loops that it
    became, and whether that is all."""
    rest: Var | None = line
    first = line
    for width in widths:
        if rest is None:
            break
        if size_of(s, rest) == width:
            s.vectorize(rest)
            return first, rest is first
        outer, inner, left = s.split(rest, width, tail="peel")
        s.vectorize(inner)
        first, rest = outer if rest is line else first, left
    return first, rest is None or rest is first


def _in_blocks(s: Schedule, across: Var, along: Var, chosen: Points) -> tuple[Var, bool]:
    """A loop around one that becomes vectors, in blocks of a cache line."""
    size = size_of(s, across)
    if not has(size, chosen.line):
        return _block(s, across, along, chosen)
    outer, block, rest = s.split(across, chosen.line, tail="peel")
    _block(s, block, along, chosen)
    if rest is not None:
        (inner,) = perfect_nest(find_loop(s.func, rest).body)[0]
        if has(size_of(s, rest), chosen.side):
            _block(s, rest, inner.var, chosen)
        else:
            in_vectors(s, inner.var, chosen.widths)
    return outer, rest is None


def _block(s: Schedule, across: Var, along: Var, chosen: Points) -> tuple[Var, bool]:
    """A loop moved into the one inside it, around its vectors, several of which are written out."""
    s.reorder(along, across)
    outer, vector, rest = s.split(along, chosen.widths[0], tail="peel")
    s.reorder(across, vector)
    s.vectorize(vector)
    if has(size_of(s, across), chosen.side):
        _, few, _ = s.split(across, chosen.side, tail="peel")
        s.unroll(few)
    return outer, rest is None


def size_of(s: Schedule, loop: Var) -> int | None:
    """How many iterations a loop of a schedule's program has; None where only a call knows."""
    extent = extent_of(find_loop(s.func, loop))
    return int(extent.value) if isinstance(extent, Const) else None
