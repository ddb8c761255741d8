"""Which elements of a buffer a statement touches: those of a box where some conditions on their indices hold.

    for ii in 0..6, j in 0..4:                                      with io fixed:
      block b(vi = io*6 + ii, vj = j) where io*6 + ii < 33:           y[io*6..io*6 + 6, 0..4] where d0 < 33, exactly
        y[vi, vj] = …

Two statements are compared element by element, whatever loops they run in: so a load is seen to read only what a store
before it has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from itertools import pairwise, permutations

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.intervals import Range
from tilewright.analysis.regions import Region, cover, ranges_of, region
from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr.build import conjuncts
from tilewright.expr.linear import expression, polynomial
from tilewright.expr.nodes import Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import loads_of, path_to
from tilewright.loops.nodes import Block, Buffer, For, If, Let, Seq, Stmt, While
from tilewright.schedule.facts.domain import covered, known_in, unclipped
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.facts.known import NOTHING, Known, bound, compared, exchanged, tighten


@cache
def point(rank: int) -> tuple[Var, ...]:
    """The indices of an element of a buffer of so many dimensions: d0, d1 …"""
    return (*point(rank - 1), Var(f"d{rank - 1}")) if rank else ()


@dataclass(frozen=True, slots=True)
class Touch:
    """An access, and the statements around it, outermost first, its own last."""

    access: Access
    path: tuple[Stmt, ...]

    @property
    def init_of(self) -> Block | None:
        """The block in whose init the access is."""
        return next((a for a, b in pairwise(self.path) if isinstance(a, Block) and a.init is b), None)


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a box at which none of the `conditions`, expressions over the indices of an element (`point`), is
    negative. Where they are `exact`, every one of them is touched; else they cover what is."""

    box: tuple[Range, ...]
    conditions: tuple[Expr, ...]
    exact: bool

    def __str__(self) -> str:
        return f"[{', '.join(str(r) for r in self.box)}]"


def in_box(known: Known, box: Sequence[Range]) -> Known:
    """What is known of the elements of a box, too."""
    return known.where(dict(zip(point(len(box)), box, strict=True)))


def touches(root: Stmt, buffer: Buffer) -> list[Touch]:
    """The accesses of a buffer in `root`, in program order; of one statement the loads first."""
    return [Touch(a, path_to(root, a.statement)) for a in accesses(root) if a.buffer is buffer]


@lru_cache(maxsize=1 << 8)
def elements(touch: Touch, shared: int = 0) -> Elements:
    """The elements that an access touches while the first `shared` statements around it stay in one iteration."""
    (values, summed), access = _meanings(touch), touch.access
    around = [s for s in touch.path[shared:] if isinstance(s, For) and s.var not in summed]
    loops, clips = unclipped([s.replace(begin=_meant(s.begin, values), end=_meant(s.end, values)) for s in around])
    whole = region(access.indices, access.buffer.shape, ranges_of(loops))
    steady = not any(map(loads_of, (*access.indices, *(e for loop in loops for e in (loop.begin, loop.end)))))
    box = whole.ranges if steady else tuple(Range(const(0), extent) for extent in access.buffer.shape)
    exact = whole.exact and steady and _fills(access, loops)
    conditions: list[Expr] = []
    for cond in (*clips, *conditions_of(touch, shared)):
        gap = bound(cond) if steady and cond is not None and not loads_of(cond) else None
        if gap is not None:
            names = zip(access.indices, point(len(box)), strict=True)
            gap = exchanged(gap, names, summed.union(loop.var for loop in loops))
        if gap is None:
            exact = False
        else:
            conditions.append(expression(gap))
    return Elements(box, tuple(dict.fromkeys(conditions)), exact)


@lru_cache(maxsize=1 << 8)
def _meanings(touch: Touch) -> tuple[dict[Node, Node], set[Var]]:
    """(what the axes and the named values around an access stand for, the loops that an init around it is outside of
    because its block sums over them)."""
    values: dict[Node, Node] = {}
    for outer, inner in pairwise(touch.path):
        match outer:
            case Seq(body):
                for s in body[: body.index(inner)]:
                    if isinstance(s, Let):
                        values[s.var] = _meant(s.value, values)
            case Block(_, axes):
                values.update([(a.var, _meant(a.binding, values)) for a in axes])
    reduce = touch.init_of.reduce if touch.init_of is not None else ()
    return values, {v for axis in reduce for v in variables_of(_meant(axis.binding, values))}


def _meant(e: Expr, values: dict[Node, Node]) -> Expr:
    return transform(e, lambda node: node, values)


def _fills(access: Access, loops: Sequence[For]) -> bool:
    """Whether the box is empty where a loop is: each loop is known to run, or a step of it is as long as what the loops
    inside it cover together."""
    idle = {loop for loop in loops if not NOTHING.never_negative(polynomial(extent_of(loop) - 1))}
    for index in access.indices:
        own = [loop for loop in loops if mentions(index, {loop.var})]
        if not idle.isdisjoint(own) and covered(polynomial(index), const(1), own) is None:
            return False
        idle.difference_update(own)
    return not idle


def conditions_of(touch: Touch, shared: int = 0) -> Iterator[Expr | None]:
    """The conditions around an access, but for those around the first `shared` statements, over loops; None for one
    that is not known."""
    values, summed = _meanings(touch)
    for n, (outer, inner) in enumerate(pairwise(touch.path)):
        if n + 1 < shared or (n < shared and isinstance(outer, Block)):
            continue
        match outer:
            case Block(where=Expr() as where):
                parts = conjuncts(_meant(where, values))
                yield from (p for p in parts if touch.init_of is not outer or not mentions(p, summed))
            case If(cond, then, _):
                yield from conjuncts(_meant(cond, values)) if inner is then else [None]
            case While():
                yield None


def as_condition(gap: Expr) -> Expr:
    """p >= 0 as a comparison."""
    p = polynomial(gap)
    return compared(p, strict=p.get((), 0) == -1 or not any(c > 0 for m, c in p.items() if m))


def tightened(found: Elements, known: Known, around: frozenset[Var] = frozenset()) -> Elements:
    """The same elements, with conditions that only say where the box begins or ends as the box's, and without those
    that hold throughout it. Those that would make the size of the box depend on loops `around` stay conditions."""
    box = dict(zip(point(len(found.box)), found.box, strict=True))
    made, kept = tighten(box, {c: polynomial(c) for c in found.conditions}, known, around)
    return Elements(tuple(made.values()), tuple(kept), found.exact)


def contains(whole: Elements, part: Elements, known: Known, shape: Sequence[Expr] = ()) -> bool:
    """Whether it is proved that `whole` holds every element of `part`, which are elements of a buffer of this shape."""
    part = tightened(part, known)
    full = [Range(const(0), extent) for extent in shape] or part.box
    for r, s, f in zip(whole.box, part.box, full, strict=True):
        if not (known.within(s, r) or known.within(f, r)):
            return False
    return all(implies(part, cond, known) for cond in whole.conditions)


def implies(part: Elements, cond: Expr, known: Known) -> bool:
    """Whether it is proved that a condition holds at every element."""
    follows = cond in part.conditions or any(known.at_least(cond, other) for other in part.conditions)
    return follows or in_box(known, part.box).at_least(cond, const(0))


def cover_all(parts: Sequence[Elements], among: Sequence[Elements], known: Known) -> Elements:
    """The least box that holds all parts, under those conditions of `among` that hold in each of them."""
    box = reduce(cover, [Region(part.box, False) for part in parts])
    candidates = dict.fromkeys(c for part in among for c in part.conditions)
    return Elements(box.ranges, tuple(c for c in candidates if all(implies(p, c, known) for p in parts)), False)


def united(parts: Sequence[Elements]) -> list[Elements]:
    """Exact boxes with those put together that continue one another along one dimension."""
    left = [p for p in parts if p.exact]
    for a, b in permutations(left, 2):
        joined = _joined(a, b)
        if joined is not None:
            return united([*(p for p in left if p is not a and p is not b), joined])
    return left


def _joined(a: Elements, b: Elements) -> Elements | None:
    """The union of two boxes, of which the second begins where the first ends."""
    apart = [n for n, (r, s) in enumerate(zip(a.box, b.box, strict=True)) if r != s]
    if a.conditions or b.conditions or len(apart) != 1:
        return None
    (n,) = apart
    r, s = a.box[n], b.box[n]
    if polynomial(r.end) != polynomial(s.begin) or not all(NOTHING.at_least(x.extent, const(0)) for x in (r, s)):
        return None
    return Elements((*a.box[:n], Range(r.begin, simplify(r.extent + s.extent)), *a.box[n + 1 :]), (), True)


def covers(store: Touch, load: Touch, around: Sequence[For] = ()) -> bool:
    """Whether a load that stands after a store reads only what it wrote in the same iteration of all that is around
    both. `around` are loops outside."""
    shared = 0
    while shared < min(len(store.path), len(load.path)) and store.path[shared] is load.path[shared]:
        shared += 1
    written = elements(store, shared)
    if not written.exact:
        return False
    fixed = [*around, *(s for s in store.path[:shared] if isinstance(s, For))]
    return contains(written, elements(load, shared), known_in(tuple(fixed)), load.access.buffer.shape)


def unwritten(found: Sequence[Touch], around: Sequence[For] = ()) -> Touch | None:
    """The first load that may read an element that no store before it wrote; None where there is none."""
    for n, touch in enumerate(found):
        stores = (before for before in found[:n] if before.access.is_store)
        if not touch.access.is_store and not any(covers(store, touch, around) for store in stores):
            return touch
    return None
