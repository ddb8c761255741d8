"""Loop primitives: split, fuse, reorder, tile, partition. They change loops, never a block.

for j in 0..10:          split(j, 4, tail="mask")      for jo in 0..3, ji in 0..4:
  block b(vj = j):                =>                     block b(vj = jo*4 + ji) where jo*4 + ji < 10:
    y[vj] = x[vj]                                          y[vj] = x[vj]
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.intervals import facts_of
from tilewright.analysis.regions import ranges_of
from tilewright.expr.build import maximum, minimum
from tilewright.expr.nodes import And, Const, Expr, FloorDiv, Lt, Mod, Var, as_expr, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import summed_loops, variables_of
from tilewright.loops.edit import (
    blocks,
    fresh_copy,
    loads,
    loops_around,
    path_to,
    replace,
    statements,
    substitute_expressions,
)
from tilewright.loops.nodes import Alloc, Block, For, Function, If, Let, LoopKind, Prefetch, Seq, Stmt, Store, seq
from tilewright.report.errors import InternalError
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.facts.predicates import boundary, conjuncts, settle
from tilewright.schedule.find import find_loop, nested
from tilewright.schedule.legality import require_reorder
from tilewright.schedule.names import fresh_blocks
from tilewright.schedule.step import Step, refusal

TAILS = ("exact", "mask", "clip", "peel", "shift")


def split(function: Function, loop: Var, factor: int, *, tail: str = "exact") -> Step:
    """Splits a loop into two, the inner of `factor` iterations. Returns the two variables, outer first.

    `tail` says what happens if `factor` does not divide the extent. "exact": the step is refused. "mask": the inner
    loop runs beyond the end, and the `where` of blocks masks the iterations that do not exist. "clip": the inner loop
    ends where the whole loop ends, so its extent is no constant. "peel": the remaining iterations get a loop of their
    own, which is returned, too (None if nothing remains); its blocks are called NAME.tail. "shift": the last inner loop
    is moved back to end where the whole loop ends, so that some iterations run twice.
    """
    found = find_loop(function, loop)
    what = f"cannot split loop {found.var.name} by {factor}"
    if not isinstance(factor, int) or factor < 1:
        raise refusal(function, what, found, why="a loop of less than 1 iteration is none", fix="take a factor from 1")
    if tail not in TAILS:
        raise refusal(function, what, found, why=f'there is no tail "{tail}"', fix=f"take one of {', '.join(TAILS)}")
    extent = extent_of(found)
    rest = simplify(Mod(extent, const(factor)))
    divides = isinstance(rest, Const) and rest.value == 0
    if tail == "exact" and not divides:
        raise _no_place(function, found, factor, extent, what)
    if tail == "peel":
        if not divides:
            _require_one_start(function, found, what)
        return _peel(function, found, factor, extent, divides)
    outer, inner = Var(found.var.name + "o"), Var(found.var.name + "i")
    place = simplify(found.begin + outer * factor + inner)
    if tail == "shift" and not divides:
        _require_repeatable(function, found, factor, extent, what)
        place = simplify(found.begin + minimum(outer * factor, extent - factor)) + inner
    body = substitute_expressions(found.body, {found.var: place})
    count = simplify(FloorDiv(extent, const(factor)) if divides else FloorDiv(extent + (factor - 1), const(factor)))
    end: Expr = const(factor)
    proof = f"{factor} divides {extent}"
    if not divides and tail == "mask":
        body = guarded(body, Lt(place, found.end))
        require_starts_inside(function, found, body, what)
        proof = f"blocks run only where {place} < {found.end}"
    elif not divides and tail == "shift":
        proof = f"iterations that run twice store the same: no block reads what {found.var.name} stores"
    elif not divides:
        end = minimum(factor, simplify(extent - outer * factor))
        proof = f"{inner.name} ends where {place} reaches {found.end}"
    kind = LoopKind.SERIAL if found.kind is LoopKind.UNROLL else found.kind
    body = For(inner, const(0), end, LoopKind.SERIAL, body)
    made = found.replace(var=outer, begin=const(0), end=count, body=body, kind=kind)
    return Step(function.replace(body=replace(function.body, found, made)), (outer, inner), (proof,))


def _require_repeatable(function: Function, loop: For, factor: int, extent: Expr, what: str) -> None:
    """Requires that running an iteration twice changes nothing, and that the last inner loop can be moved back."""
    if not isinstance(extent, Const) or extent.value < factor:
        why = f"the inner loop of {factor} iterations cannot be moved back into {extent}"
        raise refusal(function, what, loop, why=why, fix=f'split({loop.var.name}, {factor}, tail="mask")')
    if loop.kind is not LoopKind.SERIAL:
        why = f"iterations of a {loop.kind.value} loop may run at the same time, and some would run twice"
        raise refusal(function, what, loop, why=why, fix="split it while it is serial")
    stored = {s.buffer for s in statements(loop) if isinstance(s, Store)}
    plain = all(isinstance(s, For | Block | Store | Seq) for s in statements(loop))
    for s in statements(loop):
        if not plain or (isinstance(s, Block) and any(ld.buffer in stored for ld in loads(s))):
            why = "an iteration that runs twice must not read what the loop stores"
            raise refusal(function, what, s, why=why, fix=f'split({loop.var.name}, {factor}, tail="peel")')


def _no_place(function: Function, loop: For, factor: int, extent: Expr, what: str) -> Exception:
    name = loop.var.name
    masked = f'split({name}, {factor}, tail="mask")'
    if isinstance(extent, Const):
        n = int(extent.value)
        left = n % factor
        why = f"{factor} does not divide {n}: the last {left} iteration{'s' * (left > 1)} would have no place"
        divisors = [d for d in range(2, n + 1) if n % d == 0]
        fix = f"take a factor from {_some(divisors)}, or {masked}" if divisors else masked
    else:
        why, fix = f"nothing says that {factor} divides {extent}", masked
    return refusal(function, what, loop, why=why, fix=fix)


def _some(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return f"[{shown}, …]" if len(numbers) > 8 else f"[{shown}]"


def _peel(function: Function, loop: For, factor: int, extent: Expr, divides: bool) -> Step:
    whole = simplify(FloorDiv(extent, const(factor)))
    outer, inner = Var(loop.var.name + "o"), Var(loop.var.name + "i")
    place = simplify(loop.begin + outer * factor + inner)
    body = substitute_expressions(loop.body, {loop.var: place})
    main = loop.replace(
        var=outer, begin=const(0), end=whole, body=For(inner, const(0), const(factor), LoopKind.SERIAL, body)
    )
    if divides:
        proof = f"{factor} divides {extent}"
        return Step(function.replace(body=replace(function.body, loop, main)), (outer, inner, None), (proof,))
    rest = loop.replace(begin=simplify(loop.begin + whole * factor))
    if isinstance(whole, Const) and whole.value == 0:
        why = f"{extent} iterations do not fill the inner loop once"
        raise refusal(function, f"cannot split loop {loop.var.name} by {factor}", loop, why=why, fix="take less")
    tail = fresh_blocks(function, fresh_copy(rest), ".tail")
    assert isinstance(tail, For)
    proof = f"the iterations from {rest.begin} on run in a loop of their own"
    return Step(
        function.replace(body=replace(function.body, loop, seq(main, tail))), (outer, inner, tail.var), (proof,)
    )


def guarded(stmt: Stmt, cond: Expr) -> Stmt:
    """The statement with its blocks run only where `cond` holds. If it does anything outside blocks, all of it is put
    under an `if`."""
    return _in_blocks(stmt, cond) if blocks(stmt) and _acts_in_blocks(stmt) else If(cond, stmt)


def _in_blocks(stmt: Stmt, cond: Expr) -> Stmt:
    """The condition goes to the outermost blocks."""
    if isinstance(stmt, Block):
        return stmt.replace(where=cond if stmt.where is None else And(stmt.where, cond))
    made = stmt.rebuild(tuple([_in_blocks(c, cond) if isinstance(c, Stmt) else c for c in stmt.children()]))
    assert isinstance(made, Stmt)
    return made


def _acts_in_blocks(stmt: Stmt) -> bool:
    """Whether nothing outside blocks reads or writes memory."""
    match stmt:
        case Block() | Alloc() | Prefetch():
            return True
        case Seq() | For() | If() | Let():
            parts = stmt.children()
            quiet = not any(True for c in parts if isinstance(c, Expr) for _ in loads(c))
            return quiet and all(_acts_in_blocks(c) for c in parts if isinstance(c, Stmt))
    return False


def require_starts_inside(function: Function, loop: For, body: Stmt, what: str) -> None:
    """Refuses to put a block under an `if` if its init, which runs outside the loops it sums over, would not be."""
    inner = {s.var for s in statements(body) if isinstance(s, For)}
    for block in blocks(body) if isinstance(body, If) else ():
        outside = summed_loops(block) - inner
        if block.init is not None and outside:
            name = next(iter(outside)).name
            why = f"the init of {block.name} runs outside {name}, and would not stand under the condition"
            raise refusal(function, what, loop, why=why, fix=f'decompose_reduction("{block.name}", {name}) first')


def fuse(function: Function, outer: Var, inner: Var) -> Step:
    """Fuses two loops, one directly inside the other, into one. Returns its variable.

    for i in 0..n, j in 0..4: b(i, j)      =>      for ij in 0..n*4: b(ij // 4, ij % 4)
    """
    first, second = find_loop(function, outer), find_loop(function, inner)
    what = f"cannot fuse loops {first.var.name} and {second.var.name}"
    if first.body is not second:
        why = f"{second.var.name} is not directly inside {first.var.name}, alone"
        raise refusal(function, what, second, why=why, fix="reorder the loops first")
    if first.var in variables_of(second.begin) | variables_of(second.end):
        raise refusal(function, what, second, why=f"the bounds of {second.var.name} depend on {first.var.name}")
    if first.kind is not second.kind:
        why = f"{first.var.name} is {first.kind.value}, {second.var.name} is {second.kind.value}"
        raise refusal(function, what, second, why=why, fix="give both the same kind first")
    for block in blocks(second):
        if block.init is not None and _mixes(block, first.var, second.var):
            why = (
                f"one is bound to a reduce axis of {block.name}, the other to a spatial one, and its init runs between"
            )
            raise refusal(function, what, first, why=why, fix=f'decompose_reduction("{block.name}", …) first')
    made = fused(first, second)
    _require_same_starts(function, first, second.body, made.body, what)
    evidence = (f"{second.var.name} is all that {first.var.name} holds, and its bounds do not change",)
    return Step(function.replace(body=replace(function.body, first, made)), made.var, evidence)


def fused(first: For, second: For) -> For:
    """Two loops, the second all that the first holds, as one of the kind of the first."""
    var = Var(first.var.name + second.var.name)
    n, m = extent_of(first), extent_of(second)
    one = isinstance(n, Const) and n.value == 1
    values: dict[Expr, Expr] = {
        first.var: first.begin if one else simplify(first.begin + FloorDiv(var, m)),
        second.var: simplify(second.begin + (var if one else Mod(var, m))),
    }
    body = substitute_expressions(second.body, values)
    return first.replace(var=var, begin=const(0), end=simplify(n * m), body=body)


def _require_same_starts(function: Function, loop: For, before: Stmt, after: Stmt, what: str) -> None:
    """Refuses if a condition on reduce axes, which does not apply to inits, would become one that does."""
    for one, other in zip(blocks(before), blocks(after), strict=True):
        if one.init is not None and _start_conditions(one) != _start_conditions(other):
            why = f"a condition of {one.name} on what it sums over would keep its init from running, too"
            raise refusal(function, what, loop, why=why, fix=f'decompose_reduction("{one.name}", …) first')


def _start_conditions(block: Block) -> int:
    """The number of conditions that apply to an init."""
    summed = summed_loops(block) | {a.var for a in block.reduce}
    return sum(not variables_of(part) & summed for part in conjuncts(block.where))


def _mixes(block: Block, one: Var, other: Var) -> bool:
    def bound(axes: Sequence[object], var: Var) -> bool:
        return any(var in variables_of(a.binding) for a in axes)  # type: ignore[attr-defined]

    spatial = [bound(block.spatial, v) for v in (one, other)]
    reduce = [bound(block.reduce, v) for v in (one, other)]
    return any(spatial) and any(reduce)


def reorder(function: Function, *loops: Var) -> Step:
    """Permutes loops into the order given, outermost first. Other loops between them stay where they are. All must be
    nested with nothing else between them.

    for i, j: b(i, j)      =>      for j, i: b(i, j)                                          reorder(j, i)
    """
    names = ", ".join(v.name for v in loops)
    what = f"cannot reorder loops {names}"
    if len(loops) < 2 or len(set(loops)) != len(loops):
        raise find_error(function, what, loops, "a new order needs two loops or more, each once")
    wanted = [find_loop(function, v) for v in loops]
    chain = _chain(function, wanted, what)
    places = iter(wanted)
    target = [next(places) if loop in wanted else loop for loop in chain]
    order = [chain.index(loop) for loop in target]
    _check_bounds(function, target, what)
    evidence = require_reorder(function, chain, order, what)
    made = nested(target, chain[-1].body)
    return Step(function.replace(body=replace(function.body, chain[0], made)), None, evidence)


def find_error(function: Function, what: str, loops: Sequence[Var], why: str) -> Exception:
    return refusal(function, what, find_loop(function, loops[0]) if loops else function, why=why)


def _chain(function: Function, wanted: Sequence[For], what: str) -> list[For]:
    """The loops from the outermost to the innermost of those wanted, with nothing between them."""
    depth = {loop: len(path_to(function.body, loop)) for loop in wanted}
    first, last = min(wanted, key=lambda w: depth[w]), max(wanted, key=lambda w: depth[w])
    chain: list[For] = [first]
    while chain[-1] is not last:
        body = chain[-1].body
        if not isinstance(body, For):
            name = chain[-1].var.name
            outside = last if last not in path_to(first, last) else None
            why = (
                f"{last.var.name} is not inside {first.var.name}"
                if outside is not None
                else f"{name} holds more than a loop: what stands beside it would run another number of times"
            )
            raise refusal(function, what, chain[-1], why=why, fix="decompose or move what is between the loops first")
        chain.append(body)
    missing = [w.var.name for w in wanted if w not in chain]
    if missing:
        raise refusal(function, what, first, why=f"{', '.join(missing)} is not between the others")
    return chain


def _check_bounds(function: Function, target: Sequence[For], what: str) -> None:
    inside: set[Var] = set()
    for loop in reversed(target):
        used = (variables_of(loop.begin) | variables_of(loop.end)) & inside
        if used:
            names = ", ".join(v.name for v in used)
            why = f"the bounds of {loop.var.name} depend on {names}, which would run inside it"
            raise refusal(function, what, loop, why=why)
        inside.add(loop.var)


def tile(function: Function, rows: Var, columns: Var, height: int, width: int, *, tail: str = "exact") -> Step:
    """Tiles two nested loops by height x width. Returns the loops over tiles and those inside them: io, jo, ii, ji."""
    one = split(function, rows, height, tail=tail)
    two = split(one.function, columns, width, tail=tail)
    (io, ii), (jo, ji) = _variables(one), _variables(two)
    done = reorder(two.function, io, jo, ii, ji)
    return Step(done.function, (io, jo, ii, ji), (*one.evidence, *two.evidence, *done.evidence))


def _variables(step: Step) -> tuple[Var, Var]:
    assert isinstance(step.made, tuple)
    outer, inner = step.made[:2]
    if not isinstance(outer, Var) or not isinstance(inner, Var):
        raise InternalError("a split returned no loops")
    return outer, inner


def partition(function: Function, loop: Var, at: int | None = None) -> Step:
    """Cuts a loop into two that run one after the other: the iterations below `at`, and those from it on. Returns both
    variables; blocks of the second are called NAME.tail. Conditions that hold throughout a part are removed there.
    Without `at`, the cut is where the first condition on the loop stops holding; or, if that is its first iteration,
    where the condition can no longer hold. A part in which no block runs is left out, and None returned for it.

    for i in 0..5, j in 0..4: b where i*4 + j < 18     =>     for i in 0..4, j in 0..4: b
                                                              for i in 4..5, j in 0..4: b where i*4 + j < 18
    """
    found = find_loop(function, loop)
    what = f"cannot partition loop {found.var.name}"
    _require_one_start(function, found, what)
    place = as_expr(at) if at is not None else boundary(found)
    if place is None:
        why = "no condition inside it holds up to some iteration and not beyond"
        raise refusal(function, what, found, why=why, fix=f"say where: partition({found.var.name}, at)")
    around = ranges_of(loops_around(function.body, found))
    cut = simplify(_clamp(place, found), facts_of(around))
    _require_steady_starts(function, found, cut, what)
    first = settle(found.replace(end=cut), around)
    second = settle(fresh_blocks(function, fresh_copy(found.replace(begin=cut)), ".tail"), around)
    parts = [p for p in (first, second) if isinstance(p, For)]
    made = seq(*parts)
    variables = tuple(p.var if isinstance(p, For) else None for p in (first, second))
    evidence = (f"each iteration of {found.var.name} runs once, in the same order",)
    return Step(function.replace(body=replace(function.body, found, made)), variables, evidence)


def _require_steady_starts(function: Function, loop: For, cut: Expr, what: str) -> None:
    """Refuses a cut that depends on a loop that a block sums over: its init runs outside that loop."""
    for block in blocks(loop):
        moved = variables_of(cut) & summed_loops(block)
        if block.init is not None and moved:
            name = next(iter(moved)).name
            why = (
                f"where it is cut, {cut}, depends on {name}, which {block.name} sums over and its init runs outside of"
            )
            raise refusal(function, what, loop, why=why, fix=f'decompose_reduction("{block.name}", {name}) first')


def _require_one_start(function: Function, loop: For, what: str) -> None:
    """Refuses to cut a loop that a block sums over while the block has an init, which would run before each part."""
    for block in blocks(loop):
        if block.init is not None and any(loop.var in variables_of(a.binding) for a in block.reduce):
            name = loop.var.name
            why = f"{name} is bound to a reduce axis of {block.name}, whose init would run before each part"
            raise refusal(function, what, loop, why=why, fix=f'decompose_reduction("{block.name}", {name}) first')


def _clamp(place: Expr, loop: For) -> Expr:
    return maximum(minimum(place, loop.end), loop.begin)
