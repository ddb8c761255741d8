"""Editing programs: find a loop or block, put another statement in a place, rename what a copy defines.

Statements are immutable, so each edit returns a program that shares what did not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, cast

from tilewright.core.node import Node
from tilewright.core.walk import preorder, transform
from tilewright.expr.nodes import Expr, Var, const
from tilewright.expr.variables import variables_of
from tilewright.loops.nodes import (
    COMPOUND,
    Alloc,
    Axis,
    Block,
    Buffer,
    CallFunction,
    Enlarge,
    For,
    Function,
    Let,
    Load,
    LoopKind,
    Reserve,
    Seq,
    Stmt,
    Store,
    View,
    seq,
)

Places = Callable[[tuple[Expr, ...]], tuple[Expr, ...]]
"""The indices of an element in another buffer."""


def statements(root: Stmt) -> Iterator[Stmt]:
    """Every statement in `root`, outer before inner, in program order."""
    return chain((root,), root.inside())


def expressions(root: Stmt) -> Iterator[Expr]:
    """Every distinct expression in `root`."""
    for node in preorder(root):
        if isinstance(node, Expr):
            yield node


def loads(root: Node) -> Iterator[Load]:
    """Every distinct load in a statement or expression."""
    return iter(loads_of(root) if isinstance(root, Expr) else _loads_inside(root))


@lru_cache(maxsize=1 << 11)
def _loads_inside(root: Node) -> tuple[Load, ...]:
    found: dict[Load, None] = {}
    for child in root.children():
        if isinstance(child, Expr):
            if child.kinds & Load.bit:
                found.update(dict.fromkeys(loads_of(child)))
        elif type(child) is Axis or cast(Stmt, child).kinds() & Load.bit:
            found.update(dict.fromkeys(_loads_inside(child)))
    return tuple(found)


@lru_cache(maxsize=1 << 11)
def loaded_buffers(root: Stmt) -> frozenset[Buffer]:
    """The buffers that a statement, or one inside it, loads from."""
    return frozenset([load.buffer for load in loads(root)])


@lru_cache(maxsize=1 << 13)
def named_buffers(root: Stmt) -> frozenset[Buffer]:
    """The buffers that a statement, or one inside it, has anything to do with."""
    named = [value for value in root.field_values() if isinstance(value, Buffer | tuple)]
    own = [b for value in named for b in (value if isinstance(value, tuple) else (value,)) if isinstance(b, Buffer)]
    own += [load.buffer for e in root.own() for load in loads_of(e)]
    return frozenset(own).union(*map(named_buffers, root.held()))


@lru_cache(maxsize=1 << 11)
def stored_buffers(stmt: Stmt) -> frozenset[Buffer]:
    """The buffers that a statement, or one inside it, stores to."""
    return frozenset([s.buffer for s in statements(stmt) if isinstance(s, Store)])


@lru_cache(maxsize=1 << 13)
def loads_of(root: Expr) -> tuple[Load, ...]:
    """Every distinct load in an expression."""
    if not root.kinds & Load.bit:
        return ()
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    stack: list[Expr] = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if type(node) is Load:
            found[node] = None
        stack += [c for c in node.children()[::-1] if c.kinds & Load.bit]
    return tuple(cast(dict[Load, None], found))


def blocks(root: Stmt) -> list[Block]:
    return list(_blocks(root))


@lru_cache(maxsize=1 << 10)
def _blocks(root: Stmt) -> tuple[Block, ...]:
    return tuple([s for s in statements(root) if type(s) is Block])


@lru_cache(maxsize=1 << 10)
def loops_inside(root: Stmt) -> tuple[For, ...]:
    """Every loop in `root`, outer before inner, in program order."""
    return tuple([s for s in statements(root) if type(s) is For])


@lru_cache(maxsize=1 << 10)
def path_to(root: Stmt, target: Stmt) -> tuple[Stmt, ...]:
    """The statements from `root` down to and including `target`; empty when it is not there."""
    path = [root]
    while path[-1] is not target:
        inner = path[-1].held()
        below = inner[0] if len(inner) == 1 else next((c for c in inner if c is target or target in c.inside()), None)
        if below is None or (below is not target and not below.held()):
            return ()
        path.append(below)
    return tuple(path)


def loops_around(root: Stmt, target: Stmt) -> list[For]:
    """The loops around `target`, outermost first."""
    return [s for s in path_to(root, target)[:-1] if isinstance(s, For)]


def perfect_nest(stmt: Stmt) -> tuple[list[For], Stmt]:
    """(the loops that are nested with nothing between them, what the innermost of them holds)."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    return loops, stmt


def plain_nest(stmt: Stmt) -> tuple[list[For], Block] | None:
    """The loops and the block of a nest as operators define it: serial loops from 0 on around a block that runs always,
    one for each of its axes in their order. None of anything else."""
    loops, block = perfect_nest(stmt)
    if not isinstance(block, Block) or block.where is not None or len(loops) != len(block.axes):
        return None
    plain = all(loop.kind is LoopKind.SERIAL and loop.begin is const(0) for loop in loops)
    bound = all(axis.binding is loop.var for axis, loop in zip(block.axes, loops, strict=True))
    return (loops, block) if plain and bound else None


def replace(root: Stmt, old: Stmt, fresh: Stmt) -> Stmt:
    """`root` with the statement `old` replaced; sequences that arise inside sequences are spliced."""

    def change(node: Stmt) -> Stmt:
        if node is old:
            return fresh
        made = tuple([changed.get(c, c) for c in node.children()])
        if isinstance(node, Seq):
            return seq(*cast(tuple[Stmt, ...], made)) if made != node.body else node
        return node.rebuild(made)

    changed: dict[Node, Node] = {}
    for node in reversed(path_to(root, old)):
        changed[node] = change(node)
    return cast(Stmt, changed.get(root, root))


def map_statements(root: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """`root` rewritten bottom-up: `change` sees each statement after its inner statements. Expressions stay."""

    def step(node: Node) -> Node:
        if type(node) is Seq:
            return change(seq(*node.body) if any(type(s) is Seq for s in node.body) else node)
        assert isinstance(node, Stmt)
        return change(node)

    return transform_statements(root, step)


def transform_statements(
    root: Stmt, change: Callable[[Node], Node], stays: Callable[[Stmt], bool] | None = None
) -> Stmt:
    """A transform that does not descend into expressions, nor into statements that `stay`."""
    if stays is not None and stays(root):
        return root
    if type(root) is Seq:
        root = root.rebuild(tuple([transform_statements(s, change, stays) for s in root.body]))
    elif type(root) in COMPOUND:
        inner = root.children()
        root = root.rebuild(
            tuple([transform_statements(c, change, stays) if isinstance(c, Stmt) else c for c in inner])
        )
    result = change(root)
    assert isinstance(result, Stmt)
    return result


def map_expressions(root: Stmt, change: Callable[[Expr], Expr], stays: Callable[[Stmt], bool] | None = None) -> Stmt:
    """`root` with every whole expression (an index, a value, a bound, a condition) replaced by change(expression).
    Statements that `stay` are not looked into."""
    if stays is not None and stays(root):
        return root
    inner = root.children()
    kind = type(root)
    if kind is Seq:
        return root.rebuild(tuple([map_expressions(c, change, stays) for c in root.held()]))
    if kind not in COMPOUND:
        return root.rebuild(tuple([change(c) for c in inner]))
    inner = tuple([map_expressions(c, change, stays) if isinstance(c, Stmt) else c for c in inner])
    return root.rebuild(tuple([c if isinstance(c, Stmt) else _changed(c, change) for c in inner]))


def map_loads(
    root: Stmt,
    change: Callable[[Load], Expr],
    memo: dict[Node, Node] | None = None,
    stays: Callable[[Stmt], bool] | None = None,
) -> Stmt:
    """`root` with every load replaced by change(load), its indices first. One `memo` may serve several calls.
    Statements that `stay` are not looked into."""
    known: dict[Node, Node] = {} if memo is None else memo

    def of_node(node: Node) -> Node:
        return change(node) if isinstance(node, Load) else node

    def reads_nothing(node: Node) -> bool:
        return isinstance(node, Expr) and not node.kinds & Load.bit

    def of_expression(e: Expr) -> Expr:
        return transform(e, of_node, known, reads_nothing) if e.kinds & Load.bit else e

    return map_expressions(root, of_expression, stays or (lambda stmt: not stmt.kinds() & Load.bit))


def _changed(part: Node, change: Callable[[Expr], Expr]) -> Node:
    """What a statement holds besides statements: expressions and axes."""
    if type(part) is Axis:
        binding = change(part.binding)
        return part if binding is part.binding else Axis(part.var, part.kind, binding)
    return change(cast(Expr, part))


def substitute_expressions(root: Stmt, values: Mapping[Expr, Expr]) -> Stmt:
    """`root` with variables (or whole expressions) replaced wherever they are used."""
    memo: dict[Node, Node] = {name: value for name, value in values.items()}  # noqa: C416  (another key type)
    variables = frozenset([v for v in values if isinstance(v, Var)])
    if len(variables) < len(values):
        return map_expressions(root, lambda e: transform(e, _same, memo))
    apart = variables.isdisjoint

    def stays(node: Node) -> bool:
        return isinstance(node, Expr) and apart(variables_of(node))

    def replaced(e: Expr) -> Expr:
        return e if apart(variables_of(e)) else transform(e, _same, memo, stays)

    return map_expressions(root, replaced, lambda s: apart(s.variables()))


def _same(node: Node) -> Node:
    return node


def substitute_buffers(root: Stmt, values: Mapping[Buffer, Buffer], places: Places = tuple) -> Stmt:
    """`root` with buffers replaced by others wherever they are read, written, passed or allocated. `places` has the
    indices of an element in the other buffer, which are the same where it is of the same rank."""

    def of_load(e: Load) -> Expr:
        return Load(values[e.buffer], places(e.indices)) if e.buffer in values else e

    def of_statement(node: Node) -> Node:
        if isinstance(node, Store) and node.buffer in values:
            return Store(values[node.buffer], places(node.indices), node.value)
        if isinstance(node, Alloc) and node.buffer in values:
            return node.replace(buffer=values[node.buffer])
        if isinstance(node, View):
            buffer, source = values.get(node.buffer, node.buffer), values.get(node.source, node.source)
            same = (buffer, source) == (node.buffer, node.source)
            return node if same else node.replace(buffer=buffer, source=source)
        if isinstance(node, CallFunction):
            return node.replace(arguments=tuple(values.get(b, b) for b in node.arguments))
        return node

    def stays(stmt: Stmt) -> bool:
        return named_buffers(stmt).isdisjoint(values)

    return transform_statements(map_loads(root, of_load, stays=stays), of_statement, stays)


def defines(root: Stmt) -> bool:
    """Whether `root` defines anything: a loop variable, an axis, a named value, a buffer."""
    return any(isinstance(s, For | Let | Block | Alloc | View) for s in statements(root))


def fresh_copy(root: Stmt, names: Mapping[Var, Var] | None = None) -> Stmt:
    """A copy of `root` in which everything it defines (loop variables, axes, lets, buffers) is defined anew; `names`
    are the variables that some of its own become."""
    known: dict[Node, Node] = {}
    buffers: dict[Buffer, Buffer] = {}
    for node in statements(root):
        if isinstance(node, For | Let):
            known[node.var] = (names or {}).get(node.var, node.var.replace())
        elif isinstance(node, Block):
            known.update({a.var: a.var.replace() for a in node.axes})
        elif isinstance(node, Alloc | View):
            buffers[node.buffer] = node.buffer.replace()
    variables = frozenset(known)

    def of_node(node: Node) -> Node:
        return Load(buffers[node.buffer], node.indices) if isinstance(node, Load) and node.buffer in buffers else node

    def stays(node: Node) -> bool:
        return (
            isinstance(node, Expr) and variables_of(node).isdisjoint(variables) and (not buffers or not loads_of(node))
        )

    def copied(value: Any) -> Any:
        """A field with everything in it defined anew."""
        if isinstance(value, Expr):
            return transform(value, of_node, known, stays)
        if type(value) is tuple:
            return tuple([copied(v) for v in value])
        if isinstance(value, Buffer):
            return buffers.get(value, value)
        return type(value)(*map(copied, value.field_values())) if isinstance(value, Stmt | Axis) else value

    made = copied(root)
    assert isinstance(made, Stmt)
    return made


def rooms_of(function: Function) -> dict[Var, int]:
    """The symbols that a call of a function may make larger, with what they are at first."""
    return {s.room: s.room.least or 0 for s in statements(function.body) if isinstance(s, Enlarge)}


def allocations(root: Stmt) -> list[Buffer]:
    """The buffers that `root` allocates, in program order."""
    return [s.buffer for s in statements(root) if isinstance(s, Alloc)]


__all__ = [
    "Axis",
    "Reserve",
    "allocations",
    "blocks",
    "defines",
    "expressions",
    "fresh_copy",
    "loads",
    "loops_around",
    "loops_inside",
    "map_expressions",
    "map_loads",
    "map_statements",
    "path_to",
    "perfect_nest",
    "replace",
    "rooms_of",
    "statements",
    "stored_buffers",
    "substitute_buffers",
    "substitute_expressions",
    "transform_statements",
]
