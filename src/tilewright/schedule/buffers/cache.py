"""cache_read, cache_write: a block reads a buffer, or writes it, through a local copy.

for i, j, k: block dot: y[i, j] += x[i, k] * w[k, j]

cache_read("dot", "w")   =>     alloc w.cache: f32[77, 45] in arena
                                for k2, j2: block w.cache: w.cache[k2, j2] = w[k2, j2]
                                for i, j, k: block dot: y[i, j] += x[i, k] * w.cache[k, j]

cache_write("dot")       =>     alloc y.acc: f32[33, 45] in arena
                                for i, j, k: block dot: y.acc[i, j] += x[i, k] * w[k, j]
                                for i2, j2: block y.write: y[i2, j2] = y.acc[i2, j2]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.analysis.intervals import Range
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import (
    allocations,
    blocks,
    loads,
    map_loads,
    path_to,
    replace,
    statements,
    substitute_buffers,
)
from tilewright.loops.nodes import (
    Alloc,
    Axis,
    AxisKind,
    Block,
    Buffer,
    CallFunction,
    For,
    Function,
    Load,
    LoopKind,
    Publish,
    Seq,
    Stmt,
    Store,
    View,
    seq,
)
from tilewright.schedule.buffers.scopes import LOCAL, require_no_prefetch
from tilewright.schedule.facts.elements import (
    Elements,
    Touch,
    as_condition,
    contains,
    elements,
    point,
    tightened,
    touches,
    united,
    unwritten,
)
from tilewright.schedule.facts.known import NOTHING
from tilewright.schedule.facts.place import Memory
from tilewright.schedule.facts.predicates import conjunction
from tilewright.schedule.find import find_block, find_buffer, nested
from tilewright.schedule.legality import access_text
from tilewright.schedule.names import unique_block, unique_buffer, unique_loops
from tilewright.schedule.step import Step, refusal
from tilewright.types.scopes import Scope


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
    source = _source(function, reader, buffer, what)
    place = next(s for s in path_to(function.body, reader) if not isinstance(s, Seq))
    _require_unwritten(function, place, source, what)
    where = local_scope(function, reader, source, scope, what)
    name = unique_buffer(function, f"{source.name}.cache")
    local = Buffer(name, source.dtype, source.shape, where)
    loops = [Var(each) for each in unique_loops(function, dimension_names(reader, source))]
    copy = point_nest(local.name, loops, source.shape, lambda points: Store(local, points, Load(source, points)))
    reading = map_loads(reader, lambda load: Load(local, load.indices) if load.buffer is source else load)
    made = seq(Alloc(local), copy, replace(place, reader, reading))
    evidence = (f"nothing in the statement that holds {block} writes {source.name}",)
    return Step(function.replace(body=replace(function.body, place, made)), name, evidence)


def _source(function: Function, reader: Block, name: str, what: str) -> Buffer:
    """The buffer of this name that the block reads: a parameter, a local buffer or a constant of the module."""
    read = list(dict.fromkeys(load.buffer for load in loads(reader)))
    found = [b for b in read if b.name == name]
    if len(found) == 1:
        return found[0]
    if not found:
        find_buffer(function, name)
    names = ", ".join(b.name for b in read) or "nothing"
    why = f"it reads {names}" if not found else f"it reads {len(found)} buffers of this name"
    raise refusal(function, what, reader, why=why, part=reader.name)


def _require_unwritten(function: Function, place: Stmt, source: Buffer, what: str) -> None:
    """Refuses where the statement makes the buffer, or may write its memory under whatever name."""
    if source in allocations(place) or any(isinstance(s, View) and s.buffer is source for s in statements(place)):
        why = f"{source.name} lives inside the statement that holds the block"
        raise refusal(function, what, place, why=why, fix="cache what it is computed from")
    memory = Memory(function)
    own = memory.of(source)
    for s in statements(place):
        if isinstance(s, Store) and memory.of(s.buffer) is own:
            why = f"the statement that holds the block writes {source.name}: a copy made before it would be out of date"
            raise refusal(function, what, s, why=why, part=s.buffer.name)
        if isinstance(s, CallFunction) and any(memory.of(b) is own for b in s.arguments):
            why = f"the call of {s.callee} may write {source.name}"
            raise refusal(function, what, s, why=why, part=s.callee)


def local_scope(function: Function, reader: Block, source: Buffer, scope: str, what: str) -> Scope:
    """The scope of this name for a local copy of `source`; refuses where it cannot live there."""
    found = [s for s in LOCAL if s.value == scope]
    if not found:
        fix = f"take one of {', '.join(s.value for s in LOCAL)}"
        raise refusal(function, what, reader, why=f'no local buffer lives in "{scope}"', fix=fix, part=reader.name)
    unknown = [e for e in source.shape if not isinstance(simplify(e), Const)]
    if found[0] in (Scope.REGISTER, Scope.STACK) and unknown:
        why = f"its dimension {unknown[0]} is known only when the program runs"
        raise refusal(function, what, reader, why=why, fix='take scope="arena"', part=reader.name)
    return found[0]


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
    place = next(s for s in path_to(function.body, writer) if not isinstance(s, Seq))
    where = local_scope(function, writer, buffer, scope, what)
    if where is Scope.REGISTER:
        require_no_prefetch(function, place, buffer, what, 'take scope="stack"')
    found = written_elements(function, place, buffer)
    if isinstance(found, Obstacle):
        raise refusal(function, what, found.at, why=found.why, fix=found.fix)
    made, name = write_through(function, place, buffer, found, where)
    box = "all" if _is_whole(found, buffer) else str(found)
    return Step(made, name, (f"the statement that holds {block} stores {box} of {buffer.name} before it reads it",))


def _output(function: Function, writer: Block, what: str) -> Buffer:
    """The only buffer that the block stores to."""
    own = set(allocations(writer))
    stored = list(dict.fromkeys(s.buffer for s in statements(writer) if isinstance(s, Store) and s.buffer not in own))
    if len(stored) != 1:
        why = f"it stores to {', '.join(b.name for b in stored) or 'nothing'}"
        raise refusal(function, what, writer, why=why, fix="take a block with one output", part=writer.name)
    return stored[0]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a statement cannot store to a local buffer."""

    at: Stmt
    why: str
    fix: str | None = None


def written_elements(function: Function, place: Stmt, buffer: Buffer) -> Elements | Obstacle:
    """The elements that a top-level statement stores, if they are all those of a box under some conditions, and it
    reads nothing of the buffer before it stored it."""
    obstacle = shared_inside(function, place, buffer)
    if obstacle is not None:
        return obstacle
    found = touches(place, buffer)
    missing = unwritten(found)
    if missing is not None:
        text = access_text(missing.access)
        why = f"it {text} before it stores all of that: a local buffer would hold nothing there"
        fix = f'keep a part of it while one loop runs, which loads first: stage("{buffer.name}", …)'
        return Obstacle(missing.access.statement, why, fix)
    stores = [t for t in found if t.access.is_store]
    parts = [tightened(elements(t), NOTHING) for t in stores]
    for candidate in [*united(parts), *(p for p in parts if p.exact)]:
        if all(contains(candidate, part, NOTHING) for part in parts):
            return candidate
    return Obstacle(stores[0].access.statement, _partly(stores, parts))


def _partly(stores: Sequence[Touch], parts: Sequence[Elements]) -> str:
    """Why the elements that are stored are not known."""
    for touch, part in zip(stores, parts, strict=True):
        if not part.exact:
            stored = access_text(touch.access).removeprefix("stores ")
            return f"nothing says that what it stores, {stored}, is all of {part}: the rest would be overwritten"
    return f"it stores {', '.join(map(str, parts))}, which is no box: the rest would be overwritten"


def shared_inside(function: Function, place: Stmt, buffer: Buffer) -> Obstacle | None:
    """Where something inside the statement makes the buffer, gets at its memory under another name, or passes it on."""
    memory = Memory(function)
    own = memory.of(buffer)
    for s in statements(place):
        match s:
            case Alloc(b) | View(b, _) if memory.of(b) is own:
                return Obstacle(s, f"{buffer.name} lives inside {_word(place)}")
            case CallFunction(callee, _, arguments) if any(memory.of(b) is own for b in arguments):
                return Obstacle(s, f"the call of {callee} may touch {buffer.name}")
            case Publish(b) if memory.of(b) is own:
                return Obstacle(s, f"{buffer.name} is published inside {_word(place)}")
    seen = {load.buffer for load in loads(place)} | {s.buffer for s in statements(place) if isinstance(s, Store)}
    other = next((b for b in seen if b is not buffer and memory.of(b) is own), None)
    return None if other is None else Obstacle(place, f"{other.name} is another name for the memory of {buffer.name}")


def _word(stmt: Stmt) -> str:
    return f"loop {stmt.var.name}" if isinstance(stmt, For) else "the statement"


def write_through(
    function: Function, place: Stmt, buffer: Buffer, stored: Elements, scope: Scope = Scope.ARENA
) -> tuple[Function, str]:
    """The function with the statement's accesses of `buffer` made to a local buffer, from which the elements `stored`
    are copied; and the name of the block that copies."""
    local = buffer.replace(name=unique_buffer(function, f"{buffer.name}.acc"), scope=scope)
    name = unique_block(function, f"{buffer.name}.write")
    words = ["ijlmnopq"[n] if n < 8 else f"i{n}" for n in range(len(buffer.shape))]
    loops = [Var(word) for word in unique_loops(function, words)]
    copy = copy_nest(name, loops, stored, lambda points: Store(buffer, points, Load(local, points)))
    made = seq(Alloc(local), substitute_buffers(place, {buffer: local}), copy)
    return function.replace(body=replace(function.body, place, made)), name


def copy_nest(name: str, loops: Sequence[Var], part: Elements, store: Callable[[tuple[Expr, ...]], Stmt]) -> Stmt:
    """A block that runs store(indices) for each of some elements, in a serial loop for each dimension."""
    axes: list[Axis] = []
    nest: list[For] = []
    for var, r in zip(loops, part.box, strict=True):
        binding = simplify(r.begin + var)
        if isinstance(r.extent, Const) and r.extent.value == 1:
            binding = r.begin
        else:
            nest.append(For(var, const(0), r.extent, LoopKind.SERIAL, Seq(())))
        axes.append(Axis(Var("v" + var.name), AxisKind.SPATIAL, binding))
    points = tuple(a.var for a in axes)
    values = dict(zip(point(len(points)), points, strict=True))
    where = conjunction([substitute(as_condition(c), values) for c in part.conditions])
    return nested(nest, Block(name, tuple(axes), store(points), None, where))


def _is_whole(found: Elements, buffer: Buffer) -> bool:
    return not found.conditions and found.box == tuple(Range(const(0), simplify(e)) for e in buffer.shape)


def point_nest(
    name: str, loops: Sequence[Var], shape: Sequence[Expr], body: Callable[[tuple[Expr, ...]], Stmt]
) -> Stmt:
    """A block that runs `body(axes)` at each point of the shape, in a serial loop for each dimension."""
    axes = tuple(Axis(Var("v" + v.name), AxisKind.SPATIAL, v) for v in loops)
    block = Block(name, axes, body(tuple(a.var for a in axes)))
    return nested([For(v, const(0), e, LoopKind.SERIAL, block) for v, e in zip(loops, shape, strict=True)], block)


def dimension_names(body: Stmt, buffer: Buffer) -> list[str]:
    """A name for each dimension: that of the axis that the first block to touch the buffer has there, or d0, d1 …"""
    for block in blocks(body):
        axes = {a.var for a in block.axes}
        places = [s.indices for s in statements(block) if isinstance(s, Store) and s.buffer is buffer]
        places += [load.indices for load in loads(block) if load.buffer is buffer]
        for indices in places:
            return [
                i.name.removeprefix("v") or i.name if isinstance(i, Var) and i in axes else f"d{n}"
                for n, i in enumerate(indices)
            ]
    return [f"d{n}" for n in range(len(buffer.shape))]
