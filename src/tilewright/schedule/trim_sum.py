"""trim_sum: a block leaves out terms that are zero.

q was filled with select(1 <= vi and vi < 8, x[vi - 1], 0):

for i in 0..7, a in 0..3:                                 for i in 0..7, a in 0..3:
  block sum(vi = i, reduce va = a):                  =>     block sum(vi = i, reduce va = a)
    init: y[vi] = 0.0                                           where 1 <= vi + va and vi + va < 8:
    y[vi] += q[vi + va] * w[va]                               init: y[vi] = 0.0
                                                              y[vi] += q[vi + va] * w[va]

The inverse of pad_sum. Zero times a number is a zero of one sign or the other, unless the number is infinite or NaN,
and to add one to a sum that began with zero changes nothing: such a sum is never -0.
"""

from __future__ import annotations

import math

from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Add, Cast, Const, Expr, Mul, Select, Var
from tilewright.expr.simplify import simplify
from tilewright.expr.variables import variables_of
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import replace
from tilewright.loops.nodes import Block, Function, Load, Store
from tilewright.schedule.find import find_block, find_loop
from tilewright.schedule.layout import filling_of
from tilewright.schedule.predicates import conjunction, conjuncts, resolved
from tilewright.schedule.reduce import accumulation
from tilewright.schedule.step import Step, refusal

WIDE = 32
"""Floats of so many bits hold every integer, if rounded."""


def trim_sum(function: Function, block: str, loop: Var) -> Step:
    """The block runs only where its terms are not zero, as far as that is a condition on `loop`, one of those it sums
    over. Legal where the terms are products of a factor that is loaded from a local buffer, filled with zeros where the
    condition does not hold, and one that is finite: an integer, or of a parameter that is declared so. The sum begins
    with zero.

    block sum(reduce va = a): t[] += q[vi + va] * w[va]
              =>      block sum(reduce va = a) where vi + va < 8: t[] += q[vi + va] * w[va]
    """
    found, over = find_block(function, block), find_loop(function, loop).var
    what = f"cannot leave out terms of block {block}"
    if over not in summed_loops(found):
        why = f"it does not sum over {over.name}, so it would not begin where a condition on it fails"
        raise refusal(function, what, found, why=why, part=found.name)
    a, b = _factors(function, found, what)
    made: list[Expr] = []
    evidence: list[str] = []
    for factor, other in ((a, b), (b, a)):
        conditions = _nonzero(function, found, factor, over)
        if conditions and not _is_finite(function, other):
            why = f"{other} may be infinite or NaN, and zero times that is NaN"
            fix = "declare the parameter it comes from finite, if it is"
            raise refusal(function, what, found, why=why, fix=fix, part=other)
        made += conditions
        evidence += [f"where {c} does not hold, {factor} is zero and {other} finite" for c in conditions]
    told = conjuncts(found.where)
    if made and all(c in told for c in made):
        raise refusal(function, what, found, why="it runs only where they are not zero already", part=found.where)
    if not made:
        why = f"no factor is loaded from a buffer that was filled with zeros by a condition on {over.name}"
        raise refusal(function, what, found, why=why, fix="unite the nests that fill it first", part=found.name)
    trimmed = found.replace(where=conjunction([*told, *(c for c in made if c not in told)]))
    return Step(function.replace(body=replace(function.body, found, trimmed)), None, tuple(evidence))


def _factors(function: Function, block: Block, what: str) -> tuple[Expr, Expr]:
    """The factors of the products that the block adds up, from zero on."""
    found = accumulation(block.replace(where=None, init=None))
    if found is None or found[0] is not Add or not isinstance(found[2], Mul):
        raise refusal(function, what, block, why="it does not add up products", part=block.name)
    init = block.init.value if isinstance(block.init, Store) else None
    if not isinstance(init, Const) or init.value != 0 or math.copysign(1, init.value) < 0:
        fix = "do it before decompose_reduction" if init is None else None
        raise refusal(function, what, block, why="its sums do not begin with zero", fix=fix, part=block.name)
    return found[2].a, found[2].b


def _nonzero(function: Function, block: Block, factor: Expr, over: Var) -> list[Expr]:
    """The conditions on a loop, over the block's axes, without which a factor is zero."""
    while isinstance(factor, Cast):
        factor = factor.a
    filling = filling_of(function, factor.buffer) if isinstance(factor, Load) else None
    if filling is None or not isinstance(factor, Load):
        return []
    value = filling.store.value
    while isinstance(value, Cast):
        value = value.a
    if not isinstance(value, Select) or not isinstance(value.b, Const) or value.b.value != 0:
        return []
    places: dict[Expr, Node] = dict(zip(filling.store.indices, factor.indices, strict=True))
    found = [simplify(substitute(part, places)) for part in conjuncts(value.cond)]
    return [c for c in found if over in variables_of(resolved(block, c) or c)]


def _is_finite(function: Function, value: Expr) -> bool:
    """Whether a value is a finite number: an integer, or loaded from where only finite ones are, as such or through a
    copy that is filled up with some. Conversions between floats may overflow; those to wider ones do not."""
    if not value.dtype.is_float:
        return True
    match value:
        case Const(number):
            return math.isfinite(number)
        case Select(_, a, b):
            return _is_finite(function, a) and _is_finite(function, b)
        case Cast(a):
            fits = not a.dtype.is_float or a.dtype.bits <= value.dtype.bits
            return value.dtype.bits >= WIDE and fits and _is_finite(function, a)
        case Load(buffer):
            filling = None if buffer.finite else filling_of(function, buffer)
            return buffer.finite or (filling is not None and _is_finite(function, filling.store.value))
    return False
