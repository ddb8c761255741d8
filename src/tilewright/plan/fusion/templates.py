"""What a kernel may hold: the templates, and the memo table of the kernels that each node may be part of.

    cell           maps, and at most one reduction that reads each input once, with maps after it
    row            reductions along the same rows with the maps between them (softmax), a row at a time
    contraction    a sum of products, and its epilogue: maps that run on each tile before it is stored
    window         convolutions, pooling and the transforms around Winograd's and Strassen's products, with an epilogue;
                   a padding that only one convolution or pool reads is computed in its kernel, or by the product that
                   makes what is padded
    opaque         an operator that is a kernel by itself (a sort, a scatter), with maps of inputs that it reads once,
                   or copies

A kernel grows from its inputs to its outputs; an `Entry` is a kernel up to a node. A template is one question: which
kernel is it with this node, or why is it none? Exploring (which kernels are possible?), checking (are these nodes a
kernel?) and explaining (why not?) ask it alike. The memo table is the answers for all nodes, found in one walk:

    h = contract(x, w)       contraction{h}
    a = add(h, bias)         contraction{h}, cell                 reference h -> a
    m = reduce(a)            row{m}, cell{m}                      reference a -> m

Which references are used, and which values are stored instead, is what a plan decides (planner.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilewright.analysis.dataflow import Dataflow, Reference, makes_kernels
from tilewright.expr import dtypes
from tilewright.expr.nodes import Const
from tilewright.graph.nodes import Node, Value
from tilewright.graph.op import Pattern
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import parse
from tilewright.ops.movement import SliceAttributes, TransposeAttributes
from tilewright.ops.pad import PadAttributes
from tilewright.ops.reduce import rows_of

CELL, ROW, CONTRACTION, WINDOW, OPAQUE = "cell", "row", "contraction", "window", "opaque"


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel up to a node: its template, and its reductions, whose points or rows later maps must share."""

    template: str
    anchors: frozenset[Node] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether it may grow further."""
        return self.template != OPAQUE


Entries = tuple[Entry, ...]
Fused = Mapping[Value, Entries]
"""The inputs of a node that are computed in its kernel, with the entries of their makers."""

Refusal = str
"""Why a template does not take a node in: half a sentence, in which `{op}` stands for the node's operator."""

OTHER_PARTS = "it does not hold what makes an input of {op}"
OTHER_POINTS = "what follows its reduction keeps to the reduction's points, and {op} has others"
OTHER_ROWS = "it keeps to the rows of its reduction, and {op} has others"

Template = Callable[[Node, Fused, Dataflow], Entry | Refusal]
"""The kernel up to a node if it computes the inputs in `Fused`, too, or the reason why it is not of this kind. Other
inputs are read from memory. Without fused inputs, the kernel opens."""


def _cell(node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
    if node.op.pattern is Pattern.REDUCE:
        if node.op.rereads:
            return "{op} reads elements of its inputs several times"
        return Entry(CELL, frozenset({node})) if _all_before(CELL, fused) else OTHER_PARTS
    if node.op.pattern is Pattern.MAP and _all_before(CELL, fused):
        return Entry(CELL)
    return _epilogue(CELL, node, fused)


def _row(node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
    found = _own(ROW, fused)
    if found is None:
        return OTHER_PARTS
    own = rows_of(node)
    if own is None and node.op.pattern is not Pattern.MAP:
        return "{op} neither is a map nor begins such a kernel"
    if own is None and not found:
        return "it begins with a reduction over trailing axes"
    anchors = frozenset[Node]().union(*(e.anchors for e in found))
    rows = {rows_of(anchor) for anchor in anchors}
    if len(rows) > 1:
        return "it keeps to the rows of one reduction, and {op} reads two with different rows"
    if own is not None:
        return Entry(ROW, anchors | {node}) if rows <= {own} else OTHER_ROWS
    over = next(iter(rows)) or ()
    return Entry(ROW, anchors) if node.outputs[0].type.shape[: len(over)] == over else OTHER_ROWS


def _contraction(node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
    """A contraction reads each element many times, so its operands are stored in memory and not recomputed. One of them
    may be read through the data movement that makes it, where that costs nothing: a transpose, for the operand that the
    result's last axis indexes is packed anyway, and of the other one the rows of a tile then lie next to each other; or
    a slice of this other one, for it is loaded element by element. Strassen's differences of constants are computed in
    registers."""
    if _is_difference(node, flow) or isinstance(node.attrs, TransposeAttributes | SliceAttributes):
        (out,) = node.outputs
        if (node.op.subtracts or not fused) and any(_reads_through(r, out, flow) for r in flow.readers_of(out)):
            return Entry(CONTRACTION)
        return "no product reads what {op} makes as well from where it comes"
    if isinstance(node.attrs, PadAttributes):
        return _padded(CONTRACTION, node, fused, flow)
    if node.op.pattern is not Pattern.REDUCE:
        return _epilogue(CONTRACTION, node, fused)
    if not isinstance(node.attrs, ContractAttributes) or parse(node.attrs.spec).has_windows:
        return "{op} is no product without windows"
    if not _all_before(CONTRACTION, fused):
        return "{op} reads its operands many times, and computes none that is more than moved data"
    moved = [value for value in fused if flow.makers[value].op.moves]
    if len(moved) > 1 or not all(_reads_through(node, value, flow) for value in fused):
        return "this operand of {op} is not one that is read as well before it is moved"
    return Entry(CONTRACTION, frozenset({node}))


def _window(node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
    if isinstance(node.attrs, PadAttributes):
        (out,) = node.outputs
        readers = flow.readers_of(out)
        if not _all_before(CELL, fused):
            return _padded(WINDOW, node, fused, flow)
        alone = len(readers) == 1 and readers[0].op.takes_padding and out not in flow.results
        return Entry(WINDOW) if alone else "what {op} makes is not for one convolution or pool alone"
    if node.op.pattern is not Pattern.REDUCE:
        return _epilogue(WINDOW, node, fused)
    padded = _all_before(WINDOW, fused)
    if isinstance(node.attrs, ContractAttributes):
        if not (fused or parse(node.attrs.spec).has_windows):
            return "{op} reads no windows"
        if not padded or len(fused) > 1 or any(node.inputs.count(v) > 1 for v in fused):
            return "{op} reads its operands many times, and computes none but one that is padded for it alone"
    elif not node.op.rereads:
        return "{op} reads no windows"
    elif fused and not (node.op.takes_padding and padded):
        return "{op} reads each element several times, and computes none itself"
    return Entry(WINDOW, frozenset({node}))


def _opaque(node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
    if node.op.pattern is not Pattern.OPAQUE:
        return "it ends with an operator of a kind of its own, and {op} is none"
    copied = node.inputs[:1] if node.op.copies else ()
    if node.op.rereads and any(value not in copied or node.inputs.count(value) > 1 for value in fused):
        return "{op} reads elements of its inputs several times, or in an order of its own"
    return Entry(OPAQUE) if _all_before(CELL, fused) else OTHER_PARTS


TEMPLATES: Mapping[str, Template] = {
    ROW: _row,
    CONTRACTION: _contraction,
    WINDOW: _window,
    CELL: _cell,
    OPAQUE: _opaque,
}
"""The templates in order of preference: if several take a kernel, the first one names it."""


def _epilogue(template: str, node: Node, fused: Fused) -> Entry | Refusal:
    """The kernel of one reduction with an elementwise map after it, at the points of its result."""
    if not node.op.elementwise:
        return "what follows its reduction is elementwise, and {op} is not"
    found = _own(template, fused)
    if found is None:
        return OTHER_PARTS
    if len(set(found)) > 1:
        return "it holds one reduction, and {op} reads two"
    if not found:
        return "it begins with a reduction"
    (anchor,) = found[0].anchors
    return found[0] if node.outputs[0].type.shape == anchor.outputs[0].type.shape else OTHER_POINTS


def _padded(template: str, node: Node, fused: Fused, flow: Dataflow) -> Entry | Refusal:
    """The kernel of one product that ends with its results inside a padding, which windows of another product or of a
    pool read: what it stores is not copied there."""
    assert isinstance(node.attrs, PadAttributes)
    found = next(iter(_own(template, fused) or ()), None)
    if found is None or not node.attrs.surrounds:
        return OTHER_PARTS
    (anchor,), readers = found.anchors, flow.readers_of(node.outputs[0])
    if not _adds_products(anchor) or not all(_adds_products(r) or r.op.takes_padding for r in readers):
        return OTHER_PARTS
    return found if node.inputs[0].type.shape == anchor.outputs[0].type.shape else OTHER_POINTS


def _adds_products(node: Node) -> bool:
    return isinstance(node.attrs, ContractAttributes) and parse(node.attrs.spec).shares_factors


def _is_before(template: str, entries: Entries) -> bool:
    """Whether a value may be computed by the nodes that a template takes before its reduction: maps, if it is a
    cell."""
    return any(e.template == template and not e.anchors for e in entries)


def _all_before(template: str, fused: Fused) -> bool:
    return all(_is_before(template, entries) for entries in fused.values())


def _own(template: str, fused: Fused) -> list[Entry] | None:
    """The kernels with a reduction that a template has begun for inputs; None if another input is more than maps."""
    found: list[Entry] = []
    for entries in fused.values():
        own = next((e for e in entries if e.template == template and e.anchors), None)
        if own is not None:
            found.append(own)
        elif not _is_before(CELL, entries):
            return None
    return found


def _is_difference(node: Node, flow: Dataflow) -> bool:
    """Whether a node is the difference of constants, or of slices of them."""
    if not node.op.subtracts:
        return False
    makers = {v: flow.makers.get(v) for v in node.inputs}
    sources = [m.inputs[0] if m and isinstance(m.attrs, SliceAttributes) else v for v, m in makers.items()]
    return flow.constants.issuperset(sources)


def _reads_through(node: Node, value: Value, flow: Dataflow) -> bool:
    """Whether reading an operand through the movement that makes it costs a node nothing."""
    if not isinstance(node.attrs, ContractAttributes) or len(node.inputs) != 2 or node.inputs.count(value) > 1:
        return False
    maker = flow.makers[value]
    if value.type.dtype not in (dtypes.f32, dtypes.f64):
        return False
    spec = parse(node.attrs.spec)
    along_last = [n for n, o in enumerate(spec.operands) if spec.output and spec.output[-1] in [i.axis for i in o]]
    if len(along_last) != 1 or spec.has_windows:
        return False
    is_last = node.inputs.index(value) in along_last
    if isinstance(maker.attrs, SliceAttributes):
        return not is_last
    sizes = [extent for v in (*maker.inputs, value) for extent in v.type.shape]
    if not all(isinstance(e, Const) for e in sizes):
        return False
    return isinstance(maker.attrs, TransposeAttributes) or (is_last and _is_difference(maker, flow))


@dataclass(slots=True)
class Memo:
    """The result of exploring: the entries of each node, and the references in program order. `partly` are those whose
    reader may be fused with some of the maker's kernels only."""

    flow: Dataflow
    entries: dict[Node, Entries] = field(default_factory=dict)
    references: list[Reference] = field(default_factory=list)
    partly: set[Reference] = field(default_factory=set)


def take(node: Node, fused: Fused, flow: Dataflow) -> Entries:
    """The kernels at a node that computes these inputs itself, one for each template that takes it."""
    return tuple([e for e in (t(node, fused, flow) for t in TEMPLATES.values()) if isinstance(e, Entry)])


def refusals(node: Node, fused: Fused, flow: Dataflow) -> tuple[tuple[str, str], ...]:
    """The templates that do not take a node with these inputs, by name, each with its reason."""
    asked = ((name, template(node, fused, flow)) for name, template in TEMPLATES.items())
    return tuple((name, said.format(op=node.op.name)) for name, said in asked if isinstance(said, str))


def explore(flow: Dataflow) -> Memo:
    """The memo table of a graph function."""
    memo = Memo(flow)
    for node in flow.function.nodes:
        if not makes_kernels(node) or node in flow.aside:
            continue
        found = dict.fromkeys(take(node, {}, flow))
        for value in dict.fromkeys(node.inputs):
            maker = flow.makers.get(value)
            if maker is None or len(maker.outputs) != 1:
                continue
            entries = tuple([e for e in memo.entries.get(maker, ()) if e.is_open])
            made = take(node, {value: entries}, flow) if entries else ()
            if made:
                found.update(dict.fromkeys(made))
                reference = Reference(value, node)
                memo.references.append(reference)
                if len(entries) > 1 and not all(take(node, {value: (e,)}, flow) for e in entries):
                    memo.partly.add(reference)
        memo.entries[node] = tuple(found)
    return memo
