"""decompose_reduction, rfactor, sum_in_parts: a block that sums becomes several, one that begins it, or some that each
sum a part: these can run in parallel, or as lanes of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import cast

from tilewright.analysis.accesses import mentions
from tilewright.analysis.dependences import carried
from tilewright.analysis.domains import Domain, nest_of
from tilewright.analysis.iterations import Summed, accumulation
from tilewright.analysis.memory import Memory, defined_in
from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Add, Expr, Mul, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import decompose, decompose_block, init_nest, spatial_loops, summed_loops, variables_of
from tilewright.loops.edit import (
    blocks,
    fresh_copy,
    loads,
    loads_of,
    loops_around,
    loops_inside,
    path_to,
    perfect_nest,
    replace,
    stored_buffers,
)
from tilewright.loops.nodes import Alloc, Axis, AxisKind, Block, Buffer, For, Function, Load, Seq, Stmt, Store, seq
from tilewright.loops.sums import names_in
from tilewright.schedule import facts
from tilewright.schedule.find import primitive
from tilewright.schedule.loops.rearrange import reorder, split
from tilewright.schedule.nests import nest_over
from tilewright.schedule.step import Obstacle, Step, fresh_loops, rewritten, unique_name
from tilewright.types.scopes import Scope


@primitive("cannot decompose block {block} at loop {loop}")
def decompose_reduction(function: Function, block: Block, loop: For) -> Step:
    """The init of a block becomes a block right before `loop`, which is the outermost of its reduce loops or a loop
    around that. It runs under copies of the loops inside `loop` that spatial axes are bound to. Returns its name:
    BLOCK.init.

    for k, i: block sum: init: y[vi] = 0; y[vi] += x[vi, vk]
              =>      for i2: block sum.init: y[vi] = 0
                      for k, i: block sum: y[vi] += x[vi, vk]                           decompose_reduction("sum", k)
    """
    around = _loops_around(function, block, loop)
    inner = around[around.index(loop) :]
    _require_place(block, around, inner)
    name = unique_name(function, f"{block.name}.init")
    nest = init_nest(block, inner, name)
    _require_visible(block, loop, nest)
    _require_earlier(function, block, loop, inner)
    loops = [each.var for each in loops_inside(nest)]
    init = fresh_copy(nest, dict(zip(loops, fresh_loops(function, [v.name for v in loops]), strict=True)))
    body = replace(loop, block, block.replace(init=None))
    evidence = f"nothing that {loop.name} holds touches what {name} stores before it would have run there"
    return rewritten(function, loop, seq(init, body), name, evidence)


def decompose_reductions(function: Function) -> Step:
    """The init of every block becomes a block, BLOCK.init, right before the outermost loop that the block sums over.
    That is the meaning of `init`.

    for i, k: block sum: init: y[vi] = 0; y[vi] += x[vi, vk]
              =>      for i: block sum.init: y[vi] = 0; for k: block sum: y[vi] += x[vi, vk]
    """
    made = decompose(function)
    return Step(made, None, () if made is function else ("that is what init means",))


def _loops_around(function: Function, block: Block, loop: For, *, summed: bool = False) -> list[For]:
    """The loops around a block, or those that it sums over, of which the loop is one."""
    around = [s for s in loops_around(function.body, block) if not summed or s.var in summed_loops(block)]
    if loop not in around:
        names = ", ".join(each.name for each in around) or "none"
        why, fix = ("does not sum over it", "take one of") if summed else ("is not inside it", "its loops are")
        raise Obstacle(loop, f"{block.name} {why}", fix=f"{fix} {names}")
    return around


def _require_place(block: Block, around: Sequence[For], inner: Sequence[For]) -> None:
    """The loop is outside the reduce loops of the block or the outermost of them; `inner` are those around from it
    on."""
    name = block.name
    if block.init is None:
        raise Obstacle(block, f"{name} has no init")
    summed = summed_loops(block)
    first = next((loop for loop in around if loop.var in summed), None)
    if first is not None and first not in inner:
        why = f"the init would run again in each iteration of {first.name}, which {name} sums over"
        raise Obstacle(inner[0], why, fix=f'decompose_reduction("{name}", {first.name})')
    spatial = spatial_loops(block)
    for loop in inner:
        if loop.var in summed & spatial:
            raise Obstacle(loop, f"loop {loop.name} is bound to a spatial and to a reduce axis of {name}")
        if loop is first:
            return
        if loop.var not in spatial and not loop.is_single:
            raise Obstacle(loop, f"loop {loop.name} repeats {name} and its init: no axis of the block is bound to it")


def _require_visible(block: Block, target: For, nest: Stmt) -> None:
    """Requires that all that the nest of the init uses is known before the loop."""
    facts.require_reached(path_to(target, block)[:-1], f"block {block.name}")
    hidden = defined_in(target) - defined_in(nest)
    for missing in (name for name in names_in(nest) if name in hidden):
        raise Obstacle(block, f"the init of {block.name} needs {missing.name}, which is not known before {target.name}")


def _require_earlier(function: Function, block: Block, target: For, inner: Sequence[For]) -> None:
    """Requires that the init may run before all that ran before it in the loop."""
    assert block.init is not None
    summed, stored = summed_loops(block), stored_buffers(block.init)
    for buffer in stored:
        facts.require_plain(function, buffer, target)
    between = list(takewhile(lambda loop: loop.var not in summed, inner))
    place = inner[len(between)] if len(between) < len(inner) else block
    memory, path = Memory(function.body), pairwise(path_to(target, place))
    for s in (s for a, b in path if isinstance(a, Seq) for s in a.body[: a.body.index(b)]):
        for met in sorted(b.name for b in memory.met(s, memory.loaded(block.init), memory.stored(block.init))):
            raise Obstacle(s, f"{met} is touched inside {target.name} before the init runs")
    apart, outer = decompose_block(target, block), loops_around(function.body, target)
    inits = {s for b in blocks(apart) if b.name == f"{block.name}.init" for s in b.inside()}
    for loop in between:
        changed = next(s for s in loops_inside(apart) if s.var is loop.var)
        for found in (d for d in carried(changed, outer) if {d.first.statement, d.second.statement} & inits):
            why = f"iterations of {loop.name} meet in what the init stores: {found.first} and {found.second}"
            raise Obstacle(loop, why)


@primitive("cannot factor block {block} along loop {loop}")
def rfactor(function: Function, block: Block, loop: For, *, axis: int = 0) -> Step:
    """Each iteration of a reduce loop accumulates into an element of its own of a local buffer, BUFFER.partial, which
    the loop indexes in dimension `axis`. The block then accumulates these partial results, in a nest right after its
    former one. Returns the names of the two blocks, BLOCK.partial and BLOCK.

    for ko, ki: block sum(reduce vk = ko*8 + ki):           alloc y.partial: f32[8] in arena
      init: y[] = 0                                         for ko, ki: block sum.partial(vki = ki, reduce vko = ko):
      y[] += x[vk]                                            init: y.partial[vki] = 0
                                                  =>          y.partial[vki] += x[vko*8 + vki]
                                                            for ki2: block sum(reduce vki2 = ki2):
                                                              init: y[] = 0
                                                              y[] += y.partial[vki2]
    """
    nest = nest_of(function, block)
    _require_reduce(function, nest, block, loop)
    domain = facts.alone_in(function, nest, block)
    total = _accumulation(block)
    rank = len(block.spatial)
    if not 0 <= axis <= rank:
        raise Obstacle(loop, f"the partial results have {rank + 1} dimensions", fix=f"take an axis in 0..{rank + 1}")
    shape = [domain.box[a.var].extent for a in block.spatial]
    shape.insert(axis, loop.extent)
    for unsteady in (e for e in shape if variables_of(e) - set(function.symbols) or loads_of(e)):
        why = f"the partial results would have {unsteady} elements along a dimension, not the same each time"
        raise Obstacle(nest, why)
    name = unique_name(function, f"{total.buffer.name}.partial")
    parts = _Parts(block, loop, domain, total, axis, total.partial(name, tuple(shape), Scope.ARENA))
    made = parts.block(unique_name(function, f"{block.name}.partial"))
    nests = seq(Alloc(parts.buffer), replace(nest, block, made), parts.combined(function))
    rounded = ": the result is rounded in another way" if total.buffer.dtype.is_float and total.op in (Add, Mul) else ""
    order = f"the terms of {block.name} may be taken in any order{rounded}"
    places = f"no iteration of {loop.name} touches another one's place in {name}"
    return rewritten(function, nest, nests, (made.name, block.name), order, places)


@primitive("cannot sum block {block} in parts of loop {loop}")
def sum_in_parts(function: Function, block: Block, loop: For, part: int) -> Step:
    """A block accumulates parts of `part` iterations of a loop by themselves, in a loop over parts outside of its other
    reduce loops, and then the parts: split, rfactor and reorder in one step, so that threads share a long sum. Returns
    the names of the two blocks.

    for k in 0..n: block sum(reduce vk = k): t[] += x[vk]
              =>      for ko: for ki in 0..min(C, n - ko*C): block sum.partial: t.partial[ko] += x[ko*C + ki]
                      for ko2: block sum: t[] += t.partial[ko2]
    """
    summed = _loops_around(function, block, loop, summed=True)
    parted = split(function, loop.var, part, tail="clip")
    outer = cast(tuple[Var, ...], parted.made)[0]
    made = rfactor(parted.function, block.name, outer)
    evidence = (*parted.evidence, *made.evidence)
    if loop is summed[0]:
        return Step(made.function, made.made, evidence)
    moved = reorder(made.function, outer, summed[0].var)
    return Step(moved.function, made.made, (*evidence, *moved.evidence))


@dataclass(frozen=True, slots=True)
class _Parts:
    """The partial results of `total`, which `source` accumulates: one for each of its spatial points (`domain`) and
    each iteration of `loop`, which is dimension `axis` of `buffer`."""

    source: Block
    loop: For
    domain: Domain
    total: Summed
    axis: int
    buffer: Buffer

    def place(self, points: Sequence[Expr], turn: Expr) -> tuple[Expr, ...]:
        """The indices of a partial result, for the values of the spatial axes and an iteration of the loop."""
        spatial = self.source.spatial
        indices = [simplify(p - self.domain.box[a.var].begin) for a, p in zip(spatial, points, strict=True)]
        indices.insert(self.axis, turn)
        return tuple(indices)

    def block(self, name: str) -> Block:
        """The block that accumulates separately for each iteration of the loop."""
        turn = Var("v" + self.loop.name)
        values, reduce = self._reduce_axes(turn)
        here = self.place([a.var for a in self.source.spatial], turn)
        spatial = list(self.source.spatial)
        spatial.insert(self.axis, Axis(turn, AxisKind.SPATIAL, simplify(self.loop.var - self.loop.begin)))
        term = substitute(self.total.term, values)
        where = None if self.source.where is None else substitute(self.source.where, values)
        if not reduce:
            return Block(name, tuple(spatial), Store(self.buffer, here, term), None, where)
        init = Store(self.buffer, here, self.total.start)
        return Block(name, (*spatial, *reduce), self.total.added(self.buffer, here, term), init, where)

    def _reduce_axes(self, turn: Var) -> tuple[dict[Expr, Node], list[Axis]]:
        """(the values of the axes that the loop is bound to, the reduce axes that are left)."""
        begin: dict[Expr, Node] = {self.loop.var: simplify(self.loop.begin + turn)}
        values: dict[Expr, Node] = {}
        axes: list[Axis] = []
        for a in self.source.reduce:
            if self.loop.var not in variables_of(a.binding):
                axes.append(a)
                continue
            for loop in self.domain.reduce:
                if loop.var in variables_of(a.binding) and loop.var is not self.loop.var:
                    axes.append(Axis(Var("v" + loop.name), AxisKind.REDUCE, loop.var))
                    begin[loop.var] = axes[-1].var
            values[a.var] = simplify(substitute(a.binding, begin))
        values[self.loop.var] = begin[self.loop.var]
        return values, axes

    def combined(self, function: Function) -> Stmt:
        """A nest that accumulates the partial results, where these were made."""
        domain, begin = self.domain, self.loop.begin
        (var,) = fresh_loops(function, [self.loop.name])
        turn = Axis(Var("v" + var.name), AxisKind.REDUCE, var)
        part = Load(self.buffer, self.place([a.var for a in domain.block.spatial], turn.var))
        total = self.total.added(self.total.buffer, domain.store.indices, part)
        made = domain.block.replace(axes=(*domain.block.spatial, turn), body=total)
        bound: dict[Expr, Node] = {a.var: a.binding for a in self.source.reduce}
        told = [substitute(c, bound) for c in domain.conditions]
        left = {loop.var for loop in domain.reduce} - {self.loop.var}
        kept = [substitute(c, {self.loop.var: simplify(begin + turn.var)}) for c in told if not mentions(c, left)]
        again = self.loop.serial().replace(var=var, begin=const(0), end=self.loop.extent, body=made)
        return fresh_copy(nest_over(Domain(made, domain.box, (again,), tuple(map(simplify, kept))), {}))


def _accumulation(block: Block) -> Summed:
    """What the block, which is alone in its nest, accumulates, if terms may be taken in any order, and neither its init
    nor its condition reads the result."""
    total = accumulation(block.replace(init=None, where=None))
    if total is None:
        why = f"{block.name} does not accumulate by an operator that may be applied in any order"
        raise Obstacle(block, why, "it must be y[…] = y[…] op …, with op one of +, *, min, max, and, or")
    facts.single_store(block)
    if any(load.buffer is total.buffer for part in (block.init, block.where) if part for load in loads(part)):
        raise Obstacle(block, f"{block.name} also reads {total.buffer.name} where it does not accumulate")
    return total


def _require_reduce(function: Function, nest: Stmt, block: Block, loop: For) -> None:
    """Requires that the loop is one of the nest, that the block sums over it, and over none outside of the nest, and
    that its extent does not depend on the other loops."""
    inside = perfect_nest(nest)[0]
    if loop in _loops_around(function, block, loop) and loop not in inside:
        raise Obstacle(loop, f"{loop.name} holds more than {block.name}", f"give {block.name} a nest of its own first")
    for whole in (s for s in inside if s.instruction is not None):
        raise Obstacle(whole, f"loop {whole.name} runs as {whole.instruction}", "factor before tensorize")
    for outer in (s for s in _loops_around(function, block, loop, summed=True) if s not in inside):
        why = f"{block.name} also sums over {outer.name}, outside the nest of {loop.name}"
        raise Obstacle(outer, why, "factor before something is moved between the two loops")
    for used in sorted(s.name for s in inside if s.var in loop.bounded_by):
        raise Obstacle(loop, f"how far it runs depends on {used}", 'split with tail="mask" instead')
