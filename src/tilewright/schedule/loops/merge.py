"""merge_loops: neighbouring loops over the same iterations become one.

    for i in 0..n: A(i)                   for i in 0..n:
    for j in 0..n: B(j)         =>          A(i)
                                            B(i)

So what A leaves of a row is still in cache when B comes to it, and threads are forked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from tilewright.analysis.accesses import Access, accesses
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Expr, FloorDiv, Mod, Var
from tilewright.expr.simplify import Facts, simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import allocations, statements, substitute_expressions
from tilewright.loops.nodes import Alloc, Assert, Buffer, CallFunction, For, Function, Stmt, View, While, seq
from tilewright.schedule.find import find_loop, nests
from tilewright.schedule.step import Step, refusal


def merge_loops(function: Function, *loops: Var, locals_first: bool = False) -> Step:
    """Those of these loops of the top level that are neighbours become one, where they have the same bounds and kind
    and each iteration keeps to itself. With `locals_first` local buffers are allocated before them, so that they are no
    neighbours of allocations.

    for i in 0..n: block a(vi = i): a[vi] = x[vi]; for j in 0..n: block b(vj = j): b[vj] = a[vj]
              =>      for i in 0..n: block a(vi = i): a[vi] = x[vi]; block b(vj = i): b[vj] = a[vj]
    """
    wanted = {_nest(function, loop) for loop in loops}
    parts = list(nests(function))
    if locals_first:
        parts = [*(s for s in parts if isinstance(s, Alloc)), *(s for s in parts if not isinstance(s, Alloc))]
    made: list[Stmt] = []
    for asked, group in groupby(parts, wanted.__contains__):
        neighbours = list(group)
        made += merge_neighbours(neighbours) if asked else neighbours
    if len(made) == len(parts):
        return Step(function)
    evidence = "what two of them touch, and one stores, they touch in the same iteration"
    return Step(function.replace(body=seq(*made)), None, (evidence,))


def _nest(function: Function, loop: Var) -> For:
    """The top-level statement that is this loop."""
    found = find_loop(function, loop)
    if not any(s is found for s in nests(function)):
        what, why = f"cannot merge loop {found.var.name}", f"loop {found.var.name} is inside another statement"
        raise refusal(function, what, found, why=why, fix="name one of the loops of get_nests()")
    return found


def merge_neighbours(parts: Sequence[Stmt]) -> list[Stmt]:
    """The statements with neighbouring loops merged, where they have the same bounds and kind and each iteration keeps
    to itself: whatever both touch, and one of them stores, they touch in the same iteration."""
    made: list[Stmt] = []
    for part in parts:
        last = made[-1] if made else None
        if isinstance(last, For) and isinstance(part, For) and _may_merge(last, part):
            body = substitute_expressions(part.body, {part.var: last.var})
            made[-1] = last.replace(body=seq(last.body, body))
        else:
            made.append(part)
    return made


def _may_merge(first: For, second: For) -> bool:
    same = first.kind is second.kind and first.begin is second.begin and first.end is second.end
    if (
        not same
        or (first.grain, first.backward) != (second.grain, second.backward)
        or not (_is_plain(first) and _is_plain(second))
    ):
        return False
    own = {*allocations(first), *allocations(second)}
    one, two = ([a for a in accesses(loop) if a.buffer not in own] for loop in (first, second))
    shared = (_stored(one) & _touched(two)) | (_touched(one) & _stored(two))
    return all(_keeps_apart(b, first, one, second, two) for b in shared)


def _is_plain(loop: For) -> bool:
    """Whether a loop holds nothing that ends early, calls, or goes by another name."""
    return not any(isinstance(s, Assert | While | CallFunction | View) for s in statements(loop)) and not any(
        isinstance(s, Alloc) and s.offset is not None for s in statements(loop)
    )


def _stored(found: Iterable[Access]) -> set[Buffer]:
    return {a.buffer for a in found if a.is_store}


def _touched(found: Iterable[Access]) -> set[Buffer]:
    return {a.buffer for a in found}


def _keeps_apart(buffer: Buffer, first: For, one: Iterable[Access], second: For, two: Iterable[Access]) -> bool:
    """Whether an iteration of either loop touches a part of the buffer that is its own, the same in both loops."""
    places: set[tuple[tuple[int, Expr], ...]] = set()
    for loop, found in ((first, one), (second, two)):
        for access in found:
            if access.buffer is buffer:
                inner = {other.var for other in access.loops if other is not loop}
                places.add(_place(access, loop, inner, first.var))
    return len(places) == 1 and _tells_apart([e for _, e in next(iter(places))], first.var)


def _place(access: Access, loop: For, inner: set[Var], name: Var) -> tuple[tuple[int, Expr], ...]:
    """The indices that the loop alone decides, by dimension, with its variable called `name`."""
    facts = Facts({loop.var: (loop.begin, simplify(loop.end - 1))})
    found = []
    for d, index in enumerate(access.indices):
        used = variables_of(index)
        if loop.var in used and not used & inner:
            decided = simplify(index, facts)
            if loop.var in variables_of(decided):
                found.append((d, substitute(decided, {loop.var: name})))
    return tuple(found)


def _tells_apart(indices: Sequence[Expr], var: Var) -> bool:
    """Whether different iterations have different indices: the variable itself, or its quotient and remainder."""
    if var in indices:
        return True
    quotients = {e.b for e in indices if isinstance(e, FloorDiv) and e.a is var and isinstance(e.b, Const)}
    return any(isinstance(e, Mod) and e.a is var and e.b in quotients for e in indices)
