"""A kernel of several products in pieces: each product a nest of its own, and what lies between them.

    s = q · k; p = softmax(s); o = p · v; y = transpose(o)      =>      [s = q · k] [p = softmax(s)] [o = p · v] [y = …]

It is how a kernel runs that was made for a template which refuses it: piece after piece, each with the schedule that it
would have as a kernel, and all that one piece makes for another in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tilewright.analysis.accesses import accesses
from tilewright.loops.edit import blocks, loads, substitute_buffers
from tilewright.loops.nodes import Alloc, Buffer, Function, Stmt, seq
from tilewright.plan.contraction import contraction_of
from tilewright.plan.decision import Decision, Refusal
from tilewright.report.errors import UserError
from tilewright.schedule.find import nests, stored_buffers
from tilewright.schedule.inline import inline
from tilewright.types.scopes import Scope

PIECES = "pieces"
"""What decisions call such a kernel."""


def products(function: Function) -> list[str]:
    """The blocks of a function that are products of two tensors."""
    return [b.name for b in blocks(function.body) if b.reduce and contraction_of(function, b) is not None]


def in_pieces(
    function: Function, refused: Sequence[Refusal], schedule: Callable[[Function], tuple[Function, Decision]]
) -> tuple[Function, Decision]:
    """The function with each piece scheduled by itself, and what was decided: who refused the whole, or a piece."""
    function = _without_numbers(function)
    parts = _parts(function)
    local = [s.buffer for s in nests(function) if isinstance(s, Alloc)]
    shared = {b: b.replace(scope=Scope.ARGUMENT) for b in local if sum(_touches(part, b) for part in parts) > 1}
    back = {argument: b for b, argument in shared.items()}
    made: list[Stmt] = [Alloc(b) for b in shared]
    refusals = list(refused)
    for part in parts:
        done, decision = schedule(_function(function, part, local, shared))
        made.append(substitute_buffers(done.body, back))
        refusals += decision.refusals
    return function.replace(body=seq(*made)), Decision(PIECES, tuple(refusals))


def _without_numbers(function: Function) -> Function:
    """The function with blocks that read nothing inlined: each piece computes such numbers itself."""
    for name in [b.name for b in blocks(function.body) if not b.reduce and not [*loads(b)]]:
        with suppress(UserError):
            function = inline(function, name).function
    return function


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


def _touches(part: Sequence[Stmt], buffer: Buffer) -> bool:
    return any(a.buffer is buffer for s in part for a in accesses(s))


def _function(
    function: Function, part: Sequence[Stmt], local: Sequence[Buffer], shared: Mapping[Buffer, Buffer]
) -> Function:
    """The function of a piece: what other pieces read or make are arguments."""
    touched = list(dict.fromkeys(a.buffer for s in part for a in accesses(s)))
    stored = {b for s in part for b in stored_buffers(s)}
    own = [b for b in touched if b in local and b not in shared]
    given = [b for b in touched if b not in own]
    order = [b for b in given if b not in stored] + [b for b in given if b in stored]
    body = substitute_buffers(seq(*(Alloc(b) for b in own), *part), shared)
    params = tuple(shared.get(b, b) for b in order)
    return function.replace(params=params, body=body, outputs=sum(b in stored for b in given))
