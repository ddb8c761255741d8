"""How a loop runs: parallel, vectorize, unroll, bind, annotate.

for i in 0..n: b(i)      parallel(i)  =>      parallel i in 0..n: b(i)
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.expr.nodes import Const, Var
from tilewright.loops.edit import path_to, replace
from tilewright.loops.nodes import For, Function, LoopKind
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.find import find_loop
from tilewright.schedule.legality import require_independent
from tilewright.schedule.step import Step, refusal

THREADS = tuple(f"{level}.{axis}" for level in ("blockIdx", "threadIdx") for axis in "xyz")

MOST_UNROLLED = 1024
"""The most iterations that unroll takes."""


def parallel(function: Function, loop: Var) -> Step:
    """The iterations may run on several threads at once."""
    found = find_loop(function, loop)
    what = f"cannot make loop {found.var.name} parallel"
    evidence = require_independent(function, found, what, "make a loop outside or inside it parallel")
    return _with_kind(function, found, LoopKind.PARALLEL, evidence)


def vectorize(function: Function, loop: Var) -> Step:
    """The iterations become the lanes of vectors. The extent must be a constant."""
    found = find_loop(function, loop)
    what = f"cannot vectorize loop {found.var.name}"
    _require_constant(function, found, what)
    evidence = require_independent(function, found, what, "vectorize another loop")
    return _with_kind(function, found, LoopKind.VECTORIZE, evidence)


def unroll(function: Function, loop: Var) -> Step:
    """The loop is unrolled. The extent must be a constant."""
    found = find_loop(function, loop)
    what = f"cannot unroll loop {found.var.name}"
    extent = _require_constant(function, found, what)
    if extent > MOST_UNROLLED:
        why = f"it has {extent} iterations; at most {MOST_UNROLLED} are unrolled"
        raise refusal(function, what, found, why=why, fix=f"split({found.var.name}, 8) and unroll the inner loop")
    return _with_kind(function, found, LoopKind.UNROLL, ("the iterations keep their order",))


def bind(function: Function, loop: Var, thread: str) -> Step:
    """The iterations become the threads, or the blocks of threads, along an axis of a GPU's grid."""
    found = find_loop(function, loop)
    what = f"cannot bind loop {found.var.name} to {thread}"
    if thread not in THREADS:
        raise refusal(function, what, found, why="there is no such axis", fix=f"the axes are {', '.join(THREADS)}")
    for other in path_to(function.body, found):
        if isinstance(other, For) and other is not found and other.thread == thread:
            raise refusal(function, what, other, why=f"loop {other.var.name} around it is bound to {thread}")
    evidence = require_independent(function, found, what, "bind another loop")
    made = found.replace(kind=LoopKind.THREAD, thread=thread)
    return Step(function.replace(body=replace(function.body, found, made)), None, evidence)


def _require_constant(function: Function, loop: For, what: str) -> int:
    extent = extent_of(loop)
    if not isinstance(extent, Const):
        why = f"its extent {extent} is known only when the program runs"
        raise refusal(function, what, loop, why=why, fix=f'split({loop.var.name}, 8, tail="mask") first')
    return int(extent.value)


def _with_kind(function: Function, loop: For, kind: LoopKind, evidence: tuple[str, ...]) -> Step:
    made = loop.replace(kind=kind, thread="")
    return Step(function.replace(body=replace(function.body, loop, made)), None, evidence)


def annotate(function: Function, loop: Var, key: str, value: int) -> Step:
    """Annotates a loop for the runtime. The only key is "grain": the fewest iterations of a parallel loop that a
    thread is given.

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
