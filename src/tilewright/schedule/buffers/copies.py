"""cache_read, cache_write, stage: a block or a loop works on a local copy of a buffer, or of a part of it; compact: a
local buffer shrinks to the part that an iteration touches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, takewhile

from tilewright.analysis.accesses import accesses, mentions
from tilewright.analysis.domains import greatest
from tilewright.analysis.elements import (
    Elements,
    box_of,
    elements,
    exactly,
    moved_around,
    tightened,
    touches,
    unwritten,
)
from tilewright.analysis.intervals import Range
from tilewright.analysis.iterations import product_in
from tilewright.analysis.known import NOTHING, resolved
from tilewright.analysis.memory import Memory, defined_in, prefetches_of
from tilewright.analysis.regions import whole
from tilewright.core.walk import preorder, substitute
from tilewright.expr.build import maximum
from tilewright.expr.nodes import Expr, Max, Min, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops import edit
from tilewright.loops.decompose import variables_of
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Load, Seq, Stmt, Store, View, seq
from tilewright.report.quantities import counted
from tilewright.schedule import facts
from tilewright.schedule.find import find_buffer, find_loop, nests, primitive
from tilewright.schedule.nests import box_nest, copy_nest
from tilewright.schedule.step import Obstacle, Step, fresh_loops, refusing, rewritten, unique_name
from tilewright.types.scopes import Scope


@primitive("cannot cache {buffer} for block {block}")
def cache_read(function: Function, block: Block, buffer: Buffer, *, scope: str = "arena") -> Step:
    """The block reads a local copy of the whole buffer, which a nest of loops of its own fills right before the
    top-level statement that holds the block. Returns the name of the block that copies, which is the buffer's, too:
    BUFFER.cache.

    for i: block y(vi = i): y[vi] = x[vi, 0]
              =>      alloc x.cache: f32[n, 4] in arena
                      for i2, d1: block x.cache(vi2 = i2, vd1 = d1): x.cache[vi2, vd1] = x[vi2, vd1]
                      for i: block y(vi = i): y[vi] = x.cache[vi, 0]
    """
    _require_touched(block, buffer)
    place = _top_level(function, block)
    if buffer in defined_in(place):
        raise Obstacle(place, f"{buffer.name} lives inside the statement", "cache what it is computed from")
    memory = Memory(function.body)
    for s, _ in memory.changes(edit.statements(place), {memory.of(buffer)}):
        raise Obstacle(s, f"it may write {buffer.name}: a copy made before the statement would be out of date")
    name = unique_name(function, f"{buffer.name}.cache")
    local = facts.placed(Buffer(name, buffer.dtype, buffer.shape, buffer.scope), scope, block)
    loops, part = fresh_loops(function, _dimension_names(block, buffer)), Elements(whole(buffer.shape), True)
    copy = copy_nest(name, loops, part, local, buffer, singles=True)
    reading = edit.replace(place, block, edit.substitute_buffers(block, {buffer: local}))
    evidence = f"nothing in the statement that holds {block.name} writes {buffer.name}"
    return rewritten(function, place, seq(Alloc(local), copy, reading), name, evidence)


def _top_level(function: Function, block: Block) -> Stmt:
    """The top-level statement that holds a block."""
    return next(s for s in nests(function) if block in edit.statements(s))


@primitive("cannot view {buffer} in block {block}")
def view(function: Function, block: Block, buffer: Buffer, place: int = 1) -> Step:
    """The block reads one of its loads of a buffer under another name for the same memory: the one at this place among
    the different ones, in the order in which they are written. Returns the name, BUFFER.view. Steps that take a buffer
    of the block then treat what both names stand for apart.

    for i, j, k: block y(vi = i, vj = j, reduce vk = k): y[vi, vj] += x[vk, vi] * x[vk, vj]
              =>      view x.view: f32[n, m] = x
                      for i, j, k: block y(vi = i, vj = j, reduce vk = k): y[vi, vj] += x[vk, vi] * x.view[vk, vj]

    Legal where the block does not write the buffer.
    """
    _require_touched(block, buffer)
    holder, memory = _top_level(function, block), Memory(function.body)
    if buffer in defined_in(holder):
        raise Obstacle(holder, f"{buffer.name} lives inside the statement", "view what it is computed from")
    for s, _ in memory.changes(edit.statements(block), {memory.of(buffer)}):
        raise Obstacle(s, f"it may write {buffer.name}, and one name would hide that from those who look at the other")
    found = [load for load in dict.fromkeys(edit.loads(block)) if load.buffer is buffer]
    if not 0 <= place < len(found):
        raise Obstacle(
            block,
            f"it has {counted(len(found), 'different load')} of {buffer.name}",
            f"take a place from 0 to {len(found) - 1}",
        )
    made = buffer.replace(name=unique_name(function, f"{buffer.name}.view"))
    reading = edit.substitute_expressions(block, {found[place]: Load(made, found[place].indices)})
    body = seq(View(made, buffer), edit.replace(holder, block, reading))
    return rewritten(function, holder, body, made.name, f"{block.name} does not write {buffer.name}")


@primitive("cannot bind an expression of block {block}")
def bind_expression(function: Function, block: Block, buffers: Sequence[str], *, scope: str = "arena") -> Step:
    """The smallest expression of a block with all its loads of these buffers is computed into a local buffer, with a
    dimension for each axis that it depends on, by a nest of loops right before the top-level statement that holds the
    block, which reads it there. Returns the name of the block that computes it, the buffer's, too: BLOCK.part.

    for i, j, k: block dot(vi = i, vj = j, reduce vk = k): y[vi, vj] += x[vi, vk] * (a[vk, vj] - b[vk, vj])
              =>      alloc dot.part: f32[m, n] in arena
                      for j2, k2: block dot.part(vj2 = j2, vk2 = k2): dot.part[vj2, vk2] = a[vk2, vj2] - b[vk2, vj2]
                      for i, j, k: block dot(vi = i, vj = j, reduce vk = k): y[vi, vj] += x[vi, vk] * dot.part[vj, vk]

    Legal where the block is one store at all points of loops from 0, and nothing there writes what is read.
    """
    wanted = {find_buffer(function, name) for name in buffers}
    asked = {load for load in edit.loads(block.body) if load.buffer in wanted}
    if not asked or not isinstance(block.body, Store):
        raise Obstacle(block, "it loads none of these buffers" if not asked else "it is not one store", _BEFORE_SPLITS)
    *_, value = (e for e in preorder(block.body.value) if isinstance(e, Expr) and asked <= set(edit.loads_of(e)))
    return _bound(function, block, value, scope)


@primitive("cannot bind a factor of block {block}")
def bind_factor(function: Function, block: Block, factor: int, *, scope: str = "arena") -> Step:
    """A factor of the products that a block adds up, the first (0) or the second (1), is computed as `bind_expression`
    does, once for all sums that it is part of, and lies as what it is computed of. Returns the same.

    for i, j, k: block dot(vi = i, vj = j, reduce vk = k): y[vi, vj] += exp(x[vi, vk]) * w[vk, vj]
              =>      alloc dot.part: f32[m, n] in arena
                      for i2, k2: block dot.part(vi2 = i2, vk2 = k2): dot.part[vi2, vk2] = exp(x[vi2, vk2])
                      for i, j, k: block dot(vi = i, vj = j, reduce vk = k): y[vi, vj] += dot.part[vi, vk] * w[vk, vj]
    """
    product = product_in(block)
    if product is None:
        raise Obstacle(block, "it adds up no products", "bind_expression takes the buffers that an expression loads")
    if factor not in (0, 1):
        raise Obstacle(block, f"there is no factor {factor}", "take 0 or 1")
    value = (product.a, product.b)[factor]
    longest = max(edit.loads_of(value), key=lambda load: len(load.variables), default=None)
    indices = longest.indices if longest is not None else ()
    order = [a.var for index in indices for a in block.axes if mentions(index, {a.var})]
    return _bound(function, block, value, scope, order)


_BEFORE_SPLITS = "bind what a block loads before its loops are split"


def _bound(function: Function, block: Block, value: Expr, scope: str, order: Sequence[Var] = ()) -> Step:
    """The step that computes an expression of a block before the top-level statement that holds the block: dimensions
    are the axes that it depends on, these first and in this order."""
    place = _top_level(function, block)
    path = edit.path_to(place, block)[:-1]
    loops = {loop.var: loop for loop in path if isinstance(loop, For) and loop.begin is const(0)}
    if not isinstance(block.body, Store) or block.where is not None or len(loops) < len(path):
        raise Obstacle(block, "it is not one store at all points of loops from 0", _BEFORE_SPLITS)
    memory, read = Memory(function.body), {load.buffer for load in edit.loads_of(value)}
    for s, _ in memory.changes(edit.statements(place), {memory.of(buffer) for buffer in read}):
        raise Obstacle(s, f"it may write what {block.name} reads: what is computed before would be out of date")
    bindings = {a.var: a.binding for a in block.axes if mentions(value, {a.var})}
    axes = {v: bindings[v] for v in (*order, *bindings) if v in bindings}
    ends = [loops[v].end if isinstance(v, Var) and v in loops else None for v in axes.values()]
    shape = tuple(simplify(maximum(end, const(0))) for end in ends if end is not None)
    sizes = set(function.symbols)
    if len(shape) < len(axes) or any(variables_of(e) - sizes or edit.loads_of(e) for e in shape):
        raise Obstacle(block, f"the axes that {value} depends on are no loops of known lengths")
    name = unique_name(function, f"{block.name}.part")
    local = facts.placed(Buffer(name, value.dtype, shape, Scope.ARENA), scope, block)
    names = fresh_loops(function, [str(v) for v in axes.values()])
    every = Elements(whole(shape), True)
    made = box_nest(
        name,
        names,
        every,
        lambda at: Store(local, at, substitute(value, dict(zip(axes, at, strict=True)))),
        singles=True,
    )
    reading = edit.replace(place, block, edit.substitute_expressions(block, {value: Load(local, tuple(axes))}))
    evidence = f"nothing in the statement that holds {block.name} writes what {name} reads"
    return rewritten(function, place, seq(Alloc(local), made, reading), name, evidence)


@primitive("cannot cache what block {block} writes")
def cache_write(function: Function, block: Block, *, scope: str = "arena") -> Step:
    """The top-level statement that holds the block stores to a local buffer, BUFFER.acc, instead of the block's output.
    A nest right after it copies the elements to their places. Returns the name of the block that copies: BUFFER.write.

    for i, k: block dot(vi = i, reduce vk = k): y[vi] += x[vi, vk]
              =>      alloc y.acc: f32[n] in arena
                      for i, k: block dot(vi = i, reduce vk = k): y.acc[vi] += x[vi, vk]
                      for i2: block y.write(vi2 = i2): y[vi2] = y.acc[vi2]

    Legal where the statement stores all elements of a box, and reads none before it stored it.
    """
    outputs = edit.stored_buffers(block) - defined_in(block)
    if len(outputs) != 1:
        why = f"it stores to {', '.join(sorted(b.name for b in outputs)) or 'nothing'}"
        raise Obstacle(block, why, fix="take a block with one output")
    (buffer,), place = outputs, _top_level(function, block)
    local = facts.placed(buffer.replace(name=unique_name(function, f"{buffer.name}.acc")), scope, block)
    if scope == "register":
        facts.require_no_prefetch(place, buffer, 'take scope="stack"')
    stored = _stored(function, place, buffer)
    name = unique_name(function, f"{buffer.name}.write")
    loops = fresh_loops(function, ["ijlmnopq"[n] if n < 8 else f"i{n}" for n in range(len(buffer.shape))])
    copy = copy_nest(name, loops, stored, buffer, local)
    made = seq(Alloc(local), edit.substitute_buffers(place, {buffer: local}), copy)
    box = "all" if not stored.conditions and stored.ranges == whole(buffer.shape) else str(stored)
    evidence = f"the statement that holds {block.name} stores {box} of {buffer.name} before it reads it"
    return rewritten(function, place, made, name, evidence)


def _stored(function: Function, place: Stmt, buffer: Buffer) -> Elements:
    """The elements that a top-level statement stores: it refuses where they are not all those of a box under some
    conditions, or where the statement reads of the buffer before it stored that."""
    facts.require_plain(function, buffer, place)
    found = touches(place, buffer)
    missing = unwritten(found)
    if missing is not None:
        why = f"it {missing.access.said} before it stores all of that"
        fix = f'keep a part of it while one loop runs, which loads first: stage("{buffer.name}", …)'
        raise Obstacle(missing.access.statement, why, fix)
    stores = [t for t in found if t.access.is_store]
    parts = [tightened(elements(t), NOTHING) for t in stores]
    stored = exactly(parts, NOTHING)
    if stored is None:
        touch = next((t for t, part in zip(stores, parts, strict=True) if not part.exact), stores[0])
        shown = ", ".join(dict.fromkeys(map(str, parts)))
        why = f"nothing says that it stores all of one box, {shown}: the rest would be overwritten"
        raise Obstacle(touch.access.statement, why)
    return stored


@primitive("cannot stage {buffer} in loop {loop}")
def stage(function: Function, buffer: Buffer, loop: For, *, scope: str = "stack") -> Step:
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
    _require_touched(loop, buffer)
    around = [*edit.loops_around(function.body, loop), loop]
    _require_kept(function, around, buffer)
    touched, loaded, stored = moved_around(loop, buffer, around)
    name, shape = unique_name(function, f"{buffer.name}.local"), _shape(function, around, touched)
    local = facts.placed(Buffer(name, buffer.dtype, shape), scope, loop, ", or a loop further inside")
    words, copy = _dimension_names(loop.body, buffer), buffer.replace(name=name)
    free = iter(fresh_loops(function, [*words, *words]))

    def copies(word: str, part: Elements | None, to: Buffer, of: Buffer) -> list[Stmt]:
        if part is None:
            return []
        nest = copy_nest(unique_name(function, f"{buffer.name}.{word}"), list(islice(free, len(words))), part, to, of)
        return [_rebased(nest, copy, local, touched.ranges)]

    before, after = copies("load", loaded, copy, buffer), copies("store", stored, buffer, copy)
    body = seq(Alloc(local), *before, _rebased(loop.body, buffer, local, touched.ranges), *after)
    made = function.replace(body=edit.replace(function.body, loop, loop.replace(body=body)))
    for each in [each for each in around if each.kind in facts.TOGETHER]:
        with refusing(made, f"cannot stage {buffer.name} in loop {loop.name}"):
            fix = f"take a loop further inside, or leave {each.name} serial"
            facts.require_independent(made, find_loop(made, each.var), fix)
    evidence = [f"an iteration of {loop.name} touches {buffer.name}{touched} alone"]
    if stored is not None and loaded is None:
        evidence.append(f"what an iteration of {loop.name} reads of {buffer.name} it stored before")
    return Step(made, name, tuple(evidence))


def _require_kept(function: Function, around: Sequence[For], source: Buffer) -> None:
    """Refuses if the memory is accessed otherwise than by loads and stores of elements, or if a copy would not live as
    long as its contents."""
    loop = around[-1]
    facts.require_plain(function, source, loop)
    for lanes in (each for each in around if each.kind in facts.LANES):
        why = f"{lanes.name} runs as {lanes.kind.value}: a local buffer inside has no place"
        raise Obstacle(loop, why, fix=f"take a loop outside {lanes.name}")
    facts.require_no_prefetch(loop.body, source, "stage first")
    facts.require_elements(loop.body, source)
    facts.require_begun_inside(loop, [t.init_of for t in touches(loop.body, source)], around)


def _shape(function: Function, around: Sequence[For], part: Elements) -> tuple[Expr, ...]:
    """The shape of the box, the same in all iterations."""
    shape: list[Expr] = []
    for r in part.ranges:
        extent = greatest(r.extent, around)
        if extent is None or variables_of(extent) - set(function.symbols) or edit.loads_of(extent):
            why = f"how many elements an iteration touches, {r.extent}, is not the same in all iterations"
            raise Obstacle(around[-1], why, fix="take a loop further inside")
        shape.append(extent if NOTHING.at_least(extent, const(0)) else simplify(maximum(extent, const(0))))
    return tuple(shape)


def _rebased(root: Stmt, buffer: Buffer, small: Buffer, box: Sequence[Range]) -> Stmt:
    """Accesses of `buffer` as accesses of `small`, relative to where the box begins.

    Inside a block an index is an expression over axes: where the begin is subtracted, axes are replaced by what they
    are bound to."""

    def within(s: Stmt) -> Stmt:
        def place(index: Expr, part: Range) -> Expr:
            if part.begin is const(0) and part.extent is not const(1):
                return index
            return simplify((resolved(s, index) if isinstance(s, Block) else index) - part.begin)

        return edit.substitute_buffers(s, {buffer: small}, lambda indices: tuple(map(place, indices, box)))

    if small is buffer:
        return root
    return within(edit.transform_statements(root, lambda s: within(s) if isinstance(s, Block) else s))


def _require_touched(root: Block | For, buffer: Buffer) -> None:
    """Refuses a buffer that a block does not read, or a loop does not touch."""
    verb, body = ("reads", root) if isinstance(root, Block) else ("touches", root.body)
    touched = dict.fromkeys(a.buffer for a in accesses(body) if verb == "touches" or not a.is_store)
    if buffer not in touched:
        raise Obstacle(root, f"it {verb} {', '.join(b.name for b in touched) or 'nothing'}")


def _dimension_names(body: Stmt, buffer: Buffer) -> list[str]:
    """A name for each dimension: that of the axis that the first block to touch the buffer has there, or d0, d1 …"""
    names = [f"d{n}" for n in range(len(buffer.shape))]
    for block in edit.blocks(body):
        places = (p.indices for p in preorder(block) if isinstance(p, Store | Load) and p.buffer is buffer)
        at = next(places, None)
        if at is not None:
            axes: dict[Expr, str] = {a.var: a.var.name.removeprefix("v") or a.var.name for a in block.axes}
            return [axes.get(index, name) for index, name in zip(at, names, strict=True)]
    return names


@primitive("cannot compact {buffer}")
def compact(function: Function, buffer: Buffer) -> Step:
    """The buffer shrinks to the box that one iteration of the innermost loop around all its accesses touches, and is
    allocated inside that loop. Masked elements count as touched, so the shape is that of a whole tile.

    alloc h: f32[33]                                            for io in 0..6:
    for io in 0..6:                                               alloc h: f32[6]
      for ii in 0..6: block h(vi = io*6 + ii): h[vi] = …    =>    for ii in 0..6: block h(vi = io*6 + ii): h[ii] = …
      for i in 0..6: block y(vi = io*6 + i): y[vi] = h[vi]        for i in 0..6: block y(vi = io*6 + i): y[vi] = h[i]

    Legal if no value is passed from one iteration to another: an iteration stores all elements before it reads them.
    """
    alloc = facts.allocation(function, buffer)
    loop = _innermost(function, alloc)
    _require_fresh(function, loop, buffer)
    box = _box(loop, buffer, {each.var for each in (*edit.loops_around(function.body, loop), loop)})
    small = buffer if box == whole(buffer.shape) else buffer.replace(shape=tuple(part.extent for part in box))
    body = seq(alloc.replace(buffer=small), _rebased(loop.body, buffer, small, box))
    changed = edit.replace(function.body, loop, loop.replace(body=body))
    shape, parts = (", ".join(map(str, each)) for each in (small.shape, box))
    alone = f"an iteration of {loop.name} touches {buffer.name}[{parts}] alone: [{shape}]"
    before = f"what an iteration of {loop.name} reads of {buffer.name} it stored before"
    return Step(function.replace(body=edit.replace(changed, alloc, Seq(()))), None, (alone, before))


def _require_fresh(function: Function, loop: For, buffer: Buffer) -> None:
    """An iteration of the loop reads from the buffer only what it stored there before."""
    name, outside = loop.name, [*edit.loops_around(function.body, loop), loop]
    found = touches(loop.body, buffer)
    missing = unwritten(found, outside)
    if missing is not None:
        read = missing.access.said.replace("loads", "reads", 1)
        why = f"an iteration of {name} {read} before it stores: the value is another iteration's"
        if any(touch.access.is_store for touch in found[: found.index(missing)]):
            why = f"what an iteration of {name} stores in {buffer.name} before does not cover what it {read}"
        raise Obstacle(missing.access.statement, why)
    for block, again in facts.begun_outside([t.init_of for t in found if t.access.is_store], outside):
        why = f"{block.name} goes on adding up in the next iteration of {again.name}"
        raise Obstacle(again, why, fix=f"move {again.name} inside {name}")


def _innermost(function: Function, alloc: Alloc) -> For:
    """The innermost loop around all accesses of a buffer that is not around its allocation. Loops whose iterations are
    lanes have no memory of their own."""
    buffer, name, outer = alloc.buffer, alloc.buffer.name, edit.loops_around(function.body, alloc)
    around = [a.loops for a in accesses(function.body) if a.buffer is buffer]
    if not around:
        raise Obstacle(alloc, f"nothing reads or stores {name}")
    around += [tuple(edit.loops_around(function.body, s)) for s in prefetches_of(function.body, buffer)]
    shared = [loop for loop in around[0] if loop not in outer and all(loop in each for each in around)]
    found = list(takewhile(lambda loop: loop.kind not in facts.LANES, shared))
    if not found:
        fix = "bring them together first: compute_at, or reverse_compute_at"
        raise Obstacle(alloc, f"no loop holds all that reads and stores {name}", fix)
    return found[-1]


def _box(loop: For, buffer: Buffer, moving: set[Var]) -> tuple[Range, ...]:
    """The box of a buffer that one iteration of a loop touches. A dimension for which no smaller range is known, of the
    same extent while the loops over `moving` run, is taken whole."""

    def is_part(found: Range, full: Range) -> bool:
        if mentions(found.extent, moving) or any(isinstance(e, Min | Max) for e in preorder(found.extent)):
            return False
        return mentions(found.begin, moving) or NOTHING.within(found, full)

    full = whole(buffer.shape)
    box = box_of(loop.body, buffer) or ()
    return tuple(r if is_part(r, all_of) else all_of for r, all_of in zip(box, full, strict=True))
