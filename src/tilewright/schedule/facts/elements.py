"""Which elements of a buffer a statement touches: those of a box where some conditions on their indices hold.

    for ii in 0..6, j in 0..4:                                      with io fixed:
      block b(vi = io*6 + ii, vj = j) where io*6 + ii < 33:           y[io*6..io*6 + 6, 0..4] where d0 < 33, exactly
        y[vi, vj] = …

Two statements are compared element by element, whatever loops they run in: so a load is seen to read only what a store
before it has written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.intervals import Range
from tilewright.analysis.regions import Region, cover, ranges_of, region
from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr import dtypes
from tilewright.expr.linear import Polynomial, affine_in, expression, plus, polynomial
from tilewright.expr.nodes import Expr, Le, Lt, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import loads_of
from tilewright.loops.nodes import Block, Buffer, For, If, Let, Seq, Stmt, While
from tilewright.schedule.facts.domain import covered, exchanged, known_in, unclipped
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.facts.known import NOTHING, Known
from tilewright.schedule.facts.predicates import conjuncts


@cache
def _index(dimension: int) -> Var:
    return Var(f"d{dimension}")


@cache
def point(rank: int) -> tuple[Var, ...]:
    """The indices of an element of a buffer of so many dimensions."""
    return tuple(map(_index, range(rank)))


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
    paths: dict[Stmt, tuple[Stmt, ...]] = {}
    found = [a for a in accesses(root) if a.buffer is buffer]
    if found:
        paths = dict(_paths(root))
    return [Touch(a, paths[a.statement]) for a in found]


def _paths(root: Stmt) -> Iterator[tuple[Stmt, tuple[Stmt, ...]]]:
    stack: list[tuple[Stmt, ...]] = [(root,)]
    while stack:
        path = stack.pop()
        yield path[-1], path
        stack.extend((*path, c) for c in path[-1].children() if isinstance(c, Stmt))


@lru_cache(maxsize=1 << 8)
def elements(touch: Touch, shared: int = 0) -> Elements:
    """The elements that an access touches while the first `shared` statements around it stay in one iteration."""
    values = _meanings(touch.path)
    loops = [_resolved(s, values) for s in touch.path[shared:] if isinstance(s, For)]
    summed: set[Var] = set()
    block = touch.init_of
    if block is not None:
        summed = {v for a in block.reduce for v in variables_of(_meant(a.binding, values))}
        loops = [loop for loop in loops if loop.var not in summed]
    loops, clips = unclipped(loops)
    access = touch.access
    whole = region(access.indices, access.buffer.shape, ranges_of(loops))
    places = [*access.indices, *(e for loop in loops for e in (loop.begin, loop.end))]
    steady = not any(loads_of(e) for e in places)
    box = whole.ranges if steady else tuple(Range(const(0), extent) for extent in access.buffer.shape)
    exact = whole.exact and steady and _fills(access, loops)
    conditions: list[Expr] = []
    moving = {loop.var for loop in loops} | summed
    for cond in (*clips, *_conditions(touch, shared, summed, values)):
        gap = _told(cond, access, moving) if steady and cond is not None else None
        if gap is None:
            exact = False
        else:
            conditions.append(expression(gap))
    return Elements(box, tuple(dict.fromkeys(conditions)), exact)


def _meanings(path: Sequence[Stmt]) -> dict[Node, Node]:
    """What the axes and the named values around a statement stand for."""
    values: dict[Node, Node] = {}
    for outer, inner in pairwise(path):
        match outer:
            case Seq(body):
                for s in body[: body.index(inner)]:
                    if isinstance(s, Let):
                        values[s.var] = _meant(s.value, values)
            case Block(_, axes):
                values.update([(a.var, _meant(a.binding, values)) for a in axes])
    return values


def _meant(e: Expr, values: dict[Node, Node]) -> Expr:
    return transform(e, lambda node: node, values)


def _resolved(loop: For, values: dict[Node, Node]) -> For:
    begin, end = _meant(loop.begin, values), _meant(loop.end, values)
    return loop if begin is loop.begin and end is loop.end else loop.replace(begin=begin, end=end)


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


def _conditions(touch: Touch, shared: int, summed: set[Var], values: dict[Node, Node]) -> Iterator[Expr | None]:
    """The conditions around an access, but for those around the shared statements; None for one that is not known."""
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


def _told(cond: Expr, access: Access, moving: set[Var]) -> Polynomial | None:
    """A condition as p >= 0 over the indices of the element; None where it cannot be told so."""
    if not isinstance(cond, Lt | Le) or cond.a.dtype is not dtypes.index:
        return None
    if loads_of(cond):
        return None
    gap = plus(polynomial(cond.b), polynomial(cond.a), -1)
    if isinstance(cond, Lt):
        gap = plus(gap, {(): -1})
    for index, name in zip(access.indices, point(len(access.indices)), strict=True):
        gap = exchanged(gap, index, name, moving)
    return None if mentions(expression(gap), moving) else gap


def as_condition(gap: Expr) -> Expr:
    """p >= 0 as a comparison, with what is subtracted on the left."""
    p = dict(polynomial(gap))
    number = p.pop((), 0)
    less = expression({m: -c for m, c in p.items() if c < 0})
    more = expression({m: c for m, c in p.items() if c > 0})
    if number == -1 or more is const(0):
        return Lt(less, simplify(more + (number + 1)))
    return Le(simplify(less - min(number, 0)), simplify(more + max(number, 0)))


def tightened(found: Elements, known: Known, around: frozenset[Var] = frozenset()) -> Elements:
    """The same elements, with conditions that only say where the box begins or ends as the box's, and without those
    that hold throughout it. Those that would make the size of the box depend on loops `around` stay conditions."""
    box = list(found.box)
    kept = [c for c in found.conditions if not _absorbed(c, box, known, around)]
    inside = in_box(known, box) if kept else known
    kept = [c for c in kept if not inside.never_negative(polynomial(c))]
    return Elements(tuple(box), tuple(kept), found.exact)


def _absorbed(cond: Expr, box: list[Range], known: Known, around: frozenset[Var]) -> bool:
    """Whether a condition is d <= end or d >= begin of one dimension d, with the end or begin in the box, whose size
    does not come to depend on loops around; it then is made the box's."""
    p = polynomial(cond)
    dims = [n for n, d in enumerate(point(len(box))) if mentions(cond, {d})]
    parts = affine_in(p, point(len(box))[dims[0]]) if len(dims) == 1 else None
    if parts is None or parts[0] not in ({(): 1}, {(): -1}):
        return False
    here = box[dims[0]]
    first, end = polynomial(here.begin), polynomial(here.begin + here.extent)
    cut = plus(parts[1], {(): 1}) if parts[0] == {(): -1} else plus({}, parts[1], -1)
    if not (known.never_negative(plus(end, cut, -1)) and known.never_negative(plus(cut, first, -1))):
        return False
    if parts[0] == {(): -1}:
        made = Range(here.begin, simplify(expression(plus(cut, first, -1))))
    else:
        made = Range(simplify(expression(cut)), simplify(expression(plus(end, cut, -1))))
    if mentions(made.extent, around) and not mentions(here.extent, around):
        return False
    box[dims[0]] = made
    return True


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
    need = polynomial(cond)
    if cond in part.conditions or any(
        known.never_negative(plus(need, polynomial(other), -1)) for other in part.conditions
    ):
        return True
    return in_box(known, part.box).never_negative(need)


def cover_all(parts: Sequence[Elements], among: Sequence[Elements], known: Known) -> Elements:
    """The least box that holds all parts, under those conditions of `among` that hold in each of them."""
    box = Region(parts[0].box, False)
    for part in parts[1:]:
        box = cover(box, Region(part.box, False))
    candidates = dict.fromkeys(c for part in among for c in part.conditions)
    return Elements(box.ranges, tuple(c for c in candidates if all(implies(p, c, known) for p in parts)), False)


def united(parts: Sequence[Elements]) -> list[Elements]:
    """Exact boxes with those put together that continue one another along one dimension."""
    left = [p for p in parts if p.exact]
    n = 0
    while n < len(left):
        other = next((m for m in range(len(left)) if m != n and _joined(left[n], left[m]) is not None), None)
        if other is None:
            n += 1
            continue
        joined = _joined(left[n], left[other])
        assert joined is not None
        left = [p for m, p in enumerate(left) if m not in (n, other)] + [joined]
        n = 0
    return left


def _joined(a: Elements, b: Elements) -> Elements | None:
    """The union of two boxes, of which the second begins where the first ends."""
    if a.conditions or b.conditions:
        return None
    apart = [n for n, (r, s) in enumerate(zip(a.box, b.box, strict=True)) if r != s]
    if len(apart) != 1:
        return None
    (n,) = apart
    r, s = a.box[n], b.box[n]
    if polynomial(r.begin + r.extent) != polynomial(s.begin):
        return None
    if not all(NOTHING.never_negative(polynomial(x.extent)) for x in (r, s)):
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


def unstored(root: Stmt, buffer: Buffer, readers: Collection[Stmt] | None = None) -> Stmt | None:
    """The first statement, of `readers` where they are given, that may read an element of a buffer which no store in
    `root` wrote, in the same iteration of the loops around both; None where there is none."""
    found = touches(root, buffer)
    stores = [touch for touch in found if touch.access.is_store]
    for touch in found:
        at = touch.access.statement
        if not touch.access.is_store and (readers is None or at in readers):
            if not any(covers(store, touch) for store in stores):
                return at
    return None


def unwritten(found: Sequence[Touch], around: Sequence[For] = ()) -> Touch | None:
    """The first load that may read an element that no store before it wrote; None where there is none."""
    stores: list[Touch] = []
    for touch in found:
        if touch.access.is_store:
            stores.append(touch)
        elif not any(covers(store, touch, around) for store in stores):
            return touch
    return None
