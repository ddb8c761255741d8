"""rfactor, sum_in_parts: each iteration of a reduce loop, or each of its parts, accumulates into a partial result of
its own; at the end these are combined.

for k: block sum(reduce vk = k):              alloc y.partial: f32[n] in arena
  y[] += x[vk]                        =>      for k: block sum.partial(vk = k): y.partial[vk] = x[vk]
                                              for k2: block sum(reduce vk2 = k2): y[] += y.partial[vk2]

Then the loop can run in parallel, or as the lanes of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.analysis.accesses import mentions
from tilewright.core.node import Node
from tilewright.core.walk import preorder, substitute
from tilewright.expr.build import conjunction
from tilewright.expr.nodes import Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import summed_loops, variables_of
from tilewright.loops.edit import allocations, loads, loops_around, path_to, replace, substitute_expressions
from tilewright.loops.nodes import (
    Alloc,
    Axis,
    AxisKind,
    Block,
    Buffer,
    For,
    Function,
    Load,
    LoopKind,
    Stmt,
    Store,
    seq,
)
from tilewright.schedule.facts.accumulations import Summed, accumulation
from tilewright.schedule.facts.domain import Domain
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.facts.place import Memory, alone_in
from tilewright.schedule.find import find_block, find_loop, nested, perfect_nest, stored_buffers
from tilewright.schedule.loops.rearrange import reorder, split
from tilewright.schedule.names import unique_block, unique_buffer, unique_loops
from tilewright.schedule.step import Step, refusal
from tilewright.types.scopes import Scope


def rfactor(function: Function, block: str, loop: Var, *, axis: int = 0) -> Step:
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
    found, target = find_block(function, block), find_loop(function, loop)
    what = f"cannot factor block {block} along loop {target.var.name}"
    nest = _nest_of(function, found, target, what)
    domain = alone_in(function, nest, found, what)
    total = _accumulation(function, found, what)
    _require_reduce(function, nest, found, target, what)
    rank = len(found.spatial)
    if not 0 <= axis <= rank:
        why = f"the partial results have {rank + 1} dimensions"
        raise refusal(function, what, target, why=why, fix=f"take an axis in 0..{rank + 1}")
    shape = [domain.box[a.var].extent for a in found.spatial]
    shape.insert(axis, extent_of(target))
    _require_steady(function, nest, shape, what)
    name = unique_buffer(function, f"{total.buffer.name}.partial")
    parts = _Parts(found, target, domain, total, axis, total.partial(name, tuple(shape), Scope.ARENA))
    made = parts.block(unique_block(function, f"{block}.partial"))
    nests = seq(Alloc(parts.buffer), replace(nest, found, made), parts.combined(function))
    rounds = total.buffer.dtype.is_float and total.op.__name__ in ("Add", "Mul")
    evidence = (
        f"the terms of {block} may be taken in any order{': the result is rounded in another way' if rounds else ''}",
        f"no iteration of {target.var.name} touches another one's place in {name}",
    )
    return Step(function.replace(body=replace(function.body, nest, nests)), (made.name, block), evidence)


def sum_in_parts(function: Function, block: str, loop: Var, part: int) -> Step:
    """A block accumulates parts of `part` iterations of a loop by themselves, in a loop over parts outside of its other
    reduce loops, and then the parts: split, rfactor and reorder in one step, so that threads share a long sum. Returns
    the names of the two blocks.

    for k in 0..n: block sum(reduce vk = k): t[] += x[vk]
              =>      for ko: for ki in 0..min(C, n - ko*C): block sum.partial: t.partial[ko] += x[ko*C + ki]
                      for ko2: block sum: t[] += t.partial[ko2]
    """
    found, cut = find_block(function, block), find_loop(function, loop)
    summed = [s.var for s in loops_around(function.body, found) if s.var in summed_loops(found)]
    if cut.var not in summed:
        what, names = f"cannot sum block {block} in parts of loop {cut.var.name}", ", ".join(v.name for v in summed)
        why = f"{block} does not sum over it"
        raise refusal(function, what, cut, why=why, fix=f"its sum runs over {names or 'none'}")
    parted = split(function, cut.var, part, tail="clip")
    assert isinstance(parted.made, tuple)
    outer = parted.made[0]
    assert isinstance(outer, Var)
    made = rfactor(parted.function, block, outer)
    evidence = (*parted.evidence, *made.evidence)
    if cut.var is summed[0]:
        return Step(made.function, made.made, evidence)
    moved = reorder(made.function, outer, summed[0])
    return Step(moved.function, made.made, (*evidence, *moved.evidence))


def _nest_of(function: Function, block: Block, target: For, what: str) -> Stmt:
    """The outermost loop that holds nothing but loops down to the block."""
    path = path_to(function.body, block)
    top = len(path) - 1
    while top and isinstance(path[top - 1], For):
        top -= 1
    if target not in path:
        names = ", ".join(loop.var.name for loop in loops_around(function.body, block)) or "none"
        raise refusal(function, what, target, why=f"{block.name} is not inside it", fix=f"its loops are {names}")
    if target not in path[top:]:
        why = f"{target.var.name} holds more than {block.name}"
        raise refusal(function, what, target, why=why, fix=f"give {block.name} a nest of its own first")
    whole = next((s for s in path[top:] if isinstance(s, For) and s.instruction is not None), None)
    if whole is not None:
        why = f"loop {whole.var.name} runs as the instruction {whole.instruction}"
        raise refusal(function, what, whole, why=why, fix="factor before tensorize")
    return path[top]


@dataclass(frozen=True, slots=True)
class _Parts:
    """The partial results of `total`, which `block` accumulates: one for each of its spatial points (`domain`) and each
    iteration of `loop`, which is dimension `axis` of `buffer`."""

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
        turn = Var("v" + self.loop.var.name)
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
                    axes.append(Axis(Var("v" + loop.var.name), AxisKind.REDUCE, loop.var))
                    begin[loop.var] = axes[-1].var
            values[a.var] = simplify(substitute(a.binding, begin))
        values[self.loop.var] = begin[self.loop.var]
        return values, axes

    def combined(self, function: Function) -> Stmt:
        """A nest that accumulates the partial results."""
        block, boxes = self.domain.block, [self.domain.box[a.var] for a in self.source.spatial]
        names = [a.var.name.removeprefix("v") or a.var.name for a in block.spatial] + [self.loop.var.name]
        loops = [Var(name) for name in unique_loops(function, names)]
        *points, turn = [Var("v" + loop.name) for loop in loops]
        values: dict[Expr, Node] = {a.var: p for a, p in zip(block.spatial, points, strict=True)}
        starts = zip(points, boxes, loops, strict=False)
        axes = [Axis(p, AxisKind.SPATIAL, simplify(part.begin + v)) for p, part, v in starts]
        axes.append(Axis(turn, AxisKind.REDUCE, loops[-1]))
        assert isinstance(block.body, Store)
        target = tuple(substitute(i, values) for i in block.body.indices)
        body = self.total.added(self.total.buffer, target, Load(self.buffer, self.place(points, turn)))
        init = None if block.init is None else substitute_expressions(block.init, dict(values))  # type: ignore[arg-type]
        made = Block(block.name, tuple(axes), body, init, self._made_where(values, turn))
        extents = [*(part.extent for part in boxes), extent_of(self.loop)]
        return nested([For(v, const(0), e, LoopKind.SERIAL, made) for v, e in zip(loops, extents, strict=True)], made)

    def _made_where(self, values: dict[Expr, Node], turn: Var) -> Expr | None:
        """The conditions on spatial axes and on the loop: where a partial result was made."""
        bound: dict[Expr, Node] = {a.var: a.binding for a in self.source.reduce}
        left = {loop.var for loop in self.domain.reduce} - {self.loop.var}
        here = {**values, self.loop.var: simplify(self.loop.begin + turn)}
        told = [substitute(c, bound) for c in self.domain.conditions]
        return conjunction([simplify(substitute(c, here)) for c in told if not mentions(c, left)])


def _accumulation(function: Function, block: Block, what: str) -> Summed:
    """What the block accumulates, if terms may be taken in any order, and nothing else of it touches the result."""
    total = accumulation(block.replace(init=None, where=None))
    if total is None:
        why = f"{block.name} does not accumulate by an operator that may be applied in any order"
        fix = "it must be y[…] = y[…] op …, with op one of +, *, min, max, and, or"
        raise refusal(function, what, block, why=why, fix=fix, part=block.name)
    if block.init is not None and (stored_buffers(block.init) != {total.buffer} or allocations(block.init)):
        raise refusal(function, what, block.init, why=f"the init of {block.name} stores to other buffers, too")
    memory = Memory(function)
    beside = {load.buffer for part in (block.init, block.where) if part is not None for load in loads(part)}
    beside |= {load.buffer for load in loads(block.body)} - {total.buffer}
    if memory.of(total.buffer) in map(memory.of, beside):
        why = f"{block.name} also reads {total.buffer.name} where it does not accumulate"
        raise refusal(function, what, block, why=why, part=block.name)
    return total


def _require_reduce(function: Function, nest: Stmt, block: Block, loop: For, what: str) -> None:
    """Requires that the block sums over the loop, and that its extent does not depend on the other loops."""
    summed = summed_loops(block)
    if loop.var not in summed:
        names = ", ".join(each.var.name for each in loops_around(nest, block) if each.var in summed) or "none"
        raise refusal(function, what, loop, why=f"{block.name} does not sum over it", fix=f"take one of {names}")
    outside = next((s for s in loops_around(function.body, nest) if s.var in summed), None)
    if outside is not None:
        why = f"{block.name} also sums over {outside.var.name}, outside the nest of {loop.var.name}"
        raise refusal(function, what, outside, why=why, fix="factor before something is moved between the two loops")
    used = (variables_of(loop.begin) | variables_of(loop.end)) & {each.var for each in perfect_nest(nest)[0]}
    if used:
        why = f"how far it runs depends on {', '.join(sorted(v.name for v in used))}"
        raise refusal(function, what, loop, why=why, fix='split with tail="mask" instead')


def _require_steady(function: Function, nest: Stmt, shape: Sequence[Expr], what: str) -> None:
    """The shape of the partial results is known before anything runs."""
    for extent in shape:
        if variables_of(extent) - set(function.symbols) or any(isinstance(e, Load) for e in preorder(extent)):
            why = f"the partial results would have {extent} elements along a dimension, not the same each time"
            raise refusal(function, what, nest, why=why)
