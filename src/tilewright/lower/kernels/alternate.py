"""Kernels that read more constants than a cache holds run to and fro, step by step of the loop around them.

    for step in 0..n:                             for step in 0..n:
      call product(h, @w, y)            =>          call product[step % 2](h, @w, y)

    func product(h, w, y):                        func product[turn](h, w, y):
      parallel j in 0..16: …                        parallel j in 0..16 backward turn == 1: …

A cache keeps what was read last. Read in the same order again, it has lost each part just before it is due; read the
other way round, it still has as much as fits in. The largest private cache is meant; constants that fit in stay there
anyway.
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.expr.build import equal
from tilewright.expr.nodes import Const, Expr, Mod, Var, const
from tilewright.graph.nodes import Module
from tilewright.loops.edit import replace, statements, transform_statements
from tilewright.loops.nodes import Buffer, CallFunction, For, Function, LoopKind, Stmt
from tilewright.loops.passing import size_of
from tilewright.target import Target
from tilewright.target.host import Cache
from tilewright.target.transfer import kept
from tilewright.types.scopes import Scope


def alternate(module: Module, target: Target) -> Module:
    """The module whose entry calls such kernels with the direction of the step."""
    main = module.main
    if not isinstance(main, Function):
        return module
    cache = target.cache(2)
    turned: dict[str, Function] = {}

    def of_statement(node: Node) -> Node:
        inner = isinstance(node, For) and not any(isinstance(s, For) for s in statements(node.body))
        return _with_turns(node, module, cache, turned) if inner and isinstance(node, For) else node

    body = transform_statements(main.body, of_statement)
    if not turned:
        return module
    module = module.with_function(main.replace(body=body))
    for function in turned.values():
        module = module.with_function(function)
    return module


def _with_turns(loop: For, module: Module, cache: Cache, turned: dict[str, Function]) -> For:
    """The loop with the direction of the step passed to the one kernel in it that reads so many constants."""
    calls = [s for s in statements(loop.body) if isinstance(s, CallFunction)]
    large = [c for c in calls if kept(_constant_bytes(c.arguments), cache) < 1]
    if loop.kind is not LoopKind.SERIAL or len(large) != 1:
        return loop
    (call,) = large
    if call.callee not in turned:
        function = module.functions[call.callee]
        made = _turning(function, f"{call.callee}.turning") if isinstance(function, Function) else None
        if made is None:
            return loop
        turned[call.callee] = made
    step: Expr = Mod(loop.var, const(2))
    made_call = call.replace(callee=turned[call.callee].name, symbols=(step, *call.symbols))
    return loop.replace(body=replace(loop.body, call, made_call))


def _constant_bytes(arguments: tuple[Buffer, ...]) -> float:
    """The bytes of the constants among the arguments of a call."""
    sizes = [(size_of(b), b.dtype.bytes) for b in arguments if b.scope is Scope.CONSTANT]
    return sum(float(size.value) * each for size, each in sizes if isinstance(size, Const))


def _turning(function: Function, name: str) -> Function | None:
    """The function with a symbol for the direction of its outermost parallel loop; None where it has not just one."""
    loops = [s for s in _outermost(function.body) if s.kind is LoopKind.PARALLEL]
    if len(loops) != 1:
        return None
    turn = Var("turn")
    body = replace(function.body, loops[0], loops[0].replace(backward=equal(turn, 1)))
    return function.replace(name=name, symbols=(turn, *function.symbols), body=body)


def _outermost(stmt: Stmt) -> list[For]:
    if isinstance(stmt, For):
        return [stmt]
    return [loop for part in stmt.children() if isinstance(part, Stmt) for loop in _outermost(part)]
