"""Loop primitives: split, partition, fuse, reorder, tile, skew. They change loops, never a block.

for j in 0..10:          split(j, 4, tail="mask")      for jo in 0..3, ji in 0..4:
  block b(vj = j):                =>                     block b(vj = jo*4 + ji) where jo*4 + ji < 10:
    y[vj] = x[vj]                                          y[vj] = x[vj]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import cast

from tilewright.analysis.known import Known, boundary, running
from tilewright.analysis.memory import acts_in_blocks
from tilewright.analysis.vectors import meetings, stays_forward_skewed
from tilewright.expr.build import conjunction, conjuncts, maximum, minimum
from tilewright.expr.nodes import Const, Expr, FloorDiv, Le, Lt, Mod, Var, as_expr, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import spatial_loops, summed_loops, variables_of
from tilewright.loops.edit import (
    blocks,
    fresh_copy,
    loads,
    loops_around,
    perfect_nest,
    statements,
    substitute_expressions,
)
from tilewright.loops.nodes import Block, For, Function, If, LoopKind, Seq, Stmt, Store, seq
from tilewright.schedule import facts
from tilewright.schedule.find import primitive
from tilewright.schedule.nests import nested, settle
from tilewright.schedule.step import Copies, Obstacle, Step, fresh_blocks, rewritten

TAILS = ("exact", "mask", "clip", "peel", "shift")


@primitive("cannot split loop {loop} by {factor}")
def split(function: Function, loop: For, factor: int, *, tail: str = "exact") -> Step:
    """Splits a loop into two, the inner of `factor` iterations. Returns the two variables, outer first.

    `tail` says what happens if `factor` does not divide the extent. "exact": the step is refused. "mask": the inner
    loop runs beyond the end, and the `where` of blocks masks the iterations that do not exist. "clip": the inner loop
    ends where the whole loop ends, so its extent is no constant. "peel": the remaining iterations get a loop of their
    own, which is returned, too (None if nothing remains); its blocks are called NAME.tail. "shift": the last inner loop
    is moved back to end where the whole loop ends, so that some iterations run twice.
    """
    if not isinstance(factor, int) or factor < 1:
        raise Obstacle(loop, "a loop of less than 1 iteration is none", fix="take a factor from 1")
    if tail not in TAILS:
        raise Obstacle(loop, f'there is no tail "{tail}"', fix=f"take one of {', '.join(TAILS)}")
    outer, inner, extent = Var(loop.name + "o"), Var(loop.name + "i"), loop.extent
    place: Expr = simplify(loop.begin + outer * factor + inner)
    count, proof = simplify(FloorDiv(extent, const(factor))), f"{factor} divides {extent}"
    body, end, rest = loop.body, as_expr(factor), None
    if simplify(Mod(extent, const(factor))) is not const(0):
        if tail == "exact":
            raise _no_place(loop, factor, extent)
        if tail == "peel":
            facts.require_begun_inside(loop, blocks(loop), [loop])
            rest = _second_part(function, loop.replace(begin=simplify(loop.begin + count * factor)))
            if count is const(0):
                raise Obstacle(loop, f"{extent} iterations do not fill the inner loop once", fix="take less")
            proof = f"the iterations from {rest.begin} on run in a loop of their own"
        else:
            count = simplify(FloorDiv(extent + (factor - 1), const(factor)))
        if tail == "mask":
            body = _guarded(loop, body, [Lt(loop.var, loop.end)])
            proof = f"blocks run only where {place} < {loop.end}"
        elif tail == "clip":
            end = minimum(factor, simplify(extent - outer * factor))
            proof = f"{inner.name} ends where {place} reaches {loop.end}"
        elif tail == "shift":
            _require_repeatable(loop, factor, extent)
            place = simplify(loop.begin + minimum(outer * factor, extent - factor)) + inner
            proof = f"iterations that run twice store the same: no block reads what {loop.name} stores"
    body = For(inner, const(0), end, LoopKind.SERIAL, substitute_expressions(body, {loop.var: place}))
    kind = LoopKind.SERIAL if loop.kind is LoopKind.UNROLL else loop.kind
    made = loop.replace(var=outer, begin=const(0), end=count, body=body, kind=kind)
    if rest is not None:
        return rewritten(function, loop, seq(made, rest), (outer, inner, rest.var), proof, copies=_copies(loop, rest))
    return rewritten(function, loop, made, (outer, inner, None) if tail == "peel" else (outer, inner), proof)


def _no_place(loop: For, factor: int, extent: Expr) -> Obstacle:
    """Why a tail has no place."""
    masked = f'split({loop.name}, {factor}, tail="mask")'
    if not isinstance(extent, Const):
        return Obstacle(loop, f"nothing says that {factor} divides {extent}", fix=masked)
    n = int(extent.value)
    left, divisors = n % factor, [d for d in range(2, n + 1) if n % d == 0]
    why = f"{factor} does not divide {n}: the last {left} iteration{'s' * (left > 1)} would have no place"
    shown = ", ".join(map(str, divisors[:8])) + ", …" * (len(divisors) > 8)
    return Obstacle(loop, why, fix=f"take a factor from [{shown}], or {masked}" if n > 1 else masked)


def _second_part(function: Function, loop: For) -> For:
    """A part of a loop with what it defines defined anew; its blocks are called NAME.tail."""
    return cast(For, fresh_blocks(function, fresh_copy(loop), ".tail"))


def _copies(part: Stmt, second: Stmt) -> Copies:
    """The blocks of a second part that are named anew, each with the one that it is a copy of."""
    return tuple([(c.name, b.name) for b, c in zip(blocks(part), blocks(second), strict=True) if c.name != b.name])


def _require_repeatable(loop: For, factor: int, extent: Expr) -> None:
    """Requires that running an iteration twice changes nothing, and that the last inner loop can be moved back."""
    if not isinstance(extent, Const) or extent.value < factor:
        why = f"the inner loop of {factor} iterations cannot be moved back into {extent}"
        raise Obstacle(loop, why, fix=f'split({loop.name}, {factor}, tail="mask")')
    if loop.kind is not LoopKind.SERIAL:
        why = f"iterations of a {loop.kind.value} loop may run at the same time, and some would run twice"
        raise Obstacle(loop, why, fix="split it while it is serial")
    stored = {s.buffer for s in statements(loop) if isinstance(s, Store)}
    for s in statements(loop):
        reads = isinstance(s, Block) and any(ld.buffer in stored for ld in loads(s))
        if reads or not isinstance(s, For | Block | Store | Seq):
            why = "an iteration that runs twice must not read what the loop stores"
            raise Obstacle(s, why, fix=f'split({loop.name}, {factor}, tail="peel")')


@primitive("cannot partition loop {loop}")
def partition(function: Function, loop: For, at: int | None = None, dead: bool = False) -> Step:
    """Cuts a loop into two that run one after the other: the iterations below `at`, and those from it on. Returns both
    variables; blocks of the second are called NAME.tail. Conditions that hold throughout a part are removed there.
    Without `at`, the cut is where the first condition on the loop stops holding; or, if that is its first iteration,
    where the condition can no longer hold; or, if there is none, where one that later iterations hold begins to. A part
    in which no block runs is left out, and None returned for it; the other part is the loop then, with other bounds.
    With `dead`, the cut is where nothing runs any more, or did not yet.

    for i in 0..5, j in 0..4: b where i*4 + j < 18     =>     for i in 0..4, j in 0..4: b
                                                              for i in 4..5, j in 0..4: b where i*4 + j < 18
    """
    around = loops_around(function.body, loop)
    known = Known({each.var: running(each.begin, each.end) for each in around})
    place = as_expr(at) if at is not None else boundary(loop, known, dead)
    if place is None:
        why = "no condition inside it holds up to some iteration and not beyond"
        raise Obstacle(loop, why, fix=f"say where: partition({loop.name}, at)")
    low = place if known.at_least(place, loop.begin) else maximum(place, loop.begin)
    cut = known.simplified(low if known.at_least(loop.end, low) else minimum(low, loop.end))
    facts.require_begun_inside(loop, blocks(loop), [loop, *(each for each in around if each.var in variables_of(cut))])
    first, rest = settle(loop.replace(end=cut), known), settle(loop.replace(begin=cut), known)
    parts = (first, _second_part(function, rest) if isinstance(first, For) and isinstance(rest, For) else rest)
    made = seq(*(p for p in parts if isinstance(p, For)))
    variables = tuple(p.var if isinstance(p, For) else None for p in parts)
    evidence = f"each iteration of {loop.name} runs once, in the same order"
    return rewritten(function, loop, made, variables, evidence, copies=_copies(rest, parts[1]))


def _guarded(loop: For, body: Stmt, conditions: list[Expr]) -> Stmt:
    """The body of a loop with its blocks run only where the conditions hold. If it does anything outside blocks, all of
    it is put under an `if`; refuses if the init of a block, which runs outside loops it sums over, would not be."""
    if blocks(body) and acts_in_blocks(body):
        return _in_blocks(body, conditions)
    inner = {s.var for s in statements(body) if isinstance(s, For)}
    for block in (b for b in blocks(body) if b.init is not None and conditions):
        for outside in summed_loops(block) - inner:
            raise facts.decompose_first(loop, block, outside)
    for cond in conditions:
        body = If(cond, body)
    return body


def _in_blocks(stmt: Stmt, conditions: list[Expr]) -> Stmt:
    """The conditions go to the outermost blocks."""
    if isinstance(stmt, Block):
        return stmt.replace(where=conjunction([*([] if stmt.where is None else [stmt.where]), *conditions]))
    made = [_in_blocks(c, conditions) if isinstance(c, Stmt) else c for c in stmt.children()]
    return stmt.rebuild(tuple(made))


@primitive("cannot fuse loops {outer} and {inner}")
def fuse(function: Function, outer: For, inner: For) -> Step:
    """Fuses two loops, one directly inside the other, into one. Returns its variable.

    for i in 0..n, j in 0..4: b(i, j)      =>      for ij in 0..n*4: b(ij // 4, ij % 4)
    """
    _require_pair(outer, inner)
    if outer.kind is not inner.kind:
        why = f"{outer.name} is {outer.kind.value}, {inner.name} is {inner.kind.value}"
        raise Obstacle(inner, why, fix="give both the same kind first")
    made = fused(outer, inner)
    for block, after in zip(blocks(inner), blocks(made), strict=True):
        summed = [loop for _, loop in facts.begun_outside([block], [outer, inner])]
        between = len(summed) == 1 and not outer.is_single and not inner.is_single
        if between or (summed and _start_conditions(block) != _start_conditions(after)):
            raise facts.decompose_first(outer, block, summed[0])
    evidence = f"{inner.name} is all that {outer.name} holds, and its bounds do not change"
    return rewritten(function, outer, made, made.var, evidence)


def _require_pair(first: For, second: For) -> None:
    """Requires one loop directly inside the other, with the same bounds in each iteration."""
    if first.body is not second:
        raise Obstacle(second, f"{second.name} is not directly inside {first.name}, alone", "reorder the loops first")
    if first.var in second.bounded_by:
        raise Obstacle(second, f"the bounds of {second.name} depend on {first.name}")


def fused(first: For, second: For) -> For:
    """Two loops, the second all that the first holds, as one of the kind of the first."""
    var = Var(first.name + second.name)
    n, m = first.extent, second.extent
    one = n is const(1)
    values: dict[Expr, Expr] = {
        first.var: first.begin if one else simplify(first.begin + FloorDiv(var, m)),
        second.var: simplify(second.begin + (var if one else Mod(var, m))),
    }
    body = substitute_expressions(second.body, values)
    return first.replace(var=var, begin=const(0), end=simplify(n * m), body=body)


def _start_conditions(block: Block) -> int:
    """The number of conditions that apply to an init: those on nothing that is summed over."""
    summed = summed_loops(block) | {a.var for a in block.reduce}
    return sum(not variables_of(part) & summed for part in conjuncts(block.where))


@primitive("cannot reorder loops {loops}")
def reorder(function: Function, *loops: For) -> Step:
    """Permutes loops into the order given, outermost first. Other loops between them stay where they are. All must be
    nested with nothing else between them.

    for i, j: b(i, j)      =>      for j, i: b(i, j)                                          reorder(j, i)
    """
    if len(loops) < 2 or len(set(loops)) != len(loops):
        raise Obstacle(loops[0] if loops else function, "a new order needs two loops or more, each once")
    chain = _chain(function, loops)
    places = iter(loops)
    target = [next(places) if loop in loops else loop for loop in chain]
    for n, loop in enumerate(target):
        used = [inner.name for inner in target[n + 1 :] if inner.var in loop.bounded_by]
        if used:
            raise Obstacle(loop, f"the bounds of {loop.name} depend on {', '.join(used)}, which would run inside it")
    around = {loop.var for loop in loops_around(function.body, chain[0])}
    for block, over in facts.begun_outside(blocks(chain[-1]), chain):
        before, after = (_repeating(block, order) for order in (chain, target))
        if before != after and not summed_loops(block) & around:
            raise facts.decompose_first(chain[0], block, over)
    evidence = facts.require_reorder(function, chain, [chain.index(loop) for loop in target])
    return rewritten(function, chain[0], nested(target, chain[-1].body), None, *evidence)


def _repeating(block: Block, loops: Sequence[For]) -> set[Var]:
    """The loops that repeat a block, init and all: outside of those that it sums over, no axis is bound to them."""
    outside = takewhile(lambda loop: loop.var not in summed_loops(block), loops)
    return {loop.var for loop in outside if loop.var not in spatial_loops(block) and not loop.is_single}


def _chain(function: Function, wanted: Sequence[For]) -> list[For]:
    """The loops from the outermost to the innermost of those wanted, with nothing between them."""
    first = next(s for s in statements(function.body) if isinstance(s, For) and s in wanted)
    chain, _ = perfect_nest(first)
    missing = next((loop for loop in wanted if loop not in chain), None)
    if missing is None:
        return chain[: 1 + max(map(chain.index, wanted))]
    why = f"{missing.name} is not inside {first.name}"
    if missing in statements(first):
        name = chain[-1].name
        why = f"{name} holds more than a loop: what stands beside it would run another number of times"
    raise Obstacle(chain[-1], why, fix="decompose or move what is between the loops first")


def tile(function: Function, rows: Var, columns: Var, height: int, width: int, *, tail: str = "exact") -> Step:
    """Tiles two nested loops by height x width. Returns the loops over tiles and those inside them: io, jo, ii, ji."""
    one = split(function, rows, height, tail=tail)
    two = split(one.function, columns, width, tail=tail)
    io, ii, jo, ji = (v for step in (one, two) for v in cast(tuple[Var, ...], step.made)[:2])
    done = reorder(two.function, io, jo, ii, ji)
    evidence = (*one.evidence, *two.evidence, *done.evidence)
    return Step(done.function, (io, jo, ii, ji), evidence, one.copies + two.copies)


@primitive("cannot skew loops {loop} and {inner}")
def skew(function: Function, loop: For, inner: For, step: int = 1) -> Step:
    """Skews a loop and the one directly inside it along `loop*step + inner`, both counted from their begin. The new
    outer loop runs over these sums, the new inner one over the candidates for each sum, in the order of the former
    outer loop; blocks run where the candidate exists. So values that depend on the sum alone are loaded once. Returns
    both variables. The inner loop's extent must be a constant.

    for m in 0..4, a in 0..3: b(m, a)      =>      for ma in 0..9, at in 0..2: b(ma//2 + at - 1, …)       skew(m, a, 2)

    Loop skewing is Wolfe's ("Loop skewing: the wavefront method revisited", 1986).
    """
    if type(step) is not int or step < 1:
        raise Obstacle(loop, f"{step!r} is no number of places", fix="give it 1 or more")
    rows, width = loop.extent, inner.extent
    _require_skewable(loop, inner)
    if not isinstance(width, Const) or width.value < 1:
        why = f"{inner.name} has {width} iterations, which is no number of one or more"
        raise Obstacle(inner, why, fix=f'split({inner.name}, 8, tail="mask") first')
    for met in meetings(loop, [loop, inner], loops_around(function.body, loop)):
        if not stays_forward_skewed(met.distances, step):
            raise facts.turned_around([loop, inner], met)
    turns = -(-int(width.value) // step)
    total, turn = Var(loop.name + inner.name), Var(inner.name + "t")
    place = simplify(FloorDiv(total, const(step)) + turn - (turns - 1))
    column = simplify(Mod(total, const(step)) + (const(turns - 1) - turn) * step)
    exists: list[Expr] = [Le(const(0), place), Lt(place, rows)] if turns > 1 else []
    exists += [Lt(column, width)] if width.value % step else []
    body = _guarded(loop, inner.body, exists)
    values: dict[Expr, Expr] = {loop.var: simplify(loop.begin + place), inner.var: simplify(inner.begin + column)}
    inside = inner.replace(var=turn, begin=const(0), end=const(turns), body=substitute_expressions(body, values))
    count = simplify((rows - 1) * step + width)
    made = loop.replace(var=total, begin=const(0), end=count, body=inside)
    return rewritten(function, loop, made, (total, turn), facts.KEPT)


def _require_skewable(first: For, second: For) -> None:
    """Requires two serial loops, one directly inside the other, and no init between them."""
    _require_pair(first, second)
    for loop in (first, second):
        if loop.kind is not LoopKind.SERIAL:
            raise Obstacle(loop, f"{loop.name} is a {loop.kind.value} loop", fix="skew it while it is serial")
    facts.require_begun_inside(first, blocks(second), [first, second])
