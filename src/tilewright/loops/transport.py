"""Programs as bytes, for another process that runs this same compiler.

    loads(dumps(function))        a function that prints the same, with variables, buffers and statements of its own

Expressions are made in the order in which they were made first (`serial`): what goes by that order decides the same on
both sides. Values may hold nodes anywhere among tuples, records and numbers. What comes back is trusted: these bytes go
through a pipe between two processes of one compilation, and never to a file.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from tilewright.core.node import Node
from tilewright.core.walk import nodes_in
from tilewright.expr.dtypes import DTYPES, DType
from tilewright.expr.intrinsics import INTRINSICS, Intrinsic
from tilewright.expr.nodes import Expr
from tilewright.target.instructions import Instruction, named

Row = tuple[Any, ...]
"""A node: the number of its class, a letter for each field, and the fields. The letter says what a field holds: `n` the
number of a node, `t` a tuple of such numbers, `m` a tuple of pairs of a letter and a value, `p` the value itself."""


def dumps(value: object) -> bytes:
    """The bytes of a value."""
    roots: list[Node] = []
    head = io.BytesIO()
    _Pickler(head, roots).dump(value)
    classes: dict[type[Node], int] = {}
    numbers: dict[Node, int] = {}
    rows: list[Row] = []
    for node in _in_order(roots):
        numbers[node] = len(rows)
        fields = [_written(v, numbers) for v in node.field_values()]
        number = classes.setdefault(type(node), len(classes))
        rows.append((number, "".join([letter for letter, _ in fields]), *(v for _, v in fields)))
    body = io.BytesIO()
    _Pickler(body, None).dump((list(classes), rows, [numbers[node] for node in roots], head.getvalue()))
    return body.getvalue()


def loads(data: bytes) -> Any:
    """The value that the bytes are of."""
    classes, rows, roots, head = pickle.loads(data)
    nodes: list[Node] = []
    for number, letters, *fields in rows:
        nodes.append(classes[number](*[_read(letter, v, nodes) for letter, v in zip(letters, fields, strict=True)]))
    return _Unpickler(io.BytesIO(head), [nodes[n] for n in roots]).load()


def _in_order(roots: list[Node]) -> list[Node]:
    """All nodes that are needed, each behind those that it holds: first expressions in the order of their making, with
    the buffers they are in, whose shapes were made before them; then the rest."""
    found: dict[Node, tuple[Node, ...]] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in found:
            found[node] = parts = tuple(nodes_in(node.field_values()))
            stack += parts
    made: dict[Node, None] = {}
    for expression in sorted((n for n in found if isinstance(n, Expr)), key=lambda e: e.serial):
        for part in found[expression]:
            made.setdefault(part)
        made[expression] = None
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        waiting = [part for part in found[node] if part not in made] if node not in made else []
        if waiting:
            stack += reversed(waiting)
        else:
            made[stack.pop()] = None
    return list(made)


def _written(value: Any, numbers: dict[Node, int]) -> tuple[str, Any]:
    if isinstance(value, Node):
        return "n", numbers[value]
    if type(value) is not tuple or not nodes_in(value):
        return "p", value
    if all(isinstance(v, Node) for v in value):
        return "t", tuple([numbers[v] for v in value])
    return "m", tuple([_written(v, numbers) for v in value])


def _read(letter: str, value: Any, nodes: list[Node]) -> Any:
    if letter == "p":
        return value
    if letter == "n":
        return nodes[value]
    if letter == "t":
        return tuple([nodes[n] for n in value])
    return tuple([_read(inner, v, nodes) for inner, v in value])


class _Pickler(pickle.Pickler):
    """Nodes become their place in `roots`, rows of the compiler's tables their names."""

    def __init__(self, file: io.BytesIO, roots: list[Node] | None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.roots = roots
        self.places: dict[Node, int] = {}
        self.dispatch_table = {
            DType: lambda d: (_dtype, (d.name,)),
            Intrinsic: lambda f: (_intrinsic, (f.name,)),
            Instruction: lambda i: (_instruction, (i.name,)),
        }

    def persistent_id(self, value: Any) -> int | None:
        if self.roots is None or not isinstance(value, Node):
            return None
        if value not in self.places:
            self.places[value] = len(self.roots)
            self.roots.append(value)
        return self.places[value]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, roots: list[Node]) -> None:
        super().__init__(file)
        self.nodes = roots

    def persistent_load(self, place: int) -> Node:
        return self.nodes[place]


def _dtype(name: str) -> DType:
    return DTYPES[name]


def _intrinsic(name: str) -> Intrinsic:
    return INTRINSICS[name]


def _instruction(name: str) -> Instruction:
    found = named(name)
    assert found is not None
    return found
