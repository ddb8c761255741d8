"""pad: a block runs at points beyond the end, too, if the results there are ignored.

A condition `c` of the block may be dropped if it is a condition on the stored element. Then each element is written
either where `c` holds or where it fails, never both; elements of the second kind are *beyond*. Only a block that writes
them back to where they are may read them; the condition of every other reader must imply `c`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.regions import ranges_of
from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr.build import conjunction, conjuncts, minimum
from tilewright.expr.linear import Polynomial, expression, joined, plus, polynomial, substitute
from tilewright.expr.nodes import Expr, Var
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import loads, loads_of, loops_around, map_expressions, path_to, statements
from tilewright.loops.nodes import Assert, Block, Buffer, For, Function, If, Let, Load, Seq, Stmt, Store, While
from tilewright.report.errors import UserError
from tilewright.schedule.facts.boxes import conditions_of, point, touches
from tilewright.schedule.facts.iterations import bounds_of
from tilewright.schedule.facts.known import Known, bound, exchanged, resolved
from tilewright.schedule.facts.place import Memory
from tilewright.schedule.find import allocation_of, find_block
from tilewright.schedule.step import Step, refusal, rewritten


def pad(function: Function, block: str, loop: Var | None = None) -> Step:
    """The block runs beyond the end, too: conditions of its `where` are dropped if results where they fail are ignored.
    With `loop`, only conditions on that loop are. Loads that could leave their buffer there are clamped to its last
    element.

    block dot where io*6 + vi < m: t[vi] += x[io*6 + vi]; block y where io*6 + vi < m: y[io*6 + vi] = t[vi]
              =>      block dot: t[vi] += x[min(io*6 + vi, m - 1)]; block y where io*6 + vi < m: y[io*6 + vi] = t[vi]
    """
    place = PlaceBeyond(function, find_block(function, block), f"cannot pad block {block}")
    about, stores = place.conditions(loop), _stores(place)
    readers = {s.buffer: _readers(function, s.buffer) for s in stores}
    reasons = {c: _reason_to_keep(place, stores, readers, c) for c in about}
    dropped = [c for c, reason in reasons.items() if reason is None]
    if not dropped:
        fix = "let it store to a local buffer, whose readers have the same where"
        raise place.refused(reasons[about[0]] or "", place.block.where or "", fix)
    names = ", ".join(dict.fromkeys(s.buffer.name for s in stores))
    evidence = [f"where {c} does not hold, what it stores to {names} is read by nobody" for c in dropped]
    return place.run_beyond(dropped, evidence)


class PlaceBeyond:
    """A block that is to run beyond the end, the loops around it, and what is known where it runs."""

    def __init__(self, function: Function, block: Block, what: str) -> None:
        self.function, self.block, self.what = function, block, what
        self.loops = loops_around(function.body, block)
        self.known = Known(ranges_of(self.loops))

    def refused(self, why: str, part: Expr | str = "", fix: str | None = None) -> UserError:
        """The error of the step, at the block's name or at a part of it."""
        return refusal(self.function, self.what, self.block, why=why, fix=fix, part=part or self.block.name)

    def conditions(self, loop: Var | None) -> list[Expr]:
        """The conditions of the block, or those of them that are on a loop."""
        if self.block.where is None:
            raise self.refused("it runs everywhere already: it has no where")
        found = conjuncts(self.block.where)
        about = [c for c in found if loop is None or mentions(resolved(self.block, c), {loop})]
        if loop is not None and not about:
            raise self.refused(f"no condition of it is about {loop.name}", self.block.where)
        return about

    def run_beyond(self, dropped: list[Expr], evidence: list[str]) -> Step:
        """The step that drops these conditions; refused if a load beyond may be outside its buffer."""
        kept = [c for c in conjuncts(self.block.where) if c not in dropped]
        beyond = self._beyond_at_once(dropped, kept)
        made: Stmt = self.block.replace(where=conjunction(kept))
        changed: dict[Node, Node] = {}
        for load in loads(made):
            changed[load] = fresh = self._inside(load, beyond)
            parts = zip(load.indices, fresh.indices, load.buffer.shape, strict=True)
            last = [f"take the last of {extent}: there is 1 at least" for index, at, extent in parts if index is not at]
            evidence = [*evidence, *(f"loads of {load.buffer.name} beyond its end {told}" for told in last)]
        if any(a is not b for a, b in changed.items()):
            made = map_expressions(made, lambda e: transform(e, lambda n: n, changed))
        return rewritten(self.function, self.block, made, None, *evidence)

    def loops_beyond(self, need: Polynomial) -> set[Var] | None:
        """The fewest loops, innermost first, some of whose iterations are beyond: at their first one, need >= 0 is
        proved for all iterations of the others. None if that is not proved."""
        about = variables_of(expression(need))
        found: set[Var] = set()
        for loop in reversed([loop for loop in self.loops if loop.var in about]):
            found.add(loop.var)
            if self._holds_first(need, found):
                return found
        return None

    def _holds_first(self, need: Polynomial, beyond: set[Var]) -> bool:
        """Whether need >= 0 is proved at the first iteration of these loops."""
        first: dict[Expr, Polynomial] = {v: polynomial(r.begin) for v, r in self.known.ranges.items() if v in beyond}
        return self.known.never_negative(substitute(need, first))

    def _beyond_at_once(self, dropped: list[Expr], kept: list[Expr]) -> set[Var]:
        """The loops some of whose iterations are beyond. Whenever the block runs there, it also runs at the first
        iterations of these loops, with the same iterations of the others. So a buffer that it loads from is not empty,
        and an index that does not depend on these loops is inside."""
        needs = [n for c in dropped if (n := bound(resolved(self.block, c))) is not None]
        beyond = set().union(*(self.loops_beyond(n) or set() for n in needs))
        conditions = ", ".join(map(str, dropped))
        if not all(self._holds_first(n, beyond) for n in needs):
            raise self.refused(f"nothing says that {conditions} hold anywhere at once")
        for loop in self.loops:
            if bounds_of(loop) & beyond:
                raise self.refused(f"the bounds of {loop.var.name} depend on what {conditions} is about")
        for cond in kept:
            if mentions(resolved(self.block, cond), beyond):
                raise self.refused(f"{cond} must stay, and is about the same loops as {conditions}")
        return beyond

    def _inside(self, load: Load, beyond: set[Var]) -> Load:
        """The load with the indices clamped that are not proved to be inside."""
        indices = []
        for index, extent in zip(load.indices, load.buffer.shape, strict=True):
            over_loops = resolved(self.block, index)
            moves = mentions(over_loops, beyond)
            if moves and loads_of(over_loops):
                raise self.refused(f"where {load.buffer.name} is loaded beyond the end depends on what is loaded there")
            clamps = moves and not self.is_inside(over_loops, extent)
            if clamps and not self._is_positive(over_loops):
                raise self.refused(f"nothing says that the index {index} of {load.buffer.name} is not negative")
            indices.append(minimum(index, simplify(extent - 1)) if clamps else index)
        return Load(load.buffer, tuple(indices))

    def is_inside(self, index: Expr, extent: Expr) -> bool:
        """Whether an index is proved to be inside by the loops alone."""
        return self._is_positive(index) and self.known.at_least(extent, self.known.simplified(index) + 1)

    def _is_positive(self, index: Expr) -> bool:
        return self.known.never_negative(polynomial(self.known.simplified(index)))


def _stores(place: PlaceBeyond) -> list[Access]:
    """The distinct stores of a block that does nothing else, under loops that alone decide whether it runs."""
    function, block = place.function, place.block
    found: list[Stmt] = []
    for s in block.inside():
        if not isinstance(s, Store | Seq):
            why = "it holds more than stores, and what they do beyond the end is not known"
            raise refusal(function, place.what, s, why=why)
        if isinstance(s, Store) and s.buffer in function.params:
            why = f"it stores to {s.buffer.name}, which the caller reads"
            fix = f'let it store to a local buffer first: cache_write("{block.name}", "{s.buffer.name}")'
            raise refusal(function, place.what, s, why=why, fix=fix, part=s.buffer.name)
        found.append(s)
    path = path_to(function.body, block)
    outermost = next((s for s in path if isinstance(s, For)), block)
    for s in (*path, *statements(outermost)):
        if isinstance(s, Let | While | Assert) or (isinstance(s, If) and s in path):
            why = f"what the {type(s).__name__.lower()} in its loops does beyond the end is not known"
            raise refusal(function, place.what, s, why=why)
    stores = [a for a in accesses(function.body) if a.is_store and a.statement in found]
    return list({(a.buffer, a.indices): a for a in stores}.values())


Readers = Mapping[Buffer, Sequence["_Reader"]]
"""The loads of each buffer that the block stores to."""


def _reason_to_keep(place: PlaceBeyond, stores: Sequence[Access], readers: Readers, cond: Expr) -> str | None:
    """Why a condition cannot be dropped; None where it can."""
    need = bound(resolved(place.block, cond))
    if need is None or loads_of(cond):
        return f"{cond} is no bound on the loops"
    beyond = place.loops_beyond(need)
    if beyond is None:
        return f"nothing says that {cond} holds anywhere"
    reasons = (_leaves(place, store, beyond) or _seen(place, store, readers, need, cond) for store in stores)
    return next((reason for reason in reasons if reason is not None), None)


def _leaves(place: PlaceBeyond, store: Access, beyond: set[Var]) -> str | None:
    """Why a store may leave its buffer where the condition does not hold."""
    for index, extent in zip(store.indices, store.buffer.shape, strict=True):
        if mentions(index, beyond) and not place.is_inside(index, extent):
            where = f"{store.buffer.name} has {extent} elements there"
            return f"it would store to {store.buffer.name} at {place.known.simplified(index)}, and {where}"
    return None


def _seen(place: PlaceBeyond, store: Access, readers: Readers, need: Polynomial, cond: Expr) -> str | None:
    """Why somebody may read what is stored where the condition does not hold."""
    function, buffer = place.function, store.buffer
    if not Memory(function).is_plain(buffer):
        return f"{buffer.name} has readers that are not known: a view, a call or the caller"
    alloc = allocation_of(function, buffer)
    shared = len(loops_around(function.body, alloc)) if alloc is not None else 0
    names = list(zip(map(place.known.simplified, store.indices), point(len(store.indices)), strict=True))
    of_element = exchanged(need, [*names, *names], {loop.var for loop in place.loops[shared:]})
    if of_element is None:
        return f"whether {cond} holds does not show in the element of {buffer.name} that is stored"
    reader = next((r for r in readers[buffer] if not r.excludes(of_element)), None)
    return None if reader is None else f"{reader.name} may read {buffer.name} where {cond} does not hold"


@dataclass(frozen=True, slots=True)
class _Reader:
    """A load of what the block stores: in which block, of which element, under which bounds (each at least zero)."""

    name: str
    element: Mapping[Expr, Polynomial]
    bounds: tuple[Polynomial, ...]
    known: Known

    def excludes(self, need: Polynomial) -> bool:
        """Whether it never loads an element for which `need`, over the element's indices, is negative."""
        wanted = joined(substitute(need, self.element))
        spare = [plus(wanted, b, -1) for b in (*self.bounds, {})]
        return not all(spare) or any(map(self.known.never_negative, spare))


def _readers(function: Function, buffer: Buffer) -> list[_Reader]:
    """The loads of a buffer, without those of blocks that write what they load back to where it is."""
    found: list[_Reader] = []
    for touch in touches(function.body, buffer):
        home = next((s for s in reversed(touch.path) if isinstance(s, Block)), None)
        if touch.access.is_store or (home is not None and _keeps_in_place(home, buffer)):
            continue
        known, indices = Known(ranges_of(touch.access.loops)), touch.access.indices
        elements = zip(point(len(indices)), indices, strict=True)
        element: dict[Expr, Polynomial] = {e: polynomial(known.simplified(i)) for e, i in elements}
        bounds = [bound(known.simplified(c)) for c in conditions_of(touch) if c is not None]
        name = f"block {home.name}" if home is not None else "a statement"
        found.append(_Reader(name, element, tuple(joined(b) for b in bounds if b is not None), known))
    return found


def _keeps_in_place(block: Block, buffer: Buffer) -> bool:
    """Whether a block only writes elements of a buffer back to where they are."""
    for s in block.inside():
        if not isinstance(s, Store):
            return False
        allowed = {s.indices} if s.buffer is buffer else set()
        places = [*s.indices, *(i for load in loads(s.value) for i in load.indices)]
        if any(load.buffer is buffer and load.indices not in allowed for load in loads(s.value)):
            return False
        if any(load.buffer is buffer for i in places for load in loads_of(i)):
            return False
    return block.where is None or not any(load.buffer is buffer for load in loads_of(block.where))
