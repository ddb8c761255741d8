"""Operands that a product uses few times are read in place: a transposed copy would cost as much as the product.

    t: f32[16, 64, 512] = transpose(k, perm=(0, 2, 1))
    s: f32[16, 1, 512] = contract(q, t, spec="h i d, h d t -> h i t")
    =>
    s: f32[16, 1, 512] = contract(q, k, spec="h i d, h t d -> h i t")

The same holds for keys and values that groups of heads share, which a model repeats for each head: the axis of heads is
split into groups and the heads of a group. Decoding does this: one token is multiplied with the cached keys and values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from tilewright.expr.dtypes import f32
from tilewright.expr.nodes import Const, Expr
from tilewright.expr.simplify import product_of
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.lower.graph.graph_rules import Graph
from tilewright.lower.graph.merge_positions import RULES, Shape, read_contraction, viewed_as
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.ops.checks import ONE
from tilewright.ops.index_maps import Affine, IndexMaps, Spec
from tilewright.ops.movement import TransposeAttributes
from tilewright.plan.price.points import transpose_cycles
from tilewright.target import Target

Pieces = tuple[tuple[str, Expr], ...]
"""The axes that an axis was split into, the slowest first, with their extents."""


def read_in_place(module: Module, target: Target) -> Module:
    """The module with products that read such operands in place: those of fewer uses than multiply-adds take as long as
    the copy."""
    lanes = target.lanes(f32)
    few = transpose_cycles(lanes, lanes, target) / target.core.fma_cycles
    functions = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    products = Counter(v for f in functions for node in f.nodes if node.op.name == "contract" for v in node.inputs)
    rule = partial(read_source, few=few, products=products)
    return simplify_graph(module, ((rule, ("contract",)), *RULES))


@dataclass(slots=True)
class _Source:
    """The source of an operand that data movement makes: a value, the axis of each of its dimensions (None where all
    read its only element), and the axes that were split."""

    value: Value
    axes: list[str | None]
    parted: dict[str, Pieces] = field(default_factory=dict)
    moved: bool = False

    def pieces(self, axis: str, extent: Expr) -> Pieces:
        """The axes that an axis of the product was split into, or itself."""
        return self.parted.get(axis, ((axis, extent),))


def read_source(node: Node, graph: Graph, few: float, products: Mapping[Value, int]) -> Value | None:
    """contract(x, transpose(y), "a b, b c -> a c")  =>  contract(x, y, "a b, c b -> a c")
    and contract(x, reshape(broadcast(y)), "h d, h t d -> h t")
        =>  reshape(contract(reshape(x), reshape(y), "g e d, g t d -> g e t"))  y in less than `few` terms

    `products` says how many products read a value."""
    attrs, maps = read_contraction(node)
    if attrs.sizes or not all(i.axis for indices in maps.spec.operands for i in indices):
        return None
    for n, (value, indices) in enumerate(zip(node.inputs, maps.spec.operands, strict=True)):
        axes = [i.axis for i in indices]
        if len(set(axes)) != len(axes) or not _uses(maps, axes) * max(products.get(value, 1), 1) < few:
            continue
        source = _follow(_Source(value, axes), graph)
        if source is not None:
            return _contract(node, n, source, graph)
    return None


def _uses(maps: IndexMaps, axes: list[str | None]) -> float:
    """In how many products each element of an operand is, which these axes index; infinitely many where that is not
    known."""
    uses = product_of([maps.extent(a) for a in maps.spec.axes if a not in axes])
    return float(uses.value) if isinstance(uses, Const) else math.inf


def _follow(source: _Source, graph: Graph) -> _Source | None:
    """The furthest value that the operand is a transposition or a repetition of; None where it is none."""
    best: _Source | None = None
    before: _Source | None = source
    while before is not None:
        node = graph.producer(before.value)
        before = None if node is None else _step(source, node)
        if before is not None:
            source = before
            best = source if source.moved else best
    return best


def _step(source: _Source, node: Node) -> _Source | None:
    """The same elements as the input of a node that moves them."""
    if node.op.name == "transpose":
        assert isinstance(node.attrs, TransposeAttributes)
        axes: list[str | None] = [None] * len(source.axes)
        for place, axis in zip(node.attrs.perm, source.axes, strict=True):
            axes[place] = axis
        return _Source(node.inputs[0], axes, source.parted, True)
    if node.op.name == "broadcast":
        (value,) = node.inputs
        own = source.axes[len(source.axes) - value.type.rank :]
        axes = [None if extent is ONE else axis for axis, extent in zip(own, value.type.shape, strict=True)]
        return _Source(value, axes, source.parted, True)
    return _unmerged(source, node) if node.op.name == "reshape" else None


def _unmerged(source: _Source, node: Node) -> _Source | None:
    """The same elements before a reshape that makes one dimension of several, or adds and drops units."""
    (value,) = node.inputs
    axes: list[str | None] = []
    parted = dict(source.parted)
    rest = iter(value.type.shape)
    for axis, extent in zip(source.axes, source.value.type.shape, strict=True):
        if extent is ONE:
            continue
        own = _taken(rest, extent)
        if own is None or axis is None:
            return None
        wide = [e for e in own if e is not ONE]
        names = iter([axis] if len(wide) == 1 else _part(parted, axis, wide))
        axes += [None if e is ONE else next(names) for e in own]
    left = list(rest)
    axes += [None] * len(left)
    return _Source(value, axes, parted, False) if all(e is ONE for e in left) else None


def _taken(rest: Iterator[Expr], extent: Expr) -> list[Expr] | None:
    """The next dimensions, as many as make a dimension of this extent."""
    own: list[Expr] = []
    for each in rest:
        own.append(each)
        if product_of(own) is extent:
            return own
    return None


def _part(parted: dict[str, Pieces], axis: str, extents: list[Expr]) -> list[str]:
    """Splits an axis, which may be a piece of one that was split before. Returns the names of its pieces."""
    made = tuple((f"{axis}_{n}", e) for n, e in enumerate(extents))
    whole = next((name for name, pieces in parted.items() if axis in {a for a, _ in pieces}), None)
    if whole is None:
        parted[axis] = made
    else:
        parted[whole] = tuple(p for piece in parted[whole] for p in (made if piece[0] == axis else (piece,)))
    return [name for name, _ in made]


def _contract(node: Node, operand: int, source: _Source, graph: Graph) -> Value | None:
    """The product of the source and the other operands, without output axes of one element, in the former shape."""
    attrs, maps = read_contraction(node)
    units = {a for a in maps.spec.output if maps.extent(a) is ONE}
    if len(units) == len(maps.spec.output) or any(name in maps.spec.axes for name in _names(source)):
        return None

    def parts(axis: str) -> Pieces:
        return source.pieces(axis, maps.extent(axis)) if axis not in units else ()

    operands: list[tuple[str, ...]] = []
    inputs: list[Value | None] = []
    for n, (value, indices) in enumerate(zip(node.inputs, maps.spec.operands, strict=True)):
        pieces = [p for i in indices for p in parts(i.axis or "")]
        if n == operand:
            value = source.value
            found = [(a, e) for a, e in zip(source.axes, value.type.shape, strict=True)]
            pieces = [(a, e) for a, e in found if a is not None and a not in units]
        operands.append(tuple(a for a, _ in pieces))
        inputs.append(viewed_as(value, _extents(pieces), graph))
    spec = Spec(
        tuple(tuple(Affine(((a, 1),)) for a in axes) for axes in operands),
        tuple(a for axis in maps.spec.output for a, _ in parts(axis)),
        tuple(a for axis in maps.spec.reduce for a, _ in parts(axis)),
    )
    order = dict.fromkeys(a for axes in operands for a in axes if a not in spec.output)
    given = [v for v in inputs if v is not None]
    if tuple(order) != spec.reduce or len(given) < len(inputs):
        return None
    made = graph.make("contract", *given, spec=str(spec), dtype=attrs.dtype)
    return None if made is None else viewed_as(made, node.outputs[0].type.shape, graph)


def _names(source: _Source) -> list[str]:
    return [name for pieces in source.parted.values() for name, _ in pieces]


def _extents(pieces: list[tuple[str, Expr]]) -> Shape:
    return tuple(extent for _, extent in pieces)
