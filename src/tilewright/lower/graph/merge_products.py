"""Products of one kind become one: those that are summed, and those that share an operand.

    y: f32[64, 32] = add(contract(a, b, spec="ki,kj->ij"), contract(c, d, spec="ki,kj->ij"))       a, c: f32[8, 64]
    =>
    y = contract(concat(a, c, axis=0), concat(b, d, axis=0), spec="ki,kj->ij")                     16 terms

    y, z = contract(a, w, spec="ik,kj->ij"), contract(c, w, spec="ik,kj->ij")
    =>
    t = contract(concat(a, c, axis=0), w, spec="ik,kj->ij")
    y, z = slice(t, …), slice(t, …)

Recurrent networks are such products when they are trained: the gradient of weights is a sum over steps, and what steps
multiply beside the recurrence is known for all of them. Sums of results are no longer written and read, and an operand
that is shared passes by once. It is a matter of size: what is joined is copied.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

from tilewright.expr.nodes import Const
from tilewright.graph.edit import Edit, over_graphs
from tilewright.graph.nodes import GraphFunction, Module, Node, Value
from tilewright.ops.checks import ONE, ZERO
from tilewright.ops.contract import ContractAttributes
from tilewright.ops.index_maps import Spec, parse
from tilewright.ops.movement import MOST_JOINED


def merge_products(module: Module) -> Module:
    """The module with such products merged, where sizes are constant."""
    return over_graphs(over_graphs(module, _merge_sums), _merge_shared)


def _merge_sums(module: Module, function: GraphFunction) -> Module:
    """Sums of products over the same axes are products over all their terms."""
    makers = {v: node for node in function.nodes for v in node.outputs}
    readers = _readers(function)
    inner = {
        v
        for node in function.nodes
        if node.op.name == "add"
        for v in node.inputs
        if readers[v] == 1 and v in makers and makers[v].op.name == "add" and v.type is node.outputs[0].type
    }
    edit = Edit(module, function)
    for node in function.nodes:
        made = None
        if node.op.name == "add" and node.outputs[0] not in inner:
            made = _summed(edit, node, _leaves(node, makers, inner), makers, readers)
        if made is None or not edit.replace(node, (made,)):
            edit.keep(node)
    return edit.finish()


def _readers(function: GraphFunction) -> Counter[Value]:
    """How often each value is read by nodes that the results depend on, and is a result."""
    readers = Counter(function.results)
    for node in reversed(function.nodes):
        if not node.outputs or any(readers[v] for v in node.outputs):
            readers.update(node.inputs)
    return readers


def _leaves(root: Node, makers: dict[Value, Node], inner: set[Value]) -> list[Value]:
    """What a tree of additions adds up, in order."""
    found: list[Value] = []
    waiting = list(reversed(root.inputs))
    while waiting:
        value = waiting.pop()
        if value in inner:
            waiting += reversed(makers[value].inputs)
        else:
            found.append(value)
    return found


def _summed(
    edit: Edit, root: Node, leaves: Sequence[Value], makers: dict[Value, Node], readers: Counter[Value]
) -> Value | None:
    """The sum with products of one kind merged; None where none are."""
    groups: defaultdict[Hashable, list[Node]] = defaultdict(list)
    rest: list[Value] = []
    for value in leaves:
        node = makers.get(value)
        key = None if node is None or readers[value] > 1 or value.type is not root.outputs[0].type else _kind(node)
        if key is None or node is None:
            rest.append(edit.resolve(value))
        else:
            groups[key].append(node)
    merged = False
    edit.source = root.source
    for nodes in groups.values():
        made = _over_all_terms(edit, nodes)
        merged = merged or made is not None
        rest += [edit.resolve(node.outputs[0]) for node in nodes] if made is None else [made]
    if not merged:
        return None
    total = rest[0]
    for value in rest[1:]:
        added = edit.typed("add", (total, value), {}, root.outputs[0].name)
        assert added is not None, "values of one type can be added"
        total = edit.add(added).outputs[0]
    return total


def _kind(node: Node) -> Hashable | None:
    """What products that are merged have in common; None for what is no product of two operands of constant sizes, each
    dimension of which is an axis of its own."""
    if not isinstance(node.attrs, ContractAttributes) or len(node.inputs) != 2 or node.attrs.sizes:
        return None
    spec = parse(node.attrs.spec)
    axes = [[index.axis for index in operand] for operand in spec.operands]
    if any(None in own or len(set(own)) < len(own) for own in axes) or not spec.reduce:
        return None
    shapes = [v.type for v in (*node.inputs, *node.outputs)]
    return None if any(_elements(v) == math.inf for v in node.inputs) else (node.attrs, *shapes)


def _over_all_terms(edit: Edit, nodes: Sequence[Node]) -> Value | None:
    """The sum of products as one; None where results are smaller than what is joined for it."""
    first = nodes[0]
    assert isinstance(first.attrs, ContractAttributes)
    spec = parse(first.attrs.spec)
    axis = next((a for a in spec.reduce if all(a in _axes(spec, n) for n in range(2))), None)
    if len(nodes) < 2 or axis is None or sum(map(_elements, first.inputs)) >= _elements(first.outputs[0]):
        return None
    sides = [[edit.resolve(node.inputs[n]) for node in nodes] for n in range(2)]
    joined = [_join(edit, side, _axes(spec, n).index(axis)) for n, side in enumerate(sides)]
    return _contract(edit, first, joined)


def _merge_shared(module: Module, function: GraphFunction) -> Module:
    """Products that share an operand, and do not depend on each other, are one product of more rows."""
    if function.symbols:
        return module
    groups: defaultdict[tuple[Hashable, int, Value], list[Node]] = defaultdict(list)
    for node in function.nodes:
        kind = _kind(node)
        if kind is not None:
            for n in range(2):
                if _shares(node, n):
                    groups[kind, n, node.inputs[n]].append(node)
    for (_, shared, _), nodes in groups.items():
        if len(nodes) > 1:
            module, function = _merge_rows(module, function, nodes, shared)
    return module


def _shares(node: Node, shared: int) -> bool:
    """Whether it takes less to join the rows of products and to part their results than to read this operand again."""
    (out,) = node.outputs
    moved = _elements(node.inputs[1 - shared]) + _elements(out)
    return _rows(node, shared) is not None and moved < _elements(node.inputs[shared])


def _rows(node: Node, shared: int) -> str | None:
    """The axis of the result that the operand which is not shared alone has: its first one."""
    assert isinstance(node.attrs, ContractAttributes)
    spec = parse(node.attrs.spec)
    own, other = _axes(spec, 1 - shared), _axes(spec, shared)
    return next((a for a in spec.output if a in own and a not in other), None)


def _merge_rows(
    module: Module, function: GraphFunction, nodes: Sequence[Node], shared: int
) -> tuple[Module, GraphFunction]:
    """The function with these products merged, as far as none depends on another one."""
    before, members, behind = _parted(function, nodes)
    if len(members) < 2:
        return module, function
    edit = Edit(module, function)
    for node in before:
        edit.keep(node)
    first = members[0]
    rows = _rows(first, shared)
    assert rows is not None
    assert isinstance(first.attrs, ContractAttributes)
    spec = parse(first.attrs.spec)
    edit.source = first.source
    joined = _join(edit, [node.inputs[1 - shared] for node in members], _axes(spec, 1 - shared).index(rows))
    operands = [joined, first.inputs[shared]] if shared else [first.inputs[shared], joined]
    whole = _contract(edit, first, operands)
    if whole is None:
        return module, function
    place, shape = spec.output.index(rows), first.outputs[0].type.shape
    for n, node in enumerate(members):
        starts = tuple([extent * n if d == place else ZERO for d, extent in enumerate(shape)])
        given = {"starts": starts, "sizes": shape, "steps": (ONE,) * len(shape)}
        part = edit.typed("slice", (whole,), given, node.outputs[0].name)
        if part is None or not edit.replace(node, edit.add(part).outputs):
            return module, function
    for node in behind:
        edit.keep(node)
    module = edit.finish()
    return module, module.functions[function.name]  # type: ignore[return-value]


def _parted(function: GraphFunction, nodes: Sequence[Node]) -> tuple[list[Node], list[Node], list[Node]]:
    """The nodes of a function before merged products, these, and the nodes behind: all that depends on one of them."""
    wanted, members = set(nodes), list[Node]()
    before, behind = list[Node](), list[Node]()
    made: set[Value] = set()
    for node in function.nodes:
        depends = not made.isdisjoint(node.inputs)
        if node in wanted and not depends:
            members.append(node)
        elif depends:
            behind.append(node)
        else:
            before.append(node)
        if depends or node in wanted:
            made.update(node.outputs)
    return before, members, behind


def _join(edit: Edit, values: Sequence[Value], axis: int) -> Value:
    """The values behind each other along an axis."""
    while len(values) > 1:
        groups = [values[n : n + MOST_JOINED] for n in range(0, len(values), MOST_JOINED)]
        values = [_concat(edit, group, axis) for group in groups]
    return values[0]


def _concat(edit: Edit, values: Sequence[Value], axis: int) -> Value:
    if len(values) == 1:
        return values[0]
    node = edit.typed("concat", tuple(values), {"axis": axis}, "joined")
    assert node is not None, "values of one type can be joined"
    return edit.add(node).outputs[0]


def _contract(edit: Edit, like: Node, operands: Sequence[Value]) -> Value | None:
    assert isinstance(like.attrs, ContractAttributes)
    fields = {"spec": like.attrs.spec, "dtype": like.attrs.dtype}
    node = edit.typed("contract", tuple(operands), fields, like.outputs[0].name)
    return None if node is None else edit.add(node).outputs[0]


def _axes(spec: Spec, operand: int) -> list[str | None]:
    return [index.axis for index in spec.operands[operand]]


def _elements(value: Value) -> float:
    """How many elements a value has; infinitely many where only a call knows it."""
    shape = value.type.shape
    return math.prod(float(e.value) if isinstance(e, Const) else math.inf for e in shape)
