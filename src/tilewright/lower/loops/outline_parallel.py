"""The bodies of parallel loops become functions of their own, for the thread pool to call.

    parallel i in 0..n grain 4:              =>      parallel i in 0..n grain 4:
      for j in 0..m:                                   call f.body0[m, i](x, y)
        y[i*m + j] = x[i*m + j] * 2.0
                                                     func f.body0[m, i](x: f32[n*m], y: f32[n*m]): …

What the body uses and does not define becomes parameters: buffers, those that it writes last; variables, the loop's own
last. A value that is no i64 passes through a buffer on the stack. Only the outermost parallel loops are outlined. Loops
inside them become serial; so do loops of constant extent with fewer iterations than two shares, and loops that must run
in order because an iteration may end the call: one that asserts, reserves, publishes, or repeats `while`. A loop that
uses a part of some memory and that memory under another name is serial, too: parameters never overlap.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.core.node import Node
from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.nodes import Const, Expr, Var, const
from tilewright.expr.variables import variables_of
from tilewright.graph.nodes import AnyFunction, Module
from tilewright.loops.edit import loads_of, statements, substitute_buffers, transform_statements
from tilewright.loops.nodes import (
    Alloc,
    Assert,
    Buffer,
    CallFunction,
    Enlarge,
    For,
    Function,
    Let,
    Load,
    LoopKind,
    Publish,
    Reserve,
    Stmt,
    Store,
    View,
    While,
    seq,
)
from tilewright.types.scopes import Scope


def outline_parallel(module: Module) -> Module:
    """The module with the bodies of parallel loops as functions, each behind the function that it is from."""
    names = set(module.functions)
    functions: dict[str, AnyFunction] = {}
    for name, function in module.functions.items():
        functions[name] = function
        if isinstance(function, Function):
            outliner = _Outliner(module, function, names)
            body = outliner.statement(function.body)
            if body is not function.body:
                functions[name] = function.replace(body=body)
            functions |= {f.name: f for f in outliner.made}
    if all(module.functions.get(name) is function for name, function in functions.items()):
        return module
    return replace(module, functions=functions)


def may_end_call(stmt: Stmt, module: Module, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a statement may return to the caller of the program, or run for ever."""
    for s in statements(stmt):
        if isinstance(s, Assert | Enlarge | Publish | Reserve | While):
            return True
        if isinstance(s, CallFunction):
            callee = module.functions.get(s.callee)
            known = isinstance(callee, Function) and s.callee not in seen
            if not known or may_end_call(callee.body, module, seen | {s.callee}):  # type: ignore[union-attr]
                return True
    return False


class _Outliner:
    """Rewrites one function; collects the bodies."""

    def __init__(self, module: Module, function: Function, names: set[str]) -> None:
        self.module = module
        self.function = function
        self.names = names
        self.made: list[Function] = []
        self.views: dict[Buffer, Buffer] = {}
        self.parts: dict[Buffer, Buffer] = {}
        for s in statements(function.body):
            if isinstance(s, View):
                if s.offset is None:
                    self.views[s.buffer] = self.views.get(s.source, s.source)
                else:
                    self.parts[s.buffer] = self.views.get(s.source, s.source)

    def statement(self, stmt: Stmt) -> Stmt:
        """A statement outside of parallel loops."""
        if isinstance(stmt, For) and stmt.kind is LoopKind.PARALLEL:
            if self._is_worth(stmt) and self._is_independent(stmt):
                return self._outline(stmt)
            stmt = stmt.serial()
        children = stmt.children()
        made = tuple([self.statement(c) if isinstance(c, Stmt) else c for c in children])
        return stmt.rebuild(made)

    @staticmethod
    def _is_worth(loop: For) -> bool:
        """Whether the loop may have iterations for two shares."""
        if isinstance(loop.begin, Const) and isinstance(loop.end, Const):
            return bool(loop.end.value - loop.begin.value >= 2 * loop.grain)
        return True

    def _is_independent(self, loop: For) -> bool:
        """Whether nothing in the loop needs the function around it: no way out, no place in the arena."""
        placed = any(isinstance(s, Alloc) and s.buffer.scope is Scope.ARENA for s in statements(loop.body))
        return not placed and not may_end_call(loop.body, self.module) and self._is_apart(loop.body)

    def _is_apart(self, body: Stmt) -> bool:
        """Whether the buffers that become parameters are memory of their own: no part of another one."""
        own = _viewed(body)
        used = {self.views.get(b, b) for b in _used(body) if b not in own}
        memory = []
        for b in used:
            while b in self.parts:
                b = self.parts[b]
            memory.append(b)
        return len(set(memory)) == len(memory)

    def _outline(self, loop: For) -> Stmt:
        body = transform_statements(loop.body, _run_serially)
        if self.views:
            own_views = _viewed(body)
            body = substitute_buffers(body, {v: b for v, b in self.views.items() if v not in own_views})
        before, body = self._pass_values(body)
        own = {s.buffer for s in statements(body) if isinstance(s, Alloc | View)}
        written = [b for b in self._written(body) if b not in own]
        arguments = (*(b for b in _used(body) if b not in own and b not in written), *written)
        inner = {b: b.replace(scope=Scope.STACK) for b in arguments if b.scope is Scope.REGISTER}
        params = tuple(inner.get(b, b) for b in arguments)
        body = substitute_buffers(body, inner) if inner else body
        symbols = tuple(v for v in _free(body, params) if v is not loop.var)
        name = self._name()
        over = self._over(arguments, written)
        made = Function(name, (*symbols, loop.var), params, body, len(written), self.function.source, over)
        self.made.append(made)
        return seq(*before, loop.replace(body=CallFunction(name, (*symbols, loop.var), arguments)))

    def _over(self, arguments: tuple[Buffer, ...], written: list[Buffer]) -> tuple[tuple[int, int], ...]:
        """Which of the parameters may be the same memory: those of the function around that may."""
        f = self.function
        pairs = [(f.params[source], f.params[f.inputs + output]) for source, output in f.over]
        return tuple((arguments.index(a), written.index(b)) for a, b in pairs if a in arguments and b in written)

    def _pass_values(self, body: Stmt) -> tuple[list[Stmt], Stmt]:
        """(statements that put the values that a body uses and that are no i64 on the stack; the body with them taken
        from there)."""
        before: list[Stmt] = []
        taken: list[Stmt] = []
        for value in _free(body, ()):
            if value.dtype is not dtypes.index:
                cell = Buffer(value.name, value.dtype, (const(1),), Scope.STACK)
                before += [Alloc(cell), Store(cell, (const(0),), value)]
                taken.append(Let(value, Load(cell, (const(0),))))
        return before, seq(*taken, body) if taken else body

    def _written(self, body: Stmt) -> list[Buffer]:
        """The buffers that a body may change, in order."""
        found: dict[Buffer, None] = {}
        for s in statements(body):
            if isinstance(s, Store):
                found[s.buffer] = None
            elif isinstance(s, CallFunction):
                callee = self.module.functions[s.callee]
                assert isinstance(callee, Function)
                found.update(dict.fromkeys(s.arguments[len(s.arguments) - callee.outputs :]))
        return list(found)

    def _name(self) -> str:
        number = len(self.made)
        while (name := f"{self.function.name}.body{number}") in self.names:
            number += 1
        self.names.add(name)
        return name


def _run_serially(node: Node) -> Node:
    if isinstance(node, For) and node.kind is LoopKind.PARALLEL:
        return node.serial()
    return node


def _viewed(body: Stmt) -> set[Buffer]:
    """The views that a body makes."""
    return {s.buffer for s in statements(body) if isinstance(s, View)}


def _free(body: Stmt, params: tuple[Buffer, ...]) -> list[Var]:
    """The variables that a body and the shapes of its buffers use and that it does not define, in order."""
    shapes = [b.shape for b in params] + [s.buffer.shape for s in statements(body) if isinstance(s, Alloc | View)]
    defined = {s.var for s in statements(body) if isinstance(s, For | Let)}
    extents = [extent for shape in shapes for extent in shape]
    free = body.variables().union(*map(variables_of, extents)) - defined
    if len(free) < 2:
        return list(free)
    used = [*preorder(extents), *preorder(body)]
    return list(dict.fromkeys(v for v in used if isinstance(v, Var) and v in free))


def _used(body: Stmt) -> list[Buffer]:
    """The buffers that a body reads, writes, passes on or views, in order."""
    found: dict[Buffer, None] = {}
    for s in statements(body):
        if isinstance(s, Store):
            found[s.buffer] = None
        elif isinstance(s, CallFunction):
            found.update(dict.fromkeys(s.arguments))
        elif isinstance(s, View):
            found[s.source] = None
        found.update(dict.fromkeys(load.buffer for e in s.children() if isinstance(e, Expr) for load in loads_of(e)))
    return list(found)
