"""What plans and steps ask of loops: how far one runs, what it sums up, whether its iterations are independent, and
whether a nest may run in another order.

    for k: block s: t[i] += x[i, k]; block m: u[i] = max(u[i], x[i, k])        summed_in: s adds, m takes the greater

The terms of an accumulation may be taken in any order, and in partial sums: lanes.py and reduction.py have the steps.
Any other value that one iteration leaves for a later one fixes their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.dependences import Dependence, carried
from tilewright.analysis.vectors import Meeting, meetings, stays_forward
from tilewright.core.walk import substitute
from tilewright.expr.linear import expression, linear_in, polynomial
from tilewright.expr.nodes import Add, And, BitAnd, BitOr, BitXor, Const, Expr, Max, Min, Mul, Or, Var, const
from tilewright.expr.simplify import simplify
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import allocations, blocks, loads, loads_of, loops_around, loops_inside, statements
from tilewright.loops.instructions import Mismatch, match
from tilewright.loops.nodes import Assert, Block, Buffer, For, Function, Load, Seq, Stmt, Store, While
from tilewright.report.errors import UserError
from tilewright.schedule.step import refusal
from tilewright.types.scopes import Scope


def extent_of(loop: For) -> Expr:
    return simplify(loop.end - loop.begin)


def size_of(loop: For) -> int | None:
    """The iterations of a loop; None where they are dynamic."""
    extent = extent_of(loop)
    return int(extent.value) if isinstance(extent, Const) else None


def is_single(loop: For) -> bool:
    """Whether a loop has one iteration."""
    return extent_of(loop) is const(1)


def bounds_of(loop: For) -> frozenset[Var]:
    """The variables in the bounds of a loop."""
    return variables_of(loop.begin) | variables_of(loop.end)


def coefficient_of(index: Expr, var: Var) -> Expr | None:
    """The factor of `var` in an index that is linear in it; None when it is not."""
    parts = linear_in(polynomial(index), var)
    return None if parts is None else expression(parts[0])


def is_spatial(loop: For) -> bool:
    """Whether the iterations of a loop are independent, and nothing can end them early."""
    return dependence(loop) is None and not any(isinstance(s, Assert | While) for s in statements(loop.body))


def dependence(loop: For, outer: Sequence[For] = ()) -> Dependence | None:
    """A dependence that a loop carries, None where its iterations may run in any order. `outer` are the loops around
    it. Most loops store each buffer in a place of their own, which is seen at once."""
    return None if _is_plainly_apart(loop) else next(iter(carried(loop, outer)), None)


def _is_plainly_apart(loop: For) -> bool:
    """Whether every buffer that a loop stores is touched, in each iteration, in a place of its own, by one index that
    moves with it evenly, and with no loop inside it."""
    own = set(allocations(loop.body))
    inner = {other.var for other in loops_inside(loop.body)}
    found = [a for a in accesses(loop.body) if a.buffer not in own]

    def tells(index: Expr) -> bool:
        by = None if mentions(index, inner) or loads_of(index) else coefficient_of(index, loop.var)
        return isinstance(by, Const) and by.value != 0

    for buffer in {a.buffer for a in found if a.is_store}:
        places = zip(*(a.indices for a in found if a.buffer is buffer), strict=True)
        if not any(len(set(at)) == 1 and tells(at[0]) for at in places):
            return False
    return True


@dataclass(frozen=True, slots=True)
class Summed:
    """An accumulation of a block: buffer[target] = buffer[target] op term, with an associative operator."""

    block: Block
    op: type[Expr]
    buffer: Buffer
    target: tuple[Expr, ...]
    term: Expr

    @property
    def start(self) -> Const:
        """What partial sums begin with: the value that the operator leaves others alone with."""
        dtype = self.buffer.dtype
        ones = -1 if dtype.kind == "i" else dtype.max
        begins = {Mul: 1, And: 1, Min: dtype.max, Max: dtype.min, BitAnd: ones}
        return const(begins.get(self.op, 0), dtype)

    def partial(self, name: str, shape: tuple[Expr, ...], scope: Scope = Scope.REGISTER) -> Buffer:
        """A buffer for partial sums."""
        return Buffer(name, self.buffer.dtype, shape, scope)

    def leaf(self, name: str, statement: Stmt) -> Block:
        """A block without axes, called after the accumulation's."""
        return Block(f"{self.block.name}.{name}", (), statement)

    def added(self, buffer: Buffer, at: tuple[Expr, ...], term: Expr) -> Store:
        """Accumulates a term, or a partial sum, into an element."""
        return Store(buffer, at, self.op(Load(buffer, at), term))  # type: ignore[call-arg]


def accumulation(block: Block) -> Summed | None:
    """The accumulation of a block that stores nothing else, over its axes: what it accumulates into stays where it is
    along the reduce axes. None of a block with an init or a condition."""
    store = block.body
    if not isinstance(store, Store) or block.init is not None or block.where is not None:
        return None
    reduced, value = {a.var for a in block.reduce}, store.value
    if any(reduced & variables_of(index) for index in store.indices):
        return None
    if not isinstance(value, Add | Mul | Min | Max | And | Or | BitAnd | BitOr | BitXor):
        return None
    own = Load(store.buffer, store.indices)
    for one, term in ((value.a, value.b), (value.b, value.a)):
        if one is own:
            again = any(load.buffer is store.buffer for load in loads(term))
            return None if again else Summed(block, type(value), store.buffer, store.indices, term)
    return None


def summed_in(loop: For) -> tuple[Summed, ...]:
    """The accumulations of a loop that holds accumulating blocks and nothing else, of which none reads what another one
    stores, as the loops around the blocks see them. None of them where a loop is not of this kind."""
    inside = loop.body.body if isinstance(loop.body, Seq) else (loop.body,)
    found = tuple([made for s in inside if isinstance(s, Block) and (made := accumulation(s)) is not None])
    stored = {s.buffer for s in found}
    alone = len(stored) == len(found) and not any(stored & {load.buffer for load in loads(s.term)} for s in found)
    return tuple(map(_over_loops, found)) if len(found) == len(inside) and alone else ()


def _over_loops(found: Summed) -> Summed:
    """The accumulation as the loops around its block see it."""
    values = found.block.bindings
    target = tuple(substitute(i, values) for i in found.target)
    return Summed(found.block, found.op, found.buffer, target, substitute(found.term, values))


KEPT = "every two accesses that meet keep their order"
"""Why loops may run in another order."""


def require_independent(function: Function, loop: For, what: str, fix: str) -> tuple[str, ...]:
    """The evidence that the iterations of a loop may run in any order and at the same time; else the error `what`."""
    for s in statements(loop.body):
        if isinstance(s, Assert | While):
            word = "assert" if isinstance(s, Assert) else "while"
            raise refusal(function, what, loop, why=f"the {word} inside it ends iterations in an order that shows")
    found = dependence(loop, loops_around(function.body, loop))
    if found is not None:
        raise refusal(function, what, loop, why=_reason(loop, found), fix=_fix(loop, found, fix))
    return (f"no iteration of {loop.var.name} touches what another one stores",)


def _reason(loop: For, found: Dependence) -> str:
    first, second = access_text(found.first), access_text(found.second)
    if found.first is found.second:
        return f"different iterations of {loop.var.name} {first.replace('stores', 'store', 1)}"
    if found.distance is None:
        return f"different iterations of {loop.var.name} meet: one {first}, the other {second}"
    turns = "1 iteration" if found.distance == 1 else f"{found.distance} iterations"
    return f"the distance is {found.distance}: {turns} of {loop.var.name} after one that {first}, another {second}"


def require_instructions(function: Function, what: str) -> None:
    """The error `what` where a loop that runs as an instruction holds something else than what that does."""
    for s in loops_inside(function.body):
        if s.instruction is not None:
            try:
                match(s, s.instruction, loops_around(function.body, s))
            except Mismatch as wrong:
                why = f"{s.instruction} would no longer do what loop {s.var.name} holds: {wrong.why}"
                raise refusal(function, what, s, why=why, fix="take this step before tensorize") from None


def access_text(access: Access) -> str:
    """An access as a person says it."""
    place = f"{access.buffer.name}[{', '.join(str(i) for i in access.indices)}]"
    return f"{'stores' if access.is_store else 'loads'} {place}"


def _fix(loop: For, found: Dependence, otherwise: str) -> str:
    """What to do instead: a reduction has a way of its own."""
    for block in blocks(loop):
        inside = set(statements(block))
        if block.reduce and found.first.statement in inside and found.second.statement in inside:
            name = loop.var.name
            total = found.first.buffer.name
            return f'{name} accumulates into {total}: rfactor("{block.name}", {name}) first, or take a spatial loop'
    return otherwise


def require_reorder(function: Function, chain: Sequence[For], order: Sequence[int], what: str) -> tuple[str, ...]:
    """The evidence that a chain of nested loops may be permuted, the n-th becoming loop `order[n]` of it."""
    resummed: dict[str, None] = {}
    for met in meetings(chain[0], chain, loops_around(function.body, chain[0])):
        if stays_forward(met.distances, order):
            continue
        resummed[met.first.buffer.name] = None
        if not _accumulates(chain[0], met):
            raise turned_around(function, chain, met, what)
    if not resummed:
        return (KEPT,)
    names = ", ".join(resummed)
    return (f"the terms of {names} are taken in another order, as reduce axes allow", f"otherwise, {KEPT}")


def turned_around(function: Function, chain: Sequence[For], met: Meeting, what: str) -> UserError:
    """The error `what` for loops in another order: two accesses that meet would change theirs."""
    names = ", ".join(loop.var.name for loop in chain)
    apart = ", ".join("any" if d is None else str(d) for d in met.distances)
    why = (
        f"{access_text(met.first)} meets {access_text(met.second)} at the distance ({apart}) in ({names}); "
        "the later of the two would run first"
    )
    return refusal(function, what, chain[0], why=why, fix=f"keep the order of {names}")


def _accumulates(nest: Stmt, met: Meeting) -> bool:
    """Whether both accesses are those of one accumulation whose terms may be taken in any order."""
    both = {met.first.statement, met.second.statement}
    own = next((b for b in blocks(nest) if b.reduce and both <= {b.body, b.init}), None)
    return own is not None and accumulation(own.replace(init=None, where=None)) is not None
