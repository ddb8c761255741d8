"""What a name stands for: an operator or a value of the model, an operator of the planned graph, a kernel.

    conv1                 the front end's operator, or the value, of that name
    3                     the kernel of that number, as `tilewright show --stages` counts
    kernel:contract_add   node:conv1   value:relu_1   operator:7
                          only a kernel, a front end's operator, a value, the planned graph's operator of that number

A name that stands for several things is an error that lists them; so is one that stands for nothing, with the nearest
names.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.analysis.dataflow import is_free
from tilewright.explain.program import Place, ProgramFacts, is_constant, nodes_of
from tilewright.frontends.build.names import clip
from tilewright.graph.nodes import Node
from tilewright.report.errors import UserError

NEAREST = 5
"""The most names that are proposed for one that stands for nothing."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a name stands for, in words, and by the prefix that tells it from others: the nodes of the planned graphs,
    or the kernel; `source` is the front end's operator where it is one."""

    name: str
    what: str
    nodes: tuple[Node, ...] = ()
    place: Place | None = None
    source: str = ""
    parameter: bool = False


def find(program: ProgramFacts, asked: str) -> Found:
    """What `asked` stands for. UserError where that is nothing, or several things."""
    kind, _, rest = asked.partition(":")
    if kind in PREFIXES and rest:
        found = PREFIXES[kind](program, rest)
    else:
        found = [f for look in (_operators, _model_values, _kernels) for f in look(program, asked)]
        found = found or _planned_values(program, asked)
    distinct = {frozenset(f.nodes) or f.source or f.name: f for f in reversed(found)}
    if not distinct:
        raise _unknown(program, asked)
    if len(distinct) > 1:
        listed = ", ".join(f"{f.name} ({f.what})" for f in reversed(distinct.values()))
        first = next(reversed(distinct.values())).name
        raise UserError(
            f"{asked} stands for {len(distinct)} things", why=f"they are {listed}", fix=f"ask for {first!r}"
        )
    return next(iter(distinct.values()))


def _kernels(program: ProgramFacts, name: str) -> list[Found]:
    if name.isascii() and name.isdigit():
        name = program.names[int(name)] if int(name[:9]) < len(program.names) else ""
    place = next((p for p in program.places if p.name == name), None)
    nodes = () if place is None else place.kernel.nodes
    if place is None and name not in program.names:
        return []
    what = "kernel" if place is not None else "kernel that writes a state to its place"
    return [Found(f"kernel:{name}", what, nodes, place)]


def _operators(program: ProgramFacts, name: str) -> list[Found]:
    """The operators of the front end, by their names or as reports name them."""
    sources = dict.fromkeys(n.source for n in nodes_of(program.first) if n.source)
    found = [s for s in sources if name == s or clip(name) == clip(last_name(s))]
    return [Found(f"node:{s}", f"operator {s}", _nodes_from(program, s), source=s) for s in found]


def _nodes_from(program: ProgramFacts, source: str) -> tuple[Node, ...]:
    nodes = [n for n in nodes_of(program.before) if n.source == source]
    computing = [n for n in nodes if not is_free(n) and not is_constant(n)]
    return tuple(computing or nodes)


def _values(program: ProgramFacts, name: str) -> list[Found]:
    return _model_values(program, name) or _planned_values(program, name)


def _model_values(program: ProgramFacts, name: str) -> list[Found]:
    """A value of the model's file, a result or an input."""
    made = program.origin.names().get(name)
    found = _operators(program, made) if made is not None else []
    if found:
        return [Found(f"value:{name}", f"value of {f.source}", f.nodes, source=f.source) for f in found]
    graph = program.before.graph
    results = dict(zip(graph.result_names, graph.results, strict=True))
    makers = {v: n for n in graph.nodes for v in n.outputs}
    if results.get(name) in makers:
        return [Found(f"value:{name}", "result of the model", (makers[results[name]],))]
    readers = tuple(n for n in graph.nodes if any(v.name == name for v in n.inputs if v in graph.params))
    if any(v.name == name for v in graph.params):
        return [Found(f"value:{name}", "input of the model", readers, parameter=True)]
    return []


def _planned_values(program: ProgramFacts, name: str) -> list[Found]:
    """A value of a planned graph, as its text calls it."""
    for planned in program.graphs.values():
        for node in planned.function.nodes:
            if any(planned.name(v) == name for v in node.outputs):
                return [Found(f"value:{name}", f"value of the planned graph, made by {node.op.name}", (node,))]
    return []


def _numbered(program: ProgramFacts, name: str) -> list[Found]:
    """An operator of the planned graph by its number."""
    nodes = program.before.graph.nodes
    if not (name.isascii() and name.isdigit()):
        return []
    number = int(name[:9])
    return [Found(f"operator:{number}", nodes[number].op.name, (nodes[number],))] if number < len(nodes) else []


def last_name(source: str) -> str:
    """The name in `Conv 'conv1'`, behind the arrow where it is a value's: the last one in quotation marks."""
    quoted = LAST_QUOTED.search(source)
    return str(ast.literal_eval(quoted[0])).removeprefix("→ ") if quoted else source


LAST_QUOTED = re.compile(r"""('([^'\\]|\\.)*'|"([^"\\]|\\.)*")$""")


PREFIXES: dict[str, Callable[[ProgramFacts, str], list[Found]]] = {
    "node": _operators,
    "value": _values,
    "kernel": _kernels,
    "operator": _numbered,
}
"""What may be asked for by its kind. Without a prefix, a planned graph's own names come last, and numbers are
kernels."""


def _unknown(program: ProgramFacts, asked: str) -> UserError:
    known = [last_name(n.source) for n in nodes_of(program.first) if n.source]
    known += [*program.origin.names(), *program.names, *program.before.graph.result_names]
    known += [v.name for v in program.before.graph.params]
    known = list(dict.fromkeys(known))
    near = difflib.get_close_matches(asked, known, NEAREST, 0.4)
    why = f"the nearest names are {', '.join(near)}" if near else "no operator, value or kernel has such a name"
    return UserError(
        f"nothing is called {asked}",
        why=why,
        fix="`tilewright why MODEL` lists the kernels; `tilewright show MODEL --after own-results` the operators",
    )
