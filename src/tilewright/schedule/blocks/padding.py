"""pad, pad_sum, trim_sum, skip_zeros: a block runs at points beyond the end, too, or at fewer points, where that
changes no result.

A condition `c` of the block may be dropped if it is a condition on the stored element (pad). Then each element is
written either where `c` holds or where it fails, never both; elements of the second kind are *beyond*. Only a block
that writes them back to where they are may read them; the condition of every other reader must imply `c`.

A condition on the terms of a sum may be dropped, or added, where these terms are zero (pad_sum, trim_sum; skip_zeros
leaves them out without a condition). Zero times a number is a zero of one sign or the other, unless the number is
infinite or NaN, and to add one to a sum that began with zero changes nothing: such a sum is never -0.
"""

from __future__ import annotations

import math

from tilewright.analysis.accesses import Access, accesses, mentions
from tilewright.analysis.beyond import PlaceBeyond, divides_by_size
from tilewright.analysis.fillings import is_finite, nonzero_at, zeros_of
from tilewright.analysis.iterations import product_in
from tilewright.analysis.known import Known, bound, resolved
from tilewright.core.node import Node
from tilewright.core.walk import substitute
from tilewright.expr.build import conjunction, conjuncts, maximum, minimum
from tilewright.expr.linear import expression, joined, polynomial
from tilewright.expr.nodes import Const, Expr, Max, Min, Mul, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import spatial_loops, summed_loops
from tilewright.loops.edit import (
    blocks,
    loads,
    loads_of,
    map_expressions,
    map_loads,
    path_to,
    replace,
    statements,
    substitute_expressions,
)
from tilewright.loops.nodes import Assert, Block, For, Function, If, Let, Load, Seq, Stmt, Store, While
from tilewright.schedule.find import primitive
from tilewright.schedule.step import Obstacle, Step, rewritten


@primitive("cannot pad block {block}")
def pad(function: Function, block: Block, loop: For | None = None) -> Step:
    """The block runs beyond the end, too: conditions of its `where` are dropped if results where they fail are ignored.
    With `loop`, only conditions on that loop are. Loads that could leave their buffer there are clamped to its last
    element, or its first one; where an axis that ends there is divided by a dynamic size, to the axis's last value.

    block dot where io*6 + vi < m: t[vi] += x[io*6 + vi]; block y where io*6 + vi < m: y[io*6 + vi] = t[vi]
              =>      block dot: t[vi] += x[min(io*6 + vi, m - 1)]; block y where io*6 + vi < m: y[io*6 + vi] = t[vi]
    """
    place = PlaceBeyond(function, block)
    about, stores = _conditions(place, loop), _stores(place)
    reasons = {c: place.reason_to_keep(stores, c) for c in about}
    dropped = [c for c, reason in reasons.items() if reason is None]
    if not dropped:
        fix = "let it store to a local buffer, whose readers have the same where"
        raise Obstacle(place.block, reasons[about[0]] or "", fix, part=place.block.where)
    names = ", ".join(dict.fromkeys(s.buffer.name for s in stores))
    evidence = [f"where {c} does not hold, what it stores to {names} is read by nobody" for c in dropped]
    return _run_beyond(place, dropped, evidence)


@primitive("cannot add up beyond the end in block {block}")
def pad_sum(function: Function, block: Block, loop: For) -> Step:
    """The block adds terms beyond the end, too: conditions of its `where` on the loop are dropped. Legal if these terms
    are products with a zero: a factor is loaded from a local buffer that was filled with zeros there, and the other one
    is zero, too, or finite, since zero times infinity is NaN. Conditions on elements
    stay while the block has its init.

    p[k, l] was filled with select(k*2 + l < 77, …, 0):
    block dot(reduce vk = ko*2 + ki) where vk < 77: t[] += x[vk] * p[vk//2, vk%2]
              =>      block dot(reduce vk = ko*2 + ki): t[] += x[min(vk, 76)] * p[vk//2, vk%2]
    """
    place = PlaceBeyond(function, block)
    dropped = _conditions(place, loop)
    product = _product(place)
    evidence = [f"where {c} does not hold, {_zero_where(place, product, c)}" for c in dropped]
    return _run_beyond(place, dropped, evidence)


@primitive("cannot leave out terms of block {block}")
def trim_sum(function: Function, block: Block, loop: For) -> Step:
    """The block runs only where its terms are not zero, as far as that is a condition on `loop`, which it sums over.
    Legal if each term is a product of two factors: one is loaded from a local buffer that is filled with zeros where
    the condition fails; the other is finite, that is an integer, or of a parameter that is declared finite. The sum
    must begin with zero.

    q[i] was filled with select(i < 8, …, 0):
    block sum(reduce va = a): t[] += q[vi + va] * w[va]
              =>      block sum(reduce va = a) where vi + va < 8: t[] += q[vi + va] * w[va]
    """
    place, over = PlaceBeyond(function, block), loop.var
    if over not in summed_loops(block):
        raise Obstacle(block, f"it does not sum over {over.name}, so it would not begin where a condition on it fails")
    product = _product(place)
    _require_zero_init(block)
    told = conjuncts(block.where)
    made: list[Expr] = []
    evidence: list[str] = []
    for factor, other in ((product.a, product.b), (product.b, product.a)):
        _, inside = zeros_of(function, factor) or ("", [])
        conditions = [c for c in inside if mentions(resolved(block, c), {over})]
        if conditions and not is_finite(function, other):
            why = f"{other} may be infinite or NaN, and zero times that is NaN"
            raise Obstacle(block, why, "declare the parameter it comes from finite, if it is", part=other)
        made += conditions
        evidence += [f"where {c} does not hold, {factor} is zero and {other} finite" for c in conditions]
    if made and all(c in told for c in made):
        raise Obstacle(block, "it runs only where they are not zero already", part=block.where)
    if not made:
        why = f"no factor is loaded from a buffer that was filled with zeros by a condition on {over.name}"
        raise Obstacle(block, why, fix="unite the nests that fill it first")
    trimmed = block.replace(where=conjunction([*told, *(c for c in made if c not in told)]))
    return rewritten(function, block, trimmed, None, *evidence)


@primitive("cannot skip terms of block {block}")
def skip_zeros(function: Function, block: Block, loop: For) -> Step:
    """The block leaves out the terms that are zero because a factor was filled with zeros all over, and with other
    numbers at every so many elements only: of the iterations of `loop`, as many as lie between these, one is left.

    p was filled with zeros, then p[i*2] = x[i] for all i:
    for j in 0..2, ao in 0..3, ai in 0..2: block sum(vj = j, reduce vo = ao, reduce vi = ai):
      t[vj] += p[vj + vo*2 + vi] * w[vo, vi]
              =>      for j in 0..2, ao in 0..3: block sum(vj = j, reduce vo = ao): t[vj] += p[vj*2 + vo*2] * w[vo, vj]

    Each term must be a product; the other factor must be finite, and the sum begin with zero.
    """
    place, over = PlaceBeyond(function, block), loop.var
    axis = next((a for a in block.reduce if a.binding is over), None)
    if axis is None or len(block.reduce) < 2 or loop.size is None or loop.begin is not const(0):
        raise Obstacle(block, f"{over.name} is not one of several axes, each with a loop from 0, that it sums over")
    if list(blocks(loop)) != [block] or any(over in s.bounded_by for s in statements(loop.body) if isinstance(s, For)):
        raise Obstacle(loop, f"there is more in {over.name} than block {block.name}")
    product = _product(place)
    _require_zero_init(block)
    known = Known({a.var: place.known.ranges[a.binding] for a in block.axes if isinstance(a.binding, Var)})
    for factor, other in ((product.a, product.b), (product.b, product.a)):
        left = nonzero_at(function, block, factor, axis.var, loop.size, known)
        if left is None:
            continue
        if not is_finite(function, other):
            why = f"{other} may be infinite or NaN, and zero times that is NaN"
            raise Obstacle(block, why, "declare the parameter it comes from finite, if it is", part=other)
        kept = block.replace(axes=tuple(a for a in block.axes if a is not axis))
        made = map_expressions(substitute_expressions(kept, {axis.var: left}), known.simplified)
        fresh = replace(loop.body, block, made)
        told = f"{factor} is zero but where {axis.var.name} is {left}, and {other} is finite"
        return rewritten(function, loop, fresh, None, told)
    why = f"no factor is loaded from a local buffer that holds zeros but at every {loop.size} elements"
    raise Obstacle(block, why, fix="split the loop by the distance of the others")


def _require_zero_init(block: Block) -> None:
    init = block.init.value if isinstance(block.init, Store) else None
    if not isinstance(init, Const) or init.value != 0 or math.copysign(1, init.value) < 0:
        fix = "do it before decompose_reduction" if init is None else None
        raise Obstacle(block, "its sums do not begin with zero", fix=fix)


def _conditions(place: PlaceBeyond, loop: For | None) -> list[Expr]:
    """The conditions of the block, or those of them that are on a loop."""
    if place.block.where is None:
        raise Obstacle(place.block, "it runs everywhere already: it has no where")
    found = conjuncts(place.block.where)
    about = [c for c in found if loop is None or mentions(resolved(place.block, c), {loop.var})]
    if loop is not None and not about:
        raise Obstacle(place.block, f"no condition of it is about {loop.name}", part=place.block.where)
    return about


def _run_beyond(place: PlaceBeyond, dropped: list[Expr], evidence: list[str]) -> Step:
    """The step that drops these conditions; refused if a load beyond may be outside its buffer."""
    kept = [c for c in conjuncts(place.block.where) if c not in dropped]
    block = place.block.replace(where=conjunction(kept))
    indices = [(resolved(block, i), e) for ld in loads(block) for i, e in zip(ld.indices, ld.buffer.shape, strict=True)]
    if all(place.is_inside(index, extent) for index, extent in indices):
        return rewritten(place.function, place.block, block, None, *evidence)
    beyond = _beyond_at_once(place, dropped, kept)
    ends = place.ends(dropped)
    inside = {load: _inside(place, load, beyond, ends) for load in loads(block)}
    for load, fresh in inside.items():
        parts = zip(load.indices, fresh.indices, load.buffer.shape, strict=True)
        last = [
            f"take the last {f'of {extent}' if isinstance(at, Min | Max) else 'point'}: there is 1 at least"
            for index, at, extent in parts
            if index is not at
        ]
        evidence = [*evidence, *(f"loads of {load.buffer.name} beyond its end {told}" for told in last)]
    made = map_loads(block, lambda load: inside.get(load, load))
    return rewritten(place.function, place.block, made, None, *evidence)


def _beyond_at_once(place: PlaceBeyond, dropped: list[Expr], kept: list[Expr]) -> set[Var]:
    """The loops some of whose iterations are beyond. Whenever the block runs there, it also runs at the first
    iterations of these loops, with the same iterations of the others. So a buffer that it loads from is not empty,
    and an index that does not depend on these loops is inside."""
    needs = [n for c in dropped if (n := bound(resolved(place.block, c))) is not None]
    beyond = set().union(*(place.loops_beyond(n) or set() for n in needs))
    conditions = ", ".join(map(str, dropped))
    if not all(place.holds_first(n, beyond) for n in needs):
        raise Obstacle(place.block, f"nothing says that {conditions} hold anywhere at once")
    for loop in place.loops:
        if loop.bounded_by & beyond:
            raise Obstacle(place.block, f"the bounds of {loop.name} depend on what {conditions} is about")
    for cond in kept:
        if mentions(resolved(place.block, cond), beyond):
            raise Obstacle(place.block, f"{cond} must stay, and is about the same loops as {conditions}")
    return beyond


def _inside(place: PlaceBeyond, load: Load, beyond: set[Var], ends: dict[Expr, Node]) -> Load:
    """The load with the indices clamped that are not proved to be inside."""
    indices = []
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        over_loops = resolved(place.block, index)
        moves = mentions(over_loops, beyond)
        if moves and loads_of(over_loops):
            raise Obstacle(place.block, f"where it loads {load.buffer.name} beyond the end depends on loads there")
        moving = [a.var for a in place.block.axes if a.var in index.variables and mentions(a.binding, beyond)]
        if moves and not place.is_inside(over_loops, extent):
            last = minimum(index, simplify(extent - 1))
            if divides_by_size(index) and len(moving) == 1 and moving[0] in ends:
                index = substitute(index, ends)
            else:
                index = last if place.is_positive(over_loops) else maximum(last, 0)
        indices.append(index)
    return Load(load.buffer, tuple(indices))


def _stores(place: PlaceBeyond) -> list[Access]:
    """The distinct stores of a block that does nothing else, under loops that alone decide whether it runs."""
    function, block = place.function, place.block
    found: list[Stmt] = []
    for s in block.inside():
        if not isinstance(s, Store | Seq):
            raise Obstacle(s, "it holds more than stores, and what they do beyond the end is not known")
        if isinstance(s, Store) and s.buffer in function.params:
            why = f"it stores to {s.buffer.name}, which the caller reads"
            fix = f'let it store to a local buffer first: cache_write("{block.name}", "{s.buffer.name}")'
            raise Obstacle(s, why, fix, part=s.buffer.name)
        found.append(s)
    path = path_to(function.body, block)
    outermost = next((s for s in path if isinstance(s, For)), block)
    for s in (*path, *statements(outermost)):
        if isinstance(s, Let | While | Assert) or (isinstance(s, If) and s in path):
            raise Obstacle(s, f"what the {type(s).__name__.lower()} in its loops does beyond the end is not known")
    stores = [a for a in accesses(function.body) if a.is_store and a.statement in found]
    return list({(a.buffer, a.indices): a for a in stores}.values())


def _product(place: PlaceBeyond) -> Mul:
    """The products that the block adds up."""
    found = product_in(place.block)
    if found is None:
        raise Obstacle(place.block, "it does not add up products")
    return found


def _zero_where(place: PlaceBeyond, product: Mul, cond: Expr) -> str:
    """Why the terms are zero where the condition does not hold: both factors are, or one, and the other finite."""
    block, function, is_float = place.block, place.function, product.dtype.is_float
    over_loops = resolved(block, cond)
    need = bound(over_loops)
    if need is None or (block.init is not None and mentions(over_loops, spatial_loops(block))):
        fix = "do it after decompose_reduction"
        raise Obstacle(place.block, f"{cond} is no condition on the terms alone", fix, part=cond)
    zero = []
    for factor, other in ((product.a, product.b), (product.b, product.a)):
        buffer, conditions = zeros_of(function, factor) or (None, [])
        inside = [b for c in conditions if (b := bound(resolved(block, c))) is not None]
        facts = [joined(polynomial(place.known.simplified(expression(b)))) for b in inside]
        if buffer is not None and buffer not in function.params and place.known.follows(joined(need), facts):
            zero.append((buffer.name, other))
    if len(zero) == 2 or (zero and not is_float):
        return f"{' and '.join(name for name, _ in zero)} is zero"
    if zero and is_finite(function, zero[0][1]):
        return "{} is zero and {} finite".format(*zero[0])
    wanted = "both factors" if is_float else "a factor"
    fix = f"read {wanted} through a cache_read with transform_layout(…, pad=0) first"
    raise Obstacle(place.block, f"what it adds where {cond} does not hold is not known to be zero", fix, part=cond)
