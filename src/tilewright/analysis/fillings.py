"""What fills a local buffer: one block, or one beside others that store zeros; where zeros are, what is finite.

for i in 0..9: block q(vi = i): q[vi] = select(vi < 8, x[min(vi, 7)], 0.0)
                                    filling_of(q): block q, over vi in 0..9
                                    zeros_of(q[vj + 1]): q, [vj + 1 < 8]
for i in 0..9: block zero(vi = i): q[vi] = 0.0
for i in 0..8: block copy(vi = i): q[vi] = x[vi]
                                    zeros_of(q[vj + 1]): q, [vj + 1 < 8]
"""

from __future__ import annotations

import math

from tilewright.analysis.domains import Domain, domain_of
from tilewright.analysis.known import Known
from tilewright.analysis.memory import Memory
from tilewright.analysis.regions import whole
from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr import dtypes
from tilewright.expr.build import conjuncts, less, less_equal
from tilewright.expr.linear import expression, polynomial
from tilewright.expr.nodes import Cast, Const, Expr, Mod, Select, Var, const
from tilewright.expr.simplify import simplify
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
from tilewright.loops.nodes import Block, Buffer, Function, Load, Stmt, Store


def filling_of(function: Function, buffer: Buffer) -> tuple[Stmt, Domain] | None:
    """(the nest of loops, one for each dimension, that alone fills a buffer, each element once and by itself; the
    points of its block). None where there is none."""
    stores = [s for s in statements(function.body) if isinstance(s, Store) and s.buffer is buffer]
    block = next((b for b in blocks(function.body) if b.body in stores), None)
    if len(stores) != 1 or block is None or block.reduce or buffer in loaded_buffers(block):
        return None
    loops = loops_around(function.body, block)[-len(block.axes) :] if block.axes else []
    nest, domain = [*loops, block][0], domain_of(block, loops)
    if isinstance(domain, str) or domain.conditions or perfect_nest(nest) != (loops, block):
        return None
    return (nest, domain) if _is_whole(domain) else None


def _is_whole(domain: Domain) -> bool:
    """Whether the points of a block are the elements of the buffer that it stores to."""
    store = domain.store
    return domain.box == dict(zip(store.indices, whole(store.buffer.shape), strict=True)) and not domain.conditions


def zeros_of(function: Function, factor: Expr) -> tuple[Buffer, list[Expr]] | None:
    """The local buffer that a factor is loaded from and that holds zeros where one of some conditions fails, which are
    in the variables that the factor is written in; None where that is not known."""
    factor = _unconverted(factor)
    if not isinstance(factor, Load):
        return None
    filling = filling_of(function, factor.buffer)
    if filling is None:
        return _stored_inside(function, factor)
    store = filling[1].store
    value = _unconverted(store.value)
    if not isinstance(value, Select) or not isinstance(value.b, Const) or value.b.value != 0:
        return None
    places: dict[Expr, Node] = dict(zip(store.indices, factor.indices, strict=True))
    return factor.buffer, [simplify(substitute(part, places)) for part in conjuncts(value.cond)]


def _stored_inside(function: Function, load: Load) -> tuple[Buffer, list[Expr]] | None:
    """The same of a buffer to which one block stores anything inside a box, and others zeros. Elements that none of
    them stores are not read."""
    writers = _writers(function, load.buffer)
    others = [d for d in writers or () if not _stores_zeros(d)]
    if writers is None or len(writers) < 2 or len(others) != 1 or others[0].conditions:
        return None
    (inner,) = others
    conditions: list[Expr] = []
    for at, place, extent in zip(load.indices, inner.store.indices, load.buffer.shape, strict=True):
        axes = {m: c for m, c in polynomial(place).items() if m}
        if not axes and extent is const(1):
            continue
        axis = next((m[0] for m, c in axes.items() if c == 1 and len(m) == 1), None) if len(axes) == 1 else None
        if not isinstance(axis, Var) or axis not in inner.box:
            return None
        first, box = simplify(place - axis), inner.box[axis]
        begin, end = simplify(box.begin + first), simplify(box.end + first)
        conditions += [less_equal(begin, at)] if begin is not const(0) else []
        conditions += [less(at, end)] if end is not extent else []
    return load.buffer, [simplify(c) for c in conditions]


def _writers(function: Function, buffer: Buffer) -> list[Domain] | None:
    """The points at which each block stores to a local buffer that blocks of one store each alone write, in order; None
    where something else may, or where a block's points are not known."""
    found: list[Domain] = []
    stores = {s for s in statements(function.body) if isinstance(s, Store) and s.buffer is buffer}
    for block in blocks(function.body):
        if block.body in stores:
            domain = domain_of(block, loops_around(function.body, block))
            if isinstance(domain, str) or block.reduce:
                return None
            found.append(domain)
    alone = buffer in allocations(function.body) and Memory(function.body).is_plain(buffer)
    return found if alone and len(found) == len(stores) else None


def _stores_zeros(domain: Domain) -> bool:
    value = domain.store.value
    return isinstance(value, Const) and value.value == 0


def _is_blank(domain: Domain) -> bool:
    """Whether a block fills a buffer with zeros, all of it."""
    return _stores_zeros(domain) and _is_whole(domain)


def stretched(function: Function, reader: Block, buffer: Buffer, dimension: int, step: int) -> int | None:
    """The remainder by `step` of all indices in a dimension of a local buffer at which it may hold another number than
    zero when a block reads it: it was filled with zeros, all of it, and then only stored to at such indices. None where
    that is not known."""
    inside = list(blocks(function.body))
    before = inside[: inside.index(reader)]
    writers = _writers(function, buffer)
    if writers is None or any(buffer in stored_buffers(b) for b in inside if b not in before):
        return None
    found: set[int] = set()
    for domain in [d for d in writers if not _is_blank(d)]:
        index = polynomial(domain.store.indices[dimension])
        if any(c % step for m, c in index.items() if m):
            return None
        found.add(index.get((), 0) % step)
    return found.pop() if any(map(_is_blank, writers)) and len(found) == 1 else None


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
