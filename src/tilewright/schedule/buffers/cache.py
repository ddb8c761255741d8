"""cache_read, cache_write: a block reads a buffer, or writes it, through a local copy of it."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.loops.edit import allocations, loads, path_to, replace, statements, substitute_buffers
from tilewright.loops.nodes import Alloc, Block, Buffer, CallFunction, Function, Load, Seq, Stmt, Store, seq
from tilewright.schedule.buffers.local import (
    accessed,
    box_nest,
    dimension_names,
    exactly,
    fresh_loops,
    placed,
    require_no_prefetch,
    whole,
)
from tilewright.schedule.facts.elements import Elements, Touch, elements, tightened, touches, unwritten
from tilewright.schedule.facts.known import NOTHING
from tilewright.schedule.facts.place import Memory, defined_in, require_plain
from tilewright.schedule.find import find_block
from tilewright.schedule.legality import access_text
from tilewright.schedule.names import unique_block, unique_buffer
from tilewright.schedule.step import Step, refusal, rewritten


def cache_read(function: Function, block: str, buffer: str, *, scope: str = "arena") -> Step:
    """The block reads a local copy of the whole buffer, which a nest of loops of its own fills right before the
    top-level statement that holds the block. Returns the name of the block that copies, which is the buffer's, too:
    BUFFER.cache.

    for i: block y(vi = i): y[vi] = x[vi, 0]
              =>      alloc x.cache: f32[n, 4] in arena
                      for i2, d1: block x.cache(vi2 = i2, vd1 = d1): x.cache[vi2, vd1] = x[vi2, vd1]
                      for i: block y(vi = i): y[vi] = x.cache[vi, 0]
    """
    reader = find_block(function, block)
    what = f"cannot cache {buffer} for block {block}"
    source = accessed(function, reader, (load.buffer for load in loads(reader)), buffer, what)
    place = _top_level(function, reader)
    _require_unwritten(function, place, source, what)
    name = unique_buffer(function, f"{source.name}.cache")
    local = placed(function, Buffer(name, source.dtype, source.shape, source.scope), scope, reader, what)
    copy = box_nest(
        name,
        fresh_loops(function, dimension_names(reader, source)),
        Elements(whole(source.shape), (), True),
        lambda points: Store(local, points, Load(source, points)),
        singles=True,
    )
    reading = replace(place, reader, substitute_buffers(reader, {source: local}))
    evidence = f"nothing in the statement that holds {block} writes {source.name}"
    return rewritten(function, place, seq(Alloc(local), copy, reading), name, evidence)


def _top_level(function: Function, block: Block) -> Stmt:
    """The top-level statement that holds a block."""
    return next(s for s in path_to(function.body, block) if not isinstance(s, Seq))


def _require_unwritten(function: Function, place: Stmt, source: Buffer, what: str) -> None:
    """Refuses where the statement makes the buffer, or may write its memory under whatever name."""
    if source in defined_in(place):
        why = f"{source.name} lives inside the statement that holds the block"
        raise refusal(function, what, place, why=why, fix="cache what it is computed from")
    memory = Memory(function)
    for s in statements(place):
        if isinstance(s, Store | CallFunction) and memory.of(source) in memory.stored(s):
            word, part = ("writes", s.buffer.name) if isinstance(s, Store) else ("may write", s.callee)
            why = f"the statement that holds the block {word} {source.name}: a copy made before it would be out of date"
            raise refusal(function, what, s, why=why, part=part)


def cache_write(function: Function, block: str, *, scope: str = "arena") -> Step:
    """The top-level statement that holds the block stores to a local buffer, BUFFER.acc, instead of the block's output.
    A nest right after it copies the elements to their places. Returns the name of the block that copies: BUFFER.write.

    for i, k: block dot(vi = i, reduce vk = k): y[vi] += x[vi, vk]
              =>      alloc y.acc: f32[n] in arena
                      for i, k: block dot(vi = i, reduce vk = k): y.acc[vi] += x[vi, vk]
                      for i2: block y.write(vi2 = i2): y[vi2] = y.acc[vi2]

    Legal where the statement stores all elements of a box, and reads none before it stored it.
    """
    writer = find_block(function, block)
    what = f"cannot cache what block {block} writes"
    buffer = _output(function, writer, what)
    place = _top_level(function, writer)
    local = placed(function, buffer.replace(name=unique_buffer(function, f"{buffer.name}.acc")), scope, writer, what)
    if scope == "register":
        require_no_prefetch(function, place, buffer, what, 'take scope="stack"')
    stored = _stored(function, place, buffer, what)
    name = unique_block(function, f"{buffer.name}.write")
    loops = fresh_loops(function, ["ijlmnopq"[n] if n < 8 else f"i{n}" for n in range(len(buffer.shape))])
    copy = box_nest(name, loops, stored, lambda points: Store(buffer, points, Load(local, points)))
    made = seq(Alloc(local), substitute_buffers(place, {buffer: local}), copy)
    box = "all" if not stored.conditions and stored.box == whole(buffer.shape) else str(stored)
    evidence = f"the statement that holds {block} stores {box} of {buffer.name} before it reads it"
    return rewritten(function, place, made, name, evidence)


def _output(function: Function, writer: Block, what: str) -> Buffer:
    """The only buffer that the block stores to."""
    own = set(allocations(writer))
    stored = list(dict.fromkeys(s.buffer for s in statements(writer) if isinstance(s, Store) and s.buffer not in own))
    if len(stored) != 1:
        why = f"it stores to {', '.join(b.name for b in stored) or 'nothing'}"
        raise refusal(function, what, writer, why=why, fix="take a block with one output", part=writer.name)
    return stored[0]


def _stored(function: Function, place: Stmt, buffer: Buffer, what: str) -> Elements:
    """The elements that a top-level statement stores: it refuses where they are not all those of a box under some
    conditions, or where the statement reads of the buffer before it stored that."""
    require_plain(function, buffer, what, place)
    found = touches(place, buffer)
    missing = unwritten(found)
    if missing is not None:
        text = access_text(missing.access)
        why = f"it {text} before it stores all of that: a local buffer would hold nothing there"
        fix = f'keep a part of it while one loop runs, which loads first: stage("{buffer.name}", …)'
        raise refusal(function, what, missing.access.statement, why=why, fix=fix)
    stores = [t for t in found if t.access.is_store]
    parts = [tightened(elements(t), NOTHING) for t in stores]
    stored = exactly(parts, NOTHING)
    if stored is None:
        raise refusal(function, what, stores[0].access.statement, why=_partly(stores, parts))
    return stored


def _partly(stores: Sequence[Touch], parts: Sequence[Elements]) -> str:
    """Why the elements that are stored are not known."""
    for touch, part in zip(stores, parts, strict=True):
        if not part.exact:
            stored = access_text(touch.access).removeprefix("stores ")
            return f"nothing says that what it stores, {stored}, is all of {part}: the rest would be overwritten"
    return f"it stores {', '.join(map(str, parts))}, which is no box: the rest would be overwritten"
