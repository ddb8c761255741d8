"""Statements become basic blocks: loops, stores, branches, run-time checks, calls."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from tilewright.codegen.expressions import Expressions
from tilewright.codegen.types import memory_type, value_type
from tilewright.expr import dtypes
from tilewright.expr.dtypes import DType
from tilewright.expr.nodes import Const, Expr, cast
from tilewright.expr.overflow import fits
from tilewright.loops.nodes import (
    Alloc,
    Assert,
    Buffer,
    CallFunction,
    For,
    Function,
    If,
    Let,
    LoopKind,
    Publish,
    Reserve,
    Seq,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.report.errors import InternalError
from tilewright.types.scopes import Scope

FAULT_VALUES = 6
"""How many values the fault record has room for, behind its first word."""

ARENA_TOO_SMALL = -1


@dataclass(frozen=True, slots=True)
class FaultMessage:
    """What a failed assertion says: `{0}` … stand for the values, of these element types, in the fault record."""

    text: str
    dtypes: tuple[DType, ...]


class Statements(Expressions):
    """Emits the body of one function. `faults` collects the messages of all functions of a module."""

    def __init__(self, faults: list[FaultMessage], loop_metadata: str) -> None:
        super().__init__(count().__next__)
        self.faults = faults
        self.loop_metadata = loop_metadata
        self.labels = count()
        self.allocas: list[str] = []

    def branch(self, label: str) -> None:
        self.lines.append(f"  br label %{label}")

    def statement(self, stmt: Stmt) -> None:
        """Emits one statement."""
        self.begin_statement()
        match stmt:
            case Seq(body):
                self.scopes.append({})
                for inner in body:
                    self.statement(inner)
                self.scopes.pop()
            case For():
                self._loop(stmt)
            case Store(buffer, indices, value):
                self._store(buffer, indices, value)
            case Let(var, value):
                self.scopes[-1][var] = self.emit(value)
            case Alloc():
                self._alloc(stmt)
            case If(cond, then, otherwise):
                self._if(self.emit(cond), then, otherwise)
            case While(cond, body):
                self._while(cond, body)
            case Assert(cond, message, values):
                self._assert(cond, message, values)
            case CallFunction():
                self._call(stmt)
            case Reserve(size):
                self._reserve(size)
            case Publish():
                self._publish(stmt)
            case View(buffer, source):
                self.pointers[buffer] = self.pointers[source]
            case _:
                raise InternalError(f"code generation does not know the statement {type(stmt).__name__}")

    def _store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Expr) -> None:
        place, needed = self.prepare(buffer.shape, indices)
        result = self.emit(value)
        for e in needed:
            self.emit(e)
        self.store(buffer, place, result)

    def _loop(self, loop: For) -> None:
        """A counted loop, tested at the end; guarded at the start unless it is known to run."""
        if loop.kind in (LoopKind.VECTORIZE, LoopKind.UNROLL, LoopKind.THREAD):
            raise InternalError(f"a {loop.kind.value} loop reached code generation")
        begin, end = self.emit(loop.begin), self.emit(loop.end)
        n = next(self.labels)
        head, done = f"loop{n}", f"done{n}"
        runs = isinstance(loop.begin, Const) and isinstance(loop.end, Const) and loop.begin.value < loop.end.value
        before = self.label
        if runs:
            self.branch(head)
        else:
            self.lines.append(f"  br i1 {self.fresh(f'icmp slt i64 {begin}, {end}')}, label %{head}, label %{done}")
        index = f"%i{n}"
        self.start(head)
        place = len(self.lines)
        self.scopes.append({loop.var: index})
        self.statement(loop.body)
        self.scopes.pop()
        following = self.fresh(f"add nuw nsw i64 {index}, 1")
        again = self.fresh(f"icmp slt i64 {following}, {end}")
        self.lines.insert(place, f"  {index} = phi i64 [ {begin}, %{before} ], [ {following}, %{self.label} ]")
        self.lines.append(f"  br i1 {again}, label %{head}, label %{done}, !llvm.loop {self.loop_metadata}")
        self.start(done)

    def _if(self, cond: str, then: Stmt, otherwise: Stmt | None) -> None:
        n = next(self.labels)
        no = f"else{n}" if otherwise is not None else f"end{n}"
        self.lines.append(f"  br i1 {cond}, label %then{n}, label %{no}")
        for label, body in ((f"then{n}", then), (f"else{n}", otherwise)):
            if body is not None:
                self.start(label)
                self.scopes.append({})
                self.statement(body)
                self.scopes.pop()
                self.branch(f"end{n}")
        self.start(f"end{n}")

    def _while(self, cond: Expr, body: Stmt) -> None:
        n = next(self.labels)
        self.branch(f"test{n}")
        self.start(f"test{n}")
        self.scopes.append({})
        self.lines.append(f"  br i1 {self.emit(cond)}, label %turn{n}, label %end{n}")
        self.start(f"turn{n}")
        self.statement(body)
        self.scopes.pop()
        self.branch(f"test{n}")
        self.start(f"end{n}")

    def _alloc(self, alloc: Alloc) -> None:
        """Arena buffers are an offset into the arena; stack and register buffers are allocated once, on entry."""
        buffer = alloc.buffer
        if buffer.scope is Scope.ARENA:
            if alloc.offset is None:
                raise InternalError(f"the arena buffer {buffer.name} has no place in the arena")
            name = self.fresh(f"getelementptr inbounds i8, ptr %arena, i64 {self.emit(alloc.offset)}")
        else:
            elements = 1
            for extent in buffer.shape:
                if not isinstance(extent, Const):
                    raise InternalError(f"the {buffer.scope.value} buffer {buffer.name} has a size that is no constant")
                elements *= int(extent.value)
            name = f"%a{self.names()}"
            self.allocas.append(f"  {name} = alloca [{max(elements, 1)} x {memory_type(buffer.dtype)}], align 64")
        self.pointers[buffer] = name

    def _assert(self, cond: Expr, message: str, values: tuple[Expr, ...]) -> None:
        n = next(self.labels)
        self.lines.append(f"  br i1 {self.emit(cond)}, label %holds{n}, label %fails{n}")
        self.start(f"fails{n}")
        self.scopes.append({})
        shown = values[:FAULT_VALUES]
        for slot, value in enumerate(shown, 1):
            wide = cast(value, dtypes.f64 if value.dtype.is_float else dtypes.i64)
            self.lines.append(
                f"  store {value_type(wide.dtype, 1)} {self.emit(wide)}, ptr "
                f"{self.fresh(f'getelementptr inbounds i64, ptr %fault, i64 {slot}')}, align 8"
            )
        self.scopes.pop()
        self.faults.append(FaultMessage(message, tuple(v.dtype for v in shown)))
        self.lines.append(f"  ret i64 {len(self.faults)}")
        self.start(f"holds{n}")

    def _call(self, call: CallFunction) -> None:
        arguments = [f"ptr {self.pointers[b]}" for b in call.arguments]
        arguments += [f"i64 {self.emit(s)}" for s in call.symbols]
        status = self.fresh(f"call i64 @{kernel_symbol(call.callee)}({', '.join([*arguments, 'ptr %fault'])})")
        n = next(self.labels)
        self.lines.append(f"  br i1 {self.fresh(f'icmp eq i64 {status}, 0')}, label %went{n}, label %failed{n}")
        self.start(f"failed{n}")
        self.lines.append(f"  ret i64 {status}")
        self.start(f"went{n}")

    def _reserve(self, size: Expr) -> None:
        """Asks for arena memory: for more than any machine has where the size wraps around."""
        need = self.emit(size)
        exact = self.emit(fits(size))
        capped = self.fresh(f"select i1 {exact}, i64 {need}, i64 {dtypes.i64.max}") if exact != "true" else need
        n = next(self.labels)
        enough = self.fresh(f"icmp ule i64 {capped}, %arena_bytes")
        self.lines.append(f"  br i1 {enough}, label %fits{n}, label %more{n}")
        self.start(f"more{n}")
        self.lines += [f"  store i64 {capped}, ptr %fault, align 8", f"  ret i64 {ARENA_TOO_SMALL}"]
        self.start(f"fits{n}")

    def _publish(self, stmt: Publish) -> None:
        """The address and the dimensions of a result whose size only the call knows."""
        slot = self.fresh(f"getelementptr inbounds ptr, ptr %arguments, i64 {stmt.argument}")
        self.lines.append(f"  store ptr {self.pointers[stmt.buffer]}, ptr {slot}, align 8")
        for n, extent in enumerate(stmt.buffer.shape):
            at = self.fresh(f"getelementptr inbounds i64, ptr %symbols, i64 {stmt.symbol + n}")
            self.lines.append(f"  store i64 {self.emit(extent)}, ptr {at}, align 8")


def kernel_symbol(name: str) -> str:
    """The linker's name of a loops function."""
    return f'"k.{name}"'


def parameters(function: Function) -> list[str]:
    """The LLVM parameters of a loops function: buffers, symbols, the fault record."""
    buffers = [f"ptr noalias nocapture %b{n}" for n in range(len(function.params))]
    return [*buffers, *(f"i64 %s{n}" for n in range(len(function.symbols))), "ptr %fault"]
