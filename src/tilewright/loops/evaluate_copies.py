"""The evaluator of functions that only copy elements: whole arrays at a time, for what is computed at compile time.

    for o in 0..6, k in 0..131, i in 0..24:
      block pack(vo = o, vk = k, vi = i):                           b.take(min(o*24 + i, 128), axis=1) in the order
        p[vo, vk, vi] = select(vo*24 + vi < 129,              =>    o, k, i, where o*24 + i < 129, and else 0.0
                               b[vk, min(vo*24 + vi, 128)],
                               0.0)

The nests it takes have loops of known length around one block that stores once, each element at most once, and no
element that it reads. The value is a constant, a load, or a selection between such; no two indices of a load, nor of
the store, move with the same loop. What is not like this it leaves alone: evaluate.py takes everything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.core.walk import substitute
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Const, Expr, Select, Var
from tilewright.expr.variables import variables_of
from tilewright.loops.edit import loads_of
from tilewright.loops.nodes import Alloc, Block, Buffer, For, Function, Load, Seq, Stmt, Store
from tilewright.types.room import at_line

Array = np.ndarray[Any, Any]


class _Other(Exception):
    """The function does something else than copying."""


def evaluate_copies(function: Function, inputs: Sequence[Array]) -> tuple[Array, ...] | None:
    """What a function computes from arrays for all of its parameters but the outputs; None where it does more than
    copy elements. Results may be views of the inputs."""
    if function.symbols:
        return None
    places = len(function.params) - function.outputs
    arrays: dict[Buffer, Array] = dict(zip(function.params[:places], inputs, strict=True))
    results = function.params[places:]
    try:
        arrays |= {b: at_line(_shape(b), b.dtype.numpy) for b in results}
        body = function.body.body if isinstance(function.body, Seq) else (function.body,)
        nests = [None if isinstance(stmt, Alloc) else _Nest(stmt, arrays) for stmt in body]
        writers = Counter(nest.store.buffer for nest in nests if nest is not None)
        for stmt, nest in zip(body, nests, strict=True):
            if nest is not None:
                nest.run(alone=writers[nest.store.buffer] == 1)
            elif isinstance(stmt, Alloc):
                arrays[stmt.buffer] = np.empty(_shape(stmt.buffer), stmt.buffer.dtype.numpy)
    except _Other:
        return None
    return tuple(arrays[b] for b in results)


def _shape(buffer: Buffer) -> tuple[int, ...]:
    return tuple(_number(extent) for extent in buffer.shape)


def _number(e: Expr) -> int:
    if not isinstance(e, Const):
        raise _Other
    return int(e.value)


def _taken(source: Array, place: Array, axis: int) -> Array:
    """`source.take(place, axis)`. A run of consecutive indices is a slice of the source, which is not copied element by
    element: most indices are one run, but for those at an edge."""
    counted = place == np.arange(len(place)) + (place[0] if len(place) else 0)
    count = len(place) if counted.all() else int(counted.argmin())
    if count * 2 < len(place):
        return source.take(place, axis)
    start = int(place[0]) if count else 0
    run = source[(slice(None),) * axis + (slice(start, start + count),)]
    return run if count == len(place) else np.concatenate([run, source.take(place[count:], axis)], axis)


class _Nest:
    """A nest with one store; its arrays have a dimension for each loop, outermost first."""

    def __init__(self, stmt: Stmt, arrays: dict[Buffer, Array]) -> None:
        self.arrays = arrays
        self.extents: dict[Var, int] = {}
        while isinstance(stmt, For):
            if _number(stmt.begin) != 0:
                raise _Other
            self.extents[stmt.var] = max(_number(stmt.end), 0)
            stmt = stmt.body
        if not isinstance(stmt, Block) or stmt.init is not None or stmt.where is not None or stmt.reduce:
            raise _Other
        if not isinstance(stmt.body, Store):
            raise _Other
        self.store = stmt.body
        self.bound: dict[Expr, Expr] = {a.var: a.binding for a in stmt.axes}
        loops = list(self.extents)
        self.points = {v: np.arange(n).reshape([n if v is w else 1 for w in loops]) for v, n in self.extents.items()}

    def run(self, alone: bool) -> None:
        """Stores. What is `alone` in writing all of a buffer makes a view, as far as it can."""
        into = self.arrays.get(self.store.buffer)
        if into is None or any(load.buffer is self.store.buffer for load in loads_of(self.store.value)):
            raise _Other
        if not math.prod(self.extents.values()):
            return
        places, loops = self.places(self.store.indices, into.shape)
        if any(len(np.unique(p)) != len(p) for p in places) or len(loops) != len(self.extents):
            raise _Other
        value = np.broadcast_to(self.value(self.store.value), tuple(self.extents.values()))
        value = value.transpose([list(self.extents).index(v) for v in loops]).reshape([len(p) for p in places])
        if all(len(p) == n and (p == np.arange(n)).all() for p, n in zip(places, into.shape, strict=True)):
            if alone:
                self.arrays[self.store.buffer] = value
            else:
                into[...] = value
        else:
            into[np.ix_(*places)] = value

    def value(self, e: Expr) -> Array:
        """An expression at all points of the loops."""
        match e:
            case Const(value, dtype):
                return np.asarray(value, dtype.numpy)
            case Load(buffer, indices):
                return self.load(buffer, indices)
            case Select(cond, a, b):
                return self.choice(self.index(cond), self.value(a), self.value(b))
        raise _Other

    def choice(self, cond: Array, a: Array, b: Array) -> Array:
        """`np.where(cond, a, b)`, several times as fast where an operand has other strides than the result."""
        made = np.array(np.broadcast_to(a, np.broadcast_shapes(cond.shape, a.shape, b.shape)), order="C")
        np.copyto(made, b, where=np.logical_not(cond))
        return made

    def load(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Array:
        """The elements that a load reads, along the loops that its indices move with; along the others they stay."""
        source = self.arrays.get(buffer)
        if source is None:
            raise _Other
        places, loops = self.places(indices, source.shape)
        for axis, place in enumerate(places):
            source = _taken(source, place, axis)
        source = source.reshape([self.extents[v] for v in loops])
        order = sorted(range(len(loops)), key=lambda n: list(self.extents).index(loops[n]))
        return source.transpose(order).reshape([n if v in loops else 1 for v, n in self.extents.items()])

    def places(self, indices: tuple[Expr, ...], shape: tuple[int, ...]) -> tuple[list[Array], list[Var]]:
        """For each index its values, in the order of the loops it moves with; and these loops, index by index."""
        places: list[Array] = []
        moving: list[Var] = []
        for e, size in zip(indices, shape, strict=True):
            values = np.asarray(self.index(e))
            moved = variables_of(self.resolved(e))
            loops = [v for v in self.extents if v in moved]
            if not moved.isdisjoint(moving):
                raise _Other
            place = np.broadcast_to(values, [n if v in loops else 1 for v, n in self.extents.items()]).reshape(-1)
            if place.min() < 0 or place.max() >= size:
                raise _Other
            places.append(place)
            moving += loops
        return places, moving

    def index(self, e: Expr) -> Any:
        """An index or a condition, broadcast along the loops that it does not move with."""
        resolved = self.resolved(e)
        if loads_of(resolved) or not variables_of(resolved) <= self.points.keys():
            raise _Other
        return evaluate(resolved, self.points)

    def resolved(self, e: Expr) -> Expr:
        return substitute(e, self.bound)
