"""Whether a function may work in place: write each element of an output over one of an input that is not read again.

    for i in 0..n:                        y over x: where both are one memory, an iteration reads its own
      t[i] = x[i]*2.0                     element before it writes there, and no other iteration's
      y[i] = t[i] + x[i]*w[i]

    for i, j:                             not over: where i is 2 and j is 1, x[1, 2] has been written over
      y[i, j] = x[j, i]

The two are taken for one buffer. A load of the input and a store of the output must meet in no two iterations of a loop
around both, and within an iteration the load must come first, or both must be of disjoint elements. Passes keep
the order of such statements, or move loads to an earlier place. Whatever is not proved is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.addresses import are_disjoint, stay_apart
from tilewright.analysis.dependences import are_apart, meeting
from tilewright.analysis.regions import ranges_of, settled
from tilewright.core.walk import preorder, substitute
from tilewright.expr.nodes import Const, Expr, FloorDiv, Mod, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import loads_of, statements
from tilewright.loops.nodes import Buffer, CallFunction, For, Function, Stmt, View, While
from tilewright.loops.passing import size_of


class Verdict(NamedTuple):
    """Whether it is legal, and what proves or forbids it."""

    legal: bool
    why: str


Placed = list[tuple[int, Access]]
"""Accesses with their places in program order."""


@dataclass(frozen=True, slots=True)
class _Touched:
    """The loads and stores of a program by their buffers, and the buffers that calls and views pass on."""

    loads: dict[Buffer, Placed]
    stores: dict[Buffer, Placed]
    passed: set[Buffer]


@lru_cache(maxsize=4)  # all pairs of one function are asked for one after another
def _touched(body: Stmt) -> _Touched | None:
    """None where a while loop touches what nobody knows."""
    found = _Touched({}, {}, set())
    for s in statements(body):
        if isinstance(s, While):
            return None
        if isinstance(s, CallFunction | View):
            found.passed.update(s.arguments if isinstance(s, CallFunction) else (s.source,))
    for place, access in enumerate(accesses(body)):
        (found.stores if access.is_store else found.loads).setdefault(access.buffer, []).append((place, access))
    return found


def may_lie_over(function: Function, result: Buffer, source: Buffer) -> Verdict:
    """Whether a parameter that is an output may be the memory of one that is an input."""
    if result.dtype is not source.dtype or simplify(size_of(result) - size_of(source)) is not const(0):
        return Verdict(False, f"{result.name} and {source.name} are of different types")
    found = _touched(function.body)
    if found is None or source in found.passed or result in found.passed:
        return Verdict(False, "what calls, views and while loops touch is not known")
    if source in found.stores:
        return Verdict(False, f"{source.name} is written")
    loads, stores = found.loads.get(source, []), found.stores.get(result, [])
    pairs = () if _stay_apart(loads, stores) else product(loads, stores)
    if pairs and result.shape != source.shape:
        return Verdict(False, f"{result.name} and {source.name} are of different shapes")
    for (n, load), (m, store) in pairs:
        why = _conflict(load, store, load_is_first=n < m)
        if why is not None:
            return Verdict(False, why)
    return Verdict(True, f"each of {source.name} is read before {result.name} is stored there, and not afterwards")


def _stay_apart(loads: Placed, stores: Placed) -> bool:
    """Whether addresses show that no element is loaded after it has been stored: as most kernels read and write."""
    touched = [access for _, access in (*loads, *stores)]
    reading, storing = (dict.fromkeys(loop for _, a in found for loop in a.loops) for found in (loads, stores))
    for loop in reading.keys() & storing.keys():
        if not stay_apart(loop, [_below(a, a.loops.index(loop) + 1) for a in touched if loop in a.loops]):
            return False
    return all(_are_disjoint(load, store) for n, load in loads for m, store in stores if m < n)


def _are_disjoint(load: Access, store: Access) -> bool:
    """Whether addresses show that two accesses touch no element both in one iteration of the loops around both."""
    pairs = enumerate(zip(load.loops, store.loops, strict=False))
    around = next((n for n, (one, other) in pairs if one is not other), min(len(load.loops), len(store.loops)))
    return are_disjoint(_below(load, around), _below(store, around))


def _below(access: Access, depth: int) -> Access:
    """The access as the innermost of so many loops around it sees it."""
    return replace(access, loops=access.loops[depth:])


def _conflict(load: Access, store: Access, load_is_first: bool) -> str | None:
    """Why an element may be stored before it is loaded, None where that is ruled out."""
    if any(loads_of(index) for access in (load, store) for index in access.indices):
        return f"{load} and {store}: where that is, memory says"
    load, store, around = _parted(load, store)
    for depth in range(1, len(around) + 1):
        outer = around[:depth]
        met = meeting(outer[-1], outer[:-1], _inside(load, outer), _inside(store, outer))
        if met is not None:
            return str(met)
    if load_is_first or are_apart(_inside(load, around), _inside(store, around), ranges_of(around)):
        return None
    return f"{load} comes after {store}"


def _parted(load: Access, store: Access) -> tuple[Access, Access, list[For]]:
    """The accesses, and the loops around both, with loops that were made of two as two again: where indices and bounds
    have the variable f as f//c and f%c alone, these are variables."""
    around: list[For] = []
    waiting = [one for one, other in zip(load.loops, store.loops, strict=False) if one is other]
    found = [replace(access, loops=access.loops[len(waiting) :]) for access in (load, store)]
    while waiting:
        loop, *waiting = waiting
        divisor = _divisor(loop.var, [*_bounds(waiting), *(e for a in found for e in (*a.indices, *_bounds(a.loops)))])
        if divisor is None or loop.begin is not const(0):
            around.append(loop)
            continue
        high, low = Var(f"{loop.var.name}_high", least=0), Var(f"{loop.var.name}_low", least=0)
        fused: dict[Expr, Expr] = {FloorDiv(loop.var, divisor): high, Mod(loop.var, divisor): low}
        found = [
            replace(a, loops=_over(a.loops, fused), indices=tuple(substitute(i, fused) for i in a.indices))
            for a in found
        ]
        parts = (
            loop.replace(var=high, end=simplify((loop.end + (divisor - 1)) // divisor)),
            loop.replace(var=low, end=divisor),
        )
        waiting = [*parts, *_over(waiting, fused)]
    load, store = (replace(a, loops=(*around, *a.loops)) for a in found)
    return load, store, around


def _bounds(loops: Sequence[For]) -> list[Expr]:
    return [e for loop in loops for e in (loop.begin, loop.end)]


def _over(loops: Sequence[For], values: Mapping[Expr, Expr]) -> tuple[For, ...]:
    """The loops with values put into their bounds."""
    return tuple(loop.replace(begin=substitute(loop.begin, values), end=substitute(loop.end, values)) for loop in loops)


def _divisor(var: Var, used_in: list[Expr]) -> Const | None:
    """The number c where a variable occurs as f//c and f%c alone."""
    quotients = (n for n in preorder(used_in) if isinstance(n, FloorDiv) and n.a is var)
    divisor = next((n.b for n in quotients if isinstance(n.b, Const) and n.b.value > 1), None)
    if divisor is None:
        return None
    parts = {FloorDiv(var, divisor): const(0), Mod(var, divisor): const(0)}
    return None if any(mentions(substitute(e, parts), (var,)) for e in used_in) else divisor


def _inside(access: Access, outer: list[For]) -> Access:
    """The access as the innermost of the loops around it sees it."""
    return settled(_below(access, len(outer)), ranges_of(outer))
