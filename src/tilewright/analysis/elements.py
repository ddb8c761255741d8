"""Which elements of a buffer a statement touches: boxes under conditions, and what they hold of one another.

    for i in 0..n:                            with nothing fixed:  y[0..n + 1] where d0 < 33
      block b(vi = i) where vi < 32:          with i fixed:        y[i + 1..i + 2] where d0 < 33
        y[vi + 1] = x[vi]

Two statements are compared element by element, so that a load is seen to read only what a store before it has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from itertools import pairwise, permutations, takewhile

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.domains import covered, known_in, told, unclipped
from tilewright.analysis.intervals import Range
from tilewright.analysis.known import NOTHING, Known, tighten
from tilewright.analysis.regions import Region, cover, ranges_of, region
from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.build import conjuncts
from tilewright.expr.linear import expression, polynomial
from tilewright.expr.nodes import Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import loads_of, path_to
from tilewright.loops.nodes import Block, Buffer, For, If, Let, Seq, Stmt, While


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
class Elements(Region):
    """The elements of a box at which none of the `conditions`, expressions over the indices of an element (`point`), is
    negative. Where they are `exact`, every one of them is touched; else they cover what is."""

    conditions: tuple[Expr, ...] = ()

    @property
    def box(self) -> dict[Var, Range]:
        """The ranges of the indices of an element."""
        return dict(zip(point(len(self.ranges)), self.ranges, strict=True))

    def inside(self, shape: Sequence[Expr], known: Known) -> Elements:
        """Those that are in a buffer of this shape; conditions that hold throughout the box are left out."""
        edges = [edge for d, extent in zip(self.box, shape, strict=True) for edge in (d, simplify(extent - d - 1))]
        box = known.where(self.box)
        kept = [c for c in dict.fromkeys([*self.conditions, *edges]) if not box.never_negative(polynomial(c))]
        return Elements(self.ranges, self.exact, tuple(kept))


def touches(root: Stmt, buffer: Buffer) -> list[Touch]:
    """The accesses of a buffer in `root`, in program order; of one statement the loads first."""
    return [Touch(a, path_to(root, a.statement)) for a in accesses(root) if a.buffer is buffer]


@lru_cache(maxsize=1 << 8)
def elements(touch: Touch, shared: int = 0) -> Elements:
    """The elements that an access touches while the first `shared` statements around it stay in one iteration. A
    dimension of which memory says what is touched counts as touched throughout."""
    (values, summed), access = _meanings(touch), touch.access
    around = [s for s in touch.path[shared:] if isinstance(s, For) and s.var not in summed]
    bounded = [s.replace(begin=substitute(s.begin, values), end=substitute(s.end, values)) for s in around]
    loops, clips = unclipped(bounded)
    whole = region(access.indices, access.buffer.shape, ranges_of(loops))
    steady = not any(map(loads_of, (*access.indices, *(e for loop in loops for e in (loop.begin, loop.end)))))
    sides = zip(whole.ranges, access.buffer.shape, strict=True)
    ranges = tuple(Range(const(0), e) if loads_of(r.begin) or loads_of(r.extent) else r for r, e in sides)
    exact = whole.exact and steady and _fills(access, loops)
    names, moving = [*zip(access.indices, point(len(ranges)), strict=True)], summed.union(loop.var for loop in loops)
    conditions: dict[Expr, None] = {}
    for cond in (*clips, *conditions_of(touch, shared)):
        gap = told(cond, names, moving) if steady else None
        exact = exact and gap is not None
        if gap is not None:
            conditions[expression(gap)] = None
    return Elements(ranges, exact, tuple(conditions))


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
                        values[s.var] = substitute(s.value, values)
            case Block(_, axes):
                values.update([(a.var, substitute(a.binding, values)) for a in axes])
    reduce = touch.init_of.reduce if touch.init_of is not None else ()
    return values, {v for axis in reduce for v in variables_of(substitute(axis.binding, values))}


def _fills(access: Access, loops: Sequence[For]) -> bool:
    """Whether the box is empty where a loop is: each loop is known to run, or a step of it is as long as what the loops
    inside it cover together."""
    idle = {loop for loop in loops if not NOTHING.never_negative(polynomial(loop.extent - 1))}
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
                parts = conjuncts(substitute(where, values))
                yield from (p for p in parts if touch.init_of is not outer or not mentions(p, summed))
            case If(cond, then, _):
                yield from conjuncts(substitute(cond, values)) if inner is then else [None]
            case While():
                yield None


def tightened(found: Elements, known: Known, around: frozenset[Var] = frozenset()) -> Elements:
    """The same elements, with conditions that only say where the box begins or ends as the box's, and without those
    that hold throughout it. Those that would make the size of the box depend on loops `around` stay conditions."""
    made, kept = tighten(found.box, {c: polynomial(c) for c in found.conditions}, known, around)
    return Elements(tuple(made.values()), found.exact, tuple(kept))


def contains(whole: Elements, part: Elements, known: Known, shape: Sequence[Expr] = ()) -> bool:
    """Whether it is proved that `whole` holds every element of `part`, which are elements of a buffer of this shape."""
    part = tightened(part, known)
    full = [Range(const(0), extent) for extent in shape] or part.ranges
    sides = zip(whole.ranges, part.ranges, full, strict=True)
    inside = all(known.within(s, r) or known.within(f, r) for r, s, f in sides)
    return inside and all(implies(part, cond, known) for cond in whole.conditions)


def implies(part: Elements, cond: Expr, known: Known) -> bool:
    """Whether it is proved that a condition holds at every element."""
    follows = cond in part.conditions or any(known.at_least(cond, other) for other in part.conditions)
    return follows or known.where(part.box).at_least(cond, const(0))


def cover_all(parts: Sequence[Elements], among: Sequence[Elements], known: Known) -> Elements:
    """The least box that holds all parts, under those conditions of `among` that hold in each of them."""
    candidates = dict.fromkeys(c for part in among for c in part.conditions)
    kept = tuple(c for c in candidates if all(implies(p, c, known) for p in parts))
    return Elements(covering(parts), False, kept)


def covering(parts: Sequence[Region]) -> tuple[Range, ...]:
    """The least box that holds some boxes."""
    return reduce(cover, parts).ranges


def box_of(root: Stmt, buffer: Buffer, is_store: bool | None = None) -> tuple[Range, ...] | None:
    """The box of a buffer that a statement touches, or loads, or stores; None where it does not."""
    found = [elements(t) for t in touches(root, buffer) if is_store in (None, t.access.is_store)]
    return covering(found) if found else None


def exactly(parts: Sequence[Elements], known: Known) -> Elements | None:
    """The elements that stores write together, where that is known: all those of a box under some conditions."""
    candidates = [*_united(parts), *(p for p in parts if p.exact)]
    return next((c for c in candidates if all(contains(c, part, known) for part in parts)), None)


def _united(parts: Sequence[Elements]) -> list[Elements]:
    """Exact boxes with those put together that continue one another along one dimension."""
    left = [p for p in parts if p.exact]
    for a, b in permutations(left, 2):
        if (joined := _joined(a, b)) is not None:
            return _united([*(p for p in left if p is not a and p is not b), joined])
    return left


def _joined(a: Elements, b: Elements) -> Elements | None:
    """The union of two boxes, of which the second begins where the first ends."""
    apart = [n for n, (r, s) in enumerate(zip(a.ranges, b.ranges, strict=True)) if r != s]
    if a.conditions or b.conditions or len(apart) != 1:
        return None
    (n,) = apart
    r, s = a.ranges[n], b.ranges[n]
    if polynomial(r.end) != polynomial(s.begin) or not all(NOTHING.at_least(x.extent, const(0)) for x in (r, s)):
        return None
    return Elements((*a.ranges[:n], Range(r.begin, simplify(r.extent + s.extent)), *a.ranges[n + 1 :]), True)


def _shared(store: Touch, load: Touch) -> list[Stmt]:
    """The statements around both."""
    return [s for s, _ in takewhile(lambda pair: pair[0] is pair[1], zip(store.path, load.path, strict=False))]


def covers(stores: Sequence[Touch], load: Touch, around: Sequence[For] = ()) -> bool:
    """Whether a load that stands after stores reads only what they wrote in the same iteration of all that is around
    the load and each of them, which is the same for all. `around` are loops outside."""
    both = _shared(stores[0], load)
    known = known_in((*around, *(s for s in both if isinstance(s, For))))
    written = [elements(store, len(both)) for store in stores]
    read, shape = elements(load, len(both)), load.access.buffer.shape
    return any(contains(w, read, known, shape) for w in (*(p for p in written if p.exact), *_united(written)))


def unwritten(found: Sequence[Touch], around: Sequence[For] = ()) -> Touch | None:
    """The first load that may read an element that no store before it wrote; None where there is none."""
    for n, touch in enumerate(found):
        if touch.access.is_store:
            continue
        before: dict[int, list[Touch]] = {}
        for store in (t for t in found[:n] if t.access.is_store):
            before.setdefault(len(_shared(store, touch)), []).append(store)
        if not any(covers(stores, touch, around) for stores in before.values()):
            return touch
    return None


def moved_around(loop: For, source: Buffer, around: Sequence[For]) -> tuple[Elements, Elements | None, Elements | None]:
    """The elements of a buffer that an iteration touches, that it must load first, and that it stores at the end."""
    known, outer = known_in(tuple(around)), frozenset(each.var for each in around)
    found = touches(loop.body, source)
    parts = [tightened(elements(t), known, outer) for t in found]
    writes = [part for t, part in zip(found, parts, strict=True) if t.access.is_store]
    touched, exact = cover_all(list(dict.fromkeys(parts)), parts, known), exactly(writes, known)
    begins = unwritten(found, around) is None and not (writes and exact is None)
    loaded = None if begins else touched.inside(source.shape, known)
    return touched, loaded, (exact or cover_all(writes, parts, known).inside(source.shape, known)) if writes else None
