"""What `init` of a block means: separate blocks, one that initialises and one that accumulates.

    for i in 0..n, k in 0..m:                     for i in 0..n:
      block dot(vi = i, reduce vk = k):             block dot.init(vi = i):
        init: y[vi] = 0.0                      =>     y[vi] = 0.0
        y[vi] += x[vi, vk]                          for k in 0..m:
                                                      block dot(vi = i, reduce vk = k):
                                                        y[vi] += x[vi, vk]

The initialising block is before the outermost loop that a reduce axis is bound to, under copies of the loops inside
it that spatial axes are bound to. So an empty reduce domain leaves the initial value, as an empty sum should. Of a
predicate it keeps what holds or not for all points of the reduce axes alike: the conjuncts without them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.expr.build import conjunction, conjuncts
from tilewright.expr.nodes import Var
from tilewright.expr.variables import variables_of as variables_of
from tilewright.loops.edit import blocks, fresh_copy, loops_around, replace
from tilewright.loops.nodes import Block, For, Function, LoopKind, Stmt, seq

_INIT_KINDS = {LoopKind.PARALLEL: LoopKind.SERIAL, LoopKind.INSTRUCTION: LoopKind.VECTORIZE}
"""How the loops of `init` run, where not as those that they are copies of."""


def summed_loops(block: Block) -> frozenset[Var]:
    """The loops that reduce axes are bound to."""
    return frozenset().union(*(variables_of(a.binding) for a in block.reduce))


def spatial_loops(block: Block) -> frozenset[Var]:
    """The loops that spatial axes are bound to."""
    return frozenset().union(*(variables_of(a.binding) for a in block.spatial))


def decompose_block(root: Stmt, block: Block) -> Stmt:
    """`root` with the `init` of this block made a block of its own."""
    around = loops_around(root, block)
    first = next((n for n, loop in enumerate(around) if loop.var in summed_loops(block)), len(around))
    place: Stmt = around[first] if first < len(around) else block
    init = init_nest(block, around[first:], block.name + ".init")
    inner = replace(place, block, block.replace(init=None))
    return replace(root, place, seq(fresh_copy(init), inner))


def init_nest(block: Block, loops: Sequence[For], name: str) -> Stmt:
    """The `init` as a block, under those of the loops that spatial axes are bound to. Its variables are still those of
    the block and of the loops."""
    assert block.init is not None
    summed = summed_loops(block)
    spatial = spatial_loops(block)
    over = summed | {a.var for a in block.reduce}
    where = conjunction([part for part in conjuncts(block.where) if not variables_of(part) & over])
    if where is not None:
        spatial |= variables_of(where)
    made: Stmt = Block(name, block.spatial, block.init, None, where)
    for loop in reversed(loops):
        if loop.var in spatial and loop.var not in summed:
            kind = _INIT_KINDS.get(loop.kind, loop.kind)
            made = For(loop.var, loop.begin, loop.end, kind, made, loop.thread)
    return made


def decompose(function: Function) -> Function:
    """The function without any `init`."""
    body = function.body
    while True:
        pending = next((b for b in blocks(body) if b.init is not None), None)
        if pending is None:
            return function if body is function.body else function.replace(body=body)
        body = decompose_block(body, pending)
