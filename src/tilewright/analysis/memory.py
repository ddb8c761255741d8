"""Which memory statements touch, under which names: views, calls and what the caller gets are seen through.

view u = t                 of(u) = t; t and u are not plain
call f(t, y)               stored: t, y; loaded: t, y
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from functools import lru_cache

from tilewright.expr.nodes import Var
from tilewright.loops.edit import blocks, loaded_buffers, loads_of, statements, stored_buffers
from tilewright.loops.nodes import (
    Alloc,
    Block,
    Buffer,
    CallFunction,
    For,
    Function,
    If,
    Let,
    Load,
    Prefetch,
    Publish,
    Seq,
    Stmt,
    Store,
    View,
)


class Memory:
    """What the statements in some roots touch. Buffers that share memory, as views do, count as one."""

    def __init__(self, *roots: Stmt) -> None:
        shared = [_shared(s) for root in roots for s in (root.body if isinstance(root, Seq) else (root,))]
        self.sources = {view: source for views, _ in shared for view, source in views}
        self.given = {b for _, given in shared for b in given}

    def of(self, buffer: Buffer) -> Buffer:
        """The buffer whose memory this one is."""
        while buffer in self.sources:
            buffer = self.sources[buffer]
        return buffer

    def loaded(self, *stmts: Stmt) -> set[Buffer]:
        """The buffers that statements read, or pass to calls."""
        return {self.of(b) for s in stmts for b in (*loaded_buffers(s), *_shared(s)[1])}

    def stored(self, *stmts: Stmt) -> set[Buffer]:
        """The buffers that statements write, or pass to calls."""
        return {self.of(b) for s in stmts for b in (*stored_buffers(s), *_shared(s)[1])}

    def met(self, s: Stmt, reads: Set[Buffer], writes: Set[Buffer]) -> set[Buffer]:
        """The buffers over which a statement may not change places with what reads and writes these (Bernstein's
        conditions)."""
        return {b for b in self.stored(s) if b in reads or b in writes} | {b for b in self.loaded(s) if b in writes}

    def changes(self, stmts: Iterable[Stmt], buffers: Set[Buffer]) -> Iterator[tuple[Store | CallFunction, Buffer]]:
        """The stores and calls among statements that write one of these buffers, each with the first of them."""
        for s in stmts:
            if isinstance(s, Store | CallFunction) and (changed := buffers & self.stored(s)):
                yield s, min(changed, key=lambda b: b.name)

    def is_plain(self, buffer: Buffer) -> bool:
        """Whether loads and stores are all that touches a buffer: it has no view, and no call gets it."""
        return buffer not in {*self.sources, *self.sources.values(), *self.given}

    def other_use(self, s: Stmt, buffer: Buffer) -> str | None:
        """How a statement itself reaches the memory of a buffer but by its loads and stores; None where it does not."""
        own = self.of(buffer)
        match s:
            case View(made, source) if self.of(made) is own:
                return f"{source.name} and {made.name} are names of the same memory"
            case CallFunction(callee, _, arguments) if any(self.of(b) is own for b in arguments):
                return f"the call of {callee} may touch {buffer.name}"
            case Publish(b) if self.of(b) is own:
                return f"{buffer.name} is handed to the caller"
        reached = [load.buffer for load in own_loads(s)] + ([s.buffer] if isinstance(s, Store) else [])
        other = next((b for b in reached if b is not buffer and self.of(b) is own), None)
        return None if other is None else f"{other.name} is another name for the memory of {buffer.name}"


@lru_cache(maxsize=1 << 11)
def _shared(nest: Stmt) -> tuple[tuple[tuple[Buffer, Buffer], ...], tuple[Buffer, ...]]:
    """(the views in a statement, each with what it is a view of; the buffers that more than loads and stores use)."""
    inside = list(statements(nest))
    given = [b for s in inside if isinstance(s, CallFunction) for b in s.arguments]
    given += [s.buffer for s in inside if isinstance(s, Publish)]
    return tuple([(s.buffer, s.source) for s in inside if isinstance(s, View)]), tuple(given)


@lru_cache(maxsize=1 << 11)
def defined_in(nest: Stmt) -> frozenset[Buffer | Var]:
    """The buffers, views among them, and variables that begin to live in a statement."""
    inside = list(statements(nest))
    variables = [s.var for s in inside if isinstance(s, For | Let)]
    return frozenset([*variables, *(s.buffer for s in inside if isinstance(s, Alloc | View))])


@lru_cache(maxsize=1 << 11)
def own_loads(stmt: Stmt) -> tuple[Load, ...]:
    """The loads in a statement's own expressions, not those of statements inside it."""
    return tuple(dict.fromkeys(load for e in stmt.own() for load in loads_of(e)))


def allocation_of(function: Function, buffer: Buffer) -> Alloc | None:
    """Where a buffer is allocated; None of one that the function is given."""
    return next((s for s in statements(function.body) if isinstance(s, Alloc) and s.buffer is buffer), None)


def writers_of(function: Function, buffer: Buffer) -> list[Block]:
    """The blocks that store to a buffer."""
    return [b for b in blocks(function.body) if buffer in stored_buffers(b)]


def readers_of(root: Stmt, buffer: Buffer) -> list[Stmt]:
    """The statements in `root` that load from a buffer, in program order."""
    parts = root.body if isinstance(root, Seq) else (root,)
    reading = [s for part in parts if buffer in loaded_buffers(part) for s in statements(part)]
    return [s for s in reading if any(load.buffer is buffer for load in own_loads(s))]


def prefetches_of(root: Stmt, buffer: Buffer) -> list[Prefetch]:
    """The statements in `root` that prefetch a buffer, by its place in memory."""
    return [s for s in statements(root) if isinstance(s, Prefetch) and s.place.buffer is buffer]


def acts_in_blocks(stmt: Stmt) -> bool:
    """Whether nothing outside the bodies of blocks reads or writes memory, the conditions of blocks neither: all parts
    of a condition are evaluated."""
    match stmt:
        case Block():
            return not any(map(loads_of, stmt.own()))
        case Alloc() | Prefetch():
            return True
        case Seq() | For() | If() | Let():
            return all(acts_in_blocks(c) if isinstance(c, Stmt) else not loads_of(c) for c in stmt.children())
    return False
