"""Whether two programs are the same up to the names of their variables and buffers, and what a body consists of."""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.loops.nodes import Alloc, Buffer, Let, Seq, Stmt, View
from tilewright.types.scopes import Scope


def same(a: Node, b: Node) -> bool:
    """Whether two functions, statements or expressions are equal up to names: one variable for one variable, one buffer
    for one buffer. How statements are grouped in sequences counts only where it ends the life of a buffer or value."""
    return _Matching().holds(a, b)


def statements_of(body: Stmt) -> list[Stmt]:
    """The statements of a body: sequences inside it are flattened where no lifetime ends with them."""
    if not isinstance(body, Seq):
        return [body]
    found: list[Stmt] = []
    for statement in body.body:
        inner = statements_of(statement)
        ends = isinstance(statement, Seq) and any(isinstance(s, Alloc | Let | View) for s in inner)
        found.extend([Seq(tuple(inner))] if ends else inner)
    if len(found) == 1 and isinstance(found[0], Seq):
        return list(found[0].body)
    return found


class _Matching:
    """The correspondence of variables, buffers and expressions of two programs, as far as they were compared."""

    def __init__(self) -> None:
        self._there: dict[Node, Node] = {}
        self._back: dict[Node, Node] = {}
        self._views: set[Node] = set()

    def holds(self, a: object, b: object) -> bool:
        stack: list[tuple[object, object]] = [(a, b)]
        while stack:
            x, y = stack.pop()
            pairs = self._pairs(x, y)
            if pairs is None:
                return False
            stack.extend(reversed(pairs))
        return True

    def _pairs(self, x: object, y: object) -> list[tuple[object, object]] | None:
        """What must be the same for x and y to be, or None when they differ at once."""
        if isinstance(x, tuple) and isinstance(y, tuple):
            return list(zip(x, y, strict=True)) if len(x) == len(y) else None
        if not isinstance(x, Node) or not isinstance(y, Node):
            return [] if type(x) is type(y) and x == y else None
        if isinstance(x, Seq) or isinstance(y, Seq):
            if not isinstance(x, Stmt) or not isinstance(y, Stmt):
                return None
            xs, ys = statements_of(x), statements_of(y)
            if len(xs) == len(ys) == 1:
                return [(xs[0], ys[0])]
            return list(zip(xs, ys, strict=True)) if len(xs) == len(ys) else None
        if type(x) is not type(y):
            return None
        if isinstance(x, View):
            self._views.add(x.buffer)
        if not isinstance(x, Expr | Buffer):
            return list(zip(x.field_values(), y.field_values(), strict=True))
        if isinstance(x, Const):
            return [] if x is y else None
        if x in self._there or y in self._back:
            return [] if self._there.get(x) is y else None
        self._there[x], self._back[y] = y, x
        match x, y:
            case Var(), Var():
                return [(x.type, y.type), (x.least, y.least)]
            case Buffer(), Buffer():
                given = x.scope is Scope.CONSTANT and x not in self._views
                named = [(x.name, y.name)] if given else []
                return [
                    *named,
                    (x.dtype, y.dtype),
                    (x.shape, y.shape),
                    (x.scope, y.scope),
                    (x.finite, y.finite),
                    (x.shared, y.shared),
                ]
        return list(zip(x.field_values(), y.field_values(), strict=True))
