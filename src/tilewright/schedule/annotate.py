"""annotate, prefetch: what a person knows that the program does not say.

parallel i in 0..n: …        annotate(i, "grain", 4)     =>     parallel i in 0..n grain 4: …
for k in 0..n: … b[k, 0] …   prefetch("b", k, 2)         =>     for k in 0..n: prefetch b[k + 2, 0]; …
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.analysis.accesses import mentions
from tilewright.analysis.regions import Region, cover, reads, writes
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Var
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import allocations, loops_around, replace
from tilewright.loops.nodes import Buffer, For, Function, Load, LoopKind, Prefetch, seq
from tilewright.schedule.find import find_buffer, find_loop
from tilewright.schedule.step import Step, refusal
from tilewright.types.scopes import Scope


def annotate(function: Function, loop: Var, key: str, value: int) -> Step:
    """Notes something on a loop that what runs it honours. There is "grain": how many iterations of a parallel loop a
    thread runs at least.

    parallel i in 0..n: …       annotate(i, "grain", 4)  =>       parallel i in 0..n grain 4: …
    """
    found = find_loop(function, loop)
    what = f'cannot note "{key}" on loop {found.var.name}'
    if key not in KEYS:
        raise refusal(function, what, found, why="nothing honours it", mend=f"the keys are {', '.join(KEYS)}")
    made = KEYS[key](function, found, value, what)
    return Step(function.replace(body=replace(function.body, found, made)), None, ("it changes no result",))


def _grain(function: Function, loop: For, value: int, what: str) -> For:
    if loop.kind is not LoopKind.PARALLEL:
        why = f"it is no parallel loop: its kind is {loop.kind.value}"
        raise refusal(function, what, loop, why=why, mend=f"parallel({loop.var.name}) first")
    if type(value) is not int or value < 1:
        raise refusal(function, what, loop, why=f"{value!r} is no number of iterations", mend="give it 1 or more")
    return loop.replace(grain=value)


KEYS: dict[str, Callable[[Function, For, int, str], For]] = {"grain": _grain}
"""What can be noted on a loop."""


def prefetch(function: Function, buffer: str, loop: Var, distance: int = 1) -> Step:
    """Each iteration of the loop begins by asking for the first element of the buffer that the iteration `distance`
    after it touches. The place may lie beyond the buffer's end: nothing is read there.

    for k in 0..n: … b[k, 0] …       prefetch("b", k, 2)  =>       for k in 0..n: prefetch b[k + 2, 0]; … b[k, 0] …
    """
    found, target = find_loop(function, loop), find_buffer(function, buffer)
    what = f"cannot prefetch {target.name} in loop {found.var.name}"
    if type(distance) is not int or distance < 1:
        raise refusal(function, what, found, why=f"{distance!r} is no number of iterations", mend="give it 1 or more")
    if found.kind not in (LoopKind.SERIAL, LoopKind.PARALLEL):
        why = f"a {found.kind.value} loop has no iterations that come later"
        raise refusal(function, what, found, why=why, mend="take a for loop around it")
    if target.scope is Scope.REGISTER or target in allocations(found.body):
        where = "in registers" if target.scope is Scope.REGISTER else "made anew in each iteration"
        raise refusal(function, what, found, why=f"{target.name} is {where}", mend="prefetch what it is filled from")
    box = _touched(function, found, target)
    if box is None or not any(mentions(r.begin, (found.var,)) for r in box.ranges):
        why = "no iteration touches it" if box is None else "every iteration begins at the same element of it"
        raise refusal(function, what, found, why=why, mend="take another loop")
    later = simplify(found.var + distance)
    indices = tuple(simplify(substitute(r.begin, {found.var: later})) for r in box.ranges)
    made = found.replace(body=seq(Prefetch(Load(target, indices)), found.body))
    return Step(function.replace(body=replace(function.body, found, made)), None, ("it changes no result",))


def _touched(function: Function, loop: For, buffer: Buffer) -> Region | None:
    """The box of the buffer that one iteration touches, over the loops around it."""
    fixed = {loop.var, *(s.var for s in loops_around(function.body, loop))}
    boxes = [regions[buffer] for regions in (reads(loop.body, fixed), writes(loop.body, fixed)) if buffer in regions]
    return boxes[0] if len(boxes) == 1 else cover(*boxes) if boxes else None
