"""skew: two loops become one over the weighted sum of their variables, and one over the iterations of each sum, so that
values that depend on the sum alone are loaded once.

for m in 0..4:                               skew(m, a, 2)     for ma in 0..9:             ma = m*2 + a
  for a in 0..3:                                  =>             for at in 0..2:
    block b(vm = m, reduce va = a):                                block b(vm = ma // 2 + at - 1,
      y[vm] += x[vm*2 + va] * w[va]                                        reduce va = ma % 2 + (1 - at) * 2) where …:
                                                                     y[vm] += x[vm*2 + va] * w[va]

Loop skewing is Wolfe's ("Loop skewing: the wavefront method revisited", 1986). Here an iteration of the outer loop runs
the existing iterations of one sum, in the order of the former outer loop.
"""

from __future__ import annotations

from tilewright.analysis.vectors import Vector, meetings
from tilewright.expr.nodes import Const, Expr, FloorDiv, Le, Lt, Mod, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import summed_loops, variables_of
from tilewright.loops.edit import blocks, loops_around, replace, substitute_expressions
from tilewright.loops.nodes import For, Function, LoopKind
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.find import find_loop
from tilewright.schedule.legality import KEPT, turned_around
from tilewright.schedule.loops.rearrange import guarded, require_starts_inside
from tilewright.schedule.step import Step, refusal


def skew(function: Function, loop: Var, inner: Var, step: int = 1) -> Step:
    """Skews a loop and the one directly inside it along `loop*step + inner`, both counted from their begin. The new
    outer loop runs over these sums, the new inner one over the candidates for each sum; blocks run where the candidate
    exists. Returns both variables. The inner loop's extent must be a constant.

    for m in 0..4, a in 0..3: b(m, a)      =>      for ma in 0..9, at in 0..2: b(ma//2 + at - 1, …)       skew(m, a, 2)
    """
    first, second = find_loop(function, loop), find_loop(function, inner)
    what = f"cannot skew loops {first.var.name} and {second.var.name}"
    if type(step) is not int or step < 1:
        raise refusal(function, what, first, why=f"{step!r} is no number of places", fix="give it 1 or more")
    _require_pair(function, first, second, what)
    rows, width = extent_of(first), extent_of(second)
    if not isinstance(width, Const) or width.value < 1:
        why = f"{second.var.name} has {width} iterations, which is no number of one or more"
        raise refusal(function, what, second, why=why, fix=f'split({second.var.name}, 8, tail="mask") first')
    evidence = _require_order(function, first, second, step, what)
    turns = -(-int(width.value) // step)
    total, turn = Var(first.var.name + second.var.name), Var(second.var.name + "t")
    place = simplify(FloorDiv(total, const(step)) + turn - (turns - 1))
    column = simplify(Mod(total, const(step)) + (const(turns - 1) - turn) * step)
    body = second.body
    if turns > 1:
        body = guarded(guarded(body, Le(const(0), place)), Lt(place, rows))
    if width.value % step:
        body = guarded(body, Lt(column, width))
    require_starts_inside(function, first, body, what)
    values: dict[Expr, Expr] = {first.var: simplify(first.begin + place), second.var: simplify(second.begin + column)}
    inside = second.replace(var=turn, begin=const(0), end=const(turns), body=substitute_expressions(body, values))
    count = simplify((rows - 1) * step + width)
    made = first.replace(var=total, begin=const(0), end=count, body=inside)
    return Step(function.replace(body=replace(function.body, first, made)), (total, turn), evidence)


def _require_pair(function: Function, first: For, second: For, what: str) -> None:
    """Requires one loop directly inside the other, of the same extent in each iteration, and no init between them."""
    if first.body is not second:
        why = f"{second.var.name} is not directly inside {first.var.name}, alone"
        raise refusal(function, what, second, why=why, fix="reorder the loops first")
    if first.var in variables_of(second.begin) | variables_of(second.end):
        raise refusal(function, what, second, why=f"the bounds of {second.var.name} depend on {first.var.name}")
    for loop in (first, second):
        if loop.kind is not LoopKind.SERIAL:
            why = f"{loop.var.name} is a {loop.kind.value} loop"
            raise refusal(function, what, loop, why=why, fix="skew it while it is serial")
    for block in blocks(second):
        if block.init is not None and summed_loops(block) & {first.var, second.var}:
            why = f"the init of {block.name} runs before what it sums over, and would have no place"
            fix = f'decompose_reduction("{block.name}", {first.var.name}) first'
            raise refusal(function, what, first, why=why, fix=fix)


def _require_order(function: Function, first: For, second: For, step: int, what: str) -> tuple[str, ...]:
    """The evidence that accesses that meet keep their order."""
    chain = [first, second]
    for met in meetings(first, chain, loops_around(function.body, first)):
        if not _stays_forward(met.distances, step):
            raise turned_around(function, chain, met, what)
    return (KEPT,)


def _stays_forward(distances: Vector, step: int) -> bool:
    """Whether iterations at these distances keep their order. Those of one iteration of the outer loop always do."""
    outer, inner = distances
    if outer == 0 or inner == 0:
        return True
    if outer is None or inner is None:
        return False
    along = outer * step + inner
    return (along or outer) * outer > 0
