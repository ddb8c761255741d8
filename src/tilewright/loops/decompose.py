"""What `init` of a block means: separate blocks, one that initialises and one that accumulates.

    for i in 0..n, k in 0..m:                     for i in 0..n:
      block dot(vi = i, reduce vk = k):             block dot.init(vi = i):
        init: y[vi] = 0.0                      =>     y[vi] = 0.0
        y[vi] += x[vi, vk]                          for k in 0..m:
                                                      block dot(vi = i, reduce vk = k):
                                                        y[vi] += x[vi, vk]

The initialising block stands before the outermost loop that a reduce axis is bound to, under copies of the loops inside
it that spatial axes are bound to. So an empty reduce domain leaves the initial value, as an empty sum should. Of a
predicate it keeps what holds or not for all points of the reduce axes alike: the conjuncts without them.
"""

from __future__ import annotations

from functools import lru_cache

from tilewright.core.walk import preorder
from tilewright.expr.nodes import And, Expr, Var
from tilewright.loops.edit import blocks, fresh_copy, loops_around, replace
from tilewright.loops.nodes import Block, For, Function, LoopKind, Stmt, seq


@lru_cache(maxsize=1 << 14)
def variables_of(e: Expr) -> frozenset[Var]:
    """The variables in an expression."""
    return frozenset(v for v in preorder(e) if isinstance(v, Var))


def decompose_block(root: Stmt, block: Block) -> Stmt:
    """`root` with the `init` of this block made a block of its own."""
    assert block.init is not None
    around = loops_around(root, block)
    reduce_vars = set().union(*(variables_of(a.binding) for a in block.reduce))
    spatial_vars = set().union(*(variables_of(a.binding) for a in block.spatial))
    where = _without(block.where, reduce_vars | {a.var for a in block.reduce})
    if where is not None:
        spatial_vars |= variables_of(where)
    first = next((n for n, loop in enumerate(around) if loop.var in reduce_vars), len(around))
    init: Stmt = Block(block.name + ".init", block.spatial, block.init, None, where)
    for loop in reversed(around[first:]):
        if loop.var in spatial_vars and loop.var not in reduce_vars:
            kind = loop.kind if loop.kind is not LoopKind.PARALLEL else LoopKind.SERIAL
            init = For(loop.var, loop.begin, loop.end, kind, init)
    body = block.replace(init=None)
    place: Stmt = around[first] if first < len(around) else block
    inner = replace(place, block, body)
    return replace(root, place, seq(fresh_copy(init), inner))


def _without(where: Expr | None, variables: set[Var]) -> Expr | None:
    """The conjuncts of a predicate in which none of these variables occurs."""
    if isinstance(where, And):
        parts = [_without(side, variables) for side in (where.a, where.b)]
        kept = [p for p in parts if p is not None]
        return And(*kept) if len(kept) == 2 else kept[0] if kept else None
    return None if where is None or variables_of(where) & variables else where


def decompose(function: Function) -> Function:
    """The function without any `init`."""
    body = function.body
    while True:
        pending = next((b for b in blocks(body) if b.init is not None), None)
        if pending is None:
            return function if body is function.body else function.replace(body=body)
        body = decompose_block(body, pending)
