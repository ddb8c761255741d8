"""Accumulations: what one is, which a loop holds, and how they begin.

    for k: block s: t[i] += x[i, k]; block m: u[i] = max(u[i], x[i, k])        summed_in: s adds, m takes the greater

The terms of one may be taken in any order, and in partial sums: lanes.py and reduction.py have the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Add, And, BitAnd, BitOr, BitXor, Const, Expr, Max, Min, Mul, Or, const
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import loads
from tilewright.loops.nodes import Block, Buffer, For, Load, Seq, Stmt, Store
from tilewright.types.scopes import Scope


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
        return neutral(self.op, self.buffer.dtype)

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
    reduced = {a.var for a in block.reduce}
    if any(reduced & variables_of(index) for index in store.indices):
        return None
    value = store.value
    if not isinstance(value, Add | Mul | Min | Max | And | Or | BitAnd | BitOr | BitXor):
        return None
    for own, other in ((value.a, value.b), (value.b, value.a)):
        if isinstance(own, Load) and own.buffer is store.buffer and own.indices == store.indices:
            again = any(load.buffer is store.buffer for load in loads(other))
            return None if again else Summed(block, type(value), store.buffer, store.indices, other)
    return None


def neutral(op: type[Expr], dtype: DType) -> Const:
    """The value that an associative operator leaves others alone with."""
    match op.__name__:
        case "Add" | "Or" | "BitOr" | "BitXor":
            return const(0, dtype)
        case "Mul" | "And":
            return const(1, dtype)
        case "Min":
            return const(dtype.max, dtype)
        case "Max":
            return const(dtype.min, dtype)
    assert op is BitAnd
    return const(-1 if dtype.kind == "i" else dtype.max, dtype)


def summed_in(loop: For) -> tuple[Summed, ...]:
    """The accumulations of a loop that holds accumulating blocks and nothing else, of which none reads what another one
    stores, as the loops around the blocks see them. None of them where a loop is not of this kind."""
    inside = loop.body.body if isinstance(loop.body, Seq) else (loop.body,)
    found = tuple([made for made in map(_summed, inside) if made is not None])
    if len(found) < len(inside):
        return ()
    stored = [s.buffer for s in found]
    read = [{ld.buffer for ld in loads(s.term)} for s in found]
    alone = len(set(stored)) == len(stored) and not any(r & set(stored) for r in read)
    return found if alone or len(found) == 1 else ()


def _summed(stmt: Stmt) -> Summed | None:
    found = accumulation(stmt) if isinstance(stmt, Block) else None
    if found is None:
        return None
    bindings: dict[Expr, Node] = {a.var: a.binding for a in found.block.axes}
    target = tuple(substitute(i, bindings) for i in found.target)
    return Summed(found.block, found.op, found.buffer, target, substitute(found.term, bindings))
