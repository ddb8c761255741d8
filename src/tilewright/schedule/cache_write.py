"""cache_write: what a nest computes stays in a local buffer, copied to its place when it is complete.

for i, k: block dot: y[i] += …      =>      alloc y.acc: f32[n] in arena
                                            for i, k: block dot: y.acc[i] += …
                                            for i2: block y.write: y[i2] = y.acc[i2]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.analysis.intervals import Range
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import allocations, loads, path_to, replace, statements, substitute_buffers
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
from tilewright.schedule.cache import local_scope
from tilewright.schedule.elements import (
    NOTHING,
    POINT,
    Elements,
    Touch,
    as_condition,
    contains,
    elements,
    tightened,
    touches,
    united,
    unwritten,
)
from tilewright.schedule.find import find_block
from tilewright.schedule.legality import access_text
from tilewright.schedule.names import unique_block, unique_buffer, unique_loops
from tilewright.schedule.place import Memory
from tilewright.schedule.predicates import conjunction
from tilewright.schedule.scopes import require_no_prefetch
from tilewright.schedule.step import Step, refusal
from tilewright.types.scopes import Scope


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
    values = dict(zip(POINT, points, strict=False))
    where = conjunction([substitute(as_condition(c), values) for c in part.conditions])
    made: Stmt = Block(name, tuple(axes), store(points), None, where)
    for loop in reversed(nest):
        made = loop.replace(body=made)
    return made


def _is_whole(found: Elements, buffer: Buffer) -> bool:
    return not found.conditions and found.box == tuple(Range(const(0), simplify(e)) for e in buffer.shape)
