"""annotate: what a person knows that the program does not say.

parallel i in 0..n: …        annotate(i, "grain", 4)     =>     parallel i in 0..n grain 4: …
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.expr.nodes import Var
from tilewright.loops.edit import replace
from tilewright.loops.nodes import For, Function, LoopKind
from tilewright.schedule.find import find_loop
from tilewright.schedule.step import Step, refusal


def annotate(function: Function, loop: Var, key: str, value: int) -> Step:
    """Notes something on a loop that what runs it honours. There is "grain": how many iterations of a parallel loop a
    thread runs at least.

    parallel i in 0..n: …       annotate(i, "grain", 4)  =>       parallel i in 0..n grain 4: …
    """
    found = find_loop(function, loop)
    what = f'cannot note "{key}" on loop {found.var.name}'
    if key not in KEYS:
        raise refusal(function, what, found, why="nothing honours it", fix=f"the keys are {', '.join(KEYS)}")
    made = KEYS[key](function, found, value, what)
    return Step(function.replace(body=replace(function.body, found, made)), None, ("it changes no result",))


def _grain(function: Function, loop: For, value: int, what: str) -> For:
    if loop.kind is not LoopKind.PARALLEL:
        why = f"it is no parallel loop: its kind is {loop.kind.value}"
        raise refusal(function, what, loop, why=why, fix=f"parallel({loop.var.name}) first")
    if type(value) is not int or value < 1:
        raise refusal(function, what, loop, why=f"{value!r} is no number of iterations", fix="give it 1 or more")
    return loop.replace(grain=value)


KEYS: dict[str, Callable[[Function, For, int, str], For]] = {"grain": _grain}
"""What can be noted on a loop."""
