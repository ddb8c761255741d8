"""split_axes, order_axes: a block has an axis for each loop that an axis is bound to, in the order of these loops.

for jo in 0..4, ji in 0..8:                                 for jo in 0..4, ji in 0..8:
  block b(vj = jo*8 + ji): y[vj] = x[vj // 8]       =>        block b(vjo = jo, vji = ji): y[vjo*8 + vji] = x[vjo]
"""

from __future__ import annotations

from tilewright.analysis.intervals import Range
from tilewright.analysis.known import Known
from tilewright.core.walk import substitute
from tilewright.expr.linear import digits_of
from tilewright.expr.nodes import Expr, Var, const
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import loops_around, map_expressions, substitute_expressions
from tilewright.loops.nodes import Axis, Block, Function
from tilewright.schedule.find import primitive
from tilewright.schedule.step import Obstacle, Step, rewritten


@primitive("cannot split the axes of block {block}")
def split_axes(function: Function, block: Block) -> Step:
    """Each axis that is bound to several loops, the digits of a number, becomes an axis for each of these loops.

    block b(vj = jo*8 + ji): y[vj] = x[vj // 8]      =>      block b(vjo = jo, vji = ji): y[vjo*8 + vji] = x[vjo]

    Legal where each loop begins with 0 and counts what the next one counts whole rounds of.
    """
    loops = {loop.var: loop for loop in loops_around(function.body, block)}
    sizes = {v: loop.size for v, loop in loops.items() if loop.size is not None and loop.begin is const(0)}
    made: list[Axis] = []
    places: dict[Expr, Expr] = {}
    known: dict[Var, Range] = {}
    for axis in block.axes:
        digits = digits_of(axis.binding, sizes) or {}
        if len(digits) < 2:
            made.append(axis)
            continue
        own = [Axis(Var("v" + v.name), axis.kind, v) for v in digits]
        made += own
        places[axis.var] = substitute(axis.binding, {a.binding: a.var for a in own})
        known |= {a.var: Range(loops[v].begin, loops[v].extent) for a, v in zip(own, digits, strict=True)}
    if not places:
        raise Obstacle(block, "each of its axes is bound to one loop, or to no digits of a number")
    facts = Known(known)
    fresh = substitute_expressions(block.replace(axes=tuple(made)), places)
    simpler = map_expressions(fresh, facts.simplified)
    names = ", ".join(str(v) for v in places)
    return rewritten(function, block, simpler, None, f"loops count the digits of {names}")


@primitive("cannot order the axes of block {block}")
def order_axes(function: Function, block: Block) -> Step:
    """The axes of a block come in the order of the loops that they are bound to; those of sums stay behind the others.

    for j, i: block b(vi = i, vj = j): y[vj, vi] = x[vi, vj]      =>      block b(vj = j, vi = i): y[vj, vi] = x[vi, vj]
    """
    places = {loop.var: n for n, loop in enumerate(loops_around(function.body, block))}

    def place(axis: Axis) -> tuple[bool, int]:
        inside = [places[v] for v in variables_of(axis.binding) if v in places]
        return axis in block.reduce, max(inside, default=-1)

    ordered = tuple(sorted(block.axes, key=place))
    return rewritten(function, block, block.replace(axes=ordered), None, "each axis is bound as it was")
