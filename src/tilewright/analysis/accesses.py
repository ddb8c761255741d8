"""The loads and stores of a statement, and how each moves with a loop.

    for i in 0..n, j in 0..m:          accesses: load x[j, i], store y[i, j]
      y[i, j] = x[j, i]                stride(load, j) = n elements, stride(store, j) = 1

Block axes and `let` variables are replaced by what they stand for, so indices are over loop variables and symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.core.node import Node
from tilewright.core.walk import transform
from tilewright.expr.linear import expression, linear_in, polynomial
from tilewright.expr.nodes import Expr, Ramp, Var, const
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import loads_of
from tilewright.loops.nodes import Block, Buffer, For, If, Let, Prefetch, Seq, Stmt, Store, While


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One load or store of `statement`. `loops` are those around it inside the statement that was asked about,
    outermost first; `guarded` says that a condition may skip it. Vector lanes count as one more loop, in `lanes`."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_store: bool
    loops: tuple[For, ...]
    guarded: bool
    statement: Stmt

    def __str__(self) -> str:
        place = f"{self.buffer.name}[{', '.join(str(i) for i in self.indices)}]"
        return f"{'store' if self.is_store else 'load'} {place}"

    @property
    def variables(self) -> frozenset[Var]:
        """The variables that its place depends on."""
        return frozenset[Var]().union(*map(variables_of, self.indices))

    @property
    def said(self) -> str:
        """What a statement does, as a person says it: "loads x[i]"."""
        return str(self).replace(" ", "s ", 1)


def loads_from(root: Stmt, buffer: Buffer) -> list[Access]:
    """The loads of a buffer in `root`."""
    return [a for a in accesses(root) if a.buffer is buffer and not a.is_store]


def is_read_again(root: Stmt, buffer: Buffer) -> bool:
    """Whether an element of a buffer is read in several iterations of a loop around it."""
    found = loads_from(root, buffer)
    return any(not loop.is_single and loop.var not in load.variables for load in found for loop in load.loops)


@dataclass(frozen=True, slots=True)
class _Place:
    """What is around a statement."""

    loops: tuple[For, ...] = ()
    guarded: bool = False


def accesses(root: Stmt) -> list[Access]:
    """Every load and store in `root`, in program order; of one statement the loads first. `init` of a block counts as
    guarded: it runs at some points only."""
    return list(_accesses(root))


@lru_cache(maxsize=1 << 9)
def _accesses(root: Stmt) -> tuple[Access, ...]:
    """They are remembered: a statement never changes, and each question about it begins with them."""
    collector = _Collector()
    collector.statement(root, _Place())
    return tuple(collector.found)


@lru_cache(maxsize=1 << 10)
def _inside(stmt: Stmt) -> tuple[Access, ...]:
    """The accesses of a block, or of a loop beside others, that no named value is visible to: while steps change the
    loops around it, they stay."""
    collector = _Collector()
    if isinstance(stmt, Block):
        collector.block(stmt, _Place())
    else:
        collector.statement(stmt, _Place())
    return tuple(collector.found)


class _Collector:
    """Walks statements; remembers what axes and `let` variables stand for."""

    def __init__(self) -> None:
        self.found: list[Access] = []
        self.values: dict[Node, Node] = {}
        self.reading: set[Var] = set()
        self.has_names = False

    def statement(self, stmt: Stmt, place: _Place) -> None:
        match stmt:
            case Seq(body):
                for part in body:
                    if type(part) is For and not self.has_names:
                        self.as_before(part, place)
                    else:
                        self.statement(part, place)
            case For():
                self.loads((stmt.begin, stmt.end), stmt, place)
                self.statement(stmt.body, _Place((*place.loops, stmt), place.guarded))
            case Block() if self.has_names:
                self.block(stmt, place)
            case Block():
                self.as_before(stmt, place)
            case Store(buffer, indices, value):
                self.loads((*indices, value), stmt, place)
                where = tuple(map(self.resolve, indices))
                self.found.append(Access(buffer, where, True, place.loops, place.guarded, stmt))
            case Let(var, value):
                self.loads((value,), stmt, place)
                self.stands_for(var, value)
                self.has_names = True
            case If(cond, then, otherwise):
                self.loads((cond,), stmt, place)
                inner = _Place(place.loops, True)
                self.statement(then, inner)
                if otherwise is not None:
                    self.statement(otherwise, inner)
            case While(cond, body):
                inner = _Place(place.loops, True)
                self.loads((cond,), stmt, inner)
                self.statement(body, inner)
            case Prefetch():
                return
            case _:
                self.loads(tuple([c for c in stmt.children() if isinstance(c, Expr)]), stmt, place)

    def as_before(self, stmt: Block | For, place: _Place) -> None:
        """What is inside a statement that no named value is visible to."""
        inside = _inside(stmt)
        if place.loops or place.guarded:
            for a in inside:
                loops, guarded = (*place.loops, *a.loops), place.guarded or a.guarded
                self.found.append(Access(a.buffer, a.indices, a.is_store, loops, guarded, a.statement))
        else:
            self.found += inside

    def block(self, block: Block, place: _Place) -> None:
        had_names, self.has_names = self.has_names, True
        for axis in block.axes:
            if self.reads(axis.binding):
                self.loads((axis.binding,), block, place)
            self.stands_for(axis.var, axis.binding)
        if block.where is not None:
            self.loads((block.where,), block, place)
            place = _Place(place.loops, True)
        if block.init is not None:
            self.statement(block.init, _Place(place.loops, True))
        self.statement(block.body, place)
        self.has_names = had_names

    def resolve(self, e: Expr) -> Expr:
        if variables_of(e).isdisjoint(self.values):
            return e
        return transform(e, lambda node: node, self.values)

    def loads(self, roots: tuple[Expr, ...], stmt: Stmt, place: _Place) -> None:
        reading = [r for r in roots if self.reads(r)]
        for node in dict.fromkeys(node for r in reading for node in loads_of(self.resolve(r))) if reading else ():
            self.found.append(Access(node.buffer, node.indices, False, place.loops, place.guarded, stmt))

    def reads(self, e: Expr) -> bool:
        """Whether there are loads in an expression, or in what its variables stand for."""
        return bool(loads_of(e)) or (bool(self.reading) and not self.reading.isdisjoint(variables_of(e)))

    def stands_for(self, var: Var, value: Expr) -> None:
        self.values[var] = resolved = self.resolve(value)
        if loads_of(resolved):
            self.reading.add(var)


@lru_cache(maxsize=1 << 12)
def flat_index(shape: tuple[Expr, ...], indices: tuple[Expr, ...]) -> Expr:
    """The row-major index of an element."""
    total: Expr = const(0)
    for extent, index in zip(shape, indices, strict=True):
        total = total * extent + (index.base if isinstance(index, Ramp) else index)
    return total


def stride(access: Access, var: Var) -> Expr | None:
    """The elements that the flat row-major index moves for a step of `var`; None when it does not move evenly."""
    index = flat_index(access.buffer.shape, access.indices)
    return None if index.lanes != 1 else coefficient_of(index, var)


def coefficient_of(index: Expr, var: Var) -> Expr | None:
    """The factor of `var` in an index that is linear in it; None when it is not."""
    parts = linear_in(polynomial(index), var)
    return None if parts is None else expression(parts[0])


def mentions(e: Expr, variables: tuple[Var, ...] | frozenset[Var] | set[Var]) -> bool:
    """Whether one of the variables occurs in the expression."""
    return not variables_of(e).isdisjoint(variables)
