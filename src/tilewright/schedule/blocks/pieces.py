"""schedule_pieces: the nests of a kernel in pieces, each scheduled as a kernel of its own.

    s = q · k; p = softmax(s); o = p · v        =>      [s = q · k] [p = softmax(s)] [o = p · v]

Buffers that several pieces touch are arguments of each, and are kept in memory between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.analysis.accesses import accesses
from tilewright.loops.edit import blocks, substitute_buffers
from tilewright.loops.nodes import Alloc, Buffer, Function, Stmt, seq
from tilewright.report.errors import UserError
from tilewright.schedule.find import nests, stored_buffers
from tilewright.schedule.step import Step
from tilewright.types.scopes import Scope


def piece_functions(function: Function, pieces: Sequence[Sequence[str]]) -> list[Function]:
    """The functions of pieces, which are given by the blocks of their nests: what others read or make is an argument.
    UserError unless each nest is in one piece, as a whole."""
    return list(_functions(function, _nests_of(function, pieces))[0])


def _nests_of(function: Function, pieces: Sequence[Sequence[str]]) -> list[list[Stmt]]:
    inside = [s for s in nests(function) if not isinstance(s, Alloc)]
    found = [[s for s in inside if {b.name for b in blocks(s)} <= set(names)] for names in pieces]
    if sorted(map(id, inside)) != sorted(id(s) for part in found for s in part):
        listed = "; ".join(", ".join(b.name for b in blocks(s)) for s in inside)
        raise UserError(
            f"cannot schedule {function.name} in pieces",
            why=f"each nest has to be in one piece, and the blocks of its nests are {listed}",
            fix="give the blocks of each piece, all of each nest",
        )
    return found


def _functions(function: Function, parts: Sequence[Sequence[Stmt]]) -> tuple[list[Function], dict[Buffer, Buffer]]:
    """The functions, and the arguments that stand in them for local buffers which several pieces touch."""
    local = [s.buffer for s in nests(function) if isinstance(s, Alloc)]
    shared = {b: b.replace(scope=Scope.ARGUMENT) for b in local if sum(_touches(part, b) for part in parts) > 1}
    return [_function(function, part, local, shared) for part in parts], shared


def joined(function: Function, pieces: Sequence[Sequence[str]], made: Sequence[Function]) -> Function:
    """The function with what became of each piece, in the order of the pieces."""
    _, shared = _functions(function, _nests_of(function, pieces))
    by_name = {b.name: b for b in shared}
    parts: list[Stmt] = [Alloc(b) for b in shared]
    for done in made:
        back = {p: by_name[p.name] for p in done.params if p.name in by_name}
        parts.append(substitute_buffers(done.body, back))
    return function.replace(body=seq(*parts))


def require_order(function: Function, parts: Sequence[Function]) -> None:
    """UserError unless pieces run in an order in which each reads what the program has it read: whatever one of them
    stores and another one touches, they touch in the order of the program's nests."""
    first = {name: n for n, s in enumerate(nests(function)) for name in (b.name for b in blocks(s))}
    places = [[first[b.name] for b in blocks(part.body)] for part in parts]
    for n, part in enumerate(parts):
        stored = {b.name for b in stored_buffers(part.body)}
        touched = {a.buffer.name for a in accesses(part.body)}
        for m, other in enumerate(parts[:n]):
            theirs = {b.name for b in stored_buffers(other.body)}
            meet = (stored & {a.buffer.name for a in accesses(other.body)}) | (touched & theirs)
            if meet and max(places[m]) > min(places[n]):
                raise UserError(
                    f"cannot schedule {function.name} in pieces",
                    why=f"piece {n} runs after piece {m}, and before it in the program, and both touch {min(meet)}",
                    fix="give the pieces in the order of the program, or take them as one",
                )


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


def step_of_pieces(function: Function, pieces: Sequence[Sequence[str]], made: Sequence[Function]) -> Step:
    """The step that schedule_pieces is, once each piece is scheduled."""
    return Step(joined(function, pieces, made), None, ("each piece was scheduled by steps that were legal",))
