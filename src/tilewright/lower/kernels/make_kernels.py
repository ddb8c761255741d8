"""Each kernel of a plan becomes a loops function; the graph calls them.

    h: f32[n, 10] = contract(x, w, spec="ik,kj->ij")            y: f32[n, 10] = call(x, w, b, callee="contract_add", …)
    z: f32[n, 10] = add(h, b)                            =>
                                                                func contract_add[n](x, w, b, y): …

Kernels that come to the same program share one function.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tilewright.analysis.dataflow import Reference
from tilewright.analysis.structure import Form, form_of
from tilewright.expr.nodes import Const, Var
from tilewright.graph.constants import array_if_known, held
from tilewright.graph.edit import in_order, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY, Pattern
from tilewright.graph.symbolic import Call, Constant
from tilewright.loops.build import Builder
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Alloc, Buffer, Function
from tilewright.loops.symbols import free_symbols
from tilewright.lower.kernels.define import define
from tilewright.lower.kernels.form import Known, form_of_kernel
from tilewright.lower.kernels.merge_axes import merge_axes
from tilewright.lower.kernels.share_sizes import share_sizes
from tilewright.lower.kernels.share_slices import share_slices
from tilewright.plan.fusion.kernels import Kernel
from tilewright.plan.fusion.planner import Plan
from tilewright.types.finite import is_finite
from tilewright.types.scopes import Scope

MOST_LOOKED_AT = 1 << 22
"""Constants of so many elements are asked whether they are finite, a millisecond or two of a compilation: filters of
images so small, or windows so wide, that terms of zeros count."""


def make_kernels(module: Module, choose: Callable[[GraphFunction], Plan], lanes: int) -> Module:
    """The module with a loops function for each kernel of the plan of each graph function, and calls of them there;
    f32 vectors have so many lanes."""
    known, shared = _Programs(), _shared_factors(module)
    made = over_graphs(module, lambda m, f: _planned(m, f, choose(f), known, shared))
    return share_sizes(made, known.plain, lanes)


def _planned(module: Module, graph: GraphFunction, plan: Plan, known: _Programs, shared: frozenset[str]) -> Module:
    constants = {v: node.attrs for node in graph.nodes if isinstance(node.attrs, Constant) for v in node.outputs}
    functions: dict[str, Function] = {}
    calls: dict[Node, Node] = {}
    late = [replace(k, nodes=_constants_late(k.nodes)) for k in plan.kernels]
    for told, root in zip(share_slices(late, constants), (k.root for k in plan.kernels), strict=True):
        kernel = told.kernel
        inputs, outputs = kernel.reads(), kernel.outputs
        fixed = _fixed(module, kernel, constants, shared)
        form = form_of_kernel(kernel, fixed)
        met = known.met(form)
        if met is None:
            name = _unique(_name(kernel), {*module.functions, *functions})
            function = _function(name, kernel, inputs, fixed)
            plain = not any(node.op.known_by_axes for node in kernel.nodes)
            met = known.enter(form, merge_axes(function) if plain else function, plain=plain)
            if met[0] == name:
                functions[name] = known.functions[name]
        name, symbols = met
        attrs = Call(name, tuple([told.numbers.get(v, v) for v in symbols]), tuple(v.type for v in outputs))
        calls[root] = Node(REGISTRY["call"], inputs, attrs, outputs, (), ", ".join(kernel.source))
    computed = {node for kernel in plan.kernels for node in kernel.nodes}
    nodes = [calls.get(node, node) for node in graph.nodes if node in calls or _stays(node, computed)]
    if any(kernel.beside for kernel in plan.kernels):
        nodes = in_order(nodes, lambda n: n.inputs, lambda n: n.outputs)
    made = module.with_function(graph.replace(nodes=tuple(nodes)))
    for function in functions.values():
        made = made.with_function(function)
    return made


def _constants_late(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes of a kernel, those without inputs right before the first one that reads them. Where they stand in the
    graph is where its first kernel needs them, and would tell that from others of the same program."""
    free = {v: node for node in nodes if not node.inputs for v in node.outputs}
    before = {node: [free[v] for v in node.inputs if v in free] for node in nodes if node.inputs}
    late = dict.fromkeys(n for node, read in before.items() for n in (*read, node))
    return (*(node for node in nodes if node not in late), *late)


def _stays(node: Node, computed: set[Node]) -> bool:
    """Whether a node has a place in a graph of calls: views, and nodes that bind, check or name something."""
    return node not in computed and node.op.pattern in (Pattern.VIEW, Pattern.SHAPE)


class _Programs:
    """The programs met so far, by what they are but for names: the layers of a network differ in these alone. Of most
    kernels the graph tells already that they are one met before, and their programs need not be made."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.plain: set[str] = set()
        """The names of those that are made of points and sums."""
        self._by_kernel: dict[Form, tuple[str, tuple[Var, ...]]] = {}
        self._alike: dict[Form, list[Function]] = {}
        self._forms: dict[Function, Form] = {}

    def met(self, form: Form) -> tuple[str, tuple[Var, ...]] | None:
        """The name and the symbols of the program of kernels of this form, once there is one."""
        return self._by_kernel.get(form)

    def enter(self, form: Form, function: Function, *, plain: bool) -> tuple[str, tuple[Var, ...]]:
        """The same, of a form not met before: those of the first function that is the same program."""
        alike = self._alike.setdefault(_outline(function), [])
        first = next((f for f in alike if self._form(f) == self._form(function)), function)
        if first is function:
            alike.append(function)
            self.functions[function.name] = function
            self.plain |= {function.name} if plain else set()
        self._by_kernel[form] = first.name, function.symbols
        return self._by_kernel[form]

    def _form(self, function: Function) -> Form:
        if function not in self._forms:
            self._forms[function] = form_of(function)
        return self._forms[function]


def _outline(function: Function) -> Form:
    """What is quickly told of a function, and the same of those of one form."""
    shapes = [tuple([e.value if isinstance(e, Const) else None for e in b.shape]) for b in function.params]
    kinds = [type(s) for s in statements(function.body)]
    return (*shapes, *(b.dtype for b in function.params), *kinds)


def _shared_factors(module: Module) -> frozenset[str]:
    """The names of constants that a contraction and something else reads: the sums of a large factor, say, from which
    other products take differences."""
    graphs = [f for f in module.functions.values() if isinstance(f, GraphFunction)]
    names = {v: n.attrs.name for f in graphs for n in f.nodes if isinstance(n.attrs, Constant) for v in n.outputs}
    reads = [(names[v], node) for f in graphs for node in f.nodes for v in node.inputs if v in names]
    count = Counter(name for name, _ in reads)
    return frozenset(name for name, node in reads if count[name] > 1 and node.op.name == "contract")


def _fixed(
    module: Module, kernel: Kernel, constants: Mapping[Value, Constant], shared: frozenset[str]
) -> dict[Value, Known]:
    """The constants that a kernel reads, and what is known of them. Whether they are finite is known of small ones that
    are multiplied by what was padded: these are looked at."""
    padded, arrays = any(node.op.name == "pad" for node in kernel.nodes), held(module.constants)
    factors = {v for node in kernel.nodes if padded and node.op.name == "contract" for v in node.inputs}

    def finite(v: Value) -> bool:
        if not v.type.dtype.is_float or math.prod(v.type.static_shape() or ()) > MOST_LOOKED_AT:
            return False
        array = array_if_known(arrays[constants[v].name])
        return array is not None and is_finite(array)

    read = [v for v in kernel.reads() if v in constants]
    return {v: Known(finite=v in factors and finite(v), shared=constants[v].name in shared) for v in read}


def _function(name: str, kernel: Kernel, inputs: tuple[Value, ...], fixed: Mapping[Value, Known]) -> Function:
    """The loops function of a kernel. Parameters that are constants of the module are in constant memory: a schedule
    may compute from them what it likes, it costs the calls nothing (see hoist_constants.py). The function says what is
    known of them."""
    outputs = kernel.outputs
    made = tuple(v for node in kernel.nodes for v in node.outputs)
    names = _unique_names((*inputs, *made))
    read = {v: _parameter(n, v, fixed.get(v)) for v, n in zip(inputs, names, strict=False)}
    own = {
        v: Buffer(n, v.type.dtype, v.type.shape, Scope.ARGUMENT if v in outputs else Scope.ARENA)
        for v, n in zip(made, names[len(inputs) :], strict=True)
    }
    build = Builder()
    for node in kernel.nodes:
        for v in node.outputs:
            if own[v].scope is Scope.ARENA:
                build.add(Alloc(own[v]))
        operands = tuple(own[v] if Reference(v, node) in kernel.inside else read[v] for v in node.inputs)
        define(build, node, operands, tuple(own[v] for v in node.outputs))
    body = build.body()
    params = (*read.values(), *(own[v] for v in outputs))
    return Function(name, free_symbols(body, params), params, body, len(outputs), kernel.source)


def _parameter(name: str, value: Value, known: Known | None) -> Buffer:
    if known is None:
        return Buffer(name, value.type.dtype, value.type.shape)
    return Buffer(name, value.type.dtype, value.type.shape, Scope.CONSTANT, known.finite, known.shared)


def _unique_names(values: tuple[Value, ...]) -> list[str]:
    """A name for each place: its value's own, with a number behind it where another has it. Schedules go by names."""
    names: list[str] = []
    taken: set[str] = set()
    for value in values:
        name, n = value.name, 1
        while name in taken:
            n += 1
            name = f"{value.name}_{n}"
        taken.add(name)
        names.append(name)
    return names


def _name(kernel: Kernel) -> str:
    """What a kernel is called: the operators it holds, the first few of them, its last reduction in front."""
    names = list(dict.fromkeys(n.op.name for n in kernel.nodes if n.inputs)) or [kernel.root.op.name]
    reductions = [n.op.name for n in kernel.nodes if n.op.pattern is Pattern.REDUCE]
    for name in reductions[-1:]:
        names.remove(name)
        names.insert(0, name)
    return "_".join(names[:4])


def _unique(name: str, taken: set[str]) -> str:
    count, unique = 1, name
    while unique in taken or unique == "main":
        count += 1
        unique = f"{name}_{count}"
    return unique
