"""Nests that steps make: loops around a block over a box of its points, copies of a box of elements; and what is left
of a statement where its conditions are decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.analysis.accesses import mentions
from tilewright.analysis.domains import Domain
from tilewright.analysis.elements import Elements, point
from tilewright.analysis.intervals import Ranges
from tilewright.analysis.known import CHOOSING, Known, compared, decisions, resolved, running
from tilewright.analysis.regions import ranges_of
from tilewright.core.node import Node
from tilewright.core.walk import substitute, transform
from tilewright.expr import dtypes
from tilewright.expr.build import conjunction, conjuncts
from tilewright.expr.linear import polynomial
from tilewright.expr.nodes import Const, Expr, Le, Lt, Max, Min, Select, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.decompose import summed_loops
from tilewright.loops.edit import map_expressions
from tilewright.loops.nodes import Axis, AxisKind, Block, Buffer, For, If, Load, LoopKind, Seq, Stmt, Store, seq


def nested(loops: Sequence[For], inside: Stmt) -> Stmt:
    """A statement under loops, outermost first, each in place of what it held."""
    for loop in reversed(loops):
        inside = loop.replace(body=inside)
    return inside


def nest_over(domain: Domain, part: Ranges, around: Sequence[For] = (), *, singles: bool = False) -> Stmt:
    """The block over a part of its domain, the ranges of some axes, under serial loops of its own: those of the spatial
    axes in their order, called like them, for axes of one point only where `singles` have loops; inside them those of
    the reduce axes. `around` are the loops that it will stand in. Points of the part that are not in the domain are
    left out by `where`."""
    known, conditions = Known(ranges_of(around)), list[Expr]()
    made: list[For] = []
    bindings: dict[Var, Expr] = {}
    for var, whole in domain.box.items():
        found = part.get(var, whole)
        if not known.at_least(found.begin, whole.begin):
            conditions.append(Le(whole.begin, var))
        if not known.at_least(whole.end, found.end):
            conditions.append(Lt(var, whole.end))
        bindings[var] = found.begin
        if singles or found.extent is not const(1):
            loop = Var(var.name.removeprefix("v") or "v")
            made.append(For(loop, const(0), found.extent, LoopKind.SERIAL, domain.block))
            bindings[var] = simplify(found.begin + loop)
    axes = tuple(a.replace(binding=bindings.get(a.var, a.binding)) for a in domain.block.axes)
    block = domain.block.replace(axes=axes, where=conjunction([*conditions, *domain.conditions]))
    return nested([*made, *(loop.serial() for loop in domain.reduce)], block)


def box_nest(
    name: str, loops: Sequence[Var], part: Elements, store: Callable[[tuple[Expr, ...]], Stmt], *, singles: bool = False
) -> Stmt:
    """A block that runs store(indices) for each of some elements, in a serial loop for each dimension, called like one
    of `loops`: for dimensions of one element, too, where `singles` have loops."""
    points = tuple(Var("v" + var.name) for var in loops)
    axes = tuple(Axis(var, AxisKind.SPATIAL, var) for var in points)
    values = dict(zip(point(len(points)), points, strict=True))
    conditions = tuple(substitute(compared(polynomial(c)), values) for c in part.conditions)
    box = dict(zip(points, part.ranges, strict=True))
    return nest_over(Domain(Block(name, axes, store(points)), box, (), conditions), {}, singles=singles)


def copy_nest(
    name: str, loops: Sequence[Var], part: Elements, to: Buffer, of: Buffer, *, singles: bool = False
) -> Stmt:
    """A nest that copies some elements of one buffer to the same places of another one."""
    return box_nest(name, loops, part, lambda at: Store(to, at, Load(of, at)), singles=singles)


def settle(stmt: Stmt, known: Known) -> Stmt:
    """The statement without the conditions that are decided by the loops around it and in it, and without blocks that
    run nowhere."""
    match stmt:
        case Seq(body):
            made = [settle(s, known) for s in body]
            return stmt if all(a is b for a, b in zip(made, body, strict=True)) else seq(*made)
        case For(var, begin, end):
            held = settle(stmt.body, known.where({var: running(begin, end)}))
            if held is stmt.body:
                return stmt
            return held if isinstance(held, Seq) and not held.body else stmt.replace(body=held)
        case Block():
            told = {part: resolved(stmt, part) for part in conjuncts(stmt.where)}
            kept = summed_loops(stmt) if stmt.init is not None else frozenset()  # a condition on these leaves the init
            if any(not mentions(c, kept) and known.fails(c) for c in told.values()):
                return Seq(())
            parts = [part for part, c in told.items() if not known.holds(c)]
            block = _decided(stmt, known)
            return block if len(parts) == len(told) else block.replace(where=conjunction(parts))
        case If(cond, then, otherwise):
            decided = known.simplified(cond)
            if isinstance(decided, Const):
                chosen = then if decided.value else otherwise
                return settle(chosen, known) if chosen is not None else Seq(())
            rest = settle(otherwise, known) if otherwise is not None else None
            return If(cond, settle(then, known), rest)
    return stmt


def _decided(block: Block, known: Known) -> Block:
    """The block with the selections of its values taken, and its minima and maxima of these, that are decided by the
    loops around it."""
    if not any(e.dtype.is_int or isinstance(e, Select) for e in decisions(block)):
        return block
    memo: dict[Node, Node] = {}

    def change(node: Node) -> Node:
        match node:
            case Select(cond, a, _) if all(known.holds(resolved(block, c)) for c in conjuncts(cond)):
                return a
            case Min(a, b) if node.dtype is dtypes.index:
                return a if known.never_negative(polynomial(resolved(block, b - a))) else node
            case Max(a, b) if node.dtype is dtypes.index:
                return a if known.never_negative(polynomial(resolved(block, a - b))) else node
        return node

    def stays(node: Node) -> bool:
        return isinstance(node, Expr) and not node.kinds & CHOOSING

    made = map_expressions(block, lambda e: e if stays(e) else transform(e, change, memo, stays))
    assert isinstance(made, Block)
    return made
