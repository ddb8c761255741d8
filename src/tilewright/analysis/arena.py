"""Which buffers are where in the arena during a call: the program's entry is run for given sizes, without its
arithmetic.

    reserve 3072                            moment 0  f   writes h at 0..1024
    alloc h: f32[256] in arena at 0         moment 1  g   reads h, writes t at 1024..2048
    alloc t: f32[256] in arena at 1024      moment 2  k   reads t
    call f(x, h)
    call g(h, t)                            h is alive in moments 0 and 1, t in 1 and 2:
    call k(t, y)                            the bound is 2048, the arena has 3072 bytes

Each call of a kernel is a moment. What a moment writes is alive from then on to the last moment that reads it. The most
bytes alive in one moment are a bound: no layout does with fewer. A run also is a check of the layout, and of the lives
that it was planned with: each byte has an owner, the buffer last written there, and a kernel that reads a buffer must
find all of it still its own. Where a kernel writes over what it reads, as it says that it may, the bytes have another
owner from then on, and count once in that moment. So they do where a parameter is written over, whose bytes lie before
those of the arena.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeGuard

from tilewright.core.walk import preorder, substitute
from tilewright.expr.evaluate import evaluate
from tilewright.expr.nodes import Const, Expr, Select, Var, const
from tilewright.loops.edit import statements
from tilewright.loops.nodes import (
    Alloc,
    Assert,
    Buffer,
    CallFunction,
    Enlarge,
    For,
    Function,
    Guard,
    If,
    Let,
    Load,
    Publish,
    Reserve,
    Seq,
    Stmt,
    Store,
    View,
    While,
)
from tilewright.report.errors import InternalError
from tilewright.types.room import LINE
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class Resident:
    """A buffer of the arena: its offset and size, and the moments, first and last, of each of its lives. In a loop it
    may have several: a step that writes all of it begins another one."""

    name: str
    offset: int
    bytes: int
    lives: tuple[tuple[int, int], ...]

    @property
    def lines(self) -> int:
        """Its size in bytes with the rest of its last cache line."""
        return _lines(self.bytes)


@dataclass(frozen=True, slots=True)
class ArenaUse:
    """A run: the bytes reserved in all, what each moment calls, the buffers, and what is wrong with the layout. `over`
    are moments, with the bytes that are written over there: those of two buffers that are alive."""

    reserved: int
    moments: tuple[str, ...]
    residents: tuple[Resident, ...]
    faults: tuple[str, ...]
    over: tuple[tuple[int, int], ...] = ()

    def alive(self) -> list[int]:
        """The bytes alive in each moment."""
        changes = [0] * (len(self.moments) + 1)
        for resident in self.residents:
            for first, last in resident.lives:
                changes[first] += resident.lines
                changes[last + 1] -= resident.lines
        found, now = [], 0
        for change in changes[:-1]:
            now += change
            found.append(now)
        for moment, shared in self.over:
            found[moment] -= shared
        return found

    @property
    def bound(self) -> int:
        """The most bytes alive in one moment: an arena cannot be smaller."""
        return max(self.alive(), default=0)


class _Ends(Exception):
    """A check of the program fails for these sizes, and ends the call."""


class _Place(NamedTuple):
    """Bytes of the arena, and whose they are: a view has those of its source."""

    owner: Buffer
    begin: int
    end: int


_begin, _end = attrgetter("begin"), attrgetter("end")


def use_of_arena(
    main: Function, functions: Mapping[str, Function], sizes: Mapping[Var, int], late: Callable[[Var], int]
) -> ArenaUse:
    """The use of the arena by a program's entry, which calls `functions`, with a size for each of its symbols. `late`
    tells the dynamic sizes. A run that a check of the program ends has no moments after it."""
    run = _Run(main, functions, dict(sizes), late)
    with contextlib.suppress(_Ends):
        run.statement(main.body)
        for buffer in run.published:
            run.read(buffer)
    residents = [
        Resident(buffer.name, place.begin, place.end - place.begin, tuple((a, b) for a, b in run.lives[buffer]))
        for buffer, place in run.places.items()
        if buffer in run.lives and place.begin >= 0
    ]
    return ArenaUse(run.reserved, tuple(run.moments), tuple(residents), tuple(run.faults), tuple(run.over))


class _Run:
    """The state of a run: the values of variables, where buffers are, and which buffer owns which bytes."""

    def __init__(
        self, main: Function, functions: Mapping[str, Function], values: dict[Var, int], late: Callable[[Var], int]
    ) -> None:
        self.functions, self.values, self.late = functions, values, late
        self.uses = Counter(b for s in statements(main.body) for b in _used(s))
        self.written: dict[str, frozenset[int]] = {}
        self.places: dict[Buffer, _Place] = {}
        self.owners: list[_Place] = []  # in the order of their bytes, which no two share
        self.lives: dict[Buffer, list[list[int]]] = {}
        self.moments: list[str] = []
        self.faults: list[str] = []
        self.over: list[tuple[int, int]] = []
        self.published: list[Buffer] = []
        self.cells: dict[Buffer, Any] = {}
        self.reserved = 0
        end = 0
        for buffer in main.params[: main.inputs]:
            self.places[buffer] = _Place(buffer, end - self.bytes_of(buffer), end)
            self.owners.insert(0, self.places[buffer])
            end = self.places[buffer].begin

    def statement(self, s: Stmt) -> None:
        match s:
            case Seq(body):
                for inner in body:
                    self.statement(inner)
            case CallFunction():
                self.call(s)
            case View(buffer, source, offset):
                if source in self.places:
                    self.view(buffer, source, offset)
            case Let(var, value):
                self.values[var] = self.named(var, value)
            case For():
                for n in range(self.number(s.begin), self.number(s.end)):
                    self.values[s.var] = n
                    self.statement(s.body)
            case If(cond, then, otherwise):
                if self.value(cond):
                    self.statement(then)
                elif otherwise is not None:
                    self.statement(otherwise)
            case Assert(cond):
                if not _loads(cond) and not self.value(cond):
                    raise _Ends
            case Reserve(size):
                self.reserved = max(self.reserved, self.number(size))
            case Alloc(buffer, offset) if offset is not None:
                self.place(buffer, self.number(offset))
            case Alloc(buffer) if buffer.scope is Scope.STACK:
                self.cells[buffer] = 0
            case Store(buffer, _, value) if buffer in self.cells:
                self.cells[buffer] = self.loaded(value)
            case While(cond, body):
                self.turns(cond, body)
            case Enlarge(room, least):
                if self.number(least) > self.number(room):
                    raise _Ends
            case Publish(buffer):
                self.published.append(buffer)
            case Guard():
                return
            case _:
                raise InternalError(f"{type(s).__name__} in the entry, which only calls kernels")

    def turns(self, cond: Expr, body: Stmt) -> None:
        """A loop that ends by a condition: none to three turns, as far as the numbers that it counts allow them."""
        for _ in range(self.late(Var("turns")) % 4):
            if self.loaded(cond):
                self.statement(body)

    def loaded(self, e: Expr) -> Any:
        """A value, with the numbers that the entry counts; a truth value that a kernel makes holds."""
        known = {part: const(self.cells.get(part.buffer, 1), part.dtype) for part in preorder(e) if _is_load(part)}
        found = substitute(e, known)
        assert isinstance(found, Expr)
        return self.value(found)

    def number(self, e: Expr) -> int:
        return int(self.value(e))

    def value(self, e: Expr) -> Any:
        return e.value if isinstance(e, Const) else evaluate(e, self.values)

    def named(self, var: Var, value: Expr) -> Any:
        """The number that a name stands for: where it is loaded, one that is dynamic, and where a loaded condition
        selects it, either of the two."""
        if isinstance(value, Select):
            held = self.late(var) % 2 if _loads(value.cond) else self.value(value.cond)
            return self.named(var, value.a if held else value.b)
        if isinstance(value, Load) and value.buffer in self.cells:
            return self.cells[value.buffer]
        return self.late(var) if _loads(value) else self.value(value)

    def bytes_of(self, buffer: Buffer) -> int:
        return buffer.dtype.bytes * math.prod(self.number(extent) for extent in buffer.shape)

    def place(self, buffer: Buffer, begin: int) -> None:
        place = self.places[buffer] = _Place(buffer, begin, begin + self.bytes_of(buffer))
        if begin < 0 or begin % LINE or place.end > self.reserved:
            room = f"{self.reserved} bytes in lines of {LINE} are reserved"
            self.faults.append(f"{buffer.name} is at {begin} to {place.end}, and {room}")

    def view(self, buffer: Buffer, source: Buffer, offset: Expr | None) -> None:
        owner, begin, _ = self.places[source]
        begin += 0 if offset is None else self.number(offset) * buffer.dtype.bytes
        self.places[buffer] = _Place(owner, begin, begin + self.bytes_of(buffer))

    def call(self, s: CallFunction) -> None:
        """A moment. All that is passed is alive in it: a written buffer overlaps no other one, except an operand that
        the kernel may overwrite."""
        self.moments.append(s.callee)
        written = self.written_by(s.callee)
        passed = [b for b in s.arguments if b in self.places]
        made = {b for n, b in enumerate(s.arguments) if n in written and b in self.places}
        if not self.functions[s.callee].body.inside():  # compiled elsewhere: a buffer passed to it alone is its own
            made |= {b for b in passed if self.uses[b] == 1 and self.places[b].owner is b}
        for buffer in passed:
            if buffer not in made:
                self.read(buffer)
        for n, buffer in enumerate(passed):
            for other in passed[n + 1 :]:
                met = (buffer in made or other in made) and _overlap(self.places[buffer], self.places[other])
                if met and not self.writes_over(s, buffer, other):
                    self.faults.append(f"{s.callee} is passed {buffer.name} and {other.name}, which overlap")
        for buffer in made:
            self.write(buffer)

    def writes_over(self, s: CallFunction, source: Buffer, result: Buffer) -> bool:
        """Whether a result is in place of an operand that its kernel may overwrite: then it owns these bytes."""
        callee, (_, begin, end) = self.functions[s.callee], self.places[source]
        pairs = [(s.arguments[n], s.arguments[callee.inputs + m]) for n, m in callee.over]
        if (source, result) not in pairs or self.places[result][1:] != (begin, end):
            return False
        self.places[result] = _Place(result, begin, end)
        if begin >= 0:
            self.over.append((len(self.moments) - 1, _lines(end - begin)))
        return True

    def read(self, buffer: Buffer) -> None:
        """A use of what a buffer holds: all of it must be there."""
        owner, begin, end = self.places[buffer]
        if begin == end:
            return
        now = len(self.moments) - 1
        at = begin
        for n in range(bisect_right(self.owners, begin, key=_end), len(self.owners)):
            other = self.owners[n]
            if other.owner is not owner or other.begin > at or at >= end:
                break
            at = other.end
        if at < end:
            lost = [o.owner.name for o in self.owners if o.begin <= at < o.end]
            why = f"{lost[0]} was written there" if lost else "nothing was written there"
            self.faults.append(f"moment {now} {self.moments[now]} reads {buffer.name}: {why}")
        lives = self.lives.setdefault(owner, [[now, now]])
        lives[-1][1] = now

    def write(self, buffer: Buffer) -> None:
        """Makes the bytes of a buffer its own. All of a buffer that is no view begins a life of it."""
        owner, begin, end = self.places[buffer]
        if begin == end:
            return
        now = len(self.moments) - 1
        lives = self.lives.setdefault(owner, [])
        whole = self.places[owner]
        if not lives or (begin, end) == (whole.begin, whole.end):
            lives.append([now, now])
        lives[-1][1] = now
        first = bisect_right(self.owners, begin, key=_end)
        last = bisect_left(self.owners, end, key=_begin)
        met = self.owners[first:last]
        before = [met[0]._replace(end=begin)] if met and met[0].begin < begin else []
        behind = [met[-1]._replace(begin=end)] if met and met[-1].end > end else []
        self.owners[first:last] = [*before, _Place(owner, begin, end), *behind]

    def written_by(self, name: str) -> frozenset[int]:
        """The numbers of the parameters that a function stores to, or hands on to one that does."""
        if name not in self.written:
            self.written[name] = frozenset()
            self.written[name] = _written_by(self.functions[name], self.written_by)
        return self.written[name]


def _written_by(function: Function, called: Callable[[str], frozenset[int]]) -> frozenset[int]:
    memory: dict[Buffer, Buffer] = {}
    found: set[Buffer] = set()
    for s in statements(function.body):
        match s:
            case View(buffer, source):
                memory[buffer] = memory.get(source, source)
            case Store(buffer):
                found.add(memory.get(buffer, buffer))
            case CallFunction(callee, _, arguments):
                found.update(memory.get(arguments[n], arguments[n]) for n in called(callee))
    outputs = range(len(function.params) - function.outputs, len(function.params))
    return frozenset(n for n, p in enumerate(function.params) if n in outputs or p in found)


def _used(s: Stmt) -> tuple[Buffer, ...]:
    """The buffers that a statement of the entry passes on."""
    match s:
        case CallFunction():
            return s.arguments
        case View():
            return (s.source,)
        case Publish():
            return (s.buffer,)
    return ()


def _loads(e: Expr) -> bool:
    return any(isinstance(node, Load) for node in preorder(e))


def _is_load(part: object) -> TypeGuard[Load]:
    return isinstance(part, Load)


def _lines(size: int) -> int:
    """Bytes with the rest of the last cache line."""
    return -(-size // LINE) * LINE


def _overlap(a: _Place, b: _Place) -> bool:
    return max(a.begin, b.begin) < min(a.end, b.end)
