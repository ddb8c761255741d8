"""Statements become basic blocks: loops, stores, branches, run-time checks, calls."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from tilewright.codegen import tiles
from tilewright.codegen.abi import ARENA_TOO_SMALL, FAULT_VALUES, PARALLEL, ROOM_TOO_SMALL, FaultMessage
from tilewright.codegen.emitter import Emitter, OpenLoop
from tilewright.codegen.expressions import Expressions
from tilewright.codegen.idle_loops import acts
from tilewright.codegen.interrupts import COUNT, DECLARATION, look
from tilewright.codegen.masked import Failing
from tilewright.codegen.memory import Memory
from tilewright.codegen.names import forked_call, kernel_symbol, share_symbol
from tilewright.codegen.parts import is_wanted
from tilewright.codegen.pool import DECLARE_PARALLEL
from tilewright.codegen.profile import BEGIN, END
from tilewright.codegen.types import memory_type, value_type
from tilewright.codegen.unseen_lanes import steady_masks, written_whole
from tilewright.core.walk import preorder
from tilewright.expr import dtypes
from tilewright.expr.build import cast, select
from tilewright.expr.nodes import Const, Expr, Var
from tilewright.expr.overflow import fits
from tilewright.loops.address import reads_one
from tilewright.loops.nodes import (
    Alloc,
    Assert,
    Buffer,
    CallFunction,
    Enlarge,
    Fence,
    For,
    Function,
    Guard,
    If,
    Instruct,
    Let,
    Load,
    LoopKind,
    Prefetch,
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

STRAIGHT = (Store, Let, Seq, Alloc, View)
"""Statements after which control goes on where they stand."""

OUTER, INNERMOST = "!0", "!4"
"""The metadata of loops: see module.py."""

INSTANT = (Let, Seq, Alloc, View, CallFunction)
"""Statements that take no time themselves, as far as a profile goes."""


class Statements:
    """Emits the body of one function. `faults` collects the messages of all functions of a unit. Of functions of other
    units, `before` knows how many messages come before theirs; `others` collects the declarations of those called;
    `sites`, which a program has, the functions it calls, each timed where somebody asks (profile.py); `rooms` has the
    places of its symbols among the caller's sizes; `looks` says whether a loop of it can be interrupted, `by_parts`
    whether a call may run some of its kernels (parts.py)."""

    def __init__(self, faults: list[FaultMessage], before: Mapping[str, int] | None = None) -> None:
        self.out = Emitter()
        self.memory = Memory(self.out)
        self.lanes = self.memory.lanes
        self.emit = Expressions(self.out, self.memory).emit
        self.tables: dict[Buffer, tuple[str, int]] = {}
        self.faults = faults
        self.before: Mapping[str, int] = before or {}
        self.others: set[str] = set()
        self.labels = count()
        self.whole: set[Stmt] = set()
        self.rooms: dict[Var, int] = {}
        self.sites: list[str] | None = None
        self.by_parts = False
        self.looks = False
        self._ended: str | None = None
        self._innermost = False

    def branch(self, label: str) -> None:
        self.out.lines.append(f"  br label %{label}")

    def statement(self, stmt: Stmt) -> None:
        """Emits one statement."""
        straight, instant = isinstance(stmt, STRAIGHT), isinstance(stmt, INSTANT)
        if not straight:
            self.memory.forget()
        if not instant:
            self._ended = None
        self._statement(stmt)
        if not straight:
            self.memory.forget()
        if not instant:
            self._ended = None

    def body(self, stmt: Stmt) -> None:
        """Emits what begins a basic block."""
        self.memory.forget()
        self._ended = None
        self.statement(stmt)

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Seq(body):
                self.whole |= written_whole(body)
                self.out.scopes.append({})
                for part in body:
                    self.statement(part)
                self.out.scopes.pop()
            case For():
                call = forked_call(stmt)
                self._loop(stmt) if call is None else self._fork(stmt, call)
            case Store(buffer, indices, value):
                self._store(buffer, indices, value, stmt in self.whole)
            case Let(var, value):
                self.out.scopes[-1][var] = self.emit(value)
            case Alloc():
                self._alloc(stmt)
            case If() if stmt.cond.lanes > 1:
                self._lanes(stmt)
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
            case Enlarge(room, least):
                self._enlarge(room, least)
            case Prefetch(place, level):
                self._prefetch(place, level)
            case Fence():  # no instruction: an order of loads that LLVM keeps
                self.out.lines.append('  fence syncscope("singlethread") seq_cst')
            case Publish():
                self._publish(stmt)
            case Guard(begin, end):
                self._guard(begin, end)
            case View(buffer, source, offset):
                self._view(buffer, source, offset)
            case _:
                raise InternalError(f"code generation does not know the statement {type(stmt).__name__}")

    def _store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Expr, whole: bool) -> None:
        if isinstance(value, Instruct) and value.instruction.has_tiles:
            tiles.store(self.out, self.memory, self.emit, Load(buffer, indices), value)
            return
        place, needed = self.memory.prepare(buffer.shape, indices)
        self.memory.copying = isinstance(value, Load)
        result = self.emit(value)
        self.memory.copying = False
        for e in needed:
            self.emit(e)
        self.memory.store(buffer, place, result, whole)
        source = self.memory.source(buffer, indices)
        self.memory.overwritten(source)
        apart = place.lanes == 1 or (isinstance(place.stride, Const) and place.stride.value != 0 and not place.index)
        if self.lanes.mask is None and apart and not buffer.dtype.is_bool:
            self.memory.remember(Load(buffer, indices), result, frozenset((source,)))

    def _loop(self, loop: For) -> None:
        """A counted loop, tested at the end; guarded at the start unless it is known to run."""
        if loop.kind not in (LoopKind.SERIAL, LoopKind.PARALLEL):
            raise InternalError(f"a {loop.kind.value} loop reached code generation")
        begin, end = self.emit(loop.begin), self.emit(loop.end)
        for mask in steady_masks(loop):
            self.emit(mask)
        n = next(self.labels)
        head, done = f"loop{n}", f"done{n}"
        runs = isinstance(loop.begin, Const) and isinstance(loop.end, Const) and loop.begin.value < loop.end.value
        needed = None if self.out.loops else acts(loop)
        guard = None if needed is None else self.emit(needed)
        before, start = self.out.label, len(self.out.lines)
        if guard is not None:
            self.out.lines.append(f"  br i1 {guard}, label %{head}, label %{done}")
        elif runs:
            self.branch(head)
        else:
            self.out.lines.append(
                f"  br i1 {self.out.fresh(f'icmp slt i64 {begin}, {end}')}, label %{head}, label %{done}"
            )
        index = f"%i{n}"
        self.out.start(head)
        place = len(self.out.lines)
        self.out.loops.append(OpenLoop(len(self.out.scopes)))
        self.out.scopes.append({loop.var: index})
        self._innermost = True
        self.body(loop.body)
        self.out.scopes.pop()
        if any(isinstance(s, CallFunction) for s in (loop.body, *loop.body.inside())):
            self._look()
        metadata = INNERMOST if self._innermost else OUTER
        self._innermost = False
        following = self.out.fresh(f"add nuw nsw i64 {index}, 1")
        again = self.out.fresh(f"icmp slt i64 {following}, {end}")
        self.out.lines.insert(place, f"  {index} = phi i64 [ {begin}, %{before} ], [ {following}, %{self.out.label} ]")
        self.out.lines.append(f"  br i1 {again}, label %{head}, label %{done}, !llvm.loop {metadata}")
        self.out.lines[start:start] = self.out.loops.pop().before
        self.out.start(done)

    def _fork(self, loop: For, call: CallFunction) -> None:
        """A loop for the pool: what its body needs goes into a record on the stack."""
        given = [f"ptr {self._handed(b)}" for b in call.arguments]
        given += [f"i64 {self.emit(s)}" for s in call.symbols[:-1]]
        if loop.backward is not None:
            given.append(f"i64 {self.emit(select(loop.backward, 1, 0))}")
        begin, end = self.emit(loop.begin), self.emit(loop.end)
        record = f"%a{self.out.names()}"
        self.out.allocas.append(f"  {record} = alloca [{max(len(given), 1)} x i64], align 64")
        for n, value in enumerate(given):
            place = self.out.fresh(f"getelementptr inbounds i64, ptr {record}, i64 {n}")
            self.out.lines.append(f"  store {value}, ptr {place}, align 8")
        self.out.declarations.add(DECLARE_PARALLEL)
        self.out.lines.append(
            f"  call void @{PARALLEL}(ptr @{share_symbol(call.callee)}, ptr {record}, i64 {begin}, i64 {end}, "
            f"i64 {loop.grain}, ptr %team)"
        )

    def _if(self, cond: str, then: Stmt, otherwise: Stmt | None) -> None:
        n = next(self.labels)
        no = f"else{n}" if otherwise is not None else f"end{n}"
        self.out.lines.append(f"  br i1 {cond}, label %then{n}, label %{no}")
        for label, body in ((f"then{n}", then), (f"else{n}", otherwise)):
            if body is not None:
                self.out.start(label)
                self.out.scopes.append({})
                self.body(body)
                self.out.scopes.pop()
                self.branch(f"end{n}")
        self.out.start(f"end{n}")

    def _lanes(self, stmt: If) -> None:
        """A branch in lanes: both sides run, each under its mask; not at all where the mask holds in no lane, as far as
        that matters: for what is read once for all lanes, and for loops."""
        count = stmt.cond.lanes
        held = self.emit(stmt.cond)
        sides = [(held, stmt.then)]
        if stmt.otherwise is not None:
            sides.append((self.lanes.complement(held, count), stmt.otherwise))
        for mask, body in sides:
            with self.lanes.only(mask, count):
                if any(isinstance(n, For) or (isinstance(n, Load) and reads_one(n)) for n in preorder(body)):
                    self._if(self.lanes.any_lane(count), body, None)
                    continue
                self.body(body)

    def _while(self, cond: Expr, body: Stmt) -> None:
        n = next(self.labels)
        self.branch(f"test{n}")
        self.out.start(f"test{n}")
        self.out.scopes.append({})
        self.out.lines.append(f"  br i1 {self.emit(cond)}, label %turn{n}, label %end{n}")
        self.out.start(f"turn{n}")
        self.body(body)
        self.out.scopes.pop()
        self._look()
        self.branch(f"test{n}")
        self.out.start(f"end{n}")

    def _look(self) -> None:
        """Ends the step of a loop of a program, which is where the call can be interrupted."""
        if self.sites is None:
            return
        self.out.allocas += [] if self.looks else COUNT
        self.out.declarations |= {DECLARATION}
        self.looks = True
        n = next(self.labels)
        self.out.lines += look(n, f"%v{self.out.names()}")
        self.out.start(f"on{n}")

    def _alloc(self, alloc: Alloc) -> None:
        """Arena buffers are an offset into the arena; stack and register buffers are allocated once, on entry."""
        buffer = alloc.buffer
        if buffer.scope is Scope.ARENA:
            if alloc.offset is None:
                raise InternalError(f"the arena buffer {buffer.name} has no place in the arena")
            name = self.out.fresh(f"getelementptr inbounds i8, ptr %arena, i64 {self.emit(alloc.offset)}")
        else:
            elements = 1
            for extent in buffer.shape:
                if not isinstance(extent, Const):
                    raise InternalError(f"the {buffer.scope.value} buffer {buffer.name} has a size that is no constant")
                elements *= int(extent.value)
            name = f"%a{self.out.names()}"
            self.out.allocas.append(f"  {name} = alloca [{max(elements, 1)} x {memory_type(buffer.dtype)}], align 64")
        self.memory.pointers[buffer] = name

    def _assert(self, cond: Expr, message: str, values: tuple[Expr, ...]) -> None:
        held, failing = self.emit(cond), None
        if cond.lanes > 1 or self.lanes.mask is not None:
            held, failing = self.lanes.failing(held, cond.lanes)
        self._end_unless(held, message, values, failing)

    def _end_unless(self, held: str, message: str, values: tuple[Expr, ...], failing: Failing | None = None) -> None:
        """Ends the call with a message where a truth value does not hold. Of values with lanes, those of the first
        failing lane are told."""
        n = next(self.labels)
        self.out.lines.append(f"  br i1 {held}, label %holds{n}, label %fails{n}")
        self.out.start(f"fails{n}")
        self.out.scopes.append({})
        shown = values[:FAULT_VALUES]
        for slot, value in enumerate(shown, 1):
            wide = cast(value, dtypes.f64 if value.dtype.is_float else dtypes.i64)
            told = self.emit(wide)
            if wide.lanes > 1:
                assert failing is not None
                told = self.lanes.first(failing, told, wide.dtype)
            self.out.lines.append(
                f"  store {value_type(wide.dtype, 1)} {told}, ptr "
                f"{self.out.fresh(f'getelementptr inbounds i64, ptr %fault, i64 {slot}')}, align 8"
            )
        self.out.scopes.pop()
        self.faults.append(FaultMessage(message, tuple(v.dtype for v in shown)))
        self.out.lines.append(f"  ret i64 {len(self.faults)}")
        self.out.start(f"holds{n}")

    def _handed(self, buffer: Buffer) -> str:
        """The pointer of a buffer that is handed on. One out of a table is read there once more: held from the start of
        a program to its call, thousands of them take LLVM time that grows with their square."""
        table = self.tables.get(buffer)
        return self.memory.pointers[buffer] if table is None else self.out.element("ptr", *table)

    def _call(self, call: CallFunction) -> None:
        symbols, n = [f"i64 {self.emit(s)}" for s in call.symbols], next(self.labels)
        begun, around = self._ended, self.out.label
        if self.by_parts and self.sites is not None:
            begun = self._ended = begun or self.out.fresh(f"call i64 @{BEGIN}(ptr %profile)")
            self.out.lines += is_wanted(len(self.sites), n)
            self.out.lines.append(f"  br i1 %wanted{n}, label %run{n}, label %next{n}")
            self.out.start(f"run{n}")
        arguments = [*(f"ptr {self._handed(b)}" for b in call.arguments), *symbols, "ptr %fault", "ptr %team"]
        symbol, before = kernel_symbol(call.callee), self.before.get(call.callee)
        if before is not None:
            self.others.add(f"declare i64 @{symbol}({', '.join(a.split()[0] for a in arguments)})")
        status = self._timed(call.callee, f"call i64 @{symbol}({', '.join(arguments)})")
        self.out.lines.append(f"  br i1 {self.out.fresh(f'icmp eq i64 {status}, 0')}, label %went{n}, label %failed{n}")
        self.out.start(f"failed{n}")
        number = self.out.fresh(f"add i64 {status}, {before}") if before else status
        self.out.lines.append(f"  ret i64 {number}")
        self.out.start(f"went{n}")
        if self.by_parts and self.sites is not None:
            self.branch(f"next{n}")
            self.out.start(f"next{n}")
            self._ended = self.out.fresh(f"phi i64 [ {self._ended}, %went{n} ], [ {begun}, %{around} ]")

    def _timed(self, callee: str, call: str) -> str:
        """The status of a call, between its notes where it stands in a program."""
        if self.sites is None:
            return self.out.fresh(call)
        site = len(self.sites)
        self.sites.append(callee)
        began = self._ended or self.out.fresh(f"call i64 @{BEGIN}(ptr %profile)")
        status = self.out.fresh(call)
        self._ended = self.out.fresh(f"call i64 @{END}(ptr %profile, i64 {site}, i64 {began})")
        return status

    def _reserve(self, size: Expr) -> None:
        """Asks for arena memory: for more than any machine has where the size wraps around."""
        need = self._capped(size)
        enough = self.out.fresh(f"icmp ule i64 {need}, %arena_bytes")
        self._unless(enough, need, ARENA_TOO_SMALL)

    def _capped(self, size: Expr) -> str:
        """A number, or the greatest of 64 bits where computing it wraps around."""
        need = self.emit(size)
        exact = self.emit(fits(size))
        return self.out.fresh(f"select i1 {exact}, i64 {need}, i64 {dtypes.i64.max}") if exact != "true" else need

    def _unless(self, enough: str, need: str, status: int) -> None:
        """Returns to the caller with the number that is needed, unless there is enough."""
        n = next(self.labels)
        self.out.lines.append(f"  br i1 {enough}, label %fits{n}, label %more{n}")
        self.out.start(f"more{n}")
        self.out.lines += [f"  store i64 {need}, ptr %fault, align 8", f"  ret i64 {status}"]
        self.out.start(f"fits{n}")

    def _enlarge(self, room: Var, least: Expr) -> None:
        """Asks for a larger symbol: its place among the caller's sizes is told by the status."""
        need = self._capped(least)
        enough = self.out.fresh(f"icmp sle i64 {need}, {self.emit(room)}")
        self._unless(enough, need, ROOM_TOO_SMALL - self.rooms[room])

    def _guard(self, begin: Expr, end: Expr) -> None:
        """Forbids every access to pages of the arena."""
        self.out.declarations.add("declare i32 @mprotect(ptr, i64, i32)")
        first, length = self.emit(begin), self.emit(end - begin)
        place = self.out.fresh(f"getelementptr inbounds i8, ptr %arena, i64 {first}")
        refused = self.out.fresh(f"call i32 @mprotect(ptr {place}, i64 {length}, i32 0)")
        self._end_unless(self.out.fresh(f"icmp eq i32 {refused}, 0"), "the system gives no guard pages", ())

    def _prefetch(self, load: Load, level: int) -> None:
        """Into the caches from a level on, for reading; the address may be anything."""
        place, needed = self.memory.prepare(load.buffer.shape, load.indices)
        for e in needed:
            self.emit(e)
        self.memory.prefetch(load.buffer, place, level)

    def _view(self, buffer: Buffer, source: Buffer, offset: Expr | None) -> None:
        start = self.memory.pointers[source]
        if offset is not None:
            self.memory.parts[buffer] = self.memory.parts.get(source, start)
            start = self.out.fresh(
                f"getelementptr inbounds {memory_type(buffer.dtype)}, ptr {start}, i64 {self.emit(offset)}"
            )
        elif source in self.memory.parts:
            self.memory.parts[buffer] = self.memory.parts[source]
        self.memory.pointers[buffer] = start

    def _publish(self, stmt: Publish) -> None:
        """The address and the dimensions of a result whose size only the call knows."""
        slot = self.out.fresh(f"getelementptr inbounds ptr, ptr %arguments, i64 {stmt.argument}")
        self.out.lines.append(f"  store ptr {self.memory.pointers[stmt.buffer]}, ptr {slot}, align 8")
        for n, extent in enumerate(stmt.buffer.shape):
            at = self.out.fresh(f"getelementptr inbounds i64, ptr %symbols, i64 {stmt.symbol + n}")
            self.out.lines.append(f"  store i64 {self.emit(extent)}, ptr {at}, align 8")


def parameters(function: Function) -> list[str]:
    """The LLVM parameters of a loops function: buffers, symbols, the fault record, the team of the call."""
    return [*pointers(function), *(f"i64 %s{n}" for n in range(len(function.symbols))), "ptr %fault", "ptr %team"]


def pointers(function: Function) -> list[str]:
    """The LLVM parameters for buffers: apart from one another, but for those that may be written over."""
    shared = {n for source, output in function.over for n in (source, function.inputs + output)}
    return [f"ptr {'' if n in shared else 'noalias '}nocapture %b{n}" for n in range(len(function.params))]
