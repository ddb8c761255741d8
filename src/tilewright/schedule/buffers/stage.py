"""stage: while one iteration of a loop runs, the part of a buffer that it touches lives in a local buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from tilewright.analysis.intervals import interval
from tilewright.analysis.regions import ranges_of
from tilewright.core.walk import preorder
from tilewright.expr.build import maximum
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Const, Expr, Min, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import summed_loops, variables_of
from tilewright.loops.edit import blocks, loaded_buffers, loads, loops_around, replace, statements
from tilewright.loops.nodes import Alloc, Buffer, For, Function, Load, LoopKind, Stmt, Store, seq
from tilewright.schedule.buffers.local import (
    LANES,
    accessed,
    box_nest,
    dimension_names,
    exactly,
    fresh_loops,
    placed,
    rebased,
    require_no_prefetch,
    vectors_of,
)
from tilewright.schedule.facts.domain import known_in, unclipped
from tilewright.schedule.facts.elements import (
    Elements,
    cover_all,
    elements,
    in_box,
    point,
    tightened,
    touches,
    unwritten,
)
from tilewright.schedule.facts.known import NOTHING, Known
from tilewright.schedule.facts.place import require_plain
from tilewright.schedule.find import find_loop, stored_buffers
from tilewright.schedule.legality import require_independent
from tilewright.schedule.names import unique_block, unique_buffer
from tilewright.schedule.step import Step, refusal


def stage(function: Function, buffer: str, loop: Var, *, scope: str = "stack") -> Step:
    """Each iteration of the loop works on a local copy of the part of a buffer that it touches: a box of the same shape
    in all iterations. Returns the name of the local buffer, BUFFER.local. Block BUFFER.load fills it at the begin of
    the body, unless the iteration stores all elements before it reads them. Block BUFFER.store copies stored elements
    back at the end. Elements that conditions mask, or that are beyond the end of the buffer, are not copied.

    for ko, io: for k, ii: block dot(vi = io*6 + ii, …): y[vi] += …
              =>      for ko, io: alloc y.local: f32[6] in register
                                  for i: block y.load(vi = io*6 + i): y.local[i] = y[vi]
                                  for k, ii: block dot(…): y.local[ii] += …
                                  for i2: block y.store(vi2 = io*6 + i2): y[vi2] = y.local[i2]
    """
    found = find_loop(function, loop)
    what = f"cannot stage {buffer} in loop {found.var.name}"
    seen = [load.buffer for load in loads(found.body)]
    seen += [s.buffer for s in statements(found.body) if isinstance(s, Store)]
    source = accessed(function, found, seen, buffer, what)
    around = [*loops_around(function.body, found), found]
    _require_elements(function, around, source, what)
    part = _part(found, source, around)
    name, shape = unique_buffer(function, f"{source.name}.local"), _shape(function, around, part.touched, what)
    local = placed(function, Buffer(name, source.dtype, shape), scope, found, what, ", or a loop further inside")
    body = _staged(function, found, source, local, part)
    made = function.replace(body=replace(function.body, found, found.replace(body=body)))
    for each in around:
        if each.kind in (LoopKind.PARALLEL, LoopKind.THREAD):
            fix = f"take a loop further inside, or leave {each.var.name} serial"
            require_independent(made, find_loop(made, each.var), what, fix)
    evidence = [f"an iteration of {found.var.name} touches {source.name}{part.touched} alone"]
    if part.stored is not None and part.loaded is None:
        evidence.append(f"what an iteration of {found.var.name} reads of {source.name} it stored before")
    return Step(made, name, tuple(evidence))


def _require_elements(function: Function, around: Sequence[For], source: Buffer, what: str) -> None:
    """Refuses if the memory is accessed otherwise than by loads and stores of elements, or if a copy would not live as
    long as its contents."""
    loop = around[-1]
    require_plain(function, source, what, loop)
    lanes = next((each for each in around if each.kind in LANES), None)
    if lanes is not None:
        why = f"{lanes.var.name} runs as {lanes.kind.value}: a local buffer inside has no place"
        raise refusal(function, what, loop, why=why, fix=f"take a loop outside {lanes.var.name}")
    require_no_prefetch(function, loop.body, source, what, "stage first")
    for s in statements(loop.body):
        vectors = vectors_of(s, source)
        if vectors is not None:
            raise refusal(function, what, s, why=vectors)
    for block in blocks(loop.body):
        outer = next((each for each in around if each.var in summed_loops(block)), None)
        init = block.init
        if outer is not None and init is not None and source in stored_buffers(init) | loaded_buffers(init):
            why = f"the init of {block.name} runs once for all iterations of {outer.var.name}"
            fix = f'decompose_reduction("{block.name}", {outer.var.name}) first'
            raise refusal(function, what, block, why=why, fix=fix, part=block.name)


@dataclass(frozen=True, slots=True)
class _Part:
    """The elements of a buffer that an iteration touches, that it must load first, and that it stores at the end."""

    touched: Elements
    loaded: Elements | None
    stored: Elements | None


def _part(loop: For, source: Buffer, around: Sequence[For]) -> _Part:
    known, outer = known_in(tuple(around)), frozenset(each.var for each in around)
    found = touches(loop.body, source)
    parts = [tightened(elements(t), known, outer) for t in found]
    writes = [part for t, part in zip(found, parts, strict=True) if t.access.is_store]
    touched, exact = cover_all(list(dict.fromkeys(parts)), parts, known), exactly(writes, known)
    begins = unwritten(found, around) is None and not (writes and exact is None)
    loaded = None if begins else _inside(touched, source, known)
    stored = (exact or _inside(cover_all(writes, parts, known), source, known)) if writes else None
    return _Part(touched, loaded, stored)


def _inside(part: Elements, source: Buffer, known: Known) -> Elements:
    """The elements that are in the buffer; conditions that hold throughout the box are left out."""
    dimensions = zip(point(len(source.shape)), source.shape, strict=True)
    edges = [edge for d, extent in dimensions for edge in (d, simplify(extent - d - 1))]
    box = in_box(known, part.box)
    kept = [c for c in dict.fromkeys([*part.conditions, *edges]) if not box.never_negative(polynomial(c))]
    return Elements(part.box, tuple(kept), part.exact)


def _shape(function: Function, around: Sequence[For], part: Elements, what: str) -> tuple[Expr, ...]:
    """The shape of the box, the same in all iterations."""
    shape: list[Expr] = []
    for r in part.box:
        extent = _bound(r.extent, around, set(function.symbols))
        if extent is None:
            why = f"how many elements an iteration touches, {r.extent}, is not the same in all iterations"
            raise refusal(function, what, around[-1], why=why, fix="take a loop further inside")
        shape.append(extent)
    return tuple(shape)


def _bound(extent: Expr, around: Sequence[For], symbols: set[Var]) -> Expr | None:
    """The greatest extent over the loops around; None where that is not known."""
    match extent:
        case Min(Const() as side, _) | Min(_, Const() as side):
            return side
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
    box, words = part.touched.box, dimension_names(loop.body, source)
    free = iter(fresh_loops(function, [*words, *words]))
    copy = source.replace(name=local.name)

    def copies(word: str, copied: Elements | None, to: Buffer, of: Buffer) -> list[Stmt]:
        if copied is None:
            return []
        name, loops = unique_block(function, f"{source.name}.{word}"), list(islice(free, len(words)))
        return [rebased(box_nest(name, loops, copied, lambda at: Store(to, at, Load(of, at))), copy, local, box)]

    before = copies("load", part.loaded, copy, source)
    after = copies("store", part.stored, source, copy)
    return seq(Alloc(local), *before, rebased(loop.body, source, local, box), *after)
