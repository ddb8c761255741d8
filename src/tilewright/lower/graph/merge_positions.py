"""Merges axes that a contraction treats alike, such as rows and columns of an image, so that kernels run along all.

    y: f32[1, 256, 56, 56] = contract(x, w, spec="n c i+a j+b, c a b o -> n o i j")        a window of one point
    =>
    s: f32[1, 64, 3136] = reshape(x)
    t: f32[1, 256, 3136] = contract(s, w, spec="n c p, c o -> n o p")
    y: f32[1, 256, 56, 56] = reshape(t)

The reshape then moves behind the following element-wise operators and reductions, so that they share kernels with the
contraction and with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.expr.nodes import Expr, const
from tilewright.expr.simplify import product_of
from tilewright.graph.nodes import Module, Node, Value
from tilewright.graph.op import Op, Pattern
from tilewright.lower.graph.graph_rules import Graph, Rules
from tilewright.lower.graph.simplify_graph import simplify_graph
from tilewright.ops.checks import ONE, ZERO
from tilewright.ops.contract import ContractAttributes, maps_of
from tilewright.ops.index_maps import Affine, IndexMaps, Spec
from tilewright.ops.pad import PadAttributes
from tilewright.ops.reduce import ReduceAttributes

Shape = tuple[Expr, ...]


def merge_positions(module: Module) -> Module:
    """The module with the positions of pointwise contractions merged."""
    return simplify_graph(module, RULES)


def read_contraction(node: Node) -> tuple[ContractAttributes, IndexMaps]:
    """The attributes of a contraction, and its axes with their extents."""
    assert isinstance(node.attrs, ContractAttributes)
    return node.attrs, maps_of(node)


def _contracted(
    node: Node, inputs: Sequence[Value | None], spec: Spec, attrs: ContractAttributes, graph: Graph
) -> Value | None:
    """A contraction of these inputs by this specification, reshaped to the former shape; None where one is."""
    given = [v for v in inputs if v is not None]
    made = graph.make("contract", *given, spec=str(spec), dtype=attrs.dtype) if len(given) == len(inputs) else None
    return None if made is None else viewed_as(made, node.outputs[0].type.shape, graph)


def merge_axes(node: Node, graph: Graph) -> Value | None:
    """contract(x: [n, c, h, w], "n c i j, c o -> n o i j")  =>  reshape(contract(reshape(x), "n c p, c o -> n o p"))

    and contract(x: [h, w, c], "i j c, c o -> i j o")  =>  reshape(contract(reshape(x), "p c, c o -> p o"))"""
    attrs, maps = read_contraction(node)
    spec = _without_units(maps)
    if spec is None:
        return None
    run = _run(spec, maps, node)
    if run is None:
        return None
    total = product_of([maps.extent(a) for a in run.axes])
    merged = (Affine(((run.axes[0], 1),)),)
    inputs, operands = [], []
    for n, (value, indices) in enumerate(zip(node.inputs, spec.operands, strict=True)):
        kept = _extents(maps, indices)
        if n == run.operand:
            kept = (*kept[: run.place], total, *kept[run.place + len(run.axes) :])
            indices = (*indices[: run.place], *merged, *indices[run.place + len(run.axes) :])
        inputs.append(viewed_as(value, kept, graph))
        operands.append(indices)
    output = tuple(a for a in spec.output if a not in run.axes[1:])
    return _contracted(node, inputs, Spec(tuple(operands), output, spec.reduce), attrs, graph)


def drop_one_column(node: Node, graph: Graph) -> Value | None:
    """contract(x: [n, c, 1], w, "n c p, o c -> n o p")  =>  reshape(contract(reshape(x), w, "n c, o c -> n o"))

    so that the columns, which are along the lanes, are the last axis of more than one point."""
    attrs, maps = read_contraction(node)
    spec = _without_units(maps)
    if spec is None:
        return None
    kept = len(spec.output)
    while kept and maps.extent(spec.output[kept - 1]) is ONE:
        kept -= 1
    dropped = set(spec.output[kept:])
    if not dropped or not kept:
        return None
    inputs, operands = [], []
    for value, indices in zip(node.inputs, spec.operands, strict=True):
        operands.append(tuple(i for i in indices if i.axis not in dropped))
        inputs.append(viewed_as(value, _extents(maps, operands[-1]), graph))
    return _contracted(node, inputs, Spec(tuple(operands), spec.output[:kept], spec.reduce), attrs, graph)


def slice_strides(node: Node, graph: Graph) -> Value | None:
    """contract(x, "n c i*2+a j*2+b, …")  =>  contract(slice(x, steps 2), "n c i j, …")     where a and b have size 1"""
    attrs, maps = read_contraction(node)
    units = {a for a in maps.spec.reduce if maps.extent(a) is ONE}
    inputs, operands = [], []
    for value, indices in zip(node.inputs, maps.spec.operands, strict=True):
        kept = [tuple(t for t in i.terms if t[0] not in units) or i.terms for i in indices]
        strided = [len(terms) == 1 and terms[0][1] > 1 for terms in kept]
        made: Value | None = value
        if any(strided):
            if any(len(terms) != 1 for terms in kept):
                return None
            extents = [maps.extent(t[0][0]) for t in kept]
            steps = tuple([const(t[0][1]) for t in kept])
            made = graph.make("slice", value, starts=(const(0),) * len(kept), sizes=tuple(extents), steps=steps)
        if made is None:
            return None
        inputs.append(made)
        plain = [Affine(((t[0][0], 1),)) if s else i for t, s, i in zip(kept, strided, indices, strict=True)]
        operands.append(tuple(plain))
    if inputs == list(node.inputs):
        return None
    spec = Spec(tuple(operands), maps.spec.output, maps.spec.reduce)
    return graph.make("contract", *inputs, spec=str(spec), sizes=attrs.sizes, dtype=attrs.dtype)


def _without_units(maps: IndexMaps) -> Spec | None:
    """The specification without reduced axes of one point; None where a window of more is left."""
    units = {a for a in maps.spec.reduce if maps.extent(a) is ONE}
    operands = []
    for indices in maps.spec.operands:
        kept = []
        for index in indices:
            terms = tuple(t for t in index.terms if t[0] not in units)
            if len(terms) > 1 or any(factor != 1 for _, factor in terms):
                return None
            if terms:
                kept.append(Affine(terms))
        operands.append(tuple(kept))
    reduce = tuple(a for a in maps.spec.reduce if a not in units)
    return Spec(tuple(operands), maps.spec.output, reduce) if reduce else None


@dataclass(frozen=True, slots=True)
class _Run:
    """Axes that follow each other in the output and, from `place` on, in one operand, whose dimensions they are."""

    operand: int
    place: int
    axes: tuple[str, ...]


def _run(spec: Spec, maps: IndexMaps, node: Node) -> _Run | None:
    """The axes to merge, of one operand alone: the last ones of the output, or others, of which two or more have
    more than one point."""
    found: list[_Run] = []
    for n, (indices, value) in enumerate(zip(spec.operands, node.inputs, strict=True)):
        if len(indices) != value.type.rank:
            continue
        own = [i.axis or "" for i in indices]
        others = {i.axis for m, each in enumerate(spec.operands) if m != n for i in each}
        alone = [
            a not in others and own.count(a) == 1 and extent is maps.extent(a)
            for a, extent in zip(own, value.type.shape, strict=True)
        ]
        found += [_Run(n, q, axes) for q, axes in _together(spec.output, own, alone)]
    last = next((run for run in found if run.axes[-1] == spec.output[-1]), None)
    return last or next((run for run in found if _are_rows(run, maps)), None)


def _together(output: Sequence[str], own: Sequence[str], alone: Sequence[bool]) -> list[tuple[int, tuple[str, ...]]]:
    """The longest runs of two axes at least that follow each other in the output and in an operand, and stand alone
    there, with their places in the operand."""
    runs: list[tuple[int, tuple[str, ...]]] = []
    start = 0
    while start < len(output):
        axis, length = output[start], 0
        place = own.index(axis) if axis in own else len(own)
        while start + length < len(output) and place + length < len(own):
            if output[start + length] != own[place + length] or not alone[place + length]:
                break
            length += 1
        if length >= 2:
            runs.append((place, tuple(output[start : start + length])))
        start += max(length, 1)
    return runs


def _are_rows(run: _Run, maps: IndexMaps) -> bool:
    return sum(maps.extent(a) is not ONE for a in run.axes) >= 2


def _extents(maps: IndexMaps, indices: Sequence[Affine]) -> Shape:
    return tuple(maps.extent(i.terms[0][0]) for i in indices)


def behind_elementwise(node: Node, graph: Graph) -> Value | None:
    """add(reshape(x, s), b)  =>  reshape(add(x, b'), s)

    where b is whole or of size 1 along each group of dimensions that the reshape merges or splits. Towards more
    dimensions only where nothing else was computed under the present ones, so that two views never change for ever."""
    out = node.outputs[0].type.shape
    settled = any(v.type.shape == out and _is_computed(v, graph) for v in node.inputs)
    for value in node.inputs:
        view = graph.made_by(value, "reshape")
        if view is None or value.type.shape != out or not _is_computed(view.inputs[0], graph):
            continue
        if view.inputs[0].type.shape == out or (settled and view.inputs[0].type.rank >= len(out)):
            continue
        groups = _groups(out, view.inputs[0].type.shape)
        inputs = [_under(v, out, groups, graph) for v in node.inputs] if groups is not None else [None]
        if any(v is None for v in inputs):
            continue
        fields = dict(zip(type(node.attrs)._fields, node.attrs.field_values(), strict=True))
        made = graph.make(node.op.name, *[v for v in inputs if v is not None], **fields)
        return None if made is None else graph.make("reshape", made, shape=out)
    return None


def behind_reduction(node: Node, graph: Graph) -> Value | None:
    """reduce(reshape(x, s), axes)  =>  reshape(reduce(x, axes'))

    where dimensions that the reshape merges, or makes of one, are reduced together or not at all"""
    attrs = node.attrs
    assert isinstance(attrs, ReduceAttributes)
    view = graph.made_by(node.inputs[0], "reshape")
    if view is None or not _is_computed(view.inputs[0], graph):
        return None
    groups = _groups(node.inputs[0].type.shape, view.inputs[0].type.shape)
    if groups is None:
        return None
    axes: list[int] = []
    at = place = 0
    for mine, other in groups:
        reduced = [n in attrs.axes for n in range(at, at + len(mine))]
        if any(reduced) and not all(reduced):
            return None
        axes += range(place, place + len(other)) if any(reduced) else ()
        at, place = at + len(mine), place + len(other)
    made = graph.make("reduce", view.inputs[0], kind=attrs.kind, axes=tuple(axes), keepdims=attrs.keepdims)
    return None if made is None else viewed_as(made, node.outputs[0].type.shape, graph)


def viewed_as(value: Value, shape: Shape, graph: Graph) -> Value | None:
    """The same elements under a shape."""
    return value if value.type.shape == shape else graph.make("reshape", value, shape=shape)


def pad_of_view(node: Node, graph: Graph) -> Value | None:
    """reshape(pad(x))  =>  pad(reshape(x))         where the dimensions that are padded stay as they are"""
    inner = graph.made_by(node.inputs[0], "pad")
    if inner is None:
        return None
    attrs = inner.attrs
    assert isinstance(attrs, PadAttributes)
    groups = _groups(node.outputs[0].type.shape, inner.outputs[0].type.shape)
    if groups is None:
        return None
    x, value = inner.inputs
    shape: list[Expr] = []
    low: list[Expr] = []
    high: list[Expr] = []
    at = 0
    for mine, other in groups:
        ends = [(attrs.low[n], attrs.high[n]) for n in range(at, at + len(other))]
        if len(mine) == len(other) == 1:
            shape.append(x.type.shape[at])
            low.append(ends[0][0])
            high.append(ends[0][1])
        elif any(e is not ZERO for pair in ends for e in pair):
            return None
        else:
            shape += mine
            low += [ZERO] * len(mine)
            high += [ZERO] * len(mine)
        at += len(other)
    view = graph.make("reshape", x, shape=tuple(shape))
    return None if view is None else graph.make("pad", view, value, low=tuple(low), high=tuple(high), mode=attrs.mode)


def _is_computed(value: Value, graph: Graph) -> bool:
    """Whether a kernel makes a value: it is no parameter, no constant and no view."""
    node = graph.producer(value)
    return node is not None and node.op.pattern in (Pattern.MAP, Pattern.REDUCE)


def _groups(out: Shape, source: Shape) -> list[tuple[Shape, Shape]] | None:
    """The least groups of neighbouring dimensions of two shapes that hold equally many elements."""
    groups: list[tuple[Shape, Shape]] = []
    while out or source:
        sizes = [(p, q) for p in range(len(out) + 1) for q in range(len(source) + 1) if p + q > 0]
        sizes.sort(key=lambda pq: (pq[0] + pq[1], pq[0] != pq[1]))
        found = next((pq for pq in sizes if product_of(out[: pq[0]]) is product_of(source[: pq[1]])), None)
        if found is None:
            return None
        p, q = found
        groups.append((out[:p], source[:q]))
        out, source = out[p:], source[q:]
    return groups


def _under(value: Value, out: Shape, groups: list[tuple[Shape, Shape]], graph: Graph) -> Value | None:
    """The value under the other side's dimensions; None where it is neither whole nor 1 along some group."""
    shape = (ONE,) * (len(out) - value.type.rank) + value.type.shape
    target: list[Expr] = []
    for mine, other in groups:
        part, shape = shape[: len(mine)], shape[len(mine) :]
        if part == mine:
            target += other
        elif all(e is ONE for e in part):
            target += [ONE] * len(other)
        else:
            return None
    while target and len(target) > 1 and target[0] is ONE and value.type.rank < len(out):
        del target[0]
    if tuple(target) == value.type.shape:
        return value
    view = graph.made_by(value, "reshape")
    if view is not None and view.inputs[0].type.shape == tuple(target):
        return view.inputs[0]
    return graph.make("reshape", value, shape=tuple(target))


def is_elementwise(op: Op) -> bool:
    """Whether an operator computes each point from the same point of its inputs."""
    return op.elementwise


RULES: Rules = (
    (drop_one_column, ("contract",)),
    (slice_strides, ("contract",)),
    (merge_axes, ("contract",)),
    (pad_of_view, ("reshape",)),
    (behind_reduction, ("reduce",)),
    (behind_elementwise, is_elementwise),
)
