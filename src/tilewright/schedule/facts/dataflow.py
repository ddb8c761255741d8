"""What moving a block requires: of the memory that it touches, of what fills a buffer, of the points that it runs for,
and of all that stands around it and in between. Each refuses, with the statement that is in the way.

for i in 0..8: block e(vi = i): e[vi + 1] = exp(x[vi])          filled_by: e, which block e alone stores
for i in 0..8: block y(vi = i): y[vi] = e[vi + 1] * 2.0         alone_in: y, over vi in 0..8
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tilewright.analysis.accesses import accesses, mentions
from tilewright.analysis.domains import Domain, domain_of
from tilewright.analysis.memory import Memory, defined_in, prefetches_of
from tilewright.loops import nodes
from tilewright.loops.edit import loads, loops_around, perfect_nest, statements, stored_buffers
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, LoopKind, Seq, Stmt, Store
from tilewright.schedule.facts.iterations import ORDERED, require_independent
from tilewright.schedule.find import allocation_of, nests
from tilewright.schedule.step import Obstacle


def require_plain(function: Function, buffer: Buffer, root: Stmt | None = None) -> None:
    """Refuses where more than loads and stores of a buffer reach its memory: in the function, or in the
    statement `root`, where the buffer must not begin to live, either."""
    memory = Memory(function.body)
    names = (buffer, memory.of(buffer))
    if root is not None and not defined_in(root).isdisjoint(names):
        begin = next(s for s in statements(root) if isinstance(s, Alloc | nodes.View) and s.buffer in names)
        raise Obstacle(begin, f"{buffer.name} lives inside {word_of(root)}")
    for s in statements(root or function.body) if not memory.is_plain(buffer) else ():
        why = memory.other_use(s, buffer)
        if why is not None:
            raise Obstacle(s, why)


def require_no_prefetch(root: Stmt, buffer: Buffer, fix: str) -> None:
    """Refuses a buffer that is prefetched in `root`."""
    for s in prefetches_of(root, buffer):
        raise Obstacle(s, f"{buffer.name} is prefetched here", fix)


def require_elements(root: Stmt, buffer: Buffer) -> None:
    """Refuses a buffer of which something in `root` takes several elements at once."""
    for a in accesses(root):
        if a.buffer is buffer and any(i.lanes != 1 for i in a.indices):
            why = f"this {'stores' if a.is_store else 'loads'} vectors of {buffer.name}"
            raise Obstacle(a.statement, why, part=buffer.name)


def word_of(stmt: Stmt) -> str:
    """A statement as a person calls it."""
    match stmt:
        case Block(name):
            return f"block {name}"
        case For(var):
            return f"loop {var.name}"
        case Seq(body):
            return f"a sequence of {len(body)} statements"
    return f"a statement {type(stmt).__name__.lower()}"


def single_store(block: Block) -> Store:
    """The only store of the block; that of its init goes to the same element."""
    store, init = block.body, block.init
    if not isinstance(store, Store):
        raise Obstacle(block.body, f"{block.name} does more than one store")
    same = isinstance(init, Store) and (init.buffer, init.indices) == (store.buffer, store.indices)
    if init is not None and not same:
        raise Obstacle(init, f"the init of {block.name} stores something else than its body")
    return store


def filled_by(function: Function, block: Block, fix: str) -> Alloc:
    """The allocation of a buffer that the only store of a block alone fills, without a look at what it held before."""
    store = single_store(block)
    buffer = store.buffer
    alloc = allocation_of(function, buffer)
    if alloc is None:
        raise Obstacle(store, f"{buffer.name} is an argument: all of it must be there at the end", fix)
    require_plain(function, buffer)
    writers = [s for n in nests(function) if buffer in stored_buffers(n) for s in statements(n) if isinstance(s, Store)]
    for other in (s for s in writers if s.buffer is buffer and s not in (store, block.init)):
        raise Obstacle(other, f"another statement stores {buffer.name}, too")
    if block.init is None and any(load.buffer is buffer for load in loads(block)):
        raise Obstacle(block, f"{block.name} reads what {buffer.name} held before")
    return alloc


def require_unchanged(function: Function, block: Block, reads: set[Buffer], after: Iterable[Stmt]) -> None:
    """None of these statements stores one of the buffers that the block reads."""
    for s, b in Memory(function.body).changes(after, reads):
        raise Obstacle(s, f"it stores {b.name}, which {block.name} reads, and {block.name} would run only after it")


def require_reached(
    path: Iterable[Stmt], name: str, through: tuple[type[Stmt], ...] = (For, Seq), closed: Collection[LoopKind] = ()
) -> None:
    """Nothing around what is called `name`, which are the statements of `path`, decides whether it runs, and no loop is
    of a kind that is `closed`."""
    for s in path:
        if not isinstance(s, through):
            raise Obstacle(s, f"{word_of(s)} around {name} decides whether it runs")
        if isinstance(s, For) and s.kind in closed:
            word = "vectorized" if s.kind is LoopKind.VECTORIZE else "an instruction"
            raise Obstacle(s, f"loop {s.name} is {word}", fix="take this step before the one that made it so")


def alone_in(function: Function, nest: Stmt, block: Block) -> Domain:
    """The domain of the only block of a nest, whose points may run in any order."""
    loops, inside = perfect_nest(nest)
    if inside is not block:
        raise Obstacle(inside, f"{block.name} is not alone in its nest: {word_of(inside)} stands there")
    if any(isinstance(s, ORDERED) for s in statements(block)):
        raise Obstacle(block, f"an assert, a while or a call inside {block.name} fixes the order of its points")
    for s in statements(block):
        if isinstance(s, Store):
            require_plain(function, s.buffer)
    domain = domain_in(nest, block)
    for loop in loops:
        if loop not in domain.reduce:
            require_independent(function, loop, f"take a block whose points do not depend on {loop.name}")
    _require_sum(block)
    return domain


def domain_in(nest: Stmt, block: Block) -> Domain:
    """The points of a block under the loops of a nest."""
    domain = domain_of(block, loops_around(nest, block))
    if isinstance(domain, str):
        raise Obstacle(block, domain)
    return domain


def _require_sum(block: Block) -> None:
    """A block with reduce axes must keep to one element for each of its spatial points."""
    stores = [s for s in statements(block) if isinstance(s, Store)] if block.reduce else []
    reduced = {a.var for a in block.reduce}
    for store in stores:
        touched = {load.indices for load in loads(block) if load.buffer is store.buffer}
        touched |= {s.indices for s in stores if s.buffer is store.buffer}
        if touched != {store.indices} or any(mentions(i, reduced) for i in store.indices):
            why = f"{block.name} touches other elements of {store.buffer.name} than the one it accumulates into"
            raise Obstacle(store, why)
