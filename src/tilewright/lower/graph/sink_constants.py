"""Constants that bodies read become constants of these, so that passes can use their values.

    w: f32[8, 8] = constant(name=@w)
    h: f32[8] = scan(h0, w, body="cell", …)            =>      h: f32[8] = scan(h0, body="cell", …)

    graph cell(h: f32[8], w: f32[8, 8]) -> y: …                graph cell(h: f32[8]) -> y:
                                                                 w: f32[8, 8] = constant(name=@w)

So do those of the branches of an `if` and of the body of a `while`. A body that several nodes run is copied for the one
whose constants it takes.
"""

from __future__ import annotations

from collections import Counter

from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.names import FreshNames
from tilewright.graph.nodes import GraphFunction, Module, Node
from tilewright.graph.symbolic import Constant, If, Scan, While, ahead, bodies_of, running
from tilewright.ops.symbolic import Full


def sink_constants(module: Module) -> Module:
    """The module with constant operands of loops and branches inside of their bodies."""
    uses = Counter(_bodies(module))
    made = over_graphs(module, lambda module, function: _sink(module, function, uses))
    return module if made is module else sink_constants(made)  # bodies within bodies


def _sink(module: Module, function: GraphFunction, uses: Counter[str]) -> Module:
    edit = Edit(module, function)
    bodies: dict[str, GraphFunction] = {}
    names = FreshNames(module.functions)
    for node in function.nodes:
        sunk, attrs = _constants(edit, module, node), node.attrs
        if not sunk:
            edit.keep(node)
            continue
        given = ahead(attrs)
        renamed: dict[str, str] = {}
        for name in bodies_of(attrs):
            body = module.functions[name]
            assert isinstance(body, GraphFunction)
            own = renamed[name] = name if uses[name] == 1 else names.fresh(name)
            if own != name:
                uses[name] -= 1
                uses.update([own, *_run_by(body)])
            inside = tuple([made.replace(outputs=(body.params[n - given],)) for n, made in sunk.items()])
            params = tuple([p for n, p in enumerate(body.params, given) if n not in sunk])
            bodies[own] = body.replace(name=own, params=params, nodes=(*inside, *body.nodes))
        inputs = tuple([v for n, v in enumerate(edit.inputs(node)) if n not in sunk])
        edit.add(node.replace(inputs=inputs, attrs=running(attrs, renamed)))
        edit.changed = True
    made_module = edit.finish()
    for body in bodies.values():
        made_module = made_module.with_function(body)
    return made_module


def _bodies(module: Module) -> list[str]:
    """The functions that nodes run, each as often as there are such nodes."""
    graphs = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    return [name for f in graphs for name in _run_by(f)]


def _run_by(function: GraphFunction) -> list[str]:
    return [name for node in function.nodes for name in bodies_of(node.attrs)]


def _constants(edit: Edit, module: Module, node: Node) -> dict[int, Node]:
    """The nodes that make the constant operands of a node which its bodies take whole, by the operands' places. The
    bodies must know the type in numbers."""
    match attrs := node.attrs:
        case Scan():
            first = attrs.states + len(attrs.scanned)
        case If() | While():
            first = ahead(attrs) + (attrs.states if isinstance(attrs, While) else 0)
        case _:
            return {}
    bodies = [module.functions[name] for name in bodies_of(attrs)]
    found: dict[int, Node] = {}
    for n, value in enumerate(edit.inputs(node)):
        made = edit.producer(value)
        if n < first or made is None or value.type.static_shape() is None:
            continue
        alike = all(isinstance(b, GraphFunction) and b.params[n - ahead(attrs)].type is value.type for b in bodies)
        if alike and isinstance(made.attrs, Constant | Full):
            found[n] = made
    return found
