"""Constants that every step of a scan reads become constants of its body, so that passes can use their values.

    w: f32[8, 8] = constant(name=@w)
    h: f32[8] = scan(h0, w, body="cell", …)            =>      h: f32[8] = scan(h0, body="cell", …)

    graph cell(h: f32[8], w: f32[8, 8]) -> y: …                graph cell(h: f32[8]) -> y:
                                                                 w: f32[8, 8] = constant(name=@w)

A body that several scans run is copied for the one whose constants it takes.
"""

from __future__ import annotations

from collections import Counter

from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.names import FreshNames
from tilewright.graph.nodes import GraphFunction, Module, Node
from tilewright.graph.symbolic import Constant, Scan
from tilewright.ops.symbolic import Full


def sink_constants(module: Module) -> Module:
    """The module with constant operands of scans inside of their bodies."""
    return over_graphs(module, _sink)


def _sink(module: Module, function: GraphFunction) -> Module:
    edit = Edit(module, function)
    bodies: dict[str, GraphFunction] = {}
    names = FreshNames(module.functions)
    uses = Counter(_bodies(module))
    for node in function.nodes:
        sunk = _constants(edit, module, node) if isinstance(node.attrs, Scan) else {}
        if not sunk or not isinstance(node.attrs, Scan):
            edit.keep(node)
            continue
        body = module.functions[node.attrs.body]
        assert isinstance(body, GraphFunction)
        own = body.name if uses[body.name] == 1 else names.fresh(body.name)
        inside = tuple([made.replace(outputs=(body.params[n],)) for n, made in sunk.items()])
        params = tuple([p for n, p in enumerate(body.params) if n not in sunk])
        bodies[own] = body.replace(name=own, params=params, nodes=(*inside, *body.nodes))
        inputs = tuple([v for n, v in enumerate(edit.inputs(node)) if n not in sunk])
        edit.add(node.replace(inputs=inputs, attrs=node.attrs.replace(body=own)))
        edit.changed = True
    made_module = edit.finish()
    for body in bodies.values():
        made_module = made_module.with_function(body)
    return made_module


def _bodies(module: Module) -> list[str]:
    """The functions that scans run, each as often as there are such scans."""
    graphs = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    return [node.attrs.body for f in graphs for node in f.nodes if isinstance(node.attrs, Scan)]


def _constants(edit: Edit, module: Module, node: Node) -> dict[int, Node]:
    """The nodes that make the constant operands of a scan which its steps take whole, by the operands' places. The
    body must know the type in numbers."""
    attrs = node.attrs
    assert isinstance(attrs, Scan)
    body = module.functions[attrs.body]
    assert isinstance(body, GraphFunction)
    found: dict[int, Node] = {}
    for n, value in enumerate(edit.inputs(node)):
        made = edit.producer(value)
        if n < attrs.states + len(attrs.scanned) or made is None or body.params[n].type is not value.type:
            continue
        if isinstance(made.attrs, Constant | Full) and value.type.static_shape() is not None:
            found[n] = made
    return found
