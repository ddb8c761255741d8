"""pad_sum: a block adds up terms beyond the end as well, where they are zero.

for ko in 0..39, ki in 0..2:                                       for ko in 0..39, ki in 0..2:
  block dot(…, reduce vk = ko*2 + ki) where ko*2 + ki < 77:   =>     block dot(…, reduce vk = ko*2 + ki):
    t[vi, vj] += i32(x[vi, vk]) * i32(w.cache[vk//2, vj, vk%2])        t[vi, vj] += …

w.cache was filled with select(ko*2 + ki < 77, w[min(ko*2 + ki, 76), j], 0): beyond the end it holds zeros.
"""

from __future__ import annotations

from tilewright.analysis.proofs import never_negative
from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.linear import Polynomial, expression, joined, plus
from tilewright.expr.nodes import Add, Cast, Const, Expr, Mul, Select, Var
from tilewright.loops.decompose import variables_of
from tilewright.loops.edit import allocations, replace
from tilewright.loops.nodes import Block, Buffer, Function, Load, Store
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.layout import filling_of
from tilewright.schedule.padding import LoadsBeyond, PlaceBeyond, simplified
from tilewright.schedule.predicates import bound, conjunction, conjuncts, resolved
from tilewright.schedule.reduce import accumulation
from tilewright.schedule.step import Step, refusal


def pad_sum(function: Function, block: str, loop: Var) -> Step:
    """The block adds up terms beyond the end as well: conditions of its `where` on the loop are dropped. Legal where
    the terms are products with a zero: a factor is loaded from a local buffer that was filled with zeros there. Of
    floats both factors must be zero, since zero times infinity is not.

    block dot(reduce vk = ko*2 + ki) where vk < 77: t[] += x[vk] * p[vk//2, vk%2]
              =>      block dot(reduce vk = ko*2 + ki): t[] += x[min(vk, 76)] * p[vk//2, vk%2]
    """
    found, over = find_block(function, block), find_loop(function, loop).var
    what = f"cannot add up beyond the end in block {block}"
    if found.where is None:
        raise refusal(function, what, found, why="it runs everywhere already: it has no where", part=found.name)
    factors, store = _factors(function, found, what)
    place = PlaceBeyond(function, found, [store])
    dropped = [c for c in conjuncts(found.where) if place.depends(c, over)]
    if not dropped:
        raise refusal(function, what, found, why=f"no condition of it is about {over.name}", part=found.where)
    names = [_zero_where(function, place, factors, c, what) for c in dropped]
    kept = [c for c in conjuncts(found.where) if c not in dropped]
    loaded = LoadsBeyond(place, dropped, kept)
    made = loaded.clamped(found.replace(where=conjunction(kept)))
    if made is None:
        raise refusal(function, what, found, why=loaded.why, part=found.name)
    evidence = [f"where {c} does not hold, {n} is zero" for c, n in zip(dropped, names, strict=True)]
    return Step(function.replace(body=replace(function.body, found, made)), None, (*evidence, *loaded.evidence))


def _factors(function: Function, block: Block, what: str) -> tuple[list[Expr], Store]:
    """The factors of the products that the block adds up, and the store of the sum."""
    found = accumulation(block.replace(where=None, init=None))
    if found is None or found[0] is not Add or not isinstance(found[2], Mul):
        raise refusal(function, what, block, why="it does not add up products", part=block.name)
    _, store, product = found
    assert isinstance(product, Mul)
    return [product.a, product.b], store


def _zero_where(function: Function, place: PlaceBeyond, factors: list[Expr], cond: Expr, what: str) -> str:
    """The names of the factors that are zero wherever the condition does not hold."""
    block = place.block
    over_loops = resolved(block, cond)
    spatial = {v for a in block.spatial for v in variables_of(a.binding)}
    need = bound(over_loops)
    if need is None or over_loops is None or variables_of(over_loops) & spatial:
        why = f"{cond} is no condition on the terms alone"
        raise refusal(function, what, block, why=why, part=cond)
    zero = [b.name for f in factors if (b := _zero_beyond(function, place, f, need)) is not None]
    if len(zero) == len(factors) or (zero and not factors[0].dtype.is_float):
        return " and ".join(zero)
    why = f"what it adds where {cond} does not hold is not known to be zero"
    wanted = "both factors" if factors[0].dtype.is_float else "a factor"
    fix = f"read {wanted} through a cache_read with transform_layout(…, pad=0) first"
    raise refusal(function, what, block, why=why, fix=fix, part=cond)


def _zero_beyond(function: Function, place: PlaceBeyond, factor: Expr, need: Polynomial) -> Buffer | None:
    """The buffer that a factor is loaded from, where it holds zeros wherever `need` is negative."""
    while isinstance(factor, Cast):
        factor = factor.a
    if not isinstance(factor, Load) or factor.buffer not in allocations(function.body):
        return None
    filling = filling_of(function, factor.buffer)
    if filling is None:
        return None
    value = filling.store.value
    while isinstance(value, Cast):
        value = value.a
    if not isinstance(value, Select) or not isinstance(value.b, Const) or value.b.value != 0:
        return None
    places: dict[Expr, Node] = dict(zip(filling.store.indices, factor.indices, strict=True))
    for part in conjuncts(value.cond):
        inside = bound(resolved(place.block, substitute(part, places)))
        if inside is None:
            continue
        spare = plus(joined(need), joined(simplified(expression(inside), place.facts)), -1)
        if never_negative(spare, place.ranges, place.facts):
            return factor.buffer
    return None
