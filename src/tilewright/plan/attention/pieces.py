"""A kernel of several products in pieces: each product a nest of its own, and what lies between them.

    s = q · k; p = softmax(s); o = p · v; y = transpose(o)      =>      [s = q · k] [p = softmax(s)] [o = p · v] [y = …]

It is how a kernel runs that was made for a template which refuses it: piece after piece, each with the schedule that it
would have as a kernel, and all that one piece makes for another in memory.
"""

from __future__ import annotations

from contextlib import suppress

from tilewright.loops.edit import blocks, loads
from tilewright.loops.nodes import Alloc, Buffer, Function, Stmt
from tilewright.plan.cheapest import cheapest
from tilewright.plan.facts.contraction import contraction_of
from tilewright.plan.facts.kernel import Facts
from tilewright.report.errors import UserError
from tilewright.schedule.blocks.pieces import piece_functions
from tilewright.schedule.find import nests, stored_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def products(function: Function) -> list[str]:
    """The blocks of a function that are products of two tensors."""
    return [b.name for b in blocks(function.body) if b.reduce and contraction_of(function, b) is not None]


def has_products(function: Function) -> bool:
    """Whether a function has two products or more."""
    return len(products(function)) >= 2


def schedule_pieces(function: Function, target: Target) -> Schedule:
    """The function, which has two products at least, with each piece scheduled by itself."""
    s = Schedule(function)
    _inline_numbers(s)
    pieces = [[b.name for nest in part for b in blocks(nest)] for part in _parts(s.func)]
    traces = [str(cheapest(Facts(piece), target)[0].trace) for piece in piece_functions(s.func, pieces)]
    s.schedule_pieces(pieces, traces)
    return s


def _inline_numbers(s: Schedule) -> None:
    """Blocks that read nothing are inlined: each piece computes such numbers itself."""
    for name in [b.name for b in blocks(s.func.body) if not b.reduce and not [*loads(b)]]:
        with suppress(UserError):
            s.inline(name)


def _parts(function: Function) -> list[list[Stmt]]:
    """The nests of each piece, in an order in which they can run. Nests that are no products belong together where one
    reads what the other makes, and no product is between them."""
    dots = set(products(function))
    level: dict[Buffer, float] = {}
    parts: list[tuple[float, list[Stmt]]] = []
    for nest in nests(function):
        if isinstance(nest, Alloc):
            continue
        read = {ld.buffer for ld in loads(nest)} - stored_buffers(nest)
        at = max((level.get(b, 0.0) for b in read), default=0.0)
        if dots & {b.name for b in blocks(nest)}:
            parts.append((at + 0.5, [nest]))
            level.update(dict.fromkeys(stored_buffers(nest), at + 1))
            continue
        level.update(dict.fromkeys(stored_buffers(nest), at))
        mine = [p for n, p in parts if n == at and any(read & stored_buffers(s) for s in p)]
        joined = [*(s for p in mine for s in p), nest]
        parts = [(n, p) for n, p in parts if p not in mine] + [(at, joined)]
    return [p for _, p in sorted(parts, key=lambda part: part[0])]
