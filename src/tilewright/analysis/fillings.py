"""What fills a local buffer, where one block alone does: which block, where with zeros, whether with finite numbers.

for i in 0..9: block q(vi = i): q[vi] = select(vi < 8, x[min(vi, 7)], 0.0)
                                    filling_of(q): block q, over vi in 0..9
                                    zeros_of(q[vj + 1]): q, [vj + 1 < 8]
"""

from __future__ import annotations

import math

from tilewright.analysis.domains import Domain, domain_of
from tilewright.analysis.known import Known
from tilewright.analysis.regions import whole
from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr import dtypes
from tilewright.expr.build import conjuncts
from tilewright.expr.linear import expression, polynomial
from tilewright.expr.nodes import Cast, Const, Expr, Mod, Select, Var, const
from tilewright.loops.edit import (
    allocations,
    blocks,
    loaded_buffers,
    loads_of,
    loops_around,
    perfect_nest,
    statements,
    stored_buffers,
)
from tilewright.loops.nodes import Block, Buffer, Function, Load, LoopKind, Stmt, Store


def filling_of(function: Function, buffer: Buffer) -> tuple[Stmt, Domain] | None:
    """(the nest of serial loops, one for each dimension, that alone fills a buffer, each element once and by itself;
    the points of its block). None where there is none."""
    stores = [s for s in statements(function.body) if isinstance(s, Store) and s.buffer is buffer]
    block = next((b for b in blocks(function.body) if b.body in stores), None)
    if len(stores) != 1 or block is None or block.reduce or buffer in loaded_buffers(block):
        return None
    loops = loops_around(function.body, block)[-len(block.axes) :] if block.axes else []
    nest, domain = [*loops, block][0], domain_of(block, loops)
    if isinstance(domain, str) or domain.conditions or perfect_nest(nest) != (loops, block):
        return None
    is_whole = domain.box == dict(zip(domain.store.indices, whole(buffer.shape), strict=True))
    return (nest, domain) if is_whole and all(loop.kind is LoopKind.SERIAL for loop in loops) else None


def zeros_of(function: Function, factor: Expr) -> tuple[Buffer, list[Expr]] | None:
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


def stretched(function: Function, reader: Block, buffer: Buffer, dimension: int, step: int) -> int | None:
    """The remainder by `step` of all indices in a dimension of a local buffer at which it may hold another number than
    zero when a block reads it: it was filled with zeros, all of it, and then only stored to at such indices. None where
    that is not known."""
    inside = list(blocks(function.body))
    before = inside[: inside.index(reader)]
    writers = [b for b in inside if buffer in stored_buffers(b)]
    found: set[int] = set()
    filled = False
    if buffer not in allocations(function.body) or any(b not in before for b in writers):
        return None
    for block in writers:
        domain = domain_of(block, loops_around(function.body, block))
        if isinstance(domain, str) or block.reduce or domain.store.buffer is not buffer:
            return None
        value = domain.store.value
        if isinstance(value, Const) and value.value == 0:
            box = domain.box == dict(zip(domain.store.indices, whole(buffer.shape), strict=True))
            filled |= box and not domain.conditions
            continue
        index = polynomial(domain.store.indices[dimension])
        if any(c % step for m, c in index.items() if m):
            return None
        found.add(index.get((), 0) % step)
    return found.pop() if filled and len(found) == 1 else None


def nonzero_at(function: Function, block: Block, factor: Expr, axis: Var, size: int, known: Known) -> Expr | None:
    """The value of an axis, of `size` values, for which a factor of a block may be another number than zero; None where
    there is not just one."""
    if not isinstance(factor, Load):
        return None
    for dimension, index in enumerate(factor.indices):
        rest = {m: c % size for m, c in polynomial(index).items() if c % size}
        at = stretched(function, block, factor.buffer, dimension, size)
        if at is not None and rest.pop((axis,), 0) == 1 and not any(axis in m for m in rest):
            sign = 1 if size == 2 else -1  # of two, a number and its opposite are the same one
            value = expression({**{m: sign * c for m, c in rest.items()}, (): at + sign * rest.get((), 0)})
            return known.simplified(Mod(value, const(size)))
    return None


def apart(function: Function, buffer: Buffer, dimension: int) -> int:
    """How many elements lie between those that are stored to a local buffer along a dimension, but for what fills it
    with one value: 1 where they are neighbours, or where that is not known."""
    found = 0
    for block in blocks(function.body):
        if isinstance(block.body, Store) and block.body.buffer is buffer and loads_of(block.body.value):
            index = polynomial(block.body.indices[dimension])
            found = math.gcd(found, *[c for m, c in index.items() if m])
    return max(found, 1)


def _unconverted(value: Expr) -> Expr:
    while isinstance(value, Cast):
        value = value.a
    return value


def is_finite(function: Function, value: Expr) -> bool:
    """Whether a value is a finite number: an integer, or loaded from a buffer of finite numbers, directly or through a
    copy that is padded with finite ones. Conversions to narrower floats may overflow; those to wider ones do not.
    Floats at least as wide as f32 hold every integer, if rounded."""
    if not value.dtype.is_float:
        return True
    match value:
        case Const(number):
            return math.isfinite(number)
        case Select(_, a, b):
            return is_finite(function, a) and is_finite(function, b)
        case Cast(a):
            fits = not a.dtype.is_float or a.dtype.bits <= value.dtype.bits
            return value.dtype.bits >= dtypes.f32.bits and fits and is_finite(function, a)
        case Load(buffer):
            filling = None if buffer.finite else filling_of(function, buffer)
            return buffer.finite or (filling is not None and is_finite(function, filling[1].store.value))
    return False
