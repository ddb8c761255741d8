"""One expression becomes SSA instructions.

The emitter remembers computed values: index arithmetic as long as the place of its computation dominates, loaded values
until a store may have changed the memory or the basic block ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.arithmetic import binary, compare
from tilewright.codegen.conversions import convert
from tilewright.codegen.emitter import Emitter
from tilewright.codegen.functions import function
from tilewright.codegen.instructions import instruct
from tilewright.codegen.masked import first_lanes
from tilewright.codegen.memory import Memory, Source
from tilewright.codegen.types import element_type, value_type, vector_of
from tilewright.core.walk import preorder
from tilewright.expr.nodes import (
    And,
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Mod,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    Var,
)
from tilewright.expr.variables import bits_of, variables_of
from tilewright.loops.nodes import Instruct, Load
from tilewright.report.errors import InternalError

_NOT_PURE = bits_of(Load, Instruct)
_DIVIDES = bits_of(FloorDiv, Mod)


def _is_quotient(node: Expr) -> bool:
    """Whether an expression is a quotient or remainder, or a product with one that is by no constant: the selection of
    zero, where the divisor is, would be left with the product."""
    if isinstance(node, FloorDiv | Mod):
        return type(node.b) is not Const or node.b.value != 0
    parts = preorder(node) if isinstance(node, Mul) else ()
    return any(isinstance(part, FloorDiv | Mod) and type(part.b) is not Const for part in parts)


class Expressions:
    """Emits expressions into `out`, and their loads through `memory`."""

    def __init__(self, out: Emitter, memory: Memory) -> None:
        self.out, self.memory = out, memory

    def emit(self, root: Expr) -> str:
        """The SSA name or literal of the value of `root`."""
        stack: list[tuple[Expr, Sequence[Expr] | None]] = [] if type(root) is Const else [(root, None)]
        while stack:
            node, operands = stack.pop()
            if operands is None:  # else they have been emitted since
                if self.out.known(node) is not None or self._before_its_loop(node):
                    continue
                operands = self._operands(node)
                waiting = [c for c in operands if type(c) is not Const and self.out.known(c) is None]
                if waiting:
                    stack.append((node, operands))
                    stack += [(c, None) for c in reversed(waiting)]
                    continue
            value = self._instruction(node)
            sources = self._sources(node, operands)
            if sources:
                self.memory.remember(node, value, sources)
            else:
                self.out.scopes[-1][node] = value
        return self.out.value(root)

    def _before_its_loop(self, node: Expr) -> bool:
        """Emits a quotient or remainder, which never traps, or a product with one by no constant, before the outermost
        loop that does not change it. LLVM may leave it, or a part of it, inside the innermost loop."""
        if not self.out.loops or not node.kinds & _DIVIDES or node.kinds & _NOT_PURE:
            return False
        if node.lanes != 1 or not node.dtype.is_int or not _is_quotient(node):
            return False
        depth = max(map(self._scope, variables_of(node)), default=0)
        loop = next((loop for loop in self.out.loops if loop.scopes > depth), None)
        if loop is None:
            return False
        inside = self.out.scopes, self.out.loops, self.out.lines
        self.out.scopes, self.out.loops, self.out.lines = self.out.scopes[: loop.scopes], [], loop.before
        self.emit(node)
        self.out.scopes, self.out.loops, self.out.lines = inside
        return True

    def _scope(self, var: Var) -> int:
        """The innermost scope that gives a variable its value."""
        return next(
            (n for n in reversed(range(len(self.out.scopes))) if var in self.out.scopes[n]), len(self.out.scopes)
        )

    def _sources(self, node: Expr, operands: Sequence[Expr]) -> frozenset[Source]:
        """The memory that a value comes from."""
        found = [self.memory.origins[c] for c in operands if c in self.out.loaded]
        if isinstance(node, Load):
            found.append(frozenset((self.memory.source(node.buffer, node.indices),)))
        return frozenset().union(*found) if found else frozenset()

    def _operands(self, node: Expr) -> Sequence[Expr]:
        """What must be computed before a node: of a load, the parts of its address."""
        if isinstance(node, Load):
            return self.memory.prepare(node.buffer.shape, node.indices)[1]
        return node.children()

    def _instruction(self, node: Expr) -> str:
        match node:
            case Load(buffer, indices):
                return self.memory.load(buffer, self.memory.prepare(buffer.shape, indices)[0])
            case Binary(a, b):
                return binary(self.out, node, a, b)
            case Compare(a, b):
                return first_lanes(self.out, node) or compare(self.out, node, a, b)
            case And(a, b):
                return self.out.fresh(f"and {_type(node)} {self.out.value(a)}, {self.out.value(b)}")
            case Or(a, b):
                return self.out.fresh(f"or {_type(node)} {self.out.value(a)}, {self.out.value(b)}")
            case Not(a):
                return self.out.fresh(
                    f"xor {_type(node)} {self.out.value(a)}, {self.out.splat_literal('true', 'i1', node.lanes)}"
                )
            case Select(c, a, b):
                return self.out.select(self.out.value(c), self.out.value(a), self.out.value(b), node.dtype, node.lanes)
            case Cast(a, to):
                return convert(self.out, self.out.value(a), a.dtype, to, node.lanes)
            case Call():
                return function(self.out, node)
            case Broadcast(a, n):
                return self.out.splat(self.out.value(a), element_type(a.dtype), n)
            case Shuffle(a, b, picked):
                return self._shuffle(a, b, picked)
            case Instruct():
                return instruct(self.out, node)
            case Ramp(base, stride, n):
                return self._ramp(base, stride, n)
            case Var(name, _, _):
                raise InternalError(f"the variable {name} has no value here")
        raise InternalError(f"no instruction for {type(node).__name__}")

    def _shuffle(self, a: Expr, b: Expr, picked: tuple[int, ...]) -> str:
        vector, places = value_type(a.dtype, a.lanes), ", ".join(f"i32 {n}" for n in picked)
        second = "poison" if a is b and max(picked) < a.lanes else self.out.value(b)
        return self.out.fresh(
            f"shufflevector {vector} {self.out.value(a)}, {vector} {second}, <{len(picked)} x i32> <{places}>"
        )

    def _ramp(self, base: Expr, stride: Expr, lanes: int) -> str:
        element = element_type(base.dtype)
        vector = vector_of(element, lanes)
        steps = "<" + ", ".join(f"{element} {n}" for n in range(lanes)) + ">"
        scaled = self.out.fresh(f"mul {vector} {steps}, {self.out.splat(self.out.value(stride), element, lanes)}")
        return self.out.fresh(f"add {vector} {scaled}, {self.out.splat(self.out.value(base), element, lanes)}")


def _type(node: Expr) -> str:
    return value_type(node.dtype, node.lanes)
