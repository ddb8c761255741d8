"""Where a block runs: boxes of points, each once, under conditions.

    for io in 0..6, ii in 0..6:                                      vi in 0..33
      block b(vi = io*6 + ii) where io*6 + ii < 33:
        y[vi] = x[vi]

Loops that a split made are put together again, so that a block can be moved whatever became of its loops before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.intervals import Range, Ranges, interval
from tilewright.analysis.known import NOTHING, Known, bound, compared, exchanged, resolved, tighten
from tilewright.analysis.regions import ranges_of
from tilewright.analysis.vectors import longest
from tilewright.core.walk import substitute
from tilewright.expr.build import conjuncts
from tilewright.expr.linear import Polynomial, expression, linear_in, plus, polynomial, times
from tilewright.expr.nodes import Const, Expr, Lt, Min, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import spatial_loops, summed_loops, variables_of
from tilewright.loops.edit import loads_of, path_to, substitute_expressions
from tilewright.loops.nodes import Block, For, Function, Stmt, Store


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
            gap = told(resolved(made, part), names, gone)
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
        if not bound_to and not loop.is_single:
            return f"loop {name} repeats {block.name}: no axis of the block is bound to it"
        if loads_of(loop.begin) or loads_of(loop.end):
            return f"memory is read to know where loops of {block.name} end"
    for loop in (*whole, *reduce):
        used = loop.bounded_by & (points if loop.var in sums else points | sums)
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
        span = times(span, polynomial(loop.extent))
    start, total = expression(rest), expression(span)
    moving = {loop.var for loop in loops}
    return None if mentions(start, moving) or mentions(total, moving) else Range(simplify(start), simplify(total))


def covered_where(total: Range, part: Range, clips: Sequence[Expr], loops: Sequence[For]) -> Range | None:
    """What parts cover, of a `total`, of which only those run that the conditions let; they must say that a part begins
    below some place, which is then where the whole ends."""
    begin, moving = Var("begin"), {loop.var for loop in loops}
    gaps: dict[Expr, Polynomial | None] = {}
    for cond in clips:
        assert isinstance(cond, Lt)
        gap = times(plus(polynomial(cond.b), polynomial(cond.a), -1), polynomial(part.extent))
        told = exchanged(gap, [(part.begin, begin)], moving)
        gaps[cond] = None if told is None else plus(told, {(): 1}, -1)
    made, left = tighten({begin: total}, gaps, NOTHING)
    return None if left else made[begin]


def _steps_by(p: Polynomial, loop: For, span: Polynomial) -> tuple[Polynomial, Polynomial] | None:
    """(step, rest) of a polynomial that is linear in a loop, whose step is `span` if it has several iterations."""
    parts = linear_in(p, loop.var)
    return parts if parts is not None and (parts[0] == span or loop.is_single) else None


def told(cond: Expr | None, names: Iterable[tuple[Expr, Expr]], moving: set[Var]) -> Polynomial | None:
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


def greatest(extent: Expr, around: Sequence[For]) -> Expr | None:
    """The most that an extent is while the loops around it run; None where no bound is known."""
    bounds = interval(longest(extent), ranges_in(around))
    return None if bounds is None else longest(simplify(bounds.high))


@lru_cache(maxsize=1 << 7)
def known_in(loops: tuple[For, ...]) -> Known:
    """What is known in loops. Ends that a split clipped count as whole."""
    return Known(ranges_in(loops))


def fills_all(domain: Domain) -> bool:
    """Whether the block stores every element of its buffer."""
    store = domain.store
    parts = [(values_of(i, domain), Range(const(0), e)) for i, e in zip(store.indices, store.buffer.shape, strict=True)]
    return not domain.conditions and all(part is not None and NOTHING.within(whole, part) for part, whole in parts)


def inverse(indices: Sequence[Expr], box: Ranges) -> Callable[[Sequence[Expr]], dict[Expr, Expr]]:
    """The function from the values of `indices` over a block's axes to those of the axes, as far as they tell: an index
    tells one axis, and one that has a single value needs none."""
    single: dict[Expr, Expr] = {v: r.begin for v, r in box.items() if r.extent is const(1)}
    told = [(n, *axis) for n, index in enumerate(indices) if (axis := single_axis(index, box)) is not None]

    def axes_at(places: Sequence[Expr]) -> dict[Expr, Expr]:
        return single | {v: places[n] if at is const(0) else simplify(places[n] - at) for n, v, at in told}

    return axes_at


def nest_of(function: Function, block: Block) -> Stmt:
    """The outermost of the loops that hold nothing but loops down to the block; the block where there is none."""
    return [block, *takewhile(lambda s: isinstance(s, For), path_to(function.body, block)[-2::-1])][-1]
