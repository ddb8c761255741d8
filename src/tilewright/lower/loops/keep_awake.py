"""Long loops between uses of tiles use one, for nobody.

    for k: t[0:256] = x86.amx.dot_bf16(…)      =>      alloc idle: f32[256] in stack
                                                       for k:
                                                         t[0:256] = x86.amx.dot_bf16(…)
                                                         idle[0:256] = x86.amx.zero_f32(…)

A processor puts to sleep what multiplies tiles, and what stores them, where it is not used for a while (`TILES_APART`),
and the next use waits until it is awake. In long sums of products a tile is stored in each iteration, which takes no
time that can be measured; in what takes long behind them, functions like exp of all sums of a tile, zeros are
multiplied now and then, and stored (docs/findings.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.core.node import Node
from tilewright.expr.build import equal
from tilewright.expr.nodes import Broadcast, Expr, Ramp, const
from tilewright.loops.edit import perfect_nest, statements, transform_statements
from tilewright.loops.nodes import Alloc, Buffer, For, Function, If, Instruct, Load, Seq, Stmt, Store, seq
from tilewright.lower.loops.known_tails import count_operations
from tilewright.target.instructions import INSTRUCTIONS, TILE_ROWS, TILES_APART, Instruction, Register, named
from tilewright.types.scopes import Scope


def keep_awake(function: Function) -> Function:
    """The function with such uses in its long loops around products in tiles, and behind them."""
    idle = _Idle()

    def change(node: Node) -> Node:
        if type(node) is For:
            return _in_sums(node, idle)
        return _behind_sums(node, idle) if type(node) is Seq else node

    body = transform_statements(function.body, change)
    return function.replace(body=seq(*idle.begin(), body)) if idle.buffers else function


class _Idle:
    """The buffers of uses for nobody, by their names."""

    def __init__(self) -> None:
        self.buffers: dict[str, Buffer] = {}

    def begin(self) -> list[Stmt]:
        """Allocates them, those that are read with zeros."""
        made: list[Stmt] = [Alloc(b) for b in self.buffers.values()]
        for name, b in self.buffers.items():
            if name.startswith("factor"):
                place = self._whole(b)
                made.append(Store(b, place.indices, Broadcast(const(0, b.dtype), place.lanes)))
        return made

    def store(self, product: Instruction) -> Stmt:
        """Stores a whole tile, as one of the factors is: no register has to be of another shape."""
        clears = INSTRUCTIONS[product.with_rows(TILE_ROWS).clears]
        return self._store(self._place("idle", clears.accumulator, Scope.STACK), clears)

    def multiply(self, product: Instruction) -> Stmt:
        """Multiplies zeros, and stores their sums."""
        one, other, acc = product.registers
        clears, moves = named(product.clears), named(product.moves)
        assert clears is not None
        assert moves is not None
        sums, idle = (self._place(n, acc, s) for n, s in (("sums", Scope.REGISTER), ("idle", Scope.STACK)))
        factors = [self._place(f"factor{n}", r, Scope.STACK) for n, r in enumerate((one, other))]
        return seq(self._store(sums, clears), self._store(sums, product, *factors), self._store(idle, moves, sums))

    def _store(self, place: Load, instruction: Instruction, *given: Load) -> Store:
        return Store(place.buffer, place.indices, Instruct(instruction, (*given, place)))

    def _place(self, name: str, register: Register, scope: Scope) -> Load:
        name = f"{name}.{register.dtype}.{register.lanes}"
        made = Buffer(name, register.dtype, (const(register.lanes),), scope)
        return self._whole(self.buffers.setdefault(name, made))

    def _whole(self, buffer: Buffer) -> Load:
        (lanes,) = buffer.shape
        return Load(buffer, (Ramp(const(0), const(1), int(lanes.value)),))  # type: ignore[attr-defined]


def _in_sums(loop: For, idle: _Idle) -> Stmt:
    """A loop with a store in its innermost one, where that adds up many products and stores no tiles itself. A product
    takes as many cycles as a tile has rows, and twice as many where it waits for its factors."""
    loops, inner = perfect_nest(loop)
    products = [i for i in _instructions(inner) if i.adds_products]
    turns = _turns(loops)
    is_long = turns is None or 2 * TILE_ROWS * len(products) * turns >= TILES_APART
    if not products or not is_long or _stores_tiles(inner):
        return loop
    inner = seq(inner, idle.store(products[0]))
    for each in reversed(loops):
        inner = each.replace(body=inner)
    return inner


def _behind_sums(body: Seq, idle: _Idle) -> Stmt:
    """Statements with products in their long loops without any. An operation of a vector takes about a cycle."""
    products = [i for s in body.body for i in _instructions(s) if i.adds_products]
    made: list[Stmt] = []
    for s in body.body:
        if products and type(s) is For and not _instructions(s):
            loops, inner = perfect_nest(s)
            each = sum(count_operations(x.value) for x in statements(inner) if type(x) is Store)
            turns, longest = _turns(loops), 3 * TILES_APART // 4
            if turns is not None and each * turns >= longest:
                few = max(longest // (each * max(turns // max(s.size or 1, 1), 1)), 1)
                turn: Expr = (s.var - s.begin) % few
                s = s.replace(body=seq(If(equal(turn, const(few - 1)), idle.multiply(products[0])), s.body))
        made.append(s)
    return body if all(a is b for a, b in zip(made, body.body, strict=True)) else seq(*made)


def _turns(loops: Sequence[For]) -> int | None:
    """The iterations of nested loops; None where that is dynamic."""
    sizes = [loop.size for loop in loops]
    return None if None in sizes else math.prod(n or 0 for n in sizes)


def _instructions(stmt: Stmt) -> list[Instruction]:
    """The instructions on tiles in a statement."""
    found = [s.value.instruction for s in statements(stmt) if type(s) is Store and type(s.value) is Instruct]
    return [i for i in found if i.has_tiles]


def _stores_tiles(body: Stmt) -> bool:
    """Whether tiles are stored to memory already, or there are loops inside."""
    for s in statements(body):
        if type(s) is For:
            return True
        if type(s) is Store and type(s.value) is Instruct and s.buffer.scope is not Scope.REGISTER:
            return True
    return False
