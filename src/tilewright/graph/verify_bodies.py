"""The laws of nodes that run graph functions, which only the module around them can tell:

1. A body is a graph function of the module that does not lead back to itself.
2. The parameters of a scan's body, under the symbols that the node gives, are the initial states, slices of the scanned
   operands, and the whole operands. Its results are states of the same types, then slices of the stacked outputs. It
   binds no symbols: the sizes of a step are those of every step.
3. The parameters of both branches of an `if`, under the symbols that the node gives, are the inputs behind the
   condition. Their results are the outputs, but for extents that are symbols which the node binds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.core.node import Node as CoreNode
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Expr
from tilewright.graph.nodes import GraphFunction, Module, Node
from tilewright.graph.symbolic import If, Scan, bodies_of
from tilewright.types.tensor import TensorType

Fault = tuple[str, str]
"""Why a node is wrong, and how to fix it."""

Shown = Callable[[TensorType], str]
"""Prints a type with the names of the function around the node."""


def body_faults(module: Module, function: GraphFunction, node: Node, shown: Shown) -> Iterator[Fault]:
    """What is wrong with a node of a function that runs others, where everything else about it is right."""
    attrs = node.attrs
    for name in bodies_of(attrs):
        body = module.functions.get(name)
        if not isinstance(body, GraphFunction):
            graphs = [n for n, f in module.functions.items() if isinstance(f, GraphFunction) and f is not function]
            yield f"{name} is no graph function of the module", f"run one of: {', '.join(graphs) or 'none'}"
        elif leads_to(module, body, {function.name, body.name}):
            yield f"{body.name} runs inside itself", "run a function that does not run this one"
        elif isinstance(attrs, Scan):
            yield from _scan_faults(module, body, node, attrs, shown)
        elif isinstance(attrs, If):
            yield from _branch_faults(body, node, attrs, shown)


def leads_to(module: Module, body: GraphFunction, around: set[str]) -> bool:
    """Whether running `body` comes to run a function of these names, or one that is running already."""
    for name in [name for node in body.nodes for name in bodies_of(node.attrs)]:
        inner = module.functions.get(name)
        if name in around or (isinstance(inner, GraphFunction) and leads_to(module, inner, around | {name})):
            return True
    return False


def run_by_nodes(module: Module) -> frozenset[str]:
    """The names of the graph functions that nodes run: these give their symbols values."""
    graphs = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    return frozenset([name for f in graphs for node in f.nodes for name in bodies_of(node.attrs)])


def binds_sizes(module: Module, body: GraphFunction) -> bool:
    """Whether a function binds symbols, or runs one that does."""
    inner = [module.functions.get(name) for node in body.nodes for name in bodies_of(node.attrs)]
    return any(n.binds for n in body.nodes) or any(
        isinstance(f, GraphFunction) and binds_sizes(module, f) for f in inner
    )


def _scan_faults(module: Module, body: GraphFunction, node: Node, attrs: Scan, shown: Shown) -> Iterator[Fault]:
    if binds_sizes(module, body):
        yield f"{body.name} binds a size", "bind it before the scan, and give the body its symbol"
    counts = (len(body.symbols), len(body.params), len(body.results))
    if counts != (len(attrs.symbols), len(node.inputs), len(attrs.types)):
        yield _misfit(body), "give the scan that many symbols, inputs and outputs"
        return
    values: dict[Expr, CoreNode] = dict(zip(body.symbols, attrs.symbols, strict=True))

    def here(type: TensorType, sliced: bool) -> TensorType:
        shape = [substitute(d, values) for d in type.shape]
        return TensorType.of(type.dtype, [attrs.steps, *shape] if sliced else shape)

    def is_slice(place: int, count: int) -> bool:
        return attrs.states <= place < attrs.states + count

    for n, (param, value) in enumerate(zip(body.params, node.inputs, strict=True)):
        expected = here(param.type, is_slice(n, len(attrs.scanned)))
        if expected is not value.type:
            why = f"{body.name} wants {shown(expected)} for {param.name}, not {shown(value.type)}"
            yield why, "scan a value of that type, or give other symbols or another number of steps"
    for n, (result, name, type) in enumerate(zip(body.results, body.result_names, attrs.types, strict=True)):
        found = here(result.type, is_slice(n, len(attrs.stacked)))
        if found is not type:
            yield f"{body.name} gives {shown(found)} for {name}, not {shown(type)}", "write that type"
        if n < attrs.states and type is not node.inputs[n].type:
            yield (
                f"the state {name} begins as {shown(node.inputs[n].type)} and goes on as {shown(type)}",
                "keep its type",
            )


def _branch_faults(body: GraphFunction, node: Node, attrs: If, shown: Shown) -> Iterator[Fault]:
    counts = (len(body.symbols), len(body.params), len(body.results))
    if counts != (len(attrs.symbols), len(node.inputs) - 1, len(attrs.types)):
        yield _misfit(body), "give the if that many symbols, inputs behind the condition, and outputs"
        return
    values: dict[Expr, CoreNode] = dict(zip(body.symbols, attrs.symbols, strict=True))
    for param, value in zip(body.params, node.inputs[1:], strict=True):
        expected = TensorType.of(param.type.dtype, [substitute(d, values) for d in param.type.shape])
        if expected is not value.type:
            why = f"{body.name} wants {shown(expected)} for {param.name}, not {shown(value.type)}"
            yield why, "give a value of that type, or other symbols"
    for result, name, type in zip(body.results, body.result_names, attrs.types, strict=True):
        shape = [substitute(d, values) for d in result.type.shape]
        joined = [d if d in node.binds else own for own, d in zip(shape, type.shape, strict=False)]
        if len(shape) != type.rank or TensorType.of(result.type.dtype, joined) is not type:
            found = shown(TensorType.of(result.type.dtype, shape))
            yield f"{body.name} gives {found} for {name}, not {shown(type)}", "write that type, or bind its extents"


def _misfit(body: GraphFunction) -> str:
    counts = (len(body.symbols), len(body.params), len(body.results))
    return f"{body.name} has {counts[0]} symbols, {counts[1]} parameters and {counts[2]} results"
