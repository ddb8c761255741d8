"""compute_at, reverse_compute_at: a block runs in a loop of another nest, on the points that an iteration needs, or
completes the inputs of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.dependences import stored_elsewhere
from tilewright.analysis.domains import Domain, covered, covered_where, known_in, single_axis, unclipped
from tilewright.analysis.elements import box_of, touches, unwritten
from tilewright.analysis.intervals import Range, Ranges
from tilewright.analysis.memory import Memory
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Expr, Var
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import blocks, loads_of, loops_around, path_to, replace, statements
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, If, Let, LoopKind, Seq, Stmt, Store, While, seq
from tilewright.loops.text import word_of
from tilewright.schedule import facts
from tilewright.schedule.facts import LANES, ORDERED, TOGETHER
from tilewright.schedule.find import find_block, find_loop, primitive
from tilewright.schedule.nests import nest_over
from tilewright.schedule.step import Obstacle, Step


@primitive("cannot compute {block} in loop {loop}")
def compute_at(function: Function, block: Block, loop: For) -> Step:
    """The block runs at the beginning of each iteration of the loop, on a box of points that holds all that the
    iteration reads. It gets new loops: one for each spatial axis, called like it, and inside them those of its reduce
    axes. Points that several iterations read are computed by each of them.

    for i, k: block s(vi = i, reduce vk = k): s[vi] += x[vi, vk]; for i: block y(vi = i): y[vi] = sqrt(s[vi])
              =>      for i: for k: block s(vi = i, reduce vk = k): s[vi] += …; block y(vi = i): y[vi] = sqrt(s[vi])

    Legal if all readers of the block's buffer are in the loop, or come after it and read elements that its iterations
    have computed, and if nothing in between changes what the block reads. The buffer keeps its size: compact shrinks it
    to the box.
    """
    name = loop.name
    buffer = facts.filled_by(function, block, "cache_write gives the block a local buffer").buffer
    found = _place(function, block, loop)
    if found.is_after:
        raise Obstacle(block, f"{block.name} comes after loop {name}", f'reverse_compute_at("{block.name}", {name})')
    box = box_of(loop.body, buffer, is_store=False)
    if box is None:
        raise Obstacle(loop, f"nothing in loop {name} reads {buffer.name}")
    memory = Memory(function.body)
    reads = memory.loaded(found.nest) - memory.stored(found.nest)
    between = (each for s in (*found.between, found.other) for each in statements(s))
    facts.require_unchanged(function, block, reads, between)
    path = path_to(found.other, loop)
    facts.require_reached(path, f"loop {name}", through=(For, Seq, If, While), closed=LANES)
    nest = nest_over(found.domain, _part(found, box), found.around)
    made = _moved_into(function, found, seq(nest, loop.body))
    _require_no_race(made, found, buffer)
    inside = set(statements(find_loop(made, loop.var).body))
    outside = [t for t in touches(made.body, buffer) if t.access.is_store or t.access.statement not in inside]
    missing = unwritten(outside)
    if missing is not None:
        here = missing.access.statement
        why = f"{buffer.name} is read here, outside loop {name}"
        fix = f"move this into {name} first, or take a loop around both"
        raise Obstacle(here if path_to(function.body, here) else found.other, why, fix)
    is_read = not all(t.access.is_store for t in outside)
    others = "what reads it later reads what was computed" if is_read else "nothing else reads it"
    needs = f"an iteration of {name} reads {buffer.name}[{', '.join(map(str, box))}] at most, and {others}"
    return Step(made, None, (needs, f"nothing in between stores what {block.name} reads"))


def _part(found: _Place, box: Sequence[Range]) -> Ranges:
    """The values of the block's axes that fill the box."""
    domain, store = found.domain, found.domain.store
    known = known_in(found.around)
    part: dict[Var, Range] = {}
    for index, needed in zip(store.indices, box, strict=True):
        if not mentions(index, set(domain.box)):
            continue
        axis = single_axis(index, domain.box)
        if axis is None or axis[0] in part:
            why = f"the points of {found.block.name} that store a part of {store.buffer.name} are not a box: {index}"
            raise Obstacle(found.block.body, why)
        values, whole = _moved(needed, axis[1]), domain.box[axis[0]]
        if known.within(values, whole) or not known.within(whole, values):
            part[axis[0]] = values
    return part


def _moved(part: Range, offset: Expr) -> Range:
    """The values of an axis for which the axis and the offset are in a range."""
    return Range(simplify(part.begin - offset), part.extent)


def _met_by(made: Function, name: str, over: Var, buffers: Set[Buffer]) -> Access | None:
    """What a moved block does to one of these buffers where another iteration of a loop stores."""
    loop = find_loop(made, over)
    return stored_elsewhere(loop, loops_around(made.body, loop), find_block(made, name), buffers)


def _require_no_race(made: Function, found: _Place, buffer: Buffer) -> None:
    """Iterations that may run at the same time do not compute the same points."""
    for loop in [s for s in found.around if s.kind in TOGETHER]:
        if _met_by(made, found.block.name, loop.var, {buffer}) is not None:
            name = loop.name
            why = f"iterations of {name}, which may run at the same time, compute the same of {buffer.name}"
            fix = f'compute_at before {name} is made {loop.kind.value}, then compact("{buffer.name}")'
            raise Obstacle(loop, why, fix)


@primitive("cannot compute {block} at the end of loop {loop}")
def reverse_compute_at(function: Function, block: Block, loop: For) -> Step:
    """The block runs at the end of each iteration of the loop, on the points whose inputs that iteration completes. It
    gets new loops: one for each spatial axis, called like it, and inside them those of its reduce axes.

    for io, k, ii: block h(vi = io*4 + ii, …): h[vi] += …; for i: block y(vi = i): y[vi] = max(h[vi], 0)
              =>      for io: for k, ii: block h: h[vi] += …; for i in 0..4: block y(vi = io*4 + i): y[vi] = …

    Legal if every point runs exactly once, after all its inputs are complete: loops that sum up its inputs must be
    inside the loop, and nothing in between may touch what the block touches.
    """
    return computed_after(function, block, loop)


def computed_after(function: Function, block: Block, loop: For, closed: Collection[LoopKind] = LANES) -> Step:
    """The step that moves a block to the end of a loop, which stands in no loop of a kind that is `closed`."""
    name = loop.name
    found = _place(function, block, loop)
    if not found.is_after:
        raise Obstacle(block, f"{block.name} comes before loop {name}", f'compute_at("{block.name}", {name})')
    memory = Memory(function.body)
    facts.require_reached(path_to(found.other, loop), f"loop {name}", closed=closed)
    _require_apart(found, memory)
    read = memory.loaded(block) & memory.stored(found.other)
    for buffer in read:
        facts.require_plain(function, buffer)
    order = dict.fromkeys(a.buffer for a in found.domain.accesses() if a.buffer in read)
    boxes = {b: box for b in order if (box := box_of(loop.body, b, is_store=True)) is not None}
    moved = nest_over(found.domain, _tile(found, boxes), found.around)
    made = _moved_into(function, found, seq(loop.body, moved))
    _require_final(made, found, read)
    completed = "; ".join(f"{b.name}[{', '.join(map(str, box))}]" for b, box in boxes.items())
    completes = f"an iteration of {name} completes {completed}, which no later one touches"
    once = f"the iterations of {', '.join(s.name for s in found.around)} run each point of {block.name} once"
    return Step(made, None, (completes, once))


def _tile(found: _Place, boxes: Mapping[Buffer, Sequence[Range]]) -> Ranges:
    """The part of the block's domain that reads what one iteration stores, a box of each buffer. The parts of all
    iterations are the domain, each point once."""
    domain, around = found.domain, found.around
    (straight, clips), known = unclipped(around), known_in(around)
    part: dict[Var, Range] = {}
    used: set[Var] = set()
    for access in [a for a in domain.accesses() if not a.is_store and a.buffer in boxes]:
        for index, stored in zip(access.indices, boxes[access.buffer], strict=True):
            axis, own = single_axis(index, domain.box), [s for s in straight if mentions(stored.begin, {s.var})]
            inner = {a.var for a in domain.block.reduce} | {s.var for s in access.loops}
            if axis is None or mentions(axis[1], inner) or loads_of(axis[1]) or axis[0] in part or not own:
                continue
            part[axis[0]] = values = _moved(stored, axis[1])
            moving = {loop.var for loop in own}
            whole = None if used & moving else covered(polynomial(values.begin), values.extent, own)
            whole = whole and covered_where(whole, values, [c for c in clips if mentions(c, moving)], straight)
            used |= moving
            if whole is None:
                parts = f"the parts {values} of {axis[0].name} that iterations complete"
                raise Obstacle(found.loop, f"{parts} may overlap, or leave gaps")
            if not known.within(domain.box[axis[0]], whole):
                runs = f"{found.block.name} runs for {axis[0].name} in {domain.box[axis[0]]}"
                raise Obstacle(found.block, f"{runs}, the loop completes what it reads in {whole}")
    idle = next((n for n, loop in enumerate(around) if loop.var not in used and not loop.is_single), None)
    if idle is not None:
        raise _idle(found, around[: idle + 1], boxes)
    return part


def _idle(found: _Place, loops: Sequence[For], boxes: Mapping[Buffer, Sequence[Range]]) -> Obstacle:
    """Why the iterations of the last of some loops do not complete parts of their own."""
    *_, loop = loops
    name, block = loop.name, found.block.name
    stored = {b: b.body.buffer for b in blocks(loop) if isinstance(b.body, Store) and loop.var in summed_loops(b)}
    summing = next(((b, buffer) for b, buffer in stored.items() if buffer in boxes), None)
    if summing is None:
        why, fix = f"each iteration of {name} would run {block} on the same points", f"take a loop outside {name}"
        return Obstacle(loop, why, fix)
    producer, buffer = summing
    why = f"{buffer.name} is complete only after the last iteration of {name}, which {producer.name} sums over"
    fix = f"reorder the loops of {producer.name} so that {name} is not the outermost"
    if len(loops) > 1:
        fix = f'take a loop outside {name}: reverse_compute_at("{block}", {loops[-2].name})'
    return Obstacle(loop, why, fix)


def _require_final(made: Function, found: _Place, read: set[Buffer]) -> None:
    """Nothing stores what the moved block reads once it has read it."""
    whole = list(statements(found.other))
    for s in whole[whole.index(found.loop) + len(list(statements(found.loop))) :]:
        if isinstance(s, Store) and s.buffer in read:
            raise Obstacle(s, f"{s.buffer.name} is stored after loop {found.loop.name} once more")
    for loop in found.around:
        load = None if loop.is_single else _met_by(made, found.block.name, loop.var, read)
        if load is not None:
            why = f"{found.block.name} {load.said}, which another iteration of {loop.name} stores"
            fix = f"take a loop further out, or move what stores {load.buffer.name} with compute_at or inline"
            raise Obstacle(load.statement, why, fix)


@dataclass(frozen=True, slots=True)
class _Place:
    """A block in a nest of its own, and a loop elsewhere: `nest` and `other` are the statements of the sequence
    `parent` that hold them, `between` those between the two. `domain` is the block's, under the loops of its nest;
    `around` are the loops from `other` down to the loop, which is the last of them."""

    block: Block
    nest: Stmt
    loop: For
    other: Stmt
    parent: Seq
    domain: Domain
    between: tuple[Stmt, ...]
    around: tuple[For, ...]
    is_after: bool


def _place(function: Function, block: Block, loop: For) -> _Place:
    """Where the two stand, if the block can be moved at all: alone in its nest, its points in any order."""
    one, two = path_to(function.body, block), path_to(function.body, loop)
    if loop in one:
        raise Obstacle(block, f"{block.name} is inside {word_of(loop)} already")
    shared = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a is not b), 0)
    parent = one[shared - 1] if shared else None
    if not isinstance(parent, Seq):
        raise Obstacle(block, f"{block.name} and {word_of(loop)} are not one after the other")
    nest, other = one[shared], two[shared]
    n, m = parent.body.index(nest), parent.body.index(other)
    domain, between = facts.alone_in(function, nest, block), parent.body[min(n, m) + 1 : max(n, m)]
    return _Place(block, nest, loop, other, parent, domain, between, (*loops_around(other, loop), loop), n > m)


def _require_apart(found: _Place, memory: Memory) -> None:
    """Nothing between the block's two places touches what it stores, or changes what it reads; in the loop's own nest,
    what is stored is looked at element by element."""
    block = found.block
    reads, writes = memory.loaded(found.nest), memory.stored(found.nest)
    for s in (*found.between, found.other):
        met = memory.met(s, reads if s is not found.other else set(), writes)
        if met:
            verb, other = ("touches", "stores") if met & writes else ("stores", "reads")
            why = f"it {verb} {min(b.name for b in met & writes or met)}, which {block.name} {other}"
            raise Obstacle(s, why, fix=f"move {block.name} before an earlier step comes between")
        if any(isinstance(x, ORDERED) for x in statements(s)):
            raise Obstacle(s, f"an assert, a while or a call in it decides whether {block.name} is reached")


def _moved_into(function: Function, found: _Place, body: Stmt) -> Function:
    """The function with `body`, which has the block in it, in the loop; the block's own nest is taken out, and
    allocations between the two that the block needs come before the statement that holds the loop."""
    used = {a.buffer for a in accesses(found.nest)}
    for s in found.between:
        if isinstance(s, Let) and s.var in found.nest.variables():
            raise Obstacle(s, f"{found.block.name} uses {s.var.name}, which is defined only here")
    needed = [s for s in found.between if isinstance(s, Alloc) and s.buffer in used]
    kept = [s for s in found.parent.body if s is not found.nest and s not in needed]
    at = kept.index(found.other)
    other = replace(found.other, found.loop, found.loop.replace(body=body))
    made = seq(*kept[:at], *needed, other, *kept[at + 1 :])
    return function.replace(body=replace(function.body, found.parent, made))
