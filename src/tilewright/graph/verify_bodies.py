"""The laws of nodes that run graph functions, which only the module around them can tell:

1. A body is a graph function of the module that does not lead back to itself.
2. The parameters of a scan's body, under the symbols that the node gives, are the initial states, slices of the scanned
   operands, and the whole operands. Its results are states of the same types, then slices of the stacked outputs. A
   last symbol to which the node gives nothing is the number of the step. The body binds no symbols, and no size follows
   from that number: the sizes of a step are those of every step.
3. The parameters of both branches of an `if`, under the symbols that the node gives, are the inputs behind the
   condition. Their results are the outputs, but for extents that are symbols which the node binds.
4. The parameters of a while's body are the states, then the operands; its results a truth value, the next states, and
   slices of the stacked outputs. Its symbols are those that the node gives, the number of the step, and extents that
   change from step to step: an extent of states, the same in all of them, which outputs have as a symbol that the node
   binds. The stacked outputs have another one in front, and no extent that a step decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tilewright.core.node import Node as CoreNode
from tilewright.core.walk import preorder, substitute
from tilewright.expr import dtypes
from tilewright.expr.nodes import Expr, Var
from tilewright.graph.nodes import AnyFunction, GraphFunction, Module, Node
from tilewright.graph.symbolic import If, Scan, While, ahead, bodies_of, given_symbols
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
        elif isinstance(attrs, While):
            yield from _While(body, node, attrs, shown).faults()


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


def binds_sizes(functions: Mapping[str, AnyFunction], nodes: Sequence[Node]) -> bool:
    """Whether nodes bind symbols, or run functions that do."""
    inner = [functions.get(name) for node in nodes for name in bodies_of(node.attrs)]
    return any(n.binds for n in nodes) or any(
        isinstance(f, GraphFunction) and binds_sizes(functions, f.nodes) for f in inner
    )


def sized_by(functions: Mapping[str, AnyFunction], nodes: Sequence[Node], symbols: Collection[Var]) -> bool:
    """Whether sizes of what nodes give, or functions that they run, follow from these symbols."""
    wanted = set(symbols)
    for node in nodes:
        if any(wanted & d.variables for v in node.outputs for d in v.type.shape):
            return True
        for body in [functions.get(name) for name in bodies_of(node.attrs)]:
            if isinstance(body, GraphFunction):
                given = zip(body.symbols, given_symbols(node.attrs), strict=False)
                inner = [s for s, e in given if wanted & e.variables]
                if inner and sized_by(functions, body.nodes, inner):
                    return True
    return False


def _scan_faults(module: Module, body: GraphFunction, node: Node, attrs: Scan, shown: Shown) -> Iterator[Fault]:
    if binds_sizes(module.functions, body.nodes):
        yield f"{body.name} binds a size", "bind it before the scan, and give the body its symbol"
    counts = (len(body.params), len(body.results))
    if not 0 <= len(body.symbols) - len(attrs.symbols) <= 1 or counts != (len(node.inputs), len(attrs.types)):
        yield _misfit(body), "give the scan that many symbols, or all but that of the step, and inputs and outputs"
        return
    if sized_by(module.functions, body.nodes, body.symbols[len(attrs.symbols) :]):
        yield (
            f"a size in {body.name} follows from the number of the step",
            "let all steps have one, or write a while",
        )
    values: dict[Expr, CoreNode] = dict(zip(body.symbols, attrs.symbols, strict=False))

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


class _While:
    """A while and its body, compared."""

    def __init__(self, body: GraphFunction, node: Node, attrs: While, shown: Shown) -> None:
        self.body, self.node, self.attrs, self.shown = body, node, attrs, shown
        self.given: dict[Expr, CoreNode] = dict(zip(body.symbols, attrs.symbols, strict=False))
        self.own = body.symbols[len(attrs.symbols) :]
        self.next: dict[Expr, Expr] = {}
        self.first: dict[Expr, Expr] = {}
        self.last: dict[Expr, Expr] = {}

    def faults(self) -> Iterator[Fault]:
        """What is wrong with the symbols and counts; then with the parameters and the results."""
        body, attrs = self.body, self.attrs
        taken, made = len(self.node.inputs) - ahead(attrs), 1 + len(attrs.types)
        if not self.own or (len(body.params), len(body.results)) != (taken, made):
            yield _misfit(body), "give the while its symbols but that of the step, and as many inputs and outputs"
            return
        if body.results[0].type is not TensorType(dtypes.bool_, ()):
            yield f"{body.name} gives {self.shown(body.results[0].type)} first", "give bool[]: whether to go on"
            return
        loose = set(self.own[1:]).difference(*[p.type.shape for p in body.params[: attrs.states]])
        if loose:
            yield f"{len(loose)} symbols of {body.name} are an extent of no state", "let the while give them values"
            return
        for param, value in zip(body.params, self.node.inputs[ahead(attrs) :], strict=True):
            expected = self._type(param.type, self.first, value.type.shape)
            if expected is not value.type:
                why = f"{body.name} wants {self.shown(expected)} for {param.name}, not {self.shown(value.type)}"
                yield why, "give a value of that type, or other symbols"
        results = zip(body.results[1:], body.result_names[1:], attrs.types, strict=True)
        for n, (result, name, type) in enumerate(results):
            if n < attrs.states:
                yield from self._state(n, result.type, name, type)
            else:
                yield from self._stacked(result.type, name, type)

    def _type(self, type: TensorType, values: dict[Expr, Expr], found: tuple[Expr, ...]) -> TensorType:
        """A type of the body as the function around it has it: an extent that changes is what is found where it stands
        first, and the same wherever else it stands."""
        shape = []
        for d, e in zip(type.shape, (*found, *type.shape[len(found) :]), strict=False):
            shape.append(values.setdefault(d, e) if d in self.own[1:] else substitute(d, self.given))
        return TensorType.of(type.dtype, [d for d in shape if isinstance(d, Expr)])

    def _state(self, n: int, result: TensorType, name: str, type: TensorType) -> Iterator[Fault]:
        """The next state has the extents of the one before, or those which the body says that they have next."""
        param = self.body.params[n].type
        expected = TensorType.of(param.dtype, self._next(param, result))
        if result is not expected:
            yield (
                f"the state {name} goes on as {self.shown(result)}, not {self.shown(expected)}",
                "keep its type, or let the extent be a symbol of the body that the while gives no value",
            )
        last = self._type(param, self.last, type.shape)
        bound = {self.last[d] for d in param.shape if d in self.own[1:]}
        if last is not type:
            yield f"{name} ends as {self.shown(last)}, not {self.shown(type)}", "write that type"
        elif not bound <= set(self.node.binds) or len(set(self.last.values())) < len(self.last):
            why = f"{name} ends as {self.shown(last)}, with an extent of its own that the while does not bind"
            yield why, "bind a symbol for each extent that changes"

    def _next(self, param: TensorType, result: TensorType) -> list[Expr]:
        known = (*result.shape, *param.shape[result.rank :])
        pairs = zip(param.shape, known, strict=False)
        return [self.next.setdefault(d, e) if d in self.own[1:] else d for d, e in pairs]

    def _stacked(self, result: TensorType, name: str, type: TensorType) -> Iterator[Fault]:
        """One slice a step; the steps are a symbol that the node binds."""
        steps = self.last.setdefault(self.own[0], type.shape[0]) if type.shape else None
        shape = [e for d in result.shape if isinstance(e := substitute(d, self.given), Expr)]
        expected = TensorType.of(result.dtype, [steps or self.own[0], *shape])
        alone = steps in self.node.binds and len(set(self.last.values())) == len(self.last)
        inner = {v for d in result.shape for v in preorder(d) if isinstance(v, Var)} - set(self.given)
        if inner:
            yield f"a slice of {name} has the size {self.shown(result)}, which a step decides", "let all have one size"
        elif type is not expected:
            yield f"{name} is stacked as {self.shown(expected)}, not {self.shown(type)}", "write that type"
        elif not alone:
            why = f"{name} is stacked as {self.shown(type)}, with a number of steps that the while does not bind"
            yield why, "bind a symbol for the number of steps"


def _misfit(body: GraphFunction) -> str:
    counts = (len(body.symbols), len(body.params), len(body.results))
    return f"{body.name} has {counts[0]} symbols, {counts[1]} parameters and {counts[2]} results"
