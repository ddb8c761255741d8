"""What all parts of code generation write to: fresh names, vectors, selections, calls of intrinsics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from tilewright.codegen.types import literal, suffix, value_type, vector_of
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.report.errors import InternalError
from tilewright.target.instructions import Instruction


@dataclass(slots=True)
class OpenLoop:
    """A loop whose body is being emitted: the number of scopes around it, and the instructions that run before it."""

    scopes: int
    before: list[str] = field(default_factory=list)


class Emitter:
    """Takes the instructions of a function into `lines`, and remembers the value of each expression.

    `scopes` has values that are valid while a scope is open, also the results of some instructions by their text;
    `loaded` has values loaded from memory, `tiles` those of them in tiles, the last used one last; `loops` has the
    loops around the emitted code, outermost first; `allocas` are the instructions at the start of the function.
    `converts_f16` says whether any cast is between f16 and f32, for which a target needs instructions; `byte_dots` are
    those that the target has for `dot_bytes`, by their lanes; `casts_saturate` is the target's."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.names = count().__next__
        self.scopes: list[dict[Expr | str, str]] = [{}]
        self.loaded: dict[Expr, str] = {}
        self.tiles: list[Expr] = []
        self.loops: list[OpenLoop] = []
        self.declarations: set[str] = set()
        self.label = "entry"
        self.converts_f16 = False
        self.byte_dots: Mapping[int, Instruction] = {}
        self.casts_saturate = False

    def start(self, label: str) -> None:
        """Begins a basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    def fresh(self, instruction: str) -> str:
        """Emits an instruction and returns the name of its result."""
        name = f"%v{self.names()}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def once(self, instruction: str) -> str:
        """The result of an instruction without effects, which is emitted unless an open scope has the same."""
        name = self.in_scope(instruction)
        if name is None:
            name = self.scopes[-1][instruction] = self.fresh(instruction)
        return name

    def known(self, e: Expr) -> str | None:
        """The name of the value of an expression that has been computed where it can still be used."""
        name = self.loaded.get(e)
        if name is None:
            for scope in reversed(self.scopes):
                name = scope.get(e)
                if name is not None:
                    break
        return name

    def in_scope(self, key: Expr | str) -> str | None:
        """The name of what has been computed in a scope that is still open."""
        for scope in reversed(self.scopes):
            name = scope.get(key)
            if name is not None:
                return name
        return None

    def value(self, e: Expr) -> str:
        """The name of a value that has been emitted, or the literal of a constant."""
        if type(e) is Const:
            return literal(e)
        name = self.known(e)
        if name is None:
            raise InternalError(f"{e} is used before it is computed")
        return name

    def define(self, var: Var, value: str) -> None:
        """Gives a variable its value for the rest of the scope."""
        self.scopes[-1][var] = value

    def element(self, type_: str, table: str, n: int) -> str:
        """An element of an array of pointers or sizes that the caller gives."""
        place = self.fresh(f"getelementptr inbounds {type_}, ptr {table}, i64 {n}")
        return self.fresh(f"load {type_}, ptr {place}, align 8")

    def splat(self, scalar: str, element: str, lanes: int) -> str:
        """A scalar in every lane."""
        if not scalar.startswith("%"):
            return self.splat_literal(scalar, element, lanes)
        vector = vector_of(element, lanes)
        first = self.fresh(f"insertelement {vector} poison, {element} {scalar}, i32 0")
        return self.fresh(f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer")

    @staticmethod
    def splat_literal(scalar: str, element: str, lanes: int) -> str:
        return scalar if lanes == 1 else f"splat ({element} {scalar})"

    def select(self, cond: str, a: str, b: str, dtype: DType, lanes: int) -> str:
        t = value_type(dtype, lanes)
        return self.fresh(f"select {value_type(dtypes.bool_, lanes)} {cond}, {t} {a}, {t} {b}")

    def intrinsic(
        self, name: str, dtype: DType, lanes: int, arguments: list[str], extra: str = "", flags: str = ""
    ) -> str:
        """A call, with LLVM's `flags`, of an overloaded intrinsic whose arguments and result have one type."""
        t = value_type(dtype, lanes)
        full = f"@{name}.{suffix(dtype, lanes)}"
        types = ", ".join([t] * len(arguments)) + (", i1" if extra else "")
        self.declarations.add(f"declare {t} {full}({types})")
        given = ", ".join(f"{t} {a}" for a in arguments) + (f", {extra}" if extra else "")
        return self.fresh(f"call {flags}{t} {full}({given})")
