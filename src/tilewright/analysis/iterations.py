"""What iterations of a loop have to do with one another: whether they are independent, and what a block sums up.

    for k: block s: t[i] += x[i, k]; block m: u[i] = max(u[i], x[i, k])        summed_in: s adds, m takes the greater

The terms of an accumulation may be taken in any order, and in partial sums. Any other value that one iteration leaves
for a later one fixes their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.analysis.accesses import accesses, coefficient_of, mentions
from tilewright.analysis.addresses import stay_apart
from tilewright.analysis.dependences import Dependence, carried
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Add, And, BitAnd, BitOr, BitXor, Const, Expr, Max, Min, Mul, Or, const
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import allocations, blocks, loads, loads_of, loops_inside, perfect_nest, statements
from tilewright.loops.nodes import Assert, Block, Buffer, For, If, Load, Seq, Stmt, Store, While
from tilewright.types.scopes import Scope


@lru_cache(maxsize=1 << 9)
def is_spatial(loop: For) -> bool:
    """Whether the iterations of a loop are independent, and nothing can end them early."""
    return dependence(loop) is None and not any(isinstance(s, Assert | While) for s in statements(loop.body))


def dependence(loop: For, outer: Sequence[For] = ()) -> Dependence | None:
    """A dependence that a loop carries, None where its iterations may run in any order. `outer` are the loops around
    it. Most loops store each buffer in a place of their own, which is seen at once."""
    return None if _is_plainly_apart(loop) else next(iter(carried(loop, outer)), None)


def _is_plainly_apart(loop: For) -> bool:
    """Whether every buffer that a loop stores is touched, in each iteration, in a place of its own: by addresses, or by
    one index that moves with it evenly, and with no loop inside it."""
    own = set(allocations(loop.body))
    inner = {other.var for other in loops_inside(loop.body)}
    found = [a for a in accesses(loop.body) if a.buffer not in own]

    def tells(index: Expr) -> bool:
        by = None if mentions(index, inner) or loads_of(index) else coefficient_of(index, loop.var)
        return isinstance(by, Const) and by.value != 0

    for buffer in {a.buffer for a in found if a.is_store}:
        touching = [a for a in found if a.buffer is buffer]
        places = zip(*(a.indices for a in touching), strict=True)
        if not stay_apart(loop, touching) and not any(len(set(at)) == 1 and tells(at[0]) for at in places):
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


def is_schedulable(nest: For) -> bool:
    """Whether all that a nest does is points and accumulations."""
    inside = blocks(nest)
    stores = all(isinstance(b.body, Store) for b in inside)
    branches = any(isinstance(s, If | While | Assert) for s in statements(nest))
    return stores and not branches and all(accumulation(b) is not None for b in inside if b.reduce)


@lru_cache(maxsize=1 << 6)
def holds_points(nest: Stmt) -> bool:
    """Whether a nest is loops over independent points, with nothing between the loops."""
    loops, _ = perfect_nest(nest)
    return bool(loops) and all(is_spatial(loop) for loop in loops)


def product_in(block: Block) -> Mul | None:
    """The products that a block adds up, whatever its init and its condition; None where it does something else."""
    found = accumulation(block.replace(init=None, where=None))
    return found.term if found is not None and found.op is Add and isinstance(found.term, Mul) else None


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
