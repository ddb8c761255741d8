"""With TILEWRIGHT_CHECK=1: every access asserts that it is inside its buffer.

    y[i*8:i*8 + 8] = x[i*8:i*8 + 8]     =>     assert 0 <= i*8 + lane and i*8 + lane < n, "f reads element {0} of x, …"
                                               assert 0 <= i*8 + lane and i*8 + lane < n, "f writes element {0} of y, …"
                                               y[i*8:i*8 + 8] = x[i*8:i*8 + 8]

This is the last pass, so that what is checked is what code generation is given: whole vectors, masks, unrolled tiles.
Masked-off lanes are no accesses, and neither are prefetches. Calls assert that each buffer has as many elements as the
function takes, views that they are inside their source. What is inside for certain, constants compared with constants,
is not asserted again. Parallel loops run in order, because a failed check ends the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilewright.core.walk import substitute
from tilewright.expr.build import conjunction, less, less_equal
from tilewright.expr.nodes import And, Broadcast, Const, Expr, Or, const
from tilewright.expr.simplify import simplify
from tilewright.graph.nodes import AnyFunction, Module
from tilewright.loops.address import address, is_inside
from tilewright.loops.edit import loads_of
from tilewright.loops.nodes import (
    Assert,
    Buffer,
    CallFunction,
    For,
    Function,
    If,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
    View,
    While,
    seq,
)
from tilewright.lower.loops.flatten_buffers import address as row_major
from tilewright.report import settings

Access = tuple[Buffer, tuple[Expr, ...]]


def check_indices(module: Module) -> Module:
    """The module with a check of every access, where the setting asks for it."""
    if not settings.CHECK.read():
        return module
    known = {name: f for name, f in module.functions.items() if isinstance(f, Function)}
    made: dict[str, AnyFunction] = dict(module.functions)
    made.update((name, _Checker(f, known).function()) for name, f in known.items())
    return replace(module, functions=made)


class _Checker:
    """Rewrites one function; `functions` are those that it may call."""

    def __init__(self, function: Function, functions: Mapping[str, Function]) -> None:
        self._function, self._functions = function, functions

    def function(self) -> Function:
        return self._function.replace(body=self._body(self._function.body, frozenset()))

    def _body(self, stmt: Stmt, known: frozenset[Access]) -> Stmt:
        """A statement with a scope of its own; `known` are accesses that were checked before it."""
        return seq(*self._statement(stmt, set(known)))

    def _statement(self, stmt: Stmt, known: set[Access]) -> Iterator[Stmt]:
        """The statement behind its checks. What it checks is added to `known`."""
        match stmt:
            case Seq(body):
                for part in body:
                    yield from self._statement(part, known)
                return
            case Prefetch():
                yield stmt
                return
            case Assert():
                yield from self._assertion(stmt, known)
                return
            case While(cond, body):
                before = [*self._reads(cond, known)]
                yield from before
                yield stmt.replace(body=seq(self._body(body, frozenset(known)), *before))
                return
        for e in stmt.own():
            yield from self._reads(e, known)
        inside = frozenset(known)
        match stmt:
            case Store(buffer, indices, _):
                yield from self._access(buffer, indices, "writes", known)
            case For():
                loop = stmt.serial() if stmt.kind is LoopKind.PARALLEL else stmt
                yield loop.replace(body=self._body(stmt.body, inside))
                return
            case If(_, then, otherwise):
                other = None if otherwise is None else self._body(otherwise, inside)
                yield stmt.replace(then=self._body(then, inside), otherwise=other)
                return
            case CallFunction():
                yield from self._call(stmt)
            case View():
                yield from self._view(stmt)
        yield stmt

    def _reads(self, e: Expr, known: set[Access]) -> Iterator[Stmt]:
        """The checks of the loads in an expression, those of which others are indices first."""
        for load in sorted(loads_of(e), key=lambda load: load.serial):
            yield from self._access(load.buffer, load.indices, "reads", known)

    def _access(self, buffer: Buffer, indices: tuple[Expr, ...], verb: str, known: set[Access]) -> Iterator[Stmt]:
        if (buffer, indices) in known or is_inside(buffer, address(buffer.shape, indices)):
            return
        flat = _flat(buffer, indices)
        inside = _inside(buffer, flat)
        if inside is None:
            return
        if not any(loads_of(index) for index in indices):  # which a store may change
            known.add((buffer, indices))
        yield self._check(buffer, flat, verb, inside)

    def _check(self, buffer: Buffer, index: Expr, verb: str, cond: Expr) -> Assert:
        text = f"{_plain(self._function.name)} {verb} element {{0}} of {_plain(buffer.name)}, which has {{1}}"
        return Assert(cond, self._placed(text), (index, _size(buffer.shape)))

    def _placed(self, text: str) -> str:
        """The message with the front end's names of what the function computes."""
        return f"{text} @ {_plain(', '.join(self._function.source))}" if self._function.source else text

    def _assertion(self, stmt: Assert, known: set[Access]) -> Iterator[Stmt]:
        """A check of the program: what its message shows is read only where it fails."""
        yield from self._reads(stmt.cond, known)
        for load in sorted({n for v in stmt.values for n in loads_of(v)}, key=lambda load: load.serial):
            flat = _flat(load.buffer, load.indices)
            inside = _inside(load.buffer, flat) if load.lanes == stmt.cond.lanes else None
            if inside is not None:
                yield self._check(load.buffer, flat, "reads", Or(stmt.cond, inside))
        yield stmt

    def _call(self, call: CallFunction) -> Iterator[Stmt]:
        """Each argument has the elements that the function called takes."""
        callee = self._functions[call.callee]
        values = dict(zip(callee.symbols, call.symbols, strict=True))
        for param, buffer in zip(callee.params, call.arguments, strict=True):
            need = _size(tuple(substitute(extent, values) for extent in param.shape))
            have = _size(buffer.shape)
            held = less_equal(need, have)
            if not _holds(held) and not _holds(less_equal(0, simplify(have - need))):
                text = f"{_plain(call.callee)} takes {{0}} elements of {_plain(param.name)}, and {_plain(buffer.name)} "
                yield Assert(held, self._placed(f"{text}has {{1}}"), (need, have))

    def _view(self, view: View) -> Iterator[Stmt]:
        """A part of a buffer is inside it."""
        if view.offset is None:
            return
        size, whole = _size(view.buffer.shape), _size(view.source.shape)
        held = And(less_equal(0, view.offset), less_equal(view.offset + size, whole))
        text = f"{_plain(view.buffer.name)} is elements {{0}} to {{1}} of {_plain(view.source.name)}, which has {{2}}"
        yield Assert(held, self._placed(text), (view.offset, view.offset + size, whole))


def _inside(buffer: Buffer, index: Expr) -> Expr | None:
    """Whether an index, in all of its lanes, is one of the buffer's; None where that is certain."""
    size = _size(buffer.shape)
    if index.lanes == 1:
        return conjunction([part for part in (less_equal(0, index), less(index, size)) if not _holds(part)])
    low, high = (Broadcast(e, index.lanes) for e in (const(0), size))
    return And(less_equal(low, index), less(index, high))


def _flat(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The number of an element in row-major order. (Entries of programs have buffers of several dimensions.)"""
    return indices[0] if len(indices) == 1 else row_major(buffer, indices)


def _size(shape: tuple[Expr, ...]) -> Expr:
    total: Expr = const(1)
    for extent in shape:
        total = total * extent
    return total


def _holds(cond: Expr) -> bool:
    return isinstance(cond, Const) and bool(cond.value)


def _plain(name: str) -> str:
    """A name in a message, where braces stand for values."""
    return name.replace("{", "(").replace("}", ")")
