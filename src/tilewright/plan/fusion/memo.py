"""The memo table: for each node, the kernels that it may be part of, found bottom-up in one walk.

    h = contract(x, w)       contraction{h}
    a = add(h, bias)         contraction{h}, cell                 reference h -> a
    m = reduce(a)            cell{m}, row{m}                      reference a -> m

A reference is a pair of a value and a reader that some template would compute in one kernel. Which references are used,
and which values are stored instead, is what a plan decides (enumeration.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilewright.graph.nodes import Node, Value
from tilewright.plan.fusion.cell import Cell
from tilewright.plan.fusion.contraction import Contraction
from tilewright.plan.fusion.dataflow import Dataflow, makes_kernels
from tilewright.plan.fusion.opaque import Opaque
from tilewright.plan.fusion.row import Row
from tilewright.plan.fusion.template import Entries, Entry, Fused, Template
from tilewright.plan.fusion.window import Window

TEMPLATES: tuple[Template, ...] = (Row(), Contraction(), Window(), Cell(), Opaque())
"""The order of preference: if several templates take a kernel, the first one names it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A value that one of its readers may compute itself."""

    value: Value
    reader: Node


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
    return tuple(e for e in (t.take(node, fused, flow) for t in TEMPLATES) if isinstance(e, Entry))


def refusals(node: Node, fused: Fused, flow: Dataflow) -> tuple[tuple[str, str], ...]:
    """The templates that do not take a node with these inputs, by name, each with its reason."""
    asked = ((t.name, t.take(node, fused, flow)) for t in TEMPLATES)
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
            entries = _open(memo.entries.get(maker, ()))
            made = take(node, {value: entries}, flow) if entries else ()
            if made:
                found.update(dict.fromkeys(made))
                memo.references.append(Reference(value, node))
                if len(entries) > 1 and not all(take(node, {value: (e,)}, flow) for e in entries):
                    memo.partly.add(memo.references[-1])
        memo.entries[node] = tuple(found)
    return memo


def _open(entries: Iterable[Entry]) -> Entries:
    return tuple(e for e in entries if e.is_open)
