"""reverse_compute_at: a consumer's points are computed in a producer's loop, as soon as their inputs are complete.

for io, k, ii: block h(vi = io*4 + ii, …): h[vi] += …          for io:
for i: block y(vi = i): y[vi] = max(h[vi], 0)             =>     for k, ii: block h(vi = io*4 + ii, …): h[vi] += …
                                                                 for i in 0..4: block y(vi = io*4 + i): y[vi] = …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.intervals import Range
from tilewright.analysis.regions import ranges_of, region
from tilewright.core.walk import preorder, substitute
from tilewright.expr.linear import affine_in, expression, plus, polynomial, times
from tilewright.expr.nodes import Expr, Lt, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import path_to, replace, statements
from tilewright.loops.nodes import Block, Buffer, For, Function, Load, LoopKind, Seq, Stmt, seq
from tilewright.schedule.facts.domain import (
    Domain,
    covered,
    is_single,
    known_in,
    nest_over,
    own_accesses,
    single_axis,
    touched,
    unclipped,
)
from tilewright.schedule.facts.known import NOTHING, Known
from tilewright.schedule.facts.place import (
    Memory,
    Place,
    allocations_between,
    in_sequence,
    place,
    require_apart,
    require_plain,
)
from tilewright.schedule.facts.predicates import exchanged
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.step import Step, refusal

Box = tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Completed:
    """The final elements of a buffer after one iteration of `loops`: `box`. After all iterations: `whole`. `loops` are
    some of the target loop and those around it, outermost first."""

    buffer: Buffer
    loops: tuple[For, ...]
    box: Box
    whole: Box


def reverse_compute_at(function: Function, block: str, loop: Var) -> Step:
    """The block runs at the end of each iteration of the loop, on the points whose inputs that iteration completes. It
    gets new loops: one for each spatial axis, called like it, and inside them those of its reduce axes.

    Legal if every point runs exactly once, after all its inputs are complete: loops that sum up its inputs must be
    inside the loop, and nothing in between may touch what the block touches.
    """
    consumer, target = find_block(function, block), find_loop(function, loop)
    what = f"cannot compute {block} at the end of loop {target.var.name}"
    found = place(function, consumer, target, what)
    if not found.is_after:
        why = f"{block} comes before loop {target.var.name}"
        raise refusal(function, what, consumer, why=why, fix=f'compute_at("{block}", {target.var.name})')
    memory = Memory(function)
    _require_path(function, found, what)
    require_apart(function, found, memory, what)
    read = memory.loaded(consumer) & memory.stored(found.other)
    inside = accesses(found.other)
    complete = {b: _completed(function, found, b, inside, memory, what) for b in _read_order(found, read)}
    part = _tile(function, found, complete, what)
    made = nest_over(found.domain, part, found.around_loop())
    moved = replace(found.other, target, target.replace(body=seq(target.body, made)))
    allocs = allocations_between(function, found, what)
    changes: dict[Stmt, tuple[Stmt, ...]] = {found.nest: (), found.other: (*allocs, moved), **dict.fromkeys(allocs, ())}
    tiles = "; ".join(f"{b.name}[{', '.join(str(r) for r in c.box)}]" for b, c in complete.items())
    evidence = (
        f"an iteration of {target.var.name} completes {tiles}, which no later one touches",
        f"the iterations of {', '.join(s.var.name for s in found.around_loop())} run each point of {block} once",
    )
    return Step(in_sequence(function, found.parent, changes), None, evidence)


def _read_order(found: Place, read: set[Buffer]) -> list[Buffer]:
    """The buffers in the order in which the block reads them."""
    order = [a.buffer for a in own_accesses(found.domain) if not a.is_store]
    return [b for b in dict.fromkeys(order) if b in read] + [b for b in read if b not in order]


def _require_path(function: Function, found: Place, what: str) -> None:
    """Between the sequence and the loop there are loops only, and none of them is part of a vector."""
    name = found.loop.var.name
    for s in path_to(found.other, found.loop):
        if not isinstance(s, For | Seq):
            why = f"{type(s).__name__.lower()} decides whether {name} runs, {found.block.name} runs always"
            raise refusal(function, what, s, why=why)
        if isinstance(s, For) and s.kind in (LoopKind.VECTORIZE, LoopKind.INSTRUCTION):
            word = "vectorized" if s.kind is LoopKind.VECTORIZE else "an instruction"
            why = f"loop {s.var.name} is {word}"
            raise refusal(function, what, s, why=why, fix=f"move {found.block.name} before that step")


def _completed(
    function: Function, found: Place, buffer: Buffer, inside: Sequence[Access], memory: Memory, what: str
) -> Completed:
    """The elements of a buffer that are final after one iteration of the loop."""
    require_plain(function, memory, buffer, found.loop, what)
    around = found.around_loop()
    order = list(statements(found.other))
    stores = [a for a in inside if a.is_store and a.buffer is buffer]
    found_boxes: list[Completed] = []
    for access in stores:
        loops = tuple(loop for loop in around if loop in access.loops)
        if loops[-1:] != (found.loop,) and order.index(access.statement) > order.index(found.loop):
            why = f"{buffer.name} is stored after loop {found.loop.var.name} once more"
            raise refusal(function, what, access.statement, why=why)
        _require_inner_sum(function, found, access, loops, what)
        box = _box_of(access, loops)
        if not any(c.loops == loops and _holds(c.box, box) for c in found_boxes):
            found_boxes.append(Completed(buffer, loops, box, _whole(function, buffer, box, loops, found, what)))
    innermost = max(len(c.loops) for c in found_boxes)
    last = [c for c in found_boxes if len(c.loops) == innermost]
    result = next((c for c in last if all(_holds(c.box, other.box) for other in last)), None)
    if result is None or any(not _holds(c.box, result.box) for c in found_boxes if c not in last):
        why = f"several statements store {buffer.name}, each another part of it"
        raise refusal(function, what, stores[-1].statement, why=why)
    return result


def _box_of(access: Access, fixed: Sequence[For]) -> Box:
    inner = [loop for loop in access.loops if loop not in fixed]
    return touched(access.indices, access.buffer.shape, inner).ranges


def _holds(outer: Box, inner: Box) -> bool:
    return all(NOTHING.within(a, b) for a, b in zip(inner, outer, strict=True))


def _require_inner_sum(function: Function, found: Place, access: Access, loops: Sequence[For], what: str) -> None:
    """Requires that the loops which sum up what an access stores are inside the loop."""
    sums = [(s, a) for s in path_to(found.other, access.statement) if isinstance(s, Block) for a in s.reduce]
    for block, axis in sums:
        for n, loop in enumerate(loops):
            name = loop.var.name
            if loop.var not in variables_of(axis.binding):
                continue
            made = access.buffer.name
            why = f"{made} is complete only after the last iteration of {name}, which {block.name} sums over"
            if n:
                fix = f'take a loop outside {name}: reverse_compute_at("{found.block.name}", {loops[n - 1].var.name})'
            else:
                fix = f"reorder the loops of {block.name} so that {name} is not the outermost"
            raise refusal(function, what, loop, why=why, fix=fix)


def _whole(function: Function, buffer: Buffer, box: Box, loops: Sequence[For], found: Place, what: str) -> Box:
    """What all iterations of the loops complete, if each completes a part of its own."""
    straight, clips = unclipped(loops)
    used: set[Var] = set()
    made = []
    for part in box:
        own = [loop for loop in straight if mentions(part.begin, {loop.var})]
        total = covered(polynomial(part.begin), part.extent, own)
        if total is not None and not used & {loop.var for loop in own}:
            total = _clipped(total, part, [c for c in clips if mentions(c, {loop.var for loop in own})], straight)
        if total is None or used & {loop.var for loop in own}:
            names = ", ".join(loop.var.name for loop in own) or "the loops"
            why = f"the parts {part} of {buffer.name} that iterations of {names} store may overlap, or leave gaps"
            raise refusal(function, what, found.loop, why=why)
        used |= {loop.var for loop in own}
        made.append(total)
    for loop in loops:
        if loop.var not in used and not is_single(loop):
            why = f"each iteration of {loop.var.name} stores the same part of {buffer.name} again"
            raise refusal(function, what, loop, why=why, fix=f"take a loop outside {loop.var.name}")
    return tuple(made)


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


def _tile(function: Function, found: Place, complete: Mapping[Buffer, Completed], what: str) -> dict[Var, Range]:
    """The part of the block's domain whose inputs one iteration completes."""
    domain, around, block = found.domain, found.around_loop(), found.block
    part: dict[Var, Range] = {}
    total: dict[Var, Range] = {}
    for access in own_accesses(domain):
        done = complete.get(access.buffer)
        if access.is_store or done is None or done.loops[-1:] != (found.loop,):
            continue
        for index, box, whole in zip(access.indices, done.box, done.whole, strict=True):
            axis = _axis_of(index, domain, access)
            if axis is not None and axis[0] not in part:
                var, offset = axis
                part[var] = Range(simplify(box.begin - offset), box.extent)
                total[var] = Range(simplify(whole.begin - offset), whole.extent)
    known = known_in(tuple(around))
    for loop in around:
        if not is_single(loop) and not any(mentions(r.begin, {loop.var}) for r in part.values()):
            why = f"{block.name} would run on the same points in each iteration of {loop.var.name}"
            raise refusal(function, what, loop, why=why, fix=f"take a loop outside {loop.var.name}")
    for var, whole in total.items():
        if not known.within(domain.box[var], whole):
            why = f"{block.name} runs for {var.name} in {domain.box[var]}, the loop completes what it reads in {whole}"
            raise refusal(function, what, found.block, why=why)
    part = {v: r for v, r in part.items() if any(mentions(r.begin, {loop.var}) for loop in around)}
    for access in own_accesses(domain):
        if not access.is_store and access.buffer in complete:
            _require_complete(function, found, access, complete[access.buffer], {**domain.box, **part}, known, what)
    return part


def _axis_of(index: Expr, domain: Domain, access: Access) -> tuple[Var, Expr] | None:
    """(axis, offset) of an index that is one spatial axis plus something that does not move with the block."""
    found = single_axis(index, domain.box)
    moving = {a.var for a in domain.block.reduce} | {loop.var for loop in access.loops}
    if found is None or moving & variables_of(found[1]):
        return None
    return None if any(isinstance(e, Load) for e in preorder(found[1])) else found


def _require_complete(
    function: Function,
    found: Place,
    access: Access,
    done: Completed,
    points: Mapping[Var, Range],
    known: Known,
    what: str,
) -> None:
    """What the points of one iteration read is complete at its end."""
    domain = found.domain
    bindings = {a.var: a.binding for a in domain.block.reduce}
    indices = [substitute(i, bindings) for i in access.indices]
    ranges = {**points, **ranges_of(unclipped([*domain.reduce, *access.loops])[0])}
    box = region(indices, access.buffer.shape, ranges)
    for read, complete in zip(box.ranges, done.box, strict=True):
        if not known.within(read, complete):
            name = found.loop.var.name
            why = (
                f"{found.block.name} reads {access.buffer.name} in {read}, "
                f"an iteration of {name} completes {complete} of that dimension"
            )
            fix = f"take a loop further out, or move what stores {access.buffer.name} with compute_at"
            raise refusal(function, what, access.statement, why=why, fix=fix)
