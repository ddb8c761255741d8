"""Masked stores of a known number of first lanes become plain stores of fewer lanes.

    if ramp(0, 1, 8) < broadcast(6, 8):                           y[i:i + 4] = t[0:4] + b[0:4]
      y[i:i + 8] = t[0:8] + b[0:8]                     =>         y[i + 4:i + 6] = t[4:6] + b[4:6]

Without registers of masks a masked store takes many cycles (`Target.masked_store_cycles`), and every tile of a result
with a few columns has some. Each part computes what it stores, so values of many operations stay as they are where
there are several parts. Loads are cut as the values are: each lane reads what it read.
"""

from __future__ import annotations

from tilewright.core.node import Node
from tilewright.core.walk import preorder
from tilewright.expr.nodes import Broadcast, Expr, Ramp, Shuffle
from tilewright.loops.edit import transform_statements
from tilewright.loops.nodes import Function, If, Instruct, Load, Seq, Stmt, Store, seq
from tilewright.lower.loops.masks import lanes_that_hold
from tilewright.target import Target
from tilewright.types.scopes import Scope


def known_tails(function: Function, target: Target) -> Function:
    """The function with such stores where they take the target less; none do where it has registers of masks."""
    if target.has_masks:
        return function

    def change(node: Node) -> Node:
        return (_in_parts(node, target) or node) if type(node) is If and node.otherwise is None else node

    body = transform_statements(function.body, change)
    return function if body is function.body else function.replace(body=body)


def _in_parts(masked: If, target: Target) -> Stmt | None:
    """The stores under a mask without it, part by part; None where one cannot be cut, or parts take longer."""
    count, held = masked.cond.lanes, masked.then.body if type(masked.then) is Seq else (masked.then,)
    first = _first_lanes(masked.cond)
    if first is None:
        return None
    made: list[Stmt] = []
    for s in held:
        if type(s) is not Store or s.buffer.scope is Scope.REGISTER or s.value.lanes != count or _meets_itself(s):
            return None
        parts, core = first.bit_count(), target.core
        again = (parts - 1) * count_operations(s.value) * core.add_cycles
        if again + parts * core.store_cycles > target.masked_store_cycles:
            return None
        begin = 0
        while begin < first:
            size = 1 << (first - begin).bit_length() - 1
            value, *indices = (_part(e, begin, size) for e in (s.value, *s.indices))
            if value is None or None in indices:
                return None
            made.append(s.replace(value=value, indices=tuple(indices)))
            begin += size
    return seq(*made)


def _first_lanes(mask: Expr) -> int | None:
    """How many first lanes a mask of constants holds in; None for another one, and where it is all lanes or none."""
    lanes = lanes_that_hold(mask) or []
    first = sum(lanes)
    return first if 0 < first < len(lanes) and all(lanes[:first]) else None


def count_operations(e: Expr) -> int:
    """The operations of a value, each once, but for loads and their indices."""
    found: set[Expr] = set()
    waiting = [e]
    while waiting:
        part = waiting.pop()
        if part.lanes > 1 and type(part) not in (Load, Ramp, Broadcast) and part not in found:
            found.add(part)
            waiting += [child for child in part.children() if isinstance(child, Expr)]
    return len(found)


def _meets_itself(s: Store) -> bool:
    """Whether a store may change what its own later lanes read: it reads its buffer elsewhere than it writes."""
    return any(type(e) is Load and e.buffer is s.buffer and e.indices != s.indices for e in preorder(s.value))


def _part(e: Expr, begin: int, count: int, known: dict[Expr, Expr | None] | None = None) -> Expr | None:
    """So many lanes of a vector, from `begin` on: a scalar where it is one; None where lanes are moved. What is `known`
    of its parts is asked once: values share theirs."""
    known = {} if known is None else known
    if e not in known:
        known[e] = _cut(e, begin, count, known)
    return known[e]


def _cut(e: Expr, begin: int, count: int, known: dict[Expr, Expr | None]) -> Expr | None:
    match e:
        case Expr(lanes=1):
            return e
        case Ramp(base, stride, _):
            first = base + stride * begin
            return Ramp(first, stride, count) if count > 1 else first
        case Broadcast(a, _) if a.lanes == 1:
            return Broadcast(a, count) if count > 1 else a
        case Broadcast() | Shuffle() | Instruct():
            return None
        case Load():
            indices = [_part(i, begin, count, known) for i in e.indices]
            return None if None in indices else e.replace(indices=tuple(indices))
    parts = [_part(child, begin, count, known) for child in e.children() if isinstance(child, Expr)]
    found = [part for part in parts if part is not None]
    return e.rebuild(tuple(found)) if len(found) == len(parts) == len(e.children()) else None
