"""Where a block runs: the box of its spatial axes, and the nest that runs it over a part of that box.

    for io in 0..6, ii in 0..6:                                      vi in 0..33, each point once
      block b(vi = io*6 + ii) where io*6 + ii < 33:        =>
        y[vi] = x[vi]

Loops that a split made are put together again, so that a block can be moved whatever became of its loops before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.intervals import Range
from tilewright.analysis.regions import Region, ranges_of, region
from tilewright.core.walk import substitute
from tilewright.expr.linear import Polynomial, affine_in, expression, plus, polynomial, times
from tilewright.expr.nodes import Const, Expr, Le, Lt, Min, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import expressions, loads_of, substitute_expressions
from tilewright.loops.nodes import Axis, AxisKind, Block, For, LoopKind, Stmt, Store
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.facts.known import NOTHING, Known
from tilewright.schedule.facts.predicates import conjunction, conjuncts, resolved
from tilewright.schedule.find import nested

Part = Mapping[Var, Range]
"""A range for some axes of a block."""


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


def domain_of(block: Block, loops: Sequence[For]) -> Domain | str:
    """The domain of a block under the loops around it, outermost first; else the reason why there is none."""
    spatial = {v for a in block.spatial for v in variables_of(a.binding)}
    summed = {v for a in block.reduce for v in variables_of(a.binding)}
    points: list[For] = []
    reduce: list[For] = []
    for loop in loops:
        if loop.var in spatial and loop.var in summed:
            return f"loop {loop.var.name} is bound to a spatial and to a reduce axis of {block.name}"
        if loop.var not in spatial | summed:
            if not is_single(loop):
                return f"loop {loop.var.name} repeats {block.name}: no axis of the block is bound to it"
            block = _without(block, {loop.var: loop.begin})
        else:
            (points if loop.var in spatial else reduce).append(loop)
    whole, clips = unclipped(points)
    gone = {loop.var for loop in points}
    for loop in (*whole, *reduce):
        moving = gone | {each.var for each in reduce} if loop in whole else gone
        used = (variables_of(loop.begin) | variables_of(loop.end)) & moving
        if used:
            return f"the bounds of {loop.var.name} depend on {', '.join(sorted(v.name for v in used))}"
    if any(loads_of(e) for loop in loops for e in (loop.begin, loop.end)):
        return f"memory is read to know where loops of {block.name} end"
    where = conjunction([*conjuncts(block.where), *clips])
    return _box(block.replace(where=where) if clips else block, whole, tuple(reduce))


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


def _box(block: Block, loops: Sequence[For], reduce: tuple[For, ...]) -> Domain | str:
    """The domain of a block whose spatial axes are bound to `loops`."""
    box: dict[Var, Range] = {}
    alone: dict[Expr, Expr] = {}
    seen: set[Var] = set()
    for axis in block.spatial:
        own = [loop for loop in loops if loop.var in variables_of(axis.binding)]
        if seen & {loop.var for loop in own}:
            return f"several axes of {block.name} are bound to loop {own[0].var.name}"
        seen |= {loop.var for loop in own}
        if len(own) == 1 and axis.binding is own[0].var:
            box[axis.var] = Range(own[0].begin, extent_of(own[0]))
            alone[own[0].var] = axis.var
            continue
        found = covered(polynomial(axis.binding), const(1), own)
        if found is None:
            return f"the values of {axis.var.name} = {axis.binding} are not known to come one by one, each once"
        box[axis.var] = found
        inverse = _inverse(axis, own)
        if inverse is not None:
            alone[own[0].var] = inverse
    where = None if block.where is None else substitute(block.where, alone)
    block = _without(block.replace(where=None), alone)
    gone = {loop.var for loop in loops}
    left = _left_in(block, gone)
    if left is not None:
        return f"what {block.name} computes uses loop {left.name} beside its axes"
    conditions = [(part, _on_axes(part, block, gone)) for part in conjuncts(where)]
    for part, told in conditions:
        if told is None:
            return f"its condition {part} cannot be told by its axes"
    rest = tuple(told for _, told in conditions if told is not None and not _absorb(told, box))
    return Domain(block, box, reduce, rest)


def _left_in(block: Block, gone: set[Var]) -> Var | None:
    """One of these variables in what a block computes."""
    parts = [s for s in (block.body, block.init) if s is not None and not gone.isdisjoint(s.variables())]
    return next((e for s in parts for e in expressions(s) if isinstance(e, Var) and e in gone), None)


def _inverse(axis: Axis, own: Sequence[For]) -> Expr | None:
    """The only loop of an axis, by the axis: i = vi - 4 for vi = i + 4."""
    found = single_axis(axis.binding, [own[0].var]) if len(own) == 1 else None
    return None if found is None else simplify(axis.var - found[1])


def _without(block: Block, values: Mapping[Expr, Expr]) -> Block:
    """The block with variables replaced in all but the bindings of its axes."""
    if not values:
        return block
    made = substitute_expressions(block, values)
    assert isinstance(made, Block)
    axes = tuple(a.replace(binding=b.binding) for a, b in zip(made.axes, block.axes, strict=True))
    return made.replace(axes=axes)


def covered(begin: Polynomial, extent: Expr, loops: Sequence[For]) -> Range | None:
    """What the ranges begin … begin + extent - 1 cover while the loops run, if each value is covered once and none is
    left out: sorted by size, each loop's step is what those before it cover together. None otherwise."""
    left = list(loops)
    span = polynomial(extent)
    rest = dict(begin)
    while left:
        loop = next((each for each in left if _steps_by(rest, each, span)), None)
        if loop is None:
            return None
        left.remove(loop)
        parts = affine_in(rest, loop.var)
        assert parts is not None
        rest = plus(parts[1], times(parts[0], polynomial(loop.begin)))
        if not is_single(loop):
            span = times(span, polynomial(extent_of(loop)))
    start, total = expression(rest), expression(span)
    moving = {loop.var for loop in loops}
    return None if mentions(start, moving) or mentions(total, moving) else Range(simplify(start), simplify(total))


def _steps_by(p: Polynomial, loop: For, span: Polynomial) -> bool:
    parts = affine_in(p, loop.var)
    if parts is None or any(mentions(atom, {loop.var}) for m in p for atom in m if atom is not loop.var):
        return False
    return is_single(loop) or parts[0] == span


def _on_axes(cond: Expr, block: Block, gone: set[Var]) -> Expr | None:
    """A condition by axes in place of the loops they are bound to; None where it reads memory, or cannot be told so."""
    if loads_of(cond):
        return None
    if not mentions(cond, gone):
        return cond
    cond = resolved(block, cond) or cond
    if not isinstance(cond, Lt | Le):
        return None
    gap = plus(polynomial(cond.b), polynomial(cond.a), -1)
    for axis in block.spatial:
        gap = exchanged(gap, axis.binding, axis.var, gone)
    left = expression(gap)
    if mentions(left, gone):
        return None
    return _compared(type(cond), gap)


def exchanged(gap: Polynomial, value: Expr, name: Expr, moving: set[Var]) -> Polynomial:
    """The polynomial with a multiple of `value` in it replaced by that multiple of `name`, where that takes a moving
    variable out of it."""
    p = polynomial(value)
    for var in variables_of(value) & moving:
        mine, theirs = affine_in(p, var), affine_in(gap, var)
        if mine is None or theirs is None or set(mine[0]) != {()} or set(theirs[0]) != {()}:
            continue
        if theirs[0][()] % mine[0][()] == 0:
            factor = theirs[0][()] // mine[0][()]
            return plus(plus(gap, p, -factor), polynomial(name), factor)
    return gap


def _compared(kind: type[Lt] | type[Le], gap: Polynomial) -> Expr:
    """gap > 0 or gap >= 0, with what is subtracted on the left."""
    less = expression({m: -c for m, c in gap.items() if c < 0 and m})
    more = expression({m: c for m, c in gap.items() if c > 0 or not m})
    return kind(less, more)


def _absorb(cond: Expr, box: dict[Var, Range]) -> bool:
    """Whether a condition only says where an axis begins or ends; the box then does, too."""
    if not isinstance(cond, Lt | Le):
        return False
    gap = plus(polynomial(cond.b), polynomial(cond.a), -1)
    axes = [v for v in box if any(mentions(atom, {v}) for m in gap for atom in m)]
    if len(axes) != 1:
        return False
    (axis,) = axes
    parts = affine_in(gap, axis)
    if parts is None or parts[0] not in ({(): 1}, {(): -1}) or mentions(expression(parts[1]), {axis}):
        return False
    begin, extent = box[axis].begin, box[axis].extent
    open_end = 1 if isinstance(cond, Lt) else 0
    if parts[0] == {(): -1}:
        end = simplify(expression(parts[1]) + (1 - open_end))
        if NOTHING.at_least(begin + extent, end) and NOTHING.at_least(end, begin):
            box[axis] = Range(begin, simplify(end - begin))
            return True
        return NOTHING.at_least(end, begin + extent)
    start = simplify(expression(plus({}, parts[1], -1)) + open_end)
    if NOTHING.at_least(start, begin) and NOTHING.at_least(begin + extent, start):
        box[axis] = Range(start, simplify(begin + extent - start))
        return True
    return NOTHING.at_least(begin, start)


def single_axis(index: Expr, axes: Collection[Var]) -> tuple[Var, Expr] | None:
    """(axis, offset) of an index that is one of these axes plus what depends on none of them."""
    used = [v for v in axes if mentions(index, {v})]
    if len(used) != 1:
        return None
    parts = affine_in(polynomial(index), used[0])
    if parts is None or parts[0] != {(): 1} or mentions(expression(parts[1]), {used[0]}):
        return None
    return used[0], simplify(expression(parts[1]))


def values_of(index: Expr, domain: Domain) -> Range | None:
    """The values of an index that is one axis and an offset, or no axis at all; None of others."""
    axis = single_axis(index, domain.box)
    if axis is not None:
        part = domain.box[axis[0]]
        return Range(simplify(part.begin + axis[1]), part.extent)
    moving = {v for v, part in domain.box.items() if not is_one(part.extent)}
    return None if moving & variables_of(index) else Range(index, const(1))


def touched(indices: tuple[Expr, ...], shape: tuple[Expr, ...], loops: Sequence[For]) -> Region:
    """The box that indices reach over loops. Ends that a split clipped count as whole."""
    return _touched(indices, shape, tuple(ranges_of(unclipped(loops)[0]).items()))


@lru_cache(maxsize=1 << 10)
def _touched(indices: tuple[Expr, ...], shape: tuple[Expr, ...], ranges: tuple[tuple[Var, Range], ...]) -> Region:
    return region(indices, shape, dict(ranges))


@lru_cache(maxsize=1 << 7)
def known_in(loops: tuple[For, ...]) -> Known:
    """What is known in loops. Ends that a split clipped count as whole."""
    return Known(ranges_of(unclipped(loops)[0]))


def own_accesses(domain: Domain) -> list[Access]:
    """The loads and stores of the block, with indices over its axes."""
    block = domain.block
    named = block.replace(axes=tuple(a.replace(binding=a.var) for a in block.axes))
    return accesses(named)


def nest_over(domain: Domain, part: Part, around: Sequence[For]) -> Stmt:
    """The block over a part of its domain, under serial loops of its own: those of the spatial axes in their order,
    inside them those of the reduce axes. `around` are the loops that it will stand in. Points of the part that are not
    in the domain are left out by `where`."""
    block = domain.block
    known = Known(ranges_of(around))
    axes: list[Axis] = []
    loops: list[For] = []
    conditions: list[Expr] = []
    for axis in block.axes:
        if axis.kind is AxisKind.REDUCE:
            axes.append(axis)
            continue
        whole = domain.box[axis.var]
        found = part.get(axis.var, whole)
        if is_one(found.extent):
            axes.append(axis.replace(binding=found.begin))
        else:
            loop = For(loop_variable(axis), const(0), found.extent, LoopKind.SERIAL, block)
            axes.append(axis.replace(binding=simplify(found.begin + loop.var)))
            loops.append(loop)
        if axis.var in part:
            conditions += _edges(axis.var, found, whole, known)
    made = block.replace(axes=tuple(axes), where=conjunction([*conditions, *domain.conditions]))
    return nested([*loops, *(loop.serial() for loop in domain.reduce)], made)


def loop_variable(axis: Axis) -> Var:
    """A variable for a loop over an axis, called like it: i for vi."""
    name = axis.var.name
    return Var(name[1:] if len(name) > 1 and name[0] == "v" else name)


def _edges(axis: Var, found: Range, whole: Range, known: Known) -> list[Expr]:
    """The conditions that keep an axis inside its domain."""
    conditions: list[Expr] = []
    if not known.at_least(found.begin, whole.begin):
        conditions.append(Le(whole.begin, axis))
    if not known.at_least(whole.begin + whole.extent, found.begin + found.extent):
        conditions.append(Lt(axis, simplify(whole.begin + whole.extent)))
    return conditions


def is_single(loop: For) -> bool:
    """Whether a loop has one iteration."""
    if isinstance(loop.begin, Const) and isinstance(loop.end, Const):
        return int(loop.end.value) - int(loop.begin.value) == 1
    return is_one(extent_of(loop))


def is_one(e: Expr) -> bool:
    """Whether an extent is 1."""
    return isinstance(e, Const) and e.value == 1
