"""Kernels that differ in where their slices begin are one, which is told where: the steps of a loop that is unrolled.

    a: f32[8, 64] = slice(x, starts=(0, 0), …)            a: f32[8, 64] = call(x, callee="slice", symbols=(0,))
    b: f32[8, 64] = slice(x, starts=(8, 0), …)     =>     b: f32[8, 64] = call(x, callee="slice", symbols=(8,))

What a kernel is told is bounded by the last place where a slice may begin, so that it reads no other memory whatever it
is told. Slices of constants stay as they are: what follows from these alone is computed once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilewright.analysis.dataflow import Reference
from tilewright.analysis.structure import Form
from tilewright.expr.build import minimum
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.graph.nodes import Node, Value
from tilewright.lower.kernels.form import form_of_kernel
from tilewright.ops.checks import ONE, number
from tilewright.ops.movement import SliceAttributes
from tilewright.plan.fusion.kernels import Kernel

Place = tuple[int, int]
"""A slice, by its number among the nodes of a kernel, and one of its dimensions."""

_ANYWHERE = Var("anywhere")


@dataclass(frozen=True, slots=True)
class Told:
    """A kernel as it is made, and what a call tells it: numbers for symbols."""

    kernel: Kernel
    numbers: Mapping[Var, Expr]


def share_slices(kernels: Sequence[Kernel], constants: Collection[Value]) -> Iterator[Told]:
    """Each kernel with symbols for the places where it and others that are else the same begin to read."""
    alike: defaultdict[Form, list[tuple[Expr, ...]]] = defaultdict(list)
    places = [_places(kernel, constants) for kernel in kernels]
    forms = [
        form_of_kernel(_beginning(kernel, dict.fromkeys(found, _ANYWHERE)), {}) if found else None
        for kernel, found in zip(kernels, places, strict=True)
    ]
    for found, key in zip(places, forms, strict=True):
        if key is not None:
            alike[key].append(tuple(found.values()))
    symbols = {key: _symbols(starts) for key, starts in alike.items()}
    for kernel, found, key in zip(kernels, places, forms, strict=True):
        named = {} if key is None else {p: v for p, v in zip(found, symbols[key], strict=True) if v is not None}
        numbers = {symbol: found[place] for place, symbol in named.items()}
        yield Told(_beginning(kernel, named) if named else kernel, numbers)


def _places(kernel: Kernel, constants: Collection[Value]) -> dict[Place, Expr]:
    """Where slices of what the kernel reads begin, by known numbers, where they could begin elsewhere."""
    found: dict[Place, Expr] = {}
    for n, node in enumerate(kernel.nodes):
        if not isinstance(node.attrs, SliceAttributes):
            continue
        (x,) = node.inputs
        if x in constants or Reference(x, node) in kernel.inside:
            continue
        rows = zip(x.type.shape, node.attrs.starts, node.attrs.sizes, node.attrs.steps, strict=True)
        for d, (extent, start, size, step) in enumerate(rows):
            if all(isinstance(e, Const) for e in (extent, start, size)) and step is ONE and size is not extent:
                found[n, d] = start
    return found


def _symbols(starts: Sequence[tuple[Expr, ...]]) -> list[Var | None]:
    """A symbol for each place at which kernels differ."""
    return [Var(f"slice.start{n}") if len({*at}) > 1 else None for n, at in enumerate(zip(*starts, strict=True))]


def _beginning(kernel: Kernel, starts: Mapping[Place, Expr]) -> Kernel:
    """The kernel with slices that begin at these places."""
    nodes: dict[Node, Node] = {}
    for n, node in enumerate(kernel.nodes):
        own = {d: start for (at, d), start in starts.items() if at == n}
        nodes[node] = node.replace(attrs=_moved(node, own)) if own else node
    inside = frozenset([Reference(r.value, nodes[r.reader]) for r in kernel.inside])
    beside = tuple([nodes[node] for node in kernel.beside])
    return replace(kernel, nodes=tuple(nodes.values()), inside=inside, beside=beside)


def _moved(node: Node, starts: Mapping[int, Expr]) -> SliceAttributes:
    assert isinstance(node.attrs, SliceAttributes)
    lasts = [
        (number(e) or 0) - (number(s) or 0) for e, s in zip(node.inputs[0].type.shape, node.attrs.sizes, strict=True)
    ]
    places = [minimum(starts[d], lasts[d]) if d in starts else start for d, start in enumerate(node.attrs.starts)]
    return SliceAttributes(tuple(places), node.attrs.sizes, node.attrs.steps)
