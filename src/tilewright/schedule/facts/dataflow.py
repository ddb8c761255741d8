"""What moving a block asks about: which memory statements touch, which store fills a buffer, and who reads it.

for i in 0..8: block e(vi = i): e[vi + 1] = exp(x[vi])          filled_by: e[vi + 1] = …, over vi in 0..8
for i in 0..8: block y(vi = i): y[vi] = e[vi + 1] * 2.0         readers_of: y[vi] = …; inverse(e[j]): vi = j - 1
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from functools import lru_cache
from itertools import takewhile

from tilewright.analysis.accesses import accesses, mentions
from tilewright.analysis.domains import Domain, domain_of, single_axis
from tilewright.analysis.elements import covering, elements, touches
from tilewright.analysis.intervals import Range, Ranges
from tilewright.expr.nodes import Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops import nodes
from tilewright.loops.edit import blocks, loaded_buffers, loads, loads_of, loops_around, path_to, statements
from tilewright.loops.nodes import Alloc, Block, Buffer, CallFunction, For, Function, Load, LoopKind, Seq, Stmt, Store
from tilewright.schedule.facts.iterations import ORDERED, require_independent
from tilewright.schedule.find import allocation_of, nests, perfect_nest, stored_buffers
from tilewright.schedule.step import Obstacle


class Memory:
    """What the statements of a function touch. Buffers that share memory, as views do, count as one."""

    def __init__(self, function: Function) -> None:
        shared = [_shared(nest) for nest in nests(function)]
        self.sources = {view: source for views, _ in shared for view, source in views}
        self.given = {b for _, given in shared for b in given}

    def of(self, buffer: Buffer) -> Buffer:
        """The buffer whose memory this one is."""
        while buffer in self.sources:
            buffer = self.sources[buffer]
        return buffer

    def loaded(self, *stmts: Stmt) -> set[Buffer]:
        """The buffers that statements read, or pass to calls."""
        return {self.of(b) for s in stmts for b in (*loaded_buffers(s), *_shared(s)[1])}

    def stored(self, *stmts: Stmt) -> set[Buffer]:
        """The buffers that statements write, or pass to calls."""
        return {self.of(b) for s in stmts for b in (*stored_buffers(s), *_shared(s)[1])}

    def met(self, s: Stmt, reads: Set[Buffer], writes: Set[Buffer]) -> set[Buffer]:
        """The buffers over which a statement may not change places with what reads and writes these (Bernstein's
        conditions)."""
        return {b for b in self.stored(s) if b in reads or b in writes} | {b for b in self.loaded(s) if b in writes}

    def changes(self, stmts: Iterable[Stmt], buffers: Set[Buffer]) -> Iterator[tuple[Store | CallFunction, Buffer]]:
        """The stores and calls among statements that write one of these buffers, each with the first of them."""
        for s in stmts:
            if isinstance(s, Store | CallFunction) and (changed := buffers & self.stored(s)):
                yield s, min(changed, key=lambda b: b.name)

    def is_plain(self, buffer: Buffer) -> bool:
        """Whether loads and stores are all that touches a buffer: it has no view, and no call gets it."""
        return buffer not in {*self.sources, *self.sources.values(), *self.given}

    def other_use(self, s: Stmt, buffer: Buffer) -> str | None:
        """How a statement itself reaches the memory of a buffer but by its loads and stores; None where it does not."""
        own = self.of(buffer)
        match s:
            case nodes.View(made, source) if self.of(made) is own:
                return f"{source.name} and {made.name} are names of the same memory"
            case CallFunction(callee, _, arguments) if any(self.of(b) is own for b in arguments):
                return f"the call of {callee} may touch {buffer.name}"
            case nodes.Publish(b) if self.of(b) is own:
                return f"{buffer.name} is handed to the caller"
        reached = [load.buffer for load in own_loads(s)] + ([s.buffer] if isinstance(s, Store) else [])
        other = next((b for b in reached if b is not buffer and self.of(b) is own), None)
        return None if other is None else f"{other.name} is another name for the memory of {buffer.name}"


@lru_cache(maxsize=1 << 11)
def _shared(nest: Stmt) -> tuple[tuple[tuple[Buffer, Buffer], ...], tuple[Buffer, ...]]:
    """(the views in a statement, each with what it is a view of; the buffers that more than loads and stores use)."""
    inside = list(statements(nest))
    given = [b for s in inside if isinstance(s, CallFunction) for b in s.arguments]
    given += [s.buffer for s in inside if isinstance(s, nodes.Publish)]
    return tuple([(s.buffer, s.source) for s in inside if isinstance(s, nodes.View)]), tuple(given)


@lru_cache(maxsize=1 << 11)
def defined_in(nest: Stmt) -> frozenset[Buffer | Var]:
    """The buffers, views among them, and variables that begin to live in a statement."""
    inside = list(statements(nest))
    variables = [s.var for s in inside if isinstance(s, For | nodes.Let)]
    return frozenset([*variables, *(s.buffer for s in inside if isinstance(s, Alloc | nodes.View))])


def require_plain(function: Function, buffer: Buffer, root: Stmt | None = None) -> None:
    """Refuses where more than loads and stores of a buffer reach its memory: in the function, or in the
    statement `root`, where the buffer must not begin to live, either."""
    memory = Memory(function)
    names = (buffer, memory.of(buffer))
    if root is not None and not defined_in(root).isdisjoint(names):
        begin = next(s for s in statements(root) if isinstance(s, Alloc | nodes.View) and s.buffer in names)
        raise Obstacle(begin, f"{buffer.name} lives inside {word_of(root)}")
    for s in statements(root or function.body) if not memory.is_plain(buffer) else ():
        why = memory.other_use(s, buffer)
        if why is not None:
            raise Obstacle(s, why)


def prefetches_of(root: Stmt, buffer: Buffer) -> list[nodes.Prefetch]:
    """The statements in `root` that prefetch a buffer, by its place in memory."""
    return [s for s in statements(root) if isinstance(s, nodes.Prefetch) and s.place.buffer is buffer]


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


def box_of(root: Stmt, buffer: Buffer, is_store: bool | None = None) -> tuple[Range, ...] | None:
    """The box of a buffer that a statement touches, or loads, or stores; None where it does not."""
    found = [elements(t) for t in touches(root, buffer) if is_store in (None, t.access.is_store)]
    return covering(found) if found else None


def whole(shape: Sequence[Expr]) -> tuple[Range, ...]:
    """The box of all elements of a buffer of this shape."""
    return tuple(Range(const(0), simplify(extent)) for extent in shape)


@lru_cache(maxsize=1 << 11)
def own_loads(stmt: Stmt) -> tuple[Load, ...]:
    """The loads in a statement's own expressions, not those of statements inside it."""
    return tuple(dict.fromkeys(load for e in stmt.own() for load in loads_of(e)))


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


def filling_of(function: Function, buffer: Buffer) -> tuple[Stmt, Domain] | None:
    """(the nest of serial loops, one for each dimension, that alone fills a buffer, each element once and by itself;
    the points of its block). None where there is none."""
    stores = [s for s in statements(function.body) if isinstance(s, Store) and s.buffer is buffer]
    block = next((b for b in blocks(function.body) if b.body in stores), None)
    if len(stores) != 1 or block is None or block.reduce or buffer in loaded_buffers(block):
        return None
    loops = loops_around(function.body, block)[-len(block.axes) :] if block.axes else []
    nest, domain = [*loops, block][0], domain_of(block, loops)
    if isinstance(domain, str) or domain.conditions or perfect_nest(nest) != (loops, block):
        return None
    is_whole = domain.box == dict(zip(domain.store.indices, whole(buffer.shape), strict=True))
    return (nest, domain) if is_whole and all(loop.kind is LoopKind.SERIAL for loop in loops) else None


def nest_of(function: Function, block: Block) -> Stmt:
    """The outermost of the loops that hold nothing but loops down to the block; the block where there is none."""
    return [block, *takewhile(lambda s: isinstance(s, For), path_to(function.body, block)[-2::-1])][-1]


def inverse(indices: Sequence[Expr], box: Ranges) -> Callable[[Sequence[Expr]], dict[Expr, Expr]]:
    """The function from the values of `indices` over a block's axes to those of the axes, as far as they tell: an index
    tells one axis, and one that has a single value needs none."""
    single: dict[Expr, Expr] = {v: r.begin for v, r in box.items() if r.extent is const(1)}
    told = [(n, *axis) for n, index in enumerate(indices) if (axis := single_axis(index, box)) is not None]

    def axes_at(places: Sequence[Expr]) -> dict[Expr, Expr]:
        return single | {v: places[n] if at is const(0) else simplify(places[n] - at) for n, v, at in told}

    return axes_at


def readers_of(function: Function, buffer: Buffer) -> list[Stmt]:
    """The statements that load from a buffer, in program order."""
    reading = [s for nest in nests(function) if buffer in loaded_buffers(nest) for s in statements(nest)]
    return [s for s in reading if any(load.buffer is buffer for load in own_loads(s))]


def require_unchanged(function: Function, block: Block, reads: set[Buffer], after: Iterable[Stmt]) -> None:
    """None of these statements stores one of the buffers that the block reads."""
    for s, b in Memory(function).changes(after, reads):
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
