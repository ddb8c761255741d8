"""reduce_in_lanes: an accumulation over contiguous data runs in several independent lanes, added up at the end.

    for k in 0..n: t = t + f(k)       =>       for l in 0..4: p[l] = neutral
                                               for ko in 0..n//4, l in 0..4: p[l] = p[l] + f(ko*4 + l)
                                               for l in 0..2: p[l] = p[l] + p[l + 2]
                                               for l in 0..1: p[l] = p[l] + p[l + 1]
                                               t = t + p[0]
                                               for k in n//4*4..n: t = t + f(k)

It changes the order of a sum, as any vector code does; for minima, maxima and integers the result is the same. Several
accumulations in one loop stay in one loop, each with lanes of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Add, And, BitAnd, BitOr, BitXor, Const, Expr, Max, Min, Mul, Or, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import fresh_copy, loads
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Load, LoopKind, Seq, Stmt, Store, seq
from tilewright.schedule.nests import extent_of
from tilewright.types.scopes import Scope


def accumulation(block: Block) -> tuple[type[Expr], Store, Expr] | None:
    """(operator, store, summand) of a block whose body is buffer[i] = buffer[i] op summand with an associative op, i
    staying where it is along the reduce axes."""
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
            return None if again else (type(value), store, other)
    return None


def neutral(op: type[Expr], dtype: DType) -> Const | None:
    """The value that an operator leaves others alone with."""
    match op.__name__:
        case "Add" | "Or" | "BitOr" | "BitXor":
            return const(0, dtype)
        case "Mul" | "And":
            return const(1, dtype)
        case "Min":
            return const(dtype.max, dtype)
        case "Max":
            return const(dtype.min, dtype)
        case "BitAnd":
            return const(-1 if dtype.kind == "i" else dtype.max, dtype)
    return None


@dataclass(frozen=True, slots=True)
class Summed:
    """An accumulation of a block: the operator, its neutral element, what is accumulated, as the loops around the
    block see it, and where."""

    block: Block
    op: type[Expr]
    start: Const
    buffer: Buffer
    target: tuple[Expr, ...]
    term: Expr

    def partial(self, name: str, shape: tuple[Expr, ...]) -> Buffer:
        return Buffer(f"{self.buffer.name}.{name}", self.buffer.dtype, shape, Scope.REGISTER)

    def leaf(self, name: str, statement: Stmt) -> Block:
        return Block(f"{self.block.name}.{name}", (), statement)

    def added(self, buffer: Buffer, at: tuple[Expr, ...], term: Expr) -> Store:
        return Store(buffer, at, self.op(Load(buffer, at), term))  # type: ignore[call-arg]


def summed_in(loop: For) -> tuple[Summed, ...]:
    """The accumulations of a loop that holds accumulating blocks and nothing else, of which none reads what another one
    stores. None of them where a loop is not of this kind."""
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
    if found is None or not isinstance(stmt, Block):
        return None
    op, store, term = found
    start = neutral(op, store.buffer.dtype)
    bindings: dict[Expr, Node] = {a.var: a.binding for a in stmt.axes}
    target = tuple(substitute(i, bindings) for i in store.indices)
    return None if start is None else Summed(stmt, op, start, store.buffer, target, substitute(term, bindings))


def reduce_in_lanes(loop: For, lanes: int) -> Stmt | None:
    """The replacement of a loop that holds accumulating blocks and nothing else; None where it does not apply."""
    found = summed_in(loop)
    if not found:
        return None
    partials = [s.partial("lanes", (const(lanes),)) for s in found]
    outer = Var(loop.var.name + "o")
    whole = simplify(extent_of(loop) // lanes)

    def lane_loop(body_of: Callable[[Var], Stmt]) -> For:
        lane = Var("l")
        return For(lane, const(0), const(lanes), LoopKind.VECTORIZE, body_of(lane))

    def first(s: Summed, partial: Buffer) -> Stmt:
        return lane_loop(lambda lane: s.leaf("start", Store(partial, (lane,), s.start)))

    def step(s: Summed, partial: Buffer) -> Stmt:
        def at(lane: Var) -> Stmt:
            term = substitute(s.term, {loop.var: loop.begin + outer * lanes + lane})
            return s.leaf("lanes", s.added(partial, (lane,), term))

        return lane_loop(at)

    both = list(zip(found, partials, strict=True))
    main = For(outer, const(0), whole, LoopKind.SERIAL, seq(*(step(s, p) for s, p in both)))
    rest = fresh_copy(loop.replace(begin=simplify(loop.begin + whole * lanes)))
    starts = [x for s, p in both for x in (Alloc(p), first(s, p))]
    return seq(*starts, main, *(x for s, p in both for x in _joined(s, p, lanes)), rest)


def _joined(s: Summed, partial: Buffer, lanes: int) -> list[Stmt]:
    """The lanes of a sum added up, and added to it."""
    halvings, left = _halvings(s.block.name, partial, s.op, lanes)
    last = Var("l")
    join = s.leaf("join", s.added(s.buffer, s.target, Load(partial, (last,))))
    return [*halvings, For(last, const(0), const(left), LoopKind.UNROLL, join)]


def _halvings(block: str, partial: Buffer, op: type[Expr], lanes: int) -> tuple[list[Stmt], int]:
    """Loops that add the upper half of the lanes to the lower one while their number is even, and the lanes left."""
    loops: list[Stmt] = []
    while lanes % 2 == 0:
        lanes //= 2
        lane = Var("l")
        both = op(Load(partial, (lane,)), Load(partial, (lane + lanes,)))  # type: ignore[call-arg]
        body = Block(f"{block}.halve", (), Store(partial, (lane,), both))
        loops.append(For(lane, const(0), const(lanes), LoopKind.VECTORIZE if lanes > 1 else LoopKind.UNROLL, body))
    return loops, lanes


def reduce_in_blocks(loop: For, size: int) -> Stmt | None:
    """The replacement of a loop that holds accumulating blocks and nothing else; None where it does not apply.

    for k in 0..n: t = t + f(k)       =>       for ko in 0..n//B:
                                                 p = 0; for ki in 0..B: p = p + f(ko*B + ki)
                                                 t = t + p
                                               for k in n//B*B..n: t = t + f(k)

    The rounding error of a sum grows with B + n/B instead of n (Higham, "The accuracy of floating point summation",
    SIAM J. Sci. Comput. 14, 1993).
    """
    found = summed_in(loop)
    if not found:
        return None
    both = [(s, s.partial("block", ())) for s in found]
    outer, inner = Var(loop.var.name + "o"), Var(loop.var.name + "i")
    whole = simplify(extent_of(loop) // size)
    at: dict[Expr, Node] = {loop.var: loop.begin + outer * size + inner}
    terms = [s.leaf("terms", s.added(p, (), substitute(s.term, at))) for s, p in both]
    turn = seq(
        *(x for s, p in both for x in (Alloc(p), s.leaf("start", Store(p, (), s.start)))),
        For(inner, const(0), const(size), LoopKind.SERIAL, seq(*terms)),
        *(s.leaf("join", s.added(s.buffer, s.target, Load(p, ()))) for s, p in both),
    )
    main = For(outer, const(0), whole, LoopKind.SERIAL, turn)
    return seq(main, fresh_copy(loop.replace(begin=simplify(loop.begin + whole * size))))
