"""inline, reverse_inline: a buffer between a producer and its readers disappears.

block e(vi = i): e[vi] = exp(x[vi])
block y(vi = i): y[vi] = e[vi] * 2.0

inline("e")            =>      block y(vi = i): y[vi] = exp(x[vi]) * 2.0        y's nest: each reader computes it itself
reverse_inline("y")    =>      block e(vi = i): y[vi] = exp(x[vi]) * 2.0        e's nest: computed where e was
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.intervals import Range
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Expr, const
from tilewright.loops.edit import allocations, loaded_buffers, loads, map_loads, path_to, replace, statements
from tilewright.loops.nodes import Alloc, Block, Buffer, Function, Load, LoopKind, Prefetch, Seq, Stmt, Store
from tilewright.report.errors import UserError
from tilewright.schedule.facts.boxes import Domain, touches, unwritten, values_of
from tilewright.schedule.facts.known import NOTHING
from tilewright.schedule.facts.place import (
    Memory,
    Place,
    domain_in,
    filled_by,
    inverse,
    moved_into,
    nest_of,
    own_loads,
    place,
    readers_of,
    require_apart,
    require_pointwise,
    require_reached,
    require_unchanged,
    single_store,
    without,
    word_of,
)
from tilewright.schedule.find import allocation_of, find_block, writers_of
from tilewright.schedule.step import Step, refusal


def inline(function: Function, block: str) -> Step:
    """Each reader of the block's buffer computes the elements that it reads itself; block and buffer disappear.

    Legal if the block computes one expression for each element, nothing else stores to its buffer, and the values that
    the expression reads are unchanged at all readers.
    """
    made, readers = inlined(function, find_block(function, block))
    places = f"{readers} statement{'s' * (readers != 1)}"
    return Step(made, None, (f"{places} compute it instead, from what {block} read",))


def inlined(function: Function, block: Block) -> tuple[Function, int]:
    """The function without a block and its buffer, where loads are the expression that defines the element; and how
    many statements load."""
    what = f"cannot inline {block.name}"
    require_pointwise(function, block, what, f'compute_at("{block.name}", …)')
    buffer = filled_by(function, block, what, "only local buffers disappear; move what reads it: reverse_inline").buffer
    nest = nest_of(function, block)
    require_reached(function, path_to(function.body, nest)[-2:-1], f"block {block.name}", what)
    domain = domain_in(function, nest, block, what)
    store, box = domain.store, domain.box
    axes_at = inverse(store.indices, box)
    told = axes_at(store.indices)
    untold = next((axis for axis in box if axis not in told), None)
    if untold is not None:
        raise refusal(function, what, block.body, why=f"no index of {buffer.name} says what {untold.name} is")
    readers = readers_of(function, buffer)
    _require_readable(function, block, domain, readers, what)
    alloc = allocation_of(function, buffer)
    assert alloc is not None
    _require_lasting(function, block, nest, alloc, readers, what)

    def change(load: Load) -> Expr:
        return substitute(store.value, axes_at(load.indices)) if load.buffer is buffer else load

    def stays(stmt: Stmt) -> bool:
        return not isinstance(stmt, Seq) and buffer not in loaded_buffers(stmt)

    kept = without(without(function.body, nest), alloc)
    return function.replace(body=map_loads(kept, change, stays=stays)), len(readers)


def _require_readable(function: Function, block: Block, domain: Domain, readers: Sequence[Stmt], what: str) -> None:
    """Readers load single elements that the block stored, after it did."""
    buffer = domain.store.buffer
    order = {s: n for n, s in enumerate(statements(function.body))}
    for s in readers:
        if isinstance(s, Prefetch):
            raise refusal(function, what, s, why=f"{buffer.name} is prefetched here")
        if order[s] < order[block]:
            raise refusal(function, what, s, why=f"{buffer.name} is read before {block.name} stores it")
        if any(i.lanes != 1 for load in own_loads(s) if load.buffer is buffer for i in load.indices):
            raise refusal(function, what, s, why="a vector is read at once", fix="inline before it is a vector")
    missing = None if _fills(domain) else unwritten(touches(function.body, buffer))
    if missing is not None:
        why = f"block {block.name} may not have stored all that is read of {buffer.name} here"
        raise refusal(function, what, missing.access.statement, why=why)


def _fills(domain: Domain) -> bool:
    """Whether the block stores every element of its buffer."""
    store = domain.store
    parts = [(values_of(i, domain), Range(const(0), e)) for i, e in zip(store.indices, store.buffer.shape, strict=True)]
    return not domain.conditions and all(part is not None and NOTHING.within(whole, part) for part, whole in parts)


def _require_lasting(
    function: Function, block: Block, nest: Stmt, alloc: Alloc, readers: Sequence[Stmt], what: str
) -> None:
    """Readers are inside all that the nest is inside of since its buffer is there, so that they know what the block
    knows, and nothing that it reads changes meanwhile."""
    holder = path_to(function.body, alloc)[-2]
    for around in path_to(holder, nest)[1:-1]:
        within = set(statements(around))
        late = next((s for s in readers if s not in within), None)
        if late is not None:
            raise refusal(function, what, late, why=f"{block.name} is inside {word_of(around)}, this is not")
    after = list(statements(holder))
    require_unchanged(function, block, Memory(function).loaded(block), after[after.index(block) + 1 :], what)


def reverse_inline(function: Function, block: str) -> Step:
    """The producer applies the block's expression to its result, and stores directly to the block's buffer. The block,
    its loops and the producer's buffer disappear.

    Legal where the block alone reads the producer's buffer, each element once, and the producer does not accumulate.
    """
    consumer = find_block(function, block)
    what = f"cannot inline {block} into its producer"
    store = single_store(function, consumer, what)
    require_pointwise(function, consumer, what, f'reverse_compute_at("{block}", …)')
    read = loaded_buffers(consumer) - {store.buffer}
    faults: list[UserError] = []
    for buffer in (b for b in allocations(function.body) if b in read and writers_of(function, b)):
        try:
            return _merged(function, consumer, buffer, what)
        except UserError as error:
            faults.append(error)
    nothing = refusal(function, what, consumer, why=f"{block} reads no local buffer that a block fills", part=block)
    raise [*faults, nothing][0]


def _merged(function: Function, consumer: Block, buffer: Buffer, what: str) -> Step:
    """The step that takes out one buffer between a producer and the consumer."""
    producer = _producer(function, consumer, buffer, what)
    found = place(function, consumer, producer, what)
    if not found.is_after:
        raise refusal(function, what, consumer, why=f"{consumer.name} comes before what it reads is stored")
    path = path_to(found.other, producer)[:-1]
    require_reached(function, path, f"block {producer.name}", what, closed=(LoopKind.INSTRUCTION,))
    memory = Memory(function)
    require_apart(function, found, memory, what)
    changed = (memory.loaded(consumer) & memory.stored(found.other)) - {buffer}
    if changed:
        why = f"{min(b.name for b in changed)}, which {consumer.name} reads, is stored there, too"
        raise refusal(function, what, found.other, why=why)
    other = replace(found.other, producer, _merge(function, found, producer, buffer, what))
    made = moved_into(function, found, other, what)
    alloc = allocation_of(made, buffer)
    assert alloc is not None
    evidence = (
        f"{consumer.name} alone reads {buffer.name}, and each element of it once",
        f"nothing between {producer.name} and {consumer.name} touches what {consumer.name} reads or stores",
    )
    return Step(made.replace(body=without(made.body, alloc)), None, evidence)


def _producer(function: Function, consumer: Block, buffer: Buffer, what: str) -> Block:
    """The block that fills the buffer, which the consumer alone reads."""
    producer = writers_of(function, buffer)[0]
    require_pointwise(function, producer, what, f'reverse_compute_at("{consumer.name}", …)')
    inside = {*statements(consumer), *statements(producer)}
    other = next((s for s in readers_of(function, buffer) if s not in inside), None)
    if other is not None:
        raise refusal(function, what, other, why=f"{buffer.name} is read here, too")
    filled_by(function, producer, what, f"{buffer.name} must stay")
    return producer


def _merge(function: Function, found: Place, producer: Block, buffer: Buffer, what: str) -> Block:
    """The producer's block with the consumer's expression in it."""
    consumer, reading = found.block, found.domain
    writing = domain_in(function, found.other, producer, what)
    source, sink = writing.store, reading.store
    (load, *others) = [e for e in loads(sink) if e.buffer is buffer]
    if others:
        why = f"{consumer.name} reads several elements of {buffer.name} for one of its own"
        raise refusal(function, what, consumer.body, why=why, fix=f'inline("{producer.name}") instead')
    for dim, (mine, theirs) in enumerate(zip(load.indices, source.indices, strict=True)):
        one, two = values_of(mine, reading), values_of(theirs, writing)
        if one is None or two is None or not (NOTHING.within(one, two) and NOTHING.within(two, one)):
            names = f"{consumer.name} and {producer.name}"
            why = f"in dimension {dim} of {buffer.name}, {names} run for {one} and {two}"
            raise refusal(function, what, consumer, why=why)
    axes = inverse(load.indices, reading.box)(source.indices)
    untold = next((axis for axis in reading.box if axis not in axes), None)
    if untold is not None:
        why = f"{consumer.name} reads the same element of {buffer.name} for each {untold.name}"
        raise refusal(function, what, consumer, why=why, fix=f'inline("{producer.name}") instead')
    if reading.conditions or writing.conditions:
        at = consumer if reading.conditions else producer
        raise refusal(function, what, at, why=f"the condition of {at.name} is no range of its axes")
    values = {load: source.value, **axes}
    indices = tuple(substitute(i, values) for i in sink.indices)
    return producer.replace(body=Store(sink.buffer, indices, substitute(sink.value, values)))
