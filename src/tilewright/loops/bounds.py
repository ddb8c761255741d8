"""How far an index reaches over the loops around it: the verifier's proof that some iteration is out of bounds.

Only where it is certain: every loop around the access has bounds over symbols alone (so that all corners of the
iteration space are visited when no loop is empty), nothing guards the access, and the index is affine in the loop
variables with coefficients of known sign.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.core.walk import preorder
from tilewright.expr.linear import Polynomial, affine_in, expression, plus, polynomial, substitute, times
from tilewright.expr.nodes import Const, Expr, Ramp, Var, const
from tilewright.expr.simplify import Facts
from tilewright.loops.nodes import Block, For, Load


class Reach:
    """The loops, axes and guards around the present place."""

    def __init__(self) -> None:
        self._loops: list[For] = []
        self._axes: dict[Expr, Polynomial] = {}
        self._guards = 0
        self._facts = Facts()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Inside, statements need not run."""
        self._guards += 1
        try:
            yield
        finally:
            self._guards -= 1

    @contextmanager
    def loop(self, loop: For) -> Iterator[None]:
        """Inside, the loop's variable has its range."""
        inner = {s.var for s in self._loops} | set(self._axes)
        parts = [n for bound in (loop.begin, loop.end) for n in preorder(bound)]
        rectangular = not any(isinstance(n, Load) or n in inner for n in parts)
        empty = isinstance(loop.begin, Const) and isinstance(loop.end, Const) and loop.begin.value >= loop.end.value
        certain = rectangular and not empty
        self._guards += not certain
        self._loops.append(loop)
        try:
            yield
        finally:
            self._loops.pop()
            self._guards -= not certain

    @contextmanager
    def block(self, block: Block) -> Iterator[None]:
        """Inside, the axes stand for what they are bound to, and the predicate guards."""
        before = dict(self._axes)
        self._axes.update({a.var: substitute(polynomial(a.binding), before) for a in block.axes})
        self._guards += block.where is not None
        try:
            yield
        finally:
            self._guards -= block.where is not None
            self._axes = before

    def outside(self, index: Expr, extent: Expr) -> Expr | None:
        """An index that some iteration takes and that is not in 0..extent, or None when there is no proof of one."""
        if self._guards:
            return None
        least, greatest = index, index
        if isinstance(index, Ramp):
            last = index.base + index.stride * (index.count - 1)
            least, greatest = index.base, last
        if least.lanes != 1:
            return None
        high = self._corner(substitute(polynomial(greatest), self._axes), 1)
        if high is not None and self._facts.at_least_zero(plus(high, polynomial(extent), -1)):
            return expression(high)
        low = self._corner(substitute(polynomial(least), self._axes), -1)
        if low is not None and self._facts.at_least_zero(plus({(): -1}, low, -1)):
            return expression(low)
        return None

    def _corner(self, p: Polynomial, direction: int) -> Polynomial | None:
        """The greatest (1) or least (-1) value over the loops, over symbols; None when it is not certain."""
        for loop in reversed(self._loops):
            parts = affine_in(p, loop.var)
            if parts is None:
                return None
            coefficient, rest = parts
            if not coefficient:
                continue
            if self._facts.at_least_zero(coefficient):
                last = direction > 0
            elif self._facts.at_least_zero(plus({}, coefficient, -1)):
                last = direction < 0
            else:
                return None
            end = polynomial(loop.end - const(1) if last else loop.begin)
            p = plus(rest, times(coefficient, end))
        return p if all(isinstance(atom, Var) and self._is_symbol(atom) for m in p for atom in m) else None

    def _is_symbol(self, var: Var) -> bool:
        return var.least is not None and var.least >= 0 and var not in self._axes
