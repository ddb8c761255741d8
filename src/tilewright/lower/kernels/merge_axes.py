"""Kernels of points and sums have as few axes as they need: those of one element go, and those that lie one behind the
other wherever they are used are one.

    x, y: f32[4, 64, 8, 8], b: f32[1, 64, 1, 1]                x, y: f32[4, 64, 64], b: f32[64]
    for i in 0..4, j in 0..64, k in 0..8, l in 0..8:     =>    for i in 0..4, j in 0..64, kl in 0..64:
      y[i, j, k, l] = x[i, j, k, l] + b[0, j, 0, 0]              y[i, j, kl] = x[i, j, kl] + b[j]

Its callers pass the same memory. Kernels that differ in such shapes alone share a program, and schedules need not join
loops, nor prove things of quotients. Constants keep their axes: other programs compute of them what kernels read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from tilewright.core.node import Node
from tilewright.core.walk import substitute, transform
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.loops.edit import loads, plain_nest
from tilewright.loops.nodes import (
    Alloc,
    Axis,
    AxisKind,
    Block,
    Buffer,
    For,
    Function,
    Load,
    Seq,
    Stmt,
    Store,
    seq,
)
from tilewright.types.scopes import Scope

Access = Load | Store
Pair = tuple[object, int]
"""Of a buffer its dimension of this number and the next one; of a nest its axes."""


@dataclass(frozen=True, slots=True)
class Nest:
    """A block in loops over its axes alone, each from 0."""

    loops: tuple[For, ...]
    block: Block

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.block.axes

    def extent(self, axis: int) -> Expr:
        return self.loops[axis].end

    def without_extent(self) -> list[Axis]:
        """The axes of one element; of a sum of one term an axis is left."""
        single = [a for n, a in enumerate(self.axes) if self.extent(n) is const(1)]
        sums = all(a in single for a in self.block.reduce)
        return [a for a in single if a.kind is AxisKind.SPATIAL or not sums]

    def accesses(self) -> Iterator[Access]:
        """The stores, and each load."""
        yield from loads(self.block)
        for stored in (self.block.body, self.block.init):
            if isinstance(stored, Store):
                yield stored

    def alone(self) -> set[Var]:
        """The axes that a value is computed of, rather than an element found by."""
        waiting: list[Expr] = [s.value for s in (self.block.body, self.block.init) if isinstance(s, Store)]
        seen = set(waiting)
        while waiting:
            e = waiting.pop()
            below = [c for c in e.children() if c.variables and c not in seen] if not isinstance(e, Load) else []
            seen.update(below)
            waiting += below
        return {e for e in seen if isinstance(e, Var)}


def merge_axes(function: Function) -> Function:
    """The function with as few axes as it needs; itself where it is not made of points and sums alone."""
    body = function.body.body if isinstance(function.body, Seq) else (function.body,)
    found = {s: nest_in(s) for s in body if not isinstance(s, Alloc)}
    nests = [nest for nest in found.values() if nest is not None]
    if len(nests) < len(found):
        return function
    merging = _Merging(function, nests)
    return merging.made(body, found) if merging.pairs or merging.single else function


def nest_in(stmt: Stmt) -> Nest | None:
    found = plain_nest(stmt)
    if found is None or not isinstance(found[1].body, Store) or not isinstance(found[1].init, Store | None):
        return None
    return Nest(tuple(found[0]), found[1])


@dataclass(frozen=True, slots=True)
class _Uses:
    """How a nest uses its axes: which one comes `after` each, those that go together with no other (`apart`), and for
    each access its buffer, the dimensions that stay, the axis that runs over each, and all that move it."""

    after: dict[int, int]
    apart: set[int]
    accesses: list[tuple[Buffer, list[int], list[int | None], set[int]]]


class _Merging:
    """Which dimensions of buffers go (`single`), and which pairs of dimensions, and of axes of nests, become one."""

    def __init__(self, function: Function, nests: Sequence[Nest]) -> None:
        self.function, self.nests = function, nests
        self.buffers = dict.fromkeys([*function.params, *(a.buffer for nest in nests for a in nest.accesses())])
        gone = {a.var for nest in nests for a in nest.without_extent()}
        uses = [(a.buffer, n, i) for nest in nests for a in nest.accesses() for n, i in enumerate(a.indices)]
        moving = {(b, n) for b, n, i in uses if i is not const(0) and i not in gone}
        self.changing = [b for b in self.buffers if b.scope is not Scope.CONSTANT]
        self.single = {(b, n) for b in self.changing for n, e in enumerate(b.shape) if e is const(1)} - moving
        self.gone = gone
        self.pairs: set[Pair] = set()
        self.uses = {nest: self._uses(nest) for nest in nests}
        self._find_pairs()

    def dimensions(self, buffer: Buffer) -> list[int]:
        """The dimensions that stay."""
        return [n for n in range(len(buffer.shape)) if (buffer, n) not in self.single]

    def axes(self, nest: Nest) -> list[int]:
        """The axes that stay."""
        return [n for n, axis in enumerate(nest.axes) if axis.var not in self.gone]

    def _find_pairs(self) -> None:
        """All pairs that nothing speaks against: of dimensions one that is not used by a pair of axes, of axes one that
        is used otherwise than by pairs of dimensions."""
        for b in self.changing:
            self.pairs.update((b, n) for n, m in pairwise(self.dimensions(b)) if _are_known(b.shape[n], b.shape[m]))
        for nest in self.nests:
            for n, m in pairwise(self.axes(nest)):
                if _are_known(nest.extent(n), nest.extent(m)) and nest.axes[n].kind is nest.axes[m].kind:
                    self.pairs.add((nest, n))
        before = -1
        while before != len(self.pairs):
            before = len(self.pairs)
            for nest in self.nests:
                self._check(nest)

    def _uses(self, nest: Nest) -> _Uses:
        places = {nest.axes[n].var: n for n in self.axes(nest)}
        apart = {places[v] for v in nest.alone() if v in places}
        found = []
        for access in nest.accesses():
            kept = self.dimensions(access.buffer)
            at = [self._axis_at(nest, places, access, d) for d in kept]
            moving = [places[v] for d in kept for v in access.indices[d].variables if v in places]
            apart |= {n for n in moving if moving.count(n) > 1 or n not in at}
            found.append((access.buffer, kept, at, set(moving)))
        return _Uses(dict(pairwise(self.axes(nest))), apart, found)

    def _check(self, nest: Nest) -> None:
        """Takes away the pairs that a nest speaks against."""
        uses = self.uses[nest]
        for buffer, kept, at, moving in uses.accesses:
            for d, (one, two) in zip(kept, pairwise(at), strict=False):
                if one is None or uses.after.get(one) != two or (nest, one) not in self.pairs:
                    self.pairs.discard((buffer, d))
            for one, two in uses.after.items():
                n = at.index(one) if one in at else len(at)
                beside = at[n + 1 : n + 2] == [two] and (buffer, kept[n]) in self.pairs
                if not beside and (one in moving or two in moving):
                    self.pairs.discard((nest, one))
        self.pairs -= {(nest, one) for one, two in uses.after.items() if one in uses.apart or two in uses.apart}

    def _axis_at(self, nest: Nest, places: Mapping[Var, int], access: Access, dimension: int) -> int | None:
        """The axis that runs over all of a dimension of what is accessed, if one does."""
        index = access.indices[dimension]
        if not isinstance(index, Var) and not index.variables.isdisjoint(self.gone):
            index = simplify(substitute(index, dict.fromkeys(self.gone, const(0))))
        axis = places.get(index) if isinstance(index, Var) else None
        whole = axis is not None and nest.extent(axis) is access.buffer.shape[dimension]
        return axis if whole else None

    def groups(self, of: object, staying: Sequence[int]) -> list[list[int]]:
        """What stays in groups that become one."""
        found: list[list[int]] = []
        for n in staying:
            if found and (of, found[-1][-1]) in self.pairs:
                found[-1].append(n)
            else:
                found.append([n])
        return found

    def made(self, body: Sequence[Stmt], found: dict[Stmt, Nest | None]) -> Function:
        """The function with its dimensions and axes in groups."""
        shapes = {b: self.groups(b, self.dimensions(b)) for b in self.buffers}
        buffers = {b: _shaped(b, [_product([b.shape[n] for n in group]) for group in shapes[b]]) for b in shapes}
        result: list[Stmt] = []
        for s in body:
            nest = found.get(s)
            if nest is not None:
                result.append(self._rewritten(nest, shapes, buffers))
            elif isinstance(s, Alloc):
                result.append(s.replace(buffer=buffers.get(s.buffer, s.buffer)))
        params = tuple([buffers[b] for b in self.function.params])
        return self.function.replace(params=params, body=seq(*result))

    def _rewritten(self, nest: Nest, shapes: dict[Buffer, list[list[int]]], buffers: dict[Buffer, Buffer]) -> Stmt:
        values: dict[Expr, Expr] = {a.var: const(0) for a in nest.axes if a.var in self.gone}
        loops, axes = [], []
        for group in self.groups(nest, self.axes(nest)):
            loop, axis = nest.loops[group[0]], nest.axes[group[0]]
            if len(group) > 1:
                name = "".join([nest.loops[n].name for n in group])
                var, own = Var(name), Var(f"v{name}")
                values.update({nest.axes[n].var: own for n in group})
                loop = loop.replace(var=var, end=_product([nest.extent(n) for n in group]))
                axis = axis.replace(var=own, binding=var)
            loops.append(loop)
            axes.append(axis)

        def change(node: Node) -> Node:
            if isinstance(node, Load | Store) and node.buffer in buffers:
                at = [node.indices[group[0]] for group in shapes[node.buffer]]
                return node.replace(buffer=buffers[node.buffer], indices=tuple(map(simplify, at)))
            return node

        block, memo = nest.block, cast(dict[Node, Node], values)
        init = None if block.init is None else transform(block.init, change, memo)
        made: Stmt = Block(block.name, tuple(axes), transform(block.body, change, memo), init)
        for loop in reversed(loops):
            made = loop.replace(body=made)
        return made


def _shaped(buffer: Buffer, shape: Sequence[Expr]) -> Buffer:
    return buffer if tuple(shape) == buffer.shape else buffer.replace(shape=tuple(shape))


def _are_known(one: Expr, two: Expr) -> bool:
    return isinstance(one, Const) and isinstance(two, Const)


def _product(extents: Sequence[Expr]) -> Expr:
    numbers = [e.value for e in extents if isinstance(e, Const)]
    return extents[0] if len(extents) == 1 else const(math.prod(map(int, numbers)))
