"""The next state of a scan takes the place of the state that a step begins with, once nobody reads that any more.

    graph cell(h: f32[4]) -> y:                              graph cell(h: f32[4]) -> y_1:
      t: f32[4] = call(h, callee="tanh", …)            =>      t: f32[4] = call(h, callee="tanh", …)
      y: f32[4] = call(h, t, callee="mul", …)                  y: f32[4] = call(h, t, callee="mul", …)
                                                               y_1: f32[4] = call(y, callee="copy_state", …)

A kernel that reads the state of its step, or runs before one that does, writes the next state elsewhere; a copy puts it
in place at the end of the step.

A `while` keeps the truth value that says whether to go on like a state. A state whose size changes is always copied:
its memory grows before.

The branches of an `if` copy those results, too, whose sizes are known only when one of them has run:

    m, y: f32[m] = if(c, x, then="short", …)                 graph short(x: f32[4]) -> y_1:
                                                               y: f32[3] = call(x, callee="relu", …)
                                                               y_1: f32[3] = call(y, callee="copy_state", …)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tilewright.analysis.structure import Form, form_of
from tilewright.graph.names import FreshNames
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY
from tilewright.graph.symbolic import Call, If, While, ahead, bodies_of, given_symbols, running, states_of
from tilewright.loops.build import Builder, load
from tilewright.loops.nodes import Buffer, Function
from tilewright.loops.symbols import free_symbols
from tilewright.types.tensor import TensorType


def own_states(module: Module) -> Module:
    """The module with bodies that write each next state after the last use of the state before it, and results of
    dynamic sizes last of all."""
    kernels: dict[Form, Function] = {}
    names = FreshNames(module.functions, "_")
    module = _own_branches(module, names)
    for name, runner in {name: node for node in _nodes(module) for name in bodies_of(node.attrs)}.items():
        body = module.functions[name]
        assert isinstance(body, GraphFunction)
        copied = _copied(body, runner)
        if copied:
            module = module.with_function(_with_copies(body, copied, kernels, names))
    for kernel in kernels.values():
        module = module.with_function(kernel)
    return module


def _nodes(module: Module) -> list[Node]:
    """The nodes of all graphs."""
    return [n for f in module.functions.values() if isinstance(f, GraphFunction) for n in f.nodes]


def _own_branches(module: Module, names: FreshNames) -> Module:
    """The module with branches that no other node runs, where they decide sizes."""
    uses = Counter(name for node in _nodes(module) for name in bodies_of(node.attrs))
    for function in list(module.functions.values()):
        nodes = list(function.nodes) if isinstance(function, GraphFunction) else []
        for n, node in enumerate(nodes):
            shared = [name for name in bodies_of(node.attrs) if uses[name] > 1] if node.sized_here() else []
            own = {name: names.fresh(name) if name in shared else name for name in bodies_of(node.attrs)}
            for name in shared:
                body = module.functions[name]
                assert isinstance(body, GraphFunction)
                module = module.with_function(body.replace(name=own[name]))
            if shared:
                nodes[n] = node.replace(attrs=running(node.attrs, own))
        if isinstance(function, GraphFunction) and tuple(nodes) != function.nodes:
            module = module.with_function(function.replace(nodes=tuple(nodes)))
    return module


def _copied(body: GraphFunction, runner: Node) -> list[int]:
    """The places of a body's results that are copied at its end: states that cannot be written in place, those made in
    another size that only a step knows to be the same, and last of all results whose sizes the node binds."""
    attrs = runner.attrs
    front = ahead(attrs) if isinstance(attrs, While) else 0
    sized = {front + n for n in runner.sized_here() if isinstance(attrs, If) or n < states_of(attrs)}
    moving = set(sized)
    for n in range(states_of(attrs)):
        if not _is_in_place(body, front + n, body.params[n]):
            moving.add(front + n)
    given = set(body.symbols[: len(given_symbols(attrs))])
    for n in range(len(body.results)):
        base = _base(body, body.results[n])
        if not {v for d in base.type.shape for v in d.variables} <= given:
            moving.add(n)
    return sorted(moving, key=lambda n: (n in sized, n))


def _base(body: GraphFunction, value: Value) -> Value:
    """The value that one is a view of."""
    made = {v: node for node in body.nodes for v in node.outputs}
    while value in made and made[value].op.name == "reshape":
        (value,) = made[value].inputs
    return value


def _is_in_place(body: GraphFunction, result: int, state: Value) -> bool:
    """Whether a call writes the next state, and all that read the state before it run earlier."""
    made = {v: n for n, node in enumerate(body.nodes) for v in node.outputs}
    base = _base(body, body.results[result])
    if base not in made or not isinstance(body.nodes[made[base]].attrs, Call):
        return False
    return max(_readers(body, state), default=-1) < made[base]


def _readers(body: GraphFunction, value: Value) -> Iterator[int]:
    """The positions of the nodes that read a value, or a view of it."""
    memory = {value}
    for n, node in enumerate(body.nodes):
        if memory.intersection(node.inputs):
            yield n
            if node.op.name == "reshape":
                memory.update(node.outputs)


def _with_copies(
    body: GraphFunction, states: list[int], kernels: dict[Form, Function], names: FreshNames
) -> GraphFunction:
    nodes, results = list(body.nodes), list(body.results)
    for n in states:
        source = results[n]
        own = _kernel(source.type)
        form = form_of(own)
        if form not in kernels:
            kernels[form] = own.replace(name=names.fresh("copy_state"))
        results[n] = Value(source.name, source.type)
        attrs = Call(kernels[form].name, own.symbols, (source.type,))
        nodes.append(Node(REGISTRY["call"], (source,), attrs, (results[n],)))
    return body.replace(nodes=tuple(nodes), results=tuple(results))


def _kernel(type: TensorType) -> Function:
    x, y = (Buffer(n, type.dtype, type.shape) for n in ("x", "y"))
    build = Builder()
    build.compute("copy", y, lambda *at: load(x, *at))
    body = build.body()
    return Function("copy_state", free_symbols(body, (x, y)), (x, y), body)
