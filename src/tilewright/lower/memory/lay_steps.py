"""The steps of the main function become its body: loops are closed, guards become branches, buffers get places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.expr.nodes import Expr, Var, const
from tilewright.loops.nodes import Alloc, Assert, Buffer, For, If, LoopKind, Reserve, Stmt, seq
from tilewright.lower.memory.loop_lives import Step, lives_of
from tilewright.lower.memory.plan_memory import plan_memory


def with_memory(steps: Sequence[Step], root: Mapping[Buffer, Buffer], home: Mapping[Buffer, tuple[Var, ...]]) -> Stmt:
    """The steps as statements, with arena buffers given places: reserved in stages, allocated where they are first
    used. `root` is the buffer whose memory a buffer is, `home` the loops that it was made in."""
    bound_at: dict[Var, int] = {}
    for step in steps:
        if step.binds is not None:
            bound_at[step.binds] = len(bound_at) + 1
    layout = plan_memory(lives_of(steps, root, home), bound_at)
    made: list[Stmt] = [] if _is_zero(layout.totals[0]) else [Reserve(layout.totals[0])]
    frames = [made]
    opened: list[Step] = []
    placed: set[Buffer] = set()
    stage = 0
    pending: Expr | None = None
    for step in steps:
        while len(opened) > len(step.inside):
            opening = opened.pop()
            assert opening.opens is not None
            variable, extent = opening.opens
            loop = For(variable, const(0), extent, LoopKind.SERIAL, seq(*frames.pop()))
            _put(frames[-1], loop, opening.guard)
        if pending is not None and not isinstance(step.statement, Assert):
            made.append(Reserve(pending))
            pending = None
        for buffer in step.touches:
            whole = root[buffer]
            if whole in layout.offsets and whole not in placed:
                placed.add(whole)
                made.append(Alloc(whole, layout.offsets[whole]))
        if step.statement is not None:
            _put(frames[-1], step.statement, step.guard)
        if step.opens is not None:
            opened.append(step)
            frames.append([])
        if step.binds is not None:
            stage += 1
            pending = layout.totals[stage] if layout.totals[stage] is not layout.totals[stage - 1] else None
    return seq(*made)


def _put(frame: list[Stmt], statement: Stmt, guard: Expr | None) -> None:
    """Adds a statement that runs where the guard holds, together with the one before it that has the same guard."""
    before = frame[-1] if frame else None
    if guard is not None and isinstance(before, If) and before.cond is guard:
        statement = seq(before.then, statement)
        frame.pop()
    frame.append(statement if guard is None else If(guard, statement))


def _is_zero(e: Expr) -> bool:
    return e is const(0)
