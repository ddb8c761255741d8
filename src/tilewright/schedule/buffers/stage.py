"""stage: while one iteration of a loop runs, the part of a buffer that it touches lives in a local buffer.

for ko, io:                                     for ko, io:
  for k, ii: block dot(vi = io*6 + ii, …):        alloc y.local: f32[6] in register
    y[vi] += …                           =>       for i: block y.load(vi = io*6 + i): y.local[i] = y[vi]
                                                  for k, ii: block dot(…): y.local[ii] += …
                                                  for i2: block y.store(vi2 = io*6 + i2): y[vi2] = y.local[i2]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.analysis.intervals import Range, interval
from tilewright.analysis.regions import ranges_of
from tilewright.core.walk import preorder
from tilewright.expr.build import maximum
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Const, Expr, Min, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import blocks, loads, loops_around, replace, statements
from tilewright.loops.nodes import Alloc, Buffer, For, Function, Load, LoopKind, Prefetch, Stmt, Store, seq
from tilewright.schedule.buffers.cache import copy_nest, dimension_names, shared_inside
from tilewright.schedule.buffers.compact import rebased
from tilewright.schedule.buffers.scopes import LOCAL
from tilewright.schedule.facts.domain import known_in, unclipped
from tilewright.schedule.facts.elements import (
    Elements,
    contains,
    cover_all,
    elements,
    in_box,
    point,
    tightened,
    touches,
    united,
    unwritten,
)
from tilewright.schedule.facts.known import NOTHING, Known
from tilewright.schedule.find import find_buffer, find_loop, stored_buffers
from tilewright.schedule.legality import require_independent
from tilewright.schedule.names import unique_block, unique_buffer, unique_loops
from tilewright.schedule.step import Step, refusal
from tilewright.types.scopes import Scope


def stage(function: Function, buffer: str, loop: Var, *, scope: str = "stack") -> Step:
    """Each iteration of the loop works on a local copy of the part of a buffer that it touches: a box of the same shape
    in all iterations. Returns the name of the local buffer, BUFFER.local. Block BUFFER.load fills it at the begin of
    the body, unless the iteration stores all elements before it reads them. Block BUFFER.store copies stored elements
    back at the end. Elements that conditions mask, or that are beyond the end of the buffer, are not copied.
    """
    found = find_loop(function, loop)
    what = f"cannot stage {buffer} in loop {found.var.name}"
    source = _source(function, found, buffer, what)
    _require_plain(function, found, source, what)
    around = [*loops_around(function.body, found), found]
    part = _part(found, source, around)
    shape = _shape(function, found, part.touched, around, scope, what)
    local = Buffer(unique_buffer(function, f"{source.name}.local"), source.dtype, shape, Scope(scope))
    body = _staged(function, found, source, local, part)
    made = function.replace(body=replace(function.body, found, found.replace(body=body)))
    _require_still_right(function, made, around, what)
    box = f"{source.name}{part.touched}"
    evidence = [f"an iteration of {found.var.name} touches {box} alone"]
    if part.stored is not None and part.loaded is None:
        evidence.append(f"what an iteration of {found.var.name} reads of {source.name} it stored before")
    return Step(made, local.name, tuple(evidence))


@dataclass(frozen=True, slots=True)
class _Part:
    """The elements of a buffer that an iteration touches, that it must load first, and that it stores at the end."""

    touched: Elements
    loaded: Elements | None
    stored: Elements | None


def _source(function: Function, loop: For, name: str, what: str) -> Buffer:
    """The buffer of this name that the loop touches."""
    seen = [load.buffer for load in loads(loop.body)]
    seen += [s.buffer for s in statements(loop.body) if isinstance(s, Store)]
    found = [b for b in dict.fromkeys(seen) if b.name == name]
    if len(found) == 1:
        return found[0]
    if not found:
        find_buffer(function, name)
    names = ", ".join(dict.fromkeys(b.name for b in seen)) or "nothing"
    why = f"it touches {names}" if not found else f"it touches {len(found)} buffers of this name"
    raise refusal(function, what, loop, why=why)


def _require_plain(function: Function, loop: For, source: Buffer, what: str) -> None:
    """Refuses if the memory is accessed under another name, or if a copy would not live as long as its contents."""
    obstacle = shared_inside(function, loop, source)
    if obstacle is not None:
        raise refusal(function, what, obstacle.at, why=obstacle.why, fix=obstacle.fix)
    around = [*loops_around(function.body, loop), loop]
    lanes = next((each for each in around if each.kind in (LoopKind.VECTORIZE, LoopKind.INSTRUCTION)), None)
    if lanes is not None:
        why = f"{lanes.var.name} runs as {lanes.kind.value}: a local buffer inside has no place"
        raise refusal(function, what, loop, why=why, fix=f"take a loop outside {lanes.var.name}")
    for s in statements(loop.body):
        if isinstance(s, Prefetch) and s.place.buffer is source:
            raise refusal(function, what, s, why=f"it asks for {source.name} by its place in memory", fix="stage first")
        if isinstance(s, Store) and s.buffer is source and any(i.lanes != 1 for i in s.indices):
            raise refusal(function, what, s, why="it stores to several elements at once")
    for block in blocks(loop.body):
        summed = {v for a in block.reduce for v in variables_of(a.binding)}
        outer = next((each for each in around if each.var in summed), None)
        starts = block.init is not None and source in stored_buffers(block.init) | {
            load.buffer for load in loads(block.init)
        }
        if outer is not None and starts:
            why = f"the init of {block.name} runs once for all iterations of {outer.var.name}"
            fix = f'decompose_reduction("{block.name}", {outer.var.name}) first'
            raise refusal(function, what, block, why=why, fix=fix, part=block.name)


def _part(loop: For, source: Buffer, around: Sequence[For]) -> _Part:
    known, outer = known_in(tuple(around)), frozenset(each.var for each in around)
    found = touches(loop.body, source)
    parts = [tightened(elements(t), known, outer) for t in found]
    writes = [part for t, part in zip(found, parts, strict=True) if t.access.is_store]
    whole = cover_all(list(dict.fromkeys(parts)), parts, known)
    exact = _exactly(writes, known)
    stored: Elements | None = None
    loaded: Elements | None = None
    if unwritten(found, around) is not None or (writes and exact is None):
        loaded = _inside(whole, source, known)
    if writes:
        stored = exact or _inside(cover_all(writes, parts, known), source, known)
    return _Part(whole, loaded, stored)


def _exactly(writes: Sequence[Elements], known: Known) -> Elements | None:
    """The elements that are stored, where that is known."""
    for candidate in [*united(writes), *(w for w in writes if w.exact)]:
        if all(contains(candidate, w, known) for w in writes):
            return candidate
    return None


def _inside(part: Elements, source: Buffer, known: Known) -> Elements:
    """The elements that are in the buffer; conditions that hold throughout the box are left out."""
    edges: list[Expr] = []
    for d, extent in zip(point(len(source.shape)), source.shape, strict=True):
        edges += [d, simplify(extent - d - 1)]
    box = in_box(known, part.box)
    kept = [c for c in dict.fromkeys([*part.conditions, *edges]) if not box.never_negative(polynomial(c))]
    return Elements(part.box, tuple(kept), part.exact)


def _shape(
    function: Function, loop: For, part: Elements, around: Sequence[For], scope: str, what: str
) -> tuple[Expr, ...]:
    """The shape of the box, the same in all iterations."""
    if scope not in {s.value for s in LOCAL}:
        fix = f"take one of {', '.join(s.value for s in LOCAL)}"
        raise refusal(function, what, loop, why=f'no local buffer lives in "{scope}"', fix=fix)
    shape = [_bound(r.extent, around, set(function.symbols)) for r in part.box]
    for r, extent in zip(part.box, shape, strict=True):
        if extent is None:
            why = f"how many elements an iteration touches, {r.extent}, is not the same in all iterations"
            raise refusal(function, what, loop, why=why, fix="take a loop further inside")
        if not isinstance(extent, Const) and scope in (Scope.STACK.value, Scope.REGISTER.value):
            why = f"an iteration touches {extent} elements in one dimension: known only when the program runs"
            raise refusal(function, what, loop, why=why, fix='take scope="arena", or a loop further inside')
    return tuple(e for e in shape if e is not None)


def _bound(extent: Expr, around: Sequence[For], symbols: set[Var]) -> Expr | None:
    """The greatest extent over the loops around; None where that is not known."""
    if isinstance(extent, Min):
        sides = [e for e in (extent.a, extent.b) if isinstance(e, Const)]
        if sides:
            return sides[0]
    if variables_of(extent) - symbols:
        bounds = interval(extent, ranges_of(unclipped(around)[0]))
        if bounds is None or variables_of(bounds.high) - symbols:
            return None
        extent = simplify(bounds.high)
    if any(isinstance(e, Load) for e in preorder(extent)):
        return None
    return extent if NOTHING.never_negative(polynomial(extent)) else simplify(maximum(extent, const(0)))


def _staged(function: Function, loop: For, source: Buffer, local: Buffer, part: _Part) -> Stmt:
    """The body with its accesses made to the local buffer, between the copies."""
    box: tuple[Range, ...] = part.touched.box
    words = dimension_names(loop.body, source)
    loops = [Var(word) for word in unique_loops(function, [*words, *words])]
    copy = source.replace(name=local.name)
    made: list[Stmt] = [Alloc(local)]
    if part.loaded is not None:
        name = unique_block(function, f"{source.name}.load")
        nest = copy_nest(name, loops[: len(words)], part.loaded, lambda at: Store(copy, at, Load(source, at)))
        made.append(rebased(nest, copy, local, box))
    made.append(rebased(loop.body, source, local, box))
    if part.stored is not None:
        name = unique_block(function, f"{source.name}.store")
        own = loops[len(words) :] if part.loaded is not None else loops[: len(words)]
        nest = copy_nest(name, own, part.stored, lambda at: Store(source, at, Load(copy, at)))
        made.append(rebased(nest, copy, local, box))
    return seq(*made)


def _require_still_right(function: Function, made: Function, around: Sequence[For], what: str) -> None:
    """Iterations that run at the same time must not meet in what is copied."""
    for each in around:
        if each.kind in (LoopKind.PARALLEL, LoopKind.THREAD):
            changed = find_loop(made, each.var)
            require_independent(made, changed, what, f"take a loop further inside, or leave {each.var.name} serial")
