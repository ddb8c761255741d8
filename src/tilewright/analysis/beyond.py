"""A block beyond the end, where a condition of it fails: at which iterations is that, would it stay in its buffers
there, and would anybody read what it stores?

    for io in 0..6, ii in 0..6: block t where io*6 + ii < 33: t[ii] = x[io*6 + ii]
    for io in 0..6, i in 0..6: block y where io*6 + i < 33: y[io*6 + i] = t[i]
                                   t without its condition: x[33] is beyond, and nobody reads t[3] while io = 5
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.accesses import Access, mentions
from tilewright.analysis.elements import Touch, conditions_of, point, touches
from tilewright.analysis.known import Known, bound, exchanged, resolved
from tilewright.analysis.memory import Memory, allocation_of
from tilewright.analysis.regions import ranges_of
from tilewright.core.node import Node
from tilewright.core.walk import preorder
from tilewright.expr.build import minimum
from tilewright.expr.linear import Polynomial, expression, joined, plus, polynomial
from tilewright.expr.linear import substitute as substituted
from tilewright.expr.nodes import Const, Expr, FloorDiv, Mod, Var
from tilewright.expr.simplify import simplify
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import loads, loads_of, loops_around
from tilewright.loops.nodes import Block, Buffer, Function, Load, Store
from tilewright.loops.text import word_of


class PlaceBeyond:
    """A block that is to run beyond the end, the loops around it, and what is known where it runs."""

    def __init__(self, function: Function, block: Block) -> None:
        self.function, self.block = function, block
        self.loops = loops_around(function.body, block)
        self.known = Known(ranges_of(self.loops))

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
        return self.known.never_negative(substituted(need, first))

    def ends(self, dropped: Sequence[Expr]) -> dict[Expr, Node]:
        """The axes that a condition alone ends, with what they are up to their last value, and that beyond it."""
        found: dict[Expr, Node] = {}
        for cond in dropped:
            for axis in self.block.spatial:
                end = plus(bound(resolved(self.block, cond)) or {}, polynomial(axis.binding))
                if not variables_of(expression(end)) & {loop.var for loop in self.loops}:
                    found[axis.var] = minimum(axis.var, simplify(expression(end)))
        return found

    def is_inside(self, index: Expr, extent: Expr) -> bool:
        """Whether an index is proved to be inside by the loops alone."""
        return self.is_positive(index) and self.known.at_least(extent, self.known.simplified(index) + 1)

    def is_positive(self, index: Expr) -> bool:
        """Whether an index is proved not to be negative."""
        return self.known.never_negative(polynomial(self.known.simplified(index)))

    def reason_to_keep(self, stores: Sequence[Access], cond: Expr) -> str | None:
        """Why a condition of the block, which does these stores, cannot be dropped; None where it can."""
        need = bound(resolved(self.block, cond))
        if need is None or loads_of(cond):
            return f"{cond} is no bound on the loops"
        beyond = self.loops_beyond(need)
        if beyond is None:
            return f"nothing says that {cond} holds anywhere"
        return next(filter(None, (self._leaves(s, beyond) or self._seen(s, need, cond) for s in stores)), None)

    def _leaves(self, store: Access, beyond: set[Var]) -> str | None:
        """Why a store may leave its buffer where the condition does not hold."""
        for index, extent in zip(store.indices, store.buffer.shape, strict=True):
            if mentions(index, beyond) and not self.is_inside(index, extent):
                at, name = self.known.simplified(index), store.buffer.name
                return f"it would store to {name} at {at}, and {name} has {extent} elements there"
        return None

    def _seen(self, store: Access, need: Polynomial, cond: Expr) -> str | None:
        """Why somebody may read what is stored where the condition does not hold."""
        function, buffer = self.function, store.buffer
        alloc = allocation_of(function, buffer)
        if alloc is None or not Memory(function.body).is_plain(buffer):
            return f"{buffer.name} has readers that are not known: a view, a call or the caller"
        names = list(zip(map(self.known.simplified, store.indices), point(len(store.indices)), strict=True))
        inner = self.loops[len(loops_around(function.body, alloc)) :]
        of_element = exchanged(need, [*names, *names], {loop.var for loop in inner})
        if of_element is None:
            return f"whether {cond} holds does not show in the element of {buffer.name} that is stored"
        for touch in touches(function.body, buffer):
            home = next((s for s in reversed(touch.path) if isinstance(s, Block)), None)
            if touch.access.is_store or (home is not None and _keeps_in_place(home, buffer)):
                continue
            if not _excludes(touch, of_element):
                return f"{word_of(home or touch.access.statement)} may read {buffer.name} where {cond} does not hold"
        return None


def _excludes(touch: Touch, need: Polynomial) -> bool:
    """Whether a load is never of an element for which `need`, over the element's indices, is negative."""
    known, indices = Known(ranges_of(touch.access.loops)), touch.access.indices
    places: dict[Expr, Expr] = dict(zip(point(len(indices)), map(known.simplified, indices), strict=True))
    wanted = joined(substituted(need, {d: polynomial(place) for d, place in places.items()}))
    bounds = [bound(known.simplified(c)) for c in conditions_of(touch) if c is not None]
    return known.follows(wanted, [{}, *(joined(b) for b in bounds if b is not None)])


def _keeps_in_place(block: Block, buffer: Buffer) -> bool:
    """Whether a block only writes elements of a buffer back to where they are."""

    def reads(part: Node, own: Load | None = None) -> bool:
        return any(load.buffer is buffer and load is not own for load in loads(part))

    if block.where is not None and reads(block.where):
        return False
    return all(isinstance(s, Store) and not reads(s, Load(s.buffer, s.indices)) for s in block.inside())


def divides_by_size(index: Expr) -> bool:
    """Whether a part of an index is divided by a dynamic size."""
    return any(isinstance(part, FloorDiv | Mod) and not isinstance(part.b, Const) for part in preorder(index))
