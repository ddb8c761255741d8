"""The linker's names of loops functions, and which loops fork."""

from __future__ import annotations

from tilewright.loops.decompose import variables_of
from tilewright.loops.nodes import CallFunction, For, LoopKind


def kernel_symbol(name: str) -> str:
    """A loops function."""
    return f'"k.{name}"'


def range_symbol(name: str) -> str:
    """A body of a parallel loop, for a range of iterations."""
    return f'"r.{name}"'


def share_symbol(name: str) -> str:
    """The same as the pool calls it."""
    return f'"s.{name}"'


def forked_call(loop: For) -> CallFunction | None:
    """The call that is all of a parallel loop, its last symbol being the loop's variable; None for any other loop."""
    call = loop.body
    if loop.kind is not LoopKind.PARALLEL or not isinstance(call, CallFunction) or not call.symbols:
        return None
    *others, last = call.symbols
    return call if last is loop.var and all(loop.var not in variables_of(e) for e in others) else None
