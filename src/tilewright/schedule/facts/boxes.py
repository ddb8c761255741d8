"""Where a block runs, and what a statement touches: boxes of points and of elements, under conditions.

    for io in 0..6, ii in 0..6:                                      vi in 0..33, each point once
      block b(vi = io*6 + ii) where io*6 + ii < 33:
        y[vi] = x[vi]                                                with io fixed: y[io*6..io*6 + 6] where d0 < 33

Loops that a split made are put together again, so that a block can be moved whatever became of its loops before. Two
statements are compared element by element, so that a load is seen to read only what a store before it has written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from itertools import pairwise, permutations, takewhile

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.intervals import Range, Ranges
from tilewright.analysis.regions import Region, cover, ranges_of, region
from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.build import conjunction, conjuncts
from tilewright.expr.linear import Polynomial, expression, linear_in, plus, polynomial, times
from tilewright.expr.nodes import Const, Expr, Le, Lt, Min, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import spatial_loops, summed_loops, variables_of
from tilewright.loops.edit import loads_of, path_to, substitute_expressions
from tilewright.loops.nodes import Block, Buffer, For, If, Let, LoopKind, Seq, Stmt, Store, While
from tilewright.schedule.facts.iterations import bounds_of, extent_of, is_single
from tilewright.schedule.facts.known import NOTHING, Known, bound, compared, exchanged, resolved, tighten
from tilewright.schedule.find import nested


@dataclass(frozen=True, slots=True)
class Domain:
    """The points of a block: a box of its spatial axes, each point once, of which those run that `conditions` (over
    axes and reduce loops) let. `reduce` are the loops of its reduce axes, outermost first; `block` is the block with
    nothing in it that mentions a spatial loop."""

    block: Block
    box: Mapping[Var, Range]
    reduce: tuple[For, ...]
    conditions: tuple[Expr, ...]

    @property
    def store(self) -> Store:
        """What the block does at each point, where that is one store."""
        assert isinstance(self.block.body, Store)
        return self.block.body

    def accesses(self) -> list[Access]:
        """The loads and stores of the block, with indices over its axes."""
        return accesses(self.block.replace(axes=tuple(a.replace(binding=a.var) for a in self.block.axes)))


def domain_of(block: Block, loops: Sequence[For]) -> Domain | str:
    """The domain of a block under the loops around it, outermost first; else the reason why there is none."""
    spatial, summed = spatial_loops(block), summed_loops(block)
    whole, clips = unclipped([loop for loop in loops if loop.var in spatial])
    reduce = tuple(loop for loop in loops if loop.var in summed)
    obstacle = _obstacle(block, loops, whole, reduce)
    if obstacle is not None:
        return obstacle
    box: dict[Var, Range] = {}
    values: dict[Expr, Expr] = {loop.var: loop.begin for loop in loops if loop.var not in spatial | summed}
    for axis in block.spatial:
        own = [loop for loop in whole if mentions(axis.binding, {loop.var})]
        found = covered(polynomial(axis.binding), const(1), own)
        if found is None:
            return f"the values of {axis.var.name} = {axis.binding} are not known to come one by one, each once"
        box[axis.var] = found
        alone = single_axis(axis.binding, [loop.var for loop in own])
        if alone is not None:  # i = vi - 4 for vi = i + 4
            values[alone[0]] = simplify(axis.var - alone[1])
    made, gone = substitute_expressions(block.replace(where=None), values), {loop.var for loop in whole}
    assert isinstance(made, Block)
    made = made.replace(axes=block.axes)
    left = [v for part in made.held() for v in part.variables() & gone]
    if left:
        return f"what {block.name} computes uses loop {min(v.name for v in left)} beside its axes"
    names = [(a.binding, a.var) for a in block.spatial]
    conditions: dict[Expr, Polynomial | None] = {}
    for part in (substitute(c, values) for c in (*conjuncts(block.where), *clips)):
        if mentions(part, gone) or loads_of(part):
            gap = _told(resolved(made, part), names, gone)
            if gap is None:
                return f"its condition {part} cannot be told by its axes"
            part = compared(gap, strict=isinstance(part, Lt))
        conditions[part] = bound(part)
    tight, kept = tighten(box, conditions, NOTHING)
    return Domain(made, tight, reduce, tuple(kept))


def _obstacle(block: Block, loops: Sequence[For], whole: Sequence[For], reduce: Sequence[For]) -> str | None:
    """Why a block has no domain under loops, as far as these alone say; None where they do not. Those in `whole` are
    bound to spatial axes, those in `reduce` to reduce axes."""
    points, sums = {loop.var for loop in whole}, {loop.var for loop in reduce}
    for loop in loops:
        name, bound_to = loop.var.name, [a for a in block.axes if mentions(a.binding, {loop.var})]
        if loop.var in points & sums:
            return f"loop {name} is bound to a spatial and to a reduce axis of {block.name}"
        if loop.var in points and len(bound_to) > 1:
            return f"several axes of {block.name} are bound to loop {name}"
        if not bound_to and not is_single(loop):
            return f"loop {name} repeats {block.name}: no axis of the block is bound to it"
        if loads_of(loop.begin) or loads_of(loop.end):
            return f"memory is read to know where loops of {block.name} end"
    for loop in (*whole, *reduce):
        used = bounds_of(loop) & (points if loop.var in sums else points | sums)
        if used:
            return f"the bounds of {loop.var.name} depend on {', '.join(sorted(v.name for v in used))}"
    return None


def unclipped(loops: Sequence[For]) -> tuple[list[For], list[Expr]]:
    """The loops as they were before a split clipped them, and the conditions that say so: 0..min(6, 33 - io*6) is 0..6
    where ii < 33 - io*6. Other minima are sizes, and stay."""
    made: list[For] = []
    conditions: list[Expr] = []
    for loop in loops:
        match loop.end:
            case Min(Const() as end, other) | Min(other, Const() as end) if _steps_back(other, int(end.value)):
                made.append(loop.replace(end=end))
                conditions.append(Lt(loop.var, other))
            case _:
                made.append(loop)
    return made, conditions


def _steps_back(left: Expr, step: int) -> bool:
    """Whether what is left becomes less by whole steps."""
    return step > 0 and any(m and c < 0 and c % step == 0 for m, c in polynomial(left).items())


def covered(begin: Polynomial, extent: Expr, loops: Sequence[For]) -> Range | None:
    """What the ranges begin … begin + extent - 1 cover while the loops run, if each value is covered once and none is
    left out: sorted by size, each loop's step is what those before it cover together. None otherwise."""
    left, rest, span = list(loops), begin, polynomial(extent)
    while left:
        found = next(((loop, p) for loop in left if (p := _steps_by(rest, loop, span)) is not None), None)
        if found is None:
            return None
        loop, (step, others) = found
        left.remove(loop)
        rest = plus(others, times(step, polynomial(loop.begin)))
        span = times(span, polynomial(extent_of(loop)))
    start, total = expression(rest), expression(span)
    moving = {loop.var for loop in loops}
    return None if mentions(start, moving) or mentions(total, moving) else Range(simplify(start), simplify(total))


def _steps_by(p: Polynomial, loop: For, span: Polynomial) -> tuple[Polynomial, Polynomial] | None:
    """(step, rest) of a polynomial that is linear in a loop, whose step is `span` if it has several iterations."""
    parts = linear_in(p, loop.var)
    return parts if parts is not None and (parts[0] == span or is_single(loop)) else None


def _told(cond: Expr | None, names: Iterable[tuple[Expr, Expr]], moving: set[Var]) -> Polynomial | None:
    """A condition's polynomial by the names of values, of which none moves; None of one that cannot be told so."""
    gap = None if cond is None or loads_of(cond) else bound(cond)
    return None if gap is None else exchanged(gap, names, moving)


def single_axis(index: Expr, axes: Collection[Var]) -> tuple[Var, Expr] | None:
    """(axis, offset) of an index that is one of these axes plus what depends on none of them."""
    used = [v for v in axes if v in variables_of(index)]
    parts = linear_in(polynomial(index), used[0]) if len(used) == 1 else None
    return None if parts is None or parts[0] != {(): 1} else (used[0], simplify(expression(parts[1])))


def values_of(index: Expr, domain: Domain) -> Range | None:
    """The values of an index that is one axis and an offset, or no axis at all; None of others."""
    axis = single_axis(index, domain.box)
    if axis is not None:
        part = domain.box[axis[0]]
        return Range(simplify(part.begin + axis[1]), part.extent)
    moving = {v for v, part in domain.box.items() if part.extent is not const(1)}
    return None if moving & variables_of(index) else Range(index, const(1))


def ranges_in(loops: Sequence[For]) -> dict[Var, Range]:
    """The ranges of loop variables. Ends that a split clipped count as whole."""
    return ranges_of(unclipped(loops)[0])


@lru_cache(maxsize=1 << 7)
def known_in(loops: tuple[For, ...]) -> Known:
    """What is known in loops. Ends that a split clipped count as whole."""
    return Known(ranges_in(loops))


def nest_over(domain: Domain, part: Ranges, around: Sequence[For]) -> Stmt:
    """The block over a part of its domain, the ranges of some axes, under serial loops of its own: those of the spatial
    axes in their order, called like them, inside them those of the reduce axes. `around` are the loops that it will
    stand in. Points of the part that are not in the domain are left out by `where`."""
    known, conditions = Known(ranges_of(around)), list[Expr]()
    for var, whole in domain.box.items():
        found = part.get(var, whole)
        if not known.at_least(found.begin, whole.begin):
            conditions.append(Le(whole.begin, var))
        if not known.at_least(whole.end, found.end):
            conditions.append(Lt(var, whole.end))
    made = domain.block.replace(where=conjunction([*conditions, *domain.conditions]))
    loops = {var: Var(var.name.removeprefix("v") or "v") for var in domain.box}
    return over_box(made, {**domain.box, **part}, loops, [loop.serial() for loop in domain.reduce])


def over_box(
    block: Block, box: Ranges, loops: Mapping[Var, Var], inner: Sequence[For] = (), *, singles: bool = False
) -> Stmt:
    """A block over a box of its spatial axes, in a serial loop for each of them, whose variable is in `loops`: for axes
    of one point only where `singles` have loops. Inside these are the loops `inner`."""
    made: list[For] = []
    bindings: dict[Var, Expr] = {}
    for var, r in box.items():
        bindings[var] = r.begin
        if singles or r.extent is not const(1):
            made.append(For(loops[var], const(0), r.extent, LoopKind.SERIAL, block))
            bindings[var] = simplify(r.begin + loops[var])
    axes = tuple(a.replace(binding=bindings.get(a.var, a.binding)) for a in block.axes)
    return nested([*made, *inner], block.replace(axes=axes))


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
        gap = _told(cond, names, moving) if steady else None
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


def united(parts: Sequence[Elements]) -> list[Elements]:
    """Exact boxes with those put together that continue one another along one dimension."""
    left = [p for p in parts if p.exact]
    for a, b in permutations(left, 2):
        if (joined := _joined(a, b)) is not None:
            return united([*(p for p in left if p is not a and p is not b), joined])
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


def covers(store: Touch, load: Touch, around: Sequence[For] = ()) -> bool:
    """Whether a load that stands after a store reads only what it wrote in the same iteration of all that is around
    both. `around` are loops outside."""
    both = [s for s, _ in takewhile(lambda pair: pair[0] is pair[1], zip(store.path, load.path, strict=False))]
    written, known = elements(store, len(both)), known_in((*around, *(s for s in both if isinstance(s, For))))
    return written.exact and contains(written, elements(load, len(both)), known, load.access.buffer.shape)


def unwritten(found: Sequence[Touch], around: Sequence[For] = ()) -> Touch | None:
    """The first load that may read an element that no store before it wrote; None where there is none."""
    for n, touch in enumerate(found):
        stores = (before for before in found[:n] if before.access.is_store)
        if not touch.access.is_store and not any(covers(store, touch, around) for store in stores):
            return touch
    return None
