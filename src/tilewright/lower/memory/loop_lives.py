"""When the buffers of a program with loops are alive.

A buffer that a step of a loop makes is alive from its first use to its last within the step: the next step makes it
anew. A buffer from outside of a loop that is used inside is alive during the whole loop.

    alloc t, u, v                       t    alive from here
    call f(t)
    for step in 0..n:                        t and u are alive in all of the loop,
      call g(t, v)                           v from g to h
      call h(v, u)
    call k(u)                           u    up to here
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tilewright.expr.nodes import Expr, Var
from tilewright.loops.nodes import Buffer, Stmt
from tilewright.lower.memory.plan_memory import Life
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class Opening:
    """A loop: the variable that tells its steps apart, and either how many there are or, where it goes on as long as a
    condition holds, that condition; such a loop counts its steps itself."""

    var: Var
    steps: Expr | None
    cond: Expr | None = None


@dataclass(slots=True)
class Step:
    """A statement of the main function before memory is planned, and the buffers it touches. `inside` are the variables
    of the loops around it; a step without a statement `opens` a loop, or stands behind one: a loop of so many steps, or
    one that runs as long as a condition holds. It runs only where its `guard` holds, if it has one; it `binds` a symbol
    of sizes."""

    statement: Stmt | None
    touches: tuple[Buffer, ...] = ()
    binds: Var | None = None
    inside: tuple[Var, ...] = ()
    opens: Opening | None = None
    guard: Expr | None = None


def lives_of(
    steps: Sequence[Step],
    root: Mapping[Buffer, Buffer],
    home: Mapping[Buffer, tuple[Var, ...]],
    others: Collection[Buffer] = (),
) -> list[Life]:
    """The lives of all arena buffers, and of `others`. `root` is the buffer whose memory a buffer is, `home` the loops
    that it was made in."""
    spans = _spans(steps)
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for n, step in enumerate(steps):
        for buffer in step.touches:
            own = root[buffer]
            if own.scope is not Scope.ARENA and own not in others:
                continue
            depth = len(home.get(own, ()))
            begin, end = spans[step.inside[depth]] if len(step.inside) > depth else (n, n)
            first[own] = min(first.get(own, begin), begin)
            last[own] = max(last.get(own, end), end)
    return [Life(b, first[b], last[b]) for b in first]


def _spans(steps: Sequence[Step]) -> dict[Var, tuple[int, int]]:
    """The positions of the first and last step inside each loop."""
    spans: dict[Var, tuple[int, int]] = {}
    for n, step in enumerate(steps):
        for loop in step.inside:
            begin, _ = spans.get(loop, (n, n))
            spans[loop] = (begin, n)
    return spans
