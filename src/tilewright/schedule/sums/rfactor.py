"""rfactor: each iteration of a reduce loop accumulates into a partial result of its own; at the end these are combined.

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
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import summed_loops, variables_of
from tilewright.loops.edit import (
    allocations,
    loads,
    loops_around,
    path_to,
    replace,
    substitute_expressions,
)
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
from tilewright.schedule.facts.accumulations import accumulation, neutral
from tilewright.schedule.facts.domain import Domain
from tilewright.schedule.facts.iterations import extent_of
from tilewright.schedule.facts.place import Memory, alone_in
from tilewright.schedule.facts.predicates import conjunction
from tilewright.schedule.find import find_block, find_loop, perfect_nest, stored_buffers
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
    factored = _Factored.find(function, nest, found, target, axis, what)
    made = seq(Alloc(factored.buffer), factored.partial(), factored.final())
    evidence = (
        f"the terms of {block} may be taken in any order"
        + (": the result is rounded in another way" if factored.rounds() else ""),
        f"no iteration of {target.var.name} touches another one's place in {factored.buffer.name}",
    )
    done = function.replace(body=replace(function.body, nest, made))
    return Step(done, (factored.name, block), evidence)


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
class _Factored:
    """An accumulation, and what its two stages need."""

    function: Function
    nest: Stmt
    block: Block
    loop: For
    domain: Domain
    op: type[Expr]
    start: Const
    lane: Var
    axis: int
    buffer: Buffer
    name: str

    @staticmethod
    def find(function: Function, nest: Stmt, block: Block, loop: For, axis: int, what: str) -> _Factored:
        """The accumulation, if it is one whose terms may be added up in any order."""
        domain = alone_in(function, nest, block, what)
        found = accumulation(block.replace(init=None, where=None))
        start = neutral(found[0], found[1].buffer.dtype) if found is not None else None
        if found is None or start is None:
            why = f"{block.name} does not accumulate by an operator that may be applied in any order"
            fix = "it must be y[…] = y[…] op …, with op one of +, *, min, max, and, or"
            raise refusal(function, what, block, why=why, fix=fix, part=block.name)
        store = found[1]
        _require_own(function, block, store, what)
        _require_reduce(function, nest, block, loop, what)
        rank = len(block.spatial)
        if not 0 <= axis <= rank:
            why = f"the partial results have {rank + 1} dimensions"
            raise refusal(function, what, loop, why=why, fix=f"take an axis in 0..{rank + 1}")
        shape = [domain.box[a.var].extent for a in block.spatial]
        shape.insert(axis, extent_of(loop))
        _require_steady(function, nest, shape, what)
        name = unique_buffer(function, f"{store.buffer.name}.partial")
        buffer = Buffer(name, store.buffer.dtype, tuple(shape), Scope.ARENA)
        lane = Var("v" + loop.var.name)
        made = unique_block(function, f"{block.name}.partial")
        return _Factored(function, nest, block, loop, domain, found[0], start, lane, axis, buffer, made)

    def rounds(self) -> bool:
        return self.buffer.dtype.is_float and self.op.__name__ in ("Add", "Mul")

    def place(self, points: Sequence[Expr], lane: Expr) -> tuple[Expr, ...]:
        """The indices of a partial result, for the spatial axes' values."""
        indices = [simplify(p - self.domain.box[a.var].begin) for a, p in zip(self.block.spatial, points, strict=True)]
        indices.insert(self.axis, lane)
        return tuple(indices)

    def combined(self, buffer: Buffer, indices: tuple[Expr, ...], term: Expr) -> Store:
        return Store(buffer, indices, self.op(Load(buffer, indices), term))  # type: ignore[call-arg]

    def partial(self) -> Stmt:
        """The former nest, with a block that accumulates separately for each iteration of the loop."""
        values, reduce = self._reduce_axes()
        here = self.place([a.var for a in self.block.spatial], self.lane)
        lane = Axis(self.lane, AxisKind.SPATIAL, simplify(self.loop.var - self.loop.begin))
        spatial = list(self.block.spatial)
        spatial.insert(self.axis, lane)
        found = accumulation(self.block.replace(init=None, where=None))
        assert found is not None
        term = substitute(found[2], values)
        where = None if self.block.where is None else substitute(self.block.where, values)
        body: Stmt = self.combined(self.buffer, here, term) if reduce else Store(self.buffer, here, term)
        init = Store(self.buffer, here, self.start) if reduce else None
        made = Block(self.name, (*spatial, *reduce), body, init, where)
        return replace(self.nest, self.block, made)

    def _reduce_axes(self) -> tuple[dict[Expr, Node], list[Axis]]:
        """(the values of the axes that the loop is bound to, the reduce axes that are left)."""
        begin: dict[Expr, Node] = {self.loop.var: simplify(self.loop.begin + self.lane)}
        values: dict[Expr, Node] = {}
        axes: list[Axis] = []
        for a in self.block.reduce:
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

    def final(self) -> Stmt:
        """A nest that accumulates the partial results."""
        block = self.domain.block
        assert isinstance(block.body, Store)
        names = [a.var.name.removeprefix("v") or a.var.name for a in self.block.spatial] + [self.loop.var.name]
        loops = [Var(name) for name in unique_loops(self.function, names)]
        points = [Var("v" + loop.name) for loop in loops]
        values: dict[Expr, Node] = {a.var: p for a, p in zip(block.spatial, points, strict=False)}
        axes = [
            Axis(p, AxisKind.SPATIAL, simplify(self.domain.box[a.var].begin + v))
            for a, p, v in zip(block.spatial, points, loops, strict=False)
        ]
        axes.append(Axis(points[-1], AxisKind.REDUCE, loops[-1]))
        target = tuple(substitute(i, values) for i in block.body.indices)
        term = Load(self.buffer, self.place(points[:-1], points[-1]))
        init = None if block.init is None else substitute_expressions(block.init, dict(values))  # type: ignore[arg-type]
        made: Stmt = Block(
            block.name,
            tuple(axes),
            self.combined(block.body.buffer, target, term),
            init,
            self._guard(values, points[-1]),
        )
        for var, extent in reversed(
            [
                *zip(loops, (self.domain.box[a.var].extent for a in block.spatial), strict=False),
                (loops[-1], extent_of(self.loop)),
            ]
        ):
            made = For(var, const(0), extent, LoopKind.SERIAL, made)
        return made

    def _guard(self, values: dict[Expr, Node], lane: Var) -> Expr | None:
        """The conditions on spatial axes and on the loop: where a partial result was made."""
        bound: dict[Expr, Node] = {a.var: a.binding for a in self.block.reduce}
        left = {loop.var for loop in self.domain.reduce} - {self.loop.var}
        here = {**values, self.loop.var: simplify(self.loop.begin + lane)}
        told = [substitute(c, bound) for c in self.domain.conditions]
        return conjunction([simplify(substitute(c, here)) for c in told if not mentions(c, left)])


def _require_own(function: Function, block: Block, store: Store, what: str) -> None:
    """Nothing else of the block touches what it accumulates into."""
    parts: list[Stmt | Expr] = [block.init] if block.init is not None else []
    inside = {load.buffer for part in (*parts, block.where) if part is not None for load in loads(part)}
    if block.init is not None and (stored_buffers(block.init) != {store.buffer} or allocations(block.init)):
        raise refusal(function, what, block.init, why=f"the init of {block.name} stores to other buffers, too")
    memory = Memory(function)
    own = memory.of(store.buffer)
    others = {load.buffer for load in loads(block.body)} - {store.buffer}
    if any(memory.of(b) is own for b in (*inside, *others)):
        why = f"{block.name} also reads {store.buffer.name} where it does not accumulate"
        raise refusal(function, what, block, why=why, part=block.name)


def _require_reduce(function: Function, nest: Stmt, block: Block, loop: For, what: str) -> None:
    """Requires that the block sums over the loop, and that its extent does not depend on the other loops."""
    if loop.var not in summed_loops(block):
        names = ", ".join(each.var.name for each in loops_around(nest, block) if each.var in summed_loops(block))
        raise refusal(
            function, what, loop, why=f"{block.name} does not sum over it", fix=f"take one of {names or 'none'}"
        )
    outside = next((s for s in loops_around(function.body, nest) if s.var in summed_loops(block)), None)
    if outside is not None:
        why = f"{block.name} also sums over {outside.var.name}, outside the nest of {loop.var.name}"
        raise refusal(function, what, outside, why=why, fix="factor before something is moved between the two loops")
    loops, _ = perfect_nest(nest)
    used = (variables_of(loop.begin) | variables_of(loop.end)) & {each.var for each in loops}
    if used:
        why = f"how far it runs depends on {', '.join(sorted(v.name for v in used))}"
        raise refusal(function, what, loop, why=why, fix='split with tail="mask" instead')


def _require_steady(function: Function, nest: Stmt, shape: Sequence[Expr], what: str) -> None:
    """The shape of the partial results is known before anything runs."""
    for extent in shape:
        if variables_of(extent) - set(function.symbols) or any(isinstance(e, Load) for e in preorder(extent)):
            why = f"the partial results would have {extent} elements along a dimension, not the same each time"
            raise refusal(function, what, nest, why=why)
