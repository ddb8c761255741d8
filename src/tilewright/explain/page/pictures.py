"""What is drawn of a graph: its calls of kernels, the operators in each, and the views between them.

    x ──▶ [conv: contract ─▶ add ─▶ relu] ──▶ (reshape) ──▶ [dense: contract ─▶ add] ──▶ y

Both drawings of a graph are of the same items. One of operators shows what is in a kernel, and views between kernels;
one of kernels leaves views out, as they are no code. Constants are in neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import Pattern
from tilewright.graph.symbolic import Call, Constant, If, Scan, While, bodies_of


class Kind(Enum):
    """What an item is: a value that comes from or goes to the caller, the call of a kernel, a loop over a graph
    function, or an operator that is no code."""

    INPUT = "input"
    OUTPUT = "output"
    KERNEL = "kernel"
    LOOP = "loop"
    CHOICE = "if"
    VIEW = "view"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator in a kernel: its name, the type of what it makes, and the front end's name of it."""

    name: str
    type: str
    source: str


@dataclass(frozen=True, slots=True)
class Item:
    """What has a box of its own. A kernel's `name` is that of its function, `turn` how many calls of it come before;
    `operators` are joined by the pairs of `edges`; `program` is their graph function, and `main` the source of the
    operator that most of the work is expected of."""

    kind: Kind
    name: str
    turn: int = 0
    operators: tuple[Operator, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    program: GraphFunction | None = None
    main: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A graph function: its items in program order, and which reads from which before it."""

    name: str
    items: tuple[Item, ...]
    edges: tuple[tuple[int, int], ...]

    def without_views(self) -> Picture:
        """What is left when those that read from a view read from what it is a view of."""
        reads: dict[int, list[int]] = {}
        for first, last in self.edges:
            reads.setdefault(last, []).append(first)

        def behind(n: int) -> Iterator[int]:
            if self.items[n].kind is not Kind.VIEW:
                yield n
            else:
                for other in reads.get(n, ()):
                    yield from behind(other)

        kept = [n for n, item in enumerate(self.items) if item.kind is not Kind.VIEW]
        place = {n: at for at, n in enumerate(kept)}
        edges = dict.fromkeys((place[m], place[n]) for n in kept for first in reads.get(n, ()) for m in behind(first))
        return Picture(self.name, tuple(self.items[n] for n in kept), tuple(edges))


def pictures(before: Module, after: Module) -> tuple[Picture, ...]:
    """A picture of each graph function, the entry first; `before` and `after` are the module around the plan."""
    turns: dict[str, int] = {}
    found = []
    for name, planned in after.functions.items():
        original = before.functions.get(name)
        if isinstance(planned, GraphFunction) and isinstance(original, GraphFunction):
            found.append(_picture(original, planned, turns))
    return tuple(sorted(found, key=lambda picture: picture.name != after.entry))


def _picture(before: GraphFunction, after: GraphFunction, turns: dict[str, int]) -> Picture:
    made_by = {v: node for node in before.nodes for v in node.outputs}
    items = [Item(Kind.INPUT, v.name) for v in after.params]
    makers = {v: n for n, v in enumerate(after.params)}
    edges: dict[tuple[int, int], None] = {}
    for node in after.nodes:
        if isinstance(node.attrs, Constant):
            continue
        edges.update(dict.fromkeys((makers[v], len(items)) for v in node.inputs if v in makers))
        makers.update(dict.fromkeys(node.outputs, len(items)))
        items.append(_item(node, made_by, before, turns))
    for name, value in zip(after.result_names, after.results, strict=True):
        if value in makers:
            edges[makers[value], len(items)] = None
        items.append(Item(Kind.OUTPUT, name))
    return Picture(after.name, tuple(items), tuple(edges))


def _item(node: Node, made_by: dict[Value, Node], before: GraphFunction, turns: dict[str, int]) -> Item:
    if isinstance(node.attrs, Scan | While):
        return Item(Kind.LOOP, node.attrs.body, main=node.source)
    if isinstance(node.attrs, If):
        return Item(Kind.CHOICE, " or ".join(bodies_of(node.attrs)), main=node.source)
    if not isinstance(node.attrs, Call):
        return Item(Kind.VIEW, node.op.name, main=node.source)
    name = node.attrs.callee
    turn = turns[name] = turns.get(name, -1) + 1
    held = _held(node, made_by, before)
    place = {v: n for n, one in enumerate(held) for v in one.outputs}
    edges = dict.fromkeys((place[v], n) for n, one in enumerate(held) for v in one.inputs if v in place)
    operators = tuple(Operator(one.op.name, str(one.outputs[0].type), one.source) for one in held)
    names = tuple(v.name for v in node.outputs)
    program = before.replace(name=name, params=node.inputs, nodes=held, results=node.outputs, result_names=names)
    return Item(Kind.KERNEL, name, turn, operators, tuple(edges), program, _main(held))


def _held(call: Node, made_by: dict[Value, Node], before: GraphFunction) -> tuple[Node, ...]:
    """The operators that make the outputs of a call from its inputs, in program order."""
    found: dict[Node, None] = {}
    waiting = [made_by[v] for v in call.outputs]
    read = set(call.inputs)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting += [made_by[v] for v in node.inputs if v not in read and v in made_by]
    return tuple(node for node in before.nodes if node in found)


def _main(nodes: Sequence[Node]) -> str:
    """The source of the first operator that adds up, or of the last one: an operator that is shared with other layers,
    such as a scalar that several of them read, has the name of the first."""
    sums = (node for node in nodes if node.op.pattern is Pattern.REDUCE and node.source)
    return next((node.source for node in sums), nodes[-1].source)
