"""Each group of a plan becomes a loops function; the graph calls them.

    h: f32[n, 10] = contract(x, w, spec="ik,kj->ij")            y: f32[n, 10] = call(x, w, b, callee="contract_add", …)
    z: f32[n, 10] = add(h, b)                            =>
                                                                func contract_add[n](x, w, b, y): …

Groups that come to the same program share one function.
"""

from __future__ import annotations

from tilewright.core.node import Node as CoreNode
from tilewright.core.walk import preorder
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.variables import variables_of
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.graph.op import REGISTRY
from tilewright.graph.symbolic import Call, Constant
from tilewright.loops.build import Builder
from tilewright.loops.edit import statements
from tilewright.loops.nodes import Alloc, Axis, Block, Buffer, For, Function, Let, Load, Stmt, Store
from tilewright.plan.groups import Group, Plan
from tilewright.types.scopes import Scope


def make_kernels(module: Module, plan: Plan) -> Module:
    """The module with a loops function for each group of the plan and calls of them in the graph."""
    graph = module.graph
    used_by: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            used_by.setdefault(value, []).append(node)
    fixed = {v for node in graph.nodes if isinstance(node.attrs, Constant) for v in node.outputs}
    functions: dict[str, Function] = {}
    known = _Programs()
    calls: dict[Node, Node] = {}
    for group in plan.groups:
        inputs, outputs = _boundary(group, used_by, graph)
        function = _function(_unique(_name(group), functions), group, inputs, outputs, fixed)
        name = known.name_of(function)
        if name == function.name:
            functions[name] = function
        types = tuple(v.type for v in outputs)
        attrs = Call(name, function.symbols, types)
        source = ", ".join(function.source)
        calls[group.root] = Node(REGISTRY["call"], inputs, attrs, outputs, (), source)
    grouped = {node for group in plan.groups for node in group.nodes}
    nodes = [calls.get(node, node) for node in graph.nodes if node in calls or node not in grouped]
    main = graph.replace(nodes=tuple(n for n in nodes if _is_kept(n, used_by, graph)))
    made = module.with_function(main)
    for function in functions.values():
        made = made.with_function(function)
    return made


class _Programs:
    """The programs met so far, by what they are but for names: the layers of a network differ in these alone."""

    def __init__(self) -> None:
        self._known: dict[Form, str] = {}

    def name_of(self, function: Function) -> str:
        """The name of the first function that is the same program."""
        return self._known.setdefault(form_of(function), function.name)


Form = tuple[object, ...]


def form_of(function: Function) -> Form:
    """What a function shares with those that are the same up to the names of buffers and blocks: its nodes, each behind
    those that it holds, which stand in it by their numbers. Constants stand for themselves, zeros of either sign
    apart."""
    numbers: dict[object, object] = {}
    rows: list[object] = []
    stack: list[CoreNode] = [function.replace(name="", source=())]
    held: dict[CoreNode, list[CoreNode]] = {}
    while stack:
        node = stack[-1]
        if node in numbers:
            stack.pop()
            continue
        if node not in held:
            held[node] = _held(node.field_values())
            stack += [part for part in reversed(held[node]) if part not in numbers]
            continue
        stack.pop()
        fields = node.field_values()[1:] if isinstance(node, Buffer | Block) else node.field_values()
        numbers[node] = ("node", len(rows))
        rows.append(node if isinstance(node, Const) else (type(node), _numbered(fields, numbers)))
    return tuple(rows)


def _held(values: tuple[object, ...]) -> list[CoreNode]:
    """The nodes in fields, those that are only referred to among them."""
    found: list[CoreNode] = []
    for value in values:
        if isinstance(value, CoreNode):
            found.append(value)
        elif type(value) is tuple:
            found += _held(value)
    return found


def _numbered(values: tuple[object, ...], numbers: dict[object, object]) -> tuple[object, ...]:
    """The fields with numbers in the places of nodes."""
    return tuple(
        [_numbered(v, numbers) if type(v) is tuple else numbers[v] if isinstance(v, CoreNode) else v for v in values]
    )


def _is_kept(node: Node, used_by: dict[Value, list[Node]], graph: GraphFunction) -> bool:
    """Whether a node has a place in a graph of calls: cheap maps that were copied into every user have none."""
    if node.op.name in ("call", "size", "require", "constant", "reshape"):
        return True
    return any(out in used_by or out in graph.results for out in node.outputs) and node.op.name not in (
        "full",
        "iota",
        "index_values",
    )


def _boundary(
    group: Group, used_by: dict[Value, list[Node]], graph: GraphFunction
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """(values the group reads, values it must write) in program order."""
    inside = set(group.nodes)
    made = {v for node in group.nodes for v in node.outputs}
    results = set(graph.results)
    inputs: dict[Value, None] = {}
    outputs: dict[Value, None] = {}
    for node in group.nodes:
        inputs.update(dict.fromkeys(v for v in node.inputs if v not in made))
        cheap_copy = not node.inputs and node is not group.root
        for v in node.outputs:
            users = used_by.get(v, [])
            if node is group.root or (not cheap_copy and (v in results or any(u not in inside for u in users))):
                outputs[v] = None
    return tuple(inputs), tuple(outputs)


def _function(
    name: str, group: Group, inputs: tuple[Value, ...], outputs: tuple[Value, ...], fixed: set[Value]
) -> Function:
    """The loops function of a group. Parameters that are constants of the module are in constant memory: a schedule may
    compute from them what it likes, it costs the calls nothing (see hoist_constants.py)."""
    names = _unique_names((*inputs, *(v for node in group.nodes for v in node.outputs)))
    buffers = {v: Buffer(names[v], v.type.dtype, v.type.shape) for v in (*inputs, *outputs)}
    buffers.update({v: buffers[v].replace(scope=Scope.CONSTANT) for v in inputs if v in fixed})
    build = Builder()
    for node in group.nodes:
        for v in node.outputs:
            if v not in buffers:
                buffers[v] = Buffer(names[v], v.type.dtype, v.type.shape, Scope.ARENA)
                build.add(Alloc(buffers[v]))
        node.op.define(
            build, tuple(buffers[v] for v in node.inputs), tuple(buffers[v] for v in node.outputs), node.attrs
        )
    body = build.body()
    params = tuple(buffers[v] for v in (*inputs, *outputs))
    source = tuple(dict.fromkeys(n.source for n in group.nodes if n.source))
    return Function(name, free_symbols(body, params), params, body, len(outputs), source)


def _unique_names(values: tuple[Value, ...]) -> dict[Value, str]:
    """A name for each value: its own, with a number behind it where another value has it. Schedules go by names."""
    names: dict[Value, str] = {}
    taken: set[str] = set()
    for value in values:
        if value not in names:
            name, n = value.name, 1
            while name in taken:
                n += 1
                name = f"{value.name}_{n}"
            taken.add(name)
            names[value] = name
    return names


def free_symbols(body: Stmt, params: tuple[Buffer, ...]) -> tuple[Var, ...]:
    """The variables that a body and its parameters' shapes use and nothing in the body defines, in order of use."""
    used: dict[Var, None] = {}
    defined: set[Var] = set()
    if not _may_have_symbols(body, params):
        return ()

    def use(e: Expr) -> None:
        used.update(dict.fromkeys(v for v in preorder(e) if isinstance(v, Var)))
        for load in preorder(e):
            if isinstance(load, Load):
                for extent in load.buffer.shape:
                    used.update(dict.fromkeys(v for v in preorder(extent) if isinstance(v, Var)))

    for buffer in params:
        for extent in buffer.shape:
            use(extent)
    for s in statements(body):
        if isinstance(s, For | Let):
            defined.add(s.var)
        if isinstance(s, Block):
            defined.update(a.var for a in s.axes)
        if isinstance(s, Alloc | Store):
            for extent in s.buffer.shape:
                use(extent)
        for child in s.children():
            if isinstance(child, Expr):
                use(child)
            elif isinstance(child, Axis):
                use(child.binding)
    return tuple(v for v in used if v not in defined)


def _may_have_symbols(body: Stmt, params: tuple[Buffer, ...]) -> bool:
    """Whether a body or its parameters use anything that the body does not define. What it loads from is a parameter or
    a buffer of its own."""
    inside = list(statements(body))
    defined = {s.var for s in inside if isinstance(s, For | Let)}
    defined |= {axis.var for s in inside if isinstance(s, Block) for axis in s.axes}
    buffers = {*params, *(s.buffer for s in inside if isinstance(s, Alloc | Store))}
    sizes = (variables_of(extent) for buffer in buffers for extent in buffer.shape)
    return not body.variables().union(*sizes) <= defined


def _name(group: Group) -> str:
    """What a kernel is called: the operators it holds, the first few of them."""
    names = list(dict.fromkeys(n.op.name for n in group.nodes if n.inputs)) or [group.root.op.name]
    for anchor in group.anchors[:1]:
        names.remove(anchor.op.name)
        names.insert(0, anchor.op.name)
    return "_".join(names[:4])


def _unique(name: str, taken: dict[str, Function]) -> str:
    count, unique = 1, name
    while unique in taken or unique == "main":
        count += 1
        unique = f"{name}_{count}"
    return unique
