"""reverse_inline: a consumer that works point by point is computed where its producer stores.

for i: block h(vi = i): h[vi] = x[vi] * 2.0
for i: block y(vi = i): y[vi] = max(h[vi], 0.0)      =>      for i: block h(vi = i): y[vi] = max(x[vi] * 2.0, 0.0)
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Expr
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import allocations, loads, path_to, replace, statements
from tilewright.loops.nodes import Block, Buffer, For, Function, LoopKind, Seq, Stmt, Store
from tilewright.report.errors import UserError
from tilewright.schedule.facts.domain import Domain, domain_of, is_one, single_axis, values_of
from tilewright.schedule.facts.known import NOTHING
from tilewright.schedule.facts.place import (
    Memory,
    Place,
    allocations_between,
    in_sequence,
    own_loads,
    place,
    require_apart,
    require_only_writer,
    single_store,
    without,
)
from tilewright.schedule.find import allocation_of, find_block, writers_of
from tilewright.schedule.step import Step, refusal


def reverse_inline(function: Function, block: str) -> Step:
    """The producer applies the block's expression to its result, and stores directly to the block's buffer. The block,
    its loops and the producer's buffer disappear.

    Legal where the block alone reads the producer's buffer, each element once, and the producer does not accumulate.
    """
    consumer = find_block(function, block)
    what = f"cannot inline {block} into its producer"
    store = single_store(function, consumer, what)
    if consumer.reduce or consumer.init is not None:
        why = f"{block} adds up"
        raise refusal(
            function, what, consumer, why=why, fix=f'move it instead: reverse_compute_at("{block}", …)', part=block
        )
    read = {load.buffer for load in loads(consumer)} - {store.buffer}
    faults: list[UserError] = []
    for buffer in (b for b in allocations(function.body) if b in read):
        try:
            return _merged(function, consumer, buffer, what)
        except UserError as error:
            faults.append(error)
    if faults:
        raise faults[0]
    raise refusal(function, what, consumer, why=f"{block} reads no local buffer", part=block)


def _merged(function: Function, consumer: Block, buffer: Buffer, what: str) -> Step:
    """The step that takes out one buffer between a producer and the consumer."""
    producer = _producer(function, consumer, buffer, what)
    found = place(function, consumer, producer, what)
    _require_order(function, found, what)
    memory = Memory(function)
    require_apart(function, found, memory, what)
    changed = (memory.loaded(consumer) & memory.stored(found.other)) - {buffer}
    if changed:
        why = f"{min(b.name for b in changed)}, which {consumer.name} reads, is stored there, too"
        raise refusal(function, what, found.other, why=why)
    merged = _merge(function, found, producer, buffer, what)
    allocs = allocations_between(function, found, what)
    other = merged if found.other is producer else replace(found.other, producer, merged)
    changes: dict[Stmt, tuple[Stmt, ...]] = {found.nest: (), found.other: (*allocs, other), **dict.fromkeys(allocs, ())}
    made = in_sequence(function, found.parent, changes)
    alloc = allocation_of(made, buffer)
    assert alloc is not None
    evidence = (
        f"{consumer.name} alone reads {buffer.name}, and each element of it once",
        f"nothing between {producer.name} and {consumer.name} touches what {consumer.name} reads or stores",
    )
    return Step(made.replace(body=without(made.body, alloc)), None, evidence)


def _producer(function: Function, consumer: Block, buffer: Buffer, what: str) -> Block:
    """The block that fills the buffer, which the consumer alone reads."""
    writers = writers_of(function, buffer)
    if not writers:
        raise refusal(function, what, consumer, why=f"no block stores {buffer.name}", part=consumer.name)
    producer = writers[0]
    if producer.reduce or producer.init is not None:
        why = f"{producer.name} adds up: what {consumer.name} needs is complete only at its end"
        raise refusal(
            function,
            what,
            producer,
            why=why,
            fix=f'move it instead: reverse_compute_at("{consumer.name}", …)',
            part=producer.name,
        )
    inside = {*statements(consumer), *statements(producer)}
    for s in statements(function.body):
        if s not in inside and any(load.buffer is buffer for load in own_loads(s)):
            raise refusal(function, what, s, why=f"{buffer.name} is read here, too")
    single_store(function, producer, what)
    require_only_writer(function, producer, buffer, what, f"{buffer.name} must stay")
    return producer


def _require_order(function: Function, found: Place, what: str) -> None:
    """The producer comes first, and runs always."""
    if not found.is_after:
        raise refusal(function, what, found.block, why=f"{found.block.name} comes before what it reads is stored")
    for s in path_to(found.other, found.target)[:-1]:
        if not isinstance(s, For | Seq) or (isinstance(s, For) and s.kind is LoopKind.INSTRUCTION):
            word = type(s).__name__.lower()
            raise refusal(function, what, s, why=f"the {word} around the producer decides what of it runs")


def _merge(function: Function, found: Place, producer: Block, buffer: Buffer, what: str) -> Block:
    """The producer's block with the consumer's expression in it."""
    reading = found.domain
    writing = domain_of(producer, [s for s in path_to(found.other, producer) if isinstance(s, For)])
    if isinstance(writing, str):
        raise refusal(function, what, producer, why=writing)
    source, sink = writing.block.body, reading.block.body
    assert isinstance(source, Store)
    assert isinstance(sink, Store)
    (load, *others) = [e for e in loads(sink) if e.buffer is buffer]
    if others:
        why = f"{found.block.name} reads several elements of {buffer.name} for one of its own"
        raise refusal(function, what, found.block.body, why=why, fix=f'inline("{producer.name}") instead')
    values: dict[Expr, Node] = {load: source.value}
    for dim, (mine, theirs) in enumerate(zip(load.indices, source.indices, strict=True)):
        axis = single_axis(mine, reading.box)
        if not _same_range(mine, reading, theirs, writing):
            names = f"{found.block.name} and {producer.name}"
            parts = " and ".join(str(r) for r in (values_of(mine, reading), values_of(theirs, writing)))
            why = f"in dimension {dim} of {buffer.name}, {names} run for {parts}"
            raise refusal(function, what, found.block, why=why)
        if axis is not None:
            values[axis[0]] = simplify(theirs - axis[1])
    for var, part in reading.box.items():
        if var not in values and not is_one(part.extent):
            why = f"{found.block.name} reads the same element of {buffer.name} for each {var.name}"
            raise refusal(function, what, found.block, why=why, fix=f'inline("{producer.name}") instead')
        values.setdefault(var, part.begin)
    if reading.conditions or writing.conditions:
        at = found.block if reading.conditions else producer
        raise refusal(function, what, at, why=f"the condition of {at.name} is no range of its axes")
    indices = tuple(substitute(i, values) for i in sink.indices)
    return producer.replace(body=Store(sink.buffer, indices, substitute(sink.value, values)))


def _same_range(mine: Expr, reading: Domain, theirs: Expr, writing: Domain) -> bool:
    """Whether two indices take the same values, each once."""
    one, two = values_of(mine, reading), values_of(theirs, writing)
    if one is None or two is None:
        return False
    return NOTHING.within(one, two) and NOTHING.within(two, one)
