"""What a step asks of a program before it changes anything, and refuses, with the statement that is in the way: that
iterations are independent, that a nest may run in another order; what touches a buffer, what fills it and where it
may live; for which points a block runs, what stands around it and in between.

for i in 0..8: block e(vi = i): e[vi + 1] = exp(x[vi])          filled_by: e, which block e alone stores
for i in 0..8: block y(vi = i): y[vi] = e[vi + 1] * 2.0         alone_in: y, over vi in 0..8
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tilewright.analysis.accesses import accesses, mentions
from tilewright.analysis.dependences import Dependence
from tilewright.analysis.domains import Domain, domain_of
from tilewright.analysis.iterations import accumulation, dependence
from tilewright.analysis.memory import Memory, allocation_of, defined_in, prefetches_of
from tilewright.analysis.vectors import Meeting, meetings, stays_forward
from tilewright.expr.nodes import Const, Var
from tilewright.expr.simplify import simplify
from tilewright.loops import nodes
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import blocks, loads, loops_around, loops_inside, perfect_nest, statements, stored_buffers
from tilewright.loops.instructions import Mismatch, match
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, LoopKind, Seq, Stmt, Store
from tilewright.loops.sizes import bytes_of
from tilewright.loops.text import word_of
from tilewright.report.quantities import counted
from tilewright.schedule.find import nests
from tilewright.schedule.step import Obstacle
from tilewright.types.scopes import MOST_BYTES, Scope

TOGETHER = (LoopKind.PARALLEL, LoopKind.VECTORIZE, LoopKind.THREAD)
"""The loops whose iterations may run at the same time."""

LANES = (LoopKind.VECTORIZE, LoopKind.INSTRUCTION)
"""The loops whose iterations are lanes: none of these has memory of its own."""

ORDERED = nodes.Assert | nodes.While | nodes.CallFunction
"""The statements that end iterations, or touch memory that they do not name: what they stand among keeps its order."""

LOCAL = (Scope.ARENA, Scope.STACK, Scope.REGISTER, Scope.SHARED)
"""Where a local buffer may live."""

KEPT = "every two accesses that meet keep their order"
"""Why loops may run in another order."""


def require_independent(function: Function, loop: For, fix: str) -> tuple[str, ...]:
    """The evidence that the iterations of a loop may run in any order and at the same time; refuses where not."""
    for s in statements(loop.body):
        if isinstance(s, nodes.Assert | nodes.While):
            raise Obstacle(loop, f"the {type(s).__name__.lower()} inside it ends iterations in an order that shows")
    found = dependence(loop, loops_around(function.body, loop))
    if found is not None:
        raise Obstacle(loop, _reason(loop, found), fix=_fix(loop, found, fix))
    return (f"no iteration of {loop.name} touches what another one stores",)


def _reason(loop: For, found: Dependence) -> str:
    first, second = found.first.said, found.second.said
    if found.first is found.second:
        return f"different iterations of {loop.name} {first.replace('stores', 'store', 1)}"
    if found.distance is None:
        return f"different iterations of {loop.name} meet: one {first}, the other {second}"
    turns = counted(found.distance, "iteration")
    return f"the distance is {found.distance}: {turns} of {loop.name} after one that {first}, another {second}"


def require_instructions(function: Function) -> None:
    """Refuses where a loop that runs as an instruction holds something else than what that does."""
    for s in loops_inside(function.body):
        if s.instruction is not None:
            try:
                match(s, s.instruction, loops_around(function.body, s))
            except Mismatch as wrong:
                why = f"{s.instruction} would no longer do what loop {s.name} holds: {wrong.why}"
                raise Obstacle(s, why, fix="take this step before tensorize") from None


def begun_outside(among: Iterable[Block | None], loops: Sequence[For]) -> list[tuple[Block, For]]:
    """Those of some blocks that have an init, which runs outside of one of these loops, because they sum over it; each
    with that loop."""
    begun = [block for block in among if block is not None and block.init is not None]
    return [(block, loop) for block in begun for loop in loops if loop.var in summed_loops(block)]


def require_begun_inside(at: Stmt, among: Iterable[Block | None], loops: Sequence[For]) -> None:
    """Refuses where the init of one of these blocks runs outside of one of these loops."""
    for block, over in begun_outside(among, loops):
        raise decompose_first(at, block, over)


def decompose_first(at: Stmt, block: Block, over: For | Var) -> Obstacle:
    """The obstacle that the init of a block runs outside of a loop, because it sums over it."""
    why = f"the init of {block.name} runs outside of {over.name}, which {block.name} sums over"
    return Obstacle(at, why, f'decompose_reduction("{block.name}", {over.name}) first')


def _fix(loop: For, found: Dependence, otherwise: str) -> str:
    """What to do instead: a reduction has a way of its own."""
    for block in blocks(loop):
        inside = set(statements(block))
        if block.reduce and found.first.statement in inside and found.second.statement in inside:
            name, total = loop.name, found.first.buffer.name
            return f'{name} accumulates into {total}: rfactor("{block.name}", {name}) first, or take a spatial loop'
    return otherwise


def require_reorder(function: Function, chain: Sequence[For], order: Sequence[int]) -> tuple[str, ...]:
    """The evidence that a chain of nested loops may be permuted, the n-th becoming loop `order[n]` of it."""
    resummed: dict[str, None] = {}
    for met in meetings(chain[0], chain, loops_around(function.body, chain[0])):
        if stays_forward(met.distances, order):
            continue
        resummed[met.first.buffer.name] = None
        if not _accumulates(chain[0], met):
            raise turned_around(chain, met)
    if not resummed:
        return (KEPT,)
    names = ", ".join(resummed)
    return (f"the terms of {names} are taken in another order, as reduce axes allow", f"otherwise, {KEPT}")


def turned_around(chain: Sequence[For], met: Meeting) -> Obstacle:
    """Why loops may not run in another order: two accesses that meet would change theirs."""
    names = ", ".join(loop.name for loop in chain)
    apart = ", ".join("any" if d is None else str(d) for d in met.distances)
    why = (
        f"{met.first.said} meets {met.second.said} at the distance ({apart}) in ({names}); "
        "the later of the two would run first"
    )
    return Obstacle(chain[0], why, fix=f"keep the order of {names}")


def _accumulates(nest: Stmt, met: Meeting) -> bool:
    """Whether both accesses are those of one accumulation whose terms may be taken in any order."""
    both = {met.first.statement, met.second.statement}
    own = next((b for b in blocks(nest) if b.reduce and both <= {b.body, b.init}), None)
    return own is not None and accumulation(own.replace(init=None, where=None)) is not None


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


def allocation(function: Function, buffer: Buffer) -> Alloc:
    """Where a local buffer is allocated that loads and stores alone touch: it may be held otherwise."""
    alloc = allocation_of(function, buffer)
    if alloc is None:
        why = f"{buffer.name} is no local buffer: its memory, and how it lies there, is the caller's"
        raise Obstacle(function, why, "cache_read or cache_write gives a block a local copy", part=buffer.name)
    require_plain(function, buffer)
    if alloc.offset is not None:
        raise Obstacle(alloc, "its place in the arena is planned", "take this step before memory is planned")
    return alloc


def placed(buffer: Buffer, scope: str, at: Stmt, fix: str = "") -> Buffer:
    """A local buffer in the scope of this name; refuses where it cannot live there. `fix` is what helps, too."""
    found = next((s for s in LOCAL if s.value == scope), None)
    if found is None:
        raise Obstacle(at, f'no local buffer lives in "{scope}"', f"take one of {', '.join(s.value for s in LOCAL)}")
    made = buffer.replace(scope=found)
    if found not in MOST_BYTES:
        return made
    size, most = bytes_of(made), MOST_BYTES[found]
    if size is None:
        extent = next(e for e in buffer.shape if not isinstance(simplify(e), Const))
        raise Obstacle(at, f"the dimension {extent} of {buffer.name} is dynamic", f'take scope="arena"{fix}')
    if size > most:
        why = f"{buffer.name} has {size} bytes; at most {most} go there"
        larger = "stack" if size <= MOST_BYTES[Scope.STACK] else "arena"
        raise Obstacle(at, why, fix=f'take scope="{larger}"{fix}')
    return made


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
