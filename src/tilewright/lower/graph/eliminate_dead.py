"""Removes nodes without used results, graph functions that are never run, and constants that no node names.

Nodes that guard stay: `require`, and `size`, whose range is checked when the program runs, with all that they need; so
does what binds a symbol that those which stay use.
Operators that may fail for other reasons (an index out of range) are left out with their results.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.expr.nodes import Var
from tilewright.graph.attributes import expressions_in
from tilewright.graph.constants import held
from tilewright.graph.edit import over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Value
from tilewright.graph.symbolic import Constant, Require, Size, bodies_of


def eliminate_dead(module: Module) -> Module:
    """The module without unused nodes; without unused constants, too, while all of its functions are graphs."""
    return _without_constants(_without_bodies(over_graphs(module, _eliminate)))


def _eliminate(module: Module, function: GraphFunction) -> Module:
    used: set[Value] = set(function.results)
    symbols: set[Var] = set()
    binds = any(node.binds and not isinstance(node.attrs, Size) for node in function.nodes)
    kept = []
    for node in reversed(function.nodes):
        guards = isinstance(node.attrs, Require | Size) or not symbols.isdisjoint(node.binds)
        if guards or any(v in used for v in node.outputs):
            used.update(node.inputs)
            kept.append(node)
            if binds:
                exprs = [*expressions_in(node.attrs.field_values()), *(d for v in node.outputs for d in v.type.shape)]
                symbols.update(v for e in exprs for v in e.variables if isinstance(v, Var))
    if len(kept) == len(function.nodes):
        return module
    return module.with_function(function.replace(nodes=tuple(reversed(kept))))


def _without_bodies(module: Module) -> Module:
    """Without the graph functions that nothing in the entry leads to."""
    reached: set[str] = set()
    waiting = [module.entry]
    while waiting:
        name = waiting.pop()
        function = module.functions.get(name)
        if name not in reached and isinstance(function, GraphFunction):
            reached.add(name)
            waiting += [body for node in function.nodes for body in bodies_of(node.attrs)]
    kept = {n: f for n, f in module.functions.items() if n in reached or not isinstance(f, GraphFunction)}
    return module if len(kept) == len(module.functions) else replace(module, functions=kept)


def _without_constants(module: Module) -> Module:
    """Loops functions name constants in ways of their own, so a module that has any keeps them all."""
    named: set[str] = set()
    for function in module.functions.values():
        if not isinstance(function, GraphFunction):
            return module
        named.update(node.attrs.name for node in function.nodes if isinstance(node.attrs, Constant))
    if named.issuperset(module.constants):
        return module
    return module.with_constants({name: array for name, array in held(module.constants).items() if name in named})
