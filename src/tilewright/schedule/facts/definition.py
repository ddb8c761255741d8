"""What a block defines: which store fills a buffer, where its elements come from, who reads them, and what changes
between the two.

    for i in 0..8: block e(vi = i): e[vi + 1] = exp(x[vi])          filled_by: e[vi + 1] = …, over vi in 0..8
    for i in 0..8: block y(vi = i): y[vi] = e[vi + 1] * 2.0         readers_of: y[vi] = …; inverse(e[j]): vi = j - 1
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile

from tilewright.analysis.intervals import Range
from tilewright.expr.nodes import Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import loaded_buffers, loads, path_to, statements
from tilewright.loops.nodes import Block, Buffer, CallFunction, For, Function, LoopKind, Seq, Stmt, Store
from tilewright.schedule.facts.domain import is_one, single_axis
from tilewright.schedule.facts.place import Memory, own_loads, require_plain, word_of
from tilewright.schedule.find import allocation_of, nests, stored_buffers
from tilewright.schedule.step import refusal


def single_store(function: Function, block: Block, what: str) -> Store:
    """The only store of the block; that of its init goes to the same element."""
    store, init = block.body, block.init
    if not isinstance(store, Store):
        raise refusal(function, what, block.body, why=f"{block.name} does more than one store")
    if init is not None:
        same = isinstance(init, Store) and (init.buffer, init.indices) == (store.buffer, store.indices)
        if not same:
            raise refusal(function, what, init, why=f"the init of {block.name} stores something else than its body")
    return store


def filled_by(function: Function, block: Block, what: str, fix: str) -> Store:
    """The only store of a block that alone fills a local buffer, without a look at what that held before."""
    store = single_store(function, block, what)
    buffer = store.buffer
    if allocation_of(function, buffer) is None:
        why = f"{buffer.name} is an argument: all of it must be there at the end"
        raise refusal(function, what, store, why=why, fix=fix)
    require_plain(function, buffer, what)
    writers = [s for n in nests(function) if buffer in stored_buffers(n) for s in statements(n) if isinstance(s, Store)]
    other = next((s for s in writers if s.buffer is buffer and s not in (store, block.init)), None)
    if other is not None:
        raise refusal(function, what, other, why=f"another statement stores {buffer.name}, too")
    if block.init is None and any(load.buffer is buffer for load in loads(block)):
        raise refusal(function, what, block, why=f"{block.name} reads what {buffer.name} held before")
    return store


def require_pointwise(function: Function, block: Block, what: str, fix: str) -> None:
    """The block computes each element by one expression."""
    if block.reduce or block.init is not None:
        why = f"{block.name} adds up: its result is complete only at its end"
        raise refusal(function, what, block, why=why, fix=f"move it instead: {fix}", part=block.name)


def nest_of(function: Function, block: Block) -> Stmt:
    """The outermost of the loops that hold nothing but loops down to the block; the block where there is none."""
    return [block, *takewhile(lambda s: isinstance(s, For), path_to(function.body, block)[-2::-1])][-1]


def inverse(indices: Sequence[Expr], box: Mapping[Var, Range]) -> Callable[[Sequence[Expr]], dict[Expr, Expr]]:
    """The function from the values of `indices` over a block's axes to those of the axes, as far as they tell: an index
    tells one axis, and one that has a single value needs none."""
    single: dict[Expr, Expr] = {v: r.begin for v, r in box.items() if is_one(r.extent)}
    told = [(n, *axis) for n, index in enumerate(indices) if (axis := single_axis(index, box)) is not None]

    def axes_at(places: Sequence[Expr]) -> dict[Expr, Expr]:
        return single | {v: places[n] if at is const(0) else simplify(places[n] - at) for n, v, at in told}

    return axes_at


def readers_of(function: Function, buffer: Buffer) -> list[Stmt]:
    """The statements that load from a buffer, in program order."""
    reading = [s for nest in nests(function) if buffer in loaded_buffers(nest) for s in statements(nest)]
    return [s for s in reading if any(load.buffer is buffer for load in own_loads(s))]


def require_unchanged(function: Function, block: Block, reads: set[Buffer], after: Iterable[Stmt], what: str) -> None:
    """None of these statements stores one of the buffers that the block reads."""
    memory = Memory(function)
    for s in after:
        changed = reads & memory.stored(s) if isinstance(s, Store | CallFunction) else set()
        if changed:
            first = min(b.name for b in changed)
            why = f"it stores {first}, which {block.name} reads, and {block.name} would run only after it"
            raise refusal(function, what, s, why=why)


def require_reached(
    function: Function,
    path: Iterable[Stmt],
    name: str,
    what: str,
    through: tuple[type[Stmt], ...] = (For, Seq),
    closed: Collection[LoopKind] = (),
) -> None:
    """Nothing around what is called `name`, which are the statements of `path`, decides whether it runs, and no loop is
    of a kind that is `closed`."""
    for s in path:
        if not isinstance(s, through):
            raise refusal(function, what, s, why=f"{word_of(s)} around {name} decides whether it runs")
        if isinstance(s, For) and s.kind in closed:
            word = "vectorized" if s.kind is LoopKind.VECTORIZE else "an instruction"
            raise refusal(
                function,
                what,
                s,
                why=f"loop {s.var.name} is {word}",
                fix="take this step before the one that made it so",
            )
