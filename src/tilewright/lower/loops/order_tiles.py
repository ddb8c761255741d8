"""Products in tiles that were written out in the order in which they load the fewest factors.

    t00 += a0·b0     t01 += a0·b1     t10 += a1·b0     t11 += a1·b1     t20 += a2·b0     t21 += a2·b1        9 loads
    =>
    t00 += a0·b0     t01 += a0·b1     t11 += a1·b1     t10 += a1·b0     t20 += a2·b0     t21 += a2·b1        7 loads

Beside six tiles of sums two factors have room. In turn, each product has one with that before it in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from tilewright.core.node import Node
from tilewright.expr.nodes import Expr
from tilewright.expr.simplify import simplify
from tilewright.loops.nodes import Instruct, Load, Stmt, Store
from tilewright.target.instructions import TILE_REGISTERS
from tilewright.types.scopes import Scope


def is_product(s: Stmt) -> TypeGuard[Store]:
    """Whether a statement adds a product to a tile of sums."""
    if type(s) is not Store or s.buffer.scope is not Scope.REGISTER or type(s.value) is not Instruct:
        return False
    return s.value.instruction.has_tiles and s.value.instruction.adds_products


def order_tiles(run: Sequence[Store]) -> Sequence[Store]:
    """Products of some factors with each of some others, added to as many sums, in the best of a few orders; others as
    they are."""
    factors = [_factors(s) for s in run]
    rows, columns = (list(dict.fromkeys(f[n] for f in factors)) for n in (0, 1))
    found = dict(zip(factors, run, strict=True))
    if len({s.indices for s in run}) < len(run) or len(found) < max(len(rows) * len(columns), len(run)):
        return run
    room = TILE_REGISTERS - len(run)
    down = [(a, b) for n, a in enumerate(rows) for b in columns[:: -1 if n % 2 else 1]]
    along = [(a, b) for n, b in enumerate(columns) for a in rows[:: -1 if n % 2 else 1]]
    best = min((factors, down, along), key=lambda order: count_loads(order, room))
    return run if best is factors else [found[f] for f in best]


def count_loads(order: Sequence[tuple[Node, ...]], room: int) -> int:
    """How many factors are loaded where there is room for so many, of which the last used ones stay."""
    held: list[Node] = []
    count = 0
    for factors in order:
        count += len({*factors}.difference(held))
        stay = [f for f in held if f not in factors]
        held = [*stay[len(stay) - max(min(room - len(factors), len(stay)), 0) :], *factors]
    return count


def _factors(s: Store) -> tuple[Expr, Expr]:
    assert isinstance(s.value, Instruct)
    one, other, _ = s.value.args
    return _plain(one), _plain(other)


def _plain(e: Expr) -> Expr:
    """A load at a simplified place, so that equal ones are one."""
    return e.replace(indices=tuple(map(simplify, e.indices))) if isinstance(e, Load) else e
