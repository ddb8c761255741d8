"""compute_at, reverse_compute_at: a block runs in a loop of another nest, on the points that an iteration needs, or
completes the inputs of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.dependences import carried
from tilewright.analysis.intervals import Range
from tilewright.analysis.regions import region
from tilewright.core.walk import substitute
from tilewright.expr.linear import affine_in, expression, plus, polynomial, times
from tilewright.expr.nodes import Expr, Lt, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import summed_loops, variables_of
from tilewright.loops.edit import loads_of, loops_around, path_to, replace, statements
from tilewright.loops.nodes import Block, Buffer, For, Function, If, LoopKind, Seq, While, seq
from tilewright.schedule.buffers.local import LANES
from tilewright.schedule.facts.boxes import (
    Domain,
    covered,
    covering,
    elements,
    known_in,
    nest_over,
    own_accesses,
    ranges_in,
    single_axis,
    touches,
    unclipped,
    unwritten,
)
from tilewright.schedule.facts.iterations import is_single
from tilewright.schedule.facts.known import NOTHING, exchanged
from tilewright.schedule.facts.place import (
    Memory,
    Place,
    filled_by,
    moved_into,
    place,
    require_apart,
    require_plain,
    require_reached,
    require_unchanged,
)
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.step import Step, refusal

Box = tuple[Range, ...]
Part = Mapping[Var, Range]

TOGETHER = (LoopKind.PARALLEL, LoopKind.VECTORIZE, LoopKind.THREAD)
"""The loops whose iterations may run at the same time."""


def compute_at(function: Function, block: str, loop: Var) -> Step:
    """The block runs at the beginning of each iteration of the loop, on a box of points that holds all that the
    iteration reads. It gets new loops: one for each spatial axis, called like it, and inside them those of its reduce
    axes. Points that several iterations read are computed by each of them.

    for i, k: block s(vi = i, reduce vk = k): s[vi] += x[vi, vk]; for i: block y(vi = i): y[vi] = sqrt(s[vi])
              =>      for i: for k: block s(vi = i, reduce vk = k): s[vi] += …; block y(vi = i): y[vi] = sqrt(s[vi])

    Legal if all readers of the block's buffer are in the loop, or come after it and read elements that its iterations
    have computed, and if nothing in between changes what the block reads. The buffer keeps its size: compact shrinks it
    to the box.
    """
    return computed_at(function, find_block(function, block), find_loop(function, loop))


def computed_at(function: Function, producer: Block, target: For) -> Step:
    """The step that moves a block into a loop."""
    block, name = producer.name, target.var.name
    what = f"cannot compute {block} in loop {name}"
    buffer = filled_by(function, producer, what, "cache_write gives the block a local buffer").buffer
    found = place(function, producer, target, what)
    if found.is_after:
        why = f"{block} comes after loop {name}"
        raise refusal(function, what, producer, why=why, fix=f'reverse_compute_at("{block}", {name})')
    read = [elements(t) for t in touches(target.body, buffer) if not t.access.is_store]
    if not read:
        raise refusal(function, what, target, why=f"nothing in loop {name} reads {buffer.name}")
    memory = Memory(function)
    reads = memory.loaded(found.nest) - memory.stored(found.nest)
    between = (each for s in (*found.between, found.other) for each in statements(s))
    require_unchanged(function, producer, reads, between, what)
    path = path_to(found.other, target)
    require_reached(function, path, f"loop {name}", what, through=(For, Seq, If, While), closed=LANES)
    box = covering(read)
    nest = nest_over(found.domain, _part(function, found, box, what), found.around_loop())
    fresh = replace(found.other, target, target.replace(body=seq(nest, target.body)))
    made = moved_into(function, found, fresh, what)
    _require_no_race(function, made, found, buffer, what)
    inside = set(statements(find_loop(made, target.var).body))
    outside = [t for t in touches(made.body, buffer) if t.access.is_store or t.access.statement not in inside]
    missing = unwritten(outside)
    if missing is not None:
        here = missing.access.statement
        why = f"{buffer.name} is read here, outside loop {name}"
        fix = f"move this into {name} first, or take a loop around both"
        raise refusal(function, what, here if path_to(function.body, here) else found.other, why=why, fix=fix)
    is_read = not all(t.access.is_store for t in outside)
    others = "what reads it later reads what was computed" if is_read else "nothing else reads it"
    evidence = (
        f"an iteration of {name} reads {buffer.name}[{', '.join(map(str, box))}] at most, and {others}",
        f"nothing in between stores what {block} reads",
    )
    return Step(made, None, evidence)


def _part(function: Function, found: Place, box: Box, what: str) -> Part:
    """The values of the block's axes that fill the box."""
    domain, store = found.domain, found.domain.store
    known = known_in(tuple(found.around_loop()))
    part: dict[Var, Range] = {}
    for index, needed in zip(store.indices, box, strict=True):
        if not mentions(index, set(domain.box)):
            continue
        axis = single_axis(index, domain.box)
        if axis is None or axis[0] in part:
            why = f"the points of {found.block.name} that store a part of {store.buffer.name} are not a box: {index}"
            raise refusal(function, what, found.block.body, why=why)
        values, whole = _moved(needed, axis[1]), domain.box[axis[0]]
        if known.within(values, whole) or not known.within(whole, values):
            part[axis[0]] = values
    return part


def _moved(part: Range, offset: Expr) -> Range:
    """The values of an axis for which the axis and the offset are in a range."""
    return Range(simplify(part.begin - offset), part.extent)


def _require_no_race(function: Function, made: Function, found: Place, buffer: Buffer, what: str) -> None:
    """Iterations that may run at the same time do not compute the same points."""
    for loop in found.around_loop():
        if loop.kind in TOGETHER:
            fresh, name = find_loop(made, loop.var), loop.var.name
            if any(d.first.buffer is buffer for d in carried(fresh, loops_around(made.body, fresh))):
                why = f"iterations of {name}, which may run at the same time, compute the same of {buffer.name}"
                fix = f'compute_at before {name} is made {loop.kind.value}, then compact("{buffer.name}")'
                raise refusal(function, what, loop, why=why, fix=fix)


@dataclass(frozen=True, slots=True)
class _Completed:
    """The final elements of a buffer after one iteration of `loops`: `box`. After all iterations: `whole`. `loops` are
    some of the target loop and those around it, outermost first."""

    loops: tuple[For, ...]
    box: Box
    whole: Box


def reverse_compute_at(function: Function, block: str, loop: Var) -> Step:
    """The block runs at the end of each iteration of the loop, on the points whose inputs that iteration completes. It
    gets new loops: one for each spatial axis, called like it, and inside them those of its reduce axes.

    for io, k, ii: block h(vi = io*4 + ii, …): h[vi] += …; for i: block y(vi = i): y[vi] = max(h[vi], 0)
              =>      for io: for k, ii: block h: h[vi] += …; for i in 0..4: block y(vi = io*4 + i): y[vi] = …

    Legal if every point runs exactly once, after all its inputs are complete: loops that sum up its inputs must be
    inside the loop, and nothing in between may touch what the block touches.
    """
    consumer, target = find_block(function, block), find_loop(function, loop)
    name = target.var.name
    what = f"cannot compute {block} at the end of loop {name}"
    found = place(function, consumer, target, what)
    if not found.is_after:
        why = f"{block} comes before loop {name}"
        raise refusal(function, what, consumer, why=why, fix=f'compute_at("{block}", {name})')
    memory = Memory(function)
    require_reached(function, path_to(found.other, target), f"loop {name}", what, closed=LANES)
    require_apart(function, found, memory, what)
    read = memory.loaded(consumer) & memory.stored(found.other)
    order = [a.buffer for a in own_accesses(found.domain) if not a.is_store and a.buffer in read]
    complete = {b: _completed(function, found, b, what) for b in dict.fromkeys([*order, *read])}
    part = _tile(function, found, complete, what)
    made = nest_over(found.domain, part, found.around_loop())
    other = replace(found.other, target, target.replace(body=seq(target.body, made)))
    tiles = "; ".join(f"{b.name}[{', '.join(str(r) for r in c.box)}]" for b, c in complete.items())
    evidence = (
        f"an iteration of {name} completes {tiles}, which no later one touches",
        f"the iterations of {', '.join(s.var.name for s in found.around_loop())} run each point of {block} once",
    )
    return Step(moved_into(function, found, other, what), None, evidence)


def _completed(function: Function, found: Place, buffer: Buffer, what: str) -> _Completed:
    """The elements of a buffer that are final after one iteration of the loop."""
    require_plain(function, buffer, what)
    around, order = found.around_loop(), list(statements(found.other))
    done: list[_Completed] = []
    for access in accesses(found.other):
        if access.buffer is not buffer or not access.is_store:
            continue
        loops = tuple(loop for loop in around if loop in access.loops)
        if loops[-1:] != (found.loop,) and order.index(access.statement) > order.index(found.loop):
            why = f"{buffer.name} is stored after loop {found.loop.var.name} once more"
            raise refusal(function, what, access.statement, why=why)
        _require_inner_sum(function, found, access, loops, what)
        inner = [loop for loop in access.loops if loop not in loops]
        box = region(access.indices, buffer.shape, ranges_in(inner)).ranges
        if not any(c.loops == loops and _holds(c.box, box) for c in done):
            done.append(_Completed(loops, box, _whole(function, buffer, box, loops, found, what)))
        stored = access.statement
    innermost = max(len(c.loops) for c in done)
    last = [c for c in done if len(c.loops) == innermost]
    result = next((c for c in last if all(_holds(c.box, other.box) for other in last)), None)
    if result is None or not all(_holds(c.box, result.box) for c in done if c not in last):
        raise refusal(function, what, stored, why=f"several statements store {buffer.name}, each another part of it")
    return result


def _holds(outer: Box, inner: Box) -> bool:
    return all(NOTHING.within(a, b) for a, b in zip(inner, outer, strict=True))


def _require_inner_sum(function: Function, found: Place, access: Access, loops: Sequence[For], what: str) -> None:
    """Requires that the loops which sum up what an access stores are inside the loop."""
    for block in [s for s in path_to(found.other, access.statement) if isinstance(s, Block)]:
        n = next((n for n, loop in enumerate(loops) if loop.var in summed_loops(block)), None)
        if n is not None:
            name = loops[n].var.name
            why = f"{access.buffer.name} is complete only after the last iteration of {name}, "
            fix = f"reorder the loops of {block.name} so that {name} is not the outermost"
            if n:
                fix = f'take a loop outside {name}: reverse_compute_at("{found.block.name}", {loops[n - 1].var.name})'
            raise refusal(function, what, loops[n], why=f"{why}which {block.name} sums over", fix=fix)


def _whole(function: Function, buffer: Buffer, box: Box, loops: Sequence[For], found: Place, what: str) -> Box:
    """What all iterations of the loops complete, if each completes a part of its own."""
    straight, clips = unclipped(loops)
    used: set[Var] = set()
    made: list[Range] = []
    for part in box:
        own = [loop for loop in straight if mentions(part.begin, {loop.var})]
        moving = {loop.var for loop in own}
        total = None if used & moving else covered(polynomial(part.begin), part.extent, own)
        if total is not None:
            total = _clipped(total, part, [c for c in clips if mentions(c, moving)], straight)
        if total is None:
            names = ", ".join(loop.var.name for loop in own) or "the loops"
            why = f"the parts {part} of {buffer.name} that iterations of {names} store may overlap, or leave gaps"
            raise refusal(function, what, found.loop, why=why)
        used |= moving
        made.append(total)
    _require_moving(function, loops, used, f"stores the same part of {buffer.name} again", what)
    return tuple(made)


def _require_moving(function: Function, loops: Sequence[For], used: set[Var], again: str, what: str) -> None:
    """Each of the loops that has several iterations is one of those used."""
    for loop in loops:
        if loop.var not in used and not is_single(loop):
            why, fix = f"each iteration of {loop.var.name} {again}", f"take a loop outside {loop.var.name}"
            raise refusal(function, what, loop, why=why, fix=fix)


def _clipped(total: Range, part: Range, clips: Sequence[Expr], loops: Sequence[For]) -> Range | None:
    """What parts cover of which only those run that the conditions let; they must say that a part begins below some
    place, which is then where the whole ends."""
    begin, moving = Var("begin"), {loop.var for loop in loops}
    for cond in clips:
        assert isinstance(cond, Lt)
        gap = times(plus(polynomial(cond.b), polynomial(cond.a), -1), polynomial(part.extent))
        told = exchanged(gap, [(part.begin, begin)], moving)
        parts = None if told is None else affine_in(told, begin)
        if parts is None or parts[0] != {(): -1}:
            return None
        end = simplify(expression(parts[1]))
        if not NOTHING.within(Range(end, const(0)), total):
            return None
        total = Range(total.begin, simplify(end - total.begin))
    return total


def _tile(function: Function, found: Place, complete: Mapping[Buffer, _Completed], what: str) -> Part:
    """The part of the block's domain whose inputs one iteration completes."""
    domain, around, block = found.domain, found.around_loop(), found.block
    reading = [(a, complete[a.buffer]) for a in own_accesses(domain) if not a.is_store and a.buffer in complete]
    part: dict[Var, Range] = {}
    total: dict[Var, Range] = {}
    for access, done in reading:
        for index, box, whole in zip(access.indices, done.box, done.whole, strict=True):
            axis = _axis_of(index, domain, access) if done.loops[-1:] == (found.loop,) else None
            if axis is not None and axis[0] not in part:
                part[axis[0]], total[axis[0]] = _moved(box, axis[1]), _moved(whole, axis[1])
    moving = {v for r in part.values() for v in variables_of(r.begin)}
    _require_moving(function, around, moving, f"would run {block.name} on the same points", what)
    known = known_in(tuple(around))
    for var, whole in total.items():
        if not known.within(domain.box[var], whole):
            why = f"{block.name} runs for {var.name} in {domain.box[var]}, the loop completes what it reads in {whole}"
            raise refusal(function, what, block, why=why)
    part = {v: r for v, r in part.items() if any(mentions(r.begin, {loop.var}) for loop in around)}
    for access, done in reading:
        _require_complete(function, found, access, done, {**domain.box, **part}, what)
    return part


def _axis_of(index: Expr, domain: Domain, access: Access) -> tuple[Var, Expr] | None:
    """(axis, offset) of an index that is one spatial axis plus something that does not move with the block."""
    found = single_axis(index, domain.box)
    moving = {a.var for a in domain.block.reduce} | {loop.var for loop in access.loops}
    return None if found is None or mentions(found[1], moving) or loads_of(found[1]) else found


def _require_complete(
    function: Function, found: Place, access: Access, done: _Completed, points: Part, what: str
) -> None:
    """What the points of one iteration read is complete at its end."""
    bindings = {a.var: a.binding for a in found.domain.block.reduce}
    indices = [substitute(i, bindings) for i in access.indices]
    ranges = {**points, **ranges_in([*found.domain.reduce, *access.loops])}
    known = known_in(tuple(found.around_loop()))
    for read, complete in zip(region(indices, access.buffer.shape, ranges).ranges, done.box, strict=True):
        if not known.within(read, complete):
            completes = f"an iteration of {found.loop.var.name} completes {complete} of that dimension"
            why = f"{found.block.name} reads {access.buffer.name} in {read}, {completes}"
            fix = f"take a loop further out, or move what stores {access.buffer.name} with compute_at"
            raise refusal(function, what, access.statement, why=why, fix=fix)
