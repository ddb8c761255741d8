"""pad_sum, trim_sum: a block adds terms that are zero, too, or skips them.

Zero times a number is a zero of one sign or the other, unless the number is infinite or NaN, and to add one to a sum
that began with zero changes nothing: such a sum is never -0.
"""

from __future__ import annotations

import math

from tilewright.analysis.accesses import mentions
from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr import dtypes
from tilewright.expr.build import conjunction, conjuncts
from tilewright.expr.linear import expression, joined, plus, polynomial
from tilewright.expr.nodes import Add, Cast, Const, Expr, Mul, Select, Var
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import spatial_loops, summed_loops
from tilewright.loops.nodes import Buffer, Function, Load, Store
from tilewright.schedule.blocks.padding import PlaceBeyond
from tilewright.schedule.buffers.layout import filling_of
from tilewright.schedule.facts.iterations import accumulation
from tilewright.schedule.facts.known import bound, resolved
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.step import Step, rewritten


def pad_sum(function: Function, block: str, loop: Var) -> Step:
    """The block adds terms beyond the end, too: conditions of its `where` on the loop are dropped. Legal if these terms
    are products with a zero: a factor is loaded from a local buffer that was filled with zeros there. For floats both
    factors must be zero, since zero times infinity is NaN.

    p[k, l] was filled with select(k*2 + l < 77, …, 0):
    block dot(reduce vk = ko*2 + ki) where vk < 77: t[] += x[vk] * p[vk//2, vk%2]
              =>      block dot(reduce vk = ko*2 + ki): t[] += x[min(vk, 76)] * p[vk//2, vk%2]
    """
    place = PlaceBeyond(function, find_block(function, block), f"cannot add up beyond the end in block {block}")
    dropped = place.conditions(find_loop(function, loop).var)
    product = _product(place)
    names = [_zero_where(place, product, c) for c in dropped]
    evidence = [f"where {c} does not hold, {n} is zero" for c, n in zip(dropped, names, strict=True)]
    return place.run_beyond(dropped, evidence)


def trim_sum(function: Function, block: str, loop: Var) -> Step:
    """The block runs only where its terms are not zero, as far as that is a condition on `loop`, which it sums over.
    Legal if each term is a product of two factors: one is loaded from a local buffer that is filled with zeros where
    the condition fails; the other is finite, that is an integer, or of a parameter that is declared finite. The sum
    must begin with zero.

    q[i] was filled with select(i < 8, …, 0):
    block sum(reduce va = a): t[] += q[vi + va] * w[va]
              =>      block sum(reduce va = a) where vi + va < 8: t[] += q[vi + va] * w[va]
    """
    found, over = find_block(function, block), find_loop(function, loop).var
    place = PlaceBeyond(function, found, f"cannot leave out terms of block {block}")
    if over not in summed_loops(found):
        raise place.refused(f"it does not sum over {over.name}, so it would not begin where a condition on it fails")
    product = _product(place)
    init = found.init.value if isinstance(found.init, Store) else None
    if not isinstance(init, Const) or init.value != 0 or math.copysign(1, init.value) < 0:
        fix = "do it before decompose_reduction" if init is None else None
        raise place.refused("its sums do not begin with zero", fix=fix)
    told = conjuncts(found.where)
    made: list[Expr] = []
    evidence: list[str] = []
    for factor, other in ((product.a, product.b), (product.b, product.a)):
        _, inside = _zeros_of(function, factor) or ("", [])
        conditions = [c for c in map(simplify, inside) if mentions(resolved(found, c), {over})]
        if conditions and not _is_finite(function, other):
            why = f"{other} may be infinite or NaN, and zero times that is NaN"
            raise place.refused(why, other, "declare the parameter it comes from finite, if it is")
        made += conditions
        evidence += [f"where {c} does not hold, {factor} is zero and {other} finite" for c in conditions]
    if made and all(c in told for c in made):
        raise place.refused("it runs only where they are not zero already", found.where or "")
    if not made:
        why = f"no factor is loaded from a buffer that was filled with zeros by a condition on {over.name}"
        raise place.refused(why, fix="unite the nests that fill it first")
    trimmed = found.replace(where=conjunction([*told, *(c for c in made if c not in told)]))
    return rewritten(function, found, trimmed, None, *evidence)


def _product(place: PlaceBeyond) -> Mul:
    """The products that the block adds up."""
    found = accumulation(place.block.replace(where=None, init=None))
    if found is None or found.op is not Add or not isinstance(found.term, Mul):
        raise place.refused("it does not add up products")
    return found.term


def _zeros_of(function: Function, factor: Expr) -> tuple[Buffer, list[Expr]] | None:
    """The local buffer that a factor is loaded from and that holds zeros where one of some conditions fails, which are
    in the variables that the factor is written in; None where that is not known."""
    factor = _unconverted(factor)
    filling = filling_of(function, factor.buffer) if isinstance(factor, Load) else None
    if filling is None or not isinstance(factor, Load):
        return None
    store = filling[1].store
    value = _unconverted(store.value)
    if not isinstance(value, Select) or not isinstance(value.b, Const) or value.b.value != 0:
        return None
    places: dict[Expr, Node] = dict(zip(store.indices, factor.indices, strict=True))
    return factor.buffer, [substitute(part, places) for part in conjuncts(value.cond)]


def _unconverted(value: Expr) -> Expr:
    while isinstance(value, Cast):
        value = value.a
    return value


def _zero_where(place: PlaceBeyond, product: Mul, cond: Expr) -> str:
    """The names of the factors that are zero wherever the condition does not hold."""
    block, function, is_float = place.block, place.function, product.dtype.is_float
    over_loops = resolved(block, cond)
    need = bound(over_loops)
    if need is None or mentions(over_loops, spatial_loops(block)):
        raise place.refused(f"{cond} is no condition on the terms alone", cond)
    zero = []
    for buffer, conditions in filter(None, (_zeros_of(function, f) for f in (product.a, product.b))):
        inside = [b for c in conditions if (b := bound(resolved(block, c))) is not None]
        spare = [plus(joined(need), joined(polynomial(place.known.simplified(expression(p)))), -1) for p in inside]
        if buffer not in function.params and any(map(place.known.never_negative, spare)):
            zero.append(buffer.name)
    if len(zero) == 2 or (zero and not is_float):
        return " and ".join(zero)
    wanted = "both factors" if is_float else "a factor"
    fix = f"read {wanted} through a cache_read with transform_layout(…, pad=0) first"
    raise place.refused(f"what it adds where {cond} does not hold is not known to be zero", cond, fix)


def _is_finite(function: Function, value: Expr) -> bool:
    """Whether a value is a finite number: an integer, or loaded from a buffer of finite numbers, directly or through a
    copy that is padded with finite ones. Conversions to narrower floats may overflow; those to wider ones do not.
    Floats at least as wide as f32 hold every integer, if rounded."""
    if not value.dtype.is_float:
        return True
    match value:
        case Const(number):
            return math.isfinite(number)
        case Select(_, a, b):
            return _is_finite(function, a) and _is_finite(function, b)
        case Cast(a):
            fits = not a.dtype.is_float or a.dtype.bits <= value.dtype.bits
            return value.dtype.bits >= dtypes.f32.bits and fits and _is_finite(function, a)
        case Load(buffer):
            filling = None if buffer.finite else filling_of(function, buffer)
            return buffer.finite or (filling is not None and _is_finite(function, filling[1].store.value))
    return False
