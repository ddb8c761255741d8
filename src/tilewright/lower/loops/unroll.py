"""Writes out the iterations of `unroll` loops of constant extent, one after the other."""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.expr.nodes import And, Binary, Broadcast, Compare, Const, Expr, Or, Select, Var, binary, const
from tilewright.loops.edit import defines, fresh_copy, map_expressions, statements, transform_statements
from tilewright.loops.nodes import For, Function, If, LoopKind, Seq, Stmt, seq


def unroll(function: Function) -> Function:
    """The function without `unroll` loops; one whose extent is no constant runs serially."""

    def change(node: Node) -> Node:
        if not isinstance(node, For) or node.kind is not LoopKind.UNROLL:
            return node
        if not (isinstance(node.begin, Const) and isinstance(node.end, Const)):
            return node.replace(kind=LoopKind.SERIAL)
        values = range(int(node.begin.value), int(node.end.value))
        fresh = defines(node.body)
        copies = [_iteration(node, fresh_copy(node.body) if fresh else node.body, v) for v in values]
        if any(isinstance(s, If) and node.var in s.cond.variables for s in statements(node.body)):
            copies = [transform_statements(copy, _decided) for copy in copies]
        return seq(*copies) if copies else Seq(())

    body = transform_statements(function.body, change)
    return function if body is function.body else function.replace(body=body)


def _iteration(loop: For, body: Stmt, value: int) -> Stmt:
    """The body for one value of the loop variable. Arithmetic on constants is done on the way (indices of register
    buffers must be numbers), and what a number decides is decided."""
    var = loop.var
    memo: dict[Node, Node] = {var: const(value)}

    def settled(root: Expr) -> Expr:
        if var not in root.variables:
            return root
        stack: list[Expr] = [root]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            waiting = [c for c in node.children() if c not in memo and _names(c, var, memo)]
            if waiting:
                stack += waiting[::-1]
                continue
            memo[stack.pop()] = _folded(node, tuple([memo[c] for c in node.children()]))
        found = memo[root]
        assert isinstance(found, Expr)
        return found

    return map_expressions(body, settled, lambda stmt: var not in stmt.variables())


def _decided(node: Node) -> Node:
    """What is left of an `if` whose condition is a number."""
    if type(node) is not If or not isinstance(node.cond, Const):
        return node
    return (node.then if node.cond.value else node.otherwise) or Seq(())


def _names(e: Expr, var: Var, memo: dict[Node, Node]) -> bool:
    """Whether an expression is over the variable; what is not becomes itself."""
    if type(e) is not Var and var in e.variables:
        return True
    memo[e] = e
    return False


def _folded(node: Node, parts: tuple[Node, ...]) -> Node:
    match node:
        case Binary(a) | Compare(a) if node.lanes == 1 and a.dtype.is_int:
            first, second = parts
            assert isinstance(first, Expr)
            assert isinstance(second, Expr)
            return binary(type(node), first, second)
        case And() | Or():
            first, second = parts
            for part, other in ((first, second), (second, first)):
                if isinstance(part, Const):
                    return other if bool(part.value) is isinstance(node, And) else part
        case Select():
            cond, then, otherwise = parts
            decided = cond.a if isinstance(cond, Broadcast) else cond
            if isinstance(decided, Const):
                return then if decided.value else otherwise
    return node.rebuild(parts)
