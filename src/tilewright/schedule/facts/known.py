"""What is proved while loops run: signs of numbers over their variables, and which ranges lie in which.

i in 0..n//8, j in 0..8     ->      n - 8*i - j - 1 >= 0;  8*i..8*i + 8 lies in 0..n
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from tilewright.analysis.intervals import Range, Ranges, facts_of
from tilewright.analysis.proofs import never_negative
from tilewright.expr.linear import Monomial, Polynomial, plus, polynomial
from tilewright.expr.nodes import Const, Expr, FloorDiv, Var
from tilewright.expr.simplify import Facts, simplify


class Known:
    """What is proved while variables are in their ranges, none of which is empty; answers are kept."""

    def __init__(self, ranges: Ranges | None = None) -> None:
        self.ranges = ranges or {}
        self._signs: dict[frozenset[tuple[Monomial, int]], bool] = {}
        self._further: dict[tuple[tuple[Var, Range], ...], Known] = {}

    @cached_property
    def facts(self) -> Facts:
        return facts_of(self.ranges)

    def never_negative(self, p: Polynomial) -> bool:
        """Whether p >= 0 is proved."""
        if all(not m for m in p):
            return p.get((), 0) >= 0
        key = frozenset(p.items())
        if key not in self._signs:
            self._signs[key] = never_negative(p, self.ranges, self.facts) or _is_rounded_up(p, self.facts)
        return self._signs[key]

    def at_least(self, a: Expr, b: Expr) -> bool:
        """Whether a >= b is proved."""
        return self.never_negative(plus(polynomial(a), polynomial(b), -1))

    def within(self, inner: Range, outer: Range) -> bool:
        """Whether it is proved that one range lies in the other."""
        return self.at_least(inner.begin, outer.begin) and self.at_least(outer.end, inner.end)

    def simplified(self, e: Expr) -> Expr:
        """The expression in its simplest form."""
        return simplify(e, self.facts)

    def where(self, ranges: Mapping[Var, Range]) -> Known:
        """What is known where further variables are in ranges, too."""
        key = tuple(ranges.items())
        if key not in self._further:
            self._further[key] = Known({**self.ranges, **ranges})
        return self._further[key]


def _is_rounded_up(p: Polynomial, facts: Facts) -> bool:
    """Whether p >= 0 is proved with c*(e // d) as e - d + 1 at least, in divisions inside others, too: so a size that
    was rounded up covers what it was rounded from."""
    made: Polynomial = {}
    for monomial, c in p.items():
        match monomial:
            case (FloorDiv(a, Const(d)),) if d > 0 and c > 0 and c % int(d) == 0:
                made = plus(made, plus(polynomial(a), {(): int(d) - 1}, -1), c // int(d))
            case _:
                made = plus(made, {monomial: c})
    return made != p and (facts.at_least_zero(made) or _is_rounded_up(made, facts))


NOTHING = Known()
"""What is known of symbols alone."""
