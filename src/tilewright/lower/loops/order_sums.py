"""Orders sums that were written out, so that they and what they load have room in the registers.

    acc[0:8]  = fma(x[p],     w[k],     acc[0:8])         acc[0:8]  = fma(x[p],     w[k],     acc[0:8])
    acc[8:16] = fma(x[p + 1], w[k],     acc[8:16])        acc[8:16] = fma(x[p + 1], w[k],     acc[8:16])
    …                                                =>   acc[0:8]  = fma(x[p + 1], w[k + 1], acc[0:8])
    acc[0:8]  = fma(x[p + 1], w[k + 1], acc[0:8])         …
    acc[8:16] = fma(x[p + 2], w[k + 1], acc[8:16])

The taps of a window read the same elements again, a tile later. LLVM loads an element once, and keeps it to its last
use: of more than there are registers it puts some on the stack, sums among them, each of which then waits for its
store. So sums stand together that read the same as one of their operands, where that takes the fewest loads, or they
stay as they are; and before the first load of what has no room to stay is a fence, so that it is loaded again. What
sums share may be computed of loads, a difference of two say: it is in one register, and computed again behind a fence.
Of each sum the order stays as it is: results are the same to the last bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeGuard

from tilewright.core.node import Node
from tilewright.expr.nodes import Const, Expr
from tilewright.expr.simplify import simplify
from tilewright.loops.address import address, steps_of
from tilewright.loops.edit import map_loads, transform_statements
from tilewright.loops.nodes import Buffer, Fence, Function, Instruct, Load, Seq, Stmt, Store, seq
from tilewright.lower.loops.order_tiles import is_product, order_tiles
from tilewright.target import Target
from tilewright.types.scopes import Scope


@dataclass(frozen=True, slots=True)
class _Sum:
    """A statement that adds to a vector in registers, its place; and its operands: what it loads from memory, or
    computes of that as other sums do."""

    statement: Store
    place: tuple[Expr, ...]
    operands: tuple[Expr, ...]


def order_sums(function: Function, target: Target) -> Function:
    """The function with its runs of written-out sums in an order for which the target has registers. Where nothing is
    operated on in memory, value numbering decides what is loaded when, and all stays as it is."""
    if not target.operates_on_memory:
        return function
    registers = target.vector_registers

    def change(node: Node) -> Node:
        if not isinstance(node, Seq):
            return node
        made: list[Stmt] = []
        for run in _runs(node.body):
            made += order_tiles([s for s in run if is_product(s)]) if is_product(run[0]) else _ordered(run, registers)
        same = len(made) == len(node.body) and all(a is b for a, b in zip(made, node.body, strict=True))
        return node if same else seq(*made)

    body = transform_statements(function.body, change)
    return function if body is function.body else function.replace(body=body)


def _runs(body: Sequence[Stmt]) -> Iterator[list[Stmt]]:
    """The statements in order: sums in one buffer that follow each other in a list, all others in lists of one."""
    for _, run in groupby(body, lambda s: s.buffer if _is_sum(s) or is_product(s) else s):
        yield list(run)


def _is_sum(s: Stmt) -> TypeGuard[Store]:
    """Whether a statement changes a vector in registers, and reads no other one. Registers of two dimensions are other
    ones than vectors'."""
    if type(s) is not Store or s.buffer.scope is not Scope.REGISTER or s.value.lanes == 1:
        return False
    parts = list(_loading(s.value))
    if any(type(e) is Instruct and e.instruction.has_tiles for e in parts):
        return False
    own = [e for e in parts if type(e) is Load and e.buffer.scope is Scope.REGISTER]
    return len(own) == 1 and own[0].buffer is s.buffer and own[0].indices == s.indices


def _ordered(run: list[Stmt], registers: int) -> Sequence[Stmt]:
    """A run in the order that loads least; as it is, where all that it loads has room or is read just once, or where
    the vectors that it changes are not known to lie apart."""
    if len(run) < max(registers // 2, 2):
        return run
    sums = [s for s in run if isinstance(s, Store)]  # all of them: others are alone
    places = {s.indices for s in sums}
    if len(sums) == len(places) or not _lie_apart(sums[0].buffer, places):
        return run
    found = _with_operands(sums)
    least = max(len(s.operands) for s in found)
    room = max(registers - len(places), least)
    if _most_alive(found) <= room:
        return run
    orders = [found, *(o for n in range(least) if (o := _together(found, n)) is not None)]
    rooms = range(max(room - 1, least), room + 1)  # what a register more keeps, a fence may cost
    _, best = min((_fenced(order, n) for order in orders for n in rooms), key=lambda made: made[0])
    return best


def _lie_apart(buffer: Buffer, places: Iterable[tuple[Expr, ...]]) -> bool:
    """Whether no two of these vectors share an element."""
    seen: set[int] = set()
    for indices in places:
        at = address(buffer.shape, indices)
        if not isinstance(at.base, Const) or at.index or not steps_of(at):
            return False
        elements = {at.offset + step for step in steps_of(at)}
        if not seen.isdisjoint(elements):
            return False
        seen |= elements
    return True


def _with_operands(sums: Sequence[Store]) -> list[_Sum]:
    """The statements with their loads at simplified places, so that equal ones are one, and their operands."""

    def plain(e: Load) -> Load:
        return e if _is_register(e) else e.replace(indices=tuple(map(simplify, e.indices)))

    simplified: dict[Node, Node] = {}
    made = [s for s in (map_loads(s, plain, simplified) for s in sums) if isinstance(s, Store)]
    shared = Counter(part for s in made for part in _loading(s.value))
    return [_Sum(s, s.indices, _operands(s.value, shared)) for s in made]


def _operands(value: Expr, shared: Counter[Expr]) -> tuple[Expr, ...]:
    """Of a sum's parts that are loaded, or computed of loads alone, the largest that other sums have, too."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if part in seen or not part.kinds & Load.bit:
            continue
        seen.add(part)
        if type(part) is Load or (shared[part] > 1 and not any(map(_is_register, _loads(part)))):
            if not _is_register(part):
                found[part] = None
        else:
            waiting += _inside(part)
    return tuple(found)


def _loading(value: Expr) -> Iterator[Expr]:
    """The parts of an expression that load, and instructions, each once."""
    seen: set[Expr] = set()
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if part.kinds & (Load.bit | Instruct.bit) and part not in seen:
            seen.add(part)
            yield part
            waiting += _inside(part)


def _inside(e: Expr) -> list[Expr]:
    """The operands of an expression, the first one last."""
    return [child for child in reversed(e.children()) if isinstance(child, Expr)]


def _loads(value: Expr) -> list[Load]:
    """The loads in an expression, each once."""
    return [e for e in _loading(value) if type(e) is Load]


def _is_register(e: Expr) -> bool:
    """Whether an expression is read from a register of vectors."""
    return type(e) is Load and e.buffer.scope is Scope.REGISTER


def _most_alive(sums: Sequence[_Sum]) -> int:
    """The most operands that are used at or behind a statement, and were made at or before it."""
    first: dict[Expr, int] = {}
    last: dict[Expr, int] = {}
    for n, s in enumerate(sums):
        for operand in s.operands:
            first.setdefault(operand, n)
            last[operand] = n
    change = [0] * (len(sums) + 1)
    for operand, n in first.items():
        change[n] += 1
        change[last[operand] + 1] -= 1
    most = alive = 0
    for step in change:
        alive += step
        most = max(most, alive)
    return most


def _together(sums: Sequence[_Sum], place: int) -> list[_Sum] | None:
    """The sums that have the same operand at a place together, in the order of the first of them; None where that
    changes the order in which a vector is added to, or where a sum has no such operand."""
    groups: dict[Expr, list[_Sum]] = {}
    for s in sums:
        if len(s.operands) <= place:
            return None
        groups.setdefault(s.operands[place], []).append(s)
    found = [s for group in groups.values() for s in group]
    number = {id(s): n for n, s in enumerate(sums)}
    last: dict[tuple[Expr, ...], int] = {}
    for s in found:
        if number[id(s)] < last.get(s.place, -1):
            return None
        last[s.place] = number[id(s)]
    return found


def _fenced(sums: Sequence[_Sum], room: int) -> tuple[int, list[Stmt]]:
    """How many loads the sums take, and they with fences before those that load what had no room to stay: of more
    operands than there is `room` for, those go that are used last."""
    uses: dict[Expr, list[int]] = {}
    for n, s in reversed(list(enumerate(sums))):
        for operand in s.operands:
            uses.setdefault(operand, []).append(n)
    loads = {operand: len(_loads(operand)) for operand in uses}
    held: set[Expr] = set()
    gone: set[Expr] = set()
    made: list[Stmt] = []
    count = 0
    for s in sums:
        if not gone.isdisjoint(s.operands):
            made.append(Fence())
            held, gone = set(), set()
        count += sum(loads[operand] for operand in s.operands if operand not in held)
        while len(held.union(s.operands)) > room:
            latest = max(held.difference(s.operands), key=lambda operand: uses[operand][-1])
            held.remove(latest)
            gone.add(latest)
        for operand in s.operands:
            uses[operand].pop()
        held = {operand for operand in held.union(s.operands) if uses[operand]}
        made.append(s.statement)
    return count, made
