"""compute_at: each iteration of a consumer's loop computes the producer's points that it reads.

for i, k: block s(vi = i, reduce vk = k): s[vi] += x[vi, vk]          for i:
for i: block y(vi = i): y[vi] = sqrt(s[vi])                    =>       for k: block s(vi = i, …): s[vi] += x[vi, vk]
                                                                        block y(vi = i): y[vi] = sqrt(s[vi])
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.accesses import accesses, mentions
from tilewright.analysis.dependences import carried
from tilewright.analysis.intervals import Range
from tilewright.expr.nodes import Var
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import loads, loops_around, path_to, replace, statements
from tilewright.loops.nodes import Block, Buffer, CallFunction, For, Function, LoopKind, Stmt, Store, seq
from tilewright.report.errors import UserError
from tilewright.schedule.buffers.compact import touched_box
from tilewright.schedule.facts.domain import known_in, nest_over, own_accesses, single_axis
from tilewright.schedule.facts.elements import touches, unwritten
from tilewright.schedule.facts.place import (
    Memory,
    Place,
    in_sequence,
    own_loads,
    place,
    require_only_writer,
    single_store,
)
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.step import Step, refusal

TOGETHER = (LoopKind.PARALLEL, LoopKind.VECTORIZE, LoopKind.THREAD)
"""The loops whose iterations may run at the same time."""


def compute_at(function: Function, block: str, loop: Var) -> Step:
    """The block runs at the beginning of each iteration of the loop, on a box of points that holds all that the
    iteration reads. It gets new loops: one for each spatial axis, called like it, and inside them those of its reduce
    axes. Points that several iterations read are computed by each of them.

    Legal if all readers of the block's buffer are in the loop, or come after it and read elements that its iterations
    have computed, and if nothing in between changes what the block reads. The buffer keeps its size: compact shrinks it
    to the box.
    """
    return computed_at(function, find_block(function, block), find_loop(function, loop))


def computed_at(function: Function, producer: Block, target: For) -> Step:
    """The step that moves a block into a loop."""
    block, name = producer.name, target.var.name
    what = f"cannot compute {block} in loop {name}"
    store = single_store(function, producer, what)
    buffer = store.buffer
    fix = "cache_write gives the block a local buffer"
    require_only_writer(function, producer, buffer, what, fix)
    found = place(function, producer, target, what)
    if found.is_after:
        why = f"{block} comes after loop {name}"
        raise refusal(function, what, producer, why=why, fix=f'reverse_compute_at("{block}", {name})')
    later = _readers_outside(function, found, buffer, what)
    _require_unchanged(function, found, what)
    _require_path(function, found, what)
    read = [a for a in accesses(target.body) if a.buffer is buffer and not a.is_store]
    box = touched_box(target, buffer, read)
    nest = nest_over(found.domain, _part(function, found, store, box, what), found.around_loop())
    fresh = replace(found.other, target, target.replace(body=seq(nest, target.body)))
    made = in_sequence(function, found.parent, {found.nest: (), found.other: (fresh,)})
    _require_no_race(function, made, found, buffer, what)
    inside = [t for t in touches(made.body, buffer) if t.access.is_store or t.access.statement in later]
    uncovered = unwritten(inside) if later else None
    if uncovered is not None:
        raise _read_outside(function, uncovered.access.statement, buffer, name, what)
    others = "what reads it later reads what was computed" if later else "nothing else reads it"
    evidence = (
        f"an iteration of {name} reads {buffer.name}[{', '.join(map(str, box))}] at most, and {others}",
        f"nothing in between stores what {block} reads",
    )
    return Step(made, None, evidence)


def _readers_outside(function: Function, found: Place, buffer: Buffer, what: str) -> list[Stmt]:
    """What reads the buffer and is not in the loop, but comes after all of it."""
    inside = {*statements(found.loop.body), *statements(found.block)}
    outside, begun = list[Stmt](), False
    for s in statements(function.body):
        begun = begun or s is found.loop
        if s not in inside and any(load.buffer is buffer for load in own_loads(s)):
            if not begun:
                raise _read_outside(function, s, buffer, found.loop.var.name, what)
            outside.append(s)
    if not any(load.buffer is buffer for load in loads(found.loop.body)):
        raise refusal(function, what, found.loop, why=f"nothing in loop {found.loop.var.name} reads {buffer.name}")
    return outside


def _read_outside(function: Function, s: Stmt, buffer: Buffer, name: str, what: str) -> UserError:
    why = f"{buffer.name} is read here, outside loop {name}"
    return refusal(function, what, s, why=why, fix=f"move this into {name} first, or take a loop around both")


def _require_unchanged(function: Function, found: Place, what: str) -> None:
    """Nothing from the block's place to the loop's last iteration stores what the block reads."""
    memory = Memory(function)
    reads = memory.loaded(found.nest) - memory.stored(found.nest)
    for s in (*found.between, found.other):
        for each in statements(s):
            changed = reads & memory.stored(each) if isinstance(each, Store | CallFunction) else set()
            if changed:
                why = f"it stores {min(b.name for b in changed)}, which {found.block.name} reads"
                raise refusal(function, what, each, why=why)


def _require_path(function: Function, found: Place, what: str) -> None:
    """Loops of a nest can stand where they will."""
    for s in path_to(found.other, found.loop):
        if isinstance(s, Block):
            raise refusal(function, what, s, why=f"loop {found.loop.var.name} is inside block {s.name}")
        if isinstance(s, For) and s.kind in (LoopKind.VECTORIZE, LoopKind.INSTRUCTION):
            word = "vectorized" if s.kind is LoopKind.VECTORIZE else "an instruction"
            fix = f"move {found.block.name} before that step"
            raise refusal(function, what, s, why=f"loop {s.var.name} is {word}", fix=fix)


def _part(function: Function, found: Place, store: Store, box: Sequence[Range], what: str) -> dict[Var, Range]:
    """The values of the block's axes that fill the box."""
    domain = found.domain
    indices = next(a.indices for a in own_accesses(domain) if a.is_store)
    known = known_in(tuple(found.around_loop()))
    part: dict[Var, Range] = {}
    for index, needed in zip(indices, box, strict=True):
        if not mentions(index, set(domain.box)):
            continue
        axis = single_axis(index, domain.box)
        if axis is None or axis[0] in part:
            why = f"the points of {found.block.name} that store a part of {store.buffer.name} are not a box: {index}"
            raise refusal(function, what, store, why=why)
        values = Range(simplify(needed.begin - axis[1]), needed.extent)
        whole = domain.box[axis[0]]
        if known.within(values, whole) or not known.within(whole, values):
            part[axis[0]] = values
    return part


def _require_no_race(function: Function, made: Function, found: Place, buffer: Buffer, what: str) -> None:
    """Iterations that may run at the same time do not compute the same points."""
    for loop in found.around_loop():
        if loop.kind in TOGETHER:
            fresh = find_loop(made, loop.var)
            met = [d for d in carried(fresh, loops_around(made.body, fresh)) if d.first.buffer is buffer]
            if met:
                why = (
                    f"iterations of {loop.var.name}, which may run at the same time, compute the same of {buffer.name}"
                )
                fix = f'compute_at before {loop.var.name} is made {loop.kind.value}, then compact("{buffer.name}")'
                raise refusal(function, what, loop, why=why, fix=fix)
