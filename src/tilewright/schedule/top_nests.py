"""Nests at the top level of a function, which some primitives schedule as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.expr.nodes import Var
from tilewright.loops.nodes import Alloc, Block, For, Function, LoopKind, Seq, Stmt, seq
from tilewright.schedule.find import find_loop, nests
from tilewright.schedule.legality import require_independent
from tilewright.schedule.step import refusal

PLAIN = frozenset({LoopKind.SERIAL, LoopKind.UNROLL})
"""What loops may be of a nest that is scheduled as a whole."""


def top_nest(function: Function, loop: Var, what: str) -> For:
    """The top-level statement that is this loop; the error `what` where the loop is inside another statement."""
    found = find_loop(function, loop)
    if not any(s is found for s in nests(function)):
        why = f"loop {found.var.name} is inside another statement, and a nest is scheduled as a whole"
        raise refusal(function, what, found, why=why, fix="name one of the loops of get_nests()")
    return found


def require_plain(function: Function, nest: For, what: str) -> None:
    """The error `what` unless a nest is loops that nothing was said of, around blocks and local buffers."""
    for s in outside_blocks(nest):
        if isinstance(s, For) and s.kind not in PLAIN:
            why = f"loop {s.var.name} of it is a loop `{s.kind.value}` already, and a nest is scheduled as a whole"
            raise refusal(function, what, s, why=why, fix="do this before other steps in the nest")
        if not isinstance(s, For | Seq | Block | Alloc):
            why = f"it holds a statement {type(s).__name__.lower()} outside of blocks"
            raise refusal(function, what, s, why=why, fix="schedule its loops by single steps: split, reorder, …")


def outside_blocks(stmt: Stmt) -> Iterator[Stmt]:
    """The statements in a statement, it first, but those inside blocks."""
    yield stmt
    if not isinstance(stmt, Block):
        for child in stmt.children():
            if isinstance(child, Stmt):
                yield from outside_blocks(child)


def require_apart(function: Function, nest: For, loops: Sequence[For], what: str) -> tuple[str, ...]:
    """The evidence that iterations of each of these loops of a nest touch nothing that another one stores; else the
    error `what`."""
    found: list[str] = []
    for loop in loops:
        found += require_independent(function, loop, what, "leave the nest as it is")
    return tuple(found)


def with_nest(function: Function, nest: Stmt, made: Stmt) -> Function:
    """The function with what became of a nest in its place."""
    return function.replace(body=seq(*(made if s is nest else s for s in nests(function))))


def outermost(made: Stmt) -> Var | None:
    """The loop that a nest has become; None where it became several statements."""
    return made.var if isinstance(made, For) else None


def require_lanes(function: Function, nest: For, lanes: int, what: str) -> None:
    """The error `what` for a number of lanes that no vector has."""
    if isinstance(lanes, bool) or lanes < 2 or lanes & (lanes - 1):
        raise refusal(function, what, nest, why=f"vectors have 2, 4, 8, … lanes, not {lanes}", fix="take lanes=8")
