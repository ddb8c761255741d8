"""schedule_pieces: the nests of a kernel in pieces, each scheduled as a kernel of its own.

    s = q · k; p = softmax(s); o = p · v        =>      [s = q · k] [p = softmax(s)] [o = p · v]

Buffers that several pieces touch are arguments of each, and are kept in memory between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import combinations

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
    return _functions(function, pieces)[0]


def _functions(function: Function, pieces: Sequence[Sequence[str]]) -> tuple[list[Function], dict[Buffer, Buffer]]:
    """The functions, and the arguments that stand in them for local buffers which several pieces touch."""
    parts = _nests_of(function, pieces)
    local = [s.buffer for s in nests(function) if isinstance(s, Alloc)]
    touched = [dict.fromkeys(a.buffer for s in part for a in accesses(s)) for part in parts]
    shared = {b: b.replace(scope=Scope.ARGUMENT) for b in local if sum(b in found for found in touched) > 1}
    own = set(local) - set(shared)
    made = [_function(function, part, list(found), own, shared) for part, found in zip(parts, touched, strict=True)]
    return made, shared


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


def _function(
    function: Function,
    part: Sequence[Stmt],
    touched: Sequence[Buffer],
    own: Set[Buffer],
    shared: Mapping[Buffer, Buffer],
) -> Function:
    """The function of a piece: what other pieces read or make are arguments, those last that it stores to."""
    stored = {b for s in part for b in stored_buffers(s)}
    given = sorted((b for b in touched if b not in own), key=stored.__contains__)
    body = substitute_buffers(seq(*(Alloc(b) for b in touched if b in own), *part), shared)
    params = tuple(shared.get(b, b) for b in given)
    return function.replace(params=params, body=body, outputs=sum(b in stored for b in given))


def require_order(function: Function, parts: Sequence[Function]) -> None:
    """UserError unless pieces run in an order in which each reads what the program has it read: whatever one of them
    stores and another one touches, they touch in the order of the program's nests."""
    first = {name: n for n, s in enumerate(nests(function)) for name in (b.name for b in blocks(s))}
    places = [[first[b.name] for b in blocks(part.body)] for part in parts]
    stored = [{b.name for b in stored_buffers(part.body)} for part in parts]
    touched = [{a.buffer.name for a in accesses(part.body)} for part in parts]
    for m, n in combinations(range(len(parts)), 2):
        meet = (stored[n] & touched[m]) | (touched[n] & stored[m])
        if meet and max(places[m]) > min(places[n]):
            raise UserError(
                f"cannot schedule {function.name} in pieces",
                why=f"piece {n} runs after piece {m}, and before it in the program, and both touch {min(meet)}",
                fix="give the pieces in the order of the program, or take them as one",
            )


def step_of_pieces(function: Function, pieces: Sequence[Sequence[str]], made: Sequence[Function]) -> Step:
    """The step that schedule_pieces is: the function with what became of each piece, in the order of the pieces."""
    shared = {b.name: b for b in _functions(function, pieces)[1]}
    back = [{p: shared[p.name] for p in done.params if p.name in shared} for done in made]
    parts = [substitute_buffers(done.body, buffers) for done, buffers in zip(made, back, strict=True)]
    body = seq(*map(Alloc, shared.values()), *parts)
    return Step(function.replace(body=body), None, ("each piece was scheduled by steps that were legal",))
