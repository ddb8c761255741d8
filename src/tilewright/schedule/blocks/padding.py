"""pad: a block runs at points beyond the end, too, if the results there are ignored.

for ii, ji: block dot where io*6 + ii < m:                    for ii, ji: block dot:
  t[ii, ji] += x[io*6 + ii, k] * w[k, ji]              =>       t[ii, ji] += x[min(io*6 + ii, m - 1), k] * w[k, ji]
for ii, ji: block y where io*6 + ii < m:                      for ii, ji: block y where io*6 + ii < m:
  y[io*6 + ii, ji] = t[ii, ji]                                  y[io*6 + ii, ji] = t[ii, ji]

A condition `c` of the block may be dropped if it is a condition on the stored element. Then each element is written
either where `c` holds or where it fails, never both; elements of the second kind are *beyond*. Only a block that writes
them back to where they are may read them; the condition of every other reader must imply `c`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tilewright.analysis.accesses import Access, accesses
from tilewright.analysis.regions import ranges_of
from tilewright.core.node import Node
from tilewright.core.walk import preorder, transform
from tilewright.expr.build import minimum
from tilewright.expr.linear import Polynomial, affine_in, expression, joined, plus, polynomial, substitute
from tilewright.expr.nodes import Expr, Var
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, loads, loops_around, map_expressions, path_to, replace, statements
from tilewright.loops.nodes import (
    Assert,
    Block,
    Buffer,
    CallFunction,
    For,
    Function,
    If,
    Let,
    Load,
    Publish,
    Seq,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.schedule.facts.known import Known
from tilewright.schedule.facts.predicates import bound, conjunction, conjuncts, resolved
from tilewright.schedule.find import allocation_of, find_block
from tilewright.schedule.step import Step, refusal


def pad(function: Function, block: str, loop: Var | None = None) -> Step:
    """The block runs beyond the end, too: conditions of its `where` are dropped if results where they fail are ignored.
    With `loop`, only conditions on that loop are. Loads that could leave their buffer there are clamped to its last
    element.

    block dot where vi < m: t[vi%6] += x[vi]        =>        block dot: t[vi%6] += x[min(vi, m - 1)]
    """
    found = find_block(function, block)
    what = f"cannot pad block {block}"
    if found.where is None:
        raise refusal(function, what, found, why="it runs everywhere already: it has no where", part=found.name)
    stores = _stores(function, found, what)
    _require_loops_only(function, found, what)
    place = PlaceBeyond(function, found, stores)
    about = [c for c in conjuncts(found.where) if loop is None or place.depends(c, loop)]
    if loop is not None and not about:
        raise refusal(function, what, found, why=f"no condition of it is about {loop.name}", part=found.where)
    reasons = {c: place.reason_to_keep(c) for c in about}
    dropped = [c for c, reason in reasons.items() if reason is None]
    if not dropped:
        why = next(reason for reason in reasons.values() if reason is not None)
        fix = "let it store to a local buffer, whose readers have the same where"
        raise refusal(function, what, found, why=why, fix=fix, part=found.where)
    names = ", ".join(dict.fromkeys(s.buffer.name for s in stores))
    evidence = [f"where {c} does not hold, what it stores to {names} is read by nobody" for c in dropped]
    return run_beyond(place, dropped, evidence, what)


def run_beyond(place: PlaceBeyond, dropped: list[Expr], evidence: list[str], what: str) -> Step:
    """The step that drops these conditions of a block; refused if a load beyond may be outside its buffer."""
    function, block = place.function, place.block
    kept = [c for c in conjuncts(block.where) if c not in dropped]
    loaded = LoadsBeyond(place, dropped, kept)
    made = loaded.clamped(block.replace(where=conjunction(kept)))
    if made is None:
        raise refusal(function, what, block, why=loaded.why, part=block.name)
    return Step(function.replace(body=replace(function.body, block, made)), None, (*evidence, *loaded.evidence))


def _stores(function: Function, block: Block, what: str) -> list[Store]:
    """The stores of a block that does nothing else."""
    found: list[Store] = []
    for part in (block.body, block.init):
        for s in statements(part) if part is not None else ():
            if isinstance(s, Store):
                found.append(s)
            elif not isinstance(s, Seq):
                why = "it holds more than stores, and what they do beyond the end is not known"
                raise refusal(function, what, s, why=why)
    for s in found:
        if s.buffer in function.params:
            why = f"it stores to {s.buffer.name}, which the caller reads"
            fix = f'let it store to a local buffer first: cache_write("{block.name}", "{s.buffer.name}")'
            raise refusal(function, what, s, why=why, fix=fix, part=s.buffer.name)
    return found


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


def _require_loops_only(function: Function, block: Block, what: str) -> None:
    """Refuses where anything but loops decides what the block does, or whether it runs."""
    path = path_to(function.body, block)
    outermost = next((s for s in path if isinstance(s, For)), block)
    for s in (*path, *statements(outermost)):
        if isinstance(s, Let | While | Assert) or (isinstance(s, If) and s in path):
            why = f"what the {type(s).__name__.lower()} in its loops does beyond the end is not known"
            raise refusal(function, what, s, why=why)


class PlaceBeyond:
    """A block, the loops around it, and what is known where it runs."""

    def __init__(self, function: Function, block: Block, stores: Sequence[Store]) -> None:
        self.function = function
        self.block = block
        self.loops = loops_around(function.body, block)
        self.known = Known(ranges_of(self.loops))
        self.accesses = accesses(function.body)
        own = set(stores)
        found = [a for a in self.accesses if a.is_store and a.statement in own]
        self.stores = list({(a.buffer, a.indices): a for a in found}.values())
        self.elements = {a.buffer: tuple(Var(f"e{d}") for d in range(len(a.indices))) for a in self.stores}
        self.readers = {buffer: self._readers(buffer) for buffer in self.elements}

    def _readers(self, buffer: Buffer) -> list[_Reader]:
        """The loads of a buffer, without those of blocks that write what they load back to where it is."""
        homes = {s: b for b in blocks(self.function.body) for s in statements(b)}
        found: dict[object, _Reader] = {}
        for a in self.accesses:
            home = homes.get(a.statement)
            if a.buffer is not buffer or a.is_store or (home is not None and _keeps_in_place(home, buffer)):
                continue
            known = Known(ranges_of(a.loops))
            element: dict[Expr, Polynomial] = {
                e: polynomial(known.simplified(i)) for e, i in zip(self.elements[buffer], a.indices, strict=True)
            }
            given = [bound(known.simplified(c)) for c in _conditions(self.function, home, a.statement)]
            bounds = tuple(joined(g) for g in given if g is not None)
            name = f"block {home.name}" if home is not None else "a statement"
            found[home, a.indices, a.statement] = _Reader(name, element, bounds, known)
        return list(found.values())

    def depends(self, cond: Expr, loop: Var) -> bool:
        """Whether a condition is about a loop."""
        over_loops = resolved(self.block, cond)
        return over_loops is not None and loop in variables_of(over_loops)

    def reason_to_keep(self, cond: Expr) -> str | None:
        """Why a condition cannot be dropped; None where it can."""
        need = bound(resolved(self.block, cond))
        if need is None or any(isinstance(n, Load) for n in preorder(cond)):
            return f"{cond} is no bound on the loops"
        beyond = self.loops_beyond(need)
        if beyond is None:
            return f"nothing says that {cond} holds anywhere"
        for store in self.stores:
            reason = self._leaves(store, beyond) or self._seen(store, need, cond)
            if reason is not None:
                return reason
        return None

    def loops_beyond(self, need: Polynomial) -> set[Var] | None:
        """The fewest loops, innermost first, some of whose iterations are beyond: at their first one, need >= 0 is
        proved for all iterations of the others. None if that is not proved."""
        about = variables_of(expression(need))
        found: set[Var] = set()
        for loop in reversed([loop for loop in self.loops if loop.var in about]):
            found.add(loop.var)
            if self.holds_first(need, found):
                return found
        return None

    def holds_first(self, need: Polynomial, beyond: set[Var]) -> bool:
        """Whether need >= 0 is proved at the first iteration of these loops."""
        first: dict[Expr, Polynomial] = {v: polynomial(r.begin) for v, r in self.known.ranges.items() if v in beyond}
        return self.known.never_negative(substitute(need, first))

    def _leaves(self, store: Access, beyond: set[Var]) -> str | None:
        """Why a store may leave its buffer where the condition does not hold."""
        for index, extent in zip(store.indices, store.buffer.shape, strict=True):
            if variables_of(index) & beyond and not self.is_inside(index, extent):
                where = f"{store.buffer.name} has {extent} elements there"
                return f"it would store to {store.buffer.name} at {self.known.simplified(index)}, and {where}"
        return None

    def _seen(self, store: Access, need: Polynomial, cond: Expr) -> str | None:
        """Why somebody may read what is stored where the condition does not hold."""
        buffer = store.buffer
        for s in statements(self.function.body):
            if isinstance(s, View | CallFunction | Publish) and buffer in _buffers_of(s):
                return f"{buffer.name} has readers that are not known: a view, a call or the caller"
        outside = _loops_of_life(self.function, buffer)
        indices = [polynomial(self.known.simplified(i)) for i in store.indices]
        of_element = _of_element(need, indices, self.elements[buffer], self.loops[len(outside) :])
        if of_element is None:
            return f"whether {cond} holds does not show in the element of {buffer.name} that is stored"
        reader = next((r for r in self.readers[buffer] if not r.excludes(of_element)), None)
        return None if reader is None else f"{reader.name} may read {buffer.name} where {cond} does not hold"

    def is_inside(self, index: Expr, extent: Expr) -> bool:
        """Whether an index is proved to be inside by the loops alone."""
        return self.is_positive(index) and self.known.at_least(extent, self.known.simplified(index) + 1)

    def is_positive(self, index: Expr) -> bool:
        return self.known.never_negative(polynomial(self.known.simplified(index)))


def _of_element(
    need: Polynomial, indices: Sequence[Polynomial], elements: Sequence[Var], own: Sequence[For]
) -> Polynomial | None:
    """The condition in terms of the stored element's indices instead of loops: each dimension is solved for a variable.
    None if a loop remains."""
    variables = {loop.var for loop in own}
    system = list(zip(indices, elements, strict=True))
    while system:
        index, element = system.pop(0)
        solved = next((v for v in variables if (v,) in index and abs(index[(v,)]) == 1 and _is_affine(index, v)), None)
        if solved is None:
            continue
        sign = index[(solved,)]
        rest = {m: c for m, c in index.items() if m != (solved,)}
        value: dict[Expr, Polynomial] = {solved: plus({(element,): sign}, rest, -sign)}
        need = substitute(need, value)
        system = [(substitute(i, value), e) for i, e in system]
        variables = variables - {solved}
    return None if variables_of(expression(need)) & {loop.var for loop in own} else need


def _is_affine(p: Polynomial, var: Var) -> bool:
    """Whether the only place of a variable in a polynomial is one term of its own."""
    parts = affine_in(p, var)
    return parts is not None and set(parts[0]) == {()} and var not in variables_of(expression(parts[1]))


def _buffers_of(s: View | CallFunction | Publish) -> tuple[Buffer, ...]:
    if isinstance(s, CallFunction):
        return s.arguments
    return (s.buffer, s.source) if isinstance(s, View) else (s.buffer,)


def _loops_of_life(function: Function, buffer: Buffer) -> list[For]:
    """The loops each iteration of which has a buffer of its own."""
    alloc = allocation_of(function, buffer)
    return loops_around(function.body, alloc) if alloc is not None else []


def _keeps_in_place(block: Block, buffer: Buffer) -> bool:
    """Whether a block only writes elements of a buffer back to where they are."""
    for part in (block.body, block.init):
        for s in statements(part) if part is not None else ():
            if not isinstance(s, Store):
                return False
            own = [load for load in loads(s.value) if load.buffer is buffer]
            if any(load.indices != s.indices for load in own) or (own and s.buffer is not buffer):
                return False
            if any(load.buffer is buffer for i in s.indices for load in loads(i)):
                return False
            if any(n.buffer is buffer for load in loads(s.value) for i in load.indices for n in loads(i)):
                return False
    return not any(load.buffer is buffer for c in conjuncts(block.where) for load in loads(c))


def _conditions(function: Function, block: Block | None, statement: Stmt) -> list[Expr]:
    """The conditions under which a statement runs, over loop variables."""
    path = path_to(function.body, statement)
    found: list[Expr] = []
    for outer, inner in pairwise(path):
        if isinstance(outer, If) and inner is outer.then:
            found += conjuncts(outer.cond)
    if block is None:
        return found
    reduced = {a.var for a in block.reduce} if block.init is not None and block.init in path else set()
    parts = [c for c in conjuncts(block.where) if not variables_of(c) & reduced]
    return found + [r for c in parts if (r := resolved(block, c)) is not None]


@dataclass(slots=True)
class LoadsBeyond:
    """The loads of a block that runs beyond. Each is inside its buffer or clamped; otherwise it is the reason (`why`)
    against the step."""

    place: PlaceBeyond
    dropped: list[Expr]
    kept: list[Expr]
    why: str = ""
    evidence: list[str] = field(default_factory=list)

    def clamped(self, block: Block) -> Block | None:
        """The block with its loads kept inside; None where that is not proved."""
        beyond = self._loops_beyond()
        if beyond is None:
            return None
        changed: dict[Node, Node] = {}
        for load in loads(block):
            fresh = self._inside(block, load, beyond)
            if fresh is None:
                return None
            changed[load] = fresh
        if all(a is b for a, b in changed.items()):
            return block
        made = map_expressions(block, lambda e: transform(e, lambda n: n, changed))
        assert isinstance(made, Block)
        return made

    def _loops_beyond(self) -> set[Var] | None:
        """The loops some of whose iterations are beyond. Whenever the block runs there, it also runs at the first
        iterations of these loops, with the same iterations of the others. So a buffer that it loads from is not empty,
        and an index that does not depend on these loops is inside."""
        place = self.place
        needs = [n for c in self.dropped if (n := bound(resolved(place.block, c))) is not None]
        beyond = set().union(*(place.loops_beyond(n) or set() for n in needs))
        conditions = ", ".join(map(str, self.dropped))
        if not all(place.holds_first(n, beyond) for n in needs):
            self.why = f"nothing says that {conditions} hold anywhere at once"
            return None
        for loop in place.loops:
            if (variables_of(loop.begin) | variables_of(loop.end)) & beyond:
                self.why = f"the bounds of {loop.var.name} depend on what {conditions} is about"
                return None
        for cond in self.kept:
            if variables_of(resolved(place.block, cond) or cond) & beyond:
                self.why = f"{cond} must stay, and is about the same loops as {conditions}"
                return None
        return beyond

    def _inside(self, block: Block, load: Load, beyond: set[Var]) -> Load | None:
        """The load with the indices clamped that are not proved to be inside; None where that is not proved to do."""
        indices = []
        for index, extent in zip(load.indices, load.buffer.shape, strict=True):
            over_loops = resolved(block, index)
            assert over_loops is not None
            moves = bool(variables_of(over_loops) & beyond)
            if moves and any(isinstance(n, Load) for n in preorder(over_loops)):
                self.why = f"where {load.buffer.name} is loaded beyond the end depends on what is loaded there"
                return None
            if not moves or self.place.is_inside(over_loops, extent):
                indices.append(index)
                continue
            if not self.place.is_positive(over_loops):
                self.why = f"nothing says that the index {index} of {load.buffer.name} is not negative"
                return None
            proof = f"loads of {load.buffer.name} beyond its end take the last of {extent}: there is 1 at least"
            self.evidence.append(proof)
            indices.append(minimum(index, simplify(extent - 1)))
        return load if tuple(indices) == load.indices else Load(load.buffer, tuple(indices))
