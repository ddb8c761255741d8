"""With TILEWRIGHT_CHECK=1: each buffer of the arena in pages of its own, between pages that nobody may touch.

    reserve 1024                               reserve 20480
    alloc h: f32[200] in arena at 0      =>    alloc turn: i64[1] in arena at 0
    call f(x, h)                               let at_end = select(turn[0] == 0, 0, 1)
                                               guard 4096..8192
                                               guard 12288..16384
                                               alloc pages: f32[1024] in arena at 8192
                                               view h: f32[200] = pages at at_end*824
                                               call f(x, h)

The first word of the arena is the caller's. Where it is 0, buffers begin where a guard ends, so that an access in front
of one faults; otherwise they end where a guard begins. No two buffers share memory, so the arena is larger than the one
that was planned. Buffers whose sizes are known at one point of the program are laid out together there. Those whose
sizes a step of a loop decides stay where they were planned, in memory of that size in front of all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.core.walk import preorder
from tilewright.expr.build import equal, maximum, select
from tilewright.expr.nodes import Const, Expr, FloorDiv, Var, const
from tilewright.expr.simplify import simplify
from tilewright.graph.nodes import Module
from tilewright.loops.edit import map_statements, statements
from tilewright.loops.nodes import Alloc, Assert, Buffer, Function, Guard, Let, Load, Reserve, Stmt, View, While, seq
from tilewright.loops.same import statements_of
from tilewright.report import settings
from tilewright.target import Target
from tilewright.target.code_pages import ALIGNMENT
from tilewright.types.scopes import Scope


def guard_buffers(module: Module, target: Target) -> Module:
    """The module with guarded buffers, where the setting asks for it."""
    main = module.functions.get(module.entry)  # kernels alone have no entry
    if not settings.CHECK.read() or not isinstance(main, Function):
        return module
    body = statements_of(main.body)
    if not any(isinstance(s, Alloc) and s.offset is not None for s in body):
        return module
    return module.with_function(main.replace(body=seq(*_Guarded(body, target).statements())))


class _Guarded:
    """The statements of an entry with its buffers in pages of their own."""

    def __init__(self, body: Sequence[Stmt], target: Target) -> None:
        self._body = body
        self._page = target.page if target.architecture == "x86_64" else ALIGNMENT
        self._protects = "windows" not in target.triple
        self._top: Expr = const(2 * self._page)
        self._at_end = Var("at_end")
        self._inner = {b for s in body if isinstance(s, While) for b in _placed_in(s)}
        self._first = self._top
        if self._inner:
            planned = next(s.bytes for s in body if isinstance(s, Reserve))
            self._top = self._top + self._whole(planned) + self._page
        self._views: dict[Buffer, tuple[Stmt, ...]] = {}

    def statements(self) -> Iterator[Stmt]:
        groups = self._groups()
        for n in range(len(self._body) + 1):
            if n in groups:
                yield from self._lay_out(groups[n], first=n == min(groups))
            if n == len(self._body):
                return
            s = self._body[n]
            if isinstance(s, Alloc) and s.offset is not None:
                yield from self._views[s.buffer]
            elif not isinstance(s, Reserve):
                yield map_statements(s, self._moved) if isinstance(s, While) else s

    def _moved(self, s: Stmt) -> Stmt:
        """A statement of a loop: buffers there are behind the caller's word."""
        if isinstance(s, Alloc) and s.offset is not None and s.buffer in self._inner:
            return s.replace(offset=s.offset + self._first)
        return s

    def _groups(self) -> dict[int, list[Buffer]]:
        """The buffers by the statement before which their sizes are known and checked."""
        named: dict[Var, int] = {s.var: n for n, s in enumerate(self._body) if isinstance(s, Let)}
        found: dict[int, list[Buffer]] = {}
        for s in self._body:
            if isinstance(s, Alloc) and s.offset is not None:
                found.setdefault(self._known_at(s.buffer, named), []).append(s.buffer)
        return dict(sorted(found.items()))

    def _known_at(self, buffer: Buffer, named: Mapping[Var, int]) -> int:
        places = [named[v] + 1 for d in buffer.shape for v in preorder(d) if isinstance(v, Var) and v in named]
        place = max(places, default=0)
        while place < len(self._body) and place and isinstance(self._body[place], Assert):
            place += 1
        return place

    def _lay_out(self, buffers: list[Buffer], first: bool) -> Iterator[Stmt]:
        """Pages for buffers above all others; before the first of them, the caller's word."""
        guards = [Guard(const(self._page), const(2 * self._page))] if first else []
        for buffer in buffers:
            begin, size = self._top, self._whole_pages(buffer)
            guards.append(Guard(begin + size, begin + size + self._page))
            self._views[buffer] = self._placed(buffer, begin, size)
            self._top = begin + size + self._page
        yield Reserve(self._top)
        if first:
            turn = Buffer("turn", self._at_end.dtype, (const(1),), Scope.ARENA)
            yield Alloc(turn, const(0))
            yield Let(self._at_end, select(equal(Load(turn, (const(0),)), 0), 0, 1))
        yield from guards if self._protects else ()

    def _placed(self, buffer: Buffer, begin: Expr, size: Expr) -> tuple[Stmt, ...]:
        """A buffer in its pages: at their end or at their beginning."""
        pages = Buffer("pages", buffer.dtype, (simplify(FloorDiv(size, const(buffer.dtype.bytes))),), Scope.ARENA)
        free = simplify(pages.shape[0] - _elements(buffer))
        return Alloc(pages, begin), View(buffer, pages, self._at_end * free)

    def _whole_pages(self, buffer: Buffer) -> Expr:
        return self._whole(simplify(maximum(_elements(buffer) * buffer.dtype.bytes, 0)))

    def _whole(self, size: Expr) -> Expr:
        """A number of bytes in whole pages."""
        if isinstance(size, Const):
            return const(-(-int(size.value) // self._page) * self._page)
        return FloorDiv(size + (self._page - 1), const(self._page)) * self._page


def _placed_in(loop: Stmt) -> list[Buffer]:
    """The buffers in the arena that a loop makes."""
    return [s.buffer for s in statements(loop) if isinstance(s, Alloc) and s.offset is not None]


def _elements(buffer: Buffer) -> Expr:
    total: Expr = const(1)
    for extent in buffer.shape:
        total = total * extent
    return simplify(total)
