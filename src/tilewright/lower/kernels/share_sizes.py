"""Kernels of points and sums that differ in the sizes of outer axes alone are one, which calls tell the sizes.

    y: f32[4, 96, 36] = call(x, callee="add")          y: f32[4, 96, 36] = call(x, callee="add", symbols=(96,))
    z: f32[4, 80, 36] = call(u, callee="add_2")   =>   z: f32[4, 80, 36] = call(u, callee="add", symbols=(80,))

An outer axis runs over all of a dimension wherever it is used, and along no row: what is innermost stays a number, and
so does what vectors are made of. Such kernels take as long as those of known sizes, and a network has many: its layers
differ in their channels. Kernels of rows shorter than vectors are left alone, for they run in vectors of other axes; so
are those that read constants, which know what they were made for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.analysis.structure import Form, form_of
from tilewright.core.node import Node as AnyNode
from tilewright.core.walk import transform
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.graph.nodes import AnyFunction, GraphFunction, Module, Node
from tilewright.graph.symbolic import Call
from tilewright.loops.nodes import Alloc, Buffer, Function, Load, Seq, Stmt, Store
from tilewright.lower.kernels.merge_axes import Nest, nest_in
from tilewright.types.scopes import Scope

FEWEST = 4
"""So many kernels take longer to compile than one that is told its sizes, which needs code for what is left over."""

Place = tuple[object, int]
"""Of a buffer its dimension of this number; of a nest its axis."""


def share_sizes(module: Module, plain: Collection[str], lanes: int) -> Module:
    """The module with one function for those of `plain` that are the same but for outer sizes, for vectors of so many
    lanes."""
    alike: defaultdict[Form, list[_Sized]] = defaultdict(list)
    functions = [f for name, f in module.functions.items() if name in plain and isinstance(f, Function)]
    for sized in _likely(functions, lanes):
        alike[form_of(sized.told([Var(f"size{n}") for n in range(len(sized.extents))]))].append(sized)
    made: dict[str, Function] = {}
    calls: dict[str, Call] = {}
    for group in alike.values():
        sizes = list(zip(*[sized.extents for sized in group], strict=True))
        told = [n for n, found in enumerate(sizes) if len({*found}) > 1]
        if not told or len(group) < FEWEST:
            continue
        first = group[0].function
        symbols = {n: Var(f"size{k}", least=min(sizes[n])) for k, n in enumerate(told)}
        made[first.name] = group[0].told([symbols.get(n, const(sizes[n][0])) for n in range(len(sizes))])
        for sized in group:
            calls[sized.function.name] = Call(first.name, tuple([const(sized.extents[n]) for n in told]), ())
    kept = {name: made.get(name, f) for name, f in module.functions.items() if name in made or name not in calls}
    return replace(module, functions={name: _calling(f, calls) for name, f in kept.items()}) if calls else module


def _calling(function: AnyFunction, calls: Mapping[str, Call]) -> AnyFunction:
    """The graph function with calls of the shared functions; any other one as it is."""
    if not isinstance(function, GraphFunction):
        return function

    def called(node: Node) -> Node:
        if not isinstance(node.attrs, Call) or node.attrs.callee not in calls:
            return node
        shared = calls[node.attrs.callee]
        return node.replace(attrs=node.attrs.replace(callee=shared.callee, symbols=node.attrs.symbols + shared.symbols))

    return function.replace(nodes=tuple(map(called, function.nodes)))


def _likely(functions: Sequence[Function], lanes: int) -> Iterator[_Sized]:
    """Those that may be like others: as many buffers of as many dimensions and of the same rows, and as many
    statements that compute with the same kinds of expressions."""
    outlines: defaultdict[object, list[Function]] = defaultdict(list)
    for f in functions:
        params = tuple([(b.dtype, len(b.shape), b.shape[-1] if len(b.shape) > 1 else None) for b in f.params])
        outlines[len(f.body.inside()), f.body.kinds(), params].append(f)
    for group in outlines.values():
        if len(group) >= FEWEST:
            yield from (sized for f in group if (sized := _sized(f, lanes)) is not None)


@dataclass(frozen=True, slots=True)
class _Sized:
    """A function with the sizes of its outer axes, each with the places that it is the size of."""

    function: Function
    nests: Mapping[Stmt, Nest]
    places: Mapping[Place, int]
    extents: tuple[int, ...]

    def told(self, sizes: Sequence[Expr]) -> Function:
        """The function with these sizes, of which those that are variables are further symbols."""
        buffers: dict[Buffer, Buffer] = {}

        def shaped(buffer: Buffer) -> Buffer:
            if buffer not in buffers:
                shape = [
                    sizes[self.places[p]] if (p := (buffer, d)) in self.places else e
                    for d, e in enumerate(buffer.shape)
                ]
                buffers[buffer] = buffer.replace(shape=tuple(shape)) if tuple(shape) != buffer.shape else buffer
            return buffers[buffer]

        def change(node: AnyNode) -> AnyNode:
            return node.replace(buffer=shaped(node.buffer)) if isinstance(node, Load | Store) else node

        def rewritten(s: Stmt) -> Stmt:
            if isinstance(s, Alloc):
                return s.replace(buffer=shaped(s.buffer))
            nest = self.nests[s]
            made: Stmt = transform(nest.block, change)
            for n, loop in reversed(list(enumerate(nest.loops))):
                place = self.places.get((s, n))
                made = loop.replace(body=made, end=loop.end if place is None else sizes[place])
            return made

        body = self.function.body
        parts = [rewritten(s) for s in (body.body if isinstance(body, Seq) else (body,))]
        params = tuple(map(shaped, self.function.params))
        symbols = (*self.function.symbols, *[e for e in sizes if isinstance(e, Var)])
        return self.function.replace(
            symbols=symbols, params=params, body=parts[0] if len(parts) == 1 else Seq(tuple(parts))
        )


def _sized(function: Function, lanes: int) -> _Sized | None:
    """A function with its outer sizes; None where it has none, or is not of this kind."""
    if any(b.scope is Scope.CONSTANT for b in function.params):
        return None
    body = function.body.body if isinstance(function.body, Seq) else (function.body,)
    found = {s: nest_in(s) for s in body if not isinstance(s, Alloc)}
    nests = {s: nest for s, nest in found.items() if nest is not None}
    if len(nests) < len(found) or any(_has_short_rows(nest, lanes) for nest in nests.values()):
        return None
    together = _Together()
    for b in function.params:
        together.extents.update({(b, d): e for d, e in enumerate(b.shape)})
    for s, nest in nests.items():
        together.add(s, nest)
    places, sizes = together.sizes()
    return _Sized(function, nests, places, sizes) if sizes else None


def _has_short_rows(nest: Nest, lanes: int) -> bool:
    """Whether the rows that a nest of several axes runs along are too short to fill vectors."""
    last = nest.extent(len(nest.axes) - 1) if nest.axes else const(1)
    return len(nest.axes) > 1 and isinstance(last, Const) and last.value < lanes


class _Together:
    """Places that have one size, and those that are `inner`: along rows, in sums of indices, or computed with."""

    def __init__(self) -> None:
        self.extents: dict[Place, Expr] = {}
        self._of: dict[Place, Place] = {}
        self._inner: set[Place] = set()

    def add(self, stmt: Stmt, nest: Nest) -> None:
        """The places of a nest and of what it accesses."""
        axes: dict[Expr, Place] = {axis.var: (stmt, n) for n, axis in enumerate(nest.axes)}
        self.extents.update({place: nest.extent(n) for n, place in enumerate(axes.values())})
        self._inner.update(axes[v] for v in nest.alone() if v in axes)
        for access in nest.accesses():
            for d, (index, extent) in enumerate(zip(access.indices, access.buffer.shape, strict=True)):
                place: Place = (access.buffer, d)
                self.extents[place] = extent
                axis = axes.get(index)
                if axis is not None and self.extents[axis] is extent:
                    self._join(place, axis)
                else:
                    self._inner.update([place, *[axes[v] for v in index.variables if v in axes]])
            if len(access.indices) > 1:
                self._inner.add((access.buffer, len(access.indices) - 1))

    def sizes(self) -> tuple[dict[Place, int], tuple[int, ...]]:
        """The places that are not inner, and the number of the size of each; and the sizes."""
        inner = {self._first(place) for place in self._inner}
        numbers: dict[Place, int] = {}
        places: dict[Place, int] = {}
        sizes: list[int] = []
        for place, extent in self.extents.items():
            first = self._first(place)
            if first in inner or not isinstance(extent, Const) or extent.value < 2:
                continue
            if first not in numbers:
                numbers[first] = len(sizes)
                sizes.append(int(extent.value))
            places[place] = numbers[first]
        return places, tuple(sizes)

    def _first(self, place: Place) -> Place:
        while place in self._of:
            place = self._of[place]
        return place

    def _join(self, one: Place, other: Place) -> None:
        one, other = self._first(one), self._first(other)
        if one != other:
            self._of[one] = other
