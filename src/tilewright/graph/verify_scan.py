"""The laws of a scan, which only the module around it can tell:

1. The body is a graph function of the module that does not lead back to itself, and binds no symbols by `size`: the
   sizes of a step are those of every step.
2. Its parameters, under the symbols that the node gives, are the initial states, slices of the scanned operands, and
   the whole operands.
3. Its results are states of the same types, then slices of the stacked outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.core.node import Node as CoreNode
from tilewright.core.walk import substitute
from tilewright.expr.nodes import Expr
from tilewright.graph.nodes import GraphFunction, Module, Node
from tilewright.graph.symbolic import Scan, Size
from tilewright.types.tensor import TensorType

Fault = tuple[str, str]
"""Why a scan is wrong, and how to fix it."""


def scan_faults(
    module: Module, function: GraphFunction, node: Node, shown: Callable[[TensorType], str]
) -> Iterator[Fault]:
    """What is wrong with a scan of a function, where everything else about it is right. `shown` prints a type."""
    attrs = node.attrs
    assert isinstance(attrs, Scan)
    body = module.functions.get(attrs.body)
    if not isinstance(body, GraphFunction):
        known = ", ".join(n for n, f in module.functions.items() if isinstance(f, GraphFunction) and f is not function)
        yield f"{attrs.body} is no graph function of the module", f"run one of: {known or 'none'}"
        return
    if leads_to(module, body, {function.name, body.name}):
        yield f"{body.name} runs inside itself", "scan a function that does not scan this one"
        return
    if any(isinstance(n.attrs, Size) for n in body.nodes):
        yield f"{body.name} binds a size", "bind it before the scan, and give the body its symbol"
    counts = (len(body.symbols), len(body.params), len(body.results))
    if counts != (len(attrs.symbols), len(node.inputs), len(attrs.types)):
        why = f"{body.name} has {counts[0]} symbols, {counts[1]} parameters and {counts[2]} results"
        yield why, "give the scan that many symbols, inputs and outputs"
        return
    yield from _type_faults(body, node, attrs, shown)


def leads_to(module: Module, body: GraphFunction, around: set[str]) -> bool:
    """Whether running `body` comes to run a function of these names, or one that is running already."""
    for node in body.nodes:
        if isinstance(node.attrs, Scan):
            inner = module.functions.get(node.attrs.body)
            if node.attrs.body in around:
                return True
            if isinstance(inner, GraphFunction) and leads_to(module, inner, around | {inner.name}):
                return True
    return False


def _type_faults(body: GraphFunction, node: Node, attrs: Scan, shown: Callable[[TensorType], str]) -> Iterator[Fault]:
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
