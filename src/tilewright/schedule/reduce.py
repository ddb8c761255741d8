"""reduce_in_lanes: an accumulation over contiguous data runs in several independent lanes, added up at the end.

    for k in 0..n: t = t + f(k)       =>       for l in 0..4: p[l] = neutral
                                               for ko in 0..n//4, l in 0..4: p[l] = p[l] + f(ko*4 + l)
                                               for l in 0..2: p[l] = p[l] + p[l + 2]
                                               for l in 0..1: p[l] = p[l] + p[l + 1]
                                               t = t + p[0]
                                               for k in n//4*4..n: t = t + f(k)

It changes the order of a sum, as any vector code does; for minima, maxima and integers the result is the same.
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Add, And, BitAnd, BitOr, BitXor, Const, Expr, Max, Min, Mul, Or, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import fresh_copy, loads
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Load, LoopKind, Stmt, Store, seq
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


def reduce_in_lanes(loop: For, lanes: int) -> Stmt | None:
    """The replacement of a loop that holds one accumulating block and nothing else; None where it does not apply."""
    block = loop.body
    if not isinstance(block, Block):
        return None
    found = accumulation(block)
    if found is None:
        return None
    op, store, summand = found
    start = neutral(op, store.buffer.dtype)
    if start is None:
        return None
    bindings: dict[Expr, Node] = {a.var: a.binding for a in block.axes}
    term = substitute(summand, bindings)
    target = tuple(substitute(i, bindings) for i in store.indices)
    partial = Buffer(store.buffer.name + ".lanes", store.buffer.dtype, (const(lanes),), Scope.REGISTER)
    whole = simplify(extent_of(loop) // lanes)

    def lane_loop(name: str, kind: LoopKind, body_of: object) -> For:
        lane = Var(name)
        return For(lane, const(0), const(lanes), kind, body_of(lane))  # type: ignore[operator]

    def leaf(name: str, statement: Stmt) -> Block:
        return Block(f"{block.name}.{name}", (), statement)

    first = lane_loop("l", LoopKind.VECTORIZE, lambda v: leaf("start", Store(partial, (v,), start)))
    outer = Var(loop.var.name + "o")

    def step(lane: Var) -> Stmt:
        at = substitute(term, {loop.var: loop.begin + outer * lanes + lane})
        return leaf("lanes", Store(partial, (lane,), op(Load(partial, (lane,)), at)))  # type: ignore[call-arg]

    main = For(outer, const(0), whole, LoopKind.SERIAL, lane_loop("l", LoopKind.VECTORIZE, step))

    halvings, left = _halvings(block.name, partial, op, lanes)
    last = Var("l")
    both = op(Load(store.buffer, target), Load(partial, (last,)))  # type: ignore[call-arg]
    join = For(last, const(0), const(left), LoopKind.UNROLL, leaf("join", Store(store.buffer, target, both)))
    rest = fresh_copy(loop.replace(begin=simplify(loop.begin + whole * lanes)))
    return seq(Alloc(partial), first, main, *halvings, join, rest)


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
    """The replacement of a loop that holds one accumulating block and nothing else; None where it does not apply.

    for k in 0..n: t = t + f(k)       =>       for ko in 0..n//B:
                                                 p = 0; for ki in 0..B: p = p + f(ko*B + ki)
                                                 t = t + p
                                               for k in n//B*B..n: t = t + f(k)

    The rounding error of a sum grows with B + n/B instead of n (Higham, "The accuracy of floating point summation",
    SIAM J. Sci. Comput. 14, 1993).
    """
    found = accumulation(loop.body) if isinstance(loop.body, Block) else None
    if found is None or not isinstance(loop.body, Block):
        return None
    op, store, summand = found
    start = neutral(op, store.buffer.dtype)
    if start is None:
        return None
    block = loop.body
    bindings: dict[Expr, Node] = {a.var: a.binding for a in block.axes}
    term, target = substitute(summand, bindings), tuple(substitute(i, bindings) for i in store.indices)
    partial = Buffer(store.buffer.name + ".block", store.buffer.dtype, (), Scope.REGISTER)
    outer, inner = Var(loop.var.name + "o"), Var(loop.var.name + "i")
    whole = simplify(extent_of(loop) // size)
    at = substitute(term, {loop.var: loop.begin + outer * size + inner})
    step = Store(partial, (), op(Load(partial, ()), at))  # type: ignore[call-arg]
    join = Store(store.buffer, target, op(Load(store.buffer, target), Load(partial, ())))  # type: ignore[call-arg]
    turn = seq(
        Alloc(partial),
        Block(f"{block.name}.start", (), Store(partial, (), start)),
        For(inner, const(0), const(size), LoopKind.SERIAL, Block(f"{block.name}.terms", (), step)),
        Block(f"{block.name}.join", (), join),
    )
    main = For(outer, const(0), whole, LoopKind.SERIAL, turn)
    return seq(main, fresh_copy(loop.replace(begin=simplify(loop.begin + whole * size))))
