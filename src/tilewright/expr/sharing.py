"""Which parts of an expression are written once, under a name, and not wherever they are used.

Expressions are shared graphs: sixty lines of `x = x*x` make sixty nodes, and 2**60 symbols where each part is written
out. Parts that are used more than once get a name unless they are short; so do long parts that are used once, so that
no line grows without end. What is written is then no longer than a multiple of the number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.core.walk import postorder
from tilewright.expr import dtypes
from tilewright.expr.nodes import Binary, Const, Expr, Ramp, Var

LARGE = 100
"""From how many symbols on an expression is written with names where it stands among others."""

BULKY = 50
"""From how many symbols on a part that is used once gets a name."""

FAMILIAR = 40
"""Below how many characters an index or an element is written wherever it is used."""

SHORT = 12
"""Below how many characters any part is written wherever it is used."""

WORTH = 24
"""How many characters a name must save."""


def tree_size(root: Expr, known: dict[Expr, int]) -> int:
    """How many symbols an expression has as a tree, without sharing, counted up to LARGE. `known` keeps the sizes
    of the parts."""
    stack = [root]
    while stack:
        node = stack[-1]
        if node not in known:
            parts = [c for c in node.children() if isinstance(c, Expr)]
            waiting = [c for c in parts if c not in known]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            known[node] = min(LARGE, 1 + sum([known[c] for c in parts]))
        stack.pop()
    return known[root]


def shared_parts(roots: Iterable[Expr]) -> dict[Expr, int]:
    """The parts of expressions that are used more than once and can have a name, and how often: no constants, no
    variables, no ramps, which are written as slices. What a ramp is made of is used as often as the ramp."""
    roots = tuple(roots)
    order = [n for n in postorder(roots) if isinstance(n, Expr)]
    uses = dict.fromkeys(order, 0)
    for root in roots:
        uses[root] += 1
    for node in reversed(order):
        times = uses[node] if isinstance(node, Ramp) else 1
        for part in node.children():
            if isinstance(part, Expr):
                uses[part] += times
    return {n: count for n, count in uses.items() if count > 1 and not isinstance(n, Const | Var | Ramp)}


def is_worth_a_name(e: Expr, text: str, uses: int, element: bool) -> bool:
    """Whether a part that is used several times is long enough for a name; `element`: it is a buffer's."""
    if element or (isinstance(e, Binary) and e.dtype is dtypes.index):
        return len(text) >= FAMILIAR
    return len(text) >= SHORT and len(text) * (uses - 1) >= WORTH
