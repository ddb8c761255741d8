"""Sizes of a graph: PyTorch's symbolic integers as our expressions. The same symbol is the same one throughout.

Nothing here asks a symbolic integer for a truth value, which would add a guard to the compiled frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import torch

from tilewright.expr.build import maximum, minimum
from tilewright.expr.nodes import Expr, Var, const
from tilewright.expr.simplify import simplify
from tilewright.frontends.build.problems import Unsupported

Symbol = Any
"""A symbol of SymPy, which says nothing of its types."""


def _fold(function: Callable[[Expr, Expr], Expr]) -> Callable[..., Expr]:
    return lambda *parts: reduce(function, parts)


_FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "Add": _fold(lambda a, b: a + b),
    "Mul": _fold(lambda a, b: a * b),
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "CeilDiv": lambda a, b: (a + b - 1) // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "ModularIndexing": lambda a, b, c: (a // b) % c,
    "Max": _fold(maximum),
    "Min": _fold(minimum),
}
"""What functions of symbolic integers are, by the names of their classes: SymPy's and those of torch.utils._sympy."""


class Symbols:
    """The symbols of a function being built, made by `new` when they are first met."""

    def __init__(self, new: Callable[[str], Var]) -> None:
        self._new = new
        self.known: dict[Symbol, Var] = {}

    def size(self, size: Any) -> Expr:
        """The expression of a size: an int, or a torch.SymInt. Unsupported for a function that we do not have."""
        return const(size) if isinstance(size, int) else self.expression(symbolic(size))

    def shape(self, sizes: Iterable[Any]) -> tuple[Expr, ...]:
        return tuple([self.size(s) for s in sizes])

    def expression(self, e: Any) -> Expr:
        """The expression of one of SymPy's."""
        return simplify(self._of(e))

    def _of(self, e: Any) -> Expr:
        if e.is_Integer:
            return const(int(e))
        if e.is_Symbol:
            if e not in self.known:
                self.known[e] = self._new(e.name)
            return self.known[e]
        name = type(e).__name__
        if name == "Pow" and e.args[1].is_Integer and e.args[1] > 0:
            return reduce(lambda a, b: a * b, [self._of(e.args[0])] * int(e.args[1]))
        function = _FUNCTIONS.get(name)
        if function is None:
            raise Unsupported(f"a size is {e}, and {name} is not supported")
        return function(*[self._of(a) for a in e.args])


def symbolic(size: Any) -> Any:
    """The expression, one of SymPy's, of an int, a torch.SymInt or a torch.SymFloat."""
    if isinstance(size, torch.SymInt | torch.SymFloat):
        return size.node.expr
    import sympy

    return sympy.Integer(size)


def symbols_of(sizes: Iterable[Any]) -> set[Symbol]:
    """The symbols that sizes have."""
    return set().union(*(size.node.expr.free_symbols for size in sizes if isinstance(size, torch.SymInt)))


def is_in_order(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether the strides are those of a contiguous tensor, for all sizes."""
    step = symbolic(1)
    for extent, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if symbolic(stride) != step:
            return False
        step = step * symbolic(extent)
    return True


def order_in_memory(sizes: Sequence[Any], strides: Sequence[Any]) -> tuple[int, ...] | None:
    """The dimensions of a dense tensor from the outermost to the innermost in memory; None where the tensor has gaps or
    elements that overlap, or where that depends on sizes of the call. The first of several orders that are right."""
    known = [(symbolic(n), symbolic(s)) for n, s in zip(sizes, strides, strict=True)]
    if any(n == 0 for n, _ in known):
        return tuple(range(len(known)))
    for order in _orders(known):
        step = symbolic(1)
        for axis in reversed(order):
            size, stride = known[axis]
            if size != 1 and stride != step:
                break
            step = step * size
        else:
            return order
    return None


def _orders(known: Sequence[tuple[Any, Any]]) -> Iterable[tuple[int, ...]]:
    """Orders to try: as they stand, channels last, and by strides where these are numbers."""
    axes = tuple(range(len(known)))
    yield axes
    if len(axes) > 2:
        yield (0, *axes[2:], 1)
    wide = [a for a in axes if known[a][0] != 1]
    if all(known[a][1].is_Integer for a in wide):
        ones = [a for a in axes if a not in wide]
        yield (*ones, *sorted(wide, key=lambda a: -int(known[a][1])))
    else:
        yield from ((*axes[:n], *axes[n + 1 :], axes[n]) for n in range(len(axes) - 1))
        yield (*axes[:-2], *axes[-2:][::-1])
