"""schedule_pieces: the nests of a kernel in pieces, each scheduled as a kernel of its own; schedule_by_size: all of a
kernel scheduled several times, of which a call runs one.

    s = q · k; p = softmax(s); o = p · v        =>      [s = q · k] [p = softmax(s)] [o = p · v]

Buffers that several pieces touch are arguments of each, and are kept in memory between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from tilewright.analysis.accesses import accesses
from tilewright.analysis.memory import defined_in
from tilewright.expr.nodes import Expr, Le, const
from tilewright.loops.edit import allocations, blocks, fresh_copy, statements, stored_buffers, substitute_buffers
from tilewright.loops.nodes import Alloc, Buffer, Function, If, Stmt, View, seq
from tilewright.schedule.find import local_buffers, nests
from tilewright.schedule.step import Obstacle, Step, fresh_blocks
from tilewright.types.scopes import Scope


def piece_functions(function: Function, pieces: Sequence[Sequence[str]]) -> list[Function]:
    """The functions of pieces, which are given by the blocks of their nests: what others read or make is an argument,
    those last that the piece stores to. Refuses unless each nest is in one piece, as a whole, and the pieces keep the
    order of the program's nests wherever one of them stores what another one touches."""
    parts = _nests_of(function, pieces)
    touched = [dict.fromkeys(a.buffer for s in p for a in accesses(s) if a.buffer not in defined_in(s)) for p in parts]
    stored = [frozenset[Buffer]().union(*map(stored_buffers, part)) for part in parts]
    order = {s: n for n, s in enumerate(nests(function))}
    for m, n in combinations(range(len(parts)), 2):
        meet = (stored[n] & touched[m].keys()) | (touched[n].keys() & stored[m])
        if meet and max(map(order.__getitem__, parts[m])) > min(map(order.__getitem__, parts[n])):
            why = f"piece {n}, which runs after piece {m}, stands before it, and both touch {min(b.name for b in meet)}"
            raise Obstacle(parts[n][0], why, "give the pieces in the order of the program, or take them as one")
    local = local_buffers(function)
    shared = {b: b.replace(scope=Scope.ARGUMENT) for b in local if sum(b in found for found in touched) > 1}
    made: list[Function] = []
    for part, found, changed in zip(parts, touched, stored, strict=True):
        own = [b for b in found if b in local and b not in shared]
        given = sorted((b for b in found if b not in own), key=changed.__contains__)
        body = substitute_buffers(seq(*map(Alloc, own), *part), shared)
        params, outputs = tuple(shared.get(b, b) for b in given), sum(b in changed for b in given)
        made.append(function.replace(params=params, body=body, outputs=outputs))
    return made


def _nests_of(function: Function, pieces: Sequence[Sequence[str]]) -> list[list[Stmt]]:
    inside = [s for s in nests(function) if not isinstance(s, Alloc)]
    found = [[s for s in inside if {b.name for b in blocks(s)} <= set(names)] for names in pieces]
    if sorted(map(id, inside)) != sorted(id(s) for part in found for s in part):
        listed = "; ".join(", ".join(b.name for b in blocks(s)) for s in inside)
        why = f"each nest has to be in one piece, and the blocks of its nests are {listed}"
        raise Obstacle(function, why, "give the blocks of each piece, all of each nest")
    return found


def step_of_pieces(function: Function, made: Sequence[Function]) -> Step:
    """The step that schedule_pieces is: the function with what became of each piece, in the order of the pieces."""
    local = {b.name: b for b in local_buffers(function)}
    back = [{p: local[p.name] for p in f.params if p not in function.params} for f in made]
    shared = [b for b in local.values() if any(b in found.values() for found in back)]
    parts = [substitute_buffers(f.body, _with_views(f.body, found)) for f, found in zip(made, back, strict=True)]
    body = seq(*map(Alloc, shared), *parts)
    return Step(function.replace(body=body), None, ("each piece was scheduled by steps that were legal",))


def _with_views(body: Stmt, values: Mapping[Buffer, Buffer]) -> dict[Buffer, Buffer]:
    """What buffers become, with the views of them, which are where they are."""
    found = dict(values)
    for s in statements(body):
        if isinstance(s, View) and s.source in found:
            found[s.buffer] = s.buffer.replace(scope=found[s.source].scope)
    return found


def step_by_size(function: Function, size: Expr, bounds: Sequence[int], made: Sequence[Function]) -> Step:
    """The step that schedule_by_size is: the first of the scheduled functions whose bound a size keeps to, or the last
    one. What all but that one define has the bound in its name."""
    body = made[-1].body
    for bound, one in reversed(list(zip(bounds, made, strict=False))):
        named = {b: b.replace(name=f"{b.name}.to{bound}") for b in allocations(one.body)}
        own = fresh_blocks(function, fresh_copy(substitute_buffers(one.body, named)), f".to{bound}")
        body = If(Le(size, const(bound)), own, body)
    return Step(function.replace(body=body), None, ("each of them was scheduled by steps that were legal",))
